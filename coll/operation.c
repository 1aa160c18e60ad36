/* Checking and naming operations (coll/operation.h). */
#include "coll/operation.h"

#include "base/memory.h"
#include "coll/algorithms/algorithms.h"
#include "coll/comm.h"
#include "coll/selection.h"
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

static enum tutti_result check_op(const struct tti_operation *o, struct tutti_comm *comm)
{
    if ((unsigned)o->op < TUTTI_OP_COUNT)
        return TUTTI_OK;
    unsigned user = (unsigned)o->op - TUTTI_OP_USER;
    if ((unsigned)o->op < TUTTI_OP_USER || user >= TTI_MAX_USER_OPS ||
        atomic_load_explicit(&comm->user_ops[user].state, memory_order_acquire) !=
            TTI_USER_OP_READY)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "%s: %d is no operator of this communicator; use TUTTI_SUM, PROD, MAX, "
                        "MIN, AVG or one made by tutti_premul_sum_create",
                        tti_operation_name(o), (int)o->op);
    if (comm->user_ops[user].type != o->type)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "%s: the premulsum operator was made for %s, the data are %s",
                        tti_operation_name(o), tutti_type_name(comm->user_ops[user].type),
                        tutti_type_name(o->type));
    return TUTTI_OK;
}

/* Blocks of IN and OUT as the public call has them (a broadcast's `in` only at the root). */
static enum tutti_result check_buffers(const struct tti_operation *o, struct tutti_comm *comm)
{
    size_t bytes = 0, total = 0;
    uint32_t in_blocks = 0, out_blocks = 0, in_block = 0, out_block = 0;
    tti_shape(o->collective, comm->size, comm->rank, o->root, &in_blocks, &out_blocks);
    uint32_t most = in_blocks > out_blocks ? in_blocks : out_blocks;
    if (__builtin_mul_overflow(o->count, tutti_type_size(o->type), &bytes) ||
        __builtin_mul_overflow(bytes, most ? most : 1, &total) || total > (size_t)PTRDIFF_MAX)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s: count %zu of %s is more than memory can hold",
                        tutti_collective_name(o->collective), o->count, tutti_type_name(o->type));
    if ((in_blocks && !o->in) || (out_blocks && !o->out))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s: the %s buffer is NULL, count is %zu",
                        tutti_collective_name(o->collective), in_blocks && !o->in ? "in" : "out",
                        o->count);
    if (!tti_in_place(o->collective, comm->size, comm->rank, o->root, &in_block, &out_block))
        return TUTTI_OK;
    const char *in = o->in;
    const char *out = o->out;
    if (in + in_block * bytes == out + out_block * bytes)
        return TUTTI_OK; /* in place */
    if (in < out + out_blocks * bytes && out < in + in_blocks * bytes)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "%s: the buffers overlap, but not as in place demands (see tutti.h); in is "
                        "%p, out is %p, a block is %zu bytes",
                        tutti_collective_name(o->collective), o->in, o->out, bytes);
    return TUTTI_OK;
}

bool tti_blocks_same(const struct tti_blocks *a, const struct tti_blocks *b)
{
    if (!a || !b)
        return a == b;
    const size_t bytes = (size_t)a->n * sizeof(size_t);
    return a->n == b->n && memcmp(a->counts, b->counts, bytes) == 0 &&
           memcmp(a->displs, b->displs, bytes) == 0;
}

struct tti_blocks *tti_blocks_make(int n, bool anywhere)
{
    const size_t many = (size_t)n;
    struct tti_blocks *made = tti_calloc(1, sizeof *made + 2 * many * sizeof *made->counts +
                                                (anywhere ? many * sizeof *made->at : 0));
    if (!made)
        return NULL;
    made->n = n;
    made->displs = made->counts + many;
    made->at = anywhere ? (const void **)(void *)(made->displs + many) : NULL;
    return made;
}

void tti_blocks_put(struct tti_blocks *blocks, int k, size_t displ, size_t count)
{
    blocks->counts[k] = count;
    blocks->displs[k] = displ;
    blocks->total += count;
    blocks->most = count > blocks->most ? count : blocks->most;
}

