/* The flags of mlp (mlp_options.h). */
#include "examples/mlp/mlp_options.h"

#include "examples/train/flags.h"

#include <stdio.h>

#ifndef EXAMPLES_MLP_DATA
#define EXAMPLES_MLP_DATA "examples/mlp"
#endif

int mlp_options_parse(int argc, char **argv, struct mlp_options *o)
{
    *o = (struct mlp_options){.data = EXAMPLES_MLP_DATA,
                              .epochs = 30,
                              .batch = 64,
                              .hidden = 128,
                              .seed = 1,
                              .rate = 0.05,
                              .expect = 0};
    const struct flag flags[] = {
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
         .most = 4096},
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
        {.name = "seed",
         .help = "of weights and order",
         .number = &o->seed,
         .least = 0,
         .most = 1 << 30},
        {.name = "threads",
         .help = "ranks as threads of this process",
         .number = &o->threads,
         .least = 0,
         .most = 64},
        {.name = "expect",
         .help = "exit with 1 below this accuracy",
         .real = &o->expect,
         .least = 0,
         .most = 1},
        {.name = "checkpoints", .help = "folder to save checkpoints in", .text = &o->checkpoints},
        {.name = "save-every",
         .help = "steps between checkpoints; 0: at the end",
         .number = &o->save_every,
         .least = 0,
         .most = 1e9},
        {.name = "resume",
         .help = "go on from the newest checkpoint, if there is one",
         .on = &o->resume},
        {.name = "die-at",
         .help = "kill the last rank after this step, to see it survived",
         .number = &o->die_at,
         .least = 0,
         .most = 1e9},
        {.name = "plain", .help = "plain loops instead of OpenBLAS", .on = &o->plain},
        {.name = "log", .help = "table of all steps, as text", .text = &o->log},
        {.name = "plot", .help = "loss curve, an SVG file", .text = &o->plot},
    };
    int status = flags_parse(argc, argv, "Trains a perceptron to read handwritten digits.", flags,
                             sizeof flags / sizeof *flags);
    if (status == 0 && (o->save_every > 0 || o->resume) && !o->checkpoints) {
        fprintf(stderr, "mlp: --save-every and --resume need --checkpoints FOLDER\n");
        return 2;
    }
    return status;
}
