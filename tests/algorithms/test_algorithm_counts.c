/* Steps and bytes of the algorithms against what the literature says (the formulas of
 * coll/algorithms/README.md, written down again here): latencies one after another by the
 * simulator on a network where only latency costs time, bytes by counting what each rank sends. */
#include "coll/algorithms/algorithms.h"
#include "plan/simulate.h"
#include "tests/tutti_cmocka.h"

#include <math.h>
#include <stdlib.h>

static double one(double n)
{
    return n > 1 ? 1 : 0;
}
static double two(double n)
{
    return n > 1 ? 2 : 0;
}
static double n_1(double n)
{
    return n - 1;
}
static double twice_n_1(double n)
{
    return 2 * (n - 1);
}
static double rounds(double n)
{
    return ceil(log2(n));
}
static double twice_rounds(double n)
{
    return 2 * ceil(log2(n));
}
static double fraction(double n)
{
    return 2 * (n - 1) / n;
}
static double double_tree(double n)
{
    return n > 1 ? 2 * floor(log2(n)) : 0;
}
static double bruck_moves(double n)
{
    double moves = 0;
    for (int step = 1; step < (int)n; step *= 2)
        for (int i = 0; i < (int)n; i++)
            moves += (i & step) != 0;
    return moves;
}

struct expectation {
    enum tutti_collective collective;
    const char *name;
    double (*steps)(double n);  /* latencies from start to end */
    double (*blocks)(double n); /* sent by the busiest rank */
    bool powers_only;           /* holds for powers of two */
    bool cost_too;              /* and the algorithm's own formula says the same */
};

/* Of a rank between two others. */
static double up_and_down(double n)
{
    return n > 2 ? 2 : n - 1;
}

static const struct expectation expectations[] = {
    {TUTTI_ALL_REDUCE, "ring", twice_n_1, fraction, false, true},
    {TUTTI_ALL_REDUCE, "tree", double_tree, NULL, false, false},
    {TUTTI_ALL_REDUCE, "recursive_doubling", rounds, rounds, true, true},
    {TUTTI_ALL_REDUCE, "rabenseifner", twice_rounds, fraction, true, true},
    {TUTTI_ALL_REDUCE, "one_shot", one, n_1, false, true},
    {TUTTI_ALL_REDUCE, "two_shot", two, fraction, false, true},
    {TUTTI_ALL_REDUCE, "hierarchical", two, fraction, false, true},
    {TUTTI_ALL_REDUCE, "hierarchical_halving", two, fraction, false, true},
    {TUTTI_ALL_REDUCE, "ordered_chain", twice_n_1, up_and_down, false, false},
    {TUTTI_ALL_REDUCE, "ordered_bruck", rounds, n_1, false, true},
    {TUTTI_BROADCAST, "chain", n_1, one, false, false},
    {TUTTI_BROADCAST, "tree", rounds, rounds, true, true},
    {TUTTI_BROADCAST, "scatter_gather", NULL, fraction, false, false},
    {TUTTI_REDUCE, "chain", n_1, one, false, false},
    {TUTTI_REDUCE, "tree", rounds, one, true, false},
    {TUTTI_REDUCE, "direct", one, one, false, false},
    {TUTTI_REDUCE_SCATTER, "ring", n_1, n_1, false, true},
    {TUTTI_REDUCE_SCATTER, "direct", one, n_1, false, true},
    {TUTTI_REDUCE_SCATTER, "bruck", rounds, n_1, false, true},
    {TUTTI_REDUCE_SCATTER, "hierarchical", NULL, NULL, false, false}, /* below */
    {TUTTI_ALL_GATHER, "ring", n_1, n_1, false, true},
    {TUTTI_ALL_GATHER, "direct", one, n_1, false, true},
    {TUTTI_ALL_GATHER, "bruck", rounds, n_1, false, true},
    {TUTTI_ALL_GATHER, "hierarchical", NULL, NULL, false, false}, /* below */
    {TUTTI_ALL_TO_ALL, "direct", one, n_1, false, true},
    {TUTTI_ALL_TO_ALL, "bruck", rounds, bruck_moves, false, true},
    {TUTTI_GATHER, "direct", one, one, false, false},
    {TUTTI_GATHER, "tree", rounds, NULL, true, false},
    {TUTTI_SCATTER, "direct", one, n_1, false, true},
    {TUTTI_SCATTER, "tree", rounds, n_1, true, true},
    {TUTTI_BARRIER, "dissemination", rounds, rounds, false, true},
    {TUTTI_BARRIER, "direct", one, n_1, false, true},
};
enum { EXPECTATIONS = sizeof expectations / sizeof expectations[0] };

