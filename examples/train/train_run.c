/* The loop of a trainer and its ranks (train_run.h). */
#include "examples/train/train_run.h"

#include "examples/train/regroup.h"
#include "examples/train/together.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A newcomer waits so long to be let in. */
enum { PATIENCE_S = 600 };

/* ---- For the model --------------------------------------------------------------------------- */

int train_run_share(struct train_run *r, int batch, int *share)
{
    *share = batch / r->ranks;
    r->batch = *share * r->ranks;
    if (*share == 0 || (r->batch != batch && !r->options->elastic)) {
        fprintf(stderr, "--batch %d is no multiple of %d ranks\n", batch, r->ranks);
        return 1;
    }
    if (r->batch != batch && r->rank == 0)
        printf("batches of %d instead of %d, which %d ranks cannot share alike\n", r->batch, batch,
               r->ranks);
    return 0;
}

int train_run_next(struct train_run *r, size_t *indices, size_t count)
{
    uint64_t epoch = 0, position = 0;
    size_t taken = 0;
    tutti_sampler_position(r->sampler, &epoch, &position);
    if (position + (uint64_t)r->batch > r->samples &&
        together_check(r->comm, tutti_sampler_seek(r->sampler, epoch + 1, 0), "sampler"))
        return 1;
    return together_check(r->comm, tutti_sampler_next(r->sampler, count, indices, &taken),
                          "sampler");
}

/* The loss of all ranks; and what rank 0 has heard at the door. */
static int run_mean(struct train_run *r, double *loss)
{
    const char *door = r->options->elastic;
    double sums[2] = {*loss / r->ranks, 0};
    if (door && r->rank == 0)
        sums[1] = regroup_knocks(door);
    if (together_check(r->comm, tutti_all_reduce(sums, sums, 2, TUTTI_FLOAT64, TUTTI_SUM, r->comm),
                       "loss"))
        return 1;
    *loss = sums[0];
    r->knocks = (int)sums[1];
    return 0;
}

int train_run_update(struct train_run *r, const struct tutti_schedule *schedule, double start,
                     struct curve_point *point)
{
    if (together_check(r->comm, tutti_schedule_rate(schedule, r->trainer.steps, &point->rate),
                       "learning rate") ||
        trainer_update(&r->trainer, point->rate, &point->norm))
        return 1;
    tutti_sampler_position(r->sampler, &r->place[0], &r->place[1]);
    if (run_mean(r, &point->loss))
        return 1;
    point->step = r->trainer.steps;
    point->ms = 1e3 * (together_seconds() - start);
    return 0;
}

/* ---- Who takes part -------------------------------------------------------------------------- */

static void run_group(struct train_run *r, tutti_comm *comm)
{
    r->comm = comm;
    r->rank = tutti_comm_rank(comm);
    r->ranks = tutti_comm_size(comm);
    r->knocks = 0;
}

static int run_sampler(struct train_run *r)
{
    struct tutti_sampler_options order = TUTTI_SAMPLER_INIT;
    order.samples = r->samples;
    order.rank = r->rank;
    order.ranks = r->ranks;
    order.seed = (uint64_t)r->options->seed;
    return together_check(r->comm, tutti_sampler_create(&order, &r->sampler), "sampler");
}

/* Tell the trainer if it is to die in a step (--die-in). */
static void run_doom(struct train_run *r)
{
    if (r->dies && r->options->die_in > 0)
        trainer_die(&r->trainer, (uint64_t)r->options->die_at, (size_t)r->options->die_in);
}

/* The trainer and the sampler of a run that goes on, on r->comm. */
static int run_go_on(struct train_run *r)
{
    struct trainer_options options;
    size_t count = 0;
    struct trainer_tensor *tensors = r->model->tensors(r, &count, &options);
    int failed = !tensors;
    if (!failed && options.ddp.zero == 0) {
        failed = trainer_move(&r->trainer, r->comm, tensors, count, &options, r->place) ||
                 run_sampler(r) ||
                 together_check(r->comm, tutti_sampler_seek(r->sampler, r->place[0], r->place[1]),
                                "sampler");
    } else if (!failed) {
        trainer_destroy(&r->trainer);
        failed = trainer_create(&r->trainer, r->comm, tensors, count, &options) || run_sampler(r) ||
                 trainer_resume(&r->trainer, r->sampler, r->options->checkpoints);
        if (!failed && r->trainer.steps == 0) {
            fprintf(stderr, "%s has no checkpoint to go on from; see --save-every\n",
                    r->options->checkpoints);
            failed = 1;
        }
        r->saved = r->trainer.steps;
    }
    free(tensors);
    return failed;
}

