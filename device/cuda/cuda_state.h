/* What the files of the CUDA implementation share. Start with cuda_gpu.c, the table of operations.
 */
#ifndef TTI_DEVICE_CUDA_STATE_H
#define TTI_DEVICE_CUDA_STATE_H

#include "device/cuda/cuda_driver.h"

#include <pthread.h>
#include <stdbool.h>

enum { TTI_CUDA_OWN = 128 };

/* A kernel of the program's that was launched; those of one image share its module. */
struct tti_cuda_own {
    const struct tti_gpu_own *own;
    tti_cu_module module;
    tti_cu_function function;
};

/* Kernels that are loaded into a context, for all who have a device of it open: loading may wait
 * for the device, so only the first does it. */
struct tti_cuda_code {
    struct tti_cuda_code *next;
    tti_cu_context context;
    uint64_t id; /* its: another one may get the address of one that is gone */
    int users;   /* the last unloads them */
    pthread_mutex_t loading;
    tti_cu_module modules[TTI_KERNEL_COUNT];
    _Atomic(tti_cu_function) functions[TTI_KERNEL_COUNT][TUTTI_TYPE_COUNT];
    struct tti_cuda_own own[TTI_CUDA_OWN]; /* added to under `loading` */
    _Atomic int own_count;
};

/* A device and the context in which we work: the caller's current one if it is of this device, else
 * the primary one, which the CUDA runtime uses as well. */
struct tti_cuda_gpu {
    struct tti_gpu base;
    const struct tti_cuda_driver *cu;
    tti_cu_context context;
    bool retained;     /* it is the primary context, and held */
    bool virtual_fd;   /* memory can be mapped piece by piece, and exported by descriptor ... */
    bool virtual_rdma; /* ... and be registered with NICs */
    bool dmabuf;       /* memory has descriptors for other devices */
    struct tti_cuda_code *code;
};

static inline struct tti_cuda_gpu *tti_cuda_of(struct tti_gpu *gpu)
{
    return (struct tti_cuda_gpu *)(void *)gpu;
}

/* What is to be undone after a call. */
struct tti_cuda_visit {
    bool pushed;
    unsigned mode;
};

/* For a call, make the device's context current and let the thread do anything while streams are
 * under capture, whoever captures: else an allocation, or asking for an event, would fail and spoil
 * the capture (cuThreadExchangeStreamCaptureMode). Then the thread's own again. */
enum tutti_result tti_cuda_enter(struct tti_cuda_gpu *gpu, struct tti_cuda_visit *visit);
void tti_cuda_leave(struct tti_cuda_gpu *gpu, const struct tti_cuda_visit *visit);

/* result = the driver's `call` (a call through gpu->cu) in the device's context. */
#define TTI_CUDA_IN(gpu, result, what, call)           \
    do {                                               \
        struct tti_cuda_visit tti_visit_;              \
        (result) = tti_cuda_enter((gpu), &tti_visit_); \
        if ((result) == TUTTI_OK) {                    \
            (result) = tti_cuda_check((call), (what)); \
            tti_cuda_leave((gpu), &tti_visit_);        \
        }                                              \
    } while (0)

/* The same as the last statement of a function. */
#define TTI_CUDA_RETURN(gpu, what, call)           \
    do {                                           \
        enum tutti_result tti_result_;             \
        TTI_CUDA_IN(gpu, tti_result_, what, call); \
        return tti_result_;                        \
    } while (0)

/* ... and of one that puts a command into a stream. */
#define TTI_CUDA_QUEUE(gpu, what, call)   \
    do {                                  \
        tti_gpu_count(&(gpu)->base);      \
        TTI_CUDA_RETURN(gpu, what, call); \
    } while (0)

/* ---- cuda_memory.c ----------------------------------------------------------------------------
 */
enum tutti_result tti_cuda_alloc(struct tti_gpu *gpu, enum tti_memory_kind kind, size_t bytes,
                                 void **memory);
void tti_cuda_free(struct tti_gpu *gpu, void *memory);
enum tutti_result tti_cuda_pointer(const void *address, struct tti_gpu_pointer *info);
enum tutti_result tti_cuda_host_register(struct tti_gpu *gpu, void *memory, size_t bytes);
enum tutti_result tti_cuda_host_unregister(struct tti_gpu *gpu, void *memory);
enum tutti_result tti_cuda_memory_export(struct tti_gpu *gpu, const void *memory,
                                         struct tti_gpu_handle *handle, int *fd);
enum tutti_result tti_cuda_memory_import(struct tti_gpu *gpu, const struct tti_gpu_handle *handle,
                                         int fd, void **memory);
void tti_cuda_memory_release(struct tti_gpu *gpu, void *memory);
enum tutti_result tti_cuda_memory_dmabuf(struct tti_gpu *gpu, const void *memory, size_t bytes,
                                         int *fd, uint64_t *offset);
enum tutti_result tti_cuda_memory_reach(struct tti_gpu *gpu, const void *memory, int owner);

/* ---- cuda_open.c ------------------------------------------------------------------------------
 */
enum tutti_result tti_cuda_memory_open(struct tti_gpu *gpu, const void *memory, size_t bytes,
                                       const int *devices, int count);

/* ---- cuda_virtual.c ---------------------------------------------------------------------------
 * Those that follow alloc_shared are called in the device's context. *is: whether the memory is of
 * that kind. */
enum tutti_result tti_cuda_alloc_shared(struct tti_gpu *gpu, size_t bytes, void **memory);
/* Made or imported here; false: it is not known. */
bool tti_cuda_virtual_free(struct tti_cuda_gpu *gpu, void *memory);
enum tutti_result tti_cuda_virtual_export(struct tti_cuda_gpu *gpu, const void *memory,
                                          struct tti_gpu_handle *handle, int *fd, bool *is);
