/* Matrix products by cuBLASLt (gpt_products.h), from the library that is found at run time
 * (TUTTI_LIBCUBLASLT names another): a build needs neither its header nor the library. The numbers
 * are of its binary interface, which its versions 11 to 13 share.
 *
 * cuBLASLt counts columns first: what is [m, n] here is [n, m] there, so c = a b is asked for as
 * c' = b' a', and a bias along our columns is one along its rows. Not yet run on a GPU. */
#include "examples/transformer/gpt_products.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TYPE_FLOAT32 = 0,
    TYPE_BFLOAT16 = 14,
    COMPUTE_FLOAT32 = 68,
    DESC_TRANSPOSE_A = 3,
    DESC_TRANSPOSE_B = 4,
    DESC_EPILOGUE = 7,
    DESC_BIAS_POINTER = 8,
    DESC_BIAS_TYPE = 26,
    LAYOUT_BATCH = 5,
    LAYOUT_STRIDE = 6,
    EPILOGUE_BIAS = 4,
    PREFER_WORKSPACE = 1,
    PREFER_ALIGNMENT = 5, /* of a; then b, c, d */
    WORKSPACE = 32 << 20,
    SHAPES = 64, /* different products that are remembered */
};

struct algorithm {
    uint64_t data[8];
};
struct heuristic {
    struct algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

/* The library's functions; all return 0 when they succeed. */
struct cublas_library {
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*desc_create)(void **desc, int compute, int scale_type);
    int (*desc_destroy)(void *desc);
    int (*desc_set)(void *desc, int attribute, const void *value, size_t bytes);
    int (*layout_create)(void **layout, int type, uint64_t rows, uint64_t columns, int64_t ld);
    int (*layout_destroy)(void *layout);
    int (*layout_set)(void *layout, int attribute, const void *value, size_t bytes);
    int (*preference_create)(void **preference);
    int (*preference_destroy)(void *preference);
    int (*preference_set)(void *preference, int attribute, const void *value, size_t bytes);
    int (*heuristic)(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference,
                     int wanted, struct heuristic *found, int *count);
    int (*matmul)(void *handle, void *desc, const void *alpha, const void *a, void *layout_a,
                  const void *b, void *layout_b, const void *beta, const void *c, void *layout_c,
                  void *d, void *layout_d, const struct algorithm *algorithm, void *workspace,
                  size_t workspace_bytes, void *stream);
};

/* A shape that came before: its descriptions, and the algorithm. */
struct shape {
    struct gpt_product key; /* without pointers */
    void *desc, *a, *b, *c;
    struct heuristic found;
};

struct gpt_cublas {
    struct train_gpu *side;
    struct cublas_library lt;
    void *library, *handle, *preference, *workspace;
    struct shape shapes[SHAPES];
    int count;
    bool at_once; /* the library computes when it is called, not on the stream */
};

static bool cublas_symbols(void *library, struct cublas_library *lt)
{
    const struct {
        const char *name;
        void *place;
    } symbols[] = {
        {"cublasLtCreate", &lt->create},
        {"cublasLtDestroy", &lt->destroy},
        {"cublasLtMatmulDescCreate", &lt->desc_create},
        {"cublasLtMatmulDescDestroy", &lt->desc_destroy},
        {"cublasLtMatmulDescSetAttribute", &lt->desc_set},
        {"cublasLtMatrixLayoutCreate", &lt->layout_create},
        {"cublasLtMatrixLayoutDestroy", &lt->layout_destroy},
        {"cublasLtMatrixLayoutSetAttribute", &lt->layout_set},
        {"cublasLtMatmulPreferenceCreate", &lt->preference_create},
        {"cublasLtMatmulPreferenceDestroy", &lt->preference_destroy},
        {"cublasLtMatmulPreferenceSetAttribute", &lt->preference_set},
        {"cublasLtMatmulAlgoGetHeuristic", &lt->heuristic},
        {"cublasLtMatmul", &lt->matmul},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *found = dlsym(library, symbols[i].name);
        if (!found)
            return false;
        memcpy(symbols[i].place, &found, sizeof found);
    }
    return true;
}

