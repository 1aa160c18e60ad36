/* What a caller asked for: one operation, checked, and its name in messages and on the wire. */
#ifndef TTI_COLL_OPERATION_H
#define TTI_COLL_OPERATION_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tutti_window;

/* Blocks of different sizes, one a rank (tutti/uneven.h): block k has counts[k] elements, the first
 * of them number displs[k] of its buffer. In one allocation, which the operation's copies do not
 * share (tti_blocks_copy). */
struct tti_blocks {
    int n;
    size_t most, total; /* elements: of the largest, of all */
    const void **at;    /* NULL, or where each begins, wherever that is: `displs` says nothing */
    size_t *displs;
    size_t counts[];
};

/* What one rank does alone (window.h): its collective is SEND_RECV, too. */
enum tti_alone { TTI_NOT_ALONE, TTI_PUT, TTI_SIGNAL, TTI_WAIT_SIGNAL };

struct tti_operation {
    enum tutti_collective collective; /* SEND_RECV: one message, see `receives`, `alone` */
    /* It is one of those that make an uneven form of this (uneven.c), or broadcasts of several
     * roots (roots.h); or it is what reduces of several roots make. 0: neither. */
    enum tutti_collective part_of;
    const void *in;
    void *out;
    size_t count;
    enum tutti_type type;
    enum tutti_op op;
    int root; /* or the peer of a send or receive */
    bool receives;
    bool staged; /* of device memory (gpu/gpu_stage.c), whose plan gpu/gpu_send.h wants to know; a
                  * message of device memory is met by no other */
    /* Of operations in levels (gpu/gpu_levels.c): between hosts, with the ranks that have the same
     * number on theirs (column.h); and sums of 16- and 8-bit floats that are not complete are in
     * float32: IN of a column's operation, OUT of one inside a host. */
    bool column, wide;
    /* NULL, or where IN lies in device memory, which only the network reads; `in` is NULL then. */
    const char *device;
    size_t device_stride; /* bytes from block to block there; of a collective of devices alone, of
                           * the longer buffer, and 0: they follow each other */
    /* NULL, or the uneven form of an all-gather or reduce-scatter, whose `count` is that of all
     * blocks together. Whoever keeps an operation copies them. */
    const struct tti_blocks *blocks;
    size_t whole; /* the count of the call that this is a part of, for people; 0: it is one */
    enum tti_alone alone;
    int signal;                  /* TUTTI_NO_SIGNAL: none */
    struct tutti_window *window; /* a put's; and bytes from its beginning */
    uint64_t offset;
    uint64_t signals; /* a wait's: how many of them */
    uint64_t factor;  /* of a pre-multiplied sum, in its type: the operator may be gone by then */
};

/* An operation that is none of the special kinds. Every field is named: what an initialiser leaves
 * out has the whole cleared first, and so large a one by a string instruction, which takes longer
 * to begin (30 cycles) than all that follows. */
static inline struct tti_operation tti_operation_of(enum tutti_collective collective,
                                                    const void *in, void *out, size_t count,
                                                    enum tutti_type type, enum tutti_op op,
                                                    int root)
{
    return (struct tti_operation){.collective = collective,
                                  .in = in,
                                  .out = out,
                                  .count = count,
                                  .type = type,
                                  .op = op,
                                  .root = root,
                                  .receives = false,
                                  .staged = false,
                                  .column = false,
                                  .wide = false,
                                  .device = NULL,
                                  .device_stride = 0,
                                  .part_of = (enum tutti_collective)0,
                                  .blocks = NULL,
                                  .whole = 0,
                                  .alone = TTI_NOT_ALONE,
                                  .signal = 0,
                                  .window = NULL,
                                  .offset = 0,
                                  .signals = 0,
                                  .factor = 0};
}

/* Are the arguments legal for this rank? Null and overlapping buffers, ranges, types, operators. */
enum tutti_result tti_operation_check(const struct tti_operation *operation,
                                      struct tutti_comm *comm);

/* The same for a checked operation, with the factor of its operator. */
void tti_operation_keep_factor(struct tti_operation *operation, const struct tutti_comm *comm);

/* "all_reduce", "send", "put", "all_to_all_v", ...: what its caller called. */
const char *tti_operation_name(const struct tti_operation *operation);

/* "all_gather_v", ... for a collective that has an uneven form; "broadcasts" and "reduces" for
 * those of several roots (roots.h). */
