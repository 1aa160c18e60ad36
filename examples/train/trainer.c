/* Parameters, gradients, optimizer (trainer.h). Read next: trainer_checkpoint.c. */
#include "examples/train/trainer.h"

#include "examples/train/together.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void trainer_widen(float *restrict out, const uint16_t *restrict in, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = (uint32_t)in[i] << 16;
        memcpy(&out[i], &bits, sizeof bits);
    }
}

/* To the nearest, ties to even. NaN stays NaN. */
static void trainer_narrow(uint16_t *restrict out, const float *restrict in, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = 0;
        memcpy(&bits, &in[i], sizeof bits);
        const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        out[i] = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded);
    }
}

size_t trainer_elements(const struct trainer_tensor *tensor)
{
    size_t elements = 1;
    for (int d = 0; d < tensor->dims; d++)
        elements *= tensor->shape[d];
    return elements;
}

/* ---- Making -----------------------------------------------------------------------------------
 */

static float *trainer_array(const struct trainer *t, size_t count)
{
    if (t->options.gpu)
        return train_gpu_alloc(t->options.gpu, count * sizeof(float));
    float *made = calloc(count ? count : 1, sizeof *made);
    if (!made)
        fprintf(stderr, "no memory for %zu numbers\n", count);
    return made;
}

static int trainer_memory(struct trainer *t)
{
    const struct tutti_ddp_piece *pieces = NULL;
    size_t count = 0;
    if (together_check(t->comm, tutti_ddp_pieces(t->ddp, &pieces, &count, &t->owned), "pieces"))
        return 1;
    for (int i = 0; i < tutti_optimizer_states(&t->options.optimizer); i++)
        if (!(t->states[i] = trainer_array(t, t->owned)))
            return 1;
    if (!t->options.bf16)
        return 0;
    t->master = trainer_array(t, t->owned);
    t->widened = t->options.gpu ? NULL : trainer_array(t, t->elements);
    t->gathered = trainer_array(t, t->elements);
    return !t->master || (!t->widened && !t->options.gpu) || !t->gathered;
}

int trainer_create(struct trainer *t, tutti_comm *comm, const struct trainer_tensor *tensors,
                   size_t count, const struct trainer_options *options)
{
    *t = (struct trainer){.comm = comm, .options = *options, .count = count, .first = true};
    t->tensors = malloc(count * sizeof *t->tensors);
    t->offsets = calloc(count, sizeof *t->offsets);
    t->held = calloc(count, sizeof *t->held);
    struct tutti_ddp_tensor *list = calloc(count, sizeof *list);
    if (options->gpu) {
        t->options.ddp.on_device = true;
        t->options.ddp.device = options->gpu->gpu->device;
        t->options.ddp.stream = options->gpu->stream;
    }
    int failed = !t->tensors || !t->offsets || !t->held || !list;
    if (failed)
        fprintf(stderr, "no memory for %zu tensors\n", count);
    for (size_t i = 0; i < count && !failed; i++) {
        t->tensors[i] = tensors[i];
        t->offsets[i] = t->elements;
        t->elements += trainer_elements(&tensors[i]);
        list[i] = (struct tutti_ddp_tensor){.name = t->tensors[i].name,
                                            .type = options->bf16 ? TUTTI_BFLOAT16 : TUTTI_FLOAT32,
                                            .dims = tensors[i].dims,
                                            .shape = {tensors[i].shape[0], tensors[i].shape[1]},
                                            .unit = tensors[i].unit};
    }
    failed = failed ||
             together_check(comm, tutti_ddp_create(comm, list, count, &t->options.ddp, &t->ddp),
                            "register the model") ||
             trainer_memory(t);
    free(list);
    if (failed)
        trainer_destroy(t);
    return failed;
}

static void trainer_array_free(struct trainer *t, float *array)
{
    if (t->options.gpu)
        train_gpu_free(t->options.gpu, array);
    else
        free(array);
}

