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

/* Down to `deepest`. */
static int crowd_compare(const struct crowd_place *a, const struct crowd_place *b, int deepest)
{
    for (int level = 0; level <= deepest; level++)
        if (a->at[level] != b->at[level])
            return a->at[level] < b->at[level] ? -1 : 1;
    return 0;
}

static int crowd_compare_ranks(const void *a, const void *b)
{
    const struct crowd_place *left = a, *right = b;
    const int where = crowd_compare(left, right, CROWD_CPU);
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

/* leader[r]: the lowest rank that is where r is, down to `level`. `places` in their order. */
static void crowd_leaders(const struct crowd_place *places, int count, int level, int *leader)
{
    for (int from = 0, to; from < count; from = to) {
        int lowest = places[from].rank;
        for (to = from; to < count && crowd_compare(&places[from], &places[to], level) == 0; to++)
            lowest = places[to].rank < lowest ? places[to].rank : lowest;
        for (int i = from; i < to; i++)
            leader[places[i].rank] = lowest;
    }
}

/* Do those of one number follow each other among the ranks of each host? `last`: room. */
static bool crowd_follow(const int *leader, const int *hosts, int count, int *last)
{
    for (int r = 0; r < count; r++)
        last[r] = -1;
    for (int r = 0; r < count; last[hosts[r]] = leader[r], r++)
        if (leader[r] != r && last[hosts[r]] != leader[r])
            return false;
    return true;
}

/* Turns leaders into numbers; how many. */
static int crowd_number(int *leader, int count)
{
    int numbers = 0;
    for (int r = 0; r < count; r++) /* leaders come before those they lead */
        leader[r] = leader[r] == r ? numbers++ : leader[leader[r]];
    return numbers;
}

/* In sorted places; *follow: in order by all levels anyway. */
static enum tutti_result crowd_levels(const struct crowd_place *places, const int *hosts, int count,
                                      int *near_of[TTI_NEAR_LEVELS],
                                      int near_count[TTI_NEAR_LEVELS], bool *follow)
{
    static const int levels[TTI_NEAR_LEVELS] = {CROWD_CPU, CROWD_CACHE, CROWD_NODE};
    int *last = tti_calloc((size_t)count, sizeof *last);
    if (!last)
        return TUTTI_ERR_MEMORY;
    *follow = true;
    crowd_leaders(places, count, CROWD_HOST, last);
    int coarser = crowd_number(last, count);
    for (int level = TTI_NEAR_LEVELS - 1; level >= 0; level--) {
        int *leader = tti_calloc((size_t)count, sizeof *leader);
        near_of[level] = leader;
        if (!leader) {
            free(last);
            return TUTTI_ERR_MEMORY;
        }
        crowd_leaders(places, count, levels[level], leader);
        *follow = crowd_follow(leader, hosts, count, last) && *follow;
        near_count[level] = crowd_number(leader, count);
        if (near_count[level] > coarser) {
            coarser = near_count[level];
            continue;
        }
        free(leader);
        near_of[level] = NULL;
        near_count[level] = 0;
    }
    free(last);
    return TUTTI_OK;
}

enum tutti_result tti_crowd_near(const struct tti_cpus *cpus, const int *hosts,
                                 const bool *take_turns, int count, int *near_of[TTI_NEAR_LEVELS],
                                 int near_count[TTI_NEAR_LEVELS])
{
    struct crowd_place *places = tti_calloc((size_t)count, sizeof *places);
    bool follow = true;
    memset(near_of, 0, TTI_NEAR_LEVELS * sizeof *near_of);
    memset(near_count, 0, TTI_NEAR_LEVELS * sizeof *near_count);
    if (!places)
        return TUTTI_ERR_MEMORY;
    for (int r = 0; r < count; r++) {
        const int cpu = take_turns[hosts[r]] ? crowd_only(&cpus[r]) : -1;
        places[r] = (struct crowd_place){{hosts[r], cpus[r].node, cpus[r].cache, cpu}, r};
    }
    qsort(places, (size_t)count, sizeof *places, crowd_compare_ranks); /* by host, for one thing */
    crowd_forget_unknown(places, count);
    qsort(places, (size_t)count, sizeof *places, crowd_compare_ranks);
    const enum tutti_result result =
        crowd_levels(places, hosts, count, near_of, near_count, &follow);
    free(places);
    for (int level = 0; level < TTI_NEAR_LEVELS && (follow || result != TUTTI_OK); level++) {
        free(near_of[level]);
        near_of[level] = NULL;
        near_count[level] = 0;
    }
    return result;
}

/* `local`, `take_turns`: room for a rank, or a host, each. */
static void crowd_count_hosts(struct tutti_comm *comm, int *local, bool *take_turns)
{
    double worst = 0;
    int most_local = 1;
    for (int host = 0; host < comm->peers.nhosts; host++) {
        int count = 0;
        for (int r = 0; r < comm->size; r++)
            if (comm->peers.host_of[r] == host)
                local[count++] = r;
        double turns = tti_crowd_turns(comm->cpus, local, count);
        worst = turns > worst ? turns : worst;
        most_local = count > most_local ? count : most_local;
        take_turns[host] = turns > 1;
        if (comm->peers.host_of[comm->rank] == host)
            comm->crowded = turns > 1;
    }
    comm->crowds = worst > 1;
    comm->profile.cores = most_local / worst;
}

enum tutti_result tti_crowd(struct tutti_comm *comm)
{
    struct tti_peers *peers = &comm->peers;
    int *local = tti_calloc((size_t)comm->size, sizeof *local);
    bool *take_turns = tti_calloc((size_t)peers->nhosts, sizeof *take_turns);
    enum tutti_result result = local && take_turns ? TUTTI_OK : TUTTI_ERR_MEMORY;
    if (result == TUTTI_OK) {
        crowd_count_hosts(comm, local, take_turns);
        result = tti_crowd_near(comm->cpus, peers->host_of, take_turns, comm->size, peers->near_of,
                                peers->near_count);
    }
    const struct tti_layout layout = tti_peers_layout(peers);
    if (tti_layout_has_near(&layout))
        TTI_LOG(TTI_LOG_DEBUG,
                "orders go by what ranks are near to: %d NUMA nodes, %d caches, %d shared cores "
                "(0: they are not told apart)",
                peers->near_count[TTI_NEAR_NODE], peers->near_count[TTI_NEAR_CACHE],
                peers->near_count[TTI_NEAR_CORE]);
    free(local);
    free(take_turns);
    free(comm->cpus);
    comm->cpus = NULL;
    return result;
}
