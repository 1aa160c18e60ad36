/* The core of tutti_ddp on exact sums: means and sums over ranks, accumulation, whatever the size
 * of buckets and the order in which gradients become ready; models that differ; calls at the wrong
 * moment; gradients that are forgotten; gradients and values on a GPU. */
#include "coll/door.h"
#include "tests/ddp/ddp_model.h"
#include "tests/device/gpu_wait.h"

#include <stdlib.h>
#include <string.h>

static int sums_case(tutti_comm *comm, const struct tutti_ddp_options *options, bool shuffled)
{
    struct tutti_ddp_tensor tensors[MODEL_TENSORS];
    tutti_ddp *ddp = NULL;
    int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    double divisor = options->divisor == TUTTI_DDP_SUM ? 1 : size;
    model_tensors(tensors);
    CHECK_OK(tutti_ddp_create(comm, tensors, MODEL_TENSORS, options, &ddp));
    for (int step = 0; step < 3; step++) { /* as created, made anew, zeroed */
        struct model_sums s = {size, step, step, divisor};
        if (model_pass(ddp, rank, step, true, shuffled) || model_check(ddp, model_sum, &s))
            return 1;
    }
    for (int pass = 0; pass < 3; pass++) /* three small batches make one step */
        if (model_pass(ddp, rank, pass, pass == 2, shuffled))
            return 1;
    struct model_sums s = {size, 0, 2, divisor};
    if (model_check(ddp, model_sum, &s))
        return 1;
    tutti_ddp_destroy(ddp);
    return 0;
}

static int sums_of_ranks(tutti_comm *comm, void *argument)
{
    (void)argument;
    static const size_t sizes[][3] = {{0, 0, 0}, {1, 1, 1}, {16384, 256, 1024}};
    for (int k = 0; k < 9; k++) {
        struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
        options.bucket_bytes = sizes[k % 3][0];
        options.first_bucket_bytes = sizes[k % 3][1];
        options.chunk_bytes = sizes[k % 3][2];
        options.in_flight = k % 3 + 1;
        options.path = k < 6 ? TUTTI_DDP_PATH_WHOLE : TUTTI_DDP_PATH_SPLIT;
        options.divisor = k == 4 ? TUTTI_DDP_SUM : TUTTI_DDP_MEAN;
        if (sums_case(comm, &options, k >= 3))
            return 1;
    }
    return 0;
}

/* Values are rank 0's: those of the caller at once, those of the library when a step begins; so are
 * buffers, at each synchronised begin. */
static int values_of_rank_0(tutti_comm *comm, void *argument)
{
    (void)argument;
    int rank = tutti_comm_rank(comm);
    float mine[5] = {0}, table[3] = {0};
    void *value = NULL, *gradient = NULL;
    tutti_ddp *ddp = NULL;
    const struct tutti_ddp_tensor tensors[] = {
        {.name = "a", .type = TUTTI_FLOAT32, .dims = 1, .shape = {5}, .value = mine},
        {.name = "b", .type = TUTTI_BFLOAT16, .dims = 2, .shape = {2, 3}},
        {.name = "table",
         .type = TUTTI_FLOAT32,
         .dims = 1,
         .shape = {3},
         .value = table,
         .kind = TUTTI_DDP_FROZEN},
        {.name = "seen", .type = TUTTI_INT64, .kind = TUTTI_DDP_BUFFER},
    };
    for (int i = 0; i < 5; i++)
        mine[i] = (float)(rank * 10 + i);
    table[1] = (float)(rank + 1);
    CHECK_OK(tutti_ddp_create(comm, tensors, 4, NULL, &ddp));
    for (int i = 0; i < 5; i++)
        CHECK(mine[i] == (float)i);
    CHECK(table[1] == 1);
    CHECK(tutti_ddp_gradient(ddp, 2, &gradient) == TUTTI_ERR_ARGUMENT);
    CHECK_OK(tutti_ddp_value(ddp, 1, &value));
    ((uint16_t *)value)[5] = (uint16_t)(rank + 7);
    for (int step = 0; step < 2; step++) {
        void *seen = NULL;
        CHECK_OK(tutti_ddp_value(ddp, 3, &seen));
        *(int64_t *)seen = rank * 100 + step;
        CHECK_OK(tutti_ddp_begin(ddp, true));
        CHECK(*(int64_t *)seen == step);
        CHECK(((uint16_t *)value)[5] == 7);
        CHECK_OK(tutti_ddp_ready(ddp, 1));
        CHECK_OK(tutti_ddp_ready(ddp, 0));
        CHECK_OK(tutti_ddp_wait(ddp));
    }
    tutti_ddp_destroy(ddp);
    return 0;
}

