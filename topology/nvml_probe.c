/* What NVIDIA's driver knows of this machine's GPUs and the PCI tree does not show: NVLinks, to
 * each other and to switches, the PCI generation that an idle GPU hides, and which GPUs the driver
 * lets read each other. Added to a graph that has the GPUs already (by hwloc), found by their PCI
 * addresses; a GPU that is not there is added to the host. */
#include "base/log.h"
#include "base/memory.h"
#include "topology/nvml_library.h"
#include "topology/topology_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_GPUS = 64 };

struct nvml_gpu {
    struct tti_nvml_device *device;
    struct tti_nvml_pci pci;
    int node;
    unsigned architecture; /* 0: unknown */
    int links[MOST_GPUS];  /* active ones to each other GPU */
    int switch_links, cpu_links;
    double link_gbs; /* of one link */
};

struct nvml_probe {
    const struct tti_nvml *nvml;
    struct tti_topology *topology;
    int host, count;
    struct nvml_gpu gpus[MOST_GPUS];
};

/* ---- GPUs ------------------------------------------------------------------------------------ */

/* hwloc's names begin with the address: "0000:17:00.0 GH100". */
static int nvml_find_node(const struct tti_topology *topology, const struct tti_nvml_pci *pci)
{
    char address[24];
    int length =
        snprintf(address, sizeof address, "%04x:%02x:%02x.", pci->domain, pci->bus, pci->device);
    for (int i = 0; i < (int)topology->node_count; i++)
        if (topology->nodes[i].kind == TTI_NODE_GPU &&
            strncmp(topology->nodes[i].name, address, (size_t)length) == 0)
            return i;
    return -1;
}

static enum tutti_result nvml_gpu(struct nvml_probe *probe, int index)
{
    const struct tti_nvml *nvml = probe->nvml;
    struct nvml_gpu *gpu = &probe->gpus[index];
    char name[96] = "";
    TTI_TRY(tti_nvml_check(nvml, nvml->nvmlDeviceGetHandleByIndex_v2((unsigned)index, &gpu->device),
                           "nvmlDeviceGetHandleByIndex_v2", index));
    TTI_TRY(tti_nvml_check(nvml, nvml->nvmlDeviceGetPciInfo_v3(gpu->device, &gpu->pci),
                           "nvmlDeviceGetPciInfo_v3", index));
    if (nvml->nvmlDeviceGetName(gpu->device, name, sizeof name) != TTI_NVML_SUCCESS)
        snprintf(name, sizeof name, "GPU");
    if (nvml->nvmlDeviceGetArchitecture)
        (void)nvml->nvmlDeviceGetArchitecture(gpu->device, &gpu->architecture);
    gpu->node = nvml_find_node(probe->topology, &gpu->pci);
    if (gpu->node >= 0)
        return TUTTI_OK;
    struct tti_node node = {.kind = TTI_NODE_GPU, .parent = probe->host, .os_index = -1};
    snprintf(node.name, sizeof node.name, "%04x:%02x:%02x.0 %.30s", gpu->pci.domain, gpu->pci.bus,
             gpu->pci.device, name);
    TTI_TRY(tti_topology_insert(probe->topology, &node, &gpu->node));
    for (int i = 0; i < index; i++)
        probe->gpus[i].node += probe->gpus[i].node >= gpu->node;
    struct tti_graph_link link = {.kind = TTI_LINK_PCI, .from = gpu->node, .to = probe->host};
    return tti_topology_link(probe->topology, &link);
}

/* GB/s of all lanes of the best that GPU and slot agree on: an idle link runs slower. */
static void nvml_pcie(struct nvml_probe *probe, const struct nvml_gpu *gpu)
{
    static const double lane_gbs[] = {0, 0.25, 0.5, 0.985, 1.969, 3.938, 7.563};
    const struct tti_nvml *nvml = probe->nvml;
    unsigned generation = 0;
    unsigned width = 0;
    if (!nvml->nvmlDeviceGetMaxPcieLinkGeneration || !nvml->nvmlDeviceGetMaxPcieLinkWidth ||
        nvml->nvmlDeviceGetMaxPcieLinkGeneration(gpu->device, &generation) != TTI_NVML_SUCCESS ||
        nvml->nvmlDeviceGetMaxPcieLinkWidth(gpu->device, &width) != TTI_NVML_SUCCESS ||
        generation >= sizeof lane_gbs / sizeof lane_gbs[0] || width > 32)
        return;
    for (size_t i = 0; i < probe->topology->link_count; i++) {
        struct tti_graph_link *link = &probe->topology->links[i];
        if (link->kind == TTI_LINK_PCI && link->from == gpu->node &&
            link->gbs < lane_gbs[generation] * width)
            link->gbs = lane_gbs[generation] * width;
    }
}