/* Everything that depends on who takes part; `comm` is the run's. */
static int run_take_over(struct train_run *r, tutti_comm *comm)
{
    tutti_comm *before = r->made == comm ? NULL : r->made;
    r->made = comm;
    run_group(r, comm);
    r->model->release(r);
    tutti_sampler_destroy(r->sampler);
    r->sampler = NULL;
    const int failed = r->model->arrange(r) || run_go_on(r);
    tutti_comm_destroy(before);
    if (failed)
        return 1;
    run_doom(r);
    return r->rank == 0 && curve_again(&r->curve, r->options->log, r->trainer.steps);
}

/* A step failed: go on with those that live, if somebody died. */
static int run_survive(struct train_run *r)
{
    tutti_comm *fewer = NULL;
    return regroup_shrink(r->comm, &fewer) || run_take_over(r, fewer);
}

static int run_save(struct train_run *r)
{
    if (trainer_save(&r->trainer, r->sampler, r->options->checkpoints, r->options->keep))
        return 1;
    r->saved = r->trainer.steps;
    return 0;
}

/* Somebody knocked: go on together. */
static int run_admit(struct train_run *r)
{
    tutti_comm *more = NULL;
    if (regroup_admit(r->comm, r->options->elastic, &more))
        return 1;
    if (!more)
        return 0;
    if (r->trainer.options.ddp.zero > 0 && r->saved != r->trainer.steps && run_save(r)) {
        tutti_comm_destroy(more);
        return 1;
    }
    return run_take_over(r, more);
}

int train_run_ranks(const struct common_options *options,
                    int (*rank)(tutti_comm *comm, void *argument), void *argument)
{
    tutti_comm *comm = NULL;
    if (!options->join)
        return together_run(options->threads, rank, argument);
    return regroup_join(options->elastic, PATIENCE_S, &comm) || rank(comm, argument);
}

/* ---- The run --------------------------------------------------------------------------------- */

void train_run_open(struct train_run *r, tutti_comm *comm)
{
    run_group(r, comm);
    r->made = r->options->join ? comm : NULL;
}

/* A folder that cannot be made is told before the training, not after it. */
static int run_make_folder(const char *folder)
{
    char path[4096];
    if (strlen(folder) >= sizeof path) {
        fprintf(stderr, "--checkpoints: a path of %zu bytes is too long\n", strlen(folder));
        return 1;
    }
    for (size_t end = 1; end <= strlen(folder); end++) {
        if (folder[end] && folder[end] != '/')
            continue;
        snprintf(path, sizeof path, "%.*s", (int)end, folder);
        if (mkdir(path, 0777) != 0 && errno != EEXIST) {
            fprintf(stderr, "--checkpoints: cannot make the folder %s: %s\n", path,
                    strerror(errno));
            return 1;
        }
    }
    if (access(folder, W_OK | X_OK) == 0)
        return 0;
    fprintf(stderr, "--checkpoints: cannot write to %s: %s\n", folder, strerror(errno));
    return 1;
}

int train_run_start(struct train_run *r)
{
    struct trainer_options options;
    size_t count = 0;
    if (r->options->join)
        return run_take_over(r, r->comm);
    if (r->rank == 0 && r->options->checkpoints && run_make_folder(r->options->checkpoints))
        return 1;
    if (r->model->arrange(r))
        return 1;
    struct trainer_tensor *tensors = r->model->tensors(r, &count, &options);
    const int failed =
        !tensors || trainer_create(&r->trainer, r->comm, tensors, count, &options) ||
        r->model->initialise(r) || run_sampler(r) ||
        (r->options->resume && trainer_resume(&r->trainer, r->sampler, r->options->checkpoints));
    free(tensors);
    return failed || (r->rank == 0 && curve_open(&r->curve, r->options->log, r->trainer.steps));
}

/* A step, and what is due after it. After the last one nobody is let in: there is nothing to do. */
static int run_once(struct train_run *r)
{
    const struct common_options *o = r->options;
    if (r->model->step(r) ||
        (o->save_every > 0 && r->trainer.steps % (uint64_t)o->save_every == 0 && run_save(r)))
        return 1;
    if (r->dies && o->die_in == 0 && r->trainer.steps == (uint64_t)o->die_at)
        raise(SIGKILL);
    return r->knocks > 0 && r->trainer.steps < r->steps && run_admit(r);
}

int train_run_loop(struct train_run *r)
{
    const struct common_options *o = r->options;
    r->saved = r->trainer.steps;
    tutti_sampler_position(r->sampler, &r->place[0], &r->place[1]);
    r->dies = r->trainer.steps == 0 && o->die_at > 0 && r->rank == r->ranks - 1;
    run_doom(r);
    while (r->trainer.steps < r->steps)
        if (run_once(r) && (!o->elastic || run_survive(r)))
            return 1;
    return o->checkpoints && r->saved != r->trainer.steps && run_save(r);
}

void train_run_close(struct train_run *r, bool failed)
{
    curve_close(&r->curve);
    tutti_sampler_destroy(r->sampler);
    trainer_destroy(&r->trainer);
    r->model->release(r);
    if (failed && r->made)
        tutti_comm_abort(r->made, "a rank gave up");
    tutti_comm_destroy(r->made);
}
