/* ddp/optimizer.c: PyTorch's numbers, the same bits however parameters are cut, masters for 16-bit
 * parameters, and what is refused. */
#include "device/reduce.h"
#include "tests/ddp/reference_numbers.h"
#include "tests/tutti_cmocka.h"
#include "tutti/ddp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LONG = 5003 }; /* more than one block, and no multiple of a vector */

/* The same formulas stand in make_reference.py. */
static void start(float *param, float grads[REFERENCE_STEPS][REFERENCE_COUNT])
{
    for (int i = 0; i < REFERENCE_COUNT; i++) {
        param[i] = (float)((i * 37) % 19 - 9) / 16;
        for (int step = 0; step < REFERENCE_STEPS; step++)
            grads[step][i] = (float)((i * 23 + step * 11) % 17 - 8) / 32;
    }
}

static void as_pytorch(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof reference_optimizers / sizeof *reference_optimizers; r++) {
        struct tutti_optimizer o = TUTTI_SGD_INIT;
        float param[REFERENCE_COUNT], grads[REFERENCE_STEPS][REFERENCE_COUNT];
        float states[2][REFERENCE_COUNT] = {{0}};
        o.kind = reference_optimizers[r].kind;
        o.lr = reference_optimizers[r].lr;
        o.weight_decay = reference_optimizers[r].weight_decay;
        o.momentum = reference_optimizers[r].momentum;
        o.dampening = reference_optimizers[r].dampening;
        o.nesterov = reference_optimizers[r].nesterov;
        o.beta1 = reference_optimizers[r].beta1;
        o.beta2 = reference_optimizers[r].beta2;
        start(param, grads);
        for (int step = 0; step < REFERENCE_STEPS; step++) {
            /* Half the gradient, scaled by two: what clipping and averaging use. */
            for (int i = 0; i < REFERENCE_COUNT; i++)
                grads[step][i] *= 0.5f;
            struct tutti_optimizer_slice slice = {.count = REFERENCE_COUNT,
                                                  .type = TUTTI_FLOAT32,
                                                  .param = param,
                                                  .grad = grads[step],
                                                  .states = {states[0], states[1]},
                                                  .grad_scale = 2};
            assert_int_equal(tutti_optimizer_step(&o, (uint64_t)step + 1, &slice), TUTTI_OK);
        }
        for (int i = 0; i < REFERENCE_COUNT; i++)
            assert_true(fabsf(param[i] - reference_optimizers[r].param[i]) <= 2e-7f);
    }
}

struct arrays {
    float param[LONG], grad[LONG], states[2][LONG];
};

static struct arrays *arrays_new(void)
{
    struct arrays *a = calloc(1, sizeof *a);
    assert_non_null(a);
    for (int i = 0; i < LONG; i++) {
        a->param[i] = (float)((i * 37) % 101 - 50) / 64;
        a->grad[i] = (float)((i * 53) % 97 - 48) / 77;
    }
    return a;
}

static void step_between(const struct tutti_optimizer *o, int step, struct arrays *a, int from,
                         int to)
{
    struct tutti_optimizer_slice slice = {.count = (size_t)(to - from),
                                          .type = TUTTI_FLOAT32,
                                          .param = a->param + from,
                                          .grad = a->grad + from,
                                          .states = {a->states[0] + from, a->states[1] + from},
                                          .grad_scale = 0.7f};
    assert_int_equal(tutti_optimizer_step(o, (uint64_t)step, &slice), TUTTI_OK);
}

/* In one piece, or in pieces that begin and end anywhere: the same bits. */
static void cuts_change_nothing(void **state)
{
    (void)state;
    const struct tutti_optimizer kinds[] = {TUTTI_SGD_INIT, TUTTI_SGD_INIT, TUTTI_ADAMW_INIT};
    for (int k = 0; k < 3; k++) {
        struct tutti_optimizer o = kinds[k];
        struct arrays *whole = arrays_new(), *cut = arrays_new();
        o.weight_decay = 0.1f;
        o.momentum = k == 1 ? 0.9f : 0;
        o.nesterov = k == 1;
        for (int step = 1; step <= 3; step++) {
            step_between(&o, step, whole, 0, LONG);
            for (int from = 0, to; from < LONG; from = to) {
                to = from + 1 + (from * 7 + step) % 613;
                step_between(&o, step, cut, from, to < LONG ? to : LONG);
            }
        }
        assert_memory_equal(whole, cut, sizeof *whole);
        free(whole);
        free(cut);
    }
}

