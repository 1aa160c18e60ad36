/* The graph as a picture: nested boxes in SVG, CPUs above, devices below them, then the host's
 * NVSwitch and, across all hosts, the network; links as lines.
 *
 * Sizes first, from the leaves up (draw_measure), then places, from the roots down (draw_place),
 * then three layers: boxes that hold others, lines, and what the lines end at. As in the text, a
 * chain of only children is one box with a line of text each. Of many hosts only the first are
 * drawn. */
#include "topology/graph.h"

#include "base/c_locale.h"
#include "base/memory.h"
#include "topology/lanes_draw.h"
#include "topology/measured.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_HOSTS = 4, MOST_ALIKE = 2, PAD = 8, LINE = 15, BAR = 26 };

struct box {
    double x, y, w, h;
    bool drawn;
    bool inner; /* part of the chain of its parent: no box of its own */
    int links[TTI_LINK_WAYS];
    double gbs[TTI_LINK_WAYS];  /* of all links of the kind */
    bool differ[TTI_LINK_WAYS]; /* some of them have more than others */
    bool measured[TTI_LINK_WAYS];
};

struct draw_topology {
    const struct tti_topology *topology;
    const struct tti_lanes *lanes; /* or NULL */
    FILE *out;
    struct box *boxes;
    int roots, left_out; /* hosts drawn, and not */
    double width, height;
    double bottom; /* of the machine; lanes are below */
};

/* A switch that lies below the others as a bar: nothing is inside it. */
static bool draw_is_bar(const struct tti_topology *topology, int node)
{
    return topology->nodes[node].kind == TTI_NODE_SWITCH &&
           tti_topology_end(topology, node) == node + 1;
}

static bool draw_is_device(const struct tti_topology *topology, int node)
{
    enum tti_node_kind kind = topology->nodes[node].kind;
    return kind == TTI_NODE_GPU || kind == TTI_NODE_NIC || kind == TTI_NODE_SWITCH;
}

/* Each a group of rows of its own, from the top down. */
enum draw_layer { LAYER_CPUS, LAYER_GPUS, LAYER_NICS, LAYER_BARS, LAYERS };

static int draw_layer(const struct tti_topology *topology, int node)
{
    if (draw_is_bar(topology, node))
        return LAYER_BARS;
    if (topology->nodes[node].kind == TTI_NODE_NIC)
        return LAYER_NICS;
    return draw_is_device(topology, node) ? LAYER_GPUS : LAYER_CPUS;
}

static int draw_chain_end(const struct draw_topology *draw, int node)
{
    const struct tti_topology *topology = draw->topology;
    while (node + 1 < (int)topology->node_count && draw->boxes[node + 1].inner &&
           topology->nodes[node + 1].parent == node)
        node++;
    return node;
}

static void draw_add_link(struct box *box, const struct tti_graph_link *link)
{
    int links = box->links[link->kind]++;
    double before = links ? box->gbs[link->kind] / links : link->gbs;
    box->differ[link->kind] |= fabs(before - link->gbs) > 1e-6 * link->gbs;
    box->gbs[link->kind] += link->gbs;
    box->measured[link->kind] |= link->measured && link->gbs > 0;
}

/* What the links of each node add up to. Of a PCI link only the lower end has it. */
static void draw_add_links(struct draw_topology *draw)
{
    for (size_t i = 0; i < draw->topology->link_count; i++) {
        const struct tti_graph_link *link = &draw->topology->links[i];
        if (link->kind >= TTI_LINK_WAYS)
            continue;
        draw_add_link(&draw->boxes[link->from], link);
        if (link->kind != TTI_LINK_PCI)
            draw_add_link(&draw->boxes[link->to], link);
    }
}

