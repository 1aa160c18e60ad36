/* ZeRO 1, 2, 3, plain and hybrid, against zero 0: bitwise on sums that round, where the order of
 * additions is the same; by exact sums elsewhere. Training is AdamW with clipping on gradients that
 * depend on the values. Also: memory really is smaller, and wrong calls are refused. */
#include "tests/ddp/ddp_model.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 4, MOST = 8192, UNITS = 4 };

static int pull(tutti_ddp *ddp, size_t index, double values[], size_t count)
{
    void *value = NULL;
    CHECK_OK(tutti_ddp_value(ddp, index, &value));
    for (size_t e = 0; e < count; e++)
        values[e] = index == 4 ? ((double *)value)[e] : (double)((float *)value)[e];
    return 0;
}

/* First values, on rank 0; others have something else, which must not matter. */
static int fill(tutti_ddp *ddp, int rank)
{
    struct tutti_ddp_tensor tensors[MODEL_TENSORS];
    model_tensors(tensors);
    for (int unit = 0; unit < UNITS; unit++) {
        CHECK_OK(tutti_ddp_acquire(ddp, unit));
        for (size_t i = 0; i < MODEL_TENSORS; i++) {
            void *value = NULL;
            if (tensors[i].unit != unit)
                continue;
            CHECK_OK(tutti_ddp_value(ddp, i, &value));
            for (size_t e = 0; e < model_elements(&tensors[i]); e++)
                if (i == 4)
                    ((double *)value)[e] = rank ? 7 : 0.5;
                else
                    ((float *)value)[e] = (float)((e * 31 + i) % 97) / 97 + (float)rank;
        }
        CHECK_OK(tutti_ddp_release(ddp, unit, true));
    }
    return 0;
}

/* Backward of a unit: gradients of ranks that sum with rounding. */
static int backward_unit(tutti_ddp *ddp, int rank, int pass, int unit)
{
    struct tutti_ddp_tensor tensors[MODEL_TENSORS];
    static _Thread_local double values[MOST];
    model_tensors(tensors);
    CHECK_OK(tutti_ddp_acquire(ddp, unit));
    for (size_t i = MODEL_TENSORS; i-- > 0;) {
        void *gradient = NULL;
        size_t count = model_elements(&tensors[i]);
        if (tensors[i].unit != unit)
            continue;
        if (pull(ddp, i, values, count))
            return 1;
        CHECK_OK(tutti_ddp_gradient(ddp, i, &gradient));
        for (size_t e = 0; e < count; e++) {
            double g =
                values[e] * 0.3 + (double)((e * 7 + (size_t)(pass * 5 + rank * 11)) % 101) / 37;
            if (i == 4)
                ((double *)gradient)[e] += g;
            else
                ((float *)gradient)[e] += (float)g;
        }
        CHECK_OK(tutti_ddp_ready(ddp, i));
    }
    CHECK_OK(tutti_ddp_release(ddp, unit, false));
    return 0;
}

static int optimise(tutti_ddp *ddp, uint64_t step, float *states)
{
    const struct tutti_ddp_piece *pieces = NULL;
    struct tutti_optimizer adam = TUTTI_ADAMW_INIT;
    size_t count = 0, elements = 0;
    CHECK_OK(tutti_ddp_pieces(ddp, &pieces, &count, &elements));
    CHECK(elements <= MOST);
    for (size_t p = 0; p < count; p++) {
        const struct tutti_optimizer_slice slice = {
            .count = pieces[p].count,
            .type = TUTTI_FLOAT32,
            .param = pieces[p].value,
            .grad = pieces[p].gradient,
            .states = {states + pieces[p].state, states + MOST + pieces[p].state},
            .grad_scale = 1,
        };
        if (pieces[p].index == 4)
            *(double *)pieces[p].value -= 0.01 * *(const double *)pieces[p].gradient;
        else
            CHECK_OK(tutti_optimizer_step(&adam, step, &slice));
    }
    CHECK_OK(tutti_ddp_publish(ddp));
    return 0;
}

/* One pass of a step, forward and backward. */
static int pass_of(tutti_ddp *ddp, int rank, int step, bool last)
{
    CHECK_OK(tutti_ddp_begin(ddp, last));
    for (int unit = 0; unit < UNITS; unit++) { /* forward */
        CHECK_OK(tutti_ddp_acquire(ddp, unit));
        CHECK_OK(tutti_ddp_release(ddp, unit, false));
    }
    for (int unit = UNITS; unit-- > 0;)
        if (backward_unit(ddp, rank, step * 2 + last, unit))
            return 1;
    CHECK_OK(tutti_ddp_wait(ddp));
    return 0;
}

