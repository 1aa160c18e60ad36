/* A call on the fused path that comes again (coll/fused_again.c) cannot send one of its first
 * messages. Its caller gets the transport's error, which names the peer; it has its buffers back,
 * and its record; and the others hear of it at once, whether they wait for that message or, having
 * it, for the next one.
 *
 * Ranks are threads. The transport of rank 0 is the real one, but for sends to the rank that it
 * cannot reach. */
#include "coll/comm.h"
#include "coll/fused.h"
#include "coll/select.h"
#include "tests/fault/process_holdings.h"
#include "tests/integration/ranks.h"

#include <stdio.h>
#include <string.h>

enum { RANKS = 3, BEFORE = 4, COUNT = 1000, DEADLINE_S = 60 };

/* Of rank 0, in the call that fails. */
static _Thread_local struct {
    const struct tutti_transport_ops *ops; /* the transport's own */
    const void *cut;                       /* the endpoint that nothing can be sent to */
    const struct tti_peer *peer;           /* whose it is */
    int sends, fails, unmaps, withdrawals;
} seen;

static enum tutti_result send_if_not_cut(void *endpoint, int lane, uint64_t tag, const void *data,
                                         size_t bytes, size_t *accepted)
{
    seen.sends++;
    if (endpoint != seen.cut)
        return seen.ops->send(endpoint, lane, tag, data, bytes, accepted);
    seen.fails++;
    return TTI_FAIL(TUTTI_ERR_LINK, "rank %d (%s): the line is cut", seen.peer->public.rank,
                    seen.peer->public.name);
}

static void unmap(void *endpoint)
{
    seen.unmaps++;
    seen.ops->unmap(endpoint);
}

static enum tutti_result withdraw(void *endpoint, int wait_ms)
{
    seen.withdrawals++;
    return seen.ops->withdraw(endpoint, wait_ms);
}

static int bad(const char *what, enum tutti_result result)
{
    fprintf(stderr, "%s; %d: %s\n", what, (int)result, tutti_last_error());
    return 1;
}

static enum tutti_result call(tutti_comm *comm, float *x)
{
    return tutti_all_reduce(x, x, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm);
}

/* Is it the error of rank 0's transport and its call? All ranks have the same. */
static bool is_told(enum tutti_result result, int cut)
{
    char name[20];
    snprintf(name, sizeof name, "rank %d (", cut);
    return result == TUTTI_ERR_LINK && strstr(tutti_last_error(), name) &&
           strstr(tutti_last_error(), "the line is cut") &&
           strstr(tutti_last_error(), "all_reduce #5");
}

/* What rank 0 has done about it. */
static int undone(const tutti_comm *comm, enum tutti_result result, int cut)
{
    const struct tti_record_ring *records = &comm->recorder.ring[0];
    if (seen.fails != 1 || seen.sends != cut) /* the first one, or the second, and no more */
        return bad("not at the first messages", result);
    if (seen.unmaps != RANKS - 1 || seen.withdrawals != RANKS - 1)
        return bad("not all have let go of the buffers", result);
    if (records->next != BEFORE + 1 || records->first != records->next ||
        tti_record_last_path(records) != TTI_RECORD_FUSED)
        return bad("not one record, of the fused path, that has an end", result);
    return 0;
}

/* Rank 0 cannot reach the rank `cut`. */
static int cut_off(tutti_comm *comm, float *x, int cut)
{
    const struct tti_operation o = {
        .collective = TUTTI_ALL_REDUCE, .in = x, .out = x, .count = COUNT, .type = TUTTI_FLOAT32};
    struct tutti_transport_ops ops = *comm->links.all[cut].ops;
    if (!tti_fused_find(comm, &o))
        return bad("it would not be one that comes again", TUTTI_OK);
    memset(&seen, 0, sizeof seen);
    seen.ops = comm->links.all[cut].ops;
    seen.cut = comm->links.all[cut].endpoint;
    seen.peer = &comm->peers.all[cut];
    ops.send = send_if_not_cut;
    ops.unmap = unmap;
    ops.withdraw = withdraw;
    for (int p = 1; p < RANKS; p++)
        comm->links.all[p].ops = &ops;
    const enum tutti_result result = call(comm, x);
    int failed = is_told(result, cut) ? undone(comm, result, cut) : bad("another error", result);
    /* It is the communicator's error from here on, and nobody has kept the turn. */
    if (call(comm, x) != TUTTI_ERR_LINK || !strstr(tutti_last_error(), "the line is cut"))
        failed = bad("another error the next time", result);
    for (int p = 1; p < RANKS; p++)
        comm->links.all[p].ops = seen.ops;
    return failed;
}

static int rank(tutti_comm *comm, void *argument)
{
    const int *cut = argument;
    float *x = NULL;
    if (tutti_alloc(COUNT * sizeof *x, (void **)&x) != TUTTI_OK)
        return 1;
    memset(x, 0, COUNT * sizeof *x);
    comm->settings.fast = true;
    comm->settings.fused_from = 0;
    comm->settings.fused_forced = true;
    tti_select_try(comm, NULL);
    enum tutti_result result = TUTTI_OK;
    for (int i = 0; i < BEFORE && result == TUTTI_OK; i++)
        result = call(comm, x);
    int failed = result != TUTTI_OK || comm->repeats == 0
                     ? bad("a call before did not take the short way", result)
                     : 0;
    if (!tti_ranks_together() || failed)
        failed = 1;
    else if (comm->rank == 0)
        failed = cut_off(comm, x, *cut);
    else if (!is_told(result = call(comm, x), *cut))
        failed = bad("did not hear what has befallen rank 0", result);
    tutti_free(x);
    return failed;
}

int main(void)
{
    static const char *const transports[] = {"inproc", "shm"};
    struct process_holdings before = {0};
    int failed = 0;
    for (int again = 0; again < 2; again++)
        for (size_t t = 0; t < sizeof transports / sizeof *transports; t++)
            for (int cut = 1; cut < RANKS; cut++) {
                struct tti_ranks how = {.ranks = RANKS, .options = TUTTI_OPTIONS_INIT};
                how.options.transports = transports[t];
                how.options.algorithms = "all_reduce=two_shot";
                how.options.timeout_s = DEADLINE_S;
                failed += tti_ranks_run(&how, rank, &cut);
                const struct process_holdings now = process_holdings(before.threads);
                if (again == 0)
                    before = now; /* what is kept for the process is there now */
                else if (now.files != before.files || now.threads != before.threads ||
                         now.segments != before.segments)
                    failed += fprintf(stderr,
                                      "%s, rank %d: %ld files, %ld threads, %ld segments are held, "
                                      "before it %ld, %ld, %ld\n",
                                      transports[t], cut, now.files, now.threads, now.segments,
                                      before.files, before.threads, before.segments) > 0;
            }
    printf("sends that fail: %s\n", failed ? "FAILED" : "told to all");
    return failed ? 1 : 0;
}
