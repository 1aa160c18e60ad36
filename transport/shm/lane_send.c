/* shm, the sending half of a lane (layout.h has the memory).
 *
 * A fragment goes the cheapest way that its size and place allow: inside its line; in the line's
 * tail; as a reference to a region that the peer maps; as an address that the peer reads with
 * process_vm_readv, where TUTTI_SHM_CMA allows it; or as a copy in the piece ring (lane_ways.c).
 * References and addresses keep the caller's memory busy. */
#include "transport/shm/shm.h"

#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

bool tti_shm_collect(struct shm_out *out)
{
    if (out->freed < out->sent) {
        uint64_t consumed = tti_load_acquire(out->acked);
        if (consumed < out->freed || consumed > out->sent)
            return false;
        if (consumed > out->freed) {
            out->piece_tail = out->log[(consumed - 1) % SHM_LINES].piece_end;
            out->pieces_freed = out->log[(consumed - 1) % SHM_LINES].pieces;
            out->freed = consumed;
        }
    }
    for (; out->counted < out->sent; out->counted++) {
        const struct shm_sent *line = &out->log[out->counted % SHM_LINES];
        if (out->counted >= out->freed && !line->copied)
            break;
        out->released += line->bytes;
    }
    return true;
}

/* The same, where the endpoint fails if the peer's count makes no sense. */
static bool send_collect(struct shm_endpoint *self, struct shm_out *out)
{
    if (tti_shm_collect(out))
        return true;
    (void)tti_shm_break(self, TTI_FAIL(TUTTI_ERR_PROTOCOL,
                                       "rank %d (%s) acknowledges what it was not sent",
                                       self->peer->rank, self->peer->name));
    return false;
}

/* What stands in the way of sending anything at all. */
static enum tutti_result send_check(struct shm_endpoint *self, struct shm_out *out)
{
    if (self->state == SHM_FAILED)
        return tti_error_restore(&self->error);
    if (self->ended || tti_load_acquire(&self->theirs->left) != SHM_THERE)
        return tti_shm_fail_gone(self);
    if (out->sent - out->freed == SHM_LINES && !send_collect(self, out))
        return tti_error_restore(&self->error);
    return TUTTI_OK;
}

static bool send_full(const struct shm_out *out)
{
    return out->sent - out->freed == SHM_LINES;
}

/* One who sends without being answered, as a broadcast's root, has each line taken from the peer,
 * who read what was there a lap ago: ask for one of the next. When it has done so for a while, also
 * for where the bytes of a message like this one will lie. */
static inline void send_own_next(const struct shm_endpoint *self, const struct shm_out *out,
                                 enum shm_kind kind, size_t bytes)
{
    tti_prefetch_write(&out->lines[shm_line_at(out->sent + SHM_OWN_AHEAD)]);
    if (out->row < SHM_ROW)
        return;
    if (kind == SHM_KIND_TAIL) {
        unsigned char *tail =
            out->tails + (out->sent + SHM_TAIL_AHEAD) % SHM_TAILS * out->tail_most;
        for (size_t at = 0; at < bytes; at += TTI_CACHE_LINE)
            tti_prefetch_write(tail + at);
    } else if (kind == SHM_KIND_PIECE && bytes <= self->transport->settings.ahead_most &&
               shm_way_of(self, out, bytes) != SHM_AROUND) {
        const size_t room = out->piece_head % self->piece_ring;
        for (size_t at = 0; at < bytes && room + at < self->piece_ring; at += TTI_CACHE_LINE)
            tti_prefetch_write(out->pieces + room + at);
    }
}

static inline void send_publish(struct shm_endpoint *self, struct shm_out *out, uint64_t tag,
                                enum shm_kind kind, size_t bytes, bool copied)
{
    struct shm_line *line = &out->lines[shm_line_at(out->sent)];
    out->tail_bytes = kind == SHM_KIND_TAIL ? bytes : 0;
    out->piece_bytes = kind == SHM_KIND_PIECE && bytes <= SHM_FETCH_MOST &&
                               shm_way_of(self, out, bytes) != SHM_AROUND
                           ? bytes
                           : 0;
    out->pieces_sent = (uint16_t)(out->pieces_sent + (kind == SHM_KIND_PIECE));
    out->log[out->sent % SHM_LINES] = (struct shm_sent){.piece_end = out->piece_head,
                                                        .bytes = (uint32_t)bytes,
                                                        .pieces = out->pieces_sent,
                                                        .copied = copied};
    line->tag = tag;
    tti_store_release(&line->flag, shm_flag(out->sent, kind, kind == SHM_KIND_INLINE ? bytes : 0));
    out->sent++;
    if (copied && out->counted == out->sent - 1) { /* nothing before it is held back */
        out->counted++;
        out->released += bytes;
    }
    out->row++;
    send_own_next(self, out, kind, bytes);
    tti_shm_ring(self);
}

