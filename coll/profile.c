/* Built-in constants of the cost model (coll/profile.h), of four kinds of processors.
 *
 * Those of clusters were fitted by `tutti-tune --constants` to what it measured on a virtual
 * machine with 2 cores of an AMD EPYC (Zen 5), 48 KiB, 1 MiB and 32 MiB of caches, with 2 and 4
 * ranks, over shared memory and loopback. Threads: as mapped memory, but
 * crowds' as they were before those were fitted again to processes. Those of L3 and memory were
 * then adjusted by hand to allreduce_bench, and loopback's to what one message each way (one_shot)
 * and two of half the size took from 8 B to 64 MiB: equal near 512 KiB. A step there is a system
 * call or two; that and a turn of the core were fitted to which algorithm 4 and 8 ranks on 2 cores
 * did best with. Network: middling values of current servers, not measured.
 *
 * Those of meshes are of a virtual machine with 2 cores of an Intel server (48 KiB, 2 MiB and
 * 480 MiB of caches), where a line takes twice as long from core to core. Those of mapped memory
 * without crowds were fitted by hand to what allreduce_bench --explain measured with 2 ranks, by
 * the fused path and by plans (docs/measurements/host/explain.md); those of private memory and of
 * crowds by a search over what tutti-tune measured with 2 and 4 ranks (four, two to a core), for
 * times that are right and for choices that are the fastest, and then by hand to explain again.
 * Private memory's were fitted again later with `tutti-tune --constants`, and changed by hand where
 * that chose slower ways (crowds' stage) or explain disagreed (one_way_touch); mapped memory's
 * one_way, fused_write and crowds' fused_l2 by hand to explain. What is not in their table is as it
 * is for clusters. Of those, the constants of the fused path without crowds, one_way and
 * one_way_touch were fitted again to what 2 ranks take now (docs/measurements/host/amd), and those
 * of crowds by a search over all ways of 3, 4 and 8 ranks on 2 cores, mostly for 4 (decisions.md,
 * "What passes between cores counts, at both ends").
 *
 * Those of earlier clusters are what `tutti-tune --constants` fitted on a virtual machine with 2
 * cores of an AMD EPYC (Zen 4; 32 KiB, 1 MiB and 32 MiB of caches), near each other, with 2 ranks;
 * for crowds with 2 and 4. Then by hand what is touched was made less, as allreduce_bench takes it.
 *
 * Those of the first clusters are what it fitted on one of an AMD EPYC (Zen 3; 32 KiB, 512 KiB and
 * 32 MiB), near each other for most of the time, with 2 ranks and 4. Then by hand crowds' plans on
 * mapped memory were made dearer (crowded_touch), and their stage in other memory: explain showed
 * copies of 16 KiB to take twice what was said, from far three times. What plans take for mapped
 * bytes in memory (touch_memory) is from a Zen 1 (32 KiB, 512 KiB and 8 MiB), where they were
 * chosen from 64 MiB on and took 1.3 times as long as the fused path; there Zen 3 was not measured.
 */
#include "coll/profile.h"

#include <string.h>

const char *const tti_medium_names[] = {"threads", "mapped", "private", "loopback", "network", 0};

const char *const tti_constant_names[] = {"call",
                                          "step",
                                          "small",
                                          "small_step",
                                          "fused",
                                          "alpha",
                                          "one_way",
                                          "crowded_call",
                                          "crowded_alpha",
                                          "crowded_late",
                                          "crowded_touch",
                                          "crowded_fused",
                                          "fused_write",
                                          "crowded_one_way",
                                          "one_way_touch",
                                          "touch_l1",
                                          "touch_l2",
                                          "touch_l3",
                                          "touch_memory",
                                          "fused_l1",
                                          "fused_l2",
                                          "fused_l3",
                                          "fused_memory",
                                          "crowded_fused_l1",
                                          "crowded_fused_l2",
                                          "crowded_fused_l3",
                                          "crowded_fused_memory",
                                          "wire_l1",
                                          "wire_l2",
                                          "wire_l3",
                                          "wire_memory",
                                          0};

