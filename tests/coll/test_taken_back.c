/* A transport that shows the peer's own memory, and says when the bytes were used that the peer has
 * taken it back meanwhile: every way to run an operation asks, and ends in that error.
 *
 * Ranks are threads. Rank 0's links are made to say so from the third call on. That has another
 * buffer: a call like the last on the fused path may find that its peers have said what it expects
 * of them, each time when it looks first; then there is nothing that it must ask about. */
#include "coll/comm.h"
#include "coll/select.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 20000 };

struct way {
    const char *name, *transport, *algorithms;
    size_t count;
    enum tti_path path; /* STAGED, or what is taken where `fast` is or is not */
    bool fast;
};

static enum tutti_result taken_back(void *endpoint, int lane)
{
    (void)endpoint;
    (void)lane;
    return TTI_FAIL(TUTTI_ERR_PEER, "taken back, says the test");
}

/* The staged way of the operation, or NULL for what is chosen. */
static const struct tti_selection *staged(tutti_comm *comm, const struct way *way,
                                          struct tti_ways *ways)
{
    if (way->path == TTI_PATH_STAGED &&
        tti_select_ways(comm, TUTTI_ALL_REDUCE, way->count, TUTTI_FLOAT32, false, ways) == TUTTI_OK)
        for (int i = 0; i < ways->count; i++)
            if (ways->way[i].path == TTI_PATH_STAGED)
                return &ways->way[i];
    return NULL;
}

static int rank(tutti_comm *comm, void *argument)
{
    const struct way *way = argument;
    float *x = calloc(way->count, sizeof *x), *other = calloc(way->count, sizeof *other);
    struct tti_ways ways;
    CHECK(x && other);
    comm->settings.fast = way->fast;
    tti_select_try(comm, staged(comm, way, &ways));
    CHECK(way->path != TTI_PATH_STAGED || comm->trial);
    for (int i = 0; i < 2; i++)
        CHECK_OK(tutti_all_reduce(x, x, way->count, TUTTI_FLOAT32, TUTTI_SUM, comm));
    CHECK(tti_ranks_together());
    if (comm->rank == 0) {
        for (int p = 1; p < comm->size; p++)
            comm->links.all[p].intact = taken_back;
        CHECK(tutti_all_reduce(other, other, way->count, TUTTI_FLOAT32, TUTTI_SUM, comm) ==
              TUTTI_ERR_PEER);
        CHECK(strstr(tutti_last_error(), "taken back, says the test"));
    } else {
        (void)tutti_all_reduce(other, other, way->count, TUTTI_FLOAT32, TUTTI_SUM, comm);
    }
    CHECK(tti_ranks_together()); /* nobody leaves before rank 0 has its own error */
    tti_select_try(comm, NULL);
    free(x);
    free(other);
    return 0;
}

int main(void)
{
    static const struct way ways[] = {
        {"small programs", "tcp", NULL, 4, TTI_PATH_PLAN, true},
        {"the executor", "shm", "all_reduce=two_shot", 4, TTI_PATH_PLAN, false},
        {"the executor, passing on", "shm", "all_reduce=ring", MOST, TTI_PATH_PLAN, false},
        {"the staged path", "shm", NULL, MOST, TTI_PATH_STAGED, true},
        {"the fused path", "inproc", NULL, MOST, TTI_PATH_FUSED, true},
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct way way = ways[i];
        struct tti_ranks how = {.ranks = 3, .options = TUTTI_OPTIONS_INIT};
        how.options.transports = way.transport;
        how.options.algorithms = way.algorithms;
        how.options.timeout_s = 60;
        const int bad = tti_ranks_run(&how, rank, &way);
        printf("%s: %s\n", way.name, bad ? "FAILED" : "ok");
        failed += bad;
    }
    return failed ? 1 : 0;
}
