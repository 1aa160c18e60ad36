/* After a failure, nobody touches the buffers of a rank whose kernel has ended: not a rank that
 * comes late, and not one that was at them when the other gave up, for which the other's kernel
 * waits. Of the kernels that reach into each other's buffers, two ranks on one device. */
#include "base/clock.h"
#include "tests/device/gpu_under_test.h"
#include "tests/tutti_cmocka.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 2, PAGE = 4096, COUNT = 2 * PAGE / 4, BYTES = COUNT * 4, CANARY = 0x5a };

struct rank {
    struct tti_gpu *gpu;
    tutti_stream stream;
    char *in, *out; /* BYTES, and RANKS * BYTES */
    struct tti_gpu_control *control;
    struct tti_gpu_status *status;
};

static struct rank ranks[RANKS];

static void ranks_begin(void)
{
    static float values[COUNT];
    (void)gpu_devices(1);
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)i;
    for (int r = 0; r < RANKS; r++) {
        struct rank *rank = &ranks[r];
        void *status = NULL;
        rank->gpu = gpu_open(0);
        GPU_OK(rank->gpu->ops->stream_create(rank->gpu, &rank->stream));
        rank->in = gpu_memory(rank->gpu, BYTES, values);
        rank->out = gpu_memory(rank->gpu, RANKS * BYTES, NULL);
        rank->control = gpu_memory(rank->gpu, sizeof *rank->control, NULL);
        GPU_OK(rank->gpu->ops->alloc(rank->gpu, TTI_MEMORY_PINNED, sizeof *rank->status, &status));
        rank->status = status;
        memset(status, 0, sizeof *rank->status);
        GPU_OK(rank->gpu->ops->prepare(rank->gpu, TTI_KERNEL_TWO_SHOT, TUTTI_FLOAT32));
        GPU_OK(rank->gpu->ops->prepare(rank->gpu, TTI_KERNEL_DIRECT, TUTTI_FLOAT32));
    }
}

static void ranks_end(void)
{
    for (int r = 0; r < RANKS; r++) {
        const struct tti_gpu_ops *ops = ranks[r].gpu->ops;
        ops->stream_destroy(ranks[r].gpu, ranks[r].stream);
        ops->free(ranks[r].gpu, ranks[r].in);
        ops->free(ranks[r].gpu, ranks[r].out);
        ops->free(ranks[r].gpu, ranks[r].control);
        ops->free(ranks[r].gpu, ranks[r].status);
        ops->close(ranks[r].gpu);
    }
}

/* An all-reduce, or an all-gather. */
static void start(int r, enum tti_gpu_kernel kernel, double timeout)
{
    struct tti_direct_args args = {
        .coupled = {.rank = (uint32_t)r,
                    .ranks = RANKS,
                    .op = TUTTI_SUM,
                    .exchange = 1,
                    .count = COUNT,
                    .status = ranks[r].status,
                    .timeout_ns = (uint64_t)(timeout * 1e9)},
        .stride = BYTES,
        .blocks = RANKS,
    };
    const bool direct = kernel == TTI_KERNEL_DIRECT;
    args.coupled.in[r] = ranks[r].in;
    args.coupled.out[r] = ranks[r].out;
    for (int p = 0; p < RANKS; p++)
        args.coupled.control[p] = ranks[p].control;
    const struct tti_gpu_launch launch = {.kernel = kernel,
                                          .type = TUTTI_FLOAT32,
                                          .blocks = 1,
                                          .threads = 64,
                                          .args = &args,
                                          .args_bytes = direct ? sizeof args : sizeof args.coupled};
    GPU_OK(ranks[r].gpu->ops->launch(ranks[r].gpu, &launch, ranks[r].stream));
}

static void settle(int r)
{
    gpu_settle(ranks[r].gpu, ranks[r].stream);
}

static void canary(char *at, size_t bytes)
{
    char filled[RANKS * BYTES];
    memset(filled, CANARY, sizeof filled);
    gpu_write(ranks[0].gpu, at, filled, bytes);
}

static void assert_canary(const char *at, size_t bytes)
{
    char found[RANKS * BYTES];
    gpu_read(ranks[0].gpu, found, at, bytes);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(found[i], CANARY);
}

