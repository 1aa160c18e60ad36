/* What tutti-topo says about choices: cores, NICs, rings, trees, and the bandwidth to be expected.
 */
#ifndef TTI_TOOLS_TOPO_REPORT_H
#define TTI_TOOLS_TOPO_REPORT_H

#include "topology/graph.h"

#include <stdbool.h>
#include <stdio.h>

/* The cores of each rank of the first host; ranks 0: as many as it has GPUs, else cores. */
enum tutti_result topo_report_cores(const struct tti_topology *topology, int ranks);
/* The NIC of each GPU; nothing without GPUs or NICs. */
enum tutti_result topo_report_nics(const struct tti_topology *topology);
/* Rings or trees over all GPUs, or all hosts; `explain`: and why these. */
enum tutti_result topo_report_rings(const struct tti_topology *topology, bool explain);
enum tutti_result topo_report_trees(const struct tti_topology *topology, bool explain);
enum tutti_result topo_report_prediction(const struct tti_topology *topology);
/* The picture, with rings and trees where there are any. */
enum tutti_result topo_report_draw(const struct tti_topology *topology, bool rings, bool trees,
                                   FILE *out);

#endif
