/* The fake driver's kernels are the simulated device's, by the names in the real images. */
#include "tests/device/fake_cuda.h"

#include <string.h>

static size_t args_bytes(enum tti_gpu_kernel kernel)
{
    switch (kernel) {
    case TTI_KERNEL_COPY:
        return sizeof(struct tti_copy_args);
    case TTI_KERNEL_REDUCE_COPY:
        return sizeof(struct tti_reduce_copy_args);
    case TTI_KERNEL_PEER_PROBE:
        return sizeof(struct tti_peer_probe_args);
    case TTI_KERNEL_WARP_PROBE:
        return sizeof(struct tti_warp_probe_args);
    case TTI_KERNEL_TELL:
        return sizeof(struct tti_tell_args);
    case TTI_KERNEL_PLACE:
        return sizeof(struct tti_place_args);
    case TTI_KERNEL_TRAIN_SCALE:
        return sizeof(struct tti_train_scale_args);
    case TTI_KERNEL_TRAIN_NORM:
        return sizeof(struct tti_train_norm_args);
    case TTI_KERNEL_TRAIN_STEP:
        return sizeof(struct tti_train_step_args);
    case TTI_KERNEL_DIRECT:
        return sizeof(struct tti_direct_args);
    case TTI_KERNEL_PLAN_RUN:
        return sizeof(struct tti_plan_args);
    case TTI_KERNEL_NVLS:
        return sizeof(struct tti_nvls_args);
    case TTI_KERNEL_MESSAGES:
        return sizeof(struct tti_message_args);
    case TTI_KERNEL_MESSAGE_LIST:
        return sizeof(struct tti_message_list_args);
    default:
        return sizeof(struct tti_coupled_args);
    }
}
bool fake_kernel_find(const char *name, struct fake_kernel *kernel)
{
    char symbol[64];
    for (int k = 0; k < TTI_KERNEL_COUNT; k++) {
        for (int t = 0; t < TUTTI_TYPE_COUNT; t++) {
            tti_gpu_kernel_symbol((enum tti_gpu_kernel)k, (enum tutti_type)t, symbol);
            if (strcmp(symbol, name) != 0)
                continue;
            *kernel = (struct fake_kernel){.number = (enum tti_gpu_kernel)k,
                                           .type = (enum tutti_type)t,
                                           .args_bytes = args_bytes((enum tti_gpu_kernel)k),
                                           .most_threads = 1024};
            return true;
        }
    }
    return false;
}
