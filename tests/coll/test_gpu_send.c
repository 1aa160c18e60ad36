/* Device memory that goes to the network without a stop on the host (coll/gpu/gpu_send.h), over a
 * transport that reads it by another mapping (reader_transport.c): that results are right, that
 * copies are really left out, and what happens to memory that was freed, or is refused.
 *     test_gpu_send READER.so PART        the environment is made here
 *     test_gpu_send rdma PART             over RDMA instead, which does not tell what it registers
 */
#include "coll/comm.h"
#include "coll/gpu/gpu_side.h"
#include "tests/coll/reader_transport.h"
#include "tests/integration/device_calls.h"
#include "tests/integration/host_calls.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include "base/log.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { RANKS = 3, COUNT = 70001, TURNS = 3, FREES = 8, LARGE = 1 << 20 };

static struct reader_counts *counts; /* NULL: over RDMA */
static bool bruck;                   /* all-to-all, not direct */
static atomic_int warned;            /* lines that say that something is copied nevertheless */

static void listen_in(enum tti_log_level level, const char *text)
{
    if (level == TTI_LOG_WARN && strstr(text, "is copied to the host before it is sent"))
        atomic_fetch_add(&warned, 1);
}

static void counted(const tutti_comm *comm, uint64_t *copied, uint64_t *direct)
{
    tti_gpu_stage_counts(comm->gpu, copied, direct);
}

/* ---- all collectives ---- */

/* Which of them only send their input, at this rank, by the algorithms that are asked for. */
static bool sends_only(enum tutti_collective collective, int rank, int root)
{
    switch (collective) {
    case TUTTI_BROADCAST:
    case TUTTI_SCATTER:
        return rank == root;
    case TUTTI_ALL_TO_ALL:
        return !bruck; /* which moves its input about before it sends it */
    case TUTTI_ALL_GATHER:
    case TUTTI_GATHER: /* the root's own part goes from device to device */
        return true;
    case TUTTI_REDUCE:
        return rank != root;
    default:
        return false;
    }
}

static int collective_case(tutti_comm *comm, enum tutti_collective collective, bool in_place)
{
    const int rank = tutti_comm_rank(comm), n = tutti_comm_size(comm), root = 1;
    const struct test_case c = {.collective = collective,
                                .count = COUNT,
                                .type = TUTTI_INT32,
                                .op = TUTTI_SUM,
                                .root = root};
    const size_t block = (size_t)COUNT * 4, all = (size_t)n * block;
    uint32_t ins = 0, outs = 0, own_in = 0, own_out = 0;
    tti_shape(collective, n, rank, root, &ins, &outs);
    char *host_in = malloc(all), *host_out = malloc(all), *back = malloc(all);
    char *in = device_memory(all), *out = device_memory(all);
    CHECK(host_in && host_out && back && in && out);
    char *to = out, *from = in;
    if (in_place && tti_in_place(collective, n, rank, root, &own_in, &own_out)) {
        to = in + (ins > outs ? own_in * block : 0);
        from = in + (outs > ins ? own_out * block : 0);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        uint64_t copied = 0, direct = 0, copied_then = 0, direct_then = 0;
        counted(comm, &copied, &direct);
        test_fill(host_in, c.type, ins * (size_t)COUNT, (uint32_t)(rank * 31 + turn * 7 + 1));
        const struct tti_operation o = test_operation(&c, host_in, host_out);
        CHECK_OK(test_call(&o, comm));
        CHECK_OK(device_copy(from, host_in, ins * block));
        CHECK_OK(device_start(&c, from, to, comm, NULL));
        CHECK_OK(device_copy(back, to, outs * block));
        CHECK_OK(device_settle());
        CHECK(memcmp(back, host_out, outs * block) == 0);
        counted(comm, &copied_then, &direct_then);
        /* The first of a shape is copied, or some of its pieces: then its plan is known. */
        const uint64_t now_copied = copied_then - copied, now_direct = direct_then - direct;
        const bool may = sends_only(collective, rank, root), must = may && turn > 0;
        if (now_copied + now_direct != ins * block || (!may && now_direct > 0) ||
            (must && now_copied > 0)) {
            fprintf(stderr, "rank %d %s%s, turn %d: %llu bytes copied, %llu not\n", rank,
                    tutti_collective_name(collective), in_place ? " in place" : "", turn,
                    (unsigned long long)now_copied, (unsigned long long)now_direct);
            return 1;
        }
    }
    device_free(in);
    device_free(out);
    free(host_in);
    free(host_out);
    free(back);
    return 0;
}

