/* What a step may need besides (tutti/ddp.h): tensors without gradients, static graphs, ranks that
 * run out of data, means over tokens, the norm; waiting for single gradients; the schedule of
 * chunks; statistics and traces. All on exact sums. */
#include "ddp/ddp_state.h"
#include "tests/ddp/ddp_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int begin_model(tutti_comm *comm, const struct tutti_ddp_options *options, tutti_ddp **ddp)
{
    struct tutti_ddp_tensor tensors[MODEL_TENSORS];
    model_tensors(tensors);
    CHECK_OK(tutti_ddp_create(comm, tensors, MODEL_TENSORS, options, ddp));
    return 0;
}

/* Rank r leaves tensor r out; nobody has tensor 7. */
static double expected_partial(const void *argument, size_t index, size_t element)
{
    int size = *(const int *)argument;
    double sum = 0;
    for (int rank = 0; rank < size; rank++)
        if (index != 7 && index != (size_t)rank)
            sum += model_gradient(rank, 1, index, element);
    return sum / size;
}

static int partial_pass(tutti_ddp *ddp, int rank, int pass, bool synchronise)
{
    CHECK_OK(tutti_ddp_begin(ddp, synchronise));
    for (size_t i = MODEL_TENSORS; i-- > 0;) {
        if (i == 7 || i == (size_t)rank)
            continue;
        if (model_backward(ddp, rank, pass, i))
            return 1;
        CHECK_OK(tutti_ddp_ready(ddp, i));
    }
    CHECK_OK(tutti_ddp_wait(ddp));
    return 0;
}

static int unused_tensors(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
    int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    for (int how = 0; how < 2; how++) {
        tutti_ddp *ddp = NULL;
        bool used = true;
        options.find_unused = how == 0;
        options.static_graph = how == 1;
        options.bucket_bytes = options.first_bucket_bytes = 4096;
        if (begin_model(comm, &options, &ddp))
            return 1;
        for (int step = 0; step < 3; step++) {
            if (partial_pass(ddp, rank, 1, true) || model_check(ddp, expected_partial, &size))
                return 1;
            CHECK(strcmp(tutti_ddp_unused(ddp), size == 1 ? "1.weight, 4.weight" : "4.weight") ==
                  0);
            CHECK_OK(tutti_ddp_used(ddp, 7, &used));
            CHECK(!used);
            CHECK_OK(tutti_ddp_used(ddp, 1, &used));
            CHECK(used);
        }
        /* A gradient of an earlier pass of the step counts, though the last pass has none. */
        if (how == 0) {
            CHECK_OK(tutti_ddp_begin(ddp, false));
            if (model_backward(ddp, rank, 3, 7))
                return 1;
            CHECK_OK(tutti_ddp_ready(ddp, 7));
            CHECK_OK(tutti_ddp_wait(ddp));
            if (partial_pass(ddp, rank, 1, true))
                return 1;
            CHECK(!strstr(tutti_ddp_unused(ddp), "4.weight"));
        }
        tutti_ddp_destroy(ddp);
    }
    return 0;
}

/* A tensor that is used twice in each pass, and one that is marked more often than it was. */
static int static_graph(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
    tutti_ddp *ddp = NULL;
    int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    options.static_graph = true;
    options.bucket_bytes = options.first_bucket_bytes = 1024;
    if (begin_model(comm, &options, &ddp))
        return 1;
    for (int step = 0; step < 3; step++) {
        CHECK_OK(tutti_ddp_begin(ddp, true));
        CHECK_OK(tutti_ddp_ready(ddp, 0)); /* its second half comes last */
        for (size_t i = MODEL_TENSORS; i-- > 0;) {
            if (model_backward(ddp, rank, step, i))
                return 1;
            CHECK_OK(tutti_ddp_ready(ddp, i));
        }
        CHECK(step == 0 || tutti_ddp_ready(ddp, 3) == TUTTI_ERR_USAGE);
        CHECK_OK(tutti_ddp_wait(ddp));
        struct model_sums s = {size, step, step, size};
        if (model_check(ddp, model_sum, &s))
            return 1;
    }
    CHECK_OK(tutti_ddp_begin(ddp, true));
    for (size_t i = 0; i < MODEL_TENSORS; i++)
        CHECK_OK(tutti_ddp_ready(ddp, i));
    CHECK(tutti_ddp_wait(ddp) == TUTTI_ERR_USAGE); /* tensor 0 once only */
    CHECK(strstr(tutti_last_error(), "1.weight"));
    tutti_ddp_destroy(ddp);
    return 0;
}

