/* A rail that was lost comes back while another carries (transport/rdma/rdma_rejoin.c): two ends of
 * a connection in one process, over devices and a clock made up here. A link is cut and mended at
 * random, packets and words take any time, and every fragment arrives once, in its order. */
#include "tests/tutti_cmocka.h"
#include "transport/rdma/rdma.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NEAR,
    FAR,
    RAILS,
    SLOTS = 4,
    SLOT_BYTES = 4096,
    RING_BYTES = SLOTS * (TTI_RDMA_LINE_BYTES + SLOT_BYTES + TTI_RDMA_HEADER_BYTES),
    MEMORY_BYTES = RING_BYTES + TTI_RDMA_TRIAL_BYTES,
    MOST_WORK = 128,
    MOST_WORDS = 64,
    MOST_BYTES = 200, /* go inline */
};

#define SECOND UINT64_C(1000000000)

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
    uint64_t now;
    uint32_t seed, numbers;
    bool up[RAILS];
    bool refuses; /* now and then queue pairs are not made, or not joined, while others carry */
    bool blocks;  /* joining blocks, and fails, where the link is cut */
    int carried[RAILS]; /* fragments and credits */
    int joins[RAILS];
    struct made_qp *qps;
    struct made_cq cq[2][RAILS];
    struct ibv_context context;
    struct tti_rdma_transport *transport[2];
    struct tti_rdma_endpoint *end[2];
    struct ibv_mr mr[2][RAILS];
    uint8_t words[2][MOST_WORDS][TTI_RDMA_WORD_BYTES]; /* to whom */
    int said[2];
} world;

static unsigned chance(unsigned of)
{
    world.seed = world.seed * 1664525U + 1013904223U;
    return (world.seed >> 8) % of;
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
    assert_int_equal(size, TTI_RDMA_WORD_BYTES);
    assert_true(world.said[to] < MOST_WORDS);
    memcpy(world.words[to][world.said[to]++], bytes, size);
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
    made->qp.context = &world.context;
    made->qp.qp_num = ++world.numbers;
    made->qp.state = IBV_QPS_RESET;
    made->next = world.qps;
    world.qps = made;
    return &made->qp;
}

static int destroy_qp(struct ibv_qp *qp)
{
    struct made_qp **at = &world.qps;
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
    struct made_cq *cq = &world.cq[made->rank][made->rail];
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
    struct made_qp *at = world.qps;
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
        assert_int_equal(work->key, world.mr[to->rank][to->rail].rkey);
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

/* One thing happens to a queue pair: a packet arrives, or its acknowledgement, or the device gives
 * up, or what was posted comes back. */
static void device_step(struct made_qp *made)
{
    if (made->qp.state == IBV_QPS_ERR) {
        if (made->sends > 0)
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
        send_ends(made, IBV_WC_RETRY_EXC_ERR);
    } else if (!made->send[0].delivered) {
        deliver(to, &made->send[0]);
    } else {
        send_ends(made, IBV_WC_SUCCESS);
    }
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
        rail->cq = &world.cq[rank][r].cq;
        rail->port.mtu = end->advert.port[r].mtu = 3;
        world.mr[rank][r] = (struct ibv_mr){.lkey = 5, .rkey = (uint32_t)(10 * rank + r)};
        end->memory.mr[r] = &world.mr[rank][r];
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
        assert_int_equal(tti_rdma_qp_connect(&end->qp[r]), TUTTI_OK);
    }
}

static void world_new(uint32_t seed)
{
    memset(&world, 0, sizeof world);
    world.seed = seed;
    world.now = UINT64_C(100000000000);
    world.up[NEAR] = world.up[FAR] = true;
    world.context.ops.post_send = post_send;
    world.context.ops.post_recv = post_recv;
    world.context.ops.poll_cq = poll_cq;
    for (int i = 0; i < 2 * RAILS; i++)
        world.cq[i / RAILS][i % RAILS].cq.context = &world.context;
    end_new(0);
    end_new(1);
    end_join(world.end[0], world.end[1]);
    end_join(world.end[1], world.end[0]);
}

static void world_free(void)
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
    assert_null(world.qps);
}

/* ---- traffic --------------------------------------------------------------------------------- */

/* What is sent is a stream of bytes, each known by its place. */
struct stream {
    uint64_t sent, taken;
};

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
    assert_null(tti_rdma_get_word(world.words[rank][0], &word));
    world.said[rank]--;
    memmove(world.words[rank][0], world.words[rank][1],
            (size_t)world.said[rank] * TTI_RDMA_WORD_BYTES);
    tti_rdma_heard(world.end[rank], &word);
}

