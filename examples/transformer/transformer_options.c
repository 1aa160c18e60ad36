/* The flags of transformer (transformer_options.h). */
#include "examples/transformer/transformer_options.h"

#include "examples/train/flags.h"

#include <stdio.h>
#include <string.h>

enum { USUAL_WARMUP = 20 };

static int options_schedule(const char *name, enum tutti_schedule_kind *kind)
{
    for (int k = TUTTI_CONSTANT; k <= TUTTI_WSD; k++)
        if (strcmp(name, tutti_schedule_name((enum tutti_schedule_kind)k)) == 0) {
            *kind = (enum tutti_schedule_kind)k;
            return 0;
        }
    fprintf(stderr, "transformer: --schedule %s: expected constant, linear, cosine or wsd\n", name);
    return 2;
}

static int options_hook(const char *name, enum tutti_ddp_hook *hook)
{
    static const char *const names[] = {"none", "fp16", "bf16", "powersgd"};
    for (int h = TUTTI_DDP_HOOK_NONE; h <= TUTTI_DDP_HOOK_POWERSGD; h++)
        if (strcmp(name, names[h]) == 0) {
            *hook = (enum tutti_ddp_hook)h;
            return 0;
        }
    fprintf(stderr, "transformer: --hook %s: expected none, fp16, bf16 or powersgd\n", name);
    return 2;
}

static int options_check(struct transformer_options *o)
{
    if (!o->data) {
        fprintf(stderr, "transformer: --data FILE is needed: any text, or llm.c's token shards\n");
        return 2;
    }
    if (o->warmup < 0) /* not given */
        o->warmup = o->steps > 0 && o->steps < USUAL_WARMUP ? o->steps : USUAL_WARMUP;
    if (o->steps > 0 && (o->warmup > o->steps || o->decay > o->steps - o->warmup)) {
        fprintf(stderr, "transformer: --warmup %d and --decay %d are more than --steps %d\n",
                o->warmup, o->decay, o->steps);
        return 2;
    }
    if (o->common.elastic && o->zero > 0 && !o->common.checkpoints) {
        fprintf(stderr,
                "transformer: --elastic with --zero %d goes on from checkpoints; give "
                "--checkpoints FOLDER\n",
                o->zero);
        return 2;
    }
    if (strcmp(o->device, "cpu") != 0 && strcmp(o->device, "cuda") != 0 &&
        strcmp(o->device, "sim") != 0) {
        fprintf(stderr, "transformer: --device %s: expected cpu, cuda or sim\n", o->device);
        return 2;
    }
    if (strcmp(o->attention, "flash") != 0 && strcmp(o->attention, "products") != 0) {
        fprintf(stderr, "transformer: --attention %s: expected flash or products\n", o->attention);
        return 2;
    }
    if (o->common.elastic && strcmp(o->device, "cpu") != 0) {
        fprintf(stderr, "transformer: --elastic trains on the CPU, not with --device %s\n",
                o->device);
        return 2;
    }
    return flags_common_check(&o->common);
}

static void options_defaults(struct transformer_options *o)
{
    *o = (struct transformer_options){.steps = 600,
                                      .batch = 16,
                                      .warmup = -1,
                                      .rate = 3e-3,
                                      .final = 0.1,
                                      .device = "cpu",
                                      .attention = "flash",
                                      .clip = 1,
                                      .weight_decay = 0.1,
                                      .bucket_mib = 25,
                                      .in_flight = 1,
                                      .check_every = 50,
                                      .print_every = 10,
                                      .prompt = "/* ",
                                      .sample = 400,
                                      .temperature = 0.8};
}

enum { FLAGS_MODEL = 14, FLAGS_TRAIN = 19 };

/* Of the model and the data. */
static void options_model_flags(struct transformer_options *o, struct flag *f, const char **size,
                                struct gpt_config *given)
{
    const struct flag flags[FLAGS_MODEL] = {
        {.name = "data",
         .help = "text, or token shards; several with commas, or by a 'pattern*'",
         .text = &o->data},
        {.name = "size",
         .help = "tiny, small, gpt2, gpt2-medium, gpt2-large, gpt2-xl",
         .text = size},
        {.name = "layers", .help = "instead of the size's", .number = &given->layers, .most = 512},
        {.name = "heads", .help = "the same", .number = &given->heads, .most = 512},
        {.name = "channels", .help = "the same", .number = &given->channels, .most = 65536},
        {.name = "context",
         .help = "the same: tokens of a sequence",
         .number = &given->context,
         .most = 65536},
        {.name = "init", .help = "begin from this safetensors file, as GPT-2's", .text = &o->init},
        {.name = "bf16",
         .help = "bfloat16 parameters and gradients, float32 masters",
         .on = &o->bf16},
        {.name = "device",
         .help = "what computes: cpu, cuda, or sim, a simulated GPU for tests",
         .text = &o->device},
        {.name = "attention",
         .help = "on a GPU: flash, without scores in memory; or products, on the tensor cores",
         .text = &o->attention},
        {.name = "recompute",
         .help = "keep only what goes into each layer; make the rest again, going back",
         .on = &o->recompute},
        {.name = "prompt", .help = "what the sample begins with", .text = &o->prompt},
        {.name = "sample", .help = "tokens to write at the end", .number = &o->sample, .most = 1e6},
        {.name = "temperature",
         .help = "of the sample",
         .real = &o->temperature,
         .least = 0.01,
         .most = 100},
    };
    memcpy(f, flags, sizeof flags);
}

