/* The GPU that a test runs on: TUTTI_TEST_GPU=cuda or sim (the default). The same tests hold both
 * to the interface. */
#ifndef TTI_TESTS_DEVICE_GPU_UNDER_TEST_H
#define TTI_TESTS_DEVICE_GPU_UNDER_TEST_H

#include "device/gpu.h"

#define GPU_OK(expression) gpu_expect((expression), TUTTI_OK, #expression, __FILE__, __LINE__)
#define GPU_FAILS(code, expression) gpu_expect((expression), code, #expression, __FILE__, __LINE__)
void gpu_expect(enum tutti_result got, enum tutti_result expected, const char *what,
                const char *file, int line);

const struct tti_gpu_ops *gpu_ops(void);
/* Devices there are, at most `most`; skips the test when there is none. */
int gpu_devices(int most);
struct tti_gpu *gpu_open(int device);
/* The first device; skips the test when there is none. */
struct tti_gpu *gpu_first(void);

/* Memory of the device (bytes > 0), with contents or zeroed; and back. They wait. */
void *gpu_memory(struct tti_gpu *gpu, size_t bytes, const void *contents);
void gpu_read(struct tti_gpu *gpu, void *to, const void *from, size_t bytes);
void gpu_write(struct tti_gpu *gpu, void *to, const void *from, size_t bytes);
/* Wait for the stream, half a minute at most. */
void gpu_settle(struct tti_gpu *gpu, tutti_stream stream);

#endif
