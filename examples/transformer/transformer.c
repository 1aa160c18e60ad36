/* Trains a GPT-2-shaped transformer on text, on one rank or many: gradient accumulation, clipping,
 * learning-rate schedule, validation, checkpoints, a sample at the end. The model is gpt.h's, what
 * lies between it and tutti/ddp.h is examples/train/trainer.h, the loop and what happens when ranks
 * die or come are examples/train/train_run.h; here is a step. */
#include "examples/train/blas.h"
#include "examples/train/together.h"
#include "examples/train/train_run.h"
#include "examples/transformer/gpt_device.h"
#include "examples/transformer/gpt_kernels.h"
#include "examples/transformer/gpt_sample.h"
#include "examples/transformer/tokens.h"
#include "examples/transformer/transformer_options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One token in so many is kept for checking, and at most so many sequences are looked at. */
enum { CHECK_SHARE = 20, CHECK_SEQUENCES = 64 };

struct run {
    struct train_run base;
    const struct transformer_options *options;
    const struct tokens *tokens;
    struct tutti_schedule schedule;
    size_t checks;     /* sequences to check with, behind those to train on */
    int micro, passes; /* sequences of a small batch; small batches of a step */
    struct gpt model;
    struct train_gpu side; /* --device; zeros: the CPU */
    uint16_t *inputs, *targets;
    size_t *indices;
    double work, peak; /* --device cuda: of a token, of all GPUs a second; 0: not known */
    double forward_s, backward_s; /* of all steps of this process in this group of ranks */
    double began;
    uint64_t began_at; /* steps that were finished then */
};

/* Sequence number `window` becomes number `at` of the small batch; targets are the next tokens. */
static void run_take(struct run *r, size_t window, int at)
{
    const size_t length = (size_t)r->options->model.context;
    const uint16_t *from = r->tokens->list + window * length;
    memcpy(r->inputs + (size_t)at * length, from, length * sizeof *from);
    memcpy(r->targets + (size_t)at * length, from + 1, length * sizeof *from);
}

/* The mean loss on sequences that are not trained on, shared out among the ranks. */
static int run_check(struct run *r, double *loss)
{
    const int length = r->options->model.context;
    const size_t sequences = r->checks < CHECK_SEQUENCES ? r->checks : CHECK_SEQUENCES;
    double sums[2] = {0, 0};
    const size_t share = (sequences + (size_t)r->base.ranks - 1) / (size_t)r->base.ranks;
    size_t at = (size_t)r->base.rank;
    /* All ranks make as many passes, an empty one with something: parameters may be gathered. */
    for (size_t done = 0; done < share; done += (size_t)r->micro) {
        int count = 0;
        for (; count < r->micro && at < sequences; at += (size_t)r->base.ranks)
            run_take(r, r->base.samples + at, count++);
        double sum = 0;
        if (gpt_forward(&r->model, &r->base.trainer, r->inputs, count > 0 ? count : 1, length) ||
            gpt_classify(&r->model, &r->base.trainer, r->targets, count * length, 0, &sum))
            return 1;
        sums[0] += sum;
        sums[1] += (double)count * length;
    }
    if (together_check(r->base.comm,
                       tutti_all_reduce(sums, sums, 2, TUTTI_FLOAT64, TUTTI_SUM, r->base.comm),
                       "validation"))
        return 1;
    *loss = sums[0] / sums[1];
    return 0;
}

/* Forward and backward of a step; *loss is this rank's mean. */
static int run_passes(struct run *r, double *loss)
{
    const int length = r->options->model.context, rows = r->micro * length;
    const float slope = 1.0f / ((float)rows * (float)r->passes);
    *loss = 0;
    for (int pass = 0; pass < r->passes; pass++) {
        for (int i = 0; i < r->micro; i++)
            run_take(r, r->indices[pass * r->micro + i], i);
        if (trainer_begin(&r->base.trainer, pass == r->passes - 1))
            return 1;
        const double start = together_seconds();
        if (gpt_forward(&r->model, &r->base.trainer, r->inputs, r->micro, length) ||
            gpt_classify(&r->model, &r->base.trainer, r->targets, rows, slope, loss))
            return 1;
        const double middle = together_seconds();
        if (gpt_backward(&r->model, &r->base.trainer, r->inputs, r->micro, length))
            return 1;
        r->forward_s += middle - start;
        r->backward_s += together_seconds() - middle;
    }
    *loss /= (double)rows * r->passes;
    return 0;
}

