/* A lane over several sockets (tcp_stripe.h). */
#include "transport/tcp/tcp_stripe.h"

/* ---- sending -------------------------------------------------------------------------------- */

static struct tti_tcp_run *stripe_run(struct tti_tcp_stripe *stripe, unsigned index)
{
    return &stripe->run[(stripe->head + index) % TTI_TCP_STRIPE_RUNS];
}

/* The bytes at the lane's beginning that all sockets have released, without a gap. */
uint64_t tti_tcp_stripe_released(struct tti_tcp_stripe *stripe)
{
    while (stripe->runs > 0) {
        const struct tti_tcp_run *run = stripe_run(stripe, 0);
        uint64_t released = tti_tcp_lane_released(&stripe->lane[run->socket]);
        if (released < run->from + run->bytes)
            return stripe->done + (released > run->from ? released - run->from : 0);
        stripe->done += run->bytes;
        stripe->head = (stripe->head + 1) % TTI_TCP_STRIPE_RUNS;
        stripe->runs--;
    }
    return stripe->done;
}

bool tti_tcp_stripe_room(struct tti_tcp_stripe *stripe)
{
    (void)tti_tcp_stripe_released(stripe);
    return stripe->runs < TTI_TCP_STRIPE_RUNS &&
           tti_tcp_queue_room(&stripe->lane[stripe->to], TTI_TCP_SMALL_BYTES);
}

static void stripe_note(struct tti_tcp_stripe *stripe, uint64_t from, size_t bytes)
{
    struct tti_tcp_run *last = stripe->runs ? stripe_run(stripe, stripe->runs - 1) : NULL;
    if (last && last->socket == stripe->to && last->from + last->bytes == from)
        last->bytes += bytes;
    else
        *stripe_run(stripe, stripe->runs++) = (struct tti_tcp_run){from, bytes, stripe->to};
}

enum tutti_result tti_tcp_stripe_send(struct tti_tcp_stripe *stripe, uint64_t tag,
                                      const uint8_t *data, size_t bytes, size_t *accepted)
{
    struct tti_tcp_lane *lane = &stripe->lane[stripe->to];
    const uint64_t from = lane->accepted;
    if (stripe->runs == TTI_TCP_STRIPE_RUNS) {
        (void)tti_tcp_stripe_released(stripe);
        if (stripe->runs == TTI_TCP_STRIPE_RUNS) {
            *accepted = 0;
            return TUTTI_OK;
        }
    }
    if (bytes > TTI_TCP_STRIPE_MOST)
        bytes = TTI_TCP_STRIPE_MOST;
    TTI_TRY(tti_tcp_lane_send(lane, tag, data, bytes, accepted));
    if (*accepted == 0)
        return TUTTI_OK;
    stripe_note(stripe, from, *accepted);
    stripe->sent += *accepted;
    if (stripe->sent >= TTI_TCP_STRIPE_TURN) {
        stripe->sent = 0;
        stripe->to = (stripe->to + 1) % stripe->sockets;
    }
    return TUTTI_OK;
}

/* ---- receiving ------------------------------------------------------------------------------ */

/* So many bytes of the socket whose turn it is were taken: turns end with fragments. */
static void stripe_took(struct tti_tcp_stripe *stripe, size_t bytes)
{
    stripe->taken += bytes;
    if (bytes == 0 || stripe->lane[stripe->from].left > 0 || stripe->taken < TTI_TCP_STRIPE_TURN)
        return;
    stripe->taken = 0;
    stripe->from = (stripe->from + 1) % stripe->sockets;
}

enum tutti_result tti_tcp_stripe_peek(struct tti_tcp_stripe *stripe, bool may_read, uint64_t *tag,
                                      const void **data, size_t *bytes)
{
    return tti_tcp_lane_peek(&stripe->lane[stripe->from], may_read, tag, data, bytes);
}

void tti_tcp_stripe_consume(struct tti_tcp_stripe *stripe, size_t bytes)
{
    tti_tcp_lane_consume(&stripe->lane[stripe->from], bytes);
    stripe_took(stripe, bytes);
}

enum tutti_result tti_tcp_stripe_receive(struct tti_tcp_stripe *stripe, bool may_read,
                                         uint64_t *tag, uint8_t *into, size_t bytes, size_t *taken)
{
    TTI_TRY(tti_tcp_lane_receive(&stripe->lane[stripe->from], may_read, tag, into, bytes, taken));
    stripe_took(stripe, *taken);
    return TUTTI_OK;
}
