/* A schedule: what a few ranks do, and what goes wrong meanwhile, all drawn from (seed, index). It
 * is run with threads as ranks over the fault transport, and judged: nothing hangs; who has no
 * error has the right result; who has one is told of whom.
 *
 * Read explore.c (the program), schedule_draw.c, schedule_run.c (running), schedule_judge.c.
 */
#ifndef TTI_TESTS_SCHEDULE_H
#define TTI_TESTS_SCHEDULE_H

#include "coll/operation.h"
#include "transport/fault/fault.h"

enum { SCHEDULE_RANKS = 4, SCHEDULE_OPERATIONS = 3, SCHEDULE_TEXT = 400 };
enum { SCHEDULE_PATIENCE = 30 }; /* seconds: more than any machine needs */

enum schedule_trouble {
    TROUBLE_NONE, /* late and out of order only */
    TROUBLE_KILL,
    TROUBLE_STALL,
    TROUBLE_DROP,
    TROUBLE_TRUNCATE,
    TROUBLE_FORGE,
    TROUBLE_CORRUPT,
    TROUBLE_LOSE,
    TROUBLE_KINDS,
};

struct schedule {
    uint64_t seed, index;
    int ranks, lanes, operations;
    enum tutti_collective collective;
    const char *algorithm; /* NULL: chosen */
    size_t count;
    enum tutti_type type;
    int root;
    bool fast, fused, library_memory, shrinks;
    enum schedule_trouble trouble;
    int victim;                /* of what befalls one rank */
    uint64_t step;             /* of a death or standstill */
    double timeout_s;          /* of an operation */
    char fault[SCHEDULE_TEXT]; /* TUTTI_FAULT */
};

/* What came of a rank. */
struct schedule_end {
    enum tutti_result result;
    char text[TTI_ERROR_TEXT_BYTES];
    double seconds; /* from the call that failed to its error */
    size_t wrong;   /* elements of results that are not what they must be */
    bool shrink_failed;
    struct fault_counts counts; /* of the first communicator */
};

/* What came of all of it. */
struct schedule_verdict {
    bool good, trouble, died;
    bool slow; /* nothing went wrong but the time: its deadline was too short for this machine */
    int errors, named; /* ranks with an error; of these, that name the culprit */
    double longest;    /* until an error */
    uint64_t steps;    /* of the victim */
    char why[TTI_ERROR_TEXT_BYTES + SCHEDULE_TEXT];
    char nameless[TTI_ERROR_TEXT_BYTES + SCHEDULE_TEXT]; /* an error that names another than him */
};

/* `over`: the transport that carries. */
void schedule_draw(uint64_t seed, uint64_t index, const char *over, struct schedule *schedule);
/* The death of `victim` at its `step`-th fragment, in two small all-reduces. */
void schedule_death(const char *over, int ranks, const char *algorithm, bool fast, int victim,
                    uint64_t step, struct schedule *schedule);
/* One line. Returns `text`. */
const char *schedule_text(const struct schedule *schedule, char *text, size_t room);

/* Run it. False when it has not ended after `limit_s`: its threads are still there then. */
bool schedule_run(const struct schedule *schedule, double limit_s, struct schedule_end *ends);
void schedule_judge(const struct schedule *schedule, const struct schedule_end *ends,
                    struct schedule_verdict *verdict);

/* Element `i` of what `rank` gives to an operation; and as it must be in a result of `rank`. */
int schedule_input(int rank, int operation, size_t i);
int schedule_expected(const struct schedule *schedule, int rank, int operation, size_t i);
/* Elements of a rank's result that count; 0 where it has none. */
size_t schedule_results(const struct schedule *schedule, int rank);

#endif
