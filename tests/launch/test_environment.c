/* launch/environment.c and what it stands on: every launcher's variables, partial and contradictory
 * sets, secrets, host lists, interface patterns, PMI-1 replies. Launchers that must be talked to
 * are met for real in run_under.sh. */
#include "base/clock.h"
#include "launch/boot_socket.h"
#include "launch/environment.h"
#include "launch/interface.h"
#include "launch/launchers.h"
#include "tests/tutti_cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const known[] = {"RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_RANK",
                                    "LOCAL_WORLD_SIZE",
                                    "MASTER_ADDR",
                                    "MASTER_PORT",
                                    "TORCHELASTIC_RUN_ID",
                                    "TUTTI_RUN_ID",
                                    "TUTTI_SECRET",
                                    "TUTTI_SECRET_FILE",
                                    "TUTTI_LISTEN_FD",
                                    "TUTTI_MEETING",
                                    "OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK",
                                    "OMPI_COMM_WORLD_LOCAL_SIZE",
                                    "PMIX_RANK",
                                    "PMIX_NAMESPACE",
                                    "PMI_RANK",
                                    "PMI_SIZE",
                                    "PMI_FD",
                                    "PMI_JOBID",
                                    "HYDI_CONTROL_FD",
                                    "MPI_LOCALRANKID",
                                    "MPI_LOCALNRANKS",
                                    "SLURM_PROCID",
                                    "SLURM_NTASKS",
                                    "SLURM_STEP_NUM_TASKS",
                                    "SLURM_LOCALID",
                                    "SLURM_STEP_ID",
                                    "SLURM_JOB_ID",
                                    "SLURM_STEP_NODELIST",
                                    "SLURM_JOB_NODELIST",
                                    "SLURM_NNODES",
                                    "SLURM_STEP_NUM_NODES",
                                    "SLURM_NODEID",
                                    "SLURM_TASKS_PER_NODE",
                                    "SLURM_STEP_TASKS_PER_NODE",
                                    "TUTTI_LIBPMIX"};

/* Forget all launchers, then set "NAME=value NAME=value". */
static void set(const char *assignments)
{
    char text[1024];
    char *rest = NULL;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        unsetenv(known[i]);
    snprintf(text, sizeof text, "%s", assignments);
    for (char *one = strtok_r(text, " ", &rest); one; one = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(one, '=');
        *equals = '\0';
        setenv(one, equals + 1, 1);
    }
}

#define TORCH "LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=10.0.0.9 MASTER_PORT=29500 "
#define SLURM                                                                        \
    "SLURM_STEP_ID=3 SLURM_JOB_ID=77 SLURM_PROCID=5 SLURM_NTASKS=6 SLURM_LOCALID=1 " \
    "SLURM_NODEID=2 SLURM_TASKS_PER_NODE=2(x3) SLURM_NNODES=3 SLURM_STEP_NODELIST=n[08-10] "

