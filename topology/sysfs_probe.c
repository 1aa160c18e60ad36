/* This machine without hwloc: the CPUs of our affinity mask, with package, NUMA node and core from
 * sysfs. No caches, no devices. What sysfs does not tell is taken as one package, one NUMA node,
 * and a core for each CPU. */
#include "base/kernel_file.h"
#include "base/log.h"
#include "base/memory.h"
#include "topology/topology_parts.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sysfs_cpu {
    int package, numa, core, cpu; /* `core`: its first CPU */
};

/* The number K of the entry "nodeK" in the CPU's folder. */
static int sysfs_numa(const char *folder)
{
    int numa = -1;
    DIR *entries = opendir(folder);
    struct dirent *entry;
    if (!entries)
        return -1;
    while (numa < 0 && (entry = readdir(entries)))
        if (sscanf(entry->d_name, "node%d", &numa) != 1)
            numa = -1;
    closedir(entries);
    return numa;
}

static struct sysfs_cpu sysfs_cpu(const char *sysfs, int cpu)
{
    struct sysfs_cpu found = {.cpu = cpu};
    char path[400];
    snprintf(path, sizeof path, "%.300s/devices/system/cpu/cpu%d/topology/physical_package_id",
             sysfs, cpu);
    found.package = tti_kernel_number(path);
    snprintf(path, sizeof path, "%.300s/devices/system/cpu/cpu%d/topology/thread_siblings_list",
             sysfs, cpu);
    found.core = tti_kernel_number(path);
    snprintf(path, sizeof path, "%.300s/devices/system/cpu/cpu%d", sysfs, cpu);
    found.numa = sysfs_numa(path);
    found.package = found.package < 0 ? 0 : found.package;
    found.numa = found.numa < 0 ? 0 : found.numa;
    found.core = found.core < 0 ? cpu : found.core;
    return found;
}

static int sysfs_order(const void *a, const void *b)
{
    const struct sysfs_cpu *x = a;
    const struct sysfs_cpu *y = b;
    if (x->package != y->package)
        return x->package < y->package ? -1 : 1;
    if (x->numa != y->numa)
        return x->numa < y->numa ? -1 : 1;
    if (x->core != y->core)
        return x->core < y->core ? -1 : 1;
    return (x->cpu > y->cpu) - (x->cpu < y->cpu);
}

static uint64_t sysfs_memory(const char *sysfs, int numa)
{
    char path[400];
    unsigned long long kib = 0;
    snprintf(path, sizeof path, "%.300s/devices/system/node/node%d/meminfo", sysfs, numa);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    if (fscanf(file, " Node %*d MemTotal: %llu", &kib) != 1)
        kib = 0;
    fclose(file);
    return (uint64_t)kib << 10;
}

/* From the sorted CPUs, a node wherever one of their numbers changes. */
static enum tutti_result sysfs_build(struct tti_topology *topology, const char *sysfs,
                                     const struct sysfs_cpu *cpus, size_t count)
{
    struct tti_node host = {.kind = TTI_NODE_HOST, .parent = -1, .os_index = -1};
    int package = 0;
    int numa = 0;
    int core = 0;
    (void)gethostname(host.name, sizeof host.name - 1);
    TTI_TRY(tti_topology_add(topology, &host, NULL));
    for (size_t i = 0; i < count; i++) {
        const struct sysfs_cpu *at = &cpus[i];
        bool new_package = i == 0 || at->package != at[-1].package;
        bool new_numa = new_package || at->numa != at[-1].numa;
        bool new_core = new_numa || at->core != at[-1].core;
        struct tti_node node = {.kind = TTI_NODE_PACKAGE, .os_index = at->package};
        if (new_package)
            TTI_TRY(tti_topology_add(topology, &node, &package));
        node = (struct tti_node){.kind = TTI_NODE_NUMA, .parent = package, .os_index = at->numa};
        if (new_numa) {
            node.bytes = sysfs_memory(sysfs, at->numa);
            TTI_TRY(tti_topology_add(topology, &node, &numa));
        }
        node = (struct tti_node){.kind = TTI_NODE_CORE, .parent = numa, .os_index = at->core};
        if (new_core)
            TTI_TRY(tti_topology_add(topology, &node, &core));
        node = (struct tti_node){.kind = TTI_NODE_PU, .parent = core, .os_index = at->cpu};
        TTI_TRY(tti_topology_add(topology, &node, NULL));
    }
    return TUTTI_OK;
}

