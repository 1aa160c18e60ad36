/* Trains a perceptron to read handwritten digits, on one rank or many: the small set beside this
 * file, or MNIST. Shows how a training loop sits on tutti/ddp.h by way of examples/train/trainer.h;
 * the model is mlp_model.c, the flags are mlp_options.c. README.md beside it has a run. */
#include "examples/mlp/mlp_options.h"

#include "examples/mlp/digits.h"
#include "examples/mlp/mlp_model.h"
#include "examples/train/blas.h"
#include "examples/train/curve.h"
#include "examples/train/together.h"

#include <math.h>
#include <signal.h>
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
    const struct mlp_options *options;
    const struct data *data;
    tutti_comm *comm;
    int rank, ranks;
    struct mlp model;
    struct trainer trainer;
    tutti_sampler *sampler;
    struct curve curve; /* rank 0 */
    uint8_t *labels;    /* of the batch */
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
    for (size_t at = (size_t)r->rank; at < r->data->test;) {
        int count = 0;
        for (; count < r->model.batch && at < r->data->test; at += (size_t)r->ranks, count++)
            data_take(r->data, true, at, r->model.outputs[0] + (size_t)count * pixels,
                      &r->labels[count]);
        mlp_forward(&r->model, &r->trainer, count);
        for (int i = 0; i < count; i++) {
            const float *row = r->model.outputs[MLP_LAYERS] + i * MLP_CLASSES;
            int best = 0;
            for (int c = 1; c < MLP_CLASSES; c++)
                best = row[c] > row[best] ? c : best;
            counts[0] += best == r->labels[i];
            counts[1] += 1;
        }
    }
    if (together_check(r->comm,
                       tutti_all_reduce(counts, counts, 2, TUTTI_FLOAT64, TUTTI_SUM, r->comm),
                       "accuracy"))
        return 1;
    r->accuracy = counts[0] / counts[1];
    return 0;
}

/* The next batch: the same images for every number of ranks, in another order of adding. */
static int run_batch(struct run *r, uint64_t per_epoch)
{
    uint64_t epoch = 0, position = 0;
    size_t indices[4096], taken = 0;
    tutti_sampler_position(r->sampler, &epoch, &position);
    if (position / (uint64_t)r->options->batch >= per_epoch &&
        together_check(r->comm, tutti_sampler_seek(r->sampler, epoch + 1, 0), "sampler"))
        return 1;
    if (together_check(r->comm,
                       tutti_sampler_next(r->sampler, (size_t)r->model.batch, indices, &taken),
                       "sampler"))
        return 1;
    for (size_t i = 0; i < taken; i++)
        data_take(r->data, false, indices[i], r->model.outputs[0] + i * r->data->all.pixels,
                  &r->labels[i]);
    return 0;
}

static int run_step(struct run *r, uint64_t per_epoch, const struct tutti_schedule *schedule)
{
    const double start = together_seconds();
    struct curve_point point = {.step = r->trainer.steps + 1, .check = NAN};
    if (run_batch(r, per_epoch) || trainer_begin(&r->trainer, true))
        return 1;
    mlp_forward(&r->model, &r->trainer, r->model.batch);
    point.loss = mlp_loss(&r->model, r->labels, r->model.batch);
    if (mlp_backward(&r->model, &r->trainer, r->labels, r->model.batch) ||
        together_check(r->comm, tutti_schedule_rate(schedule, r->trainer.steps, &point.rate),
                       "learning rate") ||
        trainer_update(&r->trainer, point.rate, &point.norm) ||
        together_check(
            r->comm,
            tutti_all_reduce(&point.loss, &point.loss, 1, TUTTI_FLOAT64, TUTTI_AVG, r->comm),
            "loss"))
        return 1;
    point.ms = 1e3 * (together_seconds() - start);
    point.per_second = r->options->batch / (1e-3 * point.ms);
    if (r->trainer.steps % per_epoch == 0 || r->trainer.steps == schedule->total) {
        if (run_check(r))
            return 1;
        point.check = r->accuracy;
        if (r->rank == 0)
            printf("epoch %3llu  step %5llu  loss %.4f  rate %.5f  accuracy %.2f%%  "
                   "%.0f images/s\n",
                   (unsigned long long)(r->trainer.steps / per_epoch),
                   (unsigned long long)r->trainer.steps, point.loss, point.rate, 100 * r->accuracy,
                   point.per_second);
    }
    return r->rank == 0 && curve_add(&r->curve, &point);
}

