/* Inside a communicator. Owned by coll; nothing outside includes this.
 *
 * Read in this order: operation.h (what a call is), select.h (which algorithm), plan_cache.h,
 * executor.h (running a plan), small_plan.h (the same for few bytes), links.h (connections), work.h
 * (queue and progress thread). */
#ifndef TTI_COLL_COMM_H
#define TTI_COLL_COMM_H

#include "base/atomic.h"
#include "coll/crowd.h"
#include "coll/fused.h"
#include "coll/links.h"
#include "coll/peers.h"
#include "coll/plan_cache.h"
#include "coll/profile.h"
#include "coll/recorder.h"
#include "coll/selection.h"
#include "coll/small_plan.h"
#include "coll/staged.h"
#include "coll/work.h"
#include "launch/boot.h"
#include "launch/environment.h"

#include <pthread.h>

struct tti_executor;
struct tti_gpu_side;
struct tti_post;
struct tti_tuning;

/* Settings after options and environment are merged. */
struct tti_settings {
    double timeout_s;
    double init_timeout_s;
    char *transports; /* NULL: all */
    char *algorithms; /* NULL: chosen */
    char *plugins;    /* NULL: none */
    int lanes;        /* the most lanes an operation may use */
    bool lanes_forced;
    bool fast;         /* short paths are allowed: small programs, fused */
    size_t fused_from; /* bytes from which the fused path may be taken ... */
    bool fused_forced; /* ... and is, whatever the model says */
    size_t
        staged_ahead;  /* broadcasts of 64 KiB that a root of the staged path may be ahead; 0: 16 */
    bool reproducible; /* only what combines in the order of ranks is taken */
    double linger_s;   /* the most that destroy waits for peers, to read what is staged (stage.h)
                        * and to say goodbye */
    int wire_lanes; /* lanes of a link: an algorithm may use one more, to make them even (tree) */
};

enum {
    TTI_MAX_USER_OPS = 64,
    TTI_USUAL_LANES = 2,      /* the most that are used where nothing else is asked or measured */
    TTI_KEPT_SELECTIONS = 64, /* sizes whose selection is kept: a power of two */
};

/* An operator made by tutti_premul_sum_create, by any thread. */
enum { TTI_USER_OP_FREE, TTI_USER_OP_MADE, TTI_USER_OP_READY };
struct tti_user_op {
    _Atomic int state;
    enum tutti_type type;
    uint8_t scalar[8];
};

/* Of a failure. */
enum tti_comm_loss {
    TTI_COMM_HARMED,   /* something of this rank's own has failed; or there was none */
    TTI_COMM_BEREAVED, /* others are gone ... */
    TTI_COMM_SPARED,   /* ... and nothing was under way here */
};

struct tutti_comm {
    int rank;
    int size;
    uint64_t job;    /* the same on all ranks, different for every communicator */
    uint64_t family; /* job of the first one that this came from; 0: it is that */
    struct tti_recorder recorder;
    struct tti_settings settings;
    struct tti_meeting meeting; /* its secret is the job's; split hands it on */
    struct tti_boot *boot;
    struct tti_peers peers;
    struct tti_links links;
    struct tti_plan_cache plans;
    struct tti_small_plans small;
    struct tti_executor *executor;
    struct tti_profile profile; /* constants of the cost model, alike on all ranks */
    struct tti_tuning *tuning;  /* what was measured, alike on all ranks; NULL: nothing */
    char *tuning_source;        /* the file, or why there is none */
    struct tti_selection selections[2][TTI_KEPT_SELECTIONS]; /* [fused path allowed][hash] */
    const struct tti_selection *trial; /* tutti-tune: what to run instead of the best; else NULL */
    struct tti_work_model work[TUTTI_COLLECTIVE_COUNT][TTI_MOST_ALGORITHMS];
    struct tti_fused_record fused[TUTTI_COLLECTIVE_COUNT];
    struct tti_fused_again *again[TTI_FUSED_AGAIN];
    const struct tti_fused_again *again_last; /* whose the last long one was; or NULL */
    uint64_t repeats; /* operations that one of them served, all ranks saying what they had said */
    uint64_t repeats_from_end;    /* ... of which went from the end of their part */
    struct tti_cpus *cpus;        /* while it is made: of all ranks */
    struct tti_nic_place *places; /* the same (nics.h) */
    bool crowded;                 /* ranks of this host outnumber their cores (crowd.h) */
    bool crowds;                  /* or those of another host: all ranks know this alike */
    struct tti_work_queue queue;
    struct tti_user_op user_ops[TTI_MAX_USER_OPS];
    uint8_t token;             /* what a barrier passes around */
    uint64_t sequence;         /* collectives begun so far: the "#41" of messages */
    struct tti_shrunk *shrunk; /* what tutti_comm_shrink has made of it so far (shrink.c) */

