/* What every trainer does between the backward pass and the next forward one: the parameters of a
 * model with their gradients, optimizer and checkpoints, over tutti/ddp.h. The model computes in
 * float32; parameters are float32, or bfloat16 with float32 masters: then the model sees widened
 * copies, and gradients are gathered in float32 and rounded once, when they are complete. With a
 * GPU all of this lies in its memory, and the model reads bfloat16 as it is.
 *
 *     for each step:  for each small batch:  trainer_begin; forward; backward: trainer_gradient,
 *                                            trainer_ready
 *                     trainer_update
 *
 * Functions return 0, or 1 after a message on stderr. */
#ifndef EXAMPLES_TRAIN_TRAINER_H
#define EXAMPLES_TRAIN_TRAINER_H

#include "examples/train/train_gpu.h"
#include "tutti/ddp.h"

struct trainer_tensor {
    char name[48];
    int dims;
    size_t shape[2];
    bool decays; /* weight decay applies */
    int unit;    /* the layer that it belongs to: see trainer_acquire */
};

struct trainer_options {
    struct tutti_optimizer optimizer; /* lr is set by trainer_update */
    double clip; /* the most that the global norm of gradients may be; 0: any */
    bool bf16;
    bool late; /* nothing is reduced before all ranks have finished the backward pass: to see what
                  overlap saves */
    struct tutti_ddp_options ddp;
    struct train_gpu *gpu; /* everything lies there; NULL: in host memory */
};

struct trainer {
    tutti_comm *comm;
    tutti_ddp *ddp;
    struct trainer_options options;
    struct trainer_tensor *tensors;
    size_t count, elements;    /* of the model */
    size_t *offsets;           /* of tensors in the two arrays below */
    float *widened, *gathered; /* bfloat16 only: parameters, gradients in float32 */
    size_t owned;              /* elements that this rank's optimizer updates */
    float *master, *states[2]; /* of these; master: bfloat16 only */
    uint64_t steps;            /* finished ones */
    uint64_t die_in_step;      /* see trainer_die */
    size_t die_when_ready, ready;
    size_t *held, held_count; /* late: gradients that are complete */
    bool last, first;         /* small batch of the step */
    bool under_way;           /* such a batch is */
};

/* Collective. `tensors` is copied. Parameters are zero. */
int trainer_create(struct trainer *t, tutti_comm *comm, const struct trainer_tensor *tensors,
                   size_t count, const struct trainer_options *options);
void trainer_destroy(struct trainer *t);
/* Collective over `comm`: the trainer goes on there, with the parameters, optimizer and number of
 * steps of the rank that has made the most steps, and `place` (of the sampler) is that rank's. A
 * newcomer gives a zeroed trainer. Not where the optimizer is sharded (ddp.zero): what the dead
 * kept is lost, but for a checkpoint. */
int trainer_move(struct trainer *t, tutti_comm *comm, const struct trainer_tensor *tensors,
                 size_t count, const struct trainer_options *options, uint64_t place[2]);
size_t trainer_elements(const struct trainer_tensor *tensor);

/* Before training: `values` become parameter number `index`, the same on all ranks. */
int trainer_set(struct trainer *t, size_t index, const float *values);
/* Parameters of a unit can be read between these two, in pairs, all ranks alike: with sharding
 * that is when they are here (tutti_ddp_acquire). */
int trainer_acquire(struct trainer *t, int unit);
int trainer_release(struct trainer *t, int unit);
/* The parameter, for the model to read. */
const float *trainer_weight(struct trainer *t, size_t index);
/* Where it lies, as float32 or bfloat16: what a model on a GPU reads. NULL after a message. */
void *trainer_value(struct trainer *t, size_t index);

/* Begin a small batch; `last`: of its step. */
int trainer_begin(struct trainer *t, bool last);
/* Where the backward pass adds the gradient. */
float *trainer_gradient(struct trainer *t, size_t index);
/* That gradient is complete for this small batch. */
int trainer_ready(struct trainer *t, size_t index);
/* The small batch is over; after the last of a step, gradients are their mean over the ranks. The
 * next trainer_begin and trainer_update do this too. */
int trainer_wait(struct trainer *t);
/* Wait for the mean of the gradients, clip, take an optimizer step. `norm`: before clipping. */
int trainer_update(struct trainer *t, double rate, double *norm);

/* To see it survived: this process is killed in step number `step`, when `ready` gradients of its
 * last small batch are complete. */
void trainer_die(struct trainer *t, uint64_t step, size_t ready);

/* Save parameters, optimizer and the sampler's place under `folder`, keeping the newest `keep`
 * checkpoints (0: all); collective. */
int trainer_save(struct trainer *t, const tutti_sampler *sampler, const char *folder, int keep);
/* Take up the newest checkpoint in `folder`, if there is one; collective. Rank 0 says so. */
int trainer_resume(struct trainer *t, tutti_sampler *sampler, const char *folder);

#endif
