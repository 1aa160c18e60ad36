/* What the simulator's parts share: the compiled form of all ranks' plans, and its ports.
 *
 * sim_compile.c turns plans into flat steps that hold only what time depends on, one rank at a
 * time, so that 65,536 plans never exist together; sim_run.c runs them over sim_queue.c's events.
 *
 * The quotient. An algorithm that translates looks the same from every rank. On a network that is
 * the same from every host, the ranks of one host then stand for all: rank r of the period sends to
 * (r + d) mod period what it would send to r + d, and shares its ports with the same neighbours.
 * The same holds for one that looks the same from every host only (sim_period.c).
 * A channel is therefore named by its receiver, the lane and the distance d, not by two ranks. */
#ifndef TTI_PLAN_SIM_MODEL_H
#define TTI_PLAN_SIM_MODEL_H

#include "plan/simulate.h"
#include "plan/timeline.h"

#define SIM_NONE UINT32_MAX

enum { SIM_STEPS_MAX = 1 << 26 }; /* about 3 GiB of compiled steps */

struct sim_step {
    double work;  /* seconds of local copying or reducing */
    double bytes; /* of the message that it sends */
    uint32_t in;  /* channel received from, or SIM_NONE */
    uint32_t out; /* channel sent to, or SIM_NONE */
    int32_t hazard;
};

enum sim_wait { SIM_READY, SIM_WAIT_MESSAGE, SIM_WAIT_CONSUMED, SIM_DONE };

struct sim_lane {
    double now;     /* when the steps done so far were done */
    uint32_t first; /* its steps are steps[first .. first + count) */
    uint32_t count;
    uint32_t next;    /* the step to do, counted from first */
    uint32_t cleared; /* sends of steps < cleared are known to be consumed by `now` */
    enum sim_wait wait;
};

struct sim_channel {
    uint32_t receiver; /* lane */
    uint32_t sender;   /* lane */
    uint32_t distance; /* receiving rank - sending rank, mod nranks */
    bool inter;        /* between hosts */
    uint32_t head;     /* messages under way or waiting, oldest first; SIM_NONE */
    uint32_t tail;
};

/* A message exists from its send to its consumption. */
struct sim_message {
    double arrival; /* negative: not known yet */
    uint32_t step;  /* that sent it */
    uint32_t next;  /* in the channel, or in the list of free ones */
};

struct sim_map_entry {
    uint64_t key; /* receiving lane and distance; UINT64_MAX: empty */
    uint32_t channel;
};

struct sim {
    const struct tti_network *network;
    const struct tti_algorithm *algorithm;
    struct tti_plan_spec spec;
    struct tti_timeline *timeline; /* or NULL */
    double count;                  /* elements of a block */
    size_t elements;
    size_t type_size;
    size_t acc_size;
    size_t steps_max; /* refuse more */
    int period;       /* ranks simulated; < nranks in the quotient */
    int nlanes;       /* of every rank */

    struct sim_step *steps;
    size_t nsteps, steps_capacity;
    struct tti_step *details; /* the steps as planned; only with a timeline */
    size_t details_capacity;
    double *consumed; /* by step: when its message was consumed; negative: not yet */
    struct sim_lane *lanes;
    struct sim_channel *channels;
    size_t nchannels, channels_capacity;
    struct sim_map_entry *map; /* to channels; a power of two, at most half full */
    size_t map_size;
    double bytes_inter, bytes_intra; /* of the simulated ranks */
    uint64_t messages;
};

/* tti_simulate, refusing more than `steps_max` compiled steps. */
enum tutti_result sim_predict(const struct tti_algorithm *algorithm,
                              const struct tti_plan_spec *spec, const struct tti_network *network,
                              size_t count, enum tutti_type type, struct tti_timeline *timeline,
                              size_t steps_max, struct tti_prediction *prediction);

enum tutti_result sim_plan_of(const struct sim *sim, int rank, struct tti_plan **plan);
/* Fill in `period`; refuse what is too much to simulate. */
enum tutti_result sim_choose_period(struct sim *sim);

/* Elements of chunks [chunk, chunk + n) of the block-cut buffers, which may span blocks. */
double sim_elements(const struct sim *sim, uint32_t chunks, uint32_t chunk, uint32_t n);

/* Plan and compile the ranks of the period. */
enum tutti_result sim_compile(struct sim *sim);
/* Run what was compiled; fills in seconds and first. */
enum tutti_result sim_run(struct sim *sim, struct tti_prediction *prediction);

static inline int sim_lane_rank(const struct sim *sim, uint32_t lane)
{
    return (int)(lane / (uint32_t)sim->nlanes);
}

#endif
