/* Queue pairs: made, joined to the peer's, ended (rdma.h). */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "transport/rdma/rdma.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    QP_PIECES = 64,    /* room for fragments that go in pieces */
    QP_RETRIES = 6,    /* 7 would mean "for ever" to some devices */
    QP_RNR_TIMER = 12, /* 0.64 ms */
    QP_HOPS = 64,
    QP_POST_AT_ONCE = 16,
};
#define QP_APART_NS UINT64_C(100000000) /* at least, between two tries to join one */
#define QP_REST_NS UINT64_C(8000000000) /* of a rail by which one could not be joined */

enum tutti_result tti_rdma_qp_fail(const struct tti_rdma_qp *qp, enum tutti_result code,
                                   const char *what, const char *advice)
{
    const struct tti_rdma_endpoint *endpoint = qp->endpoint;
    const struct tutti_peer *peer = endpoint->peer;
    const struct tti_rdma_rail *rail = qp->rail;
    char gid[40] = "", *at = gid;
    for (int i = 0; i < 16; i += 2)
        at += snprintf(at, sizeof gid - (size_t)(at - gid), "%s%02x%02x", i ? ":" : "",
                       endpoint->advert.port[qp->peer_port].gid[i],
                       endpoint->advert.port[qp->peer_port].gid[i + 1]);
    return TTI_FAIL(code,
                    "the RDMA connection to rank %d (%s) failed: %s%s [device %s port %d%s, GID %d "
                    "%s, to GID %s, queue pair %u to %u]",
                    peer->rank, peer->name, what, advice, rail->device, rail->number,
                    rail->port_down ? ", which is down" : "", rail->gid_index, rail->address, gid,
                    qp->qp ? qp->qp->qp_num : 0, qp->peer_number);
}

/* ---- the transport's table ------------------------------------------------------------------ */

static enum tutti_result qp_enter(struct tti_rdma_transport *self, struct tti_rdma_qp *qp)
{
    size_t at = 0;
    while (at < self->places && self->table[at])
        at++;
    if (at > 0xffff)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED, "rdma: more than 65536 queue pairs of one rank");
    if (at == self->places) {
        void *table = self->table;
        TTI_TRY(tti_grow(&table, &self->places, at + 1, sizeof(struct tti_rdma_qp *)));
        self->table = table;
    }
    self->table[at] = qp;
    qp->place = (self->births++ & 0xffff) << 16 | (uint32_t)at;
    return TUTTI_OK;
}

/* ---- making --------------------------------------------------------------------------------- */

/* As much inline room as the device has, up to what is wanted. */
static struct ibv_qp *qp_make(const struct tti_verbs *verbs, const struct tti_rdma_rail *rail,
                              uint32_t depth, int *in_line)
{
    static const uint32_t inlines[] = {TTI_RDMA_INLINE_BYTES, 128, 64, 32, 0};
    for (size_t i = 0; i < sizeof inlines / sizeof inlines[0]; i++) {
        struct ibv_qp_init_attr wanted = {
            .send_cq = rail->cq,
            .recv_cq = rail->cq,
            .cap = {.max_send_wr = depth,
                    .max_recv_wr = depth,
                    .max_send_sge = 2,
                    .max_recv_sge = 1,
                    .max_inline_data = inlines[i]},
            .qp_type = IBV_QPT_RC,
        };
        struct ibv_qp *made = verbs->create_qp(rail->pd, &wanted);
        if (made) {
            *in_line = (int)inlines[i];
            return made;
        }
        if (errno == ENOMEM)
            break;
    }
    return NULL;
}

/* Both directions of each lane may have a ring's fragments and as many credits under way, and by
 * chance all of them over this one. */
enum tutti_result tti_rdma_qp_create(struct tti_rdma_qp *qp)
{
    struct tti_rdma_endpoint *endpoint = qp->endpoint;
    struct tti_rdma_transport *self = endpoint->transport;
    struct tti_rdma_rail *rail = qp->rail;
    int in_line = 0;
    qp->depth = 2 * endpoint->lanes * (int)self->settings.slots +
                (endpoint->piece ? QP_PIECES : TTI_RDMA_SPARE);
    qp->room = qp->depth;
    qp->spent = qp->depth; /* none is posted yet */
    qp->refused_ns = 0;
    qp->psn = randombytes_random() & 0xffffff;
    TTI_TRY(tti_rdma_rail_reserve(self, rail, 2 * qp->depth));
    qp->qp = qp_make(self->verbs, rail, (uint32_t)qp->depth, &in_line);
    if (!qp->qp) {
        rail->cq_used -= 2 * qp->depth;
        return TTI_FAIL_ERRNO("ibv_create_qp: a queue pair of device %s port %d with %d work "
                              "requests, for rank %d (%s)",
                              rail->device, rail->number, qp->depth, endpoint->peer->rank,
                              endpoint->peer->name);
    }
    in_line -= TTI_RDMA_HEADER_BYTES;
    if (endpoint->inline_most > in_line)
        endpoint->inline_most = in_line;
    return qp_enter(self, qp);
}

