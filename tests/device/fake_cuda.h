/* What the files of the fake CUDA driver share (fake_cuda.c). */
#ifndef TTI_TESTS_DEVICE_FAKE_CUDA_H
#define TTI_TESTS_DEVICE_FAKE_CUDA_H

#include "device/cuda/cuda_driver.h"

/* The real driver's functions have their declarations in cuda.h. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define DRIVER __attribute__((visibility("default"))) unsigned

enum { FAKE_UNKNOWN = 999 };

/* What a launch of a kernel runs: one of the simulated device's, or another function in its place.
 * fake_simulated.c, or ptx/ptx.c; false: there is none of that name. */
struct fake_kernel {
    enum tti_gpu_kernel number;
    enum tutti_type type;
    const struct tti_gpu_own *own;
    size_t args_bytes;
    unsigned most_threads;
    unsigned registers, shared_bytes; /* that a thread, a block takes; 0: not known, or none */
};
bool fake_kernel_find(const char *name, struct fake_kernel *kernel);

/* Our result in the driver's words; the simulated device's table; the current context's device, or
 * NULL. */
unsigned fake_code(enum tutti_result result);
const struct tti_gpu_ops *fake_ops(void);
struct tti_gpu *fake_now(void);
tti_cu_context fake_context(int device);
/* fake_stream.c: may the thread not do what could be unsafe, since somebody captures; is it inside
 * a function that a stream calls; wait for all that is queued on the current device, since `what`
 * does. */
bool fake_refused(void);
bool fake_in_call(void);
unsigned fake_drain(const char *what);
/* For what the stream has so far; not if it is under capture. */
unsigned fake_finish(tti_cu_stream stream, const char *what);
/* Around what puts a command into a stream: one thread at a time, as in the driver, and the thread
 * waits where the stream's queue is full. */
unsigned fake_queue_begin(tti_cu_stream stream);
void fake_queue_end(void);
/* fake_pool.c: the pool that memory comes from, or NULL; it is freed; may nobody open memory of
 * this device to another (TUTTI_FAKE_NO_OPEN=1)? */
tti_cu_pool fake_pool_of(const void *memory);
void fake_pool_forget(const void *memory);
bool fake_kept(int owner, int device);
/* Is this process the child of one that had begun with the driver? It may not use it. */
bool fake_forked(void);
/* Is it shut down? */
bool fake_ended(void);

/* As the driver: without a context most calls fail. */
#define IN_CONTEXT(call) (fake_now() ? fake_code(call) : (unsigned)TTI_CU_NO_CONTEXT)
#define SAFE_IN_CONTEXT(call) (fake_refused() ? (unsigned)TTI_CU_CAPTURE_FIRST : IN_CONTEXT(call))
/* result = the same for a command of a stream's. */
#define QUEUED(result, stream, call)                                    \
    do {                                                                \
        (result) = fake_queue_begin(stream);                            \
        (result) = (result) == TTI_CU_OK ? IN_CONTEXT(call) : (result); \
        fake_queue_end();                                               \
    } while (0)

#endif
