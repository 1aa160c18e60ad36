/* Built-in constants of the cost model (coll/profile.h).
 *
 * Fitted by `tutti-tune --constants` to what it measured on a virtual machine with 2 cores of an
 * AMD EPYC (Zen 5), 48 KiB, 1 MiB and 32 MiB of caches. Network: middling values of current
 * servers. */
#include "coll/profile.h"

#include <string.h>

const char *const tti_medium_names[] = {"threads", "mapped", "private", "loopback", "network", 0};

const char *const tti_constant_names[] = {"call",          "step",     "small",    "small_step",
                                          "fused",         "alpha",    "one_way",  "crowded_call",
                                          "crowded_alpha", "touch_l1", "touch_l2", "touch_l3",
                                          "touch_memory",  "fused_l1", "fused_l2", "fused_l3",
                                          "fused_memory",  "wire_l1",  "wire_l2",  "wire_l3",
                                          "wire_memory",   0};

static const double built_in[TTI_MEDIA][TTI_COSTS] = {
    /* call, step, small, small step, fused, alpha, one way, crowded call, crowded alpha,
     * touch L1, L2, L3, memory, fused the same, wire the same */
    [TTI_THREADS] = {.1e-6,  .02e-6, .03e-6, .01e-6, .2e-6,  .09e-6, .05e-6,
                     3e-6,   .7e-6,  17e-12, 15e-12, 11e-12, 40e-12, 17e-12,
                     15e-12, 11e-12, 40e-12, 0,      0,      0,      0},
    [TTI_MAPPED] = {.1e-6, .02e-6, .03e-6, .01e-6, .2e-6,  .09e-6, .05e-6,
                    3e-6,  .7e-6,  17e-12, 15e-12, 11e-12, 40e-12, 7e-12,
                    7e-12, 11e-12, 40e-12, 0,      0,      0,      0},
    [TTI_PRIVATE] = {.1e-6,  .02e-6, .03e-6, .01e-6, .2e-6,  .09e-6, .05e-6,
                     3e-6,   .7e-6,  17e-12, 25e-12, 25e-12, 60e-12, 17e-12,
                     15e-12, 11e-12, 40e-12, 0,      0,      0,      0},
    [TTI_LOOPBACK] = {3e-6,  .1e-6, 3e-6,   .1e-6,   0,       3e-6,    2e-6,
                      15e-6, 10e-6, 17e-12, 15e-12,  11e-12,  40e-12,  0,
                      0,     0,     0,      100e-12, 150e-12, 200e-12, 220e-12},
    [TTI_NETWORK] = {2e-6,  .1e-6, 2e-6,   .1e-6,   0,       12e-6,   12e-6,
                     15e-6, 20e-6, 17e-12, 15e-12,  11e-12,  40e-12,  0,
                     0,     0,     0,      500e-12, 500e-12, 500e-12, 500e-12},
};

void tti_profile_default(const double cache[3], double cores, struct tti_profile *profile)
{
    static const double typical[3] = {32 << 10, 1 << 20, 32 << 20};
    for (int level = 0; level < 3; level++)
        profile->cache[level] = cache[level] > 0 ? cache[level] : typical[level];
    profile->cores = cores > 0 ? cores : 1;
    memcpy(profile->cost, built_in, sizeof built_in);
}