static void world_step(struct stream stream[2], bool sends)
{
    const int rank = (int)chance(2);
    world.now += chance(20000000);
    for (struct made_qp *at = world.qps; at; at = at->next)
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

static bool near_carries(void)
{
    return !world.end[0]->qp[NEAR].lost && !world.end[1]->qp[NEAR].lost;
}

/* The near link comes and goes, the far one stays. */
static void a_rail_comes_back(void **state)
{
    (void)state;
    int back = 0, away = 0;
    for (uint32_t seed = 1; seed <= 60; seed++) {
        struct stream stream[2] = {{0, 0}, {0, 0}};
        bool carried = true;
        world_new(seed);
        for (int i = 0; i < 40000; i++) {
            world.refuses = i < 30000 && seed % 2;
            if (i >= 30000)
                world.up[NEAR] = true;
            else if (chance(1500) == 0)
                world.up[NEAR] = !world.up[NEAR];
            world_step(stream, true);
            back += !carried && near_carries();
            away += carried && !near_carries();
            carried = near_carries();
            for (int r = 0; r < 2; r++)
                if (world.end[r]->state != TTI_RDMA_UP) {
                    (void)tti_error_restore(&world.end[r]->error);
                    fail_msg("seed %u, step %d, rank %d: %s", seed, i, r, tutti_last_error());
                }
            assert_int_equal(world.end[0]->complaints + world.end[1]->complaints, 0);
        }
        assert_true(near_carries());
        /* Nothing goes by the far one any more, and all that was sent arrives. */
        const int far = world.carried[FAR], near = world.carried[NEAR];
        for (int i = 0; i < 5000; i++)
            world_step(stream, i < 2000);
        assert_int_equal(world.carried[FAR], far);
        assert_true(world.carried[NEAR] > near + 100);
        for (int r = 0; r < 2; r++) {
            assert_int_equal(stream[r].taken, stream[r].sent);
            assert_int_equal(world.end[r]->flying, 0);
            assert_int_equal(world.end[r]->waiting, 0);
        }
        world_free();
    }
    print_message("lost %d times, came back %d times\n", away, back);
    assert_true(away > 60 && back == away);
}

static bool both_live(void)
{
    return world.end[0]->state == TTI_RDMA_UP && world.end[1]->state == TTI_RDMA_UP;
}

/* Both links are whole again: all that was sent arrives, and by and by nothing is lost. */
static void world_settles(struct stream stream[2], uint32_t seed)
{
    const uint64_t most = world.now + 100 * SECOND;
    world.up[NEAR] = world.up[FAR] = true;
    world.refuses = false;
    while (world.now < most)
        world_step(stream, false);
    for (int r = 0; both_live() && r < 2; r++) {
        const struct tti_rdma_endpoint *end = world.end[r];
        if (stream[r].taken != stream[r].sent || end->flying || end->waiting || end->lost)
            fail_msg("seed %u, rank %d: %d under way, %d wait, %d lost, %llu of %llu bytes", seed,
                     r, end->flying, end->waiting, end->lost, (unsigned long long)stream[r].taken,
                     (unsigned long long)stream[r].sent);
    }
}

/* Both links come and go. A device that is believed ends the connection; whatever comes before is
 * right, nobody takes the other for mad, and no queue pair that cannot be made ends what carries.
 */
static void both_rails_come_and_go(void **state)
{
    (void)state;
    int failed = 0, lived = 0, settled = 0;
    for (uint32_t seed = 1; seed <= 200; seed++) {
        struct stream stream[2] = {{0, 0}, {0, 0}};
        world_new(seed);
        for (int i = 0; i < 20000; i++) {
            for (int r = 0; r < RAILS; r++)
                if (chance(world.up[r] ? 1500 : 300) == 0)
                    world.up[r] = !world.up[r];
            world.refuses = seed % 2;
            world_step(stream, true);
        }
        if (both_live()) {
            world_settles(stream, seed);
            settled += both_live();
        }
        for (int r = 0; r < 2; r++) {
            failed += world.end[r]->state == TTI_RDMA_FAILED;
            lived += world.end[r]->state == TTI_RDMA_UP;
            if (world.end[r]->state == TTI_RDMA_FAILED)
                assert_int_equal(tti_error_restore(&world.end[r]->error), TUTTI_ERR_LINK);
            if (world.end[r]->state == TTI_RDMA_FAILED && strstr(tutti_last_error(), "ibv_"))
                fail_msg("seed %u, rank %d: %s", seed, r, tutti_last_error());
        }
        world_free();
    }
    print_message("%d ends failed, %d lived, %d connections settled\n", failed, lived, settled);
    assert_true(failed > 0 && lived > 0 && settled > 0);
}

/* A cable that stays cut is tried after 1, 2, 4 s and so on, up to a minute, and what carries is
 * not disturbed by it: nothing goes in pieces, nothing is a complaint. */
static void trials_become_rare(void **state)
{
    (void)state;
    struct stream stream[2] = {{0, 0}, {0, 0}};
    world_new(7);
    world.up[NEAR] = false;
    while (!world.end[0]->qp[NEAR].lost || !world.end[1]->qp[NEAR].lost)
        world_step(stream, true);
    for (int i = 0; i < 2000; i++) /* what was under way goes on by the far one */
        world_step(stream, true);
    const uint64_t begun = world.now, taken[2] = {stream[0].taken, stream[1].taken};
    const int near = world.carried[NEAR];
    for (int r = 0; r < 2; r++)
        world.end[r]->piece = 0; /* the cut was a stall */
    int trials = 0;
    for (uint32_t last = 0; world.now < begun + 600 * SECOND;) {
        world_step(stream, true);
        for (int r = 0; r < 2; r++) {
            tti_rdma_poll(world.transport[r]);
            tti_rdma_watch(world.transport[r]);
            assert_int_equal(world.end[r]->piece, 0);
            assert_int_equal(world.end[r]->complaints, 0);
        }
        const uint32_t number = world.end[0]->qp[NEAR].qp->qp_num;
        trials += last && number != last;
        last = number;
    }
    print_message("%d trials in ten minutes\n", trials);
    assert_in_range(trials, 10, 15); /* 1 2 4 8 16 32 60 60 ..., and the time that each takes */
    assert_int_equal(world.carried[NEAR], near);
    for (int r = 0; r < 2; r++)
        assert_true(stream[r].taken > taken[r] + 100000);
    world_free();
}

static int joins_within(struct stream stream[2], unsigned seconds)
{
    const int joins = world.joins[NEAR];
    const uint64_t most = world.now + seconds * SECOND;
    while (world.now < most)
        world_step(stream, true);
    assert_true(both_live());
    return world.joins[NEAR] - joins;
}

/* Joining by a link that is cut blocks for a second, while the far one carries: it is not done by
 * an end whose port is down, nor by its peer; and else it is rare. */
static void joining_seldom_blocks(void **state)
{
    (void)state;
    for (int down = 0; down < 2; down++) {
        struct stream stream[2] = {{0, 0}, {0, 0}};
        world_new(11);
        world.blocks = true;
        world.up[NEAR] = false;
        world.transport[down]->rail[NEAR].port_down = true;
        while (!world.end[0]->qp[NEAR].lost || !world.end[1]->qp[NEAR].lost)
            world_step(stream, true);
        const uint32_t number = world.end[0]->qp[NEAR].qp->qp_num;
        assert_int_equal(joins_within(stream, 100), 0);
        /* The lower rank begins: it does not where its own port is down. */
        assert_int_equal(world.end[0]->qp[NEAR].qp->qp_num == number, down == 0);
        assert_int_equal(world.end[0]->qp[NEAR].wait_ns == SECOND, down == 0);
        world.transport[down]->rail[NEAR].port_down = false;
        assert_in_range(joins_within(stream, 100), 1, 12);
        /* As if there were others of this rail that wait less. */
        const int joins = world.joins[NEAR];
        for (const uint64_t most = world.now + 100 * SECOND; world.now < most;) {
            world.end[0]->qp[NEAR].try_ns = 0;
            world_step(stream, true);
        }
        assert_in_range(world.joins[NEAR] - joins, 1, 24);
        world.up[NEAR] = true;
        (void)joins_within(stream, 100);
        assert_true(near_carries());
        world_free();
    }
}

/* ---- a peer that is mad ---------------------------------------------------------------------- */

static void says(int rank, struct tti_rdma_word word, bool mad)
{
    tti_rdma_heard(world.end[rank], &word);
    assert_int_equal(world.end[rank]->state == TTI_RDMA_FAILED, mad);
    if (mad)
        assert_int_equal(tti_error_restore(&world.end[rank]->error), TUTTI_ERR_PROTOCOL);
}

/* What comes back late of a trial that the peer has called off is not taken for the next one's. */
static void ends_of_a_trial_are_its_own(void **state)
{
    (void)state;
    for (int success = 0; success < 2; success++) {
        struct stream stream[2] = {{0, 0}, {0, 0}};
        world_new(3);
        const struct tti_rdma_qp *qp = &world.end[1]->qp[NEAR];
        world.up[NEAR] = false;
        while (near_carries())
            world_step(stream, true);
        world.up[NEAR] = true;
        while (qp->tried < 2)
            world_step(stream, true);
        world.up[NEAR] = success;
        for (int i = 0; success && i < 100; i++)
            for (struct made_qp *at = world.qps; at; at = at->next)
                device_step(at);
        assert_int_equal(qp->tried, 2); /* they were not looked at */
        says(1, (struct tti_rdma_word){.saying = TTI_RDMA_LOST}, false);
        says(1, (struct tti_rdma_word){.saying = TTI_RDMA_AGAIN, .trial = true, .number = 9},
             false);
        for (int i = 0; i < 100; i++) {
            for (struct made_qp *at = world.qps; at; at = at->next)
                device_step(at);
            tti_rdma_poll(world.transport[1]);
        }
        assert_int_equal(qp->tried, 0);
        assert_true(qp->lost && qp->rejoin && qp->trial && !qp->said_lost);
        tti_rdma_endpoint_work(world.end[1]);
        assert_true(qp->renewed && qp->joined && qp->peer_number == 9);
        world_free();
    }
}

/* A trial of a reserve rail has not begun when the last one breaks: the near one goes first. */
static void the_reserve_waits(void **state)
{
    (void)state;
    struct stream stream[2] = {{0, 0}, {0, 0}};
    world_new(5);
    struct tti_rdma_qp *far = &world.end[0]->qp[FAR];
    says(0, (struct tti_rdma_word){.saying = TTI_RDMA_LOST, .qp = FAR}, false);
    says(1, (struct tti_rdma_word){.saying = TTI_RDMA_LOST, .qp = FAR}, false);
    world.said[0] = world.said[1] = 0; /* which both have said */
    while (far->spent < far->depth || !far->moved)
        world_step(stream, true);
    assert_false(far->rejoin);
    far->rejoin = far->trial = true; /* its time has come */
    const uint32_t number = far->qp->qp_num;
    says(0, (struct tti_rdma_word){.saying = TTI_RDMA_LOST, .qp = NEAR}, false);
    tti_rdma_endpoint_work(world.end[0]);
    assert_int_equal(far->qp->qp_num, number);
    assert_true(far->again && !far->trial && !far->rejoin);
    world_free();
}

/* What it says of a queue pair has to fit to how far it has come, as each side knows it. */
static void words_out_of_turn_are_errors(void **state)
{
    (void)state;
    const struct tti_rdma_word lost = {.saying = TTI_RDMA_LOST},
                               again = {.saying = TTI_RDMA_AGAIN, .trial = true, .number = 9},
                               joined = {.saying = TTI_RDMA_JOINED};
    const struct {
        int rank;
        struct tti_rdma_word words[5];
        int count; /* the last one is mad */
    } talks[] = {
        {0, {again}, 1}, /* it carries */
        {1, {again}, 1},
        {0, {joined}, 1},
        {1, {joined}, 1},
        {0, {lost, lost}, 2},
        {1, {lost, lost}, 2},
        {0, {lost, again}, 2}, /* the lower rank begins */
        {1, {lost, joined}, 2},
        {1, {lost, again, again}, 3},
        {1, {lost, again, joined, joined}, 4},
        {1, {lost, again, joined, again}, 4},
        {1, {lost, again, lost, joined}, 4},
        {1, {lost, again, lost, lost}, 4},
        {1, {lost, again, lost, again, again}, 5},
    };
    for (size_t i = 0; i < sizeof talks / sizeof talks[0]; i++) {
        world_new(1);
        for (int k = 0; k < talks[i].count; k++) {
            says(talks[i].rank, talks[i].words[k], k + 1 == talks[i].count);
            for (int n = 0; n < 300; n++) { /* what was posted comes back */
                for (struct made_qp *at = world.qps; at; at = at->next)
                    device_step(at);
                tti_rdma_poll(world.transport[talks[i].rank]);
                tti_rdma_endpoint_work(world.end[talks[i].rank]);
            }
        }
        world_free();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rail_comes_back),
        cmocka_unit_test(both_rails_come_and_go),
        cmocka_unit_test(trials_become_rare),
        cmocka_unit_test(joining_seldom_blocks),
        cmocka_unit_test(ends_of_a_trial_are_its_own),
        cmocka_unit_test(the_reserve_waits),
        cmocka_unit_test(words_out_of_turn_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
