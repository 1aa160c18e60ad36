/* All-reduces of several ranks on one device, a stream for each: graphs of many launches, so that
 * what is timed is the kernel and its waiting, not the launching. Sums are checked. */
#include "bench/gpu/gpu_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_RANKS = 8,
    REPEATS = 7,
    SLOT_BYTES = 64 << 10,
    LINE_BYTES = SLOT_BYTES / 120 * 120 + 120,
    MOST_BYTES_A_RANK = 256 << 20
};

struct rank {
    tutti_stream stream;
    struct tti_gpu_graph *graph;
    struct tti_gpu_control *control;
    struct tti_gpu_status *status;
    void *slots, *lines;
    char *in, *out;
};

struct job {
    struct gpu_bench *b;
    int ranks;
    struct rank rank[MOST_RANKS];
};

static void *ranks_memory(struct job *job, size_t bytes)
{
    struct tti_gpu *gpu = job->b->gpu;
    void *memory = NULL;
    gpu_must(gpu->ops->alloc(gpu, TTI_MEMORY_DEVICE, bytes, &memory), "allocating for a rank");
    gpu_must(gpu->ops->fill(gpu, memory, 0, bytes, job->b->stream), "filling");
    return memory;
}

static void ranks_begin(struct job *job, size_t bytes)
{
    struct tti_gpu *gpu = job->b->gpu;
    float *ones = malloc(bytes);
    if (!ones) {
        gpu_must(TUTTI_ERR_MEMORY, "host memory");
        return;
    }
    for (int r = 0; r < job->ranks; r++) {
        struct rank *rank = &job->rank[r];
        for (size_t i = 0; i < bytes / 4; i++)
            ones[i] = (float)(r + 1) + (float)(i % 1000);
        gpu_must(gpu->ops->stream_create(gpu, &rank->stream), "making a stream");
        rank->control = ranks_memory(job, sizeof *rank->control);
        rank->slots = ranks_memory(job, TTI_LL_SLOTS_BYTES(job->ranks, SLOT_BYTES));
        rank->lines = ranks_memory(job, TTI_LL128_LINES_BYTES(job->ranks, LINE_BYTES));
        rank->in = ranks_memory(job, bytes);
        rank->out = ranks_memory(job, bytes);
        gpu_must(
            gpu->ops->alloc(gpu, TTI_MEMORY_PINNED, sizeof *rank->status, (void **)&rank->status),
            "allocating pinned memory");
        memset(rank->status, 0, sizeof *rank->status);
        gpu_must(gpu->ops->copy(gpu, rank->in, ones, bytes, job->b->stream), "copying");
        gpu_finish(job->b, job->b->stream);
    }
    free(ones);
}

static void ranks_end(struct job *job)
{
    struct tti_gpu *gpu = job->b->gpu;
    for (int r = 0; r < job->ranks; r++) {
        struct rank *rank = &job->rank[r];
        gpu->ops->stream_destroy(gpu, rank->stream);
        gpu->ops->free(gpu, rank->control);
        gpu->ops->free(gpu, rank->slots);
        gpu->ops->free(gpu, rank->lines);
        gpu->ops->free(gpu, rank->in);
        gpu->ops->free(gpu, rank->out);
        gpu->ops->free(gpu, rank->status);
    }
}

static void ranks_check(struct job *job, size_t bytes)
{
    const size_t count = bytes / 4;
    float *got = malloc(bytes);
    for (int r = 0; got && r < job->ranks; r++) {
        if (job->rank[r].status->failed)
            gpu_must(TUTTI_ERR_TIMEOUT, "an all-reduce of the benchmark");
        struct tti_gpu *gpu = job->b->gpu;
        gpu_must(gpu->ops->copy(gpu, got, job->rank[r].out, bytes, job->b->stream), "copying");
        gpu_finish(job->b, job->b->stream);
        for (size_t i = 0; i < count; i++) {
            const float sum =
                (float)(job->ranks * (job->ranks + 1) / 2) + (float)job->ranks * (float)(i % 1000);
            if (got[i] != sum) {
                fprintf(stderr,
                        "gpu_bench: %d ranks, %zu bytes: element %zu of rank %d is %g, not %g\n",
                        job->ranks, bytes, i, r, (double)got[i], (double)sum);
                exit(1);
            }
        }
    }
    free(got);
}

