/* A connection without a queue pair that carries anything gets new ones (rdma.h).
 *
 * Of each queue pair that both sides have lost (rdma_failover.c), each side makes another once the
 * old one has given back everything that was posted to it, and tells its number (AGAIN). Who has
 * heard the peer's joins it to his own, posts receives, and says so (JOINED); who has heard that
 * may send. The lower rank begins, so that both sides make the same ones. The peer may be in no
 * call for long: its answer is awaited until the control connection ends or the caller's deadline
 * is over.
 *
 * A link that loses packets, or lets them overtake each other, carries short writes where long ones
 * never get through: many devices take nothing behind a gap, and count repetitions until a whole
 * write, or so, is acknowledged. So fragments go in pieces from then on, each a write of its own;
 * and already when sends are under way and none lands for as long as a repetition takes. */
#include "base/clock.h"
#include "base/log.h"
#include "transport/rdma/rdma.h"

enum { REJOIN_PIECE = 16 << 10 };
#define REJOIN_STALL_NS UINT64_C(200000000)
#define REJOIN_GAP_NS UINT64_C(120000000) /* who did not look for longer does not know */

enum tutti_result tti_rdma_say(struct tti_rdma_qp *qp, enum tti_rdma_saying saying)
{
    struct tti_rdma_endpoint *self = qp->endpoint;
    uint8_t bytes[TTI_RDMA_WORD_BYTES];
    struct tti_rdma_word word = {.saying = (uint8_t)saying, .qp = (uint8_t)(qp - self->qp)};
    if (saying == TTI_RDMA_AGAIN) {
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

void tti_rdma_watch(struct tti_rdma_transport *self)
{
    const uint64_t now = tti_now_ns();
    const bool known = now - self->watched_ns < REJOIN_GAP_NS;
    self->watched_ns = now;
    for (struct tti_rdma_endpoint *e = self->endpoint; e; e = e->next)
        if (e->state == TTI_RDMA_UP)
            rejoin_watch(e, now, known);
}

/* ---- another queue pair --------------------------------------------------------------------- */

static void rejoin_done(struct tti_rdma_qp *qp)
{
    struct tti_rdma_endpoint *self = qp->endpoint;
    qp->lost = qp->peer_lost = qp->moved = false;
    qp->rejoin = qp->renewed = qp->peer_renewed = qp->joined = qp->peer_joined = false;
    self->lost--;
    self->transport->news = true;
    enum tutti_result result = tti_rdma_qp_replenish(qp);
    if (result != TUTTI_OK)
        tti_rdma_endpoint_fail(self, result);
    TTI_LOG(TTI_LOG_WARN,
            "rdma: the connection to rank %d (%s) was made again over %s port %d, queue pair %u; "
            "what was lost is sent again, in pieces of %u KiB from now on",
            self->peer->rank, self->peer->name, qp->rail->device, qp->rail->number, qp->qp->qp_num,
            self->piece >> 10);
}

static enum tutti_result rejoin_qp(struct tti_rdma_qp *qp)
{
    if (!qp->lost || !qp->rejoin || !qp->moved)
        return TUTTI_OK;
    if (!qp->renewed) {
        if (qp->spent < qp->depth) /* receives that are still to come may hold fragments */
            return TUTTI_OK;
        rejoin_pieces(qp->endpoint);
        TTI_TRY(tti_rdma_qp_renew(qp));
        TTI_TRY(tti_rdma_say(qp, TTI_RDMA_AGAIN));
        qp->renewed = true;
    }
    if (qp->peer_renewed && !qp->joined) {
        TTI_TRY(tti_rdma_qp_connect(qp));
        TTI_TRY(tti_rdma_say(qp, TTI_RDMA_JOINED));
        qp->joined = true;
    }
    if (qp->joined && qp->peer_joined)
        rejoin_done(qp);
    return TUTTI_OK;
}

void tti_rdma_rejoin_step(struct tti_rdma_endpoint *self)
{
    const bool begins = self->transport->env.rank < self->peer->rank;
    for (int i = 0; i < self->qps; i++)
        tti_rdma_failover_step(&self->qp[i]);
    if (self->ended || self->goodbye)
        return;
    for (int i = 0; begins && self->lost == self->qps && i < self->qps; i++)
        self->qp[i].rejoin = true;
    for (int i = 0; i < self->qps; i++) {
        enum tutti_result result = rejoin_qp(&self->qp[i]);
        if (result == TUTTI_OK)
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
    if (saying == TTI_RDMA_AGAIN)
        return qp->lost && qp->peer_lost && !qp->peer_renewed;
    return qp->renewed && qp->peer_renewed && !qp->peer_joined;
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
    if (word->saying == TTI_RDMA_AGAIN) {
        qp->peer_renewed = true;
        qp->peer_number = word->number;
        self->theirs.qp[word->qp].psn = word->psn;
        qp->rejoin = true;
    } else {
        qp->peer_joined = true;
    }
    tti_rdma_rejoin_step(self);
}
