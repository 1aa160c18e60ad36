/* Endpoints: how two ranks meet over the control connection, and how they part (rdma.h). */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "transport/rdma/rdma.h"

#include <stdlib.h>
#include <string.h>

extern const struct tutti_transport_ops tti_tcp_ops;

enum { ENDPOINT_TAG = 1, ENDPOINT_PAGE = 4096 };

/* ---- failing -------------------------------------------------------------------------------- */

static void endpoint_settle(struct tti_rdma_endpoint *self, enum tti_rdma_state state)
{
    if (self->state < TTI_RDMA_UP)
        self->transport->connecting--;
    self->state = state;
    self->transport->news = true;
}

/* Queue pairs in error complete at once what was posted to them: its memory is let go. */
void tti_rdma_endpoint_fail(struct tti_rdma_endpoint *self, enum tutti_result code)
{
    struct ibv_qp_attr change = {.qp_state = IBV_QPS_ERR};
    if (self->state == TTI_RDMA_FAILED)
        return;
    tti_error_save(&self->error, code);
    endpoint_settle(self, TTI_RDMA_FAILED);
    for (int i = 0; i < self->qps; i++)
        if (self->qp[i].qp)
            (void)self->transport->verbs->modify_qp(self->qp[i].qp, &change, IBV_QP_STATE);
    tti_rdma_failover_end(self);
}

static void endpoint_garbled(struct tti_rdma_endpoint *self, const char *what)
{
    tti_rdma_endpoint_fail(self, TTI_FAIL(TUTTI_ERR_PROTOCOL,
                                          "rank %d (%s) sent %s over the control connection of "
                                          "RDMA",
                                          self->peer->rank, self->peer->name, what));
}

/* ---- the control connection ----------------------------------------------------------------- */

/* Messages are small, and few: the connection takes each at once, or is broken. */
enum tutti_result tti_rdma_endpoint_say(struct tti_rdma_endpoint *self, const uint8_t *bytes,
                                        size_t size)
{
    size_t accepted = 0;
    self->transport->unsettled = true;
    TTI_TRY(tti_tcp_ops.send(self->control, 0, ENDPOINT_TAG, bytes, size, &accepted));
    if (accepted != size)
        return TTI_FAIL(TUTTI_ERR_LINK,
                        "the control connection of RDMA to rank %d (%s) is stuck: it takes nothing",
                        self->peer->rank, self->peer->name);
    return TUTTI_OK;
}

static enum tutti_result endpoint_say_hello(struct tti_rdma_endpoint *self)
{
    const struct tti_rdma_transport *transport = self->transport;
    uint8_t bytes[TTI_RDMA_HELLO_BYTES];
    struct tti_rdma_hello hello = {
        .lanes = (uint8_t)self->lanes,
        .qps = (uint8_t)self->qps,
        .slots = (uint16_t)transport->settings.slots,
        .slot_bytes = (uint32_t)transport->settings.slot_bytes,
        .ring = (uintptr_t)self->memory.base,
    };
    for (int i = 0; i < self->qps; i++) {
        const struct tti_rdma_qp *qp = &self->qp[i];
        hello.qp[i].number = qp->qp->qp_num;
        hello.qp[i].psn = qp->psn;
        hello.qp[i].key = self->memory.mr[qp->rail - transport->rail]->rkey;
    }
    tti_rdma_put_hello(&hello, bytes);
    return tti_rdma_endpoint_say(self, bytes, sizeof bytes);
}

