/* allreduce_bench on device memory (--device): one rank's device, stream and graph. */
#ifndef TTI_BENCH_DEVICE_H
#define TTI_BENCH_DEVICE_H

#include "bench/bench.h"
#include "device/gpu.h"

struct bench_device {
    struct tti_gpu *gpu; /* NULL: host memory */
    tutti_stream stream;
    struct tti_gpu_graph *graph;
    int index, count; /* of the device; devices there are */
};

/* Rank `local_rank` of its host takes a device by turns. */
enum tutti_result bench_device_open(const struct bench_options *o, int local_rank,
                                    struct bench_device *device);
void bench_device_close(struct bench_device *device);

enum tutti_result bench_device_get(struct bench_device *device, size_t bytes, char **memory);
void bench_device_put(struct bench_device *device, char *memory);
/* Copy on the stream. */
enum tutti_result bench_device_copy(struct bench_device *device, void *to, const void *from,
                                    size_t bytes);
/* Wait for the stream; at once for host memory. */
enum tutti_result bench_device_finish(const struct bench_options *o, struct bench_device *device);

/* The operation of the case, on the stream. */
enum tutti_result bench_device_operate(struct bench_device *device, const struct bench_case *c,
                                       enum tutti_op op, const void *in, void *out,
                                       tutti_comm *comm);
/* Between the two, what is called on the stream becomes the device's graph. */
enum tutti_result bench_device_capture(struct bench_device *device);
enum tutti_result bench_device_captured(struct bench_device *device);
enum tutti_result bench_device_replay(struct bench_device *device);
/* Drop the graph, which has run. */
void bench_device_forget(struct bench_device *device);

#endif
