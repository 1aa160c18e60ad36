/* The parts one after another, and what they share (topo_measure.h). */
#include "tools/topo_measure.h"

#include "base/clock.h"
#include "base/log.h"

#include <sched.h>
#include <stdlib.h>

bool measure_begin(struct measure *m, int from, int to)
{
    char labels[2][80];
    if (tti_deadline_passed(m->deadline)) {
        m->left_out++;
        return false;
    }
    if (m->progress) {
        fprintf(m->progress, "\r\033[Kmeasuring %s to %s ...",
                tti_topology_label(m->topology, from, labels[0], sizeof labels[0]),
                tti_topology_label(m->topology, to, labels[1], sizeof labels[1]));
        fflush(m->progress);
    }
    return true;
}

enum tutti_result measure_keep(struct measure *m, const struct tti_graph_link *link)
{
    m->found++;
    return tti_topology_measured(m->topology, link);
}

int measure_cpu(const struct tti_topology *topology, int core)
{
    for (int i = core + 1; i < tti_topology_end(topology, core); i++)
        if (topology->nodes[i].kind == TTI_NODE_PU)
            return topology->nodes[i].os_index;
    return -1;
}

int measure_first_core(const struct tti_topology *topology, int node)
{
    for (int i = node; i < tti_topology_end(topology, node); i++)
        if (topology->nodes[i].kind == TTI_NODE_CORE)
            return i;
    return -1;
}

bool measure_pin(int cpu)
{
    cpu_set_t set;
    if (cpu < 0 || cpu >= CPU_SETSIZE)
        return false;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0;
}

static enum tutti_result measure_devices(struct measure *m)
{
    const char *name = getenv("TUTTI_DEVICE");
    const struct tti_gpu_ops *ops = NULL;
    if (tti_topology_count(m->topology, 0, TTI_NODE_GPU) == 0)
        return TUTTI_OK;
    TTI_TRY(tti_gpu_find(name && *name ? name : "cuda", &ops));
    return measure_gpus(m, ops);
}

enum tutti_result topo_measure(struct tti_topology *topology, double seconds, FILE *progress,
                               struct measure *done)
{
    struct measure m = {
        .topology = topology, .progress = progress, .deadline = tti_deadline_in(seconds)};
    enum tutti_result result = measure_nics(&m);
    if (result == TUTTI_OK)
        result = measure_devices(&m);
    if (result == TUTTI_OK)
        result = measure_memory(&m);
    if (result == TUTTI_OK)
        result = measure_cores(&m);
    if (progress)
        fprintf(progress, "\r\033[K");
    if (result == TUTTI_OK)
        *done = m;
    return result;
}
