/* The physical limit that compare.py puts beside the measurements: the "ideal fused direct"
 * collective. All inputs and outputs are mapped by all threads; thread t reads its share of all
 * inputs once and stores its share of all outputs once; the synchronisation that a real collective
 * needs is not counted. Plain stores, and non-temporal ones too above 256 KiB, where they can win:
 * the faster counts.
 *
 * Threads are min(ranks, cores), each bound to a core. `--algorithm hop` and `--algorithm exchange`
 * measure instead what cores need to tell each other something (flight.c). Options and output as
 * peer_sweep.h says. */
#include "bench/compare/flight.h"
#include "bench/compare/peer_sweep.h"
#include "bench/rewrite.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { MOST_RANKS = 64, MOST_PASSES = 4096, DEFAULT_SAMPLES = 200, LEAST_SAMPLES = 10 };
static const size_t NON_TEMPORAL_ABOVE = 256u << 10;

/* ---- kernels ---- */

#if defined(__AVX512F__)
typedef __m512 vector;
#define LOAD(p) _mm512_loadu_ps(p)
#define ADD(a, b) _mm512_add_ps(a, b)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define STREAM(p, v) _mm512_stream_ps(p, v)
#define FENCE() _mm_sfence()
#elif defined(__AVX__)
typedef __m256 vector;
#define LOAD(p) _mm256_loadu_ps(p)
#define ADD(a, b) _mm256_add_ps(a, b)
#define STORE(p, v) _mm256_storeu_ps(p, v)
#define STREAM(p, v) _mm256_stream_ps(p, v)
#define FENCE() _mm_sfence()
#elif defined(__SSE2__)
typedef __m128 vector;
#define LOAD(p) _mm_loadu_ps(p)
#define ADD(a, b) _mm_add_ps(a, b)
#define STORE(p, v) _mm_storeu_ps(p, v)
#define STREAM(p, v) _mm_stream_ps(p, v)
#define FENCE() _mm_sfence()
#else /* one float at a time, which the compiler may widen */
typedef float vector;
#define LOAD(p) (*(p))
#define ADD(a, b) ((a) + (b))
#define STORE(p, v) (*(p) = (v))
#define STREAM(p, v) (*(p) = (v))
#define FENCE() ((void)0)
#endif

enum { LANES = sizeof(vector) / sizeof(float) };

/* outs[d][i] = ins[0][i] + ins[1][i] + ... for i below count. Inlined with constant numbers of
 * inputs and outputs, so that the inner loops unroll. */
static inline __attribute__((always_inline)) void combine(const float *const *ins, int in_count,
                                                          float *const *outs, int out_count,
                                                          size_t count, bool stream)
{
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        vector sum = LOAD(ins[0] + i);
        for (int s = 1; s < in_count; s++)
            sum = ADD(sum, LOAD(ins[s] + i));
        for (int d = 0; d < out_count; d++) {
            if (stream)
                STREAM(outs[d] + i, sum);
            else
                STORE(outs[d] + i, sum);
        }
    }
    for (; i < count; i++) {
        float sum = ins[0][i];
        for (int s = 1; s < in_count; s++)
            sum += ins[s][i];
        for (int d = 0; d < out_count; d++)
            outs[d][i] = sum;
    }
}

static void combine_any(const float *const *ins, int in_count, float *const *outs, int out_count,
                        size_t count, bool stream)
{
    for (int d = 0; d < out_count; d++)
        stream = stream && (uintptr_t)outs[d] % sizeof(vector) == 0;
    if (stream && in_count == 2 && out_count == 2)
        combine(ins, 2, outs, 2, count, true);
    else if (stream && in_count == 1 && out_count == 1)
        combine(ins, 1, outs, 1, count, true);
    else if (stream)
        combine(ins, in_count, outs, out_count, count, true);
    else if (in_count == 2 && out_count == 2)
        combine(ins, 2, outs, 2, count, false);
    else if (in_count == 1 && out_count == 1)
        combine(ins, 1, outs, 1, count, false);
    else
        combine(ins, in_count, outs, out_count, count, false);
    if (stream)
        FENCE();
}

/* ---- the collective, one thread's share ---- */

struct job {
    const struct peer_options *options;
    int threads;
    float *in[MOST_RANKS], *out[MOST_RANKS]; /* in place: out alone */
    size_t bytes;                            /* of the size at hand */
    struct peer_shape shape;
    int passes, samples;
    bool stream;   /* non-temporal stores */
    double *times; /* [thread][sample] */
    atomic_int arrived;
    atomic_int round;
};

