/* The simulator against times that can be worked out by hand. */
#include "base/clock.h"
#include "coll/algorithms/algorithms.h"
#include "plan/sim_model.h"
#include "tests/simulate/simple_algorithms.h"
#include "tests/tutti_cmocka.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double alpha = 2e-6, beta = 1e-10;

static struct tti_plan_spec spec_of(const struct tti_algorithm *algorithm, int nranks, int lanes)
{
    return (struct tti_plan_spec){
        .collective = algorithm->collective, .nranks = nranks, .lanes = lanes, .slices = 1};
}

/* One rank a host, one full-duplex port each: every pair has the same link. */
static struct tti_network uniform(int nranks)
{
    return (struct tti_network){.nranks = nranks,
                                .ranks_per_host = 1,
                                .nics = 1,
                                .intra = {alpha, beta},
                                .inter = {alpha, beta}};
}

static struct tti_network two_level(int nranks, int ranks_per_host, int nics)
{
    return (struct tti_network){.nranks = nranks,
                                .ranks_per_host = ranks_per_host,
                                .nics = nics,
                                .intra = {1e-6, 5e-12},
                                .inter = {5e-6, 4e-11},
                                .gamma = 1e-12,
                                .delta = 1e-12};
}

static struct tti_prediction predict(const struct tti_algorithm *algorithm,
                                     const struct tti_plan_spec *spec,
                                     const struct tti_network *network, size_t count,
                                     enum tutti_type type)
{
    struct tti_prediction prediction;
    memset(&prediction, 0, sizeof prediction);
    enum tutti_result result =
        tti_simulate(algorithm, spec, network, count, type, NULL, &prediction);
    if (result != TUTTI_OK)
        print_error("%s: %s\n", algorithm->name, tutti_last_error());
    assert_int_equal(result, TUTTI_OK);
    return prediction;
}

static void assert_close(double got, double want, double relative)
{
    if (fabs(got - want) > relative * fabs(want) + 1e-18)
        fail_msg("got %.12g, expected %.12g", got, want);
}

static const struct tti_algorithm *ring(void)
{
    const struct tti_algorithm *found = tti_algorithm_find(TUTTI_ALL_REDUCE, "ring");
    assert_non_null(found);
    return found;
}

static void ring_takes_the_formulas_time(void **state)
{
    (void)state;
    for (int n = 2; n <= 64; n += n < 10 ? 1 : 9) {
        size_t count = (size_t)n * 1024;
        double bytes = (double)count * 4, share = (n - 1.0) / n * bytes;
        struct tti_plan_spec spec = spec_of(ring(), n, 1);
        struct tti_network network = uniform(n);
        struct tti_prediction p = predict(ring(), &spec, &network, count, TUTTI_FLOAT32);
        assert_close(p.seconds, 2 * (n - 1) * alpha + 2 * share * beta, 1e-9);
        assert_close(p.seconds, ring()->cost(&spec, bytes, alpha, beta), 1e-9);
        assert_close(p.first, p.seconds, 1e-9);
        assert_int_equal(p.messages, 2 * (n - 1) * n);
        assert_int_equal(p.bytes_inter, (uint64_t)(2 * share * n));
        assert_int_equal(p.bytes_intra, 0);
        network.gamma = 3e-10;
        p = predict(ring(), &spec, &network, count, TUTTI_FLOAT32);
        assert_close(p.seconds, 2 * (n - 1) * alpha + share * (2 * beta + network.gamma), 1e-9);
    }
}

/* Algorithms whose closed formula is exact on a uniform full-duplex network, n a power of two. Not
 * here: trees and chains in slices, whose formulas charge a latency for every slice, while sends of
 * one rank overlap theirs; direct all-to-all, whose pairs meet in rounds that a busy port delays;
 * and scatter-gather broadcast, whose formula adds two halves that overlap. */
