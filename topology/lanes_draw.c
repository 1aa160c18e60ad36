/* Rings and trees as dials (lanes_draw.h). */
#include "topology/lanes_draw.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DIAL = 150, GAP = 14, RADIUS = 50, LINE = 16, MOST_DIALS = 16, MOST_DOTS = 64, MARK = 9 };

static const char *const lane_colours[] = {"#1f6fb4", "#d1495b", "#2a9d5c", "#b07d12",
                                           "#7a4fb5", "#0f8b8d", "#c2571a", "#5b6472"};
enum { COLOURS = sizeof lane_colours / sizeof lane_colours[0] };

/* One kind of lanes: rings, or trees. */
struct lane_set {
    const char *name;
    int count, stops;
    double gbs;
    const struct tti_hop *hops;
    bool trees;
};

static struct lane_set lane_rings(const struct tti_lanes *lanes)
{
    const struct tti_rings *r = lanes->rings;
    if (!r)
        return (struct lane_set){.count = 0};
    return (struct lane_set){
        .name = "ring", .count = r->count, .stops = r->stops, .gbs = r->gbs, .hops = r->hops};
}

static struct lane_set lane_trees(const struct tti_lanes *lanes)
{
    const struct tti_trees *t = lanes->trees;
    if (!t)
        return (struct lane_set){.count = 0};
    return (struct lane_set){.name = "tree",
                             .count = t->count,
                             .stops = t->stops,
                             .gbs = t->gbs,
                             .hops = t->hops,
                             .trees = true};
}

enum tutti_result tti_lanes_search(const struct tti_topology *topology, bool rings, bool trees,
                                   struct tti_lanes *lanes)
{
    struct tti_lanes found = {.rings = NULL};
    int *stops = NULL;
    int count = 0;
    TTI_TRY(tti_topology_stops(topology, &stops, &count));
    enum tutti_result result = TUTTI_OK;
    if (rings && count > 1 && count <= TTI_ROUTE_STOPS)
        result = tti_rings_search(topology, stops, count, &found.rings);
    if (trees && count > 1 && count <= TTI_ROUTE_STOPS && result != TUTTI_ERR_MEMORY)
        result = tti_trees_search(topology, stops, count, TTI_TREES_ALL_REDUCE, -1, &found.trees);
    free(stops);
    if (result != TUTTI_ERR_MEMORY && (found.rings || found.trees))
        result = tti_predict_all_reduce(topology, &found.prediction);
    if (result == TUTTI_ERR_MEMORY) {
        tti_lanes_clear(&found);
        return result;
    }
    *lanes = found;
    return TUTTI_OK;
}

void tti_lanes_clear(struct tti_lanes *lanes)
{
    tti_rings_destroy(lanes->rings);
    tti_trees_destroy(lanes->trees);
    *lanes = (struct tti_lanes){.rings = NULL};
}

/* ---- Sizes ----------------------------------------------------------------------------------- */

static int lane_columns(double width)
{
    int columns = (int)((width + GAP) / (DIAL + GAP));
    return columns < 1 ? 1 : columns;
}

static int lane_dials(const struct lane_set *set)
{
    if (set->stops > MOST_DOTS)
        return 0;
    return set->count < MOST_DIALS ? set->count : MOST_DIALS;
}

static double lane_set_height(const struct lane_set *set, double width)
{
    int columns = lane_columns(width);
    int rows = (lane_dials(set) + columns - 1) / columns;
    return set->count ? 2 * LINE + rows * (DIAL + LINE) : 0;
}

double tti_lanes_size(const struct tti_lanes *lanes, double *width)
{
    struct lane_set rings = lane_rings(lanes);
    struct lane_set trees = lane_trees(lanes);
    if (!rings.count && !trees.count)
        return 0;
    *width = fmax(*width, 4 * DIAL + 3 * GAP);
    return lane_set_height(&rings, *width) + lane_set_height(&trees, *width) + 4 * LINE;
}

/* ---- A dial ---------------------------------------------------------------------------------- */

struct lane_dot {
    int node, host;
    double x, y, angle;
};

/* The stops of a lane on a circle, in the order of the graph, hosts apart from each other. */
static int lane_dots(const struct tti_topology *topology, const struct lane_set *set, double x,
                     double y, struct lane_dot *dots)
{
    int found = 0;
    int hosts = 0;
    int last = -1;
    for (int node = 0; node < (int)topology->node_count; node++)
        for (int k = 0; k < set->stops; k++)
            if (set->hops[k].to == node)
                dots[found++] = (struct lane_dot){
                    .node = node, .host = tti_topology_above(topology, node, TTI_NODE_HOST)};
    for (int i = 0; i < found; i++) {
        hosts += dots[i].host != last;
        last = dots[i].host;
    }
    bool apart = hosts > 1 && hosts < found;
    double slots = found + (apart ? hosts : 0);
    int passed = 0;
    for (int i = 0; i < found; i++) {
        passed += apart && i > 0 && dots[i].host != dots[i - 1].host;
        dots[i].angle = 2 * M_PI * (i + passed) / slots - M_PI / 2;
        dots[i].x = x + RADIUS * cos(dots[i].angle);
        dots[i].y = y + RADIUS * sin(dots[i].angle);
    }
    return found;
}

