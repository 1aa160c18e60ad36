/* Operations on device memory beyond their results (test_operations --device has those): equality
 * with the plans that they name, groups, refusals, ranks that do not come or die, and what is held
 * (capture: test_gpu_capture.c). On the simulated device, by each path. */
#include "base/clock.h"
#include "device/sim/sim_block.h"
#include "tests/integration/device_calls.h"
#include "tests/integration/host_calls.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* What streams are let through to, after a failure, races with the peers on purpose. */
#if defined(__SANITIZE_THREAD__)
enum { SANITIZED_THREADS = 1 };
#else
enum { SANITIZED_THREADS = 0 };
#endif

enum { COUNT = 20011, FEW = 100 };

/* ---- equal to the plan that a path names ---- */

static const struct {
    enum tutti_collective collective;
    size_t count;
} equal_cases[] = {{TUTTI_ALL_REDUCE, FEW},     {TUTTI_ALL_REDUCE, COUNT}, {TUTTI_REDUCE, COUNT},
                   {TUTTI_REDUCE_SCATTER, FEW}, {TUTTI_ALL_GATHER, FEW},   {TUTTI_ALL_TO_ALL, FEW}};

static int equal_case(const struct test_case *c, tutti_comm *comm)
{
    const size_t n = (size_t)tutti_comm_size(comm), bytes = n * c->count * tutti_type_size(c->type);
    char *in = calloc(1, bytes), *host = calloc(1, bytes), *device = calloc(1, bytes);
    test_fill(in, c->type, n * c->count, (uint32_t)tutti_comm_rank(comm) * 7919u + 1);
    const struct tti_operation o = test_operation(c, in, host);
    CHECK_OK(test_call(&o, comm));
    CHECK_OK(device_call(c, (struct device_shadow){in, in, bytes},
                         (struct device_shadow){device, device, bytes}, comm));
    CHECK(memcmp(host, device, bytes) == 0);
    free(in);
    free(host);
    free(device);
    return 0;
}

static int equal(tutti_comm *comm, void *argument)
{
    (void)argument;
    CHECK(device_begin(tutti_comm_rank(comm)) == 0);
    for (size_t i = 0; i < sizeof equal_cases / sizeof *equal_cases; i++) {
        struct test_case c = {.collective = equal_cases[i].collective,
                              .count = equal_cases[i].count,
                              .type = TUTTI_FLOAT32,
                              .op = TUTTI_SUM};
        CHECK(equal_case(&c, comm) == 0);
        c.type = TUTTI_BFLOAT16;
        CHECK(equal_case(&c, comm) == 0);
    }
    return device_end(comm);
}

/* ---- a pre-multiplied sum: every type, a factor for each rank ---- */

static int premultiplied(tutti_comm *comm, void *argument)
{
    static const enum tutti_collective kinds[] = {TUTTI_ALL_REDUCE, TUTTI_REDUCE,
                                                  TUTTI_REDUCE_SCATTER};
    (void)argument;
    CHECK(device_begin(tutti_comm_rank(comm)) == 0);
    for (int t = 0; t < TUTTI_TYPE_COUNT; t++) {
        unsigned char factor[8];
        struct test_case c = {.type = (enum tutti_type)t, .count = FEW, .root = 1};
        test_fill(factor, c.type, 1, (uint32_t)(tutti_comm_rank(comm) * 31 + t));
        CHECK_OK(tutti_premul_sum_create(comm, c.type, factor, &c.op));
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            c.collective = kinds[k];
            CHECK(equal_case(&c, comm) == 0);
        }
        CHECK_OK(tutti_op_destroy(comm, c.op));
    }
    return device_end(comm);
}

/* ---- groups ---- */