/* How many steps rank r has data for. In the first epoch it runs out r steps before the end; in the
 * second all but rank 0 after the first step. */
static int steps_of(const struct tutti_ddp_options *options, int rank, int epoch)
{
    if (!options->uneven)
        return STEPS;
    return epoch == 0 ? STEPS - rank : rank == 0 ? STEPS : 1;
}

static int epoch_of(tutti_ddp *ddp, int rank, int epoch, const struct tutti_ddp_options *options,
                    int passes, float *states, double *norm)
{
    const int own = steps_of(options, rank, epoch);
    bool more = true;
    for (int step = 0; step < STEPS; step++) {
        const int number = epoch * STEPS + step, most = passes ? passes : 1 + step % 2;
        for (int pass = 2 - most; pass < 2 && step < own; pass++)
            if (pass_of(ddp, rank, number, pass == 1))
                return 1;
        if (step == own && most == 2 && rank % 2 == 1 && pass_of(ddp, rank, number, false))
            return 1;
        if (step >= own)
            CHECK_OK(tutti_ddp_join(ddp, &more));
        CHECK(more);
        CHECK_OK(tutti_ddp_clip(ddp, 10, norm));
        if (optimise(ddp, (uint64_t)number + 1, states))
            return 1;
    }
    if (options->uneven)
        CHECK_OK(tutti_ddp_join(ddp, &more));
    CHECK(more == !options->uneven);
    return 0;
}

/* Train; all values and the last norm into `result`. A step has so many passes (0: every other one
 * has two). With uneven inputs there are two epochs; a rank of odd number has one pass left for the
 * first step that it cannot make. */
static int train(tutti_comm *comm, const struct tutti_ddp_options *options, int passes,
                 double *result)
{
    struct tutti_ddp_tensor tensors[MODEL_TENSORS + 1];
    tutti_ddp *ddp = NULL;
    int rank = tutti_comm_rank(comm);
    float *states = calloc(2 * MOST, sizeof *states), mean = (float)rank;
    double norm = 0;
    model_tensors(tensors);
    tensors[MODEL_TENSORS] = (struct tutti_ddp_tensor){
        .name = "mean", .type = TUTTI_FLOAT32, .value = &mean, .kind = TUTTI_DDP_BUFFER};
    CHECK_OK(tutti_ddp_create(comm, tensors, MODEL_TENSORS + 1, options, &ddp));
    if (fill(ddp, rank))
        return 1;
    for (int epoch = 0; epoch < (options->uneven ? 2 : 1); epoch++)
        if (epoch_of(ddp, rank, epoch, options, passes, states, &norm))
            return 1;
    *result++ = norm;
    for (int unit = 0; unit < UNITS; unit++) {
        CHECK_OK(tutti_ddp_acquire(ddp, unit));
        for (size_t i = 0; i < MODEL_TENSORS; i++)
            if (tensors[i].unit == unit) {
                size_t count = model_elements(&tensors[i]);
                if (pull(ddp, i, result, count))
                    return 1;
                result += count;
            }
        CHECK_OK(tutti_ddp_release(ddp, unit, false));
    }
    tutti_ddp_destroy(ddp);
    free(states);
    return 0;
}

/* One unit a bucket, as zero 3 has it, so that all stages have the same chunks. */
static void unit_buckets(struct tutti_ddp_options *options)
{
    options->bucket_bytes = options->first_bucket_bytes = 1; /* a tensor each */
    options->chunk_bytes = 1024;
}

static int stages(tutti_comm *comm, void *argument)
{
    (void)argument;
    static _Thread_local double plain[MOST], sharded[MOST];
    for (int hook = 0; hook < 2; hook++) {
        struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
        unit_buckets(&options);
        options.hook = hook ? TUTTI_DDP_HOOK_BFLOAT16 : TUTTI_DDP_HOOK_NONE;
        options.path = TUTTI_DDP_PATH_SPLIT;
        if (train(comm, &options, 0, plain))
            return 1;
        options.path = TUTTI_DDP_PATH_AUTO;
        for (int how = 0; how < 5; how++) {
            options.zero = how < 3 ? how + 1 : how - 1;
            options.by_unit = how >= 2;
            options.prefetch = how == 4 ? 2 : 0;
            options.in_flight = how == 3 ? 2 : 1;
            memset(sharded, 0, sizeof sharded);
            if (train(comm, &options, 0, sharded))
                return 1;
            CHECK(memcmp(plain, sharded, sizeof plain) == 0);
        }
    }
    return 0;
}

