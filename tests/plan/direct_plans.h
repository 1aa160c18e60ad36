/* Plans written by hand for the tests of the verifier: everybody sends straight to whoever needs
 * it. Right by inspection, and never meant to be fast. */
#ifndef TTI_TESTS_DIRECT_PLANS_H
#define TTI_TESTS_DIRECT_PLANS_H

#include "plan/plan.h"

/* A direct algorithm for the collective (one lane, two chunks a block); never NULL. */
const struct tti_algorithm *direct_algorithm(enum tutti_collective collective);

/* All ranks' plans of an algorithm; the test fails if one cannot be built. */
struct plan_set {
    int nranks;
    struct tti_plan *plans[16];
};
void plan_set_build(struct plan_set *set, const struct tti_algorithm *algorithm, int nranks,
                    int root, int lanes);
void plan_set_destroy(struct plan_set *set);
/* Work out hazards and peers again after steps were changed by hand. */
void plan_set_finish(struct plan_set *set, int rank);

#endif
