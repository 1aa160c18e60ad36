/* Every algorithm of one collective (named on the command line), verified: every number of ranks
 * from 1 to 64 and some to 1,024, every root, several lanes, slices and layouts. */
#include "coll/algorithms/algorithms.h"
#include "plan/verify.h"
#include "tests/tutti_cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* AddressSanitizer sees the code that builds and verifies plans, not what is right: the sizes up to
 * 20 have every shape of tree, remainder and power of two. */
#ifdef __SANITIZE_ADDRESS__
enum { EVERY = 20, MOST_RANKS = 256 };
#else
enum { EVERY = 64, MOST_RANKS = 1024 };
#endif

static enum tutti_collective collective;
static struct tti_verify_stats total;

static void check(const struct tti_algorithm *algorithm, const struct tti_plan_spec *spec)
{
    if (algorithm->applicable && !algorithm->applicable(spec))
        return;
    if (tti_verify_algorithm(algorithm, spec, &total) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
}

static bool rooted(void)
{
    return collective == TUTTI_BROADCAST || collective == TUTTI_REDUCE ||
           collective == TUTTI_GATHER || collective == TUTTI_SCATTER;
}

static struct tti_plan_spec spec_of(int nranks, int root, int lanes, int slices)
{
    return (struct tti_plan_spec){.collective = collective,
                                  .nranks = nranks,
                                  .root = root,
                                  .lanes = lanes,
                                  .slices = slices,
                                  .layout = {.nhosts = 1}};
}

/* One lane, one slice, every root. */
static void every_root(void **state)
{
    (void)state;
    const struct tti_algorithm *algorithm;
    for (int i = 0; (algorithm = tti_algorithm_at(collective, i)); i++)
        for (int n = 1; n <= EVERY; n++)
            for (int root = 0; root < (rooted() ? n : 1); root++) {
                struct tti_plan_spec spec = spec_of(n, root, 1, 1);
                check(algorithm, &spec);
            }
}

/* Lanes and slices; the root moves along with n. */
static void lanes_and_slices(void **state)
{
    (void)state;
    static const int slices[] = {1, 2, 4, 13};
    const struct tti_algorithm *algorithm;
    for (int i = 0; (algorithm = tti_algorithm_at(collective, i)); i++)
        for (int n = 1; n <= EVERY; n++)
            for (int lanes = 1; lanes <= 3; lanes++)
                for (int s = 0; s < (algorithm->sliced ? 4 : 1); s++) {
                    int root = rooted() ? (7 * lanes + 3 * s) % n : 0;
                    struct tti_plan_spec spec = spec_of(n, root, lanes, slices[s]);
                    if (lanes > 1 || slices[s] > 1)
                        check(algorithm, &spec);
                }
    for (int i = 0; (algorithm = tti_algorithm_at(collective, i)); i++)
        for (int n = 1; n <= 12; n++) {
            struct tti_plan_spec spec = spec_of(n, rooted() ? n / 2 : 0, 16, 5);
            check(algorithm, &spec);
        }
}

/* More ranks: how far depends on how many messages there are in all. */
static void many_ranks(void **state)
{
    (void)state;
    static const int sizes[] = {65, 100, 127, 128, 255, 256, 512, 1000, 1024};
    static const char *const linear[] = {"ring",     "direct",       "one_shot",
                                         "two_shot", "hierarchical", "hierarchical_halving"};
    const struct tti_algorithm *algorithm;
    for (int i = 0; (algorithm = tti_algorithm_at(collective, i)); i++) {
        bool heavy = false;
        for (size_t k = 0; k < sizeof linear / sizeof linear[0] && !rooted(); k++)
            heavy = heavy || strcmp(algorithm->name, linear[k]) == 0;
        heavy = heavy || strcmp(algorithm->name, "scatter_gather") == 0;
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            if (sizes[k] > (heavy ? 4 * EVERY : MOST_RANKS))
                continue;
            struct tti_plan_spec spec =
                spec_of(sizes[k], rooted() ? sizes[k] / 3 : 0, 1, algorithm->sliced ? 3 : 1);
            check(algorithm, &spec);
        }
    }
}

/* Numbers hosts by their lowest rank. */
static int renumber(int *host_of, int nranks)
{
    int number[MOST_RANKS], hosts = 0;
    for (int h = 0; h < MOST_RANKS; h++)
        number[h] = -1;
    for (int r = 0; r < nranks; r++) {
        int host = host_of[r];
        if (number[host] < 0)
            number[host] = hosts++;
        host_of[r] = number[host];
    }
    return hosts;
}

/* Layout `kind` of nranks ranks: `each` to a host in blocks, dealt out in turn, in blocks with a
 * smaller last host, one host of all but a few, or scattered. */
