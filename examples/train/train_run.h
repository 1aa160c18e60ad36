/* A training run, whatever the model is: who takes part, one step after another, checkpoints, and
 * what happens when ranks die or come (--elastic). Either way there is a new communicator then; the
 * batch is shared out anew, and what has been learnt goes on from the rank that is furthest. With a
 * sharded optimizer it goes on from the last checkpoint: the dead had parts of it that nobody else
 * has. The model is behind a table; mlp/mlp.c is the shorter user.
 *
 * Functions return 0, or 1 after a message on stderr. */
#ifndef EXAMPLES_TRAIN_TRAIN_RUN_H
#define EXAMPLES_TRAIN_TRAIN_RUN_H

#include "examples/train/curve.h"
#include "examples/train/flags.h"
#include "examples/train/trainer.h"

struct train_run;

/* What an example gives. Its own struct has the run as its first member, and gets that. */
struct train_model {
    /* What depends on the number of ranks, to begin with train_run_share: sets run->samples.
     * `release` is also called after an `arrange` that failed, and when there was none. */
    int (*arrange)(struct train_run *run);
    void (*release)(struct train_run *run);
    /* The parameters (the caller's to free; NULL after a message), and how to train them. */
    struct trainer_tensor *(*tensors)(struct train_run *run, size_t *count,
                                      struct trainer_options *options);
    /* The parameters of a run that begins. */
    int (*initialise)(struct train_run *run);
    /* One step, to end with train_run_update and what follows from its figures. Collective. */
    int (*step)(struct train_run *run);
};

struct train_run {
    const struct train_model *model;
    const struct common_options *options;
    uint64_t steps; /* of the whole run */
    /* From here on train_run's. */
    tutti_comm *comm;
    tutti_comm *made; /* the same, if the run made it (elastic); else NULL */
    int rank, ranks;
    int batch;         /* samples of a step, of all ranks */
    size_t samples;    /* to train on */
    bool dies;         /* --die-at is for this rank */
    int knocks;        /* elastic: that rank 0 heard at the end of the step */
    uint64_t place[2]; /* of the sampler, after the last step that was finished */
    uint64_t saved;    /* the step of the latest checkpoint */
    struct trainer trainer;
    tutti_sampler *sampler;
    struct curve curve; /* rank 0 */
};

/* `rank` for each rank of this process (together.h), or for a newcomer (--join) once it is let in.
 */
int train_run_ranks(const struct common_options *options,
                    int (*rank)(tutti_comm *comm, void *argument), void *argument);

/* First in `rank`: takes part in `comm`; a newcomer's is the run's own from now on. */
void train_run_open(struct train_run *run, tutti_comm *comm);
/* The model, trainer and sampler: new, resumed, or what the others have. Collective. */
int train_run_start(struct train_run *run);
/* Steps until there have been as many as there are to be, and the last checkpoint. Collective. */
int train_run_loop(struct train_run *run);
/* Last; `failed`: the others must not wait for this rank. */
void train_run_close(struct train_run *run, bool failed);

/* Share out batches of so many samples: sets run->batch and gives the part of each rank. */
int train_run_share(struct train_run *run, int batch, int *share);
/* This rank's samples of the next step: together the same for every number of ranks. */
int train_run_next(struct train_run *run, size_t *indices, size_t count);
/* After the last backward pass of a step that began at `start` (together_seconds): an optimizer
 * step. point->loss is this rank's mean before and all ranks' after; sets the rate, norm and ms. */
int train_run_update(struct train_run *run, const struct tutti_schedule *schedule, double start,
                     struct curve_point *point);

#endif