static void send_inline(struct shm_endpoint *self, struct shm_out *out, uint64_t tag,
                        const void *data, size_t bytes)
{
    shm_copy_small(out->lines[shm_line_at(out->sent)].bytes, data, bytes);
    send_publish(self, out, tag, SHM_KIND_INLINE, bytes, true);
}

static void send_far(struct shm_endpoint *self, struct shm_out *out, uint64_t tag,
                     enum shm_kind kind, uint64_t where, uint64_t id, size_t bytes)
{
    struct shm_line *line = &out->lines[shm_line_at(out->sent)];
    line->far.where = where;
    line->far.id = id;
    line->far.bytes = bytes;
    send_publish(self, out, tag, kind, bytes, kind == SHM_KIND_PIECE || kind == SHM_KIND_TAIL);
}

/* The tail of the next line, or NULL: the peer has not read what was there before. Who is ahead
 * without being answered asks seldom: each look fetches a line that the peer writes after every
 * message, and a piece does as well. */
static unsigned char *send_tail(struct shm_out *out)
{
    if (out->sent - out->freed >= SHM_TAILS) {
        if (out->row >= SHM_ROW && out->sent - out->asked < SHM_ASK_EVERY)
            return NULL;
        out->asked = out->sent;
        if (!tti_shm_collect(out) || out->sent - out->freed >= SHM_TAILS)
            return NULL;
    }
    return out->tails + out->sent % SHM_TAILS * out->tail_most;
}

/* ---- the piece ring ------------------------------------------------------------------------- */

/* So much of the ring is used by a piece of this size. Right behind one that goes the wide way all
 * of it: who turned back there would have the wide way go round at the start. And where ranks share
 * cores, all that there is by who is not answered, for pieces of which many shall be under way. */
static size_t send_ring(const struct shm_endpoint *self, const struct shm_out *out, size_t want)
{
    const bool behind = out->wide_head > 0 && out->piece_head - out->wide_head < SHM_WIDE_STAYS;
    const bool many = shm_in_row(self, out) && want <= SHM_LARGE_PIECE;
    return behind || many || shm_way_of(self, out, want) == SHM_WIDE
               ? self->piece_ring
               : self->transport->settings.piece_narrow;
}

/* Where a lap turns back: the whole ring, or the narrow part of it. In that small pieces keep to
 * the start while the peer keeps up: a lap through all of it would push everything else out of the
 * caches, and touch new pages for long, each of which makes a message wait. Not too near: the peer
 * reads faster what has left the writer's first-level cache for the second, if the writer goes on
 * meanwhile; one that waits for an answer had better find its room in the first. And one that goes
 * on shall have room for a piece in each line, and no more: where ranks share a core, the further
 * it gets in its turn the fewer of its messages are waited for. Two that have a core each, and a
 * cache in common, pass larger pieces on faster the closer one follows the other: there is room for
 * as many as the settings say. And where only a first-level cache has back soon what the peer has
 * read, all keep to a part of that (near_bytes). */
static size_t send_near(const struct shm_endpoint *self, const struct shm_out *out, size_t want)
{
    const size_t piece = (want + SHM_PIECE_ALIGN - 1) / SHM_PIECE_ALIGN * SHM_PIECE_ALIGN;
    const struct shm_settings *settings = &self->transport->settings;
    const size_t ahead = want <= SHM_TAIL_LEAST ? SHM_LINES : settings->ahead_pieces;
    const size_t ring = send_ring(self, out, want);
    if (want > SHM_NEAR_PIECE || (ring > settings->piece_narrow && !shm_in_row(self, out)))
        return ring;
    const size_t most = settings->near_bytes > 2 * piece ? settings->near_bytes : 2 * piece;
    size_t near = out->row >= SHM_ROW        ? ahead * piece
                  : want > SHM_NEAREST_PIECE ? SHM_NEAR_RING
                                             : SHM_NEAREST_RING;
    near = near < most ? near : most;
    return near < ring ? near : ring;
}

