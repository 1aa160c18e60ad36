/* The hot path: fragments out and in, and the credits that keep a fast sender from a slow
 * receiver's neck (rdma.h). */
#include "base/clock.h"
#include "transport/rdma/rdma.h"

#include <arpa/inet.h>
#include <string.h>

/* Smaller ones are copied: what is sent in place keeps the operation from ending until the peer's
 * device has acknowledged it, a way across the network and back. */
enum { LANE_DIRECT_FROM = 16 << 10 };
#define LANE_GRACE_NS UINT64_C(1000000000)

size_t tti_rdma_stride(size_t slot_bytes)
{
    return TTI_RDMA_LINE_BYTES + slot_bytes;
}

/* ---- what a lost connection has to say ------------------------------------------------------ */

static enum tutti_result lane_fail(struct tti_rdma_endpoint *self)
{
    const struct tutti_peer *peer = self->peer;
    if (self->state == TTI_RDMA_FAILED)
        return tti_error_restore(&self->error);
    return TTI_FAIL(TUTTI_ERR_PEER, "rank %d (%s) closed the RDMA connection%s", peer->rank,
                    peer->name, self->goodbye ? "" : " without a goodbye");
}

/* ---- sending -------------------------------------------------------------------------------- */

static bool lane_may_send(struct tti_rdma_endpoint *self, int number)
{
    const struct tti_rdma_lane *lane = &self->lane[number];
    return lane->posted - lane->credited < self->window &&
           lane->posted - lane->landed < self->window &&
           tti_rdma_may_write(self, number, lane->posted);
}

static struct tti_rdma_header lane_header(struct tti_rdma_lane *lane, uint64_t tag, size_t bytes)
{
    lane->told = lane->consumed;
    return (struct tti_rdma_header){tag, (uint32_t)bytes, lane->consumed};
}

/* What becomes of a fragment's memory. */
struct lane_flight {
    uint32_t bytes;
    bool in_line;
    bool device;
    const void *lent; /* the caller's, which waits */
    struct tti_rdma_buffer *buffer;
};

/* The next fragment of a lane. Its room may have been lent (tti_rdma_reserve) before the last queue
 * pair broke: then it waits. */
static enum tutti_result lane_post(struct tti_rdma_endpoint *self, int number,
                                   const struct ibv_sge *whole, struct lane_flight flight)
{
    struct tti_rdma_lane *lane = &self->lane[number];
    struct tti_rdma_sent *sent = tti_rdma_sent_at(self, lane, lane->posted);
    sent->waits = !tti_rdma_may_write(self, number, lane->posted);
    self->waiting += sent->waits;
    if (!sent->waits)
        TTI_TRY(tti_rdma_write(self, number, lane->posted, whole,
                               TTI_RDMA_HEADER_BYTES + flight.bytes, flight.in_line));
    sent->bytes = flight.bytes;
    sent->flying = true;
    sent->lent = flight.lent != NULL;
    sent->device = flight.device;
    sent->data = flight.lent;
    sent->buffer = flight.buffer;
    lane->posted++;
    self->flying++;
    return TUTTI_OK;
}

/* Fragments whose memory is the caller's again, in the order of the lane. */
static void lane_let_go(struct tti_rdma_endpoint *self, struct tti_rdma_lane *lane)
{
    while (lane->let_go != lane->posted && !tti_rdma_sent_at(self, lane, lane->let_go)->lent) {
        lane->released += tti_rdma_sent_at(self, lane, lane->let_go)->bytes;
        lane->let_go++;
    }
}

void tti_rdma_fragment_landed(struct tti_rdma_endpoint *self, int number, uint32_t fragment)
{
    struct tti_rdma_lane *lane = &self->lane[number];
    struct tti_rdma_sent *sent = tti_rdma_sent_at(self, lane, fragment);
    if (sent->buffer)
        tti_rdma_buffer_give(self->transport, sent->buffer);
    sent->buffer = NULL;
    sent->flying = sent->lent = false;
    self->flying--;
    while (lane->landed != lane->posted && !tti_rdma_sent_at(self, lane, lane->landed)->flying)
        lane->landed++;
    lane_let_go(self, lane);
}

