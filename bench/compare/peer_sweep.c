/* The sweep of a peer: for each size fill, warm up, time a batch, time single operations, then
 * check a run on fresh data. The same steps as bench/sweep.c, so that figures mean the same. */
#include "bench/compare/peer_sweep.h"

#include "base/median.h"
#include "bench/rewrite.h"
#include "bench/spread.h"

#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LEAST_ITERATIONS = 20, MOST_ITERATIONS = 2000 };
static const double AIM_US = 20000;

/* ---- options ---- */

/* As allreduce_bench has them. */
static const char *const collective_names[] = {[PEER_ALL_REDUCE] = "all_reduce",
                                               [PEER_BROADCAST] = "broadcast",
                                               [PEER_REDUCE_SCATTER] = "reduce_scatter",
                                               [PEER_ALL_GATHER] = "all_gather",
                                               [PEER_REDUCE] = "reduce",
                                               [PEER_ALL_TO_ALL] = "all_to_all",
                                               [PEER_GATHER] = "gather",
                                               [PEER_SCATTER] = "scatter",
                                               [PEER_SEND_RECV] = "sendrecv"};

static const struct {
    bool in, out;            /* holds a block for each rank */
    bool from_root, to_root; /* only the root gives, only the root gets */
} kinds[PEER_COLLECTIVES] = {
    [PEER_BROADCAST] = {.from_root = true},
    [PEER_REDUCE_SCATTER] = {.in = true},
    [PEER_ALL_GATHER] = {.out = true},
    [PEER_REDUCE] = {.to_root = true},
    [PEER_ALL_TO_ALL] = {.in = true, .out = true},
    [PEER_GATHER] = {.out = true, .to_root = true},
    [PEER_SCATTER] = {.in = true, .from_root = true},
};

bool peer_has_blocks(enum peer_collective collective)
{
    return kinds[collective].in || kinds[collective].out;
}

static int wrong(const char *flag, const char *value)
{
    fprintf(stderr, "peer: %s %s is not understood\n", flag, value);
    return 2;
}

static int parse_number(const char *flag, const char *text, int least, int *value)
{
    char *end = NULL;
    long number = strtol(text, &end, 10);
    if (end == text || *end || number < least || number > 1000000)
        return wrong(flag, text);
    *value = (int)number;
    return 0;
}

static int parse_sizes(const char *text, struct peer_options *o)
{
    o->size_count = 0;
    for (const char *at = text; *at;) {
        char *end = NULL;
        unsigned long long bytes = strtoull(at, &end, 10);
        if (end == at || (*end && *end != ',') || bytes > (1ULL << 40) || bytes < sizeof(float) ||
            o->size_count == PEER_MOST_SIZES)
            return wrong("--sizes", text);
        o->sizes[o->size_count++] = (size_t)bytes;
        at = *end ? end + 1 : end;
    }
    return o->size_count ? 0 : wrong("--sizes", text);
}

static int parse_collective(const char *text, struct peer_options *o)
{
    for (int c = 0; c < PEER_COLLECTIVES; c++) {
        const size_t length = strlen(collective_names[c]);
        if (strncmp(text, collective_names[c], length) != 0)
            continue;
        o->collective = (enum peer_collective)c;
        if (strcmp(text + length, "_v") == 0 && peer_has_blocks(o->collective))
            o->uneven = o->uneven ? o->uneven : 1;
        else if (text[length])
            continue;
        return 0;
    }
    return wrong("--coll", text);
}

