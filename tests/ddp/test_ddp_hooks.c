/* Hooks of tutti_ddp: 16-bit gradients, PowerSGD, a user's. */
#include "tests/ddp/ddp_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Small integers are exact in 16 bits while they stay below 256 (bfloat16): mean over 2^k ranks. */
static int sixteen_bits(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct tutti_ddp_tensor tensors[MODEL_TENSORS];
    int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    model_tensors(tensors);
    for (int k = 0; k < 4; k++) {
        struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
        tutti_ddp *ddp = NULL;
        options.hook = k % 2 ? TUTTI_DDP_HOOK_BFLOAT16 : TUTTI_DDP_HOOK_FLOAT16;
        options.path = k < 2 ? TUTTI_DDP_PATH_WHOLE : TUTTI_DDP_PATH_SPLIT;
        options.bucket_bytes = options.first_bucket_bytes = 4096;
        options.divisor = TUTTI_DDP_SUM;
        CHECK_OK(tutti_ddp_create(comm, tensors, MODEL_TENSORS, &options, &ddp));
        for (int step = 0; step < 2; step++) {
            struct model_sums s = {size, step, step, 1};
            struct tutti_ddp_statistics seen;
            if (model_pass(ddp, rank, step, true, false) || model_check(ddp, model_sum, &s))
                return 1;
            CHECK_OK(tutti_ddp_statistics(ddp, &seen));
            CHECK(seen.last.bytes < seen.gradient_bytes * 11 / 10 / (k < 2 ? 2 : 1));
        }
        tutti_ddp_destroy(ddp);
    }
    return 0;
}

struct user_hook {
    int calls;
    size_t members;
};

/* Sums in two halves and divides by 8: its own idea of a mean. */
static enum tutti_result user_reduce(const struct tutti_ddp_bucket *bucket, void *context)
{
    struct user_hook *hook = context;
    size_t half = bucket->count / 2, element = tutti_type_size(bucket->type);
    char *second = (char *)bucket->data + half * element;
    hook->calls++;
    hook->members += bucket->member_count;
    enum tutti_result result =
        tutti_all_reduce(bucket->data, bucket->data, half, bucket->type, TUTTI_SUM, bucket->comm);
    if (result == TUTTI_OK)
        result = tutti_all_reduce(second, second, bucket->count - half, bucket->type, TUTTI_SUM,
                                  bucket->comm);
    for (size_t i = 0; i < bucket->count; i++)
        if (bucket->type == TUTTI_FLOAT32)
            ((float *)bucket->data)[i] /= 8;
        else
            ((double *)bucket->data)[i] /= 8;
    return result;
}

static int user_hooks(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct tutti_ddp_tensor tensors[MODEL_TENSORS];
    struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
    struct user_hook hook = {0};
    tutti_ddp *ddp = NULL;
    int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    model_tensors(tensors);
    options.hook = TUTTI_DDP_HOOK_USER;
    CHECK(tutti_ddp_create(comm, tensors, MODEL_TENSORS, &options, &ddp) == TUTTI_ERR_ARGUMENT);
    options.user_hook = user_reduce;
    options.user_context = &hook;
    options.bucket_bytes = options.first_bucket_bytes = 4096;
    CHECK_OK(tutti_ddp_create(comm, tensors, MODEL_TENSORS, &options, &ddp));
    for (int step = 0; step < 2; step++) {
        struct model_sums s = {size, step, step, 8};
        if (model_pass(ddp, rank, step, true, true) || model_check(ddp, model_sum, &s))
            return 1;
    }
    CHECK(hook.calls >= 6 && hook.members == 2 * MODEL_TENSORS);
    tutti_ddp_destroy(ddp);
    return 0;
}

static enum tutti_result user_failing(const struct tutti_ddp_bucket *bucket, void *context)
{
    int rank = *(const int *)context;
    if (rank == tutti_comm_size(bucket->comm) - 1 && bucket->step == 1)
        return TUTTI_ERR_SYSTEM;
    return tutti_all_reduce(bucket->data, bucket->data, bucket->count, bucket->type, TUTTI_AVG,
                            bucket->comm);
}

/* A hook that fails on one rank ends the step on all, at once and not at a deadline. */
static int failing_hook(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct tutti_ddp_tensor tensors[MODEL_TENSORS];
    struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
    tutti_ddp *ddp = NULL;
    int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    model_tensors(tensors);
    options.hook = TUTTI_DDP_HOOK_USER;
    options.user_hook = user_failing;
    options.user_context = &rank;
    options.bucket_bytes = options.first_bucket_bytes = 4096;
    options.in_flight = 2;
    CHECK_OK(tutti_ddp_create(comm, tensors, MODEL_TENSORS, &options, &ddp));
    if (model_pass(ddp, rank, 0, true, false))
        return 1;
    CHECK_OK(tutti_ddp_begin(ddp, true));
    for (size_t i = MODEL_TENSORS; i-- > 0;)
        CHECK_OK(tutti_ddp_ready(ddp, i));
    enum tutti_result result = tutti_ddp_wait(ddp);
    CHECK(result == (rank == size - 1 ? TUTTI_ERR_SYSTEM : TUTTI_ERR_ABORTED));
    CHECK(strstr(tutti_last_error(), "while reducing bucket "));
    CHECK(tutti_ddp_begin(ddp, true) == result);
    tutti_ddp_destroy(ddp);
    CHECK_OK(tutti_barrier(comm)); /* the caller's is as before */
    return 0;
}

