/* Tutti: collective communication for processes, threads, hosts and GPUs.
 * The header goes from simple to expert: results, a communicator, the operations, memory, groups,
 * then what few programs need. What it brings at its end: uneven.h, the collectives on blocks that
 * differ in size; windows.h, to write into another rank's memory without a call there. A complete
 * program is in the README; examples/ has more. Rules that hold everywhere:
 *  - Every function that can fail returns `enum tutti_result`. Outputs come last and are written
 *    only on TUTTI_OK. tutti_last_error() explains the calling thread's latest failure: what was
 *    tried, on what, and what to do.
 *  - A communicator is used by one rank. Ranks are processes or threads. Calls on one communicator
 *    may come from several threads, but all ranks must issue collectives in the same order.
 *  - Every wait has a deadline (tutti_options.timeout_s). A peer that dies, stalls or calls
 *    something else ends in an error that names it, on every rank.
 *  - The library never exits, aborts or prints uninvited (TUTTI_LOG=info invites it).
 *  - A child made by fork has no part in its parent's communicators: calls fail there with
 *    TUTTI_ERR_USAGE, and tutti_comm_destroy does nothing. It may make its own.
 */
#ifndef TUTTI_TUTTI_H
#define TUTTI_TUTTI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_VERSION_MAJOR 0
#define TUTTI_VERSION_MINOR 1
#define TUTTI_VERSION_PATCH 0

#if defined(__GNUC__)
#define TUTTI_API __attribute__((visibility("default")))
#else
#define TUTTI_API
#endif

/* ---- Results -------------------------------------------------------------------------------- */

/* Grouped by what is damaged. Numbers are stable. */
enum tutti_result {
    TUTTI_OK = 0,
    TUTTI_IN_PROGRESS = 1, /* not an error: not finished yet (tutti_test) */
    /* The call: nothing was started, the communicator is as before. */
    TUTTI_ERR_ARGUMENT = 10,    /* an argument is out of range or inconsistent */
    TUTTI_ERR_UNSUPPORTED = 11, /* legal, but not available in this build or on this machine */
    TUTTI_ERR_USAGE = 12,       /* right call, wrong moment or wrong environment */
    /* A local resource. */
    TUTTI_ERR_MEMORY = 20, /* an allocation failed */
    TUTTI_ERR_SYSTEM = 21, /* a system call failed; the text has its name, object and errno */
    /* A link or a peer: the communicator is failed from here on. */
    TUTTI_ERR_LINK = 30,     /* a connection could not be made or broke */
    TUTTI_ERR_PEER = 31,     /* a peer process died or left; the text names it */
    TUTTI_ERR_TIMEOUT = 32,  /* a deadline passed; the text names who was waited for */
    TUTTI_ERR_MISMATCH = 33, /* ranks called different operations; the text shows both sides */
    TUTTI_ERR_PROTOCOL = 34, /* a peer sent what no Tutti of this version sends */
    /* The communicator. */
    TUTTI_ERR_ABORTED = 40, /* tutti_comm_abort was called, here or on another rank */
    /* A bug in Tutti. */
    TUTTI_ERR_INTERNAL = 50,
};

/* One short English phrase for a code; never NULL. Static storage. */
TUTTI_API const char *tutti_result_text(enum tutti_result result);

/* What the calling thread's latest failed Tutti call had to say; "" if none failed. The text lives
 * until this thread's next failing call. */
TUTTI_API const char *tutti_last_error(void);

/* The version of the library in use, as major * 10000 + minor * 100 + patch. */
TUTTI_API int tutti_version(void);

/* ---- Types and operators -------------------------------------------------------------------- */

