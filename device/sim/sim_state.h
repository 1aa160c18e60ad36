/* What the files of the simulated device share: devices, memory, streams, events, graphs. Start
 * with sim_gpu.c, the table of operations. Locks: each structure has its own; none is held while
 * another's is taken, except a stream's while its capture's is. */
#ifndef TTI_DEVICE_SIM_STATE_H
#define TTI_DEVICE_SIM_STATE_H

#include "device/gpu.h"
#include "device/sim/sim_block.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    TTI_SIM_MOST_DEVICES = 16,
    TTI_SIM_SMS = 16,
    TTI_SIM_BLOCKS_PER_SM = 2, /* of any size */
    TTI_SIM_REST_NS = 500000,  /* a sleep that somebody ends */
    TTI_SIM_MOST_ARGS = 4096,  /* as much as CUDA takes on any driver */
};

/* ---- Running kernels: sim_launch.c
 * ---------------------------------------------------------------
 */

/* Runs the grid to its end on the device's workers; called by a stream's thread. */
enum tutti_result tti_sim_run(int device, const struct tti_gpu_launch *launch);
/* The kernel's function on the host; NULL: there is none. */
tti_sim_kernel *tti_sim_kernel_of(enum tti_gpu_kernel kernel, enum tutti_type type);
/* End the workers of a device, none of which works. */
void tti_sim_workers_end(int device);
/* The seed of all random choices: TUTTI_SIM_SEED, or drawn once a process. */
uint64_t tti_sim_seed(void);

/* ---- Memory: sim_memory.c ---------------------------------------------------------------------
 */

enum tutti_result tti_sim_alloc(struct tti_gpu *gpu, enum tti_memory_kind kind, size_t bytes,
                                void **memory);
void tti_sim_free(struct tti_gpu *gpu, void *memory);
enum tutti_result tti_sim_host_register(struct tti_gpu *gpu, void *memory, size_t bytes);
enum tutti_result tti_sim_host_unregister(struct tti_gpu *gpu, void *memory);
enum tutti_result tti_sim_pointer(const void *address, struct tti_gpu_pointer *info);
enum tutti_result tti_sim_memory_export(struct tti_gpu *gpu, const void *base,
                                        struct tti_gpu_handle *handle, int *fd);
/* The memfd behind it stands for a dmabuf. */
enum tutti_result tti_sim_memory_dmabuf(struct tti_gpu *gpu, const void *memory, size_t bytes,
                                        int *fd, uint64_t *offset);
enum tutti_result tti_sim_memory_import(struct tti_gpu *gpu, const struct tti_gpu_handle *handle,
                                        int fd, void **base);
/* For the fake driver (tests/device), which maps memory itself: have it known as DEVICE memory,
 * with a descriptor that stays the caller's; and no more. */
enum tutti_result tti_sim_memory_adopt(struct tti_gpu *gpu, void *base, size_t bytes, int fd);
void tti_sim_memory_abandon(void *base);
enum tutti_result tti_sim_alloc_shared(struct tti_gpu *gpu, size_t bytes, void **memory);
void tti_sim_memory_release(struct tti_gpu *gpu, void *base);

/* A memfd and the way to it from another process. */
struct tti_sim_ticket {
    uint32_t magic; /* of what kind of thing this is */
    int32_t pid, fd, device;
    uint64_t inode, bytes;
};
/* Of the memory at `base`, whatever kind; and a descriptor, or -1, by one of another process, the
 * memory itself by one of this process. */
enum tutti_result tti_sim_memory_ticket(const void *base, struct tti_gpu_handle *handle);
int tti_sim_memory_open(const struct tti_gpu_handle *handle, void **ours);
int tti_sim_ticket_open(const struct tti_sim_ticket *ticket, uint32_t magic,
                        enum tutti_result *result); /* a descriptor, or -1 */
enum tutti_result tti_sim_ticket_make(uint32_t magic, int fd, int device, uint64_t bytes,
                                      struct tti_gpu_handle *handle);

/* ---- Multicast objects: sim_multicast.c (what kernels use of it: sim_block.h) -----------------
 */

/* The object alone; a device in it; memory at an address range of the caller's. */
enum tutti_result tti_sim_multicast_make(int members, size_t bytes, int *fd);
/* Is the descriptor one of such an object? */
bool tti_sim_multicast_is(int fd, uint32_t *members, size_t *bytes);
enum tutti_result tti_sim_multicast_join(struct tti_gpu *gpu, int fd, size_t bytes,
                                         struct tti_gpu_multicast **multicast);
enum tutti_result tti_sim_multicast_bind_at(struct tti_gpu_multicast *multicast, void *memory,
                                            char *address);
enum tutti_result tti_sim_multicast_create(struct tti_gpu *gpu, int members, size_t bytes, int *fd,
                                           struct tti_gpu_multicast **multicast);
enum tutti_result tti_sim_multicast_import(struct tti_gpu *gpu, int fd, size_t bytes,
                                           struct tti_gpu_multicast **multicast);
enum tutti_result tti_sim_multicast_bind(struct tti_gpu_multicast *multicast, void *memory,
                                         void **address);
void tti_sim_multicast_destroy(struct tti_gpu_multicast *multicast);

/* ---- Streams: sim_stream.c --------------------------------------------------------------------
 */

enum tti_sim_op_kind {
    TTI_SIM_COPY,
    TTI_SIM_FILL,
    TTI_SIM_LAUNCH,
    TTI_SIM_CALL,
    TTI_SIM_WRITE,
    TTI_SIM_WAIT,
    TTI_SIM_RECORD,
    TTI_SIM_HOLD,
    TTI_SIM_GRAPH,
};