void tti_rdma_qp_destroy(struct tti_rdma_qp *qp)
{
    struct tti_rdma_transport *self = qp->endpoint->transport;
    uint32_t at = qp->place & 0xffff;
    if (at < self->places && self->table[at] == qp)
        self->table[at] = NULL;
    if (!qp->qp)
        return;
    self->verbs->destroy_qp(qp->qp);
    qp->rail->cq_used -= 2 * qp->depth;
    qp->qp = NULL;
}

enum tutti_result tti_rdma_qp_renew(struct tti_rdma_qp *qp)
{
    struct tti_rdma_transport *self = qp->endpoint->transport;
    const struct tti_rdma_qp old = *qp;
    /* Made before the old one goes: so the number is another, and packets to the old one that are
     * still on their way find nobody. */
    qp->qp = NULL;
    enum tutti_result result = tti_rdma_qp_create(qp);
    if (result != TUTTI_OK) {
        if (qp->qp) {
            self->verbs->destroy_qp(qp->qp);
            qp->rail->cq_used -= 2 * qp->depth;
        }
        *qp = old; /* which is still in the table */
        return result;
    }
    self->table[old.place & 0xffff] = NULL;
    self->verbs->destroy_qp(old.qp);
    old.rail->cq_used -= 2 * old.depth;
    return TUTTI_OK;
}

/* ---- receives ------------------------------------------------------------------------------- */

/* They carry no memory: what comes is written by the peer, or is an immediate alone. */
enum tutti_result tti_rdma_qp_replenish(struct tti_rdma_qp *qp)
{
    while (qp->spent > 0) {
        struct ibv_recv_wr work[QP_POST_AT_ONCE], *bad = NULL;
        int count = qp->spent < QP_POST_AT_ONCE ? qp->spent : QP_POST_AT_ONCE;
        for (int i = 0; i < count; i++)
            work[i] = (struct ibv_recv_wr){
                .wr_id = tti_rdma_work_id(qp, 0),
                .next = i + 1 < count ? &work[i + 1] : NULL,
            };
        int error = ibv_post_recv(qp->qp, work, &bad);
        if (error)
            return tti_rdma_qp_fail(qp, TUTTI_ERR_LINK, "cannot post receives: ", strerror(error));
        qp->spent -= count;
    }
    return TUTTI_OK;
}

/* ---- joining -------------------------------------------------------------------------------- */

static struct ibv_ah_attr qp_way(const struct tti_rdma_qp *qp)
{
    const struct tti_rdma_settings *settings = &qp->endpoint->transport->settings;
    const struct tti_rdma_port *own = &qp->rail->port;
    const struct tti_rdma_port *peer = &qp->endpoint->advert.port[qp->peer_port];
    struct ibv_ah_attr way = {
        .dlid = peer->lid,
        .sl = (uint8_t)settings->service_level,
        .port_num = qp->rail->number,
    };
    /* InfiniBand needs a global header only between subnets (the first half of the GID). */
    way.is_global = own->layer == TTI_RDMA_ETHERNET || memcmp(own->gid, peer->gid, 8) != 0;
    if (way.is_global) {
        memcpy(way.grh.dgid.raw, peer->gid, 16);
        way.grh.sgid_index = qp->rail->gid_index;
        way.grh.hop_limit = QP_HOPS;
        way.grh.traffic_class = (uint8_t)settings->traffic_class;
    }
    return way;
}

static enum tutti_result qp_modify(struct tti_rdma_qp *qp, struct ibv_qp_attr *change, int mask,
                                   const char *what)
{
    int error = qp->endpoint->transport->verbs->modify_qp(qp->qp, change, mask);
    if (error == 0)
        return TUTTI_OK;
    char text[200];
    snprintf(text, sizeof text, "ibv_modify_qp: %s; ", strerror(error));
    return tti_rdma_qp_fail(qp, TUTTI_ERR_LINK, what, text);
}

