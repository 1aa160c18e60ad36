/* One row of the sweep, out of place or in place: warm up, time a batch of operations, time single
 * operations for the percentiles, then check a fresh run. Before: sweep.c. */
#include "bench/sweep.h"

#include "base/clock.h"
#include "base/median.h"
#include "base/memory.h"
#include "bench/rewrite.h"

#include <stdlib.h>
#include <string.h>

/* Of a device fewer than a stream's queue takes: who has to wait for room there may keep out others
 * of its process. */
enum { LEAST_ITERATIONS = 20, MOST_ITERATIONS = 2000, MOST_DEVICE_ITERATIONS = 400 };
static const double AIM_SECONDS = 0.02; /* a batch of this length gives a steady figure */

int bench_failed(const char *what)
{
    fprintf(stderr, "allreduce_bench: %s: %s\n", what, tutti_last_error());
    return 1;
}

/* ---- one operation ---- */

static enum tutti_result operate_uneven(struct sweep *s, enum tutti_op op, const void *in,
                                        void *out)
{
    const struct bench_case *c = &s->c;
    const size_t *give = c->in_counts, *get = c->out_counts;
    switch (c->collective) {
    case TUTTI_REDUCE_SCATTER:
        return tutti_reduce_scatter_v(in, out, give, NULL, c->type, op, s->comm);
    case TUTTI_ALL_GATHER:
        return tutti_all_gather_v(in, out, get, NULL, c->type, s->comm);
    case TUTTI_ALL_TO_ALL:
        return tutti_all_to_all_v(in, give, NULL, out, get, NULL, c->type, s->comm);
    case TUTTI_GATHER:
        return tutti_gather_v(in, give[s->rank], out, get, NULL, c->type, c->root, s->comm);
    default:
        return tutti_scatter_v(in, give, NULL, out, get[s->rank], c->type, c->root, s->comm);
    }
}

static enum tutti_result operate(struct sweep *s, const void *in, void *out)
{
    const struct bench_case *c = &s->c;
    enum tutti_op op = c->op == BENCH_MULSUM ? s->user_op : (enum tutti_op)c->op;
    size_t count = c->shape.count;
    if (s->device.gpu)
        return bench_device_operate(&s->device, c, op, in, out, s->comm);
    if (c->uneven)
        return operate_uneven(s, op, in, out);
    switch (c->collective) {
    case TUTTI_ALL_REDUCE:
        return tutti_all_reduce(in, out, count, c->type, op, s->comm);
    case TUTTI_BROADCAST:
        return tutti_broadcast(in, out, count, c->type, c->root, s->comm);
    case TUTTI_REDUCE:
        return tutti_reduce(in, out, count, c->type, op, c->root, s->comm);
    case TUTTI_REDUCE_SCATTER:
        return tutti_reduce_scatter(in, out, count, c->type, op, s->comm);
    case TUTTI_ALL_GATHER:
        return tutti_all_gather(in, out, count, c->type, s->comm);
    case TUTTI_ALL_TO_ALL:
        return tutti_all_to_all(in, out, count, c->type, s->comm);
    case TUTTI_GATHER:
        return tutti_gather(in, out, count, c->type, c->root, s->comm);
    case TUTTI_SCATTER:
        return tutti_scatter(in, out, count, c->type, c->root, s->comm);
    default:
        break;
    }
    enum tutti_result result = tutti_group_start();
    if (result == TUTTI_OK)
        result = tutti_send(in, count, c->type, (s->rank + 1) % s->size, s->comm);
    if (result == TUTTI_OK)
        result = tutti_recv(out, count, c->type, (s->rank + s->size - 1) % s->size, s->comm);
    enum tutti_result end = tutti_group_end();
    return result == TUTTI_OK ? end : result;
}

static int finish(struct sweep *s)
{
    BENCH_TRY(bench_device_finish(s->o, &s->device),
              bench_collective_label(s->c.collective, s->c.uneven));
    return 0;
}

/* `aggregate` operations, in a group when more than one. */
static int iterate(struct sweep *s, const void *in, void *out)
{
    if (s->device.graph) {
        BENCH_TRY(bench_device_replay(&s->device), "replay");
        return 0;
    }
    if (s->o->aggregate == 1) {
        BENCH_TRY(operate(s, in, out), bench_collective_label(s->c.collective, s->c.uneven));
        return 0;
    }
    BENCH_TRY(tutti_group_start(), "group");
    for (int i = 0; i < s->o->aggregate; i++)
        BENCH_TRY(operate(s, in, out), bench_collective_label(s->c.collective, s->c.uneven));
    BENCH_TRY(tutti_group_end(), bench_collective_label(s->c.collective, s->c.uneven));
    return 0;
}

/* ---- timing ---- */

