/* The state of a symbolic run: made by verify_wire.c, moved by verify_run.c, seen by nobody else.
 */
#ifndef TTI_PLAN_VERIFY_RUN_H
#define TTI_PLAN_VERIFY_RUN_H

#include "plan/verify_parts.h"

enum { TTI_RUN_NONE = -1 };

struct tti_run_lane {
    int rank, lane;
    const struct tti_step *steps;
    uint32_t count;
    size_t base;         /* of this lane's steps in the flat arrays of struct tti_run */
    uint32_t done;       /* steps completed */
    uint32_t unconsumed; /* all sends in steps before this one are consumed */
    bool computed;       /* step `done` has done all but its send */
    bool queued;
};

struct tti_run_channel {
    int32_t sender, receiver; /* numbers of lanes; TTI_RUN_NONE when the plan has no such lane */
    int32_t first, last;      /* the sender's steps that send here */
    int32_t head;             /* the next one to be consumed; a message is there once it is done */
    uint32_t *copy;           /* TTI_CHANNEL_ONE: the values of the one message */
    size_t copy_capacity;
};

struct tti_run {
    struct tti_plan *const *plans;
    int nranks;
    struct tti_values *values;
    enum tti_channel_model model;
    struct tti_memory *memory; /* of each rank */
    size_t *cell_base;         /* of each rank, nranks + 1 of them */
    uint32_t *cells;           /* value ids */
    int32_t *lane_base;        /* of each rank, nranks + 1 of them */
    struct tti_run_lane *lanes;
    int32_t nlanes;
    struct tti_run_channel *channels;
    size_t nchannels, channel_capacity;
    /* One entry for each step of each lane. */
    int32_t *in, *out;   /* channels */
    int32_t *next;       /* the lane's next step that sends on the same channel */
    uint8_t *unconsumed; /* sent, not taken yet */
    size_t nsteps;
    int32_t *queue; /* work list, a ring of nlanes */
    int32_t queue_head, queue_count;
};

#endif
