/* What the kernels of cuda/ are given: shared by host code and device code, so plain C of fixed
 * layout. Each kernel takes one of these structs by value. Next: cuda/reduce_copy.cu. */
#ifndef TTI_DEVICE_KERNEL_ARGS_H
#define TTI_DEVICE_KERNEL_ARGS_H

#include <stdint.h>

enum {
    TTI_GPU_OPERANDS = 16,         /* sources, or destinations, of one reduce_copy */
    TTI_GPU_RANKS = 16,            /* that one kernel couples through mapped memory */
    TTI_GPU_BLOCKS = 512,          /* of such a kernel */
    TTI_PAIRED_THREADS = 320,      /* of a block of two_shot and direct, at most */
    TTI_PLAN_THREADS = 256,        /* of one that runs a plan, which takes more registers */
    TTI_PLAN_BLOCKS = 64,          /* of one that runs a plan */
    TTI_PLAN_LANES = 16,           /* of its plan */
    TTI_PLAN_SLOT_BYTES = 8 << 10, /* for a message in packets or lines, at most */
};

/* The kernels. A typed one exists once for each element type; see gpu_kernels.c. */
enum tti_gpu_kernel {
    TTI_KERNEL_COPY,           /* tti_copy_args */
    TTI_KERNEL_REDUCE_COPY,    /* typed; tti_reduce_copy_args */
    TTI_KERNEL_ONE_SHOT_LL,    /* typed; tti_coupled_args */
    TTI_KERNEL_ONE_SHOT_LL128, /* typed; tti_coupled_args */
    TTI_KERNEL_TWO_SHOT,       /* typed; tti_coupled_args */
    TTI_KERNEL_DIRECT,         /* typed; tti_direct_args */
    TTI_KERNEL_PEER_PROBE,     /* tti_peer_probe_args */
    TTI_KERNEL_WARP_PROBE,     /* tti_warp_probe_args */
    TTI_KERNEL_TELL,           /* tti_tell_args */
    TTI_KERNEL_PLACE,          /* tti_place_args */
    TTI_KERNEL_PLAN_RUN,       /* tti_plan_args */
    TTI_KERNEL_TRAIN_SCALE,    /* tti_train_scale_args */
    TTI_KERNEL_TRAIN_NORM,     /* tti_train_norm_args */
    TTI_KERNEL_TRAIN_STEP,     /* tti_train_step_args */
    TTI_KERNEL_NVLS,           /* float32, float16, bfloat16; tti_nvls_args */
    TTI_KERNEL_MESSAGES,       /* tti_message_args */
    TTI_KERNEL_MESSAGE_LIST,   /* tti_message_list_args */
    TTI_KERNEL_COUNT,
};

/* dst[d][i] = src[i] for all d; bytes, at any address. */
struct tti_copy_args {
    const void *src;
    void *dst[TTI_GPU_OPERANDS];
    uint64_t bytes;
    uint32_t dsts;
};

/* Where a rank's buffers are for the call under way, as another rank maps them; NULL: not mapped.
 */
struct tti_gpu_place {
    const void *in;
    void *out;
};

/* One rank's words in device memory, which peers map: where the others' buffers are, as they write
 * it down. Before a block touches these it adds itself to `inside` and then looks at `gave_up`; who
 * gives up writes that at all ranks and then waits until nobody is inside. One of the two sees the
 * other. */
struct tti_gpu_places {
    struct tti_gpu_place of[TTI_GPU_RANKS];
    uint32_t gave_up; /* not 0: keep off the others' buffers, for good */
    uint32_t inside;  /* blocks of this rank that are at them */
};

/* dst[d][i] = finish(src[0][i] op src[1][i] op ...), folded from the left in the accumulator type
 * (float32 for 16- and 8-bit floats, else the element type) and rounded once: the same bits as
 * tti_reduce and tti_convert of reduce.h. Sources and destinations at any address; a destination is
 * exactly a source or disjoint from all. */
