/* Inside a tutti_ddp. Owned by ddp/; nothing outside includes this.
 *
 * Trained tensors lie in buckets: flat memory of one type, cut into chunks, a chunk into one block
 * a rank of the shard group. Chunks are what is reduced. A schedule says in which order; lanes
 * (threads with a communicator each) go through it, each chunk as soon as its bucket is full. The
 * order is the same on all ranks, whatever the order in which gradients become ready there.
 *
 * Locks: `lock` guards what lanes and callers share: `pending` and `state` of buckets, tasks of
 * lanes, the error. Gradient memory belongs to the caller until its bucket is full, then to the
 * lane, and to the caller again after tutti_ddp_wait.
 *
 * Read next: ddp_create.c, ddp_layout.c, ddp_step.c, ddp_lane.c. */
#ifndef TTI_DDP_DDP_STATE_H
#define TTI_DDP_DDP_STATE_H

#include "base/error.h"
#include "device/gpu.h"
#include "tutti/ddp.h"

#include <pthread.h>

enum {
    TTI_DDP_ALIGN = 64, /* bytes: of every gradient */
    TTI_DDP_GROUP = 16, /* elements: tensors and blocks begin at multiples, so that sums made of
                           such groups do not depend on how buckets are cut */
    TTI_DDP_LANES = 8,  /* the most lanes for gradients */
    TTI_DDP_NONE = -1,
};

struct tti_ddp_power;
struct tti_ddp_recording;

/* A tensor as registered, and where it is. */
struct tti_ddp_tensor {
    char *name;
    enum tutti_type type;
    enum tutti_ddp_kind kind;
    int dims;
    size_t shape[TUTTI_DDP_DIMS];
    size_t elements;
    void *value;
    bool owned; /* value is in `values` of the tutti_ddp */
    int unit;
    int bucket;    /* TTI_DDP_NONE: not trained */
    size_t offset; /* elements from the beginning of the bucket */
    int marks;     /* tutti_ddp_ready in this pass; under the lock */
    int expected;  /* how many make it complete: 1 without static_graph */
    bool touched;  /* marked in any pass of this step */
    bool used;     /* in the latest step, on any rank */
    uint64_t ready_ns;
    struct tti_ddp_power *power; /* PowerSGD's, once it has begun */
    void *device;                /* the value's copy on the GPU, or NULL */
    struct tutti_ddp *ddp;       /* that it belongs to */
};

/* A part of a bucket that is reduced at once. */
struct tti_ddp_chunk {
    size_t first, count; /* elements of the bucket; count is a multiple of the blocks' */
    size_t block;        /* elements of one rank's block: count / ranks of the shard group */
    bool reduced;        /* this step: scattered; under the lock */
};

struct tti_ddp_bucket {
    enum tutti_type type;
    size_t elements; /* with what is between and behind tensors */
    size_t *members; /* tensors, in the order of their offsets ... */
    size_t *offsets; /* ... which are these */
    size_t member_count;
    size_t needed; /* the member that the forward pass needs first: the lowest */
    struct tti_ddp_chunk *chunks;
    size_t chunk_count;
    int unit;          /* zero 3: of its members */
    char *gradient;    /* of all elements; zero 2 and 3: NULL while there is nothing to hold */
    char *shard;       /* zero 2 and 3: of this rank's blocks, chunk after chunk */
    char *value;       /* zero 1 to 3: of all elements; zero 3: NULL unless held or prefetched */
    char *value_shard; /* zero 3 */
    int holders;       /* zero 3: acquires without release; the caller's thread only */
    size_t gathering;  /* values: tasks not done yet; under the lock */
    /* On a GPU: points in the caller's stream. */
    struct tti_gpu_event *full;  /* all members were ready */
    struct tti_gpu_event *given; /* its values were to be gathered */
    /* This step; under the lock. */
    size_t pending;    /* members not ready yet */
    size_t unfinished; /* tasks not done yet */
};

enum tti_ddp_action {
    TTI_DDP_ALL_REDUCE,
    TTI_DDP_REDUCE_SCATTER,
    TTI_DDP_ALL_GATHER,
    TTI_DDP_HOOK,   /* PowerSGD or the user's, over a whole bucket */
    TTI_DDP_VALUES, /* all-gather updated values */
};

/* One thing for a lane to do, when what it needs is there. */
struct tti_ddp_task {
    enum tti_ddp_action action;
    int bucket;
    size_t chunk;
};