static int agree(struct sweep *s, double value, enum tutti_op op, double *agreed)
{
    BENCH_TRY(tutti_all_reduce(&value, agreed, 1, TUTTI_FLOAT64, op, s->comm), "timing");
    return 0;
}

/* A device that did nothing for a while is slow at first. */
static int wake_device(struct sweep *s)
{
    const uint64_t until = tti_deadline_in(0.3);
    while (s->device.gpu && s->device.gpu->ops == tti_gpu_cuda() && !tti_deadline_passed(until)) {
        BENCH_TRY(bench_device_copy(&s->device, s->out, s->in, s->o->max_bytes), "waking up");
        if (finish(s))
            return 1;
    }
    return 0;
}

int bench_settle(struct sweep *s)
{
    const double moment_s = 0.05;
    double slowest = 0;
    if (wake_device(s))
        return 1;
    const uint64_t begin = tti_now_ns();
    while (slowest < moment_s)
        if (agree(s, (double)(tti_now_ns() - begin) / 1e9, TUTTI_MAX, &slowest))
            return 1;
    return 0;
}

/* How many iterations: as asked, or enough to fill AIM_SECONDS, the same on all ranks. */
static int choose_iterations(struct sweep *s, const void *in, void *out, int *iterations)
{
    enum { PROBES = 3 };
    double slowest = 0;
    if (s->o->iterations) {
        *iterations = s->o->iterations;
        return 0;
    }
    uint64_t begin = tti_now_ns();
    for (int i = 0; i < PROBES; i++)
        if (iterate(s, in, out))
            return 1;
    if (finish(s))
        return 1;
    if (agree(s, (double)(tti_now_ns() - begin) / 1e9 / PROBES, TUTTI_MAX, &slowest))
        return 1;
    const int most = s->device.gpu ? MOST_DEVICE_ITERATIONS / s->o->aggregate : MOST_ITERATIONS;
    double wanted = slowest > 0 ? AIM_SECONDS / slowest : most;
    *iterations = wanted < LEAST_ITERATIONS ? LEAST_ITERATIONS : wanted > most ? most : (int)wanted;
    return 0;
}

