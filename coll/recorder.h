/* The flight recorder: the last operations of a communicator on this rank, always on.
 *
 * They lie in a page of shared memory that others of the same user may map, read-only: tutti-status
 * finds it among the descriptors of a running process, hung or stopped, whose help it does not
 * need; it is gone with the process. The same ring answers when ranks are asked what they are doing
 * (diagnose.c) and is what tutti_comm_dump writes.
 *
 * There is one writer at a time: who has the turn of the queue (work.h), or for the ring of calls
 * on device memory who holds that side's lock. No lock, no system call, and no look at the clock
 * (50 ns where an operation takes 110) unless the operation is long anyway: an operation that
 * neither moves much nor waits long has no times, and lies between its neighbours'.
 *
 * Readers may come at any moment: `ticket` is 0 while a record is written. All words are atomic;
 * the release stores are plain ones on x86. Read next: logbook.h, what readers make of it. */
#ifndef TTI_COLL_RECORDER_H
#define TTI_COLL_RECORDER_H

#include "base/atomic.h"
#include "base/clock.h"
#include "base/types.h"
#include "coll/operation.h"

#include <string.h>

/* Who carries an operation out. */
enum tti_record_path {
    TTI_RECORD_NONE, /* not known yet */
    TTI_RECORD_SMALL,
    TTI_RECORD_PLAN,
    TTI_RECORD_FUSED,
    TTI_RECORD_STAGED,
    TTI_RECORD_DEVICE,
    TTI_RECORD_PATHS,
};

/* A word for what is small: fields by shift. */
enum {
    TTI_RECORD_COLLECTIVE = 0, /* 4 bits */
    TTI_RECORD_TYPE = 4,       /* 4 */
    TTI_RECORD_OP = 8,         /* 3; 7: pre-multiplied sum */
    TTI_RECORD_PATH = 11,      /* 3 */
    TTI_RECORD_ALGORITHM = 14, /* 5; 31: not known */
    TTI_RECORD_LANES = 19,     /* 5 */
    TTI_RECORD_RECEIVES = 1 << 24,
    TTI_RECORD_FAILED = 1 << 25,
    TTI_RECORD_SENDS = 1 << 26, /* what it waits for is that the peer takes something */
    TTI_RECORD_ALONE = 27,      /* 2: a put, a signal, a wait; these have no algorithm, but ... */
    TTI_RECORD_SIGNAL = 14,     /* ... 10: the signal plus 1; 0: none */
    /* On uneven blocks: its root is the checksum of their counts. Of a message: it is part of such
     * an operation, the collective whose number it has for an algorithm. */
    TTI_RECORD_UNEVEN = 1 << 29,
    /* On device memory: others were captured before, which may have run any number of times, and
     * on other ranks as plain calls. So its number says nothing to those. */
    TTI_RECORD_GRAPHS = 1 << 30,
    TTI_RECORD_PREMUL = 7,
    TTI_RECORD_NO_ALGORITHM = 31,
};

/* Values of end_ns that are no time. */
enum { TTI_RECORD_RUNS = 0, TTI_RECORD_UNTIMED = 1 };

struct tti_record {
    _Alignas(64) _Atomic uint64_t ticket; /* its index plus 1; 0: being written */
    _Atomic uint64_t sequence; /* the "#41"; sends and receives: of this pair and direction; puts
                                * and signals together, and waits, too */
    _Atomic uint64_t count;    /* of a wait: signals */
    _Atomic uint64_t bytes;    /* of a block; all operations so far, this one included */
    _Atomic uint64_t start_ns, end_ns; /* monotonic; 0: not looked at the clock */
    union {
        struct {
            _Atomic uint32_t kind;
            _Atomic int32_t root;       /* or peer */
            _Atomic int32_t waits_for;  /* the last peer that was waited for long; -1 */
            _Atomic uint32_t queued_us; /* between the call and the start, where that is long; on
                                         * device memory a hash of all calls so far, 0: not written
                                         * yet */
        };
        _Atomic uint64_t rest[2]; /* all of these, as struct tti_record_rest has them */
    };
};
_Static_assert(sizeof(struct tti_record) == 64, "a record is a cache line");

enum { TTI_RECORD_RINGS = 2, TTI_RECORD_NAME = 96, TTI_RECORD_ERROR = 1024 };
#define TTI_RECORD_MAGIC "TUTTIREC"
#define TTI_RECORD_FILE "tutti-recorder" /* the memfd's name */
enum { TTI_RECORD_VERSION = 2 };