/* The bandwidths that a device has, one a line; returns the number of lines. */
static int draw_rates(const struct draw_topology *draw, int node, char lines[TTI_LINK_WAYS][40])
{
    static const char *const names[TTI_LINK_WAYS] = {"PCIe", "NVLink", "net"};
    const struct box *box = &draw->boxes[node];
    int count = 0;
    for (int k = 0; k < TTI_LINK_WAYS; k++)
        if (box->gbs[k] > 0 && box->links[k] > 1 && !box->differ[k])
            snprintf(lines[count++], 40, "%s %d x %.4g GB/s", names[k], box->links[k],
                     box->gbs[k] / box->links[k]);
        else if (box->gbs[k] > 0)
            snprintf(lines[count++], 40, "%s %.4g GB/s%s", names[k], box->gbs[k],
                     box->measured[k] ? " measured" : "");
    return count;
}

/* What was measured inside a host, a line a kind; returns the number of lines. */
static int draw_measured(const struct draw_topology *draw, int node,
                         char lines[TTI_LINK_KINDS][TTI_MEASURED_BYTES])
{
    int count = 0;
    for (int k = TTI_LINK_WAYS; k < TTI_LINK_KINDS; k++)
        if (draw->topology->nodes[node].kind == TTI_NODE_HOST &&
            tti_topology_measured_text(draw->topology, node, (enum tti_link_kind)k, lines[count]))
            count++;
    return count;
}

static int draw_lines(const struct draw_topology *draw, int node)
{
    char measured[TTI_LINK_KINDS][TTI_MEASURED_BYTES];
    char lines[TTI_LINK_WAYS][40];
    int own = draw_chain_end(draw, node) - node + 1;
    enum tti_node_kind kind = draw->topology->nodes[node].kind;
    if (kind == TTI_NODE_GPU || kind == TTI_NODE_NIC)
        own += draw_rates(draw, node, lines);
    return own + draw_measured(draw, node, measured);
}

static void draw_title(const struct draw_topology *draw, int node, char *text, size_t bytes)
{
    char size[32];
    (void)tti_topology_label(draw->topology, node, text, bytes);
    size_t used = strlen(text);
    if (draw->topology->nodes[node].bytes)
        snprintf(text + used, bytes - used, " %s",
                 tti_size_text(draw->topology->nodes[node].bytes, size, sizeof size));
    if (draw->topology->nodes[node].reduces)
        snprintf(text + used, bytes - used, " (adds up and multicasts)");
}

/* The width that the box's own text takes. */
static double draw_text_width(const struct draw_topology *draw, int node)
{
    char lines[TTI_LINK_WAYS][40];
    char title[120];
    double width = 0;
    for (int i = node; i <= draw_chain_end(draw, node); i++) {
        draw_title(draw, i, title, sizeof title);
        width = fmax(width, (double)strlen(title) * 7.1);
    }
    char measured[TTI_LINK_KINDS][TTI_MEASURED_BYTES];
    int count = draw_measured(draw, node, measured);
    for (int i = 0; i < count; i++)
        width = fmax(width, (double)strlen(measured[i]) * 5.6);
    count = draw_rates(draw, node, lines);
    for (int i = 0; i < count && draw_is_device(draw->topology, node); i++)
        width = fmax(width, (double)strlen(lines[i]) * 5.6);
    if (draw->lanes && draw->topology->nodes[node].kind == TTI_NODE_NIC)
        width += tti_lanes_marks_width(draw->lanes, node);
    return width + 2 * PAD;
}

/* ---- Sizes and places ------------------------------------------------------------------------ */

/* Rows of the children of one layer: as wide as they are high, twice over, unless they are few. */
static int draw_columns(int children)
{
    return children <= 8 ? children : (int)ceil(sqrt(2.0 * children));
}

/* Walks the children of `node` in rows. Places them when `place`, from (x, y) on; adds up the size.
 */