/* The time that the run still takes, if that is long: by the time of its steps so far. */
static void run_print_left(const struct run *r, uint64_t step)
{
    const uint64_t done = step - r->began_at, left = (uint64_t)r->options->steps - step;
    const double seconds = (together_seconds() - r->began) / (double)done * (double)left;
    if (done < 3 || seconds < 20)
        putchar('\n');
    else if (seconds < 5940)
        printf("  %.0f:%02.0f to go\n", floor(seconds / 60), floor(fmod(seconds, 60)));
    else
        printf("  %.1f hours to go\n", seconds / 3600);
}

/* What a token costs, forward and backward (Chowdhery et al. 2022, appendix B), and what the GPUs
 * of all ranks can do together: products of bfloat16 a second, dense, as NVIDIA states them. */
static int run_peak(struct run *r)
{
    static const struct {
        const char *name;
        double peak;
    } known[] = {
        {"H200", 989e12}, {"H100", 989e12}, {"GH200", 989e12}, {"A100", 312e12}, {"B200", 2250e12}};
    const struct gpt_config *m = &r->options->model;
    const char *name = r->side.gpu->properties.name;
    int devices = 0;
    if (together_check(r->base.comm, r->side.ops->count(&devices), "devices"))
        return 1;
    const int sharing = tutti_comm_local_size(r->base.comm);
    const int used = tutti_comm_hosts(r->base.comm) * (sharing < devices ? sharing : devices);
    r->work = 6 * (double)r->base.trainer.elements + 12.0 * m->layers * m->channels * m->context;
    for (size_t i = 0; i < sizeof known / sizeof *known && r->options->bf16; i++)
        if (strstr(name, known[i].name))
            r->peak = known[i].peak * used;
    return 0;
}

static void run_print(const struct run *r, const struct curve_point *p)
{
    const struct transformer_options *o = r->options;
    const bool checked = isfinite(p->check);
    if (r->base.rank != 0 || (p->step % (uint64_t)o->print_every != 0 && p->step != 1 && !checked))
        return;
    printf("step %5llu  loss %.4f", (unsigned long long)p->step, p->loss);
    if (checked)
        printf("  validation %.4f", p->check);
    printf("  rate %.2e  norm %.3f  %.0f ms  %.0f tokens/s", p->rate, p->norm, p->ms,
           p->per_second);
    if (r->peak > 0)
        printf("  MFU %.1f%%", 100 * p->per_second * r->work / r->peak);
    run_print_left(r, p->step);
}

static int run_step(struct train_run *base)
{
    struct run *r = (struct run *)base;
    const struct transformer_options *o = r->options;
    const double start = together_seconds();
    struct curve_point p = {.check = NAN};
    if (train_run_next(base, r->indices, (size_t)(r->micro * r->passes)) ||
        run_passes(r, &p.loss) || train_run_update(base, &r->schedule, start, &p))
        return 1;
    p.per_second = (double)base->batch * o->model.context / (1e-3 * p.ms);
    if (((o->check_every > 0 && p.step % (uint64_t)o->check_every == 0) ||
         p.step == (uint64_t)o->steps) &&
        run_check(r, &p.check))
        return 1;
    run_print(r, &p);
    return base->rank == 0 && curve_add(&base->curve, &p);
}

/* ---- Beginning and end ------------------------------------------------------------------------
 */

/* How the batch is shared out. */
static int run_share(struct run *r)
{
    const struct transformer_options *o = r->options;
    const size_t all = (r->tokens->count - 1) / (size_t)o->model.context;
    int share = 0;
    if (train_run_share(&r->base, o->batch, &share))
        return 1;
    r->micro = o->micro > 0 ? o->micro : share;
    if (share % r->micro != 0) {
        fprintf(stderr, "--micro %d does not divide the %d sequences of a rank\n", r->micro, share);
        return 1;
    }
    r->passes = share / r->micro;
    r->checks = all / CHECK_SHARE > 0 ? all / CHECK_SHARE : 1;
    r->base.samples = all > r->checks ? all - r->checks : 0;
    if (o->steps == 0) { /* only a sample is written: any text will do */
        r->base.samples = r->base.samples > 0 ? r->base.samples : 1;
        return 0;
    }
    if (r->base.samples < (size_t)r->base.batch) {
        fprintf(stderr,
                "%zu tokens are too few: a step takes %d sequences of %d, and %d%% are kept for "
                "validation\n",
                r->tokens->count, r->base.batch, o->model.context, 100 / CHECK_SHARE);
        return 1;
    }
    return 0;
}

