/* A small model with gradients that sum exactly (tests/ddp/ddp_model.h). */
#include "tests/ddp/ddp_model.h"

#include <stdlib.h>
#include <string.h>

void model_tensors(struct tutti_ddp_tensor tensors[MODEL_TENSORS])
{
    static const char *const names[MODEL_TENSORS] = {"1.weight", "1.bias",   "2.weight",
                                                     "2.bias",   "scale",    "3.weight",
                                                     "3.bias",   "4.weight", "4.bias"};
    static const size_t shapes[MODEL_TENSORS][2] = {{37, 53}, {53, 1}, {53, 31}, {31, 1}, {1, 1},
                                                    {31, 47}, {47, 1}, {47, 11}, {11, 1}};
    for (int i = 0; i < MODEL_TENSORS; i++) {
        bool scalar = i == 4;
        tensors[i] = (struct tutti_ddp_tensor){
            .name = names[i],
            .type = scalar ? TUTTI_FLOAT64 : TUTTI_FLOAT32,
            .dims = scalar              ? 0
                    : shapes[i][1] == 1 ? 1
                                        : 2,
            .shape = {shapes[i][0], shapes[i][1]},
            .unit = i < 4   ? i / 2
                    : i < 7 ? 2
                            : 3,
        };
    }
}

size_t model_elements(const struct tutti_ddp_tensor *tensor)
{
    size_t elements = 1;
    for (int d = 0; d < tensor->dims; d++)
        elements *= tensor->shape[d];
    return elements;
}

double model_gradient(int rank, int pass, size_t index, size_t element)
{
    return (double)((size_t)(rank + 1) * (element % 13 + index) + (size_t)pass * (element % 7));
}

int model_backward(tutti_ddp *ddp, int rank, int pass, size_t index)
{
    struct tutti_ddp_tensor tensors[MODEL_TENSORS];
    void *gradient = NULL;
    model_tensors(tensors);
    CHECK_OK(tutti_ddp_gradient(ddp, index, &gradient));
    CHECK((uintptr_t)gradient % 64 == 0);
    for (size_t e = 0; e < model_elements(&tensors[index]); e++)
        if (tensors[index].type == TUTTI_FLOAT64)
            ((double *)gradient)[e] += model_gradient(rank, pass, index, e);
        else
            ((float *)gradient)[e] += (float)model_gradient(rank, pass, index, e);
    return 0;
}

int model_check(tutti_ddp *ddp, model_expected *expected, const void *argument)
{
    struct tutti_ddp_tensor tensors[MODEL_TENSORS];
    const struct tutti_ddp_piece *pieces = NULL;
    size_t count = 0, elements = 0, seen = 0;
    model_tensors(tensors);
    CHECK_OK(tutti_ddp_pieces(ddp, &pieces, &count, &elements));
    for (size_t p = 0; p < count; p++) {
        CHECK(pieces[p].state == seen);
        seen += pieces[p].count;
        for (size_t e = 0; e < pieces[p].count; e++) {
            size_t index = pieces[p].index, element = pieces[p].first + e;
            double got = tensors[index].type == TUTTI_FLOAT64
                             ? ((const double *)pieces[p].gradient)[e]
                             : (double)((const float *)pieces[p].gradient)[e];
            double want = expected(argument, index, element);
            if (tensors[index].type == TUTTI_FLOAT32)
                want = (double)(float)want;
            if (got != want) {
                fprintf(stderr, "%s[%zu] is %.17g, expected %.17g\n", tensors[index].name, element,
                        got, want);
                return 1;
            }
        }
    }
    CHECK(seen == elements);
    return 0;
}

double model_sum(const void *argument, size_t index, size_t element)
{
    const struct model_sums *s = argument;
    double sum = 0;
    for (int rank = 0; rank < s->ranks; rank++)
        for (int pass = s->first; pass <= s->last; pass++)
            sum += model_gradient(rank, pass, index, element);
    return sum / s->divisor;
}

int model_pass(tutti_ddp *ddp, int rank, int pass, bool synchronise, bool shuffled)
{
    CHECK_OK(tutti_ddp_begin(ddp, synchronise));
    for (size_t k = 0; k < MODEL_TENSORS; k++) {
        size_t index = shuffled ? (k * 4 + (size_t)rank) % MODEL_TENSORS : MODEL_TENSORS - 1 - k;
        if (model_backward(ddp, rank, pass, index))
            return 1;
        CHECK_OK(tutti_ddp_ready(ddp, index));
    }
    CHECK_OK(tutti_ddp_wait(ddp));
    return 0;
}

static struct tti_ranks model_ranks(int argc, char **argv)
{
    struct tti_ranks how = {.ranks = 2, .options = TUTTI_OPTIONS_INIT};
    how.options.timeout_s = 60;
    for (int i = 1; i < argc; i++) {
        if (!tti_ranks_flag(&how, argc, argv, &i)) {
            fprintf(stderr, "usage: %s [--ranks N] [--processes] [--hosts N]\n", argv[0]);
            exit(2);
        }
    }
    return how;
}

int model_main(int argc, char **argv, const struct model_case *cases, size_t count)
{
    struct tti_ranks how = model_ranks(argc, argv);
    int failed = 0;
    for (size_t i = 0; i < count; i++) {
        int ranks = tti_ranks_run(&how, cases[i].function, NULL);
        printf("%-22s %s\n", cases[i].name, ranks ? "FAILED" : "ok");
        failed += ranks;
    }
    return failed ? 1 : 0;
}
