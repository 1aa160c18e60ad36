/* A run of the transformer's trainer: what transformer.c and transformer_elastic.c share. */
#ifndef EXAMPLES_TRANSFORMER_TRANSFORMER_RUN_H
#define EXAMPLES_TRANSFORMER_TRANSFORMER_RUN_H

#include "examples/train/curve.h"
#include "examples/transformer/tokens.h"
#include "examples/transformer/transformer_options.h"

struct run {
    const struct transformer_options *options;
    const struct tokens *tokens;
    size_t windows, checks; /* sequences to train on, and to check with */
    tutti_comm *comm;
    tutti_comm *made;       /* the same, if the run made it (elastic); else NULL */
    int rank, ranks, batch; /* batch: sequences of a step, of all ranks */
    int micro, passes;      /* of a small batch; small batches of a step */
    bool dies;              /* --die-at is for this rank */
    int knocks;             /* elastic: that rank 0 heard at the end of the step */
    uint64_t place[2];      /* of the sampler, after the last step that was finished */
    struct gpt model;
    struct trainer trainer;
    struct train_gpu side; /* --device; zeros: the CPU */
    tutti_sampler *sampler;
    struct curve curve; /* rank 0 */
    uint16_t *inputs, *targets;
    size_t *indices;
    double work, peak; /* --device cuda: of a token, of all GPUs a second; 0: not known */
    double forward_s, backward_s; /* of all steps of this process */
    double began;
    uint64_t began_at; /* steps that were finished then */
};

/* How the batch is shared out, by the number of ranks; and memory for this rank's share. */
int run_share(struct run *r);
int run_memory(struct run *r);
void run_memory_free(struct run *r);
/* The model's tensors (the caller's to free; NULL after a message), and how to train them. */
struct trainer_tensor *run_settings(struct run *r, struct trainer_options *options);
int run_sampler(struct run *r);
/* Tell the trainer if it is to die in a step (--die-in). */
void run_doom(struct run *r);

/* ---- transformer_elastic.c ---- */
/* A step failed: go on with those that live, if somebody died. */
int run_survive(struct run *r);
/* Somebody knocked: go on together. */
int run_admit(struct run *r);
/* This process is the newcomer: `r` has options and tokens only. Collective over r->made. */
int run_join(struct run *r);

#endif
