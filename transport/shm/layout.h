/* The memory that two ranks of a host share: one memfd for each connection.
 *
 *   page 0   header      side 0 | side 1         a cache line each: sleeping, left, ...
 *            acks        [side][lane]            a cache line each: lines consumed by that side,
 *                                                and what it offers to be helped with
 *            holds       side 0 | side 1         a cache line each: is it in the other's memory?
 *            tooks       [side][lane]            how fast that side reads pieces
 *   pages    lines       [side][lane][256]       descriptors sent by that side, a cache line each
 *   pages    tails       [side][lane][32]        1 KiB each: copies of small fragments. Or 512 B,
 *                                                and half of the pages are not used
 *   pages    pieces      [side][lane][bytes]     a ring of bytes for copies of larger fragments
 *   page                                         so that all rings can be shifted by half a page
 *
 *   a line:  | flag 8 B | tag 8 B | 48 B: the bytes themselves, or where they are |
 *
 * Side 0 is the lower rank. Every word has one writer, but for `sleeping`, which a side sets and
 * whoever wakes it clears, and the state of an offer, which passes the offer on. The sender fills a
 * line and stores its flag last (release); the receiver polls that one line. The flag holds the
 * number of the line since the connection began, so nothing is ever cleared. A line is written
 * again only after the receiver's ack has passed it. Pieces are freed in order with the lines that
 * name them.
 *
 * Line number n has tail n % 32, and so the receiver knows where a small fragment will lie before
 * it sees the line: both come from the other core at once, and not one after the other. A tail is
 * written again once the line that had it before is acknowledged; until then pieces do.
 *
 * The peer may be broken or hostile: whatever is read here is copied once, then checked. */
#ifndef TTI_TRANSPORT_SHM_LAYOUT_H
#define TTI_TRANSPORT_SHM_LAYOUT_H

#include "base/atomic.h"
#include "tutti/plugin.h"

#include <stddef.h>
#include <string.h>
#include <sys/uio.h>

enum {
    SHM_LINES = 256,    /* per lane and direction, a power of two */
    SHM_ACK_EVERY = 64, /* a sender that sleeps for a free line is woken every so many */
    SHM_OWN_AHEAD = 3,  /* lines before its turn that a line is fetched for writing */
    SHM_ROW = 4,        /* after so many messages one way without an answer, the sender is ahead: */
    SHM_TAIL_AHEAD = 8, /* ... messages before its turn that it fetches a tail for writing */
    SHM_ASK_EVERY = 16, /* ... and that it asks by, whether the peer is near enough for tails */
    SHM_READ_AHEAD = 2, /* ... and that the receiver fetches one for reading */
    SHM_INLINE = 48,    /* bytes that fit into a line */
    SHM_TAILS = 32,     /* per lane and direction, a power of two */
    SHM_TAIL_BYTES = 1024,
    SHM_TAIL_LEAST = 512, /* what of it is used over meshes, and among more than two ranks */
    SHM_PAGE = 4096,
    SHM_FETCH_MOST = 2048, /* bytes of pieces that are fetched ahead of time */
    SHM_PIECE_ALIGN = 64,
    SHM_NEAR_PIECE = 8192,        /* pieces up to this size ... */
    SHM_NEAR_RING = 256 * 1024,   /* ... keep to so many bytes of their ring (lane_send.c), */
    SHM_NEAREST_PIECE = 2048,     /* and those up to this one, of who is answered, ... */
    SHM_NEAREST_RING = 64 * 1024, /* ... to so many */
    SHM_NEAR_FIRST = 8 * 1024, /* and of any, where only a first-level cache has lines back soon */
    SHM_PIECES_SHIFT = 2048,   /* bytes behind a page where a ring of pieces may begin */
    SHM_FOLLOWED = 16, /* larger ones than that, of who is not answered, that a pair has room for */
    SHM_LARGE_PIECE = 16 * 1024, /* how larger pieces go is another matter than how others do, */
    SHM_FULL_PIECE = 256 * 1024, /* and those of this size again */
};

/* How what is copied into the ring of pieces goes: found out by the sender (lane_ways.c). */
enum shm_way {
    SHM_NARROW, /* through a part of the ring that the caches hold */
    SHM_AROUND, /* the same, by stores that go around the caches */
    SHM_WIDE,   /* through all of the ring, of which a second-level cache holds a half at most */
    SHM_WAYS,
};
/* From here on pieces go through all of the ring: its pages are there now. */
enum { SHM_ID_PAGES = SHM_WAYS + 1 };
enum { SHM_SIZES = 3 }; /* up to SHM_LARGE_PIECE, above, and from SHM_FULL_PIECE on */

static inline int shm_size_of(size_t bytes)
{
    return (bytes > SHM_LARGE_PIECE) + (bytes >= SHM_FULL_PIECE);
}

enum shm_kind {
    SHM_KIND_INLINE = 1, /* bytes: in the line */
    SHM_KIND_PIECE = 2,  /* where: offset in the piece ring */
    SHM_KIND_REGION = 3, /* where: offset in region `id` of the sender */
    SHM_KIND_MEMORY = 4, /* where: address in the sender's process */
    SHM_KIND_TAIL = 5,   /* where: 0; in the line's own tail */
};