/* Element types. 16- and 8-bit floats accumulate in float32 and are rounded once, at the end. */
enum tutti_type {
    TUTTI_INT8 = 0,
    TUTTI_UINT8 = 1,
    TUTTI_INT32 = 2,
    TUTTI_UINT32 = 3,
    TUTTI_INT64 = 4,
    TUTTI_UINT64 = 5,
    TUTTI_FLOAT16 = 6,
    TUTTI_FLOAT32 = 7,
    TUTTI_FLOAT64 = 8,
    TUTTI_BFLOAT16 = 9,
    TUTTI_FLOAT8_E4M3 = 10, /* OCP E4M3 (finite, one NaN); values beyond 448 saturate */
    TUTTI_FLOAT8_E5M2 = 11, /* OCP E5M2 (has infinities) */
    TUTTI_TYPE_COUNT = 12,
};

/* Reduction operators. Integers wrap. MIN and MAX propagate NaN and order -0 before +0, so that the
 * result does not depend on the order of operands. AVG divides the sum by the number of ranks
 * (integers truncate toward zero). Values from TUTTI_OP_USER up are made by
 * tutti_premul_sum_create. */
enum tutti_op {
    TUTTI_SUM = 0,
    TUTTI_PROD = 1,
    TUTTI_MAX = 2,
    TUTTI_MIN = 3,
    TUTTI_AVG = 4,
    TUTTI_OP_COUNT = 5,
    TUTTI_OP_USER = 1024,
};

/* Bytes of one element; 0 for a value that is no type. */
TUTTI_API size_t tutti_type_size(enum tutti_type type);
/* "float32", "bfloat16", ...; "unknown type" otherwise. */
TUTTI_API const char *tutti_type_name(enum tutti_type type);
/* "sum", "prod", ...; "premulsum" from TUTTI_OP_USER up; "unknown operator" otherwise. */
TUTTI_API const char *tutti_op_name(enum tutti_op op);

/* ---- Communicator --------------------------------------------------------------------------- */

typedef struct tutti_comm tutti_comm;
typedef struct tutti_request tutti_request;
/* Order of device work; a cudaStream_t for GPU memory, NULL for the default stream. Host memory:
 * NULL. */
typedef void *tutti_stream;

/* Names a rendezvous. Printable text, NUL-terminated: send it to the other ranks any way you like
 * (a file, an environment variable, MPI_Bcast). It contains a secret of the job. */
struct tutti_id {
    char text[256];
};

/* Settings of one communicator. Start from TUTTI_OPTIONS_INIT; zero or NULL means "as the
 * environment says, else the default". Strings are copied. */
struct tutti_options {
    size_t size;            /* sizeof(struct tutti_options): lets the struct grow */
    double timeout_s;       /* deadline of each operation, seconds (TUTTI_TIMEOUT; 300) */
    double init_timeout_s;  /* deadline for all ranks to arrive (TUTTI_INIT_TIMEOUT; 60) */
    const char *transports; /* comma list of those allowed (TUTTI_TRANSPORT; all, best first) */
    const char *algorithms; /* "ring" or "all_reduce=ring,broadcast=tree" (TUTTI_ALGO; chosen) */
    int lanes;              /* parallel lanes per peer, 1..16 (TUTTI_LANES; chosen) */
    const char *plugins;    /* colon list of transport .so files (TUTTI_PLUGINS; none) */
    int reproducible;       /* 1: the reproducible mode, see Operations (TUTTI_REPRODUCIBLE; off) */
};
#define TUTTI_OPTIONS_INIT                                \
    {                                                     \
        sizeof(struct tutti_options), 0, 0, 0, 0, 0, 0, 0 \
    }

/* Make an id, and hold a port of this host until rank 0 comes, or this process ends. `address` is
 * the interface address or host name that the others can reach, or NULL for the best guess
 * (TUTTI_IFNAME narrows it; loopback when there is no other). Ranks may be on any host; where rank
 * 0 is not on this one, this process tells them where it is, and must live until all have come. */
TUTTI_API enum tutti_result tutti_id_create(const char *address, struct tutti_id *id);

/* Create a communicator of `size` ranks; collective over all of them. Returns when all have
 * arrived, or with TUTTI_ERR_TIMEOUT and the list of missing ranks. `options` may be NULL. */
TUTTI_API enum tutti_result tutti_comm_create(const struct tutti_id *id, int rank, int size,
                                              const struct tutti_options *options,
                                              tutti_comm **comm);

