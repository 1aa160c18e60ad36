/* Ranks of a process that share a device: one queues operations as fast as it can, another comes
 * late. The first may not get so far ahead that the driver makes it wait inside, where it might
 * keep out the other, for which its stream waits (coll/gpu/gpu_ahead.c); but nearly as far, and
 * while it waits, others may use its communicator. On the fake driver, which keeps others out,
 * nothing would end. test_gpu_ahead
 */
#include "coll/gpu/gpu_map.h"
#include "tests/integration/device_calls.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* That a rank queues: more than a stream of the driver's holds. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { COMMANDS = 1500 };
#else
enum { COMMANDS = 3000 };
#endif

enum {
    DRIVER_HOLDS = 1000,
    STILL_MS = 300,
    SECONDS = 60,
};

struct way {
    const char *name, *path;
    int ranks;
    bool two; /* communicators on the stream, by turns */
    int passes;
    const char *memory; /* TUTTI_DEVICE_MEMORY; NULL: as it is */
    bool apart;         /* a device for each rank */
    double queues;      /* CUDA_SCALE_LAUNCH_QUEUES; 0: as they are */
};

static const struct way ways[] = {
    {.name = "a rank runs ahead", .path = "coupled", .ranks = 2, .passes = 1},
    {.name = "a rank runs ahead", .path = "window", .ranks = 2, .passes = 1},
    {.name = "with two communicators", .path = "window", .ranks = 2, .two = true, .passes = 1},
    {.name = "a rank runs ahead", .path = "window", .ranks = 8, .passes = 1},
    {.name = "in several passes", .path = "window", .ranks = 8, .passes = 4},
    {.name = "in very many passes", .path = "window", .ranks = 8, .passes = 16},
    {.name = "a rank runs ahead", .path = "staged", .ranks = 2, .passes = 1},
    {.name = "a rank runs ahead", .path = "staged", .ranks = 8, .passes = 1},
    {.name = "on devices of their own", .path = "coupled", .ranks = 2, .passes = 1, .apart = true},
    {.name = "on devices of their own", .path = "staged", .ranks = 2, .passes = 1, .apart = true},
    {.name = "short queues", .path = "window", .ranks = 2, .passes = 1, .queues = 0.25},
    {.name = "with too little memory", .path = "coupled", .ranks = 2, .passes = 1, .memory = "64K"},
};

/* Of the rank that runs ahead. */
static tutti_comm *_Atomic ahead[2];
static _Atomic uint64_t ahead_from, ahead_call; /* commands before it did, and of a call */

static uint64_t commands(tutti_comm *const *comms)
{
    uint64_t sum = 0;
    for (int k = 0; k < 2; k++)
        if (k == 0 || comms[1] != comms[0])
            sum += atomic_load(&comms[k]->gpu->gpu->commands);
    return sum;
}

static uint64_t commands_ahead(void)
{
    tutti_comm *const comms[] = {atomic_load(&ahead[0]), atomic_load(&ahead[1])};
    return commands(comms) - atomic_load(&ahead_from);
}

/* Until the other gets no further than `fewest`, or more; or has been slow: then this finds less,
 * but nothing wrong. */
static uint64_t late(uint64_t fewest)
{
    const time_t end = time(NULL) + SECONDS;
    uint64_t seen = 0, now = commands_ahead();
    while (time(NULL) < end && (seen != now || now < fewest)) {
        seen = now;
        usleep(STILL_MS * 1000);
        now = commands_ahead();
    }
    return now;
}

/* Whether others can use the communicator of the rank that waits. */
static bool others_can(void)
{
    pthread_mutex_t *lock = &atomic_load(&ahead[0])->gpu->lock;
    const struct timespec end = {.tv_sec = time(NULL) + SECONDS / 6};
    if (pthread_mutex_timedlock(lock, &end) != 0)
        return false;
    pthread_mutex_unlock(lock);
    return true;
}

static int come_late(const struct way *way)
{
    const uint64_t call = atomic_load(&ahead_call), pass = call / (uint64_t)way->passes + 1;
    const uint64_t slack = TTI_AHEAD_STEP + 2 * pass; /* marks are so far apart */
    const uint64_t most = (uint64_t)(TTI_AHEAD_MOST * (way->queues > 0 ? way->queues : 1));
    const uint64_t found = late(most - slack);
    printf("  %d ranks, %s, %d passes: %llu commands a call, %llu ahead\n", way->ranks, way->path,
           way->passes, (unsigned long long)call, (unsigned long long)found);
    CHECK(found >= most - slack);
    CHECK(found < DRIVER_HOLDS);
    if (call <= TTI_AHEAD_WITHIN - TTI_AHEAD_MOST) {
        CHECK(found <= most + call + 2);
        CHECK(others_can());
    }
    return 0;
}