/* All ranks fail at once and say the same. */
static int models_that_differ(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct tutti_ddp_tensor tensors[MODEL_TENSORS];
    tutti_ddp *ddp = NULL;
    bool other = tutti_comm_rank(comm) == tutti_comm_size(comm) - 1;
    if (tutti_comm_size(comm) == 1)
        return 0;
    model_tensors(tensors);
    if (other)
        tensors[5].shape[1] = 48;
    CHECK(tutti_ddp_create(comm, tensors, MODEL_TENSORS, NULL, &ddp) == TUTTI_ERR_MISMATCH);
    CHECK(strstr(tutti_last_error(), "3.weight [31, 47]"));
    CHECK(strstr(tutti_last_error(), "3.weight [31, 48]"));
    model_tensors(tensors);
    CHECK(tutti_ddp_create(comm, tensors, MODEL_TENSORS - other, NULL, &ddp) == TUTTI_ERR_MISMATCH);
    CHECK(strstr(tutti_last_error(), "4.bias"));
    struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
    options.bucket_bytes = other ? 1000 : 2000;
    CHECK(tutti_ddp_create(comm, tensors, MODEL_TENSORS, &options, &ddp) == TUTTI_ERR_MISMATCH);
    CHECK(strstr(tutti_last_error(), "bucket_bytes 1000"));
    if (other)
        tensors[2].type = TUTTI_INT32;
    enum tutti_result result = tutti_ddp_create(comm, tensors, MODEL_TENSORS, NULL, &ddp);
    CHECK(result == (other ? TUTTI_ERR_ARGUMENT : TUTTI_ERR_MISMATCH));
    CHECK(strstr(tutti_last_error(), "2.weight: int32 has no gradient"));
    return 0;
}

/* A rank that forgets gradients makes the step fail on all, by name; the next step works. */
static int gradients_forgotten(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct tutti_ddp_tensor tensors[MODEL_TENSORS];
    tutti_ddp *ddp = NULL;
    int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    model_tensors(tensors);
    CHECK_OK(tutti_ddp_create(comm, tensors, MODEL_TENSORS, NULL, &ddp));
    CHECK_OK(tutti_ddp_begin(ddp, true));
    for (size_t i = 0; i < MODEL_TENSORS; i++)
        if (rank != size - 1 || (i != 2 && i != 7))
            CHECK_OK(tutti_ddp_ready(ddp, i));
    CHECK(tutti_ddp_wait(ddp) == TUTTI_ERR_USAGE);
    CHECK(strstr(tutti_last_error(), "2.weight, 4.weight"));
    struct model_sums s = {size, 1, 1, size};
    if (model_pass(ddp, rank, 1, true, false) || model_check(ddp, model_sum, &s))
        return 1;
    tutti_ddp_destroy(ddp);
    return 0;
}

static int wrong_calls(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct tutti_ddp_tensor tensors[MODEL_TENSORS];
    tutti_ddp *ddp = NULL;
    void *gradient = NULL;
    model_tensors(tensors);
    CHECK_OK(tutti_ddp_create(comm, tensors, MODEL_TENSORS, NULL, &ddp));
    CHECK(tutti_ddp_wait(ddp) == TUTTI_ERR_USAGE);
    CHECK(tutti_ddp_ready(ddp, 0) == TUTTI_ERR_USAGE);
    CHECK(tutti_ddp_gradient(ddp, MODEL_TENSORS, &gradient) == TUTTI_ERR_ARGUMENT);
    CHECK_OK(tutti_ddp_begin(ddp, false));
    CHECK(tutti_ddp_begin(ddp, true) == TUTTI_ERR_USAGE);
    CHECK_OK(tutti_ddp_ready(ddp, 3));
    CHECK(tutti_ddp_ready(ddp, 3) == TUTTI_ERR_USAGE);
    CHECK(strstr(tutti_last_error(), "2.bias"));
    CHECK_OK(tutti_ddp_wait(ddp));
    tensors[1].name = "2.bias";
    tutti_ddp *none = NULL;
    CHECK(tutti_ddp_create(comm, tensors, MODEL_TENSORS, NULL, &none) == TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "two tensors are named 2.bias"));
    CHECK(!none);
    tutti_ddp_destroy(ddp);
    tutti_ddp_destroy(NULL);
    return 0;
}

/* Where there is a device (ddp_device: a simulated one): its memory is refused, on all ranks, when
 * one of them gives some; page-locked memory is not. */
/* Each tensor's memory on a simulated GPU, and what the host has to say about it. */
struct offloaded {
    struct tti_gpu *gpu;
    tutti_stream stream;
    struct tutti_ddp_tensor tensors[MODEL_TENSORS];
    void *gradients[MODEL_TENSORS]; /* on the GPU */
    double *host[MODEL_TENSORS];    /* room for all elements, of whichever type */
    size_t bytes[MODEL_TENSORS];
};