static const struct {
    enum tutti_collective collective;
    const char *name;
} exact[] = {
    {TUTTI_ALL_REDUCE, "ring"},
    {TUTTI_ALL_REDUCE, "recursive_doubling"},
    {TUTTI_ALL_REDUCE, "rabenseifner"},
    {TUTTI_ALL_REDUCE, "one_shot"},
    {TUTTI_ALL_REDUCE, "two_shot"},
    {TUTTI_REDUCE_SCATTER, "ring"},
    {TUTTI_REDUCE_SCATTER, "direct"},
    {TUTTI_REDUCE_SCATTER, "bruck"},
    {TUTTI_ALL_GATHER, "ring"},
    {TUTTI_ALL_GATHER, "direct"},
    {TUTTI_ALL_GATHER, "bruck"},
    {TUTTI_BROADCAST, "tree"},
    {TUTTI_REDUCE, "tree"},
    {TUTTI_REDUCE, "direct"},
    {TUTTI_GATHER, "direct"},
    {TUTTI_GATHER, "tree"},
    {TUTTI_SCATTER, "direct"},
    {TUTTI_SCATTER, "tree"},
    {TUTTI_BARRIER, "dissemination"},
    {TUTTI_BARRIER, "direct"},
};

static void closed_formulas_hold(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof exact / sizeof exact[0]; i++)
        for (int n = 4; n <= 64; n *= 4)
            for (size_t count = 16 * (size_t)n; count < 1000000; count *= 64) {
                const struct tti_algorithm *algorithm =
                    tti_algorithm_find(exact[i].collective, exact[i].name);
                assert_non_null(algorithm);
                struct tti_plan_spec spec = spec_of(algorithm, n, 1);
                struct tti_network network = uniform(n);
                size_t elements = exact[i].collective == TUTTI_BARRIER ? 0 : count;
                double got = predict(algorithm, &spec, &network, elements, TUTTI_FLOAT32).seconds;
                double want = algorithm->cost(&spec, (double)elements * 4, alpha, beta);
                if (fabs(got - want) > 0.01 * want)
                    print_error("%s %s, %d ranks, %zu elements\n",
                                tutti_collective_name(exact[i].collective), exact[i].name, n,
                                elements);
                assert_close(got, want, 0.01);
            }
}

static void textbook_algorithms_take_their_time(void **state)
{
    (void)state;
    size_t count = 4096;
    double bytes = (double)count * 4;
    for (int n = 2, lg = 1; n <= 64; n *= 2, lg++) {
        struct tti_network network = uniform(n);
        struct tti_plan_spec spec = spec_of(&simple_doubling, n, 1);
        double got = predict(&simple_doubling, &spec, &network, count, TUTTI_FLOAT32).seconds;
        assert_close(got, lg * (alpha + bytes * beta), 1e-9);
        spec = spec_of(&simple_one_shot, n, 1);
        got = predict(&simple_one_shot, &spec, &network, count, TUTTI_FLOAT32).seconds;
        assert_close(got, alpha + (n - 1) * bytes * beta, 1e-9);
        spec = spec_of(&simple_all_to_all, n, 1);
        got = predict(&simple_all_to_all, &spec, &network, count, TUTTI_FLOAT32).seconds;
        assert_close(got, alpha + (n - 1) * bytes * beta, 1e-9);
        spec = spec_of(&simple_chain, n, 1);
        spec.slices = 8;
        spec.root = n / 2;
        got = predict(&simple_chain, &spec, &network, count, TUTTI_FLOAT32).seconds;
        assert_close(got, (n - 1) * (alpha + bytes / 8 * beta) + 7 * bytes / 8 * beta, 1e-9);
    }
}

/* The period of a translating algorithm against all ranks. */
static void assert_quotient(const struct tti_algorithm *algorithm, int n, int ranks_per_host,
                            int nics, int lanes, size_t count)
{
    struct tti_algorithm whole = *algorithm;
    whole.translates = false;
    struct tti_plan_spec spec = spec_of(algorithm, n, lanes);
    struct tti_network network = two_level(n, ranks_per_host, nics);
    struct tti_prediction part = predict(algorithm, &spec, &network, count, TUTTI_FLOAT32);
    struct tti_prediction all = predict(&whole, &spec, &network, count, TUTTI_FLOAT32);
    assert_int_equal(all.simulated_ranks, n);
    bool one_host = ranks_per_host >= n;
    assert_int_equal(part.simulated_ranks,
                     one_host ? 1 : (n % ranks_per_host == 0 ? ranks_per_host : n));
    assert_close(part.seconds, all.seconds, 1e-9);
    assert_close(part.first, all.first, 1e-9);
    assert_int_equal(part.messages, all.messages);
    assert_int_equal(part.bytes_inter, all.bytes_inter);
    assert_int_equal(part.bytes_intra, all.bytes_intra);
}