enum tutti_result tti_blocks_copy(const struct tti_blocks *blocks, const struct tti_blocks **copy)
{
    *copy = NULL;
    if (!blocks)
        return TUTTI_OK;
    const size_t n = (size_t)blocks->n;
    struct tti_blocks *made = tti_blocks_make(blocks->n, blocks->at != NULL);
    if (!made)
        return TUTTI_ERR_MEMORY;
    made->most = blocks->most;
    made->total = blocks->total;
    memcpy(made->counts, blocks->counts, n * sizeof *made->counts);
    memcpy(made->displs, blocks->displs, n * sizeof *made->displs);
    if (blocks->at)
        memcpy(made->at, blocks->at, n * sizeof *made->at);
    *copy = made;
    return TUTTI_OK;
}

const void *tti_blocks_at(const struct tti_operation *o, int k)
{
    const struct tti_blocks *blocks = o->blocks;
    const char *all = o->collective == TUTTI_ALL_GATHER ? o->out : o->in;
    return blocks->at ? blocks->at[k] : all + blocks->displs[k] * tti_type_bytes(o->type);
}

enum tutti_result tti_operation_check(const struct tti_operation *o, struct tutti_comm *comm)
{
    if (!tutti_type_size(o->type))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s: %d is no element type (see enum tutti_type)",
                        tti_operation_name(o), (int)o->type);
    if (o->root < 0 || o->root >= comm->size)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s: %s is %d; expected a rank from 0 to %d",
                        tti_operation_name(o), o->collective == TUTTI_SEND_RECV ? "peer" : "root",
                        o->root, comm->size - 1);
    if (tti_reduces(o->collective) && o->collective != TUTTI_BARRIER)
        TTI_TRY(check_op(o, comm));
    if (o->count == 0 || o->blocks)
        return TUTTI_OK; /* the latter: uneven.c has looked */
    if (o->collective == TUTTI_SEND_RECV) {
        if (o->receives ? !o->out : !o->in)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s: the buffer is NULL, count is %zu",
                            tti_operation_name(o), o->count);
        if (o->count > (size_t)PTRDIFF_MAX / tutti_type_size(o->type))
            return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s: count %zu is more than memory can hold",
                            tti_operation_name(o), o->count);
        return TUTTI_OK;
    }
    return check_buffers(o, comm);
}

size_t tti_lend_from(enum tutti_collective collective)
{
    enum { EXCHANGED = 512 << 10 }; /* both caches hand over what was just written, slowly */
    if (tti_reduces(collective) || collective == TUTTI_GATHER)
        return SIZE_MAX;
    return collective == TUTTI_ALL_TO_ALL ? EXCHANGED : 0;
}

const char *tti_uneven_name(enum tutti_collective collective)
{
    static const char *const names[] = {
        [TUTTI_BROADCAST] = "broadcasts",    [TUTTI_REDUCE] = "reduces",
        [TUTTI_ALL_GATHER] = "all_gather_v", [TUTTI_REDUCE_SCATTER] = "reduce_scatter_v",
        [TUTTI_ALL_TO_ALL] = "all_to_all_v", [TUTTI_GATHER] = "gather_v",
        [TUTTI_SCATTER] = "scatter_v"};
    const size_t known = sizeof names / sizeof names[0];
    return (size_t)collective < known && names[collective] ? names[collective] : "unknown";
}

size_t tti_blocks_extent(const struct tti_blocks *blocks)
{
    size_t extent = 0;
    for (int k = 0; k < blocks->n; k++)
        if (blocks->counts[k] > 0 && blocks->displs[k] + blocks->counts[k] > extent)
            extent = blocks->displs[k] + blocks->counts[k];
    return extent;
}

uint32_t tti_blocks_sum(const struct tti_blocks *blocks)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (int k = 0; k < blocks->n; k++)
        sum = (sum ^ blocks->counts[k]) * UINT64_C(0x9e3779b97f4a7c15) + (sum >> 29);
    return (uint32_t)(sum >> 34);
}

const char *tti_operation_name(const struct tti_operation *o)
{
    static const char *const alone[] = {
        [TTI_PUT] = "put", [TTI_SIGNAL] = "signal", [TTI_WAIT_SIGNAL] = "wait_signal"};
    if (o->alone != TTI_NOT_ALONE)
        return alone[o->alone];
    if (o->part_of || o->blocks)
        return tti_uneven_name(o->part_of ? o->part_of : o->collective);
    if (o->collective == TUTTI_SEND_RECV)
        return o->receives ? "recv" : "send";
    return tutti_collective_name(o->collective);
}