static int offload_begin(struct offloaded *o, const struct tti_gpu_ops *ops)
{
    CHECK_OK(ops->open(0, &o->gpu));
    CHECK_OK(ops->stream_create(o->gpu, &o->stream));
    model_tensors(o->tensors);
    for (size_t i = 0; i < MODEL_TENSORS; i++) {
        o->bytes[i] = model_elements(&o->tensors[i]) * tutti_type_size(o->tensors[i].type);
        o->host[i] = calloc(model_elements(&o->tensors[i]), sizeof(double));
        CHECK(o->host[i]);
        CHECK_OK(ops->alloc(o->gpu, TTI_MEMORY_DEVICE, o->bytes[i], &o->gradients[i]));
        CHECK_OK(ops->alloc(o->gpu, TTI_MEMORY_DEVICE, o->bytes[i], &o->tensors[i].device));
    }
    return 0;
}

static void offload_end(struct offloaded *o)
{
    const struct tti_gpu_ops *ops = o->gpu->ops;
    for (size_t i = 0; i < MODEL_TENSORS; i++) {
        free(o->host[i]);
        ops->free(o->gpu, o->gradients[i]);
        ops->free(o->gpu, o->tensors[i].device);
    }
    ops->stream_destroy(o->gpu, o->stream);
    ops->close(o->gpu);
}

static double offload_value(int step, size_t index, size_t element)
{
    return (double)((size_t)step * 1000 + index * 10 + element % 7);
}

/* A pass whose gradients are on the GPU, and an optimizer that makes values of their own. */
static int offload_step(struct offloaded *o, tutti_ddp *ddp, int rank, int step)
{
    const struct tutti_ddp_piece *pieces = NULL;
    size_t count = 0;
    CHECK_OK(tutti_ddp_begin(ddp, true));
    for (size_t i = MODEL_TENSORS; i-- > 0;) {
        const size_t elements = model_elements(&o->tensors[i]);
        struct tti_gpu_pointer info;
        void *bucket = NULL;
        CHECK_OK(tutti_ddp_gradient(ddp, i, &bucket));
        CHECK_OK(o->gpu->ops->pointer(bucket, &info));
        CHECK(info.kind == TTI_MEMORY_PINNED);
        for (size_t e = 0; e < elements; e++)
            if (i == 4)
                o->host[i][e] = model_gradient(rank, step, i, e);
            else
                ((float *)o->host[i])[e] = (float)model_gradient(rank, step, i, e);
        CHECK_OK(o->gpu->ops->copy(o->gpu, o->gradients[i], o->host[i], o->bytes[i], o->stream));
        CHECK_OK(tutti_ddp_ready_from(ddp, i, o->gradients[i], o->stream));
    }
    CHECK(tutti_ddp_ready_from(ddp, 2, o->gradients[2], o->stream) == TUTTI_ERR_USAGE);
    CHECK_OK(tutti_ddp_wait(ddp));
    CHECK_OK(tutti_ddp_pieces(ddp, &pieces, &count, NULL));
    for (size_t p = 0; p < count; p++)
        for (size_t e = 0; e < pieces[p].count; e++) {
            const double v = offload_value(step, pieces[p].index, pieces[p].first + e);
            if (pieces[p].index == 4)
                ((double *)pieces[p].value)[e] = v;
            else
                ((float *)pieces[p].value)[e] = (float)v;
        }
    CHECK_OK(tutti_ddp_publish(ddp));
    return 0;
}

/* The new values are on the GPU. */
static int offload_check(struct offloaded *o, tutti_ddp *ddp, int step)
{
    for (size_t i = 0; i < MODEL_TENSORS; i++) {
        CHECK_OK(tutti_ddp_acquire(ddp, o->tensors[i].unit));
        CHECK_OK(tutti_ddp_upload(ddp, i, o->stream));
        CHECK_OK(tutti_ddp_release(ddp, o->tensors[i].unit, false));
        memset(o->host[i], 0, o->bytes[i]);
        CHECK_OK(
            o->gpu->ops->copy(o->gpu, o->host[i], o->tensors[i].device, o->bytes[i], o->stream));
        CHECK_OK(gpu_wait_or_end(o->gpu, o->stream, 60, "values"));
        for (size_t e = 0; e < model_elements(&o->tensors[i]); e++)
            CHECK((i == 4 ? o->host[i][e] : (double)((float *)o->host[i])[e]) ==
                  offload_value(step, i, e));
    }
    return 0;
}

/* Buckets and optimizer on the host, the model on a GPU: sums and values are right at every stage
 * of sharding. */
