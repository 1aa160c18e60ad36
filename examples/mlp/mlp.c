/* Trains a perceptron to read handwritten digits, on one rank or many: the small set beside this
 * file, or MNIST. Shows how a training loop sits on tutti/ddp.h by way of examples/train/trainer.h
 * and train_run.h; the model is mlp_model.c, the flags are mlp_options.c. examples/README.md has a
 * run. */
#include "examples/mlp/mlp_options.h"

#include "examples/mlp/digits.h"
#include "examples/mlp/mlp_model.h"
#include "examples/train/blas.h"
#include "examples/train/together.h"
#include "examples/train/train_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One image in so many is kept for checking where the data has no part for that. */
enum { CHECK_EVERY = 6 };

struct data {
    struct digits all, check; /* check.count = 0: every 6th of `all` */
    size_t train, test;       /* images */
};

struct run {
    struct train_run base;
    const struct mlp_options *options;
    const struct data *data;
    struct tutti_schedule schedule;
    uint64_t per_epoch; /* steps */
    struct mlp model;
    uint8_t *labels; /* of the batch */
    double accuracy;
};

/* Number `index` of the training images, or of those for checking. */
static void data_take(const struct data *data, bool check, size_t index, float *image,
                      uint8_t *label)
{
    const struct digits *from = check && data->check.count > 0 ? &data->check : &data->all;
    size_t at = index;
    if (data->check.count == 0)
        at = check ? index * CHECK_EVERY : index + index / (CHECK_EVERY - 1) + 1;
    memcpy(image, from->images + at * from->pixels, from->pixels * sizeof *image);
    *label = from->labels[at];
}