static int ring(tutti_comm *comm, void *argument)
{
    (void)argument;
    const int rank = tutti_comm_rank(comm), n = tutti_comm_size(comm);
    CHECK(device_begin(rank) == 0);
    tutti_stream stream = device_stream();
    int32_t *out = device_memory(COUNT * 4), *in = device_memory(COUNT * 4);
    int32_t *host = calloc(COUNT, 4);
    tutti_request *request = NULL;
    CHECK(out && in && host);
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < COUNT; i++)
            host[i] = i * 3 + rank + turn;
        CHECK(device_copy(out, host, COUNT * 4) == 0);
        CHECK_OK(tutti_group_start());
        CHECK_OK(tutti_send_async(out, COUNT, TUTTI_INT32, (rank + 1) % n, comm, stream, NULL));
        CHECK_OK(
            tutti_recv_async(in, COUNT, TUTTI_INT32, (rank + n - 1) % n, comm, stream, &request));
        CHECK_OK(tutti_group_end());
        CHECK_OK(tutti_wait(request));
        CHECK(device_copy(host, in, COUNT * 4) == 0 && device_settle() == 0);
        for (int i = 0; i < COUNT; i++)
            CHECK(host[i] == i * 3 + (rank + n - 1) % n + turn);
        /* Host memory on the same communicator, right after work on the stream. */
        int32_t one = 1, sum = 0;
        CHECK_OK(tutti_all_reduce_async(in, in, COUNT, TUTTI_INT32, TUTTI_MAX, comm, stream, NULL));
        CHECK_OK(tutti_all_reduce(&one, &sum, 1, TUTTI_INT32, TUTTI_SUM, comm));
        CHECK(sum == n);
    }
    CHECK(device_settle() == 0);
    device_free(out);
    device_free(in);
    free(host);
    return device_end(comm);
}

/* ---- refusals, and what is held ---- */

static int refusals(tutti_comm *comm, void *argument)
{
    (void)argument;
    int32_t host[FEW] = {0};
    CHECK(device_begin(tutti_comm_rank(comm)) == 0);
    struct tutti_memory before, after;
    CHECK_OK(tutti_comm_memory(comm, &before));
    CHECK(before.device == 0 && before.pinned == 0); /* lazy */
    int32_t *in = device_memory(FEW * 4);
    CHECK(tutti_all_reduce_async(in, host, FEW, TUTTI_INT32, TUTTI_SUM, comm, device_stream(),
                                 NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "pageable"));
    CHECK(tutti_all_reduce_async(host, host, FEW, TUTTI_INT32, TUTTI_SUM, comm, device_stream(),
                                 NULL) == TUTTI_ERR_ARGUMENT);
    CHECK_OK(
        tutti_all_reduce_async(in, in, FEW, TUTTI_INT32, TUTTI_SUM, comm, device_stream(), NULL));
    CHECK(tutti_all_reduce(in, in, FEW, TUTTI_INT32, TUTTI_SUM, comm) == TUTTI_ERR_USAGE);
    CHECK(strstr(tutti_last_error(), "default stream"));
    CHECK_OK(tutti_comm_memory(comm, &after));
    CHECK(after.device > 0 || after.pinned > 0);
    CHECK(device_settle() == 0);
    device_free(in);
    return device_end(comm);
}

/* ---- ranks that do not come, or die ---- */

/* In memory of all processes. Not 0: an operation that all ranks called was not through in a time
 * that is short for the sake of one that a rank does not call. On a machine that is busy this says
 * nothing, and it is tried again with more patience (run). */
static _Atomic int *slow;

static enum tutti_result in_time(enum tutti_result result)
{
    if (result == TUTTI_ERR_TIMEOUT)
        atomic_store(slow, 1);
    return result;
}

/* ... nor had the operation that one does not call, where another was missed at the deadline too.
 */
static bool names_alone(const char *name, enum tutti_result result)
{
    const bool named = strstr(tutti_last_error(), name) != NULL;
    if (!named && result == TUTTI_ERR_TIMEOUT)
        atomic_store(slow, 1);
    return named;
}

static int leave(void *memory)
{
    device_settle();
    device_free(memory);
    device_gpu()->ops->stream_destroy(device_gpu(), device_stream());
    device_gpu()->ops->close(device_gpu());
    return 0;
}

struct absence {
    enum tutti_collective collective;
    bool dies;
};

