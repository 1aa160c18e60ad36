/* The flags of mlp. */
#ifndef EXAMPLES_MLP_MLP_OPTIONS_H
#define EXAMPLES_MLP_MLP_OPTIONS_H

#include <stdbool.h>

struct mlp_options {
    const char *data;  /* folder of the small set */
    const char *mnist; /* folder of MNIST's four files, instead; NULL: none */
    int epochs, batch, hidden, seed, threads;
    double rate;   /* for a batch of 64; scaled with the batch */
    double expect; /* the least accuracy, else the exit status is 1 */
    const char *checkpoints;
    int save_every;
    bool resume;
    int die_at;
    bool plain;
    const char *log, *plot;
};

/* 0; 1 when there is nothing more to do (--help); 2 after a message. */
int mlp_options_parse(int argc, char **argv, struct mlp_options *options);

#endif
