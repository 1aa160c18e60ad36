/* The sweep: for each type, operator and size, out of place and in place, warm up, time a batch of
 * operations, time single operations for the percentiles, then check a fresh run. */
#include "base/clock.h"
#include "base/memory.h"
#include "bench/bench.h"
#include "bench/bench_device.h"
#include "bench/rewrite.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST_ITERATIONS = 20, MOST_ITERATIONS = 2000 };
static const double AIM_SECONDS = 0.02; /* a batch of this length gives a steady figure */

struct sweep {
    const struct bench_options *o;
    tutti_comm *comm;
    int rank, size;
    char *in, *out; /* max_bytes each */
    struct bench_device device;
    char *in_host, *out_host; /* what is in them, for the host; the same for host memory */
    int *devices;             /* by rank */
    enum tutti_op user_op;
    struct bench_case c;
    uint64_t *samples;
    size_t sample_capacity;
};

static int failed(const char *what)
{
    fprintf(stderr, "allreduce_bench: %s: %s\n", what, tutti_last_error());
    return 1;
}

#define OK_OR_FAIL(call, what)   \
    do {                         \
        if ((call) != TUTTI_OK)  \
            return failed(what); \
    } while (0)

/* ---- buffers ---- */

static int memory_get(const struct bench_options *o, size_t bytes, char **memory)
{
    void *made = NULL;
    if (o->memory == BENCH_LIBRARY) {
        OK_OR_FAIL(tutti_alloc(bytes, &made), "memory");
    } else {
        made = malloc(bytes ? bytes : 1);
        if (!made) {
            fprintf(stderr, "allreduce_bench: cannot allocate %zu bytes\n", bytes);
            return 1;
        }
        memset(made, 0, bytes);
        if (o->memory == BENCH_REGISTERED && tutti_register(made, bytes) != TUTTI_OK) {
            free(made);
            return failed("registering memory");
        }
    }
    *memory = made;
    return 0;
}

static void memory_put(const struct bench_options *o, char *memory)
{
    if (!memory)
        return;
    if (o->memory == BENCH_LIBRARY) {
        tutti_free(memory);
        return;
    }
    if (o->memory == BENCH_REGISTERED && tutti_deregister(memory) != TUTTI_OK)
        (void)failed("deregistering memory");
    free(memory);
}

/* ---- one operation ---- */

static enum tutti_result operate(struct sweep *s, const void *in, void *out)
{
    const struct bench_case *c = &s->c;
    enum tutti_op op = c->op == BENCH_MULSUM ? s->user_op : (enum tutti_op)c->op;
    size_t count = c->shape.count;
    if (s->device.gpu)
        return bench_device_operate(&s->device, c, op, in, out, s->comm);
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
    OK_OR_FAIL(bench_device_finish(s->o, &s->device), bench_collective_label(s->c.collective));
    return 0;
}

/* `aggregate` operations, in a group when more than one. */
static int iterate(struct sweep *s, const void *in, void *out)
{
    if (s->device.graph) {
        OK_OR_FAIL(bench_device_replay(&s->device), "replay");
        return 0;
    }
    if (s->o->aggregate == 1) {
        OK_OR_FAIL(operate(s, in, out), bench_collective_label(s->c.collective));
        return 0;
    }
    OK_OR_FAIL(tutti_group_start(), "group");
    for (int i = 0; i < s->o->aggregate; i++)
        OK_OR_FAIL(operate(s, in, out), bench_collective_label(s->c.collective));
    OK_OR_FAIL(tutti_group_end(), bench_collective_label(s->c.collective));
    return 0;
}

/* ---- timing ---- */

static int agree(struct sweep *s, double value, enum tutti_op op, double *agreed)
{
    OK_OR_FAIL(tutti_all_reduce(&value, agreed, 1, TUTTI_FLOAT64, op, s->comm), "timing");
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
    double wanted = slowest > 0 ? AIM_SECONDS / slowest : MOST_ITERATIONS;
    *iterations = wanted < LEAST_ITERATIONS  ? LEAST_ITERATIONS
                  : wanted > MOST_ITERATIONS ? MOST_ITERATIONS
                                             : (int)wanted;
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
    OK_OR_FAIL(tutti_barrier(s->comm), "barrier");
    return 0;
}

