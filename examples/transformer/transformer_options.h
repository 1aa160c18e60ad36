/* The flags of transformer. */
#ifndef EXAMPLES_TRANSFORMER_TRANSFORMER_OPTIONS_H
#define EXAMPLES_TRANSFORMER_TRANSFORMER_OPTIONS_H

#include "examples/train/flags.h"
#include "examples/transformer/gpt.h"

struct transformer_options {
    const char *data;
    struct gpt_config model; /* the vocabulary comes with the data */
    const char *init;        /* safetensors file to begin from; NULL: random */
    int steps, batch, micro, warmup, decay;
    double rate, final, clip, weight_decay;
    enum tutti_schedule_kind schedule;
    enum tutti_ddp_hook hook;
    bool bf16, recompute;
    const char *attention; /* on a GPU: "flash", "products" */
    const char *device;    /* "cpu", "cuda", "sim" */
    double bucket_mib;
    bool late; /* gradients are reduced when the backward pass is over */
    int in_flight, cores, zero;
    int check_every, print_every;
    const char *prompt;
    int sample;
    double temperature;
    const char *trace;
    struct common_options common;
};

/* 0; 1 when there is nothing more to do (--help); 2 after a message. */
int transformer_options_parse(int argc, char **argv, struct transformer_options *options);

#endif
