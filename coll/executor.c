/* The CPU executor's frame: placing chunks in memory, passes, and the loop that turns the lanes
 * (coll/executor.h). Steps are in exec_step.c, sends in exec_send.c, waiting in exec_idle.c. */
#include "coll/exec_internal.h"
#include "coll/gpu/gpu_send.h"

#include "base/clock.h"
#include "base/memory.h"
#include "device/cpu_caches.h"
#include "device/memory.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* One pass covers this much of all blocks together, a rank: small enough that a chunk which was
 * just reduced is still in its core's cache when the peers fetch it, which saves a trip to memory
 * (two ranks, 64 MiB: 7 ms with passes of 1 MiB, 11 ms with 8 MiB), and it bounds scratch memory. A
 * constant of the wire protocol: all ranks must cut alike. */
static const size_t WINDOW_BYTES_A_RANK = (size_t)256 << 10;
static const size_t WINDOW_LEAST_RANKS = 4;
static const size_t WINDOW_LEAST = (size_t)64 << 10;

/* ---- placing ---- */

/* Of each block. */
static size_t window_begin(const struct tti_executor *x, size_t pass)
{
    return (x->from_end ? x->passes - 1 - pass : pass) * x->window;
}

size_t tti_exec_window(const struct tti_executor *x, size_t pass)
{
    size_t begin = window_begin(x, pass);
    return x->count - begin < x->window ? x->count - begin : x->window;
}

static size_t window_position(const struct tti_executor *x, size_t window, uint32_t chunk)
{
    uint32_t chunks = x->plan->chunks;
    return (size_t)(chunk / chunks) * window +
           tti_chunk_begin(window, x->type_size, chunks, chunk % chunks);
}

/* The same for blocks with a count each: what lies in the pass of block `block`, and the range of a
 * step, whose blocks follow each other. */
static size_t uneven_window(const struct tti_executor *x, uint32_t block, size_t pass)
{
    const size_t count = x->blocks->counts[block], begin = window_begin(x, pass);
    const size_t left = count > begin ? count - begin : 0;
    return left < x->window ? left : x->window;
}

static uint32_t uneven_next(const struct tti_executor *x, uint32_t block)
{
    return block + 1 == (uint32_t)x->blocks->n ? 0 : block + 1;
}

static struct tti_range uneven_range(const struct tti_executor *x, const struct tti_step *step,
                                     size_t pass)
{
    const uint32_t chunks = x->plan->chunks;
    uint32_t block = (uint32_t)step->block, end = step->chunk + step->nchunks;
    size_t window = uneven_window(x, block, pass), before = 0;
    const size_t first = tti_chunk_begin(window, x->type_size, chunks, step->chunk);
    for (; end > chunks; end -= chunks) {
        before += window;
        block = uneven_next(x, block);
        window = uneven_window(x, block, pass);
    }
    return (struct tti_range){first,
                              before + tti_chunk_begin(window, x->type_size, chunks, end) - first,
                              (uint32_t)step->block};
}

/* In IN and OUT of one block lies the own one. */
static char *uneven_place(const struct tti_executor *x, struct tti_ref ref, struct tti_range range,
                          size_t pass, size_t e, size_t *contiguous)
{
    const bool gathers = x->plan->spec.collective == TUTTI_ALL_GATHER;
    uint32_t block = range.block, scratch = ref.index / x->plan->chunks;
    size_t position = range.first + e, window = uneven_window(x, block, pass);
    size_t at = window_begin(x, pass);
    for (; *contiguous > 0 && position >= window; scratch++) {
        position -= window;
        block = uneven_next(x, block);
        window = uneven_window(x, block, pass);
    }
    if (window - position < *contiguous)
        *contiguous = window - position;
    if (ref.buffer == TTI_SCRATCH)
        at = scratch * x->window;
    else if ((ref.buffer == TTI_OUT) == gathers)
        at += x->blocks->displs[block];
    return x->buffers.base[ref.buffer] + (at + position) * x->buffers.size[ref.buffer];
}

