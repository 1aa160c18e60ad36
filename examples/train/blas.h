/* Matrix products for the examples: OpenBLAS if the machine has it, plain loops otherwise. */
#ifndef EXAMPLES_TRAIN_BLAS_H
#define EXAMPLES_TRAIN_BLAS_H

#include <stdbool.h>
#include <stddef.h>

/* Look for OpenBLAS, which then uses one thread. `allowed` false: plain loops. Once, before the
 * first product; not thread-safe. */
void blas_start(bool allowed);
/* How many threads a product may use; of the whole process. */
void blas_threads(int threads);
/* "OpenBLAS" or "plain loops". */
const char *blas_name(void);

/* C = beta C + alpha op(A) op(B), row-major: C is m x n, op(A) m x k, op(B) k x n; op(X) is X or,
 * with `ta` or `tb`, its transpose. ld*: elements between rows as they are stored. */
void blas_matmul(bool ta, bool tb, int m, int n, int k, float alpha, const float *a, int lda,
                 const float *b, int ldb, float beta, float *c, int ldc);

#endif
