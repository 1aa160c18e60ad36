/* A GPU behind a plain C interface: one table of operations, two implementations. `cuda` drives
 * NVIDIA GPUs through the driver that is found at run time; `sim` runs the same kernels on the CPU,
 * for tests and for trying things out where there is no GPU. Design: README.md. Next: kernel_args.h
 * (what a kernel is given), cuda/cuda_gpu.c and sim/sim_gpu.c (the two tables).
 *
 * Rules for every operation unless its comment says otherwise: any thread may call it; it does not
 * block; it works whatever device the calling thread has current, and leaves that as it was; it
 * fails with TUTTI_ERR_SYSTEM for an error of the driver, TUTTI_ERR_MEMORY when memory ran out,
 * TUTTI_ERR_UNSUPPORTED for what this device cannot do, TUTTI_ERR_ARGUMENT for a handle or pointer
 * of the wrong kind. Work on a stream runs in the order of the calls, after they returned. Stream
 * NULL is the device's default stream. A stream under capture records instead of running; what may
 * be captured says so ("captured"). All else may be called while streams are under capture, as long
 * as it does not wait for them. */
#ifndef TTI_DEVICE_GPU_H
#define TTI_DEVICE_GPU_H

#include "base/error.h"
#include "device/kernel_args.h"
#include "tutti/tutti.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tti_memory_kind {
    TTI_MEMORY_HOST,    /* unknown to the device */
    TTI_MEMORY_PINNED,  /* of the host, page-locked, mapped by the device at the same address */
    TTI_MEMORY_DEVICE,  /* the host may not touch it */
    TTI_MEMORY_MANAGED, /* migrates; both may touch it */
};

/* What is known of an address. */
struct tti_gpu_pointer {
    enum tti_memory_kind kind;
    int device;   /* where it lies (PINNED: who registered it); -1 for HOST */
    void *base;   /* of its allocation; NULL for HOST */
    size_t bytes; /* of its allocation */
    uint64_t id;  /* of its allocation, never used again in this process: a key for caches */
};

enum { TTI_GPU_PCI_BYTES = 32 };

struct tti_gpu_properties {
    char name[64];
    char pci[TTI_GPU_PCI_BYTES]; /* "0000:3b:00.0" */
    char software[96];           /* versions of what drives it, for people; may be empty */
    unsigned char uuid[16];      /* equal in all processes of a host */
    int sms;                     /* multiprocessors */
    int threads_per_sm;
    size_t shared_per_block; /* bytes of shared memory that a block may ask for */
    size_t memory_bytes, l2_bytes;
    int compute_major, compute_minor;
    bool multicast;     /* can be member of a multicast object (NVLS) */
    bool stream_values; /* has stream_write and stream_wait */
    bool registered;    /* kernels reach memory given to host_register, by the host's address */
};

/* One device, opened by this process. Implementations append to it. */
struct tti_gpu {
    const struct tti_gpu_ops *ops;
    int device;
    uint64_t context; /* what it was opened in: memory goes with that */
    struct tti_gpu_properties properties;
    _Atomic uint64_t commands; /* that went to its streams so far, captured ones, too */
};

static inline void tti_gpu_count(struct tti_gpu *gpu)
{
    atomic_fetch_add_explicit(&gpu->commands, 1, memory_order_relaxed);
}

/* CUDA's name for the default stream of the thread that uses it (CU_STREAM_PER_THREAD): in two
 * threads two streams. */
#define TTI_STREAM_PER_THREAD ((tutti_stream)(uintptr_t)2)
/* ... and for the one of all threads, which is NULL, too (CU_STREAM_LEGACY). */
#define TTI_STREAM_LEGACY ((tutti_stream)(uintptr_t)1)

struct tti_gpu_event;     /* a point in a stream */
struct tti_gpu_graph;     /* captured work, ready to run */
struct tti_gpu_multicast; /* memory of several devices behind one address */

/* Names memory or an event for another process of the host. Plain bytes: send them as you like. */
struct tti_gpu_handle {
    unsigned char bytes[64];
};

enum {
    TTI_EVENT_TIMING = 1,       /* event_elapsed may be asked */
    TTI_EVENT_INTERPROCESS = 2, /* event_export may be called; excludes timing */
};

