/* Trains a perceptron to read handwritten digits, on one rank or many: the small set beside this
 * file, or MNIST. Shows how a training loop sits on tutti/ddp.h by way of examples/train/trainer.h;
 * the model is mlp_model.c, the flags are mlp_options.c. examples/README.md has a run. */
#include "examples/mlp/mlp_options.h"

#include "examples/mlp/digits.h"
#include "examples/mlp/mlp_model.h"
#include "examples/train/blas.h"
#include "examples/train/curve.h"
#include "examples/train/regroup.h"
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
    tutti_comm *made;       /* the same, if the run made it (elastic); else NULL */
    int rank, ranks, batch; /* batch: images of a step, of all ranks */
    bool dies;              /* --die-at is for this rank */
    bool knocked;           /* elastic: somebody did at rank 0's door, before the end of the step */
    uint64_t place[2];      /* of the sampler, after the last step that was finished */
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
static int run_batch(struct run *r)
{
    uint64_t epoch = 0, position = 0;
    size_t indices[4096], taken = 0;
    tutti_sampler_position(r->sampler, &epoch, &position);
    if (position + (uint64_t)r->batch > r->data->train &&
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

/* The loss of all ranks; and whether rank 0 has heard somebody at the door. */
static int run_mean(struct run *r, double *loss)
{
    const char *door = r->options->common.elastic;
    double means[2] = {*loss, door && r->rank == 0 ? regroup_knocks(door) : 0};
    if (together_check(
            r->comm, tutti_all_reduce(means, means, 2, TUTTI_FLOAT64, TUTTI_AVG, r->comm), "loss"))
        return 1;
    *loss = means[0];
    r->knocked = means[1] > 0;
    return 0;
}

static int run_step(struct run *r, uint64_t per_epoch, const struct tutti_schedule *schedule)
{
    const double start = together_seconds();
    struct curve_point point = {.step = r->trainer.steps + 1, .check = NAN};
    if (run_batch(r) || trainer_begin(&r->trainer, true))
        return 1;
    mlp_forward(&r->model, &r->trainer, r->model.batch);
    point.loss = mlp_loss(&r->model, r->labels, r->model.batch);
    if (mlp_backward(&r->model, &r->trainer, r->labels, r->model.batch) ||
        together_check(r->comm, tutti_schedule_rate(schedule, r->trainer.steps, &point.rate),
                       "learning rate") ||
        trainer_update(&r->trainer, point.rate, &point.norm))
        return 1;
    tutti_sampler_position(r->sampler, &r->place[0], &r->place[1]);
    if (run_mean(r, &point.loss))
        return 1;
    point.ms = 1e3 * (together_seconds() - start);
    point.per_second = r->batch / (1e-3 * point.ms);
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

/* ---- Who takes part ---------------------------------------------------------------------------
 */

/* This rank's share of a batch, and memory for it. */
static int run_share(struct run *r)
{
    const struct mlp_options *o = r->options;
    const int share = o->batch / r->ranks;
    r->batch = share * r->ranks;
    if (share == 0 || (r->batch != o->batch && !o->common.elastic) ||
        (size_t)o->batch > r->data->train) {
        fprintf(stderr, "--batch %d is no multiple of %d ranks, or more than the %zu images\n",
                o->batch, r->ranks, r->data->train);
        return 1;
    }
    if (r->batch != o->batch && r->rank == 0)
        printf("batches of %d instead of %d, which %d ranks cannot share alike\n", r->batch,
               o->batch, r->ranks);
    r->labels = calloc((size_t)share, 1);
    if (r->labels)
        return mlp_create(&r->model, (int)r->data->all.pixels, o->hidden, share);
    fprintf(stderr, "no memory for batches of %d\n", share);
    return 1;
}

static void run_settings(const struct run *r, struct trainer_tensor tensors[MLP_TENSORS],
                         struct trainer_options *options)
{
    *options = (struct trainer_options){.optimizer = TUTTI_SGD_INIT, .ddp = TUTTI_DDP_OPTIONS_INIT};
    options->optimizer.momentum = 0.9f;
    options->optimizer.nesterov = true;
    options->optimizer.weight_decay = 1e-4f;
    mlp_tensors(&r->model, tensors);
}

static int run_sampler(struct run *r)
{
    struct tutti_sampler_options order = TUTTI_SAMPLER_INIT;
    order.samples = r->data->train;
    order.rank = r->rank;
    order.ranks = r->ranks;
    order.seed = (uint64_t)r->options->common.seed;
    return together_check(r->comm, tutti_sampler_create(&order, &r->sampler), "sampler");
}

static void run_free(struct run *r)
{
    tutti_sampler_destroy(r->sampler);
    mlp_destroy(&r->model);
    free(r->labels);
    r->sampler = NULL;
    r->labels = NULL;
}

static void run_group(struct run *r, tutti_comm *comm)
{
    r->comm = comm;
    r->rank = tutti_comm_rank(comm);
    r->ranks = tutti_comm_size(comm);
}

/* Tell the trainer if it is to die in a step (--die-in). */
static void run_doom(struct run *r)
{
    const struct common_options *o = &r->options->common;
    if (r->dies && o->die_in > 0)
        trainer_die(&r->trainer, (uint64_t)o->die_at, (size_t)o->die_in);
}

/* The run goes on on a communicator that it made, from what the rank that is furthest has learnt:
 * after a death, or with newcomers, of whom this process may be one. */
static int run_regroup(struct run *r, tutti_comm *comm)
{
    struct trainer_tensor tensors[MLP_TENSORS];
    struct trainer_options options;
    tutti_comm *before = r->made == comm ? NULL : r->made;
    r->made = comm;
    run_group(r, comm);
    run_free(r);
    int failed = run_share(r);
    if (!failed) {
        run_settings(r, tensors, &options);
        failed = trainer_move(&r->trainer, comm, tensors, MLP_TENSORS, &options, r->place) ||
                 run_sampler(r) ||
                 together_check(comm, tutti_sampler_seek(r->sampler, r->place[0], r->place[1]),
                                "sampler");
    }
    tutti_comm_destroy(before);
    run_doom(r);
    return failed ||
           (r->rank == 0 && curve_again(&r->curve, r->options->common.log, r->trainer.steps));
}

/* A step failed: go on with those that live, if somebody died. */
static int run_survive(struct run *r)
{
    tutti_comm *fewer = NULL;
    return regroup_shrink(r->comm, &fewer) || run_regroup(r, fewer);
}

/* Somebody knocked: go on together. */
static int run_admit(struct run *r)
{
    tutti_comm *more = NULL;
    return regroup_admit(r->comm, r->options->common.elastic, &more) ||
           (more && run_regroup(r, more));
}

/* ---- The loop ---------------------------------------------------------------------------------
 */

/* A step, and what is due after it. */
static int run_once(struct run *r, uint64_t per_epoch, const struct tutti_schedule *schedule)
{
    const struct common_options *o = &r->options->common;
    if (run_step(r, per_epoch, schedule) ||
        (o->save_every > 0 && r->trainer.steps % (uint64_t)o->save_every == 0 &&
         trainer_save(&r->trainer, r->sampler, o->checkpoints, o->keep)))
        return 1;
    if (r->dies && o->die_in == 0 && r->trainer.steps == (uint64_t)o->die_at)
        raise(SIGKILL);
    return r->knocked && run_admit(r);
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
    tutti_sampler_position(r->sampler, &r->place[0], &r->place[1]);
    r->dies = r->trainer.steps == 0 && o->common.die_at > 0 && r->rank == r->ranks - 1;
    run_doom(r);
    if (r->trainer.steps >= schedule.total && run_check(r)) /* nothing to do but to look */
        return 1;
    while (r->trainer.steps < schedule.total)
        if (run_once(r, per_epoch, &schedule) && (!o->common.elastic || run_survive(r)))
            return 1;
    return o->common.checkpoints &&
           trainer_save(&r->trainer, r->sampler, o->common.checkpoints, o->common.keep);
}

static int run_start(struct run *r)
{
    const struct common_options *o = &r->options->common;
    struct trainer_tensor tensors[MLP_TENSORS];
    struct trainer_options options;
    if (run_share(r))
        return 1;
    run_settings(r, tensors, &options);
    if (trainer_create(&r->trainer, r->comm, tensors, MLP_TENSORS, &options) ||
        mlp_initialise(&r->model, &r->trainer, (uint64_t)o->seed) || run_sampler(r) ||
        (o->resume && trainer_resume(&r->trainer, r->sampler, o->checkpoints)))
        return 1;
    return r->rank == 0 && curve_open(&r->curve, o->log, r->trainer.steps);
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
    run_group(&r, comm);
    int failed = r.options->common.join ? run_regroup(&r, comm) : run_start(&r);
    if (!failed && r.rank == 0)
        printf("%zu + %zu images of %zu pixels, %zu parameters, %d rank%s, %s\n", r.data->train,
               r.data->test, r.data->all.pixels, r.trainer.elements, r.ranks,
               r.ranks == 1 ? "" : "s", blas_name());
    failed = failed || run_loop(&r) || run_end(&r);
    curve_close(&r.curve);
    trainer_destroy(&r.trainer);
    run_free(&r);
    if (failed && r.made)
        tutti_comm_abort(r.made, "a rank gave up");
    tutti_comm_destroy(r.made);
    return failed;
}

/* A newcomer has no other ranks yet. */
static int run_newcomer(struct run *shared)
{
    enum { PATIENCE_S = 600 };
    return regroup_join(shared->options->common.elastic, PATIENCE_S, &shared->made) ||
           run_rank(shared->made, shared);
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
    int failed = data_read(&data, &options);
    if (!failed)
        failed = options.common.join ? run_newcomer(&shared)
                                     : together_run(options.common.threads, run_rank, &shared);
    digits_free(&data.all);
    digits_free(&data.check);
    return failed;
}