int peer_options_parse(int argc, char **argv, struct peer_options *o)
{
    static const struct option flags[] = {
        {"coll", required_argument, NULL, 'c'},
        {"sizes", required_argument, NULL, 's'},
        {"warmup", required_argument, NULL, 'w'},
        {"iterations", required_argument, NULL, 'n'},
        {"ranks", required_argument, NULL, 'r'},
        {"algorithm", required_argument, NULL, 'a'},
        {"bind", no_argument, NULL, 'b'},
        {"rewrite", no_argument, NULL, 'R'},
        {"in-place", no_argument, NULL, 'p'},
        {"uneven", required_argument, NULL, 'u'},
        {NULL, 0, NULL, 0},
    };
    int flag = 0, status = 0;
    *o = (struct peer_options){.sizes = {8}, .size_count = 1, .warmup = 5, .ranks = 2};
    o->algorithm = "";
    while (!status && (flag = getopt_long(argc, argv, "", flags, NULL)) != -1) {
        if (flag == 'c')
            status = parse_collective(optarg, o);
        else if (flag == 's')
            status = parse_sizes(optarg, o);
        else if (flag == 'w')
            status = parse_number("--warmup", optarg, 0, &o->warmup);
        else if (flag == 'n')
            status = parse_number("--iterations", optarg, 0, &o->iterations);
        else if (flag == 'r')
            status = parse_number("--ranks", optarg, 1, &o->ranks);
        else if (flag == 'u')
            status = parse_number("--uneven", optarg, 1, &o->uneven);
        else if (flag == 'a')
            o->algorithm = optarg;
        else if (flag == 'b')
            o->bind = true;
        else if (flag == 'R')
            o->rewrite = true;
        else if (flag == 'p')
            o->in_place = true;
        else
            status = 2;
    }
    if (!status && o->in_place && (o->collective >= PEER_REDUCE || o->uneven))
        return wrong("--in-place with --coll", collective_names[o->collective]);
    if (!status && o->uneven && !peer_has_blocks(o->collective))
        return wrong("--uneven with --coll", collective_names[o->collective]);
    return !status && optind < argc ? wrong("argument", argv[optind]) : status;
}

/* ---- statistics and output ---- */

double peer_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double peer_percentile(double *samples, size_t count, int percent)
{
    qsort(samples, count, sizeof *samples, compare_doubles);
    return percent == 50 ? samples[count / 2] : samples[tti_percentile_place(count, percent)];
}

void peer_print_row(size_t bytes, size_t count, const double p50_p99_mean_us[3], int iterations,
                    double wrong_elements)
{
    printf("{\"size\": %zu, \"count\": %zu, \"p50_us\": %.4f, \"p99_us\": %.4f, \"mean_us\": %.4f, "
           "\"iterations\": %d, \"wrong\": %.0f, \"verified\": \"%s\"}\n",
           bytes, count, p50_p99_mean_us[0], p50_p99_mean_us[1], p50_p99_mean_us[2], iterations,
           wrong_elements, wrong_elements == 0 ? "yes" : "no");
    fflush(stdout);
}

int peer_bind(int n)
{
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return 1;
    int left = n % CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed) || left-- > 0)
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        return sched_setaffinity(0, sizeof one, &one) != 0;
    }
    return 1;
}

/* ---- data ---- */

size_t peer_block(const struct peer_options *o, size_t bytes, int rank, int k)
{
    const size_t elements = bytes / sizeof(float);
    const int first = o->collective == PEER_ALL_TO_ALL ? rank : 0;
    return o->uneven ? tti_bench_spread_before(elements, o->ranks, first, k, o->uneven)
                     : elements / (size_t)o->ranks * (size_t)k;
}

struct peer_shape peer_shape(const struct peer_options *o, size_t bytes, int rank)
{
    const bool in = kinds[o->collective].in, out = kinds[o->collective].out;
    const size_t elements = bytes / sizeof(float);
    struct peer_shape s = {.count = in || out ? elements / (size_t)o->ranks : elements};
    const size_t all = in || out ? peer_block(o, bytes, rank, o->ranks) : elements;
    const size_t own = in || out
                           ? peer_block(o, bytes, rank, rank + 1) - peer_block(o, bytes, rank, rank)
                           : elements;
    if (rank == 0 || !kinds[o->collective].from_root)
        s.in_elements = in ? all : own;
    if (rank == 0 || !kinds[o->collective].to_root)
        s.out_elements = out ? all : own;
    return s;
}

enum { CHECK_SALT = 1 };

