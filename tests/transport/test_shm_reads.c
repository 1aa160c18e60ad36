/* transport/shm/reads.c: a setting, a seccomp filter and Yama each keep processes from reading one
 * another's memory, and the transport tells beforehand what the try of a pair then finds. */
#include "tests/forbid.h"
#include "tests/made_file.h"
#include "tests/transport/shm_pair.h"
#include "tests/tutti_cmocka.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What rank 0's transport tells, and whether the pair's own try agrees. */
static bool reads_as_told(bool *told)
{
    struct shm_pair pair;
    shm_pair_open(&pair);
    const struct tutti_transport_ops *ops = shm_pair_ops();
    *told = ops->reads(pair.transport[0]) != 0;
    const bool same = ops->reads(pair.transport[0]) == ops->reads(pair.transport[1]);
    shm_pair_connect(&pair);
    const struct shm_endpoint *end = pair.endpoint[0];
    const bool found = tti_load_acquire(&end->ours->reads_memory) == 1;
    shm_pair_close(&pair);
    /* The pair is of one process, which Yama does not keep from itself. */
    return same && (found == *told || !tti_shm_yama_lets("/proc"));
}

static void settings_decide(void **state)
{
    bool told = false;
    (void)state;
    setenv("TUTTI_SHM_CMA", "0", 1);
    assert_true(reads_as_told(&told));
    assert_false(told);
    setenv("TUTTI_SHM_CMA", "2", 1);
    assert_true(reads_as_told(&told));
    assert_int_equal(told, tti_shm_yama_lets("/proc") && tti_shm_call_passes());
}

/* In a child, since a filter is for good. */
static void filters_decide(void **state)
{
    (void)state;
    setenv("TUTTI_SHM_CMA", "2", 1);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bool told = true;
        if (!forbid_call(SYS_process_vm_readv))
            _exit(2);
        _exit(reads_as_told(&told) && !told ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void yama_decides(void **state)
{
    static const char *const able = "Name:\tx\nCapEff:\t0000000000080000\nCapBnd:\t0\n";
    static const char *const unable = "Name:\tx\nCapEff:\t0000000000000000\nCapBnd:\tffffff\n";
    const char *root = *state;
    assert_true(tti_shm_yama_lets(root)); /* a kernel without it */
    for (int scope = 0; scope <= 3; scope++) {
        const char text[] = {(char)('0' + scope), '\n', 0};
        made_file(root, "sys/kernel/yama/ptrace_scope", text);
        made_file(root, "self/status", unable);
        assert_int_equal(tti_shm_yama_lets(root), scope == 0);
        made_file(root, "self/status", able);
        assert_int_equal(tti_shm_yama_lets(root), scope < 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_decide),
        cmocka_unit_test(filters_decide),
        cmocka_unit_test_setup_teardown(yama_decides, made_folder, made_folder_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
