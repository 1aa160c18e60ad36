/* The kernels of several ranks (one_shot_ll, two_shot), a host thread and a stream for each rank,
 * on one device that all share and on several: every type and operator for 2, 3, 4 and 8 ranks, bit
 * for bit against the CPU's kernels folded in rank order; in place, odd counts and addresses, many
 * launches in a row; and that a rank that does not come, or an abort, ends the others. */
#include "device/reduce.h"
#include "tests/device/gpu_under_test.h"
#include "tests/device/gpu_wait.h"
#include "tests/device/reference.h"
#include "tests/tutti_cmocka.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MOST_RANKS = 8,
    MOST = 1200, /* elements */
    ROOM = 8 * MOST + 64,
    LAUNCHES = 3,
    PREMUL = TUTTI_OP_COUNT, /* one more operator: sum of scaled inputs */
    SLOT_BYTES = 8 * MOST,   /* a multiple of 8 and of 120 */
};

struct job {
    enum tti_gpu_kernel kernel;
    enum tutti_type type;
    int op, ranks, devices;
    size_t count;
    unsigned skew, blocks, threads;
    bool in_place, by_pointer;
};

struct rank {
    const struct job *job;
    int rank;
    struct tti_gpu *gpu;
    tutti_stream stream;
    char *in, *out, *scale_at;
    struct tti_gpu_control *control;
    void *slots, *lines;
    struct tti_gpu_status *status;
    uint64_t scale;
    char (*host_in)[ROOM], (*host_out)[ROOM]; /* [LAUNCHES], pinned: copies do not block */
    enum tutti_result result;
};

/* Under ThreadSanitizer a simulated thread costs much: take every third type and operator. */
#if defined(__SANITIZE_THREAD__)
enum { TURNS_A_JOB = 3 };
#else
enum { TURNS_A_JOB = 1 };
#endif

static struct rank *ranks; /* MOST_RANKS of them */
static uint64_t seed = 4;

static size_t job_bytes(const struct job *job)
{
    return job->count * tutti_type_size(job->type);
}

/* Sums of many random bits are NaN mostly: small numbers, then, and some bits. */
static void fill(char *at, enum tutti_type type, size_t count)
{
    float numbers[64];
    const size_t size = tutti_type_size(type);
    for (size_t i = 0; i < count; i += 64) {
        const size_t n = count - i < 64 ? count - i : 64;
        for (size_t k = 0; k < 64; k++)
            numbers[k] = (float)(int)(reference_random(&seed) % 2001 - 1000) / 16;
        if (reference_format_of(type))
            tti_convert(at + i * size, type, numbers, TUTTI_FLOAT32, n, NULL);
        for (size_t k = 0; k < n; k++) {
            const uint64_t bits = reference_random(&seed);
            const double wide = numbers[k];
            if (type == TUTTI_FLOAT64)
                memcpy(at + (i + k) * 8, &wide, 8);
            if (type == TUTTI_FLOAT32)
                memcpy(at + (i + k) * 4, &numbers[k], 4);
            if (bits % 16 == 0 ||
                (!reference_format_of(type) && type != TUTTI_FLOAT32 && type != TUTTI_FLOAT64))
                memcpy(at + (i + k) * size, &bits, size);
        }
    }
}

static void rank_begin(struct rank *r, const struct job *job, int index)
{
    r->job = job;
    r->rank = index;
    r->gpu = gpu_open(index % job->devices);
    const struct tti_gpu_ops *ops = r->gpu->ops;
    GPU_OK(ops->stream_create(r->gpu, &r->stream));
    r->in = gpu_memory(r->gpu, ROOM, NULL);
    r->out = gpu_memory(r->gpu, ROOM, NULL);
    r->control = gpu_memory(r->gpu, sizeof *r->control, NULL);
    r->slots = gpu_memory(r->gpu, TTI_LL_SLOTS_BYTES(job->ranks, SLOT_BYTES), NULL);
    r->lines = gpu_memory(r->gpu, TTI_LL128_LINES_BYTES(job->ranks, SLOT_BYTES), NULL);
    fill((char *)&r->scale, job->type, 1);
    r->scale_at = gpu_memory(r->gpu, 16, &r->scale);
    GPU_OK(ops->alloc(r->gpu, TTI_MEMORY_PINNED, sizeof *r->status, (void **)&r->status));
    memset(r->status, 0, sizeof *r->status);
    GPU_OK(ops->alloc(r->gpu, TTI_MEMORY_PINNED, LAUNCHES * ROOM, (void **)&r->host_in));
    GPU_OK(ops->alloc(r->gpu, TTI_MEMORY_PINNED, LAUNCHES * ROOM, (void **)&r->host_out));
    GPU_OK(ops->prepare(r->gpu, job->kernel, job->type));
    for (int k = 0; k < LAUNCHES; k++)
        fill(r->host_in[k], job->type, job->count);
}

