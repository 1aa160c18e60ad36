/* A rail that is cut: its queue pairs' work moves to those of the other rails (rdma.h).
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
 * A queue pair that was lost is not used again, also when its cable is back: a communicator that is
 * made then uses all. */
#include "base/log.h"
#include "transport/rdma/rdma.h"

/* Is there a queue pair between other ports, on one side at least? */
static bool failover_possible(const struct tti_rdma_qp *qp)
{
    const struct tti_rdma_endpoint *self = qp->endpoint;
    if (!self->spare || self->state != TTI_RDMA_UP || self->ended || self->goodbye)
        return false;
    for (int i = 0; i < self->qps; i++)
        if (!self->qp[i].lost &&
            (self->qp[i].rail != qp->rail || self->qp[i].peer_port != qp->peer_port))
            return true;
    return false;
}

/* Credits that went by it are said again. */
static void failover_owe(struct tti_rdma_endpoint *self)
{
    for (int i = 0; i < self->lanes; i++) {
        self->owing += !self->lane[i].owes;
        self->lane[i].owes = true;
    }
}

bool tti_rdma_failover(struct tti_rdma_qp *qp)
{
    struct tti_rdma_endpoint *self = qp->endpoint;
    struct ibv_qp_attr change = {.qp_state = IBV_QPS_ERR};
    uint8_t bytes[TTI_RDMA_LOST_BYTES];
    if (!failover_possible(qp))
        return false;
    TTI_LOG(TTI_LOG_WARN, "rdma: %s; its work goes on over other rails", tti_error_text());
    (void)self->transport->verbs->modify_qp(qp->qp, &change, IBV_QP_STATE);
    qp->lost = true;
    self->lost++;
    failover_owe(self);
    tti_rdma_put_lost((int)(qp - self->qp), bytes);
    enum tutti_result result = tti_rdma_endpoint_say(self, bytes, sizeof bytes);
    if (result != TUTTI_OK)
        tti_rdma_endpoint_fail(self, result);
    tti_rdma_failover_step(qp);
    return true;
}

/* Of one lane, what went by `qp` and did not land. */
static enum tutti_result failover_lane(const struct tti_rdma_qp *qp, int number)
{
    struct tti_rdma_endpoint *self = qp->endpoint;
    struct tti_rdma_lane *lane = &self->lane[number];
    const uint32_t posted = lane->posted;
    for (uint32_t k = lane->landed; k != posted; k++) {
        const struct tti_rdma_sent *sent = &lane->sent[k & (self->window - 1)];
        if (!sent->flying || &self->qp[sent->qp] != qp)
            continue;
        if (lane->credited - k - 1 < self->window) /* it was consumed: only its answer is lost */
            tti_rdma_fragment_landed(self, number, k & TTI_RDMA_COUNT_MASK);
        else
            TTI_TRY(tti_rdma_fragment_again(self, number, k));
    }
    return TUTTI_OK;
}

void tti_rdma_failover_step(struct tti_rdma_qp *qp)
{
    struct tti_rdma_endpoint *self = qp->endpoint;
    if (!qp->lost || !qp->peer_lost || qp->moved || qp->room < qp->depth ||
        self->state != TTI_RDMA_UP)
        return;
    qp->moved = true;
    for (int i = 0; i < self->lanes; i++)
        if (failover_lane(qp, i) != TUTTI_OK) /* which has made the endpoint fail */
            return;
}

void tti_rdma_failover_heard(struct tti_rdma_endpoint *self, int number)
{
    struct tti_rdma_qp *qp = &self->qp[number < self->qps ? number : 0];
    if (number >= self->qps || qp->peer_lost) {
        tti_rdma_endpoint_fail(self, tti_rdma_qp_fail(qp, TUTTI_ERR_PROTOCOL, "the peer gave up ",
                                                      "a queue pair that there is not"));
        return;
    }
    qp->peer_lost = true;
    if (!qp->lost) {
        enum tutti_result result =
            tti_rdma_qp_fail(qp, TUTTI_ERR_LINK, "the peer cannot send by this queue pair",
                             "; look for what it says of its device and link");
        if (!tti_rdma_failover(qp))
            tti_rdma_endpoint_fail(self, result);
    }
    tti_rdma_failover_step(qp);
}