/* Has one who is not answered as many pieces under way as it may, where ranks share cores? The peer
 * reads all of them in its turn, and so long this one waits: of larger ones a few, and no more than
 * the narrow part holds. Long messages come in pieces of 32 KiB, for which nobody waits one by one.
 * Only pieces count: when the peer has read one it wakes who waits for room, which it does not for
 * each small line. */
static bool send_enough_in_row(const struct shm_endpoint *self, const struct shm_out *out,
                               size_t want)
{
    const size_t pieces = (uint16_t)(out->pieces_sent - out->pieces_freed);
    return self->transport->settings.slow_lines && shm_in_row(self, out) && want > SHM_ROW_FROM &&
           (pieces >= SHM_ROW_PIECES || pieces * want >= self->transport->settings.piece_narrow);
}

static bool send_turns_back(const struct shm_endpoint *self, const struct shm_out *out, size_t want)
{
    return out->piece_head % self->piece_ring >= send_near(self, out, want);
}

/* Bytes at the start of a shifted ring that are left out: pieces of a page or two lie in as few
 * pages as can be (a broadcast of 4 KiB across a border takes 0.16 us, and 0.13 without). */
static size_t send_skips(const struct shm_endpoint *self, size_t want)
{
    const bool small = want > SHM_NEAREST_PIECE && want <= SHM_NEAR_PIECE;
    return small && self->transport->settings.piece_narrow >= 4 * SHM_NEAR_PIECE
               ? self->pieces_shift
               : 0;
}

/* Contiguous room for up to `want` bytes; skips the end of the ring when the start has more. */
static size_t send_room(struct shm_endpoint *self, struct shm_out *out, size_t want)
{
    const size_t ring = self->piece_ring, offset = out->piece_head % ring;
    const size_t free_bytes = ring - (size_t)(out->piece_head - out->piece_tail);
    const size_t most = self->transport->settings.piece_bytes;
    if (want > most)
        want = most;
    const size_t end = send_ring(self, out, want), to_end = offset < end ? end - offset : 0;
    const size_t skips = send_skips(self, want), skipped = ring - offset + skips;
    if (offset < skips && free_bytes >= skips - offset + want) {
        out->piece_head += skips - offset;
        return want;
    }
    size_t room = free_bytes < to_end ? free_bytes : to_end;
    if (send_turns_back(self, out, want) && free_bytes >= skipped + want)
        room = 0;
    if (room < want && free_bytes > skipped && free_bytes - skipped > room) {
        out->piece_head += skipped;
        room = free_bytes - skipped;
    }
    return room < want ? room : want;
}

/* The same, looking for what the peer has freed when there is too little. All of `want`, or a
 * multiple of the unit that is worth a line, or 0: there is none now, or the endpoint has failed.
 */
static size_t send_piece_room(struct shm_endpoint *self, struct shm_out *out, size_t want)
{
    size_t most = self->transport->settings.piece_bytes;
    if (want > most)
        want = most;
    /* What is left of one that is not whole would lie across borders, and all that follow it. */
    size_t worth = send_skips(self, want) > 0 ? want : want / 4;
    if (send_enough_in_row(self, out, want) &&
        (!send_collect(self, out) || send_enough_in_row(self, out, want)))
        return 0;
    if (send_turns_back(self, out, want) && !send_collect(self, out))
        return 0;
    size_t room = send_room(self, out, want);
    if (room < want && room < most && send_collect(self, out))
        room = send_room(self, out, want);
    if (room < want)
        room -= room % TUTTI_FRAGMENT_UNIT;
    return room < worth ? 0 : room;
}

/* Does the first lane work alone? Others only go beside it. */
static void send_look_beside(const struct shm_endpoint *self, struct shm_out *out)
{
    if (self->lanes == 1 || out != &self->lane[0].out)
        return;
    const uint64_t beside = self->lane[1].out.sent;
    out->shared = beside != out->beside ? SHM_ALONE_AFTER : out->shared - (out->shared > 0);
    out->beside = beside;
}