/* "put (count 10, float32, to rank 1, offset 0)" and the like. */
static const char *label_alone(const struct tti_operation *o, char *text, size_t bytes)
{
    if (o->alone == TTI_PUT)
        snprintf(text, bytes, "put (count %zu, %s, to rank %d, offset %llu)", o->count,
                 tutti_type_name(o->type), o->root, (unsigned long long)o->offset);
    else if (o->alone == TTI_SIGNAL)
        snprintf(text, bytes, "signal (%d, to rank %d)", o->signal, o->root);
    else
        snprintf(text, bytes, "wait_signal (%d, %llu times from rank %d)", o->signal,
                 (unsigned long long)o->signals, o->root);
    return text;
}

void tti_operation_keep_factor(struct tti_operation *o, const struct tutti_comm *comm)
{
    if (tti_reduces(o->collective) && (unsigned)o->op >= TUTTI_OP_USER)
        memcpy(&o->factor, comm->user_ops[(unsigned)o->op - TUTTI_OP_USER].scalar,
               tutti_type_size(o->type));
}

const char *tti_label_text(const struct tti_label *label, char *text, size_t bytes)
{
    const struct tti_operation *o = label->operation;
    const char *name = o->collective == TUTTI_SEND_RECV ? "" : tti_operation_name(o);
    const char *level = o->column ? " between hosts" : "";
    const size_t count = o->whole ? o->whole : o->count;
    unsigned long long sequence = label->sequence;
    if (o->alone != TTI_NOT_ALONE)
        return label_alone(o, text, bytes);
    if (o->collective == TUTTI_SEND_RECV && o->part_of)
        snprintf(text, bytes, "%s: %s (count %zu, %s, %s rank %d)", tti_uneven_name(o->part_of),
                 o->receives ? "recv" : "send", o->count, tutti_type_name(o->type),
                 o->receives ? "from" : "to", o->root);
    else if (o->collective == TUTTI_SEND_RECV)
        snprintf(text, bytes, "%s%s (count %zu, %s, %s rank %d)",
                 label->count > 1 ? "group of sends and receives, first: " : "",
                 o->receives ? "recv" : "send", o->count, tutti_type_name(o->type),
                 o->receives ? "from" : "to", o->root);
    else if (o->collective == TUTTI_BARRIER)
        snprintf(text, bytes, "barrier #%llu", sequence);
    else if (tti_reduces(o->collective))
        snprintf(text, bytes, "%s #%llu%s (count %zu, %s, %s)", name, sequence, level, count,
                 tutti_type_name(o->type), tutti_op_name(o->op));
    else
        snprintf(text, bytes, "%s #%llu%s (count %zu, %s)", name, sequence, level, count,
                 tutti_type_name(o->type));
    return text;
}

/* ---- tags: collective, type, operator, algorithm, root, number, count from the top down ---- */

enum {
    TAG_COUNT_BITS = TTI_TAG_NUMBER_AT,
    TAG_ROOT_BITS = 12,
    TAG_ALGORITHM_BITS = 5, /* the number, and whether it runs fused */
    TAG_OP_BITS = 3,
    TAG_FUSED = TTI_MOST_ALGORITHMS,
    TAG_STAGED = TTI_MOST_ALGORITHMS | (TTI_MOST_ALGORITHMS - 1) /* no fused one has that number */
};
#define TAG_MASK(bits) ((UINT64_C(1) << (bits)) - 1)
enum {
    TAG_PREMUL = 7,
    TAG_DEVICE = 1, /* instead of an operator: a message of device memory */
    TAG_UNEVEN = 1  /* instead of a root */
};

uint64_t tti_tag_fused(const struct tti_operation *o, int algorithm)
{
    return tti_tag(o, algorithm | TAG_FUSED);
}

uint64_t tti_tag_staged(const struct tti_operation *o)
{
    return tti_tag(o, TAG_STAGED);
}

/* What is in the place of a root where there is none: 1 in an operation on uneven blocks, whose
 * count is a checksum of their counts. */
static uint64_t tag_root(const struct tti_operation *o)
{
    if (o->collective == TUTTI_SEND_RECV)
        return 0;
    return o->blocks ? TAG_UNEVEN : (uint64_t)o->root & TAG_MASK(TAG_ROOT_BITS);
}