static void one_period_stands_for_all(void **state)
{
    (void)state;
    static const int shapes[][3] = {{1, 1, 1},  {2, 1, 1},  {2, 2, 1},  {4, 2, 1},   {6, 3, 2},
                                    {8, 8, 1},  {9, 3, 1},  {12, 4, 2}, {16, 4, 4},  {16, 16, 1},
                                    {24, 8, 3}, {30, 5, 2}, {32, 8, 8}, {7, 4, 1},   {48, 6, 4},
                                    {64, 8, 8}, {64, 8, 1}, {64, 4, 2}, {64, 64, 1}, {64, 1, 3}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        int n = shapes[i][0], per_host = shapes[i][1], nics = shapes[i][2];
        for (int lanes = 1; lanes <= 3; lanes++) {
            size_t count = (size_t)(n * lanes) * 64; /* equal chunks */
            assert_quotient(ring(), n, per_host, nics, lanes, count);
            if (n > 1)
                assert_quotient(&simple_one_shot, n, per_host, nics, lanes, count);
            assert_quotient(&simple_all_to_all, n, per_host, nics, lanes, count);
        }
    }
}

/* Run whole, and as one host because the whole is said to be too much. */
static void assert_one_host(const struct tti_algorithm *algorithm, int nranks, int each, int nics,
                            size_t steps_max)
{
    int host_of[64];
    struct tti_plan_spec spec = spec_of(algorithm, nranks, 1);
    struct tti_network network = two_level(nranks, each, nics);
    struct tti_prediction host;
    size_t count = (size_t)nranks * 64;
    for (int rank = 0; rank < nranks; rank++)
        host_of[rank] = rank / each;
    spec.layout = (struct tti_layout){.nhosts = nranks / each, .host_of = host_of, .sorted = true};
    memset(&host, 0, sizeof host);
    struct tti_prediction all = predict(algorithm, &spec, &network, count, TUTTI_FLOAT32);
    assert_int_equal(
        sim_predict(algorithm, &spec, &network, count, TUTTI_FLOAT32, NULL, steps_max, &host),
        TUTTI_OK);
    assert_int_equal(all.simulated_ranks, nranks);
    assert_int_equal(host.simulated_ranks, each);
    assert_close(host.seconds, all.seconds, 1e-9);
    assert_int_equal(host.messages, all.messages);
    assert_int_equal(host.bytes_inter, all.bytes_inter);
    assert_int_equal(host.bytes_intra, all.bytes_intra);
}

/* Algorithms that do not claim to translate, but look the same from every host. */
static void hosts_that_are_alike_are_run_once(void **state)
{
    (void)state;
    struct tti_algorithm silent = *ring();
    const struct tti_algorithm *two_levels = tti_algorithm_find(TUTTI_ALL_REDUCE, "hierarchical");
    silent.translates = false;
    assert_non_null(two_levels);
    assert_one_host(&silent, 24, 8, 3, 24 * 47 - 1);
    assert_one_host(two_levels, 24, 4, 4, 4 * 40);
    assert_one_host(two_levels, 64, 8, 2, 8 * 60);
    struct tti_plan_spec spec = spec_of(&simple_pairwise, 16, 1);
    struct tti_network network = two_level(16, 4, 4);
    struct tti_prediction none;
    assert_int_equal(sim_predict(&simple_pairwise, &spec, &network, 1024, TUTTI_FLOAT32, NULL,
                                 16 * 46 - 1, &none),
                     TUTTI_ERR_UNSUPPORTED);
}

/* Every translating algorithm of the table, on a few shapes. */
static void translating_algorithms_agree(void **state)
{
    (void)state;
    int checked = 0;
    for (int c = 0; c < TUTTI_COLLECTIVE_COUNT; c++)
        for (int i = 0; tti_algorithm_at((enum tutti_collective)c, i); i++) {
            const struct tti_algorithm *algorithm = tti_algorithm_at((enum tutti_collective)c, i);
            struct tti_plan_spec spec = spec_of(algorithm, 24, 1);
            if (!algorithm->translates || (algorithm->applicable && !algorithm->applicable(&spec)))
                continue;
            if (c == TUTTI_BROADCAST || c == TUTTI_REDUCE || c == TUTTI_GATHER ||
                c == TUTTI_SCATTER || c == TUTTI_SEND_RECV)
                continue; /* rooted ones are always run whole */
            assert_quotient(algorithm, 24, 8, 2, 1, 24 * 64);
            assert_quotient(algorithm, 24, 4, 4, 2, 48 * 64);
            assert_quotient(algorithm, 9, 1, 1, 1, 9 * 64);
            checked++;
        }
    assert_true(checked > 0);
}

