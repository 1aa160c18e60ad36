/* A queue pair that was lost is made anew: at once where none is left, on trial where others carry
 * (rdma.h).
 *
 * Of each queue pair that both sides have lost (rdma_failover.c), each side makes another once the
 * old one has given back everything that was posted to it, and tells its number (AGAIN). Who has
 * heard the peer's joins it to his own, posts receives, and says so (JOINED); who has heard that
 * may send. The lower rank begins, so that both sides make the same ones. The peer may be in no
 * call for long: its answer is awaited until the control connection ends or the caller's deadline
 * is over.
 *
 * Where others carry, the lower rank tries from time to time whether what was lost is back: after a
 * second, then after twice as long each time, up to a minute; so a link that flaps costs a device's
 * patience a minute at most. The new queue pair is on trial (AGAIN says so): once it is joined,
 * each side writes a full packet by it to a place that nobody reads, and a credit. When these are
 * acknowledged here, this side's fragments go by it as by any other, whatever the peer's trial
 * does. No order has to be agreed on: every fragment names its slot, so what is still under way by
 * another queue pair stays there. A trial that fails is no complaint: the side that sees it lets go
 * of the queue pair (LOST), the other does so, too, and a later trial begins anew. Each says LOST
 * once for each time it was made; both have to before it is made again. When all that carried
 * break, trials are called off, and all are made again at once.
 *
 * Joining may block: where no neighbour answers, the kernel looks for one for a second (RoCE). So
 * nothing is tried by a port that is down, trials of one rail begin one after another, and none is
 * joined for some time after one that could not be. Where none carries, joining is tried for as
 * long as a device would be patient, by each rail: the connection fails when all have been given up
 * that could be made again, and not before.
 *
 * A link that loses packets, or lets them overtake each other, carries short writes where long ones
 * never get through: many devices take nothing behind a gap, and count repetitions until a whole
 * write, or so, is acknowledged. So fragments go in pieces from then on, each a write of its own;
 * and already when sends are under way and none lands for as long as a repetition takes. */
#include "base/clock.h"
#include "base/log.h"
#include "transport/rdma/rdma.h"

#include <arpa/inet.h>
#include <string.h>

enum { REJOIN_PIECE = 16 << 10 };
#define REJOIN_USUAL_NS UINT64_C(200000000)
#define REJOIN_FIRST_NS UINT64_C(1000000000)
#define REJOIN_MOST_NS UINT64_C(60000000000)
#define REJOIN_APART_NS UINT64_C(100000000) /* between two trials of a rail */
#define REJOIN_STALL_NS UINT64_C(200000000)
#define REJOIN_GAP_NS UINT64_C(120000000) /* who did not look for longer does not know */

enum tutti_result tti_rdma_say(struct tti_rdma_qp *qp, enum tti_rdma_saying saying)
{
    struct tti_rdma_endpoint *self = qp->endpoint;
    uint8_t bytes[TTI_RDMA_WORD_BYTES];
    struct tti_rdma_word word = {.saying = (uint8_t)saying, .qp = (uint8_t)(qp - self->qp)};
    if (saying == TTI_RDMA_AGAIN) {
        word.trial = qp->trial;
        word.number = qp->qp->qp_num;
        word.psn = qp->psn;
    }
    tti_rdma_put_word(&word, bytes);
    return tti_rdma_endpoint_say(self, bytes, sizeof bytes);
}

/* ---- pieces --------------------------------------------------------------------------------- */

/* Fragments go in pieces from now on. Each queue pair has room for a whole one, and for others. */
static void rejoin_pieces(struct tti_rdma_endpoint *self)
{
    const uint32_t most = TTI_RDMA_HEADER_BYTES + self->theirs.slot_bytes;
    uint32_t piece = REJOIN_PIECE;
    int depth = self->qp[0].depth;
    for (int i = 1; i < self->qps; i++)
        if (depth > self->qp[i].depth)
            depth = self->qp[i].depth;
    while ((most + piece - 1) / piece > (uint32_t)depth / 2)
        piece *= 2;
    self->piece = piece;
    self->pieces = (int)((most + piece - 1) / piece);
}

