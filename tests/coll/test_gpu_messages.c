/* Sends and receives between ranks that map each other's device memory (coll/gpu/gpu_message.c):
 * that they go past the host, are right whatever is posted with them and in which order, under
 * capture too, and how they end when the two sides differ or a rank does not come.
 *     test_gpu_messages threads | processes | few      the last: threads, for a device that is slow
 */
#include "coll/comm.h"
#include "coll/gpu/gpu_map.h"
#include "coll/gpu/gpu_side.h"
#include "tests/integration/device_calls.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LARGEST = 400001, ROUNDS = 4, MANY = 2 * TTI_MESSAGES + 7, FEW = 100 };

/* ---- messages whose bytes follow from who sends them to whom ---- */

struct mail {
    tutti_comm *comm;
    int rank, ranks;
    char *in, *out, *host; /* LARGEST + 64 for each rank; `in` is sent */
    int turn;
    struct tutti_memory held; /* before the first message */
};

static size_t mail_at(int peer)
{
    return (size_t)peer * (LARGEST + 64);
}

/* Of what rank `from` sends to rank `to`: bytes, and where in the buffers it lies. */
static size_t mail_bytes(const struct mail *m, int from, int to)
{
    static const size_t sizes[] = {1, 0, 5, 128, 1000, 4096, 65536, 131072, 200003, LARGEST};
    return sizes[(size_t)(from * 7 + to * 3 + m->turn * 5) % (sizeof sizes / sizeof *sizes)];
}

static size_t mail_shift(const struct mail *m, int rank, int peer)
{
    static const size_t shifts[] = {0, 4, 1, 16, 8, 7};
    return shifts[(size_t)(rank + peer * 2 + m->turn) % (sizeof shifts / sizeof *shifts)];
}

static char mail_byte(const struct mail *m, int from, int to, size_t i)
{
    return (char)(i * 31 + i / 251 + (size_t)(from * 16 + to + m->turn * 5));
}

/* What this rank sends to all goes to the device; what was there of others is wiped out. */
static int mail_write(struct mail *m)
{
    for (int p = 0; p < m->ranks; p++)
        for (size_t i = 0; i < mail_bytes(m, m->rank, p); i++)
            m->host[mail_at(p) + mail_shift(m, m->rank, p) + i] = mail_byte(m, m->rank, p, i);
    CHECK_OK(device_copy(m->in, m->host, mail_at(m->ranks)));
    CHECK_OK(
        device_gpu()->ops->fill(device_gpu(), m->out, 0x5a, mail_at(m->ranks), device_stream()));
    return 0;
}

static int mail_read(struct mail *m)
{
    CHECK_OK(device_copy(m->host, m->out, mail_at(m->ranks)));
    CHECK_OK(device_settle());
    for (int p = 0; p < m->ranks; p++) {
        const size_t bytes = mail_bytes(m, p, m->rank), shift = mail_shift(m, p, m->rank);
        for (size_t i = 0; i < LARGEST + 64; i++) {
            const char due =
                i < shift || i >= shift + bytes ? 0x5a : mail_byte(m, p, m->rank, i - shift);
            if (m->host[mail_at(p) + i] != due) {
                fprintf(stderr, "rank %d, turn %d: byte %zu of %zu from rank %d is wrong\n",
                        m->rank, m->turn, i - shift, bytes, p);
                return 1;
            }
        }
    }
    return 0;
}

static enum tutti_result mail_send(const struct mail *m, int peer)
{
    return tutti_send_async(m->in + mail_at(peer) + mail_shift(m, m->rank, peer),
                            mail_bytes(m, m->rank, peer), TUTTI_UINT8, peer, m->comm,
                            device_stream(), NULL);
}

static enum tutti_result mail_receive(const struct mail *m, int peer)
{
    return tutti_recv_async(m->out + mail_at(peer) + mail_shift(m, peer, m->rank),
                            mail_bytes(m, peer, m->rank), TUTTI_UINT8, peer, m->comm,
                            device_stream(), NULL);
}

/* Everybody to everybody, itself too, in one group; each rank posts in an order of its own. */
static int mail_group(const struct mail *m)
{
    const int n = m->ranks;
    CHECK_OK(tutti_group_start());
    for (int k = 0; k < 2 * n; k++) {
        const int j = (m->rank + m->turn) % 2 ? 2 * n - 1 - k : (k + m->rank) % (2 * n);
        const int peer = j / 2;
        CHECK_OK((j + m->turn) % 2 ? mail_send(m, peer) : mail_receive(m, peer));
    }
    CHECK_OK(tutti_group_end());
    return 0;
}

