/* One rank cannot make its part of a window: it has no descriptor for its board, or something
 * breaks when the connections are up already. All ranks are told at once, by its name, none keeps a
 * post, and the next window works. Ranks are threads, over shm processes (ThreadSanitizer does not
 * see what goes through memory that is mapped twice). */
#include "coll/board.h"
#include "coll/comm.h"
#include "coll/post.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"
#include "tutti/windows.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS = 3, WORDS = 1000 };
enum fault { NO_FAULT, NO_BOARD, NO_POST };

static _Thread_local enum fault fault; /* of this rank */
static enum fault planted;             /* of some rank: the same everywhere */

enum tutti_result __real_tti_board_make(int ranks, int holders, struct tti_board **board);
enum tutti_result __wrap_tti_board_make(int ranks, int holders, struct tti_board **board);
enum tutti_result __wrap_tti_board_make(int ranks, int holders, struct tti_board **board)
{
    if (fault == NO_BOARD)
        return TTI_FAIL(TUTTI_ERR_SYSTEM, "no descriptors, says the test");
    return __real_tti_board_make(ranks, holders, board);
}

enum tutti_result __real_tti_post_open(struct tutti_comm *comm, struct tutti_comm *wire,
                                       struct tti_board *board, struct tti_post **post);
enum tutti_result __wrap_tti_post_open(struct tutti_comm *comm, struct tutti_comm *wire,
                                       struct tti_board *board, struct tti_post **post);
enum tutti_result __wrap_tti_post_open(struct tutti_comm *comm, struct tutti_comm *wire,
                                       struct tti_board *board, struct tti_post **post)
{
    struct tti_post *made = NULL;
    TTI_TRY(__real_tti_post_open(comm, wire, board, &made));
    if (planted == NO_POST && !tti_ranks_together()) /* connected on all */
        fault = NO_FAULT;
    if (fault == NO_POST) {
        tti_post_close(made);
        return TTI_FAIL(TUTTI_ERR_SYSTEM, "no thread, says the test");
    }
    *post = made;
    return TUTTI_OK;
}

static int fails(tutti_comm *comm, uint32_t *memory, int culprit)
{
    tutti_window *window = NULL;
    char name[32];
    fault = tutti_comm_rank(comm) == culprit ? planted : NO_FAULT;
    const enum tutti_result result =
        tutti_window_create(memory, WORDS * sizeof *memory, comm, &window);
    fault = NO_FAULT;
    snprintf(name, sizeof name, "rank %d (", culprit);
    CHECK(!window && !comm->post);
    if (tutti_comm_rank(comm) == culprit)
        CHECK(result == TUTTI_ERR_SYSTEM && strstr(tutti_last_error(), "says the test"));
    else
        CHECK(result == TUTTI_ERR_PEER && strstr(tutti_last_error(), name) &&
              strstr(tutti_last_error(), "could not make its part"));
    CHECK_OK(tutti_barrier(comm));
    return 0;
}

static int works(tutti_comm *comm, uint32_t *memory)
{
    const int rank = tutti_comm_rank(comm), next = (rank + 1) % RANKS;
    const uint32_t last = (uint32_t)((rank + RANKS - 1) % RANKS);
    uint32_t in[WORDS];
    tutti_window *window = NULL;
    for (uint32_t i = 0; i < WORDS; i++)
        in[i] = (uint32_t)rank * WORDS + i;
    CHECK_OK(tutti_window_create(memory, WORDS * sizeof *memory, comm, &window));
    CHECK_OK(tutti_put(in, WORDS, TUTTI_UINT32, next, window, 0, 5));
    CHECK_OK(tutti_wait_signal((int)last, 5, 1, comm));
    for (uint32_t i = 0; i < WORDS; i++)
        CHECK(memory[i] == last * WORDS + i);
    CHECK_OK(tutti_barrier(comm)); /* nobody puts any more */
    tutti_window_destroy(window);
    return 0;
}

static int everything(tutti_comm *comm, void *argument)
{
    uint32_t *memory = calloc(WORDS, sizeof *memory);
    (void)argument;
    CHECK(memory);
    for (int culprit = 0; culprit < RANKS; culprit++)
        if (fails(comm, memory, culprit))
            return 1;
    const int failed = works(comm, memory);
    free(memory);
    return failed;
}

int main(void)
{
    static const char *const transports[] = {"inproc", "shm", "tcp"};
    int failed = 0;
    for (size_t t = 0; t < sizeof transports / sizeof *transports; t++)
        for (planted = NO_BOARD; planted <= NO_POST; planted++) {
            struct tti_ranks how = {.ranks = RANKS, .options = TUTTI_OPTIONS_INIT};
            how.options.transports = transports[t];
            how.processes = strcmp(transports[t], "shm") == 0;
            how.options.timeout_s = 60;
            failed += tti_ranks_run(&how, everything, NULL);
        }
    printf("windows that one rank cannot make: %s\n", failed ? "FAILED" : "ok");
    return failed ? 1 : 0;
}
