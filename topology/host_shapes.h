/* The shape of a tree over hosts, before anything is known of GPUs and NICs (trees.h). */
#ifndef TTI_TOPOLOGY_HOST_SHAPES_H
#define TTI_TOPOLOGY_HOST_SHAPES_H

enum tti_host_shape {
    TTI_SHAPE_PAIR,  /* binary; trees 2k and 2k + 1 have each other's leaves inside */
    TTI_SHAPE_HEAP,  /* binary, hosts as ranked: the last ones are leaves */
    TTI_SHAPE_CHAIN, /* one after the other, from another host in each tree */
    TTI_SHAPES,
};

/* The tree number `tree` over `hosts` hosts, with the root `root` (-1: any). ranked[] lists the
 * hosts, best first. Writes order[], parents before children, and of each host its parent (-1: the
 * root). */
void tti_host_shape(enum tti_host_shape shape, int tree, int hosts, int root, const int *ranked,
                    int *order, int *parent);

#endif