static void *cublas_library(void)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
    const char *given = getenv("TUTTI_LIBCUBLASLT");
    if (given)
        return dlopen(given, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library)
            return library;
    }
    return NULL;
}

/* cuBLASLt works in the calling thread's context: make it the one in which the library works. */
static bool cublas_context(const struct train_gpu *side)
{
    if (strcmp(side->ops->name, "cuda") != 0)
        return true;
    int (*retain)(void **context, int device) = NULL;
    int (*current)(void *context) = NULL;
    void *context = NULL, *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *found[2] = {driver ? dlsym(driver, "cuDevicePrimaryCtxRetain") : NULL,
                      driver ? dlsym(driver, "cuCtxSetCurrent") : NULL};
    memcpy(&retain, &found[0], sizeof retain);
    memcpy(&current, &found[1], sizeof current);
    return retain && current && retain(&context, side->gpu->device) == 0 && current(context) == 0;
}

/* What algorithms may rely on. */
static bool cublas_preferences(struct gpt_cublas *made)
{
    const struct cublas_library *lt = &made->lt;
    const size_t room = WORKSPACE;
    const uint32_t alignment = GPT_PRODUCT_ALIGNMENT;
    bool good = lt->preference_create(&made->preference) == 0 &&
                lt->preference_set(made->preference, PREFER_WORKSPACE, &room, sizeof room) == 0;
    for (int i = 0; i < 4 && good; i++)
        good = lt->preference_set(made->preference, PREFER_ALIGNMENT + i, &alignment,
                                  sizeof alignment) == 0;
    return good;
}

struct gpt_cublas *gpt_cublas_open(struct train_gpu *side)
{
    struct gpt_cublas *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    made->side = side;
    made->at_once = strcmp(side->ops->name, "cuda") != 0;
    made->library = cublas_library();
    if (made->library && cublas_context(side) && cublas_symbols(made->library, &made->lt) &&
        made->lt.create(&made->handle) == 0 && cublas_preferences(made) &&
        (made->workspace = train_gpu_alloc(side, WORKSPACE)))
        return made;
    fprintf(stderr, "no cuBLASLt (%s): products by a plain kernel, which is slow\n",
            made->library ? "it does not start" : "libcublasLt.so.13 is not found");
    gpt_cublas_close(made);
    return NULL;
}

static void shape_release(const struct cublas_library *lt, struct shape *s)
{
    if (s->desc)
        lt->desc_destroy(s->desc);
    if (s->a)
        lt->layout_destroy(s->a);
    if (s->b)
        lt->layout_destroy(s->b);
    if (s->c)
        lt->layout_destroy(s->c);
    *s = (struct shape){.desc = NULL};
}

void gpt_cublas_close(struct gpt_cublas *cublas)
{
    if (!cublas)
        return;
    for (int i = 0; i < cublas->count; i++)
        shape_release(&cublas->lt, &cublas->shapes[i]);
    train_gpu_free(cublas->side, cublas->workspace);
    if (cublas->preference)
        cublas->lt.preference_destroy(cublas->preference);
    if (cublas->handle)
        cublas->lt.destroy(cublas->handle);
    if (cublas->library)
        dlclose(cublas->library);
    free(cublas);
}

static bool shape_same(const struct gpt_product *a, const struct gpt_product *b)
{
    return a->transpose_a == b->transpose_a && a->transpose_b == b->transpose_b && a->m == b->m &&
           a->n == b->n && a->k == b->k && a->lda == b->lda && a->ldb == b->ldb &&
           a->ldc == b->ldc && a->batch == b->batch && a->stride_a == b->stride_a &&
           a->stride_b == b->stride_b && a->stride_c == b->stride_c &&
           (a->bias != NULL) == (b->bias != NULL) && a->add == b->add && a->thin_in == b->thin_in &&
           a->thin_out == b->thin_out;
}

/* As it lies in memory, columns first: rows of ours are columns there. */
static int shape_layout(const struct cublas_library *lt, void **layout, bool thin, bool transposed,
                        int rows, int columns, int ld)
{
    return lt->layout_create(layout, thin ? TYPE_BFLOAT16 : TYPE_FLOAT32,
                             (uint64_t)(transposed ? rows : columns),
                             (uint64_t)(transposed ? columns : rows), ld);
}