/* The same with rank, size and address from the launcher's environment: tuttirun, torchrun, Slurm,
 * Open MPI, MPICH/Hydra or PMIx. Without any launcher: a communicator of one rank. A partial or
 * contradictory set of variables is refused by name (TUTTI_ERR_USAGE). */
TUTTI_API enum tutti_result tutti_comm_create_from_env(const struct tutti_options *options,
                                                       tutti_comm **comm);

/* Split into one communicator per colour, ranked by (key, old rank); collective. A negative colour
 * takes part and gets *comm = NULL. TUTTI_ERR_PEER names one that died, also on the way. */
TUTTI_API enum tutti_result tutti_comm_split(tutti_comm *parent, int color, int key,
                                             tutti_comm **comm);

/* A new communicator of all ranks but those excluded, in the same order: what survivors of a
 * failure go on with. All others call it with the same list, and in the same order if several
 * times; the excluded need not live. Works on a communicator that has failed or was aborted, sends
 * nothing over it, and leaves it to be destroyed. TUTTI_ERR_PEER names one not excluded of whom the
 * parent knows that it died (tutti_comm_dead), also while the others wait for it;
 * TUTTI_ERR_TIMEOUT names survivors that did not call. They meet at the lowest survivor, by an
 * address and a secret worked out from what all have known before. */
TUTTI_API enum tutti_result tutti_comm_shrink(tutti_comm *parent, const int *excluded, int count,
                                              tutti_comm **comm);

/* The ranks that are known to have died, for tutti_comm_shrink: at most `capacity` into `ranks`, in
 * order, their number into *count. A death is known some milliseconds after it, to all survivors,
 * though not at the same moment; of deaths after that of rank 0 only the failed operations tell.
 * Local, any thread, never blocks. */
TUTTI_API enum tutti_result tutti_comm_dead(tutti_comm *comm, int *ranks, int capacity, int *count);

/* Wait for operations in flight, tell the peers, release everything. NULL is allowed. Requests of
 * the communicator must have been waited on. Not collective: bounded, whatever the peers do. Memory
 * on a GPU is free again at once where the process's ranks are no threads of it; where they are,
 * when a thread destroys a communicator, or begins with or waits for operations on device memory,
 * while no communicator of the process has operations under way on its GPUs. */
TUTTI_API void tutti_comm_destroy(tutti_comm *comm);

/* Fail all operations in flight and to come, here and on the other ranks, with TUTTI_ERR_ABORTED
 * and `reason` (may be NULL). Local and bounded; callable from any thread. The communicator must
 * still be destroyed. */
TUTTI_API void tutti_comm_abort(tutti_comm *comm, const char *reason);

/* TUTTI_OK while the communicator works; else the error that it failed with (text in
 * tutti_last_error). Never blocks. */
TUTTI_API enum tutti_result tutti_comm_error(tutti_comm *comm);

/* Say whether operations of this communicator run beside computation that wants the same cores (no
 * by default). If so, a thread that waits in one of them sleeps until something comes, instead of
 * polling for it first: an answer is noticed some 10 us later where cores are idle, and far sooner
 * where they are not, since who polls uses up its share of a core. Results are the same. Local; any
 * thread, at any time; communicators split off later do not inherit it. */
TUTTI_API enum tutti_result tutti_comm_background(tutti_comm *comm, bool background);

/* Write what this rank did last on the communicator, as JSON, for tutti-dump (docs/debugging.md has
 * the format). In `path` %r is the rank, %p the pid, %c the number of the communicator; without %r,
 * ".rank" is appended. Any thread, at any time: operations go on meanwhile, and nobody is waited
 * for. TUTTI_DUMP names such a path for communicators that fail. Errors: USAGE (TUTTI_RECORDER is
 * 0), SYSTEM (the file). */
TUTTI_API enum tutti_result tutti_comm_dump(tutti_comm *comm, const char *path);