static const struct {
    const char *set;
    const char *launcher;
    int rank, size, local_rank, local_size;
    const char *host; /* NULL: not looked at */
    int port, ports;
} good[] = {
    {"", "none", 0, 1, 0, 1, NULL, 0, 1},
    /* Variables that a script exports do not make a launcher. */
    {"MASTER_ADDR=h MASTER_PORT=1", "none", 0, 1, 0, 1, NULL, 0, 1},
    {"RANK=3 WORLD_SIZE=4 TUTTI_RUN_ID=a " TORCH, "tuttirun", 3, 4, 1, 2, "10.0.0.9", 29500, 1},
    {"RANK=3 WORLD_SIZE=4 " TORCH, "tuttirun", 3, 4, 1, 2, "10.0.0.9", 29500, 1},
    {"RANK=3 WORLD_SIZE=4 TORCHELASTIC_RUN_ID=x " TORCH, "torchrun", 3, 4, 1, 2, "10.0.0.9", 29501,
     16},
    {"RANK=0 WORLD_SIZE=1", "tuttirun", 0, 1, -1, -1, NULL, 0, 1},
    {SLURM, "slurm", 5, 6, 1, 2, "n08", -1, 16},
    {SLURM "SLURM_STEP_NUM_TASKS=8 SLURM_STEP_NUM_NODES=1", "slurm", 5, 8, 1, 2, "127.0.0.1", -1,
     16},
    /* An allocation without a step: a plain program. */
    {"SLURM_JOB_ID=77 SLURM_PROCID=0 SLURM_NTASKS=6", "none", 0, 1, 0, 1, NULL, 0, 1},
    {"SLURM_STEP_ID=4294967290 SLURM_PROCID=0 SLURM_NTASKS=6", "none", 0, 1, 0, 1, NULL, 0, 1},
    /* Nested: torchrun or tuttirun under srun, mpirun inside an allocation. */
    {"RANK=3 WORLD_SIZE=12 TORCHELASTIC_RUN_ID=x " TORCH SLURM, "torchrun", 3, 12, 1, 2, NULL,
     29501, 16},
    {"RANK=3 WORLD_SIZE=12 TUTTI_RUN_ID=x " TORCH SLURM, "tuttirun", 3, 12, 1, 2, NULL, 29500, 1},
    {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 " SLURM, "openmpi",
     0, 1, 0, -1, NULL, 0, 1},
    {"PMI_RANK=0 PMI_SIZE=1 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1 " SLURM, "mpich", 0, 1, 0, 1, NULL,
     0, 1},
    /* Slurm's own PMI-2, and Slurm's own PMIx. */
    {"PMI_RANK=5 PMI_SIZE=6 PMI_JOBID=77.3 " SLURM, "slurm", 5, 6, 1, 2, "n08", -1, 16},
    {"PMIX_RANK=5 PMIX_NAMESPACE=slurm.pmix.77.3 " SLURM, "slurm", 5, 6, 1, 2, "n08", -1, 16},
    /* Consistent duplicates. */
    {"RANK=5 WORLD_SIZE=6 " SLURM, "slurm", 5, 6, 1, 2, "n08", -1, 16},
    {"RANK=5 WORLD_SIZE=6 MASTER_ADDR=m MASTER_PORT=99 " SLURM, "tuttirun", 5, 6, -1, -1, "m", 99,
     1},
    /* Open MPI without libpmix, all ranks here. */
    {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 "
     "OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=55 TUTTI_LIBPMIX=/nowhere/libpmix.so",
     "openmpi", 1, 2, 1, 2, "127.0.0.1", -1, 16},
};

static void places(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct tti_place place;
        set(good[i].set);
        enum tutti_result result = tti_place_find(tti_deadline_in(60), &place);
        if (result != TUTTI_OK || strcmp(place.launcher, good[i].launcher) != 0)
            print_error("with %s: %s\n", good[i].set, tutti_last_error());
        assert_int_equal(result, TUTTI_OK);
        assert_string_equal(place.launcher, good[i].launcher);
        assert_int_equal(place.rank, good[i].rank);
        assert_int_equal(place.size, good[i].size);
        assert_int_equal(place.local_rank, good[i].local_rank);
        assert_int_equal(place.local_size, good[i].local_size);
        if (good[i].host)
            assert_string_equal(place.meeting.host, good[i].host);
        if (good[i].port >= 0)
            assert_int_equal(place.meeting.port, good[i].port);
        else
            assert_in_range(place.meeting.port, 20000, 32767 - 15);
        assert_int_equal(place.meeting.ports, good[i].ports);
        assert_int_equal(tti_place_is_launched(), strcmp(good[i].launcher, "none") != 0);
    }
}

