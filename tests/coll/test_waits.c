/* Who is named when a deadline passes: the rank that does not take what it is sent, though it may
 * have sent all of its own. By the executor and by small programs.
 *
 * Ranks are threads. Rank 1 stands still: it makes no call, or its transport shows it nothing. */
#include "coll/comm.h"
#include "tests/integration/ranks.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Atomic int over;  /* rank 0 has its error */
static _Atomic int there; /* ranks that are where they stay until then */

static void wait_for(const _Atomic int *count, int least)
{
    while (atomic_load(count) < least)
        (void)poll(NULL, 0, 1);
}

static int expect(enum tutti_result result, const char *words)
{
    int bad = result != TUTTI_ERR_TIMEOUT || !strstr(tutti_last_error(), words);
    if (bad)
        fprintf(stderr, "\"%s\" expected: %d, %s\n", words, (int)result, tutti_last_error());
    atomic_store(&over, 1);
    return bad;
}

static void stand_still(void)
{
    wait_for(&over, 1);
}

/* The root runs ahead until the rings are full. */
static int full_rings(tutti_comm *comm, void *argument)
{
    enum { COUNT = 2000, MOST = 10000 };
    enum tutti_result result = TUTTI_OK;
    float *x = calloc(COUNT, sizeof *x);
    comm->settings.fast = argument != NULL;
    int bad = !x || tutti_broadcast(x, x, COUNT, TUTTI_FLOAT32, 0, comm) != TUTTI_OK;
    atomic_fetch_add(&there, 1);
    if (comm->rank == 1) {
        stand_still();
    } else if (!bad) {
        wait_for(&there, 2); /* it is through with the first one, which a failure would end */
        comm->settings.timeout_s = 0.3;
        for (int i = 0; i < MOST && result == TUTTI_OK; i++)
            result = tutti_broadcast(x, x, COUNT, TUTTI_FLOAT32, 0, comm);
        bad = expect(result, "stuck sending to rank 1 ");
    }
    free(x);
    return bad;
}

/* Ranks 1 and 2 look for what rank 0 sent once they have sent all of their own; rank 1 sees
 * nothing. */
static _Atomic int looks[3];
static const struct tutti_transport_ops *seeing; /* of rank 2 */

static enum tutti_result sees_nothing(void *endpoint, int lane, uint64_t *tag, const void **data,
                                      size_t *bytes)
{
    (void)endpoint, (void)lane, (void)tag, (void)data;
    atomic_fetch_add(&looks[1], 1);
    *bytes = 0;
    return TUTTI_OK;
}

static enum tutti_result receives_nothing(void *endpoint, int lane, uint64_t *tag, void *into,
                                          size_t bytes, size_t *taken)
{
    (void)endpoint, (void)lane, (void)tag, (void)into, (void)bytes;
    atomic_fetch_add(&looks[1], 1);
    *taken = 0;
    return TUTTI_OK;
}

static enum tutti_result sees(void *endpoint, int lane, uint64_t *tag, const void **data,
                              size_t *bytes)
{
    atomic_fetch_add(&looks[2], 1);
    return seeing->peek(endpoint, lane, tag, data, bytes);
}

static enum tutti_result receives(void *endpoint, int lane, uint64_t *tag, void *into, size_t bytes,
                                  size_t *taken)
{
    atomic_fetch_add(&looks[2], 1);
    return seeing->receive(endpoint, lane, tag, into, bytes, taken);
}

/* Rank 1 has sent its input to all but takes none of rank 0's. In place: rank 0 may not write the
 * result before that, and so does not take the message of rank 2, which is there. */
static int untaken_input(tutti_comm *comm, void *argument)
{
    enum { COUNT = 65536, LOOKS = 100 };
    struct tutti_transport_ops other;
    float *x = NULL;
    (void)argument;
    if (tutti_alloc(COUNT * sizeof *x, (void **)&x) != TUTTI_OK)
        return 1;
    memset(x, 0, COUNT * sizeof *x);
    int bad = tutti_all_reduce(x, x, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm) != TUTTI_OK;
    struct tti_link *link = &comm->links.all[0];
    const struct tutti_transport_ops *own = link->ops;
    if (comm->rank == 2)
        seeing = own;
    if (comm->rank > 0) {
        other = *own;
        other.peek = comm->rank == 1 ? sees_nothing : sees;
        other.receive = comm->rank == 1 ? receives_nothing : receives;
        link->ops = &other;
    }
    atomic_fetch_add(&there, 1);
    wait_for(&there, 3); /* nobody is in the first one, which a failure would end */
    for (int r = 1; r < 3 && comm->rank == 0; r++)
        wait_for(&looks[r], LOOKS);
    comm->settings.timeout_s = comm->rank == 0 ? 0.3 : 60;
    enum tutti_result result = tutti_all_reduce(x, x, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm);
    if (comm->rank == 0)
        bad |= expect(result, "stuck sending to rank 1 ");
    stand_still();
    if (comm->rank > 0)
        link->ops = own;
    tutti_free(x);
    return bad;
}

int main(void)
{
    static char yes[] = "small programs";
    int failed = 0;
    struct tti_ranks how = {.ranks = 2, .options = TUTTI_OPTIONS_INIT};
    how.options.transports = "shm";
    setenv("TUTTI_SHM_SLOTS", "2", 1);
    setenv("TUTTI_SHM_SLOT_BYTES", "4096", 1);
    for (int small = 0; small < 2; small++) {
        atomic_store(&over, 0);
        atomic_store(&there, 0);
        failed += tti_ranks_run(&how, full_rings, small ? yes : NULL);
    }
    atomic_store(&over, 0);
    atomic_store(&there, 0);
    how.ranks = 3;
    how.options.algorithms = "all_reduce=one_shot";
    failed += tti_ranks_run(&how, untaken_input, NULL);
    printf("%s\n", failed ? "FAILED" : "ok");
    return failed ? 1 : 0;
}