/* The same by pairs of ranks: a group for each distance between two. */
static int mail_pairs(const struct mail *m)
{
    const int n = m->ranks;
    for (int k = 0; k < n; k++) {
        const int to = (m->rank + k) % n, from = (m->rank + n - k) % n;
        CHECK_OK(tutti_group_start());
        CHECK_OK(mail_send(m, to));
        CHECK_OK(mail_receive(m, from));
        CHECK_OK(tutti_group_end());
    }
    return 0;
}

/* Rank 0 sends to all and then receives, call by call; the others do both at once. */
static int mail_star(const struct mail *m)
{
    if (m->rank > 0)
        return mail_group(m);
    CHECK_OK(tutti_group_start());
    CHECK_OK(mail_receive(m, 0));
    CHECK_OK(mail_send(m, 0));
    CHECK_OK(tutti_group_end());
    for (int p = m->ranks - 1; p > 0; p--)
        CHECK_OK(mail_send(m, p));
    for (int p = 1; p < m->ranks; p++)
        CHECK_OK(mail_receive(m, p));
    return 0;
}

/* ---- what is the same in all parts ---- */

/* Device memory is mapped by the first collective on it. */
static int mail_begin(tutti_comm *comm, struct mail *m)
{
    *m = (struct mail){.comm = comm, .rank = tutti_comm_rank(comm), .ranks = tutti_comm_size(comm)};
    CHECK(device_begin(m->rank) == 0);
    m->in = device_memory(mail_at(m->ranks));
    m->out = device_memory(mail_at(m->ranks));
    m->host = calloc(1, mail_at(m->ranks));
    CHECK(m->in && m->out && m->host);
    CHECK_OK(tutti_all_reduce_async(m->in, m->out, FEW, TUTTI_UINT8, TUTTI_SUM, comm,
                                    device_stream(), NULL));
    CHECK_OK(device_settle());
    CHECK_OK(tutti_comm_memory(comm, &m->held));
    return 0;
}

static int mail_free(struct mail *m)
{
    CHECK_OK(device_settle());
    device_free(m->in);
    device_free(m->out);
    free(m->host);
    return device_end(m->comm);
}

static int mail_end(struct mail *m)
{
    struct tutti_memory memory;
    uint64_t copied = 0, direct = 0;
    CHECK_OK(device_settle());
    CHECK_OK(tutti_comm_memory(m->comm, &memory));
    tti_gpu_stage_counts(m->comm->gpu, &copied, &direct);
    CHECK(copied == 0 && direct == 0);
    CHECK(memory.device == m->held.device && memory.pinned == m->held.pinned);
    return mail_free(m);
}

static int traffic(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct mail m;
    CHECK(mail_begin(comm, &m) == 0);
    for (m.turn = 0; m.turn < ROUNDS; m.turn++) {
        CHECK(mail_write(&m) == 0);
        CHECK((m.turn % 2 ? mail_pairs(&m) : mail_group(&m)) == 0);
        CHECK(mail_read(&m) == 0);
    }
    CHECK(mail_write(&m) == 0);
    CHECK(mail_star(&m) == 0);
    CHECK(mail_read(&m) == 0);
    return mail_end(&m);
}

/* More messages in a group than a launch takes; they keep their order. */
static int many(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct mail m;
    CHECK(mail_begin(comm, &m) == 0);
    const int next = (m.rank + 1) % m.ranks, last = (m.rank + m.ranks - 1) % m.ranks;
    int32_t *words = (int32_t *)(void *)m.host;
    for (int i = 0; i < MANY; i++)
        words[i] = m.rank * 1000 + i;
    CHECK_OK(device_copy(m.in, words, MANY * 4));
    CHECK_OK(tutti_group_start());
    for (int i = 0; i < MANY; i++) {
        CHECK_OK(tutti_send_async(m.in + (size_t)i * 4, 1, TUTTI_INT32, next, comm, device_stream(),
                                  NULL));
        CHECK_OK(tutti_recv_async(m.out + (size_t)i * 4, 1, TUTTI_INT32, last, comm,
                                  device_stream(), NULL));
    }
    CHECK_OK(tutti_group_end());
    CHECK_OK(device_copy(words, m.out, MANY * 4));
    CHECK_OK(device_settle());
    for (int i = 0; i < MANY; i++)
        CHECK(words[i] == last * 1000 + i);
    return mail_end(&m);
}

/* A small one, which has one lane, and large ones behind it, which have more: to the next rank in
 * one group, by it received call by call, but in every second turn the other way about. What is
 * sent alternates, so that a part which goes twice shows. */
