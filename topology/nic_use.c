/* The NICs that a rank uses (nic_use.h). */
#include "topology/nic_use.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* The NICs of the first host that may be chosen, and for each user which of them are nearest. */
struct nics {
    const struct tti_topology *topology;
    int host, end; /* its nodes */
    int count;     /* NICs */
    int *nic;      /* nodes */
    double *gbs;
    bool *near; /* [user][count] */
};

/* ---- what there is --------------------------------------------------------------------------- */

/* Those worth choosing: not the host's slow one for logins. An unknown rate may be any. */
static void nics_find(struct nics *in, const bool *usable)
{
    double fastest = 0;
    int kept = 0;
    for (int i = in->host; i >= 0 && i < in->end; i++) {
        if (in->topology->nodes[i].kind != TTI_NODE_NIC || (usable && !usable[i]))
            continue;
        in->gbs[in->count] = tti_nic_rate(in->topology, i);
        in->nic[in->count] = i;
        fastest = in->gbs[in->count] > fastest ? in->gbs[in->count] : fastest;
        in->count++;
    }
    for (int k = 0; k < in->count; k++) {
        if (in->gbs[k] > 0 && in->gbs[k] < fastest / 2)
            continue;
        in->gbs[kept] = in->gbs[k];
        in->nic[kept++] = in->nic[k];
    }
    in->count = kept;
}

/* ---- what is near ---------------------------------------------------------------------------- */

static enum tti_nearness nics_nearness(const struct nics *in, const struct tti_nic_user *user,
                                       int nic)
{
    enum tti_nearness best = TTI_NEAR_NOT;
    if (user->gpu >= 0)
        return tti_nearness(in->topology, user->gpu, nic);
    for (int i = in->host; user->cpus && i < in->end; i++) {
        const struct tti_node *node = &in->topology->nodes[i];
        if (node->kind != TTI_NODE_PU || node->os_index < 0 || node->os_index >= CPU_SETSIZE ||
            !CPU_ISSET(node->os_index, user->cpus))
            continue;
        enum tti_nearness nearness = tti_nearness(in->topology, i, nic);
        best = nearness < best ? nearness : best;
    }
    return best;
}

/* The system does not say where it is: on no NUMA node, in no package. */
static bool nics_unplaced(const struct nics *in, int nic)
{
    return tti_topology_above(in->topology, nic, TTI_NODE_NUMA) < 0 &&
           tti_topology_above(in->topology, nic, TTI_NODE_PACKAGE) < 0;
}

/* Marks the fastest of the nearest, and what may be as near; how many. */
static int nics_mark(const struct nics *in, const struct tti_nic_user *user, bool *near,
                     enum tti_nearness *best)
{
    double fastest = 0;
    int marked = 0;
    *best = TTI_NEAR_NOT;
    for (int k = 0; k < in->count; k++) {
        enum tti_nearness nearness = nics_nearness(in, user, in->nic[k]);
        if (k == 0 || nearness < *best || (nearness == *best && in->gbs[k] > fastest))
            fastest = in->gbs[k];
        *best = nearness < *best ? nearness : *best;
    }
    for (int k = 0; k < in->count; k++) {
        near[k] = nics_nearness(in, user, in->nic[k]) == *best &&
                  (in->gbs[k] >= fastest || !(in->gbs[k] > 0));
        near[k] |= *best != TTI_NEAR_SWITCH && nics_unplaced(in, in->nic[k]);
        marked += near[k];
    }
    return marked;
}

/* ---- sharing out ----------------------------------------------------------------------------- */

/* Users with GPUs and the same nearest NICs: how many, and how many of them before `me`. */
static void nics_sharers(const struct nics *in, const struct tti_nic_user *users, int count, int me,
                         int *place, int *sharers)
{
    const size_t bytes = (size_t)in->count * sizeof *in->near;
    const bool *mine = in->near + (size_t)me * (size_t)in->count;
    *place = *sharers = 0;
    for (int u = 0; u < count; u++) {
        if (users[u].gpu < 0 || memcmp(in->near + (size_t)u * (size_t)in->count, mine, bytes) != 0)
            continue;
        ++*sharers;
        *place += users[u].gpu < users[me].gpu || (users[u].gpu == users[me].gpu && u < me);
    }
}

/* Leave my part of my nearest NICs marked, where the parts of all who share them are alike. */
static void nics_part(const struct nics *in, int marked, int place, int sharers)
{
    bool *mine = in->near; /* moved to the front by the caller */
    if (sharers < 2 || (marked % sharers != 0 && sharers % marked != 0))
        return;
    for (int k = 0, rail = 0; k < in->count; k++) {
        if (!mine[k])
            continue;
        mine[k] = marked >= sharers ? rail % sharers == place : rail == place % marked;
        rail++;
    }
}

static void nics_choose(struct nics *in, const struct tti_nic_user *users, int count, int me,
                        struct tti_nic_use *use)
{
    bool *mine = in->near + (size_t)me * (size_t)in->count;
    enum tti_nearness others = TTI_NEAR_NOT;
    int place = 0, marked = 0;
    for (int u = 0; u < count; u++) {
        bool *near = in->near + (size_t)u * (size_t)in->count;
        int found = nics_mark(in, &users[u], near, u == me ? &use->nearness : &others);
        marked = u == me ? found : marked;
    }
    use->chosen = marked < in->count && use->nearness < TTI_NEAR_NOT;
    if (users[me].gpu >= 0)
        nics_sharers(in, users, count, me, &place, &use->sharers);
    memmove(in->near, mine, (size_t)in->count * sizeof *mine);
    if (use->chosen && users[me].gpu >= 0)
        nics_part(in, marked, place, use->sharers);
}

enum tutti_result tti_nics_far(const struct tti_topology *topology,
                               const struct tti_nic_user *users, int count, int me,
                               const bool *usable, bool *far, struct tti_nic_use *use)
{
    struct nics in = {.topology = topology, .host = tti_first_host(topology)};
    const size_t most = (size_t)tti_topology_count(topology, in.host, TTI_NODE_NIC) + 1;
    in.end = in.host < 0 ? 0 : tti_topology_end(topology, in.host);
    in.nic = tti_calloc(most, sizeof *in.nic);
    in.gbs = tti_calloc(most, sizeof *in.gbs);
    in.near = tti_calloc(most * (size_t)count, sizeof *in.near);
    enum tutti_result result = in.nic && in.gbs && in.near ? TUTTI_OK : TUTTI_ERR_MEMORY;
    *use = (struct tti_nic_use){.nearness = TTI_NEAR_NOT};
    memset(far, 0, topology->node_count * sizeof *far);
    if (result == TUTTI_OK) {
        nics_find(&in, usable);
        nics_choose(&in, users, count, me, use);
    }
    for (int i = in.host; use->chosen && i < in.end; i++)
        far[i] = topology->nodes[i].kind == TTI_NODE_NIC && (!usable || usable[i]);
    for (int k = 0; use->chosen && k < in.count; k++)
        far[in.nic[k]] = !in.near[k];
    free(in.nic);
    free(in.gbs);
    free(in.near);
    return result;
}

int tti_topology_gpu_at(const struct tti_topology *topology, const char *pci)
{
    const int host = tti_first_host(topology);
    for (int i = host; *pci && host >= 0 && i < tti_topology_end(topology, host); i++)
        if (topology->nodes[i].kind == TTI_NODE_GPU &&
            strncmp(topology->nodes[i].name, pci, strlen(pci)) == 0)
            return i;
    return -1;
}
