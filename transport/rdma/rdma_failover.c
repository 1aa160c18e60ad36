/* A queue pair that breaks (rdma.h): its work moves to others, or, when none is left, another is
 * made in its place (rdma_rejoin.c).
 *
 * A sender whose device gives up does not know which of its fragments have arrived. It may send
 * them again only when no late packet of the first sending can arrive any more: the slot would hold
 * something else by then. So both sides put the queue pair into the state of error, where a device
 * takes nothing in, and say so over the control connection; once the peer has said it, and all
 * sends here have ended, what has not been acknowledged is written again, to the same slots. What
 * had arrived all the same is overwritten with the same bytes: no slot holds a later fragment
 * before this side has been told that the earlier one was consumed. The receiver passes over what
 * it has.
 *
 * While others carry on, a queue pair that was lost is tried now and then (rdma_rejoin.c). When the
 * last one breaks, all are made again: a device also gives up where packets come through,
 * but too few in a row. A device that complains for the second time, and has sent nothing with
 * success meanwhile, is believed: the link is dead. So is one that complains of large writes again
 * and again, while small ones get through: a switch on the way takes no packet of the ports' MTU.
 * Three times, since a link that loses much may fail that often by chance. */
#include "base/log.h"
#include "transport/rdma/rdma.h"

/* Credits that went by it are said again. */
static void failover_owe(struct tti_rdma_endpoint *self)
{
    for (int i = 0; i < self->lanes; i++) {
        self->owing += !self->lane[i].owes;
        self->lane[i].owes = true;
    }
}

enum { FAILOVER_OVERSIZED = 3 };

bool tti_rdma_has_hole(const struct tti_rdma_endpoint *self)
{
    return self->oversize > 0 && self->oversized >= FAILOVER_OVERSIZED;
}

/* The device complains, and there is no other queue pair: is there nothing to be hoped for? */
static bool failover_believed(struct tti_rdma_endpoint *self, uint32_t packet)
{
    if (packet > 0) { /* else a credit, which has no bytes */
        self->oversized = self->oversize == 0 ? 1 : self->oversized + 1;
        if (self->oversize == 0 || packet < self->oversize)
            self->oversize = packet;
    }
    return self->complaints++ > 0 || tti_rdma_has_hole(self);
}

bool tti_rdma_lose(struct tti_rdma_qp *qp, bool complaint, uint32_t packet)
{
    struct tti_rdma_endpoint *self = qp->endpoint;
    struct ibv_qp_attr change = {.qp_state = IBV_QPS_ERR};
    const bool others = self->lost + 1 < self->qps;
    if (self->state != TTI_RDMA_UP || self->ended || self->goodbye)
        return false;
    if (complaint && !others && failover_believed(self, packet))
        return false;
    TTI_LOG(TTI_LOG_WARN, "rdma: %s; %s", tti_error_text(),
            others ? "its work goes on over other queue pairs" : "the connection is made again");
    (void)self->transport->verbs->modify_qp(qp->qp, &change, IBV_QP_STATE);
    qp->lost = qp->said_lost = true;
    self->lost++;
    tti_rdma_rejoin_later(qp);
    self->repeats = true;
    failover_owe(self);
    enum tutti_result result = tti_rdma_say(qp, TTI_RDMA_LOST);
    if (result != TUTTI_OK)
        tti_rdma_endpoint_fail(self, result);
    tti_rdma_failover_step(qp);
    return true;
}

/* Of one lane, what went by `qp` and did not land waits for another. */
static void failover_lane(const struct tti_rdma_qp *qp, struct tti_rdma_lane *lane)
{
    struct tti_rdma_endpoint *self = qp->endpoint;
    for (uint32_t k = lane->landed; k != lane->posted; k++) {
        struct tti_rdma_sent *sent = &lane->sent[k & (self->window - 1)];
        if (!sent->flying || sent->waits || &self->qp[sent->qp] != qp)
            continue;
        sent->waits = true;
        self->waiting++;
    }
}

void tti_rdma_failover_step(struct tti_rdma_qp *qp)
{
    struct tti_rdma_endpoint *self = qp->endpoint;
    const bool failed = self->state == TTI_RDMA_FAILED;
    const bool let_go = qp->peer_lost || qp->peer_renewed || self->ended || self->goodbye || failed;
    if (!qp->lost || !let_go || qp->moved || qp->room < qp->depth)
        return;
    qp->moved = true;
    for (int i = 0; i < self->lanes; i++)
        failover_lane(qp, &self->lane[i]);
    if (failed)
        tti_rdma_again(self);
}

void tti_rdma_failover_end(struct tti_rdma_endpoint *self)
{
    for (int i = 0; i < self->qps; i++)
        tti_rdma_failover_step(&self->qp[i]);
    tti_rdma_again(self);
}

void tti_rdma_lose_heard(struct tti_rdma_qp *qp)
{
    qp->peer_lost = true;
    if (!qp->lost) {
        enum tutti_result result =
            tti_rdma_qp_fail(qp, TUTTI_ERR_LINK, "the peer cannot send by this queue pair",
                             "; look for what it says of its device and link");
        if (!tti_rdma_lose(qp, false, 0))
            tti_rdma_endpoint_fail(qp->endpoint, result);
    } else {
        tti_rdma_rejoin_off(qp);
    }
    tti_rdma_failover_step(qp);
}

/* Was fragment `k` consumed, or is there nobody any more who would? Then only its answer is lost.
 */
static bool failover_needless(const struct tti_rdma_endpoint *self,
                              const struct tti_rdma_lane *lane, uint32_t k)
{
    return lane->credited - k - 1 < self->window || self->ended || self->goodbye ||
           self->state == TTI_RDMA_FAILED;
}

void tti_rdma_again(struct tti_rdma_endpoint *self)
{
    for (int i = 0; self->waiting > 0 && i < self->lanes; i++) {
        struct tti_rdma_lane *lane = &self->lane[i];
        const uint32_t posted = lane->posted;
        for (uint32_t k = lane->landed; k != posted; k++) {
            struct tti_rdma_sent *sent = &lane->sent[k & (self->window - 1)];
            const bool needless = failover_needless(self, lane, k);
            if (!sent->waits || (!needless && !tti_rdma_may_write(self, i, k)))
                continue;
            sent->waits = false;
            self->waiting--;
            if (needless || tti_rdma_fragment_again(self, i, k) != TUTTI_OK) /* or it has failed */
                tti_rdma_fragment_landed(self, i, k & TTI_RDMA_COUNT_MASK);
        }
    }
}
