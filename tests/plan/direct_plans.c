/* Hand-made plans (tests/plan/direct_plans.h). */
#include "tests/plan/direct_plans.h"

#include "plan/build.h"
#include "tests/tutti_cmocka.h"

#include <stdlib.h>

enum { CHUNKS = 2 };

static uint32_t block(int rank)
{
    return CHUNKS * (uint32_t)rank;
}

/* ---- collectives that move ---- */

static enum tutti_result broadcast(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    struct tti_builder b;
    tti_plan_begin(&b, spec, 1, CHUNKS, 0, 0);
    if (spec->rank == spec->root) {
        for (int to = 0; to < spec->nranks; to++)
            if (to != spec->root)
                tti_send(&b, 0, 0, CHUNKS, tti_in(0), to);
        tti_copy(&b, 0, 0, CHUNKS, tti_in(0), tti_out(0), 0, -1);
    } else {
        tti_recv(&b, 0, 0, CHUNKS, spec->root, tti_out(0), 0, -1);
    }
    return tti_plan_finish(&b, plan);
}

static enum tutti_result gather(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    struct tti_builder b;
    bool all = spec->collective == TUTTI_ALL_GATHER;
    tti_plan_begin(&b, spec, 1, CHUNKS, 0, 0);
    for (int to = 0; to < spec->nranks; to++)
        if (to != spec->rank && (all || to == spec->root))
            tti_send(&b, 0, 0, CHUNKS, tti_in(0), to);
    for (int from = 0; (all || spec->rank == spec->root) && from < spec->nranks; from++) {
        if (from == spec->rank)
            tti_copy(&b, 0, 0, CHUNKS, tti_in(0), tti_out(block(from)), 0, -1);
        else
            tti_recv(&b, 0, 0, CHUNKS, from, tti_out(block(from)), 0, -1);
    }
    return tti_plan_finish(&b, plan);
}

static enum tutti_result scatter(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    struct tti_builder b;
    tti_plan_begin(&b, spec, 1, CHUNKS, 0, 0);
    for (int to = 0; spec->rank == spec->root && to < spec->nranks; to++) {
        if (to == spec->rank)
            tti_copy(&b, 0, 0, CHUNKS, tti_in(block(to)), tti_out(0), 0, -1);
        else
            tti_send(&b, 0, 0, CHUNKS, tti_in(block(to)), to);
    }
    if (spec->rank != spec->root)
        tti_recv(&b, 0, 0, CHUNKS, spec->root, tti_out(0), 0, -1);
    return tti_plan_finish(&b, plan);
}

/* Everything is sent from scratch, for others to try that. */
static enum tutti_result all_to_all(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    struct tti_builder b;
    int n = spec->nranks;
    tti_plan_begin(&b, spec, 1, CHUNKS, (uint32_t)n, 0);
    tti_copy(&b, 0, 0, block(n), tti_in(0), tti_scratch(0), 0, -1);
    for (int to = 0; to < n; to++)
        if (to != spec->rank)
            tti_send(&b, 0, 0, CHUNKS, tti_scratch(block(to)), to);
    for (int from = 0; from < n; from++) {
        if (from == spec->rank)
            tti_copy(&b, 0, 0, CHUNKS, tti_scratch(block(from)), tti_out(block(from)), 0, -1);
        else
            tti_recv(&b, 0, 0, CHUNKS, from, tti_out(block(from)), 0, -1);
    }
    return tti_plan_finish(&b, plan);
}

static enum tutti_result send_recv(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    struct tti_builder b;
    int n = spec->nranks;
    tti_plan_begin(&b, spec, 1, CHUNKS, 0, 0);
    if (n > 1) {
        tti_send(&b, 0, 0, CHUNKS, tti_in(0), (spec->rank + 1) % n);
        tti_recv(&b, 0, 0, CHUNKS, (spec->rank + n - 1) % n, tti_out(0), 0, -1);
    }
    return tti_plan_finish(&b, plan);
}

/* ---- collectives that reduce ---- */

/* Combine chunk c of block `from` of IN with the messages of all others into OUT. */
static void collect(struct tti_builder *b, const struct tti_plan_spec *spec, uint32_t from,
                    uint32_t c)
{
    int others = spec->nranks - 1;
    struct tti_ref so_far = tti_in(from + c);
    if (others == 0)
        tti_copy(b, 0, c, 1, so_far, tti_out(c), TTI_FINAL, -1);
    for (int k = 0; k < others; k++) {
        bool last = k == others - 1;
        struct tti_ref dst = last ? tti_out(c) : tti_slot(c);
        tti_recv_reduce(b, 0, c, 1, k < spec->rank ? k : k + 1, so_far, dst, last ? TTI_FINAL : 0,
                        -1);
        so_far = dst;
    }
}

static enum tutti_result reduce(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    struct tti_builder b;
    tti_plan_begin(&b, spec, 1, CHUNKS, 0, CHUNKS);
    for (uint32_t c = 0; c < CHUNKS; c++) {
        if (spec->rank == spec->root)
            collect(&b, spec, 0, c);
        else
            tti_send(&b, 0, c, 1, tti_in(c), spec->root);
    }
    return tti_plan_finish(&b, plan);
}