struct tti_ddp_lane {
    struct tutti_ddp *ddp;
    int number;
    tutti_comm *comm;   /* of the ranks that share a copy: all, but for hybrid sharding */
    tutti_comm *across; /* of those with the same place in other groups; NULL: none */
    pthread_t thread;
    bool started;
    void *scratch; /* tutti_alloc: gradients in the type in which they travel, and the like */
    size_t scratch_bytes;
    size_t sent;         /* bytes that the task under way handed to collectives */
    tutti_stream stream; /* its own, on a GPU */
    /* Under the lock: a queue that is emptied whenever it has been worked off. */
    struct tti_ddp_task *tasks;
    size_t capacity, count, next;
};

struct tti_ddp_range { /* a chunk in the schedule */
    int bucket;
    size_t chunk;
};

enum tti_ddp_calling { TTI_DDP_ACQUIRE, TTI_DDP_RELEASE, TTI_DDP_SYNCHRONISE };

struct tti_ddp_call { /* tutti_ddp_acquire, tutti_ddp_release or a synchronised begin */
    enum tti_ddp_calling what;
    int unit;
};

/* Buffers of one size that are given and taken back; under the lock. */
struct tti_ddp_pool {
    struct tutti_ddp *ddp;
    void **all; /* for freeing */
    size_t count, all_capacity;
    void **idle;
    size_t idle_count, idle_capacity;
    size_t bytes;             /* of each */
    size_t *held, *held_most; /* statistics in which they count */
};

/* Times of the pass, ns of the monotonic clock; under the lock. */
struct tti_ddp_clock {
    uint64_t begin, backward_end, end;
    uint64_t busy, busy_since; /* some lane works: summed up; since when, 0: none does */
    uint64_t hidden;           /* `busy` when tutti_ddp_wait was called */
    int working;               /* lanes */
    uint64_t bytes, collectives;
};

struct tutti_ddp {
    struct tutti_ddp_options options; /* with defaults filled in */
    int rank, size;
    int group_number, group_rank, group_size; /* among the ranks that share a copy */
    bool split;          /* reduce-scatter and all-gather instead of all-reduce */
    bool by_bucket;      /* the hook wants whole buckets */
    tutti_comm *group;   /* of these, for the caller's thread; NULL: all ranks, `control` */
    tutti_comm *control; /* small things, by the caller's thread */
    struct tti_ddp_tensor *tensors;
    size_t tensor_count, trained_count;
    void *values; /* of tensors that the library holds; tutti_alloc */

    struct tti_ddp_bucket *buckets;
    size_t bucket_count;
    void *gradients;      /* of all buckets; tutti_alloc */
    size_t gradient_room; /* bytes of these */
    size_t gradient_bytes, gradient_bytes_most;
    struct tti_ddp_range *schedule;
    size_t schedule_count;
    struct tutti_ddp_piece *pieces;
    size_t piece_count, piece_elements;

    void *sharded_values; /* zero 1 to 3: of all buckets, whole or this rank's blocks */
    struct tti_ddp_pool gradient_pool, value_pool;
    size_t value_bytes, value_bytes_most;
    int *units; /* in the order of the list, each once */
    size_t unit_count;
    size_t unit_at;             /* acquired last */
    bool backwards;             /* ... coming from a later one */
    struct tti_ddp_call *calls; /* zero 3, uneven: of the latest step with data (ddp_join.c) */
    size_t call_count, call_capacity;
    size_t call_at; /* of these, how many this step has made */

    struct tti_ddp_lane lanes[TTI_DDP_LANES + 1]; /* the last in use is for values */
    int lane_count;                               /* for gradients */
    struct tti_ddp_lane *value_lane;              /* NULL: values are not sharded */

    bool broadcast_done; /* values are alike on all ranks */
    bool open;           /* between begin and wait */
    bool synchronise;    /* this pass */
    bool stale;          /* gradients hold a finished step's: zero them in begin */
    bool settled;        /* the order has been observed and buckets made anew ... */
    bool scheduled;      /* ... and that of their chunks decided */
    bool learning;       /* static_graph: this is the first pass */
    bool learnt;         /* ... and it is over */
    bool used_known;     /* static_graph: all ranks told each other what they use */
    bool joining;        /* in tutti_ddp_join */
    int active;          /* ranks with data in this step, and the lowest of them */
    int leader;
    bool counted;   /* uneven: they are counted */
    double tokens;  /* of this rank in this step */
    uint64_t steps; /* synchronised passes that ended well */
    char *unused;   /* the text of tutti_ddp_unused, or NULL */
    struct tutti_ddp_times last, total;
    uint64_t reduced_steps; /* passes in `total` */
    struct tti_ddp_recording *recording;

