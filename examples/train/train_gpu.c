/* A GPU for a trainer (train_gpu.h). */
#include "examples/train/train_gpu.h"

#include "base/clock.h"
#include "coll/door.h"
#include "examples/train/together.h"

#include <stdio.h>
#include <stdlib.h>

enum { PATIENCE_S = 600 };

static int side_check(enum tutti_result result, const char *what)
{
    return together_check(NULL, result, what);
}

int train_gpu_choose(const char *device, int threads)
{
    const struct tti_gpu_ops *ops = NULL;
    int count = 0;
    /* Before the driver starts: ranks that are threads want more queues than it has by itself; and
     * kernels, of cuBLAS too, that are loaded when they are first launched wait for the other
     * ranks', which wait for them. */
    if (setenv("TUTTI_DEVICE", device, 1) != 0 ||
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0) != 0 ||
        (threads > 1 && setenv("CUDA_MODULE_LOADING", "EAGER", 0) != 0) ||
        side_check(tti_gpu_find(device, &ops), "--device") ||
        side_check(ops->count(&count), "--device"))
        return 1;
    if (count > 0)
        return 0;
    fprintf(stderr, "--device %s: there is none on this machine\n", device);
    return 1;
}

int train_gpu_open(struct train_gpu *side, tutti_comm *comm)
{
    struct train_gpu made = {0};
    int count = 0;
    if (side_check(tti_gpu_in_use(&made.ops), "device"))
        return 1;
    if (!made.ops || side_check(made.ops->count(&count), "device") || count == 0) {
        fprintf(stderr, "there is no GPU; --device sim simulates one\n");
        return 1;
    }
    if (side_check(made.ops->open(tutti_comm_local_rank(comm) % count, &made.gpu), "open the GPU"))
        return 1;
    if (side_check(made.ops->stream_create(made.gpu, &made.stream), "make a stream")) {
        made.ops->close(made.gpu);
        return 1;
    }
    *side = made;
    return 0;
}

void train_gpu_close(struct train_gpu *side)
{
    if (!side->gpu)
        return;
    side->ops->stream_destroy(side->gpu, side->stream);
    side->ops->close(side->gpu);
    *side = (struct train_gpu){0};
}

void *train_gpu_alloc(struct train_gpu *side, size_t bytes)
{
    void *made = NULL;
    if (side_check(side->ops->alloc(side->gpu, TTI_MEMORY_DEVICE, bytes > 0 ? bytes : 1, &made),
                   "memory of the GPU"))
        return NULL;
    if (!train_gpu_zero(side, made, bytes))
        return made;
    side->ops->free(side->gpu, made);
    return NULL;
}

void *train_gpu_alloc_here(struct train_gpu *side, size_t bytes)
{
    void *made = NULL;
    if (side_check(side->ops->alloc(side->gpu, TTI_MEMORY_PINNED, bytes > 0 ? bytes : 1, &made),
                   "page-locked memory"))
        return NULL;
    return made;
}

void train_gpu_free(struct train_gpu *side, void *memory)
{
    if (side->gpu && memory)
        side->ops->free(side->gpu, memory);
}

int train_gpu_wait(struct train_gpu *side)
{
    return side_check(
        tti_gpu_stream_wait(side->gpu, side->stream, tti_deadline_in(PATIENCE_S), "the GPU"),
        "compute");
}

int train_gpu_copy(struct train_gpu *side, void *to, const void *from, size_t bytes)
{
    return side_check(side->ops->copy(side->gpu, to, from, bytes, side->stream), "copy");
}

static int side_copy(struct train_gpu *side, void *to, const void *from, size_t bytes)
{
    return train_gpu_copy(side, to, from, bytes) || train_gpu_wait(side);
}

int train_gpu_point(struct train_gpu *side, struct tti_gpu_event **point)
{
    return side_check(side->ops->event_create(side->gpu, 0, point), "make an event");
}

int train_gpu_set(struct train_gpu *side, struct tti_gpu_event *point)
{
    return side_check(side->ops->event_record(point, side->stream), "record an event");
}

int train_gpu_reach(struct train_gpu *side, struct tti_gpu_event *point)
{
    return side_check(tti_gpu_event_wait(side->gpu, point, tti_deadline_in(PATIENCE_S), "the GPU"),
                      "compute");
}

int train_gpu_put(struct train_gpu *side, void *device, const void *host, size_t bytes)
{
    return side_copy(side, device, host, bytes);
}

int train_gpu_get(struct train_gpu *side, void *host, const void *device, size_t bytes)
{
    return side_copy(side, host, device, bytes);
}

int train_gpu_zero(struct train_gpu *side, void *device, size_t bytes)
{
    return bytes > 0 &&
           side_check(side->ops->fill(side->gpu, device, 0, bytes, side->stream), "fill");
}

int train_gpu_narrow(struct train_gpu *side, void *out, void *in, size_t count)
{
    enum { THREADS = 256, EACH = 4096, MOST = 2048 };
    const struct tti_reduce_copy_args args = {.src = {in},
                                              .dst = {out},
                                              .count = count,
                                              .srcs = 1,
                                              .dsts = 1,
                                              .src_wide = 1,
                                              .op = TUTTI_SUM};
    const size_t blocks = (count + EACH - 1) / EACH;
    const struct tti_gpu_launch launch = {.kernel = TTI_KERNEL_REDUCE_COPY,
                                          .type = TUTTI_BFLOAT16,
                                          .blocks = blocks < MOST ? (unsigned)blocks : MOST,
                                          .threads = THREADS,
                                          .args = &args,
                                          .args_bytes = sizeof args};
    return side_check(side->ops->launch(side->gpu, &launch, side->stream), "narrow");
}

int train_gpu_launch(struct train_gpu *side, const struct tti_gpu_own *kernel, unsigned blocks,
                     unsigned threads, const void *args, size_t bytes)
{
    const struct tti_gpu_launch launch = {
        .own = kernel, .blocks = blocks, .threads = threads, .args = args, .args_bytes = bytes};
    return side_check(side->ops->launch(side->gpu, &launch, side->stream), kernel->symbol);
}
