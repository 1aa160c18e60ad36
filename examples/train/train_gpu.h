/* A GPU that a trainer computes on, or the simulated one: memory, copies, kernels, on one stream.
 * Built on device/gpu.h, which both are behind; a program outside of this repository would call the
 * CUDA runtime here. Functions return 0, or 1 after a message on stderr. */
#ifndef EXAMPLES_TRAIN_TRAIN_GPU_H
#define EXAMPLES_TRAIN_TRAIN_GPU_H

#include "device/gpu.h"

struct train_gpu {
    const struct tti_gpu_ops *ops;
    struct tti_gpu *gpu; /* NULL: the CPU computes */
    tutti_stream stream; /* by which the model computes */
};

/* --device cuda, sim: what the library shall use, for this process; before the first communicator.
 * `threads`: so many ranks of it, or 0. */
int train_gpu_choose(const char *device, int threads);
/* The device of this rank: its number on the host, modulo the devices. */
int train_gpu_open(struct train_gpu *side, tutti_comm *comm);
void train_gpu_close(struct train_gpu *side);

/* Memory of zeros on the device; NULL after a message. */
void *train_gpu_alloc(struct train_gpu *side, size_t bytes);
void train_gpu_free(struct train_gpu *side, void *memory);
/* Memory of the host that copies neither wait for nor are held up by: page-locked. NULL after a
 * message; train_gpu_free. */
void *train_gpu_alloc_here(struct train_gpu *side, size_t bytes);
/* From the host to the device, and back: done when they return. */
int train_gpu_put(struct train_gpu *side, void *device, const void *host, size_t bytes);
int train_gpu_get(struct train_gpu *side, void *host, const void *device, size_t bytes);
int train_gpu_zero(struct train_gpu *side, void *device, size_t bytes); /* queued */
/* Queued; memory of the host is from train_gpu_alloc_here, and nobody else's until the copy is
 * done.
 */
int train_gpu_copy(struct train_gpu *side, void *to, const void *from, size_t bytes);
/* A point in the stream: made, set behind what is queued so far, and waited for. */
int train_gpu_point(struct train_gpu *side, struct tti_gpu_event **point);
int train_gpu_set(struct train_gpu *side, struct tti_gpu_event *point);
int train_gpu_reach(struct train_gpu *side, struct tti_gpu_event *point);
/* All that is queued is done. */
int train_gpu_wait(struct train_gpu *side);
/* float32 to bfloat16; queued. */
int train_gpu_narrow(struct train_gpu *side, void *out, void *in, size_t count);
/* One of the trainer's own kernels; queued. */
int train_gpu_launch(struct train_gpu *side, const struct tti_gpu_own *kernel, unsigned blocks,
                     unsigned threads, const void *args, size_t bytes);

#endif
