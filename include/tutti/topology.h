/* Tutti's view of a machine, or of several: what it is made of, and what its links can carry.
 *
 * A description comes from the machine that the program runs on, or from text, XML or JSON. It does
 * not change once made, so that several threads may ask about it at once. GPUs are numbered from 0
 * over all hosts in order, and so are the parts of every other kind. tutti-topo is a program that
 * shows what is here; docs/topology.md has pictures and the model behind predictions.
 *
 *     tutti_topology *machine = NULL;
 *     if (tutti_topology_probe(&machine) == TUTTI_OK)
 *         tutti_topology_print(machine, stdout);
 *     tutti_topology_destroy(machine);
 */
#ifndef TUTTI_TOPOLOGY_H
#define TUTTI_TOPOLOGY_H

#include <stddef.h>
#include <stdio.h>

#include "tutti/tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_topology tutti_topology;

/* ---- Where a description comes from ----------------------------------------------------------
 *
 * Each makes a new one; destroy it with tutti_topology_destroy. TUTTI_ERR_ARGUMENT for a
 * description that is wrong, with its place. */

/* This machine: CPUs that the process may use, memory, GPUs, NICs, NVLinks. By hwloc and NVIDIA's
 * driver as far as they are installed; both are loaded here, at run time. Takes tens of
 * milliseconds. */
TUTTI_API enum tutti_result tutti_topology_probe(tutti_topology **topology);
/* One line, such as "4 hosts x 8 gpus, nvlink 450, 8 nics 50": see tutti-topo --help. Numbers after
 * a kind of link are GB/s in each direction. */
TUTTI_API enum tutti_result tutti_topology_from_text(const char *text, tutti_topology **topology);
/* A file that hwloc or lstopo wrote. TUTTI_ERR_UNSUPPORTED without hwloc. */
TUTTI_API enum tutti_result tutti_topology_from_xml(const char *path, tutti_topology **topology);
/* JSON as tutti_topology_write_json writes it; `text` need not end in a zero byte. */
TUTTI_API enum tutti_result tutti_topology_from_json(const char *text, size_t bytes,
                                                     tutti_topology **topology);
/* NULL is fine. */
TUTTI_API void tutti_topology_destroy(tutti_topology *topology);

/* ---- What it looks like ----------------------------------------------------------------------
 *
 * Fail only when `out` cannot be written (TUTTI_ERR_SYSTEM) or memory is short. */

/* An indented tree, a line for each part. */
TUTTI_API enum tutti_result tutti_topology_print(const tutti_topology *topology, FILE *out);
/* SVG: the parts as nested boxes; below them rings, trees and the predicted bandwidth, where there
 * are two GPUs (or hosts) or more. The same bytes for the same description. */
TUTTI_API enum tutti_result tutti_topology_draw(const tutti_topology *topology, FILE *out);
TUTTI_API enum tutti_result tutti_topology_write_json(const tutti_topology *topology, FILE *out);

/* ---- Questions ------------------------------------------------------------------------------- */

enum tutti_part {
    TUTTI_PART_HOST = 0,
    TUTTI_PART_PACKAGE = 1,
    TUTTI_PART_NUMA = 2,
    TUTTI_PART_CORE = 3,
    TUTTI_PART_CPU = 4, /* a hardware thread */
    TUTTI_PART_GPU = 5,
    TUTTI_PART_NIC = 6,
};

/* How many there are in all; 0 for a part that is none of these. */
TUTTI_API int tutti_topology_count(const tutti_topology *topology, enum tutti_part part);
/* "gpu 3", "nic eth0/mlx5_0": cut to `bytes`. TUTTI_ERR_ARGUMENT unless 0 <= index < count. */
TUTTI_API enum tutti_result tutti_topology_name(const tutti_topology *topology,
                                                enum tutti_part part, int index, char *text,
                                                size_t bytes);
/* The NIC that the GPU should send by, -1 if its host has none: the one that shares the most of the
 * way (PCI switch, NUMA node, package), of equal ones the fastest, and of these one that fewest
 * GPUs use. GPU k of hosts that are alike gets the same NIC, its rail. `why` (NULL, or at least
 * `why_bytes` long) receives the reason: "same PCI switch". */
TUTTI_API enum tutti_result tutti_topology_nearest_nic(const tutti_topology *topology, int gpu,
                                                       int *nic, char *why, size_t why_bytes);

/* Rings or trees over all GPUs, or over all hosts where there are no GPUs. Together they carry
 * count * gbs GB/s, each its share of a buffer, as a pipeline. */
struct tutti_paths {
    int count;        /* rings or trees */
    int stops;        /* GPUs or hosts */
    double gbs;       /* of each; 0: the description has no bandwidth on their way */
    double limit_gbs; /* what no set of them could exceed; 0: unknown */
    /* next[p * stops + i]: where stop i sends in ring p; or whom it reduces to in tree p, -1 for
     * the root (a broadcast goes the other way). */
    int *next;
};

/* For a ring all-reduce; the sum is the bus bandwidth to be hoped for. TUTTI_ERR_UNSUPPORTED when
 * there are fewer than two stops, more than 512, or some cannot reach the others. Milliseconds for
 * a host, seconds for hundreds of GPUs. Free with tutti_paths_destroy. */
TUTTI_API enum tutti_result tutti_topology_rings(const tutti_topology *topology,
                                                 struct tutti_paths **rings);
/* For an all-reduce by trees: a reduction up and a broadcast down at the same time. The sum is V
 * over seconds for V bytes; 2 (n-1)/n of it is bus bandwidth. Between hosts trees come in pairs
 * where a host that passes on in one is a leaf in the other (Sanders, Speck, Traeff 2009). */
TUTTI_API enum tutti_result tutti_topology_trees(const tutti_topology *topology,
                                                 struct tutti_paths **trees);
/* NULL is fine. */
TUTTI_API void tutti_paths_destroy(struct tutti_paths *paths);

/* The bus bandwidth (as nccl-tests counts it, GB/s) that a large all-reduce over all GPUs, or all
 * hosts, should reach by the best known way; 0 where the description does not say enough. `why`
 * (NULL, or at least `why_bytes` long) receives the candidates and what was assumed, in lines.
 * TUTTI_ERR_UNSUPPORTED as for rings. */
TUTTI_API enum tutti_result tutti_topology_predict(const tutti_topology *topology,
                                                   double *busbw_gbs, char *why, size_t why_bytes);

#ifdef __cplusplus
}
#endif

#endif