/* ---- NVLink ---------------------------------------------------------------------------------- */

/* What a link carries in each direction by its generation. The driver tells the rate of the wire,
 * which is a little more. */
static double nvml_link_gbs(const struct nvml_probe *probe, const struct nvml_gpu *gpu)
{
    static const double nominal[] = {100, 50, 25, 20};
    const struct tti_nvml *nvml = probe->nvml;
    struct tti_nvml_field field = {.field_id = TTI_NVML_FIELD_NVLINK_MBPS};
    if (nvml->nvmlDeviceGetFieldValues &&
        nvml->nvmlDeviceGetFieldValues(gpu->device, 1, &field) == TTI_NVML_SUCCESS &&
        field.result == TTI_NVML_SUCCESS && field.value_type == TTI_NVML_VALUE_UNSIGNED)
        for (size_t i = 0; i < sizeof nominal / sizeof nominal[0]; i++)
            if (field.value.u / 1000.0 >= nominal[i] * 0.95)
                return nominal[i];
    if (gpu->architecture == 0)
        return 0;
    return gpu->architecture <= TTI_NVML_PASCAL      ? 20
           : gpu->architecture >= TTI_NVML_BLACKWELL ? 50
                                                     : 25;
}

/* Counts the active links of a GPU by what they end at. A GPU of another virtual machine shows as a
 * switch, as NVSwitches do whose addresses are hidden. */
static void nvml_links(struct nvml_probe *probe, struct nvml_gpu *gpu)
{
    const struct tti_nvml *nvml = probe->nvml;
    for (unsigned link = 0; link < TTI_NVML_LINKS; link++) {
        unsigned active = 0;
        unsigned type = 0;
        struct tti_nvml_pci remote = {.bus = 0};
        int peer = 0;
        if (nvml->nvmlDeviceGetNvLinkState(gpu->device, link, &active) != TTI_NVML_SUCCESS ||
            !active ||
            nvml->nvmlDeviceGetNvLinkRemotePciInfo_v2(gpu->device, link, &remote) !=
                TTI_NVML_SUCCESS)
            continue;
        while (peer < probe->count && (probe->gpus[peer].pci.domain != remote.domain ||
                                       probe->gpus[peer].pci.bus != remote.bus ||
                                       probe->gpus[peer].pci.device != remote.device))
            peer++;
        if (peer < probe->count)
            gpu->links[peer]++;
        else if (nvml->nvmlDeviceGetNvLinkRemoteDeviceType &&
                 nvml->nvmlDeviceGetNvLinkRemoteDeviceType(gpu->device, link, &type) ==
                     TTI_NVML_SUCCESS &&
                 type == TTI_NVML_REMOTE_CPU)
            gpu->cpu_links++;
        else
            gpu->switch_links++;
    }
    gpu->link_gbs = nvml_link_gbs(probe, gpu);
}

static enum tutti_result nvml_add_nvswitch(struct nvml_probe *probe)
{
    struct tti_node node = {
        .kind = TTI_NODE_SWITCH, .parent = probe->host, .os_index = -1, .name = "NVSwitch"};
    int nvswitch = 0;
    int users = 0;
    node.reduces = true; /* from Hopper's generation on */
    for (int i = 0; i < probe->count; i++) {
        users += probe->gpus[i].switch_links > 0;
        if (probe->gpus[i].switch_links && probe->gpus[i].architecture < TTI_NVML_HOPPER)
            node.reduces = false;
    }
    if (users < 2)
        return TUTTI_OK;
    TTI_TRY(tti_topology_insert(probe->topology, &node, &nvswitch));
    for (int i = 0; i < probe->count; i++) {
        const struct nvml_gpu *gpu = &probe->gpus[i];
        struct tti_graph_link link = {.kind = TTI_LINK_NVLINK,
                                      .from = gpu->node,
                                      .to = nvswitch,
                                      .gbs = gpu->switch_links * gpu->link_gbs};
        if (gpu->switch_links)
            TTI_TRY(tti_topology_link(probe->topology, &link));
    }
    return TUTTI_OK;
}