static int run_arrange(struct train_run *base)
{
    struct run *r = (struct run *)base;
    const struct transformer_options *o = r->options;
    r->forward_s = r->backward_s = 0;
    if (run_share(r))
        return 1;
    const size_t rows = (size_t)r->micro * (size_t)o->model.context;
    r->inputs = calloc(rows, sizeof *r->inputs);
    r->targets = calloc(rows, sizeof *r->targets);
    r->indices = calloc((size_t)(r->micro * r->passes), sizeof *r->indices);
    if (!r->inputs || !r->targets || !r->indices) {
        fprintf(stderr, "no memory for batches of %zu tokens\n", rows);
        return 1;
    }
    const struct gpt_on on = {&r->side, o->recompute, o->bf16, o->common.plain,
                              strcmp(o->attention, "products") == 0};
    if (r->side.gpu)
        return gpt_create_on(&r->model, &o->model, (int)rows, &on);
    return gpt_create(&r->model, &o->model, (int)rows, o->recompute);
}

static void run_release(struct train_run *base)
{
    struct run *r = (struct run *)base;
    gpt_destroy(&r->model);
    free(r->inputs);
    free(r->targets);
    free(r->indices);
    r->inputs = r->targets = NULL;
    r->indices = NULL;
}

static struct trainer_tensor *run_tensors(struct train_run *base, size_t *count,
                                          struct trainer_options *options)
{
    struct run *r = (struct run *)base;
    const struct transformer_options *o = r->options;
    *count = gpt_tensor_count(&o->model);
    struct trainer_tensor *tensors = calloc(*count, sizeof *tensors);
    if (!tensors) {
        fprintf(stderr, "no memory for %zu tensors\n", *count);
        return NULL;
    }
    *options = (struct trainer_options){.optimizer = TUTTI_ADAMW_INIT,
                                        .clip = o->clip,
                                        .bf16 = o->bf16,
                                        .late = o->late,
                                        .ddp = TUTTI_DDP_OPTIONS_INIT};
    gpt_tensors(&o->model, tensors);
    options->optimizer.beta2 = 0.95f;
    options->optimizer.weight_decay = (float)o->weight_decay;
    options->gpu = r->side.gpu ? &r->side : NULL;
    options->ddp.hook = o->hook;
    options->ddp.zero = o->zero;
    options->ddp.by_unit = o->zero > 0;
    options->ddp.prefetch = 1;
    options->ddp.in_flight = o->in_flight;
    options->ddp.bucket_bytes = (size_t)(o->bucket_mib * (1 << 20));
    return tensors;
}

static int run_initialise(struct train_run *base)
{
    struct run *r = (struct run *)base;
    const struct transformer_options *o = r->options;
    if (o->trace && together_check(base->comm, tutti_ddp_trace(base->trainer.ddp, true), "trace"))
        return 1;
    return o->init ? gpt_load(&r->model, &base->trainer, o->init)
                   : gpt_initialise(&r->model, &base->trainer, (uint64_t)o->common.seed);
}

/* What became of the time for communication; each rank its own trace. */
static int run_report(struct run *r)
{
    struct tutti_ddp_statistics s;
    char path[4200];
    if (r->options->trace) {
        snprintf(path, sizeof path, "%s.%d.json", r->options->trace, r->base.rank);
        if (together_check(r->base.comm, tutti_ddp_trace_write(r->base.trainer.ddp, path), "trace"))
            return 1;
    }
    if (together_check(r->base.comm, tutti_ddp_statistics(r->base.trainer.ddp, &s), "statistics"))
        return 1;
    if (r->base.rank != 0 || s.steps == 0 || r->base.ranks == 1)
        return 0;
    const double steps = (double)s.steps;
    printf(
        "gradients: %.2f MB a step in %zu buckets; reducing them took %.2f ms, %.2f of it behind "
        "the backward pass; %.2f ms were waited\n",
        (double)s.total.bytes / steps * 1e-6, s.buckets, 1e3 * s.total.busy_s / steps,
        1e3 * s.total.hidden_s / steps, 1e3 * s.total.exposed_s / steps);
    if (!r->side.gpu) /* there they are queued only */
        printf("forward %.1f ms, backward %.1f ms a step\n", 1e3 * r->forward_s / steps,
               1e3 * r->backward_s / steps);
    if (r->options->zero > 0)
        printf("ZeRO %d: at most %.2f MB of gradients, and %.2f MB of optimizer state on this "
               "rank\n",
               r->options->zero, (double)s.gradient_bytes_most * 1e-6,
               (double)(r->base.trainer.owned * (r->options->bf16 ? 3 : 2) * sizeof(float)) * 1e-6);
    return 0;
}

