/* NICs near ranks (coll/nics.h). */
#include "coll/nics.h"

#include "base/config.h"
#include "base/host.h"
#include "base/kernel_file.h"
#include "base/log.h"
#include "base/memory.h"
#include "coll/comm.h"
#include "coll/door.h"
#include "device/gpu.h"
#include "topology/kept.h"
#include "topology/nic_use.h"
#include "transport/rdma/rdma_names.h"
#include "transport/tcp/tcp_address.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)TTI_NIC_GPU_BYTES == (int)TTI_GPU_PCI_BYTES, "an address fits");
_Static_assert((int)TTI_CPUS == (int)CPU_SETSIZE, "sets of processors are alike");

static _Thread_local int nics_device = -1;

void tti_comm_by_device(int device)
{
    nics_device = device;
}

enum tutti_result tti_nics_place(struct tti_nic_place *place)
{
    const struct tti_gpu_ops *ops = NULL;
    *place = (struct tti_nic_place){.host = tti_host_identity(), .nics = tti_nics_here("/sys")};
    TTI_TRY(tti_gpu_in_use(&ops));
    if (!ops)
        return TUTTI_OK;
    ops->here(nics_device, place->gpu);
    TTI_LOG(TTI_LOG_DEBUG, "NICs: this rank's device is at %s",
            place->gpu[0] ? place->gpu : "no address, since it uses none so far");
    return TUTTI_OK;
}

/* ---- what the system has --------------------------------------------------------------------- */

bool tti_nic_is_up(const char *sysfs, const char *name, bool rdma)
{
    char path[500], word[40];
    bool up = false;
    if (!rdma) {
        snprintf(path, sizeof path, "%.300s/class/net/%.60s/operstate", sysfs, name);
        (void)tti_kernel_line(path, word, sizeof word);
        return strcmp(word, "up") == 0 || strcmp(word, "unknown") == 0;
    }
    for (int port = 1; port <= 8 && !up; port++) {
        snprintf(path, sizeof path, "%.300s/class/infiniband/%.60s/ports/%d/state", sysfs, name,
                 port);
        (void)tti_kernel_line(path, word, sizeof word);
        up = strstr(word, "ACTIVE") != NULL;
    }
    return up;
}

/* Calls `visit` with each name that a NIC's node has: "eth0/mlx5_0". */
static void nics_names(const struct tti_node *node, void (*visit)(void *context, const char *name),
                       void *context)
{
    char names[TTI_NODE_NAME_BYTES];
    char *rest = names;
    memcpy(names, node->name, sizeof names);
    for (char *name; node->kind == TTI_NODE_NIC && (name = strsep(&rest, "/"));)
        if (*name)
            visit(context, name);
}

int tti_nics_count(const char *sysfs, bool rdma)
{
    int count = 0;
    char path[600];
    snprintf(path, sizeof path, "%.300s/class/%s", sysfs, rdma ? "infiniband" : "net");
    DIR *all = opendir(path);
    for (const struct dirent *entry; all && (entry = readdir(all));) {
        snprintf(path, sizeof path, "%.300s/class/%s/%.200s/device", sysfs,
                 rdma ? "infiniband" : "net", entry->d_name);
        DIR *device = entry->d_name[0] == '.' ? NULL : opendir(path);
        count += device && tti_nic_is_up(sysfs, entry->d_name, rdma);
        if (device)
            closedir(device);
    }
    if (all)
        closedir(all);
    return count;
}

int tti_nics_here(const char *sysfs)
{
    const int rdma = tti_nics_count(sysfs, true);
    return rdma > 0 ? rdma : tti_nics_count(sysfs, false);
}

/* ---- one kind of NIC ------------------------------------------------------------------------- */

/* RDMA devices, or interfaces: a NIC may be both. */
struct nics_kind {
    bool rdma;
    bool dealt;         /* by the user, to each rank its own: nothing is chosen */
    const char *wanted; /* the user's TUTTI_RDMA_DEVICES or TUTTI_IFNAME; NULL: any */
    bool here, up;      /* of the names seen: is one up? And may it be used? */
    bool *usable, *far;
    char *list; /* of names; grows */
    size_t bytes;
};