static void rank_end(struct rank *r)
{
    const struct tti_gpu_ops *ops = r->gpu->ops;
    ops->stream_destroy(r->gpu, r->stream);
    ops->free(r->gpu, r->in);
    ops->free(r->gpu, r->out);
    ops->free(r->gpu, r->control);
    ops->free(r->gpu, r->slots);
    ops->free(r->gpu, r->lines);
    ops->free(r->gpu, r->scale_at);
    ops->free(r->gpu, r->status);
    ops->free(r->gpu, r->host_in);
    ops->free(r->gpu, r->host_out);
    ops->close(r->gpu);
}

static size_t skew_of(const struct job *job, int rank)
{
    return job->skew % 2 ? (size_t)(job->skew * (unsigned)(rank + 1)) % 16 : job->skew;
}

static struct tti_coupled_args rank_args(const struct rank *r, double timeout)
{
    const struct job *job = r->job;
    struct tti_coupled_args args = {
        .rank = (uint32_t)r->rank,
        .ranks = (uint32_t)job->ranks,
        .op = job->op == TUTTI_AVG || job->op == PREMUL ? TUTTI_SUM : (uint32_t)job->op,
        .divisor = job->op == TUTTI_AVG ? (uint32_t)job->ranks : 0,
        .scaled = job->op == PREMUL,
        .scale = job->by_pointer ? 0 : r->scale,
        .scale_at = job->by_pointer ? r->scale_at : NULL,
        .count = job->count,
        .slot_bytes = SLOT_BYTES,
        .line_bytes = SLOT_BYTES,
        .status = r->status,
        .timeout_ns = (uint64_t)(timeout * 1e9),
    };
    for (int p = 0; p < job->ranks; p++) {
        args.in[p] = ranks[p].in + skew_of(job, p);
        args.out[p] =
            job->in_place ? ranks[p].in + skew_of(job, p) : ranks[p].out + skew_of(job, p + 3);
        args.control[p] = ranks[p].control;
        args.slots[p] = ranks[p].slots;
        args.lines[p] = ranks[p].lines;
    }
    return args;
}

static enum tutti_result rank_launches(struct rank *r)
{
    const struct job *job = r->job;
    const struct tti_gpu_ops *ops = r->gpu->ops;
    const struct tti_coupled_args args = rank_args(r, 60);
    const struct tti_gpu_launch launch = {.kernel = job->kernel,
                                          .type = job->type,
                                          .blocks = job->blocks,
                                          .threads = job->threads,
                                          .args = &args,
                                          .args_bytes = sizeof args};
    for (int k = 0; k < LAUNCHES; k++) {
        TTI_TRY(ops->copy(r->gpu, (void *)(uintptr_t)args.in[r->rank], r->host_in[k],
                          job_bytes(job), r->stream));
        TTI_TRY(ops->launch(r->gpu, &launch, r->stream));
        TTI_TRY(ops->copy(r->gpu, r->host_out[k], args.out[r->rank], job_bytes(job), r->stream));
    }
    return gpu_wait_or_end(r->gpu, r->stream, 90, "an all-reduce");
}

static void *rank_main(void *argument)
{
    struct rank *r = argument;
    r->result = rank_launches(r);
    if (r->result != TUTTI_OK)
        print_error("rank %d: %s\n", r->rank, tti_error_text());
    return NULL;
}