static void spin_barrier(struct job *job)
{
    int round = atomic_load(&job->round);
    if (atomic_fetch_add(&job->arrived, 1) == job->threads - 1) {
        atomic_store(&job->arrived, 0);
        atomic_fetch_add(&job->round, 1);
        return;
    }
    for (unsigned spins = 1; atomic_load(&job->round) == round; spins++)
        if (spins % 4096 == 0)
            sched_yield(); /* somebody else's process has the other core */
}

/* Thread t's part of `count` elements, in whole cache lines. */
static void share(const struct job *job, int t, size_t count, size_t *begin, size_t *length)
{
    enum { LINE = 16 };
    size_t lines = (count + LINE - 1) / LINE, n = (size_t)job->threads, i = (size_t)t;
    size_t first = lines * i / n * LINE, last = lines * (i + 1) / n * LINE;
    *begin = first < count ? first : count;
    *length = (last < count ? last : count) - *begin;
}

/* Where block k begins in rank r's longer buffer. */
static size_t block_at(const struct job *job, int r, int k)
{
    return peer_block(job->options, job->bytes, r, k);
}

/* Where rank r's input begins. In place an all-gather's lies in its own block. */
static float *input_of(const struct job *job, int r)
{
    if (!job->options->in_place)
        return job->in[r];
    return job->out[r] + (job->options->collective == PEER_ALL_GATHER ? block_at(job, r, r) : 0);
}

/* A collective is so many moves, each from inputs that are summed to outputs: move b is of block b;
 * of an all-to-all, from rank b / n to rank b % n. */
static int moves(const struct job *job)
{
    const int n = job->options->ranks;
    switch (job->options->collective) {
    case PEER_ALL_REDUCE:
    case PEER_BROADCAST:
    case PEER_REDUCE:
        return 1;
    case PEER_ALL_TO_ALL:
        return n * n;
    default:
        return n;
    }
}

static size_t move_count(const struct job *job, int b)
{
    const int n = job->options->ranks;
    if (!peer_has_blocks(job->options->collective))
        return job->shape.count;
    return block_at(job, b / n, b % n + 1) - block_at(job, b / n, b % n);
}

/* The outputs of move b, but for one that has the block already. */
static int outputs_of(const struct job *job, int b, float **outs)
{
    enum peer_collective collective = job->options->collective;
    const int n = job->options->ranks;
    bool in_place = job->options->in_place;
    int count = 0;
    const size_t at =
        peer_has_blocks(collective) && collective != PEER_ALL_TO_ALL ? block_at(job, 0, b) : 0;
    switch (collective) {
    case PEER_REDUCE_SCATTER:
        outs[0] = job->out[b] + (in_place ? at : 0);
        return 1;
    case PEER_REDUCE:
    case PEER_GATHER:
        outs[0] = job->out[0] + at;
        return 1;
    case PEER_SCATTER:
        outs[0] = job->out[b];
        return 1;
    case PEER_SEND_RECV:
        outs[0] = job->out[(b + 1) % n];
        return 1;
    case PEER_ALL_TO_ALL:
        outs[0] = job->out[b % n] + block_at(job, b % n, b / n);
        return 1;
    default:
        break;
    }
    for (int r = 0; r < n; r++)
        if (!in_place || collective == PEER_ALL_REDUCE ||
            r != (collective == PEER_BROADCAST ? 0 : b))
            outs[count++] = job->out[r] + at;
    return count;
}

static int inputs_of(const struct job *job, int b, const float **ins)
{
    const int n = job->options->ranks;
    switch (job->options->collective) {
    case PEER_BROADCAST:
    case PEER_ALL_GATHER:
    case PEER_GATHER:
    case PEER_SEND_RECV:
        ins[0] = input_of(job, b);
        return 1;
    case PEER_SCATTER:
        ins[0] = input_of(job, 0) + block_at(job, 0, b);
        return 1;
    case PEER_ALL_TO_ALL:
        ins[0] = input_of(job, b / n) + block_at(job, b / n, b % n);
        return 1;
    default:
        break;
    }
    for (int r = 0; r < n; r++)
        ins[r] = input_of(job, r) +
                 (peer_has_blocks(job->options->collective) ? block_at(job, r, b) : 0);
    return n;
}