/* A kernel that is not the library's: of a program built on it. It outlives the device. */
struct tti_gpu_own {
    const char *symbol;
    const void *image;                   /* nvcc's, as cuModuleLoadData takes it; NULL: not built */
    void (*simulated)(const void *args); /* compiled for the simulated device
                                            (sim/cuda_on_host.cuh); NULL: not built */
};

/* A kernel, and the grid that runs it. `args` is the kernel's struct (kernel_args.h), copied by the
 * call. `type` is ignored by kernels without types. */
struct tti_gpu_launch {
    enum tti_gpu_kernel kernel;
    enum tutti_type type;
    unsigned blocks, threads; /* threads: a multiple of 32, up to 1024 */
    size_t shared_bytes;
    const void *args;
    size_t args_bytes;
    const struct tti_gpu_own *own; /* instead of `kernel`; NULL: none */
};

/* What a launch is of, for messages. */
const char *tti_gpu_launch_name(const struct tti_gpu_launch *launch);

struct tti_gpu_ops {
    const char *name; /* "cuda", "sim" */

    /* ---- Devices. count: 0, and OK, when there is none or no driver. open may block (it loads
     * the driver, makes a context). close takes NULL; everything made with the device is freed
     * before. */
    enum tutti_result (*count)(int *devices);
    enum tutti_result (*open)(int device, struct tti_gpu **gpu);
    void (*close)(struct tti_gpu *gpu);
    /* Whether `gpu` can read and write memory of device `peer` where it lies; and make it so
     * (harmless when it is already). */
    enum tutti_result (*peer_can_access)(struct tti_gpu *gpu, int peer, bool *can);
    enum tutti_result (*peer_enable)(struct tti_gpu *gpu, int peer);
    /* Whether 128 bytes that a warp stores together in memory of the device with this uuid arrive
     * together there: on the same device and over NVLink, not over PCIe. False if it is unknown. */
    enum tutti_result (*whole_lines)(struct tti_gpu *gpu, const unsigned char uuid[16],
                                     bool *whole);

    /* ---- Memory. alloc and free may block, and synchronise the device. Contents are undefined. */
    enum tutti_result (*alloc)(struct tti_gpu *gpu, enum tti_memory_kind kind, size_t bytes,
                               void **memory);
    void (*free)(struct tti_gpu *gpu, void *memory); /* what alloc gave, or NULL */
    /* DEVICE memory that is meant for others: it goes to other processes by descriptor where the
     * device can do that, and may be bound to multicast objects. May be rounded up. */
    enum tutti_result (*alloc_shared)(struct tti_gpu *gpu, size_t bytes, void **memory);
    /* Make memory of this process on device `owner`, which `gpu` can access, reachable for `gpu`
     * as well (peer_enable is for plain memory of `alloc`). May block. */
    enum tutti_result (*memory_reach)(struct tti_gpu *gpu, const void *memory, int owner);
    /* Make DEVICE memory of this process that lies on `gpu`, anybody's, reachable for other
     * devices, which can access `gpu` (NULL: for all that can): where it was mapped piece by piece,
     * the pieces that the bytes lie in, and else the whole pool that it comes from (peer_enable is
     * for plain memory). May block if it is not yet; that is looked up at each call. */
    enum tutti_result (*memory_open)(struct tti_gpu *gpu, const void *memory, size_t bytes,
                                     const int *devices, int count);
    /* Page-lock host memory of the caller for the device; may block. */
    enum tutti_result (*host_register)(struct tti_gpu *gpu, void *memory, size_t bytes);
    enum tutti_result (*host_unregister)(struct tti_gpu *gpu, void *memory);
    /* Ask what an address is. Memory that the implementation does not know is HOST. */
    enum tutti_result (*pointer)(const void *address, struct tti_gpu_pointer *info);

