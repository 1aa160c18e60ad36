/* Small files of the kernel's (kernel_file.h). */
#include "base/kernel_file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool tti_kernel_line(const char *path, char *line, size_t bytes)
{
    line[0] = '\0';
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    const bool there = fgets(line, (int)bytes, file) != NULL;
    fclose(file);
    line[there ? strcspn(line, "\n") : 0] = '\0';
    return line[0] != '\0';
}

int tti_kernel_number(const char *path)
{
    char line[80], *end = NULL;
    if (!tti_kernel_line(path, line, sizeof line))
        return -1;
    const long number = strtol(line, &end, 10);
    return end == line || number < INT_MIN || number > INT_MAX ? -1 : (int)number;
}