TUTTI_API int tutti_comm_rank(const tutti_comm *comm);       /* 0 .. size-1 */
TUTTI_API int tutti_comm_size(const tutti_comm *comm);       /* number of ranks */
TUTTI_API int tutti_comm_local_rank(const tutti_comm *comm); /* 0 .. local_size-1, on this host */
TUTTI_API int tutti_comm_local_size(const tutti_comm *comm); /* ranks of comm on this host */
TUTTI_API int tutti_comm_hosts(const tutti_comm *comm);      /* number of hosts */
/* 0 .. hosts-1: on which of them a rank is; numbered by their lowest ranks. -1: there is no such
 * rank. */
TUTTI_API int tutti_comm_host(const tutti_comm *comm, int rank);
/* "host:pid" of any rank of the communicator, as error messages name it. */
TUTTI_API const char *tutti_comm_rank_name(const tutti_comm *comm, int rank);
/* Name of the transport towards `peer` ("shm", "tcp", ...; "self" for the own rank). */
TUTTI_API const char *tutti_comm_transport(tutti_comm *comm, int peer);
/* Is the reproducible mode on (Operations)? */
TUTTI_API bool tutti_comm_reproducible(const tutti_comm *comm);

/* ---- Operations ----------------------------------------------------------------------------- *
 * n = number of ranks, r = own rank, in_r / out_r = buffers of rank r, `count` in elements.
 *
 * Device memory (CUDA): buffers are asked what they are. A call is one on device memory if a buffer
 * is device or managed memory, or if a stream is given with page-locked memory; it is then the same
 * on all ranks, and all buffers are of these kinds. A barrier is one if it has a stream. Such calls
 * are queued on the stream and return; the first collective also waits for all ranks once. They may
 * be captured into graphs (without request), the first ones, too; whoever launches a graph orders
 * it with other calls of the communicator. Each rank uses one device; ranks of one process that
 * share a device need streams of their own. A failure shows in tutti_wait, tutti_comm_error and
 * later calls. Calls on host memory wait for those on device memory before them where both use the
 * host's links.
 *
 * The plain form blocks until the result is in place (for device memory: queues on the default
 * stream). The _async form returns at once: with a request to test and wait on, and in the order of
 * `stream` for device memory (host memory: stream NULL). Buffers belong to the library until then.
 * `request` may be NULL only with a stream. Operations on one communicator run in the order of the
 * calls.
 *
 * Where ranks of one process share a device, an _async call waits (in the library, and holding
 * nothing up) while its stream has some 500 commands before it: a device's driver would wait inside
 * at some 1000, and might let no other thread in. An operation has a few commands, or, with many
 * ranks or passes, hundreds. So let one thread that calls for several of these ranks, or that
 * itself sets what a stream waits for, not call so far ahead on one stream: TIMEOUT, and nothing
 * was queued. The caller's own commands on the stream are not counted.
 *
 * Every operation has the same bits on every rank that gets the result, and from run to run. Count
 * 0 is legal and does nothing. Unaligned buffers are legal. In place: as said for each.
 *
 * The reproducible mode (tutti_options.reproducible, alike on all ranks): every element is combined
 * in the order of ranks, ((in_0 op in_1) op in_2) ..., in the accumulator type, and averaged and
 * rounded once. So it has the same bits whatever the algorithm, lanes, transport, hosts, kind of
 * memory, alignment and place in the buffer, and whether it comes from an all-reduce, a reduce or a
 * reduce-scatter. Ranks count: the same contributions dealt to other ranks, or to another number of
 * them, are another sum. A NaN that arithmetic makes is the positive quiet NaN without payload, in
 * every mode; one that is only moved keeps its bits. Algorithms that cannot keep the order are not
 * taken, and refused by name. */

/* out_r[i] = in_0[i] op ... op in_{n-1}[i]. In place: in == out. */
TUTTI_API enum tutti_result tutti_all_reduce(const void *in, void *out, size_t count,
                                             enum tutti_type type, enum tutti_op op,
                                             tutti_comm *comm);
TUTTI_API enum tutti_result tutti_all_reduce_async(const void *in, void *out, size_t count,
                                                   enum tutti_type type, enum tutti_op op,
                                                   tutti_comm *comm, tutti_stream stream,
                                                   tutti_request **request);

