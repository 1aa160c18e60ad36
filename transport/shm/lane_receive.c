/* shm, the receiving half of a lane (layout.h has the memory).
 *
 * The oldest line is copied and checked once, when it is first seen (struct shm_in); nothing that
 * the peer may change later is looked at twice. Where its bytes are: in the line, its tail or the
 * piece ring (shared), in a region of the sender that is mapped here, or in the sender's process,
 * from where they are read into a small stage for peek, or straight to their place for receive. */
#include "transport/shm/shm.h"

#include "base/memory.h"
#include "device/reduce.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

static enum tutti_result receive_refuse(struct shm_endpoint *self, const char *what)
{
    return tti_shm_break(self, TTI_FAIL(TUTTI_ERR_PROTOCOL, "rank %d (%s) sent %s",
                                        self->peer->rank, self->peer->name, what));
}

/* ---- the oldest line ------------------------------------------------------------------------ */

static enum tutti_result receive_find_region(struct shm_endpoint *self, uint64_t id,
                                             struct shm_mapping **mapping)
{
    *mapping = tti_shm_region_expect(self, id);
    if (self->state == SHM_FAILED)
        return tti_error_restore(&self->error);
    if (!*mapping)
        return receive_refuse(self, "a reference to a memory region that it has not passed");
    return TUTTI_OK;
}

static const unsigned char *receive_tail(const struct shm_in *in)
{
    return in->tails + in->consumed % SHM_TAILS * in->tail_most;
}

/* Ask for the tail that the next fragment may lie in, along with its line: they are on their way
 * together. When the line has not been written yet, the tail comes for nothing and once more later,
 * which costs less than what it saves (256 B: 320 ns and not 395). */
static inline void receive_expect(const struct shm_in *in)
{
    const unsigned char *tail = receive_tail(in);
    for (size_t at = 0; at < in->tail_bytes; at += TTI_CACHE_LINE)
        tti_prefetch_read(tail + at);
}

static enum tutti_result receive_open_far(struct shm_endpoint *self, struct shm_in *in,
                                          const struct shm_line *line, enum shm_kind kind)
{
    uint64_t where = line->far.where, bytes = line->far.bytes, id = line->far.id;
    size_t ring = self->piece_ring;
    struct shm_mapping *mapping = NULL;
    size_t most = kind == SHM_KIND_TAIL    ? in->tail_most
                  : kind == SHM_KIND_PIECE ? ring
                                           : SHM_REFERENCE_MOST;
    bool shared = kind == SHM_KIND_PIECE || kind == SHM_KIND_TAIL;
    if (bytes == 0 || bytes > most)
        return receive_refuse(self, "a fragment of an impossible size");
    if (!shared && tti_load_acquire(&self->theirs->left) == SHM_CUT)
        return tti_shm_fail_gone(self);
    in->tail_bytes = kind == SHM_KIND_TAIL ? bytes : 0;
    if (kind == SHM_KIND_TAIL) {
        in->data = receive_tail(in);
    } else if (kind == SHM_KIND_PIECE) {
        if (where > ring || bytes > ring - where)
            return receive_refuse(self, "a piece beyond the end of its ring");
        in->data = in->pieces + where;
        in->bytes = bytes;
        tti_shm_piece_opened(self, in, id, where);
    } else if (kind == SHM_KIND_REGION) {
        TTI_TRY(receive_find_region(self, id, &mapping));
        if (where > mapping->bytes || bytes > mapping->bytes - where)
            return receive_refuse(self, "a reference beyond the end of its memory region");
        mapping->uses++;
        in->data = mapping->base + where;
    } else if (kind == SHM_KIND_MEMORY && self->transport->settings.memory != SHM_MEMORY_NONE &&
               tti_load_acquire(&self->ours->reads_memory)) {
        in->data = NULL;
        in->address = where;
        in->stage_from = in->stage_to = 0;
    } else {
        return receive_refuse(self, "a fragment of an unknown kind");
    }
    in->bytes = bytes;
    in->mapping = mapping;
    return TUTTI_OK;
}

/* From a peer that sends without being answered the next fragments are there already, most likely:
 * have them on their way while this one is used. Were they not, its stores would wait for the lines
 * to come back. */
static inline void receive_follow(const struct shm_endpoint *self, const struct shm_in *in)
{
    if (in->row < SHM_ROW)
        return;
    const uint64_t next = in->consumed + SHM_READ_AHEAD;
    tti_prefetch_read(&in->lines[shm_line_at(next)]);
    if (in->kind == SHM_KIND_TAIL) {
        const unsigned char *tail = in->tails + next % SHM_TAILS * in->tail_most;
        for (size_t at = 0; at < in->bytes; at += TTI_CACHE_LINE)
            tti_prefetch_read(tail + at);
    } else if (in->kind == SHM_KIND_PIECE && in->bytes <= self->transport->settings.ahead_most) {
        const size_t room = (in->bytes + SHM_PIECE_ALIGN - 1) / SHM_PIECE_ALIGN * SHM_PIECE_ALIGN;
        const size_t where = (size_t)(in->data - in->pieces) + SHM_READ_AHEAD * room;
        for (size_t at = 0; at < in->bytes && where + at < self->piece_ring; at += TTI_CACHE_LINE)
            tti_prefetch_read(in->pieces + where + at);
    }
}

