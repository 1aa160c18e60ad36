/* Memory of gradients that goes from bucket to bucket (zero 2 and 3): what the caller does not
 * write is zero all the same, and waiting for it never makes ranks wait for each other, whatever
 * order each has. With TUTTI_DEVICE=sim in memory of the simulated GPU. Also: whose buffers
 * (running means) count when ranks run out of data. */
#include "coll/door.h"
#include "tests/ddp/ddp_model.h"
#include "tests/device/gpu_wait.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Elements of a large tensor. The simulated GPU is slow where accesses are checked; elsewhere
 * filling so many takes long enough for another lane to come in between. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { LETTERS = 4, LARGE = 1 << 14 };
#else
enum { LETTERS = 4, LARGE = 1 << 22 };
#endif
static const char *const letters[LETTERS] = {"a", "b", "c", "d"};

static void letter_tensors(struct tutti_ddp_tensor tensors[LETTERS], size_t length)
{
    for (int i = 0; i < LETTERS; i++)
        tensors[i] = (struct tutti_ddp_tensor){
            .name = letters[i], .type = TUTTI_FLOAT32, .dims = 1, .shape = {length}, .unit = i};
}

/* ---- where gradients are ---- */

struct place {
    const struct tti_gpu_ops *ops; /* NULL: host memory */
    struct tti_gpu *gpu;
    tutti_stream stream;
    float *staged; /* of a tensor */
};

static int place_open(struct place *p, size_t length, struct tutti_ddp_options *options)
{
    memset(p, 0, sizeof *p);
    CHECK(p->staged = calloc(length, sizeof *p->staged));
    if (!getenv("TUTTI_DEVICE"))
        return 0;
    CHECK_OK(tti_gpu_in_use(&p->ops));
    CHECK(p->ops);
    CHECK_OK(p->ops->open(0, &p->gpu));
    CHECK_OK(p->ops->stream_create(p->gpu, &p->stream));
    options->on_device = true;
    options->stream = p->stream;
    return 0;
}

static void place_close(struct place *p)
{
    if (p->ops) {
        p->ops->stream_destroy(p->gpu, p->stream);
        p->ops->close(p->gpu);
    }
    free(p->staged);
}

static int place_copy(struct place *p, void *to, const void *from, size_t count)
{
    if (!p->ops) {
        memcpy(to, from, count * sizeof(float));
        return 0;
    }
    CHECK_OK(p->ops->copy(p->gpu, to, from, count * sizeof(float), p->stream));
    CHECK_OK(gpu_wait_or_end(p->gpu, p->stream, 60, "a copy"));
    return 0;
}

/* The caller stores `value` in all elements of a gradient, which is ready then. */
static int store(tutti_ddp *ddp, struct place *p, size_t index, size_t length, float value)
{
    void *gradient = NULL;
    CHECK_OK(tutti_ddp_gradient(ddp, index, &gradient));
    for (size_t e = 0; e < length; e++)
        p->staged[e] = value;
    if (place_copy(p, gradient, p->staged, length))
        return 1;
    CHECK_OK(tutti_ddp_ready(ddp, index));
    return 0;
}

/* All elements of tensor i are wanted[i]. */
static int all_are(tutti_ddp *ddp, struct place *p, const float wanted[LETTERS])
{
    const struct tutti_ddp_piece *pieces = NULL;
    size_t count = 0;
    CHECK_OK(tutti_ddp_pieces(ddp, &pieces, &count, NULL));
    for (size_t i = 0; i < count; i++) {
        if (place_copy(p, p->staged, pieces[i].gradient, pieces[i].count))
            return 1;
        for (size_t e = 0; e < pieces[i].count; e++)
            if (p->staged[e] != wanted[pieces[i].index]) {
                fprintf(stderr, "%s[%zu] is %g, expected %g\n", letters[pieces[i].index],
                        pieces[i].first + e, (double)p->staged[e], (double)wanted[pieces[i].index]);
                return 1;
            }
    }
    return 0;
}

/* ---- cases ---- */

enum { STEPS = 5 };

/* Steps in which all tensors are stored, but b only before step `until`: after that it is zero. */
static int all_but_b(tutti_comm *comm, struct tutti_ddp_options *options, size_t length, int until)
{
    struct tutti_ddp_tensor tensors[LETTERS];
    struct place place;
    tutti_ddp *ddp = NULL;
    letter_tensors(tensors, length);
    options->zero = 2;
    options->overwrite = true;
    options->divisor = TUTTI_DDP_SUM;
    if (place_open(&place, length, options))
        return 1;
    CHECK_OK(tutti_ddp_create(comm, tensors, LETTERS, options, &ddp));
    for (int step = 1; step <= STEPS; step++) {
        const float sum = (float)(step * tutti_comm_size(comm)), b = step < until ? sum : 0;
        CHECK_OK(tutti_ddp_begin(ddp, true));
        for (size_t i = LETTERS; i-- > 0;)
            if ((i != 1 || step < until) && store(ddp, &place, i, length, (float)step))
                return 1;
        CHECK_OK(tutti_ddp_wait(ddp));
        if (all_are(ddp, &place, (const float[LETTERS]){sum, b, sum, sum}))
            return 1;
    }
    tutti_ddp_destroy(ddp);
    place_close(&place);
    return 0;
}