/* Small integers: sums are exact. `salt` tells one run's data from another's. */
static float contribution(int rank, size_t i, int salt)
{
    return (float)((i * 5 + i / 17 + (size_t)rank * 3 + (size_t)salt * 7) % 11);
}

/* One size of a sweep on this rank. */
struct work {
    const struct peer *p;
    const struct peer_options *o;
    size_t bytes;
    struct peer_shape shape;
    float *in, *out; /* as in the call */
    int iterations;
};

static int operate(const struct work *w)
{
    return w->p->operate(w->p->self, w->in, w->out, w->shape.count);
}

static void fill(const struct work *w, int salt)
{
    for (size_t i = 0; i < w->shape.out_elements; i++)
        w->out[i] = -1; /* no result */
    for (size_t i = 0; i < w->shape.in_elements; i++)
        w->in[i] = contribution(w->p->rank, i, salt);
}

static float expected(const struct work *w, int block, size_t i)
{
    const struct peer *p = w->p;
    const enum peer_collective collective = w->o->collective;
    float sum = 0;
    if (collective == PEER_BROADCAST)
        return contribution(0, i, CHECK_SALT);
    if (collective == PEER_ALL_GATHER || collective == PEER_GATHER)
        return contribution(block, i, CHECK_SALT);
    if (collective == PEER_ALL_TO_ALL)
        return contribution(block, peer_block(w->o, w->bytes, block, p->rank) + i, CHECK_SALT);
    if (collective == PEER_SCATTER)
        return contribution(0, peer_block(w->o, w->bytes, 0, p->rank) + i, CHECK_SALT);
    if (collective == PEER_SEND_RECV)
        return contribution((p->rank + p->size - 1) % p->size, i, CHECK_SALT);
    if (collective == PEER_REDUCE_SCATTER)
        i += peer_block(w->o, w->bytes, p->rank, p->rank);
    for (int r = 0; r < p->size; r++)
        sum += contribution(r, i, CHECK_SALT);
    return sum;
}

/* Of an output that has a block of each rank, those in turn; of another, the whole. */
static double wrong_elements(const struct work *w)
{
    const enum peer_collective c = w->o->collective;
    const bool blocks = c == PEER_ALL_GATHER || c == PEER_GATHER || c == PEER_ALL_TO_ALL;
    double bad = 0;
    for (int k = 0; w->shape.out_elements > 0 && k < (blocks ? w->p->size : 1); k++) {
        const size_t begin = blocks ? peer_block(w->o, w->bytes, w->p->rank, k) : 0;
        const size_t end =
            blocks ? peer_block(w->o, w->bytes, w->p->rank, k + 1) : w->shape.out_elements;
        for (size_t i = begin; i < end; i++)
            bad += w->out[i] != expected(w, k, i - begin);
    }
    return bad;
}

/* Counts and beginnings of this rank's blocks, for operations that take them. */
static void tell_blocks(const struct work *w)
{
    static size_t counts[PEER_MOST_RANKS], displs[PEER_MOST_RANKS];
    for (int k = 0; k < w->p->size; k++) {
        displs[k] = peer_block(w->o, w->bytes, w->p->rank, k);
        counts[k] = peer_block(w->o, w->bytes, w->p->rank, k + 1) - displs[k];
    }
    if (w->o->uneven)
        w->p->blocks(w->p->self, counts, displs);
}

/* ---- timing ---- */

static int choose_iterations(struct work *w)
{
    enum { PROBES = 3 };
    double slowest = 0;
    w->iterations = w->o->iterations;
    if (w->iterations)
        return 0;
    double begin = peer_now_us();
    for (int i = 0; i < PROBES; i++)
        if (operate(w))
            return 1;
    if (w->p->max(w->p->self, (peer_now_us() - begin) / PROBES, &slowest))
        return 1;
    double wanted = slowest > 0 ? AIM_US / slowest : MOST_ITERATIONS;
    w->iterations = wanted < LEAST_ITERATIONS  ? LEAST_ITERATIONS
                    : wanted > MOST_ITERATIONS ? MOST_ITERATIONS
                                               : (int)wanted;
    return 0;
}

