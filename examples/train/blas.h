/* Matrix products for the examples: OpenBLAS if the machine has it, plain loops otherwise. */
#ifndef EXAMPLES_TRAIN_BLAS_H
#define EXAMPLES_TRAIN_BLAS_H

#include <stdbool.h>
#include <stddef.h>

/* Look for OpenBLAS and let it use `threads` threads. `allowed` false: plain loops. Once, before
 * the first product; not thread-safe. Returns the name of what will be used. */
const char *blas_start(bool allowed, int threads);

/* C = beta C + alpha op(A) op(B), row-major: C is m x n, op(A) m x k, op(B) k x n; op(X) is X or,
 * with `ta` or `tb`, its transpose. ld*: elements between rows as they are stored. */
void blas_matmul(bool ta, bool tb, int m, int n, int k, float alpha, const float *a, int lda,
                 const float *b, int ldb, float beta, float *c, int ldc);

#endif