static void send_piece(struct shm_endpoint *self, struct shm_out *out, uint64_t tag, size_t bytes,
                       uint64_t id)
{
    const uint64_t where = out->piece_head % self->piece_ring;
    const bool tried = shm_tries(self, out, bytes);
    out->piece_head += (bytes + SHM_PIECE_ALIGN - 1) / SHM_PIECE_ALIGN * SHM_PIECE_ALIGN;
    if (shm_way_of(self, out, bytes) == SHM_WIDE)
        out->wide_head = out->piece_head;
    send_far(self, out, tag, SHM_KIND_PIECE, where, out->all_there ? SHM_ID_PAGES : id, bytes);
    out->all_there = false;
    send_look_beside(self, out);
    if (tried)
        tti_shm_piece_sent(self, out, bytes);
}

/* ---- operations ----------------------------------------------------------------------------- */

/* Can the kernel read these bytes for a peer? It cannot where a device's driver has mapped its own
 * memory (page-locked memory may be so). Asked of it once for a range, at both of its ends. */
static bool send_readable(struct shm_transport *self, const void *data, size_t bytes)
{
    const uintptr_t from = (uintptr_t)data, to = from + bytes;
    unsigned char ends[2];
    for (int i = 0; i < SHM_READABLE; i++)
        if (self->readable[i].from <= from && to <= self->readable[i].to)
            return true;
    struct iovec here = {.iov_base = ends, .iov_len = sizeof ends};
    struct iovec there[2] = {{.iov_base = (void *)from, .iov_len = 1},
                             {.iov_base = (void *)(to - 1), .iov_len = 1}};
    if (process_vm_readv(getpid(), &here, 1, there, 2, 0) != (ssize_t)sizeof ends)
        return false;
    self->readable[self->readable_next++ % SHM_READABLE] = (struct shm_readable){from, to};
    return true;
}

/* By reference, if the fragment is large enough and its place allows; the bytes taken, or 0. */
static size_t send_reference(struct shm_endpoint *self, struct shm_out *out, uint64_t tag,
                             const void *data, size_t bytes, bool lent)
{
    const struct shm_settings *settings = &self->transport->settings;
    const size_t region_from = lent ? 0 : settings->region_from;
    uint64_t id = 0, offset = 0;
    if (bytes > SHM_REFERENCE_MOST)
        bytes = SHM_REFERENCE_MOST;
    if (bytes >= region_from && tti_shm_region_refer(self, data, bytes, &id, &offset)) {
        send_far(self, out, tag, SHM_KIND_REGION, offset, id, bytes);
        return bytes;
    }
    if (bytes < settings->memory_from || settings->memory == SHM_MEMORY_NONE ||
        (settings->memory == SHM_MEMORY_LENT && !lent))
        return 0;
    if (!self->peer_reads)
        self->peer_reads = tti_load_acquire(&self->theirs->reads_memory) == 1;
    if (!self->peer_reads || !send_readable(self->transport, data, bytes))
        return 0;
    tti_shm_share_note(out, data);
    send_far(self, out, tag, SHM_KIND_MEMORY, (uint64_t)(uintptr_t)data, 0, bytes);
    return bytes;
}

enum tutti_result tti_shm_send(void *endpoint, int number, uint64_t tag, const void *data,
                               size_t bytes, size_t *accepted)
{
    struct shm_endpoint *self = endpoint;
    struct shm_out *out = &self->lane[number].out;
    self->lane[number].in.row = 0;
    const bool usable = self->state != SHM_FAILED && !self->ended &&
                        tti_load_acquire(&self->theirs->left) == SHM_THERE;
    if (__builtin_expect(!usable || send_full(out), 0)) {
        *accepted = 0;
        TTI_TRY(send_check(self, out));
        if (send_full(out))
            return TUTTI_OK;
    }
    if (bytes <= SHM_INLINE) {
        send_inline(self, out, tag, data, bytes);
        *accepted = bytes;
        return TUTTI_OK;
    }
    const size_t tail_most = out->row < SHM_ROW ? out->tail_most : out->tail_in_row;
    unsigned char *tail = bytes <= tail_most ? send_tail(out) : NULL;
    if (tail) {
        memcpy(tail, data, bytes);
        send_far(self, out, tag, SHM_KIND_TAIL, 0, 0, bytes);
        *accepted = bytes;
        return TUTTI_OK;
    }
    size_t taken = send_reference(self, out, tag, data, bytes, false);
    if (taken == 0) {
        taken = send_piece_room(self, out, bytes);
        if (taken > 0) {
            tti_shm_piece_pages(self, out, taken);
            send_piece(self, out, tag, taken, tti_shm_copy_piece(self, out, data, taken));
        } else if (self->state == SHM_FAILED) {
            *accepted = 0;
            return tti_error_restore(&self->error);
        }
    }
    *accepted = taken;
    return TUTTI_OK;
}

