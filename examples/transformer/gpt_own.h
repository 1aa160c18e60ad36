/* The transformer's own kernels by number (gpt_gpu.h says what each computes): as nvcc's machine
 * code for a GPU, as functions for the simulated one. */
#ifndef EXAMPLES_TRANSFORMER_GPT_OWN_H
#define EXAMPLES_TRANSFORMER_GPT_OWN_H

#include "device/gpu.h"

#include <stdbool.h>

enum gpt_own {
    GPT_OWN_NORM, /* from here on: one for float32, one for bfloat16 */
    GPT_OWN_NORM_BACK,
    GPT_OWN_COLUMNS,
    GPT_OWN_GELU,
    GPT_OWN_GELU_BACK,
    GPT_OWN_CLASSIFY,
    GPT_OWN_EMBED,
    GPT_OWN_EMBED_PLACES,
    GPT_OWN_EMBED_TOKENS,
    GPT_OWN_SHARES,
    GPT_OWN_SHARE_SLOPES,
    GPT_OWN_ATTEND, /* + 4 times the head's size: 0 for 4 channels, 1 for 16, 2 for 32, 3 for 64 */
    GPT_OWN_ATTEND_DELTA,
    GPT_OWN_ATTEND_QUERIES,
    GPT_OWN_ATTEND_KEYS,
    GPT_OWN_TYPED = GPT_OWN_ATTEND + 16,
    GPT_OWN_COLUMNS_END = GPT_OWN_TYPED, /* from here on: one */
    GPT_OWN_PRODUCT_WIDE,                /* float32 */
    GPT_OWN_PRODUCT_THIN,                /* bfloat16 */
    GPT_OWN_PRODUCT_MIXED,               /* from bfloat16 to float32 */
    GPT_OWN_COUNT,
};

const struct tti_gpu_own *gpt_own_kernel(enum gpt_own kernel, bool thin);
/* Have all of them on the device, before a kernel waits there for one that would be loaded at its
 * first launch only, for which the driver may wait in turn. */
enum tutti_result gpt_own_load(struct tti_gpu *gpu);
/* 0 .. 3 as above; -1: no kernel for heads of this size. */
int gpt_own_head(int channels);

#endif