/* What is mapped: this, then the records of ring 0 (host memory), then of ring 1 (device). */
struct tti_record_page {
    char magic[8];
    uint32_t version, bytes_of_header;
    uint64_t total_bytes;
    uint64_t job;    /* number of the communicator */
    uint64_t family; /* of the first one that it was split or shrunk from */
    int64_t pid;
    uint64_t made_ns, made_wall_ns; /* the same moment, monotonic and since 1970 */
    double timeout_s;
    int32_t rank, size, host, hosts;
    uint32_t entries[TTI_RECORD_RINGS]; /* powers of two, or 0 */
    char name[TTI_RECORD_NAME];         /* "host:pid" */
    char program[TTI_RECORD_NAME];
    _Alignas(64) _Atomic uint64_t head[TTI_RECORD_RINGS]; /* operations begun */
    _Alignas(64) _Atomic uint32_t queued;                 /* asynchronous ones that wait */
    _Atomic int32_t failed; /* enum tutti_result; `error` is complete before */
    char error[TTI_RECORD_ERROR];
    _Alignas(64) struct tti_record records[];
};

/* The writer's own side of a ring. */
struct tti_record_ring {
    struct tti_record *records; /* NULL: off */
    _Atomic uint64_t *head;
    uint64_t mask, next, bytes;
    uint64_t first; /* of the operations under way */
    bool timed;     /* they are to have an end */
    uint64_t since; /* when they were queued; 0: they were not, or nothing was before them */
};

struct tti_recorder {
    struct tti_record_page *page; /* NULL: off */
    size_t bytes;
    int fd; /* -1: no memfd could be had; nobody can attach */
    struct tti_record_ring ring[TTI_RECORD_RINGS];
};

struct tutti_comm;

/* With as many records as TUTTI_RECORDER says (1024). */
enum tutti_result tti_recorder_create(struct tutti_comm *comm, struct tti_recorder *recorder);
void tti_recorder_destroy(struct tti_recorder *recorder);
/* The communicator's failure, for those who look. */
void tti_recorder_failed(struct tti_recorder *recorder, enum tutti_result code, const char *text);

/* ---- writing -------------------------------------------------------------------------------- */

enum { TTI_RECORD_TIMED_BYTES = 512 << 10 }; /* from here the clock costs nothing to speak of */

static inline void tti_record_put(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
}

/* What a message is part of, or 0. */
static inline uint32_t tti_record_part(const struct tti_operation *o)
{
    return o->collective == TUTTI_SEND_RECV ? (uint32_t)o->part_of : 0;
}

static inline uint32_t tti_record_kind(const struct tti_operation *o)
{
    const uint32_t op =
        (unsigned)o->op >= TUTTI_OP_USER ? (uint32_t)TTI_RECORD_PREMUL : (uint32_t)o->op;
    const uint32_t how =
        o->alone != TTI_NOT_ALONE ? (uint32_t)o->alone << TTI_RECORD_ALONE |
                                        (uint32_t)(o->signal + 1) << TTI_RECORD_SIGNAL
        : tti_record_part(o) ? tti_record_part(o) << TTI_RECORD_ALGORITHM
                             : (uint32_t)TTI_RECORD_NO_ALGORITHM << TTI_RECORD_ALGORITHM;
    const uint32_t flags = (o->receives ? (uint32_t)TTI_RECORD_RECEIVES : 0) |
                           (o->blocks || tti_record_part(o) ? (uint32_t)TTI_RECORD_UNEVEN : 0);
    /* Of reduces of several roots (roots.h): that they are. */
    const enum tutti_collective collective = o->blocks && o->part_of ? o->part_of : o->collective;
    return (uint32_t)collective << TTI_RECORD_COLLECTIVE | (uint32_t)o->type << TTI_RECORD_TYPE |
           op << TTI_RECORD_OP | how | flags;
}

static inline int32_t tti_record_root(const struct tti_operation *o)
{
    return o->blocks ? (int32_t)tti_blocks_sum(o->blocks) : o->root;
}

/* What is known of a record before its call; every record of a call that comes again has it in
 * common. */
struct tti_record_rest {
    uint32_t kind;
    int32_t root, waits_for;
    uint32_t queued_us;
};
struct tti_record_known {
    uint64_t count, bytes;
    struct tti_record_rest rest;
};

static inline struct tti_record_known
tti_record_of(const struct tti_operation *o, enum tti_record_path path, int algorithm, int lanes)
{
    const uint32_t how = (uint32_t)path << TTI_RECORD_PATH |
                         ((uint32_t)algorithm & 31) << TTI_RECORD_ALGORITHM |
                         ((uint32_t)lanes & 31) << TTI_RECORD_LANES;
    const uint32_t kind = tti_record_kind(o) & ~((uint32_t)31 << TTI_RECORD_ALGORITHM);
    return (struct tti_record_known){
        o->count, o->count * tti_type_bytes(o->type), {kind | how, tti_record_root(o), -1, 0}};
}

