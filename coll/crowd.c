/* Ranks and the cores that they may run on (coll/crowd.h). */
#include "coll/crowd.h"

#include "base/log.h"
#include "base/memory.h"
#include "coll/comm.h"
#include "device/cpu_caches.h"
#include "device/near.h"

#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void tti_cpus_own(struct tti_cpus *cpus)
{
    cpu_set_t allowed;
    memset(cpus, 0, sizeof *cpus);
    cpus->node = cpus->cache = -1;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) { /* more processors than fit */
        memset(cpus->bits, 0xff, sizeof cpus->bits);
        return;
    }
    cpus->node = tti_near_node("/sys", &allowed);
    cpus->cache = tti_cpu_shared_cache("", &allowed);
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
    struct tti_cpus any = {.bits = {0}};
    for (int i = 0; i < count; i++) {
        const struct tti_cpus *own = &cpus[ranks[i]];
        for (int w = 0; w < TTI_CPU_WORDS; w++)
            any.bits[w] |= own->bits[w];
        /* Neighbours in rank are often bound alike: that set was looked at. */
        if (i > 0 && memcmp(own->bits, cpus[ranks[i - 1]].bits, sizeof own->bits) == 0)
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

/* Where a rank is: its host, NUMA node, L3 and processor; -1: not known, or of no interest. */
enum { CROWD_HOST, CROWD_NODE, CROWD_CACHE, CROWD_CPU, CROWD_LEVELS };
struct crowd_place {
    int at[CROWD_LEVELS];
    int rank;
};

static int crowd_compare(const struct crowd_place *a, const struct crowd_place *b)
{
    for (int level = 0; level < CROWD_LEVELS; level++)
        if (a->at[level] != b->at[level])
            return a->at[level] < b->at[level] ? -1 : 1;
    return 0;
}

static int crowd_compare_ranks(const void *a, const void *b)
{
    const struct crowd_place *left = a, *right = b;
    const int where = crowd_compare(left, right);
    return where != 0 ? where : (left->rank > right->rank) - (left->rank < right->rank);
}

/* What is not known of all ranks of a host tells none of them apart. `places` by host. */
static void crowd_forget_unknown(struct crowd_place *places, int count)
{
    for (int from = 0, to; from < count; from = to) {
        bool known[CROWD_LEVELS] = {true, true, true, true};
        for (to = from; to < count && places[to].at[CROWD_HOST] == places[from].at[CROWD_HOST];
             to++)
            for (int level = CROWD_NODE; level < CROWD_LEVELS; level++)
                known[level] &= places[to].at[level] >= 0;
        for (int i = from; i < to; i++)
            for (int level = CROWD_NODE; level < CROWD_LEVELS; level++)
                places[i].at[level] = known[level] ? places[i].at[level] : -1;
    }
}

enum tutti_result tti_crowd_groups(const struct tti_cpus *cpus, const int *hosts, int count,
                                   bool take_turns, int **group_of, int *groups)
{
    struct crowd_place *places = tti_calloc((size_t)count, sizeof *places);
    int *group = tti_calloc((size_t)count, sizeof *group);
    int *last = tti_calloc((size_t)count, sizeof *last); /* of each host */
    int made = 0;
    bool follow = true;
    *group_of = NULL;
    *groups = 0;
    if (!places || !group || !last) {
        free(places);
        free(group);
        free(last);
        return TUTTI_ERR_MEMORY;
    }
    for (int r = 0; r < count; r++)
        places[r] = (struct crowd_place){
            {hosts[r], cpus[r].node, cpus[r].cache, take_turns ? crowd_only(&cpus[r]) : -1}, r};
    qsort(places, (size_t)count, sizeof *places, crowd_compare_ranks); /* by host, for one thing */
    crowd_forget_unknown(places, count);
    qsort(places, (size_t)count, sizeof *places, crowd_compare_ranks);
    for (int i = 0; i < count; i++) {
        made += i == 0 || crowd_compare(&places[i - 1], &places[i]) != 0;
        group[places[i].rank] = made - 1;
    }
    for (int r = 0; r < count; r++) {
        follow &= group[r] >= last[hosts[r]];
        last[hosts[r]] = group[r];
    }
    free(places);
    free(last);
    if (follow) {
        free(group);
        return TUTTI_OK;
    }
    *group_of = group;
    *groups = made;
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
    const enum tutti_result result =
        tti_crowd_groups(comm->cpus, comm->peers.host_of, comm->size, comm->crowds,
                         &comm->peers.group_of, &comm->peers.ngroups);
    if (comm->peers.group_of)
        TTI_LOG(
            TTI_LOG_DEBUG,
            "ranks are near each other in %d groups (of a core, a cache or a NUMA node): orders "
            "go group by group",
            comm->peers.ngroups);
    free(comm->cpus);
    comm->cpus = NULL;
    return result;
}
