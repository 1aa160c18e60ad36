/* What the kernel says in its small files, below /sys and /proc. */
#ifndef TTI_BASE_KERNEL_FILE_H
#define TTI_BASE_KERNEL_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* The first line, as far as it fits, without its end; false, and "", where there is none: no such
 * file, or one that refuses to be read. */
bool tti_kernel_line(const char *path, char *line, size_t bytes);
/* The first number, decimal, that the first line begins with ("0-1,4" gives 0, "400 Gb/sec" 400);
 * -1 where there is none, or one that an int does not hold. */
int tti_kernel_number(const char *path);

#endif
