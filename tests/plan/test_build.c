/* What everybody counts on when they read a plan: shapes, in-place sharing, how blocks are cut,
 * and what finish works out (hazards, peers). */
#include "plan/build.h"
#include "tests/tutti_cmocka.h"

#include <stdlib.h>

/* ---- chunks ---- */

static void check_cut(size_t count, size_t type_size, uint32_t chunks)
{
    size_t before = 0, least = SIZE_MAX, most = 0;
    assert_int_equal(tti_chunk_begin(count, type_size, chunks, 0), 0);
    assert_int_equal(tti_chunk_begin(count, type_size, chunks, chunks), count);
    for (uint32_t c = 0; c < chunks; c++) {
        size_t begin = tti_chunk_begin(count, type_size, chunks, c);
        size_t end = tti_chunk_begin(count, type_size, chunks, c + 1);
        assert_true(begin == before && end >= begin);
        if (begin < count)
            assert_int_equal(begin * type_size % 64, 0);
        most = end - begin > most ? end - begin : most;
        if (end < count) /* all but those that the end of the block cuts short */
            least = end - begin < least ? end - begin : least;
        before = end;
    }
    assert_int_equal(most, tti_chunk_largest(count, type_size, chunks));
    if (least != SIZE_MAX && least > 0)
        assert_true((most - least) * type_size <= 64);
}

static void chunks_cover_the_block(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2, 4, 8};
    static const size_t large[] = {65536, 65537, 1000003, 16777216, (size_t)1 << 33};
    static const uint32_t cuts[] = {1, 2, 3, 4, 5, 7, 8, 16, 31, 64, 100, 1024};
    for (size_t s = 0; s < 4; s++)
        for (size_t c = 0; c < sizeof cuts / sizeof cuts[0]; c++) {
            for (size_t count = 0; count <= 300; count++)
                check_cut(count, sizes[s], cuts[c]);
            for (size_t l = 0; l < sizeof large / sizeof large[0]; l++)
                check_cut(large[l], sizes[s], cuts[c]);
        }
}

/* ---- shapes ---- */

static void shapes(void **state)
{
    (void)state;
    enum { N = 5, ROOT = 2, OTHER = 4 };
    static const struct {
        enum tutti_collective collective;
        uint32_t in_root, out_root, in_other, out_other;
    } expected[] = {
        {TUTTI_ALL_REDUCE, 1, 1, 1, 1}, {TUTTI_BROADCAST, 1, 1, 0, 1},
        {TUTTI_REDUCE, 1, 1, 1, 0},     {TUTTI_REDUCE_SCATTER, N, 1, N, 1},
        {TUTTI_ALL_GATHER, 1, N, 1, N}, {TUTTI_ALL_TO_ALL, N, N, N, N},
        {TUTTI_GATHER, 1, N, 1, 0},     {TUTTI_SCATTER, N, 1, 0, 1},
        {TUTTI_BARRIER, 1, 1, 1, 1},    {TUTTI_SEND_RECV, 1, 1, 1, 1},
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        uint32_t in = 9, out = 9;
        tti_shape(expected[i].collective, N, ROOT, ROOT, &in, &out);
        assert_int_equal(in, expected[i].in_root);
        assert_int_equal(out, expected[i].out_root);
        tti_shape(expected[i].collective, N, OTHER, ROOT, &in, &out);
        assert_int_equal(in, expected[i].in_other);
        assert_int_equal(out, expected[i].out_other);
    }
}

static void in_place(void **state)
{
    (void)state;
    static const struct {
        enum tutti_collective collective;
        int rank;
        bool can;
        uint32_t in, out;
    } expected[] = {
        {TUTTI_ALL_REDUCE, 3, true, 0, 0}, {TUTTI_BROADCAST, 1, true, 0, 0},
        {TUTTI_BROADCAST, 3, false, 0, 0}, {TUTTI_REDUCE, 1, true, 0, 0},
        {TUTTI_REDUCE, 3, false, 0, 0},    {TUTTI_REDUCE_SCATTER, 3, true, 3, 0},
        {TUTTI_ALL_GATHER, 3, true, 0, 3}, {TUTTI_ALL_TO_ALL, 3, true, 0, 0},
        {TUTTI_GATHER, 1, true, 0, 1},     {TUTTI_GATHER, 3, false, 0, 0},
        {TUTTI_SCATTER, 1, true, 1, 0},    {TUTTI_SCATTER, 3, false, 0, 0},
        {TUTTI_SEND_RECV, 3, false, 0, 0},
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        uint32_t in = 9, out = 9;
        assert_int_equal(tti_in_place(expected[i].collective, 4, expected[i].rank, 1, &in, &out),
                         expected[i].can);
        assert_int_equal(in, expected[i].can ? expected[i].in : 9);
        assert_int_equal(out, expected[i].can ? expected[i].out : 9);
    }
}

/* ---- hazards ---- */

static struct tti_plan_spec spec_of(enum tutti_collective collective)
{
    return (struct tti_plan_spec){
        .collective = collective, .nranks = 4, .rank = 1, .lanes = 1, .slices = 1};
}