static void expect(const struct job *job, int launch, char *to)
{
    static char total[2][ROOM], scaled[ROOM];
    const enum tutti_type acc = tti_acc_type(job->type);
    const enum tutti_op op =
        job->op == TUTTI_AVG || job->op == PREMUL ? TUTTI_SUM : (enum tutti_op)job->op;
    const struct tti_finish finish = {.average = job->op == TUTTI_AVG, .ranks = job->ranks};
    for (int r = 0; r < job->ranks; r++) {
        const char *in = ranks[r].host_in[launch];
        const bool last = r == job->ranks - 1;
        if (job->op == PREMUL) {
            tti_scale(scaled, in, &ranks[r].scale, job->type, job->count);
            in = scaled;
        }
        if (r == 0)
            tti_convert(total[0], acc, in, job->type, job->count, NULL);
        else
            tti_reduce(op, last ? to : total[r % 2], last ? job->type : acc, total[(r - 1) % 2],
                       acc, in, job->type, job->count, last ? &finish : NULL);
    }
}

static void check_job(const struct job *job)
{
    static char expected[ROOM];
    const size_t size = tutti_type_size(job->type);
    for (int k = 0; k < LAUNCHES; k++) {
        expect(job, k, expected);
        for (int r = 0; r < job->ranks; r++) {
            size_t i = 0;
            while (i < job->count &&
                   memcmp(expected + i * size, ranks[r].host_out[k] + i * size, size) == 0)
                i++;
            if (i < job->count)
                fail_msg("%s %s operator %d, %d ranks on %d devices, %u blocks of %u, count %zu, "
                         "skew %u%s, launch %d: element %zu of rank %d is wrong",
                         tti_gpu_kernel_name(job->kernel), tutti_type_name(job->type), job->op,
                         job->ranks, job->devices, job->blocks, job->threads, job->count, job->skew,
                         job->in_place ? ", in place" : "", k, i, r);
        }
    }
}

/* `epoch`: of the launches before. */
static void run_job(const struct job *job, uint64_t epoch)
{
    pthread_t threads[MOST_RANKS];
    for (int r = 0; r < job->ranks; r++) {
        rank_begin(&ranks[r], job, r);
        gpu_write(ranks[r].gpu, &ranks[r].control->epoch, &epoch, sizeof epoch);
    }
    for (int r = 0; r < job->ranks; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, rank_main, &ranks[r]), 0);
    bool fine = true;
    for (int r = 0; r < job->ranks; r++) {
        pthread_join(threads[r], NULL);
        fine &= ranks[r].result == TUTTI_OK && ranks[r].status->failed == 0;
    }
    assert_true(fine);
    check_job(job);
    for (int r = 0; r < job->ranks; r++)
        rank_end(&ranks[r]);
}

static void all_types(enum tti_gpu_kernel kernel)
{
    static const int worlds[] = {2, 3, 4, 8};
    static const size_t counts[] = {1, 3, 64, 127, 333, 1024, 1199};
    static const unsigned skews[] = {0, 0, 8, 4, 3, 1};
    const int devices = gpu_devices(4);
    int turn = 0;
    for (int type = 0; type < TUTTI_TYPE_COUNT; type++) {
        for (int op = 0; op <= PREMUL; op++, turn++) {
            if (turn % TURNS_A_JOB)
                continue;
            const uint64_t dice = reference_random(&seed);
            const struct job job = {.kernel = kernel,
                                    .type = (enum tutti_type)type,
                                    .op = op,
                                    .ranks = worlds[turn / TURNS_A_JOB % 4],
                                    .devices = 1 + turn / (4 * TURNS_A_JOB) % devices,
                                    .count = counts[dice % 7],
                                    .skew = skews[(dice >> 8) % 6],
                                    .blocks = 1 + (unsigned)(dice >> 16) % 3,
                                    .threads = 32u << (dice >> 24) % 2,
                                    .in_place = (dice >> 32) % 3 == 0,
                                    .by_pointer = (dice >> 40) % 2 == 0};
            run_job(&job, 0);
        }
    }
}

static void test_one_shot_ll(void **state)
{
    (void)state;
    all_types(TTI_KERNEL_ONE_SHOT_LL);
}

static void test_one_shot_ll128(void **state)
{
    (void)state;
    all_types(TTI_KERNEL_ONE_SHOT_LL128);
}