static int run_loop(struct run *r)
{
    const struct mlp_options *o = r->options;
    const uint64_t per_epoch = r->data->train / (uint64_t)o->batch;
    const struct tutti_schedule schedule = {
        .kind = TUTTI_COSINE,
        .peak = tutti_schedule_scaled(o->rate, (size_t)o->batch, 64),
        .warmup = per_epoch,
        .total = per_epoch * (uint64_t)(o->epochs > 1 ? o->epochs : 1)};
    const bool resumed = r->trainer.steps > 0;
    if (!resumed && o->common.die_in > 0 && r->rank == r->ranks - 1)
        trainer_die(&r->trainer, (uint64_t)o->common.die_at, (size_t)o->common.die_in);
    if (r->trainer.steps >= schedule.total && run_check(r)) /* nothing to do but to look */
        return 1;
    while (r->trainer.steps < schedule.total) {
        if (run_step(r, per_epoch, &schedule))
            return 1;
        if (o->common.save_every > 0 && r->trainer.steps % (uint64_t)o->common.save_every == 0 &&
            trainer_save(&r->trainer, r->sampler, o->common.checkpoints, o->common.keep))
            return 1;
        if (!resumed && o->common.die_at > 0 && o->common.die_in == 0 &&
            r->trainer.steps == (uint64_t)o->common.die_at && r->rank == r->ranks - 1)
            raise(SIGKILL);
    }
    return o->common.checkpoints &&
           trainer_save(&r->trainer, r->sampler, o->common.checkpoints, o->common.keep);
}

static int run_start(struct run *r)
{
    const struct mlp_options *o = r->options;
    struct trainer_tensor tensors[MLP_TENSORS];
    struct trainer_options options = {.optimizer = TUTTI_SGD_INIT, .ddp = TUTTI_DDP_OPTIONS_INIT};
    struct tutti_sampler_options order = TUTTI_SAMPLER_INIT;
    if (o->batch % r->ranks != 0 || (size_t)o->batch > r->data->train) {
        fprintf(stderr, "--batch %d is no multiple of %d ranks, or more than the %zu images\n",
                o->batch, r->ranks, r->data->train);
        return 1;
    }
    options.optimizer.momentum = 0.9f;
    options.optimizer.nesterov = true;
    options.optimizer.weight_decay = 1e-4f;
    order.samples = r->data->train;
    order.rank = r->rank;
    order.ranks = r->ranks;
    order.seed = (uint64_t)o->common.seed;
    if (mlp_create(&r->model, (int)r->data->all.pixels, o->hidden, o->batch / r->ranks))
        return 1;
    mlp_tensors(&r->model, tensors);
    r->labels = calloc((size_t)o->batch, 1);
    if (!r->labels || trainer_create(&r->trainer, r->comm, tensors, MLP_TENSORS, &options) ||
        mlp_initialise(&r->model, &r->trainer, (uint64_t)o->common.seed) ||
        together_check(r->comm, tutti_sampler_create(&order, &r->sampler), "sampler") ||
        (r->options->common.resume &&
         trainer_resume(&r->trainer, r->sampler, r->options->common.checkpoints)))
        return 1;
    return r->rank == 0 && curve_open(&r->curve, o->common.log, r->trainer.steps);
}

static int run_end(struct run *r)
{
    const struct mlp_options *o = r->options;
    if (r->rank != 0)
        return 0;
    printf("accuracy on %zu images that were not trained on: %.2f%%\n", r->data->test,
           100 * r->accuracy);
    if (o->common.plot &&
        curve_draw(&r->curve, o->common.plot, "Handwritten digits, perceptron", "accuracy"))
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
    r.comm = comm;
    r.rank = tutti_comm_rank(comm);
    r.ranks = tutti_comm_size(comm);
    int failed = run_start(&r);
    if (!failed && r.rank == 0)
        printf("%zu + %zu images of %zu pixels, %zu parameters, %d rank%s, %s\n", r.data->train,
               r.data->test, r.data->all.pixels, r.trainer.elements, r.ranks,
               r.ranks == 1 ? "" : "s", blas_name());
    failed = failed || run_loop(&r) || run_end(&r);
    curve_close(&r.curve);
    tutti_sampler_destroy(r.sampler);
    trainer_destroy(&r.trainer);
    mlp_destroy(&r.model);
    free(r.labels);
    return failed;
}

int main(int argc, char **argv)
{
    struct mlp_options options;
    struct data data = {0};
    struct run shared = {.options = &options, .data = &data};
    int status = mlp_options_parse(argc, argv, &options);
    if (status != 0)
        return status == 1 ? 0 : 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    blas_start(!options.common.plain);
    int failed =
        data_read(&data, &options) || together_run(options.common.threads, run_rank, &shared);
    digits_free(&data.all);
    digits_free(&data.check);
    return failed;
}
