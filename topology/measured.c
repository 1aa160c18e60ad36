/* See measured.h. */
#include "topology/measured.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum tutti_result tti_topology_measured(struct tti_topology *topology,
                                        const struct tti_graph_link *link)
{
    for (size_t i = 0; i < topology->link_count; i++) {
        struct tti_graph_link *at = &topology->links[i];
        const bool same = at->from == link->from && at->to == link->to;
        if (at->kind != link->kind || !(same || (at->from == link->to && at->to == link->from)))
            continue;
        at->measured |=
            (at->gbs <= 0 && link->gbs > 0) || (at->latency_us <= 0 && link->latency_us > 0);
        at->gbs = at->gbs > 0 ? at->gbs : link->gbs;
        at->latency_us = at->latency_us > 0 ? at->latency_us : link->latency_us;
        return TUTTI_OK;
    }
    struct tti_graph_link made = *link;
    made.measured = true;
    return tti_topology_link(topology, &made);
}

static int compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* " 0.11 us (0.1 to 0.12)": the range where it is more than a few per cent. */
static size_t measured_spread(double *values, size_t count, const char *unit, char *text,
                              size_t bytes)
{
    if (count == 0)
        return 0;
    qsort(values, count, sizeof *values, compare_numbers);
    const double least = values[0], most = values[count - 1];
    int used = snprintf(text, bytes, " %.3g %s", values[count / 2], unit);
    if (most > 1.05 * least && used > 0 && (size_t)used < bytes)
        used += snprintf(text + used, bytes - (size_t)used, " (%.3g to %.3g)", least, most);
    return (size_t)used < bytes ? (size_t)used : bytes - 1;
}

const char *tti_topology_measured_text(const struct tti_topology *topology, int node,
                                       enum tti_link_kind kind, char text[TTI_MEASURED_BYTES])
{
    static const char *const names[TTI_LINK_KINDS] = {
        [TTI_LINK_PCI] = "pci",         [TTI_LINK_NVLINK] = "nvlink",
        [TTI_LINK_NETWORK] = "network", [TTI_LINK_CORE] = "core to core",
        [TTI_LINK_MEMORY] = "memory",   [TTI_LINK_PEER] = "gpu to gpu"};
    const int end = tti_topology_end(topology, node);
    size_t times = 0, rates = 0;
    double *values = tti_calloc(2 * topology->link_count + 1, sizeof *values);
    if (!values)
        return NULL;
    for (size_t i = 0; i < topology->link_count; i++) {
        const struct tti_graph_link *link = &topology->links[i];
        if (link->kind != kind || !link->measured || link->from < node || link->from >= end)
            continue;
        if (link->latency_us > 0)
            values[times++] = link->latency_us;
        if (link->gbs > 0)
            values[topology->link_count + rates++] = link->gbs;
    }
    size_t used = (size_t)snprintf(text, TTI_MEASURED_BYTES, "%s:", names[kind]);
    used += measured_spread(values, times, "us", text + used, TTI_MEASURED_BYTES - used);
    if (times && rates)
        used += (size_t)snprintf(text + used, TTI_MEASURED_BYTES - used, ",");
    used += measured_spread(values + topology->link_count, rates, "GB/s", text + used,
                            TTI_MEASURED_BYTES - used);
    snprintf(text + used, TTI_MEASURED_BYTES - used, ", measured");
    free(values);
    return times + rates ? text : NULL;
}