const char *tti_uneven_name(enum tutti_collective collective);

/* Elements of a block: on average, rounded up, for who chooses by size; and of the longest. */
static inline size_t tti_block_mean(const struct tti_operation *o)
{
    return o->blocks ? (o->count + (size_t)o->blocks->n - 1) / (size_t)o->blocks->n : o->count;
}
static inline size_t tti_block_most(const struct tti_operation *o)
{
    return o->blocks ? o->blocks->most : o->count;
}

/* Elements from the beginning of their buffer to the end of the last one. */
size_t tti_blocks_extent(const struct tti_blocks *blocks);
/* A checksum of the counts, of 30 bits: ranks whose counts differ have another one. */
uint32_t tti_blocks_sum(const struct tti_blocks *blocks);
/* As many elements in the same places? Of NULL and NULL, too. */
bool tti_blocks_same(const struct tti_blocks *a, const struct tti_blocks *b);
/* Zeros; `anywhere`: with room for `at`. NULL: no memory. Freed with free(). */
struct tti_blocks *tti_blocks_make(int n, bool anywhere);
/* Block `k`, which had no elements so far. */
void tti_blocks_put(struct tti_blocks *blocks, int k, size_t displ, size_t count);
/* Where block `k` begins, if it has any elements: in the input of a reduce-scatter, the output of
 * an all-gather. */
const void *tti_blocks_at(const struct tti_operation *operation, int k);
/* NULL of NULL. `*copy` is freed with free(). */
enum tutti_result tti_blocks_copy(const struct tti_blocks *blocks, const struct tti_blocks **copy);

/* An operation under way, to be named if something goes wrong. */
struct tti_label {
    const struct tti_operation *operation; /* of a batch: the first */
    uint64_t sequence;
    size_t count; /* operations of the batch */
};
/* "all_reduce #41 (count 10, float32, sum)". Returns `text`. */
const char *tti_label_text(const struct tti_label *label, char *text, size_t bytes);
enum { TTI_LABEL_BYTES = 160 };

/* From which size on a plan's messages should be lent, where transports can let a peer read them;
 * SIZE_MAX: none. Not those that the peer reduces, which it reads piece by piece. Nor where the
 * peer would copy alone what two can share: where all send to one. (A root that has nothing else to
 * do copies a part itself.) Whatever this says, nothing is lent that is far more than caches hold
 * (tti_copy_spills), and nothing where the own core is wanted by somebody (tti_exec_crowded): the
 * peer's turn may be far. */
size_t tti_lend_from(enum tutti_collective collective);

/* Message tags: everything that ranks must agree on, in 64 bits, so that a receiver can say what
 * the sender is doing instead. Collective 4 bits, type 4, operator 3, fused 1, algorithm 4, low 12
 * bits of the root, low 6 of the number, low 30 of count. Sends and receives: collective SEND_RECV,
 * type, count, whether of device memory, and what they are part of. On uneven blocks: 1 for a root,
 * which there is not, and a checksum of the counts. What the tag has no room for, the ranks'
 * recorders know (diagnose.h). */
uint64_t tti_tag(const struct tti_operation *operation, int algorithm);
/* The tag with the number of the operation: of two equal calls only the one with the same number is
 * the other's partner. Tags that serve as keys have none. */
enum { TTI_TAG_NUMBER_BITS = 6, TTI_TAG_NUMBER_AT = 30 };
static inline uint64_t tti_tag_numbered(uint64_t tag, uint64_t number)
{
    return tag | (number & ((1u << TTI_TAG_NUMBER_BITS) - 1)) << TTI_TAG_NUMBER_AT;
}
/* The same for the fused path (coll/fused.h), whose messages are others than the plan's. */
uint64_t tti_tag_fused(const struct tti_operation *operation, int algorithm);
/* And for the staged path (coll/staged.h), whose algorithm there is but one of. */
uint64_t tti_tag_staged(const struct tti_operation *operation);
/* Is the message with this tag one of device memory? */
bool tti_tag_of_device(uint64_t tag);
/* "broadcast #41 (count 10, float32, root 1, algorithm chain)"; the number is the one nearest to
 * `near` that the tag's bits allow, and left out if `near` is 0. Returns `text`. */
const char *tti_tag_text(uint64_t tag, uint64_t near, char *text, size_t bytes);

#endif