    struct tti_gpu *gpu;      /* options.on_device, or that tensors have copies on; NULL: none */
    void *parts, *parts_here; /* on_device: of the norm, there and page-locked here */
    void *retired;            /* on_device: buckets of the first step into which those after it did
                                 not fit, kept until the end */
    tutti_stream stream;      /* by which this pass's gradients come ... */
    bool arriving;            /* ... if some do */
    bool lost;                /* it did not do its work in time, and may yet */
    bool stop;                /* lanes end; under the lock */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct tti_error error; /* the first failure of a lane; code TUTTI_OK if none */
    struct tti_ddp_clock clock;
};

/* ---- ddp_device.c: host memory, or with options.on_device that of a GPU ---- */
/* If on_device: open the GPU, or say why not. */
enum tutti_result tti_ddp_device_open(struct tutti_ddp *ddp);
void tti_ddp_device_free(struct tutti_ddp *ddp);
/* All that the caller's stream was given is done. */
enum tutti_result tti_ddp_device_done(struct tutti_ddp *ddp);
/* Memory of zeros. */
enum tutti_result tti_ddp_alloc(struct tutti_ddp *ddp, size_t bytes, void **memory);
void tti_ddp_free(struct tutti_ddp *ddp, void *memory);
/* At once, or queued: on `stream`, on the caller's. */
enum tutti_result tti_ddp_zero(const struct tutti_ddp *ddp, void *memory, size_t bytes,
                               tutti_stream stream);
enum tutti_result tti_ddp_copy(const struct tutti_ddp *ddp, void *out, const void *in,
                               size_t bytes);
/* On a GPU only: scaling as tti_ddp_scale; what pieces hold, for the norm. */
enum tutti_result tti_ddp_device_scale(const struct tutti_ddp *ddp, void *data,
                                       enum tutti_type type, size_t count, double factor,
                                       double divisor);
enum tutti_result tti_ddp_device_norm(struct tutti_ddp *ddp, bool squares, double scale,
                                      struct tti_train_norm_part *sum);
/* Events of a bucket; note in a stream that it is full (under the lock), or in the caller's that
 * its values are to be gathered; hold a lane's stream until then. Nothing without a GPU. */
enum tutti_result tti_ddp_device_events(const struct tutti_ddp *ddp, struct tti_ddp_bucket *bucket);
enum tutti_result tti_ddp_device_full(const struct tutti_ddp *ddp, struct tti_ddp_bucket *bucket,
                                      tutti_stream stream);
enum tutti_result tti_ddp_device_given(struct tutti_ddp *ddp, struct tti_ddp_bucket *bucket);
enum tutti_result tti_ddp_device_hold(struct tti_ddp_lane *lane, struct tti_gpu_event *event);
/* Collective: rank `root`'s value of a tensor for all. */
enum tutti_result tti_ddp_spread(const struct tutti_ddp *ddp, const struct tti_ddp_tensor *tensor,
                                 int root);
/* All that the lane's stream was given is done. */
enum tutti_result tti_ddp_lane_done(struct tti_ddp_lane *lane);
/* A lane's collectives, over when they return; and between float32 and a type of 16 bits. */
enum tutti_result tti_ddp_all_reduce(struct tti_ddp_lane *lane, void *data, size_t count,
                                     enum tutti_type type, enum tutti_op op, tutti_comm *comm);
enum tutti_result tti_ddp_reduce_scatter(struct tti_ddp_lane *lane, const void *in, void *out,
                                         size_t block, enum tutti_type type, enum tutti_op op);
enum tutti_result tti_ddp_all_gather(struct tti_ddp_lane *lane, const void *in, void *out,
                                     size_t block, enum tutti_type type);
enum tutti_result tti_ddp_convert(struct tti_ddp_lane *lane, void *out, enum tutti_type out_type,
                                  void *in, enum tutti_type in_type, size_t count);

/* ---- ddp_verify.c: collective; all ranks registered the same? ----
 * `own`: what this rank found wrong by itself, which becomes the result on all ranks. */
enum tutti_result tti_ddp_verify(const struct tutti_ddp *ddp, const struct tti_error *own);
/* Collective: the lowest rank that has something to say (`mine`) gives its words to all: `told`, in
 * and out. *rank: who; the number of ranks if nobody has. */