struct tti_range tti_exec_range(const struct tti_executor *x, const struct tti_step *step,
                                size_t pass)
{
    if (x->messages) {
        struct tti_ref ref =
            step->kind == TTI_SEND || step->kind == TTI_COPY ? step->src : step->dst;
        return (struct tti_range){0, x->messages[ref.index].bytes, 0};
    }
    if (x->blocks)
        return uneven_range(x, step, pass);
    size_t window = tti_exec_window(x, pass);
    size_t first = window_position(x, window, step->chunk);
    return (struct tti_range){first,
                              window_position(x, window, step->chunk + step->nchunks) - first, 0};
}

char *tti_exec_place(const struct tti_executor *x, struct tti_ref ref, struct tti_range range,
                     size_t pass, size_t e, size_t *contiguous)
{
    size_t size = x->buffers.size[ref.buffer];
    *contiguous = range.total - e;
    if (x->messages)
        return x->messages[ref.index].data + e;
    if (ref.buffer == TTI_SLOT)
        return x->buffers.base[TTI_SLOT] + (ref.index * x->slot_elements + e) * size;
    if (x->blocks)
        return uneven_place(x, ref, range, pass, e, contiguous);
    size_t window = tti_exec_window(x, pass);
    size_t block = ref.index / x->plan->chunks, position = range.first + e;
    size_t stride = x->count, begin = window_begin(x, pass);
    if (ref.buffer == TTI_SCRATCH) {
        stride = window;
        begin = 0;
    }
    if (stride != window || x->device.base) {
        /* The range wraps into the next block's window. */
        block += position / window;
        position %= window;
        if (window - position < *contiguous)
            *contiguous = window - position;
    }
    if (x->device.base && ref.buffer == TTI_IN)
        return x->device.base + (block * x->device.stride + begin + position) * size;
    if (x->device.base && ref.buffer == TTI_OUT && block == x->device.out_block)
        return x->device.base + (x->device.in_block * x->device.stride + begin + position) * size;
    return x->buffers.base[ref.buffer] + (block * stride + begin + position) * size;
}

static struct tti_exec_device exec_device(const struct tti_executor *x,
                                          const struct tti_operation *o)
{
    struct tti_exec_device d = {.base = NULL};
    uint32_t in_blocks = 0, out_blocks = 0;
    if (!o->device)
        return d;
    tti_shape(o->collective, x->comm->size, x->comm->rank, o->root, &in_blocks, &out_blocks);
    d.base = (char *)(uintptr_t)o->device;
    d.bytes = (in_blocks - 1) * o->device_stride + o->count * x->type_size;
    d.stride = o->device_stride / x->type_size;
    if (!tti_gpu_send_own(o->collective, x->comm->size, x->comm->rank, o->root, &d.in_block,
                          &d.out_block))
        d.out_block = UINT32_MAX;
    return d;
}

/* ---- setting up ---- */

enum tutti_result tti_executor_create(struct tutti_comm *comm, struct tti_executor **executor)
{
    struct tti_executor *x = tti_calloc(1, sizeof *x);
    if (!x)
        return TUTTI_ERR_MEMORY;
    x->comm = comm;
    x->fast_peer = -1;
    *executor = x;
    return TUTTI_OK;
}

static void scratch_free(struct tti_executor *x)
{
    if (x->scratch)
        (void)tti_region_free(x->scratch);
    x->scratch = NULL;
    x->scratch_bytes = 0;
}

void tti_executor_destroy(struct tti_executor *x)
{
    if (!x)
        return;
    scratch_free(x);
    tti_exec_records_free(x);
    free(x->lanes);
    free(x->exchange);
    free(x);
}

static enum tutti_result exec_scratch(struct tti_executor *x, size_t bytes)
{
    void *memory = NULL;
    if (bytes <= x->scratch_bytes)
        return TUTTI_OK;
    scratch_free(x);
    TTI_TRY(tti_region_alloc(bytes, &memory));
    x->scratch = memory;
    x->scratch_bytes = bytes;
    return TUTTI_OK;
}