/* What the host multiplies it must have, though the same sum without a factor is only sent. */
static int premultiplied(tutti_comm *comm)
{
    const int32_t factor = 3 + tutti_comm_rank(comm);
    const size_t bytes = (size_t)COUNT * 4;
    struct test_case c = {
        .collective = TUTTI_REDUCE, .count = COUNT, .type = TUTTI_INT32, .root = 1};
    int32_t *in = malloc(bytes), *host = calloc(1, bytes), *device = calloc(1, bytes);
    CHECK(in && host && device);
    CHECK_OK(tutti_premul_sum_create(comm, c.type, &factor, &c.op));
    test_fill(in, c.type, COUNT, (uint32_t)factor);
    const struct tti_operation o = test_operation(&c, in, host);
    CHECK_OK(test_call(&o, comm));
    CHECK_OK(device_call(&c, (struct device_shadow){(char *)in, (char *)in, bytes},
                         (struct device_shadow){(char *)device, (char *)device, bytes}, comm));
    if (tutti_comm_rank(comm) == c.root)
        CHECK(memcmp(host, device, bytes) == 0);
    CHECK_OK(tutti_op_destroy(comm, c.op));
    free(in);
    free(host);
    free(device);
    return 0;
}

/* A message to oneself goes by no transport. */
static int to_oneself(tutti_comm *comm)
{
    const int rank = tutti_comm_rank(comm);
    int32_t *out = device_memory(LARGE), *in = device_memory(LARGE);
    int32_t *host = malloc(LARGE), *came = malloc(LARGE);
    CHECK(out && in && host && came);
    test_fill(host, TUTTI_INT32, LARGE / 4, (uint32_t)rank);
    CHECK_OK(device_copy(out, host, LARGE));
    CHECK_OK(tutti_group_start());
    CHECK_OK(tutti_send_async(out, LARGE / 4, TUTTI_INT32, rank, comm, device_stream(), NULL));
    CHECK_OK(tutti_recv_async(in, LARGE / 4, TUTTI_INT32, rank, comm, device_stream(), NULL));
    CHECK_OK(tutti_group_end());
    CHECK_OK(device_copy(came, in, LARGE));
    CHECK_OK(device_settle());
    CHECK(memcmp(came, host, LARGE) == 0);
    device_free(out);
    device_free(in);
    free(host);
    free(came);
    return 0;
}

static int collectives(tutti_comm *comm, void *argument)
{
    static const enum tutti_collective kinds[] = {
        TUTTI_BROADCAST, TUTTI_ALL_GATHER, TUTTI_ALL_TO_ALL,     TUTTI_SCATTER,
        TUTTI_GATHER,    TUTTI_REDUCE,     TUTTI_REDUCE_SCATTER, TUTTI_ALL_REDUCE};
    (void)argument;
    CHECK(device_begin(tutti_comm_rank(comm)) == 0);
    char *first = device_memory(LARGE); /* the device is opened, so that there are counts */
    CHECK(first);
    CHECK_OK(tutti_all_reduce_async(first, first, 4, TUTTI_INT32, TUTTI_MAX, comm, device_stream(),
                                    NULL));
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int in_place = 0; in_place < 2; in_place++)
            CHECK(collective_case(comm, kinds[k], in_place) == 0);
    CHECK(premultiplied(comm) == 0 && to_oneself(comm) == 0);
    device_free(first);
    return device_end(comm);
}

/* ---- messages ---- */

static int32_t value(int rank, int turn, size_t i)
{
    return (int32_t)i * 3 + rank * 1000003 + turn;
}