/* Two buckets of two tensors each, one of which is never marked. Who stores instead of adding gets
 * memory as it was left; not so what nobody stores. */
static int unmarked_beside_others(tutti_comm *comm, void *argument)
{
    (void)argument;
    enum { LENGTH = 256 };
    struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
    options.static_graph = true;
    options.bucket_bytes = options.first_bucket_bytes = 2 * LENGTH * sizeof(float);
    return all_but_b(comm, &options, LENGTH, 0);
}

/* A bucket that a rank does not touch at all is zeroed by the lane that comes to it first; another
 * lane reduces the other half of it at the same time. */
static int untouched_by_two_lanes(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
    options.in_flight = 2;
    options.find_unused = true;
    options.bucket_bytes = options.first_bucket_bytes = LARGE * sizeof(float);
    options.chunk_bytes = options.bucket_bytes / 2;
    return all_but_b(comm, &options, LARGE, 2);
}

/* Buckets 0 to 3 are d to a. Two lanes, and each rank first fills two buckets of one of them: it
 * must get a third buffer, for a lane that waits for the other rank gives none back. */
static int orders_of_their_own(tutti_comm *comm, void *argument)
{
    (void)argument;
    enum { LENGTH = 256 };
    static const size_t order[2][LETTERS] = {{3, 1, 2, 0}, {2, 0, 3, 1}};
    const size_t *own = order[tutti_comm_rank(comm) % 2];
    const float sum = (float)tutti_comm_size(comm);
    struct tutti_ddp_tensor tensors[LETTERS];
    struct place place;
    letter_tensors(tensors, LENGTH);
    for (int round = 0; round < 4; round++) {
        struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
        tutti_ddp *ddp = NULL;
        options.zero = options.in_flight = 2;
        options.bucket_bytes = options.first_bucket_bytes = 1;
        options.divisor = TUTTI_DDP_SUM;
        if (place_open(&place, LENGTH, &options))
            return 1;
        CHECK_OK(tutti_ddp_create(comm, tensors, LETTERS, &options, &ddp));
        CHECK_OK(tutti_ddp_begin(ddp, true));
        for (int k = 0; k < LETTERS; k++) {
            if (store(ddp, &place, own[k], LENGTH, 1))
                return 1;
            usleep(3000); /* the lane is at it */
        }
        CHECK_OK(tutti_ddp_wait(ddp));
        if (all_are(ddp, &place, (const float[LETTERS]){sum, sum, sum, sum}))
            return 1;
        tutti_ddp_destroy(ddp);
        place_close(&place);
    }
    return 0;
}

/* Rank r has data for r + 1 steps. In each, buffers are those of the lowest rank that still has. */
static int buffers_of_who_has_data(tutti_comm *comm, void *argument)
{
    (void)argument;
    const int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    const struct tutti_ddp_tensor tensors[] = {
        {.name = "weight", .type = TUTTI_FLOAT32, .dims = 1, .shape = {8}},
        {.name = "seen", .type = TUTTI_INT64, .kind = TUTTI_DDP_BUFFER}};
    struct tutti_ddp_options options = TUTTI_DDP_OPTIONS_INIT;
    tutti_ddp *ddp = NULL;
    void *seen = NULL;
    bool more = true;
    int step = 0;
    options.uneven = true;
    CHECK_OK(tutti_ddp_create(comm, tensors, 2, &options, &ddp));
    CHECK_OK(tutti_ddp_value(ddp, 1, &seen));
    for (; more; step++) {
        if (step <= rank) {
            *(int64_t *)seen = 1000 * rank + step;
            CHECK_OK(tutti_ddp_begin(ddp, true));
            CHECK_OK(tutti_ddp_ready(ddp, 0));
            CHECK_OK(tutti_ddp_wait(ddp));
        } else
            CHECK_OK(tutti_ddp_join(ddp, &more));
        CHECK(!more || *(int64_t *)seen == 1000 * step + step);
    }
    CHECK(step == size + 1);
    tutti_ddp_destroy(ddp);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct model_case cases[] = {{"unmarked_beside_others", unmarked_beside_others},
                                              {"untouched_by_two_lanes", untouched_by_two_lanes},
                                              {"orders_of_their_own", orders_of_their_own},
                                              {"buffers_of_who_has_data", buffers_of_who_has_data}};
    return model_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