/* ---- a rank that comes late ---- */

static void late(enum tti_gpu_kernel kernel)
{
    ranks_begin();
    start(0, kernel, 0.05);
    settle(0);
    assert_int_equal(ranks[0].status->failed, TUTTI_ERR_TIMEOUT);
    assert_int_equal(ranks[0].status->rank, 1);
    assert_int_equal(ranks[0].status->stuck, 0);
    /* Rank 0 has its buffers back. */
    canary(ranks[0].in, BYTES);
    canary(ranks[0].out, RANKS * BYTES);
    canary(ranks[1].out, RANKS * BYTES);
    const uint64_t began = tti_now_ns();
    start(1, kernel, 30);
    settle(1);
    assert_true(tti_now_ns() - began < UINT64_C(15000000000)); /* does not wait for rank 0 */
    assert_int_equal(ranks[1].status->failed, TUTTI_ERR_PEER);
    assert_int_equal(ranks[1].status->rank, 0);
    assert_canary(ranks[0].in, BYTES);
    assert_canary(ranks[0].out, RANKS * BYTES);
    assert_canary(ranks[1].out, RANKS * BYTES);
    /* What was queued behind, on both, ends as well and touches nothing. */
    start(0, kernel, 30);
    start(1, kernel, 30);
    settle(0);
    settle(1);
    assert_canary(ranks[0].out, RANKS * BYTES);
    assert_canary(ranks[1].out, RANKS * BYTES);
    ranks_end();
}

static void test_late(void **state)
{
    (void)state;
    late(TTI_KERNEL_TWO_SHOT);
    late(TTI_KERNEL_DIRECT);
}

/* ---- a rank that is at the other's buffer: held up there by a page that faults ---- */

static _Atomic int held, let_go;
static char *fault_page;

static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    const char *at = info->si_addr;
    (void)context;
    if (at < fault_page || at >= fault_page + PAGE) {
        signal(signal_number, SIG_DFL); /* not ours: crash */
        return;
    }
    atomic_store(&held, 1);
    while (!atomic_load(&let_go)) {
        const struct timespec nap = {.tv_nsec = 1000000};
        nanosleep(&nap, NULL);
    }
    if (mprotect(fault_page, PAGE, PROT_READ | PROT_WRITE) != 0)
        _exit(99);
}

/* Rank 1 is held while it reads the second half of rank 0's input, which rank 0 does not read. Then
 * rank 0 is told to give up. */
static void stalled(bool for_long)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO}, before;
    ranks_begin();
    action.sa_sigaction = on_fault;
    assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
    atomic_store(&held, 0);
    atomic_store(&let_go, 0);
    fault_page = ranks[0].in + PAGE;
    assert_int_equal(mprotect(fault_page, PAGE, PROT_NONE), 0);
    start(0, TTI_KERNEL_TWO_SHOT, for_long ? 5 : 30); /* by when rank 1 must be held */
    start(1, TTI_KERNEL_TWO_SHOT, 30);
    while (!atomic_load(&held))
        usleep(1000);
    __atomic_store_n(&ranks[0].status->abort, 1, __ATOMIC_RELEASE);
    if (for_long) {
        settle(0);
        assert_int_equal(ranks[0].status->stuck, 2); /* rank 1 */
    } else {
        usleep(50000);
        GPU_FAILS(TUTTI_IN_PROGRESS,
                  ranks[0].gpu->ops->stream_query(ranks[0].gpu, ranks[0].stream));
    }
    atomic_store(&let_go, 1);
    settle(0);
    settle(1);
    assert_int_equal(ranks[0].status->stuck, for_long ? 2 : 0);
    assert_int_equal(ranks[1].status->failed, 0); /* it had all that it needed */
    assert_int_equal(ranks[1].status->stuck, 0);
    assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
    ranks_end();
}

static void test_stalled(void **state)
{
    (void)state;
    (void)gpu_devices(1);
    if (strcmp(gpu_ops()->name, "sim") != 0) {
        print_message("SKIPPED: pages of a GPU's memory cannot be made to fault\n");
        skip();
    }
    stalled(false);
    stalled(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_stalled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
