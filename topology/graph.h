/* The machine, or several, as a graph: what contains what, and what is linked to what.
 *
 * A forest of nodes in depth-first order (a node's parent has a smaller index, and a subtree is a
 * run of indices), and links between nodes. It comes from this machine (hwloc, or sysfs where there
 * is no hwloc), from hwloc's XML files and synthetic strings, from our own one-line descriptions,
 * or from our JSON. Read next: graph.c (building), hwloc_import.c, bind.h (cores for ranks). */
#ifndef TTI_TOPOLOGY_GRAPH_H
#define TTI_TOPOLOGY_GRAPH_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum tti_node_kind {
    TTI_NODE_HOST, /* a root */
    TTI_NODE_PACKAGE,
    TTI_NODE_NUMA, /* holds what is near its memory, devices included */
    TTI_NODE_CACHE,
    TTI_NODE_CORE,
    TTI_NODE_PU,     /* a hardware thread: os_index is the number that Linux gives the CPU */
    TTI_NODE_SWITCH, /* a PCI or NVLink switch; as a root the network between hosts */
    TTI_NODE_GPU,
    TTI_NODE_NIC,
    TTI_NODE_KINDS,
};

enum { TTI_NODE_NAME_BYTES = 48, TTI_TOPOLOGY_NODES = 1 << 20, TTI_TOPOLOGY_DEPTH = 64 };

struct tti_node {
    enum tti_node_kind kind;
    int parent;                     /* -1: a root */
    int os_index;                   /* the operating system's number; -1: none */
    int level;                      /* of a cache, 1 to 5; else 0 */
    uint64_t bytes;                 /* of a cache or of a NUMA node's memory; 0: unknown or none */
    bool reduces;                   /* a switch that adds up and multicasts what passes (NVLS) */
    bool staged;                    /* a GPU that others of its host reach through memory only */
    char name[TTI_NODE_NAME_BYTES]; /* printable ASCII without quotes; "" for none */
};

enum tti_link_kind {
    TTI_LINK_PCI,
    TTI_LINK_NVLINK,
    TTI_LINK_NETWORK,
    TTI_LINK_WAYS, /* rings and trees are made of those above; those below are measured end to end
                    */
    TTI_LINK_CORE = TTI_LINK_WAYS, /* between two cores, through caches */
    TTI_LINK_MEMORY,               /* from a core to a NUMA node */
    TTI_LINK_PEER,                 /* between two GPUs, by whatever way the driver takes */
    TTI_LINK_KINDS,
};

struct tti_graph_link {
    enum tti_link_kind kind;
    int from, to;      /* nodes; both directions at once, each with the full bandwidth */
    double gbs;        /* GB/s (decimal), each direction; 0: unknown */
    double latency_us; /* 0: unknown */
    bool measured;     /* here, by a program: not what somebody states */
};

struct tti_topology {
    struct tti_node *nodes;
    size_t node_count, node_capacity;
    struct tti_graph_link *links;
    size_t link_count, link_capacity;
    char source[200]; /* where it came from: "hwloc 2.9.0", "sysfs", a file's name, ... */
};

/* ---- Where it comes from; destroy with tti_topology_destroy ------------------------------------
 */

enum tti_probe_flags {
    TTI_PROBE_CPUS = 0,    /* packages, NUMA nodes, caches, cores: fast */
    TTI_PROBE_DEVICES = 1, /* GPUs and NICs too, and the NVLinks that NVIDIA's driver knows of */
    TTI_PROBE_PCI = 2,     /* GPUs and NICs, without asking drivers */
    TTI_PROBE_OTHERS = 4,  /* CPUs, too, that this process's affinity leaves to others (hwloc) */
};
/* This machine, without the CPUs that this process may not use (affinity, cgroup). Where hwloc's
 * library cannot be loaded: cores and NUMA nodes from sysfs, and a line in the log that says so. */