static int absent(tutti_comm *comm, void *argument)
{
    const struct absence *a = argument;
    const int rank = tutti_comm_rank(comm), gone = tutti_comm_size(comm) - 1;
    char *memory;
    tutti_request *request = NULL;
    const struct test_case c = {
        .collective = a->collective, .type = TUTTI_INT32, .op = TUTTI_SUM, .count = COUNT};
    CHECK(device_begin(rank) == 0);
    memory = device_memory((size_t)COUNT * 4 * (size_t)tutti_comm_size(comm) * 2);
    CHECK(memory);
    char *out = memory + (size_t)COUNT * 4 * (size_t)tutti_comm_size(comm);
    /* Who dies next may be through with this one earlier than the others. */
    const enum tutti_result begun = in_time(device_start(&c, memory, out, comm, &request));
    const enum tutti_result first = begun == TUTTI_OK ? in_time(tutti_wait(request)) : begun;
    if (first != TUTTI_OK && !(a->dies && first == TUTTI_ERR_PEER)) {
        fprintf(stderr, "rank %d, the first operation: %s\n", rank, tutti_last_error());
        (void)leave(memory);
        return 1;
    }
    if (rank == gone && a->dies)
        _exit(0);
    if (rank == gone) { /* late: by then the others have given up */
        while (tutti_comm_error(comm) == TUTTI_OK)
            usleep(1000);
    } else {
        char name[32];
        snprintf(name, sizeof name, "rank %d (", gone);
        const enum tutti_result started = device_start(&c, memory, out, comm, &request);
        const enum tutti_result result = started == TUTTI_OK ? tutti_wait(request) : started;
        CHECK(result == (a->dies ? TUTTI_ERR_PEER : TUTTI_ERR_TIMEOUT));
        CHECK(names_alone(name, result));
        CHECK(device_start(&c, memory, out, comm, &request) == result);
    }
    return leave(memory);
}

/* ---- a stream that comes late: its rank's call was made in time ---- */

static _Atomic int late_gate, late_turns; /* ranks are threads */

static void late_hold(void *unused)
{
    (void)unused;
    while (!atomic_load(&late_gate))
        usleep(1000);
}

static void late_turn(int turns) /* all ranks that take part come here, and go on together */
{
    atomic_fetch_add(&late_turns, 1);
    while (atomic_load(&late_turns) < turns && !atomic_load(slow))
        usleep(1000);
}

/* The others give up, get their buffers back, and use them; what was held then begins. */
static int late(tutti_comm *comm, void *argument)
{
    (void)argument;
    const int rank = tutti_comm_rank(comm), n = tutti_comm_size(comm);
    static char filled[COUNT * 4];
    const struct test_case c = {
        .collective = TUTTI_ALL_REDUCE, .type = TUTTI_INT32, .op = TUTTI_SUM, .count = COUNT};
    tutti_request *request = NULL;
    CHECK(device_begin(rank) == 0);
    char *in = device_memory(sizeof filled), *out = device_memory(sizeof filled);
    char *found = calloc(1, sizeof filled);
    CHECK(in && out && found);
    if (in_time(device_start(&c, in, out, comm, &request)) == TUTTI_OK)
        (void)in_time(tutti_wait(request));
    late_turn(n);
    if (atomic_load(slow)) {
        device_free(out);
        free(found);
        (void)leave(in);
        return 1;
    }
    if (rank == n - 1)
        CHECK_OK(device_gpu()->ops->host_call(device_gpu(), late_hold, NULL, device_stream()));
    CHECK_OK(device_start(&c, in, out, comm, &request));
    if (rank != n - 1) {
        CHECK(tutti_wait(request) == TUTTI_ERR_TIMEOUT);
        CHECK(names_alone("rank 2 (", TUTTI_ERR_TIMEOUT));
        CHECK_OK(device_gpu()->ops->fill(device_gpu(), in, 0x5a, sizeof filled, device_stream()));
        CHECK_OK(device_gpu()->ops->fill(device_gpu(), out, 0x5a, sizeof filled, device_stream()));
        CHECK(device_settle() == 0);
    }
    late_turn(2 * n);
    atomic_store(&late_gate, 1);
    if (rank == n - 1)
        CHECK(tutti_wait(request) == TUTTI_ERR_TIMEOUT);
    late_turn(3 * n);
    if (rank != n - 1) {
        CHECK(device_copy(found, out, sizeof filled) == 0 && device_settle() == 0);
        for (size_t i = 0; i < sizeof filled; i++)
            CHECK(found[i] == 0x5a);
    }
    CHECK(device_settle() == 0);
    device_free(out);
    free(found);
    return leave(in);
}

/* ---- a device that fails under the caller's own work ---- */

/* One thread waits for its block where no other comes. */
static void break_kernel(const void *args)
{
    (void)args;
    if (tti_sim_thread_index.x == 0)
        tti_sim_warp_barrier(3);
    else if (tti_sim_thread_index.x == 1)
        (void)tti_sim_barrier(TTI_SIM_COUNT, 1);
}