/* Chunks of unequal size: the largest one decides, and the ring passes it everywhere. */
static void unequal_chunks_take_the_largest_ones_time(void **state)
{
    (void)state;
    struct tti_algorithm whole = *ring();
    whole.translates = false;
    for (int n = 2; n <= 24; n++) {
        struct tti_plan_spec spec = spec_of(ring(), n, 1);
        struct tti_network network = uniform(n);
        double part = predict(ring(), &spec, &network, 1000, TUTTI_FLOAT32).seconds;
        double all = predict(&whole, &spec, &network, 1000, TUTTI_FLOAT32).seconds;
        double largest = (double)tti_chunk_largest(1000, 4, (uint32_t)n) * 4;
        assert_close(part, 2 * (n - 1) * (alpha + largest * beta), 1e-9);
        assert_close(part, all, 1e-9);
    }
}

static void accumulators_are_larger(void **state)
{
    (void)state;
    struct tti_plan_spec spec = spec_of(ring(), 8, 1);
    struct tti_network network = uniform(8);
    uint64_t half = predict(ring(), &spec, &network, 8192, TUTTI_BFLOAT16).bytes_inter;
    uint64_t eighth = predict(ring(), &spec, &network, 8192, TUTTI_FLOAT8_E4M3).bytes_inter;
    uint64_t integer = predict(ring(), &spec, &network, 8192, TUTTI_INT8).bytes_inter;
    /* Of the 14 messages of a rank, 6 carry partial sums. */
    assert_int_equal(half, 8 * 1024 * (8 * 2 + 6 * 4));
    assert_int_equal(eighth, 8 * 1024 * (8 * 1 + 6 * 4));
    assert_int_equal(integer, 8 * 1024 * 14);
}

static void hosts_share_their_ports(void **state)
{
    (void)state;
    /* 2 hosts of 4: every rank sends its block to the 4 of the other host. */
    struct tti_plan_spec spec = spec_of(&simple_all_to_all, 8, 1);
    size_t count = 1 << 20;
    double bytes = (double)count * 4;
    for (int nics = 1; nics <= 4; nics *= 2) {
        struct tti_network network = two_level(8, 4, nics);
        double got = predict(&simple_all_to_all, &spec, &network, count, TUTTI_FLOAT32).seconds;
        double least = 16 / nics * bytes * network.inter.beta + network.inter.alpha;
        assert_true(got >= least);
        /* With a port each, all four ranks of a host begin with the same rank of the other: its
         * port takes them in turn, and the last of the four is done after 7 turns, not 4. */
        assert_true(got < (nics == 4 ? 1.8 : 1.2) * least);
    }
}

static void more_bytes_or_latency_is_never_faster(void **state)
{
    (void)state;
    const struct tti_algorithm *algorithms[] = {ring(), &simple_doubling, &simple_one_shot,
                                                &simple_chain, &simple_all_to_all};
    for (size_t i = 0; i < sizeof algorithms / sizeof algorithms[0]; i++) {
        struct tti_plan_spec spec = spec_of(algorithms[i], 32, 1);
        struct tti_network network = two_level(32, 8, 4);
        double before = 0;
        for (size_t count = 0; count < (size_t)1 << 24; count = count ? 4 * count : 1) {
            double now = predict(algorithms[i], &spec, &network, count, TUTTI_FLOAT32).seconds;
            assert_true(now >= before);
            before = now;
        }
        before = 0;
        for (network.inter.alpha = 0; network.inter.alpha < 1e-3;
             network.inter.alpha = 4 * network.inter.alpha + 1e-6) {
            double now = predict(algorithms[i], &spec, &network, 65536, TUTTI_FLOAT32).seconds;
            assert_true(now >= before);
            before = now;
        }
    }
}

