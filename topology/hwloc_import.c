/* From hwloc's tree to ours: this machine, XML files and synthetic strings.
 *
 * hwloc hangs memory and devices beside the tree of CPUs; here a NUMA node holds what is near it.
 * Of the PCI tree only GPUs, NICs and switches with several of them below are kept. Without hwloc's
 * header the same functions say that they are not there. */
#include "topology/topology_parts.h"

#ifndef TTI_HWLOC

enum tutti_result tti_topology_probe_hwloc(int flags, struct tti_topology **topology)
{
    (void)flags;
    (void)topology;
    return TTI_FAIL(TUTTI_ERR_UNSUPPORTED, "this Tutti was built without hwloc's header");
}

enum tutti_result tti_topology_from_xml(const char *path, struct tti_topology **topology)
{
    (void)topology;
    return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                    "cannot read %s: this Tutti was built without hwloc's header", path);
}

enum tutti_result tti_topology_from_hwloc_synthetic(const char *text,
                                                    struct tti_topology **topology)
{
    (void)topology;
    return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                    "cannot read \"%s\": this Tutti was built without hwloc's header", text);
}

#else

#include "topology/hwloc_library.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct import {
    struct tti_topology *topology;
    bool here;         /* this machine, not a description of one */
    bool limited;      /* `allowed` holds */
    cpu_set_t allowed; /* CPUs of this process */
};

/* ---- Devices --------------------------------------------------------------------------------- */

static bool import_has_os_device(hwloc_obj_t device, hwloc_obj_osdev_type_t type)
{
    for (hwloc_obj_t at = device->io_first_child; at; at = at->next_sibling)
        if (at->type == HWLOC_OBJ_OS_DEVICE && at->attr->osdev.type == type)
            return true;
    return false;
}

/* TTI_NODE_GPU, TTI_NODE_NIC, or TTI_NODE_KINDS for what does not matter here. */
static enum tti_node_kind import_device_kind(hwloc_obj_t device)
{
    enum { CLASS_3D = 0x0302, CLASS_ACCELERATOR = 0x1200, NVIDIA = 0x10de, AMD = 0x1002 };
    int class_id = device->attr->pcidev.class_id;
    int vendor = device->attr->pcidev.vendor_id;
    if (import_has_os_device(device, HWLOC_OBJ_OSDEV_NETWORK) ||
        import_has_os_device(device, HWLOC_OBJ_OSDEV_OPENFABRICS))
        return TTI_NODE_NIC;
    /* Not the small display controller that servers have for their consoles. */
    if (class_id == CLASS_3D || class_id == CLASS_ACCELERATOR ||
        (class_id >> 8 == 0x03 && (vendor == NVIDIA || vendor == AMD)) ||
        import_has_os_device(device, HWLOC_OBJ_OSDEV_COPROC))
        return TTI_NODE_GPU;
    return TTI_NODE_KINDS;
}

/* Children of `object` with a GPU or NIC at or below them. */
static int import_branches(hwloc_obj_t object)
{
    int branches = 0;
    for (hwloc_obj_t at = object->io_first_child; at; at = at->next_sibling)
        branches += at->type == HWLOC_OBJ_PCI_DEVICE ? import_device_kind(at) != TTI_NODE_KINDS
                                                     : import_branches(at) > 0;
    return branches;
}

/* "eth0/mlx5_0" for a NIC; "0000:17:00.0 GH100 [H100]" for a GPU. */
static void import_device_name(hwloc_obj_t device, struct tti_node *node)
{
    const struct hwloc_pcidev_attr_s *pci = &device->attr->pcidev;
    size_t used = 0;
    for (hwloc_obj_t at = device->io_first_child;
         node->kind == TTI_NODE_NIC && at && used < sizeof node->name; at = at->next_sibling)
        if (at->type == HWLOC_OBJ_OS_DEVICE && at->name)
            used += (size_t)snprintf(node->name + used, sizeof node->name - used, "%s%s",
                                     used ? "/" : "", at->name);
    if (!used)
        snprintf(node->name, sizeof node->name, "%04x:%02x:%02x.%x%s%s", pci->domain, pci->bus,
                 pci->dev, pci->func, device->name ? " " : "", device->name ? device->name : "");
}