static void rejoin_watch(struct tti_rdma_endpoint *self, uint64_t now, bool known)
{
    if (!known || self->flying == 0 || self->landings != self->watched) {
        self->watched = self->landings;
        self->watched_ns = now;
        return;
    }
    if (self->piece > 0 || now - self->watched_ns < REJOIN_STALL_NS)
        return;
    rejoin_pieces(self);
    TTI_LOG(TTI_LOG_INFO,
            "rdma: nothing sent to rank %d (%s) was acknowledged for %u ms; it goes in pieces of "
            "%u KiB from now on",
            self->peer->rank, self->peer->name, (unsigned)((now - self->watched_ns) / 1000000),
            self->piece >> 10);
}

static bool rejoin_begins(const struct tti_rdma_endpoint *self)
{
    return self->transport->env.rank < self->peer->rank;
}

/* Both sides have let go of it, and neither has begun anew. */
static bool rejoin_over(const struct tti_rdma_qp *qp)
{
    return qp->lost && qp->said_lost && qp->peer_lost;
}

/* What was lost while others carry is tried when its time has come. */
static void rejoin_due(struct tti_rdma_endpoint *self, uint64_t now)
{
    if (self->lost == 0 || self->lost == self->qps || !rejoin_begins(self))
        return;
    for (int i = 0; i < self->qps; i++) {
        struct tti_rdma_qp *qp = &self->qp[i];
        if (qp->rejoin || qp->again || !rejoin_over(qp) || now < qp->try_ns ||
            qp->rail->port_down || now < qp->rail->trial_ns || now < qp->rail->rest_ns)
            continue;
        qp->rejoin = qp->trial = true;
        qp->rail->trial_ns = now + REJOIN_APART_NS;
    }
}

void tti_rdma_watch(struct tti_rdma_transport *self)
{
    const uint64_t now = tti_now_ns();
    const bool known = now - self->watched_ns < REJOIN_GAP_NS;
    self->watched_ns = now;
    for (struct tti_rdma_endpoint *e = self->endpoint; e; e = e->next)
        if (e->state == TTI_RDMA_UP) {
            rejoin_watch(e, now, known);
            rejoin_due(e, now);
        }
}

/* ---- another queue pair --------------------------------------------------------------------- */

static void rejoin_done(struct tti_rdma_qp *qp)
{
    struct tti_rdma_endpoint *self = qp->endpoint;
    if (qp->trial)
        TTI_LOG(TTI_LOG_WARN, "rdma: %s port %d carries to rank %d (%s) again, queue pair %u",
                qp->rail->device, qp->rail->number, self->peer->rank, self->peer->name,
                qp->qp->qp_num);
    else
        TTI_LOG(TTI_LOG_WARN,
                "rdma: the connection to rank %d (%s) was made again over %s port %d, queue pair "
                "%u; what was lost is sent again, in pieces of %u KiB from now on",
                self->peer->rank, self->peer->name, qp->rail->device, qp->rail->number,
                qp->qp->qp_num, self->piece >> 10);
    qp->lost = qp->said_lost = qp->peer_lost = qp->moved = qp->trial = qp->again = false;
    qp->rejoin = qp->renewed = qp->peer_renewed = qp->joined = qp->peer_joined = false;
    for (int i = 0; i < self->qps; i++)
        self->qp[i].hopeless = false;
    qp->back_ns = tti_now_ns();
    self->lost--;
    self->transport->news = true;
    enum tutti_result result = tti_rdma_qp_replenish(qp);
    if (result != TUTTI_OK)
        tti_rdma_endpoint_fail(self, result);
}