/* By reference whatever the size, but for what the line and its tail hold. */
enum tutti_result tti_shm_lend(void *endpoint, int number, uint64_t tag, const void *data,
                               size_t bytes, size_t *accepted)
{
    struct shm_endpoint *self = endpoint;
    struct shm_out *out = &self->lane[number].out;
    size_t taken = 0;
    self->lane[number].in.row = 0;
    TTI_TRY(send_check(self, out));
    if (bytes > out->tail_most && !send_full(out))
        taken = send_reference(self, out, tag, data, bytes, true);
    if (taken == 0)
        return tti_shm_send(endpoint, number, tag, data, bytes, accepted);
    *accepted = taken;
    return TUTTI_OK;
}

size_t tti_shm_copies(void *endpoint)
{
    const struct shm_settings *settings = &((struct shm_endpoint *)endpoint)->transport->settings;
    size_t from = settings->region_from;
    if (settings->memory == SHM_MEMORY_ALL && settings->memory_from < from)
        from = settings->memory_from;
    return from > SHM_INLINE ? from - 1 : SHM_INLINE;
}

uint64_t tti_shm_released(void *endpoint, int number)
{
    struct shm_endpoint *self = endpoint;
    struct shm_out *out = &self->lane[number].out;
    if (self->state == SHM_READY && out->counted < out->sent &&
        tti_shm_collect(out) /* a count that makes no sense is told by send, when it needs room */
        && out->counted < out->sent)
        tti_shm_share_help(self, out);
    return out->released;
}

/* What befell an endpoint is noticed first, and its counts are read then: the peer may have taken
 * everything before it left. */
enum tutti_result tti_shm_abandoned(void *endpoint)
{
    struct shm_endpoint *self = endpoint;
    if (self->state != SHM_FAILED && !self->ended &&
        tti_load_acquire(&self->theirs->left) == SHM_THERE)
        return TUTTI_OK;
    for (int i = 0; i < self->lanes; i++) {
        struct shm_out *out = &self->lane[i].out;
        if (out->counted < out->sent && self->state == SHM_READY)
            (void)tti_shm_collect(out);
        if (out->counted < out->sent)
            return self->state == SHM_FAILED ? tti_error_restore(&self->error)
                                             : tti_shm_fail_gone(self);
    }
    return TUTTI_OK;
}

size_t tti_shm_reserve(void *endpoint, int number, size_t want, void **room)
{
    struct shm_endpoint *self = endpoint;
    struct shm_out *out = &self->lane[number].out;
    if (self->state != SHM_READY || (send_full(out) && (!tti_shm_collect(out) || send_full(out))))
        return 0;
    size_t bytes = send_piece_room(self, out, want);
    if (bytes == 0)
        return 0;
    tti_shm_piece_pages(self, out, bytes);
    *room = out->pieces + out->piece_head % self->piece_ring;
    out->bounced = shm_way_of(self, out, bytes) == SHM_AROUND && tti_shm_bounce(self, out);
    if (out->bounced)
        *room = out->bounce;
    return bytes;
}

enum tutti_result tti_shm_commit(void *endpoint, int number, uint64_t tag, size_t bytes)
{
    struct shm_endpoint *self = endpoint;
    struct shm_out *out = &self->lane[number].out;
    if (bytes == 0) { /* nor is what was skipped for it */
        out->piece_head = out->sent > 0 ? out->log[(out->sent - 1) % SHM_LINES].piece_end : 0;
        return TUTTI_OK;
    }
    self->lane[number].in.row = 0;
    TTI_TRY(send_check(self, out));
    const unsigned char *built =
        out->bounced ? out->bounce : out->pieces + out->piece_head % self->piece_ring;
    if (bytes <= SHM_INLINE) {
        send_inline(self, out, tag, built, bytes);
        return TUTTI_OK;
    }
    if (out->bounced)
        tti_shm_copy_bounced(self, out, bytes);
    send_piece(self, out, tag, bytes, 0);
    return TUTTI_OK;
}