static void draw_rows(struct draw_topology *draw, int node, bool place, double x, double y,
                      double *width, double *height)
{
    const struct tti_topology *topology = draw->topology;
    int end = tti_topology_end(topology, node);
    *width = *height = 0;
    for (int layer = 0; layer < LAYERS; layer++) {
        int children = 0;
        int column = 0;
        double at = 0;
        double high = 0;
        for (int i = node + 1; i < end; i = tti_topology_end(topology, i))
            children += draw_layer(topology, i) == layer;
        bool stacked = layer == LAYER_BARS || topology->nodes[node].kind == TTI_NODE_CORE;
        int columns = stacked ? 1 : draw_columns(children);
        for (int i = node + 1; i < end; i = tti_topology_end(topology, i)) {
            struct box *box = &draw->boxes[i];
            if (draw_layer(topology, i) != layer)
                continue;
            if (column == columns) {
                *height += high + PAD;
                column = 0;
                at = high = 0;
            }
            if (place) {
                box->x = x + at;
                box->y = y + *height;
            }
            at += box->w + PAD;
            high = fmax(high, box->h);
            *width = fmax(*width, at - PAD);
            column++;
        }
        if (children)
            *height += high + PAD;
    }
}

static void draw_measure(struct draw_topology *draw, int node)
{
    struct box *box = &draw->boxes[node];
    double width = 0;
    double height = 0;
    int last = draw_chain_end(draw, node);
    draw_rows(draw, last, false, 0, 0, &width, &height);
    box->w = fmax(width + 2 * PAD, draw_text_width(draw, node));
    box->h = PAD + draw_lines(draw, node) * LINE + (height > 0 ? height : PAD / 2.0);
    if (draw_is_bar(draw->topology, node))
        box->h = BAR;
}

static void draw_place(struct draw_topology *draw, int node)
{
    struct box *box = &draw->boxes[node];
    int last = draw_chain_end(draw, node);
    double width = 0;
    double height = 0;
    int end = tti_topology_end(draw->topology, node);
    draw_rows(draw, last, true, box->x + PAD, box->y + PAD + draw_lines(draw, node) * LINE, &width,
              &height);
    for (int i = last + 1; i < end; i = tti_topology_end(draw->topology, i))
        if (draw_is_bar(draw->topology, i))
            draw->boxes[i].w = box->w - 2 * PAD;
}

/* Whether all hosts have the same parts, with the same links. */
static bool draw_hosts_are_alike(const struct tti_topology *topology)
{
    int first = -1;
    for (int i = 0; i < (int)topology->node_count; i++) {
        if (topology->nodes[i].kind != TTI_NODE_HOST)
            continue;
        first = first < 0 ? i : first;
        int nodes = tti_topology_end(topology, i) - i;
        if (nodes != tti_topology_end(topology, first) - first)
            return false;
        for (int k = 1; k < nodes; k++)
            if (topology->nodes[i + k].kind != topology->nodes[first + k].kind ||
                topology->nodes[i + k].parent - i != topology->nodes[first + k].parent - first)
                return false;
    }
    /* Of each part the same bandwidth as of that part of the first host. */
    for (size_t i = 0; i < topology->link_count; i++) {
        const struct tti_graph_link *a = &topology->links[i];
        int host = tti_topology_above(topology, a->from, TTI_NODE_HOST);
        bool found = host <= first || a->kind >= TTI_LINK_WAYS;
        for (size_t k = 0; k < topology->link_count && !found; k++) {
            const struct tti_graph_link *b = &topology->links[k];
            found = b->from - first == a->from - host && b->kind == a->kind && b->gbs == a->gbs;
        }
        if (!found)
            return false;
    }
    return true;
}

