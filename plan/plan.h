/* What a plan is: for one rank, a few lanes of steps over numbered chunks of four buffers.
 *
 * A plan is data. It knows no sockets, no CUDA, no bytes: counts and types come in when it is run.
 * Algorithms (coll/algorithms) build plans; the verifier, the simulator and the executors read
 * them. Read next: plan/build.h (how an algorithm writes one), plan/verify.h, plan/simulate.h.
 *
 * Chunks. The unit of an operation is the block: `count` elements, the `count` of the public call.
 * Every block is cut into `chunks` chunks by one rule (tti_chunk_begin). IN and OUT hold as many
 * blocks as the collective says (tti_shape); chunk i of a buffer is chunk i % chunks of block
 * i / chunks. SCRATCH is laid out like IN and OUT, `scratch_blocks` of them. SLOT i is a temporary
 * as large as the largest chunk; it holds whichever chunk was last put there, one chunk a step.
 *
 * The blocks of an all-gather or a reduce-scatter may have a count each (tti_has_uneven): the same
 * plan serves, since every step knows whose block it is about.
 *
 * In place, IN and OUT overlap as tti_plan_in_place says; a plan must be right both ways.
 *
 * Partial results. IN and OUT hold contributions or final results in the element type; SCRATCH and
 * SLOT of a reducing plan hold accumulators (float32 for 16- and 8-bit floats, the element type
 * itself otherwise). So a partial sum is never written to OUT, and a step whose result is complete
 * carries TTI_FINAL. A message travels in the type of the buffer that it was sent from; the
 * receiver's step says TTI_MSG_ACC when that is an accumulator.
 *
 * Steps of a lane run in order; lanes run independently and touch no common chunk that either of
 * them writes. Messages between two ranks on one lane arrive in order. A send is asynchronous: the
 * lane goes on, and a later step of the lane that writes into the range being sent first waits for
 * that send to be consumed (`hazard`). A step that receives blocks its lane until the message is
 * there. */
#ifndef TTI_PLAN_PLAN_H
#define TTI_PLAN_PLAN_H

#include "base/error.h"
#include "plan/chunk.h"
#include "tutti/tutti.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tti_buffer {
    TTI_IN = 0,
    TTI_OUT = 1,
    TTI_SCRATCH = 2,
    TTI_SLOT = 3,
};

/* Chunk `index` of a buffer (first of a range). */
struct tti_ref {
    uint32_t buffer : 2; /* enum tti_buffer */
    uint32_t index : 30;
};

enum tti_step_kind {
    TTI_COPY,        /* dst = src */
    TTI_REDUCE,      /* dst = src (op) src2 */
    TTI_SEND,        /* send src to `to` */
    TTI_RECV,        /* dst = message from `from` */
    TTI_RECV_REDUCE, /* dst = src (op) message from `from`; dst may be src */
};

enum tti_step_flag {
    TTI_FORWARD = 1,  /* also send dst to `to`, piece by piece as it is written (not for SEND); a
                       * copy of IN may go out from IN instead, at once */
    TTI_FINAL = 2,    /* dst is the complete reduction: averaging and rounding happen here */
    TTI_MSG_ACC = 4,  /* the received message is in the accumulator type */
    TTI_MSG_LEFT = 8, /* RECV_REDUCE: the message is the left operand */
};

/* One step over chunks [chunk, chunk + nchunks), counted within the block; a range may run past
 * the end of a block into the next one (chunk ids wrap). Refs in IN, OUT and SCRATCH agree with
 * `chunk`: index % chunks == chunk. Unused fields are 0, unused peers -1. */
struct tti_step {
    uint8_t kind;  /* enum tti_step_kind */
    uint8_t flags; /* enum tti_step_flag */
    int32_t from;  /* rank received from */
    int32_t to;    /* rank sent to */
    uint32_t chunk;
    uint32_t nchunks;
    struct tti_ref src;
    struct tti_ref src2;
    struct tti_ref dst;
    int32_t hazard; /* sends of this lane in steps <= hazard are consumed before this step writes;
                       -1: none. Filled in by tti_plan_finish. */
    int32_t block;  /* of an all-gather or reduce-scatter: whose block the first chunk is of; where
                       the range goes on into other blocks they follow, 0 after the last one. -1:
                       not known, or of another collective. Filled in by tti_plan_finish. */
};

struct tti_lane {
    struct tti_step *steps;
    size_t count;
    size_t capacity;
};

/* Which ranks of a host are near each other: those of the same of[r], 0 .. count-1, numbered by
 * their lowest rank; of hosts where it is not known, all. Each level lies within the next one, and
 * within the host. of == NULL: the level tells nothing that the next one does not, or ranks are in
 * order by all levels anyway. */
enum tti_near_level {
    TTI_NEAR_CORE,  /* that they share by turns */
    TTI_NEAR_CACHE, /* an L3 */
    TTI_NEAR_NODE,  /* of memory (NUMA) */
    TTI_NEAR_LEVELS,
};
struct tti_near {
    int count;
    const int *of;
};

/* By which NIC (or NICs) ranks leave their host: those of the same of[r] by the same, 0 .. count-1,
 * numbered by their lowest rank; each lies within a host, and the host with the most has `most`.
 * of == NULL: all ranks of a host by the same, or it is not known. */
