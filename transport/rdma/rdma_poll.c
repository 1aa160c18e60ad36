/* Completions: what the devices say of the sends and receives that were posted (rdma.h). */
#include "transport/rdma/rdma.h"

#include <arpa/inet.h>
#include <stdio.h>

enum { POLL_BATCH = 32 };

/* The queue pair that a completion belongs to; NULL when it has been destroyed meanwhile. */
static struct tti_rdma_qp *poll_qp(struct tti_rdma_transport *self, uint64_t work)
{
    uint32_t place = (uint32_t)(work >> 32), index = place & 0xffff;
    struct tti_rdma_qp *qp = index < self->places ? self->table[index] : NULL;
    return qp && qp->place == place ? qp : NULL;
}

/* ---- errors --------------------------------------------------------------------------------- */

#define LINK_ADVICE                                                                            \
    "check that this rank's host is up, that the link and the switches between the two ports " \
    "are, that the two GIDs reach each other (ping -I; TUTTI_RDMA_GID_INDEX), that the "       \
    "switches take packets of the ports' MTU, and that no firewall drops UDP port 4791 (RoCE v2)"

static const char *poll_advice(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
        return "the peer's device has not acknowledged anything for half the time of "
               "TUTTI_RDMA_OUTAGE; " LINK_ADVICE;
    case IBV_WC_RNR_RETRY_EXC_ERR:
        return "the peer had no receive posted for long; its process may be stopped";
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
        return "the peer's device refused the access; it may have torn the connection down";
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
        return "the own device refused the memory; was a buffer freed while it was in use?";
    case IBV_WC_WR_FLUSH_ERR:
        return "the device has given the queue pair up and does not say why (its messages, dmesg, "
               "may); as a rule nothing was acknowledged for too long: " LINK_ADVICE;
    case IBV_WC_FATAL_ERR:
        return "the device broke down; see its messages (dmesg)";
    default:
        return "see the device's messages (dmesg)";
    }
}

static void poll_text(const struct tti_rdma_transport *self, const struct ibv_wc *wc, char *what,
                      size_t room)
{
    bool receive = ((uint32_t)wc->wr_id >> 30) == TTI_RDMA_WORK_RECEIVE;
    snprintf(what, room,
             "%s ended with status %d, %s (vendor's code %u): ", receive ? "a receive" : "a send",
             (int)wc->status, self->verbs->wc_status_str(wc->status), wc->vendor_err);
}

/* Bytes of the largest packet of a write that has ended; 0: a credit's, or none of ours. */
static uint32_t poll_packet(const struct tti_rdma_qp *qp, uint32_t said)
{
    struct tti_rdma_endpoint *endpoint = qp->endpoint;
    const int lane = (int)(said >> TTI_RDMA_COUNT_BITS & 0x3f);
    uint32_t bytes = 0;
    if (lane < endpoint->lanes && said >> 30 == TTI_RDMA_WORK_FRAGMENT)
        bytes = tti_rdma_sent_at(endpoint, &endpoint->lane[lane], said & TTI_RDMA_COUNT_MASK)->last;
    else if (said >> 30 == TTI_RDMA_WORK_PIECE)
        bytes = endpoint->piece;
    return bytes < qp->mtu ? bytes : qp->mtu;
}

/* The device has given up, as it does when nothing is acknowledged. Some do not say so, and all
 * that was posted ends as what comes after a failure does (soft-RoCE of Linux 6.12). */
static bool poll_gave_up(const struct ibv_wc *wc)
{
    return wc->status == IBV_WC_RETRY_EXC_ERR || wc->status == IBV_WC_WR_FLUSH_ERR;
}

static enum tutti_result poll_blame(const struct tti_rdma_transport *self,
                                    const struct tti_rdma_qp *qp, const struct ibv_wc *wc)
{
    char what[160], advice[400];
    poll_text(self, wc, what, sizeof what);
    if (!poll_gave_up(wc) || !tti_rdma_has_hole(qp->endpoint))
        return tti_rdma_qp_fail(qp, TUTTI_ERR_LINK, what, poll_advice(wc->status));
    snprintf(advice, sizeof advice,
             "small messages get through, and packets of %u bytes do not: a switch or an interface "
             "between the two ports probably has a smaller MTU than they have; give them one that "
             "all of the path takes (ip link set mtu), or find the place (ping -M do -s %u)",
             qp->endpoint->oversize, qp->endpoint->oversize);
    return tti_rdma_qp_fail(qp, TUTTI_ERR_LINK, what, advice);
}

/* The link is to blame: another queue pair goes on, or one is made in its place. */
static bool poll_moves(const struct tti_rdma_transport *self, struct tti_rdma_qp *qp,
                       const struct ibv_wc *wc, bool receive)
{
    if (qp->lost)
        return true;
    if (!poll_gave_up(wc))
        return false;
    if (receive) /* the send that was not acknowledged will end, too: it tells how large it was */
        return true;
    (void)poll_blame(self, qp, wc);
    return tti_rdma_lose(qp, true, poll_packet(qp, (uint32_t)wc->wr_id));
}