    /* ---- Other processes. Handles are for another process: importing one's own fails. export
     * takes the base of a DEVICE allocation, anybody's; what it is, is found by asking. *fd: -1, or
     * a descriptor of the caller's that must go with the handle, over a local socket (SCM_RIGHTS),
     * and is then given to import, which leaves it the caller's. UNSUPPORTED: that memory was made
     * such that it cannot go (for this process alone, or for fabric handles alone). Importing the
     * same memory again gives the same address and counts; release as often. Import may block. */
    enum tutti_result (*memory_export)(struct tti_gpu *gpu, const void *base,
                                       struct tti_gpu_handle *handle, int *fd);
    enum tutti_result (*memory_import)(struct tti_gpu *gpu, const struct tti_gpu_handle *handle,
                                       int fd, void **base);
    void (*memory_release)(struct tti_gpu *gpu, void *base);
    /* For network adapters: *fd, the caller's, names a dmabuf that holds these bytes of DEVICE
     * memory (of one allocation), which begin *offset bytes into it. UNSUPPORTED: the device has no
     * such thing. */
    enum tutti_result (*memory_dmabuf)(struct tti_gpu *gpu, const void *memory, size_t bytes,
                                       int *fd, uint64_t *offset);
    enum tutti_result (*event_export)(struct tti_gpu_event *event, struct tti_gpu_handle *handle);
    enum tutti_result (*event_import)(struct tti_gpu *gpu, const struct tti_gpu_handle *handle,
                                      struct tti_gpu_event **event);

    /* ---- Multicast objects (properties.multicast): an address at which a kernel's multimem load
     * gives the sum of what `members` devices hold, and its store reaches them all. One member
     * creates the object; *fd, the caller's, goes to the others, who import it with the same
     * `bytes`. When all have one, each binds memory of its device, from alloc_shared and at least
     * that large; when all have, the address may be used. May block. destroy takes NULL; all ranks
     * are through before. */
    enum tutti_result (*multicast_create)(struct tti_gpu *gpu, int members, size_t bytes, int *fd,
                                          struct tti_gpu_multicast **multicast);
    enum tutti_result (*multicast_import)(struct tti_gpu *gpu, int fd, size_t bytes,
                                          struct tti_gpu_multicast **multicast);
    enum tutti_result (*multicast_bind)(struct tti_gpu_multicast *multicast, void *memory,
                                        void **address);
    void (*multicast_destroy)(struct tti_gpu_multicast *multicast);

    /* ---- Streams: ordered queues of work. destroy waits for what is queued. query: OK when all
     * work is done, IN_PROGRESS, or the first failure. See tti_gpu_stream_wait. */
    enum tutti_result (*stream_create)(struct tti_gpu *gpu, tutti_stream *stream);
    void (*stream_destroy)(struct tti_gpu *gpu, tutti_stream stream);
    enum tutti_result (*stream_query)(struct tti_gpu *gpu, tutti_stream stream);
    /* Sleep until a query may say something new, for half a millisecond at most; NULL: the device
     * cannot wake anybody. See tti_gpu_pause. */
    void (*stream_rest)(struct tti_gpu *gpu, tutti_stream stream);
    /* The device that a stream is of; of NULL: the one that the calling thread has current, or 0.
     * Needs none opened. Kernels and events of one device go on its streams only. */
    enum tutti_result (*stream_device)(tutti_stream stream, int *device);
    /* A number of the stream's, which differs from that of one that had its handle before and may
     * still have work; two default streams may have the same. */
    enum tutti_result (*stream_id)(struct tti_gpu *gpu, tutti_stream stream, uint64_t *id);
    /* The PCI address ("0000:3b:00.0") of a device; of -1: of the one that this process works on,
     * as far as can be told: that which the calling thread has current, else the only one in use,
     * or the only one that CUDA_VISIBLE_DEVICES leaves. "?": one of several; "": none. Opens
     * nothing. After `count`. */
    void (*here)(int device, char pci[TTI_GPU_PCI_BYTES]);

    /* ---- Work on a stream; all captured. Copies take any two addresses of any kind (pageable
     * host memory may make the call block). */
    enum tutti_result (*copy)(struct tti_gpu *gpu, void *dst, const void *src, size_t bytes,
                              tutti_stream stream);
    enum tutti_result (*fill)(struct tti_gpu *gpu, void *dst, unsigned char byte, size_t bytes,
                              tutti_stream stream);
    enum tutti_result (*launch)(struct tti_gpu *gpu, const struct tti_gpu_launch *launch,
                                tutti_stream stream);
    /* Call a host function; it must not call this interface. */
    enum tutti_result (*host_call)(struct tti_gpu *gpu, void (*function)(void *), void *argument,
                                   tutti_stream stream);
    /* Store a word with release order after the stream's earlier work; hold the stream back until
     * (int32_t)(*word - value) >= 0. The word is DEVICE or PINNED memory, or a peer's. */
    enum tutti_result (*stream_write)(struct tti_gpu *gpu, uint32_t *word, uint32_t value,
                                      tutti_stream stream);
    enum tutti_result (*stream_wait)(struct tti_gpu *gpu, uint32_t *word, uint32_t value,
                                     tutti_stream stream);

