#include "device/gpu.h"
static enum tutti_result gpu_count(int *devices)
{
    *devices = 0;
    return TUTTI_OK;
}
const struct tti_gpu_ops *tti_gpu_cuda(void)
{
    static const struct tti_gpu_ops ops = {.name = "cuda", .count = gpu_count};
    return &ops;
}