static enum tutti_result endpoint_hello(struct tti_rdma_endpoint *self)
{
    const struct tti_rdma_hello *theirs = &self->theirs;
    if (theirs->lanes != self->lanes || theirs->qps != self->qps)
        return TTI_FAIL(TUTTI_ERR_PROTOCOL,
                        "rank %d (%s) connects with %d lanes and %d queue pairs, this rank with %d "
                        "and %d; TUTTI_LANES and TUTTI_RDMA_QPS must be alike on all ranks",
                        self->peer->rank, self->peer->name, theirs->lanes, theirs->qps, self->lanes,
                        self->qps);
    if (self->window > theirs->slots)
        self->window = theirs->slots;
    for (int i = 0; i < self->qps; i++) {
        self->qp[i].peer_number = theirs->qp[i].number;
        self->qp[i].peer_key = theirs->qp[i].key;
    }
    self->state = TTI_RDMA_JOINING;
    return TUTTI_OK;
}

static void endpoint_up(struct tti_rdma_endpoint *self)
{
    endpoint_settle(self, TTI_RDMA_UP);
    for (int i = 0; i < self->qps; i++)
        TTI_LOG(TTI_LOG_INFO,
                "rdma: rank %d <-> rank %d (%s) over %s port %d (%s), queue pair %u%s",
                self->transport->env.rank, self->peer->rank, self->peer->name,
                self->qp[i].rail->device, self->qp[i].rail->number, self->qp[i].rail->address,
                self->qp[i].qp->qp_num, i < self->usual ? "" : ", in reserve: it is far");
}

static enum tutti_result endpoint_join(struct tti_rdma_endpoint *self)
{
    uint8_t ready[TTI_RDMA_READY_BYTES];
    for (; self->joined < self->qps; self->joined++)
        TTI_TRY(tti_rdma_qp_join(&self->qp[self->joined], self->transport->settings.outage_s));
    tti_rdma_put_ready(ready);
    TTI_TRY(tti_rdma_endpoint_say(self, ready, sizeof ready));
    self->state = TTI_RDMA_READYING;
    if (self->ready)
        endpoint_up(self);
    return TUTTI_OK;
}

static void endpoint_join_step(struct tti_rdma_endpoint *self)
{
    enum tutti_result result = endpoint_join(self);
    if (result != TUTTI_OK && result != TUTTI_IN_PROGRESS)
        tti_rdma_endpoint_fail(self, result);
}

/* How long the message that comes next is, by the state. */
static size_t endpoint_expected(const struct tti_rdma_endpoint *self)
{
    switch (self->state) {
    case TTI_RDMA_TELLING:
        return TTI_RDMA_HELLO_BYTES;
    case TTI_RDMA_JOINING:
    case TTI_RDMA_READYING:
        return TTI_RDMA_READY_BYTES;
    default:
        return TTI_RDMA_GOODBYE_BYTES;
    }
}

/* A whole message is in `heard`. */
static void endpoint_understand(struct tti_rdma_endpoint *self)
{
    const char *wrong = NULL;
    enum tutti_result result = TUTTI_OK;
    struct tti_rdma_word word;
    self->heard_bytes = 0;
    if (self->state == TTI_RDMA_TELLING) {
        wrong = tti_rdma_get_hello(self->heard, &self->theirs);
        result = wrong ? TUTTI_OK : endpoint_hello(self);
    } else if (self->state == TTI_RDMA_JOINING) { /* the peer was quicker */
        wrong = self->ready ? "more before it was answered" : tti_rdma_get_ready(self->heard);
        self->ready = true;
    } else if (self->state == TTI_RDMA_READYING) {
        wrong = tti_rdma_get_ready(self->heard);
        if (!wrong)
            endpoint_up(self);
    } else if (!tti_rdma_get_word(self->heard, &word)) {
        tti_rdma_heard(self, &word);
    } else {
        wrong = self->goodbye ? "a second goodbye" : tti_rdma_get_goodbye(self->heard, &self->last);
        self->goodbye = true;
        self->transport->news = true;
    }
    if (wrong)
        endpoint_garbled(self, wrong);
    else if (result != TUTTI_OK)
        tti_rdma_endpoint_fail(self, result);
}

/* The connection is at its end. In the middle of meeting, that is the error; later, peek and send
 * say so when what had come before is consumed. */