/* Rank r has r + 1 steps. */
static double expected_joined(const void *argument, size_t index, size_t element)
{
    const struct model_sums *s = argument;
    double sum = 0;
    for (int rank = s->first; rank < s->ranks; rank++)
        sum += model_gradient(rank, s->last, index, element);
    return sum / s->divisor;
}

static int uneven_inputs(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
    int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    for (int how = 0; how < 2; how++) {
        tutti_ddp *ddp = NULL;
        int step = 0;
        bool more = true;
        options.uneven = true;
        options.overwrite = how == 1;
        if (begin_model(comm, &options, &ddp))
            return 1;
        while (more) {
            if (step <= rank) {
                CHECK_OK(tutti_ddp_begin(ddp, true));
                for (size_t i = 0; i < MODEL_TENSORS; i++) {
                    void *gradient = NULL;
                    size_t element = i == 4 ? 8 : 4;
                    struct tutti_ddp_tensor tensors[MODEL_TENSORS];
                    model_tensors(tensors);
                    CHECK_OK(tutti_ddp_gradient(ddp, i, &gradient));
                    if (options.overwrite) /* the caller stores */
                        memset(gradient, 0, model_elements(&tensors[i]) * element);
                    if (model_backward(ddp, rank, step, i))
                        return 1;
                    CHECK_OK(tutti_ddp_ready(ddp, i));
                }
                CHECK_OK(tutti_ddp_wait(ddp));
            } else
                CHECK_OK(tutti_ddp_join(ddp, &more));
            struct model_sums s = {size, step, step, size - step};
            if (more && model_check(ddp, expected_joined, &s))
                return 1;
            step++;
        }
        CHECK(step == size + 1);
        tutti_ddp_destroy(ddp);
    }
    return 0;
}

/* Steps of two passes. Rank by rank, how many it has data for: rank 0 has none left in step 2,
 * where all others have one; the last rank has one in step 1. Nobody has any in step 3, and a new
 * epoch begins with step 4. */
struct leftovers {
    int ranks, step;
};

static int leftover_passes(const struct leftovers *l, int rank)
{
    static const int all[] = {2, 2, 1, 0, 2};
    if (l->step == 2)
        return rank == 0 ? 0 : 1;
    return l->step == 1 && rank == l->ranks - 1 ? 1 : all[l->step];
}

/* Nobody uses tensor 7 in a step without all its passes. */
static double expected_leftovers(const void *argument, size_t index, size_t element)
{
    const struct leftovers *l = argument;
    double sum = 0;
    int with_data = 0;
    for (int rank = 0; rank < l->ranks; rank++) {
        const int passes = leftover_passes(l, rank);
        with_data += passes > 0;
        for (int pass = 0; pass < passes && (passes == 2 || index != 7); pass++)
            sum += model_gradient(rank, 2 * l->step + pass, index, element);
    }
    return sum / with_data;
}

static int leftover_pass(tutti_ddp *ddp, const struct leftovers *l, int rank, int pass,
                         bool overwrite)
{
    struct tutti_ddp_tensor tensors[MODEL_TENSORS];
    const int passes = leftover_passes(l, rank);
    model_tensors(tensors);
    CHECK_OK(tutti_ddp_begin(ddp, pass == 1));
    for (size_t i = 0; i < MODEL_TENSORS; i++) {
        void *gradient = NULL;
        if (i == 7 && passes == 1)
            continue;
        CHECK_OK(tutti_ddp_gradient(ddp, i, &gradient));
        if (overwrite && pass == 0) /* the caller stores */
            memset(gradient, 0, model_elements(&tensors[i]) * tutti_type_size(tensors[i].type));
        if (model_backward(ddp, rank, 2 * l->step + pass, i))
            return 1;
        CHECK_OK(tutti_ddp_ready(ddp, i));
    }
    CHECK_OK(tutti_ddp_wait(ddp));
    return 0;
}