static void one_pass(struct job *job, int t)
{
    const float *ins[MOST_RANKS];
    float *outs[MOST_RANKS];
    const int all = moves(job);
    size_t begin, length;
    for (int b = 0; b < all; b++) {
        share(job, t, move_count(job, b), &begin, &length);
        int in_count = inputs_of(job, b, ins), out_count = outputs_of(job, b, outs);
        for (int i = 0; i < in_count; i++)
            ins[i] += begin;
        for (int i = 0; i < out_count; i++)
            outs[i] += begin;
        combine_any(ins, in_count, outs, out_count, length, job->stream);
    }
}

static struct peer_shape shape_of(const struct job *job, int r)
{
    return peer_shape(job->options, job->bytes, r);
}

/* Elements that rank r contributes. */
static size_t input_elements(const struct job *job, int r)
{
    return shape_of(job, r).in_elements;
}

/* Each thread writes the inputs of the ranks that would run on its core. */
static void rewrite(const struct job *job, int t, unsigned turn)
{
    for (int r = t; r < job->options->ranks; r += job->threads)
        tti_bench_rewrite(input_of(job, r), input_elements(job, r) * sizeof(float), turn);
}

struct worker {
    struct job *job;
    int t;
    pthread_t thread;
};

static void *work(void *argument)
{
    struct worker *w = argument;
    struct job *job = w->job;
    if (job->options->bind)
        (void)peer_bind(w->t); /* unbound is slower, not wrong */
    for (int s = -job->options->warmup; s < job->samples; s++) {
        if (job->options->rewrite)
            rewrite(job, w->t, (unsigned)s);
        spin_barrier(job);
        double begin = peer_now_us();
        for (int p = 0; p < job->passes; p++) {
            one_pass(job, w->t);
            atomic_signal_fence(memory_order_seq_cst); /* no pass may be merged with another */
        }
        if (s >= 0)
            job->times[(size_t)w->t * (size_t)job->samples + (size_t)s] =
                (peer_now_us() - begin) / job->passes;
    }
    return NULL;
}

/* ---- one size ---- */

static float input(int rank, size_t i)
{
    return (float)((i * 5 + (size_t)rank * 3) % 11);
}

static void fill(const struct job *job)
{
    for (int r = 0; r < job->options->ranks; r++) {
        memset(job->out[r], 0xff, job->bytes);
        for (size_t i = 0; i < input_elements(job, r); i++)
            input_of(job, r)[i] = input(r, i);
    }
}

/* What rank r should have as element i of block k of its output. */
static float right_element(const struct job *job, int r, int k, size_t i)
{
    const int n = job->options->ranks;
    float sum = 0;
    switch (job->options->collective) {
    case PEER_BROADCAST:
        return input(0, i);
    case PEER_ALL_GATHER:
    case PEER_GATHER:
        return input(k, i);
    case PEER_ALL_TO_ALL:
        return input(k, block_at(job, k, r) + i);
    case PEER_SCATTER:
        return input(0, block_at(job, 0, r) + i);
    case PEER_SEND_RECV:
        return input((r + n - 1) % n, i);
    case PEER_REDUCE_SCATTER:
        i += block_at(job, r, r);
        break;
    default:
        break;
    }
    for (int s = 0; s < n; s++)
        sum += input(s, i);
    return sum;
}

static double wrong_elements(const struct job *job)
{
    const enum peer_collective collective = job->options->collective;
    const int n = job->options->ranks;
    const bool blocks =
        collective == PEER_ALL_GATHER || collective == PEER_GATHER || collective == PEER_ALL_TO_ALL;
    const bool moved = collective == PEER_REDUCE_SCATTER && job->options->in_place;
    double wrong = 0;
    for (int r = 0; r < n; r++) {
        const float *out = job->out[r] + (moved ? block_at(job, r, r) : 0);
        const size_t elements = shape_of(job, r).out_elements;
        for (int k = 0; elements > 0 && k < (blocks ? n : 1); k++) {
            const size_t begin = blocks ? block_at(job, r, k) : 0;
            const size_t end = blocks ? block_at(job, r, k + 1) : elements;
            for (size_t i = begin; i < end; i++)
                wrong += out[i] != right_element(job, r, k, i - begin);
        }
    }
    return wrong;
}