enum { ROWS = 24, COLUMNS = 40 };

/* Ranks' matrices of rank 3 with one column space, so that the mean has rank 3. */
static float low_rank(int rank, size_t i, size_t j)
{
    float sum = 0;
    for (int k = 0; k < 3; k++)
        sum += (float)((int)(i * (size_t)(k + 2)) % 5 - 2) *
               (float)((int)(j + (size_t)(k * 7)) % 4 - 1);
    return sum * (float)(rank + 1);
}

static float full_rank(int rank, size_t i, size_t j)
{
    uint64_t x = ((uint64_t)rank * ROWS + i) * COLUMNS + j + 1;
    x = (x ^ (x << 21)) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
    return (float)((x >> 40) % 2001) / 1000 - 1;
}

/* After each step: how far the sum of what came out is from the sum of what went in, largest
 * element; and are all ranks' results alike? */
static int power_run(tutti_comm *comm, float (*make)(int, size_t, size_t), int steps,
                     uint64_t start, double *first, double *last)
{
    const struct tutti_ddp_tensor tensors[] = {
        {.name = "w", .type = TUTTI_FLOAT32, .dims = 2, .shape = {ROWS, COLUMNS}},
        {.name = "b", .type = TUTTI_FLOAT32, .dims = 1, .shape = {7}}};
    static _Thread_local double out[ROWS][COLUMNS], mean[ROWS][COLUMNS];
    struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
    tutti_ddp *ddp = NULL;
    void *w = NULL, *b = NULL;
    int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    options.hook = TUTTI_DDP_HOOK_POWERSGD;
    options.power_rank = 3;
    options.power_start = start;
    CHECK_OK(tutti_ddp_create(comm, tensors, 2, &options, &ddp));
    memset(out, 0, sizeof out);
    for (int step = 0; step < steps; step++) {
        CHECK_OK(tutti_ddp_begin(ddp, true));
        CHECK_OK(tutti_ddp_gradient(ddp, 0, &w));
        CHECK_OK(tutti_ddp_gradient(ddp, 1, &b));
        for (size_t i = 0; i < ROWS; i++)
            for (size_t j = 0; j < COLUMNS; j++)
                ((float *)w)[i * COLUMNS + j] = make(rank, i, j);
        ((float *)b)[3] = (float)rank;
        CHECK_OK(tutti_ddp_ready(ddp, 1));
        CHECK_OK(tutti_ddp_ready(ddp, 0));
        CHECK_OK(tutti_ddp_wait(ddp));
        CHECK(((float *)b)[3] == (float)(size - 1) / 2); /* not compressed */
        float other[ROWS * COLUMNS];
        CHECK_OK(tutti_broadcast(w, other, ROWS * COLUMNS, TUTTI_FLOAT32, 0, comm));
        CHECK(memcmp(w, other, sizeof other) == 0);
        *last = 0;
        for (size_t i = 0; i < ROWS; i++)
            for (size_t j = 0; j < COLUMNS; j++) {
                mean[i][j] = 0;
                for (int r = 0; r < size; r++)
                    mean[i][j] += (double)make(r, i, j) / size;
                out[i][j] += (double)((float *)w)[i * COLUMNS + j];
                *last = fmax(*last, fabs(out[i][j] / (step + 1) - mean[i][j]));
            }
        if (step == 0)
            *first = *last;
    }
    tutti_ddp_destroy(ddp);
    return 0;
}

/* A mean of rank 3 passes whole through three columns. One of full rank does not, but what is lost
 * comes later: the mean over many steps approaches the mean gradient. */
static int power_sgd(tutti_comm *comm, void *argument)
{
    (void)argument;
    double first = 0, last = 0;
    if (power_run(comm, low_rank, 2, 0, &first, &last))
        return 1;
    CHECK(first < 1e-4 && last < 1e-4);
    if (power_run(comm, full_rank, 60, 0, &first, &last))
        return 1;
    CHECK(first > 0.05 && last < first / 4);
    if (power_run(comm, full_rank, 2, 5, &first, &last)) /* not begun yet */
        return 1;
    CHECK(last < 1e-6);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct model_case cases[] = {{"sixteen_bits", sixteen_bits},
                                              {"user_hooks", user_hooks},
                                              {"failing_hook", failing_hook},
                                              {"power_sgd", power_sgd}};
    return model_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