/* One that the user's list lets in, and that is up; sockets need an address. */
static bool nics_may_use(const struct nics_kind *kind, const char *name)
{
    enum { PORTS = 8 };
    bool allowed = !kind->wanted || (!kind->rdma && tti_tcp_allowed(kind->wanted, name));
    for (int port = 1; kind->rdma && port <= PORTS && !allowed; port++)
        allowed = tti_rdma_names_allow(kind->wanted, name, port);
    return allowed && tti_nic_is_up("/sys", name, kind->rdma) &&
           (kind->rdma || tti_tcp_has_address(name));
}

static void nics_look(void *context, const char *name)
{
    struct nics_kind *kind = context;
    kind->here |= tti_nic_is_up("/sys", name, kind->rdma);
    kind->up |= nics_may_use(kind, name);
}

static void nics_add(void *context, const char *name)
{
    struct nics_kind *kind = context;
    const size_t used = strlen(kind->list);
    if (nics_may_use(kind, name))
        snprintf(kind->list + used, kind->bytes - used, "%s%s", used ? "," : "", name);
}

static void nics_say(const struct tti_topology *topology, const struct nics_kind *kind, int gpu,
                     const struct tti_nic_use *use)
{
    char near[300] = "", to[80] = "the cores that this rank may run on", label[80], why[140];
    size_t used = 0;
    for (size_t i = 0; i < topology->node_count && used < sizeof near; i++)
        if (kind->usable[i] && !kind->far[i])
            used += (size_t)snprintf(near + used, sizeof near - used, "%s%s", used ? ", " : "",
                                     tti_topology_label(topology, (int)i, label, sizeof label));
    if (gpu >= 0)
        (void)tti_topology_label(topology, gpu, to, sizeof to);
    snprintf(why, sizeof why, "%s as %.79s", tti_nearness_text(use->nearness), to);
    TTI_LOG(TTI_LOG_INFO, "%s: this rank goes by %s (%s%s)", kind->rdma ? "RDMA" : "sockets", near,
            use->nearness < TTI_NEAR_NOT ? why : "none is near",
            use->sharers > 1 ? "; its rail of those that several ranks are as near to" : "");
}

static enum tutti_result nics_of_kind(const struct tti_topology *topology,
                                      const struct tti_nic_user *users, int count, int me,
                                      struct nics_kind *kind)
{
    const enum tti_nic_way way = kind->rdma ? TTI_NIC_BY_ALL : TTI_NIC_BY_ONE;
    struct tti_nic_use use;
    for (size_t i = 0; i < topology->node_count; i++) {
        kind->up = false;
        nics_names(&topology->nodes[i], nics_look, kind);
        kind->usable[i] = kind->up;
    }
    if (kind->dealt)
        return TUTTI_OK;
    TTI_TRY(tti_nics_far(topology, users, count, me, way, kind->usable, kind->far, &use));
    for (size_t i = 0; i < topology->node_count; i++)
        if (kind->far[i])
            nics_names(&topology->nodes[i], nics_add, kind);
    if (use.chosen)
        nics_say(topology, kind, users[me].gpu, &use);
    return TUTTI_OK;
}

/* ---- the choice ------------------------------------------------------------------------------ */

int tti_nics_users(const struct tti_nic_place *places, int size, int rank,
                   const struct tti_topology *topology, const cpu_set_t *cpus,
                   struct tti_nic_user *users, int *me)
{
    int count = 0;
    for (int r = 0; r < size; r++) {
        if (places[r].host != places[rank].host)
            continue;
        struct tti_nic_user *user = &users[count];
        *user = (struct tti_nic_user){.gpu = -1, .cpus = &cpus[r]};
        if (r == rank)
            *me = count;
        if (places[r].gpu[0])
            user->gpu = tti_topology_gpu_at(topology, places[r].gpu);
        if (places[r].gpu[0] && user->gpu < 0)
            user->gpu = tti_gpu_of_rank(topology, count);
        count++;
    }
    return count;
}

int tti_nics_lanes(const struct tti_nic_place *places, int size, int lanes)
{
    for (int r = 0; r < size; r++) {
        int here = 0;
        for (int other = 0; other < size; other++)
            here += places[other].host == places[r].host;
        const int gates = here < places[r].nics ? here : places[r].nics;
        while (here < size && lanes < gates && 2 * lanes <= TUTTI_MAX_LANES)
            lanes *= 2;
    }
    return lanes;
}