/* Ranks run out of data one after another: as without sharding, to the bit. */
static int joined(tutti_comm *comm, void *argument)
{
    (void)argument;
    static _Thread_local double plain[MOST], sharded[MOST];
    for (int passes = 1; passes <= 2; passes++) {
        struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
        unit_buckets(&options);
        options.uneven = true;
        options.path = TUTTI_DDP_PATH_SPLIT;
        if (train(comm, &options, passes, plain))
            return 1;
        options.path = TUTTI_DDP_PATH_AUTO;
        for (int how = 0; how < 3; how++) {
            options.zero = how == 0 ? 2 : 3;
            options.by_unit = how > 0;
            options.prefetch = how == 2;
            memset(sharded, 0, sizeof sharded);
            if (train(comm, &options, passes, sharded))
                return 1;
            CHECK(memcmp(plain, sharded, sizeof plain) == 0);
        }
    }
    return 0;
}

/* What was acquired must be known before somebody can repeat it: a rank without data for the first
 * step, or for its second pass. */
static int joined_too_early(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct tutti_ddp_tensor tensors[MODEL_TENSORS];
    struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
    const bool alone = tutti_comm_size(comm) == 1;
    const int rank = tutti_comm_rank(comm);
    model_tensors(tensors);
    options.uneven = options.by_unit = true;
    options.zero = 3;
    for (int passes = 0; passes < 2; passes++) {
        tutti_ddp *ddp = NULL;
        bool more = true;
        CHECK_OK(tutti_ddp_create(comm, tensors, MODEL_TENSORS, &options, &ddp));
        if (passes > 0 && pass_of(ddp, rank, 0, false))
            return 1;
        enum tutti_result result =
            rank == 1 ? tutti_ddp_join(ddp, &more) : tutti_ddp_begin(ddp, true);
        CHECK(result == (alone ? TUTTI_OK : TUTTI_ERR_USAGE));
        CHECK(alone || strstr(tutti_last_error(), "1 ranks have no data in the first step"));
        tutti_ddp_destroy(ddp);
    }
    return 0;
}

/* Many equal layers: what is held is far less than the whole. */
static int memory_held(tutti_comm *comm, void *argument)
{
    (void)argument;
    enum { LAYERS = 12, LENGTH = 6000 };
    static const char *const names[LAYERS] = {"a", "b", "c", "d", "e", "f",
                                              "g", "h", "i", "j", "k", "l"};
    struct tutti_ddp_tensor tensors[LAYERS];
    struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
    struct tutti_ddp_statistics s;
    tutti_ddp *ddp = NULL;
    size_t ranks = (size_t)tutti_comm_size(comm), all = LAYERS * LENGTH * sizeof(float);
    for (int i = 0; i < LAYERS; i++)
        tensors[i] = (struct tutti_ddp_tensor){
            .name = names[i], .type = TUTTI_FLOAT32, .dims = 1, .shape = {LENGTH}, .unit = i};
    options.zero = 3;
    options.by_unit = true;
    options.prefetch = 1;
    CHECK_OK(tutti_ddp_create(comm, tensors, LAYERS, &options, &ddp));
    for (int step = 0; step < 2; step++) {
        CHECK_OK(tutti_ddp_begin(ddp, true));
        for (int i = LAYERS; i-- > 0;) {
            void *gradient = NULL;
            CHECK_OK(tutti_ddp_acquire(ddp, i));
            CHECK_OK(tutti_ddp_gradient(ddp, (size_t)i, &gradient));
            ((float *)gradient)[LENGTH - 1] = (float)i;
            CHECK_OK(tutti_ddp_ready(ddp, (size_t)i));
            CHECK_OK(tutti_ddp_release(ddp, i, false));
        }
        CHECK_OK(tutti_ddp_wait(ddp));
        CHECK_OK(tutti_ddp_publish(ddp));
    }
    CHECK_OK(tutti_ddp_statistics(ddp, &s));
    CHECK(s.value_bytes_most < all / ranks * 21 / 20 + 3 * all / LAYERS);
    CHECK(s.gradient_bytes_most < all / ranks * 21 / 20 + all);
    CHECK(s.buckets == LAYERS);
    tutti_ddp_destroy(ddp);
    return 0;
}