void trainer_destroy(struct trainer *t)
{
    tutti_ddp_destroy(t->ddp);
    free(t->tensors);
    free(t->offsets);
    free(t->held);
    free(t->widened);
    trainer_array_free(t, t->gathered);
    trainer_array_free(t, t->master);
    trainer_array_free(t, t->states[0]);
    trainer_array_free(t, t->states[1]);
    *t = (struct trainer){0};
}

/* ---- Parameters -------------------------------------------------------------------------------
 */

void *trainer_value(struct trainer *t, size_t index)
{
    void *value = NULL;
    (void)together_check(t->comm, tutti_ddp_value(t->ddp, index, &value), "value");
    return value;
}

/* To the GPU, and its masters. */
static int trainer_put(struct trainer *t, void *value, const float *values, size_t elements,
                       const struct tutti_ddp_piece *pieces, size_t count, size_t index)
{
    if (!t->options.bf16)
        return train_gpu_put(t->options.gpu, value, values, elements * sizeof *values);
    uint16_t *thin = malloc(elements * sizeof *thin);
    if (!thin) {
        fprintf(stderr, "no memory for %zu numbers\n", elements);
        return 1;
    }
    trainer_narrow(thin, values, elements);
    int failed = train_gpu_put(t->options.gpu, value, thin, elements * sizeof *thin);
    free(thin);
    for (size_t p = 0; p < count && !failed; p++)
        if (pieces[p].index == index)
            failed = train_gpu_put(t->options.gpu, t->master + pieces[p].state,
                                   values + pieces[p].first, pieces[p].count * sizeof *values);
    return failed;
}

static int trainer_write(struct trainer *t, size_t index, const float *values)
{
    const struct tutti_ddp_piece *pieces = NULL;
    size_t count = 0;
    const size_t elements = trainer_elements(&t->tensors[index]);
    void *value = trainer_value(t, index);
    if (!value ||
        together_check(t->comm, tutti_ddp_pieces(t->ddp, &pieces, &count, NULL), "pieces"))
        return 1;
    if (t->options.gpu)
        return trainer_put(t, value, values, elements, pieces, count, index);
    if (!t->options.bf16) {
        memcpy(value, values, elements * sizeof *values);
        return 0;
    }
    trainer_narrow(value, values, elements);
    for (size_t p = 0; p < count; p++)
        if (pieces[p].index == index)
            memcpy(t->master + pieces[p].state, values + pieces[p].first,
                   pieces[p].count * sizeof *values);
    return 0;
}

int trainer_set(struct trainer *t, size_t index, const float *values)
{
    const int unit = t->tensors[index].unit;
    return together_check(t->comm, tutti_ddp_acquire(t->ddp, unit), "acquire") ||
           trainer_write(t, index, values) ||
           together_check(t->comm, tutti_ddp_release(t->ddp, unit, true), "release");
}

int trainer_acquire(struct trainer *t, int unit)
{
    if (together_check(t->comm, tutti_ddp_acquire(t->ddp, unit), "acquire"))
        return 1;
    for (size_t i = 0; i < t->count && t->widened; i++)
        if (t->tensors[i].unit == unit)
            trainer_widen(t->widened + t->offsets[i], trainer_value(t, i),
                          trainer_elements(&t->tensors[i]));
    return 0;
}

int trainer_release(struct trainer *t, int unit)
{
    return together_check(t->comm, tutti_ddp_release(t->ddp, unit, false), "release");
}

const float *trainer_weight(struct trainer *t, size_t index)
{
    return t->options.bf16 ? t->widened + t->offsets[index] : trainer_value(t, index);
}

/* ---- A step -----------------------------------------------------------------------------------
 */

