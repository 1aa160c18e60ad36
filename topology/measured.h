/* What a program has measured on a machine, on the graph: plain numbers, which come from above
 * (tools/topo_measure.c), since this room neither runs threads nor opens connections. */
#ifndef TTI_TOPOLOGY_MEASURED_H
#define TTI_TOPOLOGY_MEASURED_H

#include "topology/graph.h"

enum { TTI_MEASURED_BYTES = 120 };

/* What was measured between two nodes, in either order. Where there is a link of the kind, its
 * unknown numbers become known, and what is known stays; else there is one from now on. */
enum tutti_result tti_topology_measured(struct tti_topology *topology,
                                        const struct tti_graph_link *link);

/* "core to core: 0.11 us (0.1 to 0.12), 9.8 GB/s, measured": the measured links of a kind from the
 * nodes below `node` in a line, as medians. NULL for none, else `text`. */
const char *tti_topology_measured_text(const struct tti_topology *topology, int node,
                                       enum tti_link_kind kind, char text[TTI_MEASURED_BYTES]);

#endif