/* Gradients that a rank has accumulated when its data end are in the sum, and the rank counts. */
static int leftover_gradients(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
    struct leftovers l = {tutti_comm_size(comm), 0};
    const int rank = tutti_comm_rank(comm);
    options.uneven = options.find_unused = true;
    for (int how = 0; how < 4 && l.ranks > 1; how++) {
        tutti_ddp *ddp = NULL;
        options.overwrite = how % 2 == 1;
        options.zero = how < 2 ? 0 : 2;
        if (begin_model(comm, &options, &ddp))
            return 1;
        for (l.step = 0; l.step < 5; l.step++) {
            const int passes = leftover_passes(&l, rank);
            bool more = true;
            for (int pass = 0; pass < passes; pass++)
                if (leftover_pass(ddp, &l, rank, pass, options.overwrite))
                    return 1;
            if (passes < 2)
                CHECK_OK(tutti_ddp_join(ddp, &more));
            CHECK(more == (l.step != 3));
            if (more && model_check(ddp, expected_leftovers, &l))
                return 1;
        }
        tutti_ddp_destroy(ddp);
    }
    return 0;
}

/* Rank r has 2 r tokens in the first pass and 1 in the second. */
static int means_over_tokens(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
    tutti_ddp *ddp = NULL;
    int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    options.divisor = TUTTI_DDP_TOKENS;
    if (begin_model(comm, &options, &ddp))
        return 1;
    for (int pass = 0; pass < 2; pass++) {
        CHECK_OK(tutti_ddp_begin(ddp, pass == 1));
        CHECK_OK(tutti_ddp_tokens(ddp, pass == 0 ? 2 * rank : 1));
        for (size_t i = 0; i < MODEL_TENSORS; i++) {
            if (model_backward(ddp, rank, pass, i))
                return 1;
            CHECK_OK(tutti_ddp_ready(ddp, i));
        }
        CHECK(tutti_ddp_wait_for(ddp, 0) == TUTTI_ERR_USAGE);
        CHECK_OK(tutti_ddp_wait(ddp));
    }
    double tokens = size * (size - 1) + size;
    const struct tutti_ddp_piece *pieces = NULL;
    size_t count = 0;
    CHECK_OK(tutti_ddp_pieces(ddp, &pieces, &count, NULL));
    struct model_sums s = {size, 0, 1, 1};
    for (size_t p = 0; p < count; p++)
        for (size_t e = 0; e < pieces[p].count; e++)
            if (pieces[p].index != 4)
                CHECK(((float *)pieces[p].gradient)[e] ==
                      (float)model_sum(&s, pieces[p].index, e) / (float)tokens);
    tutti_ddp_destroy(ddp);
    return 0;
}

/* The norm and what clipping makes of it, against sums in long double. */
static int clipping(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct tutti_ddp_tensor tensors[MODEL_TENSORS];
    tutti_ddp *ddp = NULL;
    int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    double norm = 0, after = 0;
    long double squares = 0;
    model_tensors(tensors);
    if (begin_model(comm, NULL, &ddp))
        return 1;
    CHECK(tutti_ddp_clip(ddp, 1, &norm) == TUTTI_ERR_USAGE);
    if (model_pass(ddp, rank, 2, true, false))
        return 1;
    struct model_sums s = {size, 2, 2, size};
    for (size_t i = 0; i < MODEL_TENSORS; i++)
        for (size_t e = 0; e < model_elements(&tensors[i]); e++)
            squares += (long double)model_sum(&s, i, e) * (long double)model_sum(&s, i, e);
    CHECK_OK(tutti_ddp_clip(ddp, 0, &norm));
    CHECK(fabs(norm - (double)sqrtl(squares)) < 1e-7 * norm);
    CHECK_OK(tutti_ddp_clip(ddp, norm / 4, &after));
    CHECK(after == norm);
    CHECK_OK(tutti_ddp_clip(ddp, norm, &after));
    CHECK(fabs(after - norm / 4) < 1e-6 * norm);
    void *gradient = NULL;
    CHECK_OK(tutti_ddp_gradient(ddp, 3, &gradient));
    ((float *)gradient)[5] = INFINITY;
    CHECK_OK(tutti_ddp_clip(ddp, 1, &after));
    CHECK(!isfinite(after) && ((float *)gradient)[5] == INFINITY);
    tutti_ddp_destroy(ddp);
    return 0;
}