/* Median on average, 99th percentile at worst, over the ranks; and this rank's mean. */
static int percentiles(struct sweep *s, void *in, void *out, int iterations, double *mean_us,
                       struct bench_timing *t)
{
    uint64_t total = 0;
    size_t n = (size_t)iterations;
    void *samples = s->samples;
    OK_OR_FAIL(tti_grow(&samples, &s->sample_capacity, n, sizeof *s->samples), "timing");
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
    return agree(s, (double)s->samples[(n - 1) * 99 / 100] / per, TUTTI_MAX, &t->p99_us);
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
    OK_OR_FAIL(tutti_barrier(s->comm), "barrier");
    uint64_t begin = tti_now_ns();
    for (int i = 0; i < iterations; i++)
        if (iterate(s, in, out))
            return 1;
    if (finish(s))
        return 1;
    *mean_us = (double)(tti_now_ns() - begin) / 1e3 / iterations / s->o->aggregate;
    return 0;
}

/* From here on, an iteration is a replay. What is captured must have been run before. */
static int capture(struct sweep *s, const void *in, void *out)
{
    if (iterate(s, in, out) || finish(s))
        return 1;
    OK_OR_FAIL(bench_device_capture(&s->device), "capture");
    const int status = iterate(s, in, out);
    OK_OR_FAIL(bench_device_captured(&s->device), "capture");
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
        return failed("filling buffers");
    if (!s->device.gpu)
        return 0;
    const size_t in = s->c.shape.in_elements * width, out = s->c.shape.out_elements * width;
    OK_OR_FAIL(bench_device_copy(&s->device, p->out, p->out_host, out), "filling buffers");
    OK_OR_FAIL(bench_device_copy(&s->device, p->in, p->in_host, in), "filling buffers");
    return finish(s);
}