/* Of training. */
static void options_train_flags(struct transformer_options *o, struct flag *f,
                                const char **schedule, const char **hook)
{
    const struct flag flags[FLAGS_TRAIN] = {
        {.name = "steps",
         .help = "optimizer steps, of the whole run; 0: only write a sample",
         .number = &o->steps,
         .most = 1e9},
        {.name = "batch",
         .help = "sequences a step, of all ranks",
         .number = &o->batch,
         .least = 1,
         .most = 65536},
        {.name = "micro",
         .help = "of these at once on a rank; 0: all",
         .number = &o->micro,
         .most = 4096},
        {.name = "rate", .help = "highest learning rate", .real = &o->rate, .most = 10},
        {.name = "final",
         .help = "last learning rate, as a share of that",
         .real = &o->final,
         .most = 1},
        {.name = "schedule", .help = "constant, linear, cosine, wsd", .text = schedule},
        {.name = "warmup",
         .help = "steps (20, or --steps if fewer)",
         .number = &o->warmup,
         .most = 1e9},
        {.name = "decay", .help = "steps, at the end (wsd)", .number = &o->decay, .most = 1e9},
        {.name = "clip",
         .help = "global norm of gradients; 0: none",
         .real = &o->clip,
         .most = 1e9},
        {.name = "weight-decay", .help = "on matrices", .real = &o->weight_decay, .most = 10},
        {.name = "bucket",
         .help = "MiB of gradients reduced together",
         .real = &o->bucket_mib,
         .least = 0.001,
         .most = 4096},
        {.name = "in-flight",
         .help = "buckets reduced at once",
         .number = &o->in_flight,
         .least = 1,
         .most = 8},
        {.name = "late",
         .help = "reduce gradients after all ranks' backward pass, to see what overlap saves",
         .on = &o->late},
        {.name = "hook", .help = "how gradients travel: none, fp16, bf16, powersgd", .text = hook},
        {.name = "zero",
         .help = "shard 1 optimizer, 2 and gradients, 3 and parameters",
         .number = &o->zero,
         .most = 3},
        {.name = "cores",
         .help = "a rank; 0: the host's, shared out",
         .number = &o->cores,
         .most = 1024},
        {.name = "check-every",
         .help = "steps; 0: at the end",
         .number = &o->check_every,
         .most = 1e9},
        {.name = "print-every",
         .help = "steps",
         .number = &o->print_every,
         .least = 1,
         .most = 1e9},
        {.name = "trace",
         .help = "what each rank's threads did, as FILE.RANK.json",
         .text = &o->trace},
    };
    memcpy(f, flags, sizeof flags);
}

static void options_take(int *place, int given)
{
    *place = given > 0 ? given : *place;
}

int transformer_options_parse(int argc, char **argv, struct transformer_options *o)
{
    const char *size = "tiny", *schedule = "cosine", *hook = "none";
    struct gpt_config given = {0};
    struct flag flags[FLAGS_MODEL + FLAGS_TRAIN + FLAGS_COMMON];
    options_defaults(o);
    options_model_flags(o, flags, &size, &given);
    options_train_flags(o, flags + FLAGS_MODEL, &schedule, &hook);
    flags_common(&o->common, flags + FLAGS_MODEL + FLAGS_TRAIN);
    o->common.plot = "transformer.svg";
    int status = flags_parse(argc, argv, "Trains a GPT-2-shaped transformer.", flags,
                             sizeof flags / sizeof *flags);
    if (status != 0)
        return status;
    if (gpt_size(size, &o->model) || options_schedule(schedule, &o->schedule) ||
        options_hook(hook, &o->hook))
        return 2;
    options_take(&o->model.layers, given.layers);
    options_take(&o->model.heads, given.heads);
    options_take(&o->model.channels, given.channels);
    options_take(&o->model.context, given.context);
    return options_check(o);
}
