/* Which matrix products a GPU uses (gpt_products.h). */
#include "examples/transformer/gpt_products.h"

#include "examples/transformer/gpt_gpu.h"
#include "examples/transformer/gpt_own.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gpt_products {
    struct train_gpu *side;
    struct gpt_cublas *cublas; /* NULL: the own kernel */
};

int gpt_products_create(struct train_gpu *side, bool plain, struct gpt_products **products)
{
    struct gpt_products *made = calloc(1, sizeof *made);
    if (!made) {
        fprintf(stderr, "no memory for products\n");
        return 1;
    }
    made->side = side;
    /* On the simulated GPU only one that is given by name: it has to compute on the CPU. */
    if (!plain && (strcmp(side->ops->name, "cuda") == 0 || getenv("TUTTI_LIBCUBLASLT")))
        made->cublas = gpt_cublas_open(side);
    *products = made;
    return 0;
}

void gpt_products_destroy(struct gpt_products *products)
{
    if (!products)
        return;
    gpt_cublas_close(products->cublas);
    free(products);
}

const char *gpt_products_name(const struct gpt_products *products)
{
    return products->cublas ? "cuBLASLt" : "plain products";
}

struct gpt_product gpt_product_of(bool transpose_a, bool transpose_b, int m, int n, int k,
                                  bool thin_in, bool thin_out)
{
    return (struct gpt_product){.transpose_a = transpose_a,
                                .transpose_b = transpose_b,
                                .m = m,
                                .n = n,
                                .k = k,
                                .lda = transpose_a ? m : k,
                                .ldb = transpose_b ? k : n,
                                .ldc = n,
                                .thin_in = thin_in,
                                .thin_out = thin_out};
}

/* Heads of four channels, say, are not. */
static bool product_aligned(const struct gpt_product *p)
{
    const uintptr_t in = p->thin_in ? 2 : 4, out = p->thin_out ? 2 : 4;
    const bool many = p->batch > 0;
    const uintptr_t bits = (uintptr_t)p->a | (uintptr_t)p->b | (uintptr_t)p->c |
                           (uintptr_t)p->lda * in | (uintptr_t)p->ldb * in |
                           (uintptr_t)p->ldc * out |
                           (many ? ((uintptr_t)p->stride_a | (uintptr_t)p->stride_b) * in : 0) |
                           (many ? (uintptr_t)p->stride_c * out : 0);
    return bits % GPT_PRODUCT_ALIGNMENT == 0;
}

int gpt_product(struct gpt_products *products, const struct gpt_product *p)
{
    if (products->cublas && product_aligned(p))
        return gpt_cublas_product(products->cublas, p);
    struct gpt_gpu_product_args args = {.a = p->a,
                                        .b = p->b,
                                        .c = p->c,
                                        .bias = p->bias,
                                        .m = p->m,
                                        .n = p->n,
                                        .k = p->k,
                                        .lda = p->lda,
                                        .ldb = p->ldb,
                                        .ldc = p->ldc,
                                        .transpose_a = p->transpose_a,
                                        .transpose_b = p->transpose_b,
                                        .add = p->add,
                                        .stride_a = p->stride_a,
                                        .stride_b = p->stride_b,
                                        .stride_c = p->stride_c};
    const uint64_t strips = (uint64_t)p->m * (uint64_t)((p->n + GPT_GPU_STRIP - 1) / GPT_GPU_STRIP);
    const uint64_t blocks = (strips + GPT_GPU_THREADS - 1) / GPT_GPU_THREADS;
    args.blocks = (unsigned)blocks;
    const enum gpt_own kernel = !p->thin_in   ? GPT_OWN_PRODUCT_WIDE
                                : p->thin_out ? GPT_OWN_PRODUCT_THIN
                                              : GPT_OWN_PRODUCT_MIXED;
    return train_gpu_launch(products->side, gpt_own_kernel(kernel, false),
                            (unsigned)blocks * (unsigned)(p->batch > 0 ? p->batch : 1),
                            GPT_GPU_THREADS, &args, sizeof args);
}
