/* The NICs that a rank uses (nic_use.h). */
#include "topology/nic_use.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* The NICs of the first host that may be chosen, and for each user which of them are nearest. */
struct nics {
    const struct tti_topology *topology;
    enum tti_nic_way way;
    int host, end; /* its nodes */
    int count;     /* NICs */
    int *nic;      /* nodes */
    double *gbs;
    bool *near;         /* [user][count] */
    bool *parts;        /* [count]: those that are shared out */
    unsigned char *row; /* [count]: how near each is to the user that is looked at */
    /* [node of the host][count]: 1 + how near, 0 where nobody asked. Each question walks the graph,
     * and many ranks that may run on many processors have the same ones. */
    unsigned char *asked;
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

static unsigned char nics_nearness(const struct nics *in, int node, int k)
{
    unsigned char *asked = &in->asked[(size_t)(node - in->host) * (size_t)in->count + (size_t)k];
    if (!*asked)
        *asked = (unsigned char)(1 + tti_nearness(in->topology, node, in->nic[k]));
    return (unsigned char)(*asked - 1);
}

static void nics_nearer(const struct nics *in, int node)
{
    for (int k = 0; k < in->count; k++) {
        unsigned char nearness = nics_nearness(in, node, k);
        in->row[k] = nearness < in->row[k] ? nearness : in->row[k];
    }
}

/* in->row: how near each NIC is to the user's GPU, or to the nearest of its processors. */
static void nics_ask(const struct nics *in, const struct tti_nic_user *user)
{
    memset(in->row, TTI_NEAR_NOT, (size_t)in->count);
    if (in->count == 0) /* perhaps there is no host either */
        return;
    if (user->gpu >= in->host && user->gpu < in->end)
        nics_nearer(in, user->gpu);
    for (int i = in->host; user->gpu < 0 && user->cpus && i < in->end; i++) {
        const struct tti_node *node = &in->topology->nodes[i];
        if (node->kind == TTI_NODE_PU && node->os_index >= 0 && node->os_index < CPU_SETSIZE &&
            CPU_ISSET(node->os_index, user->cpus))
            nics_nearer(in, i);
    }
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
    nics_ask(in, user);
    for (int k = 0; k < in->count; k++) {
        enum tti_nearness nearness = (enum tti_nearness)in->row[k];
        if (k == 0 || nearness < *best || (nearness == *best && in->gbs[k] > fastest))
            fastest = in->gbs[k];
        *best = nearness < *best ? nearness : *best;
    }
    for (int k = 0; k < in->count; k++) {
        near[k] = in->row[k] == *best && (in->gbs[k] >= fastest || !(in->gbs[k] > 0));
        near[k] |= *best != TTI_NEAR_SWITCH && nics_unplaced(in, in->nic[k]);
        marked += near[k];
    }
    return marked;
}

/* ---- sharing out ----------------------------------------------------------------------------- */

/* Users with the same nearest NICs (BY_ALL: and GPUs): how many, and how many of them before `me`.
 */
static int nics_sharers(const struct nics *in, const struct tti_nic_user *users, int count, int me,
                        int *place)
{
    const size_t bytes = (size_t)in->count * sizeof *in->near;
    const bool *mine = in->near + (size_t)me * (size_t)in->count;
    int sharers = 0;
    *place = 0;
    for (int u = 0; u < count; u++) {
        if ((in->way == TTI_NIC_BY_ALL && users[u].gpu < 0) ||
            memcmp(in->near + (size_t)u * (size_t)in->count, mine, bytes) != 0)
            continue;
        sharers++;
        *place += users[u].gpu < users[me].gpu || (users[u].gpu == users[me].gpu && u < me);
    }
    return sharers;
}

/* Which of mine may be shared out, and how many. A connection over sockets goes by one, so there
 * only those that are of one kind, as far as the system says: the fastest whose place it tells. */
static int nics_parts(const struct nics *in, const bool *mine)
{
    double fastest = 0;
    int count = 0;
    for (int k = 0; k < in->count; k++) {
        in->parts[k] = mine[k] && (in->way == TTI_NIC_BY_ALL || !nics_unplaced(in, in->nic[k]));
        fastest = in->parts[k] && in->gbs[k] > fastest ? in->gbs[k] : fastest;
    }
    for (int k = 0; k < in->count; k++) {
        in->parts[k] &= in->way == TTI_NIC_BY_ALL || in->gbs[k] >= fastest;
        count += in->parts[k];
    }
    return count;
}

/* Shall `parts` NICs be shared out? `told`: others are farther. */
static bool nics_to_share(const struct nics *in, int parts, int sharers, bool told)
{
    if (sharers < 2 || parts < 2)
        return false;
    if (in->way == TTI_NIC_BY_ONE)
        return told || parts == in->count;
    return told && (parts % sharers == 0 || sharers % parts == 0);
}

/* Of the `parts` that are shared out leave mine marked. The others of the nearest stay in use. */
static void nics_part(const struct nics *in, bool *mine, int parts, int place, int sharers)
{
    for (int k = 0, rail = 0; k < in->count; k++) {
        if (!in->parts[k])
            continue;
        mine[k] = parts >= sharers ? rail % sharers == place : rail == place % parts;
        rail++;
    }
}

/* Marks mine. */
static bool *nics_choose(struct nics *in, const struct tti_nic_user *users, int count, int me,
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
    const bool told = marked < in->count && use->nearness < TTI_NEAR_NOT;
    const int sharers = nics_sharers(in, users, count, me, &place);
    const int parts = nics_parts(in, mine);
    const bool share = (in->way == TTI_NIC_BY_ONE || users[me].gpu >= 0) &&
                       nics_to_share(in, parts, sharers, told);
    use->chosen = told || share;
    use->sharers = share ? sharers : 1;
    if (share)
        nics_part(in, mine, parts, place, sharers);
    return mine;
}

enum tutti_result tti_nics_far(const struct tti_topology *topology,
                               const struct tti_nic_user *users, int count, int me,
                               enum tti_nic_way way, const bool *usable, bool *far,
                               struct tti_nic_use *use)
{
    const bool *mine = NULL;
    struct nics in = {.topology = topology, .way = way, .host = tti_first_host(topology)};
    const size_t most = (size_t)tti_topology_count(topology, in.host, TTI_NODE_NIC) + 1;
    in.end = in.host < 0 ? 0 : tti_topology_end(topology, in.host);
    in.nic = tti_calloc(most, sizeof *in.nic);
    in.gbs = tti_calloc(most, sizeof *in.gbs);
    in.near = tti_calloc(most * (size_t)count, sizeof *in.near);
    in.parts = tti_calloc(most, sizeof *in.parts);
    in.row = tti_calloc(most, sizeof *in.row);
    in.asked = tti_calloc(most * (size_t)(in.end - in.host + 1), sizeof *in.asked);
    const bool made = in.nic && in.gbs && in.near && in.parts && in.row && in.asked;
    enum tutti_result result = made ? TUTTI_OK : TUTTI_ERR_MEMORY;
    *use = (struct tti_nic_use){.nearness = TTI_NEAR_NOT};
    memset(far, 0, topology->node_count * sizeof *far);
    if (result == TUTTI_OK) {
        nics_find(&in, usable);
        mine = nics_choose(&in, users, count, me, use);
    }
    for (int i = in.host; use->chosen && i < in.end; i++)
        far[i] = topology->nodes[i].kind == TTI_NODE_NIC && (!usable || usable[i]);
    for (int k = 0; use->chosen && k < in.count; k++)
        far[in.nic[k]] = !mine[k];
    free(in.nic);
    free(in.gbs);
    free(in.near);
    free(in.parts);
    free(in.row);
    free(in.asked);
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
