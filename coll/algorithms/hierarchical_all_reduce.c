/* All-reduce in two levels: inside each host, then between hosts, then inside again.
 *
 * As many ranks on every host: inside a host a direct reduce-scatter gives each rank a part of the
 * block; the ranks with the same local number, one of each host, all-reduce their part; a direct
 * all-gather inside completes it. A host sends its block to the network about twice, spread over
 * all of its ranks. Otherwise: each host's lowest rank reduces its host's contributions, the
 * leaders all-reduce, and hand the result out. Best when the network between hosts is slower than
 * inside.
 *
 * Between hosts "hierarchical" runs a ring, "hierarchical_halving" recursive halving and doubling:
 * as many bytes for a power of two hosts, in 2 lg h steps instead of 2 (h-1).
 *
 * A lane's share is cut into parts (as many as a host has ranks; one with leaders) of as many
 * chunks as the steps between hosts want. Where a host's sum is not the contribution itself, it is
 * in SCRATCH. */
#include "coll/algorithms/parts.h"

#include "base/memory.h"

#include <stdlib.h>

/* Which ranks this one works with. */
struct levels {
    int hosts;
    bool uniform;
    bool halving;
    int part;               /* chunks of a part */
    struct tti_group local; /* the ranks of the own host */
    struct tti_group cross; /* one rank of each host: with the same local number, or the leaders */
    int *memory;            /* of the groups */
    bool *sums;
};

static bool levels_sorted(const struct tti_plan_spec *spec)
{
    return spec->layout.host_of && spec->layout.sorted;
}

/* Where the ranks of `host` end, of a layout sorted by host, which begin at `begin`: most hosts
 * have as many as the one before, `guess`. */
static int levels_host_end(const struct tti_plan_spec *spec, int host, int begin, int guess)
{
    int n = spec->nranks, end = begin + guess;
    if (guess > 0 && end <= n && tti_host(spec, end - 1) == host &&
        (end == n || tti_host(spec, end) != host))
        return end;
    for (end = begin; end < n && tti_host(spec, end) == host;)
        end++;
    return end;
}

/* How many ranks each host has. Every rank's plan asks, so of a sorted layout each host is looked
 * at and not each rank. */
static void levels_count(const struct tti_plan_spec *spec, int hosts, int *counts)
{
    if (levels_sorted(spec)) {
        for (int h = 0, begin = 0; h < hosts; begin += counts[h++])
            counts[h] = levels_host_end(spec, h, begin, h > 0 ? counts[h - 1] : 0) - begin;
        return;
    }
    for (int r = 0; r < spec->nranks; r++)
        counts[tti_host(spec, r)]++;
}

/* The rank of each host with the local number `number`; takes `counts` down. */
static void levels_cross(const struct tti_plan_spec *spec, int hosts, int number, int *counts,
                         int *cross)
{
    if (levels_sorted(spec)) {
        for (int h = 0, begin = 0; h < hosts; begin += counts[h++])
            cross[h] = begin + number;
        return;
    }
    for (int r = spec->nranks - 1; r >= 0; r--) {
        int host = tti_host(spec, r);
        if (--counts[host] == number)
            cross[host] = r;
    }
}

/* The ranks of the own host: from the own one outwards where the layout is sorted. */
static void levels_local(const struct tti_plan_spec *spec, int own_host, struct tti_group *local,
                         int *ranks)
{
    int begin = 0, end = spec->nranks;
    if (levels_sorted(spec)) {
        for (begin = spec->rank; begin > 0 && tti_host(spec, begin - 1) == own_host;)
            begin--;
        end = levels_host_end(spec, own_host, begin, 0);
    }
    for (int r = begin; r < end; r++) {
        if (tti_host(spec, r) != own_host)
            continue;
        if (r == spec->rank)
            local->self = local->size;
        ranks[local->size++] = r;
    }
    local->ranks = ranks;
}

static void levels_fill(const struct tti_plan_spec *spec, struct levels *levels)
{
    int own_host = tti_host(spec, spec->rank), hosts = levels->hosts;
    int *local = levels->memory, *cross = local + spec->nranks, *counts = cross + hosts;
    levels_count(spec, hosts, counts);
    levels_local(spec, own_host, &levels->local, local);
    levels->uniform = true;
    for (int h = 0; h < hosts; h++) {
        levels->uniform = levels->uniform && counts[h] == counts[0];
        levels->sums[h] = counts[h] > 1;
    }
    levels_cross(spec, hosts, levels->uniform ? levels->local.self : 0, counts, cross);
    levels->cross = (struct tti_group){cross, levels->sums, hosts, own_host};
}

static void levels_release(struct levels *levels)
{
    free(levels->memory);
    free(levels->sums);
}

static enum tutti_result levels_create(const struct tti_plan_spec *spec, bool halving,
                                       struct levels *levels)
{
    int hosts = tti_hosts(spec);
    struct levels made = {.hosts = hosts, .halving = halving};
    made.part = halving ? tti_power_floor(hosts) : hosts;
    made.memory = tti_calloc((size_t)(spec->nranks + 2 * hosts), sizeof *made.memory);
    made.sums = tti_calloc((size_t)hosts, sizeof *made.sums);
    if (!made.memory || !made.sums) {
        levels_release(&made);
        return TUTTI_ERR_MEMORY;
    }
    levels_fill(spec, &made);
    *levels = made;
    return TUTTI_OK;
}

