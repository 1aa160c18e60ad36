/* Device memory that the ranks of a host map: handles between processes, the pointer itself between
 * threads of one. An arena is one allocation, offered to all ranks of a communicator and mapped by
 * each; what lies in it is coll's business (coll/gpu/gpu_map.c).
 *
 * Between threads an arena lives until the last of those who have it lets it go: a kernel of a rank
 * that learns late of a failure may still write to it. Between processes the driver sees to that
 * for what goes by descriptor; of what goes by a handle of CUDA IPC it promises nothing.
 *
 * Works on any implementation of device/gpu.h. */
#ifndef TTI_TRANSPORT_CUDA_IPC_ARENA_H
#define TTI_TRANSPORT_CUDA_IPC_ARENA_H

#include "device/gpu.h"

struct tti_arena;

/* What an owner sends to the others. Plain bytes. */
struct tti_arena_offer {
    uint64_t process[2];     /* the owner's: pid and a random number */
    uint64_t bytes;          /* 0: there is no arena */
    struct tti_arena *arena; /* for threads of that process */
    uint64_t context;        /* what the device was opened in */
    int32_t device;
    uint16_t by_descriptor; /* other processes need one to map it */
    uint16_t exported;      /* else they cannot map it at all: threads of the owner's alone */
    unsigned char uuid[16]; /* of the device */
    struct tti_gpu_handle handle;
};

/* A mapping of an arena, own or another's. Zero-initialised: none. */
struct tti_arena_map {
    char *base;
    struct tti_arena *arena; /* of this process; NULL: imported */
};

/* Allocate on the device and fill with zeros; returns when that is done, or at the deadline.
 * `shared`: by alloc_shared. */
enum tutti_result tti_arena_create(struct tti_gpu *gpu, size_t bytes, bool shared,
                                   uint64_t deadline, struct tti_arena_map *own);
/* Describe it. `own` may be empty. *fd: -1, or a descriptor for other processes, the caller's.
 * Memory that the driver will not export (in a sandbox, say) is fine for threads of one process. */
enum tutti_result tti_arena_describe(struct tti_gpu *gpu, const struct tti_arena_map *own,
                                     size_t bytes, struct tti_arena_offer *offer, int *fd);
/* Whether the offer comes from this process; whether two are of one device. */
bool tti_arena_local(const struct tti_arena_offer *offer);
bool tti_arena_same_process(const struct tti_arena_offer *a, const struct tti_arena_offer *b);
bool tti_arena_same_device(const struct tti_arena_offer *a, const struct tti_arena_offer *b);
/* Map it for kernels and copies of `gpu`; `fd`: the owner's, where it has one. May block.
 * UNSUPPORTED names the two devices when one cannot reach the other. */
enum tutti_result tti_arena_map(struct tti_gpu *gpu, const struct tti_arena_offer *offer, int fd,
                                struct tti_arena_map *map);
/* Let go, of an own one too; it is retired (device/reclaim.h). Empty ones are fine. */
void tti_arena_unmap(struct tti_gpu *gpu, struct tti_arena_map *map);

#endif
