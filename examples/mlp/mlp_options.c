/* The flags of mlp (mlp_options.h). */
#include "examples/mlp/mlp_options.h"

#include "examples/train/flags.h"

#include <stdio.h>

#ifndef EXAMPLES_MLP_DATA
#define EXAMPLES_MLP_DATA "examples/mlp"
#endif

enum { FLAGS_OWN = 7 };

int mlp_options_parse(int argc, char **argv, struct mlp_options *o)
{
    *o = (struct mlp_options){.data = EXAMPLES_MLP_DATA,
                              .epochs = 30,
                              .batch = 64,
                              .hidden = 128,
                              .rate = 0.05,
                              .expect = 0};
    struct flag flags[FLAGS_OWN + FLAGS_COMMON] = {
        {.name = "data", .help = "folder of the small digits set", .text = &o->data},
        {.name = "mnist", .help = "folder of MNIST's four IDX files, unpacked", .text = &o->mnist},
        {.name = "epochs",
         .help = "times over the data",
         .number = &o->epochs,
         .least = 1,
         .most = 100000},
        {.name = "batch",
         .help = "images a step, of all ranks",
         .number = &o->batch,
         .least = 1,
         .most = MLP_BATCH_MOST},
        {.name = "hidden",
         .help = "neurons of each hidden layer",
         .number = &o->hidden,
         .least = 1,
         .most = 8192},
        {.name = "rate",
         .help = "learning rate for a batch of 64",
         .real = &o->rate,
         .least = 0,
         .most = 100},
        {.name = "expect",
         .help = "exit with 1 below this accuracy",
         .real = &o->expect,
         .least = 0,
         .most = 1},
    };
    flags_common(&o->common, flags + FLAGS_OWN);
    o->common.plot = "mlp.svg";
    int status = flags_parse(argc, argv, "Trains a perceptron to read handwritten digits.", flags,
                             sizeof flags / sizeof *flags);
    return status == 0 ? flags_common_check(&o->common) : status;
}
