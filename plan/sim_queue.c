/* A 4-ary heap of events (plan/sim_queue.h): half the levels of a binary one, and the children of a
 * node lie beside each other. */
#include "plan/sim_queue.h"

#include "base/memory.h"

static bool event_before(const struct sim_event *a, const struct sim_event *b)
{
    if (a->time != b->time)
        return a->time < b->time;
    if (a->order != b->order)
        return a->order < b->order;
    return a->step < b->step;
}

enum tutti_result sim_queue_push(struct sim_queue *queue, const struct sim_event *event)
{
    if (queue->count == queue->capacity) {
        void *events = queue->events;
        TTI_TRY(tti_grow(&events, &queue->capacity, queue->count + 1, sizeof *queue->events));
        queue->events = events;
    }
    struct sim_event *events = queue->events;
    size_t at = queue->count++;
    for (; at > 0 && event_before(event, &events[(at - 1) / 4]); at = (at - 1) / 4)
        events[at] = events[(at - 1) / 4];
    events[at] = *event;
    return TUTTI_OK;
}

struct sim_event sim_queue_pop(struct sim_queue *queue)
{
    struct sim_event *events = queue->events;
    struct sim_event first = events[0], last = events[--queue->count];
    size_t at = 0;
    for (;;) {
        size_t child = 4 * at + 1, end = child + 4 < queue->count ? child + 4 : queue->count;
        if (child >= queue->count)
            break;
        size_t least = child;
        for (size_t i = child + 1; i < end; i++)
            if (event_before(&events[i], &events[least]))
                least = i;
        if (!event_before(&events[least], &last))
            break;
        events[at] = events[least];
        at = least;
    }
    if (queue->count > 0)
        events[at] = last;
    return first;
}
