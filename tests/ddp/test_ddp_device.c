/* Training in memory of a GPU (the simulated one) beside training in host memory: the same
 * gradients give the same bits of norms, reduced gradients and parameters, for every stage of
 * sharding, the hooks, accumulation and the optimizers. Run with TUTTI_DEVICE=sim. */
#include "coll/door.h"
#include "tests/ddp/ddp_model.h"
#include "tests/device/gpu_wait.h"

#include <stdlib.h>
#include <string.h>

/* ThreadSanitizer is slow in simulated threads: it gets sharding with prefetch, and two lanes. */
#if defined(__SANITIZE_THREAD__)
enum { FIRST_CASE = 3, CASES = 5, STEPS = 2 };
#else
enum { FIRST_CASE = 0, CASES = 6, STEPS = 3 };
#endif
enum { TENSORS = 6 };

static const struct tutti_ddp_tensor tensors[TENSORS] = {
    {.name = "embed", .type = TUTTI_FLOAT32, .dims = 2, .shape = {37, 19}, .unit = 0},
    {.name = "scale", .type = TUTTI_FLOAT64, .dims = 0, .unit = 0},
    {.name = "thin", .type = TUTTI_BFLOAT16, .dims = 2, .shape = {33, 65}, .unit = 1},
    {.name = "bias", .type = TUTTI_FLOAT32, .dims = 1, .shape = {129}, .unit = 1},
    {.name = "half", .type = TUTTI_FLOAT16, .dims = 1, .shape = {777}, .unit = 2},
    {.name = "last", .type = TUTTI_FLOAT32, .dims = 2, .shape = {50, 60}, .unit = 2},
};

/* One of the two sides. */
struct side {
    const struct tti_gpu_ops *ops;
    struct tti_gpu *gpu; /* NULL: the host */
    tutti_stream stream;
    tutti_ddp *ddp;
    float *arrays[3]; /* master, and the optimizer's states, of all pieces */
    size_t elements;
    char *staged[2][TENSORS]; /* what is copied, until it is */
};

struct pair {
    struct side host, device;
    struct tutti_optimizer optimizer;
    uint64_t noise;
};

static float draw(uint64_t *noise)
{
    *noise = *noise * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(*noise >> 33) / 2147483648.0 - 0.5);
}

static size_t bytes_of(size_t index)
{
    return model_elements(&tensors[index]) * tutti_type_size(tensors[index].type);
}

static int side_wait(struct side *s)
{
    CHECK_OK(gpu_wait_or_end(s->gpu, s->stream, 60, "the test"));
    return 0;
}

static int side_open(struct side *s, tutti_comm *comm, struct tutti_ddp_options options)
{
    const struct tutti_ddp_piece *pieces = NULL;
    size_t count = 0;
    options.on_device = s->gpu != NULL;
    options.stream = s->stream;
    CHECK_OK(tutti_ddp_create(comm, tensors, TENSORS, &options, &s->ddp));
    CHECK_OK(tutti_ddp_pieces(s->ddp, &pieces, &count, &s->elements));
    const size_t bytes = s->elements * sizeof(float);
    for (int a = 0; a < 3; a++) {
        if (!s->gpu) {
            CHECK(s->arrays[a] = calloc(1, bytes));
            continue;
        }
        CHECK_OK(s->ops->alloc(s->gpu, TTI_MEMORY_DEVICE, bytes, (void **)&s->arrays[a]));
        CHECK_OK(s->ops->fill(s->gpu, s->arrays[a], 0, bytes, s->stream));
    }
    return 0;
}

static void side_close(struct side *s)
{
    tutti_ddp_destroy(s->ddp);
    for (int a = 0; a < 3; a++) {
        if (s->gpu)
            s->ops->free(s->gpu, s->arrays[a]);
        else
            free(s->arrays[a]);
    }
    s->ddp = NULL;
}

/* Are `bytes` at `device` those at `host`? */
static int same(struct side *s, const void *host, const void *device, size_t bytes)
{
    char *copy = malloc(bytes + 1);
    CHECK(copy);
    CHECK_OK(s->ops->copy(s->gpu, copy, device, bytes, s->stream));
    const int failed = side_wait(s) || memcmp(copy, host, bytes) != 0;
    free(copy);
    CHECK(!failed);
    return 0;
}

