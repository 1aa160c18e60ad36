/* Tutti's training layer: data-parallel training on top of the collectives (tutti.h).
 *
 * The header goes from simple to expert: a model that several ranks train, one step of training,
 * what a step may need besides, sharding, GPUs, what happened. It brings tutti/ddp_optimizer.h
 * (optimizers, samples, learning rates) and tutti/ddp_checkpoint.h (tensors in files, checkpoints).
 * docs/ddp.md is the guide.
 *
 * Rules as in tutti.h: what can fail returns `enum tutti_result`, outputs come last and are written
 * only on TUTTI_OK, tutti_last_error() says what went wrong. Functions marked "collective" are
 * called by all ranks, in the same order. Unless told otherwise a tutti_ddp is used by one thread.
 * Values and gradients are host memory, unless options.on_device is set ("On a GPU"): memory of a
 * GPU that is given for a tensor or a piece is TUTTI_ERR_UNSUPPORTED otherwise, by name. */
#ifndef TUTTI_DDP_H
#define TUTTI_DDP_H

#include "tutti/ddp_checkpoint.h"
#include "tutti/ddp_optimizer.h"
#include "tutti/tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- A model that several ranks train ------------------------------------------------------- *
 *
 *     tutti_ddp_create(comm, tensors, count, NULL, &ddp);       once; values are rank 0's now
 *     for each step:
 *         tutti_ddp_begin(ddp, true);                           gradients are zero
 *         forward; backward, adding to tutti_ddp_gradient(i), and as soon as one is complete:
 *             tutti_ddp_ready(ddp, i);                          full buckets start at once
 *         tutti_ddp_wait(ddp);                                  gradients are means over ranks
 *         optimizer step over tutti_ddp_pieces; tutti_ddp_publish(ddp);
 */

typedef struct tutti_ddp tutti_ddp;

enum { TUTTI_DDP_DIMS = 8 };

enum tutti_ddp_kind {
    TUTTI_DDP_TRAINED = 0, /* a parameter with a gradient */
    TUTTI_DDP_FROZEN = 1,  /* a parameter without: made equal once, at the start */
    TUTTI_DDP_BUFFER = 2,  /* no parameter (running means): at each synchronised begin rank 0's, or
                              with `uneven` those of the lowest rank that still has data */
};

/* One tensor of the model. The same list, in the same order (that of the forward pass), on all
 * ranks. */
struct tutti_ddp_tensor {
    const char *name;             /* unique in the model; copied */
    enum tutti_type type;         /* trained: float32, float64, float16, bfloat16; others: any */
    int dims;                     /* 0 (a scalar) .. TUTTI_DDP_DIMS */
    size_t shape[TUTTI_DDP_DIMS]; /* its length along each dimension; no zeros */
    void *value; /* the caller's memory, contiguous, until destroy; NULL: the library's, zero at
                    first (tutti_ddp_value) */
    enum tutti_ddp_kind kind;
    int unit;     /* the layer, or group of layers, that it belongs to: see tutti_ddp_acquire */
    void *device; /* the caller's copy of the value in memory of a GPU, which the model computes
                     with; NULL: none. See "Offload" */
};

enum tutti_ddp_divisor {
    TUTTI_DDP_MEAN = 0,   /* gradients are summed over ranks and divided by their number */
    TUTTI_DDP_SUM = 1,    /* summed only */
    TUTTI_DDP_TOKENS = 2, /* summed and divided by all that tutti_ddp_tokens was told, on all ranks
                             and in all passes of the step: the mean over tokens, however unevenly
                             they lie */
};

enum tutti_ddp_path {
    TUTTI_DDP_PATH_AUTO = 0,  /* WHOLE inside a host, SPLIT between hosts */
    TUTTI_DDP_PATH_WHOLE = 1, /* a chunk is all-reduced */
    TUTTI_DDP_PATH_SPLIT = 2, /* it is reduce-scattered, then all-gathered; with in_flight >= 2 the
                                 next chunk is reduced meanwhile */
};