/* Each sends a buffer that nobody in this process may read at its address: copying it, by the
 * device or the host, would end the process. */
static int unreadable(tutti_comm *comm, void *argument)
{
    const int rank = tutti_comm_rank(comm), n = tutti_comm_size(comm);
    const size_t elements = LARGE / 4;
    tutti_request *request = NULL;
    (void)argument;
    CHECK(device_begin(rank) == 0);
    int32_t *out = device_memory(LARGE), *in = device_memory(LARGE), *host = malloc(LARGE);
    CHECK(out && in && host);
    for (int turn = 0; turn < TURNS; turn++) {
        for (size_t i = 0; i < elements; i++)
            host[i] = value(rank, turn, i);
        CHECK_OK(device_copy(out, host, LARGE));
        CHECK_OK(device_settle());
        CHECK(mprotect(out, LARGE, PROT_NONE) == 0);
        CHECK_OK(tutti_group_start());
        CHECK_OK(tutti_send_async(out, elements, TUTTI_INT32, (rank + 1) % n, comm, device_stream(),
                                  NULL));
        CHECK_OK(tutti_recv_async(in, elements, TUTTI_INT32, (rank + n - 1) % n, comm,
                                  device_stream(), &request));
        CHECK_OK(tutti_group_end());
        CHECK_OK(tutti_wait(request));
        CHECK_OK(device_copy(host, in, LARGE));
        CHECK_OK(device_settle());
        CHECK(mprotect(out, LARGE, PROT_READ | PROT_WRITE) == 0);
        for (size_t i = 0; i < elements; i++)
            CHECK(host[i] == value((rank + n - 1) % n, turn, i));
    }
    device_free(out);
    device_free(in);
    free(host);
    return device_end(comm);
}

/* A put is the post's, which reads its data on the host: it is copied there. */
static int puts_are_copied(tutti_comm *comm, void *argument)
{
    const int rank = tutti_comm_rank(comm), n = tutti_comm_size(comm);
    const int to = (rank + 1) % n, from = (rank + n - 1) % n;
    const size_t elements = LARGE / 4;
    uint64_t copied = 0, direct = 0;
    tutti_window *window = NULL;
    (void)argument;
    CHECK(device_begin(rank) == 0);
    int32_t *out = device_memory(LARGE), *in = device_memory(LARGE), *host = malloc(LARGE);
    CHECK(out && in && host);
    CHECK_OK(tutti_window_create(in, LARGE, comm, &window));
    for (int turn = 0; turn < TURNS; turn++) {
        for (size_t i = 0; i < elements; i++)
            host[i] = value(rank, turn, i);
        CHECK_OK(device_copy(out, host, LARGE));
        CHECK_OK(
            tutti_put_async(out, elements, TUTTI_INT32, to, window, 0, 0, device_stream(), NULL));
        CHECK_OK(tutti_wait_signal_async(from, 0, 1, comm, device_stream(), NULL));
        CHECK_OK(device_copy(host, in, LARGE));
        CHECK_OK(device_settle());
        for (size_t i = 0; i < elements; i++)
            CHECK(host[i] == value(from, turn, i));
        CHECK_OK(tutti_barrier(comm)); /* nobody puts before all have looked */
    }
    counted(comm, &copied, &direct);
    CHECK(direct == 0 && copied == (uint64_t)TURNS * LARGE);
    tutti_window_destroy(window);
    device_free(out);
    device_free(in);
    free(host);
    return device_end(comm);
}

/* ---- memory that is freed and handed out again ---- */