static const struct lane_dot *lane_dot_of(const struct lane_dot *dots, int count, int node)
{
    int i = 0;
    while (i + 1 < count && dots[i].node != node)
        i++;
    return &dots[i];
}

/* A line with an arrow in it: NVLink drawn through, PCI dotted, network dashed. */
static void lane_draw_hop(const struct tti_hop *hop, const struct lane_dot *dots, int count,
                          const char *colour, FILE *out)
{
    static const char *const dashes[TTI_LINK_WAYS] = {
        [TTI_LINK_PCI] = " stroke-dasharray=\"1.5 2.5\"",
        [TTI_LINK_NVLINK] = "",
        [TTI_LINK_NETWORK] = " stroke-dasharray=\"6 3\"",
    };
    const struct lane_dot *a = lane_dot_of(dots, count, hop->from);
    const struct lane_dot *b = lane_dot_of(dots, count, hop->to);
    double dx = b->x - a->x;
    double dy = b->y - a->y;
    double length = hypot(dx, dy);
    double size = fmin(5, 0.4 * length);
    if (length < 1e-9)
        return;
    dx /= length;
    dy /= length;
    fprintf(out,
            "<path d=\"M%.1f %.1fL%.1f %.1f\" stroke=\"%s\" stroke-width=\"1.6\" "
            "stroke-opacity=\"1\"%s/>\n",
            a->x, a->y, b->x, b->y, colour, dashes[hop->kind]);
    double tip_x = a->x + dx * (0.55 * length + size / 2);
    double tip_y = a->y + dy * (0.55 * length + size / 2);
    fprintf(out, "<polygon points=\"%.1f,%.1f %.1f,%.1f %.1f,%.1f\" fill=\"%s\"/>\n", tip_x, tip_y,
            tip_x - dx * size - dy * size / 2, tip_y - dy * size + dx * size / 2,
            tip_x - dx * size + dy * size / 2, tip_y - dy * size - dx * size / 2, colour);
}

/* Numbers beside few dots, hosts beside many. */
static void lane_draw_labels(const struct tti_topology *topology, const struct lane_dot *dots,
                             int count, double x, double y, FILE *out)
{
    char label[80];
    for (int i = 0; i < count; i++) {
        double far = RADIUS + 11;
        double angle = dots[i].angle;
        int last = i;
        snprintf(label, sizeof label, "%d",
                 topology->nodes[dots[i].node].os_index < 0
                     ? i
                     : topology->nodes[dots[i].node].os_index);
        if (count > 16 && dots[i].host != dots[i].node) {
            while (last + 1 < count && dots[last + 1].host == dots[i].host)
                last++;
            angle = (dots[i].angle + dots[last].angle) / 2;
            far = RADIUS + 14;
            int number = topology->nodes[dots[i].host].os_index;
            snprintf(label, sizeof label, "h%d", number < 0 ? 0 : number);
        }
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"r\" text-anchor=\"middle\">%s</text>\n",
                x + far * cos(angle), y + far * sin(angle) + 3.5, label);
        i = last;
    }
}

static void lane_draw_dial(const struct tti_topology *topology, const struct lane_set *set,
                           int lane, double left, double top, FILE *out)
{
    struct lane_dot dots[MOST_DOTS];
    const struct tti_hop *hops = &set->hops[(size_t)lane * (size_t)set->stops];
    const char *colour = lane_colours[lane % COLOURS];
    double x = left + DIAL / 2.0;
    double y = top + LINE + DIAL / 2.0;
    int count = lane_dots(topology, set, x, y, dots);
    fprintf(out,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" rx=\"6\" fill=\"#fcfcfb\" "
            "style=\"stroke:#dfe3e8\"/>\n",
            left, top, DIAL, DIAL + LINE - 6);
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"b\" fill=\"%s\">%s %d</text>\n", left + 8,
            top + LINE, colour, set->name, lane);
    fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" fill=\"none\" stroke=\"#eceef1\"/>\n", x,
            y, RADIUS);
    for (int k = 0; k < set->stops; k++)
        if (hops[k].from >= 0)
            lane_draw_hop(&hops[k], dots, count, colour, out);
    for (int i = 0; i < count; i++) {
        bool root = set->trees && hops[0].to == dots[i].node;
        fprintf(out,
                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%s\" fill=\"%s\" stroke=\"%s\" "
                "stroke-width=\"1.2\"/>\n",
                dots[i].x, dots[i].y, root ? "5" : "2.8", root ? colour : "#fff", colour);
    }
    lane_draw_labels(topology, dots, count, x, y, out);
}

/* ---- All of them ----------------------------------------------------------------------------- */