/* The others hear of it at once, and whose it is, instead of waiting for the deadline. */
static int breaks(tutti_comm *comm, void *argument)
{
    (void)argument;
    const int rank = tutti_comm_rank(comm), broken = tutti_comm_size(comm) - 1, none = 0;
    const struct test_case c = {
        .collective = TUTTI_ALL_REDUCE, .type = TUTTI_INT32, .op = TUTTI_SUM, .count = COUNT};
    const struct tti_gpu_own own = {.symbol = "breaks", .simulated = break_kernel};
    const struct tti_gpu_launch launch = {
        .blocks = 1, .threads = 32, .args = &none, .args_bytes = sizeof none, .own = &own};
    tutti_request *request = NULL;
    CHECK(device_begin(rank) == 0);
    char *memory = device_memory((size_t)COUNT * 8);
    CHECK(memory);
    CHECK_OK(device_start(&c, memory, memory + (size_t)COUNT * 4, comm, &request));
    CHECK_OK(tutti_wait(request));
    CHECK_OK(tutti_barrier(comm)); /* nobody is told of it in place of the first result */
    if (rank == broken)
        CHECK_OK(device_gpu()->ops->launch(device_gpu(), &launch, device_stream()));
    enum tutti_result result = device_start(&c, memory, memory + (size_t)COUNT * 4, comm, &request);
    if (result == TUTTI_OK)
        result = tutti_wait(request);
    CHECK(result != TUTTI_OK && result != TUTTI_ERR_TIMEOUT);
    while (tutti_comm_error(comm) == TUTTI_OK)
        usleep(1000);
    CHECK(rank == broken || strstr(tutti_last_error(), "device 0 of rank 2 ("));
    return leave(memory);
}

/* ---- a replay that one rank does not make ---- */

static int replay(tutti_comm *comm, void *argument)
{
    (void)argument;
    const int rank = tutti_comm_rank(comm), n = tutti_comm_size(comm), gone = n - 1;
    const size_t bytes = (size_t)n * COUNT * 4;
    CHECK(device_begin(rank) == 0);
    struct tti_gpu *gpu = device_gpu();
    struct tti_gpu_graph *graph = NULL;
    char *in = device_memory(bytes), *out = device_memory(bytes), name[32];
    CHECK(in && out);
    for (int turn = 0; turn < 2; turn++) { /* as usual, then captured */
        if (turn == 1)
            CHECK_OK(gpu->ops->capture_begin(gpu, device_stream()));
        CHECK_OK(tutti_all_to_all_async(in, out, COUNT, TUTTI_INT32, comm, device_stream(), NULL));
        CHECK_OK(tutti_all_reduce_async(in, out, COUNT, TUTTI_INT32, TUTTI_SUM, comm,
                                        device_stream(), NULL));
    }
    CHECK_OK(gpu->ops->capture_end(gpu, device_stream(), &graph));
    CHECK_OK(gpu->ops->graph_launch(graph, device_stream()));
    CHECK(device_settle() == 0);
    CHECK_OK(tutti_barrier(comm));
    snprintf(name, sizeof name, "rank %d (", gone);
    if (rank != gone) {
        CHECK_OK(gpu->ops->graph_launch(graph, device_stream()));
        CHECK(device_settle() == 0);
        CHECK(tutti_all_reduce_async(in, out, FEW, TUTTI_INT32, TUTTI_SUM, comm, device_stream(),
                                     NULL) == TUTTI_ERR_TIMEOUT);
        CHECK(names_alone(name, TUTTI_ERR_TIMEOUT));
    }
    while (tutti_comm_error(comm) == TUTTI_OK)
        usleep(1000);
    gpu->ops->graph_destroy(graph);
    device_free(in);
    device_free(out);
    gpu->ops->stream_destroy(gpu, device_stream());
    gpu->ops->close(gpu);
    return 0;
}

/* ---- all of it ---- */

static int run(const char *name, const char *path, struct tti_ranks how,
               tti_rank_function *function, void *argument, int expected)
{
    enum { PATIENCE_MOST = 25 };
    setenv("TUTTI_DEVICE_PATH", path, 1);
    int failed;
    do {
        atomic_store(slow, 0);
        atomic_store(&late_turns, 0);
        failed = tti_ranks_run(&how, function, argument);
        how.options.timeout_s *= 2;
    } while (atomic_load(slow) && how.options.timeout_s < PATIENCE_MOST);
    printf("%s, %s, %d %s: %s\n", name, path, how.ranks, how.processes ? "processes" : "threads",
           failed == expected ? "ok" : "FAILED");
    return failed != expected;
}

