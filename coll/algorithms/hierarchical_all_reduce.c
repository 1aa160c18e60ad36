/* All-reduce in two levels: inside each host, then between hosts, then inside again.
 *
 * As many ranks on every host: inside a host a direct reduce-scatter gives each rank a part of the
 * block; the ranks with the same local number run a ring over their part, one rank per host; a
 * direct all-gather inside completes it. A host sends its block to the network about twice, spread
 * over all of its ranks. Otherwise: each host's lowest rank reduces its host's contributions, the
 * leaders run a ring, and hand the result out. Best when the network between hosts is slower than
 * inside.
 *
 * A lane's share is cut into parts (as many as a host has ranks; one with leaders) of as many
 * chunks as hosts. Where a host's sum is not the contribution itself, it is in SCRATCH. */
#include "coll/algorithms/parts.h"

#include "base/memory.h"

#include <stdlib.h>

/* Which ranks this one works with. */
struct levels {
    int hosts;
    bool uniform;
    struct tti_group local; /* the ranks of the own host */
    struct tti_group cross; /* one rank of each host: with the same local number, or the leaders */
    bool previous_sums;     /* the host before in `cross` has several ranks, hence a sum */
    int *memory;
};

static int levels_host(const struct tti_plan_spec *spec, int rank)
{
    return spec->layout.host_of ? spec->layout.host_of[rank] : 0;
}

/* `each`: ranks per host, or -1 when hosts differ; `most`: on the fullest. */
static enum tutti_result levels_count(const struct tti_plan_spec *spec, int hosts, int *each,
                                      int *most)
{
    int *counts = tti_calloc((size_t)hosts, sizeof *counts);
    if (!counts)
        return TUTTI_ERR_MEMORY;
    for (int r = 0; r < spec->nranks; r++)
        counts[levels_host(spec, r)]++;
    *most = 0;
    for (int h = 0; h < hosts; h++)
        *most = counts[h] > *most ? counts[h] : *most;
    *each = *most * hosts == spec->nranks ? *most : -1;
    free(counts);
    return TUTTI_OK;
}

static int levels_hosts(const struct tti_plan_spec *spec)
{
    return spec->layout.host_of ? spec->layout.nhosts : 1;
}

static enum tutti_result levels_create(const struct tti_plan_spec *spec, struct levels *levels)
{
    int n = spec->nranks, hosts = levels_hosts(spec), each = 0, most = 0;
    TTI_TRY(levels_count(spec, hosts, &each, &most));
    int *memory = tti_calloc((size_t)(n + 2 * hosts), sizeof *memory);
    if (!memory)
        return TUTTI_ERR_MEMORY;
    int *local = memory, *cross = memory + n, *seen = cross + hosts;
    *levels = (struct levels){.hosts = hosts, .uniform = each > 0, .memory = memory};
    int own_host = levels_host(spec, spec->rank);
    for (int r = 0; r < n; r++)
        if (levels_host(spec, r) == own_host) {
            if (r == spec->rank)
                levels->local.self = levels->local.size;
            local[levels->local.size++] = r;
        }
    int number = levels->uniform ? levels->local.self : 0;
    for (int r = 0; r < n; r++) {
        int host = levels_host(spec, r);
        if (seen[host]++ == number)
            cross[host] = r;
    }
    levels->previous_sums = seen[(own_host + hosts - 1) % hosts] > 1;
    levels->local.ranks = local;
    levels->cross = (struct tti_group){cross, hosts, own_host};
    return TUTTI_OK;
}

/* Sum of the host over [chunk, chunk + hosts), and the ring that completes it. */
static void levels_reduce(struct tti_builder *b, int lane, const struct levels *levels,
                          uint32_t chunk)
{
    const struct tti_group *local = &levels->local;
    enum tti_buffer own = TTI_IN;
    if (local->size > 1) {
        own = TTI_SCRATCH;
        bool complete = levels->hosts == 1;
        tti_ordered_reduce(b, lane, chunk, (uint32_t)levels->hosts, local, tti_in(chunk),
                           tti_scratch(chunk), complete ? tti_out(chunk) : tti_scratch(chunk),
                           complete ? TTI_FINAL : 0, -1);
        if (complete)
            return;
    }
    tti_ring_steps(b, lane, chunk, &levels->cross, own, levels->previous_sums,
                   (uint32_t)(2 * lane));
}

static void levels_uniform_lane(struct tti_builder *b, int lane, const struct levels *levels)
{
    int m = levels->local.size, self = levels->local.self;
    uint32_t part = (uint32_t)levels->hosts, base = (uint32_t)lane * (uint32_t)m * part;
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
    uint32_t part = (uint32_t)levels->hosts, base = (uint32_t)lane * part;
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

static enum tutti_result hierarchical_plan(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    struct levels levels;
    TTI_TRY(levels_create(spec, &levels));
    int parts = levels.uniform ? levels.local.size : 1;
    struct tti_builder b;
    tti_plan_begin(&b, spec, spec->lanes, (uint32_t)(spec->lanes * parts * levels.hosts), 1,
                   2 * (uint32_t)spec->lanes);
    for (int lane = 0; lane < spec->lanes; lane++)
        if (levels.uniform)
            levels_uniform_lane(&b, lane, &levels);
        else
            levels_leader_lane(&b, lane, &levels);
    free(levels.memory);
    return tti_plan_finish(&b, plan);
}

/* The sum of its three parts; with leaders, the inner ones are the leader's messages one by one. */
static double hierarchical_cost(const struct tti_plan_spec *spec, double bytes, double alpha,
                                double beta)
{
    int each = 0, most = 0;
    if (levels_count(spec, levels_hosts(spec), &each, &most) != TUTTI_OK)
        return 0;
    double hosts = levels_hosts(spec), m = most;
    double inner = each > 0 ? (m - 1) / m * bytes : (m - 1) * bytes;
    double part = each > 0 ? bytes / m : bytes;
    return (most > 1 ? 2 * (alpha + inner * beta) : 0) + 2 * (hosts - 1) * alpha +
           2 * (hosts - 1) / hosts * part * beta;
}

const struct tti_algorithm tti_hierarchical_all_reduce = {
    .name = "hierarchical",
    .collective = TUTTI_ALL_REDUCE,
    .plan = hierarchical_plan,
    .cost = hierarchical_cost,
    .summary = "direct inside hosts, rings between them; through leaders if hosts differ in size",
};
