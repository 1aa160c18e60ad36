/* Groups of more messages than a launch has room for among its arguments (coll/gpu/gpu_message.c):
 * nothing of a group waits for anything else of it, in whatever order its partners call their
 * sides; the list is written anew by each replay of a graph; and there is a bound, which is told.
 *     test_gpu_groups threads | processes
 */
#include "coll/comm.h"
#include "coll/door.h"
#include "coll/gpu/gpu_map.h"
#include "tests/integration/device_calls.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CROWD = 2 * TTI_MESSAGES + 9, REPLAYS = 3 };

struct seat {
    tutti_comm *comm;
    int rank, ranks;
    int32_t *in, *out, *host; /* CROWD + 1 words */
};

/* Device memory is mapped by the first collective on it. */
static int seat_begin(tutti_comm *comm, struct seat *s)
{
    const size_t bytes = (CROWD + 1) * sizeof *s->host;
    *s = (struct seat){.comm = comm, .rank = tutti_comm_rank(comm), .ranks = tutti_comm_size(comm)};
    CHECK(device_begin(s->rank) == 0);
    s->in = device_memory(bytes);
    s->out = device_memory(bytes);
    s->host = calloc(1, bytes);
    CHECK(s->in && s->out && s->host);
    CHECK_OK(tutti_barrier_async(comm, device_stream(), NULL));
    CHECK_OK(device_settle());
    return 0;
}

static int seat_end(struct seat *s)
{
    CHECK_OK(device_settle());
    device_free(s->in);
    device_free(s->out);
    free(s->host);
    return device_end(s->comm);
}

static int seat_write(struct seat *s, int turn)
{
    for (int i = 0; i <= CROWD; i++)
        s->host[i] = s->rank * 10000 + turn * 1000 + i;
    CHECK_OK(device_copy(s->in, s->host, (CROWD + 1) * sizeof *s->host));
    CHECK_OK(device_gpu()->ops->fill(device_gpu(), s->out, 0x5a, (CROWD + 1) * sizeof *s->host,
                                     device_stream()));
    CHECK_OK(device_settle());
    return 0;
}

/* The words from `first` on are those of rank `from`. */
static int seat_read(struct seat *s, int first, int count, int from, int turn)
{
    CHECK_OK(device_copy(s->host, s->out, (CROWD + 1) * sizeof *s->host));
    CHECK_OK(device_settle());
    for (int i = first; i < first + count; i++)
        CHECK(s->host[i] == from * 10000 + turn * 1000 + i);
    return 0;
}

static enum tutti_result seat_send(const struct seat *s, int i, int to)
{
    return tutti_send_async(s->in + i, 1, TUTTI_INT32, to, s->comm, device_stream(), NULL);
}

static enum tutti_result seat_receive(const struct seat *s, int i, int from)
{
    return tutti_recv_async(s->out + i, 1, TUTTI_INT32, from, s->comm, device_stream(), NULL);
}

/* Rank 0 sends all its messages to rank 1, and receives one of the last rank, in one group. Each
 * other rank sends one to the next, round to rank 0, only after it has received: rank 1 all of rank
 * 0's. So rank 0 gets its one message last of all; the sends must not wait for it. */
static int circle_turn(struct seat *s)
{
    const int next = (s->rank + 1) % s->ranks, last = (s->rank + s->ranks - 1) % s->ranks;
    if (s->rank == 0) {
        CHECK_OK(tutti_group_start());
        CHECK_OK(seat_receive(s, CROWD, last));
        for (int i = 0; i < CROWD; i++)
            CHECK_OK(seat_send(s, i, next));
        CHECK_OK(tutti_group_end());
        return 0;
    }
    CHECK_OK(tutti_group_start());
    for (int i = 0; s->rank == 1 && i < CROWD; i++)
        CHECK_OK(seat_receive(s, i, last));
    if (s->rank > 1)
        CHECK_OK(seat_receive(s, CROWD, last));
    CHECK_OK(tutti_group_end());
    CHECK_OK(seat_send(s, CROWD, next));
    return 0;
}

static int circle_check(struct seat *s, int turn)
{
    const int last = (s->rank + s->ranks - 1) % s->ranks;
    return s->rank == 1 ? seat_read(s, 0, CROWD, last, turn) : seat_read(s, CROWD, 1, last, turn);
}

