/* What befalls fragments (transport/fault/fault.h). A piece is what the carrier shows at the head
 * of a lane; its fate is drawn once, when it is first seen, and again for what is left of it after
 * it was consumed in part. */
#include "transport/fault/fault.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "transport/registry.h"

#include <signal.h>
#include <string.h>

enum { FAULT_BITS = 512 }; /* a wrong bit is among the first of a piece */

/* ---- chance --------------------------------------------------------------------------------- */

static uint64_t lane_random(struct fault_lane *lane)
{
    uint64_t z = lane->random += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* From 0 to below 1. */
static double lane_chance(struct fault_lane *lane)
{
    return (double)(lane_random(lane) >> 11) / (double)(UINT64_C(1) << 53);
}

static uint64_t lane_time(struct fault_lane *lane, double most_ms)
{
    return tti_now_ns() + (uint64_t)(lane_chance(lane) * most_ms * 1e6) + 1;
}

/* ---- steps: standing still and dying -------------------------------------------------------- */

static enum tutti_result fault_gone(const struct fault_transport *self)
{
    return TTI_FAIL(TUTTI_ERR_PEER, "rank %d died at its fragment %llu, as TUTTI_FAULT says",
                    self->env->rank, (unsigned long long)self->settings.kill);
}

/* One more fragment is sent or received. */
static enum tutti_result fault_step(struct fault_transport *self)
{
    struct fault_counts *counts = &self->counts;
    counts->steps++;
    if (!self->mine)
        return TUTTI_OK;
    if (self->settings.stall && counts->steps >= self->settings.stall)
        counts->stalled = true;
    if (!self->settings.kill || counts->steps != self->settings.kill)
        return TUTTI_OK;
    TTI_LOG(TTI_LOG_WARN, "fault: dying at fragment %llu", (unsigned long long)counts->steps);
    counts->died = true;
    if (tti_fault_hooked->die)
        tti_fault_hooked->die(self->env->rank);
    else
        (void)raise(SIGKILL);
    for (struct fault_endpoint *e = self->endpoints; e; e = e->next)
        if (self->ops->unmap)
            self->ops->unmap(e->inner);
    return fault_gone(self);
}

static enum tutti_result fault_check(const struct fault_endpoint *e)
{
    if (e->transport->counts.died)
        return fault_gone(e->transport);
    if (e->lost)
        return TTI_FAIL(TUTTI_ERR_LINK,
                        "the connection to rank %d (%s) was lost, as TUTTI_FAULT says",
                        e->peer.rank, e->peer.name);
    return TUTTI_OK;
}

/* ---- sending -------------------------------------------------------------------------------- */

enum tutti_result tti_fault_send(void *endpoint, int number, uint64_t tag, const void *data,
                                 size_t bytes, size_t *accepted)
{
    struct fault_endpoint *e = endpoint;
    size_t taken = 0;
    TTI_TRY(fault_check(e));
    if (!e->transport->counts.stalled)
        TTI_TRY(e->transport->ops->send(e->inner, number, tag, data, bytes, &taken));
    if (taken > 0)
        TTI_TRY(fault_step(e->transport));
    e->lane[number].accepted += taken;
    *accepted = taken;
    return TUTTI_OK;
}

uint64_t tti_fault_released(void *endpoint, int number)
{
    struct fault_endpoint *e = endpoint;
    return e->transport->ops->released(e->inner, number);
}

enum tutti_result tti_fault_abandoned(void *endpoint)
{
    struct fault_endpoint *e = endpoint;
    tti_transport_abandoned *abandoned = tti_transport_abandons(e->transport->ops);
    return abandoned ? abandoned(e->inner) : TUTTI_OK;
}

/* ---- receiving ------------------------------------------------------------------------------ */

/* Late: alone, or with all of its peer. */
static void fault_hold(struct fault_endpoint *e, struct fault_lane *lane)
{
    const struct fault_settings *s = &e->transport->settings;
    if (s->delay > 0 && lane_chance(lane) < s->delay) {
        e->until = lane_time(lane, s->delay_ms);
        e->transport->counts.delayed++;
    }
    if (s->reorder > 0 && lane_chance(lane) < s->reorder) {
        lane->until = lane_time(lane, s->reorder_ms);
        e->transport->counts.delayed++;
    }
}

static void fault_decide(struct fault_endpoint *e, struct fault_lane *lane, size_t bytes)
{
    const struct fault_settings *s = &e->transport->settings;
    struct fault_counts *counts = &e->transport->counts;
    lane->decided = true;
    lane->fate = FAULT_PASS;
    lane->left = bytes;
    if (!e->wanted)
        return;
    fault_hold(e, lane);
    if (s->lose > 0 && lane_chance(lane) < s->lose) {
        e->lost = true;
        counts->lost++;
    } else if (s->drop > 0 && lane_chance(lane) < s->drop) {
        lane->silent = true;
        counts->dropped++;
    } else if (s->truncate > 0 && lane_chance(lane) < s->truncate) {
        lane->fate = FAULT_TRUNCATE;
        lane->left = bytes - 1 - lane_random(lane) % bytes;
        lane->silent = lane->left == 0;
        counts->truncated++;
    } else if (s->corrupt > 0 && lane_chance(lane) < s->corrupt) {
        lane->fate = FAULT_CORRUPT;
        lane->bit = lane_random(lane) % (bytes * 8 < FAULT_BITS ? bytes * 8 : FAULT_BITS);
        counts->corrupted++;
    } else if (s->forge > 0 && lane_chance(lane) < s->forge) {
        lane->fate = FAULT_FORGE;
        lane->bit = lane_random(lane) % 64;
        counts->forged++;
    }
}

/* Is what the carrier shows to be held back now? */
static bool fault_late(struct fault_endpoint *e, struct fault_lane *lane)
{
    uint64_t until = e->until > lane->until ? e->until : lane->until;
    if (until == 0)
        return false;
    if (!tti_deadline_passed(until))
        return true;
    if (tti_deadline_passed(e->until))
        e->until = 0;
    lane->until = 0;
    return false;
}

static enum tutti_result fault_wrong(struct fault_lane *lane, const void **data, size_t bytes)
{
    TTI_TRY(tti_grow(&lane->copy, &lane->copy_bytes, bytes, 1));
    memcpy(lane->copy, *data, bytes);
    ((unsigned char *)lane->copy)[lane->bit / 8] ^= (unsigned char)(1u << (lane->bit % 8));
    *data = lane->copy;
    return TUTTI_OK;
}

enum tutti_result tti_fault_peek(void *endpoint, int number, uint64_t *tag, const void **data,
                                 size_t *bytes)
{
    struct fault_endpoint *e = endpoint;
    struct fault_lane *lane = &e->lane[number];
    uint64_t seen = 0;
    const void *shown = NULL;
    size_t most = 0;
    *bytes = 0;
    TTI_TRY(fault_check(e));
    if (lane->silent || e->transport->counts.stalled || fault_late(e, lane))
        return TUTTI_OK;
    TTI_TRY(e->transport->ops->peek(e->inner, number, &seen, &shown, &most));
    if (most == 0)
        return TUTTI_OK;
    if (!lane->decided) {
        fault_decide(e, lane, most);
        TTI_TRY(fault_step(e->transport));
        TTI_TRY(fault_check(e));
        if (lane->silent || e->transport->counts.stalled || fault_late(e, lane))
            return TUTTI_OK;
    }
    if (lane->fate == FAULT_CORRUPT)
        TTI_TRY(fault_wrong(lane, &shown, most));
    if (lane->fate == FAULT_FORGE)
        seen ^= UINT64_C(1) << lane->bit;
    *tag = seen;
    *data = shown;
    *bytes = lane->fate == FAULT_TRUNCATE && lane->left < most ? lane->left : most;
    return TUTTI_OK;
}

enum tutti_result tti_fault_intact(void *endpoint, int number)
{
    struct fault_endpoint *e = endpoint;
    tti_transport_intact *intact = tti_transport_intacts(e->transport->ops);
    return intact ? intact(e->inner, number) : TUTTI_OK;
}

void tti_fault_consume(void *endpoint, int number, size_t bytes)
{
    struct fault_endpoint *e = endpoint;
    struct fault_lane *lane = &e->lane[number];
    e->transport->ops->consume(e->inner, number, bytes);
    if (lane->fate == FAULT_TRUNCATE) {
        lane->left -= bytes;
        lane->silent = lane->left == 0;
    } else {
        lane->decided = false;
    }
}

enum tutti_result tti_fault_receive(void *endpoint, int number, uint64_t *tag, void *into,
                                    size_t bytes, size_t *taken)
{
    const void *data = NULL;
    size_t ready = 0;
    TTI_TRY(tti_fault_peek(endpoint, number, tag, &data, &ready));
    ready = ready < bytes ? ready : bytes;
    if (ready > 0) {
        memcpy(into, data, ready);
        TTI_TRY(tti_fault_intact(endpoint, number));
        tti_fault_consume(endpoint, number, ready);
    }
    *taken = ready;
    return TUTTI_OK;
}

uint64_t tti_fault_next(const struct fault_transport *self)
{
    uint64_t next = 0;
    for (const struct fault_endpoint *e = self->endpoints; e; e = e->next) {
        if (e->until && (!next || e->until < next))
            next = e->until;
        for (int i = 0; i < e->lanes; i++)
            if (e->lane[i].until && (!next || e->lane[i].until < next))
                next = e->lane[i].until;
    }
    return next;
}