static struct tti_layout layout_of(int kind, int nranks, int each, int *host_of)
{
    uint32_t random = (uint32_t)(nranks * 31 + each);
    int hosts = (nranks + each - 1) / each;
    for (int r = 0; r < nranks; r++) {
        random = random * 1664525u + 1013904223u;
        switch (kind) {
        case 0:
            host_of[r] = r / each;
            break;
        case 1:
            host_of[r] = r % hosts;
            break;
        case 2:
            host_of[r] = r < nranks - each ? 0 : r - (nranks - each);
            break;
        default:
            host_of[r] = (int)((random >> 16) % (uint32_t)hosts);
            break;
        }
    }
    return (struct tti_layout){.nhosts = renumber(host_of, nranks), .host_of = host_of};
}

static bool is_sorted(const struct tti_layout *layout, int nranks)
{
    for (int r = 1; r < nranks; r++)
        if (layout->host_of[r] < layout->host_of[r - 1])
            return false;
    return true;
}

/* The ranks of each host share so many cores (or caches, or nodes), two neighbours in turn. */
static struct tti_near shared(const struct tti_layout *layout, int nranks, int each, int *of)
{
    for (int r = 0; r < nranks; r++)
        of[r] = (each * layout->host_of[r] + r / 2 % each) % MOST_RANKS;
    return (struct tti_near){renumber(of, nranks), of};
}

/* The ranks of each host leave it by `nics` NICs, two neighbours by each in turn. */
static struct tti_gates gated(const struct tti_layout *layout, int nranks, int nics, int *of)
{
    struct tti_gates gates = {.of = of};
    int on_host[MOST_RANKS] = {0};
    const struct tti_near numbered = shared(layout, nranks, nics, of);
    gates.count = numbered.count;
    for (int r = 0; r < nranks; r++) {
        bool first = true;
        for (int before = 0; before < r && first; before++)
            first = of[before] != of[r];
        on_host[layout->host_of[r]] += first;
        if (on_host[layout->host_of[r]] > gates.most)
            gates.most = on_host[layout->host_of[r]];
    }
    return gates;
}

/* By both ways of finding the order of hosts: the layout known to be sorted by host, and not. And
 * where ranks of a host are near each other: on two cores, on two nodes of two cores, and at as
 * many caches of one host as there were hosts. And where they leave their host by three NICs. */
static void check_layout(const struct tti_algorithm *algorithm, struct tti_plan_spec *spec)
{
    int two[MOST_RANKS], three[MOST_RANKS], four[MOST_RANKS];
    const struct tti_layout hosts = spec->layout;
    check(algorithm, spec);
    spec->layout.sorted = is_sorted(&spec->layout, spec->nranks);
    if (spec->layout.sorted)
        check(algorithm, spec);
    spec->layout.near[TTI_NEAR_CORE] = shared(&hosts, spec->nranks, 2, two);
    check(algorithm, spec);
    spec->layout.near[TTI_NEAR_NODE] = spec->layout.near[TTI_NEAR_CORE];
    spec->layout.near[TTI_NEAR_CORE] = shared(&hosts, spec->nranks, 4, four);
    check(algorithm, spec);
    spec->layout.gates = gated(&hosts, spec->nranks, 3, three);
    check(algorithm, spec);
    spec->layout = (struct tti_layout){
        .nhosts = 1, .sorted = true, .near[TTI_NEAR_CACHE] = {hosts.nhosts, hosts.host_of}};
    check(algorithm, spec);
}

static void layouts(void **state)
{
    (void)state;
    static int host_of[MOST_RANKS];
    const struct tti_algorithm *algorithm;
    for (int i = 0; (algorithm = tti_algorithm_at(collective, i)); i++) {
        bool uses_layout = strncmp(algorithm->name, "hierarchical", 12) == 0;
        for (int n = 1; n <= (uses_layout ? EVERY : 17); n += n < 24 ? 1 : 8)
            for (int each = 1; each <= n; each = each < 4 ? each + 1 : 2 * each)
                for (int kind = 0; kind < 4; kind++) {
                    struct tti_plan_spec spec =
                        spec_of(n, rooted() ? each % n : 0, 1 + (n + kind) % 3, 1);
                    spec.layout = layout_of(kind, n, each, host_of);
                    check_layout(algorithm, &spec);
                }
    }
}

static enum tutti_collective collective_named(const char *name)
{
    for (int c = 0; c < TUTTI_COLLECTIVE_COUNT; c++)
        if (strcmp(tutti_collective_name((enum tutti_collective)c), name) == 0)
            return (enum tutti_collective)c;
    return TUTTI_COLLECTIVE_COUNT;
}

int main(int argc, char **argv)
{
    collective = argc == 2 ? collective_named(argv[1]) : TUTTI_COLLECTIVE_COUNT;
    if (collective == TUTTI_COLLECTIVE_COUNT) {
        fprintf(stderr, "usage: %s <collective>\n", argv[0]);
        return 2;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_root),
        cmocka_unit_test(lanes_and_slices),
        cmocka_unit_test(many_ranks),
        cmocka_unit_test(layouts),
    };
    int failed = cmocka_run_group_tests_name(argv[1], tests, NULL, NULL);
    printf("%s: %llu plans, %llu steps, %llu messages\n", argv[1], (unsigned long long)total.plans,
           (unsigned long long)total.steps, (unsigned long long)total.messages);
    return failed;
}