static enum tutti_result import_pci(struct import *in, const struct tti_node *node, float gbs,
                                    int *index)
{
    struct tti_graph_link link = {
        .kind = TTI_LINK_PCI, .to = node->parent, .gbs = gbs > 0 ? gbs : 0};
    TTI_TRY(tti_topology_add(in->topology, node, index));
    link.from = *index;
    return tti_topology_link(in->topology, &link);
}

static enum tutti_result import_device(struct import *in, hwloc_obj_t device, int parent)
{
    struct tti_node node = {.kind = import_device_kind(device), .parent = parent, .os_index = -1};
    int index = 0;
    if (node.kind == TTI_NODE_KINDS)
        return TUTTI_OK;
    import_device_name(device, &node);
    return import_pci(in, &node, device->attr->pcidev.linkspeed, &index);
}

static enum tutti_result import_io(struct import *in, hwloc_obj_t first, int parent)
{
    for (hwloc_obj_t at = first; at; at = at->next_sibling) {
        int inside = parent;
        if (at->type == HWLOC_OBJ_PCI_DEVICE)
            TTI_TRY(import_device(in, at, parent));
        if (at->type != HWLOC_OBJ_BRIDGE)
            continue;
        if (at->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI && import_branches(at) > 1) {
            const struct hwloc_pcidev_attr_s *pci = &at->attr->bridge.upstream.pci;
            struct tti_node node = {.kind = TTI_NODE_SWITCH, .parent = parent, .os_index = -1};
            snprintf(node.name, sizeof node.name, "PCI %04x:%02x:%02x.%x", pci->domain, pci->bus,
                     pci->dev, pci->func);
            TTI_TRY(import_pci(in, &node, pci->linkspeed, &inside));
        }
        TTI_TRY(import_io(in, at->io_first_child, inside));
    }
    return TUTTI_OK;
}

/* The network, and the line rate of each NIC to it. */
static enum tutti_result import_network(struct import *in)
{
    struct tti_topology *topology = in->topology;
    struct tti_node node = {
        .kind = TTI_NODE_SWITCH, .parent = -1, .os_index = -1, .name = "network"};
    int network = 0;
    if (tti_topology_count(topology, -1, TTI_NODE_NIC) == 0)
        return TUTTI_OK;
    TTI_TRY(tti_topology_add(topology, &node, &network));
    for (int i = 0; i < network; i++) {
        const struct tti_graph_link link = {.kind = TTI_LINK_NETWORK, .from = i, .to = network};
        if (topology->nodes[i].kind == TTI_NODE_NIC)
            TTI_TRY(tti_topology_link(topology, &link));
    }
    if (in->here)
        tti_topology_rates(topology, "/sys");
    return TUTTI_OK;
}

/* ---- CPUs and memory ------------------------------------------------------------------------- */

/* The node that the object becomes; TTI_NODE_KINDS for a level that is passed over. */
static struct tti_node import_node(hwloc_obj_t object, int parent)
{
    struct tti_node node = {.kind = TTI_NODE_KINDS, .parent = parent, .os_index = -1};
    if (object->os_index != HWLOC_UNKNOWN_INDEX && object->os_index <= INT32_MAX)
        node.os_index = (int)object->os_index;
    if (object->type == HWLOC_OBJ_PACKAGE)
        node.kind = TTI_NODE_PACKAGE;
    if (object->type == HWLOC_OBJ_CORE)
        node.kind = TTI_NODE_CORE;
    if (object->type == HWLOC_OBJ_PU)
        node.kind = TTI_NODE_PU;
    if (object->type == HWLOC_OBJ_NUMANODE) {
        node.kind = TTI_NODE_NUMA;
        node.bytes = object->attr->numanode.local_memory;
    }
    if (object->type >= HWLOC_OBJ_L1CACHE && object->type <= HWLOC_OBJ_L5CACHE) {
        node.kind = TTI_NODE_CACHE;
        node.os_index = -1;
        node.level = (int)object->attr->cache.depth;
        node.bytes = object->attr->cache.size;
    }
    return node;
}

