/* Matrix products on a GPU: by cuBLASLt, found at run time, or by a kernel of our own, which also
 * runs on the simulated GPU. Functions return 0, or 1 after a message on stderr. Not yet run on a
 * GPU. */
#ifndef EXAMPLES_TRANSFORMER_GPT_PRODUCTS_H
#define EXAMPLES_TRANSFORMER_GPT_PRODUCTS_H

#include "examples/train/train_gpu.h"

/* c = op(a) op(b) + bias + (add ? c : 0), row-major, in memory of the device: op(a) is [m, k],
 * op(b) [k, n]; lda .. ldc: elements between rows as they lie in memory. Sums are float32. */
struct gpt_product {
    bool transpose_a, transpose_b;
    int m, n, k;
    const void *a, *b;
    void *c;
    int lda, ldb, ldc;
    const void *bias; /* [n], of the inputs' type; NULL: none */
    bool add;
    int batch; /* so many products, each with its own a, b and c; 0: one */
    int64_t stride_a, stride_b, stride_c; /* elements from one to the next */
    bool thin_in, thin_out;               /* a and b, c: bfloat16, or float32 */
};

/* One of matrices without gaps between their rows, [m, k] by [k, n], that are to be filled in. */
struct gpt_product gpt_product_of(bool transpose_a, bool transpose_b, int m, int n, int k,
                                  bool thin_in, bool thin_out);

struct gpt_products;
/* plain: the own kernel, even where there is cuBLASLt. */
int gpt_products_create(struct train_gpu *side, bool plain, struct gpt_products **products);
void gpt_products_destroy(struct gpt_products *products);
const char *gpt_products_name(const struct gpt_products *products);
/* Queued on the side's stream. By cuBLASLt where matrices and rows begin at multiples of
 * GPT_PRODUCT_ALIGNMENT bytes, which its algorithms are chosen for; else by the own kernel. */
enum { GPT_PRODUCT_ALIGNMENT = 16 };
int gpt_product(struct gpt_products *products, const struct gpt_product *product);

/* ---- gpt_cublas.c: NULL if there is no cuBLASLt, or no such product ---- */
struct gpt_cublas;
struct gpt_cublas *gpt_cublas_open(struct train_gpu *side);
void gpt_cublas_close(struct gpt_cublas *cublas);
int gpt_cublas_product(struct gpt_cublas *cublas, const struct gpt_product *product);

#endif