static enum tutti_result nics_choose(const struct tutti_comm *comm,
                                     const struct tti_topology *topology, bool described,
                                     struct nics_kind *kind, struct tti_nic_user *users,
                                     cpu_set_t *cpus)
{
    int me = 0;
    for (int r = 0; r < comm->size; r++) {
        CPU_ZERO(&cpus[r]);
        for (size_t c = 0; c < CPU_SETSIZE; c++)
            if (comm->cpus[r].bits[c / 64] >> c % 64 & 1)
                CPU_SET(c, &cpus[r]);
    }
    const int count =
        tti_nics_users(comm->places, comm->size, comm->rank, topology, cpus, users, &me);
    for (int rdma = 0; rdma <= 1; rdma++) {
        const char *wanted = tti_config_text(rdma ? "TUTTI_RDMA_DEVICES" : "TUTTI_IFNAME");
        kind->rdma = rdma;
        kind->dealt = rdma && wanted && strchr(wanted, '/');
        kind->wanted = kind->dealt ? NULL : wanted;
        TTI_TRY(nics_of_kind(topology, users, count, me, kind));
    }
    if (described && !kind->here)
        TTI_LOG(TTI_LOG_WARN,
                "TUTTI_TOPOLOGY describes no NIC that is up here by its name, so it chooses none; "
                "its NICs should be named as interfaces and RDMA devices are: \"eth0/mlx5_0\"");
    return TUTTI_OK;
}

static enum tutti_result nics_choose_in(const struct tutti_comm *comm,
                                        const struct tti_topology *topology, bool described,
                                        char **names)
{
    const size_t nodes = topology->node_count;
    struct tti_nic_user *users = tti_calloc((size_t)comm->size, sizeof *users);
    cpu_set_t *cpus = tti_calloc((size_t)comm->size, sizeof *cpus);
    struct nics_kind kind = {.bytes = 1 + 2 * nodes * TTI_NODE_NAME_BYTES};
    kind.usable = tti_calloc(nodes, sizeof *kind.usable);
    kind.far = tti_calloc(nodes, sizeof *kind.far);
    kind.list = tti_calloc(kind.bytes, 1);
    enum tutti_result result =
        users && cpus && kind.usable && kind.far && kind.list ? TUTTI_OK : TUTTI_ERR_MEMORY;
    if (result == TUTTI_OK)
        result = nics_choose(comm, topology, described, &kind, users, cpus);
    if (result == TUTTI_OK && *kind.list) {
        *names = tti_strdup(kind.list);
        result = *names ? TUTTI_OK : TUTTI_ERR_MEMORY;
    }
    free(users);
    free(cpus);
    free(kind.usable);
    free(kind.far);
    free(kind.list);
    return result;
}

static bool nics_one_host(const struct tutti_comm *comm)
{
    for (int r = 1; r < comm->size; r++)
        if (comm->places[r].host != comm->places[0].host)
            return false;
    return true;
}

enum tutti_result tti_nics_far_names(const struct tutti_comm *comm, char **names)
{
    static const char *const choices[] = {"off", "auto"};
    const char *file = tti_config_text("TUTTI_TOPOLOGY");
    const struct tti_topology *topology = NULL;
    int choice = 1;
    *names = NULL;
    TTI_TRY(tti_config_name("TUTTI_NIC_NEAR", choices, 2, 1, &choice));
    if (choice == 0)
        return TUTTI_OK;
    if (file) {
        enum tutti_result read = tti_topology_keep(file, &topology);
        if (read != TUTTI_OK)
            return TTI_CONTEXT(read, "TUTTI_TOPOLOGY (a file as tutti-topo -o FILE.json or hwloc "
                                     "writes it)");
    }
    const bool look = !nics_one_host(comm) && (file || tti_nics_count("/sys", false) > 1 ||
                                               tti_nics_count("/sys", true) > 1);
    enum tutti_result result = TUTTI_OK;
    if (look && !file && tti_topology_keep_whole(&topology) != TUTTI_OK)
        TTI_LOG(TTI_LOG_INFO, "which NICs are near is not known: %s", tti_error_text());
    if (look && topology)
        result = nics_choose_in(comm, topology, file != NULL, names);
    tti_topology_release(topology);
    return result;
}