static int offload(tutti_comm *comm, void *argument)
{
    (void)argument;
    const struct tti_gpu_ops *ops = NULL;
    struct offloaded o = {0};
    const int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    CHECK_OK(tti_gpu_in_use(&ops));
    if (!ops)
        return 0;
    if (offload_begin(&o, ops))
        return 1;
    for (int zero = 0; zero < 4; zero++) {
        struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
        tutti_ddp *ddp = NULL;
        options.zero = zero;
        options.by_unit = zero >= 2;
        options.overwrite = zero % 2;
        options.bucket_bytes = options.first_bucket_bytes = 4096;
        options.chunk_bytes = 1024;
        CHECK_OK(tutti_ddp_create(comm, o.tensors, MODEL_TENSORS, &options, &ddp));
        CHECK(tutti_ddp_ready_from(ddp, 0, o.gradients[0], o.stream) == TUTTI_ERR_USAGE);
        for (int step = 0; step < 3; step++) {
            const struct model_sums s = {size, step, step, size};
            if (offload_step(&o, ddp, rank, step) || model_check(ddp, model_sum, &s) ||
                offload_check(&o, ddp, step))
                return 1;
        }
        CHECK_OK(tutti_ddp_begin(ddp, true)); /* given up: nothing comes after it is destroyed */
        CHECK(tutti_ddp_ready_from(ddp, 1, o.host[1], o.stream) == TUTTI_ERR_ARGUMENT);
        CHECK(tutti_ddp_ready_from(ddp, 0, o.gradients[1], o.stream) == TUTTI_ERR_ARGUMENT);
        CHECK(strstr(tutti_last_error(), "1.weight takes"));
        CHECK_OK(tutti_ddp_ready_from(ddp, 1, o.gradients[1], o.stream));
        tutti_ddp_destroy(ddp);
    }
    tutti_ddp *ddp = NULL;
    void *kept = o.tensors[3].device;
    o.tensors[3].device = o.host[3];
    CHECK(tutti_ddp_create(comm, o.tensors, MODEL_TENSORS, NULL, &ddp) == TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "2.bias"));
    o.tensors[3].device = kept;
    offload_end(&o);
    return 0;
}

static int device_memory(tutti_comm *comm, void *argument)
{
    (void)argument;
    const struct tti_gpu_ops *ops = NULL;
    struct tti_gpu *gpu = NULL;
    CHECK_OK(tti_gpu_in_use(&ops));
    if (!ops)
        return 0;
    CHECK_OK(ops->open(0, &gpu));
    struct tutti_ddp_tensor tensors[MODEL_TENSORS];
    tutti_ddp *ddp = NULL;
    void *device = NULL, *pinned = NULL;
    model_tensors(tensors);
    const size_t bytes = model_elements(&tensors[1]) * tutti_type_size(tensors[1].type);
    CHECK_OK(ops->alloc(gpu, TTI_MEMORY_DEVICE, bytes, &device));
    CHECK_OK(ops->alloc(gpu, TTI_MEMORY_PINNED, bytes, &pinned));
    memset(pinned, 0, bytes);
    const int last = tutti_comm_size(comm) - 1, rank = tutti_comm_rank(comm);
    tensors[1].value = rank == last ? device : pinned;
    const enum tutti_result refused = tutti_ddp_create(comm, tensors, MODEL_TENSORS, NULL, &ddp);
    CHECK(rank == last ? refused == TUTTI_ERR_UNSUPPORTED : refused != TUTTI_OK);
    CHECK(strstr(tutti_last_error(), tensors[1].name));
    CHECK(strstr(tutti_last_error(), "is memory of GPU 0") && !ddp);
    tensors[1].value = pinned;
    CHECK_OK(tutti_ddp_create(comm, tensors, MODEL_TENSORS, NULL, &ddp));
    struct tutti_piece piece = {
        .name = "a", .type = TUTTI_FLOAT32, .dims = 1, .shape = {1}, .count = 1, .data = device};
    CHECK(tutti_checkpoint_save(comm, "/nowhere", 1, &piece, rank == 0, NULL, 0, 0) ==
          TUTTI_ERR_UNSUPPORTED);
    tutti_ddp_destroy(ddp);
    ops->free(gpu, device);
    ops->free(gpu, pinned);
    ops->close(gpu);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct model_case cases[] = {
        {"sums_of_ranks", sums_of_ranks},
        {"values_of_rank_0", values_of_rank_0},
        {"models_that_differ", models_that_differ},
        {"gradients_forgotten", gradients_forgotten},
        {"wrong_calls", wrong_calls},
        {"device_memory", device_memory},
        {"offload", offload},
    };
    return model_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