/* A number more for each element of the host's gradient, which the device's becomes. */
static int add_noise(struct pair *p, int pass, size_t index)
{
    void *here = NULL, *there = NULL;
    char *staged = p->device.staged[pass][index];
    CHECK_OK(tutti_ddp_gradient(p->host.ddp, index, &here));
    for (size_t e = 0; e < model_elements(&tensors[index]); e++) {
        const float g = draw(&p->noise);
        if (tensors[index].type == TUTTI_FLOAT64)
            ((double *)here)[e] += (double)g;
        else if (tensors[index].type == TUTTI_FLOAT32)
            ((float *)here)[e] += g;
        else /* a positive or negative number of the type, around a half: no adding up */
            ((uint16_t *)here)[e] = (uint16_t)((g < 0 ? 0xb800 : 0x3800) + (int)(g * g * 512));
    }
    memcpy(staged, here, bytes_of(index));
    CHECK_OK(tutti_ddp_gradient(p->device.ddp, index, &there));
    CHECK_OK(p->device.ops->copy(p->device.gpu, there, staged, bytes_of(index), p->device.stream));
    CHECK_OK(tutti_ddp_ready(p->host.ddp, index));
    CHECK_OK(tutti_ddp_ready(p->device.ddp, index));
    return 0;
}

static int pair_pass(struct pair *p, int pass, bool last, bool tokens)
{
    CHECK_OK(tutti_ddp_begin(p->host.ddp, last));
    CHECK_OK(tutti_ddp_begin(p->device.ddp, last));
    for (size_t i = TENSORS; i-- > 0;)
        if (add_noise(p, pass, i))
            return 1;
    if (tokens) {
        CHECK_OK(tutti_ddp_tokens(p->host.ddp, 3));
        CHECK_OK(tutti_ddp_tokens(p->device.ddp, 3));
    }
    CHECK_OK(tutti_ddp_wait(p->host.ddp));
    CHECK_OK(tutti_ddp_wait(p->device.ddp));
    return 0;
}

static int side_optimize(struct side *s, const struct tutti_optimizer *o, uint64_t step)
{
    const struct tutti_ddp_piece *pieces = NULL;
    size_t count = 0;
    CHECK_OK(tutti_ddp_pieces(s->ddp, &pieces, &count, NULL));
    for (size_t i = 0; i < count; i++) {
        const size_t at = pieces[i].state;
        const enum tutti_type type = tensors[pieces[i].index].type;
        const struct tutti_optimizer_slice slice = {
            .count = pieces[i].count,
            .type = type,
            .param = pieces[i].value,
            .grad = pieces[i].gradient,
            .master = type == TUTTI_FLOAT32 ? NULL : s->arrays[0] + at,
            .states = {s->arrays[1] + at, s->arrays[2] + at},
            .grad_scale = 0.75f,
            .no_decay = pieces[i].index % 2 != 0};
        if (type != TUTTI_FLOAT64)
            CHECK_OK(tutti_ddp_optimizer_step(s->ddp, o, step, &slice));
    }
    CHECK_OK(tutti_ddp_publish(s->ddp));
    return 0;
}

static int pair_compare(struct pair *p)
{
    const struct tutti_ddp_piece *here = NULL, *there = NULL;
    size_t count = 0, other = 0;
    CHECK_OK(tutti_ddp_pieces(p->host.ddp, &here, &count, NULL));
    CHECK_OK(tutti_ddp_pieces(p->device.ddp, &there, &other, NULL));
    CHECK(count == other);
    for (size_t i = 0; i < count; i++)
        if (same(&p->device, here[i].gradient, there[i].gradient,
                 here[i].count * tutti_type_size(tensors[here[i].index].type)))
            return 1;
    for (size_t i = 0; i < TENSORS; i++) {
        void *value = NULL, *device = NULL;
        CHECK_OK(tutti_ddp_acquire(p->host.ddp, tensors[i].unit));
        CHECK_OK(tutti_ddp_acquire(p->device.ddp, tensors[i].unit));
        CHECK_OK(tutti_ddp_value(p->host.ddp, i, &value));
        CHECK_OK(tutti_ddp_value(p->device.ddp, i, &device));
        if (same(&p->device, value, device, bytes_of(i)))
            return 1;
        CHECK_OK(tutti_ddp_release(p->host.ddp, tensors[i].unit, false));
        CHECK_OK(tutti_ddp_release(p->device.ddp, tensors[i].unit, false));
    }
    return 0;
}

/* Where buckets begin. When they are made anew (after the first step) they lie there again, so that
 * there is never twice the memory. */
static int side_lowest(struct side *s, const char **lowest)
{
    *lowest = NULL;
    for (size_t i = 0; i < TENSORS; i++) {
        void *gradient = NULL;
        CHECK_OK(tutti_ddp_gradient(s->ddp, i, &gradient));
        if (!*lowest || (const char *)gradient < *lowest)
            *lowest = gradient;
    }
    return 0;
}

