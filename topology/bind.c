/* Which cores each local rank gets (bind.h). */
#include "topology/bind.h"

#include "base/log.h"
#include "base/memory.h"
#include "device/near.h"
#include "topology/nearest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A core: a run of nodes. */
struct bind_core {
    int first, end;
};

struct bind_cores {
    struct bind_core *cores;
    int count;
    int *group_first; /* of each group the first core; one more: the end */
    int groups;
};

static void bind_clear(struct bind_cores *all)
{
    free(all->cores);
    free(all->group_first);
}

/* The cores of the first host, in order; a hardware thread outside of any core counts as one. */
static enum tutti_result bind_collect(const struct tti_topology *topology, struct bind_cores *all)
{
    int host = 0;
    while (host < (int)topology->node_count && topology->nodes[host].kind != TTI_NODE_HOST)
        host++;
    int end = host < (int)topology->node_count ? tti_topology_end(topology, host) : host;
    int last_numa = -2;
    all->cores = tti_calloc((size_t)(end - host) + 1, sizeof *all->cores);
    all->group_first = tti_calloc((size_t)(end - host) + 2, sizeof *all->group_first);
    if (!all->cores || !all->group_first)
        return TUTTI_ERR_MEMORY;
    for (int i = host; i < end; i++) {
        enum tti_node_kind kind = topology->nodes[i].kind;
        if (kind != TTI_NODE_CORE && kind != TTI_NODE_PU)
            continue;
        int numa = tti_topology_above(topology, i, TTI_NODE_NUMA);
        if (numa != last_numa)
            all->group_first[all->groups++] = all->count;
        last_numa = numa;
        all->cores[all->count] =
            (struct bind_core){.first = i, .end = tti_topology_end(topology, i)};
        i = all->cores[all->count++].end - 1;
    }
    all->group_first[all->groups] = all->count;
    return TUTTI_OK;
}

static int bind_group_size(const struct bind_cores *all, int group)
{
    return all->group_first[group + 1] - all->group_first[group];
}

/* How many of `ranks` (at least one for each group) a group gets: one each, and each further rank
 * where it leaves the most cores to a rank. Writes the group of `rank` and its place there. */
static enum tutti_result bind_seats(const struct bind_cores *all, int ranks, int rank, int *group,
                                    int *place, int *seats)
{
    int *given = tti_calloc((size_t)all->groups, sizeof *given);
    if (!given)
        return TUTTI_ERR_MEMORY;
    for (int g = 0; g < all->groups; g++)
        given[g] = 1;
    for (int left = ranks - all->groups; left > 0; left--) {
        int best = 0;
        for (int g = 1; g < all->groups; g++) /* cores[g] / (given[g] + 1) > that of best */
            if ((long)bind_group_size(all, g) * (given[best] + 1) >
                (long)bind_group_size(all, best) * (given[g] + 1))
                best = g;
        given[best]++;
    }
    int g = 0;
    while (rank >= given[g])
        rank -= given[g++];
    *group = g;
    *place = rank;
    *seats = given[g];
    free(given);
    return TUTTI_OK;
}

/* The group on the NUMA node of the GPU of the rank; -1 where there is none. */
static int bind_group_of_gpu(const struct tti_topology *topology, const struct bind_cores *all,
                             int rank)
{
    int gpu = tti_gpu_of_rank(topology, rank);
    int numa = gpu < 0 ? -1 : tti_topology_above(topology, gpu, TTI_NODE_NUMA);
    for (int g = 0; numa >= 0 && g < all->groups; g++)
        if (tti_topology_above(topology, all->cores[all->group_first[g]].first, TTI_NODE_NUMA) ==
            numa)
            return g;
    return -1;
}

/* The same when every rank goes to the NUMA node of its GPU; *seats = 0 where that cannot be: a GPU
 * hangs on no node with cores, or more ranks would be on a node than it has cores. */
static enum tutti_result bind_seats_near_gpus(const struct tti_topology *topology,
                                              const struct bind_cores *all, int ranks, int rank,
                                              int *group, int *place, int *seats)
{
    int *given = tti_calloc((size_t)all->groups, sizeof *given);
    bool fits = given != NULL;
    if (!given)
        return TUTTI_ERR_MEMORY;
    for (int r = 0; r < ranks && fits; r++) {
        int g = bind_group_of_gpu(topology, all, r);
        fits = g >= 0 && given[g]++ < bind_group_size(all, g);
        if (r == rank && fits) {
            *group = g;
            *place = given[g] - 1;
        }
    }
    *seats = fits ? given[*group] : 0;
    free(given);
    return TUTTI_OK;
}

