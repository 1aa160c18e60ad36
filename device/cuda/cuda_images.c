/* The kernels' machine code inside the library: what nvcc made of cuda/<file>.cu, byte for byte.
 * TTI_CUDA_IMAGES is the folder with <file>.fatbin; not defined where the build has no nvcc; the
 * other two say with what and for what they were made. */
#include "device/cuda/cuda_driver.h"

#if defined(TTI_CUDA_IMAGES)

#define IMAGE(file)                                                               \
    __asm__(".section .rodata\n.balign 64\n"                                      \
            ".hidden tti_cuda_image_" #file "\n.globl tti_cuda_image_" #file "\n" \
            "tti_cuda_image_" #file ":\n"                                         \
            ".incbin \"" TTI_CUDA_IMAGES "/" #file ".fatbin\"\n"                  \
            ".hidden tti_cuda_image_end_" #file "\n"                              \
            ".globl tti_cuda_image_end_" #file "\n"                               \
            "tti_cuda_image_end_" #file ":\n.byte 0\n.previous\n");               \
    extern const unsigned char tti_cuda_image_##file[], tti_cuda_image_end_##file[];

IMAGE(reduce_copy)
IMAGE(one_shot_ll)
IMAGE(one_shot_ll128)
IMAGE(two_shot)
IMAGE(direct)
IMAGE(plan_run)
IMAGE(messages)
IMAGE(probe)
IMAGE(train)
IMAGE(nvls)

#define FROM(file)                                       \
    {                                                    \
        tti_cuda_image_##file, tti_cuda_image_end_##file \
    }
static const struct {
    const unsigned char *begin, *end;
} images[TTI_KERNEL_COUNT] = {
    [TTI_KERNEL_COPY] = FROM(reduce_copy),
    [TTI_KERNEL_REDUCE_COPY] = FROM(reduce_copy),
    [TTI_KERNEL_ONE_SHOT_LL] = FROM(one_shot_ll),
    [TTI_KERNEL_TWO_SHOT] = FROM(two_shot),
    [TTI_KERNEL_DIRECT] = FROM(direct),
    [TTI_KERNEL_PLAN_RUN] = FROM(plan_run),
    [TTI_KERNEL_MESSAGES] = FROM(messages),
    [TTI_KERNEL_MESSAGE_LIST] = FROM(messages),
    [TTI_KERNEL_ONE_SHOT_LL128] = FROM(one_shot_ll128),
    [TTI_KERNEL_PEER_PROBE] = FROM(probe),
    [TTI_KERNEL_WARP_PROBE] = FROM(probe),
    [TTI_KERNEL_TELL] = FROM(probe),
    [TTI_KERNEL_PLACE] = FROM(probe),
    [TTI_KERNEL_TRAIN_SCALE] = FROM(train),
    [TTI_KERNEL_TRAIN_NORM] = FROM(train),
    [TTI_KERNEL_TRAIN_STEP] = FROM(train),
    [TTI_KERNEL_NVLS] = FROM(nvls),
};

const void *tti_cuda_image(enum tti_gpu_kernel kernel, size_t *bytes)
{
    *bytes = (size_t)(images[kernel].end - images[kernel].begin);
    return images[kernel].begin;
}

int tti_cuda_toolkit(void)
{
    return TTI_CUDA_TOOLKIT;
}

const char *tti_cuda_architectures(void)
{
    return TTI_CUDA_ARCHITECTURES;
}

#else

const void *tti_cuda_image(enum tti_gpu_kernel kernel, size_t *bytes)
{
    (void)kernel;
    *bytes = 0;
    return NULL;
}

int tti_cuda_toolkit(void)
{
    return 0;
}

const char *tti_cuda_architectures(void)
{
    return "none";
}

#endif
