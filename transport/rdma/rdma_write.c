/* A fragment into its slot at the peer: in one write, or in pieces; for the first time, or again
 * (rdma.h). */
#include "transport/rdma/rdma.h"

#include <arpa/inet.h>
#include <string.h>

struct tti_rdma_qp *tti_rdma_lane_qp(struct tti_rdma_endpoint *self, int lane, uint32_t count)
{
    const uint32_t usual = (uint32_t)self->usual, all = (uint32_t)self->qps;
    uint32_t at = usual == 1 ? 0 : ((uint32_t)lane + count) % usual;
    if (!self->qp[at].lost)
        return &self->qp[at];
    for (uint32_t i = 1; i < usual; i++)
        if (!self->qp[(at + i) % usual].lost)
            return &self->qp[(at + i) % usual];
    /* None of the usual ones is left. Not all of the others are lost: the caller has seen to it. */
    at = usual + ((uint32_t)lane + count) % (all - usual);
    while (self->qp[at].lost)
        at = at + 1 < all ? at + 1 : usual;
    return &self->qp[at];
}

bool tti_rdma_may_write(struct tti_rdma_endpoint *self, int lane, uint32_t fragment)
{
    return self->lost < self->qps && tti_rdma_lane_qp(self, lane, fragment)->room >= self->pieces;
}

uint8_t *tti_rdma_header_place(const struct tti_rdma_endpoint *self, int number, uint32_t fragment)
{
    return self->headers + ((size_t)number * self->window + (fragment & (self->window - 1))) *
                               TTI_RDMA_HEADER_BYTES;
}

/* `bytes` of a fragment, from byte `from` on, which lies in `whole`. */
static int write_part(const struct ibv_sge *whole, size_t from, size_t bytes, struct ibv_sge *part)
{
    int parts = 0;
    for (; bytes > 0; whole++) {
        if (from >= whole->length) {
            from -= whole->length;
            continue;
        }
        const size_t here = whole->length - from < bytes ? whole->length - from : bytes;
        part[parts++] = (struct ibv_sge){whole->addr + from, (uint32_t)here, whole->lkey};
        bytes -= here;
        from = 0;
    }
    return parts;
}

/* Write a fragment of a lane into its slot: `all` bytes, header and data, lie in `whole`. Where
 * packets get lost, in pieces, each of which the peer's device acknowledges; the last one tells. */
enum tutti_result tti_rdma_write(struct tti_rdma_endpoint *self, int number, uint32_t fragment,
                                 const struct ibv_sge *whole, size_t all, bool in_line)
{
    struct tti_rdma_qp *qp = tti_rdma_lane_qp(self, number, fragment);
    const uint32_t slots = self->theirs.slots;
    const size_t slot = (size_t)number * slots + (fragment & (slots - 1));
    const uint32_t immediate = tti_rdma_immediate(TTI_RDMA_WORK_FRAGMENT, number, fragment);
    const uint32_t inner = tti_rdma_immediate(TTI_RDMA_WORK_PIECE, number, fragment);
    const size_t step = self->piece ? self->piece : all;
    struct tti_rdma_sent *sent = tti_rdma_sent_at(self, &self->lane[number], fragment);
    sent->qp = (uint8_t)(qp - self->qp);
    sent->last = (uint32_t)(all - (all - 1) / step * step);
    for (size_t from = 0; from < all; from += step) {
        const bool last = all - from <= step;
        struct ibv_sge part[2];
        struct ibv_send_wr *bad = NULL,
                           work = {
                               .wr_id = tti_rdma_work_id(qp, last ? immediate : inner),
                               .sg_list = part,
                               .num_sge = write_part(whole, from, last ? all - from : step, part),
                               .opcode = last ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
                               .send_flags = IBV_SEND_SIGNALED | (in_line ? IBV_SEND_INLINE : 0),
                               .imm_data = htonl(immediate),
                           };
        work.wr.rdma.remote_addr = self->theirs.ring +
                                   slot * tti_rdma_stride(self->theirs.slot_bytes) +
                                   TTI_RDMA_LINE_BYTES - TTI_RDMA_HEADER_BYTES + from;
        work.wr.rdma.rkey = qp->peer_key;
        int error = ibv_post_send(qp->qp, &work, &bad);
        if (error) {
            enum tutti_result result =
                tti_rdma_qp_fail(qp, TUTTI_ERR_LINK, "cannot send: ", strerror(error));
            tti_rdma_endpoint_fail(self, result);
            return result;
        }
        qp->room--;
        self->flying += !last; /* the fragment itself is counted once */
    }
    return TUTTI_OK;
}

/* The same bytes to the same slot: where the first sending has arrived after all, the second
 * changes nothing. */
enum tutti_result tti_rdma_fragment_again(struct tti_rdma_endpoint *self, int number,
                                          uint32_t fragment)
{
    const struct tti_rdma_sent *sent = tti_rdma_sent_at(self, &self->lane[number], fragment);
    const struct tti_rdma_qp *qp = tti_rdma_lane_qp(self, number, fragment);
    const ptrdiff_t rail = qp->rail - self->transport->rail;
    const size_t all = TTI_RDMA_HEADER_BYTES + sent->bytes;
    if (sent->buffer) {
        struct ibv_sge piece =
            tti_rdma_piece(sent->buffer->line + TTI_RDMA_LINE_BYTES - TTI_RDMA_HEADER_BYTES, all,
                           sent->buffer->memory->mr[rail]->lkey);
        return tti_rdma_write(self, number, fragment, &piece, all, false);
    }
    if (!sent->lent) {
        struct ibv_sge piece = tti_rdma_piece(sent->kept, all, 0);
        return tti_rdma_write(self, number, fragment, &piece, all, true);
    }
    struct tti_rdma_memory found;
    const struct tti_rdma_memory *memory = &found;
    if (!sent->device)
        memory = tti_rdma_memory_find(self->transport, sent->data, sent->bytes);
    else if (!tti_rdma_device_find(self->transport, sent->data, sent->bytes, &found))
        memory = NULL;
    if (!memory) {
        enum tutti_result result = tti_rdma_qp_fail(
            qp, TUTTI_ERR_LINK, "cannot send again: ", "the buffer was freed while it was in use");
        tti_rdma_endpoint_fail(self, result);
        return result;
    }
    struct ibv_sge piece[2] = {
        tti_rdma_piece(tti_rdma_header_place(self, number, fragment), TTI_RDMA_HEADER_BYTES,
                       self->memory.mr[rail]->lkey),
        tti_rdma_piece(sent->data, sent->bytes, memory->mr[rail]->lkey),
    };
    return tti_rdma_write(self, number, fragment, piece, all, false);
}