/* The mean of a batch between two looks at the clock. */
static int time_batch(const struct work *w, double *mean)
{
    if (w->p->barrier(w->p->self))
        return 1;
    double begin = peer_now_us();
    for (int i = 0; i < w->iterations; i++)
        if (operate(w))
            return 1;
    *mean = (peer_now_us() - begin) / w->iterations;
    return w->p->barrier(w->p->self);
}

static int time_single(const struct work *w, double *samples, double *mean)
{
    *mean = 0;
    for (int i = 0; i < w->iterations; i++) {
        if (w->o->rewrite) {
            tti_bench_rewrite(w->in, w->shape.in_elements * sizeof(float), (unsigned)i);
            if (w->p->barrier(w->p->self))
                return 1;
        }
        double begin = peer_now_us();
        if (operate(w))
            return 1;
        samples[i] = peer_now_us() - begin;
        *mean += samples[i] / w->iterations;
    }
    return 0;
}

/* Fills {p50, p99, mean}: over the ranks average, maximum, average. With rewriting there is no
 * batch, whose time would have the rewriting in it. */
static int time_size(const struct work *w, double figures[3])
{
    const struct peer *p = w->p;
    size_t n = (size_t)w->iterations;
    double *samples = malloc(n * sizeof *samples), mean = 0, single = 0;
    int status = 1;
    if (!samples || (!w->o->rewrite && time_batch(w, &mean)) || time_single(w, samples, &single))
        goto out;
    if (w->o->rewrite)
        mean = single;
    status = p->sum(p->self, peer_percentile(samples, n, 50) / p->size, &figures[0]) ||
             p->max(p->self, peer_percentile(samples, n, 99), &figures[1]) ||
             p->sum(p->self, mean / p->size, &figures[2]);
out:
    free(samples);
    return status;
}

/* Wrong elements over all ranks of one run on fresh data. */
static int check_size(const struct work *w, double *wrong)
{
    fill(w, CHECK_SALT);
    if (w->p->barrier(w->p->self) || operate(w))
        return 1;
    return w->p->sum(w->p->self, wrong_elements(w), wrong);
}

static int sweep_size(struct work *w, double *wrong)
{
    double figures[3];
    tell_blocks(w);
    fill(w, 0);
    for (int i = 0; i < w->o->warmup; i++)
        if (operate(w))
            return 1;
    if (choose_iterations(w) || time_size(w, figures) || check_size(w, wrong))
        return 1;
    if (w->p->rank == 0)
        peer_print_row(w->bytes, w->shape.count, figures, w->iterations, *wrong);
    return 0;
}

int peer_sweep(const struct peer *p, const struct peer_options *o)
{
    size_t most = 0;
    if (o->uneven && (!p->blocks || p->size > PEER_MOST_RANKS)) {
        fprintf(stderr, "peer: no operations on uneven blocks of %d ranks\n", p->size);
        return 1;
    }
    for (int i = 0; i < o->size_count; i++)
        most = o->sizes[i] > most ? o->sizes[i] : most;
    /* Page-aligned, like what our library allocates. */
    size_t bytes = (most + 4095) / 4096 * 4096;
    float *in = aligned_alloc(4096, bytes), *out = aligned_alloc(4096, bytes);
    double wrong_found = 0;
    int status = 1;
    if (!in || !out) {
        fprintf(stderr, "peer: cannot allocate twice %zu bytes\n", bytes);
        goto out;
    }
    status = 0;
    for (int i = 0; i < o->size_count && !status; i++) {
        struct peer_shape s = peer_shape(o, o->sizes[i], p->rank);
        struct work w = {.p = p, .o = o, .bytes = o->sizes[i], .shape = s, .in = in, .out = out};
        if (o->in_place)
            w.in = out + (o->collective == PEER_ALL_GATHER ? (size_t)p->rank * s.count : 0);
        status = sweep_size(&w, &wrong_found) || wrong_found > 0;
    }
out:
    free(in);
    free(out);
    return status;
}