enum tutti_result tti_ddp_tell(const struct tutti_ddp *ddp, bool mine, struct tti_error *told,
                               int *rank);

/* ---- ddp_layout.c: buckets ---- */
/* Make buckets of the trained tensors in the given order (of being ready), their memory, the
 * schedule and the pieces, in place of those there are. On failure those stay. */
enum tutti_result tti_ddp_layout(struct tutti_ddp *ddp, const size_t *order);
void tti_ddp_layout_free(struct tutti_ddp *ddp);
/* "bucket 2 (b.weight .. a.bias)" into `text`. */
void tti_ddp_bucket_text(const struct tutti_ddp *ddp, int bucket, char *text, size_t bytes);

/* Multiply all elements of this rank's gradients, then divide: exact where one of them is 1. */
enum tutti_result tti_ddp_scale(struct tutti_ddp *ddp, double factor, double divisor);

/* ---- ddp_lane.c: threads that reduce ---- */
enum tutti_result tti_ddp_lanes_start(struct tutti_ddp *ddp, tutti_comm *comm);
/* Ends the threads and their communicators. */
void tti_ddp_lanes_stop(struct tutti_ddp *ddp);
/* Under the lock: keep the first failure, and tell the others. */
void tti_ddp_lane_failed(struct tutti_ddp *ddp, enum tutti_result result);
/* This rank cannot go on: the calling thread's error becomes the step's, and others are told. */
void tti_ddp_lanes_fail(struct tutti_ddp *ddp, enum tutti_result result);
/* Hand out the schedule of a synchronised pass. */
enum tutti_result tti_ddp_lanes_give(struct tutti_ddp *ddp);
/* Under the lock: does a lane for gradients wait for this rank to fill a bucket? */
bool tti_ddp_lanes_starve(const struct tutti_ddp *ddp);
/* Until the tasks of a bucket, or of all (TTI_DDP_NONE), are done, or one failed. */
enum tutti_result tti_ddp_lanes_wait(struct tutti_ddp *ddp, int bucket);

/* Under the lock: hand the value lane the gathers of a bucket's chunks. */
enum tutti_result tti_ddp_lanes_gather(struct tutti_ddp *ddp, int bucket);
/* Until they are done, for a bucket or all (TTI_DDP_NONE). */
enum tutti_result tti_ddp_lanes_gathered(struct tutti_ddp *ddp, int bucket);

/* ---- ddp_shard.c: what a rank keeps ---- */
/* After the layout: memory of values, and the pieces. */
enum tutti_result tti_ddp_shard_values(struct tutti_ddp *ddp);
void tti_ddp_shard_pieces(struct tutti_ddp *ddp);
/* Under the lock, not on a lane: wait if too much is waiting to be reduced. */
void tti_ddp_gradient_room(struct tutti_ddp *ddp);
/* Under the lock, after tti_ddp_pool_fill: whole gradients of a bucket, zeroed if `zero` (on
 * `stream`); and back. */
enum tutti_result tti_ddp_gradient_take(struct tutti_ddp *ddp, struct tti_ddp_bucket *bucket,
                                        bool zero, tutti_stream stream);
void tti_ddp_gradient_give(struct tutti_ddp *ddp, struct tti_ddp_bucket *bucket);

/* ---- ddp_pool.c: under the lock ---- */
/* Under the lock, which is released while memory is made: a driver may then wait for the device,
 * and so for a host function that wants the lock (ddp_offload.c). There is an idle buffer after it.
 */
enum tutti_result tti_ddp_pool_fill(struct tti_ddp_pool *pool);
void *tti_ddp_pool_take(struct tti_ddp_pool *pool); /* one of those idle */
void tti_ddp_pool_give(struct tti_ddp_pool *pool, void *buffer);
void tti_ddp_pool_free(struct tti_ddp_pool *pool);

/* ---- ddp_units.c ---- */
enum tutti_result tti_ddp_units_make(struct tutti_ddp *ddp);
/* Values have changed: forget what was gathered. */
enum tutti_result tti_ddp_units_forget(struct tutti_ddp *ddp);

/* ---- ddp_reduce.c: what lanes do; without the lock, the bucket is theirs ---- */
enum tutti_result tti_ddp_reduce(struct tti_ddp_lane *lane, const struct tti_ddp_task *task);
/* Scratch of the lane, of at least so many bytes. */
enum tutti_result tti_ddp_scratch(struct tti_ddp_lane *lane, size_t bytes, void **scratch);