void tti_rdma_rejoin_later(struct tti_rdma_qp *qp)
{
    const uint64_t now = tti_now_ns();
    if (!qp->rejoin && now - qp->back_ns > REJOIN_MOST_NS)
        qp->wait_ns = 0; /* it has carried for long */
    qp->wait_ns = qp->wait_ns == 0 ? REJOIN_FIRST_NS : 2 * qp->wait_ns;
    if (qp->wait_ns > REJOIN_MOST_NS)
        qp->wait_ns = REJOIN_MOST_NS;
    qp->try_ns = now + qp->wait_ns;
}

/* It is not made again now, for the reason in the thread's last error or that the peer has. What
 * the peer says of it until it has heard so is still in turn. */
static void rejoin_end(struct tti_rdma_qp *qp)
{
    struct tti_rdma_endpoint *self = qp->endpoint;
    struct ibv_qp_attr change = {.qp_state = IBV_QPS_ERR};
    tti_rdma_rejoin_later(qp);
    TTI_LOG(TTI_LOG_INFO,
            "rdma: %s port %d does not carry to rank %d (%s) yet; it will be tried again",
            qp->rail->device, qp->rail->number, self->peer->rank, self->peer->name);
    qp->rejoin = qp->trial = false;
    if (!qp->said_lost) {
        (void)self->transport->verbs->modify_qp(qp->qp, &change, IBV_QP_STATE);
        qp->said_lost = true;
        enum tutti_result result = tti_rdma_say(qp, TTI_RDMA_LOST);
        if (result != TUTTI_OK)
            tti_rdma_endpoint_fail(self, result);
    }
    if (rejoin_over(qp))
        qp->renewed = qp->peer_renewed = qp->joined = qp->peer_joined = false;
}

void tti_rdma_rejoin_off(struct tti_rdma_qp *qp)
{
    if (!qp->said_lost)
        rejoin_end(qp);
    else if (rejoin_over(qp))
        qp->renewed = qp->peer_renewed = qp->joined = qp->peer_joined = false;
}

/* A full packet to a place that nobody reads, and what the lane's last credit said. */
static enum tutti_result rejoin_try(struct tti_rdma_qp *qp)
{
    struct tti_rdma_endpoint *self = qp->endpoint;
    const struct tti_rdma_hello *theirs = &self->theirs;
    const uint32_t credit = tti_rdma_immediate(TTI_RDMA_WORK_CREDIT, 0, self->lane[0].consumed);
    struct ibv_sge packet = tti_rdma_piece(self->trial, qp->mtu,
                                           self->memory.mr[qp->rail - self->transport->rail]->lkey);
    struct ibv_send_wr work[2] = {
        {.wr_id = tti_rdma_work_id(qp, tti_rdma_immediate(TTI_RDMA_WORK_PIECE, 0, 0)),
         .next = &work[1],
         .sg_list = &packet,
         .num_sge = 1,
         .opcode = IBV_WR_RDMA_WRITE,
         .send_flags = IBV_SEND_SIGNALED},
        {.wr_id = tti_rdma_work_id(qp, credit),
         .opcode = IBV_WR_SEND_WITH_IMM,
         .send_flags = IBV_SEND_SIGNALED,
         .imm_data = htonl(credit)},
    };
    struct ibv_send_wr *bad = NULL;
    work[0].wr.rdma.remote_addr =
        theirs->ring + (uint64_t)self->lanes * theirs->slots *
                           (tti_rdma_stride(theirs->slot_bytes) + TTI_RDMA_HEADER_BYTES);
    work[0].wr.rdma.rkey = qp->peer_key;
    const int error = ibv_post_send(qp->qp, work, &bad);
    const int posted = error == 0 ? 2 : bad == &work[1];
    qp->tried = posted;
    qp->room -= posted;
    if (error)
        return tti_rdma_qp_fail(qp, TUTTI_ERR_LINK, "cannot send: ", strerror(error));
    return TUTTI_OK;
}

