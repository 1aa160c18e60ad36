/* The simulator's events in the order of time: a heap of four children a node.
 *
 * Events of one time come in an order that looks the same from every host, so that the quotient
 * (plan/sim_model.h) and the whole network share their ports alike: arrivals before departures,
 * arrivals by receiver and distance, departures by step. */
#ifndef TTI_PLAN_SIM_QUEUE_H
#define TTI_PLAN_SIM_QUEUE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_DEPARTURE (UINT64_C(1) << 63)

struct sim_event {
    double time;
    uint64_t order;   /* SIM_DEPARTURE, or receiving lane << 31 | distance for an arrival */
    uint32_t step;    /* that sends */
    uint32_t message; /* that arrives */
};

struct sim_queue {
    struct sim_event *events;
    size_t count, capacity;
};

enum tutti_result sim_queue_push(struct sim_queue *queue, const struct sim_event *event);
/* The queue must not be empty. */
struct sim_event sim_queue_pop(struct sim_queue *queue);

#endif