static int shape_make(struct gpt_cublas *cublas, const struct gpt_product *p, struct shape *s)
{
    const struct cublas_library *lt = &cublas->lt;
    const int32_t first = p->transpose_b, second = p->transpose_a;
    const int32_t type = p->thin_in ? TYPE_BFLOAT16 : TYPE_FLOAT32;
    const uint32_t epilogue = EPILOGUE_BIAS;
    int count = 0;
    s->key = *p;
    if (lt->desc_create(&s->desc, COMPUTE_FLOAT32, TYPE_FLOAT32) ||
        lt->desc_set(s->desc, DESC_TRANSPOSE_A, &first, sizeof first) ||
        lt->desc_set(s->desc, DESC_TRANSPOSE_B, &second, sizeof second))
        return 1;
    if (p->bias &&
        (lt->desc_set(s->desc, DESC_EPILOGUE, &epilogue, sizeof epilogue) ||
         lt->desc_set(s->desc, DESC_BIAS_TYPE, &type, sizeof type) ||
         lt->desc_set(s->desc, DESC_BIAS_POINTER, &(const void *){p->bias}, sizeof(void *))))
        return 1;
    if (shape_layout(lt, &s->a, p->thin_in, p->transpose_b, p->k, p->n, p->ldb) ||
        shape_layout(lt, &s->b, p->thin_in, p->transpose_a, p->m, p->k, p->lda) ||
        shape_layout(lt, &s->c, p->thin_out, false, p->m, p->n, p->ldc))
        return 1;
    const struct {
        void *layout;
        int64_t stride;
    } batched[] = {{s->a, p->stride_b}, {s->b, p->stride_a}, {s->c, p->stride_c}};
    const int32_t batch = p->batch;
    for (int i = 0; i < 3 && batch > 0; i++)
        if (lt->layout_set(batched[i].layout, LAYOUT_BATCH, &batch, sizeof batch) ||
            lt->layout_set(batched[i].layout, LAYOUT_STRIDE, &batched[i].stride, sizeof(int64_t)))
            return 1;
    return lt->heuristic(cublas->handle, s->desc, s->a, s->b, s->c, s->c, cublas->preference, 1,
                         &s->found, &count) ||
           count < 1 || s->found.state != 0;
}

/* NULL after a message. */
static struct shape *shape_find(struct gpt_cublas *cublas, const struct gpt_product *p)
{
    for (int i = 0; i < cublas->count; i++)
        if (shape_same(&cublas->shapes[i].key, p))
            return &cublas->shapes[i];
    if (cublas->count == SHAPES) /* sampling has many; the last place is for them */
        shape_release(&cublas->lt, &cublas->shapes[--cublas->count]);
    struct shape *s = &cublas->shapes[cublas->count];
    if (shape_make(cublas, p, s)) {
        fprintf(stderr, "cuBLASLt has no product [%d, %d] by [%d, %d]%s\n", p->m, p->k, p->k, p->n,
                p->bias ? " with a bias" : "");
        shape_release(&cublas->lt, s);
        return NULL;
    }
    cublas->count++;
    return s;
}

int gpt_cublas_product(struct gpt_cublas *cublas, const struct gpt_product *p)
{
    const struct cublas_library *lt = &cublas->lt;
    const float one = 1, beta = p->add ? 1 : 0;
    struct shape *s = shape_find(cublas, p);
    if (!s || (cublas->at_once && train_gpu_wait(cublas->side)))
        return 1;
    int status =
        p->bias ? lt->desc_set(s->desc, DESC_BIAS_POINTER, &(const void *){p->bias}, sizeof(void *))
                : 0;
    if (status == 0)
        status = lt->matmul(cublas->handle, s->desc, &one, p->b, s->a, p->a, s->b, &beta, p->c,
                            s->c, p->c, s->c, &s->found.algorithm, cublas->workspace, WORKSPACE,
                            cublas->side->stream);
    if (status != 0)
        fprintf(stderr, "cublasLtMatmul of [%d, %d] by [%d, %d] failed with status %d\n", p->m,
                p->k, p->k, p->n, status);
    return status != 0;
}