/* All ranks; rank 1 late. */
static int run_ahead(tutti_comm *const *comms, const struct way *way, int32_t *in, int32_t *out,
                     size_t count)
{
    const int rank = tutti_comm_rank(comms[0]);
    uint64_t from = 0;
    for (int k = 0; k < 4; k++) { /* twice each: the first also sets things up */
        from = k == 2 ? commands(comms) : from;
        CHECK_OK(tutti_all_reduce_async(in, out, count, TUTTI_INT32, TUTTI_SUM, comms[k % 2],
                                        device_stream(), NULL));
    }
    const uint64_t call = (commands(comms) - from) / 2;
    CHECK_OK(device_settle());
    if (rank == 0) {
        atomic_store(&ahead_call, call);
        atomic_store(&ahead_from, commands(comms));
        for (int k = 0; k < 2; k++)
            atomic_store(&ahead[k], comms[k]);
    }
    CHECK_OK(tutti_barrier(comms[0]));
    if (rank == 1 && come_late(way) != 0)
        return 1;
    for (uint64_t k = 0; k < COMMANDS / call + 2; k++)
        CHECK_OK(tutti_all_reduce_async(in, out, count, TUTTI_INT32, TUTTI_SUM, comms[k % 2],
                                        device_stream(), NULL));
    return 0;
}

static int runs_ahead(tutti_comm *comm, void *argument)
{
    const struct way *way = argument;
    const int rank = tutti_comm_rank(comm), n = tutti_comm_size(comm);
    tutti_comm *comms[2] = {comm, comm};
    CHECK(device_begin(way->apart ? rank : 0) == 0);
    if (way->two)
        CHECK_OK(tutti_comm_split(comm, 0, rank, &comms[1]));
    CHECK_OK(tutti_barrier_async(comm, device_stream(), NULL));
    const size_t window = comm->gpu->map->window_bytes / sizeof(int32_t);
    const size_t count = way->passes == 1 ? 1 : ((size_t)way->passes - 1) * window + 1;
    const size_t bytes = count * sizeof(int32_t);
    int32_t *in = device_memory(bytes), *out = device_memory(bytes), ends[2] = {0, 0};
    CHECK(in && out);
    int32_t *data = malloc(bytes);
    CHECK(data);
    for (size_t i = 0; i < count; i++)
        data[i] = rank + 1;
    const enum tutti_result copied = device_copy(in, data, bytes);
    const enum tutti_result settled = device_settle();
    free(data);
    CHECK_OK(copied);
    CHECK_OK(settled);
    if (run_ahead(comms, way, in, out, count) != 0)
        return 1;
    CHECK_OK(device_copy(&ends[0], out, sizeof *ends));
    CHECK_OK(device_copy(&ends[1], out + count - 1, sizeof *ends));
    CHECK_OK(device_settle());
    CHECK(ends[0] == n * (n + 1) / 2 && ends[1] == ends[0]);
    device_free(in);
    device_free(out);
    if (way->two)
        tutti_comm_destroy(comms[1]);
    return device_end(comm);
}

static int devices(void)
{
    const char *device = getenv("TUTTI_DEVICE");
    const struct tti_gpu_ops *ops = NULL;
    int count = 0;
    CHECK_OK(tti_gpu_find(device ? device : "sim", &ops));
    CHECK_OK(ops->count(&count));
    return count;
}

/* What rank 1 leaves to rank 0's thread. */
struct left {
    tutti_comm *comm;
    int32_t *in, *out;
    tutti_stream stream;
};
static struct left left;
static _Atomic bool called;

static enum tutti_result both(const struct left *a, const struct left *b, size_t count)
{
    enum tutti_result result = tutti_group_start();
    const struct left *const ranks[] = {a, b};
    for (int r = 0; r < 2 && result == TUTTI_OK; r++)
        result = tutti_all_reduce_async(ranks[r]->in, ranks[r]->out, count, TUTTI_INT32, TUTTI_SUM,
                                        ranks[r]->comm, ranks[r]->stream, NULL);
    const enum tutti_result ended = tutti_group_end();
    return result == TUTTI_OK ? ended : result;
}

/* In a group rank 0's thread calls for both, each on a device of its own, what takes more commands
 * than a rank may be ahead, and fewer than a stream holds: those of the first wait for the second,
 * which are queued after them. */