static void hazards(void **state)
{
    (void)state;
    struct tti_plan_spec spec = spec_of(TUTTI_REDUCE_SCATTER);
    struct tti_builder b;
    tti_plan_begin(&b, &spec, 2, 2, 1, 2);
    tti_send(&b, 0, 0, 1, tti_in(2), 2);                   /* 0: block 1 is OUT in place */
    tti_recv(&b, 0, 0, 1, 3, tti_slot(0), TTI_FORWARD, 2); /* 1: sends from the slot */
    tti_recv(&b, 0, 1, 1, 3, tti_slot(1), 0, -1);          /* 2: another slot */
    tti_recv(&b, 0, 0, 1, 3, tti_slot(0), TTI_FORWARD, 2); /* 3: over the send of 1 */
    tti_recv(&b, 0, 0, 2, 3, tti_out(0), 0, -1);           /* 4: over IN[2], sent by 0 */
    tti_send(&b, 0, 0, 2, tti_scratch(0), 2);              /* 5 */
    tti_recv(&b, 0, 1, 1, 3, tti_scratch(1), 0, -1);       /* 6: second chunk of that */
    tti_recv(&b, 0, 1, 1, 3, tti_out(1), 0, -1);           /* 7: never sent */
    tti_recv(&b, 1, 0, 1, 0, tti_slot(0), 0, -1);          /* another lane: not its sends */
    struct tti_plan *plan = NULL;
    assert_int_equal(tti_plan_finish(&b, &plan), TUTTI_OK);
    static const int32_t expected[] = {-1, -1, -1, 1, 0, -1, 5, -1};
    assert_int_equal(plan->lanes[0].count, 8);
    for (size_t s = 0; s < 8; s++)
        assert_int_equal(plan->lanes[0].steps[s].hazard, expected[s]);
    assert_int_equal(plan->lanes[1].steps[0].hazard, -1);
    assert_int_equal(plan->npeers, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(plan->peers[i], i == 0 ? 0 : i + 1);
    tti_plan_destroy(plan);
}

/* Hazards of random lanes are the last step before that sends from a common chunk of memory, told
 * chunk by chunk; short and long lanes (which finish treats differently) alike. */
static bool meet(struct tti_ref a, uint32_t n, struct tti_ref b, uint32_t m, uint32_t chunks)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < m; j++) {
            uint32_t x = a.index + i, y = b.index + j;
            /* All-gather at rank 1: IN is block 1 of OUT. */
            x += a.buffer == TTI_IN ? chunks : 0;
            y += b.buffer == TTI_IN ? chunks : 0;
            bool same = a.buffer == b.buffer || (a.buffer <= TTI_OUT && b.buffer <= TTI_OUT);
            if (same && x == y)
                return true;
        }
    return false;
}

static void random_lane(size_t steps, uint32_t chunks, unsigned *seed)
{
    struct tti_plan_spec spec = spec_of(TUTTI_ALL_GATHER);
    struct tti_builder b;
    tti_plan_begin(&b, &spec, 1, chunks, 0, 3);
    for (size_t s = 0; s < steps; s++) {
        uint32_t n = 1 + (uint32_t)rand_r(seed) % 3;
        uint32_t index = (uint32_t)rand_r(seed) % (4 * chunks - n), own = index % (chunks - n);
        if (rand_r(seed) % 8 == 0)
            tti_recv(&b, 0, 0, 1, 0, tti_slot((uint32_t)rand_r(seed) % 3),
                     rand_r(seed) % 2 ? TTI_FORWARD : 0, 2);
        else if (rand_r(seed) % 3 == 0)
            tti_send(&b, 0, own, n, tti_in(own), 2);
        else
            tti_recv(&b, 0, index % chunks, n, 0, tti_out(index),
                     rand_r(seed) % 2 ? TTI_FORWARD : 0, 2);
    }
    struct tti_plan *plan = NULL;
    assert_int_equal(tti_plan_finish(&b, &plan), TUTTI_OK);
    for (size_t s = 0; s < steps; s++) {
        const struct tti_step *step = &plan->lanes[0].steps[s];
        int32_t expected = -1;
        for (size_t j = 0; step->kind != TTI_SEND && j < s; j++) {
            const struct tti_step *sender = &plan->lanes[0].steps[j];
            struct tti_ref sent = sender->kind == TTI_SEND ? sender->src : sender->dst;
            if ((sender->kind == TTI_SEND || (sender->flags & TTI_FORWARD)) &&
                meet(step->dst, step->nchunks, sent, sender->nchunks, chunks))
                expected = (int32_t)j;
        }
        assert_int_equal(step->hazard, expected);
    }
    tti_plan_destroy(plan);
}

static void random_hazards(void **state)
{
    (void)state;
    unsigned seed = 20240117;
    print_message("seed %u\n", seed);
    for (int round = 0; round < 200; round++) {
        random_lane(5, 100, &seed); /* few steps, many chunks */
        random_lane(60, 5, &seed);  /* many steps, few chunks */
    }
}

/* ---- the builder ---- */

static void nothing_to_do(void **state)
{
    (void)state;
    struct tti_plan_spec spec = spec_of(TUTTI_ALL_REDUCE);
    struct tti_builder b;
    tti_plan_begin(&b, &spec, 1, 1, 0, 0);
    tti_send(&b, 0, 0, 0, tti_in(0), 2); /* n = 0 appends nothing */
    struct tti_plan *plan = NULL;
    assert_int_equal(tti_plan_finish(&b, &plan), TUTTI_OK);
    assert_int_equal(plan->lanes[0].count, 0);
    assert_int_equal(plan->npeers, 0);
    assert_true(plan->reduces);
    tti_plan_destroy(plan);
    tti_plan_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_cover_the_block),
        cmocka_unit_test(shapes),
        cmocka_unit_test(in_place),
        cmocka_unit_test(hazards),
        cmocka_unit_test(random_hazards),
        cmocka_unit_test(nothing_to_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
