/* The flags of mlp. */
#ifndef EXAMPLES_MLP_MLP_OPTIONS_H
#define EXAMPLES_MLP_MLP_OPTIONS_H

#include "examples/train/flags.h"

enum { MLP_BATCH_MOST = 4096 };

struct mlp_options {
    const char *data;  /* folder of the small set */
    const char *mnist; /* folder of MNIST's four files, instead; NULL: none */
    int epochs, batch, hidden;
    double rate;   /* for a batch of 64; scaled with the batch */
    double expect; /* the least accuracy, else the exit status is 1 */
    struct common_options common;
};

/* 0; 1 when there is nothing more to do (--help); 2 after a message. */
int mlp_options_parse(int argc, char **argv, struct mlp_options *options);

#endif