enum tutti_ddp_hook {
    TUTTI_DDP_HOOK_NONE = 0,
    TUTTI_DDP_HOOK_FLOAT16 = 1,  /* float32 gradients travel as float16: half the bytes */
    TUTTI_DDP_HOOK_BFLOAT16 = 2, /* as bfloat16 */
    TUTTI_DDP_HOOK_POWERSGD = 3, /* matrices travel as products of two thin ones, and what that
                                    loses is added to the next gradient (arXiv 1905.13727) */
    TUTTI_DDP_HOOK_USER = 4,     /* options.user_hook reduces */
};

/* A full bucket, as a user's hook sees it. */
struct tutti_ddp_bucket {
    int index;     /* of the bucket, in the order of being full */
    uint64_t step; /* synchronised passes before this one */
    void *data;    /* gradients, with zeros between and behind them; in and out */
    size_t count;  /* elements */
    enum tutti_type type;
    tutti_comm *comm; /* for collectives of the hook; no other rank's hook is at another bucket */
    const size_t *members; /* tensors in it ... */
    const size_t *offsets; /* ... and where each begins, in elements */
    size_t member_count;
};
/* Reduce a bucket: afterwards `data` is what tutti_ddp_wait delivers, on all ranks alike. Averaging
 * is the hook's, too. Runs on a thread of the library; may call any collective, in the same order
 * on all ranks. What it returns but TUTTI_OK fails the step. */
typedef enum tutti_result tutti_ddp_hook_function(const struct tutti_ddp_bucket *bucket,
                                                  void *context);

enum { TUTTI_DDP_HOST = -1 };

/* Settings, the same on all ranks (checked). Start from TUTTI_DDP_OPTIONS_INIT; 0 is the default
 * in brackets. */
struct tutti_ddp_options {
    size_t size;               /* sizeof(struct tutti_ddp_options): lets the struct grow */
    size_t bucket_bytes;       /* gradients that become ready together (25 MiB) */
    size_t first_bucket_bytes; /* of the first to be full: communication starts early (1 MiB, at
                                  most bucket_bytes) */
    size_t last_bucket_bytes;  /* of the last to be full, which nothing hides: at least its last
                                  gradient (as the first) */
    size_t chunk_bytes;        /* what is reduced at once, so that what is needed first can pass
                                  (4 MiB) */
    int in_flight; /* collectives at once, each with a communicator of its own, 1..8 (1) */
    enum tutti_ddp_path path;
    enum tutti_ddp_divisor divisor;
    bool overwrite;   /* the first backward of a step stores gradients instead of adding to zeros */
    bool find_unused; /* tensors that are not ready at tutti_ddp_wait are unused in this step */
    bool static_graph; /* every pass marks the same tensors, each as often as in the first pass */
    bool uneven;       /* ranks may run out of data: tutti_ddp_join */
    enum tutti_ddp_hook hook;
    tutti_ddp_hook_function *user_hook;
    void *user_context;
    int power_rank;       /* PowerSGD: columns of the thin matrices (4) */
    uint64_t power_start; /* PowerSGD: steps before it begins (0) */
    int zero;             /* 0..3: what is sharded; see "Sharding" */
    int shard_ranks; /* ranks that share one copy, consecutive ones; TUTTI_DDP_HOST: those of a host
                        (all ranks). Between such groups gradients are all-reduced */
    bool by_unit;    /* values are used between tutti_ddp_acquire and tutti_ddp_release; zero 3
                        wants it */
    int prefetch;    /* zero 3: units gathered ahead (0) */
    bool on_device;  /* values and gradients lie in memory of a GPU: see "On a GPU" ... */
    int device;      /* ... of this one ... */
    tutti_stream stream; /* ... and the model is computed on this stream of it */
};
#define TUTTI_DDP_OPTIONS_INIT                                                                 \
    {                                                                                          \
        sizeof(struct tutti_ddp_options), 0, 0, 0, 0, 0, TUTTI_DDP_PATH_AUTO, TUTTI_DDP_MEAN,  \
            false, false, false, false, TUTTI_DDP_HOOK_NONE, NULL, NULL, 0, 0, 0, 0, false, 0, \
            false, 0, NULL                                                                     \
    }

/* Register a model; collective. Names, types and shapes are compared: a difference is
 * TUTTI_ERR_MISMATCH on every rank, with the tensor and both shapes. Values in memory of the
 * caller then become rank 0's; those in memory of the library when the first step begins, or by
 * tutti_ddp_broadcast. `comm` may be used and destroyed afterwards as one likes: the layer works
 * on communicators of its own. `options` may be NULL. Cost: in_flight + 1 communicators, and
 * memory for one gradient per trained element. */