    /* The first failure; `failed` is set after `error` is complete. */
    pthread_mutex_t error_lock;
    struct tti_error error;
    _Atomic int failed;      /* enum tutti_result */
    enum tti_comm_loss loss; /* ... and what that means for this rank */
    _Atomic int aborted;     /* tutti_comm_abort was called here */
    struct tti_stage *stage; /* staged.h; NULL until this rank sends there */
    uint64_t staged;         /* operations on that path */
    void *fused_aside; /* a region for the edges of registered memory (fused_edges.c), or NULL */
    void *aside; /* a region for inputs that must be changed or moved before a plan reads them */
    size_t aside_bytes;
    struct tti_column *column;     /* column.h; NULL until the first such operation */
    struct tti_gpu_side *gpu;      /* device memory; NULL: host memory only */
    struct tti_gpu_side *gpu_left; /* ... of an ended communicator that a stream may yet come to */
    struct tti_gpu_send *gpu_send; /* ... that the network reads (gpu/gpu_send.h); NULL: none */
    struct tti_post *post;         /* post.h; NULL until there is a window */
    uint64_t windows;              /* made so far */
    int wake_fd;                   /* eventfd: interrupts a sleeping operation */
    _Atomic bool background;       /* tutti_comm_background */
    int without_device; /* the first rank that has none in use; -1: all have one (agree.c) */
    bool forked;        /* this is a child's copy (forked.h) */
    struct tutti_comm *next_watched;
};

/* Make the communicator failed with the calling thread's error text (the first call counts), tell
 * the other ranks, return `code`. */
enum tutti_result tti_comm_fail(struct tutti_comm *comm, enum tutti_result code);
/* TUTTI_OK, or the recorded failure restored as this thread's error. */
enum tutti_result tti_comm_check(struct tutti_comm *comm);
/* The same for a new call, which hears of the failure so (tti_comm_spared). */
enum tutti_result tti_comm_works(struct tutti_comm *comm);
/* Look for notices from other ranks and for an abort. On TUTTI_OK nothing is new; else the
 * communicator is failed with what was found. */
enum tutti_result tti_comm_listen(struct tutti_comm *comm);
/* The same for a rank that does nothing at the moment, which is looked at: if something is under
 * way, who does it listens. See tti_comm_spared. */
void tti_comm_listen_idle(struct tutti_comm *comm);
/* A link said that its peer is gone (text in the thread's error). A moment later the bootstrap may
 * know who really died first; prefer its word. Fails the communicator. */
enum tutti_result tti_comm_link_failed(struct tutti_comm *comm, enum tutti_result code);
/* Add what it holds; nothing of it runs meanwhile. */
void tti_comm_holdings(const struct tutti_comm *comm, struct tutti_memory *memory);
/* A region of the library's own: it is mapped, and has a descriptor. NULL is allowed. */
void tti_add_region(const void *region, size_t bytes, struct tutti_memory *memory);
/* What tutti_comm_shrink remembers: its bytes; and its end. */
size_t tti_shrunk_bytes(const struct tutti_comm *comm);
void tti_shrunk_free(struct tutti_comm *comm);
/* Interrupt a sleeping operation. */
void tti_comm_wake(struct tutti_comm *comm);

/* Takes meeting->listen_fd, also if it fails. `family`: that of the communicator that it comes
 * from; 0: none. */
enum tutti_result tti_comm_open(const struct tti_meeting *meeting, int rank, int size,
                                const struct tutti_options *options, uint64_t family,
                                struct tutti_comm **comm);
/* The same with the parent's settings; `members` are the ranks there of who is to come, NULL: all.
 * One of whom the parent knows that it died is not waited for: PEER. */
enum tutti_result tti_comm_open_child(const struct tutti_comm *parent,
                                      const struct tti_meeting *meeting, const int *members,
                                      int rank, int size, struct tutti_comm **comm);

/* Where this rank is to be met by the others for a communicator of their own: the address by which
 * they met before, or loopback if all are on one host; NULL: as TUTTI_IFNAME says. */
const char *tti_comm_meeting_address(const struct tutti_comm *parent);

/* As tutti_comm_destroy; rank 0 waits at most so long for the goodbyes of the others. */
void tti_comm_end(struct tutti_comm *comm, double linger_s);

#endif
