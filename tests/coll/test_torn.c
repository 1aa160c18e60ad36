/* A peer whose message breaks off within an element, which no Tutti sends: refused at once and by
 * name, though its tag is right. By small programs and by the executor, where the message is
 * combined and where it is received into place, over every transport.
 *
 * Ranks are threads. Rank 1 makes the first calls as it should, then puts bytes on the link. */
#include "coll/comm.h"
#include "coll/select.h"
#include "tests/integration/ranks.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 4, ELEMENT = 4, ROOT = 1, LIMIT_SECONDS = 200 };

struct torn {
    enum tutti_collective collective;
    bool fast;
};

static enum tutti_result call(const struct torn *torn, float *x, tutti_comm *comm)
{
    return torn->collective == TUTTI_BROADCAST
               ? tutti_broadcast(x, x, COUNT, TUTTI_FLOAT32, ROOT, comm)
               : tutti_all_reduce(x, x, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm);
}

/* Three bytes of a float, under the tag of the operation that rank 0 runs. */
static int tear(tutti_comm *comm, const struct tti_operation *o)
{
    static const char bytes[ELEMENT - 1] = {0x61, 0x62, 0x63};
    struct tti_link *link = &comm->links.all[0];
    struct tti_selection selection;
    size_t accepted = 0;
    if (tti_select_plan(comm, o->collective, o->count, o->type, o->root, &selection) != TUTTI_OK ||
        link->ops->send(link->endpoint, 0,
                        tti_tag_numbered(tti_tag(o, selection.index), comm->sequence + 1), bytes,
                        sizeof bytes, &accepted) != TUTTI_OK)
        return 1;
    link->queues[0].accepted += accepted;
    /* Rank 0's failure comes by itself. No call here: it would meet what rank 0 sent for its own,
     * and tell of a mismatch, perhaps before rank 0 has looked. */
    while (accepted == sizeof bytes && tutti_comm_error(comm) == TUTTI_OK)
        (void)poll(NULL, 0, 5);
    return accepted != sizeof bytes;
}

static int rank(tutti_comm *comm, void *argument)
{
    const struct torn *torn = argument;
    const struct tti_operation o = {.collective = torn->collective,
                                    .count = COUNT,
                                    .type = TUTTI_FLOAT32,
                                    .op = TUTTI_SUM,
                                    .root = torn->collective == TUTTI_BROADCAST ? ROOT : 0};
    float x[COUNT] = {1, 2, 3, 4};
    comm->settings.fast = torn->fast;
    for (int i = 0; i < 2; i++)
        if (call(torn, x, comm) != TUTTI_OK)
            return 1;
    if (comm->rank == 1)
        return tear(comm, &o);
    const enum tutti_result result = call(torn, x, comm);
    if (result == TUTTI_ERR_PROTOCOL && strstr(tutti_last_error(), "rank 1 (") &&
        strstr(tutti_last_error(), "3 bytes"))
        return 0;
    return fprintf(stderr, "a torn message gave %d: %s\n", (int)result, tutti_last_error()), 1;
}

int main(void)
{
    static const char *const transports[] = {"inproc", "shm", "tcp"};
    static const struct torn all[] = {{TUTTI_ALL_REDUCE, true},
                                      {TUTTI_ALL_REDUCE, false},
                                      {TUTTI_BROADCAST, true},
                                      {TUTTI_BROADCAST, false}};
    int failed = 0;
    alarm(LIMIT_SECONDS); /* a receiver that takes nothing for something turns for ever */
    setenv("TUTTI_FUSED_FROM", "1G", 1);
    for (size_t t = 0; t < sizeof transports / sizeof *transports; t++)
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            struct torn torn = all[i];
            struct tti_ranks how = {.ranks = 2, .options = TUTTI_OPTIONS_INIT};
            how.options.transports = transports[t];
            how.options.timeout_s = LIMIT_SECONDS;
            failed += tti_ranks_run(&how, rank, &torn);
        }
    printf("torn messages: %s\n", failed ? "FAILED" : "refused");
    return failed ? 1 : 0;
}
