/* tti_plan_finish finds hazards in two ways, by cells and by pairs of ranges; both must agree.
 * Which one it takes depends on how many chunks there are, so the same random steps are built with
 * few chunks and with many unused slots. */
#include "plan/build.h"
#include "tests/tutti_cmocka.h"

enum { STEPS = 60, CHUNKS = 6, RANKS = 4 };

static uint32_t random_state = 1;

static uint32_t random_below(uint32_t n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % n;
}

static struct tti_ref random_ref(uint32_t in_blocks, uint32_t out_blocks, uint32_t *n)
{
    uint32_t blocks[3] = {in_blocks, out_blocks, 2};
    uint32_t buffer = random_below(3);
    while (blocks[buffer] == 0)
        buffer = random_below(3);
    uint32_t total = blocks[buffer] * CHUNKS;
    struct tti_ref ref = {buffer, random_below(total)};
    uint32_t most = total - ref.index;
    *n = 1 + random_below(most < 8 ? most : 8);
    return ref;
}

static struct tti_plan *random_plan(const struct tti_plan_spec *spec, uint32_t slots, uint32_t seed)
{
    uint32_t in = 0, out = 0;
    struct tti_builder b;
    struct tti_plan *plan = NULL;
    random_state = seed;
    tti_shape(spec->collective, spec->nranks, spec->rank, spec->root, &in, &out);
    tti_plan_begin(&b, spec, 1, CHUNKS, 2, slots);
    for (int s = 0; s < STEPS; s++) {
        uint32_t n = 0;
        struct tti_ref ref = random_ref(in, out, &n);
        if (random_below(2))
            tti_send(&b, 0, ref.index % CHUNKS, n, ref, 1);
        else
            tti_recv(&b, 0, ref.index % CHUNKS, n, 1, ref, random_below(2) ? TTI_FORWARD : 0, 2);
    }
    assert_int_equal(tti_plan_finish(&b, &plan), TUTTI_OK);
    return plan;
}

static void both_ways_agree(void **state)
{
    (void)state;
    static const enum tutti_collective collectives[] = {TUTTI_ALL_REDUCE, TUTTI_REDUCE_SCATTER,
                                                        TUTTI_ALL_GATHER, TUTTI_ALL_TO_ALL,
                                                        TUTTI_GATHER,     TUTTI_BROADCAST};
    int found = 0;
    for (uint32_t trial = 0; trial < 300; trial++) {
        struct tti_plan_spec spec = {.collective = collectives[trial % 6],
                                     .nranks = RANKS,
                                     .rank = (int)(trial / 6) % RANKS,
                                     .root = 1,
                                     .lanes = 1,
                                     .slices = 1};
        struct tti_plan *cells = random_plan(&spec, 0, trial + 1);
        struct tti_plan *pairs = random_plan(&spec, 100000, trial + 1);
        for (int s = 0; s < STEPS; s++) {
            assert_int_equal(cells->lanes[0].steps[s].hazard, pairs->lanes[0].steps[s].hazard);
            found += cells->lanes[0].steps[s].hazard >= 0;
        }
        tti_plan_destroy(cells);
        tti_plan_destroy(pairs);
    }
    assert_true(found > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_ways_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