static void hazards_wait_for_the_receiver(void **state)
{
    (void)state;
    struct tti_plan_spec spec = spec_of(&simple_one_slot, 2, 1);
    struct tti_network network = uniform(2);
    size_t count = 1 << 16;
    double half = (double)count * 2, wire = half * beta, copy = half * 3e-11;
    network.delta = 3e-11;
    double one = predict(&simple_one_slot, &spec, &network, count, TUTTI_FLOAT32).seconds;
    double two = predict(&simple_two_slots, &spec, &network, count, TUTTI_FLOAT32).seconds;
    assert_close(one, 2 * (copy + alpha + wire), 1e-9);
    assert_close(two, copy + alpha + 2 * wire, 1e-9); /* copy < wire: the port is the limit */
}

static void expect_error(const struct tti_algorithm *algorithm, const struct tti_plan_spec *spec,
                         const struct tti_network *network, enum tutti_result want,
                         const char *text)
{
    struct tti_prediction prediction = {.seconds = -7};
    assert_int_equal(tti_simulate(algorithm, spec, network, 1024, TUTTI_FLOAT32, NULL, &prediction),
                     want);
    if (!strstr(tutti_last_error(), text))
        fail_msg("\"%s\" does not mention \"%s\"", tutti_last_error(), text);
    assert_true(prediction.seconds == -7);
}

static void wrong_plans_are_reported(void **state)
{
    (void)state;
    struct tti_plan_spec spec = spec_of(&simple_deadlock, 3, 1);
    struct tti_network network = uniform(3);
    expect_error(&simple_deadlock, &spec, &network, TUTTI_ERR_INTERNAL,
                 "deadlocks: rank 0, lane 0, step 0 waits for a message from rank 2");
    spec = spec_of(&simple_unreceived, 2, 1);
    network = uniform(2);
    expect_error(&simple_unreceived, &spec, &network, TUTTI_ERR_INTERNAL,
                 "a message to rank 1 on lane 0 is never received");
}

static void bad_networks_are_refused(void **state)
{
    (void)state;
    struct tti_plan_spec spec = spec_of(ring(), 4, 1);
    struct tti_network network = uniform(5);
    expect_error(ring(), &spec, &network, TUTTI_ERR_ARGUMENT, "5 ranks");
    network = uniform(4);
    network.nics = 0;
    expect_error(ring(), &spec, &network, TUTTI_ERR_ARGUMENT, "network ports");
    network = uniform(4);
    network.inter.beta = -1;
    expect_error(ring(), &spec, &network, TUTTI_ERR_ARGUMENT, "not negative");
}

/* 65,536 ranks: one period is quick, and what cannot be done is refused before it is begun. */
static void large_networks_answer_quickly(void **state)
{
    (void)state;
    struct tti_plan_spec spec = spec_of(ring(), 65536, 1);
    struct tti_network network = uniform(65536);
    uint64_t limit = tti_deadline_in(50);
    size_t count = (size_t)65536 * 16;
    struct tti_prediction p = predict(ring(), &spec, &network, count, TUTTI_FLOAT32);
    assert_int_equal(p.simulated_ranks, 1);
    assert_close(p.seconds, 2 * 65535 * (alpha + 64 * beta), 1e-6);
    spec = spec_of(&simple_pairwise, 65536, 1);
    expect_error(&simple_pairwise, &spec, &network, TUTTI_ERR_UNSUPPORTED,
                 "all_to_all pairwise on 65536 ranks: that is about 1.3e+10 steps");
    spec = spec_of(&simple_doubling, 65536, 1);
    p = predict(&simple_doubling, &spec, &network, count, TUTTI_FLOAT32);
    assert_close(p.seconds, 16 * (alpha + (double)count * 4 * beta), 1e-9);
    assert_false(tti_deadline_passed(limit));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_takes_the_formulas_time),
        cmocka_unit_test(closed_formulas_hold),
        cmocka_unit_test(textbook_algorithms_take_their_time),
        cmocka_unit_test(one_period_stands_for_all),
        cmocka_unit_test(hosts_that_are_alike_are_run_once),
        cmocka_unit_test(translating_algorithms_agree),
        cmocka_unit_test(unequal_chunks_take_the_largest_ones_time),
        cmocka_unit_test(accumulators_are_larger),
        cmocka_unit_test(hosts_share_their_ports),
        cmocka_unit_test(more_bytes_or_latency_is_never_faster),
        cmocka_unit_test(hazards_wait_for_the_receiver),
        cmocka_unit_test(wrong_plans_are_reported),
        cmocka_unit_test(bad_networks_are_refused),
        cmocka_unit_test(large_networks_answer_quickly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