static void endpoint_end(struct tti_rdma_endpoint *self, enum tutti_result code)
{
    self->ended = true;
    self->ended_ns = tti_now_ns();
    self->transport->news = true;
    if (self->state < TTI_RDMA_UP)
        tti_rdma_endpoint_fail(self, code);
}

static void endpoint_listen(struct tti_rdma_endpoint *self)
{
    self->transport->unsettled = true;
    while (!self->ended && self->state != TTI_RDMA_FAILED) {
        uint64_t tag = 0;
        const void *data = NULL;
        size_t bytes = 0, wanted = endpoint_expected(self) - self->heard_bytes;
        enum tutti_result result = tti_tcp_ops.peek(self->control, 0, &tag, &data, &bytes);
        if (result != TUTTI_OK) {
            endpoint_end(self, result);
            return;
        }
        if (bytes == 0)
            return;
        if (bytes > wanted)
            bytes = wanted;
        memcpy(self->heard + self->heard_bytes, data, bytes);
        self->heard_bytes += bytes;
        tti_tcp_ops.consume(self->control, 0, bytes);
        if (bytes == wanted)
            endpoint_understand(self);
    }
}

static void endpoint_meet(struct tti_rdma_endpoint *self)
{
    enum tutti_result result = tti_tcp_ops.advance(self->control);
    if (result == TUTTI_IN_PROGRESS)
        return;
    if (result == TUTTI_OK)
        result = endpoint_say_hello(self);
    if (result == TUTTI_OK)
        self->state = TTI_RDMA_TELLING;
    else
        tti_rdma_endpoint_fail(self, TTI_CONTEXT(result, "RDMA's control connection"));
}

void tti_rdma_control(struct tti_rdma_transport *self)
{
    self->look = false;
    self->unsettled = true;
    self->skipped = 0;
    self->looked_ns = tti_now_ns();
    (void)tti_tcp_ops.progress(self->tcp);
    for (struct tti_rdma_endpoint *e = self->endpoint; e; e = e->next) {
        if (e->state == TTI_RDMA_MEETING)
            endpoint_meet(e);
        if (e->state != TTI_RDMA_MEETING)
            endpoint_listen(e);
        if (e->state == TTI_RDMA_JOINING)
            endpoint_join_step(e);
    }
    tti_rdma_rails_hear(self);
    tti_rdma_watch(self);
}

/* ---- making --------------------------------------------------------------------------------- */

static enum tutti_result endpoint_lanes(struct tti_rdma_endpoint *self)
{
    struct tti_rdma_transport *transport = self->transport;
    const struct tti_rdma_settings *settings = &transport->settings;
    size_t slots = (size_t)settings->slots, lanes = (size_t)self->lanes;
    size_t ring = slots * tti_rdma_stride(settings->slot_bytes);
    size_t bytes = lanes * (ring + slots * TTI_RDMA_HEADER_BYTES) + TTI_RDMA_TRIAL_BYTES;
    uint8_t *base = tti_calloc_aligned(ENDPOINT_PAGE, 1, bytes);
    if (!base)
        return TUTTI_ERR_MEMORY;
    enum tutti_result result =
        tti_rdma_register(transport, base, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
                          "the rings of a connection", &self->memory);
    if (result != TUTTI_OK) {
        free(base);
        return result;
    }
    self->headers = base + lanes * ring;
    self->trial = self->headers + lanes * slots * TTI_RDMA_HEADER_BYTES;
    self->window = (uint32_t)slots;
    self->pieces = 1;
    for (int i = 0; i < self->lanes; i++) {
        struct tti_rdma_lane *lane = &self->lane[i];
        lane->ring = base + (size_t)i * ring;
        lane->sent = tti_calloc(slots, sizeof *lane->sent);
        lane->arrived = tti_calloc(slots, sizeof *lane->arrived);
        if (!lane->sent || !lane->arrived)
            return TUTTI_ERR_MEMORY;
    }
    return TUTTI_OK;
}

