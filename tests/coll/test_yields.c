/* When a rank that shares its core offers it to others (coll/small_run.c, coll/staged.c): not
 * before it has looked often enough, nor when it has just got rid of something.
 *
 * Two ranks, threads on one core. What tti_exec_idle is called for is counted; the transport shows
 * or takes nothing as often as a case wants it, so nothing depends on who comes first. */
#include "coll/comm.h"
#include "coll/exec_internal.h"
#include "coll/select.h"
#include "tests/integration/ranks.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

/* Bytes: by a small program; staged; staged, and the root is held near its readers. */
enum { SHORT = 8, LONG = 16 << 10, NEAR = 64 << 10 };

/* Of this rank, in the operation that is looked at. */
static _Thread_local struct {
    const struct tutti_transport_ops *ops; /* the transport's own */
    tti_transport_send *lend;
    bool blind; /* until it is idle, it sees nothing */
    int refuse; /* offers that are not taken */
    int looks;  /* before it was idle */
    int offers, idles;
} seen;

enum tutti_result __real_tti_exec_idle(struct tti_executor *x, unsigned idle, uint64_t deadline);
enum tutti_result __wrap_tti_exec_idle(struct tti_executor *x, unsigned idle, uint64_t deadline);

enum tutti_result __wrap_tti_exec_idle(struct tti_executor *x, unsigned idle, uint64_t deadline)
{
    seen.idles++;
    return __real_tti_exec_idle(x, idle, deadline);
}

static bool sees_nothing(void)
{
    if (!seen.blind || seen.idles > 0)
        return false;
    seen.looks++;
    return true;
}

static enum tutti_result peek(void *endpoint, int lane, uint64_t *tag, const void **data,
                              size_t *bytes)
{
    *bytes = 0;
    return sees_nothing() ? TUTTI_OK : seen.ops->peek(endpoint, lane, tag, data, bytes);
}

static enum tutti_result receive(void *endpoint, int lane, uint64_t *tag, void *into, size_t bytes,
                                 size_t *taken)
{
    *taken = 0;
    return sees_nothing() ? TUTTI_OK : seen.ops->receive(endpoint, lane, tag, into, bytes, taken);
}

static enum tutti_result offer(tti_transport_send *own, void *endpoint, int lane, uint64_t tag,
                               const void *data, size_t bytes, size_t *accepted)
{
    *accepted = 0;
    return seen.offers++ < seen.refuse ? TUTTI_OK : own(endpoint, lane, tag, data, bytes, accepted);
}

static enum tutti_result sends(void *endpoint, int lane, uint64_t tag, const void *data,
                               size_t bytes, size_t *accepted)
{
    return offer(seen.ops->send, endpoint, lane, tag, data, bytes, accepted);
}

static enum tutti_result lends(void *endpoint, int lane, uint64_t tag, const void *data,
                               size_t bytes, size_t *accepted)
{
    return offer(seen.lend, endpoint, lane, tag, data, bytes, accepted);
}

static enum tutti_result call(tutti_comm *comm, enum tutti_collective collective, void *x,
                              size_t bytes)
{
    return collective == TUTTI_BROADCAST
               ? tutti_broadcast(x, x, bytes, TUTTI_UINT8, 0, comm)
               : tutti_reduce(x, x, bytes, TUTTI_UINT8, TUTTI_SUM, 0, comm);
}

/* One operation in which this rank, if it is `who`, sees nothing or is refused that often. */
static int watched(tutti_comm *comm, enum tutti_collective collective, size_t bytes, int who,
                   int refuse)
{
    static _Thread_local unsigned char x[NEAR];
    struct tti_link *link = &comm->links.all[1 - comm->rank];
    struct tutti_transport_ops ops;
    enum tutti_result result = tutti_barrier(comm);
    for (int i = 0; i < 2 && result == TUTTI_OK; i++) /* connected, and its program made */
        result = call(comm, collective, x, bytes);
    if (result == TUTTI_OK)
        result = tutti_barrier(comm);
    memset(&seen, 0, sizeof seen);
    ops = *link->ops;
    seen.ops = link->ops;
    seen.lend = link->lend;
    if (comm->rank == who) {
        seen.blind = refuse == 0;
        seen.refuse = refuse;
        ops.peek = peek;
        ops.receive = receive;
        ops.send = sends;
        link->ops = &ops;
        link->lend = lends;
    }
    if (result == TUTTI_OK)
        result = call(comm, collective, x, bytes);
    link->ops = seen.ops;
    link->lend = seen.lend;
    return result == TUTTI_OK ? 0 : (fprintf(stderr, "%s\n", tutti_last_error()), 1);
}

static int differs(const char *what, int got, int wanted)
{
    if (got == wanted)
        return 0;
    return fprintf(stderr, "%s: %d, not %d\n", what, got, wanted), 1;
}

/* Rank 1 sees nothing of a broadcast until it is idle: how often has it looked? */
static int looks_at_root(tutti_comm *comm, size_t bytes, int wanted)
{
    const int bad = watched(comm, TUTTI_BROADCAST, bytes, 1, 0);
    return bad || (comm->rank == 1 && differs("looks at a root", seen.looks, wanted));
}

/* Who follows a root that broadcasts looks through its hiccups; who waits for one that waits as
 * well lets it run. */
static int looks(tutti_comm *comm)
{
    int bad = looks_at_root(comm, SHORT, 16);
    bad = bad || watched(comm, TUTTI_REDUCE, SHORT, 0, 0);
    if (comm->rank == 0)
        bad = bad || differs("looks at a peer", seen.looks, 2);
    return bad;
}

/* Who is refused, and then not, does not offer its core: it may be through. Who is refused once
 * more does. */
static int offers(tutti_comm *comm, size_t bytes, const char *what)
{
    for (int refuse = 2; refuse <= 3; refuse++) {
        if (watched(comm, TUTTI_BROADCAST, bytes, 0, refuse))
            return 1;
        if (comm->rank == 0 &&
            (differs(what, seen.idles, refuse - 2) || differs("offers", seen.offers, refuse + 1)))
            return 1;
    }
    return 0;
}

static int yields(tutti_comm *comm, void *argument)
{
    (void)argument;
    if (looks(comm) || offers(comm, SHORT, "times idle"))
        return 1;
    struct tti_operation o = {.collective = TUTTI_BROADCAST, .count = LONG, .type = TUTTI_UINT8};
    struct tti_ways ways;
    if (tti_select_ways(comm, o.collective, o.count, o.type, false, &ways) != TUTTI_OK)
        return 1;
    const struct tti_selection *staged = NULL;
    for (int i = 0; i < ways.count; i++)
        staged = ways.way[i].path == TTI_PATH_STAGED ? &ways.way[i] : staged;
    if (!staged)
        return fprintf(stderr, "no staged way\n"), 1;
    tti_select_try(comm, staged);
    const int bad = offers(comm, LONG, "times idle, staged") ||
                    looks_at_root(comm, LONG, comm->profile.meshed ? 2 : 16) ||
                    looks_at_root(comm, NEAR, 2);
    tti_select_try(comm, NULL);
    /* Each of the four watched: two before it, itself, and two barriers. */
    return bad || differs("staged", (int)comm->staged, 4 * 5);
}

int main(void)
{
    struct tti_ranks how = {.ranks = 2, .options = TUTTI_OPTIONS_INIT};
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0)
        return perror("sched_setaffinity"), 1;
    how.options.transports = "shm";
    return tti_ranks_run(&how, yields, NULL) ? 1 : 0;
}
