/* Ways to break a plan, for the tests of what the verifier finds. */
#ifndef TTI_TESTS_MUTATE_H
#define TTI_TESTS_MUTATE_H

#include "tests/plan/direct_plans.h"

enum mutation {
    DROP,
    DUPLICATE,
    SWAP_WITH_NEXT,
    MOVE_TO_END,
    SWAP_LANES,
    MOVE_TO_OTHER_LANE,
    FROM_UP,
    FROM_DOWN,
    TO_UP,
    TO_DOWN,
    SWAP_PEERS,
    FROM_SELF,
    CHUNK_UP,
    CHUNK_DOWN,
    CHUNK_WITHOUT_REFS,
    NCHUNKS_UP,
    NCHUNKS_ZERO,
    TOGGLE_FORWARD,
    TOGGLE_FINAL,
    TOGGLE_ACC,
    TOGGLE_LEFT,
    UNKNOWN_FLAG,
    KIND_COPY,
    KIND_REDUCE,
    KIND_SEND,
    KIND_RECV,
    KIND_RECV_REDUCE,
    SRC_UP,
    DST_UP,
    SRC_IN,
    SRC_OUT,
    SRC_SLOT,
    SRC_OTHER_SLOT,
    DST_IN,
    DST_OUT,
    DST_SLOT,
    DST_OTHER_SLOT,
    DST_SCRATCH,
    CLEAR_HAZARD,
    LOWER_HAZARD,
    MUTATIONS,
};

extern const char *const mutation_name[MUTATIONS];

/* Where, and how. */
struct site {
    int rank, lane;
    size_t step;
    enum mutation mutation;
};

/* Break the set, and work out hazards and peers again, as for an algorithm with that mistake (but
 * where the hazard is the mistake); false when the mutation changes nothing there. */
bool mutate(struct plan_set *set, const struct site *site);

#endif