static int single_waits(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
    tutti_ddp *ddp = NULL;
    int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    options.bucket_bytes = options.first_bucket_bytes = 2048;
    options.chunk_bytes = 1024;
    options.in_flight = 2;
    options.path = TUTTI_DDP_PATH_SPLIT;
    if (begin_model(comm, &options, &ddp))
        return 1;
    for (int step = 0; step < 3; step++) {
        CHECK_OK(tutti_ddp_begin(ddp, true));
        for (size_t i = MODEL_TENSORS; i-- > 0;) {
            if (model_backward(ddp, rank, step, i))
                return 1;
            CHECK(i > 0 || tutti_ddp_wait_for(ddp, 0) == TUTTI_ERR_USAGE);
            CHECK_OK(tutti_ddp_ready(ddp, i));
        }
        for (size_t i = 0; i < MODEL_TENSORS; i++) {
            void *gradient = NULL;
            struct model_sums s = {size, step, step, size};
            CHECK_OK(tutti_ddp_wait_for(ddp, i));
            CHECK_OK(tutti_ddp_gradient(ddp, i, &gradient));
            CHECK(i == 4 || ((float *)gradient)[0] == (float)model_sum(&s, i, 0));
        }
        CHECK_OK(tutti_ddp_wait(ddp));
    }
    tutti_ddp_destroy(ddp);
    return 0;
}

/* The last float32 bucket: what is in it, by sizes of the others. */
static int last_bucket(tutti_comm *comm, void *argument)
{
    (void)argument;
    static const struct {
        size_t bucket, last, members; /* bytes, bytes, gradients that must be in it */
    } cases[] = {
        {1 << 20, 0, 8},    /* all fit into the first, and that is no reason to cut */
        {1 << 20, 8192, 2}, /* 1.bias and 1.weight are 8056 bytes */
        {1 << 20, 8000, 1}, /* 1.weight alone */
        {1 << 20, 1, 1},    /* at least the last gradient */
        {16000, 8192, 2},   /* cut, or 2.weight would be with them */
        {14000, 12000, 2},  /* not cut: the bucket before is full without them */
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
        tutti_ddp *ddp = NULL;
        options.bucket_bytes = options.first_bucket_bytes = cases[k].bucket;
        options.last_bucket_bytes = cases[k].last;
        if (begin_model(comm, &options, &ddp))
            return 1;
        const struct tti_ddp_bucket *last = &ddp->buckets[ddp->tensors[0].bucket];
        CHECK(last->member_count == cases[k].members);
        CHECK(last->members[last->member_count - 1] == 0);
        tutti_ddp_destroy(ddp);
    }
    return 0;
}

/* Bucket 0 is long and full first, 1 and 2 follow while it is under way; 2 is needed before 1. */
static int schedule_order(tutti_comm *comm, void *argument)
{
    (void)argument;
    (void)comm;
    static const struct tti_ddp_load loads[] = {
        {0, 1, 4, 20}, {1.5, 1, 2, 10}, {2.5, 1, 2, 0}, {100, 1, 1, 5}};
    static const int expected[] = {0, 0, 1, 2, 2, 1, 0, 0, 3};
    struct tti_ddp_range order[9];
    size_t done[4];
    tti_ddp_schedule(loads, 4, done, order);
    for (int k = 0; k < 9; k++)
        CHECK(order[k].bucket == expected[k]);
    return 0;
}