static int exchange(tutti_comm *comm, int32_t *out, int32_t *in, int32_t *host, int turn)
{
    const int rank = tutti_comm_rank(comm), n = tutti_comm_size(comm);
    const size_t elements = LARGE / 4;
    for (size_t i = 0; i < elements; i++)
        host[i] = value(rank, turn, i);
    CHECK_OK(device_copy(out, host, LARGE));
    CHECK_OK(tutti_group_start());
    CHECK_OK(
        tutti_send_async(out, elements, TUTTI_INT32, (rank + 1) % n, comm, device_stream(), NULL));
    CHECK_OK(tutti_recv_async(in, elements, TUTTI_INT32, (rank + n - 1) % n, comm, device_stream(),
                              NULL));
    CHECK_OK(tutti_group_end());
    CHECK_OK(device_copy(host, in, LARGE));
    CHECK_OK(device_settle());
    for (size_t i = 0; i < elements; i++)
        CHECK(host[i] == value((rank + n - 1) % n, turn, i));
    return 0;
}

static atomic_int same_address;

static int freed(tutti_comm *comm, void *argument)
{
    const int rank = tutti_comm_rank(comm);
    int32_t *in = NULL, *host = malloc(LARGE);
    const void *before = NULL;
    (void)argument;
    CHECK(device_begin(rank) == 0 && (in = device_memory(LARGE)) && host);
    for (int turn = 0; turn < FREES; turn++) {
        int32_t *out = device_memory(LARGE);
        CHECK(out);
        atomic_fetch_add(&same_address, out == before);
        CHECK(exchange(comm, out, in, host, turn) == 0);
        before = out;
        device_free_now(out);
    }
    device_free(in);
    free(host);
    return device_end(comm);
}

/* ---- refused, and switched off ---- */

static int staged(tutti_comm *comm, void *argument)
{
    uint64_t copied = 0, direct = 0;
    int32_t *in = NULL, *out = NULL, *host = malloc(LARGE);
    (void)argument;
    CHECK(device_begin(tutti_comm_rank(comm)) == 0 && (in = device_memory(LARGE)) &&
          (out = device_memory(LARGE)) && host);
    for (int turn = 0; turn < TURNS; turn++)
        CHECK(exchange(comm, out, in, host, turn) == 0);
    counted(comm, &copied, &direct);
    CHECK(direct == 0 && copied == (uint64_t)TURNS * LARGE);
    device_free(in);
    device_free(out);
    free(host);
    return device_end(comm);
}

static int required(tutti_comm *comm, void *argument)
{
    const int rank = tutti_comm_rank(comm), n = tutti_comm_size(comm);
    (void)argument;
    CHECK(device_begin(rank) == 0);
    char *out = device_memory(LARGE);
    CHECK(out);
    CHECK(tutti_send_async(out, LARGE, TUTTI_UINT8, (rank + 1) % n, comm, device_stream(), NULL) ==
          TUTTI_ERR_UNSUPPORTED);
    CHECK(strstr(tutti_last_error(), "TUTTI_DEVICE_DIRECT is \"require\"") &&
          strstr(tutti_last_error(), "the reader refuses all memory"));
    (void)device_settle();
    device_free(out);
    (void)device_end(comm);
    return 0;
}

/* ---- captured ---- */

static int captured(tutti_comm *comm, void *argument)
{
    const int rank = tutti_comm_rank(comm), root = 1;
    const size_t elements = LARGE / 4;
    struct tti_gpu_graph *graph = NULL;
    int32_t *data = NULL, *host = malloc(LARGE);
    uint64_t copied = 0, direct = 0, copied_then = 0, direct_then = 0;
    (void)argument;
    CHECK(device_begin(rank) == 0 && (data = device_memory(LARGE)) && host);
    const struct tti_gpu_ops *ops = device_gpu()->ops;
    CHECK_OK(tutti_broadcast_async(data, data, elements, TUTTI_INT32, root, comm, device_stream(),
                                   NULL));
    CHECK_OK(device_settle());
    counted(comm, &copied, &direct);
    CHECK_OK(ops->capture_begin(device_gpu(), device_stream()));
    CHECK_OK(tutti_broadcast_async(data, data, elements, TUTTI_INT32, root, comm, device_stream(),
                                   NULL));
    CHECK_OK(ops->capture_end(device_gpu(), device_stream(), &graph));
    counted(comm, &copied_then, &direct_then);
    CHECK(copied_then == copied && direct_then - direct == (rank == root ? LARGE : 0));
    for (int turn = 0; turn < TURNS; turn++) {
        for (size_t i = 0; i < elements; i++)
            host[i] = value(rank, turn, i);
        CHECK_OK(device_copy(data, host, LARGE));
        CHECK_OK(ops->graph_launch(graph, device_stream()));
        CHECK_OK(device_copy(host, data, LARGE));
        CHECK_OK(device_settle());
        for (size_t i = 0; i < elements; i++)
            CHECK(host[i] == value(root, turn, i));
    }
    ops->graph_destroy(graph);
    device_free(data);
    free(host);
    return device_end(comm);
}

