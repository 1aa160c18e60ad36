/* Small page-locked memory, in pieces of larger allocations: allocating it may wait for all that is
 * queued on the device (gpu.h), for ranks of this process, too, that wait for the one who
 * allocates. So what a communicator needs is mostly there when it is made beside another one. */
#ifndef TTI_DEVICE_PINNED_H
#define TTI_DEVICE_PINNED_H

#include "device/gpu.h"

enum {
    TTI_PINNED_PIECE = 64 << 10, /* the most that may be asked for */
    TTI_PINNED_PIECES = 32,      /* of an allocation */
};

/* PINNED memory for this device, aligned to pages, of any contents. */
enum tutti_result tti_gpu_pinned_take(struct tti_gpu *gpu, size_t bytes, void **memory);
/* `over`: nothing on the device is at it any more. Else neither it nor its neighbours are lent
 * again, and their allocation is freed, which waits for the device, when all are given back. NULL
 * is fine. An allocation that nobody uses is retired (reclaim.h). */
void tti_gpu_pinned_give(void *memory, bool over);

#endif
