/* tutti-explore --soak: communicators are made, split, used, failed, aborted, shrunk and destroyed
 * in one process, over all transports by turns, for as long as asked; what the process holds must
 * not grow. Everything is drawn from a seed. */
#include "tests/fault/soak.h"

#include "base/clock.h"
#include "tests/fault/process_holdings.h"
#include "tests/integration/ranks.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SOAK_LIMIT = 120,          /* seconds for one round */
    SOAK_WARM_UP = 60,         /* rounds until everything that is kept is there */
    SOAK_LOOK_EVERY = 20,      /* rounds */
    SOAK_HEAP_MAY = 128 << 10, /* bytes: what the allocator and threads' caches keep, as it comes */
};

/* ---- splitting and aborting ----------------------------------------------------------------- */

static int soak_ranks(tutti_comm *comm, void *argument)
{
    const bool *aborts = argument;
    int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    float in[600], out[600];
    tutti_comm *part = NULL;
    tutti_request *request = NULL;
    for (int i = 0; i < 600; i++)
        in[i] = (float)(rank + i);
    if (tutti_comm_split(comm, rank % 2, -rank, &part) != TUTTI_OK ||
        tutti_all_reduce_async(in, out, 600, TUTTI_FLOAT32, TUTTI_MAX, part, NULL, &request) !=
            TUTTI_OK ||
        tutti_wait(request) != TUTTI_OK)
        return 1;
    enum tutti_result result = tutti_all_to_all(in, out, 600 / (size_t)size, TUTTI_FLOAT32, comm);
    if (!*aborts && result != TUTTI_OK)
        return 1;
    if (*aborts && rank == size - 1) /* the others may not be out of that call yet */
        tutti_comm_abort(comm, "soak");
    while (*aborts && result == TUTTI_OK)
        result = tutti_all_reduce(in, out, 600, TUTTI_FLOAT32, TUTTI_SUM, comm);
    tutti_comm_destroy(part);
    return *aborts && result != TUTTI_ERR_ABORTED && result != TUTTI_ERR_PEER;
}

static bool soak_split(uint64_t round, const char *over)
{
    struct tti_ranks how = {.ranks = 2 + (int)(round % 3), .options = TUTTI_OPTIONS_INIT};
    bool aborts = round % 2;
    how.options.transports = over;
    how.options.timeout_s = how.options.init_timeout_s = SOAK_LIMIT;
    unsetenv("TUTTI_FAULT");
    return tti_ranks_run(&how, soak_ranks, &aborts) == 0;
}

/* ---- rounds --------------------------------------------------------------------------------- */

/* False, with a line on stderr, when something is not as it must be. */
static bool soak_round(uint64_t seed, uint64_t round)
{
    static const char *const over[] = {"inproc", "shm", "tcp"};
    struct schedule s;
    struct schedule_end ends[SCHEDULE_RANKS];
    struct schedule_verdict verdict;
    char text[2 * SCHEDULE_TEXT];
    const char *carrier = over[round % 3];
    if (round % 4 == 3) {
        if (!soak_split(round / 4, carrier))
            return fprintf(stderr, "WRONG a split of round %llu\n", (unsigned long long)round),
                   false;
        return true;
    }
    schedule_draw(seed, round, carrier, &s);
    if (!schedule_run(&s, SOAK_LIMIT, ends)) {
        fprintf(stderr, "HANG  %s\n", schedule_text(&s, text, sizeof text));
        exit(1);
    }
    schedule_judge(&s, ends, &verdict);
    if (!verdict.good && !verdict.slow)
        fprintf(stderr, "WRONG %s\n      %s\n", schedule_text(&s, text, sizeof text), verdict.why);
    return verdict.good || verdict.slow;
}

static bool soak_same(const struct process_holdings *a, const struct process_holdings *b)
{
    return a->files == b->files && a->threads == b->threads && a->segments == b->segments &&
           b->heap <= a->heap + SOAK_HEAP_MAY;
}

static void soak_tell(uint64_t round, double seconds, const struct process_holdings *now)
{
    printf("%6.0f s, %llu communicators or groups of them: %ld descriptors, %ld threads, %ld "
           "segments, "
           "%.2f MiB of heap\n",
           seconds, (unsigned long long)round, now->files, now->threads, now->segments,
           (double)now->heap / (1 << 20));
    fflush(stdout);
}

int tti_soak(uint64_t seed, double seconds)
{
    uint64_t begin = tti_now_ns(), end = tti_deadline_in(seconds), round = 0;
    double told = 0;
    struct process_holdings before = {0}, now = {0};
    int wrong = 0;
    mallopt(M_ARENA_MAX, 1); /* arenas of threads that are gone are no leak */
    printf("soak of %.0f s, seed %llu\n", seconds, (unsigned long long)seed);
    while (round < SOAK_WARM_UP + SOAK_LOOK_EVERY || !tti_deadline_passed(end)) {
        wrong += !soak_round(seed, round++);
        if (round < SOAK_WARM_UP || round % SOAK_LOOK_EVERY)
            continue;
        now = process_holdings(1);
        if (round == SOAK_WARM_UP)
            before = now;
        if (!soak_same(&before, &now)) {
            fprintf(stderr,
                    "GROWN from %ld descriptors, %ld threads, %ld segments, %zu bytes to:\n",
                    before.files, before.threads, before.segments, before.heap);
            wrong++;
            before = now; /* once each */
            told = 0;
        }
        double passed = (double)(tti_now_ns() - begin) / 1e9;
        if (told == 0 || passed - told > seconds / 20)
            soak_tell(round, told = passed, &now);
    }
    soak_tell(round, (double)(tti_now_ns() - begin) / 1e9, &now);
    printf("%d wrong\n", wrong);
    return wrong ? 1 : 0;
}
