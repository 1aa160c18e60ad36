/* Trees over hosts (host_shapes.h): labels 0, 1, ... are given to hosts, and a formula makes a tree
 * over labels. */
#include "topology/host_shapes.h"

/* The binary tree whose odd labels are its leaves: the parent has the next higher bit in place of
 * the lowest one, or, where that label does not exist, no bit in its place. */
static int shape_in_order(int label, int count)
{
    if (label == 0)
        return -1;
    int bit = label & -label;
    int up = (label ^ bit) | bit << 1;
    return up < count ? up : label ^ bit;
}

static int shape_parent(enum tti_host_shape shape, int label, int count)
{
    if (shape == TTI_SHAPE_PAIR)
        return shape_in_order(label, count);
    return label == 0 ? -1 : shape == TTI_SHAPE_HEAP ? (label - 1) / 2 : label - 1;
}

/* Which of `count` hosts in line has the label. In the second tree of a pair they stand the other
 * way round, or one further where their number is odd: odd places become even ones. */
static int shape_place(enum tti_host_shape shape, int tree, int label, int count)
{
    if (shape == TTI_SHAPE_CHAIN)
        return (label + tree) % count;
    if (shape == TTI_SHAPE_HEAP || tree % 2 == 0)
        return label;
    return count % 2 == 0 ? count - 1 - label : (label + 1) % count;
}

/* The host in the given place of those other than the root, in order or as ranked. */
static int shape_host(int place, int root, const int *ranked, int hosts)
{
    for (int i = 0; i < hosts; i++) {
        int host = ranked ? ranked[i] : i;
        if (host != root && place-- == 0)
            return host;
    }
    return -1;
}

void tti_host_shape(enum tti_host_shape shape, int tree, int hosts, int root, const int *ranked,
                    int *order, int *parent)
{
    const int *line = shape == TTI_SHAPE_HEAP ? ranked : 0;
    int first = root >= 0;
    int count = hosts - first;
    int listed = 0;
    for (int label = 0; label < count; label++) {
        int up = shape_parent(shape, label, count);
        int host = shape_host(shape_place(shape, tree, label, count), root, line, hosts);
        parent[host] =
            up < 0 ? root : shape_host(shape_place(shape, tree, up, count), root, line, hosts);
    }
    if (first)
        parent[root] = -1;
    for (int host = 0; host < hosts; host++)
        if (parent[host] < 0)
            order[listed++] = host;
    for (int i = 0; i < listed; i++)
        for (int host = 0; host < hosts; host++)
            if (parent[host] == order[i])
                order[listed++] = host;
}