static struct tti_plan_spec spec_of(enum tutti_collective collective, int nranks, int slices)
{
    return (struct tti_plan_spec){.collective = collective,
                                  .nranks = nranks,
                                  .lanes = 1,
                                  .slices = slices,
                                  .layout = {.nhosts = 1}};
}

static const struct tti_algorithm *find(const struct expectation *expected)
{
    const struct tti_algorithm *algorithm =
        tti_algorithm_find(expected->collective, expected->name);
    if (!algorithm)
        fail_msg("no %s %s", tutti_collective_name(expected->collective), expected->name);
    return algorithm;
}

/* Blocks that `rank` sends. */
static double sent(const struct tti_algorithm *algorithm, struct tti_plan_spec spec, int rank)
{
    struct tti_plan *plan = NULL;
    spec.rank = rank;
    assert_int_equal(algorithm->plan(&spec, &plan), TUTTI_OK);
    double chunks = 0;
    for (int lane = 0; lane < plan->nlanes; lane++)
        for (size_t s = 0; s < plan->lanes[lane].count; s++)
            if (plan->lanes[lane].steps[s].to >= 0)
                chunks += plan->lanes[lane].steps[s].nchunks;
    double blocks = chunks / plan->chunks;
    tti_plan_destroy(plan);
    return blocks;
}

