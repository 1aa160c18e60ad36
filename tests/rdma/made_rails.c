/* See made_rails.h. */
#include "tests/rdma/made_rails.h"

#include "tests/tutti_cmocka.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct made_world world;

enum {
    SLOTS = 4,
    SLOT_BYTES = 4096,
    RING_BYTES = SLOTS * (TTI_RDMA_LINE_BYTES + SLOT_BYTES + TTI_RDMA_HEADER_BYTES),
    MEMORY_BYTES = RING_BYTES + TTI_RDMA_TRIAL_BYTES,
    MOST_WORK = 128,
    MOST_WORDS = 64,
    MOST_BYTES = 200, /* go inline */
};

/* ---- devices, links, control connections and a clock ---------------------------------------- */

struct work {
    uint64_t id;
    enum ibv_wr_opcode opcode;
    uint32_t immediate;
    uint64_t to;
    uint32_t bytes, key;
    bool delivered;
    uint8_t data[1024];
};

struct made_qp {
    struct ibv_qp qp;
    int rank, rail;
    uint32_t dest, own_psn, peer_psn;
    struct work send[MOST_WORK];
    uint64_t receive[MOST_WORK];
    int sends, receives;
    struct made_qp *next;
};

struct made_cq {
    struct ibv_cq cq;
    struct ibv_wc wc[1024];
    unsigned head, tail;
};

static struct {
    uint32_t seed, numbers;
    struct made_qp *qps;
    struct made_cq cq[2][RAILS];
    struct ibv_context context;
    struct ibv_mr mr[2][RAILS];
    uint8_t words[2][MOST_WORDS][TTI_RDMA_WORD_BYTES]; /* to whom */
} devices;

unsigned chance(unsigned of)
{
    devices.seed = devices.seed * 1664525U + 1013904223U;
    return (devices.seed >> 8) % of;
}

uint64_t __wrap_tti_now_ns(void);
uint64_t __wrap_tti_now_ns(void)
{
    return world.now;
}

enum tutti_result __wrap_tti_rdma_endpoint_say(struct tti_rdma_endpoint *self, const uint8_t *bytes,
                                               size_t size);
enum tutti_result __wrap_tti_rdma_endpoint_say(struct tti_rdma_endpoint *self, const uint8_t *bytes,
                                               size_t size)
{
    const int to = self == world.end[0];
    if (world.deaf) {
        world.refusals++;
        return TTI_FAIL(TUTTI_ERR_LINK, "the control connection takes nothing");
    }
    assert_int_equal(size, TTI_RDMA_WORD_BYTES);
    assert_true(world.said[to] < MOST_WORDS);
    memcpy(devices.words[to][world.said[to]++], bytes, size);
    return TUTTI_OK;
}

static bool refused(int rank, unsigned of)
{
    const struct tti_rdma_endpoint *end = world.end[rank];
    return world.refuses && end->lost < end->qps && chance(of) == 0;
}

static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *wanted)
{
    if (refused((int)pd->handle / RAILS, 4)) {
        errno = ENOMEM;
        return NULL;
    }
    struct made_qp *made = calloc(1, sizeof *made);
    assert_non_null(made);
    assert_true(wanted->cap.max_send_wr <= MOST_WORK);
    made->rank = (int)pd->handle / RAILS;
    made->rail = (int)pd->handle % RAILS;
    made->qp.context = &devices.context;
    made->qp.qp_num = ++devices.numbers;
    made->qp.state = IBV_QPS_RESET;
    made->next = devices.qps;
    devices.qps = made;
    return &made->qp;
}

