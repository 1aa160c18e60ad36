/* Textbook algorithms for tests (tests/simulate/simple_algorithms.h). */
#include "tests/simulate/simple_algorithms.h"

#include "plan/build.h"

/* Results are written over the input in place, so messages are first received beside it: a rank
 * that waited with its receive until its own block was taken would wait for ever. */

static enum tutti_result doubling_plan(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    struct tti_builder b;
    int rank = spec->rank;
    tti_plan_begin(&b, spec, 1, 1, 0, 3);
    struct tti_ref mine = tti_in(0), other = tti_slot(2);
    for (int mask = 1, slot = 0; mask < spec->nranks; mask *= 2, slot = !slot) {
        bool last = 2 * mask >= spec->nranks;
        struct tti_ref dst = last ? tti_out(0) : tti_slot((uint32_t)slot);
        int acc = mask > 1 ? TTI_MSG_ACC : 0;
        tti_send(&b, 0, 0, 1, mine, rank ^ mask);
        tti_recv(&b, 0, 0, 1, rank ^ mask, other, acc, -1);
        tti_reduce_step(&b, 0, 0, 1, mine, other, dst, last ? TTI_FINAL : 0, -1);
        mine = dst;
    }
    return tti_plan_finish(&b, plan);
}

static enum tutti_result one_shot_plan(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    struct tti_builder b;
    int n = spec->nranks;
    tti_plan_begin(&b, spec, 1, 1, 0, 2);
    for (int d = 1; d < n; d++)
        tti_send(&b, 0, 0, 1, tti_in(0), (spec->rank + d) % n);
    for (int d = 1; d < n - 1; d++)
        tti_recv_reduce(&b, 0, 0, 1, (spec->rank + n - d) % n, d == 1 ? tti_in(0) : tti_slot(0),
                        tti_slot(0), 0, -1);
    tti_recv(&b, 0, 0, 1, (spec->rank + 1) % n, tti_slot(1), 0, -1);
    tti_reduce_step(&b, 0, 0, 1, n == 2 ? tti_in(0) : tti_slot(0), tti_slot(1), tti_out(0),
                    TTI_FINAL, -1);
    return tti_plan_finish(&b, plan);
}

static uint32_t partner(const struct tti_plan_spec *spec, uint32_t d, bool pairwise, bool sends)
{
    uint32_t n = (uint32_t)spec->nranks, rank = (uint32_t)spec->rank;
    return pairwise ? rank ^ d : (sends ? rank + d : rank + n - d) % n;
}

static enum tutti_result exchange_plan(const struct tti_plan_spec *spec, bool pairwise,
                                       struct tti_plan **plan)
{
    struct tti_builder b;
    uint32_t n = (uint32_t)spec->nranks, rank = (uint32_t)spec->rank;
    tti_plan_begin(&b, spec, 1, 1, n, 0);
    tti_copy(&b, 0, 0, 1, tti_in(rank), tti_out(rank), 0, -1);
    for (uint32_t d = 1; d < n; d++) {
        uint32_t to = partner(spec, d, pairwise, true);
        tti_send(&b, 0, 0, 1, tti_in(to), (int)to);
    }
    for (uint32_t d = 1; d < n; d++) {
        uint32_t from = partner(spec, d, pairwise, false);
        tti_recv(&b, 0, 0, 1, (int)from, tti_scratch(from), 0, -1);
    }
    for (uint32_t d = 1; d < n; d++) {
        uint32_t from = partner(spec, d, pairwise, false);
        tti_copy(&b, 0, 0, 1, tti_scratch(from), tti_out(from), 0, -1);
    }
    return tti_plan_finish(&b, plan);
}

static enum tutti_result all_to_all_plan(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    return exchange_plan(spec, false, plan);
}

static enum tutti_result pairwise_plan(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    return exchange_plan(spec, true, plan);
}

static enum tutti_result chain_plan(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    struct tti_builder b;
    int n = spec->nranks, place = (spec->rank + n - spec->root) % n;
    int next = (spec->rank + 1) % n, previous = (spec->rank + n - 1) % n;
    bool last = place == n - 1;
    tti_plan_begin(&b, spec, 1, (uint32_t)spec->slices, 0, 0);
    for (uint32_t c = 0; c < (uint32_t)spec->slices; c++)
        if (place == 0 && !last)
            tti_send(&b, 0, c, 1, tti_in(c), next);
        else if (!last || place > 0)
            tti_recv(&b, 0, c, 1, previous, tti_out(c), last ? 0 : TTI_FORWARD, last ? -1 : next);
    return tti_plan_finish(&b, plan);
}

static enum tutti_result slot_plan(const struct tti_plan_spec *spec, uint32_t slots,
                                   struct tti_plan **plan)
{
    struct tti_builder b;
    tti_plan_begin(&b, spec, 1, 2, 0, slots);
    for (uint32_t c = 0; c < 2; c++)
        if (spec->rank == 0)
            tti_copy(&b, 0, c, 1, tti_in(c), tti_slot(c % slots), TTI_FORWARD, 1);
        else
            tti_recv(&b, 0, c, 1, 0, tti_out(c), 0, -1);
    return tti_plan_finish(&b, plan);
}

static enum tutti_result one_slot_plan(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    return slot_plan(spec, 1, plan);
}

static enum tutti_result two_slots_plan(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    return slot_plan(spec, 2, plan);
}

static enum tutti_result deadlock_plan(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    struct tti_builder b;
    int n = spec->nranks;
    tti_plan_begin(&b, spec, 1, 1, 0, 0);
    tti_recv(&b, 0, 0, 1, (spec->rank + n - 1) % n, tti_out(0), 0, -1);
    tti_send(&b, 0, 0, 1, tti_in(0), (spec->rank + 1) % n);
    return tti_plan_finish(&b, plan);
}

static enum tutti_result unreceived_plan(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    struct tti_builder b;
    tti_plan_begin(&b, spec, 1, 1, 0, 0);
    for (int i = 0; i < 2 && spec->rank == 0; i++)
        tti_send(&b, 0, 0, 1, tti_in(0), 1);
    if (spec->rank == 1)
        tti_recv(&b, 0, 0, 1, 0, tti_out(0), 0, -1);
    return tti_plan_finish(&b, plan);
}

const struct tti_algorithm simple_doubling = {
    .name = "doubling", .collective = TUTTI_ALL_REDUCE, .plan = doubling_plan};
const struct tti_algorithm simple_one_shot = {
    .name = "one_shot", .collective = TUTTI_ALL_REDUCE, .plan = one_shot_plan, .translates = true};
const struct tti_algorithm simple_all_to_all = {
    .name = "direct", .collective = TUTTI_ALL_TO_ALL, .plan = all_to_all_plan, .translates = true};
const struct tti_algorithm simple_pairwise = {
    .name = "pairwise", .collective = TUTTI_ALL_TO_ALL, .plan = pairwise_plan};
const struct tti_algorithm simple_chain = {
    .name = "chain", .collective = TUTTI_BROADCAST, .plan = chain_plan, .sliced = true};
const struct tti_algorithm simple_one_slot = {
    .name = "one_slot", .collective = TUTTI_BROADCAST, .plan = one_slot_plan};
const struct tti_algorithm simple_two_slots = {
    .name = "two_slots", .collective = TUTTI_BROADCAST, .plan = two_slots_plan};
const struct tti_algorithm simple_deadlock = {
    .name = "deadlock", .collective = TUTTI_ALL_REDUCE, .plan = deadlock_plan};
const struct tti_algorithm simple_unreceived = {
    .name = "unreceived", .collective = TUTTI_BROADCAST, .plan = unreceived_plan};
