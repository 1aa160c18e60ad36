/* Going to sleep (tcp.h): nothing that the caller waits for may have happened untold. */
#include "base/clock.h"
#include "transport/tcp/tcp.h"

#define SLEEP_LOOK_NS UINT64_C(1000000) /* for acknowledgements, where these are waited for */

/* Lanes as the caller counts them; an endpoint's own count is of sockets. */
static int sleep_lanes(const struct tti_tcp_endpoint *endpoint)
{
    return endpoint->stripe ? endpoint->lanes / (int)endpoint->stripe->sockets : endpoint->lanes;
}

static uint64_t sleep_released_now(struct tti_tcp_endpoint *endpoint, int lane)
{
    return endpoint->stripe ? tti_tcp_stripe_released(&endpoint->stripe[lane])
                            : tti_tcp_lane_released(&endpoint->lane[lane]);
}

static bool sleep_room_now(struct tti_tcp_endpoint *endpoint, int lane)
{
    return endpoint->stripe ? tti_tcp_stripe_room(&endpoint->stripe[lane])
                            : tti_tcp_queue_room(&endpoint->lane[lane], TTI_TCP_SMALL_BYTES);
}

/* Will an event tell when there is room: that the socket takes more, or that there is another? */
static bool sleep_room_is_told(struct tti_tcp_endpoint *endpoint, int lane)
{
    const struct tti_tcp_stripe *stripe = endpoint->stripe ? &endpoint->stripe[lane] : NULL;
    const struct tti_tcp_lane *next = stripe ? &stripe->lane[stripe->to] : &endpoint->lane[lane];
    return !endpoint->resumes || next->socket < 0 || tti_tcp_lane_waits(next);
}

uint64_t tti_tcp_released(void *object, int lane)
{
    struct tti_tcp_endpoint *endpoint = object;
    return tti_tcp_known(endpoint, lane)->told = sleep_released_now(endpoint, lane);
}

enum tutti_result tti_tcp_abandoned(void *object)
{
    struct tti_tcp_endpoint *endpoint = object;
    for (int i = 0; i < endpoint->lanes && endpoint->state == TTI_TCP_FAILED; i++)
        if (tti_tcp_lane_released(&endpoint->lane[i]) < endpoint->lane[i].accepted)
            return tti_error_restore(&endpoint->error);
    return TUTTI_OK;
}

/* No event tells of acknowledgements: who sleeps because memory is not released gets it by a copy.
 */
static void sleep_give_back(struct tti_tcp_lane *lane)
{
    if (lane->endpoint->resumes && lane->kept < lane->gone) {
        tti_tcp_queue_look(lane);
        tti_tcp_queue_own(lane);
    }
}

/* Whoever looks at what is released, or for room, takes in what was acknowledged by then, and arm
 * looks, too: so news is what differs from what the caller was told. Who was refused, and would not
 * be told, looks again soon. */
static void sleep_tell(struct tti_tcp_transport *transport, struct tti_tcp_endpoint *endpoint,
                       int lane)
{
    struct tti_tcp_lane *known = tti_tcp_known(endpoint, lane);
    const uint64_t released = sleep_released_now(endpoint, lane);
    transport->news |= released != known->told;
    known->told = released;
    if (!known->refused)
        return;
    if (sleep_room_now(endpoint, lane)) {
        known->refused = false;
        transport->news = true;
    } else if (!sleep_room_is_told(endpoint, lane)) {
        const uint64_t soon = tti_now_ns() + SLEEP_LOOK_NS;
        if (soon < transport->timer_ns)
            tti_tcp_set_timer(transport, soon);
    }
}

/* Events are edge-triggered: what they announced is taken in before the caller sleeps, so that only
 * something new can wake it, and so that what nobody consumes does not keep it awake. News of
 * earlier calls of progress count, since the caller may not have looked after them. */
bool tti_tcp_arm(void *object)
{
    struct tti_tcp_transport *transport = object;
    tti_tcp_collect(transport);
    for (struct tti_tcp_endpoint *e = transport->endpoint; e; e = e->next)
        for (int i = 0; e->state == TTI_TCP_CONNECTED && i < e->lanes; i++) {
            transport->news |= tti_tcp_lane_refill(&e->lane[i]);
            sleep_give_back(&e->lane[i]);
        }
    for (struct tti_tcp_endpoint *e = transport->endpoint; e; e = e->next)
        for (int i = 0; e->state == TTI_TCP_CONNECTED && i < sleep_lanes(e); i++)
            sleep_tell(transport, e, i);
    if (transport->control_due) /* a connection was lost just now */
        tti_tcp_control(transport);
    bool quiet = !transport->news;
    transport->news = false;
    return quiet;
}

void tti_tcp_disarm(void *object)
{
    ((struct tti_tcp_transport *)object)->collect = true;
}