static const struct {
    const char *set;
    const char *part, *other; /* both in the text */
} bad[] = {
    {"RANK=1", "RANK is \"1\"", "WORLD_SIZE is not set"},
    {"WORLD_SIZE=2", "WORLD_SIZE is \"2\"", "RANK is not set"},
    {"RANK=x WORLD_SIZE=2", "RANK is \"x\"", "integer"},
    {"RANK=0 WORLD_SIZE=0", "WORLD_SIZE is \"0\"", "integer"},
    {"RANK=2 WORLD_SIZE=2", "RANK is 2", "WORLD_SIZE is 2"},
    {"RANK=-1 WORLD_SIZE=2", "RANK is \"-1\"", "integer"},
    {"RANK=0 WORLD_SIZE=2", "MASTER_ADDR is not set", "where to meet"},
    {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h", "MASTER_PORT is not set", "where to meet"},
    {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=http", "MASTER_PORT is \"http\"", "integer"},
    {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2",
     "LOCAL_RANK is 2", "LOCAL_WORLD_SIZE is 2"},
    {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=3",
     "LOCAL_WORLD_SIZE is 3", "2 ranks"},
    {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1 TUTTI_SECRET=abc", "TUTTI_SECRET",
     "64 hexadecimal"},
    {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1 TUTTI_SECRET_FILE=/nowhere/s",
     "TUTTI_SECRET_FILE", "/nowhere/s"},
    {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1 TUTTI_SECRET_FILE=/dev/null",
     "TUTTI_SECRET_FILE /dev/null", "is no regular file"},
    {"TORCHELASTIC_RUN_ID=x", "TORCHELASTIC_RUN_ID", "RANK and WORLD_SIZE"},
    {"RANK=2 WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4", "RANK is 2",
     "OMPI_COMM_WORLD_RANK is 1"},
    {"RANK=1 WORLD_SIZE=8 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4", "WORLD_SIZE is 8",
     "OMPI_COMM_WORLD_SIZE is 4"},
    {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 PMIX_RANK=2", "OMPI_COMM_WORLD_RANK is 1",
     "PMIX_RANK is 2"},
    {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_RANK is \"1\"", "OMPI_COMM_WORLD_SIZE is not set"},
    {"PMI_RANK=1 PMI_SIZE=2 RANK=0 WORLD_SIZE=2", "RANK is 0", "PMI_RANK is 1"},
    {"PMI_SIZE=2", "PMI_SIZE is \"2\"", "PMI_RANK is not set"},
    {"PMI_RANK=1 PMI_SIZE=2", "PMI_FD is not", "PMI_RANK"},
    {"PMIX_RANK=1", "PMIX_RANK is set", "PMIX_NAMESPACE is not"},
    {SLURM "RANK=4", "RANK is 4", "SLURM_PROCID is 5"},
    {SLURM "SLURM_STEP_NUM_TASKS=5", "SLURM_PROCID is 5", "SLURM_STEP_NUM_TASKS is 5"},
    {SLURM "SLURM_STEP_NODELIST=n[", "SLURM_STEP_NODELIST", "n["},
    {"SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=2", "SLURM_JOB_NODELIST", "where to meet"},
    {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2 "
     "PMIX_NAMESPACE=55 TUTTI_LIBPMIX=/nowhere/libpmix.so",
     "2 of 4 ranks are on this host", "libpmix"},
};

static void refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct tti_place place = {.rank = 42};
        set(bad[i].set);
        enum tutti_result result = tti_place_find(tti_deadline_in(60), &place);
        const char *text = tutti_last_error();
        if (result == TUTTI_OK || !strstr(text, bad[i].part) || !strstr(text, bad[i].other))
            print_error("with %s: %d %s\n", bad[i].set, (int)result, text);
        assert_true(result == TUTTI_ERR_USAGE || result == TUTTI_ERR_UNSUPPORTED ||
                    result == TUTTI_ERR_SYSTEM);
        assert_non_null(strstr(text, bad[i].part));
        assert_non_null(strstr(text, bad[i].other));
        assert_int_equal(place.rank, 42);
        assert_true(tti_place_is_launched());
    }
}

