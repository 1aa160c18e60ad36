/* Lanes of rings and chains where ranks leave their hosts by several NICs
 * (coll/algorithms/order.h): each NIC carries as much, both ways; from host to host they go by NICs
 * of the same number; and the simulator sees what that is worth. */
#include "coll/algorithms/algorithms.h"
#include "plan/simulate.h"
#include "tests/tutti_cmocka.h"

#include <stdlib.h>

enum { MOST_RANKS = 32 };

/* `hosts` hosts of `each` ranks, which are dealt out to `nics` NICs. */
struct place {
    int hosts, each, nics;
    int host_of[MOST_RANKS], gate_of[MOST_RANKS];
};

static struct tti_plan_spec spec_at(struct place *place, const struct tti_algorithm *algorithm,
                                    int root)
{
    const int nranks = place->hosts * place->each;
    for (int r = 0; r < nranks; r++) {
        place->host_of[r] = r / place->each;
        place->gate_of[r] = place->host_of[r] * place->nics + r % place->each % place->nics;
    }
    return (struct tti_plan_spec){
        .collective = algorithm->collective,
        .nranks = nranks,
        .root = root,
        .lanes = place->nics,
        .slices = algorithm->sliced ? 4 : 1,
        .layout = {.nhosts = place->hosts,
                   .host_of = place->host_of,
                   .sorted = true,
                   .gates = {place->hosts * place->nics, place->nics, place->gate_of}}};
}

/* What passes each gate, in blocks. */
struct passed {
    double in[MOST_RANKS], out[MOST_RANKS];
    int across; /* messages between gates of other numbers on their hosts */
};

static struct passed passed_in(const struct place *place, const struct tti_algorithm *algorithm,
                               const struct tti_plan_spec *spec)
{
    struct passed passed = {.across = 0};
    for (int r = 0; r < spec->nranks; r++) {
        struct tti_plan_spec own = *spec;
        struct tti_plan *plan = NULL;
        own.rank = r;
        assert_int_equal(algorithm->plan(&own, &plan), TUTTI_OK);
        for (int lane = 0; lane < plan->nlanes; lane++)
            for (size_t s = 0; s < plan->lanes[lane].count; s++) {
                const struct tti_step *step = &plan->lanes[lane].steps[s];
                const double part = (double)step->nchunks / plan->chunks;
                const bool leaves = step->to >= 0 && place->host_of[step->to] != place->host_of[r];
                if (leaves) {
                    passed.out[place->gate_of[r]] += part;
                    passed.across +=
                        place->gate_of[step->to] % place->nics != place->gate_of[r] % place->nics;
                }
                if (step->from >= 0 && place->host_of[step->from] != place->host_of[r])
                    passed.in[place->gate_of[r]] += part;
            }
        tti_plan_destroy(plan);
    }
    return passed;
}

static const struct {
    enum tutti_collective collective;
    const char *name;
    bool rooted;
} turning[] = {
    {TUTTI_ALL_REDUCE, "ring", false},     {TUTTI_ALL_GATHER, "ring", false},
    {TUTTI_REDUCE_SCATTER, "ring", false}, {TUTTI_BROADCAST, "chain", true},
    {TUTTI_REDUCE, "chain", true},
};
enum { TURNING = sizeof turning / sizeof turning[0] };

static void each_place(void (*visit)(struct place *place))
{
    for (int hosts = 2; hosts <= 4; hosts++)
        for (int each = 2; each <= 8; each++)
            for (int nics = 2; nics <= each; nics++)
                visit(&(struct place){.hosts = hosts, .each = each, .nics = nics});
}

static void check_alike(struct place *place)
{
    for (size_t i = 0; i < TURNING; i++) {
        const struct tti_algorithm *algorithm =
            tti_algorithm_find(turning[i].collective, turning[i].name);
        assert_non_null(algorithm);
        assert_true(algorithm->turns);
        const int roots = turning[i].rooted ? place->hosts * place->each : 1;
        for (int root = 0; root < roots; root++) {
            const struct tti_plan_spec spec = spec_at(place, algorithm, root);
            const struct passed passed = passed_in(place, algorithm, &spec);
            double most = 0, least = 1e9;
            for (int gate = 0; gate < place->hosts * place->nics; gate++) {
                const double in = passed.in[gate], out = passed.out[gate];
                most = in > most ? in : most;
                most = out > most ? out : most;
                least = in < least ? in : least;
                least = out < least ? out : least;
            }
            /* A block passes each host once, by all of its NICs together; what goes around does so
             * alike. */
            const bool alike = turning[i].rooted ? most <= 1.0 / place->nics + 1e-9
                                                 : most > 0 && most - least < 1e-9;
            if (!alike)
                fail_msg("%s %s, %d hosts of %d ranks and %d NICs, root %d: %g to %g blocks",
                         tutti_collective_name(turning[i].collective), turning[i].name,
                         place->hosts, place->each, place->nics, root, least, most);
        }
    }
}

static void each_nic_carries_alike(void **state)
{
    (void)state;
    each_place(check_alike);
}

static void check_numbers(struct place *place)
{
    for (size_t i = 0; i < TURNING && place->hosts % 2 == 0; i++) {
        const struct tti_algorithm *algorithm =
            tti_algorithm_find(turning[i].collective, turning[i].name);
        for (int root = 0; root < (turning[i].rooted ? place->each : 1); root++) {
            const struct tti_plan_spec spec = spec_at(place, algorithm, root);
            const struct passed passed = passed_in(place, algorithm, &spec);
            if (passed.across > 0)
                fail_msg("%s %s, %d hosts of %d ranks and %d NICs, root %d: %d messages go from "
                         "one NIC to another",
                         tutti_collective_name(turning[i].collective), turning[i].name,
                         place->hosts, place->each, place->nics, root, passed.across);
        }
    }
}

/* ... which may be the only ones that are on one network. */
static void from_a_nic_to_its_like(void **state)
{
    (void)state;
    each_place(check_numbers);
}

static double seconds(struct place *place, const struct tti_algorithm *algorithm, bool gates)
{
    struct tti_plan_spec spec = spec_at(place, algorithm, 0);
    struct tti_prediction prediction;
    const struct tti_network network = {.nranks = spec.nranks,
                                        .ranks_per_host = place->each,
                                        .nics = place->nics,
                                        .intra = {1e-6, 1e-9 / 4000},
                                        .inter = {5e-6, 1e-9 / 50}};
    spec.slices = algorithm->sliced ? 64 : 1;
    if (!gates)
        spec.layout.gates = (struct tti_gates){0};
    if (tti_simulate(algorithm, &spec, &network, (size_t)64 << 20, TUTTI_FLOAT32, NULL,
                     &prediction) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    return prediction.seconds;
}

/* Lines bind, so four NICs take a quarter of the time, but for what it takes to begin and end. */
static void four_nics_take_a_quarter(void **state)
{
    (void)state;
    for (size_t i = 0; i < TURNING; i++) {
        struct place place = {.hosts = 2, .each = 4, .nics = 4};
        const struct tti_algorithm *algorithm =
            tti_algorithm_find(turning[i].collective, turning[i].name);
        const double one = seconds(&place, algorithm, false);
        const double four = seconds(&place, algorithm, true);
        if (four > 0.3 * one || four < 0.24 * one)
            fail_msg("%s %s: %g ms by one, %g by four",
                     tutti_collective_name(algorithm->collective), algorithm->name, 1e3 * one,
                     1e3 * four);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_nic_carries_alike),
        cmocka_unit_test(from_a_nic_to_its_like),
        cmocka_unit_test(four_nics_take_a_quarter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