/* Make the oldest line the open fragment; in->open stays false when there is none. */
static enum tutti_result receive_open(struct shm_endpoint *self, struct shm_in *in)
{
    const struct shm_line *line = &in->lines[shm_line_at(in->consumed)];
    if (self->state == SHM_FAILED)
        return tti_error_restore(&self->error);
    receive_expect(in);
    uint64_t flag = tti_load_acquire(&line->flag);
    if (!shm_flag_is(flag, in->consumed)) {
        if (!self->ended && tti_load_acquire(&self->theirs->left) == SHM_THERE)
            return TUTTI_OK;
        /* It may have sent before it left: look again after having seen it leave. */
        flag = tti_load_acquire(&line->flag);
        if (!shm_flag_is(flag, in->consumed))
            return tti_shm_fail_gone(self);
    }
    enum shm_kind kind = (enum shm_kind)(flag >> 8 & 0xff);
    in->tag = line->tag;
    if (kind == SHM_KIND_INLINE) {
        size_t bytes = flag & 0xff;
        if (bytes == 0 || bytes > SHM_INLINE)
            return receive_refuse(self, "a fragment of an impossible size");
        in->data = line->bytes;
        in->bytes = bytes;
    } else {
        TTI_TRY(receive_open_far(self, in, line, kind));
    }
    in->kind = kind;
    in->offset = 0;
    in->open = true;
    receive_follow(self, in);
    if (in->known == in->consumed)
        in->known++;
    return TUTTI_OK;
}

uint64_t tti_shm_arrived(const struct shm_in *in)
{
    uint64_t number = in->known;
    while (number - in->consumed < SHM_LINES &&
           shm_flag_is(tti_load_acquire(&in->lines[shm_line_at(number)].flag), number))
        number++;
    return number;
}

bool tti_shm_await(void *endpoint, int number, unsigned turns)
{
    const struct shm_endpoint *self = endpoint;
    const struct shm_in *in = &self->lane[number].in;
    if (in->open || self->state == SHM_FAILED)
        return true;
    const _Atomic uint64_t *flag = &in->lines[shm_line_at(in->consumed)].flag;
    for (; turns > 0; turns--)
        if (shm_flag_is(tti_load_acquire(flag), in->consumed))
            return true;
    return false;
}

/* ---- the sender's own memory ---------------------------------------------------------------- */

/* Read `bytes` of the open fragment from byte `from` on; *got > 0 of them, a multiple of the unit
 * unless all. */
static enum tutti_result receive_read(struct shm_endpoint *self, const struct shm_in *in,
                                      size_t from, void *into, size_t bytes, size_t *got)
{
    struct iovec here = {.iov_base = into, .iov_len = bytes};
    struct iovec there = {.iov_base = (void *)(uintptr_t)(in->address + from), .iov_len = bytes};
    ssize_t done = process_vm_readv(self->pid, &here, 1, &there, 1, 0);
    int error = errno;
    /* Before what was read, or why it could not be, means anything: was it still theirs to read? */
    if ((done < 0 && error == ESRCH) || tti_load_acquire(&self->theirs->left) == SHM_CUT)
        return tti_shm_fail_gone(self);
    errno = error;
    if (done > 0 && (size_t)done < bytes)
        done -= done % TUTTI_FRAGMENT_UNIT;
    if (done <= 0)
        return tti_shm_break(self,
                             TTI_FAIL_ERRNO("reading %zu bytes of the memory of rank %d (%s) with "
                                            "process_vm_readv (TUTTI_SHM_CMA=0 does without)",
                                            bytes, self->peer->rank, self->peer->name));
    *got = (size_t)done;
    return TUTTI_OK;
}

/* Fill the stage from the current offset on. */
static enum tutti_result receive_stage(struct shm_endpoint *self, struct shm_in *in)
{
    if (!in->stage) {
        in->stage = tti_calloc_aligned(SHM_PAGE, 1, SHM_STAGE_BYTES);
        if (!in->stage)
            return TUTTI_ERR_MEMORY;
    }
    size_t left = in->bytes - in->offset, got = 0;
    size_t want = left < SHM_STAGE_BYTES ? left : SHM_STAGE_BYTES;
    TTI_TRY(receive_read(self, in, in->offset, in->stage, want, &got));
    in->stage_from = in->offset;
    in->stage_to = in->offset + got;
    return TUTTI_OK;
}

/* Straight to its place, from the current offset on: perhaps with the peer's help. */
static enum tutti_result receive_there(struct shm_endpoint *self, struct shm_in *in, void *into,
                                       size_t bytes, size_t *got)
{
    const size_t own = tti_shm_share_offer(self, in, into, bytes);
    const enum tutti_result result = receive_read(self, in, in->offset, into, own, got);
    if (own == bytes)
        return result;
    bool written = false;
    TTI_TRY(tti_shm_share_end(self, in, &written));
    if (result != TUTTI_OK || *got < own)
        return result;
    size_t rest = bytes - own;
    if (!written)
        TTI_TRY(receive_read(self, in, in->offset + own, (char *)into + own, rest, &rest));
    *got = own + rest;
    if (*got < bytes)
        *got -= *got % TUTTI_FRAGMENT_UNIT;
    return TUTTI_OK;
}