/* What waits for a timeout waits beside the others: each in a process of its own, made while this
 * one has no other thread. A device that is real divides its time among them: few at a time, and
 * with more patience. */
enum { MOST_ASIDE = 16, SIMULATED_S = 6, REAL_S = 12, REAL_ASIDE = 3 };
static pid_t asides[MOST_ASIDE];
static _Atomic int *slows; /* of each, and of this one */
static int aside_count, asides_ended, asides_bad;

static bool simulated(void)
{
    const char *device = getenv("TUTTI_DEVICE");
    return device && (strcmp(device, "sim") == 0 || getenv("TUTTI_LIBCUDA"));
}

static void aside_end(void)
{
    int status = 1;
    waitpid(asides[asides_ended++], &status, 0);
    asides_bad |= status != 0;
}

static void aside(const char *name, const char *path, struct tti_ranks how,
                  tti_rank_function *function, void *argument)
{
    if (!simulated() && aside_count - asides_ended == REAL_ASIDE)
        aside_end();
    fflush(NULL);
    const pid_t pid = fork();
    if (pid < 0 || aside_count == MOST_ASIDE)
        abort();
    slow = &slows[aside_count + 1];
    if (pid == 0)
        exit(run(name, path, how, function, argument, 0));
    slow = slows;
    asides[aside_count++] = pid;
}

static int asides_end(void)
{
    while (asides_ended < aside_count)
        aside_end();
    return asides_bad;
}

static void waiting(int p, const char *path, struct tti_ranks how)
{
    static const enum tutti_collective kinds[] = {TUTTI_ALL_REDUCE, TUTTI_ALL_TO_ALL};
    const int kinds_count = !SANITIZED_THREADS || p == 0 ? 2 : p - 1;
    struct tti_ranks soon = how;
    soon.options.timeout_s = simulated() ? SIMULATED_S : REAL_S;
    if (p == 1 && !SANITIZED_THREADS)
        aside("a replay is not made", path, soon, replay, NULL);
    if (p == 2 && !how.processes)
        aside("a stream comes late", path, soon, late, NULL);
    for (int k = 0; k < kinds_count; k++) {
        struct absence a = {kinds[k], false};
        aside("a rank does not come", path, soon, absent, &a);
        a.dies = true;
        if (how.processes)
            aside("a rank dies", path, how, absent, &a);
    }
}

int main(int argc, char **argv)
{
    static const char *const paths[] = {"staged", "window", "coupled"};
    const bool processes = argc > 1 && strcmp(argv[1], "processes") == 0;
    struct tti_ranks how = {.ranks = 3, .options = TUTTI_OPTIONS_INIT, .processes = processes};
    int bad = 0;
    how.options.timeout_s = 60;
    slow = slows = mmap(NULL, (MOST_ASIDE + 1) * sizeof *slows, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (slows == MAP_FAILED)
        abort();
    const char *device = getenv("TUTTI_DEVICE");
    const bool breakable = device && strcmp(device, "sim") == 0;
    struct tti_ranks direct = how;
    direct.options.algorithms = "all_reduce=two_shot,reduce=direct,reduce_scatter=direct";
    for (int p = 0; p < 3; p++)
        waiting(p, paths[p], how);
    for (int p = 0; p < 3; p++) {
        if (p > 0) /* staged is the plan itself, whatever the order of its sums */
            bad |= run("equal", paths[p], direct, equal, NULL, 0);
        bad |= run("premultiplied", paths[p], direct, premultiplied, NULL, 0);
        bad |= run("ring", paths[p], how, ring, NULL, 0);
        if (!processes && p > 0)
            bad |= run("refusals", paths[p], how, refusals, NULL, 0);
        if (p == 1 && SANITIZED_THREADS)
            printf("a device fails, %s: left to other builds\n", paths[p]);
        else if (breakable)
            bad |= run("a device fails", paths[p], how, breaks, NULL, 0);
        else
            printf("a device fails, %s: SKIPPED: the process could not use it afterwards\n",
                   paths[p]);
    }
    return asides_end() | bad;
}