static enum tutti_result qp_connect(struct tti_rdma_qp *qp)
{
    const struct tti_rdma_port *own = &qp->rail->port;
    const struct tti_rdma_port *peer = &qp->endpoint->advert.port[qp->peer_port];
    uint8_t timeout = qp->endpoint->transport->settings.timeout;
    struct ibv_qp_attr first = {.qp_state = IBV_QPS_INIT,
                                .pkey_index =
                                    (uint16_t)qp->endpoint->transport->settings.pkey_index,
                                .port_num = qp->rail->number,
                                .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    const uint8_t mtu = own->mtu < peer->mtu ? own->mtu : peer->mtu;
    struct ibv_qp_attr second = {.qp_state = IBV_QPS_RTR,
                                 .path_mtu = (enum ibv_mtu)mtu,
                                 .dest_qp_num = qp->peer_number,
                                 .max_dest_rd_atomic = 1,
                                 .min_rnr_timer = QP_RNR_TIMER,
                                 .ah_attr = qp_way(qp)};
    struct ibv_qp_attr third = {.qp_state = IBV_QPS_RTS,
                                .timeout = timeout,
                                .retry_cnt = QP_RETRIES,
                                .rnr_retry = QP_RETRIES,
                                .sq_psn = qp->psn,
                                .max_rd_atomic = 1};
    for (int i = 0; i < qp->endpoint->qps; i++)
        if (&qp->endpoint->qp[i] == qp)
            second.rq_psn = qp->endpoint->theirs.qp[i].psn;
    TTI_TRY(qp_modify(qp, &first,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
                      "it cannot be set up: "));
    qp->mtu = 128u << mtu;
    TTI_TRY(tti_rdma_qp_replenish(qp));
    TTI_TRY(qp_modify(qp, &second,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                      "there is no way from the own GID to the peer's (is it in another network? "
                      "TUTTI_RDMA_DEVICES, TUTTI_RDMA_GID_INDEX): "));
    return qp_modify(qp, &third,
                     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                         IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
                     "it cannot be made ready to send: ");
}

/* To the state it was made in: nothing is posted, nor completes. */
static enum tutti_result qp_reset(struct tti_rdma_qp *qp)
{
    struct ibv_qp_attr change = {.qp_state = IBV_QPS_RESET};
    qp->spent = qp->depth;
    return qp_modify(qp, &change, IBV_QP_STATE, "it cannot be set up again: ");
}

/* It took from `began` to `now`, and nothing moved meanwhile: as long a time is the others', so no
 * rail that refuses is tried before. A rail that does not is not kept from anything. */
static void qp_refused(struct tti_rdma_qp *qp, uint64_t began, uint64_t now)
{
    struct tti_rdma_transport *self = qp->endpoint->transport;
    const uint64_t next = now + (now - began > QP_APART_NS ? now - began : QP_APART_NS);
    if (qp->refused_ns == 0)
        qp->refused_ns = began;
    qp->rail->join_ns = next;
    qp->rail->rest_ns = now + QP_REST_NS;
    for (int r = 0; r < self->rails; r++)
        if (self->rail[r].join_ns > 0)
            self->rail[r].join_ns = next;
}

/* The kernel asks for the neighbour of RoCE for a second, three times or so; where a link has just
 * come back, or all ask at once, that may be too short. */
enum tutti_result tti_rdma_qp_join(struct tti_rdma_qp *qp, double patience_s)
{
    const uint64_t began = tti_now_ns();
    enum tutti_result result = TUTTI_OK;
    if (began < qp->rail->join_ns)
        return TUTTI_IN_PROGRESS;
    if (qp->refused_ns > 0)
        result = qp_reset(qp);
    if (result == TUTTI_OK)
        result = qp_connect(qp);
    if (result == TUTTI_OK) {
        qp->rail->join_ns = 0;
        return TUTTI_OK;
    }
    const uint64_t now = tti_now_ns();
    qp_refused(qp, began, now);
    if ((double)(now - qp->refused_ns) >= patience_s * 1e9)
        return result;
    TTI_LOG(TTI_LOG_INFO, "rdma: %s; it is tried again", tti_error_text());
    return TUTTI_IN_PROGRESS;
}