static int pair_train(struct pair *p, const struct tutti_ddp_options *options)
{
    const bool tokens = options->divisor == TUTTI_DDP_TOKENS;
    const char *first[2] = {NULL, NULL}, *now[2];
    for (uint64_t step = 1; step <= STEPS; step++) {
        double norms[2] = {0, 0};
        if (pair_pass(p, 0, false, tokens) || pair_pass(p, 1, true, tokens))
            return 1;
        CHECK_OK(tutti_ddp_clip(p->host.ddp, 2, &norms[0]));
        CHECK_OK(tutti_ddp_clip(p->device.ddp, 2, &norms[1]));
        CHECK(norms[0] > 2 && memcmp(&norms[0], &norms[1], sizeof norms[0]) == 0);
        if (side_optimize(&p->host, &p->optimizer, step) ||
            side_optimize(&p->device, &p->optimizer, step) || pair_compare(p))
            return 1;
        if (options->zero > 0)
            continue;
        if (side_lowest(&p->host, &now[0]) || side_lowest(&p->device, &now[1]))
            return 1;
        CHECK(step == 1 || (now[0] == first[0] && now[1] == first[1]));
        memcpy(first, now, sizeof first);
    }
    return 0;
}

/* What on_device does not take is said by name, on all ranks. */
static int refusals(tutti_comm *comm, tutti_stream stream)
{
    struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
    struct tutti_ddp_tensor one = tensors[0];
    static float here[37 * 19];
    tutti_ddp *ddp = NULL;
    options.on_device = true;
    options.stream = stream;
    options.hook = TUTTI_DDP_HOOK_POWERSGD;
    CHECK(tutti_ddp_create(comm, tensors, TENSORS, &options, &ddp) == TUTTI_ERR_UNSUPPORTED);
    CHECK(strstr(tutti_last_error(), "PowerSGD"));
    options.hook = TUTTI_DDP_HOOK_NONE;
    options.device = 99;
    CHECK(tutti_ddp_create(comm, tensors, TENSORS, &options, &ddp) == TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "GPU 99"));
    options.device = 0;
    one.value = here;
    CHECK(tutti_ddp_create(comm, &one, 1, &options, &ddp) == TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "embed"));
    options.on_device = tutti_comm_rank(comm) == 0;
    CHECK(tutti_ddp_create(comm, tensors, TENSORS, &options, &ddp) == TUTTI_ERR_MISMATCH);
    CHECK(strstr(tutti_last_error(), "on_device 1"));
    return 0;
}

static int pair_case(tutti_comm *comm, struct pair *p, int number)
{
    struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
    options.bucket_bytes = 6000;
    options.first_bucket_bytes = 2000;
    options.chunk_bytes = 4096;
    options.zero = number < 4 ? number : number == 4 ? 0 : 2;
    options.by_unit = options.zero >= 2;
    options.prefetch = 1;
    options.hook = number == 1   ? TUTTI_DDP_HOOK_FLOAT16
                   : number >= 4 ? TUTTI_DDP_HOOK_BFLOAT16
                                 : TUTTI_DDP_HOOK_NONE;
    options.path = number == 4 ? TUTTI_DDP_PATH_SPLIT : TUTTI_DDP_PATH_AUTO;
    options.in_flight = number == 4 ? 2 : 1;
    options.divisor = number == 2 ? TUTTI_DDP_TOKENS : TUTTI_DDP_MEAN;
    p->optimizer = number == 3   ? (struct tutti_optimizer)TUTTI_SGD_INIT
                   : number == 4 ? (struct tutti_optimizer)TUTTI_SGD_INIT
                                 : (struct tutti_optimizer)TUTTI_ADAMW_INIT;
    p->optimizer.momentum = number == 3 ? 0.9f : 0;
    p->optimizer.nesterov = number == 3;
    p->optimizer.weight_decay = 0.1f;
    const int failed = side_open(&p->host, comm, options) || side_open(&p->device, comm, options) ||
                       pair_train(p, &options);
    side_close(&p->device);
    side_close(&p->host);
    if (failed)
        fprintf(stderr, "rank %d: in case %d\n", tutti_comm_rank(comm), number);
    return failed;
}

static int beside_host(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct pair p = {.noise = 7 + (uint64_t)tutti_comm_rank(comm)};
    struct side *d = &p.device;
    int failed = 0;
    CHECK_OK(tti_gpu_in_use(&d->ops));
    CHECK(d->ops);
    CHECK_OK(d->ops->open(0, &d->gpu));
    CHECK_OK(d->ops->stream_create(d->gpu, &d->stream));
    for (size_t i = 0; i < TENSORS; i++)
        for (int pass = 0; pass < 2; pass++)
            CHECK(d->staged[pass][i] = malloc(bytes_of(i)));
    for (int number = FIRST_CASE; number < CASES && !failed; number++)
        failed = pair_case(comm, &p, number);
    failed = failed || refusals(comm, d->stream);
    for (size_t i = 0; i < TENSORS; i++)
        for (int pass = 0; pass < 2; pass++)
            free(d->staged[pass][i]);
    d->ops->stream_destroy(d->gpu, d->stream);
    d->ops->close(d->gpu);
    return failed;
}

int main(int argc, char **argv)
{
    static const struct model_case cases[] = {{"beside_host", beside_host}};
    return model_main(argc, argv, cases, 1);
}
