/* Ranks and the cores that they may run on (coll/crowd.h). */
#include "coll/crowd.h"

#include "base/log.h"
#include "base/memory.h"
#include "coll/comm.h"

#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void tti_cpus_own(struct tti_cpus *cpus)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) { /* more processors than fit */
        memset(cpus, 0xff, sizeof *cpus);
        return;
    }
    memset(cpus, 0, sizeof *cpus);
    for (int c = 0; c < TTI_CPUS; c++)
        if (CPU_ISSET(c, &allowed))
            cpus->bits[c / 64] |= UINT64_C(1) << c % 64;
}

static int crowd_count(const struct tti_cpus *cpus)
{
    int count = 0;
    for (int w = 0; w < TTI_CPU_WORDS; w++)
        count += __builtin_popcountll(cpus->bits[w]);
    return count;
}

static bool crowd_within(const struct tti_cpus *part, const struct tti_cpus *whole)
{
    for (int w = 0; w < TTI_CPU_WORDS; w++)
        if (part->bits[w] & ~whole->bits[w])
            return false;
    return true;
}

static double crowd_of_set(const struct tti_cpus *cpus, const int *ranks, int count,
                           const struct tti_cpus *set)
{
    int within = 0;
    for (int i = 0; i < count; i++)
        within += crowd_within(&cpus[ranks[i]], set);
    int cores = crowd_count(set);
    return (double)within / (cores > 0 ? cores : 1);
}

double tti_crowd_turns(const struct tti_cpus *cpus, const int *ranks, int count)
{
    double most = 0;
    struct tti_cpus any = {{0}};
    for (int i = 0; i < count; i++) {
        const struct tti_cpus *own = &cpus[ranks[i]];
        for (int w = 0; w < TTI_CPU_WORDS; w++)
            any.bits[w] |= own->bits[w];
        /* Neighbours in rank are often bound alike: that set was looked at. */
        if (i > 0 && memcmp(own, &cpus[ranks[i - 1]], sizeof *own) == 0)
            continue;
        double turns = crowd_of_set(cpus, ranks, count, own);
        most = turns > most ? turns : most;
    }
    double all = crowd_of_set(cpus, ranks, count, &any);
    return all > most ? all : most;
}

/* The one processor of the set; -1: there are others, or none. */
static int crowd_only(const struct tti_cpus *cpus)
{
    for (int w = 0; w < TTI_CPU_WORDS; w++)
        if (cpus->bits[w])
            return crowd_count(cpus) == 1 ? w * 64 + __builtin_ctzll(cpus->bits[w]) : -1;
    return -1;
}

enum tutti_result tti_crowd_cores(const struct tti_cpus *cpus, const int *hosts, int count,
                                  int **core_of, int *cores)
{
    int *core = tti_calloc((size_t)count, sizeof *core), *bound = NULL;
    bool known = true, follow = true;
    *core_of = NULL;
    *cores = 0;
    bound = tti_calloc((size_t)count, sizeof *bound);
    if (!core || !bound) {
        free(core);
        free(bound);
        return TUTTI_ERR_MEMORY;
    }
    for (int r = 0; r < count && known; r++) {
        int before = r - 1;
        bound[r] = crowd_only(&cpus[r]);
        known = bound[r] >= 0;
        while (before >= 0 && (bound[before] != bound[r] || hosts[before] != hosts[r]))
            before--;
        core[r] = before >= 0 ? core[before] : (*cores)++;
        follow &= r == 0 || core[r] >= core[r - 1];
    }
    free(bound);
    if (known && !follow) {
        *core_of = core;
        return TUTTI_OK;
    }
    free(core);
    *cores = 0;
    return TUTTI_OK;
}

enum tutti_result tti_crowd(struct tutti_comm *comm)
{
    double worst = 0;
    int most_local = 1;
    int *local = tti_calloc((size_t)comm->size, sizeof *local);
    if (!local)
        return TUTTI_ERR_MEMORY;
    for (int host = 0; host < comm->peers.nhosts; host++) {
        int count = 0;
        for (int r = 0; r < comm->size; r++)
            if (comm->peers.host_of[r] == host)
                local[count++] = r;
        double turns = tti_crowd_turns(comm->cpus, local, count);
        worst = turns > worst ? turns : worst;
        most_local = count > most_local ? count : most_local;
        if (comm->peers.host_of[comm->rank] == host)
            comm->crowded = turns > 1;
    }
    comm->crowds = worst > 1;
    comm->profile.cores = most_local / worst;
    free(local);
    enum tutti_result result = TUTTI_OK;
    if (comm->crowds)
        result = tti_crowd_cores(comm->cpus, comm->peers.host_of, comm->size, &comm->peers.core_of,
                                 &comm->peers.ncores);
    if (comm->peers.core_of)
        TTI_LOG(TTI_LOG_DEBUG, "ranks share %d cores: orders go core by core", comm->peers.ncores);
    free(comm->cpus);
    comm->cpus = NULL;
    return result;
}