static void run_threads(struct job *job)
{
    struct worker workers[MOST_RANKS];
    for (int t = 0; t < job->threads; t++) {
        workers[t] = (struct worker){.job = job, .t = t};
        if (pthread_create(&workers[t].thread, NULL, work, &workers[t]) != 0) {
            fprintf(stderr, "ideal: cannot start thread %d\n", t);
            exit(1); /* those that run wait for it in the barrier */
        }
    }
    for (int t = 0; t < job->threads; t++)
        pthread_join(workers[t].thread, NULL);
}

/* {p50, p99, mean}: over the threads average, maximum, average, as over ranks elsewhere. */
static void over_threads(struct job *job, double figures[3])
{
    size_t n = (size_t)job->samples;
    figures[0] = figures[1] = figures[2] = 0;
    for (int t = 0; t < job->threads; t++) {
        double *times = job->times + (size_t)t * n;
        double p99 = peer_percentile(times, n, 99);
        figures[0] += peer_percentile(times, n, 50) / job->threads;
        figures[1] = p99 > figures[1] ? p99 : figures[1];
        for (size_t s = 0; s < n; s++)
            figures[2] += times[s] / (double)n / job->threads;
    }
}

/* Time one size with one kind of stores, then check a pass over fresh data. */
static int measure_stores(struct job *job, bool stream, double figures[3], double *wrong)
{
    enum { ENOUGH_BYTES = 1 << 20 }; /* a sample is long against a look at the clock */
    const struct peer_options *o = job->options;
    size_t passes = o->rewrite ? 1 : ENOUGH_BYTES / job->bytes;
    job->stream = stream;
    job->passes = passes < 1 ? 1 : passes > MOST_PASSES ? MOST_PASSES : (int)passes;
    job->samples =
        o->iterations && o->iterations < DEFAULT_SAMPLES ? o->iterations : DEFAULT_SAMPLES;
    if (!o->iterations && job->bytes > ((size_t)8 << 20))
        job->samples = LEAST_SAMPLES;
    job->times = calloc((size_t)job->samples * (size_t)job->threads, sizeof *job->times);
    if (!job->times) {
        fprintf(stderr, "ideal: out of memory\n");
        return 1;
    }
    fill(job);
    run_threads(job);
    over_threads(job, figures);
    free(job->times);
    fill(job);
    for (int t = 0; t < job->threads; t++)
        one_pass(job, t);
    *wrong += wrong_elements(job);
    return 0;
}

static int measure(struct job *job, size_t bytes)
{
    double figures[3], streamed[3], wrong = 0;
    job->bytes = bytes;
    job->shape = shape_of(job, 0);
    if (measure_stores(job, false, figures, &wrong))
        return 1;
    if (bytes > NON_TEMPORAL_ABOVE) {
        if (measure_stores(job, true, streamed, &wrong))
            return 1;
        if (streamed[0] < figures[0])
            memcpy(figures, streamed, sizeof figures);
    }
    peer_print_row(bytes, job->shape.count, figures, job->samples * job->passes, wrong);
    return wrong > 0;
}

/* ---- main ---- */

/* Shared pages, as those of real ranks are. */
static int map_shared(size_t bytes, float **buffer)
{
    void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) {
        fprintf(stderr, "ideal: cannot map %zu bytes\n", bytes);
        return 1;
    }
    (void)madvise(made, bytes, MADV_HUGEPAGE); /* a wish, as in device/memory.c */
    *buffer = made;
    return 0;
}

int main(int argc, char **argv)
{
    static struct job job;
    struct peer_options options;
    cpu_set_t allowed;
    size_t most = 0;
    int status = peer_options_parse(argc, argv, &options);
    if (status)
        return status;
    int cores = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
    if (strcmp(options.algorithm, "hop") == 0)
        return flight_hop(cores);
    if (strcmp(options.algorithm, "exchange") == 0)
        return flight_exchange(cores, &options);
    if (options.ranks < 2 || options.ranks > MOST_RANKS) {
        fprintf(stderr, "ideal: from 2 to %d ranks\n", MOST_RANKS);
        return 2;
    }
    for (int i = 0; i < options.size_count; i++)
        most = options.sizes[i] > most ? options.sizes[i] : most;
    job.options = &options;
    job.threads = options.ranks < cores ? options.ranks : cores;
    for (int r = 0; r < options.ranks && !status; r++)
        status =
            map_shared(most, &job.out[r]) || (!options.in_place && map_shared(most, &job.in[r]));
    for (int i = 0; i < options.size_count && !status; i++)
        status = measure(&job, options.sizes[i]);
    return status;
}
