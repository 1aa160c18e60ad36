/* A small program, between small_plan.c, which makes it, and small_run.c, which runs it. */
#ifndef TTI_COLL_SMALL_PROGRAM_H
#define TTI_COLL_SMALL_PROGRAM_H

#include "coll/links.h"
#include "coll/recorder.h"
#include "coll/small_plan.h"
#include "device/reduce.h"

/* Where an operand lies: bytes from the base of its buffer. */
struct small_place {
    size_t offset;
    uint8_t buffer; /* enum tti_buffer */
    uint8_t type;   /* enum tutti_type */
};

struct small_step {
    uint8_t kind;    /* enum tti_step_kind */
    bool straight;   /* RECV into place, nothing to convert */
    bool left;       /* RECV_REDUCE: the message is the left operand */
    bool finish;     /* averages */
    bool input;      /* COPY: what is passed on is its input, before it is copied */
    uint8_t message; /* type of what is received */
    uint16_t sends;  /* sends of earlier steps that must be consumed before this one writes */
    int from, to;    /* peers, or -1 */
    struct tti_link *link_from, *link_to;
    size_t n;          /* elements */
    size_t unit;       /* bytes of an element of what is received */
    size_t sent_bytes; /* of the message to `to` */
    struct small_place src, src2, dst;
};

/* Where the message to `to` lies. */
static inline const struct small_place *small_sent(const struct small_step *step)
{
    return step->kind == TTI_SEND || step->input ? &step->src : &step->dst;
}

/* What a call's buffers must be beside those of the call that the program was made for. */
struct small_buffers {
    size_t in_bytes, out_bytes; /* that are read and written */
    size_t in_at, out_at;       /* bytes to what must coincide in place ... */
    bool in_place;              /* ... where they may overlap at all */
};

struct tti_small_program {
    uint64_t key;
    /* NULL, or the uneven ones that it was made for; freed with it. */
    const struct tti_blocks *blocks;
    bool known; /* a call like it needs no more checks than tti_call_known makes */
    bool lends; /* large messages, where nobody else wants the core (tti_lend_from) */
    bool large; /* has messages that an earlier operation's tti_copy_expect would affect */
    struct tti_record_known record;
    uint64_t tag;  /* without the number of the operation */
    int algorithm; /* number */
    struct small_buffers buffers;
    size_t slots; /* bytes of scratch memory before the slots */
    enum tutti_op op;
    struct tti_finish finish;
    size_t count;
    struct small_step steps[];
};

/* All that tells one program of a communicator from another, wherever its buffers lie, but the
 * counts of uneven blocks, of which it has a checksum only. Arguments may be anything still: what
 * cannot be has no key. */
static inline bool tti_small_key(const struct tti_operation *o, bool refused, uint64_t *key)
{
    enum { PREMUL = 15 };
    const unsigned op = (unsigned)o->op >= TUTTI_OP_USER ? PREMUL : (unsigned)o->op;
    const uint32_t root = o->blocks ? tti_blocks_sum(o->blocks) >> 2 : (uint32_t)o->root;
    if (o->count > TTI_SMALL_BYTES || (op | (unsigned)o->type) > 15 || root >= UINT32_C(1) << 28)
        return false;
    *key = (uint64_t)root << 36 | (uint64_t)o->count << 16 | (uint64_t)(o->blocks != NULL) << 13 |
           (uint64_t)refused << 12 | (uint64_t)op << 8 | (uint64_t)o->type << 4 |
           (uint64_t)o->collective;
    return true;
}
_Static_assert(TUTTI_COLLECTIVE_COUNT < 16 && TTI_SMALL_BYTES < 1 << 20, "fields of a key");

static inline size_t tti_small_slot(uint64_t key)
{
    return (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 60);
}
_Static_assert(TTI_SMALL_PROGRAMS == 16, "tti_small_slot gives four bits");

#endif