static int one_thread(tutti_comm *comm, void *argument)
{
    enum { FEW = 8, MANY = 200, CHUNK = 4096 };
    const int rank = tutti_comm_rank(comm);
    (void)argument;
    CHECK(device_begin(rank) == 0);
    const struct left own = {.comm = comm,
                             .in = device_memory(MANY * CHUNK),
                             .out = device_memory(MANY * CHUNK),
                             .stream = device_stream()};
    CHECK(own.in && own.out);
    if (rank == 1)
        left = own;
    CHECK_OK(tutti_barrier_async(comm, own.stream, NULL)); /* sets things up */
    CHECK_OK(device_settle());
    CHECK_OK(tutti_barrier(comm));
    if (rank == 0) {
        tutti_comm *const comms[] = {comm, comm};
        const uint64_t before = commands(comms);
        CHECK_OK(both(&own, &left, (size_t)FEW * CHUNK / sizeof(int32_t)));
        const uint64_t few = commands(comms) - before;
        const uint64_t chunks = (TTI_AHEAD_WITHIN + DRIVER_HOLDS) / 2 * FEW / few;
        printf("  %llu commands a chunk, %llu chunks\n", (unsigned long long)(few / FEW),
               (unsigned long long)chunks);
        CHECK(chunks <= MANY);
        CHECK_OK(both(&own, &left, (size_t)chunks * CHUNK / sizeof(int32_t)));
    }
    if (rank == 0)
        atomic_store(&called, true);
    for (const time_t end = time(NULL) + SECONDS; !called && time(NULL) < end;)
        usleep(1000);
    CHECK_OK(device_settle());
    device_free(own.in);
    device_free(own.out);
    return device_end(comm);
}

static int run_one_thread(void)
{
    struct tti_ranks how = {.ranks = 2, .options = TUTTI_OPTIONS_INIT};
    how.options.timeout_s = SECONDS;
    if (devices() < 2) {
        printf("one thread calls for both: SKIPPED, there is one device\n");
        return 0;
    }
    setenv("TUTTI_DEVICE_CHUNK", "4096", 1);
    const int bad = device_ranks("one thread calls for both", "staged", how, one_thread, NULL);
    unsetenv("TUTTI_DEVICE_CHUNK");
    return bad;
}

/* A stream is held up, and a rank that is ahead of it waits: it hears that another one aborts. */
static int hears(tutti_comm *comm, void *argument)
{
    const int rank = tutti_comm_rank(comm);
    void *gate = NULL;
    enum tutti_result result = TUTTI_OK;
    (void)argument;
    CHECK(device_begin(0) == 0);
    struct tti_gpu *gpu = device_gpu();
    int32_t *in = device_memory(sizeof *in), *out = device_memory(sizeof *out);
    CHECK(in && out);
    CHECK_OK(gpu->ops->alloc(gpu, TTI_MEMORY_PINNED, sizeof(uint32_t), &gate));
    __atomic_store_n((uint32_t *)gate, 0, __ATOMIC_RELEASE);
    CHECK_OK(
        tutti_all_reduce_async(in, out, 1, TUTTI_INT32, TUTTI_SUM, comm, device_stream(), NULL));
    CHECK_OK(device_settle());
    if (rank == 0) {
        tutti_comm *const comms[] = {comm, comm};
        atomic_store(&ahead_from, commands(comms));
        for (int k = 0; k < 2; k++)
            atomic_store(&ahead[k], comm);
        CHECK_OK(gpu->ops->stream_wait(gpu, gate, 1, device_stream()));
    }
    CHECK_OK(tutti_barrier(comm));
    if (rank == 1) {
        (void)late(TTI_AHEAD_MOST - 2 * TTI_AHEAD_STEP);
        tutti_comm_abort(comm, "test");
    }
    for (int k = 0; rank == 0 && k < COMMANDS && result == TUTTI_OK; k++)
        result =
            tutti_all_reduce_async(in, out, 1, TUTTI_INT32, TUTTI_SUM, comm, device_stream(), NULL);
    const bool heard = rank == 1 || result == TUTTI_ERR_ABORTED;
    __atomic_store_n((uint32_t *)gate, 1, __ATOMIC_RELEASE);
    CHECK_OK(device_settle());
    CHECK(heard);
    gpu->ops->free(gpu, gate);
    device_free_now(in);
    device_free_now(out);
    (void)device_end(comm); /* not well: the communicator has failed */
    return 0;
}

static int run_hears(const char *path)
{
    struct tti_ranks how = {.ranks = 2, .options = TUTTI_OPTIONS_INIT};
    how.options.timeout_s = SECONDS;
    return device_ranks("a rank that is ahead hears of failures", path, how, hears, NULL);
}

int main(void)
{
    int bad = run_hears("staged") | run_hears("window") | run_one_thread();
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct way way = ways[w];
        char queues[16];
        struct tti_ranks how = {.ranks = way.ranks, .options = TUTTI_OPTIONS_INIT};
        how.options.timeout_s = SECONDS;
        if (way.memory)
            setenv("TUTTI_DEVICE_MEMORY", way.memory, 1); /* the last one */
        if (way.apart && devices() < way.ranks) {
            printf("%s, %s: SKIPPED, there is one device\n", way.name, way.path);
            continue;
        }
        snprintf(queues, sizeof queues, "%gx", way.queues);
        if (way.queues > 0)
            setenv("CUDA_SCALE_LAUNCH_QUEUES", queues, 1);
        bad |= device_ranks(way.name, way.path, how, runs_ahead, &way);
        unsetenv("CUDA_SCALE_LAUNCH_QUEUES");
    }
    return bad != 0;
}