static int destroy_qp(struct ibv_qp *qp)
{
    struct made_qp **at = &devices.qps;
    while (*at != (struct made_qp *)qp)
        at = &(*at)->next;
    *at = (*at)->next;
    free(qp);
    return 0;
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *change, int mask)
{
    struct made_qp *made = (struct made_qp *)qp;
    if (change->qp_state == IBV_QPS_RTR) {
        world.joins[made->rail]++;
        if (world.blocks && !world.up[made->rail]) {
            world.now += SECOND;
            return ETIMEDOUT;
        }
        if (refused(made->rank, 8))
            return EINVAL;
    }
    if (change->qp_state == IBV_QPS_RESET)
        made->sends = made->receives = 0;
    if (mask & IBV_QP_DEST_QPN) {
        made->dest = change->dest_qp_num;
        made->peer_psn = change->rq_psn;
    }
    if (mask & IBV_QP_SQ_PSN)
        made->own_psn = change->sq_psn;
    qp->state = change->qp_state;
    return 0;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct made_qp *made = (struct made_qp *)qp;
    assert_true(qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_ERR);
    for (*bad = NULL; wr; wr = wr->next) {
        assert_true(made->sends < MOST_WORK);
        struct work *work = &made->send[made->sends++];
        *work = (struct work){.id = wr->wr_id,
                              .opcode = wr->opcode,
                              .immediate = wr->imm_data,
                              .to = wr->wr.rdma.remote_addr,
                              .key = wr->wr.rdma.rkey};
        for (int i = 0; i < wr->num_sge; i++) {
            const struct ibv_sge *part = &wr->sg_list[i];
            assert_true(work->bytes + part->length <= sizeof work->data);
            memcpy(work->data + work->bytes, (const void *)(uintptr_t)part->addr, part->length);
            work->bytes += part->length;
        }
    }
    return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct made_qp *made = (struct made_qp *)qp;
    for (*bad = NULL; wr; wr = wr->next) {
        assert_true(made->receives < MOST_WORK);
        made->receive[made->receives++] = wr->wr_id;
    }
    return 0;
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
    struct made_cq *made = (struct made_cq *)cq;
    int count = 0;
    while (count < most && made->head != made->tail)
        wc[count++] = made->wc[made->head++ % 1024];
    return count;
}

static const char *wc_status_str(enum ibv_wc_status status)
{
    return status == IBV_WC_RETRY_EXC_ERR ? "retries" : "something";
}

static const struct tti_verbs verbs = {.create_qp = create_qp,
                                       .destroy_qp = destroy_qp,
                                       .modify_qp = modify_qp,
                                       .wc_status_str = wc_status_str};

static void complete(const struct made_qp *made, struct ibv_wc wc)
{
    struct made_cq *cq = &devices.cq[made->rank][made->rail];
    assert_true(cq->tail - cq->head < 1024);
    cq->wc[cq->tail++ % 1024] = wc;
}

static void send_ends(struct made_qp *made, enum ibv_wc_status status)
{
    complete(made, (struct ibv_wc){.wr_id = made->send[0].id, .status = status});
    memmove(made->send, made->send + 1, (size_t)--made->sends * sizeof made->send[0]);
}

static void receive_ends(struct made_qp *made, struct ibv_wc wc)
{
    assert_true(made->receives > 0); /* else the sender's device would give up */
    wc.wr_id = made->receive[0];
    memmove(made->receive, made->receive + 1, (size_t)--made->receives * sizeof made->receive[0]);
    complete(made, wc);
}

static struct made_qp *partner(const struct made_qp *made)
{
    struct made_qp *at = devices.qps;
    while (at && (at->qp.qp_num != made->dest || at->rank == made->rank))
        at = at->next;
    const bool joined = at && at->dest == made->qp.qp_num && at->peer_psn == made->own_psn &&
                        (at->qp.state == IBV_QPS_RTR || at->qp.state == IBV_QPS_RTS);
    return joined ? at : NULL;
}

static void deliver(struct made_qp *to, struct work *work)
{
    const bool tells = work->opcode != IBV_WR_RDMA_WRITE;
    work->delivered = true;
    if (work->opcode != IBV_WR_SEND_WITH_IMM) {
        const struct tti_rdma_memory *memory = &world.end[to->rank]->memory;
        assert_true(work->to >= (uintptr_t)memory->base);
        assert_true(work->to + work->bytes <= (uintptr_t)memory->base + memory->bytes);
        assert_true(tells == (work->to < (uintptr_t)memory->base + RING_BYTES));
        assert_int_equal(work->key, devices.mr[to->rank][to->rail].rkey);
        memcpy((void *)(uintptr_t)work->to, work->data, work->bytes);
    }
    if (!tells)
        return;
    world.carried[to->rail]++;
    receive_ends(to, (struct ibv_wc){.imm_data = work->immediate,
                                     .opcode = work->opcode == IBV_WR_SEND_WITH_IMM
                                                   ? IBV_WC_RECV
                                                   : IBV_WC_RECV_RDMA_WITH_IMM});
}