static void secrets(void **state)
{
    (void)state;
    static const char hex[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    static const char job[] = "RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1 ";
    char text[300];
    char path[] = "/tmp/tutti_secret_XXXXXX";
    struct tti_place one;
    struct tti_place other;
    /* Out of the job's facts: equal for its ranks, different for another job. */
    set(job);
    assert_int_equal(tti_place_find(0, &one), TUTTI_OK);
    set("RANK=1 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1");
    assert_int_equal(tti_place_find(0, &other), TUTTI_OK);
    assert_memory_equal(one.meeting.secret, other.meeting.secret, TTI_SECRET_BYTES);
    set("RANK=1 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=2");
    assert_int_equal(tti_place_find(0, &other), TUTTI_OK);
    assert_memory_not_equal(one.meeting.secret, other.meeting.secret, TTI_SECRET_BYTES);
    /* Given, and given in a file, which must be ours alone. */
    snprintf(text, sizeof text, "%sTUTTI_SECRET=%s", job, hex);
    set(text);
    assert_int_equal(tti_place_find(0, &one), TUTTI_OK);
    assert_int_equal(one.meeting.secret[1], 0x11);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, hex, sizeof hex - 1), sizeof hex - 1);
    assert_int_equal(write(fd, "\n", 1), 1);
    snprintf(text, sizeof text, "%sTUTTI_SECRET_FILE=%s", job, path);
    set(text);
    assert_int_equal(tti_place_find(0, &other), TUTTI_OK);
    assert_memory_equal(one.meeting.secret, other.meeting.secret, TTI_SECRET_BYTES);
    assert_int_equal(fchmod(fd, 0640), 0);
    assert_int_equal(tti_place_find(0, &other), TUTTI_ERR_USAGE);
    assert_non_null(strstr(tutti_last_error(), "chmod 600"));
    close(fd);
    unlink(path);
}

/* tuttirun's socket: taken once, by rank 0, and only if it is the right one. */
static void listening_socket(void **state)
{
    (void)state;
    char text[300];
    int fd = -1;
    uint16_t port = 0;
    struct tti_place place;
    assert_int_equal(tti_socket_listen("127.0.0.1", 0, 1, &fd, &port), TUTTI_OK);
    snprintf(text, sizeof text,
             "RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d TUTTI_LISTEN_FD=0", port);
    set(text);
    assert_int_equal(tti_place_find(0, &place), TUTTI_OK);
    assert_int_equal(place.meeting.listen_fd, -1);
    snprintf(text, sizeof text,
             "RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d TUTTI_LISTEN_FD=%d", port,
             fd);
    set(text);
    assert_int_equal(tti_place_find(0, &place), TUTTI_OK);
    assert_int_equal(place.meeting.listen_fd, fd);
    assert_int_equal(tti_place_find(0, &place), TUTTI_OK);
    assert_int_equal(place.meeting.listen_fd, -1);
    close(fd);
}

/* tuttirun on one host: communicators meet beside MASTER_PORT, unless that was set anew since. */
static void meeting_beside(void **state)
{
    (void)state;
    struct tti_place place;
    set("RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=4000 TUTTI_MEETING=4000:4001");
    assert_int_equal(tti_place_find(0, &place), TUTTI_OK);
    assert_int_equal(place.meeting.port, 4001);
    assert_int_equal(place.meeting.ports, 1);
    set("RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=5000 TUTTI_MEETING=4000:4001");
    assert_int_equal(tti_place_find(0, &place), TUTTI_OK);
    assert_int_equal(place.meeting.port, 5000);
    static const char *const wrong[] = {"4000", "4000:", "4000:0", "4000:65536", "4000:4001x", "x"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[200];
        snprintf(text, sizeof text,
                 "RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=4000 TUTTI_MEETING=%s",
                 wrong[i]);
        set(text);
        assert_int_equal(tti_place_find(0, &place), TUTTI_ERR_USAGE);
        assert_non_null(strstr(tutti_last_error(), "TUTTI_MEETING"));
    }
}

static void host_lists(void **state)
{
    (void)state;
    static const char *const lists[][2] = {
        {"node1", "node1"},       {"node1,node2", "node1"},     {"n[3-9]", "n3"},
        {"n[08-11,20],x", "n08"}, {"a[1,2]b[05-7]c", "a1b05c"}, {"gpu-1.x_y", "gpu-1.x_y"}};
    static const char *const wrong[] = {"",     ",",   "[",       "n[",  "n[]",
                                        "n[x]", "n[1", "n[1-2x]", "a b", "n]"};
    char host[160];
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        assert_int_equal(tti_slurm_first_host(lists[i][0], host, sizeof host), TUTTI_OK);
        assert_string_equal(host, lists[i][1]);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(tti_slurm_first_host(wrong[i], host, sizeof host), TUTTI_ERR_ARGUMENT);
    char tiny[4];
    assert_int_equal(tti_slurm_first_host("node1", tiny, sizeof tiny), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tti_slurm_first_host("n[1000]", tiny, sizeof tiny), TUTTI_ERR_ARGUMENT);
}

