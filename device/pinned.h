/* Small page-locked memory, in pieces of larger allocations: allocating it may wait for all that is
 * queued on the device (gpu.h), for ranks of this process, too, that wait for the one who
 * allocates. So what a communicator needs is there before its first work is queued: the first of
 * its ranks here that takes a piece finds, or makes, room for the others as well, and an allocation
 * for communicators to come is made when all devices are idle. */
#ifndef TTI_DEVICE_PINNED_H
#define TTI_DEVICE_PINNED_H

#include "device/gpu.h"

enum {
    TTI_PINNED_PIECE = 64 << 10, /* bytes of a piece */
    TTI_PINNED_PIECES = 32,      /* of an allocation */
    TTI_PINNED_SPARE = 8,        /* with fewer left another one is made at the next idle moment */
};

struct tti_pinned_want {
    uint64_t comm;     /* for whom: a number */
    int ranks;         /* threads of this process that will take one each for it, this one too */
    uint64_t deadline; /* of waiting for a thread that is allocating; */
    bool (*stop)(void *argument); /* meanwhile: is that no use any more? NULL: go on */
    void *argument;
};

enum tti_pinned_end {
    TTI_PINNED_OVER,   /* nothing on the device is at it any more */
    TTI_PINNED_UNSURE, /* something may be: it is lent no more, and freed with the others */
    TTI_PINNED_KEPT,   /* something is, and it stays for good */
};

/* A piece for this device: PINNED memory, aligned to pages, of any contents. Not inside the gate
 * (reclaim.h). TIMEOUT: another thread was allocating all the time; ABORTED: until `stop`. */
enum tutti_result tti_gpu_pinned_take(struct tti_gpu *gpu, const struct tti_pinned_want *want,
                                      void **memory);
/* Nobody else of its communicator is expected at this device any more. An allocation with an unsure
 * piece is freed, which waits for the device, when all are given back and it is not promised. NULL
 * is fine. An allocation that nobody uses is retired (reclaim.h), unless it is the spare one. */
void tti_gpu_pinned_give(void *memory, enum tti_pinned_end how);

#endif
