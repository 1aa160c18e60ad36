/* What is mapped where in this process: /proc/self/maps, asked for one address (Linux 6.11 and
 * newer) or read from the beginning (a program such as PyTorch has thousands of lines there). */
#ifndef TTI_DEVICE_PROCESS_MAPS_H
#define TTI_DEVICE_PROCESS_MAPS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct tti_maps {
    FILE *file;
    char *line;
    size_t room;
    bool read; /* from the beginning, rather than asked */
};

struct tti_mapping {
    uintptr_t low, high; /* [low, high) */
    char mode[5];        /* as in the file: "rw-p" */
    bool stack;          /* the first thread's */
    uint64_t inode;      /* of the file behind it; 0: none */
};

/* Errors: SYSTEM. */
enum tutti_result tti_maps_open(struct tti_maps *maps);
/* The mapping that `at` lies in, or the next one after it. False: there is none. `at` is no lower
 * than in the call before, and beyond what that found. */
bool tti_maps_find(struct tti_maps *maps, uintptr_t at, struct tti_mapping *found);
void tti_maps_close(struct tti_maps *maps);

#endif
