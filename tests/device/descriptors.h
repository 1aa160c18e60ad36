/* For tests of what is passed between processes: pipes to talk over, and counting what is open. */
#ifndef TTI_TESTS_DEVICE_DESCRIPTORS_H
#define TTI_TESTS_DEVICE_DESCRIPTORS_H

#include "tests/tutti_cmocka.h"

#include <dirent.h>
#include <unistd.h>

static inline int open_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static inline void put(int fd, const void *data, size_t bytes)
{
    assert_int_equal(write(fd, data, bytes), (ssize_t)bytes);
}

static inline void get(int fd, void *data, size_t bytes)
{
    for (size_t have = 0; have < bytes;) {
        const ssize_t n = read(fd, (char *)data + have, bytes - have);
        assert_true(n > 0);
        have += (size_t)n;
    }
}

#endif