static void device_step(struct made_qp *made)
{
    if (made->qp.state == IBV_QPS_ERR) {
        if (made->sends > 0 && (made->receives == 0 || chance(2) > 0))
            send_ends(made, IBV_WC_WR_FLUSH_ERR);
        else if (made->receives > 0)
            receive_ends(made, (struct ibv_wc){.status = IBV_WC_WR_FLUSH_ERR});
        return;
    }
    if (made->sends == 0)
        return;
    struct made_qp *to = partner(made);
    if (!to || !world.up[made->rail]) {
        if (chance(30) > 0)
            return;
        made->qp.state = IBV_QPS_ERR;
        if (chance(4) > 0) /* some devices do not tell why */
            send_ends(made, IBV_WC_RETRY_EXC_ERR);
    } else if (!made->send[0].delivered) {
        deliver(to, &made->send[0]);
    } else {
        send_ends(made, IBV_WC_SUCCESS);
    }
}

void devices_step(void)
{
    for (struct made_qp *at = devices.qps; at; at = at->next)
        device_step(at);
}

/* ---- two ends -------------------------------------------------------------------------------- */

static const struct tutti_peer peers[2] = {{.rank = 0, .name = "zero:7"},
                                           {.rank = 1, .name = "one:7"}};

static void end_new(int rank)
{
    static struct ibv_pd pd[2][RAILS];
    struct tti_rdma_transport *self = calloc(1, sizeof *self);
    struct tti_rdma_endpoint *end = calloc(1, sizeof *end + sizeof end->lane[0]);
    assert_non_null(self);
    assert_non_null(end);
    world.transport[rank] = self;
    world.end[rank] = end;
    self->verbs = &verbs;
    self->env.rank = rank;
    self->settings.slots = SLOTS;
    self->settings.slot_bytes = SLOT_BYTES;
    self->settings.outage_s = 4;
    self->rails = RAILS;
    self->endpoint = end;
    *end = (struct tti_rdma_endpoint){.transport = self,
                                      .peer = &peers[!rank],
                                      .state = TTI_RDMA_UP,
                                      .window = SLOTS,
                                      .inline_most = TTI_RDMA_INLINE_BYTES,
                                      .lanes = 1,
                                      .pieces = 1,
                                      .qps = RAILS,
                                      .usual = 1};
    end->memory.base = calloc(1, MEMORY_BYTES);
    end->memory.bytes = MEMORY_BYTES;
    end->headers = (uint8_t *)end->memory.base + RING_BYTES - SLOTS * TTI_RDMA_HEADER_BYTES;
    end->trial = (uint8_t *)end->memory.base + RING_BYTES;
    end->lane[0].ring = end->memory.base;
    end->lane[0].sent = calloc(SLOTS, sizeof *end->lane[0].sent);
    end->lane[0].arrived = calloc(SLOTS, sizeof *end->lane[0].arrived);
    for (int r = 0; r < RAILS; r++) {
        struct tti_rdma_rail *rail = &self->rail[r];
        *rail = (struct tti_rdma_rail){.number = 1, .cq_room = 1 << 20, .cq_most = 1 << 20};
        strcpy(rail->device, r ? "far" : "near");
        pd[rank][r].handle = (uint32_t)(rank * RAILS + r);
        rail->pd = &pd[rank][r];
        rail->cq = &devices.cq[rank][r].cq;
        rail->port.mtu = end->advert.port[r].mtu = 3;
        devices.mr[rank][r] = (struct ibv_mr){.lkey = 5, .rkey = (uint32_t)(10 * rank + r)};
        end->memory.mr[r] = &devices.mr[rank][r];
        end->qp[r] = (struct tti_rdma_qp){.endpoint = end, .rail = rail, .peer_port = r};
        assert_int_equal(tti_rdma_qp_create(&end->qp[r]), TUTTI_OK);
    }
}

static void end_join(struct tti_rdma_endpoint *end, struct tti_rdma_endpoint *other)
{
    end->theirs = (struct tti_rdma_hello){.lanes = 1,
                                          .qps = RAILS,
                                          .slots = SLOTS,
                                          .slot_bytes = SLOT_BYTES,
                                          .ring = (uintptr_t)other->memory.base};
    for (int r = 0; r < RAILS; r++) {
        end->qp[r].peer_number = other->qp[r].qp->qp_num;
        end->qp[r].peer_key = other->memory.mr[r]->rkey;
        end->theirs.qp[r].psn = other->qp[r].psn;
        assert_int_equal(tti_rdma_qp_join(&end->qp[r], 0), TUTTI_OK);
    }
}