static struct tti_coupled_args ranks_args(const struct job *job, int rank, size_t bytes)
{
    struct tti_coupled_args args = {.rank = (uint32_t)rank,
                                    .ranks = (uint32_t)job->ranks,
                                    .op = TUTTI_SUM,
                                    .count = bytes / 4,
                                    .slot_bytes = SLOT_BYTES,
                                    .line_bytes = LINE_BYTES,
                                    .status = job->rank[rank].status,
                                    .timeout_ns = UINT64_C(20000000000)};
    for (int p = 0; p < job->ranks; p++) {
        args.in[p] = job->rank[p].in;
        args.out[p] = job->rank[p].out;
        args.control[p] = job->rank[p].control;
        args.slots[p] = job->rank[p].slots;
        args.lines[p] = job->rank[p].lines;
    }
    return args;
}

/* So that what an earlier kernel has left there is not taken for this one's sums. */
static void ranks_forget(struct job *job, size_t bytes)
{
    struct tti_gpu *gpu = job->b->gpu;
    for (int r = 0; r < job->ranks; r++)
        gpu_must(gpu->ops->fill(gpu, job->rank[r].out, 0xff, bytes, job->b->stream), "filling");
    gpu_finish(job->b, job->b->stream);
}

/* Seconds of one all-reduce: every rank's graph has `launches`. */
static double ranks_time(struct job *job, enum tti_gpu_kernel kernel, size_t bytes, unsigned blocks,
                         int launches)
{
    struct tti_gpu *gpu = job->b->gpu;
    const struct tti_gpu_ops *ops = gpu->ops;
    double times[REPEATS];
    for (int r = 0; r < job->ranks; r++) {
        struct rank *rank = &job->rank[r];
        const struct tti_coupled_args args = ranks_args(job, r, bytes);
        const struct tti_gpu_launch launch = {.kernel = kernel,
                                              .type = TUTTI_FLOAT32,
                                              .blocks = blocks,
                                              .threads = TTI_PAIRED_THREADS,
                                              .args = &args,
                                              .args_bytes = sizeof args};
        gpu_must(ops->prepare(gpu, kernel, TUTTI_FLOAT32), "loading a kernel");
        gpu_must(ops->capture_begin(gpu, rank->stream), "capturing");
        for (int i = 0; i < launches; i++)
            gpu_must(ops->launch(gpu, &launch, rank->stream), "launching");
        gpu_must(ops->capture_end(gpu, rank->stream, &rank->graph), "capturing");
    }
    ranks_forget(job, bytes);
    for (int k = -1; k < job->b->repeats; k++) {
        const double began = gpu_now();
        for (int r = 0; r < job->ranks; r++)
            gpu_must(ops->graph_launch(job->rank[r].graph, job->rank[r].stream), "replaying");
        for (int r = 0; r < job->ranks; r++)
            gpu_finish(job->b, job->rank[r].stream);
        times[k < 0 ? 0 : k] = (gpu_now() - began) / launches;
    }
    for (int r = 0; r < job->ranks; r++)
        ops->graph_destroy(job->rank[r].graph);
    ranks_check(job, bytes);
    return gpu_median(times, job->b->repeats);
}

/* Blocks a rank may have, so that those of all ranks are on the device together, with room for what
 * else comes: were one block too many there, none would end. */