static const double clusters[TTI_MEDIA][TTI_COSTS] = {
    /* call, step, small, small step, fused, alpha, one way, crowded call, crowded alpha,
     * crowded late, crowded touch, crowded fused, fused write, crowded one way, one way touch,
     * touch L1, L2, L3, memory, fused the same, crowded fused the same, wire the same */
    [TTI_THREADS] = {.027e-6, .014e-6,  .015e-6, .011e-6, .085e-6, .083e-6,  .029e-6, 1.9e-6,
                     1.2e-6,  0,        1.2,     .085e-6, .5,      .05e-6,   1.4,     11.5e-12,
                     8.5e-12, 9.3e-12,  42e-12,  3.1e-12, 6.4e-12, 10.6e-12, 34e-12,  5.6e-12,
                     8.8e-12, 12.5e-12, 40e-12,  0,       0,       0,        0},
    [TTI_MAPPED] = {.027e-6,  .014e-6,  .015e-6, .011e-6, .085e-6, .083e-6,  .029e-6, .77e-6,
                    1.34e-6,  .11,      1.25,    .195e-6, .5,      .08e-6,   1.4,     11.5e-12,
                    8.5e-12,  9.3e-12,  42e-12,  3.1e-12, 6.4e-12, 10.6e-12, 34e-12,  12.8e-12,
                    10.9e-12, 11.7e-12, 36e-12,  0,       0,       0,        0},
    [TTI_PRIVATE] = {.017e-6,  .017e-6,  .014e-6,  .011e-6, .085e-6, .082e-6,  .021e-6, .51e-6,
                     1.29e-6,  .68,      .905,     .09e-6,  1,       .091e-6,  1.5,     13.9e-12,
                     14.7e-12, 20e-12,   33e-12,   5.6e-12, 8.8e-12, 12.5e-12, 40e-12,  18.3e-12,
                     11e-12,   12.5e-12, 18.6e-12, 0,       0,       0,        0},
    [TTI_LOOPBACK] = {.2e-6, 1.5e-6, .2e-6, 1.5e-6, 0,     3.6e-6,  .1e-6,   20e-6,   5e-6,   0, 1,
                      0,     1,      .1e-6, 1,      2e-12, 2e-12,   6e-12,   12e-12,  0,      0, 0,
                      0,     0,      0,     0,      0,     140e-12, 160e-12, 210e-12, 260e-12},
    [TTI_NETWORK] = {2e-6, .1e-6, 2e-6,  .1e-6, 0,      12e-6,   12e-6,   15e-6,   20e-6,  0, 1,
                     0,    1,     12e-6, 1,     17e-12, 15e-12,  11e-12,  40e-12,  0,      0, 0,
                     0,    0,     0,     0,     0,      500e-12, 500e-12, 500e-12, 500e-12},
};

/* Threads as processes whose buffers are mapped. */
static const double meshes_mapped[TTI_COSTS] = {
    .025e-6,  .034e-6,  .012e-6,  .028e-6, .13e-6,  .17e-6,   .02e-6, .822e-6,
    .574e-6,  0,        .875,     .45e-6,  3.8,     .0345e-6, .4,     50e-12,
    19.6e-12, 37.1e-12, 46.6e-12, 1.2e-12, 3.8e-12, 35e-12,   44e-12, 16e-12,
    21e-12,   43.1e-12, 40.5e-12, 0,       0,       0,        0};
/* A fit leaves nothing for a call, all of it for its steps. */
static const double meshes_private[TTI_COSTS] = {
    0.00011e-6, 0.0213e-6, 0.0314e-6, 0.00745e-6, 0.44e-6,  0.206e-6,  0.00735e-6, 0.544e-6,
    0.592e-6,   1.29,      0.924,     0.229e-6,   1,        0.0223e-6, 0.7,        41.4e-12,
    23e-12,     38.8e-12,  45.2e-12,  14.1e-12,   38.1e-12, 35.3e-12,  43.9e-12,   29.1e-12,
    20.5e-12,   33e-12,    35.9e-12,  2.32e-12,   48.8e-12, 42.7e-12,  55.7e-12};