static enum tutti_result exec_lanes(struct tti_executor *x, size_t count)
{
    void *lanes = x->lanes;
    TTI_TRY(tti_grow(&lanes, &x->lane_capacity, count, sizeof *x->lanes));
    x->lanes = lanes;
    x->lane_count = count;
    memset(x->lanes, 0, count * sizeof *x->lanes);
    return TUTTI_OK;
}

/* Bytes of all buffers of an operation, on this host. */
static size_t exec_touched(const struct tti_executor *x, const struct tti_operation *o)
{
    uint32_t in_blocks = 0, out_blocks = 0;
    tti_shape(o->collective, x->comm->size, o->root, o->root, &in_blocks, &out_blocks);
    return (size_t)(in_blocks + out_blocks) * tti_block_mean(o) * tutti_type_size(o->type) *
           (size_t)x->comm->peers.local_size;
}

/* For how many of these the caches must have room, or copies go around them. Half of them, measured
 * in clusters: between two ranks where both send and receive all the time, and in a gather, whose
 * root alone copies what it gets (of broadcasts, reduce-scatters and scatters it is not so); and
 * where ranks take turns on cores. */
static size_t exec_cached(const struct tti_executor *x, const struct tti_operation *o,
                          size_t touched)
{
    const struct tutti_comm *comm = x->comm;
    const bool both = o->collective == TUTTI_ALL_REDUCE || o->collective == TUTTI_ALL_GATHER ||
                      o->collective == TUTTI_ALL_TO_ALL || o->collective == TUTTI_GATHER;
    const bool pair = both && comm->size == 2 && comm->peers.local_size == 2;
    return (pair || comm->crowds) && !tti_cpu_meshed() ? touched / 2 : touched;
}

/* Do calls that come again go over their windows by turns from the end? Not where ranks take turns
 * on cores: there the caches are left with what the others did last. */
static bool exec_turns(const struct tutti_comm *comm)
{
    return !comm->crowds;
}

/* Elements of a block that one pass covers: a function of what all ranks know alike. What one or
 * two windows hold goes in twice as many, so that there is something to turn round: not a
 * broadcast, where two ranks share what they copy of each. */
static size_t exec_window_elements(const struct tti_operation *o, const struct tutti_comm *comm)
{
    uint32_t in_blocks = 0, out_blocks = 0;
    tti_shape(o->collective, comm->size, o->root, o->root, &in_blocks, &out_blocks);
    const size_t blocks = in_blocks > out_blocks ? in_blocks : out_blocks;
    const size_t n = (size_t)comm->size, ranks = n > WINDOW_LEAST_RANKS ? n : WINDOW_LEAST_RANKS;
    const size_t size = tutti_type_size(o->type);
    size_t bytes = WINDOW_BYTES_A_RANK * ranks / blocks;
    if (tti_block_mean(o) * size <= 2 * bytes && comm->peers.nhosts == 1 && exec_turns(comm) &&
        o->collective != TUTTI_BROADCAST)
        bytes /= 2;
    bytes = bytes > WINDOW_LEAST ? bytes / 64 * 64 : WINDOW_LEAST;
    return bytes / size;
}

enum tutti_result tti_exec_bind(struct tti_executor *x, const struct tti_operation *o,
                                const struct tti_plan *plan)
{
    enum tutti_type acc = plan->reduces ? tti_acc_type(o->type) : o->type;
    size_t type_size = tutti_type_size(o->type), acc_size = tutti_type_size(acc);
    size_t most = exec_window_elements(o, x->comm);
    bool premul = (unsigned)o->op >= TUTTI_OP_USER;
    x->plan = plan;
    x->messages = NULL;
    x->op = premul || o->op == TUTTI_AVG ? TUTTI_SUM : o->op;
    x->finish = (struct tti_finish){o->op == TUTTI_AVG, x->comm->size};
    x->count = tti_block_most(o);
    x->blocks = o->blocks;
    x->window = x->count < most ? x->count : most;
    x->passes = (x->count + x->window - 1) / x->window;
    x->from_end = false;
    x->type_size = type_size;
    x->slot_elements = tti_chunk_largest(x->window, type_size, plan->chunks);
    size_t scratch_elements = plan->scratch_blocks * x->window;
    TTI_TRY(exec_scratch(x, (scratch_elements + plan->slots * x->slot_elements) * acc_size));
    /* IN is only read; the cast drops const for the table's sake. */
    x->buffers = (struct tti_exec_buffers){
        .base = {(char *)(uintptr_t)o->in, o->out, x->scratch,
                 x->scratch ? x->scratch + scratch_elements * acc_size : NULL},
        .size = {o->wide ? acc_size : type_size, type_size, acc_size, acc_size},
        .type = {o->wide ? acc : o->type, o->type, acc, acc},
    };
    x->device = exec_device(x, o);
    return TUTTI_OK;
}