/* One piece of queued or captured work; what of the fields it uses depends on the kind. */
struct tti_sim_op {
    struct tti_sim_op *next;
    enum tti_sim_op_kind kind;
    int device;
    void *dst;
    const void *src;
    size_t bytes;
    uint32_t value;               /* FILL, WRITE, WAIT; RECORD, HOLD: the event's ticket */
    struct tti_gpu_launch launch; /* its args: the caller's; of a copy: behind it */
    void (*call)(void *);
    struct tti_gpu_event *event;
    struct tti_gpu_graph *graph;
};

struct tti_sim_stream;
struct tti_sim_capture;

enum tutti_result tti_sim_stream_create(struct tti_gpu *gpu, tutti_stream *stream);
void tti_sim_stream_destroy(struct tti_gpu *gpu, tutti_stream stream);
enum tutti_result tti_sim_stream_query(struct tti_gpu *gpu, tutti_stream stream);
void tti_sim_stream_rest(struct tti_gpu *gpu, tutti_stream stream);
enum tutti_result tti_sim_stream_device(tutti_stream stream, int *device);
/* The stream, or the device's default stream for NULL (made at its first use). */
enum tutti_result tti_sim_stream_of(int device, tutti_stream stream, struct tti_sim_stream **of);
/* As on a GPU: is the stream of this device? `what` is a kernel, or an event. */
enum tutti_result tti_sim_stream_fits(const struct tti_gpu *gpu, tutti_stream stream,
                                      const char *what);
/* Queue a copy of *op, or add it to the stream's capture. */
enum tutti_result tti_sim_enqueue(struct tti_gpu *gpu, tutti_stream stream,
                                  const struct tti_sim_op *op);
/* The default streams of a device that is closed for the last time. */
void tti_sim_default_stream_end(struct tti_gpu *gpu);
enum tutti_result tti_sim_op_run(const struct tti_sim_op *op, const _Atomic uint64_t *give_up);
/* One that keeps what it refers to, arguments too, until it is released; NULL: no memory. */
struct tti_sim_op *tti_sim_op_copy(const struct tti_sim_op *op);
void tti_sim_op_release(struct tti_sim_op *op);
/* The capture a stream is part of, NULL for none; and make it part of one. */
struct tti_sim_capture *tti_sim_stream_capture(struct tti_sim_stream *stream);
void tti_sim_stream_set_capture(struct tti_sim_stream *stream, struct tti_sim_capture *capture);

/* ---- Events: sim_event.c ----------------------------------------------------------------------
 */

enum tutti_result tti_sim_event_create(struct tti_gpu *gpu, int flags,
                                       struct tti_gpu_event **event);
void tti_sim_event_destroy(struct tti_gpu_event *event);
enum tutti_result tti_sim_event_record(struct tti_gpu_event *event, tutti_stream stream);
enum tutti_result tti_sim_event_hold(struct tti_gpu_event *event, tutti_stream stream);
enum tutti_result tti_sim_event_query(struct tti_gpu_event *event);
void tti_sim_event_rest(struct tti_gpu_event *event);
enum tutti_result tti_sim_event_elapsed(struct tti_gpu_event *from, struct tti_gpu_event *to,
                                        double *seconds);
enum tutti_result tti_sim_event_export(struct tti_gpu_event *event, struct tti_gpu_handle *handle);
enum tutti_result tti_sim_event_import(struct tti_gpu *gpu, const struct tti_gpu_handle *handle,
                                       struct tti_gpu_event **event);
/* By a stream's thread: the point is reached; has it been reached? */
void tti_sim_event_reached(struct tti_gpu_event *event, uint32_t ticket);
/* Before a point of a stream that has failed is reached: who asks for it is told. */
void tti_sim_event_failed(struct tti_gpu_event *event, const struct tti_error *error);
bool tti_sim_event_passed(struct tti_gpu_event *event, uint32_t ticket);
/* Sleep until it has been, for `ns` at most; may return early. */
void tti_sim_event_await(struct tti_gpu_event *event, uint32_t ticket, uint64_t ns);
void tti_sim_event_keep(struct tti_gpu_event *event);

/* ---- Graphs: sim_graph.c ----------------------------------------------------------------------
 */

enum tutti_result tti_sim_capture_begin(struct tti_gpu *gpu, tutti_stream stream);
enum tutti_result tti_sim_capture_end(struct tti_gpu *gpu, tutti_stream stream,
                                      struct tti_gpu_graph **graph);
enum tutti_result tti_sim_capture_id(struct tti_gpu *gpu, tutti_stream stream, uint64_t *id);
enum tutti_result tti_sim_graph_launch(struct tti_gpu_graph *graph, tutti_stream stream);
void tti_sim_graph_destroy(struct tti_gpu_graph *graph);
enum tutti_result tti_sim_capture_add(struct tti_sim_capture *capture, const struct tti_sim_op *op);
enum tutti_result tti_sim_capture_join(struct tti_sim_capture *capture,
                                       struct tti_sim_stream *stream);
/* Something that may not be done under capture was tried: end_capture will fail. */
enum tutti_result tti_sim_capture_spoil(struct tti_sim_capture *capture, const char *by);
enum tutti_result tti_sim_graph_run(struct tti_gpu_graph *graph, const _Atomic uint64_t *give_up);
void tti_sim_graph_keep(struct tti_gpu_graph *graph);

#endif