static unsigned ranks_share(struct job *job, enum tti_gpu_kernel kernel)
{
    const struct tti_coupled_args args = {.ranks = 1};
    const struct tti_gpu_launch launch = {.kernel = kernel,
                                          .type = TUTTI_FLOAT32,
                                          .blocks = 1,
                                          .threads = TTI_PAIRED_THREADS,
                                          .args = &args,
                                          .args_bytes = sizeof args};
    int blocks = 0;
    gpu_must(job->b->gpu->ops->resident(job->b->gpu, &launch, &blocks), "asking what fits");
    blocks = blocks > 2 * job->ranks ? blocks / 4 * 3 : blocks;
    const int share = blocks / job->ranks < TTI_GPU_BLOCKS ? blocks / job->ranks : TTI_GPU_BLOCKS;
    return share > 0 ? (unsigned)share : 1;
}

/* How many blocks pay: two shot by an eighth of those that fit, and so on. */
static void ranks_blocks(struct job *job, size_t bytes, unsigned share, bool slow)
{
    char what[64];
    for (unsigned eighths = 1; eighths <= 8; eighths *= 2) {
        const unsigned blocks = share * eighths / 8 ? share * eighths / 8 : 1;
        const double time = ranks_time(job, TTI_KERNEL_TWO_SHOT, bytes, blocks, slow ? 1 : 4);
        const double traffic = 2e-9 * (double)bytes * job->ranks;
        snprintf(what, sizeof what, "two-shot, %u blocks a rank", blocks);
        gpu_line(what, job->ranks, bytes, time * 1e6, traffic / time,
                 job->b->copy_GBps > 0 ? traffic / time / job->b->copy_GBps : 0);
    }
}

void gpu_ranks(struct gpu_bench *b, int ranks)
{
    struct job job = {.b = b, .ranks = ranks};
    const size_t most = b->most_bytes < MOST_BYTES_A_RANK ? b->most_bytes : MOST_BYTES_A_RANK;
    const bool slow = strcmp(b->gpu->ops->name, "sim") == 0;
    const unsigned wide_share = ranks_share(&job, TTI_KERNEL_ONE_SHOT_LL128);
    unsigned ll_share = ranks_share(&job, TTI_KERNEL_ONE_SHOT_LL);
    ll_share = wide_share < ll_share ? wide_share : ll_share;
    const unsigned two_share = ranks_share(&job, TTI_KERNEL_TWO_SHOT);
    ranks_begin(&job, most);
    for (size_t bytes = 8; bytes <= SLOT_BYTES && bytes <= most; bytes *= 4) {
        const size_t useful = (bytes / 8 + TTI_PAIRED_THREADS - 1) / TTI_PAIRED_THREADS;
        const unsigned blocks = useful < ll_share ? (unsigned)useful : ll_share;
        const double time =
            ranks_time(&job, TTI_KERNEL_ONE_SHOT_LL, bytes, blocks ? blocks : 1, slow ? 2 : 50);
        gpu_line("all-reduce, one-shot LL, graph", ranks, bytes, time * 1e6, 0, 0);
        const double wide =
            ranks_time(&job, TTI_KERNEL_ONE_SHOT_LL128, bytes, blocks ? blocks : 1, slow ? 2 : 50);
        gpu_line("all-reduce, one-shot LL128, graph", ranks, bytes, wide * 1e6, 0, 0);
    }
    ranks_blocks(&job, most, two_share, slow);
    for (size_t bytes = 8 << 10; bytes <= most; bytes *= 8) {
        const size_t useful = bytes / (size_t)ranks / (TTI_PAIRED_THREADS * 16) + 1;
        const unsigned blocks = useful < two_share ? (unsigned)useful : two_share;
        const double time = ranks_time(&job, TTI_KERNEL_TWO_SHOT, bytes, blocks,
                                       slow               ? 1
                                       : bytes > 16 << 20 ? 4
                                                          : 20);
        /* All ranks together read and write 2V each through one memory. */
        const double traffic = 2e-9 * (double)bytes * ranks;
        gpu_line("all-reduce, two-shot, graph", ranks, bytes, time * 1e6, traffic / time,
                 b->copy_GBps > 0 ? traffic / time / b->copy_GBps : 0);
    }
    ranks_end(&job);
}