static void test_two_shot(void **state)
{
    (void)state;
    all_types(TTI_KERNEL_TWO_SHOT);
}

/* Across the places where the count of epochs wraps, and where whole slots are swept. */
static void test_epochs(void **state)
{
    (void)state;
    (void)gpu_devices(1);
    static const uint64_t before[] = {0xfffffffd, UINT64_C(0x5fffffffe), 0x0ffffffe, 0x0fffffff};
    static const enum tti_gpu_kernel kernels[] = {TTI_KERNEL_ONE_SHOT_LL, TTI_KERNEL_ONE_SHOT_LL128,
                                                  TTI_KERNEL_TWO_SHOT};
    for (int i = 0; i < 12; i++) {
        const struct job job = {.kernel = kernels[i % 3],
                                .type = TUTTI_INT32,
                                .op = TUTTI_SUM,
                                .ranks = 3,
                                .devices = 1,
                                .count = 200,
                                .blocks = 2,
                                .threads = 32};
        run_job(&job, before[i / 3]);
    }
}

/* Rank 1 of 2 does not launch. */
static void one_is_missing(enum tti_gpu_kernel kernel, bool abort)
{
    const struct job job = {.kernel = kernel,
                            .type = TUTTI_FLOAT32,
                            .op = TUTTI_SUM,
                            .ranks = 2,
                            .devices = 1,
                            .count = 100,
                            .blocks = 2,
                            .threads = 64};
    for (int r = 0; r < 2; r++)
        rank_begin(&ranks[r], &job, r);
    struct rank *r = &ranks[0];
    const struct tti_coupled_args args = rank_args(r, abort ? 60 : 0.05);
    const struct tti_gpu_launch launch = {.kernel = kernel,
                                          .type = job.type,
                                          .blocks = job.blocks,
                                          .threads = job.threads,
                                          .args = &args,
                                          .args_bytes = sizeof args};
    GPU_OK(r->gpu->ops->launch(r->gpu, &launch, r->stream));
    if (abort) { /* without, its deadline may have passed by now */
        usleep(5000);
        GPU_FAILS(TUTTI_IN_PROGRESS, r->gpu->ops->stream_query(r->gpu, r->stream));
        __atomic_store_n(&r->status->abort, 1, __ATOMIC_RELEASE);
    }
    GPU_OK(gpu_wait_or_end(r->gpu, r->stream, 40, "the rank that is left"));
    if (abort) {
        assert_int_equal(r->status->failed, 0);
    } else {
        assert_int_equal(r->status->failed, TUTTI_ERR_TIMEOUT);
        assert_int_equal(r->status->rank, 1);
        assert_int_equal(r->status->epoch, 1);
        assert_in_range(r->status->block, 0, 1);
    }
    rank_end(&ranks[0]);
    rank_end(&ranks[1]);
}

static void test_missing_rank(void **state)
{
    (void)state;
    (void)gpu_devices(1);
    one_is_missing(TTI_KERNEL_ONE_SHOT_LL, false);
    one_is_missing(TTI_KERNEL_ONE_SHOT_LL128, false);
    one_is_missing(TTI_KERNEL_TWO_SHOT, false);
    one_is_missing(TTI_KERNEL_ONE_SHOT_LL, true);
    one_is_missing(TTI_KERNEL_ONE_SHOT_LL128, true);
    one_is_missing(TTI_KERNEL_TWO_SHOT, true);
}

/* Devices stay open, and with them the threads of the simulated ones. */
static struct tti_gpu *opened[4];

static int setup(void **state)
{
    (void)state;
    int count = 0;
    GPU_OK(gpu_ops()->count(&count));
    for (int d = 0; d < count && d < 4; d++)
        opened[d] = gpu_open(d);
    ranks = calloc(MOST_RANKS, sizeof *ranks);
    return ranks ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    for (int d = 0; d < 4; d++)
        if (opened[d])
            opened[d]->ops->close(opened[d]);
    free(ranks);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_shot_ll),  cmocka_unit_test(test_one_shot_ll128),
        cmocka_unit_test(test_two_shot),     cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_missing_rank),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