static int batched(tutti_comm *comm, void *argument)
{
    (void)argument;
    static const size_t ends[] = {0, 8, 150000, 300000, 300016, LARGEST};
    enum { LETTERS = sizeof ends / sizeof *ends - 1 };
    struct mail m;
    CHECK(mail_begin(comm, &m) == 0);
    const int next = (m.rank + 1) % m.ranks, last = (m.rank + m.ranks - 1) % m.ranks;
    for (m.turn = 0; m.turn < ROUNDS; m.turn++) {
        for (size_t i = 0; i < LARGEST; i++)
            m.host[i] = mail_byte(&m, m.rank, next, i);
        CHECK_OK(device_copy(m.in, m.host, LARGEST));
        for (int way = 0; way < 2; way++) {
            const bool sends = way == m.rank % 2, together = sends == (m.turn % 2 == 0);
            if (together)
                CHECK_OK(tutti_group_start());
            for (int k = 0; k < LETTERS; k++)
                CHECK_OK(sends ? tutti_send_async(m.in + ends[k], ends[k + 1] - ends[k],
                                                  TUTTI_UINT8, next, comm, device_stream(), NULL)
                               : tutti_recv_async(m.out + ends[k], ends[k + 1] - ends[k],
                                                  TUTTI_UINT8, last, comm, device_stream(), NULL));
            if (together)
                CHECK_OK(tutti_group_end());
        }
        CHECK_OK(device_copy(m.host, m.out, LARGEST));
        CHECK_OK(device_settle());
        for (size_t i = 0; i < LARGEST; i++)
            CHECK(m.host[i] == mail_byte(&m, last, m.rank, i));
    }
    return mail_end(&m);
}

/* A group in a graph, replayed with other data, and the same as usual in between. */
static int captured(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct mail m;
    CHECK(mail_begin(comm, &m) == 0);
    struct tti_gpu *gpu = device_gpu();
    struct tti_gpu_graph *graph = NULL;
    m.turn = 1;
    CHECK_OK(gpu->ops->capture_begin(gpu, device_stream()));
    CHECK(mail_group(&m) == 0);
    CHECK(mail_pairs(&m) == 0);
    CHECK_OK(gpu->ops->capture_end(gpu, device_stream(), &graph));
    for (int k = 0; k < ROUNDS; k++) {
        CHECK(mail_write(&m) == 0);
        CHECK_OK(gpu->ops->graph_launch(graph, device_stream()));
        CHECK(mail_read(&m) == 0);
        CHECK(mail_write(&m) == 0);
        CHECK(mail_group(&m) == 0);
        CHECK(mail_read(&m) == 0);
    }
    gpu->ops->graph_destroy(graph);
    return mail_end(&m);
}

/* ---- what ends badly ---- */

/* A send to itself that nobody receives is refused, and no more: the streams wait for nothing. */
static int refused(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct mail m;
    CHECK(mail_begin(comm, &m) == 0);
    CHECK(tutti_send_async(m.in, FEW, TUTTI_INT32, m.rank, comm, device_stream(), NULL) ==
          TUTTI_ERR_USAGE);
    CHECK_OK(device_settle());
    CHECK(!m.comm->gpu->map->told->inside && !m.comm->gpu->map->told->status.waited);
    m.turn = 1;
    CHECK(mail_write(&m) == 0);
    CHECK(mail_group(&m) == 0);
    CHECK(mail_read(&m) == 0);
    CHECK(!m.comm->gpu->map->told->inside && !m.comm->gpu->map->told->status.waited);
    return mail_end(&m);
}

/* Nothing needs nobody, oneself neither. */
static int nothing(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct mail m;
    CHECK(mail_begin(comm, &m) == 0);
    for (int peer = 0; peer < m.ranks; peer++) {
        tutti_request *requests[2] = {NULL, NULL};
        CHECK_OK(tutti_group_start());
        CHECK_OK(tutti_send_async(m.in, 0, TUTTI_INT32, peer, comm, device_stream(), &requests[0]));
        CHECK_OK(tutti_group_end());
        CHECK_OK(
            tutti_recv_async(m.out, 0, TUTTI_INT32, peer, comm, device_stream(), &requests[1]));
        CHECK_OK(tutti_wait_all(requests, 2));
    }
    return mail_end(&m);
}

/* Before the first collective, which maps memory and exchanges for that what it has to over the
 * links on which the messages still are. */
static int before_mapping(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct mail m = {
        .comm = comm, .rank = tutti_comm_rank(comm), .ranks = tutti_comm_size(comm), .turn = 2};
    CHECK(device_begin(m.rank) == 0);
    m.in = device_memory(mail_at(m.ranks));
    m.out = device_memory(mail_at(m.ranks));
    m.host = calloc(1, mail_at(m.ranks));
    CHECK(m.in && m.out && m.host);
    CHECK(mail_write(&m) == 0);
    CHECK(mail_pairs(&m) == 0);
    CHECK_OK(tutti_all_reduce_async(m.in, m.in, FEW, TUTTI_UINT8, TUTTI_SUM, comm, device_stream(),
                                    NULL));
    CHECK(mail_read(&m) == 0);
    return mail_free(&m);
}

