/* Matrix products (blas.h). OpenBLAS is loaded at run time, so that one program serves machines
 * with and without it. */
#include "examples/train/blas.h"

#include <dlfcn.h>

/* CBLAS's interface: layout, transposes as numbers, then as usual. */
enum { ROW_MAJOR = 101, AS_IS = 111, TRANSPOSED = 112 };
typedef void sgemm_function(int layout, int ta, int tb, int m, int n, int k, float alpha,
                            const float *a, int lda, const float *b, int ldb, float beta, float *c,
                            int ldc);

static sgemm_function *blas_sgemm;
static void (*blas_set_threads)(int);

void blas_start(bool allowed)
{
    static const char *const names[] = {"libopenblas.so.0", "libopenblas.so"};
    for (int i = 0; i < 2 && allowed && !blas_sgemm; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        void *sgemm = library ? dlsym(library, "cblas_sgemm") : NULL;
        void *set_threads = library ? dlsym(library, "openblas_set_num_threads") : NULL;
        if (!sgemm || !set_threads)
            continue;
        /* POSIX lets an address from dlsym be a function's. */
        *(void **)&blas_set_threads = set_threads;
        *(void **)&blas_sgemm = sgemm;
        blas_set_threads(1);
    }
}

void blas_threads(int threads)
{
    if (blas_set_threads)
        blas_set_threads(threads);
}

const char *blas_name(void)
{
    return blas_sgemm ? "OpenBLAS" : "plain loops";
}

/* With beta 0 also where C was never written: no NaN times zero. */
static void blas_scale(int m, int n, float beta, float *c, size_t ldc)
{
    for (int i = 0; i < m && beta != 1; i++)
        for (int j = 0; j < n; j++)
            c[(size_t)i * ldc + (size_t)j] = beta == 0 ? 0 : beta * c[(size_t)i * ldc + (size_t)j];
}

/* One row of C at a time; the innermost loop runs along rows wherever B is stored so. */
static void blas_plain(bool ta, bool tb, int m, int n, int k, float alpha, const float *a,
                       size_t lda, const float *b, size_t ldb, float *c, size_t ldc)
{
    for (int i = 0; i < m; i++) {
        float *restrict row = c + (size_t)i * ldc;
        if (tb) {
            for (int j = 0; j < n; j++) {
                const float *other = b + (size_t)j * ldb;
                float sum = 0;
                for (int p = 0; p < k; p++)
                    sum += (ta ? a[(size_t)p * lda + (size_t)i] : a[(size_t)i * lda + (size_t)p]) *
                           other[p];
                row[j] += alpha * sum;
            }
            continue;
        }
        for (int p = 0; p < k; p++) {
            const float factor =
                alpha * (ta ? a[(size_t)p * lda + (size_t)i] : a[(size_t)i * lda + (size_t)p]);
            const float *restrict other = b + (size_t)p * ldb;
            for (int j = 0; j < n; j++)
                row[j] += factor * other[j];
        }
    }
}

void blas_matmul(bool ta, bool tb, int m, int n, int k, float alpha, const float *a, int lda,
                 const float *b, int ldb, float beta, float *c, int ldc)
{
    if (blas_sgemm) {
        blas_sgemm(ROW_MAJOR, ta ? TRANSPOSED : AS_IS, tb ? TRANSPOSED : AS_IS, m, n, k, alpha, a,
                   lda, b, ldb, beta, c, ldc);
        return;
    }
    blas_scale(m, n, beta, c, (size_t)ldc);
    blas_plain(ta, tb, m, n, k, alpha, a, (size_t)lda, b, (size_t)ldb, c, (size_t)ldc);
}