static int compare_samples(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* New values in this rank's input; then all begin together. */
static int rewrite(struct sweep *s, void *in, size_t turn)
{
    tti_bench_rewrite(in, s->c.shape.in_elements * tutti_type_size(s->c.type), (unsigned)turn);
    BENCH_TRY(tutti_barrier(s->comm), "barrier");
    return 0;
}

/* Median on average, 99th percentile at worst, over the ranks; and this rank's mean. */
static int percentiles(struct sweep *s, void *in, void *out, int iterations, double *mean_us,
                       struct bench_timing *t)
{
    uint64_t total = 0;
    size_t n = (size_t)iterations;
    void *samples = s->samples;
    BENCH_TRY(tti_grow(&samples, &s->sample_capacity, n, sizeof *s->samples), "timing");
    s->samples = samples;
    for (size_t i = 0; i < n; i++) {
        if (s->o->rewrite && rewrite(s, in, i))
            return 1;
        uint64_t begin = tti_now_ns();
        if (iterate(s, in, out) || finish(s))
            return 1;
        s->samples[i] = tti_now_ns() - begin;
        total += s->samples[i];
    }
    qsort(s->samples, n, sizeof *s->samples, compare_samples);
    double per = 1e3 * s->o->aggregate;
    *mean_us = (double)total / (double)n / per;
    if (agree(s, (double)s->samples[n / 2] / per, TUTTI_AVG, &t->p50_us))
        return 1;
    return agree(s, (double)s->samples[tti_percentile_place(n, 99)] / per, TUTTI_MAX, &t->p99_us);
}

static double bus_factor(enum tutti_collective collective, int size)
{
    double n = size;
    switch (collective) {
    case TUTTI_ALL_REDUCE:
        return 2 * (n - 1) / n;
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_ALL_GATHER:
    case TUTTI_ALL_TO_ALL:
    case TUTTI_GATHER:
    case TUTTI_SCATTER:
        return (n - 1) / n;
    default:
        return 1;
    }
}

/* This rank's mean over a batch between two looks at the clock. */
static int batch(struct sweep *s, const void *in, void *out, int iterations, double *mean_us)
{
    BENCH_TRY(tutti_barrier(s->comm), "barrier");
    uint64_t begin = tti_now_ns();
    for (int i = 0; i < iterations; i++)
        if (iterate(s, in, out))
            return 1;
    if (finish(s))
        return 1;
    *mean_us = (double)(tti_now_ns() - begin) / 1e3 / iterations / s->o->aggregate;
    return 0;
}

/* From here on, an iteration is a replay. What is captured must have been run before. The driver
 * may wait for the device where a graph is made or ended: on no rank while another one replays. */
static int capture(struct sweep *s, const void *in, void *out)
{
    if (iterate(s, in, out) || finish(s))
        return 1;
    BENCH_TRY(tutti_barrier(s->comm), "barrier");
    BENCH_TRY(bench_device_capture(&s->device), "capture");
    const int status = iterate(s, in, out);
    BENCH_TRY(bench_device_captured(&s->device), "capture");
    if (status == 0)
        BENCH_TRY(tutti_barrier(s->comm), "barrier");
    return status;
}

/* With --rewrite there is no batch: its time would have the rewriting in it. */
static int time_placement(struct sweep *s, void *in, void *out, struct bench_timing *t)
{
    static const enum tutti_op over_ranks[] = {TUTTI_AVG, TUTTI_AVG, TUTTI_MIN, TUTTI_MAX};
    int iterations = 0;
    double own = 0, single = 0;
    for (int i = 0; i < s->o->warmup; i++)
        if (iterate(s, in, out))
            return 1;
    if (s->o->graph && capture(s, in, out))
        return 1;
    if (choose_iterations(s, in, out, &iterations))
        return 1;
    if ((!s->o->rewrite && batch(s, in, out, iterations, &own)) ||
        percentiles(s, in, out, iterations, &single, t))
        return 1;
    if (s->o->rewrite)
        own = single;
    if (agree(s, own, over_ranks[s->o->average], &t->time_us))
        return 1;
    if (s->o->average == 0)
        t->time_us = own; /* rank 0's, which is the one that is printed */
    t->algbw = t->time_us > 0 ? (double)s->c.shape.bytes / t->time_us / 1e3 : 0;
    t->busbw = t->algbw * bus_factor(s->c.collective, s->size);
    return 0;
}

/* The buffers of a placement, where the operation has them and where the host does. */
struct placement {
    char *in, *out, *in_host, *out_host;
    bool in_place;
};

/* Fill the input, and make the output wrong. */
static int fill(struct sweep *s, const struct placement *p)
{
    const size_t width = tutti_type_size(s->c.type);
    if (bench_data_fill(&s->c, s->rank, s->size, p->in_host, p->out_host, p->in_place))
        return bench_failed("filling buffers");
    if (!s->device.gpu)
        return 0;
    const size_t in = s->c.shape.in_elements * width, out = s->c.shape.out_elements * width;
    BENCH_TRY(bench_device_copy(&s->device, p->out, p->out_host, out), "filling buffers");
    BENCH_TRY(bench_device_copy(&s->device, p->in, p->in_host, in), "filling buffers");
    return finish(s);
}

static int fetch(struct sweep *s, const struct placement *p)
{
    if (!s->device.gpu)
        return 0;
    /* The driver waits for the stream inside a copy to pageable memory, and might keep out the rank
     * that the stream waits for. */
    if (finish(s))
        return 1;
    BENCH_TRY(bench_device_copy(&s->device, p->out_host, p->out,
                                s->c.shape.out_elements * tutti_type_size(s->c.type)),
              "fetching results");
    return finish(s);
}

static int check_placement(struct sweep *s, const struct placement *p, struct bench_timing *t)
{
    t->wrong = s->o->check ? 0 : -1;
    for (int run = 0; run < s->o->check; run++) {
        if (fill(s, p))
            return 1;
        BENCH_TRY(tutti_barrier(s->comm), "barrier");
        /* Several operations in place would reduce what is reduced. */
        const bool replay = s->device.graph && !(p->in_place && s->o->aggregate > 1);
        if (replay && iterate(s, p->in, p->out))
            return 1;
        if (!replay)
            BENCH_TRY(operate(s, p->in, p->out),
                      bench_collective_label(s->c.collective, s->c.uneven));
        if (fetch(s, p))
            return 1;
        int64_t wrong = (int64_t)bench_data_wrong(&s->c, s->rank, s->size, p->out_host), all = 0;
        BENCH_TRY(tutti_all_reduce(&wrong, &all, 1, TUTTI_INT64, TUTTI_SUM, s->comm), "check");
        t->wrong += all;
    }
    return 0;
}

int bench_measure(struct sweep *s, bool in_place, struct bench_timing *t)
{
    const size_t width = tutti_type_size(s->c.type);
    const size_t in_at = s->c.shape.in_offset * width;
    const size_t out_at = in_place ? s->c.shape.out_offset * width : 0;
    const struct placement p = {
        .in = in_place ? s->out + in_at : s->in,
        .out = s->out + out_at,
        .in_host = in_place ? s->out_host + in_at : s->in_host,
        .out_host = s->out_host + out_at,
        .in_place = in_place,
    };
    if (fill(s, &p) || time_placement(s, p.in, p.out, t))
        return 1;
    const int status = check_placement(s, &p, t);
    bench_device_forget(&s->device);
    return status;
}