static void task_lists(void **state)
{
    (void)state;
    int tasks = 0;
    static const int expected[] = {2, 2, 2, 1, 16};
    for (int node = 0; node < 5; node++) {
        assert_int_equal(tti_slurm_tasks_on("2(x3),1,16", node, &tasks), TUTTI_OK);
        assert_int_equal(tasks, expected[node]);
    }
    static const char *const wrong[] = {"", "x", "2(x3", "2(3)", "2,,1", "-1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(tti_slurm_tasks_on(wrong[i], 3, &tasks), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tti_slurm_tasks_on("2(x3),1,16", 5, &tasks), TUTTI_ERR_ARGUMENT);
}

static void interfaces(void **state)
{
    (void)state;
    static const struct {
        const char *list, *name;
        bool passes;
    } cases[] = {{NULL, "eth0", true},
                 {"eth", "eth0", true},
                 {"=eth", "eth0", false},
                 {"=eth0", "eth0", true},
                 {"eth*", "ib0", false},
                 {"eth0, ib*", "ib0", true},
                 {"^docker", "docker0", false},
                 {"^docker", "eth0", true},
                 {"!docker,^virbr", "virbr0", false},
                 {"^eth1,eth", "eth1", false},
                 {"^eth1,eth", "eth0", true},
                 {"^eth1,eth", "lo", false}};
    char address[64];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(tti_interface_matches(cases[i].list, cases[i].name), cases[i].passes);
    setenv("TUTTI_IFNAME", "=lo", 1);
    assert_int_equal(tti_interface_best(address, sizeof address), TUTTI_OK);
    assert_string_equal(address, "127.0.0.1");
    setenv("TUTTI_IFNAME", "nosuchname", 1);
    assert_int_equal(tti_interface_best(address, sizeof address), TUTTI_ERR_SYSTEM);
    assert_non_null(strstr(tutti_last_error(), "there are: "));
    assert_non_null(strstr(tutti_last_error(), "lo 127.0.0.1"));
    unsetenv("TUTTI_IFNAME");
    assert_int_equal(tti_interface_best(address, sizeof address), TUTTI_OK);
}

static void pmi1_replies(void **state)
{
    (void)state;
    static const char line[] = "cmd=get_result rc=0 msg=success value=a:b=c\n";
    char value[32];
    assert_true(tti_pmi1_value(line, sizeof line - 1, "cmd", value, sizeof value));
    assert_string_equal(value, "get_result");
    assert_true(tti_pmi1_value(line, sizeof line - 1, "value", value, sizeof value));
    assert_string_equal(value, "a:b=c");
    assert_false(tti_pmi1_value(line, sizeof line - 1, "val", value, sizeof value));
    assert_false(tti_pmi1_value(line, sizeof line - 1, "value", value, 5));
    assert_false(tti_pmi1_value("", 0, "cmd", value, sizeof value));
    assert_false(tti_pmi1_value("cmd", 3, "cmd", value, sizeof value));
    assert_true(tti_pmi1_value("cmd=", 4, "cmd", value, sizeof value));
    assert_string_equal(value, "");
}

/* A process manager that does not say how long its values may be. */
static void pmi1_without_lengths(void **state)
{
    (void)state;
    static const char replies[] = "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n"
                                  "cmd=maxes kvsname_max=256 keylen_max=64\n";
    char text[64];
    int ends[2];
    struct tti_place place;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_int_equal(write(ends[1], replies, sizeof replies - 1), sizeof replies - 1);
    snprintf(text, sizeof text, "PMI_RANK=0 PMI_SIZE=2 PMI_FD=%d", ends[0]);
    set(text);
    assert_int_equal(tti_place_find(tti_deadline_in(60), &place), TUTTI_ERR_UNSUPPORTED);
    assert_non_null(strstr(tutti_last_error(), "(vallen_max \"\")"));
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places),         cmocka_unit_test(refusals),
        cmocka_unit_test(secrets),        cmocka_unit_test(listening_socket),
        cmocka_unit_test(meeting_beside), cmocka_unit_test(host_lists),
        cmocka_unit_test(task_lists),     cmocka_unit_test(interfaces),
        cmocka_unit_test(pmi1_replies),   cmocka_unit_test(pmi1_without_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