/* Time on a network of one host where only links cost, for blocks of COUNT float32. */
enum { COUNT = 40320 };
static double seconds(const struct tti_algorithm *algorithm, const struct tti_plan_spec *spec,
                      double alpha, double beta)
{
    struct tti_network network = {.nranks = spec->nranks,
                                  .ranks_per_host = spec->nranks,
                                  .nics = 1,
                                  .intra = {alpha, beta},
                                  .inter = {alpha, beta}};
    struct tti_prediction prediction;
    if (tti_simulate(algorithm, spec, &network, COUNT, TUTTI_FLOAT32, NULL, &prediction) !=
        TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    return prediction.seconds;
}

static void expect(const struct expectation *expected, const char *what, int n, double value,
                   double wanted)
{
    if (fabs(value - wanted) > 1e-9 * (wanted + 1))
        fail_msg("%s %s, %d ranks: %s %g, expected %g", tutti_collective_name(expected->collective),
                 expected->name, n, what, value, wanted);
}

static void formulas(void **state)
{
    (void)state;
    for (int i = 0; i < EXPECTATIONS; i++)
        for (int n = 1; n <= 40; n++) {
            const struct expectation *expected = &expectations[i];
            if (expected->powers_only && (n & (n - 1)) != 0)
                continue;
            const struct tti_algorithm *algorithm = find(expected);
            struct tti_plan_spec spec = spec_of(expected->collective, n, 1);
            if (algorithm->applicable && !algorithm->applicable(&spec))
                continue;
            double most = 0;
            for (int rank = 0; rank < n; rank++)
                most = fmax(most, sent(algorithm, spec, rank));
            if (expected->steps)
                expect(expected, "latencies", n, seconds(algorithm, &spec, 1, 0),
                       expected->steps(n));
            if (expected->blocks)
                expect(expected, "blocks sent", n, most, expected->blocks(n));
            if (!expected->cost_too)
                continue;
            expect(expected, "latencies by its formula", n, algorithm->cost(&spec, 0, 1, 0),
                   expected->steps(n));
            expect(expected, "blocks by its formula", n, algorithm->cost(&spec, 1, 0, 1),
                   expected->blocks(n));
        }
}

/* Every algorithm is named above, and its formula gives a time that grows with the size. */
static void all_listed(void **state)
{
    (void)state;
    int count = 0;
    for (int c = 0; c < TUTTI_COLLECTIVE_COUNT; c++) {
        const struct tti_algorithm *algorithm;
        for (int i = 0; (algorithm = tti_algorithm_at((enum tutti_collective)c, i)); i++, count++) {
            struct tti_plan_spec spec = spec_of((enum tutti_collective)c, 12, 4);
            double small = algorithm->cost(&spec, 8, 1e-6, 1e-9);
            double large = algorithm->cost(&spec, 8e6, 1e-6, 1e-9);
            assert_true(small > 0);
            assert_true(large > small);
            assert_non_null(algorithm->summary);
            assert_ptr_equal(tti_algorithm_find((enum tutti_collective)c, algorithm->name),
                             algorithm);
        }
    }
    assert_int_equal(count, EXPECTATIONS);
}

/* Slices overlap as the formulas say: the transfer time of a chain falls from n - 1 blocks towards
 * one. The trees stay below their formula. */
static void pipelines(void **state)
{
    (void)state;
    const struct tti_algorithm *chain = tti_algorithm_find(TUTTI_BROADCAST, "chain");
    const struct tti_algorithm *back = tti_algorithm_find(TUTTI_REDUCE, "chain");
    const struct tti_algorithm *tree = tti_algorithm_find(TUTTI_ALL_REDUCE, "tree");
    double bytes = COUNT * 4.0;
    for (int n = 2; n <= 64; n = n * 3 / 2 + 1)
        for (int slices = 1; slices <= 30; slices *= 3) {
            struct tti_plan_spec spec = spec_of(TUTTI_BROADCAST, n, slices);
            double wanted = chain->cost(&spec, bytes, 0, 1);
            double there = seconds(chain, &spec, 0, 1);
            spec.collective = TUTTI_REDUCE;
            double got = seconds(back, &spec, 0, 1);
            if (fabs(there - wanted) > 0.03 * wanted || fabs(got - wanted) > 0.03 * wanted)
                fail_msg("chain, %d ranks, %d slices: broadcast %g, reduce %g, formula %g", n,
                         slices, there, got, wanted);
            spec.collective = TUTTI_ALL_REDUCE;
            wanted = tree->cost(&spec, bytes, 1e3, 1);
            got = seconds(tree, &spec, 1e3, 1);
            if (got > wanted)
                fail_msg("all_reduce tree, %d ranks, %d slices: %g, formula %g", n, slices, got,
                         wanted);
        }
}

/* Two trees share the work: nobody sends more than two blocks, whatever n. */
static void tree_bytes(void **state)
{
    (void)state;
    const struct tti_algorithm *tree = tti_algorithm_find(TUTTI_ALL_REDUCE, "tree");
    assert_non_null(tree);
    for (int n = 2; n <= 200; n++) {
        struct tti_plan_spec spec = spec_of(TUTTI_ALL_REDUCE, n, 4);
        double all = 0;
        for (int rank = 0; rank < n; rank++) {
            double blocks = sent(tree, spec, rank);
            all += blocks;
            if (blocks > 2)
                fail_msg("%d ranks: rank %d sends %g blocks", n, rank, blocks);
        }
        assert_true(fabs(all - 2 * (n - 1)) < 1e-9 * n);
    }
}

/* What crosses hosts is one operation's traffic between as many ranks as there are hosts, spread
 * over the ranks of a host: in `steps` steps, and `inside` more there, so many blocks. */
static void between_hosts(enum tutti_collective collective, const char *name, double steps,
                          double inside, size_t blocks)
{
    const struct tti_algorithm *algorithm = tti_algorithm_find(collective, name);
    assert_non_null(algorithm);
    enum { HOSTS = 8, EACH = 4, RANKS = HOSTS * EACH };
    int host_of[RANKS];
    for (int r = 0; r < RANKS; r++)
        host_of[r] = r / EACH;
    struct tti_plan_spec spec = spec_of(collective, RANKS, 1);
    spec.layout = (struct tti_layout){.nhosts = HOSTS, .host_of = host_of, .sorted = true};
    struct tti_network network = {
        .nranks = RANKS, .ranks_per_host = EACH, .nics = 1, .intra = {0, 0}, .inter = {1, 0}};
    struct tti_prediction prediction;
    size_t count = (size_t)16 * RANKS * 100;
    assert_int_equal(
        tti_simulate(algorithm, &spec, &network, count, TUTTI_FLOAT32, NULL, &prediction),
        TUTTI_OK);
    assert_true(fabs(prediction.seconds - steps) < 1e-9);
    assert_true(fabs(algorithm->cost(&spec, 0, 1, 0) - (inside + steps)) < 1e-9);
    assert_int_equal(prediction.bytes_inter, blocks * count * 4);
}

static void hierarchical_between_hosts(void **state)
{
    (void)state;
    between_hosts(TUTTI_ALL_REDUCE, "hierarchical", 14, 2, 2 * 7);
    between_hosts(TUTTI_ALL_REDUCE, "hierarchical_halving", 6, 2, 2 * 7);
    between_hosts(TUTTI_ALL_GATHER, "hierarchical", 7, 1, 7 * 32);
    between_hosts(TUTTI_REDUCE_SCATTER, "hierarchical", 7, 1, 7 * 32);
}

/* Blocks of all ranks that leave where they are. */
static double leaving(enum tutti_collective collective, const char *name, int root,
                      const struct tti_layout *layout, int nranks, const int *where)
{
    const struct tti_algorithm *algorithm = tti_algorithm_find(collective, name);
    struct tti_plan_spec spec = spec_of(collective, nranks, 1);
    double chunks = 0;
    assert_non_null(algorithm);
    spec.layout = *layout;
    spec.root = root;
    for (spec.rank = 0; spec.rank < nranks; spec.rank++) {
        struct tti_plan *plan = NULL;
        assert_int_equal(algorithm->plan(&spec, &plan), TUTTI_OK);
        for (size_t s = 0; s < plan->lanes[0].count; s++) {
            const struct tti_step *step = &plan->lanes[0].steps[s];
            if (step->to >= 0 && where[step->to] != where[spec.rank])
                chunks += (double)step->nchunks / plan->chunks;
        }
        tti_plan_destroy(plan);
    }
    return chunks;
}

/* Blocks of all ranks that leave their hosts, or their nodes where there is but one host. */
static double crossing(enum tutti_collective collective, const char *name, int root,
                       const struct tti_layout *layout, int nranks)
{
    return leaving(collective, name, root, layout, nranks,
                   layout->host_of ? layout->host_of : layout->near[TTI_NEAR_NODE].of);
}

/* Rings and chains pass through a host once, and trees enter it once, whatever numbers its ranks
 * have; and so a node of a host. */
static void passes_once(void **state)
{
    (void)state;
    enum { HOSTS = 4, EACH = 4, RANKS = HOSTS * EACH };
    int blocks[RANKS], dealt[RANKS];
    for (int r = 0; r < RANKS; r++) {
        blocks[r] = r / EACH;
        dealt[r] = r % HOSTS;
    }
    const struct tti_layout layouts[] = {
        {.nhosts = HOSTS, .host_of = blocks, .sorted = true},
        {.nhosts = HOSTS, .host_of = dealt},
        {.nhosts = 1, .sorted = true, .near[TTI_NEAR_NODE] = {HOSTS, dealt}},
    };
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (int root = 0; root < RANKS; root += 5) {
            const struct tti_layout *layout = &layouts[i];
            const double ring = HOSTS * (RANKS - 1), once = HOSTS - 1;
            assert_true(crossing(TUTTI_ALL_GATHER, "ring", 0, layout, RANKS) == ring);
            assert_true(crossing(TUTTI_REDUCE_SCATTER, "ring", 0, layout, RANKS) == ring);
            assert_true(crossing(TUTTI_ALL_REDUCE, "ring", 0, layout, RANKS) == 2 * ring / RANKS);
            assert_true(crossing(TUTTI_BROADCAST, "chain", root, layout, RANKS) == once);
            assert_true(crossing(TUTTI_REDUCE, "chain", root, layout, RANKS) == once);
            assert_true(crossing(TUTTI_BROADCAST, "tree", root, layout, RANKS) == once);
            assert_true(crossing(TUTTI_REDUCE, "tree", root, layout, RANKS) == once);
            if (!layout->host_of)
                continue;
            assert_true(crossing(TUTTI_ALL_GATHER, "hierarchical", 0, layout, RANKS) ==
                        (HOSTS - 1) * RANKS);
            assert_true(crossing(TUTTI_REDUCE_SCATTER, "hierarchical", 0, layout, RANKS) ==
                        (HOSTS - 1) * RANKS);
        }
}

/* Two hosts of two nodes of two caches of two ranks, all dealt out in turn: a chain enters each of
 * them once, whatever its root. */
static void passes_each_level_once(void **state)
{
    (void)state;
    enum { RANKS = 16 };
    int host[RANKS], node[RANKS], cache[RANKS];
    for (int r = 0; r < RANKS; r++) {
        host[r] = r % 2;
        node[r] = r % 4; /* 0 and 2 on host 0 */
        cache[r] = r % 8;
    }
    const struct tti_layout layout = {.nhosts = 2,
                                      .host_of = host,
                                      .near[TTI_NEAR_NODE] = {4, node},
                                      .near[TTI_NEAR_CACHE] = {8, cache}};
    for (int root = 0; root < RANKS; root++) {
        assert_true(leaving(TUTTI_BROADCAST, "chain", root, &layout, RANKS, host) == 1);
        assert_true(leaving(TUTTI_BROADCAST, "chain", root, &layout, RANKS, node) == 3);
        assert_true(leaving(TUTTI_BROADCAST, "chain", root, &layout, RANKS, cache) == 7);
        assert_true(leaving(TUTTI_REDUCE, "chain", root, &layout, RANKS, cache) == 7);
    }
}

/* Between hosts a rank talks to those with its number there, whatever is near them. */
static void columns_keep_their_number(void **state)
{
    static const char *const name = "hierarchical";
    (void)state;
    enum { HOSTS = 3, EACH = 4, RANKS = HOSTS * EACH };
    int host[RANKS], node[RANKS], number[RANKS];
    for (int r = 0; r < RANKS; r++) {
        host[r] = r / EACH;
        node[r] = r < EACH ? r / 2 : 2 * host[r] + r % 2;
        number[r] = r % EACH;
    }
    const struct tti_layout layout = {
        .nhosts = HOSTS, .host_of = host, .sorted = true, .near[TTI_NEAR_NODE] = {6, node}};
    for (int scatters = 0; scatters < 2; scatters++) {
        const struct tti_algorithm *algorithm =
            tti_algorithm_find(scatters ? TUTTI_REDUCE_SCATTER : TUTTI_ALL_GATHER, name);
        struct tti_plan_spec spec = spec_of(algorithm->collective, RANKS, 1);
        spec.layout = layout;
        int between = 0;
        for (spec.rank = 0; spec.rank < RANKS; spec.rank++) {
            struct tti_plan *plan = NULL;
            assert_int_equal(algorithm->plan(&spec, &plan), TUTTI_OK);
            for (int i = 0; i < plan->npeers; i++) {
                const int peer = plan->peers[i];
                between += host[peer] != host[spec.rank];
                assert_true(host[peer] == host[spec.rank] || number[peer] == number[spec.rank]);
            }
            tti_plan_destroy(plan);
        }
        assert_true(between > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formulas),
        cmocka_unit_test(all_listed),
        cmocka_unit_test(pipelines),
        cmocka_unit_test(tree_bytes),
        cmocka_unit_test(hierarchical_between_hosts),
        cmocka_unit_test(passes_once),
        cmocka_unit_test(passes_each_level_once),
        cmocka_unit_test(columns_keep_their_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