/* ---- ddp_power.c: PowerSGD ---- */
enum tutti_result tti_ddp_power_reduce(struct tti_ddp_lane *lane, struct tti_ddp_bucket *bucket);
void tti_ddp_power_free(struct tti_ddp_power *power);

/* ---- ddp_step.c, for ddp_join.c and ddp_offload.c ---- */
/* TUTTI_OK if there is such a tensor, and it has a gradient. */
enum tutti_result tti_ddp_trained(const struct tutti_ddp *ddp, size_t index, const char *call);
/* Note that the tensor was marked; *complete: by that, all of it that is expected. */
enum tutti_result tti_ddp_mark(struct tutti_ddp *ddp, struct tti_ddp_tensor *tensor,
                               const char *call, bool *complete);
/* Under the lock: its gradient is in the bucket. */
void tti_ddp_complete(struct tutti_ddp *ddp, struct tti_ddp_tensor *tensor);
/* A step begins, unless one is under way already. active: this rank has data in it. ddp->active is
 * 0 if nobody has. */
enum tutti_result tti_ddp_begin_step(struct tutti_ddp *ddp, bool active);
/* A pass of it. */
enum tutti_result tti_ddp_begin_pass(struct tutti_ddp *ddp, bool synchronise);
/* All that is expected in this pass is there; what no pass of the step had is zero. */
void tti_ddp_mark_all(struct tutti_ddp *ddp);

/* ---- ddp_join.c ---- */
/* Collective, in the first begin or join of a step: how many ranks have data in it. */
enum tutti_result tti_ddp_count(struct tutti_ddp *ddp, bool active);
/* A unit was acquired or released in a pass, or a synchronised one begins. */
enum tutti_result tti_ddp_note_call(struct tutti_ddp *ddp, enum tti_ddp_calling what, int unit);
/* A synchronised pass ends, and its step with it. */
void tti_ddp_note_end(struct tutti_ddp *ddp);

/* ---- ddp_offload.c ---- */
/* Is [memory, memory + bytes) in one allocation that the GPU holds? *device: which one. */
enum tutti_result tti_ddp_look(const struct tti_gpu_ops *ops, const void *memory, size_t bytes,
                               const char *call, const char *name, int *device);
/* The tensor's copy is there; NULL: it has none. */
enum tutti_result tti_ddp_offload_add(struct tutti_ddp *ddp, struct tti_ddp_tensor *tensor,
                                      void *device);
/* All gradients of this pass have come; if not, the lanes have failed, and all ranks are told. */
void tti_ddp_offload_wait(struct tutti_ddp *ddp);

/* ---- ddp_order.c ---- */
/* Collective, before a pass: after the first synchronised one buckets are made anew in the order
 * that rank 0 observed, after a few the order of their chunks. */
enum tutti_result tti_ddp_settle(struct tutti_ddp *ddp);

/* ---- ddp_schedule.c: the order of chunks ---- */
/* What is known of a bucket: when it is full, how long one of its chunks takes, who needs it. */
struct tti_ddp_load {
    double full_s, chunk_s;
    size_t chunks, needed;
};
/* An order of all chunks, for one server that is never idle while a bucket is full, and takes the
 * chunk that is needed first. Pure; `done` is work space of `count`. */
void tti_ddp_schedule(const struct tti_ddp_load *loads, size_t count, size_t *done,
                      struct tti_ddp_range *order);

/* ---- ddp_statistics.c ---- under the lock ---- */
void tti_ddp_clock_begin(struct tutti_ddp *ddp);
void tti_ddp_clock_work(struct tutti_ddp *ddp, int lanes); /* one more works, or one less */
void tti_ddp_clock_backward(struct tutti_ddp *ddp);        /* the backward pass is over */
void tti_ddp_clock_end(struct tutti_ddp *ddp);

/* ---- ddp_trace.c ---- under the lock; no cost while nothing is recorded ---- */
void tti_ddp_record(struct tutti_ddp *ddp, const struct tti_ddp_lane *lane,
                    const struct tti_ddp_task *task, uint64_t start, uint64_t end);
void tti_ddp_record_ready(struct tutti_ddp *ddp, size_t tensor);
void tti_ddp_record_pass(struct tutti_ddp *ddp);
void tti_ddp_recording_free(struct tti_ddp_recording *recording);

#endif
