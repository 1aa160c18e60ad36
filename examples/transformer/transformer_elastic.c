/* What a run does when ranks die or come (transformer_run.h). Either way there is a new
 * communicator then; the batch is shared out anew, and what has been learnt goes on from the rank
 * that is furthest. With a sharded optimizer it goes on from the last checkpoint: the dead had
 * parts of it that nobody else has. */
#include "examples/transformer/transformer_run.h"

#include "examples/train/regroup.h"
#include "examples/train/together.h"

#include <stdio.h>
#include <stdlib.h>

/* The trainer, on r->comm now. */
static int elastic_trainer(struct run *r)
{
    const struct transformer_options *o = r->options;
    const size_t count = gpt_tensor_count(&o->model);
    struct trainer_options options;
    struct trainer_tensor *tensors = run_settings(r, &options);
    int failed = 0;
    if (!tensors)
        return 1;
    if (o->zero == 0) {
        failed = trainer_move(&r->trainer, r->comm, tensors, count, &options, r->place) ||
                 run_sampler(r) ||
                 together_check(r->comm, tutti_sampler_seek(r->sampler, r->place[0], r->place[1]),
                                "sampler");
    } else {
        trainer_destroy(&r->trainer);
        failed = trainer_create(&r->trainer, r->comm, tensors, count, &options) || run_sampler(r) ||
                 trainer_resume(&r->trainer, r->sampler, o->common.checkpoints);
        if (!failed && r->trainer.steps == 0) {
            fprintf(stderr, "%s has no checkpoint to go on from; see --save-every\n",
                    o->common.checkpoints);
            failed = 1;
        }
    }
    free(tensors);
    return failed;
}

/* Everything that depends on who takes part; `comm` is the run's. */
static int elastic_take_over(struct run *r, tutti_comm *comm)
{
    tutti_comm *before = r->made == comm ? NULL : r->made;
    r->made = r->comm = comm;
    r->rank = tutti_comm_rank(comm);
    r->ranks = tutti_comm_size(comm);
    r->knocks = 0;
    r->forward_s = r->backward_s = 0; /* statistics are of this group alone */
    run_memory_free(r);
    tutti_sampler_destroy(r->sampler);
    r->sampler = NULL;
    const int failed = run_share(r) || run_memory(r) || elastic_trainer(r);
    tutti_comm_destroy(before);
    if (failed)
        return 1;
    run_doom(r);
    return r->rank == 0 && curve_again(&r->curve, r->options->common.log, r->trainer.steps);
}

int run_survive(struct run *r)
{
    tutti_comm *fewer = NULL;
    return regroup_shrink(r->comm, &fewer) || elastic_take_over(r, fewer);
}

int run_admit(struct run *r)
{
    tutti_comm *more = NULL;
    if (regroup_admit(r->comm, r->options->common.elastic, &more))
        return 1;
    if (!more)
        return 0;
    if (r->options->zero > 0 &&
        trainer_save(&r->trainer, r->sampler, r->options->common.checkpoints,
                     r->options->common.keep)) {
        tutti_comm_destroy(more);
        return 1;
    }
    return elastic_take_over(r, more);
}

int run_join(struct run *r)
{
    return elastic_take_over(r, r->made);
}