    /* Load a kernel before its first launch (which would load it then, and may block); and blocks
     * of it that one device holds at a time: those of all who launch on it together. */
    enum tutti_result (*prepare)(struct tti_gpu *gpu, enum tti_gpu_kernel kernel,
                                 enum tutti_type type);
    enum tutti_result (*resident)(struct tti_gpu *gpu, const struct tti_gpu_launch *launch,
                                  int *blocks);

    /* ---- Events. record: the point after the stream's work so far. hold: the stream waits for
     * the point recorded last. Both captured (of one capture). query as stream_query; an event
     * never recorded is done. elapsed: seconds between two points that are done. */
    enum tutti_result (*event_create)(struct tti_gpu *gpu, int flags, struct tti_gpu_event **event);
    void (*event_destroy)(struct tti_gpu_event *event); /* NULL is fine */
    enum tutti_result (*event_record)(struct tti_gpu_event *event, tutti_stream stream);
    enum tutti_result (*event_hold)(struct tti_gpu_event *event, tutti_stream stream);
    enum tutti_result (*event_query)(struct tti_gpu_event *event);
    void (*event_rest)(struct tti_gpu_event *event); /* as stream_rest */
    enum tutti_result (*event_elapsed)(struct tti_gpu_event *from, struct tti_gpu_event *to,
                                       double *seconds);

    /* ---- Graphs. What is called between begin and end on the stream, and on streams that hold
     * for its events, becomes a graph instead of running. Waiting for a stream under capture
     * fails. launch may be repeated; launches of one graph are ordered. */
    enum tutti_result (*capture_begin)(struct tti_gpu *gpu, tutti_stream stream);
    enum tutti_result (*capture_end)(struct tti_gpu *gpu, tutti_stream stream,
                                     struct tti_gpu_graph **graph);
    /* *id: of the capture that the stream is part of, never used again; 0: of none. */
    enum tutti_result (*capture_id)(struct tti_gpu *gpu, tutti_stream stream, uint64_t *id);
    enum tutti_result (*graph_launch)(struct tti_gpu_graph *graph, tutti_stream stream);
    void (*graph_destroy)(struct tti_gpu_graph *graph); /* NULL is fine */
};

/* Names this process among all, the same in all its threads. */
void tti_gpu_process(uint64_t process[2]);

/* Whether a kernel exists once for each type; its name without the type ("reduce_copy"); and the
 * name of a kernel's function, which is "tti_kernel_", that, and "_float32" and so on. */
bool tti_gpu_kernel_typed(enum tti_gpu_kernel kernel);
const char *tti_gpu_kernel_name(enum tti_gpu_kernel kernel);
void tti_gpu_kernel_symbol(enum tti_gpu_kernel kernel, enum tutti_type type, char symbol[64]);

/* Always there; their count says whether there is a device. */
const struct tti_gpu_ops *tti_gpu_cuda(void);
const struct tti_gpu_ops *tti_gpu_sim(void);
/* By name; TUTTI_ERR_ARGUMENT lists the names. */
enum tutti_result tti_gpu_find(const char *name, const struct tti_gpu_ops **ops);

/* Block until the stream's, or the event's, work is done or the deadline (base/clock.h) passes
 * (TUTTI_ERR_TIMEOUT; `what` names the wait in the text). */
enum tutti_result tti_gpu_stream_wait(struct tti_gpu *gpu, tutti_stream stream, uint64_t deadline,
                                      const char *what);
enum tutti_result tti_gpu_event_wait(struct tti_gpu *gpu, struct tti_gpu_event *event,
                                     uint64_t deadline, const char *what);

/* What a thread that waits for an event does between two queries that said IN_PROGRESS: it spins
 * for what ends in microseconds, then makes room for others, then sleeps, or sleeps at once where
 * the device wakes it. Zeros when the wait begins; true if it slept, which takes less than a
 * millisecond. */
struct tti_gpu_patience {
    uint64_t since; /* the first pause */
    int rests;      /* how often it slept */
};
bool tti_gpu_pause(const struct tti_gpu_ops *ops, struct tti_gpu_event *event,
                   struct tti_gpu_patience *patience);

#endif
