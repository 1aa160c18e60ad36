/* How the kernel was told to treat shared memory of this process (/proc/self/smaps). */
#ifndef TTI_TESTS_MEMFD_FLAGS_H
#define TTI_TESTS_MEMFD_FLAGS_H

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* Mappings of the library's memfds of exactly so many bytes; *flagged of them have the flag, of two
 * letters ("nh": no huge pages, "hg": huge pages). -1: /proc cannot be read. */
static inline int memfd_flags(size_t bytes, const char *flag, int *flagged)
{
    char line[1000], word[8];
    int count = 0;
    size_t here = 0; /* bytes of the mapping that the lines are about, if it is such a one */
    FILE *file = fopen("/proc/self/smaps", "r");
    snprintf(word, sizeof word, " %s", flag);
    *flagged = 0;
    while (file && fgets(line, sizeof line, file)) {
        unsigned long begin = 0, end = 0;
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2) {
            here = strstr(line, "memfd:tutti") ? end - begin : 0;
            count += here == bytes;
        } else if (here == bytes && strncmp(line, "VmFlags:", 8) == 0) {
            *flagged += strstr(line, word) != NULL;
        }
    }
    return file ? (fclose(file), count) : -1;
}

/* Has this kernel huge pages, and so these flags? */
static inline int memfd_flags_exist(void)
{
    void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const int told = page != MAP_FAILED && madvise(page, 4096, MADV_NOHUGEPAGE) == 0;
    if (page != MAP_FAILED)
        munmap(page, 4096);
    return told;
}

#endif
