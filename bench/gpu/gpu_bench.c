/* What a GPU gives Tutti's kernels: copies, launches, reductions, and all-reduces of ranks that
 * share it. One JSON object a line on stdout; bench/gpu/gpu_report makes a table of them.
 *
 *     gpu_bench [cuda|sim] [most bytes of a buffer [copies] | look]
 *
 * look: what the device is, and whether its driver runs a kernel of ours; nothing is measured.
 * copies: these alone.
 *
 * Times are medians of repeats, on the host's clock around a batch long enough to hide its ends.
 * Buffers of large copies are larger than the caches together. Next: gpu_ranks.c. */
#include "bench/gpu/gpu_bench.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 7, WAIT_SECONDS = 60, LAUNCHES = 100 };

void gpu_must(enum tutti_result result, const char *what)
{
    if (result == TUTTI_OK)
        return;
    fprintf(stderr, "gpu_bench: %s: %s: %s\n", what, tutti_result_text(result), tti_error_text());
    exit(1);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double gpu_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, ascending);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

double gpu_now(void)
{
    return (double)tti_now_ns() * 1e-9;
}

void gpu_finish(struct gpu_bench *b, tutti_stream stream)
{
    gpu_must(tti_gpu_stream_wait(b->gpu, stream, tti_deadline_in(WAIT_SECONDS), "benchmark"),
             "waiting for the device");
}

void gpu_line(const char *what, int ranks, size_t bytes, double us, double GBps, double of_floor)
{
    printf("{\"what\": \"%s\", \"bytes\": %zu, \"us\": %.3f", what, bytes, us);
    if (ranks > 0)
        printf(", \"ranks\": %d", ranks);
    if (GBps > 0)
        printf(", \"GBps\": %.2f", GBps);
    if (of_floor > 0)
        printf(", \"of_floor\": %.3f", of_floor);
    printf("}\n");
    fflush(stdout);
}

static void describe(const struct tti_gpu *gpu)
{
    const struct tti_gpu_properties *p = &gpu->properties;
    printf(
        "{\"what\": \"device\", \"implementation\": \"%s\", \"name\": \"%s\", \"pci\": \"%s\", "
        "\"software\": \"%s\", "
        "\"sms\": %d, \"compute\": \"%d.%d\", \"memory\": %zu, \"l2\": %zu, \"multicast\": %s}\n",
        gpu->ops->name, p->name, p->pci, p->software, p->sms, p->compute_major, p->compute_minor,
        p->memory_bytes, p->l2_bytes, p->multicast ? "true" : "false");
}

/* ---- One rank ---------------------------------------------------------------------------------
 */

struct work {
    struct gpu_bench *b;
    const struct tti_gpu_launch *launch; /* NULL: a copy by the driver */
    void *dst;
    const void *src;
    size_t bytes;
};

static void work_queue(const struct work *w)
{
    struct tti_gpu *gpu = w->b->gpu;
    if (w->launch)
        gpu_must(gpu->ops->launch(gpu, w->launch, w->b->stream), "launching a kernel");
    else
        gpu_must(gpu->ops->copy(gpu, w->dst, w->src, w->bytes, w->b->stream), "copying");
}

/* Seconds of one, in batches. */
static double work_time(const struct work *w, int batch)
{
    double times[REPEATS];
    work_queue(w);
    gpu_finish(w->b, w->b->stream);
    for (int r = 0; r < w->b->repeats; r++) {
        const double began = gpu_now();
        for (int i = 0; i < batch; i++)
            work_queue(w);
        gpu_finish(w->b, w->b->stream);
        times[r] = (gpu_now() - began) / batch;
    }
    return gpu_median(times, w->b->repeats);
}

/* The times of a simulated device mean nothing: there it is enough that it works. */
static bool simulated(const struct gpu_bench *b)
{
    return b->gpu->ops == tti_gpu_sim();
}

static int batch_for(const struct gpu_bench *b, size_t bytes)
{
    if (simulated(b))
        return 1;
    return bytes >= 256 << 20 ? 5 : bytes >= 1 << 20 ? 20 : 100;
}

static unsigned full_grid(struct gpu_bench *b, struct tti_gpu_launch *launch)
{
    int blocks = 0;
    launch->blocks = 1;
    gpu_must(b->gpu->ops->resident(b->gpu, launch, &blocks), "asking how many blocks fit");
    if (simulated(b) && blocks > 2) /* a simulated thread costs as much as a thread of the host */
        blocks = 2;
    return blocks > 0 ? (unsigned)blocks : 1;
}

/* A device that did nothing for a while is slow at first. */
static void wake_clocks(struct gpu_bench *b, char *dst, const char *src)
{
    const double until = gpu_now() + 0.5;
    const struct work work = {b, NULL, dst, src, b->most_bytes};
    while (!simulated(b) && gpu_now() < until) {
        work_queue(&work);
        gpu_finish(b, b->stream);
    }
}