TUTTI_API enum tutti_result tutti_ddp_create(tutti_comm *comm,
                                             const struct tutti_ddp_tensor *tensors, size_t count,
                                             const struct tutti_ddp_options *options,
                                             tutti_ddp **ddp);

/* Release everything. NULL is allowed. Not collective; bounded by the communicator's deadline. */
TUTTI_API void tutti_ddp_destroy(tutti_ddp *ddp);

/* Make all values, buffers included, those of rank 0; collective. */
TUTTI_API enum tutti_result tutti_ddp_broadcast(tutti_ddp *ddp);

/* Where tensor number `index` of the list is. Valid until destroy. */
TUTTI_API enum tutti_result tutti_ddp_value(tutti_ddp *ddp, size_t index, void **value);
/* Where its gradient is: a part of a bucket, of the tensor's type and shape, aligned to 64 bytes.
 * Ask anew after each tutti_ddp_begin: buckets are made anew when the order has been observed. */
TUTTI_API enum tutti_result tutti_ddp_gradient(tutti_ddp *ddp, size_t index, void **gradient);

/* ---- One step of training ------------------------------------------------------------------- */

/* Begin a forward and backward pass. synchronise: gradients will be reduced; collective then.
 * Otherwise they stay and the next pass adds to them: so many small batches make one step, and only
 * the last is synchronised. Gradients are zeroed if the pass before was synchronised (see
 * `overwrite`). The first call broadcasts values in the library's memory. With `uneven` the first
 * call of each step is collective, too. */
TUTTI_API enum tutti_result tutti_ddp_begin(tutti_ddp *ddp, bool synchronise);

/* The gradient of tensor `index` is complete in this pass and will not be touched until
 * tutti_ddp_wait. When that fills a bucket, and those before it in the agreed order have started,
 * its reduction starts now, in the background. Any thread. TUTTI_ERR_USAGE when said twice. */
TUTTI_API enum tutti_result tutti_ddp_ready(tutti_ddp *ddp, size_t index);

/* The pass is over. If it is a synchronised one: collective; returns when all gradients are
 * reduced. A trained tensor that was not said to be ready on some rank is TUTTI_ERR_USAGE on every
 * rank, by name; the step is lost then, the communicator is not (but see find_unused). */
TUTTI_API enum tutti_result tutti_ddp_wait(tutti_ddp *ddp);

/* Elements of one tensor that this rank's optimizer updates. */
struct tutti_ddp_piece {
    size_t index;   /* of the tensor */
    size_t first;   /* the piece's first element in it ... */
    size_t count;   /* ... and how many */
    void *value;    /* of element `first` */
    void *gradient; /* the same */
    size_t state;   /* number of elements in the pieces before: where the optimizer's own arrays,
                       as long as all pieces together, have what belongs to this one */
};

/* What this rank updates: all of every trained tensor, or its shards. The array is valid until the
 * next tutti_ddp_begin, its cuts and `state` until destroy. `elements` (may be NULL) is their sum.
 */
TUTTI_API enum tutti_result tutti_ddp_pieces(tutti_ddp *ddp, const struct tutti_ddp_piece **pieces,
                                             size_t *count, size_t *elements);

/* The pieces have been updated: give their new values to the other ranks that need them;
 * collective. Nothing to do, and no cost, while every rank updates everything. */
TUTTI_API enum tutti_result tutti_ddp_publish(tutti_ddp *ddp);

/* ---- What a step may need besides ----------------------------------------------------------- */

/* TUTTI_DDP_TOKENS: this rank's pass, any one of the step, held so many tokens (samples, or
 * whatever gradients are sums over). Adds up; before tutti_ddp_wait. Local. */
TUTTI_API enum tutti_result tutti_ddp_tokens(tutti_ddp *ddp, double tokens);

/* Block until the gradient of tensor `index` is reduced; between the last tutti_ddp_ready and
 * tutti_ddp_wait, so that its optimizer step can be made while others are still on their way: those
 * first in the list come first. TUTTI_ERR_USAGE if its bucket is not full, or where gradients are
 * divided in the end (TUTTI_DDP_TOKENS, uneven). */