/* ---- the loop ---- */

static bool exec_over(struct tti_executor *x)
{
    for (size_t i = 0; i < x->lane_count; i++)
        if (!tti_exec_lane_over(x, &x->lanes[i]))
            return false;
    for (size_t i = 0; i < x->lane_count; i++)
        if (!tti_exec_sends_done(x, &x->lanes[i], UINT64_MAX))
            return false;
    return true;
}

/* A message waits until its peer is connected, and holds up no other: that peer may have calls to
 * end before, for which it waits for another rank, and that one for what this one has for it. */
static enum tutti_result exec_connect(struct tti_executor *x)
{
    int waiting = 0;
    TTI_TRY(tti_links_advance(x->comm, x->connecting, x->connecting_count, &waiting));
    if (waiting == 0)
        x->connecting = NULL;
    return TUTTI_OK;
}

static bool exec_may_turn(const struct tti_executor *x, const struct tti_exec_lane *lane)
{
    return !x->connecting || tti_exec_lane_over(x, lane) ||
           x->comm->links.all[tti_exec_message_peer(lane)].connected;
}

static enum tutti_result exec_loop(struct tti_executor *x, uint64_t deadline)
{
    unsigned idle = 0;
    for (;;) {
        bool moved = false;
        for (size_t i = 0; i < x->lane_count; i++)
            if (exec_may_turn(x, &x->lanes[i]))
                TTI_TRY(tti_exec_lane_turn(x, &x->lanes[i], &moved));
        if (x->active)
            TTI_TRY(tti_exec_pump(x, &moved));
        if (exec_over(x))
            return TUTTI_OK;
        if (moved) {
            idle = 0;
            continue;
        }
        if (x->connecting)
            TTI_TRY(exec_connect(x));
        TTI_TRY(tti_exec_idle(x, idle++, deadline));
    }
}

/* What a call has alike each time it is made: the tag without the number of the operation. */
static uint64_t exec_call(uint64_t tag)
{
    return tag & ~tti_tag_numbered(0, UINT64_MAX);
}

/* One of four places, where what is known of a call is kept. */
static size_t exec_slot(uint64_t call)
{
    return call * UINT64_C(0x9e3779b97f4a7c15) >> 62;
}
_Static_assert(TTI_EXEC_TURNS == 4 && TTI_EXEC_COPIES == 4, "exec_slot gives two bits");

/* A call that comes again goes through its windows from the end every second time: it begins with
 * what the caches have kept of the last time. All ranks must go the same way, so what counts is
 * what all know alike, the tag without the number of the operation: not whether buffers are the
 * same. */
static void exec_turn(struct tti_executor *x, uint64_t tag)
{
    const uint64_t call = exec_call(tag);
    struct tti_exec_turn *turn = &x->turns[exec_slot(call)];
    turn->from_end = turn->call == call && !turn->from_end;
    turn->call = call;
    x->from_end = turn->from_end;
}

/* Strings can turn out badly later. */
static const struct tti_copy_choice exec_ways = {.ways = TTI_COPY_WAYS, .margin = 0.97F};

/* How copies of what is received go this time, where the thread was told that several lanes bring
 * it: each rank finds out for itself. NULL: there is nothing to choose. */
static struct tti_copy_trial *exec_copies(struct tti_executor *x, uint64_t tag)
{
    if (!tti_copy_fetches())
        return NULL;
    const uint64_t call = exec_call(tag);
    struct tti_exec_copies *copies = &x->copies[exec_slot(call)];
    if (copies->call != call)
        *copies = (struct tti_exec_copies){.call = call};
    tti_copy_choose(copies->trial.way == TTI_COPY_STRINGS, tti_copy_trial_times(&copies->trial));
    return &copies->trial;
}