int trainer_begin(struct trainer *t, bool last)
{
    if (t->under_way && trainer_wait(t)) /* the small batch before is over */
        return 1;
    t->last = last;
    t->ready = 0;
    t->under_way = true;
    if (together_check(t->comm, tutti_ddp_begin(t->ddp, last), "begin a step"))
        return 1;
    const bool clear = t->options.bf16 && t->first;
    t->first = false;
    if (clear && t->options.gpu)
        return train_gpu_zero(t->options.gpu, t->gathered, t->elements * sizeof *t->gathered);
    if (clear)
        memset(t->gathered, 0, t->elements * sizeof *t->gathered);
    return 0;
}

float *trainer_gradient(struct trainer *t, size_t index)
{
    void *gradient = NULL;
    if (t->options.bf16)
        return t->gathered + t->offsets[index];
    (void)together_check(t->comm, tutti_ddp_gradient(t->ddp, index, &gradient), "gradient");
    return gradient;
}

int trainer_ready(struct trainer *t, size_t index)
{
    void *gradient = NULL;
    if (t->options.bf16 && t->last) {
        if (together_check(t->comm, tutti_ddp_gradient(t->ddp, index, &gradient), "gradient"))
            return 1;
        const size_t count = trainer_elements(&t->tensors[index]);
        float *gathered = t->gathered + t->offsets[index];
        if (!t->options.gpu)
            trainer_narrow(gradient, gathered, count);
        else if (train_gpu_narrow(t->options.gpu, gradient, gathered, count))
            return 1;
    }
    if (t->options.late && t->last)
        t->held[t->held_count++] = index;
    else if (together_check(t->comm, tutti_ddp_ready(t->ddp, index), "a gradient is ready"))
        return 1;
    t->ready++;
    if (t->last && t->steps + 1 == t->die_in_step && t->ready == t->die_when_ready)
        raise(SIGKILL);
    return 0;
}

void trainer_die(struct trainer *t, uint64_t step, size_t ready)
{
    t->die_in_step = step;
    t->die_when_ready = ready;
}

/* All ranks begin to reduce together, when the last of them has computed. */
static int trainer_let_go(struct trainer *t)
{
    if (t->held_count > 0 && together_check(t->comm, tutti_barrier(t->comm), "barrier"))
        return 1;
    for (size_t i = 0; i < t->held_count; i++)
        if (together_check(t->comm, tutti_ddp_ready(t->ddp, t->held[i]), "a gradient is ready"))
            return 1;
    t->held_count = 0;
    return 0;
}

int trainer_wait(struct trainer *t)
{
    t->under_way = false;
    t->first = t->last;
    return trainer_let_go(t) || together_check(t->comm, tutti_ddp_wait(t->ddp), "reduce gradients");
}

int trainer_update(struct trainer *t, double rate, double *norm)
{
    const struct tutti_ddp_piece *pieces = NULL;
    size_t count = 0;
    if (trainer_wait(t) ||
        together_check(t->comm, tutti_ddp_clip(t->ddp, t->options.clip, norm), "clip") ||
        together_check(t->comm, tutti_ddp_pieces(t->ddp, &pieces, &count, NULL), "pieces"))
        return 1;
    t->options.optimizer.lr = (float)rate;
    for (size_t p = 0; p < count; p++) {
        float *const *states = t->states;
        const size_t at = pieces[p].state;
        const struct tutti_optimizer_slice slice = {
            .count = pieces[p].count,
            .type = t->options.bf16 ? TUTTI_BFLOAT16 : TUTTI_FLOAT32,
            .param = pieces[p].value,
            .grad = pieces[p].gradient,
            .master = t->master ? t->master + at : NULL,
            .states = {states[0] ? states[0] + at : NULL, states[1] ? states[1] + at : NULL},
            .grad_scale = 1,
            .no_decay = !t->tensors[pieces[p].index].decays};
        if (together_check(
                t->comm,
                tutti_ddp_optimizer_step(t->ddp, &t->options.optimizer, t->steps + 1, &slice),
                "optimizer"))
            return 1;
    }
    t->steps++;
    return together_check(t->comm, tutti_ddp_publish(t->ddp), "publish parameters");
}