TUTTI_API enum tutti_result tutti_ddp_wait_for(tutti_ddp *ddp, size_t index);

/* find_unused, static_graph: was the tensor used in the latest step, on any rank? If not, its
 * gradient is zero, and the optimizer should leave it alone. Without them always true. */
TUTTI_API enum tutti_result tutti_ddp_used(tutti_ddp *ddp, size_t index, bool *used);
/* The names of those that were used on no rank, "a, b"; "" if none. Valid until the next call of
 * any function on `ddp`. */
TUTTI_API const char *tutti_ddp_unused(tutti_ddp *ddp);

/* Uneven inputs: this rank has no more data. Takes part in one step of the others, with the
 * gradients that it has accumulated or none; *more is true if there was one, and gradients are as
 * on the other ranks: make the optimizer step and call again. *more is false when no rank has data
 * any more, accumulated gradients included: where these are all that ranks have left, they make one
 * more step. Gradients are divided by the number of ranks that had data for any pass of the step.
 * Needs options.uneven. With zero 3 it acquires and releases units as in the latest whole step of
 * this rank: all steps must do so alike, with as many passes, and every rank needs data for the
 * whole of the first one (TUTTI_ERR_USAGE on all ranks). What has added up on a GPU is not seen
 * here: hand it in by tutti_ddp_begin(ddp, true) and tutti_ddp_ready_from. */
TUTTI_API enum tutti_result tutti_ddp_join(tutti_ddp *ddp, bool *more);

/* Scale all gradients so that their global L2 norm is at most `most`, after tutti_ddp_wait;
 * collective. *norm (may be NULL) is the norm before. most <= 0 scales nothing. If the norm is
 * infinite or no number, gradients are left as they are. The sum of squares is made in fixed point:
 * the same bits however gradients are sharded or bucketed, to about 1e-9. Two passes over them. */
TUTTI_API enum tutti_result tutti_ddp_clip(tutti_ddp *ddp, double most, double *norm);

/* ---- Sharding ------------------------------------------------------------------------------- *
 * With options.zero ranks share the work and memory of the optimizer (ZeRO, arXiv 1910.02054): each
 * updates its pieces only, 1/n of every chunk.
 *   1: optimizer state is sharded. Gradients are reduce-scattered; tutti_ddp_publish all-gathers
 *      values.
 *   2: gradients too: a bucket has memory only from the first tutti_ddp_gradient of a pass until
 *      it is reduced, then its shard remains (in `pieces`). Passes that are not synchronised keep
 *      whole gradients.
 *   3: values too: those of a unit have memory between acquire and release only, and while they
 *      are prefetched. Each unit has buckets of its own.
 * Values of trained tensors are the library's then (value NULL). Results have the bits of zero 0
 * with TUTTI_DDP_PATH_SPLIT and the same chunks and buckets; of others where sums are exact. */

/* Make the values of a unit's tensors readable until the matching release; calls nest. zero 3:
 * collective; gathers them, and begins to gather the next units (in the direction in which units
 * were acquired so far). zero 1 and 2 with by_unit: waits until they are published, so that the
 * forward pass starts while later layers are on their way. Otherwise does nothing. */
TUTTI_API enum tutti_result tutti_ddp_acquire(tutti_ddp *ddp, int unit);
/* Give them up. changed: the caller wrote to them, outside a pass (a first filling, a checkpoint):
 * collective; rank 0's become those of all. */
TUTTI_API enum tutti_result tutti_ddp_release(tutti_ddp *ddp, int unit, bool changed);

/* ---- On a GPU ------------------------------------------------------------------------------- *
 * With options.on_device values, gradients and shards lie in memory of GPU `device`, and so must
 * the caller's values and what tutti_ddp_optimizer_step is given. The loop is the same. What the
 * caller computes is queued on options.stream, and so is what the layer does between: zeroing,
 * clipping, the optimizer. tutti_ddp_ready(i) then means: complete when the stream has done what is
 * queued on it; a full bucket is reduced on another stream, in the order of an event of this one,
 * beside the rest of the backward pass. tutti_ddp_wait and tutti_ddp_acquire return when what they
 * wait for is there; tutti_ddp_clip reads a few words back. One thread calls tutti_ddp_ready.
 * Without: PowerSGD, hooks of the user (TUTTI_ERR_UNSUPPORTED). The stream outlives the tutti_ddp.
 * Results have the bits of host memory where collectives add in the same order. So far this has run
 * on the simulated GPU only (TUTTI_DEVICE=sim). */