/* From registered memory of the caller's, which stays lent until the send completes. */
static enum tutti_result lane_send_lent(struct tti_rdma_endpoint *self, int number, uint64_t tag,
                                        const void *data, size_t bytes,
                                        const struct tti_rdma_memory *memory, bool device)
{
    struct tti_rdma_lane *lane = &self->lane[number];
    const struct tti_rdma_qp *qp = tti_rdma_lane_qp(self, number, lane->posted);
    ptrdiff_t rail = qp->rail - self->transport->rail;
    uint8_t *header = tti_rdma_header_place(self, number, lane->posted);
    struct tti_rdma_header made = lane_header(lane, tag, bytes);
    memcpy(header, &made, sizeof made);
    struct ibv_sge piece[2] = {
        tti_rdma_piece(header, sizeof made, self->memory.mr[rail]->lkey),
        tti_rdma_piece(data, bytes, memory->mr[rail]->lkey),
    };
    return lane_post(
        self, number, piece,
        (struct lane_flight){.bytes = (uint32_t)bytes, .lent = data, .device = device});
}

static enum tutti_result lane_send_buffer(struct tti_rdma_endpoint *self, int number, uint64_t tag,
                                          size_t bytes, struct tti_rdma_buffer *buffer)
{
    struct tti_rdma_lane *lane = &self->lane[number];
    const ptrdiff_t rail =
        self->lost < self->qps
            ? tti_rdma_lane_qp(self, number, lane->posted)->rail - self->transport->rail
            : 0;
    struct tti_rdma_header made = lane_header(lane, tag, bytes);
    uint8_t *header = buffer->line + TTI_RDMA_LINE_BYTES - TTI_RDMA_HEADER_BYTES;
    memcpy(header, &made, sizeof made);
    struct ibv_sge piece =
        tti_rdma_piece(header, sizeof made + bytes, buffer->memory->mr[rail]->lkey);
    return lane_post(self, number, &piece,
                     (struct lane_flight){.bytes = (uint32_t)bytes, .buffer = buffer});
}

static enum tutti_result lane_send_inline(struct tti_rdma_endpoint *self, int number, uint64_t tag,
                                          const void *data, size_t bytes)
{
    struct tti_rdma_lane *lane = &self->lane[number];
    struct tti_rdma_header made = lane_header(lane, tag, bytes);
    struct ibv_sge piece[2] = {tti_rdma_piece(&made, sizeof made, 0),
                               tti_rdma_piece(data, bytes, 0)};
    uint8_t *kept = tti_rdma_sent_at(self, lane, lane->posted)->kept;
    memcpy(kept, &made, sizeof made);
    memcpy(kept + sizeof made, data, bytes);
    return lane_post(self, number, piece,
                     (struct lane_flight){.bytes = (uint32_t)bytes, .in_line = true});
}

/* May a fragment be sent now? *most: bytes of the largest; 0: not yet. */
static enum tutti_result lane_room(struct tti_rdma_endpoint *self, int number, size_t *most)
{
    if (self->state == TTI_RDMA_FAILED || self->ended || self->goodbye)
        return lane_fail(self);
    *most = lane_may_send(self, number) ? self->theirs.slot_bytes : 0;
    return TUTTI_OK;
}

enum tutti_result tti_rdma_send(void *object, int number, uint64_t tag, const void *data,
                                size_t bytes, size_t *accepted)
{
    struct tti_rdma_endpoint *self = object;
    struct tti_rdma_lane *lane = &self->lane[number];
    size_t most = 0;
    TTI_TRY(lane_room(self, number, &most));
    *accepted = 0;
    if (most == 0)
        return TUTTI_OK;
    bytes = bytes < most ? bytes : most;
    const struct tti_rdma_memory *memory = NULL;
    enum tutti_result result = TUTTI_OK;
    if (bytes <= (size_t)self->inline_most) {
        result = lane_send_inline(self, number, tag, data, bytes);
    } else if (bytes >= LANE_DIRECT_FROM &&
               (memory = tti_rdma_memory_find(self->transport, data, bytes)) != NULL) {
        result = lane_send_lent(self, number, tag, data, bytes, memory, false);
    } else {
        struct tti_rdma_buffer *buffer = tti_rdma_buffer_take(self->transport);
        if (!buffer)
            return TUTTI_OK;
        most = (size_t)self->transport->settings.slot_bytes;
        bytes = bytes < most ? bytes : most;
        memcpy(buffer->line + TTI_RDMA_LINE_BYTES, data, bytes);
        result = lane_send_buffer(self, number, tag, bytes, buffer);
        if (result != TUTTI_OK)
            tti_rdma_buffer_give(self->transport, buffer);
    }
    TTI_TRY(result);
    lane_let_go(self, lane);
    *accepted = bytes;
    return TUTTI_OK;
}