/* Marks what is drawn and what is part of a chain, then sizes from the last node to the first. */
static void draw_layout(struct draw_topology *draw)
{
    const struct tti_topology *topology = draw->topology;
    int count = (int)topology->node_count;
    int most = draw_hosts_are_alike(topology) ? MOST_ALIKE : MOST_HOSTS;
    double x = PAD;
    double y = 2 * PAD + LINE;
    for (int i = 0; i < count; i++) {
        int parent = topology->nodes[i].parent;
        bool host = topology->nodes[i].kind == TTI_NODE_HOST;
        draw->boxes[i].drawn =
            parent >= 0 ? draw->boxes[parent].drawn : !host || draw->roots < most;
        draw->roots += host && draw->boxes[i].drawn;
        draw->left_out += host && !draw->boxes[i].drawn;
        draw->boxes[i].inner = parent >= 0 && parent == i - 1 && !draw_is_device(topology, i) &&
                               topology->nodes[parent].kind != TTI_NODE_HOST &&
                               tti_topology_end(topology, i) == tti_topology_end(topology, parent);
    }
    for (int i = count - 1; i >= 0; i--)
        if (draw->boxes[i].drawn && !draw->boxes[i].inner)
            draw_measure(draw, i);
    double bottom = y;
    for (int i = 0; i < count; i++) {
        struct box *box = &draw->boxes[i];
        if (!box->drawn || box->inner)
            continue;
        if (topology->nodes[i].kind == TTI_NODE_HOST) {
            box->x = x;
            box->y = y;
            x += box->w + 2 * PAD;
            bottom = fmax(bottom, box->y + box->h);
        } else if (topology->nodes[i].parent < 0) {
            box->x = PAD;
            box->y = bottom + 2 * PAD;
            box->w = fmax(x - 3 * PAD, 120);
            box->h = BAR;
            bottom = box->y + box->h;
        }
        draw_place(draw, i);
    }
    double width = fmax(x, 360) - 2 * PAD;
    draw->bottom = bottom + PAD + (draw->left_out ? LINE : 0);
    draw->height = draw->bottom + (draw->lanes ? tti_lanes_size(draw->lanes, &width) : 0);
    draw->width = width + 2 * PAD;
}

/* ---- Output ---------------------------------------------------------------------------------- */

static const char *draw_colour(enum tti_node_kind kind)
{
    static const char *const colours[TTI_NODE_KINDS] = {
        [TTI_NODE_HOST] = "#fafaf7",   [TTI_NODE_PACKAGE] = "#eef1f5", [TTI_NODE_NUMA] = "#dfe8f2",
        [TTI_NODE_CACHE] = "#f6f9fc",  [TTI_NODE_CORE] = "#ffffff",    [TTI_NODE_PU] = "#ffffff",
        [TTI_NODE_SWITCH] = "#e9e1f2", [TTI_NODE_GPU] = "#d8ecd2",     [TTI_NODE_NIC] = "#fbe3c8",
    };
    return colours[kind];
}

static void draw_text(const struct draw_topology *draw, double x, double y, const char *class,
                      const char *text)
{
    fprintf(draw->out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">%s</text>\n", x, y, class, text);
}

static void draw_box(const struct draw_topology *draw, int node)
{
    const struct box *box = &draw->boxes[node];
    enum tti_node_kind kind = draw->topology->nodes[node].kind;
    char lines[TTI_LINK_WAYS][40];
    double y = box->y + LINE + 1;
    char title[120];
    fprintf(draw->out,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"4\" fill=\"%s\"/>\n",
            box->x, box->y, box->w, box->h, draw_colour(kind));
    for (int i = node; i <= draw_chain_end(draw, node); i++, y += LINE) {
        draw_title(draw, i, title, sizeof title);
        draw_text(draw, box->x + PAD, y, i == node ? "b" : "t", title);
    }
    int count = kind == TTI_NODE_GPU || kind == TTI_NODE_NIC ? draw_rates(draw, node, lines) : 0;
    for (int i = 0; i < count; i++, y += LINE)
        draw_text(draw, box->x + PAD, y, "r", lines[i]);
    char measured[TTI_LINK_KINDS][TTI_MEASURED_BYTES];
    count = draw_measured(draw, node, measured);
    for (int i = 0; i < count; i++, y += LINE)
        draw_text(draw, box->x + PAD, y, "r", measured[i]);
    if (draw->lanes && kind == TTI_NODE_NIC)
        tti_lanes_marks(draw->lanes, node, box->x + box->w - 4, box->y + 6, draw->out);
}

/* From the middle of one to the other; to a bar straight down, with PCI left to the nesting.
 * Between two devices of a row an arc below them. */