/* out_r[i] = in_root[i]. `in` is read at the root only. In place: in == out. */
TUTTI_API enum tutti_result tutti_broadcast(const void *in, void *out, size_t count,
                                            enum tutti_type type, int root, tutti_comm *comm);
TUTTI_API enum tutti_result tutti_broadcast_async(const void *in, void *out, size_t count,
                                                  enum tutti_type type, int root, tutti_comm *comm,
                                                  tutti_stream stream, tutti_request **request);

/* out_root[i] = in_0[i] op ...; `out` is written at the root only. In place: in == out at root. */
TUTTI_API enum tutti_result tutti_reduce(const void *in, void *out, size_t count,
                                         enum tutti_type type, enum tutti_op op, int root,
                                         tutti_comm *comm);
TUTTI_API enum tutti_result tutti_reduce_async(const void *in, void *out, size_t count,
                                               enum tutti_type type, enum tutti_op op, int root,
                                               tutti_comm *comm, tutti_stream stream,
                                               tutti_request **request);

/* `in` has n blocks of `count`, `out` one: out_r[i] = in_0[r*count+i] op ... In place:
 * out == in + r*count. */
TUTTI_API enum tutti_result tutti_reduce_scatter(const void *in, void *out, size_t count,
                                                 enum tutti_type type, enum tutti_op op,
                                                 tutti_comm *comm);
TUTTI_API enum tutti_result tutti_reduce_scatter_async(const void *in, void *out, size_t count,
                                                       enum tutti_type type, enum tutti_op op,
                                                       tutti_comm *comm, tutti_stream stream,
                                                       tutti_request **request);

/* `in` has one block of `count`, `out` n: out_r[k*count+i] = in_k[i]. In place:
 * in == out + r*count. */
TUTTI_API enum tutti_result tutti_all_gather(const void *in, void *out, size_t count,
                                             enum tutti_type type, tutti_comm *comm);
TUTTI_API enum tutti_result tutti_all_gather_async(const void *in, void *out, size_t count,
                                                   enum tutti_type type, tutti_comm *comm,
                                                   tutti_stream stream, tutti_request **request);

/* n blocks of `count` in and out: out_r[k*count+i] = in_k[r*count+i]. In place: in == out. */
TUTTI_API enum tutti_result tutti_all_to_all(const void *in, void *out, size_t count,
                                             enum tutti_type type, tutti_comm *comm);
TUTTI_API enum tutti_result tutti_all_to_all_async(const void *in, void *out, size_t count,
                                                   enum tutti_type type, tutti_comm *comm,
                                                   tutti_stream stream, tutti_request **request);

/* out_root[k*count+i] = in_k[i]; `out` (n blocks) at the root only. In place at the root:
 * in == out + root*count. */
TUTTI_API enum tutti_result tutti_gather(const void *in, void *out, size_t count,
                                         enum tutti_type type, int root, tutti_comm *comm);
TUTTI_API enum tutti_result tutti_gather_async(const void *in, void *out, size_t count,
                                               enum tutti_type type, int root, tutti_comm *comm,
                                               tutti_stream stream, tutti_request **request);

/* out_r[i] = in_root[r*count+i]; `in` (n blocks) at the root only. In place at the root:
 * out == in + root*count. */
TUTTI_API enum tutti_result tutti_scatter(const void *in, void *out, size_t count,
                                          enum tutti_type type, int root, tutti_comm *comm);
TUTTI_API enum tutti_result tutti_scatter_async(const void *in, void *out, size_t count,
                                                enum tutti_type type, int root, tutti_comm *comm,
                                                tutti_stream stream, tutti_request **request);

/* Point to point: counts, types and kinds of memory (host or device) must agree on both sides; a
 * count of 0 has no kind, and where all ranks have a device in use it waits for nobody. Who both
 * sends and receives does so inside a group, else two ranks may wait for each other: a send is over
 * when `in` is the caller's again, which may be when the peer has received it. */