static int circle(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct seat s;
    CHECK(seat_begin(comm, &s) == 0);
    CHECK(seat_write(&s, 0) == 0);
    CHECK(circle_turn(&s) == 0);
    CHECK(circle_check(&s, 0) == 0);
    return seat_end(&s);
}

/* The same in a graph, and a group of others between its replays. */
static int replayed(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct seat s;
    CHECK(seat_begin(comm, &s) == 0);
    struct tti_gpu *gpu = device_gpu();
    struct tti_gpu_graph *graph = NULL;
    CHECK_OK(gpu->ops->capture_begin(gpu, device_stream()));
    CHECK(circle_turn(&s) == 0);
    CHECK_OK(gpu->ops->capture_end(gpu, device_stream(), &graph));
    const int next = (s.rank + 1) % s.ranks, last = (s.rank + s.ranks - 1) % s.ranks;
    for (int turn = 1; turn <= REPLAYS; turn++) {
        CHECK(seat_write(&s, turn) == 0);
        CHECK_OK(gpu->ops->graph_launch(graph, device_stream()));
        CHECK(circle_check(&s, turn) == 0);
        CHECK_OK(tutti_group_start());
        for (int i = CROWD - 1; i >= 0; i--) {
            CHECK_OK(seat_send(&s, i, next));
            CHECK_OK(seat_receive(&s, i, last));
        }
        CHECK_OK(tutti_group_end());
        CHECK(seat_read(&s, 0, CROWD, last, turn) == 0);
    }
    gpu->ops->graph_destroy(graph);
    return seat_end(&s);
}

/* More than there is room for is refused, and nothing of it is queued. */
static int refused(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct seat s;
    CHECK(seat_begin(comm, &s) == 0);
    const size_t most = comm->gpu->map->message_list;
    CHECK(most >= TTI_MESSAGES && most <= TTI_MESSAGES_MOST);
    CHECK_OK(tutti_group_start());
    for (size_t i = 0; i <= most; i++)
        CHECK_OK(seat_send(&s, 0, (s.rank + 1) % s.ranks));
    CHECK(tutti_group_end() == TUTTI_ERR_USAGE);
    CHECK(strstr(tutti_last_error(), "several groups"));
    CHECK(seat_write(&s, 0) == 0);
    CHECK(circle_turn(&s) == 0);
    CHECK(circle_check(&s, 0) == 0);
    return seat_end(&s);
}

/* Giving device memory back waits for the others: a group refuses it, and runs what it has. */
static int stays(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct seat s;
    CHECK(seat_begin(comm, &s) == 0);
    CHECK(seat_write(&s, 0) == 0);
    CHECK_OK(tutti_group_start());
    CHECK_OK(seat_send(&s, 0, (s.rank + 1) % s.ranks));
    CHECK_OK(seat_receive(&s, 0, (s.rank + s.ranks - 1) % s.ranks));
    CHECK(tti_comm_release_device(comm) == TUTTI_ERR_USAGE);
    CHECK(strstr(tutti_last_error(), "giving device memory back: not between tutti_group_start"));
    CHECK(comm->gpu->map);
    CHECK_OK(tutti_group_end());
    CHECK(seat_read(&s, 0, 1, (s.rank + s.ranks - 1) % s.ranks, 0) == 0);
    CHECK_OK(tti_comm_release_device(comm));
    CHECK(!comm->gpu->map);
    return seat_end(&s);
}

int main(int argc, char **argv)
{
    static const char *const paths[] = {"window", "coupled"};
    struct tti_ranks how = {.options = TUTTI_OPTIONS_INIT,
                            .processes = argc > 1 && strcmp(argv[1], "processes") == 0};
    how.options.timeout_s = 30;
    int bad = 0;
    for (int p = 0; p < 2; p++) {
        for (how.ranks = 3; how.ranks <= 4; how.ranks++)
            bad |= device_ranks("a circle", paths[p], how, circle, NULL);
        how.ranks = 3;
        bad |= device_ranks("device memory stays", paths[p], how, stays, NULL);
        bad |= device_ranks("replayed", paths[p], how, replayed, NULL);
        bad |= device_ranks("refused", paths[p], how, refused, NULL);
    }
    return bad;
}
