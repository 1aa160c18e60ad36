/* Sends out of device memory without a stop in pinned host memory, where the network can read it: a
 * part of staging (gpu_stage.c), which copies what cannot go so.
 *
 * Who queues a call asks tti_gpu_send_ready: does the plan of this operation only send its input,
 * over transports that read the device's memory, and have they registered this allocation? Which
 * plan will run only the progress thread knows, for selection belongs to it: so it tells, when it
 * runs an operation of a shape for the first time (tti_gpu_send_learn), and the next of that shape
 * goes without copies. Ranks need not agree: who receives sees no difference.
 *
 * Such an operation names its input by `device` (coll/operation.h). Of these blocks one may be this
 * rank's own part of the output, which a plan copies and then sends from there: see
 * tti_gpu_send_own. */
#ifndef TTI_COLL_GPU_SEND_H
#define TTI_COLL_GPU_SEND_H

#include "coll/operation.h"
#include "plan/plan.h"

struct tti_gpu_side;
struct tti_gpu_send;

/* With TUTTI_DEVICE_DIRECT. Where no transport of the communicator's reads device memory,
 * comm->gpu_send stays NULL, and that is all that it costs. */
enum tutti_result tti_gpu_send_create(struct tutti_comm *comm);
/* Transports are about to be closed: nothing is registered any more. */
void tti_gpu_send_end(struct tutti_comm *comm);
void tti_gpu_send_destroy(struct tti_gpu_send *send); /* NULL is fine */
/* Bytes of the heap that it takes; `send` may be NULL. */
size_t tti_gpu_send_bytes(struct tti_gpu_send *send);

/* Block *in of IN is the same data as block *out of OUT: false if there is no such. */
bool tti_gpu_send_own(enum tutti_collective collective, int size, int rank, int root, uint32_t *in,
                      uint32_t *out);

/* May `o`, on `bytes` of device memory at `in`, be queued with `device` = `in`? Under the lock of
 * the side. Errors only with TUTTI_DEVICE_DIRECT=require: why not. */
enum tutti_result tti_gpu_send_ready(struct tutti_comm *comm, const struct tti_operation *o,
                                     const void *in, size_t bytes, bool *ready);
/* By who runs operations, of a collective that was staged: this is its plan. Does it only send its
 * input, and that over transports which can? */
bool tti_gpu_send_learn(struct tutti_comm *comm, const struct tti_operation *o,
                        const struct tti_plan *plan);

#endif