struct tti_reduce_copy_args {
    const void *src[TTI_GPU_OPERANDS];
    void *dst[TTI_GPU_OPERANDS];
    uint64_t count;              /* elements */
    uint32_t srcs, dsts;         /* 1 to TTI_GPU_OPERANDS */
    uint32_t src_wide, dst_wide; /* bit k: operand k has the accumulator type */
    uint32_t op;                 /* enum tutti_op: SUM, PROD, MAX or MIN */
    uint32_t divisor;            /* average: divide by it at the end; 0: do not */
    uint32_t scaled;             /* bit k: element-typed source k is multiplied by `scale` first, */
    uint64_t scale;              /* ... one element, rounded to the element type (tti_scale) */
    /* Not NULL: operand k is rank (far_first + k)'s, and where that rank has written down its
     * buffers, it is in_at bytes into its input (out_at into its output, if far_out), and not what
     * is given. */
    struct tti_gpu_places *places;
    uint64_t in_at, out_at;
    uint32_t far_first, far_out;
};

/* Messages of a block to and from the block of that number at another rank, counted over all
 * launches: what the other has written here, and this rank's own. */
struct tti_plan_channel {
    uint64_t posted;   /* pieces of memory there that may be read (bulk) */
    uint64_t consumed; /* messages that went there and are done with */
    uint64_t sent, sent_pieces, got, got_pieces;
    uint64_t unused[2];
};

/* One rank's words in device memory that the kernels coupling several ranks use; peers map it.
 * Zeroed once, before the first launch of any rank. An epoch is one launch: all ranks launch the
 * same coupled kernels with the same grids in the same order, each rank's one after the other. */
struct tti_gpu_control {
    uint64_t epoch;     /* launches over; of this rank only, as are: */
    uint32_t leaving;   /* blocks of the launch under way that are done */
    uint32_t swept[2];  /* odd and even epochs: the epoch (without its low bits) that swept slots */
    uint32_t withdrawn; /* a rank, plus 1, that gave up (this one, too); never 0 again */
    uint64_t ready[TTI_GPU_BLOCKS]
                  [TTI_GPU_RANKS];                /* [b][r]: block b of rank r has begun epoch .. */
    uint64_t done[TTI_GPU_BLOCKS][TTI_GPU_RANKS]; /* ... and is through with it; r writes both */
    /* For the peers' block b, of this rank: its factor, and where its buffers are. */
    uint64_t scale[TTI_GPU_BLOCKS];
    const void *in[TTI_GPU_BLOCKS];
    void *out[TTI_GPU_BLOCKS];
    /* Block b of this rank is at the peers' buffers, or about to be, in this epoch; 0: it is not,
     * and will not before it has looked at `ready`, in which it finds who withdrew. */
    uint64_t inside[TTI_GPU_BLOCKS];
    /* ... and where block b of rank r finds its part of the input, if they lie anywhere. */
    const void *spread[TTI_GPU_BLOCKS][TTI_GPU_RANKS];
    struct tti_plan_channel plan[TTI_PLAN_BLOCKS][TTI_GPU_RANKS];
};

/* In `ready`, instead of an epoch: that block of that rank gave up, keep off its buffers. */
#define TTI_WITHDRAWN UINT64_MAX

/* What a coupled kernel tells the host, and the host tells it: PINNED memory, one a rank. */
struct tti_gpu_status {
    /* not 0: end soon, without result. The host writes it, or a block that fails. */
    uint32_t abort;
    /* 0, or an enum tutti_result: TIMEOUT, PEER or MISMATCH. The first failure stays. Stored last,
     * with release: who loads it with acquire may read the next three. */
    uint32_t failed;
    uint32_t rank;    /* ... the rank that was waited for, gave up, or sent something else */
    uint32_t block;   /* ... by this block */
    uint64_t epoch;   /* ... in this launch (numbered from 1; 0: of messages) */
    uint32_t stuck;   /* a rank, plus 1: after a failure it did not leave this rank's buffers */
    uint32_t claimed; /* not 0: a block has failed, and says so in `failed` */
    uint64_t theirs, ours; /* after a MISMATCH: the tags of both sides of a message */
    uint32_t waited;       /* a rank, plus 1, that messages wait for; 0: none */
    uint32_t unused[3];
};