/* tutti_optimizer_step over a slice, in host memory; with options.on_device in that GPU's, queued
 * on options.stream. Errors: as there, and those of the driver. */
TUTTI_API enum tutti_result tutti_ddp_optimizer_step(tutti_ddp *ddp,
                                                     const struct tutti_optimizer *optimizer,
                                                     uint64_t step,
                                                     const struct tutti_optimizer_slice *slice);

/* ---- Offload -------------------------------------------------------------------------------- *
 * A model that computes on a GPU, while values, buckets of gradients and the optimizer with its
 * state stay in host memory, which is larger (ZeRO-Offload, arXiv 2101.06840): the GPU holds a copy
 * of the values. Hooks, clipping and sharding are as without. In the loop
 *     tutti_ddp_ready_from(ddp, i, gradient, stream)   stands for tutti_ddp_ready(ddp, i), and
 *     tutti_ddp_upload(ddp, i, stream)                 follows tutti_ddp_publish, for each tensor.
 * So far this has run on the simulated GPU only (TUTTI_DEVICE=sim). */

/* The gradient of tensor `index` lies in memory of the GPU, and is complete when the stream has
 * done what is queued on it. It is copied into its bucket then, and counts as ready. It is that of
 * the whole step: passes that are not synchronised add up on the GPU and need no call (nor does
 * `overwrite` hurt). All of a pass come by one stream. The memory belongs to the layer until
 * tutti_ddp_wait has returned, which waits for the stream. Errors: USAGE, ARGUMENT (no memory of
 * the GPU, or too little), those of the driver. Cost: one copy over the bus. */
TUTTI_API enum tutti_result tutti_ddp_ready_from(tutti_ddp *ddp, size_t index, const void *gradient,
                                                 tutti_stream stream);
/* Queue the copy of a tensor's value to its `device` memory. The value may not be written before
 * the copy is done: tutti_ddp_wait of a later step whose gradients come by the same stream is late
 * enough. zero 3: between tutti_ddp_acquire and tutti_ddp_release, and blocks until it is done. */
TUTTI_API enum tutti_result tutti_ddp_upload(tutti_ddp *ddp, size_t index, tutti_stream stream);

/* ---- What happened -------------------------------------------------------------------------- */

/* Seconds and bytes of the latest synchronised pass on this rank, and summed over all of them. */
struct tutti_ddp_times {
    double pass_s;    /* from tutti_ddp_begin to the call of tutti_ddp_wait */
    double busy_s;    /* some collective of gradients was under way */
    double hidden_s;  /* ... during the pass, behind computation */
    double exposed_s; /* spent in tutti_ddp_wait */
    uint64_t bytes;   /* gradients handed to collectives, as they travel */
    uint64_t collectives;
};
struct tutti_ddp_statistics {
    uint64_t steps;
    size_t buckets;
    size_t gradient_bytes;      /* memory of gradients ... */
    size_t gradient_bytes_most; /* ... and the most there ever was */
    size_t value_bytes;         /* memory of values that are the library's */
    size_t value_bytes_most;
    struct tutti_ddp_times last, total;
};
TUTTI_API enum tutti_result tutti_ddp_statistics(tutti_ddp *ddp,
                                                 struct tutti_ddp_statistics *statistics);
/* The trained tensors in the order in which they became ready here in the latest synchronised pass:
 * at most `capacity` into `order`, their number into *count. */
TUTTI_API enum tutti_result tutti_ddp_ready_order(tutti_ddp *ddp, size_t *order, size_t capacity,
                                                  size_t *count);
/* Record what each thread does from now on, or stop (what is recorded stays). */
TUTTI_API enum tutti_result tutti_ddp_trace(tutti_ddp *ddp, bool on);
/* Write the recording as a Chrome trace (JSON, for ui.perfetto.dev or chrome://tracing), and forget
 * it. Times are the host's monotonic clock, so that traces of its ranks can be laid side by side.
 */
TUTTI_API enum tutti_result tutti_ddp_trace_write(tutti_ddp *ddp, const char *path);

#ifdef __cplusplus
}
#endif
#endif