/* For each near pair of ports as many queue pairs as TUTTI_RDMA_QPS says and there is room for;
 * behind them, in reserve, one for each pair that is far. */
static enum tutti_result endpoint_qps(struct tti_rdma_endpoint *self,
                                      const struct tti_rdma_advert *own)
{
    struct tti_rdma_transport *transport = self->transport;
    struct tti_rdma_pair pair[TTI_RDMA_MAX_RAILS];
    bool lower = transport->env.rank < self->peer->rank;
    int pairs =
        lower ? tti_rdma_match(own, &self->advert, pair) : tti_rdma_match(&self->advert, own, pair);
    if (pairs == 0)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED, "no RDMA port of rank %d (%s) can talk to one here",
                        self->peer->rank, self->peer->name);
    const int near = lower ? tti_rdma_prefer(own, &self->advert, pair, pairs)
                           : tti_rdma_prefer(&self->advert, own, pair, pairs);
    self->usual = tti_rdma_usual(near, pairs, (int)transport->settings.qps);
    const int count = self->usual + pairs - near;
    self->inline_most = TTI_RDMA_INLINE_BYTES;
    for (int i = 0; i < count; i++) {
        struct tti_rdma_qp *qp = &self->qp[i];
        struct tti_rdma_pair with = pair[i < self->usual ? i % near : near + i - self->usual];
        qp->endpoint = self;
        qp->rail = &transport->rail[lower ? with.lower : with.higher];
        qp->peer_port = lower ? with.higher : with.lower;
        self->qps = i + 1;
        TTI_TRY(tti_rdma_qp_create(qp));
    }
    return TUTTI_OK;
}

void tti_rdma_own_advert(const struct tti_rdma_transport *self, struct tti_rdma_advert *advert)
{
    memset(advert, 0, sizeof *advert);
    advert->count = self->rails;
    for (int r = 0; r < self->rails; r++)
        advert->port[r] = self->rail[r].port;
}

static void endpoint_release(struct tti_rdma_endpoint *self)
{
    for (int i = 0; i < self->qps; i++)
        tti_rdma_qp_destroy(&self->qp[i]);
    if (self->control)
        tti_tcp_ops.disconnect(self->control);
    for (int i = 0; i < self->lanes; i++) {
        struct tti_rdma_lane *lane = &self->lane[i];
        for (uint32_t k = 0; lane->sent && k < (uint32_t)self->transport->settings.slots; k++)
            if (lane->sent[k].buffer)
                tti_rdma_buffer_give(self->transport, lane->sent[k].buffer);
        if (lane->reserved)
            tti_rdma_buffer_give(self->transport, lane->reserved);
        free(lane->sent);
        free(lane->arrived);
    }
    tti_rdma_deregister(self->transport, &self->memory);
    free(self->memory.base);
    free(self);
}

static enum tutti_result endpoint_begin(struct tti_rdma_endpoint *self)
{
    struct tti_rdma_advert own;
    tti_rdma_own_advert(self->transport, &own);
    TTI_TRY(endpoint_lanes(self));
    TTI_TRY(endpoint_qps(self, &own));
    return tti_tcp_ops.connect(self->transport->tcp, &self->control_peer, 1, &self->control);
}