void tti_rdma_tried(struct tti_rdma_qp *qp, bool success)
{
    const struct tti_rdma_endpoint *self = qp->endpoint;
    qp->tried--;
    const bool over = qp->said_lost || !qp->joined; /* and another may have been begun */
    if (self->state != TTI_RDMA_UP || self->ended || self->goodbye || over)
        return;
    if (!success)
        rejoin_end(qp);
    else if (qp->tried == 0)
        rejoin_done(qp);
}

/* What carries must not wait for a neighbour that does not answer. */
static enum tutti_result rejoin_may_try(const struct tti_rdma_qp *qp)
{
    const bool others = qp->trial || qp->endpoint->lost < qp->endpoint->qps;
    if (!others || qp->joined)
        return TUTTI_OK;
    if (qp->rail->port_down)
        return tti_rdma_qp_fail(qp, TUTTI_ERR_LINK, "the port is down", "");
    if (tti_now_ns() < qp->rail->rest_ns)
        return tti_rdma_qp_fail(qp, TUTTI_ERR_LINK, "another could not be joined a moment ago", "");
    return TUTTI_OK;
}

/* The neighbour does not answer: nor would it by another queue pair that goes the same way. */
static void rejoin_give_up(const struct tti_rdma_qp *qp)
{
    struct tti_rdma_endpoint *self = qp->endpoint;
    for (int i = 0; i < self->qps; i++) {
        struct tti_rdma_qp *other = &self->qp[i];
        other->hopeless |=
            !other->joined && other->rail == qp->rail && other->peer_port == qp->peer_port;
    }
}

/* None carries: is there none left that may yet be made again? */
static bool rejoin_hopeless(const struct tti_rdma_endpoint *self)
{
    for (int i = 0; i < self->qps; i++)
        if (!self->qp[i].hopeless)
            return false;
    return true;
}

static enum tutti_result rejoin_join(struct tti_rdma_qp *qp)
{
    const struct tti_rdma_endpoint *self = qp->endpoint;
    const bool others = qp->trial || self->lost < self->qps;
    enum tutti_result result =
        tti_rdma_qp_join(qp, others ? 0 : self->transport->settings.outage_s / 2);
    if (result == TUTTI_IN_PROGRESS)
        return TUTTI_OK;
    if (result != TUTTI_OK) {
        if (!others)
            rejoin_give_up(qp);
        return result;
    }
    TTI_TRY(tti_rdma_say(qp, TTI_RDMA_JOINED));
    qp->joined = true;
    return TUTTI_OK;
}

static enum tutti_result rejoin_qp(struct tti_rdma_qp *qp)
{
    struct tti_rdma_endpoint *self = qp->endpoint;
    if (!qp->lost || !qp->rejoin || !qp->moved || qp->tried > 0)
        return TUTTI_OK;
    if (qp->hopeless)
        return TUTTI_OK;
    TTI_TRY(rejoin_may_try(qp));
    if (!qp->renewed) {
        /* Receives that are still to come may hold fragments. */
        if (qp->spent < qp->depth || qp->room < qp->depth)
            return TUTTI_OK;
        if (!qp->trial)
            rejoin_pieces(self);
        TTI_TRY(tti_rdma_qp_renew(qp));
        qp->renewed = true;
        qp->said_lost = qp->peer_lost = false;
        TTI_TRY(tti_rdma_say(qp, TTI_RDMA_AGAIN));
    }
    if (qp->peer_renewed && !qp->joined)
        TTI_TRY(rejoin_join(qp));
    if (!qp->joined || !qp->peer_joined)
        return TUTTI_OK;
    if (qp->trial && self->lost < self->qps)
        return rejoin_try(qp);
    rejoin_done(qp);
    return TUTTI_OK;
}

/* Is one of the usual ones about to carry again? */
static bool rejoin_awaited(const struct tti_rdma_endpoint *self, uint64_t now)
{
    bool some = false;
    for (int i = 0; i < self->usual; i++)
        some |=
            self->qp[i].lost && (self->qp[i].again || (self->qp[i].rejoin && !self->qp[i].trial));
    return some && now - self->none_ns < REJOIN_USUAL_NS;
}