/* An all-reduce, broadcast or reduce by one kernel a rank, launched on all ranks; all run at the
 * same time. Pointers are as this rank maps them, by rank. */
struct tti_coupled_args {
    uint32_t rank, ranks;
    uint32_t op, divisor; /* as in tti_reduce_copy_args */
    uint32_t scaled; /* multiply this rank's input by `scale` or *scale_at first; all or none */
    /* two shot: only this rank's in and out are given, the others say where theirs are. For ranks
     * whose pointers mean the same everywhere: threads of a process. All or none. Then a kernel
     * that gives up also waits until nobody touches these buffers. */
    uint32_t exchange;
    /* two shot: 1 + the rank whose input alone is taken (a broadcast), whose output alone is
     * written (a reduce); 0: all. Then the others' is not looked at. */
    uint32_t one_in, one_out;
    uint64_t scale;
    const void *scale_at; /* device memory, one element; NULL: `scale` */
    uint64_t count;
    const void *in[TTI_GPU_RANKS]; /* one shot: only this rank's */
    void *out[TTI_GPU_RANKS];      /* one shot: only this rank's */
    struct tti_gpu_control *control[TTI_GPU_RANKS];
    /* one_shot_ll: TTI_LL_SLOTS_BYTES(ranks, slot_bytes) each, zeroed once; slot_bytes: the most
     * bytes of a message, a multiple of 8. one_shot_ll128: the same with lines, of 120. */
    void *slots[TTI_GPU_RANKS];
    void *lines[TTI_GPU_RANKS];
    uint64_t slot_bytes, line_bytes;
    struct tti_gpu_status *status;
    uint64_t timeout_ns;
};

/* What a rank takes out of the others' inputs, as two shot with or without `exchange`. For k from
 * `first` on, `blocks` of them: the input of rank k from byte `from` on becomes block k of the
 * output, `stride` bytes apart; or, if it folds, one block, of all ranks' inputs, in the
 * accumulator type if `wide`. `count`: elements of a block; each rank's own, if it folds. */
struct tti_direct_args {
    struct tti_coupled_args coupled;
    uint64_t from, stride;
    uint32_t first, blocks, folds, wide;
    /* Blocks that differ. `spreads`, with `exchange`, all or none: rank r finds its part of this
     * rank's input at spread[r]. `uneven`, if it does not fold: block k has counts[k] elements, and
     * comes places[k] bytes into the output. */
    uint32_t spreads, uneven;
    const void *spread[TTI_GPU_RANKS];
    uint64_t counts[TTI_GPU_RANKS], places[TTI_GPU_RANKS];
};

/* A sum over memory that all ranks have bound to a multicast object: `multi` is the address there
 * of the `count` elements, whole packs of 16 bytes, in place at all ranks. Of `coupled`: no
 * buffers, no factor; a divisor for float32 alone. */
struct tti_nvls_args {
    struct tti_coupled_args coupled;
    void *multi;
};

/* Scratch of one rank for one-shot LL: two epochs, a slot for each sender, twice the payload. */
#define TTI_LL_SLOTS_BYTES(ranks, capacity) (2 * (uint64_t)(ranks)*2 * (uint64_t)(capacity))

#define TTI_LL128_LINES_BYTES(ranks, capacity) (2 * (uint64_t)(ranks)*128 * ((capacity) / 120))

/* Self-test of mapped memory, launched on both sides with one block: writes a pattern of `words`
 * words that follows from `seed` into `theirs`, raises their flag to `seed`, waits for its own
 * flag, and counts the words in `mine` that are not the pattern. Then the same the other way about:
 * reads `theirs` and compares. The flag is raised twice more: seed + 1 (I have checked), so that
 * neither side returns before the other is through. */