TUTTI_API enum tutti_result tutti_send(const void *in, size_t count, enum tutti_type type, int peer,
                                       tutti_comm *comm);
TUTTI_API enum tutti_result tutti_send_async(const void *in, size_t count, enum tutti_type type,
                                             int peer, tutti_comm *comm, tutti_stream stream,
                                             tutti_request **request);
TUTTI_API enum tutti_result tutti_recv(void *out, size_t count, enum tutti_type type, int peer,
                                       tutti_comm *comm);
TUTTI_API enum tutti_result tutti_recv_async(void *out, size_t count, enum tutti_type type,
                                             int peer, tutti_comm *comm, tutti_stream stream,
                                             tutti_request **request);

/* Returns when every rank has called it. */
TUTTI_API enum tutti_result tutti_barrier(tutti_comm *comm);
TUTTI_API enum tutti_result tutti_barrier_async(tutti_comm *comm, tutti_stream stream,
                                                tutti_request **request);

/* ---- Requests ------------------------------------------------------------------------------- */

/* TUTTI_IN_PROGRESS, or the operation's result. Does not release the request. */
TUTTI_API enum tutti_result tutti_test(tutti_request *request);
/* Block until the operation is over, release the request, return its result. NULL returns OK. On
 * device memory, once the communicator has failed, at most 10 s: the error's text says if the
 * device may yet write to the buffers. */
TUTTI_API enum tutti_result tutti_wait(tutti_request *request);
/* Wait for all, release all; returns the first error in the order of the array. */
TUTTI_API enum tutti_result tutti_wait_all(tutti_request **requests, size_t count);

/* ---- Groups --------------------------------------------------------------------------------- */

/* Calls of this thread between start and end are collected and run together at the end: all sends
 * and receives of a communicator at once, collectives in the order of the calls. Groups nest; the
 * outermost end runs them. Errors of the collected calls are reported by tutti_group_end. Calls
 * that exchange something among the ranks themselves (tutti_comm_split, tutti_window_create,
 * tutti_ddp_*) give TUTTI_ERR_USAGE inside a group, and a group of whose communicators one is
 * destroyed before its end fails there, with nothing run. Sends and receives that run at once may
 * have several streams: they come after what all of these have, and all of them wait. On device
 * memory the end waits for room on the streams (see the operations) before it queues the calls, if
 * they are of several communicators, and then no more: keep such groups below some 400 commands a
 * stream. */
TUTTI_API enum tutti_result tutti_group_start(void);
TUTTI_API enum tutti_result tutti_group_end(void);

/* ---- Memory --------------------------------------------------------------------------------- */

/* Memory that peers on this host can read and write directly: the fastest kind for collectives.
 * Page-aligned, zeroed. Free with tutti_free. bytes = 0 gives a valid, empty allocation.
 *
 * An operation that fails takes such memory back from ranks that may still work in it, if need be
 * by new pages at the same addresses: while a call is failing, no other thread may write to an
 * allocation (or registration) that the call uses, and no other communicator may use it. A device
 * that has page-locked them goes on with the pages before: page-lock them anew after a failure. */
TUTTI_API enum tutti_result tutti_alloc(size_t bytes, void **memory);
TUTTI_API void tutti_free(void *memory);

/* Make memory of your own as fast. Its whole pages move into a shared object, at the same
 * addresses and with the same contents; no other thread may touch them during the two calls.
 * Memory from mmap or malloc qualifies; parts of pages at either end stay as they are, which costs
 * half a microsecond an operation, and all the gain below 32 KiB: whole pages (aligned_alloc) are
 * as fast as memory of tutti_alloc. Deregister before freeing. Child processes made by fork share
 * the pages until then. Refused (TUTTI_ERR_ARGUMENT) for what is page-locked for a device, which
 * would not follow: page-lock it (cudaHostRegister) afterwards. */
TUTTI_API enum tutti_result tutti_register(void *memory, size_t bytes);
TUTTI_API enum tutti_result tutti_deregister(void *memory);

/* ---- Expert --------------------------------------------------------------------------------- */