static int run_draw(const struct run *r)
{
    const struct transformer_options *o = r->options;
    char title[128];
    snprintf(title, sizeof title, "Transformer of %.1fM parameters, batches of %d x %d tokens",
             (double)r->base.trainer.elements * 1e-6, r->base.batch, o->model.context);
    if (curve_draw(&r->base.curve, o->common.plot, title, "validation loss"))
        return 1;
    printf("loss curve: %s\n", o->common.plot);
    return 0;
}

static int run_end(struct run *r)
{
    const struct transformer_options *o = r->options;
    const bool loud = r->base.rank == 0;
    if (run_report(r) || (loud && o->common.plot && o->steps > 0 && run_draw(r)))
        return 1;
    if (o->sample == 0 || (!loud && o->zero < 3))
        return 0;
    if (loud)
        printf("a sample:\n");
    return gpt_sample(&r->model, &r->base.trainer, o->prompt, o->sample, o->temperature,
                      (uint64_t)o->common.seed, loud);
}

/* A rank's share of the host's cores. */
static int run_cores(const struct run *r)
{
    const long all = sysconf(_SC_NPROCESSORS_ONLN);
    const int sharing = tutti_comm_local_size(r->base.comm);
    const int share = (int)(all / (sharing > 0 ? sharing : 1));
    return r->options->cores > 0 ? r->options->cores : share > 0 ? share : 1;
}

/* What multiplies. */
static const char *run_computes(const struct run *r)
{
    static __thread char text[160];
    if (!r->side.gpu)
        return blas_name();
    snprintf(text, sizeof text, "%s, %s", r->side.gpu->properties.name,
             gpt_products_name(r->model.device->products));
    return text;
}

static int run_rank(tutti_comm *comm, void *argument)
{
    struct run r = *(struct run *)argument;
    const struct transformer_options *o = r.options;
    train_run_open(&r.base, comm);
    const int cores = run_cores(&r);
    gpt_threads(cores);
    if (o->common.threads == 0)
        blas_threads(cores);
    int failed = (strcmp(o->device, "cpu") != 0 &&
                  (train_gpu_open(&r.side, comm) ||
                   together_check(NULL, gpt_own_load(r.side.gpu), "load the kernels"))) ||
                 train_run_start(&r.base) || (r.side.gpu && run_peak(&r));
    if (!failed && r.base.rank == 0)
        printf("%zu tokens of %d, %zu parameters in %d layers, %d rank%s with %d core%s each, "
               "%s\n",
               r.tokens->count, r.tokens->vocabulary, r.base.trainer.elements, o->model.layers,
               r.base.ranks, r.base.ranks == 1 ? "" : "s", cores, cores == 1 ? "" : "s",
               run_computes(&r));
    r.began = together_seconds();
    r.began_at = r.base.trainer.steps;
    failed = failed || train_run_loop(&r.base) || run_end(&r);
    train_run_close(&r.base, failed);
    train_gpu_close(&r.side);
    return failed;
}

int main(int argc, char **argv)
{
    static const struct train_model model = {run_arrange, run_release, run_tensors, run_initialise,
                                             run_step};
    struct transformer_options options;
    struct tokens tokens = {0};
    int status = transformer_options_parse(argc, argv, &options);
    if (status != 0)
        return status == 1 ? 0 : 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (tokens_read(&tokens, options.data))
        return 1;
    options.model.vocabulary = tokens.vocabulary;
    blas_start(!options.common.plain);
    struct run shared = {
        .base = {.model = &model, .options = &options.common, .steps = (uint64_t)options.steps},
        .options = &options,
        .tokens = &tokens,
        .schedule = {.kind = options.schedule,
                     .peak = options.rate,
                     .final = options.rate * options.final,
                     .warmup = (uint64_t)options.warmup,
                     .total = (uint64_t)options.steps,
                     .decay = (uint64_t)options.decay}};
    int failed = (strcmp(options.device, "cpu") != 0 &&
                  train_gpu_choose(options.device, options.common.threads)) ||
                 train_run_ranks(&options.common, run_rank, &shared);
    tokens_free(&tokens);
    return failed;
}
