/* The transformer's own kernels (gpt_own.h): names, machine code, functions. GPT_IMAGES is the
 * folder of what nvcc made; GPT_SIM says that there are functions for the simulated GPU. */
#include "examples/transformer/gpt_own.h"

#if defined(GPT_IMAGES)
#define IMAGE(file)                                                               \
    __asm__(".section .rodata\n.balign 64\n"                                      \
            ".hidden gpt_image_" #file "\n.globl gpt_image_" #file "\n"           \
            "gpt_image_" #file ":\n"                                              \
            ".incbin \"" GPT_IMAGES "/" #file ".fatbin\"\n.byte 0\n.previous\n"); \
    extern const unsigned char gpt_image_##file[];
IMAGE(gpt_gpu)
IMAGE(gpt_more)
#define IMAGE_OF(file) gpt_image_##file
#else
#define IMAGE_OF(file) ((const void *)0)
#endif

#if defined(GPT_SIM)
#define FUNCTION(name) name
#define DECLARE(name) void name(const void *args);
#else
#define FUNCTION(name) ((void (*)(const void *))0)
#define DECLARE(name)
#endif

#define ONE(file, name)                       \
    {                                         \
#name, IMAGE_OF(file), FUNCTION(name) \
    }
#define BOTH(file, name)                                      \
    {                                                         \
        ONE(file, name##_float32), ONE(file, name##_bfloat16) \
    }
#define DECLARE_BOTH(name) DECLARE(name##_float32) DECLARE(name##_bfloat16)
#define HEAD(size)                                                                    \
    BOTH(gpt_gpu, gpt_gpu_attend_##size), BOTH(gpt_gpu, gpt_gpu_attend_delta_##size), \
        BOTH(gpt_gpu, gpt_gpu_attend_queries_##size), BOTH(gpt_gpu, gpt_gpu_attend_keys_##size)
#define DECLARE_HEAD(size)                    \
    DECLARE_BOTH(gpt_gpu_attend_##size)       \
    DECLARE_BOTH(gpt_gpu_attend_delta_##size) \
    DECLARE_BOTH(gpt_gpu_attend_queries_##size) DECLARE_BOTH(gpt_gpu_attend_keys_##size)

DECLARE_BOTH(gpt_gpu_norm)
DECLARE_BOTH(gpt_gpu_norm_back)
DECLARE_BOTH(gpt_gpu_columns)
DECLARE_BOTH(gpt_gpu_gelu)
DECLARE_BOTH(gpt_gpu_gelu_back)
DECLARE_BOTH(gpt_gpu_classify)
DECLARE_BOTH(gpt_gpu_embed)
DECLARE_BOTH(gpt_gpu_embed_places)
DECLARE_BOTH(gpt_gpu_embed_tokens)
DECLARE_BOTH(gpt_gpu_shares)
DECLARE_BOTH(gpt_gpu_share_slopes)
DECLARE_HEAD(4)
DECLARE_HEAD(16)
DECLARE_HEAD(32)
DECLARE_HEAD(64)
DECLARE(gpt_gpu_columns_end)
DECLARE(gpt_gpu_product_wide)
DECLARE(gpt_gpu_product_thin)
DECLARE(gpt_gpu_product_mixed)

static const struct tti_gpu_own typed[GPT_OWN_TYPED][2] = {
    [GPT_OWN_NORM] = BOTH(gpt_gpu, gpt_gpu_norm),
    [GPT_OWN_NORM_BACK] = BOTH(gpt_gpu, gpt_gpu_norm_back),
    [GPT_OWN_COLUMNS] = BOTH(gpt_gpu, gpt_gpu_columns),
    [GPT_OWN_GELU] = BOTH(gpt_gpu, gpt_gpu_gelu),
    [GPT_OWN_GELU_BACK] = BOTH(gpt_gpu, gpt_gpu_gelu_back),
    [GPT_OWN_CLASSIFY] = BOTH(gpt_gpu, gpt_gpu_classify),
    [GPT_OWN_EMBED] = BOTH(gpt_more, gpt_gpu_embed),
    [GPT_OWN_EMBED_PLACES] = BOTH(gpt_more, gpt_gpu_embed_places),
    [GPT_OWN_EMBED_TOKENS] = BOTH(gpt_more, gpt_gpu_embed_tokens),
    [GPT_OWN_SHARES] = BOTH(gpt_more, gpt_gpu_shares),
    [GPT_OWN_SHARE_SLOPES] = BOTH(gpt_more, gpt_gpu_share_slopes),
    [GPT_OWN_ATTEND] = HEAD(4),
    HEAD(16),
    HEAD(32),
    HEAD(64)};
static const struct tti_gpu_own others[GPT_OWN_COUNT - GPT_OWN_TYPED] = {
    ONE(gpt_gpu, gpt_gpu_columns_end), ONE(gpt_more, gpt_gpu_product_wide),
    ONE(gpt_more, gpt_gpu_product_thin), ONE(gpt_more, gpt_gpu_product_mixed)};

const struct tti_gpu_own *gpt_own_kernel(enum gpt_own kernel, bool thin)
{
    return kernel < GPT_OWN_TYPED ? &typed[kernel][thin] : &others[kernel - GPT_OWN_TYPED];
}

enum tutti_result gpt_own_load(struct tti_gpu *gpu)
{
    enum { THREADS = 32 };
    for (int kernel = 0; kernel < GPT_OWN_COUNT; kernel++) {
        for (int thin = 0; thin < (kernel < GPT_OWN_TYPED ? 2 : 1); thin++) {
            const struct tti_gpu_launch launch = {
                .own = gpt_own_kernel((enum gpt_own)kernel, thin), .blocks = 1, .threads = THREADS};
            int blocks = 0; /* asking for them loads it */
            TTI_TRY(gpu->ops->resident(gpu, &launch, &blocks));
        }
    }
    return TUTTI_OK;
}

int gpt_own_head(int channels)
{
    switch (channels) {
    case 4:
        return 0;
    case 16:
        return 1;
    case 32:
        return 2;
    case 64:
        return 3;
    default:
        return -1;
    }
}