enum tutti_result tti_cuda_virtual_import(struct tti_cuda_gpu *gpu,
                                          const struct tti_gpu_handle *handle, int fd,
                                          tti_cu_ptr *base);
enum tutti_result tti_cuda_virtual_reach(struct tti_cuda_gpu *gpu, const void *memory, bool *is);
/* The piece that is mapped at the address, anybody's; 0 bytes: the driver does not say. */
void tti_cuda_virtual_mapped(const struct tti_cuda_gpu *gpu, tti_cu_ptr at, tti_cu_ptr *base,
                             size_t *bytes);
/* A piece at addresses of its own, for this device. */
enum tutti_result tti_cuda_virtual_map(const struct tti_cuda_gpu *gpu, tti_cu_memory piece,
                                       size_t bytes, tti_cu_ptr *base);
void tti_cuda_virtual_unmap(const struct tti_cuda_gpu *gpu, tti_cu_ptr base, size_t bytes);

/* ---- cuda_multicast.c -------------------------------------------------------------------------
 */
/* What memory and objects are multiples of; 0: the device has no such objects, or the driver does
 * not let it. */
enum tutti_result tti_cuda_multicast_page(const struct tti_cuda_gpu *gpu, size_t bytes,
                                          size_t *page);
enum tutti_result tti_cuda_multicast_create(struct tti_gpu *gpu, int members, size_t bytes, int *fd,
                                            struct tti_gpu_multicast **multicast);
enum tutti_result tti_cuda_multicast_import(struct tti_gpu *gpu, int fd, size_t bytes,
                                            struct tti_gpu_multicast **multicast);
enum tutti_result tti_cuda_multicast_bind(struct tti_gpu_multicast *multicast, void *memory,
                                          void **address);
void tti_cuda_multicast_destroy(struct tti_gpu_multicast *multicast);

/* ---- cuda_kernel.c: loading and launching -----------------------------------------------------
 */
enum tutti_result tti_cuda_prepare(struct tti_gpu *gpu, enum tti_gpu_kernel kernel,
                                   enum tutti_type type);
enum tutti_result tti_cuda_launch(struct tti_gpu *gpu, const struct tti_gpu_launch *launch,
                                  tutti_stream stream);
enum tutti_result tti_cuda_resident(struct tti_gpu *gpu, const struct tti_gpu_launch *launch,
                                    int *blocks);
/* When a device is opened, and closed in its context. */
enum tutti_result tti_cuda_code_take(struct tti_cuda_gpu *gpu);
void tti_cuda_code_leave(struct tti_cuda_gpu *gpu, bool entered);

/* ---- cuda_stream.c: streams, events, graphs ---------------------------------------------------
 */
enum tutti_result tti_cuda_stream_create(struct tti_gpu *gpu, tutti_stream *stream);
void tti_cuda_stream_destroy(struct tti_gpu *gpu, tutti_stream stream);
enum tutti_result tti_cuda_stream_query(struct tti_gpu *gpu, tutti_stream stream);
enum tutti_result tti_cuda_stream_device(tutti_stream stream, int *device);
enum tutti_result tti_cuda_stream_id(struct tti_gpu *gpu, tutti_stream stream, uint64_t *id);
enum tutti_result tti_cuda_copy(struct tti_gpu *gpu, void *dst, const void *src, size_t bytes,
                                tutti_stream stream);
enum tutti_result tti_cuda_fill(struct tti_gpu *gpu, void *dst, unsigned char byte, size_t bytes,
                                tutti_stream stream);
enum tutti_result tti_cuda_host_call(struct tti_gpu *gpu, void (*function)(void *), void *argument,
                                     tutti_stream stream);
enum tutti_result tti_cuda_stream_write(struct tti_gpu *gpu, uint32_t *word, uint32_t value,
                                        tutti_stream stream);
enum tutti_result tti_cuda_stream_wait(struct tti_gpu *gpu, uint32_t *word, uint32_t value,
                                       tutti_stream stream);
enum tutti_result tti_cuda_event_create(struct tti_gpu *gpu, int flags,
                                        struct tti_gpu_event **event);
void tti_cuda_event_destroy(struct tti_gpu_event *event);
enum tutti_result tti_cuda_event_record(struct tti_gpu_event *event, tutti_stream stream);
enum tutti_result tti_cuda_event_hold(struct tti_gpu_event *event, tutti_stream stream);
enum tutti_result tti_cuda_event_query(struct tti_gpu_event *event);
enum tutti_result tti_cuda_event_elapsed(struct tti_gpu_event *from, struct tti_gpu_event *to,
                                         double *seconds);
enum tutti_result tti_cuda_event_export(struct tti_gpu_event *event, struct tti_gpu_handle *handle);
enum tutti_result tti_cuda_event_import(struct tti_gpu *gpu, const struct tti_gpu_handle *handle,
                                        struct tti_gpu_event **event);
enum tutti_result tti_cuda_capture_begin(struct tti_gpu *gpu, tutti_stream stream);
enum tutti_result tti_cuda_capture_end(struct tti_gpu *gpu, tutti_stream stream,
                                       struct tti_gpu_graph **graph);
enum tutti_result tti_cuda_capture_id(struct tti_gpu *gpu, tutti_stream stream, uint64_t *id);
enum tutti_result tti_cuda_graph_launch(struct tti_gpu_graph *graph, tutti_stream stream);
void tti_cuda_graph_destroy(struct tti_gpu_graph *graph);

#endif