/* Statistics add up, the observed order is that of the marks, and the trace holds every task. */
static int what_happened(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
    struct tutti_ddp_statistics s;
    tutti_ddp *ddp = NULL;
    int rank = tutti_comm_rank(comm);
    size_t order[MODEL_TENSORS], count = 0, tasks = 0;
    char path[64], line[512];
    options.bucket_bytes = options.first_bucket_bytes = 4096;
    if (begin_model(comm, &options, &ddp))
        return 1;
    CHECK_OK(tutti_ddp_trace(ddp, true));
    for (int step = 0; step < 3; step++)
        if (model_pass(ddp, rank, step, true, true))
            return 1;
    CHECK_OK(tutti_ddp_ready_order(ddp, order, MODEL_TENSORS, &count));
    CHECK(count == MODEL_TENSORS);
    for (size_t k = 0; k < MODEL_TENSORS; k++)
        CHECK(order[k] == (k * 4 + (size_t)rank) % MODEL_TENSORS);
    CHECK_OK(tutti_ddp_statistics(ddp, &s));
    CHECK(s.steps == 3 && s.buckets >= 3);
    CHECK(s.last.bytes == s.gradient_bytes && s.total.bytes >= 3 * s.last.bytes / 2);
    CHECK(s.last.hidden_s <= s.last.busy_s && s.last.busy_s <= s.last.pass_s + s.last.exposed_s);
    snprintf(path, sizeof path, "/tmp/tutti_ddp_trace.%d.%d.json", (int)getpid(), rank);
    CHECK_OK(tutti_ddp_trace_write(ddp, path));
    FILE *in = fopen(path, "r");
    CHECK(in);
    while (fgets(line, sizeof line, in))
        tasks += strstr(line, "\"all-reduce ") != NULL;
    fclose(in);
    unlink(path);
    CHECK(tasks == s.total.collectives);
    CHECK(tutti_ddp_trace_write(ddp, "/nowhere/trace.json") == TUTTI_ERR_SYSTEM);
    tutti_ddp_destroy(ddp);
    return 0;
}

/* The ranks' own words to each other are not collected, nor is the pass lost: each call is refused
 * until the group has ended. */
static int refused_in_groups(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct tutti_ddp_tensor tensors[MODEL_TENSORS];
    tutti_ddp *ddp = NULL, *none = NULL;
    const int rank = tutti_comm_rank(comm);
    double norm = 0;
    model_tensors(tensors);
    if (begin_model(comm, NULL, &ddp))
        return 1;
    CHECK_OK(tutti_ddp_begin(ddp, true));
    for (size_t i = MODEL_TENSORS; i-- > 0;) {
        if (model_backward(ddp, rank, 1, i))
            return 1;
        CHECK_OK(tutti_ddp_ready(ddp, i));
    }
    CHECK_OK(tutti_group_start());
    CHECK(tutti_ddp_create(comm, tensors, MODEL_TENSORS, NULL, &none) == TUTTI_ERR_USAGE && !none);
    CHECK(strstr(tutti_last_error(), "tutti_ddp_create: not between tutti_group_start"));
    CHECK(tutti_ddp_wait(ddp) == TUTTI_ERR_USAGE);
    CHECK(strstr(tutti_last_error(), "tutti_ddp_wait: not between tutti_group_start"));
    CHECK(tutti_ddp_broadcast(ddp) == TUTTI_ERR_USAGE);
    CHECK_OK(tutti_group_end());
    CHECK_OK(tutti_ddp_wait(ddp));
    CHECK_OK(tutti_group_start());
    CHECK(tutti_ddp_begin(ddp, true) == TUTTI_ERR_USAGE);
    CHECK(tutti_ddp_clip(ddp, 1, &norm) == TUTTI_ERR_USAGE);
    CHECK_OK(tutti_group_end());
    CHECK_OK(tutti_ddp_clip(ddp, 1, &norm));
    tutti_ddp_destroy(ddp);
    return 0;
}

/* Nobody has data: all join, once the group has ended, and are told so. */
static int join_refused_in_group(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
    tutti_ddp *ddp = NULL;
    bool more = true;
    options.uneven = true;
    if (begin_model(comm, &options, &ddp))
        return 1;
    CHECK_OK(tutti_group_start());
    CHECK(tutti_ddp_join(ddp, &more) == TUTTI_ERR_USAGE && more);
    CHECK(strstr(tutti_last_error(), "tutti_ddp_join: not between tutti_group_start"));
    CHECK_OK(tutti_group_end());
    CHECK_OK(tutti_ddp_join(ddp, &more));
    CHECK(!more);
    tutti_ddp_destroy(ddp);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct model_case cases[] = {
        {"unused_tensors", unused_tensors},       {"static_graph", static_graph},
        {"uneven_inputs", uneven_inputs},         {"leftover_gradients", leftover_gradients},
        {"means_over_tokens", means_over_tokens}, {"clipping", clipping},
        {"single_waits", single_waits},           {"last_bucket", last_bucket},
        {"schedule_order", schedule_order},       {"what_happened", what_happened},
        {"refused_in_groups", refused_in_groups}, {"join_refused_in_group", join_refused_in_group},
    };
    return model_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
