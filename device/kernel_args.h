/* What the kernels of cuda/ are given: shared by host code and device code, so plain C of fixed
 * layout. Each kernel takes one of these structs by value. Next: cuda/reduce_copy.cu. */
#ifndef TTI_DEVICE_KERNEL_ARGS_H
#define TTI_DEVICE_KERNEL_ARGS_H

#include <stdint.h>

enum {
    TTI_GPU_OPERANDS = 16, /* sources, or destinations, of one reduce_copy */
    TTI_GPU_RANKS = 16,    /* that one kernel couples through mapped memory */
    TTI_GPU_BLOCKS = 512,  /* of such a kernel */
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
    TTI_KERNEL_COUNT,
};

/* dst[d][i] = src[i] for all d; bytes, at any address. */
struct tti_copy_args {
    const void *src;
    void *dst[TTI_GPU_OPERANDS];
    uint64_t bytes;
    uint32_t dsts;
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
};

/* In `ready`, instead of an epoch: that block of that rank gave up, keep off its buffers. */
#define TTI_WITHDRAWN UINT64_MAX

/* What a coupled kernel tells the host, and the host tells it: PINNED memory, one a rank. */
struct tti_gpu_status {
    uint32_t
        abort; /* not 0: end soon, without result. The host writes it, or a block that fails. */
    uint32_t failed; /* 0, or an enum tutti_result: TIMEOUT, or PEER. The first failure stays. */
    uint32_t rank;   /* ... the rank that was waited for, or gave up */
    uint32_t block;  /* ... by this block */
    uint64_t epoch;  /* ... in this launch (numbered from 1) */
    uint32_t stuck;  /* a rank, plus 1: after a failure it did not leave this rank's buffers */
    uint32_t unused[9];
};

/* An all-reduce by one kernel a rank, launched on all ranks; all run at the same time. Pointers are
 * as this rank maps them, by rank. */
struct tti_coupled_args {
    uint32_t rank, ranks;
    uint32_t op, divisor; /* as in tti_reduce_copy_args */
    uint32_t scaled; /* multiply this rank's input by `scale` or *scale_at first; all or none */
    /* two shot: only this rank's in and out are given, the others say where theirs are. For ranks
     * whose pointers mean the same everywhere: threads of a process. All or none. Then a kernel
     * that gives up also waits until nobody touches these buffers. */
    uint32_t exchange;
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

/* What a rank takes out of the others' inputs, as two shot with `exchange`. For k from `first` on,
 * `blocks` of them: the input of rank k from byte `from` on becomes block k of the output, `stride`
 * bytes apart; or, if it folds, one block, of all ranks' inputs. `count`: elements of a block. */
struct tti_direct_args {
    struct tti_coupled_args coupled;
    uint64_t from, stride;
    uint32_t first, blocks, folds, unused;
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

/* At the end of work that waits for words: shows the host the word of poison, that there was
 * progress, and that the work is over. */
struct tti_tell_args {
    const uint32_t *poison;
    uint32_t *count;                                     /* device memory: how often so far */
    uint32_t *told_poison, *told_progress, *told_inside; /* PINNED */
};

/* What warps and blocks do, for tests: results[k][thread], see cuda/warp_probe.cu. */
struct tti_warp_probe_args {
    uint32_t *results;
    uint32_t *counters; /* 4 words, zeroed */
};
enum { TTI_WARP_PROBES = 10 };

#endif