/* ---- operations ----------------------------------------------------------------------------- */

/* The sender's region is read in place: was it still lent when the last byte was read? One that
 * gives up says that it is not before its memory may change. */
enum tutti_result tti_shm_intact(void *endpoint, int number)
{
    struct shm_endpoint *self = endpoint;
    const struct shm_in *in = &self->lane[number].in;
    if (in->kind == SHM_KIND_REGION && tti_load_after_reads(&self->theirs->left) == SHM_CUT)
        return tti_shm_fail_gone(self);
    return TUTTI_OK;
}

enum tutti_result tti_shm_peek(void *endpoint, int number, uint64_t *tag, const void **data,
                               size_t *bytes)
{
    struct shm_endpoint *self = endpoint;
    struct shm_in *in = &self->lane[number].in;
    if (!in->open) {
        TTI_TRY(receive_open(self, in));
        if (!in->open) {
            *bytes = 0;
            return TUTTI_OK;
        }
    }
    if (in->kind == SHM_KIND_MEMORY) {
        if (in->offset >= in->stage_to)
            TTI_TRY(receive_stage(self, in));
        *data = in->stage + (in->offset - in->stage_from);
        *bytes = in->stage_to - in->offset;
    } else {
        *data = in->data + in->offset;
        *bytes = in->bytes - in->offset;
    }
    *tag = in->tag;
    return TUTTI_OK;
}

/* Fetch what the next message will be written to, which the peer has read last: its line, and its
 * tail or the room of its piece, if it is like the last one. After a receipt, because most who
 * receive answer, and because then the peer is done with both. */
static void receive_own_next(const struct shm_endpoint *self, const struct shm_out *out)
{
    const unsigned char *tail = out->tails + out->sent % SHM_TAILS * out->tail_most;
    tti_prefetch_write(&out->lines[shm_line_at(out->sent)]);
    for (size_t at = 0; at < out->tail_bytes; at += TTI_CACHE_LINE)
        tti_prefetch_write(tail + at);
    if (out->piece_bytes == 0)
        return;
    const size_t room = out->piece_head % self->piece_ring;
    for (size_t at = room; at < room + out->piece_bytes && at < self->piece_ring;
         at += TTI_CACHE_LINE)
        tti_prefetch_write(out->pieces + at);
}

void tti_shm_consume(void *endpoint, int number, size_t bytes)
{
    struct shm_endpoint *self = endpoint;
    struct shm_in *in = &self->lane[number].in;
    in->offset += bytes;
    if (in->offset < in->bytes)
        return;
    if (in->mapping)
        tti_shm_region_done(self, in->mapping);
    in->mapping = NULL;
    in->open = false;
    if (in->kind == SHM_KIND_PIECE && in->began_ns != 0)
        tti_shm_piece_read(in);
    in->consumed++;
    in->row++;
    self->lane[number].out.row = 0;
    tti_store_release(in->ack, in->consumed);
    receive_own_next(self, &self->lane[number].out);
    /* The sender of a small fragment can only wait for a free line: wake it now and then. */
    bool small = in->kind == SHM_KIND_INLINE || in->kind == SHM_KIND_TAIL;
    if (!small || in->consumed % SHM_ACK_EVERY == 0)
        tti_shm_ring(self);
}

enum tutti_result tti_shm_receive(void *endpoint, int number, uint64_t *tag, void *into,
                                  size_t bytes, size_t *taken)
{
    struct shm_endpoint *self = endpoint;
    struct shm_in *in = &self->lane[number].in;
    if (!in->open) {
        TTI_TRY(receive_open(self, in));
        if (!in->open) {
            *taken = 0;
            return TUTTI_OK;
        }
    }
    size_t ready = in->bytes - in->offset;
    if (in->kind == SHM_KIND_MEMORY && in->offset < in->stage_to)
        ready = in->stage_to - in->offset; /* what peek has fetched already */
    if (ready > bytes)
        ready = bytes;
    if (in->kind == SHM_KIND_INLINE)
        shm_copy_small(into, in->data + in->offset, ready);
    else if (in->kind == SHM_KIND_TAIL)
        memcpy(into, in->data + in->offset, ready);
    else if (in->kind != SHM_KIND_MEMORY)
        tti_copy_received(into, in->data + in->offset, ready);
    else if (in->offset < in->stage_to)
        memcpy(into, in->stage + (in->offset - in->stage_from), ready);
    else
        TTI_TRY(receive_there(self, in, into, ready, &ready));
    TTI_TRY(tti_shm_intact(self, number));
    *tag = in->tag;
    tti_shm_consume(self, number, ready);
    *taken = ready;
    return TUTTI_OK;
}