/* Never copied, however few they are: the host cannot read them. */
enum tutti_result tti_rdma_device_send(void *object, int number, uint64_t tag, const void *data,
                                       size_t bytes, size_t *accepted)
{
    struct tti_rdma_endpoint *self = object;
    struct tti_rdma_memory memory;
    size_t most = 0;
    TTI_TRY(lane_room(self, number, &most));
    *accepted = 0;
    if (most == 0)
        return TUTTI_OK;
    bytes = bytes < most ? bytes : most;
    if (!tti_rdma_device_find(self->transport, data, bytes, &memory))
        return tti_rdma_qp_fail(
            tti_rdma_lane_qp(self, number, self->lane[number].posted), TUTTI_ERR_SYSTEM,
            "cannot send out of device memory: ", "it was freed before it was sent");
    TTI_TRY(lane_send_lent(self, number, tag, data, bytes, &memory, true));
    lane_let_go(self, &self->lane[number]);
    *accepted = bytes;
    return TUTTI_OK;
}

uint64_t tti_rdma_released(void *object, int lane)
{
    return ((struct tti_rdma_endpoint *)object)->lane[lane].released;
}

enum tutti_result tti_rdma_abandoned(void *object)
{
    struct tti_rdma_endpoint *self = object;
    for (int i = 0; i < self->lanes && self->state == TTI_RDMA_FAILED; i++)
        if (self->lane[i].let_go != self->lane[i].posted)
            return lane_fail(self);
    return TUTTI_OK;
}

size_t tti_rdma_reserve(void *object, int number, size_t want, void **room)
{
    struct tti_rdma_endpoint *self = object;
    struct tti_rdma_lane *lane = &self->lane[number];
    size_t most = self->transport->settings.slot_bytes;
    if (self->state != TTI_RDMA_UP || self->ended || self->goodbye || !lane_may_send(self, number))
        return 0;
    if (!lane->reserved)
        lane->reserved = tti_rdma_buffer_take(self->transport);
    if (!lane->reserved)
        return 0;
    if (most > self->theirs.slot_bytes)
        most = self->theirs.slot_bytes;
    *room = lane->reserved->line + TTI_RDMA_LINE_BYTES;
    return want < most ? want : most;
}

enum tutti_result tti_rdma_commit(void *object, int number, uint64_t tag, size_t bytes)
{
    struct tti_rdma_endpoint *self = object;
    struct tti_rdma_lane *lane = &self->lane[number];
    struct tti_rdma_buffer *buffer = lane->reserved;
    lane->reserved = NULL;
    if (bytes == 0) {
        tti_rdma_buffer_give(self->transport, buffer);
        return TUTTI_OK;
    }
    enum tutti_result result = lane_send_buffer(self, number, tag, bytes, buffer);
    if (result != TUTTI_OK)
        tti_rdma_buffer_give(self->transport, buffer);
    else
        lane_let_go(self, lane);
    return result;
}

/* ---- credits -------------------------------------------------------------------------------- */

static bool lane_pay(struct tti_rdma_endpoint *self, int number)
{
    struct tti_rdma_lane *lane = &self->lane[number];
    if (self->lost == self->qps)
        return false;
    struct tti_rdma_qp *qp = tti_rdma_lane_qp(self, number, 0);
    uint32_t immediate = tti_rdma_immediate(TTI_RDMA_WORK_CREDIT, number, lane->consumed);
    struct ibv_send_wr work = {
        .wr_id = tti_rdma_work_id(qp, immediate),
        .opcode = IBV_WR_SEND_WITH_IMM,
        .send_flags = IBV_SEND_SIGNALED,
        .imm_data = htonl(immediate),
    };
    struct ibv_send_wr *bad = NULL;
    if (qp->room == 0 || ibv_post_send(qp->qp, &work, &bad) != 0)
        return false;
    lane->told = lane->consumed;
    qp->room--;
    self->flying++;
    return true;
}

void tti_rdma_pay(struct tti_rdma_endpoint *self)
{
    for (int i = 0; self->owing > 0 && i < self->lanes; i++)
        if (self->lane[i].owes && lane_pay(self, i)) {
            self->lane[i].owes = false;
            self->owing--;
        }
}

/* In its low bits, `count` is what a peer says: how far is it beyond `from`? */
static uint32_t lane_beyond(uint32_t count, uint32_t from)
{
    return (count - from) & TTI_RDMA_COUNT_MASK;
}

bool tti_rdma_credit_arrived(struct tti_rdma_endpoint *self, int number, uint32_t consumed)
{
    if (number >= self->lanes)
        return false;
    struct tti_rdma_lane *lane = &self->lane[number];
    uint32_t more = lane_beyond(consumed, lane->credited);
    if (more <= lane->posted - lane->credited)
        lane->credited += more;
    else if (more < TTI_RDMA_COUNT_MASK / 2) /* else an older word, overtaken by a newer one */
        return false;
    return true;
}