static void poll_failed(struct tti_rdma_transport *self, const struct tti_rdma_qp *qp,
                        const struct ibv_wc *wc)
{
    struct tti_rdma_endpoint *endpoint = qp->endpoint;
    if (endpoint->state == TTI_RDMA_FAILED || endpoint->ended || endpoint->goodbye)
        return; /* a consequence of what is known */
    tti_rdma_endpoint_fail(endpoint, poll_blame(self, qp, wc));
}

static void poll_garbled(const struct tti_rdma_qp *qp)
{
    tti_rdma_endpoint_fail(qp->endpoint,
                           tti_rdma_qp_fail(qp, TUTTI_ERR_PROTOCOL, "a fragment or credit came ",
                                            "that no Tutti of this version sends"));
}

/* ---- successes ------------------------------------------------------------------------------ */

static void poll_sent(struct tti_rdma_qp *qp, const struct ibv_wc *wc)
{
    uint32_t said = (uint32_t)wc->wr_id;
    int lane = (int)(said >> TTI_RDMA_COUNT_BITS & 0x3f);
    qp->room++;
    if (qp->tried > 0) { /* nothing else goes by it then, and what carries does not depend on it */
        tti_rdma_tried(qp, wc->status == IBV_WC_SUCCESS);
        return;
    }
    if (wc->status == IBV_WC_SUCCESS) {
        qp->endpoint->complaints = 0;
        qp->endpoint->landings++;
        if (qp->endpoint->oversize > 0 && poll_packet(qp, said) >= qp->endpoint->oversize)
            qp->endpoint->oversize = 0;
    }
    if (said >> 30 != TTI_RDMA_WORK_FRAGMENT)
        qp->endpoint->flying--;
    else if (wc->status == IBV_WC_SUCCESS || !qp->lost || qp->endpoint->state != TTI_RDMA_UP)
        tti_rdma_fragment_landed(qp->endpoint, lane, said & TTI_RDMA_COUNT_MASK);
    if (qp->lost) /* a fragment that did not land goes by another, once all have ended here */
        tti_rdma_failover_step(qp);
}

/* Several at a time, as there are more than the peer can make use of before it is told that some
 * were consumed. */
static void poll_replenish(struct tti_rdma_qp *qp)
{
    const bool deaf =
        qp->lost && (!qp->joined || qp->said_lost); /* else the peer may carry by it */
    if (qp->spent < TTI_RDMA_SPARE || deaf || qp->endpoint->state == TTI_RDMA_FAILED)
        return;
    enum tutti_result result = tti_rdma_qp_replenish(qp);
    if (result != TUTTI_OK)
        tti_rdma_endpoint_fail(qp->endpoint, result);
}

static void poll_received(struct tti_rdma_qp *qp, const struct ibv_wc *wc)
{
    uint32_t said = ntohl(wc->imm_data);
    int lane = (int)(said >> TTI_RDMA_COUNT_BITS & 0x3f);
    uint32_t count = said & TTI_RDMA_COUNT_MASK;
    bool sound = false;
    qp->spent++;
    poll_replenish(qp);
    if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM && said >> 30 == TTI_RDMA_WORK_FRAGMENT)
        sound = tti_rdma_fragment_arrived(qp->endpoint, lane, count);
    else if (wc->opcode == IBV_WC_RECV && said >> 30 == TTI_RDMA_WORK_CREDIT)
        sound = tti_rdma_credit_arrived(qp->endpoint, lane, count);
    if (!sound && qp->endpoint->state != TTI_RDMA_FAILED)
        poll_garbled(qp);
}

static void poll_one(struct tti_rdma_transport *self, const struct ibv_wc *wc)
{
    struct tti_rdma_qp *qp = poll_qp(self, wc->wr_id);
    if (!qp)
        return;
    self->news = true;
    bool receive = ((uint32_t)wc->wr_id >> 30) == TTI_RDMA_WORK_RECEIVE;
    if (wc->status != IBV_WC_SUCCESS && !poll_moves(self, qp, wc, receive))
        poll_failed(self, qp, wc);
    if (!receive)
        poll_sent(qp, wc);
    else if (wc->status == IBV_WC_SUCCESS)
        poll_received(qp, wc);
    else
        qp->spent++;
}

void tti_rdma_poll(struct tti_rdma_transport *self)
{
    struct ibv_wc wc[POLL_BATCH];
    for (int r = 0; r < self->rails; r++) {
        int count = 0;
        do {
            count = ibv_poll_cq(self->rail[r].cq, POLL_BATCH, wc);
            for (int i = 0; i < count; i++)
                poll_one(self, &wc[i]);
        } while (count == POLL_BATCH);
    }
}