enum tutti_result tti_rdma_connect(void *object, const struct tutti_peer *peer, int lanes,
                                   void **out)
{
    struct tti_rdma_transport *transport = object;
    struct tti_rdma_advert advert;
    if (lanes < 1 || lanes > transport->max_lanes)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "connecting to rank %d (%s) with %d lanes: expected 1 to %d", peer->rank,
                        peer->name, lanes, transport->max_lanes);
    const char *wrong = tti_rdma_get_advert(peer->address, peer->address_bytes, &advert);
    if (wrong)
        return TTI_FAIL(TUTTI_ERR_PROTOCOL, "rank %d (%s) gave %s", peer->rank, peer->name, wrong);
    struct tti_rdma_endpoint *self =
        tti_calloc(1, sizeof *self + (size_t)lanes * sizeof self->lane[0]);
    if (!self)
        return TUTTI_ERR_MEMORY;
    self->transport = transport;
    self->peer = peer;
    self->advert = advert;
    self->lanes = lanes;
    self->control_peer = *peer;
    self->control_peer.address = advert.control;
    self->control_peer.address_bytes = advert.control_bytes;
    enum tutti_result result = endpoint_begin(self);
    if (result != TUTTI_OK) {
        endpoint_release(self);
        return TTI_CONTEXT(result, "RDMA connection to rank %d (%s)", peer->rank, peer->name);
    }
    self->next = transport->endpoint;
    transport->endpoint = self;
    transport->connecting++;
    tti_rdma_control(transport);
    *out = self;
    return TUTTI_OK;
}

enum tutti_result tti_rdma_advance(void *object)
{
    struct tti_rdma_endpoint *self = object;
    if (self->state < TTI_RDMA_UP)
        tti_rdma_control(self->transport);
    if (self->state == TTI_RDMA_FAILED)
        return tti_error_restore(&self->error);
    return self->state == TTI_RDMA_UP ? TUTTI_OK : TUTTI_IN_PROGRESS;
}

/* ---- parting -------------------------------------------------------------------------------- */

static void endpoint_unlink(struct tti_rdma_endpoint **list, const struct tti_rdma_endpoint *self)
{
    while (*list && *list != self)
        list = &(*list)->next;
    if (*list)
        *list = self->next;
}

void tti_rdma_endpoint_free(struct tti_rdma_endpoint *self)
{
    struct tti_rdma_transport *transport = self->transport;
    uint8_t bytes[TTI_RDMA_GOODBYE_BYTES];
    struct tti_rdma_goodbye last = {.sent = {0}};
    endpoint_unlink(&transport->endpoint, self);
    endpoint_unlink(&transport->leaving, self);
    if (self->state < TTI_RDMA_UP)
        transport->connecting--;
    if (self->state == TTI_RDMA_UP && !self->ended) {
        for (int i = 0; i < self->lanes; i++)
            last.sent[i] = self->lane[i].posted;
        tti_rdma_put_goodbye(&last, bytes);
        (void)tti_rdma_endpoint_say(self, bytes, sizeof bytes); /* its end is seen without it */
    }
    endpoint_release(self);
}

void tti_rdma_endpoint_work(struct tti_rdma_endpoint *self)
{
    if (self->state != TTI_RDMA_UP)
        return;
    if (self->lost > 0)
        tti_rdma_rejoin_step(self);
    if (self->owing > 0) /* first: whether small packets get through is seen by them */
        tti_rdma_pay(self);
    if (self->waiting > 0)
        tti_rdma_again(self);
}

/* Nothing is under way, or nothing of it will arrive. */
static bool endpoint_may_go(const struct tti_rdma_endpoint *self)
{
    return self->state != TTI_RDMA_UP || self->flying == 0 || self->ended || self->goodbye;
}

void tti_rdma_leaving_step(struct tti_rdma_transport *self)
{
    for (struct tti_rdma_endpoint *e = self->leaving, *next = NULL; e; e = next) {
        next = e->next;
        endpoint_listen(e);
        tti_rdma_endpoint_work(e);
        if (endpoint_may_go(e))
            tti_rdma_endpoint_free(e);
    }
}

/* What was accepted still goes out: the endpoint is freed when it has. */
void tti_rdma_disconnect(void *object)
{
    struct tti_rdma_endpoint *self = object;
    struct tti_rdma_transport *transport = self->transport;
    if (endpoint_may_go(self)) {
        tti_rdma_endpoint_free(self);
        return;
    }
    endpoint_unlink(&transport->endpoint, self);
    self->next = transport->leaving;
    transport->leaving = self;
}
