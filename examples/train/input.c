/* Reading input files (input.h). */
#include "examples/train/input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

uint8_t *input_read(const char *path, size_t least, size_t *bytes)
{
    struct stat info;
    uint8_t *data = NULL;
    FILE *in = fopen(path, "rb");
    if (!in || fstat(fileno(in), &info) != 0)
        fprintf(stderr, "cannot open %s: %s\n", path, strerror(errno));
    else if (!S_ISREG(info.st_mode) || (size_t)info.st_size < least)
        fprintf(stderr, "%s is no regular file of at least %zu bytes\n", path, least);
    else if (!(data = malloc((size_t)info.st_size + 1)))
        fprintf(stderr, "no memory for the %lld bytes of %s\n", (long long)info.st_size, path);
    else if (fread(data, 1, (size_t)info.st_size, in) != (size_t)info.st_size) {
        fprintf(stderr, "cannot read %s\n", path);
        free(data);
        data = NULL;
    } else
        *bytes = (size_t)info.st_size;
    if (in)
        fclose(in);
    return data;
}