static int fetch(struct sweep *s, const struct placement *p)
{
    if (!s->device.gpu)
        return 0;
    OK_OR_FAIL(bench_device_copy(&s->device, p->out_host, p->out,
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
        OK_OR_FAIL(tutti_barrier(s->comm), "barrier");
        if (s->device.graph ? iterate(s, p->in, p->out) : 0)
            return 1;
        if (!s->device.graph)
            OK_OR_FAIL(operate(s, p->in, p->out), bench_collective_label(s->c.collective));
        if (fetch(s, p))
            return 1;
        int64_t wrong = (int64_t)bench_data_wrong(&s->c, s->rank, s->size, p->out_host), all = 0;
        OK_OR_FAIL(tutti_all_reduce(&wrong, &all, 1, TUTTI_INT64, TUTTI_SUM, s->comm), "check");
        t->wrong += all;
    }
    return 0;
}

static int measure(struct sweep *s, bool in_place, struct bench_timing *t)
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

/* ---- the loops ---- */

/* What will run, and what is next best. */
static enum tutti_result choose(struct sweep *s, struct bench_row *row)
{
    struct tutti_choice best[2];
    int found = 0;
    if (s->device.gpu) { /* chosen by other rules: by size, and what the ranks share */
        snprintf(row->choice.algorithm, sizeof row->choice.algorithm, "device");
        return TUTTI_OK;
    }
    enum tutti_result result =
        tutti_comm_choices(s->comm, s->c.collective, s->c.shape.count, s->c.type,
                           s->o->memory != BENCH_MALLOC, best, 2, &found);
    if (result != TUTTI_OK)
        return result;
    row->choice = best[0];
    row->has_next = found > 1;
    row->next = best[found > 1];
    return TUTTI_OK;
}

static int sweep_row(struct sweep *s, size_t bytes, struct bench_row *row)
{
    s->c.shape = bench_shape(s->c.collective, bytes, s->c.type, s->rank, s->size, s->c.root);
    bool rooted = s->c.collective == TUTTI_BROADCAST || s->c.collective == TUTTI_REDUCE ||
                  s->c.collective == TUTTI_GATHER || s->c.collective == TUTTI_SCATTER;
    bool reduces = s->c.collective == TUTTI_ALL_REDUCE || s->c.collective == TUTTI_REDUCE ||
                   s->c.collective == TUTTI_REDUCE_SCATTER;
    *row = (struct bench_row){.bytes = s->c.shape.bytes,
                              .count = s->c.shape.count,
                              .type = s->c.type,
                              .op = reduces ? s->c.op : -1,
                              .root = rooted ? s->c.root : -1,
                              .has_in_place = s->c.collective != TUTTI_SEND_RECV && !s->o->explain};
    if (s->c.collective != TUTTI_SEND_RECV)
        OK_OR_FAIL(choose(s, row), "choice");
    else
        snprintf(row->choice.algorithm, sizeof row->choice.algorithm, "exchange");
    if (measure(s, false, &row->out_of_place))
        return 1;
    return row->has_in_place ? measure(s, true, &row->in_place) : 0;
}

static int keep_row(struct bench_result *result, const struct bench_row *row)
{
    void *rows = result->rows;
    OK_OR_FAIL(tti_grow(&rows, &result->capacity, result->count + 1, sizeof *row), "results");
    result->rows = rows;
    result->rows[result->count++] = *row;
    result->busbw_sum += row->out_of_place.busbw + row->in_place.busbw;
    result->busbw_count += row->has_in_place ? 2 : 1;
    result->wrong += row->out_of_place.wrong > 0 ? row->out_of_place.wrong : 0;
    result->wrong += row->has_in_place && row->in_place.wrong > 0 ? row->in_place.wrong : 0;
    return 0;
}

static size_t next_size(const struct bench_options *o, size_t bytes)
{
    if (o->step_factor == 0)
        return bytes > SIZE_MAX - o->step_bytes ? SIZE_MAX : bytes + o->step_bytes;
    double next = (double)(bytes ? bytes : 1) * o->step_factor;
    if (next >= (double)(SIZE_MAX / 2))
        return SIZE_MAX;
    return (size_t)next > bytes ? (size_t)next : bytes + 1;
}

static int sweep_sizes(struct sweep *s, struct bench_result *result)
{
    for (size_t bytes = s->o->min_bytes; bytes <= s->o->max_bytes; bytes = next_size(s->o, bytes)) {
        struct bench_row row;
        char text[120];
        snprintf(text, sizeof text, "measuring %s of %zu bytes (of %zu)",
                 bench_collective_label(s->c.collective), bytes, s->o->max_bytes);
        if (s->rank == 0)
            bench_progress(text);
        if (sweep_row(s, bytes, &row) || keep_row(result, &row))
            return 1;
        if (s->rank == 0)
            bench_progress(NULL);
        if (s->rank == 0 && !s->o->explain)
            bench_report_row(&row);
    }
    return 0;
}

/* The pre-multiplied sum of the check: rank r counts r % 2 + 1 times. */
static int user_op_create(struct sweep *s)
{
    unsigned char scalar[8];
    static const unsigned char one_or_two[TUTTI_TYPE_COUNT][2][2] = {
        [TUTTI_FLOAT16] = {{0x00, 0x3c}, {0x00, 0x40}},
        [TUTTI_BFLOAT16] = {{0x80, 0x3f}, {0x00, 0x40}},
        [TUTTI_FLOAT8_E4M3] = {{0x38, 0}, {0x40, 0}},
        [TUTTI_FLOAT8_E5M2] = {{0x3c, 0}, {0x40, 0}},
    };
    int64_t integer = s->rank % 2 + 1;
    double real = (double)integer;
    float single = (float)integer;
    memset(scalar, 0, sizeof scalar);
    if (s->c.type == TUTTI_FLOAT64)
        memcpy(scalar, &real, sizeof real);
    else if (s->c.type == TUTTI_FLOAT32)
        memcpy(scalar, &single, sizeof single);
    else if (s->c.type >= TUTTI_BFLOAT16 || s->c.type == TUTTI_FLOAT16)
        memcpy(scalar, one_or_two[s->c.type][s->rank % 2], 2);
    else
        memcpy(scalar, &integer, sizeof integer);
    OK_OR_FAIL(tutti_premul_sum_create(s->comm, s->c.type, scalar, &s->user_op), "operator");
    return 0;
}

static int sweep_types_and_ops(struct sweep *s, struct bench_result *result)
{
    const struct bench_options *o = s->o;
    for (int t = 0; t < TUTTI_TYPE_COUNT; t++) {
        if (!o->all_types && t != (int)o->type)
            continue;
        for (int op = 0; op <= TUTTI_OP_COUNT; op++) {
            int number = op == TUTTI_OP_COUNT ? BENCH_MULSUM : op;
            if (!o->all_ops && number != o->op)
                continue;
            s->c.type = (enum tutti_type)t;
            s->c.op = number;
            if (number == BENCH_MULSUM && user_op_create(s))
                return 1;
            int status = sweep_sizes(s, result);
            if (number == BENCH_MULSUM)
                (void)tutti_op_destroy(s->comm, s->user_op);
            if (status)
                return status;
        }
    }
    return 0;
}

/* After the sweep, when all that it needs has been made. */
static int measure_memory(struct sweep *s, struct tutti_memory *memory)
{
    struct tutti_memory own;
    OK_OR_FAIL(tutti_comm_memory(s->comm, &own), "memory");
    int64_t of_rank[] = {(int64_t)own.host,   (int64_t)own.shared, (int64_t)own.shared_used,
                         (int64_t)own.mapped, own.descriptors,     (int64_t)own.device,
                         (int64_t)own.pinned};
    OK_OR_FAIL(tutti_all_reduce(of_rank, of_rank, sizeof of_rank / sizeof of_rank[0], TUTTI_INT64,
                                TUTTI_MAX, s->comm),
               "memory");
    *memory = (struct tutti_memory){.host = (size_t)of_rank[0],
                                    .shared = (size_t)of_rank[1],
                                    .shared_used = (size_t)of_rank[2],
                                    .mapped = (size_t)of_rank[3],
                                    .descriptors = (int)of_rank[4],
                                    .device = (size_t)of_rank[5],
                                    .pinned = (size_t)of_rank[6]};
    return 0;
}

static int buffers_get(struct sweep *s)
{
    const struct bench_options *o = s->o;
    if (memory_get(o, o->max_bytes, &s->in_host) || memory_get(o, o->max_bytes, &s->out_host))
        return 1;
    OK_OR_FAIL(bench_device_open(o, tutti_comm_local_rank(s->comm), &s->device), "device");
    s->in = s->in_host;
    s->out = s->out_host;
    if (!s->device.gpu)
        return 0;
    s->in = s->out = NULL;
    OK_OR_FAIL(bench_device_get(&s->device, o->max_bytes, &s->in), "device memory");
    OK_OR_FAIL(bench_device_get(&s->device, o->max_bytes, &s->out), "device memory");
    s->devices = tti_calloc((size_t)s->size, sizeof *s->devices);
    OK_OR_FAIL(s->devices ? TUTTI_OK : TUTTI_ERR_MEMORY, "devices");
    OK_OR_FAIL(tutti_all_gather(&s->device.index, s->devices, 1, TUTTI_INT32, s->comm), "devices");
    return 0;
}

static void buffers_put(struct sweep *s)
{
    if (s->device.gpu) {
        (void)bench_device_finish(s->o, &s->device);
        bench_device_put(&s->device, s->in);
        bench_device_put(&s->device, s->out);
    }
    bench_device_close(&s->device);
    memory_put(s->o, s->in_host);
    memory_put(s->o, s->out_host);
    free(s->devices);
    free(s->samples);
}

int bench_sweep(const struct bench_options *o, tutti_comm *comm, struct bench_result *result)
{
    struct sweep s = {
        .o = o, .comm = comm, .rank = tutti_comm_rank(comm), .size = tutti_comm_size(comm)};
    s.c.collective = o->collective;
    s.c.root = o->root;
    if (o->root >= s.size) {
        if (s.rank == 0)
            fprintf(stderr, "allreduce_bench: -r %d is no rank of %d\n", o->root, s.size);
        return 2;
    }
    int status = buffers_get(&s);
    if (!status && s.rank == 0)
        bench_report_header(o, comm, s.devices);
    for (int cycle = 0; cycle < o->cycles && !status; cycle++)
        status = sweep_types_and_ops(&s, result);
    if (!status)
        status = measure_memory(&s, &result->memory);
    buffers_put(&s);
    return status;
}