struct tti_peer_probe_args {
    uint32_t *mine, *theirs;
    uint64_t *my_flag, *their_flag;
    uint64_t words;
    uint32_t seed, unused;
    struct tti_gpu_status *status;
    uint64_t timeout_ns;
    uint32_t *wrong; /* PINNED or DEVICE: the count */
};

/* ---- Plans on the device (cuda/plan_run.cu), made by program.h --------------------------------
 */

/* As the enums of plan/plan.h. */
enum { TTI_DEVICE_IN, TTI_DEVICE_OUT, TTI_DEVICE_SCRATCH, TTI_DEVICE_SLOT };
enum {
    TTI_DEVICE_COPY,
    TTI_DEVICE_REDUCE,
    TTI_DEVICE_SEND,
    TTI_DEVICE_RECV, /* from here on: steps that receive */
    TTI_DEVICE_RECV_REDUCE,
};
enum { TTI_DEVICE_FORWARD = 1, TTI_DEVICE_FINAL = 2, TTI_DEVICE_MSG_LEFT = 8 };

#define TTI_DEVICE_REF(buffer, index) ((uint32_t)(buffer) << 30 | (uint32_t)(index))
#define TTI_DEVICE_BUFFER(ref) ((ref) >> 30)
#define TTI_DEVICE_INDEX(ref) ((ref)&0x3fffffffu)

struct tti_device_step {
    uint8_t kind, flags;
    uint8_t from, to; /* ranks */
    uint32_t chunk, nchunks;
    uint32_t src, src2, dst; /* TTI_DEVICE_REF */
    uint32_t home;           /* receives: where the sender has it */
    uint16_t need;           /* bulk: before it writes, from this one on in the table, ... */
    uint8_t needs;           /* ... so many */
    uint8_t block;           /* where blocks differ: whose it begins with */
};

/* So many messages of this pass, sent to `peer`, are consumed. */
struct tti_device_need {
    uint32_t peer, messages;
};

struct tti_device_lane {
    uint32_t first, steps;
    uint32_t senders; /* bit r: rank r sends to this one */
    uint32_t unused;
};

/* Device memory: this, the steps of all lanes, and (`needs_at` bytes from the beginning) needs. */
struct tti_device_program {
    uint32_t lanes, needs_at;
    struct tti_device_lane lane[TTI_PLAN_LANES];
};

enum { TTI_WIRE_BULK, TTI_WIRE_LL, TTI_WIRE_LL128 };

/* A plan on all ranks: lanes * slices blocks, of which the first are those of lane 0. Of `coupled`:
 * `count` elements of a block, of the longest if they differ; in and out of all ranks, or
 * `exchange`; `slots`: for packets, TTI_PLAN_PACKETS_BYTES each, zeroed once, `slot_bytes` (a
 * multiple of 128, up to TTI_PLAN_SLOT_BYTES) for a message. */
struct tti_plan_args {
    struct tti_coupled_args coupled;
    const void *program;              /* struct tti_device_program */
    void *scratch[TTI_GPU_RANKS];     /* SCRATCH; from byte `slots_at` on: SLOT */
    uint64_t window;                  /* elements of a block in one of the `passes` */
    uint64_t slots_at, slot_elements; /* elements: of a slice of the largest chunk */
    uint64_t piece;                   /* elements that bulk messages are cut into */
    uint32_t chunks, passes, slices;
    uint32_t wire;            /* TTI_WIRE_: how messages go */
    uint32_t reduces;         /* SCRATCH and SLOT hold accumulators */
    uint32_t type;            /* enum tutti_type */
    uint32_t size, wide_size; /* bytes of an element, of an accumulator */
    /* 0, or blocks differ: 1 + the buffer (IN, OUT) that has all of them, where that of rank k has
     * counts[k] elements, the first of them number displs[k]. Alike on all ranks. */
    uint32_t uneven;
    uint64_t counts[TTI_GPU_RANKS], displs[TTI_GPU_RANKS];
};

