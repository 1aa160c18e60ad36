/* A model of a few tensors for the tests of tutti_ddp: gradients are made from rank, step and
 * element, integers as floats, so that sums are exact and can be told beforehand. */
#ifndef TTI_TESTS_DDP_MODEL_H
#define TTI_TESTS_DDP_MODEL_H

#include "tests/integration/ranks.h"
#include "tests/rank_check.h"
#include "tutti/ddp.h"

#include <stdio.h>

enum { MODEL_TENSORS = 9 };

/* Weights and biases of four layers, float32, and one float64 scalar in their midst; lengths that
 * are no multiples of anything. Values are the library's. */
void model_tensors(struct tutti_ddp_tensor tensors[MODEL_TENSORS]);
size_t model_elements(const struct tutti_ddp_tensor *tensor);
/* What this rank adds for an element: a small integer. */
double model_gradient(int rank, int pass, size_t index, size_t element);
/* Add it to the gradients of all elements of a tensor. */
int model_backward(tutti_ddp *ddp, int rank, int pass, size_t index);
/* Every gradient is `expected(argument, index, element)`. */
typedef double model_expected(const void *argument, size_t index, size_t element);
int model_check(tutti_ddp *ddp, model_expected *expected, const void *argument);

/* The sum of ranks' gradients of passes first .. last, divided. */
struct model_sums {
    int ranks, first, last;
    double divisor;
};
model_expected model_sum;

/* One pass: gradients in an order that depends on the rank if `shuffled`. */
int model_pass(tutti_ddp *ddp, int rank, int pass, bool synchronise, bool shuffled);

struct model_case {
    const char *name;
    tti_rank_function *function;
};
/* Run the cases as the command line says (--ranks N, --processes, --hosts N); main's result. */
int model_main(int argc, char **argv, const struct model_case *cases, size_t count);

#endif
