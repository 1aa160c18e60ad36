/* See gpu_under_test.h. */
#include "tests/device/gpu_under_test.h"

#include "tests/device/gpu_wait.h"
#include "tests/tutti_cmocka.h"

#include <stdlib.h>

enum { SETTLE_SECONDS = 60 };

void gpu_expect(enum tutti_result got, enum tutti_result expected, const char *what,
                const char *file, int line)
{
    if (got != expected)
        print_error("%s:%d: %s is \"%s\", expected \"%s\": %s\n", file, line, what,
                    tutti_result_text(got), tutti_result_text(expected), tti_error_text());
    _assert_true(got == expected, what, file, line);
}

const struct tti_gpu_ops *gpu_ops(void)
{
    const char *name = getenv("TUTTI_TEST_GPU");
    const struct tti_gpu_ops *ops = NULL;
    /* Kernels of ranks that wait for each other may not stand in one hardware queue. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    GPU_OK(tti_gpu_find(name && *name ? name : "sim", &ops));
    return ops;
}

int gpu_devices(int most)
{
    int count = 0;
    GPU_OK(gpu_ops()->count(&count));
    if (count == 0) {
        print_message("SKIPPED: there is no %s device\n", gpu_ops()->name);
        skip();
    }
    return count < most ? count : most;
}

struct tti_gpu *gpu_open(int device)
{
    struct tti_gpu *gpu = NULL;
    GPU_OK(gpu_ops()->open(device, &gpu));
    return gpu;
}

struct tti_gpu *gpu_first(void)
{
    (void)gpu_devices(1);
    return gpu_open(0);
}

void gpu_settle(struct tti_gpu *gpu, tutti_stream stream)
{
    GPU_OK(gpu_wait_or_end(gpu, stream, SETTLE_SECONDS, "the test's stream"));
}

void gpu_write(struct tti_gpu *gpu, void *to, const void *from, size_t bytes)
{
    GPU_OK(gpu->ops->copy(gpu, to, from, bytes, NULL));
    gpu_settle(gpu, NULL);
}

void gpu_read(struct tti_gpu *gpu, void *to, const void *from, size_t bytes)
{
    gpu_write(gpu, to, from, bytes);
}

void *gpu_memory(struct tti_gpu *gpu, size_t bytes, const void *contents)
{
    void *memory = NULL;
    GPU_OK(gpu->ops->alloc(gpu, TTI_MEMORY_DEVICE, bytes, &memory));
    if (contents)
        gpu_write(gpu, memory, contents, bytes);
    else
        GPU_OK(gpu->ops->fill(gpu, memory, 0, bytes, NULL));
    gpu_settle(gpu, NULL);
    return memory;
}
