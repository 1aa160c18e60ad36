/* The sweep of a peer: for each size fill, warm up, time a batch, time single operations, then
 * check a run on fresh data. The same steps as bench/sweep.c, so that figures mean the same. */
#include "bench/compare/peer_sweep.h"

#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LEAST_ITERATIONS = 20, MOST_ITERATIONS = 2000 };
static const double AIM_US = 20000;

/* ---- options ---- */

static const char *const collective_names[] = {"all_reduce", "broadcast", "reduce_scatter",
                                               "all_gather"};

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
    for (int c = 0; c < 4; c++)
        if (strcmp(text, collective_names[c]) == 0) {
            o->collective = (enum peer_collective)c;
            return 0;
        }
    return wrong("--coll", text);
}

int peer_options_parse(int argc, char **argv, struct peer_options *o)
{
    static const struct option flags[] = {
        {"coll", required_argument, NULL, 'c'},   {"sizes", required_argument, NULL, 's'},
        {"warmup", required_argument, NULL, 'w'}, {"iterations", required_argument, NULL, 'n'},
        {"ranks", required_argument, NULL, 'r'},  {"algorithm", required_argument, NULL, 'a'},
        {"bind", no_argument, NULL, 'b'},         {NULL, 0, NULL, 0},
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
        else if (flag == 'a')
            o->algorithm = optarg;
        else if (flag == 'b')
            o->bind = true;
        else
            status = 2;
    }
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
    return percent == 50 ? samples[count / 2] : samples[(count - 1) * (size_t)percent / 100];
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

struct peer_shape peer_shape(enum peer_collective collective, size_t bytes, int ranks)
{
    size_t n = (size_t)ranks, elements = bytes / sizeof(float);
    struct peer_shape s = {elements, elements, elements};
    if (collective == PEER_BROADCAST)
        s.in_elements = 0;
    if (collective == PEER_REDUCE_SCATTER || collective == PEER_ALL_GATHER) {
        s.count = elements / n;
        s.in_elements = s.count * (collective == PEER_REDUCE_SCATTER ? n : 1);
        s.out_elements = s.count * (collective == PEER_ALL_GATHER ? n : 1);
    }
    return s;
}

/* Small integers: sums are exact. `salt` tells one run's data from another's. */
static float contribution(int rank, size_t i, int salt)
{
    return (float)((i * 5 + i / 17 + (size_t)rank * 3 + (size_t)salt * 7) % 11);
}

static void fill(const struct peer *p, enum peer_collective collective, const struct peer_shape *s,
                 int salt, float *in, float *out)
{
    bool root = collective == PEER_BROADCAST && p->rank == 0;
    for (size_t i = 0; i < s->in_elements; i++)
        in[i] = contribution(p->rank, i, salt);
    for (size_t i = 0; i < s->out_elements; i++)
        out[i] = root ? contribution(0, i, salt) : -1; /* -1 is no result */
}

static float expected(const struct peer *p, enum peer_collective collective,
                      const struct peer_shape *s, size_t i, int salt)
{
    float sum = 0;
    if (collective == PEER_BROADCAST)
        return contribution(0, i, salt);
    if (collective == PEER_ALL_GATHER)
        return contribution((int)(i / s->count), i % s->count, salt);
    if (collective == PEER_REDUCE_SCATTER)
        i += (size_t)p->rank * s->count;
    for (int r = 0; r < p->size; r++)
        sum += contribution(r, i, salt);
    return sum;
}

/* ---- timing ---- */

static int choose_iterations(const struct peer *p, const struct peer_options *o, const float *in,
                             float *out, size_t count, int *iterations)
{
    enum { PROBES = 3 };
    double slowest = 0;
    *iterations = o->iterations;
    if (o->iterations)
        return 0;
    double begin = peer_now_us();
    for (int i = 0; i < PROBES; i++)
        if (p->operate(p->self, in, out, count))
            return 1;
    if (p->max(p->self, (peer_now_us() - begin) / PROBES, &slowest))
        return 1;
    double wanted = slowest > 0 ? AIM_US / slowest : MOST_ITERATIONS;
    *iterations = wanted < LEAST_ITERATIONS  ? LEAST_ITERATIONS
                  : wanted > MOST_ITERATIONS ? MOST_ITERATIONS
                                             : (int)wanted;
    return 0;
}

/* Fills {p50, p99, mean}: over the ranks average, maximum, average. */
static int time_size(const struct peer *p, const float *in, float *out, size_t count,
                     int iterations, double figures[3])
{
    double *samples = malloc((size_t)iterations * sizeof *samples), mean, p50, p99;
    int status = 1;
    if (!samples || p->barrier(p->self))
        goto out;
    double begin = peer_now_us();
    for (int i = 0; i < iterations; i++)
        if (p->operate(p->self, in, out, count))
            goto out;
    mean = (peer_now_us() - begin) / iterations;
    if (p->barrier(p->self))
        goto out;
    for (int i = 0; i < iterations; i++) {
        begin = peer_now_us();
        if (p->operate(p->self, in, out, count))
            goto out;
        samples[i] = peer_now_us() - begin;
    }
    p50 = peer_percentile(samples, (size_t)iterations, 50);
    p99 = peer_percentile(samples, (size_t)iterations, 99);
    status = p->sum(p->self, p50 / p->size, &figures[0]) || p->max(p->self, p99, &figures[1]) ||
             p->sum(p->self, mean / p->size, &figures[2]);
out:
    free(samples);
    return status;
}

/* Wrong elements over all ranks of one run on fresh data. */
static int check_size(const struct peer *p, enum peer_collective collective,
                      const struct peer_shape *s, float *in, float *out, double *wrong_elements)
{
    enum { SALT = 1 };
    double own = 0;
    fill(p, collective, s, SALT, in, out);
    if (p->barrier(p->self) || p->operate(p->self, in, out, s->count))
        return 1;
    for (size_t i = 0; i < s->out_elements; i++)
        own += out[i] != expected(p, collective, s, i, SALT);
    return p->sum(p->self, own, wrong_elements);
}

static int sweep_size(const struct peer *p, const struct peer_options *o, size_t bytes, float *in,
                      float *out, double *wrong_elements)
{
    struct peer_shape s = peer_shape(o->collective, bytes, p->size);
    double figures[3];
    int iterations = 0;
    fill(p, o->collective, &s, 0, in, out);
    for (int i = 0; i < o->warmup; i++)
        if (p->operate(p->self, in, out, s.count))
            return 1;
    if (choose_iterations(p, o, in, out, s.count, &iterations) ||
        time_size(p, in, out, s.count, iterations, figures) ||
        check_size(p, o->collective, &s, in, out, wrong_elements))
        return 1;
    if (p->rank == 0)
        peer_print_row(bytes, s.count, figures, iterations, *wrong_elements);
    return 0;
}

int peer_sweep(const struct peer *p, const struct peer_options *o)
{
    size_t most = 0;
    for (int i = 0; i < o->size_count; i++)
        most = o->sizes[i] > most ? o->sizes[i] : most;
    /* Page-aligned, like what our library allocates. */
    size_t bytes = (most + 4095) / 4096 * 4096;
    float *in = aligned_alloc(4096, bytes), *out = aligned_alloc(4096, bytes);
    double wrong_elements = 0;
    int status = 1;
    if (!in || !out) {
        fprintf(stderr, "peer: cannot allocate twice %zu bytes\n", bytes);
        goto out;
    }
    status = 0;
    for (int i = 0; i < o->size_count && !status; i++)
        status = sweep_size(p, o, o->sizes[i], in, out, &wrong_elements) || wrong_elements > 0;
out:
    free(in);
    free(out);
    return status;
}