/* The cores [*first, *end) of the rank. */
static enum tutti_result bind_share(const struct tti_topology *topology,
                                    const struct bind_cores *all, int ranks, int rank, int *first,
                                    int *end)
{
    int group = 0;
    int place = 0;
    int seats = 0;
    TTI_TRY(bind_seats_near_gpus(topology, all, ranks, rank, &group, &place, &seats));
    if (seats == 0 && ranks < all->groups) {
        *first = all->group_first[(long)rank * all->groups / ranks];
        *end = all->group_first[(long)(rank + 1) * all->groups / ranks];
        return TUTTI_OK;
    }
    if (seats == 0)
        TTI_TRY(bind_seats(all, ranks, rank, &group, &place, &seats));
    long size = bind_group_size(all, group);
    *first = all->group_first[group] + (int)(place * size / seats);
    *end = all->group_first[group] + (int)((place + 1) * size / seats);
    return TUTTI_OK;
}

static bool bind_fill(const struct tti_topology *topology, const struct bind_core *core,
                      cpu_set_t *cpus)
{
    for (int i = core->first; i < core->end; i++) {
        const struct tti_node *node = &topology->nodes[i];
        if (node->kind != TTI_NODE_PU)
            continue;
        if (node->os_index < 0 || node->os_index >= CPU_SETSIZE)
            return false;
        CPU_SET(node->os_index, cpus);
    }
    return true;
}

enum tutti_result tti_topology_cpus(const struct tti_topology *topology, int local_ranks,
                                    int local_rank, cpu_set_t *cpus)
{
    struct bind_cores all = {0};
    cpu_set_t set;
    int first = 0;
    int end = 0;
    if (local_rank < 0 || local_rank >= local_ranks)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "cores for local rank %d of %d", local_rank,
                        local_ranks);
    enum tutti_result result = bind_collect(topology, &all);
    if (result == TUTTI_OK && all.count >= local_ranks)
        result = bind_share(topology, &all, local_ranks, local_rank, &first, &end);
    CPU_ZERO(&set);
    for (int i = first; i < end && result == TUTTI_OK; i++)
        if (!bind_fill(topology, &all.cores[i], &set)) {
            CPU_ZERO(&set);
            break;
        }
    bind_clear(&all);
    if (result == TUTTI_OK)
        *cpus = set;
    return result;
}

enum tutti_result tti_bind_parse(const char *what, const char *text, enum tti_bind *bind)
{
    bool core = strcmp(text, "core") == 0;
    if (!core && strcmp(text, "none") != 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s is \"%s\"; expected core or none", what, text);
    *bind = core ? TTI_BIND_CORE : TTI_BIND_NONE;
    return TUTTI_OK;
}

/* The sets of all ranks; *complete is false where one of them has fewer than `least` CPUs. */
static enum tutti_result bind_all(const struct tti_topology *topology, int local_ranks, int least,
                                  cpu_set_t *sets, bool *complete)
{
    *complete = true;
    for (int rank = 0; rank < local_ranks && *complete; rank++) {
        TTI_TRY(tti_topology_cpus(topology, local_ranks, rank, &sets[rank]));
        *complete = CPU_COUNT(&sets[rank]) >= least;
    }
    return TUTTI_OK;
}

/* Looking at devices takes time; without a GPU's driver there is nothing to be near to. */
static enum tutti_result bind_probe(struct tti_topology **topology)
{
    bool gpus = access("/dev/nvidiactl", F_OK) == 0 || access("/dev/kfd", F_OK) == 0;
    return tti_topology_probe(gpus ? TTI_PROBE_DEVICES : TTI_PROBE_CPUS, topology);
}