/* Chunk by chunk: a second send on a channel would wait until the first message is taken. */
static enum tutti_result reduce_scatter(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    struct tti_builder b;
    tti_plan_begin(&b, spec, 1, CHUNKS, 0, CHUNKS);
    for (uint32_t c = 0; c < CHUNKS; c++) {
        for (int to = 0; to < spec->nranks; to++)
            if (to != spec->rank)
                tti_send(&b, 0, c, 1, tti_in(block(to) + c), to);
        collect(&b, spec, block(spec->rank), c);
    }
    return tti_plan_finish(&b, plan);
}

/* Everybody sends everything to everybody (from scratch, since OUT may be IN), and adds it up in
 * the order of ranks. Contributions wait in scratch block `rank`. */
static enum tutti_result all_reduce(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    struct tti_builder b;
    int n = spec->nranks;
    tti_plan_begin(&b, spec, 1, CHUNKS, (uint32_t)n, CHUNKS);
    struct tti_ref own = tti_scratch(block(spec->rank));
    tti_copy(&b, 0, 0, CHUNKS, tti_in(0), n == 1 ? tti_out(0) : own, n == 1 ? TTI_FINAL : 0, -1);
    for (int to = 0; to < n; to++)
        if (to != spec->rank)
            tti_send(&b, 0, 0, CHUNKS, own, to);
    for (int from = 0; from < n; from++)
        if (from != spec->rank)
            tti_recv(&b, 0, 0, CHUNKS, from, tti_scratch(block(from)), TTI_MSG_ACC, -1);
    for (uint32_t c = 0; c < CHUNKS; c++) {
        struct tti_ref so_far = tti_scratch(c);
        for (int k = 1; k < n; k++) {
            bool last = k == n - 1;
            struct tti_ref dst = last ? tti_out(c) : tti_slot(c);
            tti_reduce_step(&b, 0, c, 1, so_far, tti_scratch(block(k) + c), dst,
                            last ? TTI_FINAL : 0, -1);
            so_far = dst;
        }
    }
    return tti_plan_finish(&b, plan);
}

/* Dissemination: in round k hear from the rank 2^k below. Counts some ranks twice unless n is a
 * power of two, which a barrier may. */
static enum tutti_result barrier(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    struct tti_builder b;
    int n = spec->nranks;
    tti_plan_begin(&b, spec, 1, 1, 0, 8);
    tti_copy(&b, 0, 0, 1, tti_in(0), n == 1 ? tti_out(0) : tti_slot(0), n == 1 ? TTI_FINAL : 0, -1);
    uint32_t round = 0;
    for (int step = 1; step < n; step *= 2, round++) {
        bool last = 2 * step >= n;
        tti_send(&b, 0, 0, 1, tti_slot(round), (spec->rank + step) % n);
        tti_recv_reduce(&b, 0, 0, 1, (spec->rank + n - step) % n, tti_slot(round),
                        last ? tti_out(0) : tti_slot(round + 1),
                        TTI_MSG_ACC | (last ? TTI_FINAL : 0), -1);
    }
    return tti_plan_finish(&b, plan);
}

#define DIRECT(number, function) \
    [number] = {.name = "direct", .collective = (number), .plan = (function), .summary = "by hand"}

static const struct tti_algorithm algorithms[TUTTI_COLLECTIVE_COUNT] = {
    DIRECT(TUTTI_ALL_REDUCE, all_reduce), DIRECT(TUTTI_BROADCAST, broadcast),
    DIRECT(TUTTI_REDUCE, reduce),         DIRECT(TUTTI_REDUCE_SCATTER, reduce_scatter),
    DIRECT(TUTTI_ALL_GATHER, gather),     DIRECT(TUTTI_ALL_TO_ALL, all_to_all),
    DIRECT(TUTTI_GATHER, gather),         DIRECT(TUTTI_SCATTER, scatter),
    DIRECT(TUTTI_BARRIER, barrier),       DIRECT(TUTTI_SEND_RECV, send_recv),
};

const struct tti_algorithm *direct_algorithm(enum tutti_collective collective)
{
    return &algorithms[collective];
}

void plan_set_build(struct plan_set *set, const struct tti_algorithm *algorithm, int nranks,
                    int root, int lanes)
{
    assert_in_range(nranks, 1, sizeof set->plans / sizeof set->plans[0]);
    set->nranks = nranks;
    for (int rank = 0; rank < nranks; rank++) {
        struct tti_plan_spec spec = {.collective = algorithm->collective,
                                     .nranks = nranks,
                                     .rank = rank,
                                     .root = root,
                                     .lanes = lanes,
                                     .slices = 1,
                                     .layout = {.nhosts = 1}};
        assert_int_equal(algorithm->plan(&spec, &set->plans[rank]), TUTTI_OK);
    }
}

void plan_set_destroy(struct plan_set *set)
{
    for (int rank = 0; rank < set->nranks; rank++)
        tti_plan_destroy(set->plans[rank]);
}

void plan_set_finish(struct plan_set *set, int rank)
{
    struct tti_plan *plan = set->plans[rank];
    free(plan->peers);
    plan->peers = NULL;
    for (int lane = 0; lane < plan->nlanes; lane++)
        for (size_t s = 0; s < plan->lanes[lane].count; s++)
            plan->lanes[lane].steps[s].hazard = -1;
    struct tti_builder builder = {.plan = plan, .failed = false};
    assert_int_equal(tti_plan_finish(&builder, &set->plans[rank]), TUTTI_OK);
}
