/* PTX as C does what PTX is said to do (instructions.ptx), and does not do what a GPU would end the
 * kernel for. Only where this holds do tests on fake_cuda_ptx say anything. */
#include "tests/device/fake_cuda.h"
#include "tests/device/gpu_under_test.h"
#include "tests/tutti_cmocka.h"

#include <sys/wait.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS = 128, LANES = 32, EACH = 8, LINE = 512 };

/* Runs an entry on one warp, over zeroed memory of so many bytes, which it fetches. */
static void run(const char *name, uint32_t which, void *out, size_t bytes)
{
    struct tti_gpu *gpu = gpu_open(0);
    struct fake_kernel kernel;
    assert_true(fake_kernel_find(name, &kernel));
    const struct {
        void *out;
        uint32_t which;
        const void *pageable;
    } args = {gpu_memory(gpu, bytes, NULL), which, out};
    const struct tti_gpu_launch launch = {.blocks = 1,
                                          .threads = LANES,
                                          .args = &args,
                                          .args_bytes = kernel.args_bytes,
                                          .own = kernel.own};
    assert_in_range(kernel.args_bytes, 1, sizeof args);
    GPU_OK(gpu->ops->launch(gpu, &launch, NULL));
    gpu_settle(gpu, NULL);
    gpu_read(gpu, out, args.out, bytes);
    gpu->ops->free(gpu, args.out);
    gpu->ops->close(gpu);
}

static void test_values(void **state)
{
    (void)state;
    uint64_t words[WORDS];
    run("ptx_values", 0, words, sizeof words);
    const uint64_t count = words[WORDS - 2];
    assert_in_range(count, 1, WORDS / 2 - 1);
    for (uint64_t i = 0; i < count; i++) {
        if (words[2 * i] != words[2 * i + 1])
            fail_msg("result %llu of instructions.ptx is %llx, not %llx", (unsigned long long)i,
                     (unsigned long long)words[2 * i], (unsigned long long)words[2 * i + 1]);
    }
}

static void test_threads(void **state)
{
    (void)state;
    uint32_t words[LANES][EACH];
    run("ptx_threads", 0, words, sizeof words);
    for (uint32_t t = 0; t < LANES; t++) {
        assert_int_equal(words[t][0], t ^ 16);
        assert_int_equal(words[t][1], t < 3 ? t : t - 3);
        assert_int_equal(words[t][2], t + 3 < LANES ? t + 3 : t);
        assert_int_equal(words[t][3], t / 8 * 8 + 2);
        assert_int_equal(words[t][4], 31); /* lanes 0 to 4 */
        assert_int_equal(words[t][5], 1);  /* any, not all */
        assert_int_equal(words[t][6], 5);
        assert_int_equal(words[t][7], t ^ 1);
    }
}

/* The process that runs it ends, and says why. */
static void faults(uint32_t which, const char *why)
{
    int ends[2];
    char said[LINE] = "";
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        uint64_t words[2];
        (void)dup2(ends[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        run("ptx_faults", which, words, sizeof words);
        _exit(EXIT_SUCCESS);
    }
    close(ends[1]);
    size_t got = 0;
    for (ssize_t n; got < sizeof said - 1; got += (size_t)n) {
        n = read(ends[0], said + got, sizeof said - 1 - got);
        if (n <= 0)
            break;
    }
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !strstr(said, "ptx_faults, line ") ||
        !strstr(said, why))
        fail_msg("fault %u: status %d, and it says \"%s\"", which, status, said);
}

static void test_faults(void **state)
{
    (void)state;
    faults(1, "not a multiple of the size");
    faults(2, "shared memory is reached as global memory");
    faults(3, "outside of shared memory");
    faults(4, "outside of shared memory");
    faults(5, "past the end");
    faults(6, "no memory that a GPU reaches");
    faults(7, "parameters are reached as global memory");
    faults(8, "does not know popc.b32");
    uint64_t words[2] = {0};
    run("ptx_faults", 0, words, sizeof words);
    assert_true(words[1] != 0); /* its own address came through shared memory */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
