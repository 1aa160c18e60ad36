/* The simulator: runs the plans of all ranks over a modelled network and predicts time.
 *
 * Model. A network of `nranks` ranks, `ranks_per_host` on each host. A message of b bytes between
 * ranks of one host occupies the sender's outgoing port and the receiver's incoming port for
 * b * intra.beta each; it leaves when the sender's port is free and arrives no earlier than
 * intra.alpha after it left. Between hosts the same holds with the host's shared network ports
 * (`nics` each way per host, ranks dealt to them evenly) and inter.alpha, inter.beta. A local
 * reduction costs b * gamma, a local copy b * delta. Steps of a lane run in order; sends are
 * asynchronous; a forwarding step sends when its message has arrived and been combined. */
#ifndef TTI_PLAN_SIMULATE_H
#define TTI_PLAN_SIMULATE_H

#include "plan/plan.h"

struct tti_link_model {
    double alpha; /* seconds of latency */
    double beta;  /* seconds per byte */
};

struct tti_network {
    int nranks;
    int ranks_per_host; /* >= 1; the last host may have fewer */
    int nics;           /* network ports per host, >= 1 */
    struct tti_link_model intra;
    struct tti_link_model inter;
    double gamma; /* seconds per byte reduced */
    double delta; /* seconds per byte copied locally */
};

struct tti_timeline; /* optional recording, for a trace viewer */

struct tti_prediction {
    double seconds;       /* when the last rank finished */
    double first;         /* when the first rank finished */
    uint64_t messages;    /* of all ranks, also when fewer were run */
    uint64_t bytes_inter; /* bytes that crossed hosts, all ranks */
    uint64_t bytes_intra;
    int simulated_ranks; /* nranks, or fewer that stand for all */
};

/* Predict `algorithm` for blocks of `count` elements of `type`. `timeline` may be NULL. Errors:
 * TUTTI_ERR_ARGUMENT (bad network), TUTTI_ERR_UNSUPPORTED (not applicable, too large, or too much
 * for a timeline), TUTTI_ERR_MEMORY,
 * TUTTI_ERR_INTERNAL (the plan deadlocks). */
enum tutti_result tti_simulate(const struct tti_algorithm *algorithm,
                               const struct tti_plan_spec *spec, const struct tti_network *network,
                               size_t count, enum tutti_type type, struct tti_timeline *timeline,
                               struct tti_prediction *prediction);

/* A timeline in the Trace Event format (JSON; opens in Perfetto and chrome://tracing): a process
 * per rank, a thread per lane, a slice per step, a flow arrow per message. */
enum tutti_result tti_timeline_create(struct tti_timeline **timeline);
enum tutti_result tti_timeline_write(const struct tti_timeline *timeline, const char *path);
void tti_timeline_destroy(struct tti_timeline *timeline);

#endif