/* Sum of the host over the part at `chunk`, and the all-reduce between hosts that completes it. */
static void levels_reduce(struct tti_builder *b, int lane, const struct levels *levels,
                          uint32_t chunk)
{
    const struct tti_group *local = &levels->local;
    bool complete = levels->hosts == 1;
    if (local->size > 1)
        tti_ordered_reduce(b, lane, chunk, (uint32_t)levels->part, local, tti_in(chunk),
                           tti_scratch(chunk), complete ? tti_out(chunk) : tti_scratch(chunk),
                           complete ? TTI_FINAL : 0, -1);
    if (local->size > 1 && complete)
        return;
    if (levels->halving)
        tti_halving_steps(b, lane, chunk, &levels->cross);
    else
        tti_ring_steps(b, lane, chunk, &levels->cross, (uint32_t)(2 * lane));
}

static void levels_uniform_lane(struct tti_builder *b, int lane, const struct levels *levels)
{
    int m = levels->local.size, self = levels->local.self;
    uint32_t part = (uint32_t)levels->part, base = (uint32_t)lane * (uint32_t)m * part;
    for (int k = 1; k < m; k++) {
        int place = (self + k) % m;
        uint32_t chunk = base + (uint32_t)place * part;
        tti_send(b, lane, chunk, part, tti_in(chunk), levels->local.ranks[place]);
    }
    uint32_t own = base + (uint32_t)self * part;
    levels_reduce(b, lane, levels, own);
    for (int k = 1; k < m; k++)
        tti_send(b, lane, own, part, tti_out(own), levels->local.ranks[(self + k) % m]);
    for (int k = 1; k < m; k++) {
        int place = tti_mod(self - k, m);
        uint32_t chunk = base + (uint32_t)place * part;
        tti_recv(b, lane, chunk, part, levels->local.ranks[place], tti_out(chunk), 0, -1);
    }
}

static void levels_leader_lane(struct tti_builder *b, int lane, const struct levels *levels)
{
    uint32_t part = (uint32_t)levels->part, base = (uint32_t)lane * part;
    int leader = levels->local.ranks[0];
    if (levels->local.self > 0) {
        tti_send(b, lane, base, part, tti_in(base), leader);
        tti_recv(b, lane, base, part, leader, tti_out(base), 0, -1);
        return;
    }
    levels_reduce(b, lane, levels, base);
    for (int place = 1; place < levels->local.size; place++)
        tti_send(b, lane, base, part, tti_out(base), levels->local.ranks[place]);
}

static enum tutti_result levels_plan(const struct tti_plan_spec *spec, bool halving,
                                     struct tti_plan **plan)
{
    struct levels levels;
    TTI_TRY(levels_create(spec, halving, &levels));
    int parts = levels.uniform ? levels.local.size : 1;
    struct tti_builder b;
    tti_plan_begin(&b, spec, spec->lanes, (uint32_t)(spec->lanes * parts * levels.part), 1,
                   halving ? 0 : 2 * (uint32_t)spec->lanes);
    for (int lane = 0; lane < spec->lanes; lane++)
        if (levels.uniform)
            levels_uniform_lane(&b, lane, &levels);
        else
            levels_leader_lane(&b, lane, &levels);
    levels_release(&levels);
    return tti_plan_finish(&b, plan);
}

static enum tutti_result hierarchical_plan(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    return levels_plan(spec, false, plan);
}

static enum tutti_result hierarchical_halving_plan(const struct tti_plan_spec *spec,
                                                   struct tti_plan **plan)
{
    return levels_plan(spec, true, plan);
}

/* What is inside hosts (with leaders: the leader's messages one by one), and `*part`, the bytes
 * that one rank takes between hosts. */
static double levels_inner_cost(const struct tti_plan_spec *spec, double bytes, double alpha,
                                double beta, double *part)
{
    int each = 0, most = 0;
    *part = bytes;
    if (tti_count_hosts(spec, &each, &most) != TUTTI_OK || most == 1)
        return 0;
    double m = most;
    *part = each > 0 ? bytes / m : bytes;
    return 2 * (alpha + (m - 1) * *part * beta);
}

static double hierarchical_cost(const struct tti_plan_spec *spec, double bytes, double alpha,
                                double beta)
{
    double hosts = tti_hosts(spec), part = 0;
    double inner = levels_inner_cost(spec, bytes, alpha, beta, &part);
    return inner + 2 * (hosts - 1) * alpha + 2 * (hosts - 1) / hosts * part * beta;
}

static double hierarchical_halving_cost(const struct tti_plan_spec *spec, double bytes,
                                        double alpha, double beta)
{
    int hosts = tti_hosts(spec), size = tti_power_floor(hosts);
    double part = 0, inner = levels_inner_cost(spec, bytes, alpha, beta, &part);
    double fold = size < hosts ? 2 * (alpha + part * beta) : 0;
    return inner + fold + 2 * tti_log2_ceil(size) * alpha + 2 * (size - 1.0) / size * part * beta;
}

const struct tti_algorithm tti_hierarchical_all_reduce = {
    .name = "hierarchical",
    .collective = TUTTI_ALL_REDUCE,
    .plan = hierarchical_plan,
    .cost = hierarchical_cost,
    .summary = "direct inside hosts, rings between them; through leaders if hosts differ in size",
};

const struct tti_algorithm tti_hierarchical_halving_all_reduce = {
    .name = "hierarchical_halving",
    .collective = TUTTI_ALL_REDUCE,
    .plan = hierarchical_halving_plan,
    .cost = hierarchical_halving_cost,
    .summary = "direct inside hosts, recursive halving and doubling between them",
};