#define TTI_PLAN_PACKETS_BYTES(blocks, ranks, slot_bytes) \
    (2 * (uint64_t)(blocks) * (uint64_t)(ranks) * (uint64_t)(slot_bytes))

/* At the end of work that waits for words: shows the host the word of poison, that there was
 * progress, and that the work is over. */
struct tti_tell_args {
    const uint32_t *poison;
    uint32_t *count;                                     /* device memory: how often so far */
    uint32_t *told_poison, *told_progress, *told_inside; /* PINNED */
};

/* Writes down at each of `ranks` ranks where it finds this rank's buffers. */
struct tti_place_args {
    struct tti_gpu_place *at[TTI_GPU_RANKS]; /* NULL: leave it out */
    struct tti_gpu_place place[TTI_GPU_RANKS];
    uint32_t ranks, unused;
};

/* ---- Messages (cuda/messages.cu) --------------------------------------------------------------
 */

enum {
    TTI_MESSAGE_LANES = 32,            /* that a message is cut into, at most ... */
    TTI_MESSAGE_LANE_BYTES = 64 << 10, /* ... of so many bytes at least */
    TTI_MESSAGE_SLOTS = 4,             /* pieces under way on a lane */
    TTI_MESSAGE_BLOCKS = 64,
    TTI_MESSAGE_ALIGN = 128, /* of slots */
    TTI_MESSAGE_SLOT_MOST = 128 << 10,
    TTI_MESSAGES = 112,          /* among a launch's arguments; more stand in a list */
    TTI_MESSAGES_LISTED = 160,   /* that one launch writes down there */
    TTI_MESSAGES_MOST = 1 << 14, /* of a group */
};

/* One lane between this rank and another, both ways, in this rank's memory. All counters run on
 * from launch to launch, so a launch can be replayed. */
struct tti_message_lane {
    uint64_t posted; /* by the other: pieces of its that lie in the slots here, or did */
    uint64_t taken;  /* by the other: pieces of this rank's that it is through with */
    uint64_t tag[TTI_MESSAGE_SLOTS]; /* by the other: of which message a slot holds a piece */
    /* Of this rank alone: pieces so far, and in the group under way (at [1] of what is received)
     * which message of the channel it is at, and how many bytes of its part are through. */
    uint64_t sent, got;
    uint64_t done[2];
    uint32_t at[2];
    uint64_t unused[5];
};

/* One rank's words; behind them the lanes, by rank and number, and then the slots, by other rank,
 * lane and number. Zeroed once. */
struct tti_message_box {
    uint32_t gate; /* not 0: something came, or was taken, since this rank lowered it */
    uint32_t leaving, busy;
    uint32_t unused;
    uint64_t began_ns; /* the group under way: its first launch */
    uint32_t unused2[26];
};

struct tti_message {
    void *at;       /* only read, if it is sent */
    uint64_t bytes; /* not 0 */
    uint64_t tag;   /* what both sides must agree on */
};

/* Messages with one rank in one direction, in their order. */
struct tti_message_channel {
    uint8_t peer, receives;
    uint16_t first, count; /* of the group's messages */
};

/* A group of messages, all of it: nothing of a group may wait for anything else of it. It ends when
 * all that is received is in place, and all that is sent lies in slots at its receivers. Any number
 * of blocks, each of 64 threads at least; with `spins` all ranks' kernels run at the same time.
 * Without, it moves what can be moved and ends, and raises `gate` when all is done; a rank that is
 * waited for raises it, too. */