static int data_read(struct data *data, const struct mlp_options *o)
{
    char paths[4][4200];
    static const char *const mnist[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                        "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
    if (!o->mnist) {
        snprintf(paths[0], sizeof paths[0], "%s/digits-images-idx3-ubyte", o->data);
        snprintf(paths[1], sizeof paths[1], "%s/digits-labels-idx1-ubyte", o->data);
        if (digits_read(&data->all, paths[0], paths[1], 16))
            return 1;
        data->test = (data->all.count + CHECK_EVERY - 1) / CHECK_EVERY;
        data->train = data->all.count - data->test;
        return 0;
    }
    for (int i = 0; i < 4; i++)
        snprintf(paths[i], sizeof paths[i], "%s/%s", o->mnist, mnist[i]);
    if (digits_read(&data->all, paths[0], paths[1], 255) ||
        digits_read(&data->check, paths[2], paths[3], 255))
        return 1;
    data->train = data->all.count;
    data->test = data->check.count;
    if (data->all.pixels == data->check.pixels)
        return 0;
    fprintf(stderr, "%s: images for training and for checking differ in size\n", o->mnist);
    return 1;
}

/* The share of the images for checking that is read right; each rank looks at some. */
static int run_check(struct run *r)
{
    double counts[2] = {0, 0};
    const size_t pixels = r->data->all.pixels;
    tutti_comm *comm = r->base.comm;
    for (size_t at = (size_t)r->base.rank; at < r->data->test;) {
        int count = 0;
        for (; count < r->model.batch && at < r->data->test; at += (size_t)r->base.ranks, count++)
            data_take(r->data, true, at, r->model.outputs[0] + (size_t)count * pixels,
                      &r->labels[count]);
        mlp_forward(&r->model, &r->base.trainer, count);
        for (int i = 0; i < count; i++) {
            const float *row = r->model.outputs[MLP_LAYERS] + i * MLP_CLASSES;
            int best = 0;
            for (int c = 1; c < MLP_CLASSES; c++)
                best = row[c] > row[best] ? c : best;
            counts[0] += best == r->labels[i];
            counts[1] += 1;
        }
    }
    if (together_check(comm, tutti_all_reduce(counts, counts, 2, TUTTI_FLOAT64, TUTTI_SUM, comm),
                       "accuracy"))
        return 1;
    r->accuracy = counts[0] / counts[1];
    return 0;
}

/* The next batch: the same images for every number of ranks, in another order of adding. */
static int run_batch(struct run *r)
{
    size_t indices[MLP_BATCH_MOST];
    const size_t share = (size_t)r->model.batch;
    if (train_run_next(&r->base, indices, share))
        return 1;
    for (size_t i = 0; i < share; i++)
        data_take(r->data, false, indices[i], r->model.outputs[0] + i * r->data->all.pixels,
                  &r->labels[i]);
    return 0;
}

static int run_step(struct train_run *base)
{
    struct run *r = (struct run *)base;
    struct trainer *t = &base->trainer;
    const double start = together_seconds();
    struct curve_point point = {.check = NAN};
    if (run_batch(r) || trainer_begin(t, true))
        return 1;
    mlp_forward(&r->model, t, r->model.batch);
    point.loss = mlp_loss(&r->model, r->labels, r->model.batch);
    if (mlp_backward(&r->model, t, r->labels, r->model.batch) ||
        train_run_update(base, &r->schedule, start, &point))
        return 1;
    point.per_second = base->batch / (1e-3 * point.ms);
    if (point.step % r->per_epoch == 0 || point.step == base->steps) {
        if (run_check(r))
            return 1;
        point.check = r->accuracy;
        if (base->rank == 0)
            printf("epoch %3llu  step %5llu  loss %.4f  rate %.5f  accuracy %.2f%%  "
                   "%.0f images/s\n",
                   (unsigned long long)(point.step / r->per_epoch), (unsigned long long)point.step,
                   point.loss, point.rate, 100 * r->accuracy, point.per_second);
    }
    return base->rank == 0 && curve_add(&base->curve, &point);
}

/* This rank's share of a batch, and memory for it. */
static int run_arrange(struct train_run *base)
{
    struct run *r = (struct run *)base;
    const struct mlp_options *o = r->options;
    int share = 0;
    base->samples = r->data->train;
    if (train_run_share(base, o->batch, &share))
        return 1;
    r->labels = calloc((size_t)share, 1);
    if (r->labels)
        return mlp_create(&r->model, (int)r->data->all.pixels, o->hidden, share);
    fprintf(stderr, "no memory for batches of %d\n", share);
    return 1;
}

static void run_release(struct train_run *base)
{
    struct run *r = (struct run *)base;
    mlp_destroy(&r->model);
    free(r->labels);
    r->labels = NULL;
}

static struct trainer_tensor *run_tensors(struct train_run *base, size_t *count,
                                          struct trainer_options *options)
{
    struct trainer_tensor *tensors = calloc(MLP_TENSORS, sizeof *tensors);
    if (!tensors) {
        fprintf(stderr, "no memory for %d tensors\n", MLP_TENSORS);
        return NULL;
    }
    *options = (struct trainer_options){.optimizer = TUTTI_SGD_INIT, .ddp = TUTTI_DDP_OPTIONS_INIT};
    options->optimizer.momentum = 0.9f;
    options->optimizer.nesterov = true;
    options->optimizer.weight_decay = 1e-4f;
    mlp_tensors(&((struct run *)base)->model, tensors);
    *count = MLP_TENSORS;
    return tensors;
}

static int run_initialise(struct train_run *base)
{
    return mlp_initialise(&((struct run *)base)->model, &base->trainer,
                          (uint64_t)base->options->seed);
}

static int run_end(struct run *r)
{
    const struct mlp_options *o = r->options;
    if (r->base.rank != 0)
        return 0;
    printf("accuracy on %zu images that were not trained on: %.2f%%\n", r->data->test,
           100 * r->accuracy);
    if (o->common.plot &&
        curve_draw(&r->base.curve, o->common.plot, "Handwritten digits, perceptron", "accuracy"))
        return 1;
    if (o->common.plot)
        printf("loss curve: %s\n", o->common.plot);
    if (r->accuracy >= o->expect)
        return 0;
    fprintf(stderr, "mlp: the accuracy is below %.2f%%\n", 100 * o->expect);
    return 1;
}

static int run_rank(tutti_comm *comm, void *argument)
{
    struct run r = *(struct run *)argument;
    train_run_open(&r.base, comm);
    int failed = train_run_start(&r.base);
    if (!failed && r.base.rank == 0)
        printf("%zu + %zu images of %zu pixels, %zu parameters, %d rank%s, %s\n", r.data->train,
               r.data->test, r.data->all.pixels, r.base.trainer.elements, r.base.ranks,
               r.base.ranks == 1 ? "" : "s", blas_name());
    if (!failed && r.base.trainer.steps >= r.base.steps) /* nothing to do but to look */
        failed = run_check(&r);
    failed = failed || train_run_loop(&r.base) || run_end(&r);
    train_run_close(&r.base, failed);
    return failed;
}

/* The length of the run, and the rate of each step. */
static int run_plan(struct run *r)
{
    const struct mlp_options *o = r->options;
    if ((size_t)o->batch > r->data->train) {
        fprintf(stderr, "--batch %d is more than the %zu images\n", o->batch, r->data->train);
        return 1;
    }
    r->per_epoch = r->data->train / (uint64_t)o->batch;
    r->base.steps = r->per_epoch * (uint64_t)o->epochs;
    r->schedule =
        (struct tutti_schedule){.kind = TUTTI_COSINE,
                                .peak = tutti_schedule_scaled(o->rate, (size_t)o->batch, 64),
                                .warmup = r->per_epoch,
                                .total = r->base.steps};
    return 0;
}

int main(int argc, char **argv)
{
    static const struct train_model model = {run_arrange, run_release, run_tensors, run_initialise,
                                             run_step};
    struct mlp_options options;
    struct data data = {0};
    struct run shared = {
        .base = {.model = &model, .options = &options.common}, .options = &options, .data = &data};
    int status = mlp_options_parse(argc, argv, &options);
    if (status != 0)
        return status == 1 ? 0 : 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    blas_start(!options.common.plain);
    int failed = data_read(&data, &options) || run_plan(&shared) ||
                 train_run_ranks(&options.common, run_rank, &shared);
    digits_free(&data.all);
    digits_free(&data.check);
    return failed;
}