uint64_t tti_tag(const struct tti_operation *o, int algorithm)
{
    bool p2p = o->collective == TUTTI_SEND_RECV;
    const uint64_t count = o->blocks ? tti_blocks_sum(o->blocks) : o->count;
    uint64_t op = (unsigned)o->op >= TUTTI_OP_USER ? TAG_PREMUL : (uint64_t)o->op;
    if (!tti_reduces(o->collective))
        op = p2p && o->staged ? TAG_DEVICE : 0;
    uint64_t tag = (uint64_t)o->collective;
    tag = tag << 4 | (uint64_t)o->type;
    tag = tag << TAG_OP_BITS | op;
    tag = tag << TAG_ALGORITHM_BITS |
          ((uint64_t)(p2p ? (int)o->part_of : algorithm) & TAG_MASK(TAG_ALGORITHM_BITS));
    tag = tag << TAG_ROOT_BITS | tag_root(o);
    return tag << (TTI_TAG_NUMBER_BITS + TAG_COUNT_BITS) | (count & TAG_MASK(TAG_COUNT_BITS));
}

bool tti_tag_of_device(uint64_t tag)
{
    const int at = TTI_TAG_NUMBER_BITS + TAG_COUNT_BITS + TAG_ROOT_BITS + TAG_ALGORITHM_BITS;
    return (tag >> at & TAG_MASK(TAG_OP_BITS)) == TAG_DEVICE;
}

/* " #41", the number nearest to `near` with these low bits; nothing for 0. */
static const char *tag_number(uint64_t bits, uint64_t near, char *text, size_t bytes)
{
    const int64_t period = (int64_t)1 << TTI_TAG_NUMBER_BITS;
    int64_t off = (int64_t)((bits - near) & TAG_MASK(TTI_TAG_NUMBER_BITS));
    if (off > period / 2 && near + (uint64_t)off > (uint64_t)period)
        off -= period;
    text[0] = '\0';
    if (near > 0)
        snprintf(text, bytes, " #%llu", (unsigned long long)(near + (uint64_t)off));
    return text;
}

const char *tti_tag_text(uint64_t tag, uint64_t near, char *text, size_t bytes)
{
    char number[32];
    unsigned long long count = tag & TAG_MASK(TAG_COUNT_BITS);
    tag >>= TAG_COUNT_BITS;
    tag_number(tag & TAG_MASK(TTI_TAG_NUMBER_BITS), near, number, sizeof number);
    tag >>= TTI_TAG_NUMBER_BITS;
    int root = (int)(tag & TAG_MASK(TAG_ROOT_BITS));
    tag >>= TAG_ROOT_BITS;
    int algorithm = (int)(tag & TAG_MASK(TAG_ALGORITHM_BITS));
    tag >>= TAG_ALGORITHM_BITS;
    int op = (int)(tag & TAG_MASK(TAG_OP_BITS));
    tag >>= TAG_OP_BITS;
    enum tutti_type type = (enum tutti_type)(tag & 15);
    enum tutti_collective collective = (enum tutti_collective)(tag >> 4);
    const char *name = tutti_collective_name(collective);
    if (collective == TUTTI_SEND_RECV) {
        snprintf(text, bytes, "send%s (count %llu, %s%s%s%s)", number, count, tutti_type_name(type),
                 op == TAG_DEVICE ? ", device memory" : "", algorithm ? ", in " : "",
                 algorithm ? tti_uneven_name((enum tutti_collective)algorithm) : "");
        return text;
    }
    const struct tti_algorithm *found = collective < TUTTI_COLLECTIVE_COUNT
                                            ? tti_algorithm_at(collective, algorithm & ~TAG_FUSED)
                                            : NULL;
    char by[64];
    if (algorithm == TAG_STAGED)
        snprintf(by, sizeof by, "staged");
    else
        snprintf(by, sizeof by, "%s%s", found ? found->name : "unknown",
                 algorithm & TAG_FUSED ? ", fused" : "");
    if (tti_has_uneven(collective) && root == TAG_UNEVEN)
        snprintf(text, bytes, "%s%s (counts with checksum %08llx, %s, %s%salgorithm %s)",
                 tti_uneven_name(collective), number, count, tutti_type_name(type),
                 !tti_reduces(collective) ? ""
                 : op == TAG_PREMUL       ? "premulsum"
                                          : tutti_op_name((enum tutti_op)op),
                 tti_reduces(collective) ? ", " : "", by);
    else if (collective == TUTTI_BARRIER)
        snprintf(text, bytes, "barrier%s (algorithm %s)", number, by);
    else if (tti_reduces(collective))
        snprintf(text, bytes, "%s%s (count %llu, %s, %s, root %d, algorithm %s)", name, number,
                 count, tutti_type_name(type),
                 op == TAG_PREMUL ? "premulsum" : tutti_op_name((enum tutti_op)op), root, by);
    else
        snprintf(text, bytes, "%s%s (count %llu, %s, root %d, algorithm %s)", name, number, count,
                 tutti_type_name(type), root, by);
    return text;
}