void world_new(uint32_t seed)
{
    memset(&world, 0, sizeof world);
    memset(&devices, 0, sizeof devices);
    devices.seed = seed;
    world.now = UINT64_C(100000000000);
    world.up[NEAR] = world.up[FAR] = true;
    devices.context.ops.post_send = post_send;
    devices.context.ops.post_recv = post_recv;
    devices.context.ops.poll_cq = poll_cq;
    for (int i = 0; i < 2 * RAILS; i++)
        devices.cq[i / RAILS][i % RAILS].cq.context = &devices.context;
    end_new(0);
    end_new(1);
    end_join(world.end[0], world.end[1]);
    end_join(world.end[1], world.end[0]);
}

void world_free(void)
{
    for (int i = 0; i < 2; i++) {
        struct tti_rdma_endpoint *end = world.end[i];
        for (int r = 0; r < RAILS; r++)
            tti_rdma_qp_destroy(&end->qp[r]);
        free(end->memory.base);
        free(end->lane[0].sent);
        free(end->lane[0].arrived);
        free(end);
        free(world.transport[i]->table);
        free(world.transport[i]);
    }
    assert_null(devices.qps);
}

/* ---- traffic --------------------------------------------------------------------------------- */

static uint8_t byte_at(uint64_t place)
{
    return (uint8_t)(place * 2654435761U >> 13);
}

static void stream_send(int rank, struct stream *stream)
{
    uint8_t data[MOST_BYTES];
    const size_t bytes = 1 + chance(MOST_BYTES);
    size_t accepted = 0;
    for (size_t i = 0; i < bytes; i++)
        data[i] = byte_at(stream->sent + i);
    if (tti_rdma_send(world.end[rank], 0, 1, data, bytes, &accepted) == TUTTI_OK)
        stream->sent += accepted;
}

static void stream_take(int rank, struct stream *stream)
{
    uint64_t tag = 0;
    const void *data = NULL;
    size_t bytes = 0;
    if (tti_rdma_peek(world.end[rank], 0, &tag, &data, &bytes) != TUTTI_OK || bytes == 0)
        return;
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(((const uint8_t *)data)[i], byte_at(stream->taken + i));
    stream->taken += bytes;
    assert_true(stream->taken <= stream->sent);
    tti_rdma_consume(world.end[rank], 0, bytes);
}

static void hear(int rank)
{
    struct tti_rdma_word word;
    if (world.said[rank] == 0 || world.end[rank]->state == TTI_RDMA_FAILED)
        return;
    assert_null(tti_rdma_get_word(devices.words[rank][0], &word));
    world.said[rank]--;
    memmove(devices.words[rank][0], devices.words[rank][1],
            (size_t)world.said[rank] * TTI_RDMA_WORD_BYTES);
    tti_rdma_heard(world.end[rank], &word);
}

void world_step(struct stream stream[2], bool sends)
{
    const int rank = (int)chance(2);
    world.now += chance(20000000);
    for (struct made_qp *at = devices.qps; at; at = at->next)
        if (chance(2))
            device_step(at);
    switch (chance(4)) {
    case 0:
        if (sends)
            stream_send(rank, &stream[rank]);
        break;
    case 1:
        stream_take(rank, &stream[!rank]);
        break;
    case 2:
        hear(rank);
        break;
    default:
        tti_rdma_poll(world.transport[rank]);
        tti_rdma_watch(world.transport[rank]);
        tti_rdma_endpoint_work(world.end[rank]);
    }
}

bool near_carries(void)
{
    return !world.end[0]->qp[NEAR].lost && !world.end[1]->qp[NEAR].lost;
}

void says(int rank, struct tti_rdma_word word, bool mad)
{
    tti_rdma_heard(world.end[rank], &word);
    assert_int_equal(world.end[rank]->state == TTI_RDMA_FAILED, mad);
    if (mad)
        assert_int_equal(tti_error_restore(&world.end[rank]->error), TUTTI_ERR_PROTOCOL);
}