enum tutti_result tti_executor_run(struct tti_executor *x, const struct tti_operation *op,
                                   const struct tti_plan_entry *entry, uint64_t tag,
                                   uint64_t deadline, const struct tti_label *label)
{
    const struct tti_plan *plan = entry->plan;
    if (plan->nlanes > x->comm->links.lanes)
        return TTI_FAIL(TUTTI_ERR_INTERNAL, "a plan of %d lanes on links of %d", plan->nlanes,
                        x->comm->links.lanes);
    TTI_TRY(tti_exec_bind(x, op, plan));
    TTI_TRY(exec_lanes(x, (size_t)plan->nlanes));
    x->tag = tag;
    if (x->passes > 1 && exec_turns(x->comm))
        exec_turn(x, tag);
    x->label = label;
    const size_t touched = exec_touched(x, op);
    tti_copy_expect_lanes(touched, exec_cached(x, op, touched), plan->nlanes);
    struct tti_copy_trial *trial = exec_copies(x, tag);
    x->lend_from =
        tti_copy_spills() || tti_exec_crowded(x->comm) ? SIZE_MAX : tti_lend_from(op->collective);
    for (int lane = 0; lane < plan->nlanes; lane++) {
        x->lanes[lane].steps = plan->lanes[lane].steps;
        x->lanes[lane].count = plan->lanes[lane].count;
        x->lanes[lane].traits = entry->traits[lane];
        x->lanes[lane].wire_lane = lane;
        if (plan->lanes[lane].count == 0)
            x->lanes[lane].pass = x->passes;
    }
    enum tutti_result result = exec_loop(x, deadline);
    if (trial)
        tti_copy_trial_next(trial, &exec_ways, tti_copy_took());
    tti_exec_sends_drop(x);
    return result;
}

/* ---- sends and receives ---- */

struct exchange {
    struct tti_exec_message *messages;
    struct tti_step *steps;
    size_t *lane_of; /* per operation */
    int *peers;      /* the same */
    size_t lanes;
};

/* Operations with the same peer and direction share a lane, in the order of the list. Messages to
 * the own rank: the k-th send meets the k-th receive, as a copy on the lane of all copies. */
static size_t exchange_lane(const struct tti_operation *ops, size_t i, const size_t *lane_of,
                            size_t *lanes)
{
    for (size_t j = 0; j < i; j++)
        if (ops[j].root == ops[i].root && ops[j].receives == ops[i].receives)
            return lane_of[j];
    return (*lanes)++;
}

enum tutti_result tti_exchange_self(const struct tutti_comm *comm, const struct tti_operation *ops,
                                    size_t count, tti_exchange_move *move, void *context)
{
    size_t r = 0;
    for (size_t s = 0; s < count; s++) {
        if (ops[s].receives || ops[s].root != comm->rank)
            continue;
        while (r < count && !(ops[r].receives && ops[r].root == comm->rank))
            r++;
        if (r == count || ops[r].count != ops[s].count || ops[r].type != ops[s].type)
            return TTI_FAIL(
                TUTTI_ERR_USAGE,
                "send of %zu %s from rank %d to itself has no receive of the same count "
                "and type in its group",
                ops[s].count, tutti_type_name(ops[s].type), comm->rank);
        if (move)
            TTI_TRY(
                move(context, ops[r].out, ops[s].in, ops[s].count * tutti_type_size(ops[s].type)));
        r++;
    }
    for (; r < count; r++)
        if (ops[r].receives && ops[r].root == comm->rank)
            return TTI_FAIL(TUTTI_ERR_USAGE,
                            "receive of rank %d from itself has no send in its group", comm->rank);
    return TUTTI_OK;
}

enum tutti_result tti_exchange_copy(void *unused, void *to, const void *from, size_t bytes)
{
    (void)unused;
    memmove(to, from, bytes);
    return TUTTI_OK;
}