/* ---- receiving ------------------------------------------------------------------------------ */

static uint8_t *lane_slot(const struct tti_rdma_endpoint *self, const struct tti_rdma_lane *lane,
                          uint32_t fragment)
{
    const struct tti_rdma_settings *settings = &self->transport->settings;
    return lane->ring +
           (fragment & ((uint32_t)settings->slots - 1)) * tti_rdma_stride(settings->slot_bytes);
}

static struct tti_rdma_header lane_read_header(const uint8_t *slot)
{
    struct tti_rdma_header header;
    memcpy(&header, slot + TTI_RDMA_LINE_BYTES - TTI_RDMA_HEADER_BYTES, sizeof header);
    return header;
}

bool tti_rdma_fragment_arrived(struct tti_rdma_endpoint *self, int number, uint32_t fragment)
{
    const struct tti_rdma_settings *settings = &self->transport->settings;
    if (number >= self->lanes)
        return false;
    struct tti_rdma_lane *lane = &self->lane[number];
    uint32_t ahead = lane_beyond(fragment, lane->consumed);
    if (ahead >= (uint32_t)settings->slots) /* or sent again, and consumed */
        return self->repeats && ahead > TTI_RDMA_COUNT_MASK / 2;
    uint32_t slot = (lane->consumed + ahead) & ((uint32_t)settings->slots - 1);
    struct tti_rdma_header header = lane_read_header(lane_slot(self, lane, slot));
    if (lane->arrived[slot] && self->repeats) /* sent again */
        return true;
    if (lane->arrived[slot] || header.bytes == 0 || header.bytes > settings->slot_bytes)
        return false;
    lane->arrived[slot] = true;
    return tti_rdma_credit_arrived(self, number, header.credit & TTI_RDMA_COUNT_MASK);
}

/* The peer has left, and nothing more has come: is that all that there was? */
static bool lane_is_over(const struct tti_rdma_endpoint *self, int number)
{
    if (self->state == TTI_RDMA_FAILED)
        return true;
    if (self->goodbye && self->last.sent[number] == self->lane[number].consumed)
        return true;
    /* What the peer saw acknowledged may still be on its way through the device. */
    return self->ended && (!self->goodbye || tti_now_ns() - self->ended_ns > LANE_GRACE_NS);
}

enum tutti_result tti_rdma_peek(void *object, int number, uint64_t *tag, const void **data,
                                size_t *bytes)
{
    struct tti_rdma_endpoint *self = object;
    struct tti_rdma_lane *lane = &self->lane[number];
    uint32_t slots = (uint32_t)self->transport->settings.slots;
    if (!lane->arrived[lane->consumed & (slots - 1)]) {
        if ((self->state == TTI_RDMA_FAILED || self->ended || self->goodbye) &&
            lane_is_over(self, number))
            return lane_fail(self);
        *bytes = 0;
        return TUTTI_OK;
    }
    const uint8_t *slot = lane_slot(self, lane, lane->consumed);
    struct tti_rdma_header header = lane_read_header(slot);
    *tag = header.tag;
    *data = slot + TTI_RDMA_LINE_BYTES + lane->offset;
    *bytes = header.bytes - lane->offset;
    return TUTTI_OK;
}

bool tti_rdma_await(void *object, int number, unsigned turns)
{
    struct tti_rdma_endpoint *self = object;
    const struct tti_rdma_lane *lane = &self->lane[number];
    const uint32_t slot = lane->consumed & ((uint32_t)self->transport->settings.slots - 1);
    for (; turns > 0 && !lane->arrived[slot]; turns--) {
        if (self->state == TTI_RDMA_FAILED || self->ended || self->goodbye)
            return lane_is_over(self, number);
        tti_rdma_poll(self->transport);
    }
    return lane->arrived[slot];
}

void tti_rdma_consume(void *object, int number, size_t bytes)
{
    struct tti_rdma_endpoint *self = object;
    struct tti_rdma_lane *lane = &self->lane[number];
    uint32_t slots = (uint32_t)self->transport->settings.slots;
    struct tti_rdma_header header = lane_read_header(lane_slot(self, lane, lane->consumed));
    lane->offset += (uint32_t)bytes;
    if (lane->offset < header.bytes)
        return;
    lane->offset = 0;
    lane->arrived[lane->consumed & (slots - 1)] = false;
    lane->consumed++;
    if (lane->consumed - lane->told < self->window / 2 || lane->owes ||
        self->state != TTI_RDMA_UP || self->ended || self->goodbye)
        return;
    if (!lane_pay(self, number)) {
        lane->owes = true;
        self->owing++;
    }
}