static int leave(const struct mail *m)
{
    device_settle();
    device_free(m->in);
    device_free(m->out);
    free(m->host);
    device_gpu()->ops->stream_destroy(device_gpu(), device_stream());
    device_gpu()->ops->close(device_gpu());
    return 0;
}

/* Rank 1 expects something else of rank 0 than that sends. */
static int mismatch(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct mail m;
    tutti_request *request = NULL;
    CHECK(mail_begin(comm, &m) == 0);
    if (m.rank == 0)
        CHECK_OK(tutti_send_async(m.in, FEW, TUTTI_INT32, 1, comm, device_stream(), NULL));
    if (m.rank == 1) {
        CHECK_OK(tutti_recv_async(m.out, FEW + 1, TUTTI_INT32, 0, comm, device_stream(), &request));
        CHECK(tutti_wait(request) == TUTTI_ERR_MISMATCH);
        CHECK(strstr(tutti_last_error(), "rank 0 (") && strstr(tutti_last_error(), "count 100,") &&
              strstr(tutti_last_error(), "count 101,"));
    }
    while (tutti_comm_error(comm) == TUTTI_OK)
        usleep(1000);
    return leave(&m);
}

/* The last rank does not call its side of a message, or dies, or gives up. */
enum absence { STAYS_AWAY, DIES, ABORTS };

static int absent(tutti_comm *comm, void *argument)
{
    const enum absence how = *(const enum absence *)argument;
    struct mail m;
    tutti_request *request = NULL;
    char name[32];
    CHECK(mail_begin(comm, &m) == 0);
    const int gone = m.ranks - 1;
    CHECK_OK(tutti_barrier(comm));
    CHECK(tti_ranks_together());
    snprintf(name, sizeof name, "rank %d (", gone);
    if (m.rank == gone && how == DIES)
        _exit(0);
    if (m.rank == gone && how == ABORTS)
        tutti_comm_abort(comm, "the test says so");
    if (m.rank == 0) {
        /* It may be known already when the call is made. */
        enum tutti_result result =
            tutti_recv_async(m.out, FEW, TUTTI_INT32, gone, comm, device_stream(), &request);
        if (result == TUTTI_OK)
            result = tutti_wait(request);
        CHECK(result == (how == STAYS_AWAY ? TUTTI_ERR_TIMEOUT
                         : how == DIES     ? TUTTI_ERR_PEER
                                           : TUTTI_ERR_ABORTED));
        CHECK(strstr(tutti_last_error(), name));
    }
    while (tutti_comm_error(comm) == TUTTI_OK)
        usleep(1000);
    return leave(&m);
}

/* ---- all of it ---- */

int main(int argc, char **argv)
{
    static const char *const paths[] = {"window", "coupled"};
    struct tti_ranks how = {.options = TUTTI_OPTIONS_INIT,
                            .processes = argc > 1 && strcmp(argv[1], "processes") == 0};
    enum absence away = STAYS_AWAY, dies = DIES, aborts = ABORTS;
    const bool few = argc > 1 && strcmp(argv[1], "few") == 0;
    int bad = 0;
    for (int p = 0; p < 2; p++) {
        how.options.timeout_s = 60;
        for (how.ranks = 2; how.ranks <= (few ? 2 : 4); how.ranks++)
            bad |= device_ranks("traffic", paths[p], how, traffic, NULL);
        how.ranks = few ? 2 : 3;
        bad |= device_ranks("many", paths[p], how, many, NULL);
        bad |= device_ranks("captured", paths[p], how, captured, NULL);
        how.ranks = 2;
        bad |= device_ranks("batched differently", paths[p], how, batched, NULL);
        how.ranks = few ? 2 : 3;
        bad |= device_ranks("refused", paths[p], how, refused, NULL);
        bad |= device_ranks("nothing", paths[p], how, nothing, NULL);
        bad |= device_ranks("before mapping", paths[p], how, before_mapping, NULL);
        if (few)
            continue;
        bad |= device_ranks("both sides differ", paths[p], how, mismatch, NULL);
        bad |= device_ranks("a rank aborts", paths[p], how, absent, &aborts);
        if (how.processes)
            bad |= device_ranks("a rank dies", paths[p], how, absent, &dies);
        how.options.timeout_s = 6;
        bad |= device_ranks("a rank does not come", paths[p], how, absent, &away);
    }
    return bad;
}