/* Of clusters before Zen 5, where a line comes back slowly; threads as there. */
static const double earlier_mapped[TTI_COSTS] = {
    .0467e-6, .0143e-6, .0482e-6, .00816e-6, .0933e-6, .109e-6,  .0139e-6, .83e-6,
    1.08e-6,  1.21,     1.02,     .264e-6,   1.53,     .0175e-6, 1.96,     20.2e-12,
    10e-12,   14.5e-12, 45.4e-12, 5.9e-12,   7.4e-12,  11.9e-12, 45e-12,   27.8e-12,
    15e-12,   18.4e-12, 49.2e-12, 0,         0,        0,        0};
static const double earlier_private[TTI_COSTS] = {
    .023e-6,  .017e-6,  .05e-6, .0042e-6, .085e-6, .1e-6,    .0269e-6, 1.26e-6,
    .939e-6,  1.19,     .531,   .245e-6,  1,       .0101e-6, 1.33,     30e-12,
    28e-12,   36e-12,   60e-12, 5.6e-12,  8.8e-12, 12.5e-12, 40e-12,   36.7e-12,
    21.3e-12, 24.2e-12, 34e-12, 0,        0,       0,        0};

/* Of those before Zen 4; threads as of all clusters. */
static const double first_mapped[TTI_COSTS] = {
    .0265e-6, .0262e-6, .0709e-6, .0064e-6, .226e-6,  .135e-6,  .0205e-6, 1.65e-6,
    1.73e-6,  1.09,     1.5,      .0288e-6, 2.04,     .0338e-6, 1.81,     40e-12,
    21.3e-12, 17.8e-12, 81.4e-12, 13.1e-12, 12.1e-12, 18.7e-12, 72e-12,   48.7e-12,
    21.6e-12, 28.6e-12, 69e-12,   0,        0,        0,        0};
static const double first_private[TTI_COSTS] = {
    .0213e-6, .0344e-6, .112e-6,  .00075e-6, .085e-6, .339e-6,  .0267e-6, 1.6e-6,
    1.45e-6,  .735,     .526,     .665e-6,   1,       .0123e-6, 1.2,      174e-12,
    71e-12,   80e-12,   119e-12,  5.6e-12,   8.8e-12, 12.5e-12, 40e-12,   163e-12,
    28e-12,   45e-12,   52.9e-12, 0,         0,       0,        0};

void tti_profile_default(const double cache[3], enum tti_cpu_kind kind, double cores,
                         struct tti_profile *profile)
{
    static const double typical[3] = {32 << 10, 1 << 20, 32 << 20};
    for (int level = 0; level < 3; level++)
        profile->cache[level] = cache[level] > 0 ? cache[level] : typical[level];
    profile->cores = cores > 0 ? cores : 1;
    profile->meshed = kind == TTI_CPU_MESH;
    memcpy(profile->cost, clusters, sizeof clusters);
    if (kind == TTI_CPU_EARLIER_CLUSTERS) {
        memcpy(profile->cost[TTI_MAPPED], earlier_mapped, sizeof earlier_mapped);
        memcpy(profile->cost[TTI_PRIVATE], earlier_private, sizeof earlier_private);
    }
    if (kind == TTI_CPU_FIRST_CLUSTERS) {
        memcpy(profile->cost[TTI_MAPPED], first_mapped, sizeof first_mapped);
        memcpy(profile->cost[TTI_PRIVATE], first_private, sizeof first_private);
    }
    if (profile->meshed) {
        memcpy(profile->cost[TTI_THREADS], meshes_mapped, sizeof meshes_mapped);
        memcpy(profile->cost[TTI_MAPPED], meshes_mapped, sizeof meshes_mapped);
        memcpy(profile->cost[TTI_PRIVATE], meshes_private, sizeof meshes_private);
    }
}