static void exchange_fill(struct tti_executor *x, const struct tti_operation *ops, size_t count,
                          struct exchange *e)
{
    size_t next = 0;
    for (size_t lane = 0; lane < e->lanes; lane++) {
        struct tti_exec_lane *to = &x->lanes[lane];
        to->steps = e->steps + next;
        for (size_t i = 0; i < count; i++) {
            if (e->lane_of[i] != lane || ops[i].root == x->comm->rank)
                continue;
            struct tti_ref ref = {ops[i].receives ? TTI_OUT : TTI_IN, (uint32_t)i & 0x3fffffffu};
            e->steps[next++] = (struct tti_step){
                .kind = ops[i].receives ? TTI_RECV : TTI_SEND,
                .from = ops[i].receives ? ops[i].root : -1,
                .to = ops[i].receives ? -1 : ops[i].root,
                .nchunks = 1,
                .src = ref,
                .dst = ref,
                .hazard = -1,
            };
            to->count++;
        }
        if (to->count == 0)
            to->pass = 1;
    }
}

static enum tutti_result exchange_run(struct tti_executor *x, const struct tti_operation *ops,
                                      size_t count, struct exchange *e, uint64_t deadline)
{
    for (size_t i = 0; i < count; i++) {
        struct tti_link *link = &x->comm->links.all[ops[i].root];
        e->peers[i] = ops[i].root;
        e->lane_of[i] = exchange_lane(ops, i, e->lane_of, &e->lanes);
        e->messages[i] = (struct tti_exec_message){
            .data = ops[i].receives ? ops[i].out
                                    : (char *)(uintptr_t)(ops[i].device ? ops[i].device
                                                                        : (const char *)ops[i].in),
            .device = ops[i].device != NULL,
            .bytes = ops[i].count * tutti_type_size(ops[i].type),
            .tag = tti_tag_numbered(tti_tag(&ops[i], 0), ops[i].receives ? ++link->tagged_receives
                                                                         : ++link->tagged_sends),
        };
    }
    TTI_TRY(tti_exchange_self(x->comm, ops, count, tti_exchange_copy, NULL));
    TTI_TRY(exec_lanes(x, e->lanes));
    exchange_fill(x, ops, count, e);
    x->plan = NULL;
    x->messages = e->messages;
    x->lend_from = SIZE_MAX; /* a send of moderate size may return before it is received */
    x->passes = 1;
    x->from_end = false;
    x->finish = (struct tti_finish){false, 1};
    for (int b = 0; b < 4; b++) {
        x->buffers.base[b] = NULL;
        x->buffers.size[b] = 1;
        x->buffers.type[b] = TUTTI_UINT8;
    }
    x->connecting = e->peers;
    x->connecting_count = (int)count;
    enum tutti_result result = exec_connect(x);
    if (result == TUTTI_OK)
        result = exec_loop(x, deadline);
    tti_exec_sends_drop(x);
    x->messages = NULL;
    x->connecting = NULL;
    return result;
}

enum tutti_result tti_executor_exchange(struct tti_executor *x, const struct tti_operation *ops,
                                        size_t count, uint64_t deadline,
                                        const struct tti_label *label)
{
    struct exchange e = {0};
    size_t bytes = 0;
    x->label = label;
    for (size_t i = 0; i < count; i++)
        bytes += ops[i].count * tutti_type_size(ops[i].type);
    tti_copy_expect(bytes);
    const size_t each = sizeof *e.messages + sizeof *e.steps + sizeof *e.lane_of + sizeof *e.peers;
    if (count > INT_MAX || count > SIZE_MAX / each)
        return TTI_FAIL(TUTTI_ERR_MEMORY, "%zu sends and receives in a group", count);
    TTI_TRY(tti_grow(&x->exchange, &x->exchange_bytes, count * each, 1));
    e.messages = x->exchange;
    e.lane_of = (size_t *)(void *)(e.messages + count);
    e.steps = (struct tti_step *)(void *)(e.lane_of + count);
    e.peers = (int *)(void *)(e.steps + count);
    return exchange_run(x, ops, count, &e, deadline);
}