enum tutti_result tti_topology_probe_sysfs(const char *sysfs, struct tti_topology **topology)
{
    struct sysfs_cpu *cpus = tti_calloc(CPU_SETSIZE, sizeof *cpus);
    struct tti_topology *made = NULL;
    cpu_set_t allowed;
    size_t count = 0;
    if (!cpus)
        return TUTTI_ERR_MEMORY;
    enum tutti_result result = TUTTI_OK;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        result = TTI_FAIL_ERRNO("sched_getaffinity for %d CPUs", CPU_SETSIZE);
    for (int cpu = 0; cpu < CPU_SETSIZE && result == TUTTI_OK; cpu++)
        if (CPU_ISSET(cpu, &allowed))
            cpus[count++] = sysfs_cpu(sysfs, cpu);
    qsort(cpus, count, sizeof *cpus, sysfs_order);
    if (result == TUTTI_OK)
        result = tti_topology_create("sysfs", &made);
    if (result == TUTTI_OK)
        result = sysfs_build(made, sysfs, cpus, count);
    free(cpus);
    if (result != TUTTI_OK) {
        tti_topology_destroy(made);
        return result;
    }
    *topology = made;
    return TUTTI_OK;
}

enum tutti_result tti_topology_probe(int flags, struct tti_topology **topology)
{
    struct tti_topology *made = NULL;
    if (tti_topology_probe_hwloc(flags, &made) != TUTTI_OK) {
        TTI_LOG(TTI_LOG_INFO, "the machine is read from sysfs, without caches and devices: %s",
                tti_error_text());
        TTI_TRY(tti_topology_probe_sysfs("/sys", &made));
    }
    if (flags & TTI_PROBE_DEVICES && tti_topology_add_nvml(made) != TUTTI_OK)
        TTI_LOG(TTI_LOG_DEBUG, "no NVLinks: %s", tti_error_text());
    *topology = made;
    return TUTTI_OK;
}

double tti_sysfs_nic_gbs(const char *sysfs, const char *name)
{
    char path[400];
    snprintf(path, sizeof path, "%.300s/class/net/%.48s/speed", sysfs, name);
    int megabits = tti_kernel_number(path);
    if (megabits <= 0) {
        snprintf(path, sizeof path, "%.300s/class/infiniband/%.48s/ports/1/rate", sysfs, name);
        int gigabits = tti_kernel_number(path); /* "400 Gb/sec (4X NDR)" */
        return gigabits > 0 ? gigabits / 8.0 : 0;
    }
    return megabits / 8000.0;
}

void tti_topology_rates(struct tti_topology *topology, const char *sysfs)
{
    for (size_t i = 0; i < topology->link_count; i++) {
        struct tti_graph_link *link = &topology->links[i];
        const struct tti_node *from = &topology->nodes[link->from];
        const struct tti_node *nic = from->kind == TTI_NODE_NIC ? from : &topology->nodes[link->to];
        char names[TTI_NODE_NAME_BYTES];
        char *rest = names, *name;
        if (link->kind != TTI_LINK_NETWORK || nic->kind != TTI_NODE_NIC)
            continue;
        memcpy(names, nic->name, sizeof names);
        while (!(link->gbs > 0) && (name = strsep(&rest, "/")))
            if (*name)
                link->gbs = tti_sysfs_nic_gbs(sysfs, name);
    }
}