/* Whether objects below this one have memory of their own. */
static bool import_memory_below(hwloc_obj_t object)
{
    for (hwloc_obj_t at = object->first_child; at; at = at->next_sibling)
        if (at->memory_first_child || import_memory_below(at))
            return true;
    return false;
}

/* The NUMA nodes of an object. Where there are several (fast memory beside plain) the last one,
 * *inside, holds what follows, since the order is depth-first. None does if parts of the object
 * have nodes of their own (memory that several packages are equally near to, as CXL's): what
 * follows is not near to each other for that. Memory-side caches are passed over. */
static enum tutti_result import_memory(struct import *in, hwloc_obj_t object, int parent,
                                       int *inside)
{
    int last = parent;
    for (hwloc_obj_t at = object->memory_first_child; at; at = at->next_sibling) {
        struct tti_node node = import_node(at, parent);
        hwloc_obj_t below = at->memory_first_child;
        while (node.kind != TTI_NODE_NUMA && below) {
            node = import_node(below, parent);
            below = below->memory_first_child;
        }
        if (node.kind != TTI_NODE_NUMA)
            continue;
        TTI_TRY(tti_topology_add(in->topology, &node, &last));
    }
    *inside = import_memory_below(object) ? parent : last;
    return TUTTI_OK;
}

static enum tutti_result import_object(struct import *in, hwloc_obj_t object, int parent)
{
    struct tti_node node = import_node(object, parent);
    int inside = parent;
    size_t before = in->topology->node_count;
    if (node.kind == TTI_NODE_PU && in->limited && node.os_index >= 0 &&
        (node.os_index >= CPU_SETSIZE || !CPU_ISSET(node.os_index, &in->allowed)))
        return TUTTI_OK;
    if (node.kind != TTI_NODE_KINDS)
        TTI_TRY(tti_topology_add(in->topology, &node, &inside));
    size_t own = in->topology->node_count;
    TTI_TRY(import_memory(in, object, inside, &inside));
    TTI_TRY(import_io(in, object->io_first_child, inside));
    for (hwloc_obj_t at = object->first_child; at; at = at->next_sibling)
        TTI_TRY(import_object(in, at, inside));
    /* A core, cache or package none of whose CPUs we may use. */
    if (node.kind != TTI_NODE_PU && in->topology->node_count == own)
        in->topology->node_count = before;
    return TUTTI_OK;
}

static enum tutti_result import_machine(struct import *in, hwloc_obj_t root)
{
    struct tti_node host = {.kind = TTI_NODE_HOST, .parent = -1, .os_index = -1};
    int index = 0;
    int inside = 0;
    if (in->here)
        (void)gethostname(host.name, sizeof host.name - 1);
    for (unsigned i = 0; !in->here && i < root->infos_count; i++)
        if (strcmp(root->infos[i].name, "HostName") == 0)
            snprintf(host.name, sizeof host.name, "%s", root->infos[i].value);
    TTI_TRY(tti_topology_add(in->topology, &host, &index));
    inside = index;
    TTI_TRY(import_memory(in, root, index, &inside));
    TTI_TRY(import_io(in, root->io_first_child, inside));
    for (hwloc_obj_t at = root->first_child; at; at = at->next_sibling)
        TTI_TRY(import_object(in, at, inside));
    return import_network(in);
}

/* ---- The three doors ------------------------------------------------------------------------- */

