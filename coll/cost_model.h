/* What an operation would take by one way of doing it: an algorithm, who runs it, so many lanes.
 *
 * A sum of four parts: the call; the messages that wait for one another (the algorithm's closed
 * formula, with the medium's latency and, on sockets, its seconds a byte); the steps of the busiest
 * rank's plan; and the bytes that it reads and writes, each as slow as the cache level that all of
 * them fit into. With more ranks than cores the last two take turns, and calls and messages go
 * through the scheduler. On the fused path the plan's steps are not there, bytes that are written
 * count more than those that are read, and each cache level serves as many as it holds.
 *
 * Between hosts the bytes on the wire are not the formula's, which knows no hosts: ranks of a host
 * share its line, and what they tell each other does not use it. They are counted in the plans. */
#ifndef TTI_COLL_COST_MODEL_H
#define TTI_COLL_COST_MODEL_H

#include "coll/profile.h"
#include "coll/selection.h"

/* The communicator, as the model sees it. */
struct tti_cost_place {
    enum tti_medium medium;
    int most_local; /* ranks on the host with the most of them */
    double line;    /* between hosts: seconds a byte of a host's lines together; 0: not known */
    bool reads;     /* peers read in each other's memory what is lent, on one host */
    size_t ahead;   /* operations that a root gets ahead on the staged path (TUTTI_STAGED_AHEAD) */
};

/* A way of doing an operation. */
struct tti_cost_way {
    const struct tti_algorithm *algorithm;
    enum tti_path path;
    bool small; /* small_plan.h runs it, below its limit of bytes */
    struct tti_plan_spec spec;
    struct tti_work_model work; /* of the algorithm's plans (one lane) */
};

/* Do ranks outnumber the cores? */
bool tti_cost_crowded(const struct tti_profile *profile, const struct tti_cost_place *place);

/* Seconds for blocks of `bytes`. */
double tti_cost_seconds(const struct tti_profile *profile, const struct tti_cost_place *place,
                        const struct tti_cost_way *way, double bytes);

#endif