/* ---- the parts ---- */

static int ran(tti_rank_function *function)
{
    const struct tti_ranks how = {.ranks = RANKS, .options = TUTTI_OPTIONS_INIT};
    return tti_ranks_run(&how, function, NULL);
}

/* The reader has sent so many bytes out of device memory, and known so many allocations. */
static int read_were(uint64_t bytes, uint64_t registered, uint64_t forgotten)
{
    if (!counts || (counts->bytes == bytes && counts->registered == registered &&
                    counts->forgotten == forgotten))
        return 0;
    fprintf(stderr, "the reader sent %llu bytes, registered %llu allocations, forgot %llu\n",
            (unsigned long long)counts->bytes, (unsigned long long)counts->registered,
            (unsigned long long)counts->forgotten);
    return 1;
}

static int part(const char *name)
{
    const uint64_t all = (uint64_t)RANKS * LARGE;
    if (strcmp(name, "collectives") == 0)
        return ran(collectives) || (counts && counts->bytes == 0);
    if (strcmp(name, "bruck") == 0) {
        bruck = true;
        setenv("TUTTI_ALGO", "all_to_all=bruck,all_gather=bruck,reduce=direct", 1);
        return ran(collectives);
    }
    if (strcmp(name, "unreadable") == 0)
        return ran(unreadable) || read_were(TURNS * all, RANKS, 0);
    if (strcmp(name, "puts") == 0)
        return ran(puts_are_copied) || read_were(0, 0, 0);
    if (strcmp(name, "captured") == 0)
        return ran(captured);
    if (strcmp(name, "freed") == 0)
        return ran(freed) || same_address == 0 ||
               read_were(FREES * all, FREES * RANKS, (FREES - 1) * RANKS);
    if (strcmp(name, "refused") == 0) {
        setenv("READER_REFUSES", "1", 1);
        /* Each rank asks once, not for each call, and says so once. */
        int failed =
            ran(staged) || read_were(0, 0, 0) || warned != RANKS || counts->refused != RANKS;
        setenv("TUTTI_DEVICE_DIRECT", "require", 1);
        return failed || ran(required);
    }
    if (strcmp(name, "off") == 0) {
        setenv("TUTTI_DEVICE_DIRECT", "off", 1);
        return ran(staged) || read_were(0, 0, 0) || warned != 0;
    }
    return 1;
}

static void *reader_open(const char *path)
{
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    setenv("TUTTI_PLUGINS", path, 1);
    counts = object ? dlsym(object, "reader_counts") : NULL;
    if (!counts)
        fprintf(stderr, "no reader: %s\n", dlerror());
    return counts;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    const bool rdma = strcmp(argv[1], "rdma") == 0;
    if (!rdma && !reader_open(argv[1]))
        return 2;
    setenv("TUTTI_TRANSPORT", rdma ? "rdma" : "reader", 1);
    setenv("TUTTI_DEVICE_PATH", "staged", 1);
    setenv("TUTTI_DEVICE_CHUNK", "256K", 1); /* so that there are several */
    setenv("TUTTI_ALGO", "all_to_all=direct,all_gather=ring,reduce=direct", 1);
    if (!rdma)
        tti_log_divert(TTI_LOG_WARN, listen_in);
    const int failed = part(argv[2]);
    printf("%s: %s; %d buffers had the address of one that was freed before\n", argv[2],
           failed ? "FAILED" : "ok", (int)same_address);
    return failed != 0;
}