/* An operator that sums in_k[i] * scalar_k, each rank with its own scalar of type `type` (a host
 * pointer, copied). Valid on this communicator until destroyed. */
TUTTI_API enum tutti_result tutti_premul_sum_create(tutti_comm *comm, enum tutti_type type,
                                                    const void *scalar, enum tutti_op *op);
TUTTI_API enum tutti_result tutti_op_destroy(tutti_comm *comm, enum tutti_op op);

/* The collectives by number, for queries. */
enum tutti_collective {
    TUTTI_ALL_REDUCE = 0,
    TUTTI_BROADCAST = 1,
    TUTTI_REDUCE = 2,
    TUTTI_REDUCE_SCATTER = 3,
    TUTTI_ALL_GATHER = 4,
    TUTTI_ALL_TO_ALL = 5,
    TUTTI_GATHER = 6,
    TUTTI_SCATTER = 7,
    TUTTI_BARRIER = 8,
    TUTTI_SEND_RECV = 9,
    TUTTI_COLLECTIVE_COUNT = 10,
};
/* "all_reduce", "broadcast", ...; "unknown collective" otherwise. */
TUTTI_API const char *tutti_collective_name(enum tutti_collective collective);

/* A way of doing an operation, and what it is predicted to take. */
struct tutti_choice {
    char algorithm[32]; /* as TUTTI_ALGO takes it */
    char path[16];      /* "plan" is interpreted; "fused": hand-written for mapped memory */
    int lanes;
    int slices;
    double predicted_us; /* by the cost model, corrected by what was measured on this machine */
    double modelled_us;  /* by the cost model alone */
    bool measured;       /* tutti-tune measured this way near this size */
};
/* What the library would run for an operation of this size on memory that all ranks can map (from
 * tutti_alloc or tutti_register). `count` as in the operation's call. Waits for the operation in
 * flight, starts none. */
TUTTI_API enum tutti_result tutti_comm_choice(tutti_comm *comm, enum tutti_collective collective,
                                              size_t count, enum tutti_type type,
                                              struct tutti_choice *choice);
/* The ways that the choice is among, the one taken first: at most `capacity` of them into
 * `choices`, their number into *found. Memory that all ranks can map, or other memory. For the
 * latter the one taken need not be the quickest: where the best way for memory that can be mapped
 * does not look whether it is, that one is taken for any. */
TUTTI_API enum tutti_result tutti_comm_choices(tutti_comm *comm, enum tutti_collective collective,
                                               size_t count, enum tutti_type type, bool mapped,
                                               struct tutti_choice *choices, int capacity,
                                               int *found);
/* The file that corrects the cost model (TUTTI_TUNING; tutti-tune writes it), or "none" and why. */
TUTTI_API const char *tutti_comm_tuning(const tutti_comm *comm);

/* What a communicator holds on this rank at the moment. Callers' buffers, what the process shares
 * between communicators, and stacks of threads are not in it. */
struct tutti_memory {
    size_t host;        /* bytes from malloc */
    size_t shared;      /* bytes of segments and work space that peers map too: address space ... */
    size_t shared_used; /* ... and of these in memory, because some rank has touched the page */
    size_t mapped;   /* bytes of peers' buffers mapped here: address space, no memory of its own */
    int descriptors; /* open files, sockets included */
    size_t device;   /* bytes of device memory */
    size_t pinned;   /* bytes of page-locked host memory: what a device tells, and staging */
};
/* Waits for the operation in flight, starts none. Segments are shared by two ranks, which both
 * count all of them. */
TUTTI_API enum tutti_result tutti_comm_memory(tutti_comm *comm, struct tutti_memory *memory);

/* Name number `index` of the algorithms for a collective, or NULL past the end. */
TUTTI_API const char *tutti_algorithm_name(enum tutti_collective collective, int index);
/* Name number `index` of the built-in transports, best first, or NULL past the end. */
TUTTI_API const char *tutti_transport_name(int index);

#ifdef __cplusplus
}
#endif

#include "tutti/uneven.h"
#include "tutti/windows.h"

#endif