struct tti_gates {
    int count, most;
    const int *of;
};

/* Where ranks live, for algorithms that care: rank r is on host host_of[r], 0 .. nhosts-1, hosts
 * numbered by their lowest rank. host_of == NULL: all on host 0. */
struct tti_layout {
    int nhosts;
    const int *host_of;
    bool sorted; /* host_of never falls from rank to rank. False promises nothing. */
    struct tti_near near[TTI_NEAR_LEVELS];
    struct tti_gates gates;
};

/* What a plan function is given. */
struct tti_plan_spec {
    enum tutti_collective collective;
    int nranks;
    int rank;
    int root;   /* rooted collectives; else 0 */
    int lanes;  /* >= 1 */
    int slices; /* >= 1: pieces that a pipelined algorithm cuts each lane's part into */
    struct tti_layout layout;
};

struct tti_plan {
    struct tti_plan_spec spec; /* as built for; host_of, near and gates are not kept */
    uint32_t chunks;           /* per block, >= 1 */
    uint32_t scratch_blocks;
    uint32_t slots;
    bool reduces; /* SCRATCH and SLOT hold accumulators */
    int nlanes;
    struct tti_lane *lanes;
    int *peers; /* every rank that this one exchanges with, ascending. Filled in by finish. */
    int npeers;
};

/* An algorithm: a pure function of the spec, and what is known about it. One file each. */
struct tti_algorithm {
    const char *name; /* as TUTTI_ALGO takes it: lower case, underscores */
    enum tutti_collective collective;
    /* False when the algorithm cannot serve the spec (say, a layout that it does not handle);
     * `rank` is not read. NULL: always true. */
    bool (*applicable)(const struct tti_plan_spec *spec);
    /* Build the plan of spec->rank. Called only when applicable. */
    enum tutti_result (*plan)(const struct tti_plan_spec *spec, struct tti_plan **plan);
    /* The closed formula: seconds for blocks of `bytes`, on links of `alpha` seconds latency and
     * `beta` seconds per byte (source named where defined). */
    double (*cost)(const struct tti_plan_spec *spec, double bytes, double alpha, double beta);
    /* The plan of rank r is the plan of rank 0 with every rank, and every block of IN and OUT that
     * belongs to a rank, moved up by r (mod n), root aside, where a host's ranks follow each other:
     * the simulator then runs one period of the network instead of all ranks. */
    bool translates;
    bool sliced; /* `slices` means something */
    /* Lanes enter and leave hosts by their gates in turn (layout.gates), so it wants as many. */
    bool turns;
    /* Combines every chunk in the canonical order, in_0 op in_1 op ... op in_{n-1} from the left,
     * for every spec: what the reproducible mode takes. The verifier checks the claim
     * (tti_verify_ordered says what it means). Of no use where nothing is combined. */
    bool ordered;
    /* Left out of the free choice: taken when named, or when the reproducible mode asks for an
     * order. */
    bool by_request;
    const char *summary; /* one line for people */
};

/* Does it tell ranks of a host apart? */
static inline bool tti_layout_has_near(const struct tti_layout *layout)
{
    for (int level = 0; level < TTI_NEAR_LEVELS; level++)
        if (layout->near[level].of)
            return true;
    return false;
}

/* Does the algorithm claim to translate, on this layout? */
static inline bool tti_translates(const struct tti_algorithm *algorithm,
                                  const struct tti_plan_spec *spec)
{
    return algorithm->translates && (!spec->layout.host_of || spec->layout.sorted) &&
           !tti_layout_has_near(&spec->layout) && !spec->layout.gates.of;
}

void tti_plan_destroy(struct tti_plan *plan);

/* Number of blocks of IN and OUT at `rank`: 0 where the buffer is not used. */
void tti_shape(enum tutti_collective collective, int nranks, int rank, int root,
               uint32_t *in_blocks, uint32_t *out_blocks);

/* Does the collective combine contributions with an operator? */
bool tti_reduces(enum tutti_collective collective);
/* ... and does its result show in which order? Not that of a barrier, which has none. */
bool tti_order_shows(enum tutti_collective collective);

/* Do its plans serve blocks of different sizes, too? */
static inline bool tti_has_uneven(enum tutti_collective collective)
{
    return collective == TUTTI_ALL_GATHER || collective == TUTTI_REDUCE_SCATTER;
}

/* In place at `rank`: block `*in_block` of IN is the same memory as block `*out_block` of OUT, and
 * so are those after them as far as the shorter buffer goes. False where there is no in-place form
 * (one of the buffers is not used). */
bool tti_in_place(enum tutti_collective collective, int nranks, int rank, int root,
                  uint32_t *in_block, uint32_t *out_block);
/* The same where a plan runs: false also for an all-to-all. There every block is read by one rank
 * and written by another, so that half of them would have to be received apart and copied, out of
 * place, too; who is in place moves the input aside before the plan runs. */
bool tti_plan_in_place(const struct tti_plan_spec *spec, uint32_t *in_block, uint32_t *out_block);

/* Elements of the largest chunk (the first one). */
static inline size_t tti_chunk_largest(size_t count, size_t type_size, uint32_t chunks)
{
    return tti_chunk_begin(count, type_size, chunks, 1);
}

#endif