enum tutti_result tti_topology_probe(int flags, struct tti_topology **topology);
/* The same without hwloc. `sysfs` is "/sys", or a copy of it in a test. */
enum tutti_result tti_topology_probe_sysfs(const char *sysfs, struct tti_topology **topology);
/* A file written by lstopo or hwloc, and hwloc's synthetic strings ("package:2 core:4 pu:2"). Both
 * need hwloc: TUTTI_ERR_UNSUPPORTED without. */
enum tutti_result tti_topology_from_xml(const char *path, struct tti_topology **topology);
enum tutti_result tti_topology_from_hwloc_synthetic(const char *text,
                                                    struct tti_topology **topology);
/* Our own: "4 hosts x 8 gpus, nvlink 450, 8 nics 50; 1 host x 4 gpus, pcie 25, 1 nic 25"
 * (synthetic.c has the grammar). */
enum tutti_result tti_topology_from_text(const char *text, struct tti_topology **topology);
/* Our JSON, as tti_topology_write_json writes it. Strict: what is not ours is refused with its
 * place. */
enum tutti_result tti_topology_from_json(const char *text, size_t bytes,
                                         struct tti_topology **topology);
/* A file of either kind: hwloc's XML where its name ends in ".xml", else JSON. Errors name it. */
enum tutti_result tti_topology_from_file(const char *path, struct tti_topology **topology);
/* Fills in the line rates of NICs that the graph has names and links to the network of, and no
 * rates, as hwloc's XML: what `sysfs` ("/sys", or a copy) says of devices of these names. */
void tti_topology_rates(struct tti_topology *topology, const char *sysfs);
void tti_topology_destroy(struct tti_topology *topology);

/* ---- Building -------------------------------------------------------------------------------- */

enum tutti_result tti_topology_create(const char *source, struct tti_topology **topology);
/* Appends `node` (its parent must exist, and the order must stay depth-first); *index is optional.
 */
enum tutti_result tti_topology_add(struct tti_topology *topology, const struct tti_node *node,
                                   int *index);
/* Puts `node` in as the last child of its parent; the nodes behind it move up by one, and so do
 * their numbers in links and parents. *index is optional. */
enum tutti_result tti_topology_insert(struct tti_topology *topology, const struct tti_node *node,
                                      int *index);
enum tutti_result tti_topology_link(struct tti_topology *topology,
                                    const struct tti_graph_link *link);

/* ---- Questions ------------------------------------------------------------------------------- */

/* One past the last node of the subtree of `node`. */
int tti_topology_end(const struct tti_topology *topology, int node);
/* The nearest node of the kind above (or at) `node`; -1 if there is none. */
int tti_topology_above(const struct tti_topology *topology, int node, enum tti_node_kind kind);
/* Nodes of the kind in the subtree of `node`; -1: everywhere. */
int tti_topology_count(const struct tti_topology *topology, int node, enum tti_node_kind kind);
/* "package 0", "L3", "gpu 2", "nic eth0/mlx5_0": cut to `bytes`, and returned. */
const char *tti_topology_label(const struct tti_topology *topology, int node, char *text,
                               size_t bytes);
/* "512 KiB", "22.4 GiB"; "" for 0. */
const char *tti_size_text(uint64_t size, char *text, size_t bytes);
/* "host", "package", ...; "pci", "nvlink", "network", "core", "memory", "peer". */
const char *tti_node_kind_name(enum tti_node_kind kind);
const char *tti_link_kind_name(enum tti_link_kind kind);

/* ---- What it looks like ------------------------------------------------------------------------
 */

/* Each fails only when `out` cannot be written. Print: an indented tree, one line for what is
 * nested one in one. Draw: nested boxes as SVG, the first hosts of many; and below them rings and
 * trees (lanes_draw.h; NULL for none). */
enum tutti_result tti_topology_print(const struct tti_topology *topology, FILE *out);
struct tti_lanes;
enum tutti_result tti_topology_draw(const struct tti_topology *topology,
                                    const struct tti_lanes *lanes, FILE *out);
enum tutti_result tti_topology_write_json(const struct tti_topology *topology, FILE *out);

#endif
