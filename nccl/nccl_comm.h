/* Inside the NCCL door: a communicator, and what the files of this room share.
 *
 * Read in this order: nccl_init.c (communicators are made), nccl_job.c (what takes long),
 * nccl_calls.c (operations), nccl_group.c (what waits for ncclGroupEnd), nccl_end.c (finalize,
 * destroy, abort), nccl_memory.c, nccl_error.c, nccl_settings.c (configurations and NCCL_*
 * variables).
 *
 * Threads: a communicator may be used by several threads at once, and aborted by another. Who works
 * on one has entered it; who ends it waits until all have left. */
#ifndef TTI_NCCL_NCCL_COMM_H
#define TTI_NCCL_NCCL_COMM_H

#pragma GCC visibility push(default)
#include "nccl/include/nccl.h"
#pragma GCC visibility pop

#include "base/error.h"
#include "base/log.h"
#include "coll/door.h"
#include "coll/operation.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* After the definition of pnccl<name>: the usual name, which a program or a tool may take over. */
#define TTI_NCCL_ALSO(name)                     \
    __attribute__((weak, visibility("default"), \
                   alias("pnccl" #name))) extern __typeof__(pnccl##name) nccl##name

enum {
    TTI_NCCL_VERSION = NCCL_VERSION_CODE,
    TTI_NCCL_USER_OPS = 64, /* as many as a communicator of ours has */
    TTI_NCCL_COMM_MAGIC = 0x6c63636e,
};

/* What an operation waits for that was begun and not waited for. */
struct tti_nccl_pending {
    struct tti_nccl_pending *next;
    tutti_request *request;
};

/* A buffer that the program has registered, or made a window of. */
struct tti_nccl_buffer {
    struct tti_nccl_buffer *next;
    void *memory;
    bool ours;            /* tutti_register was called for it */
    tutti_window *window; /* NULL: none, or not made yet */
};

struct ncclComm {
    uint32_t magic;
    unsigned process; /* that made it: tti_nccl_process then */
    int rank, nranks;
    int device; /* of this rank: 0 where there is none */
    bool blocking;
    char name[64];                          /* commName */
    char network[32];                       /* netName */
    ncclConfig_t config;                    /* without pointers */
    const struct tti_gpu_ops *gpu_ops;      /* NULL: host memory only */
    struct tti_gpu *gpu;                    /* simulated device only: */
    tutti_stream stream;                    /* ... what stands in for stream NULL */
    _Atomic(const void *) on_host;          /* without gpu_ops: the last buffer, which is */
    const void *factors[TTI_NCCL_USER_OPS]; /* of operators with a factor in device memory */
    ncclDataType_t factor_types[TTI_NCCL_USER_OPS];

    pthread_mutex_t lock;
    pthread_cond_t changed;
    tutti_comm *tutti;     /* NULL until it is made; after that it stays */
    int inside;            /* threads and jobs that have entered */
    int jobs;              /* ... jobs among them, which the caller did not wait for */
    bool making;           /* its making is not over: whoever waits for that has not taken it yet */
    bool ending;           /* nobody enters any more */
    bool orphan;           /* aborted while it was made: who takes it from its job frees it */
    _Atomic bool given_up; /* aborted, or what it is made of was: who makes it does not wait */
    struct tti_nccl_job *children;    /* that are being made of it */
    bool finalized, revoked;          /* revoked: no error of it is told any more */
    bool suspended;                   /* nccl_suspend.c */
    bool growing;                     /* an id to grow by was made, and is not used up: */
    struct tutti_id grow_id;          /* ... this one */
    ncclResult_t state;               /* the first failure; else ncclSuccess */
    char text[TTI_ERROR_TEXT_BYTES];  /* of that failure */
    struct tti_nccl_pending *pending; /* on host memory, without blocking: oldest first */
    struct tti_nccl_buffer *buffers;
    struct ncclComm *next; /* nccl_end.c: all that live */
};

/* ---- nccl_error.c ---- */

/* Record the text as this thread's, and the process', latest; returns `code`. */
ncclResult_t tti_nccl_fail(ncclResult_t code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same for a result of ours with its text. */
ncclResult_t tti_nccl_result(enum tutti_result result);
/* The code alone. */
ncclResult_t tti_nccl_code(enum tutti_result result);
/* This thread's latest text. */
const char *tti_nccl_text(void);
/* The communicator has failed with this thread's text, unless it had failed before. */
ncclResult_t tti_nccl_comm_failed(struct ncclComm *comm, ncclResult_t code);

/* ---- nccl_variables.c ---- */

/* The variables that have an effect, and those without one (`instead` says what has). */
struct tti_nccl_variable {
    const char *name;
    const char *instead; /* NULL: it has one */
};
extern const struct tti_nccl_variable tti_nccl_variables[];
extern const size_t tti_nccl_variable_count;
/* Read NCCL's files and variables; `log_begin` is called when there may be something to say. */
void tti_nccl_variables_read(void (*log_begin)(void));
/* A list for TUTTI_TRANSPORT, empty for all: NCCL's name of a network (may be NULL), and whether
 * RDMA may be used. */
void tti_nccl_transports(const char *network, bool ib, char *list, size_t room);

/* ---- nccl_settings.c ---- */

/* Write a line as NCCL_DEBUG=INFO does, whatever it is set to. */
void tti_nccl_log_line(const char *text);
/* Read the NCCL_* variables, once. Every function that may be a program's first calls it. */
void tti_nccl_settings(void);
/* Check what the caller gave and fill in *config: its values. NULL: nothing was given, then all are
 * `parent`'s (may be NULL), or undefined. */
ncclResult_t tti_nccl_config(const ncclConfig_t *given, const ncclConfig_t *parent,
                             ncclConfig_t *config);
/* Ours, for a new communicator; `network` is ncclConfig_t.netName, or empty. */
void tti_nccl_options(const char *network, struct tutti_options *options);
/* "NCCL version ..." where NCCL_DEBUG asks for it; once. */
void tti_nccl_print_version(void);
/* The id that NCCL_COMM_ID names. False: the variable is not set. */
bool tti_nccl_id_by_variable(struct tutti_id *id, enum tutti_result *result);

/* ---- nccl_init.c ---- */

/* A new communicator, not enlisted and in no job: settings from `given`, else `parent`'s. */
ncclResult_t tti_nccl_comm_new(int rank, int nranks, const ncclConfig_t *given,
                               const ncclConfig_t *parent, struct ncclComm **comm);
/* What has been made belongs to the communicator, which sets device memory up with the other ranks.
 * Who ends it, or what it is made of, meanwhile aborts what has been made. */
ncclResult_t tti_nccl_comm_take(struct ncclComm *comm, tutti_comm *tutti);
/* A unique id is ours as text, and the rank of those who meet that listens (`root` may be NULL). */
ncclResult_t tti_nccl_id_read(const ncclUniqueId *unique, struct tutti_id *id, int *root);
ncclResult_t tti_nccl_id_write(const struct tutti_id *id, int root, ncclUniqueId *unique);

/* ---- nccl_job.c ---- */

/* Whether a rank that grows knows the id, and from where: it has made it and was not given it
 * again, or the program has passed it. */
enum tti_nccl_grow_id { TTI_NCCL_GROW_NO_ID, TTI_NCCL_GROW_KEPT, TTI_NCCL_GROW_GIVEN };

/* Work that may take long: making a communicator. Runs at once, in a thread of its own (a
 * communicator that does not block), or at the end of the group beside others. */
struct tti_nccl_job {
    struct tti_nccl_job *next;
    struct tti_nccl_job *after; /* of the same group and links: one thread runs both, in order */
    ncclResult_t (*run)(struct tti_nccl_job *job);
    struct ncclComm *comm;        /* the new one */
    struct ncclComm *parent;      /* entered; or NULL */
    struct tti_nccl_job *sibling; /* in its list */
    bool told;                    /* under its lock: what the job makes was aborted with it */
    ncclComm_t *handle;           /* where the caller has it */
    struct tutti_id id;
    int color, key;
    int *excluded; /* own */
    int excludes;
    bool abort_parent;
    bool lives;   /* the communicator exists already, and stays: not what the job makes */
    bool counted; /* ... and it is among its jobs */
    bool apart;   /* in a thread of its own: the parent is not ready either meanwhile */
    struct tti_nccl_window_wish *wishes; /* windows to be made, in the order of the calls */
    enum tti_nccl_grow_id has_id;        /* growing: whether this rank has the id */
    int root;                            /* ... and which rank has listened for it */
    pthread_t thread;
    bool has_thread;
    ncclResult_t result;
    char text[TTI_ERROR_TEXT_BYTES];
};
/* Does the caller wait for it? As with NCCL the communicator says so that there is: a parent goes
 * before its child. */
static inline bool tti_nccl_job_waits(const struct tti_nccl_job *job)
{
    return (job->parent ? job->parent : job->comm)->blocking;
}

ncclResult_t tti_nccl_job_new(struct ncclComm *comm, ncclComm_t *handle,
                              ncclResult_t (*run)(struct tti_nccl_job *),
                              struct tti_nccl_job **job);
/* Run, record how it went, leave the parent, and the communicator if it was there before. */
void tti_nccl_job_run(struct tti_nccl_job *job);
void tti_nccl_job_free(struct tti_nccl_job *job);
/* The job wants nothing more of its parent, if it has one. */
void tti_nccl_job_leave_parent(struct tti_nccl_job *job);
/* After that, or instead, for a caller who waited: hand over the communicator, or free it; frees
 * the job. Until then a new communicator is being made, for whoever ends it meanwhile. */
ncclResult_t tti_nccl_job_finish(struct tti_nccl_job *job);
/* Now, or at the end of the group. Takes the job. */
ncclResult_t tti_nccl_job_submit(struct tti_nccl_job *job);
/* The same for a job of a communicator that exists, and has been entered for it. */
ncclResult_t tti_nccl_job_submit_living(struct tti_nccl_job *job);
/* In a thread that nobody waits for, with those after it. Takes them. */
ncclResult_t tti_nccl_job_start(struct tti_nccl_job *job);

/* ---- nccl_end.c ---- */

/* Into the list of all, and out of it. */
void tti_nccl_comm_enlist(struct ncclComm *comm);
/* End one that nobody has entered and nobody will enter: what it holds, and its memory. */
void tti_nccl_comm_release(struct ncclComm *comm);
/* The rest of ncclCommAbort, which the group's end does (tti_nccl_group_ends). */
ncclResult_t tti_nccl_comm_end_aborted(struct ncclComm *comm);
/* For a call of `what` on `comm`, which must be ready: not being made, not ended. On ncclSuccess
 * leave afterwards. */
ncclResult_t tti_nccl_enter(struct ncclComm *comm, const char *what);
/* The same where being suspended does not matter. */
ncclResult_t tti_nccl_enter_suspended(struct ncclComm *comm, const char *what);
/* For what only its lists are needed for, as registration: it has to be there, and may be finalized
 * or busy. */
ncclResult_t tti_nccl_enter_lists(struct ncclComm *comm, const char *what);
void tti_nccl_leave(struct ncclComm *comm);
/* Counts the forks between the first process and this one. A child shares sockets and memory with
 * its parent: were it to end a communicator of its parent's, the others would hear a goodbye. */
unsigned tti_nccl_process(void);
void tti_nccl_forks_begin(void);
/* Is it a communicator at all, and of this process? */
ncclResult_t tti_nccl_comm_check(const struct ncclComm *comm, const char *what);
/* Take in what is over of `pending`; all of it if `wait`. */
ncclResult_t tti_nccl_pending_collect(struct ncclComm *comm, bool wait);

/* ---- nccl_calls.c ---- */

/* One operation as the program gave it. */
struct tti_nccl_call {
    enum tutti_collective collective;
    enum tti_alone alone; /* nccl_one_sided.c */
    const void *in;
    void *out;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int root; /* or peer */
    bool receives;
    struct ncclComm *comm;
    tutti_stream stream;
    tutti_window *window; /* of a put */
    size_t offset;
    int signal;
    uint64_t signals; /* to wait for */
};
/* Run it, queue it, or add it to the group. */
ncclResult_t tti_nccl_call(struct tti_nccl_call call);

/* ---- nccl_one_sided.c: such a call that is a put, a signal, a wait ---- */

enum tutti_result tti_nccl_alone_plain(const struct tti_nccl_call *call);
enum tutti_result tti_nccl_alone_async(const struct tti_nccl_call *call, tutti_stream stream,
                                       tutti_request **request);

/* ---- nccl_group.c ---- */

bool tti_nccl_group_open(void);
void tti_nccl_group_add_job(struct tti_nccl_job *job);
/* The group's job of that kind for the communicator, or NULL. */
struct tti_nccl_job *tti_nccl_group_job(const struct ncclComm *comm,
                                        ncclResult_t (*run)(struct tti_nccl_job *));
/* Whether the calling thread's group, when it ends, will make the communicator. */
bool tti_nccl_group_makes(const struct ncclComm *comm);
/* An operation of `collective` was added for the communicator (nccl_calls.c). */
ncclResult_t tti_nccl_group_note(const struct tti_nccl_call *call);
/* The communicator was aborted and shall be ended with the group. False: there is none, or no
 * memory for that. */
bool tti_nccl_group_ends(struct ncclComm *comm);
/* Where the request of an operation in the group shall go. NULL: no memory. */
tutti_request **tti_nccl_group_request(struct ncclComm *comm);
/* A call within the group failed: the group will. */
ncclResult_t tti_nccl_group_failed(ncclResult_t code);

/* ---- nccl_memory.c ---- */

/* The device that the calling thread has current; 0 where there is none. Loads NVIDIA's driver in a
 * process that has CUDA's runtime. */
int tti_nccl_current_device(void);
/* Is that device memory, of a driver that was loaded when the communicators for host memory alone
 * had been made? */
bool tti_nccl_late_device(const void *address);
/* What the program has not deregistered, once ours (which ends its windows) is gone. */
void tti_nccl_buffers_free(struct ncclComm *comm);
/* The window of that handle; NULL: it is none of the communicator. */
tutti_window *tti_nccl_window(struct ncclComm *comm, ncclWindow_t handle);
/* The job that makes windows does not run after all: nothing that it was asked for stays
 * registered, since the program has no handle of it. */
void tti_nccl_wishes_deny(struct tti_nccl_job *job);
void tti_nccl_wishes_free(struct tti_nccl_window_wish *wishes);

/* ---- nccl_suspend.c ---- */

/* The job will not run: if it was to resume, its communicator stays suspended. */
void tti_nccl_resume_deny(struct tti_nccl_job *job);

#endif