/* When none is left, all are made again, and what is on trial, too: those in reserve after the
 * others, so that they are tried after them again. */
static void rejoin_all(struct tti_rdma_endpoint *self)
{
    const bool none = self->lost == self->qps;
    bool some = none;
    for (int i = 0; i < self->qps; i++)
        some |= self->qp[i].again;
    const uint64_t now = some ? tti_now_ns() : 0;
    if (none && self->none_ns == 0)
        self->none_ns = now;
    for (int i = 0; none && i < self->qps && self->state == TTI_RDMA_UP; i++) {
        struct tti_rdma_qp *qp = &self->qp[i];
        if (qp->trial && qp->renewed)
            rejoin_end(qp);
        else if (qp->trial) /* it has not begun */
            qp->rejoin = qp->trial = false;
        qp->again |= !qp->rejoin;
    }
    for (int i = 0; some && i < self->qps; i++) {
        struct tti_rdma_qp *qp = &self->qp[i];
        if (!qp->again || !rejoin_over(qp) || (i >= self->usual && rejoin_awaited(self, now)))
            continue;
        qp->rejoin = true;
        qp->again = qp->trial = false;
    }
    if (!none)
        self->none_ns = 0;
}

void tti_rdma_rejoin_step(struct tti_rdma_endpoint *self)
{
    for (int i = 0; i < self->qps; i++)
        tti_rdma_failover_step(&self->qp[i]);
    if (self->ended || self->goodbye)
        return;
    if (rejoin_begins(self))
        rejoin_all(self);
    for (int i = 0; i < self->qps && self->state == TTI_RDMA_UP; i++) {
        struct tti_rdma_qp *qp = &self->qp[i];
        enum tutti_result result = rejoin_qp(qp);
        if (result == TUTTI_OK)
            continue;
        if (qp->trial || self->lost < self->qps) {
            rejoin_end(qp);
            continue;
        }
        if (qp->hopeless && !rejoin_hopeless(self))
            continue;
        tti_rdma_endpoint_fail(self, result);
        return;
    }
}

/* What is said must fit to what was said before. */
static bool rejoin_in_turn(const struct tti_rdma_qp *qp, enum tti_rdma_saying saying)
{
    if (saying == TTI_RDMA_LOST)
        return !qp->peer_lost;
    if (saying == TTI_RDMA_AGAIN && !rejoin_begins(qp->endpoint))
        return rejoin_over(qp);
    if (!qp->renewed || qp->peer_lost)
        return false;
    return saying == TTI_RDMA_AGAIN ? !qp->peer_renewed : qp->peer_renewed && !qp->peer_joined;
}

static void rejoin_heard_again(struct tti_rdma_qp *qp, const struct tti_rdma_word *word)
{
    qp->peer_renewed = true;
    qp->peer_number = word->number;
    qp->endpoint->theirs.qp[word->qp].psn = word->psn;
    if (rejoin_begins(qp->endpoint))
        return; /* it is the answer, and this side may have let go meanwhile */
    qp->said_lost = qp->peer_lost = false;
    qp->rejoin = true;
    qp->trial = word->trial;
}

void tti_rdma_heard(struct tti_rdma_endpoint *self, const struct tti_rdma_word *word)
{
    struct tti_rdma_qp *qp = &self->qp[word->qp < self->qps ? word->qp : 0];
    if (word->qp >= self->qps || !rejoin_in_turn(qp, word->saying)) {
        tti_rdma_endpoint_fail(self, tti_rdma_qp_fail(qp, TUTTI_ERR_PROTOCOL, "the peer speaks of ",
                                                      "a queue pair that there is not, or of one "
                                                      "that has not come so far"));
        return;
    }
    if (word->saying == TTI_RDMA_LOST) {
        tti_rdma_lose_heard(qp);
        return;
    }
    if (word->saying == TTI_RDMA_AGAIN)
        rejoin_heard_again(qp, word);
    else
        qp->peer_joined = true;
    tti_rdma_rejoin_step(self);
}