/* Drivers are slow to ask, and say nothing that sysfs does not. One name a call; hwloc refuses
 * those that it was built without. */
static void import_ask_no_drivers(const struct tti_hwloc *hwloc, hwloc_topology_t loaded)
{
    static const char *const components[] = {"gl", "opencl", "cuda", "nvml", "rsmi", "levelzero"};
    for (size_t i = 0; i < sizeof components / sizeof *components; i++)
        (void)hwloc->hwloc_topology_set_components(loaded, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                                   components[i]);
}

/* Exactly one of xml and synthetic, or neither for this machine. */
static enum tutti_result import_load(const struct tti_hwloc *hwloc, hwloc_topology_t loaded,
                                     int flags, const char *xml, const char *synthetic)
{
    if (!xml && !synthetic)
        import_ask_no_drivers(hwloc, loaded);
    (void)hwloc->hwloc_topology_set_io_types_filter(
        loaded, flags & (TTI_PROBE_DEVICES | TTI_PROBE_PCI) ? HWLOC_TYPE_FILTER_KEEP_IMPORTANT
                                                            : HWLOC_TYPE_FILTER_KEEP_NONE);
    if (xml && (access(xml, R_OK) != 0 || hwloc->hwloc_topology_set_xml(loaded, xml) != 0))
        return TTI_FAIL_ERRNO("cannot read %s as hwloc's XML", xml);
    if (synthetic && hwloc->hwloc_topology_set_synthetic(loaded, synthetic) != 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "hwloc does not understand \"%s\"; expected such as "
                        "\"package:2 core:4 pu:2\"",
                        synthetic);
    if (hwloc->hwloc_topology_load(loaded) != 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "hwloc cannot load %s%s%s: %s",
                        xml ? xml : "the machine", synthetic ? " described as " : "",
                        synthetic ? synthetic : "", strerror(errno));
    return TUTTI_OK;
}

static enum tutti_result import_from(int flags, const char *xml, const char *synthetic,
                                     struct tti_topology **topology)
{
    const struct tti_hwloc *hwloc = NULL;
    hwloc_topology_t loaded = NULL;
    struct import in = {.here = !xml && !synthetic};
    char source[96];
    TTI_TRY(tti_hwloc_load(&hwloc));
    unsigned version = hwloc->hwloc_get_api_version();
    snprintf(source, sizeof source, "%.60s%shwloc %u.%u",
             xml         ? xml
             : synthetic ? synthetic
                         : "",
             in.here ? "" : " by ", version >> 16, version >> 8 & 0xff);
    in.limited = in.here && !(flags & TTI_PROBE_OTHERS) &&
                 sched_getaffinity(0, sizeof in.allowed, &in.allowed) == 0;
    if (hwloc->hwloc_topology_init(&loaded) != 0)
        return TTI_FAIL_ERRNO("hwloc_topology_init");
    enum tutti_result result = import_load(hwloc, loaded, flags, xml, synthetic);
    if (result == TUTTI_OK)
        result = tti_topology_create(source, &in.topology);
    if (result == TUTTI_OK)
        result = import_machine(&in, hwloc->hwloc_get_obj_by_depth(loaded, 0, 0));
    hwloc->hwloc_topology_destroy(loaded);
    if (result != TUTTI_OK) {
        tti_topology_destroy(in.topology);
        return result;
    }
    *topology = in.topology;
    return TUTTI_OK;
}

enum tutti_result tti_topology_probe_hwloc(int flags, struct tti_topology **topology)
{
    return import_from(flags, NULL, NULL, topology);
}

enum tutti_result tti_topology_from_xml(const char *path, struct tti_topology **topology)
{
    return import_from(TTI_PROBE_DEVICES, path, NULL, topology);
}

enum tutti_result tti_topology_from_hwloc_synthetic(const char *text,
                                                    struct tti_topology **topology)
{
    return import_from(TTI_PROBE_DEVICES, NULL, text, topology);
}

#endif