enum tutti_result tti_bind_ranks(enum tti_bind bind, int local_ranks, cpu_set_t **cpus)
{
    struct tti_topology *topology = NULL;
    bool complete = false;
    if (bind == TTI_BIND_NONE || local_ranks < 1) {
        *cpus = NULL;
        return TUTTI_OK;
    }
    cpu_set_t *sets = tti_calloc((size_t)local_ranks, sizeof *sets);
    if (!sets)
        return TUTTI_ERR_MEMORY;
    enum tutti_result result = bind_probe(&topology);
    if (result == TUTTI_OK)
        result = bind_all(topology, local_ranks, bind == TTI_BIND_CORE ? 1 : 2, sets, &complete);
    if (result == TUTTI_OK && !complete && bind == TTI_BIND_CORE)
        result = TTI_FAIL(TUTTI_ERR_ARGUMENT,
                          "cannot bind %d ranks to cores: this process may use %d; start fewer "
                          "ranks, or do not bind",
                          local_ranks, tti_topology_count(topology, -1, TTI_NODE_CORE));
    for (int rank = 0; rank < local_ranks && result == TUTTI_OK && complete; rank++) {
        char text[256];
        char why[160];
        TTI_LOG(TTI_LOG_INFO, "local rank %d of %d: CPUs %s: %s (%s)", rank, local_ranks,
                tti_cpus_text(&sets[rank], text, sizeof text),
                tti_bind_reason(topology, rank, &sets[rank], why, sizeof why), topology->source);
    }
    if (result == TUTTI_OK && !complete)
        TTI_LOG(TTI_LOG_INFO, "%d local ranks are not bound (--bind core does): there are %d cores",
                local_ranks, tti_topology_count(topology, -1, TTI_NODE_CORE));
    tti_topology_destroy(topology);
    if (result == TUTTI_OK && complete) {
        *cpus = sets;
        return TUTTI_OK;
    }
    free(sets);
    if (result == TUTTI_OK)
        *cpus = NULL;
    return result;
}

static enum tutti_result bind_explain_rank(const struct tti_topology *topology, int rank,
                                           const cpu_set_t *cpus, const char *prefix, FILE *out)
{
    char text[256];
    char why[160];
    struct tti_nic_choice *choices = NULL;
    int count = 0;
    int gpu = tti_gpu_of_rank(topology, rank);
    fprintf(out, "%srank %d: CPUs %s: %s", prefix, rank, tti_cpus_text(cpus, text, sizeof text),
            tti_bind_reason(topology, rank, cpus, why, sizeof why));
    int node = tti_near_node("/sys", cpus);
    if (node >= 0)
        fprintf(out, "; memory on NUMA node %d", node);
    if (gpu >= 0)
        TTI_TRY(tti_nics_choose(topology, &choices, &count));
    for (int i = 0; i < count; i++)
        if (choices[i].gpu == gpu && choices[i].nic >= 0)
            fprintf(out, "; %s", tti_nic_choice_text(topology, &choices[i], text, sizeof text));
    free(choices);
    putc('\n', out);
    return TUTTI_OK;
}

enum tutti_result tti_bind_explain(const cpu_set_t *cpus, int local_ranks, const char *prefix,
                                   FILE *out)
{
    struct tti_topology *topology = NULL;
    TTI_TRY(bind_probe(&topology));
    enum tutti_result result = TUTTI_OK;
    if (!cpus)
        fprintf(out, "%s%d rank%s not bound to cores: there are %d of them\n", prefix, local_ranks,
                local_ranks == 1 ? " is" : "s are",
                tti_topology_count(topology, -1, TTI_NODE_CORE));
    for (int rank = 0; rank < local_ranks && cpus && result == TUTTI_OK; rank++)
        result = bind_explain_rank(topology, rank, &cpus[rank], prefix, out);
    tti_topology_destroy(topology);
    return result;
}

const char *tti_bind_reason(const struct tti_topology *topology, int local_rank,
                            const cpu_set_t *cpus, char *text, size_t bytes)
{
    int gpu = tti_gpu_of_rank(topology, local_rank);
    char label[80];
    cpu_set_t near;
    cpu_set_t both;
    if (gpu < 0) {
        snprintf(text, bytes, "cores of its own");
        return text;
    }
    tti_cpus_near(topology, gpu, &near);
    CPU_AND(&both, &near, cpus);
    snprintf(text, bytes, CPU_EQUAL(&both, cpus) ? "near its %s" : "not all near its %s",
             tti_topology_label(topology, gpu, label, sizeof label));
    return text;
}

const char *tti_cpus_text(const cpu_set_t *cpus, char *text, size_t bytes)
{
    size_t used = 0;
    snprintf(text, bytes, "none");
    for (int cpu = 0; cpu < CPU_SETSIZE && used < bytes; cpu++) {
        int last = cpu;
        if (!CPU_ISSET(cpu, cpus))
            continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cpus))
            last++;
        used += (size_t)snprintf(text + used, bytes - used, "%s%d", used ? "," : "", cpu);
        if (last > cpu && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "-%d", last);
        cpu = last;
    }
    return text;
}