static void draw_link(const struct draw_topology *draw, const struct tti_graph_link *link)
{
    static const char *const colours[TTI_LINK_WAYS] = {"#777777", "#4a9b3a", "#d9822b"};
    const struct box *a = &draw->boxes[link->from];
    const struct box *b = &draw->boxes[link->to];
    if (!a->drawn || !b->drawn || link->kind == TTI_LINK_PCI || link->kind >= TTI_LINK_WAYS)
        return;
    double width = link->gbs > 0 ? fmin(5, 1 + log10(1 + link->gbs)) : 1;
    /* Lines of a GPU beside those of the NIC below it. */
    double x = a->x + a->w * (link->kind == TTI_LINK_NETWORK ? 0.7 : 0.3);
    double bottom = a->y + a->h;
    if (draw_is_bar(draw->topology, link->to)) {
        fprintf(draw->out, "<path d=\"M%.1f %.1fV%.1f\" stroke=\"%s\" stroke-width=\"%.1f\"/>\n", x,
                bottom, b->y, colours[link->kind], width);
        return;
    }
    double to = b->x + b->w * 0.3;
    double level = b->y + b->h;
    double dip = fmin(4 + fabs(to - x) / 12, 2 * LINE);
    fprintf(draw->out,
            "<path d=\"M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f\" stroke=\"%s\" "
            "stroke-width=\"%.1f\"/>\n",
            x, bottom, x, bottom + dip, to, level + dip, to, level, colours[link->kind], width / 2);
}

static void draw_all(const struct draw_topology *draw)
{
    const struct tti_topology *topology = draw->topology;
    char text[240];
    fprintf(draw->out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "font-family=\"sans-serif\" font-size=\"11\">\n"
            "<style>rect{stroke:#8a94a0}path{fill:none;stroke-opacity:.7}.b{font-weight:bold}"
            ".r{fill:#555;font-size:10px}.h{font-weight:bold;font-size:13px}</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\" style=\"stroke:none\"/>\n",
            draw->width, draw->height);
    snprintf(text, sizeof text, "%s", topology->source);
    for (char *at = text; *at; at++)
        if (*at < ' ' || *at > '~' || strchr("<>&", *at))
            *at = '_';
    draw_text(draw, PAD, LINE, "t", text);
    for (int layer = 0; layer < 2; layer++) {
        for (int i = 0; i < (int)topology->node_count; i++) {
            bool front = draw_is_bar(topology, i) || topology->nodes[i].kind == TTI_NODE_GPU ||
                         topology->nodes[i].kind == TTI_NODE_NIC;
            if (draw->boxes[i].drawn && !draw->boxes[i].inner && front == (layer == 1))
                draw_box(draw, i);
        }
        for (size_t i = 0; i < topology->link_count && layer == 0; i++)
            draw_link(draw, &topology->links[i]);
    }
    if (draw->left_out) {
        snprintf(text, sizeof text, "%d more host%s not drawn%s", draw->left_out,
                 draw->left_out == 1 ? " is" : "s are",
                 draw_hosts_are_alike(topology) ? ": alike" : "");
        draw_text(draw, PAD, draw->bottom - PAD, "t", text);
    }
    if (draw->lanes)
        tti_lanes_draw(draw->lanes, topology, PAD, draw->bottom, draw->width - 2 * PAD, draw->out);
    fprintf(draw->out, "</svg>\n");
}

enum tutti_result tti_topology_draw(const struct tti_topology *topology,
                                    const struct tti_lanes *lanes, FILE *out)
{
    struct draw_topology draw = {.topology = topology, .lanes = lanes, .out = out};
    draw.boxes = tti_calloc(topology->node_count + 1, sizeof *draw.boxes);
    if (!draw.boxes)
        return TUTTI_ERR_MEMORY;
    struct tti_c_locale locale = tti_c_locale_enter();
    draw_add_links(&draw);
    draw_layout(&draw);
    draw_all(&draw);
    tti_c_locale_leave(locale);
    free(draw.boxes);
    if (fflush(out) != 0 || ferror(out))
        return TTI_FAIL_ERRNO("cannot draw the machine");
    return TUTTI_OK;
}