static void bench_copies(struct gpu_bench *b, char *dst, const char *src)
{
    for (size_t bytes = 16; bytes <= b->most_bytes; bytes *= 16) {
        const struct tti_copy_args args = {.src = src, .dst = {dst}, .bytes = bytes, .dsts = 1};
        struct tti_gpu_launch launch = {
            .kernel = TTI_KERNEL_COPY, .threads = 512, .args = &args, .args_bytes = sizeof args};
        const unsigned full = full_grid(b, &launch);
        const size_t useful = bytes / (512 * 16) + 1;
        launch.blocks = useful < full ? (unsigned)useful : full;
        const struct work driver = {b, NULL, dst, src, bytes}, kernel = {b, &launch, NULL, NULL, 0};
        const double by_driver = work_time(&driver, batch_for(b, bytes));
        const double by_kernel = work_time(&kernel, batch_for(b, bytes));
        const double traffic = 2e-9 * (double)bytes;
        gpu_line("copy by the driver", 0, bytes, by_driver * 1e6, traffic / by_driver, 0);
        gpu_line("copy by a kernel", 0, bytes, by_kernel * 1e6, traffic / by_kernel, 0);
        b->copy_GBps = traffic / by_driver; /* of the largest: caches hold the others */
    }
}

static void bench_reductions(struct gpu_bench *b, char *dst, const char *src)
{
    static const enum tutti_type types[] = {TUTTI_FLOAT32,     TUTTI_FLOAT16, TUTTI_BFLOAT16,
                                            TUTTI_FLOAT8_E4M3, TUTTI_INT8,    TUTTI_FLOAT64};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (uint32_t srcs = 2; srcs <= 8; srcs *= 4) {
            const size_t bytes = b->most_bytes / 8;
            struct tti_reduce_copy_args args = {.dst = {dst},
                                                .count = bytes / tutti_type_size(types[t]),
                                                .srcs = srcs,
                                                .dsts = 1,
                                                .op = TUTTI_SUM};
            for (uint32_t k = 0; k < srcs; k++)
                args.src[k] = src + k * bytes;
            struct tti_gpu_launch launch = {.kernel = TTI_KERNEL_REDUCE_COPY,
                                            .type = types[t],
                                            .threads = 512,
                                            .args = &args,
                                            .args_bytes = sizeof args};
            launch.blocks = full_grid(b, &launch);
            const struct work work = {b, &launch, NULL, NULL, 0};
            const double time = work_time(&work, batch_for(b, bytes));
            const double GBps = 1e-9 * (double)(bytes * (srcs + 1)) / time;
            char what[64];
            snprintf(what, sizeof what, "sum of %u, %s", srcs, tutti_type_name(types[t]));
            gpu_line(what, 0, bytes, time * 1e6, GBps, b->copy_GBps > 0 ? GBps / b->copy_GBps : 0);
        }
    }
}

/* A kernel that does almost nothing: launched one by one, and in a graph. */
static void bench_launches(struct gpu_bench *b, char *dst, const char *src)
{
    const struct tti_gpu_ops *ops = b->gpu->ops;
    const int launches = simulated(b) ? 4 : LAUNCHES;
    const struct tti_copy_args args = {.src = src, .dst = {dst}, .bytes = 16, .dsts = 1};
    const struct tti_gpu_launch launch = {.kernel = TTI_KERNEL_COPY,
                                          .blocks = 1,
                                          .threads = 32,
                                          .args = &args,
                                          .args_bytes = sizeof args};
    const struct work work = {b, &launch, NULL, NULL, 0};
    gpu_line("launch, in a row", 0, 16, work_time(&work, launches) * 1e6, 0, 0);
    double times[REPEATS];
    for (int r = 0; r < b->repeats; r++) {
        const double began = gpu_now();
        work_queue(&work);
        gpu_finish(b, b->stream);
        times[r] = gpu_now() - began;
    }
    gpu_line("launch, and wait", 0, 16, gpu_median(times, b->repeats) * 1e6, 0, 0);
    struct tti_gpu_graph *graph = NULL;
    gpu_must(ops->capture_begin(b->gpu, b->stream), "capturing");
    for (int i = 0; i < launches; i++)
        work_queue(&work);
    gpu_must(ops->capture_end(b->gpu, b->stream, &graph), "capturing");
    for (int r = -1; r < b->repeats; r++) {
        const double began = gpu_now();
        gpu_must(ops->graph_launch(graph, b->stream), "replaying a graph");
        gpu_finish(b, b->stream);
        times[r < 0 ? 0 : r] = (gpu_now() - began) / launches;
    }
    gpu_line("launch, in a graph", 0, 16, gpu_median(times, b->repeats) * 1e6, 0, 0);
    ops->graph_destroy(graph);
}

