/* Rings and trees in the picture of a machine: a row of dials below it, one for each ring or tree,
 * with the GPUs (or hosts) on a circle and the way of the data between them; and marks on the NICs
 * that they leave by. Each lane has its colour, in its dial and in its marks. */
#ifndef TTI_TOPOLOGY_LANES_DRAW_H
#define TTI_TOPOLOGY_LANES_DRAW_H

#include "topology/predict.h"
#include "topology/rings.h"
#include "topology/trees.h"

#include <stdio.h>

struct tti_lanes {
    struct tti_rings *rings;                /* or NULL */
    struct tti_trees *trees;                /* or NULL */
    struct tti_busbw_prediction prediction; /* best = 0: none */
};

/* The rings and trees of the machine, as wanted, and its prediction; none of what the machine is
 * too small, too large or too little known for. Clear it with tti_lanes_clear. */
enum tutti_result tti_lanes_search(const struct tti_topology *topology, bool rings, bool trees,
                                   struct tti_lanes *lanes);
void tti_lanes_clear(struct tti_lanes *lanes);
/* The height that they take below a machine of that width; *width grows where it must. */
double tti_lanes_size(const struct tti_lanes *lanes, double *width);
void tti_lanes_draw(const struct tti_lanes *lanes, const struct tti_topology *topology, double x,
                    double y, double width, FILE *out);
/* Marks of the lanes that leave by the NIC, in two lines that end at `right`; the width of the
 * longer one. */
double tti_lanes_marks_width(const struct tti_lanes *lanes, int nic);
void tti_lanes_marks(const struct tti_lanes *lanes, int nic, double right, double top, FILE *out);

#endif