static enum tutti_result nvml_add_links(struct nvml_probe *probe)
{
    for (int i = 0; i < probe->count; i++) {
        const struct nvml_gpu *gpu = &probe->gpus[i];
        for (int k = i + 1; k < probe->count; k++) {
            struct tti_graph_link link = {.kind = TTI_LINK_NVLINK,
                                          .from = gpu->node,
                                          .to = probe->gpus[k].node,
                                          .gbs = gpu->links[k] * gpu->link_gbs};
            if (gpu->links[k])
                TTI_TRY(tti_topology_link(probe->topology, &link));
        }
        TTI_LOG(TTI_LOG_DEBUG, "device %d is %s: %d NVLinks to switches, %d to CPUs, %g GB/s each",
                i, probe->topology->nodes[gpu->node].name, gpu->switch_links, gpu->cpu_links,
                gpu->link_gbs);
    }
    return nvml_add_nvswitch(probe);
}

/* ---- Who may read whom ----------------------------------------------------------------------- */

static const char *nvml_p2p_text(unsigned status)
{
    static const char *const texts[] = {
        "it is allowed",
        "the chipset does not support it",
        "the GPUs do not support it",
        "the way between their PCI bridges does not support it",
        "a registry key of the driver disables it",
        "it is not supported",
    };
    return status < sizeof texts / sizeof texts[0] ? texts[status] : "for an unknown reason";
}

static const char *nvml_ancestor_text(unsigned level)
{
    return level < 10   ? "on one board"
           : level < 20 ? "below one PCI switch"
           : level < 30 ? "below several PCI switches"
           : level < 40 ? "below one host bridge"
           : level < 50 ? "on one NUMA node"
                        : "across NUMA nodes";
}

/* A GPU that some other of the host may not read is reached through memory. */
static void nvml_peers(struct nvml_probe *probe)
{
    const struct tti_nvml *nvml = probe->nvml;
    for (int i = 0; i < probe->count && nvml->nvmlDeviceGetP2PStatus; i++)
        for (int k = i + 1; k < probe->count; k++) {
            struct nvml_gpu *a = &probe->gpus[i];
            struct nvml_gpu *b = &probe->gpus[k];
            unsigned status = 0;
            unsigned level = 0;
            if (nvml->nvmlDeviceGetP2PStatus(a->device, b->device, TTI_NVML_P2P_READ, &status) !=
                    TTI_NVML_SUCCESS ||
                status == 0)
                continue;
            probe->topology->nodes[a->node].staged = probe->topology->nodes[b->node].staged = true;
            bool told = nvml->nvmlDeviceGetTopologyCommonAncestor &&
                        nvml->nvmlDeviceGetTopologyCommonAncestor(a->device, b->device, &level) ==
                            TTI_NVML_SUCCESS;
            TTI_LOG(TTI_LOG_INFO,
                    "devices %d and %d (%s) cannot read each other: %s; what they exchange goes "
                    "through memory",
                    i, k, told ? nvml_ancestor_text(level) : "place unknown",
                    nvml_p2p_text(status));
        }
}

/* ---- All of it ------------------------------------------------------------------------------- */

static enum tutti_result nvml_ask(struct nvml_probe *probe)
{
    const struct tti_nvml *nvml = probe->nvml;
    unsigned count = 0;
    TTI_TRY(tti_nvml_check(nvml, nvml->nvmlDeviceGetCount_v2(&count), "nvmlDeviceGetCount_v2", -1));
    if (count > MOST_GPUS)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "the driver has %u devices; at most %d are looked at", count, MOST_GPUS);
    for (int i = 0; i < (int)count; i++, probe->count++)
        TTI_TRY(nvml_gpu(probe, i));
    for (int i = 0; i < probe->count; i++) {
        nvml_pcie(probe, &probe->gpus[i]);
        nvml_links(probe, &probe->gpus[i]);
        probe->topology->nodes[probe->gpus[i].node].os_index = i; /* as nvidia-smi counts */
    }
    nvml_peers(probe);
    return nvml_add_links(probe);
}

enum tutti_result tti_topology_add_nvml(struct tti_topology *topology)
{
    const struct tti_nvml *nvml = NULL;
    TTI_TRY(tti_nvml_load(&nvml));
    struct nvml_probe *probe = tti_calloc(1, sizeof *probe);
    if (!probe)
        return TUTTI_ERR_MEMORY;
    probe->nvml = nvml;
    probe->topology = topology;
    while (topology->nodes[probe->host].kind != TTI_NODE_HOST)
        probe->host++;
    enum tutti_result result = tti_nvml_check(nvml, nvml->nvmlInit_v2(), "nvmlInit_v2", -1);
    if (result == TUTTI_OK) {
        result = nvml_ask(probe);
        (void)nvml->nvmlShutdown();
    }
    free(probe);
    return result;
}
