/* Recording a simulation (plan/simulate.h writes the recording out): one slice a step, two ends a
 * message. */
#ifndef TTI_PLAN_TIMELINE_H
#define TTI_PLAN_TIMELINE_H

#include "plan/plan.h"

struct tti_timeline;

/* Viewers become unusable beyond about this many slices and arrows. */
enum { TTI_TIMELINE_EVENTS_MAX = 1000000 };

struct tti_timeline_slice {
    int rank;
    int lane;
    double start; /* seconds: when the lane came to the step, so waiting for a message is in it */
    double end;
    double bytes; /* sent by the step */
    struct tti_step step;
};

/* One end of a message: it leaves, or it is taken. */
struct tti_timeline_end {
    int rank;
    int lane;
    double time;
    uint32_t id; /* the same at both ends */
    bool arrives;
};

/* Forget what was recorded and expect this much; TUTTI_ERR_UNSUPPORTED if it is too much. */
enum tutti_result tti_timeline_begin(struct tti_timeline *timeline, int ranks, int lanes,
                                     size_t steps, uint64_t messages);
enum tutti_result tti_timeline_step(struct tti_timeline *timeline,
                                    const struct tti_timeline_slice *slice);
enum tutti_result tti_timeline_flow(struct tti_timeline *timeline,
                                    const struct tti_timeline_end *end);

#endif