struct shm_line {
    _Atomic uint64_t flag; /* number of the line + 1, << 16 | kind << 8 | bytes if inline */
    uint64_t tag;
    union {
        unsigned char bytes[SHM_INLINE];
        struct {
            uint64_t where, bytes, id; /* id of a piece: its way + 1 if it shall be timed, or
                                          SHM_ID_PAGES; else 0 */
        } far;
    };
};
_Static_assert((size_t)SHM_TAILS *SHM_TAIL_BYTES % SHM_PAGE == 0, "tails are whole pages");
_Static_assert(SHM_PIECES_SHIFT <= SHM_PAGE, "a page is left for a shift");
_Static_assert(sizeof(struct shm_line) == TTI_CACHE_LINE, "a descriptor is one cache line");

enum shm_left {
    SHM_THERE = 0,
    SHM_LEFT = 1, /* closed; whatever is unread stays readable */
    SHM_CUT = 2,  /* closed while fragments were unread that lie in its own memory */
};

struct shm_side {
    _Alignas(TTI_CACHE_LINE) _Atomic uint64_t sleeping;
    _Atomic uint64_t left;         /* enum shm_left */
    _Atomic uint64_t reads_memory; /* this side can process_vm_readv the other */
    _Atomic uint64_t fences;       /* this side fences for both before it sleeps (changes) */
    _Atomic uint64_t withdrawn;    /* the other side must not map this side's memory any more */
};

enum shm_share_state {
    SHM_SHARE_NONE = 0,
    SHM_SHARE_OFFERED = 1, /* by the receiver of the fragment */
    SHM_SHARE_TAKEN = 2,   /* by its sender, who writes */
    SHM_SHARE_DONE = 3,
    SHM_SHARE_FAILED = 4,
};

/* Part of a fragment in its sender's memory, which the sender may write to its place in the
 * receiver's memory while the receiver reads the rest (lane_share.c). */
struct shm_share {
    _Atomic uint64_t state;      /* number of the line + 1, << 3 | enum shm_share_state */
    _Atomic uint64_t offered_ns; /* on the clock of the host */
    _Atomic uint64_t offset;     /* in the fragment */
    struct iovec into; /* the kernel takes it from here: empty, there is nothing to write */
};

struct shm_ack {
    _Alignas(TTI_CACHE_LINE) _Atomic uint64_t consumed;
    struct shm_share share;
};
_Static_assert(sizeof(struct shm_ack) == TTI_CACHE_LINE, "an ack is one cache line");

/* Written in every operation on mapped memory, read by the other side only after a failure. */
struct shm_hold {
    _Alignas(TTI_CACHE_LINE) _Atomic uint64_t held; /* this side uses the other's memory now */
};

/* What a side takes to read a piece that came one way or another, in ps a byte, 16 bits for each
 * way; 0: not known. */
struct shm_took {
    _Atomic uint64_t size[4]; /* SHM_SIZES of them */
};

struct shm_header {
    struct shm_side side[2];
    struct shm_ack ack[2 * TUTTI_MAX_LANES]; /* [side * TUTTI_MAX_LANES + lane] */
    struct shm_hold hold[2];
    struct shm_took took[2 * TUTTI_MAX_LANES]; /* as ack */
};
_Static_assert(16 * SHM_WAYS <= 64 && SHM_SIZES <= 4, "shm_took has room");
_Static_assert(sizeof(struct shm_header) <= SHM_PAGE, "the header fits its page");

/* Where line `number` lies. Not beside the one before it: a prefetcher that follows the reader
 * would take the next line away from the writer, who fetches it ahead of time. */
static inline size_t shm_line_at(uint64_t number)
{
    return (size_t)(number * 37 % SHM_LINES);
}

static inline uint64_t shm_flag(uint64_t number, enum shm_kind kind, size_t inline_bytes)
{
    return ((number + 1) << 16) | ((uint64_t)kind << 8) | inline_bytes;
}

/* Is this the flag of line `number`? */
static inline bool shm_flag_is(uint64_t flag, uint64_t number)
{
    return flag >> 16 == ((number + 1) & 0xffffffffffffu);
}

static inline size_t shm_lines_offset(int lanes, int side, int lane)
{
    return SHM_PAGE +
           ((size_t)side * (size_t)lanes + (size_t)lane) * SHM_LINES * sizeof(struct shm_line);
}

static inline size_t shm_tails_offset(int lanes, int side, int lane)
{
    return shm_lines_offset(lanes, 2, 0) +
           ((size_t)side * (size_t)lanes + (size_t)lane) * SHM_TAILS * SHM_TAIL_BYTES;
}

static inline size_t shm_pieces_offset(int lanes, size_t piece_ring, int side, int lane)
{
    return shm_tails_offset(lanes, 2, 0) +
           ((size_t)side * (size_t)lanes + (size_t)lane) * piece_ring;
}

static inline size_t shm_segment_bytes(int lanes, size_t piece_ring)
{
    return shm_pieces_offset(lanes, piece_ring, 2, 0) + SHM_PAGE; /* and room for a shift */
}

/* A copy of at most SHM_INLINE bytes, which the compiler makes a few moves. */
static inline void shm_copy_small(unsigned char *to, const unsigned char *from, size_t bytes)
{
    if (bytes >= 16) {
        memcpy(to, from, 16);
        if (bytes > 32)
            memcpy(to + 16, from + 16, 16);
        memcpy(to + bytes - 16, from + bytes - 16, 16);
    } else if (bytes >= 8) {
        memcpy(to, from, 8);
        memcpy(to + bytes - 8, from + bytes - 8, 8);
    } else if (bytes >= 4) {
        memcpy(to, from, 4);
        memcpy(to + bytes - 4, from + bytes - 4, 4);
    } else {
        for (size_t i = 0; i < bytes; i++)
            to[i] = from[i];
    }
}
_Static_assert(SHM_INLINE <= 48, "shm_copy_small moves three times sixteen");

#endif