/* Pairs of ranks share a copy; sums are exact, so the result is that of all ranks. */
static int hybrid(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct tutti_ddp_tensor tensors[MODEL_TENSORS];
    int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    model_tensors(tensors);
    for (int zero = 1; zero <= 3 && size == 4; zero++) {
        struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
        tutti_ddp *ddp = NULL;
        size_t count = 0, elements = 0, all = 0;
        const struct tutti_ddp_piece *pieces = NULL;
        options.zero = zero;
        options.by_unit = zero == 3;
        options.shard_ranks = tutti_comm_hosts(comm) > 1 ? TUTTI_DDP_HOST : 2;
        options.chunk_bytes = 2048;
        CHECK_OK(tutti_ddp_create(comm, tensors, MODEL_TENSORS, &options, &ddp));
        for (int step = 0; step < 2; step++) {
            struct model_sums s = {size, step, step, size};
            double norm = 0;
            if (model_pass(ddp, rank, step, true, false) || model_check(ddp, model_sum, &s))
                return 1;
            CHECK_OK(tutti_ddp_clip(ddp, 0, &norm));
            CHECK(norm > 0);
        }
        CHECK_OK(tutti_ddp_pieces(ddp, &pieces, &count, &elements));
        for (size_t i = 0; i < MODEL_TENSORS; i++)
            all += model_elements(&tensors[i]);
        CHECK(elements > all / 3 && elements < all * 2 / 3); /* half, as blocks fall */
        if (fill(ddp, rank))
            return 1;
        for (size_t p = 0; p < count; p++)
            if (pieces[p].index != 4)
                ((float *)pieces[p].value)[0] = 42;
        CHECK_OK(tutti_ddp_publish(ddp));
        for (int unit = 0; unit < UNITS; unit++) {
            double values[2];
            size_t index = (size_t)(unit < 2 ? 2 * unit : unit == 2 ? 5 : 7);
            CHECK_OK(tutti_ddp_acquire(ddp, unit));
            if (pull(ddp, index, values, 2))
                return 1;
            CHECK(values[0] == 42 && values[1] == (double)((float)((31 + index) % 97) / 97));
            CHECK_OK(tutti_ddp_release(ddp, unit, false));
        }
        tutti_ddp_destroy(ddp);
    }
    return 0;
}

static int wrong_calls(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct tutti_ddp_tensor tensors[MODEL_TENSORS];
    struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
    tutti_ddp *ddp = NULL;
    void *memory = NULL;
    float own[47];
    model_tensors(tensors);
    options.zero = 3;
    CHECK(tutti_ddp_create(comm, tensors, MODEL_TENSORS, &options, &ddp) == TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "by_unit"));
    options.by_unit = true;
    tensors[6].value = own;
    CHECK(tutti_ddp_create(comm, tensors, MODEL_TENSORS, &options, &ddp) == TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "3.bias"));
    tensors[6].value = NULL;
    options.shard_ranks = 64;
    CHECK(tutti_ddp_create(comm, tensors, MODEL_TENSORS, &options, &ddp) == TUTTI_ERR_ARGUMENT);
    options.shard_ranks = 0;
    CHECK_OK(tutti_ddp_create(comm, tensors, MODEL_TENSORS, &options, &ddp));
    CHECK(tutti_ddp_value(ddp, 2, &memory) == TUTTI_ERR_USAGE);
    CHECK(strstr(tutti_last_error(), "unit 1"));
    CHECK(tutti_ddp_gradient(ddp, 2, &memory) == TUTTI_ERR_USAGE);
    CHECK(tutti_ddp_release(ddp, 1, false) == TUTTI_ERR_USAGE);
    CHECK(tutti_ddp_acquire(ddp, 9) == TUTTI_ERR_ARGUMENT);
    CHECK_OK(tutti_ddp_acquire(ddp, 1));
    CHECK(tutti_ddp_publish(ddp) == TUTTI_ERR_USAGE);
    CHECK_OK(tutti_ddp_value(ddp, 2, &memory));
    CHECK_OK(tutti_ddp_release(ddp, 1, false));
    tutti_ddp_destroy(ddp);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct model_case cases[] = {
        {"stages", stages},           {"joined", joined}, {"joined_too_early", joined_too_early},
        {"memory_held", memory_held}, {"hybrid", hybrid}, {"wrong_calls", wrong_calls}};
    return model_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
