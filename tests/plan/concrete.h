/* All-reduce plans run on numbers, by a scheduler that picks lanes at random: the judge of what the
 * verifier lets pass. */
#ifndef TTI_TESTS_CONCRETE_H
#define TTI_TESTS_CONCRETE_H

#include "plan/plan.h"

/* Next number of a small generator (xorshift). */
uint64_t concrete_random(uint64_t *state);

/* Run well-formed all-reduce plans (n <= 8, lanes <= 4) to the end. `lazy`: messages are read from
 * the sender's memory when they are taken; otherwise a channel holds one. `ordered`: combined by an
 * operator that only the order of ranks, from the left, makes right. NULL when every rank ends with
 * the right numbers, else what went wrong. */
const char *concrete_all_reduce(struct tti_plan *const *plans, int nranks, bool lazy, bool in_place,
                                bool ordered, uint64_t *random);
/* The same out of place with contributions that are accumulators (plan/recast.h): they travel in
 * disguise, too, and nothing but a result, or a message that brings one, may go to OUT. */
const char *concrete_partial_all_reduce(struct tti_plan *const *plans, int nranks, bool lazy,
                                        uint64_t *random);

#endif