/* In few stores: between two messages of small operations the processor has room for so many. */
static inline void tti_record_write(struct tti_record_ring *ring,
                                    const struct tti_record_known *known, uint64_t sequence,
                                    uint64_t start)
{
    const uint64_t index = ring->next++;
    struct tti_record *r = &ring->records[index & ring->mask];
    uint64_t rest[2];
    memcpy(rest, &known->rest, sizeof rest);
    ring->bytes += known->bytes;
    atomic_store_explicit(&r->ticket, 0, memory_order_relaxed);
    tti_record_put(&r->sequence, sequence);
    tti_store_pair(&r->count, known->count, ring->bytes);
    tti_store_pair(&r->start_ns, start, TTI_RECORD_RUNS);
    tti_store_pair(r->rest, rest[0], rest[1]);
    tti_record_put(&r->ticket, index + 1);
    tti_record_put(ring->head, index + 1);
}

/* One operation begins, or a part of one of `count` elements. */
static inline void tti_record_begin_part(struct tti_record_ring *ring,
                                         const struct tti_operation *o, uint64_t count,
                                         uint64_t sequence)
{
    if (!ring->records)
        return;
    struct tti_record_known known = {
        count, o->count * tti_type_bytes(o->type), {tti_record_kind(o), tti_record_root(o), -1, 0}};
    uint64_t start = 0;
    if (__builtin_expect(known.bytes >= TTI_RECORD_TIMED_BYTES || ring->since, 0)) {
        start = tti_now_ns();
        const uint64_t queued = ring->since ? (start - ring->since) / 1000 : 0;
        ring->timed = true;
        known.rest.queued_us = queued > UINT32_MAX ? UINT32_MAX : (uint32_t)queued;
    }
    tti_record_write(ring, &known, sequence, start);
}

/* One operation begins. Several may be under way at once (a group of sends and receives). */
static inline void tti_record_begin(struct tti_record_ring *ring, const struct tti_operation *o,
                                    uint64_t sequence)
{
    tti_record_begin_part(ring, o, o->alone == TTI_WAIT_SIGNAL ? o->signals : o->count, sequence);
}

/* tti_record_begin and tti_record_by of such a call, which was not queued and is not timed unless
 * it waits long. */
static inline void tti_record_again(struct tti_record_ring *ring,
                                    const struct tti_record_known *known, uint64_t sequence)
{
    if (ring->records)
        tti_record_write(ring, known, sequence, 0);
}

/* The record of the last operation that began. */
static inline struct tti_record *tti_record_last(const struct tti_record_ring *ring)
{
    return &ring->records[(ring->next - 1) & ring->mask];
}

/* How it is carried out. */
static inline void tti_record_by(struct tti_record_ring *ring, enum tti_record_path path,
                                 int algorithm, int lanes)
{
    if (!ring->records)
        return;
    struct tti_record *r = tti_record_last(ring);
    uint32_t kind = atomic_load_explicit(&r->kind, memory_order_relaxed);
    kind &= ~((uint32_t)7 << TTI_RECORD_PATH | (uint32_t)31 << TTI_RECORD_ALGORITHM |
              (uint32_t)31 << TTI_RECORD_LANES);
    kind |= (uint32_t)path << TTI_RECORD_PATH | ((uint32_t)algorithm & 31) << TTI_RECORD_ALGORITHM |
            ((uint32_t)lanes & 31) << TTI_RECORD_LANES;
    atomic_store_explicit(&r->kind, kind, memory_order_release);
}

static inline enum tti_record_path tti_record_last_path(const struct tti_record_ring *ring)
{
    const uint32_t kind = atomic_load_explicit(&tti_record_last(ring)->kind, memory_order_relaxed);
    return (enum tti_record_path)(kind >> TTI_RECORD_PATH & 7);
}

/* What is under way is over. */
static inline void tti_record_end(struct tti_record_ring *ring, enum tutti_result result)
{
    if (!ring->records)
        return;
    if (__builtin_expect(ring->next - ring->first == 1 && !ring->timed && result == TUTTI_OK, 1)) {
        tti_record_put(&ring->records[ring->first++ & ring->mask].end_ns, TTI_RECORD_UNTIMED);
        return;
    }
    const uint64_t end =
        __builtin_expect(ring->timed || result != TUTTI_OK, 0) ? tti_now_ns() : TTI_RECORD_UNTIMED;
    ring->timed = false;
    if (ring->next - ring->first > ring->mask)
        ring->first = ring->next - ring->mask - 1;
    for (; ring->first < ring->next; ring->first++) {
        struct tti_record *r = &ring->records[ring->first & ring->mask];
        if (__builtin_expect(result != TUTTI_OK, 0))
            atomic_fetch_or_explicit(&r->kind, TTI_RECORD_FAILED, memory_order_release);
        tti_record_put(&r->end_ns, end);
    }
}

/* It is waited for a peer, and has been for so long that the clock was looked at: `start_ns`, which
 * is when the operation began, or nearly. `peer` -1: not known. */
void tti_record_waits(struct tti_record_ring *ring, uint64_t start_ns, int peer, bool sends);

#endif
