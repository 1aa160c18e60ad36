/* A plan as the kernel that runs plans reads it (kernel_args.h, cuda/plan_run.cu): flat, with what
 * the kernel would otherwise have to ask the senders: where their messages lie in their memory. */
#ifndef TTI_DEVICE_PROGRAM_H
#define TTI_DEVICE_PROGRAM_H

#include "device/kernel_args.h"
#include "plan/plan.h"

/* What all ranks' programs need, alike on all ranks. */
struct tti_program_shape {
    size_t bytes;                   /* of the largest program */
    uint32_t message;               /* the most chunks in a message */
    uint32_t scratch_blocks, slots; /* the most */
};

/* plans[r]: of rank r, nranks of them, of one collective and spec. UNSUPPORTED: more lanes or ranks
 * than the kernel takes; INTERNAL: a message without its other end, or a ref that does not agree
 * with its step (such plans do not verify). */
enum tutti_result tti_program_shape_of(struct tti_plan *const *plans, int nranks,
                                       struct tti_program_shape *shape);
/* The program of `rank`, in `room` bytes of zeroed memory; shape.bytes are enough. */
enum tutti_result tti_program_make(struct tti_plan *const *plans, int nranks, int rank,
                                   void *memory, size_t room);

#endif