struct tti_message_args {
    uint32_t rank, ranks;
    uint32_t channels;
    uint32_t lanes;         /* the most of a message of these */
    uint32_t spins, begins; /* begins: the first launch of the group */
    uint32_t rings;         /* raise the others' gates */
    uint32_t slot_bytes;    /* a multiple of 128 */
    struct tti_message_box *box[TTI_GPU_RANKS];
    struct tti_gpu_control *control; /* this rank's */
    struct tti_gpu_status *status;
    uint64_t timeout_ns;            /* from the beginning of the first launch on */
    const struct tti_message *list; /* in device memory; NULL: `message` has all */
    struct tti_message_channel channel[2 * TTI_GPU_RANKS];
    struct tti_message message[TTI_MESSAGES];
};

/* Writes down part of a list; any grid. */
struct tti_message_list_args {
    struct tti_message *at;
    uint32_t count, unused;
    struct tti_message message[TTI_MESSAGES_LISTED];
};

/* Lanes of a message: the same on both sides. */
#define TTI_MESSAGE_LANES_OF(bytes)                                    \
    ((uint32_t)((bytes) < 2 * TTI_MESSAGE_LANE_BYTES ? 1               \
                : (bytes) / TTI_MESSAGE_LANE_BYTES < TTI_MESSAGE_LANES \
                    ? (bytes) / TTI_MESSAGE_LANE_BYTES                 \
                    : (uint64_t)TTI_MESSAGE_LANES))

#define TTI_MESSAGE_LANES_BYTES(ranks) \
    ((uint64_t)(ranks)*TTI_MESSAGE_LANES * sizeof(struct tti_message_lane))
#define TTI_MESSAGE_SLOTS_BYTES(ranks, slot_bytes) \
    (((uint64_t)(ranks)-1) * TTI_MESSAGE_LANES * TTI_MESSAGE_SLOTS * (uint64_t)(slot_bytes))

/* ---- Training (ddp/ddp_device.c): each gives the bits of its twin for the host. `type` is
 * enum tutti_type: float32, float64 (not TRAIN_STEP), float16 or bfloat16. Any grid. ------------
 */

/* data[i] = data[i] factor / divisor, as tti_ddp_scale. */
struct tti_train_scale_args {
    void *data;
    uint64_t count;
    double factor, divisor;
    uint32_t type;
};

/* Of the global norm (ddp/ddp_norm.c), what a block finds over its groups of 16 elements. */
struct tti_train_norm_part {
    double largest;     /* magnitude */
    double odd;         /* not 0 if something is infinite or no number */
    uint64_t low, high; /* squares in fixed point */
};
struct tti_train_norm_args {
    struct tti_train_norm_part *parts; /* one a block */
    const void *data;
    uint64_t count;
    double scale;     /* squares: of elements times this */
    uint32_t squares; /* or the largest */
    uint32_t type;
};
enum { TTI_TRAIN_GROUP = 16 };

/* One step of an optimizer over a slice (ddp/optimizer.c), with what it worked out. */
struct tti_train_terms {
    float scale, decay, momentum, keep; /* keep: share of the gradient in the momentum buffer */
    float beta1, new1, beta2, new2;     /* new = 1 - beta */
    float rate;                         /* AdamW: lr / (1 - beta1^step) */
    float root;                         /* AdamW: 1 / sqrt(1 - beta2^step) */
    float epsilon;
    float nesterov; /* the momentum, or 0 */
};
enum tti_train_kind { TTI_TRAIN_SGD, TTI_TRAIN_MOMENTUM, TTI_TRAIN_ADAMW };
struct tti_train_step_args {
    void *param;
    const void *grad;
    float *master, *first, *second; /* NULL where there is none */
    uint64_t count;
    struct tti_train_terms terms;
    uint32_t kind; /* enum tti_train_kind */
    uint32_t type; /* of param and grad */
};

/* What warps and blocks do, for tests: results[k][thread], see cuda/warp_probe.cu. */
struct tti_warp_probe_args {
    uint32_t *results;
    uint32_t *counters; /* 4 words, zeroed */
};
enum { TTI_WARP_PROBES = 10 };

#endif