static double lane_draw_set(const struct lane_set *set, const struct tti_topology *topology,
                            double x, double y, double width, FILE *out)
{
    int columns = lane_columns(width);
    int dials = lane_dials(set);
    bool gpus = tti_topology_count(topology, -1, TTI_NODE_GPU) > 0;
    char rate[80] = ", of unknown bandwidth";
    char more[60] = "";
    if (!set->count)
        return y;
    if (set->gbs > 0)
        snprintf(rate, sizeof rate, ", %.4g GB/s each, %.4g GB/s in all", set->gbs,
                 set->count * set->gbs);
    if (dials < set->count)
        snprintf(more, sizeof more, " (%d not drawn)", set->count - dials);
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"h\">%d %s%s over %d %ss%s%s</text>\n", x,
            y + LINE + 2, set->count, set->name, set->count == 1 ? "" : "s", set->stops,
            gpus ? "gpu" : "host", rate, more);
    for (int i = 0; i < dials; i++)
        lane_draw_dial(topology, set, i, x + i % columns * (DIAL + GAP),
                       y + 2 * LINE - 4 + i / columns * (double)(DIAL + LINE), out);
    return y + lane_set_height(set, width);
}

static void lane_draw_legend(const struct tti_lanes *lanes, double x, double y, FILE *out)
{
    static const char *const names[] = {"NVLink", "PCI", "network"};
    static const char *const dashes[] = {"", "1.5 2.5", "6 3"};
    for (int i = 0; i < 3; i++, x += 88) {
        fprintf(out,
                "<path d=\"M%.1f %.1fh26\" stroke=\"#444\" stroke-width=\"1.6\" "
                "stroke-dasharray=\"%s\"/>\n",
                x, y - 4, dashes[i]);
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"r\">%s</text>\n", x + 31, y, names[i]);
    }
    if (lanes->trees) {
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"#444\"/>\n", x + 6, y - 4);
        fprintf(out,
                "<text x=\"%.1f\" y=\"%.1f\" class=\"r\">root: a broadcast goes down the arrows, "
                "a reduction up</text>\n",
                x + 16, y);
    }
}

void tti_lanes_draw(const struct tti_lanes *lanes, const struct tti_topology *topology, double x,
                    double y, double width, FILE *out)
{
    struct lane_set rings = lane_rings(lanes);
    struct lane_set trees = lane_trees(lanes);
    const struct tti_busbw_prediction *p = &lanes->prediction;
    if (!rings.count && !trees.count)
        return;
    y = lane_draw_set(&rings, topology, x, y, width, out);
    y = lane_draw_set(&trees, topology, x, y, width, out);
    lane_draw_legend(lanes, x, y + LINE, out);
    fprintf(out,
            "<text x=\"%.1f\" y=\"%.1f\" class=\"r\">On nics: squares are rings, circles trees "
            "that leave by them, in their colours.</text>\n",
            x, y + 2 * LINE);
    if (p->best > 0) {
        fprintf(out,
                "<text x=\"%.1f\" y=\"%.1f\" class=\"h\">All-reduce, bus bandwidth predicted: "
                "ring %.0f, tree %.0f",
                x, y + 3 * LINE + 4, p->ring, p->tree);
        if (p->nvls > 0)
            fprintf(out, ", NVLS %.0f", p->nvls);
        fprintf(out, " GB/s</text>\n");
    }
}

/* ---- Marks on NICs --------------------------------------------------------------------------- */

enum { MOST_MARKS = 8 };

static bool lane_leaves_by(const struct lane_set *set, int lane, int nic)
{
    for (int k = 0; k < set->stops; k++)
        if (set->hops[lane * set->stops + k].nic_out == nic)
            return true;
    return false;
}

static int lane_marks(const struct lane_set *set, int nic, int *lanes)
{
    int found = 0;
    for (int lane = 0; lane < set->count && found < MOST_MARKS; lane++)
        if (lane_leaves_by(set, lane, nic))
            lanes[found++] = lane;
    return found;
}

double tti_lanes_marks_width(const struct tti_lanes *lanes, int nic)
{
    int marks[MOST_MARKS];
    struct lane_set rings = lane_rings(lanes);
    struct lane_set trees = lane_trees(lanes);
    int first = lane_marks(&rings, nic, marks);
    int second = lane_marks(&trees, nic, marks);
    return MARK * (first > second ? first : second);
}

void tti_lanes_marks(const struct tti_lanes *lanes, int nic, double right, double top, FILE *out)
{
    int marks[MOST_MARKS];
    struct lane_set rings = lane_rings(lanes);
    struct lane_set trees = lane_trees(lanes);
    int found = lane_marks(&rings, nic, marks);
    for (int i = 0; i < found; i++)
        fprintf(out,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"6\" height=\"6\" fill=\"%s\" "
                "style=\"stroke:none\"/>\n",
                right - MARK * (found - i), top, lane_colours[marks[i] % COLOURS]);
    found = lane_marks(&trees, nic, marks);
    for (int i = 0; i < found; i++)
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
                right - MARK * (found - i) + 3, top + 12, lane_colours[marks[i] % COLOURS]);
}