/* One copy by a kernel, there and back. */
static void look(struct gpu_bench *b)
{
    enum { WORDS = 1024 };
    uint32_t *memory = NULL, *words = NULL;
    gpu_must(b->gpu->ops->alloc(b->gpu, TTI_MEMORY_DEVICE, 4 * WORDS, (void **)&memory),
             "allocating");
    gpu_must(b->gpu->ops->alloc(b->gpu, TTI_MEMORY_PINNED, 8 * WORDS, (void **)&words),
             "allocating page-locked memory");
    for (uint32_t i = 0; i < WORDS; i++)
        words[i] = i * 2654435761u;
    const struct tti_copy_args args[] = {
        {.src = words, .dst = {memory}, .bytes = 4 * WORDS, .dsts = 1},
        {.src = memory, .dst = {words + WORDS}, .bytes = 4 * WORDS, .dsts = 1}};
    for (int k = 0; k < 2; k++) {
        const struct tti_gpu_launch launch = {.kernel = TTI_KERNEL_COPY,
                                              .blocks = 2,
                                              .threads = 64,
                                              .args = &args[k],
                                              .args_bytes = sizeof args[k]};
        gpu_must(b->gpu->ops->launch(b->gpu, &launch, b->stream), "launching a kernel");
    }
    gpu_finish(b, b->stream);
    if (memcmp(words, words + WORDS, 4 * WORDS) != 0) {
        fprintf(stderr, "gpu_bench: what a kernel copied to the device and back is not the same\n");
        exit(1);
    }
    b->gpu->ops->free(b->gpu, memory);
    b->gpu->ops->free(b->gpu, words);
}

int main(int argc, char **argv)
{
    const struct tti_gpu_ops *ops = NULL;
    struct gpu_bench b = {.most_bytes = (size_t)1 << 30, .repeats = REPEATS};
    int devices = 0;
    if (argc > 1 && argv[1][0] == '-') {
        fputs("usage: gpu_bench [cuda|sim] [most bytes of a buffer (1 GiB) [copies|ranks] | look]\n"
              "look: what the device and its driver are, and whether a kernel runs; no figures\n"
              "copies: these alone; ranks: all-reduces of several ranks alone\n",
              stderr);
        return strcmp(argv[1], "--help") == 0 ? 0 : 2;
    }
    /* Kernels of ranks that wait for each other may not stand in one hardware queue. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    gpu_must(tti_gpu_find(argc > 1 ? argv[1] : "cuda", &ops), "choosing the implementation");
    const bool looks = argc > 2 && strcmp(argv[2], "look") == 0;
    if (looks) /* says why, if there is none */
        setenv("TUTTI_LOG", "info", 0);
    if (argc > 2 && !looks)
        b.most_bytes = strtoull(argv[2], NULL, 0) / 4096 * 4096;
    gpu_must(ops->count(&devices), "counting devices");
    if (devices == 0 || b.most_bytes == 0) {
        fprintf(stderr,
                devices ? "gpu_bench: buffers of a page (4096 bytes) are the least; %s\n"
                        : "gpu_bench: there is no %s device\n",
                devices ? argv[2] : ops->name);
        return 77;
    }
    gpu_must(ops->open(0, &b.gpu), "opening the device");
    gpu_must(ops->stream_create(b.gpu, &b.stream), "making a stream");
    if (simulated(&b))
        b.repeats = 1;
    describe(b.gpu);
    if (looks) {
        look(&b);
        ops->stream_destroy(b.gpu, b.stream);
        ops->close(b.gpu);
        return 0;
    }
    char *dst = NULL, *src = NULL;
    gpu_must(ops->alloc(b.gpu, TTI_MEMORY_DEVICE, b.most_bytes, (void **)&dst), "allocating");
    gpu_must(ops->alloc(b.gpu, TTI_MEMORY_DEVICE, b.most_bytes, (void **)&src), "allocating");
    gpu_must(ops->fill(b.gpu, src, 0x3b, b.most_bytes, b.stream), "filling");
    gpu_finish(&b, b.stream);
    wake_clocks(&b, dst, src);
    const bool copies = argc > 3 && strcmp(argv[3], "copies") == 0;
    const bool ranks_alone = argc > 3 && strcmp(argv[3], "ranks") == 0;
    const bool all = !copies && !ranks_alone;
    if (all)
        bench_launches(&b, dst, src);
    if (!ranks_alone)
        bench_copies(&b, dst, src);
    if (all)
        bench_reductions(&b, dst, src);
    ops->free(b.gpu, dst);
    ops->free(b.gpu, src);
    for (int ranks = 1; !copies && ranks <= 8; ranks *= 2)
        gpu_ranks(&b, ranks);
    ops->stream_destroy(b.gpu, b.stream);
    ops->close(b.gpu);
    return 0;
}