/* 16-bit parameters: the masters go as float32 parameters would, which see the widened gradients;
 * the parameters are their roundings. */
static void masters(void **state)
{
    (void)state;
    static const enum tutti_type types[] = {TUTTI_BFLOAT16, TUTTI_FLOAT16};
    const struct tutti_optimizer o = TUTTI_ADAMW_INIT;
    for (int t = 0; t < 2; t++) {
        struct arrays *plain = arrays_new(), *mixed = arrays_new();
        uint16_t *param = calloc(LONG, 2), *grad = calloc(LONG, 2), *rounded = calloc(LONG, 2);
        assert_true(param && grad && rounded);
        tti_convert(grad, types[t], plain->grad, TUTTI_FLOAT32, LONG, NULL);
        tti_convert(plain->grad, TUTTI_FLOAT32, grad, types[t], LONG, NULL);
        struct tutti_optimizer_slice slice = {.count = LONG,
                                              .type = types[t],
                                              .param = param,
                                              .grad = grad,
                                              .master = mixed->param,
                                              .states = {mixed->states[0], mixed->states[1]},
                                              .grad_scale = 0.7f};
        for (int step = 1; step <= 3; step++) {
            step_between(&o, step, plain, 0, LONG);
            assert_int_equal(tutti_optimizer_step(&o, (uint64_t)step, &slice), TUTTI_OK);
        }
        assert_memory_equal(plain->param, mixed->param, sizeof plain->param);
        tti_convert(rounded, types[t], plain->param, TUTTI_FLOAT32, LONG, NULL);
        assert_memory_equal(param, rounded, LONG * sizeof *param);
        free(plain);
        free(mixed);
        free(param);
        free(grad);
        free(rounded);
    }
}

static void decay_can_be_off(void **state)
{
    (void)state;
    struct tutti_optimizer o = TUTTI_ADAMW_INIT;
    float with = 1, without = 1, grad = 0, states[4] = {0};
    struct tutti_optimizer_slice slice = {.count = 1,
                                          .type = TUTTI_FLOAT32,
                                          .param = &with,
                                          .grad = &grad,
                                          .states = {states, states + 1},
                                          .grad_scale = 1};
    o.weight_decay = 0.5f;
    o.lr = 0.5f;
    assert_int_equal(tutti_optimizer_step(&o, 1, &slice), TUTTI_OK);
    slice.param = &without;
    slice.no_decay = true;
    assert_int_equal(tutti_optimizer_step(&o, 1, &slice), TUTTI_OK);
    assert_true(with == 0.75f && without == 1);
}

static void refuses(const struct tutti_optimizer *o, uint64_t step,
                    const struct tutti_optimizer_slice *slice, const char *text)
{
    assert_int_equal(tutti_optimizer_step(o, step, slice), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), text));
}

static void refused(void **state)
{
    (void)state;
    struct tutti_optimizer o = TUTTI_SGD_INIT;
    uint16_t half = 0x3f80;
    float param = 1, grad = 1;
    struct tutti_optimizer_slice good = {
        .count = 1, .type = TUTTI_FLOAT32, .param = &param, .grad = &grad, .grad_scale = 1};
    struct tutti_optimizer_slice slice = good;
    refuses(&o, 0, &slice, "count from 1");
    o.nesterov = true;
    refuses(&o, 1, &slice, "Nesterov");
    o.nesterov = false, o.lr = NAN;
    refuses(&o, 1, &slice, "lr nan");
    o.lr = 1, o.momentum = 0.5f;
    refuses(&o, 1, &slice, "states[0]");
    o.momentum = 0;
    slice.type = TUTTI_BFLOAT16, slice.param = &half, slice.grad = &half;
    refuses(&o, 1, &slice, "float32 masters");
    slice = good, slice.type = TUTTI_FLOAT64;
    refuses(&o, 1, &slice, "float64");
    o = (struct tutti_optimizer)TUTTI_ADAMW_INIT;
    o.beta2 = 1;
    refuses(&o, 1, &good, "beta2");
    assert_true(param == 1);
    assert_int_equal(tutti_optimizer_states(&o), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_pytorch), cmocka_unit_test(cuts_change_nothing),
        cmocka_unit_test(masters),    cmocka_unit_test(decay_can_be_off),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
