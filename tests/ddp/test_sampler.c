/* ddp/sampler.c and ddp/schedule.c: PyTorch's very orders and rates, and going on from a position
 * with another number of ranks. */
#include "tests/ddp/reference_numbers.h"
#include "tests/tutti_cmocka.h"
#include "tutti/ddp.h"

#include <math.h>
#include <string.h>

static tutti_sampler *sampler_of(size_t samples, int rank, int ranks, uint64_t seed, bool drop)
{
    struct tutti_sampler_options o = TUTTI_SAMPLER_INIT;
    tutti_sampler *sampler = NULL;
    o.samples = samples, o.rank = rank, o.ranks = ranks, o.seed = seed, o.drop_last = drop;
    assert_int_equal(tutti_sampler_create(&o, &sampler), TUTTI_OK);
    return sampler;
}

static void as_pytorch(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof reference_samplers / sizeof *reference_samplers; r++) {
        const int share = reference_samplers[r].share;
        for (int rank = 0; rank < reference_samplers[r].ranks; rank++) {
            struct tutti_sampler_options o = TUTTI_SAMPLER_INIT;
            tutti_sampler *s = NULL;
            size_t indices[16], taken = 0;
            o.samples = reference_samplers[r].samples;
            o.rank = rank;
            o.ranks = reference_samplers[r].ranks;
            o.seed = (uint64_t)reference_samplers[r].seed;
            o.drop_last = reference_samplers[r].drop_last;
            o.in_order = reference_samplers[r].in_order;
            assert_int_equal(tutti_sampler_create(&o, &s), TUTTI_OK);
            const uint64_t epoch = (uint64_t)reference_samplers[r].epoch;
            assert_int_equal(tutti_sampler_seek(s, epoch, 0), TUTTI_OK);
            assert_int_equal(tutti_sampler_left(s), share);
            assert_int_equal(tutti_sampler_next(s, 16, indices, &taken), TUTTI_OK);
            assert_int_equal(taken, share);
            for (int i = 0; i < share; i++)
                assert_int_equal(indices[i], reference_samplers[r].indices[rank * share + i]);
            assert_int_equal(tutti_sampler_next(s, 16, indices, &taken), TUTTI_OK);
            assert_int_equal(taken, 0);
            tutti_sampler_destroy(s);
        }
    }
}

static void far_into_the_generator(void **state)
{
    (void)state;
    tutti_sampler *s = sampler_of(2000, 0, 1, 42, false);
    size_t indices[2000], taken = 0;
    assert_int_equal(tutti_sampler_seek(s, 8, 0), TUTTI_OK);
    assert_int_equal(tutti_sampler_next(s, 2000, indices, &taken), TUTTI_OK);
    assert_int_equal(taken, 2000);
    for (int i = 0; i < 20; i++)
        assert_int_equal(indices[i * 100], reference_long_order[i]);
    tutti_sampler_destroy(s);
}

/* Two ranks take some, then three go on: together each sample once (103 and what was padded). */
static void goes_on_with_other_ranks(void **state)
{
    (void)state;
    enum { SAMPLES = 103, FIRST = 20 };
    int seen[SAMPLES] = {0};
    size_t indices[SAMPLES], taken = 0;
    uint64_t epoch = 0, position = 0;
    for (int rank = 0; rank < 2; rank++) {
        tutti_sampler *s = sampler_of(SAMPLES, rank, 2, 1, false);
        assert_int_equal(tutti_sampler_seek(s, 5, 0), TUTTI_OK);
        assert_int_equal(tutti_sampler_next(s, FIRST, indices, &taken), TUTTI_OK);
        for (size_t i = 0; i < taken; i++)
            seen[indices[i]]++;
        tutti_sampler_position(s, &epoch, &position);
        assert_true(epoch == 5 && position == 2 * FIRST);
        tutti_sampler_destroy(s);
    }
    size_t all = 2 * FIRST;
    for (int rank = 0; rank < 3; rank++) {
        tutti_sampler *s = sampler_of(SAMPLES, rank, 3, 1, false);
        assert_int_equal(tutti_sampler_seek(s, epoch, position), TUTTI_OK);
        assert_int_equal(tutti_sampler_next(s, SAMPLES, indices, &taken), TUTTI_OK);
        assert_int_equal(taken, 21);
        for (size_t i = 0; i < taken; i++, all++)
            seen[indices[i]]++;
        uint64_t end = 0;
        tutti_sampler_position(s, &epoch, &end);
        assert_int_equal(end, SAMPLES);
        assert_int_equal(tutti_sampler_seek(s, epoch, end), TUTTI_OK);
        assert_int_equal(tutti_sampler_left(s), 0);
        tutti_sampler_destroy(s);
    }
    assert_int_equal(all, SAMPLES);
    for (int i = 0; i < SAMPLES; i++)
        assert_int_equal(seen[i], 1);
}

static void rates(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof reference_schedules / sizeof *reference_schedules; r++) {
        const struct tutti_schedule schedule = {.kind = reference_schedules[r].kind,
                                                .peak = 0.4,
                                                .final = 0.1,
                                                .warmup = 5,
                                                .total = 16,
                                                .decay = (uint64_t)reference_schedules[r].decay};
        for (uint64_t step = 0; step < 20; step++) {
            double rate = 0;
            assert_int_equal(tutti_schedule_rate(&schedule, step, &rate), TUTTI_OK);
            const double wanted = reference_schedules[r].rates[step];
            assert_true(fabs(rate - wanted) < 1e-12);
        }
    }
    assert_true(tutti_schedule_scaled(0.1, 1024, 256) == 0.4);
    assert_string_equal(tutti_schedule_name(TUTTI_WSD), "wsd");
}

static void refused(void **state)
{
    (void)state;
    struct tutti_sampler_options o = TUTTI_SAMPLER_INIT;
    tutti_sampler *s = NULL;
    double rate = 7;
    assert_int_equal(tutti_sampler_create(&o, &s), TUTTI_ERR_ARGUMENT);
    o.samples = 5, o.rank = 2, o.ranks = 2;
    assert_int_equal(tutti_sampler_create(&o, &s), TUTTI_ERR_ARGUMENT);
    assert_null(s);
    s = sampler_of(5, 0, 2, 0, false);
    assert_int_equal(tutti_sampler_seek(s, 0, 6), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "beyond the end of 5"));
    tutti_sampler_destroy(s);
    tutti_sampler_destroy(NULL);
    struct tutti_schedule schedule = {.kind = TUTTI_COSINE, .peak = 1};
    assert_int_equal(tutti_schedule_rate(&schedule, 0, &rate), TUTTI_ERR_ARGUMENT);
    schedule = (struct tutti_schedule){TUTTI_WSD, 1, 0, 5, 10, 6};
    assert_int_equal(tutti_schedule_rate(&schedule, 0, &rate), TUTTI_ERR_ARGUMENT);
    schedule = (struct tutti_schedule){TUTTI_CONSTANT, NAN, 0, 0, 0, 0};
    assert_int_equal(tutti_schedule_rate(&schedule, 0, &rate), TUTTI_ERR_ARGUMENT);
    assert_true(rate == 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_pytorch),
        cmocka_unit_test(far_into_the_generator),
        cmocka_unit_test(goes_on_with_other_ranks),
        cmocka_unit_test(rates),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
