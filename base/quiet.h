/* System calls whose failure the kernel also tells by a signal that ends the program, unless it was
 * prepared: writing where nobody reads (SIGPIPE), and beyond the limit on files' sizes (SIGXFSZ,
 * `ulimit -f`, which counts for shared memory, too). Here they only fail; a library ends no
 * program. What was pending before stays so. */
#ifndef TTI_BASE_QUIET_H
#define TTI_BASE_QUIET_H

#include <stddef.h>
#include <sys/types.h>

/* As write(2) and ftruncate(2): with errno EPIPE or EFBIG, and no signal. */
ssize_t tti_quiet_write(int fd, const void *data, size_t bytes);
int tti_quiet_ftruncate(int fd, off_t bytes);

#endif
