/* Machines from one line: "4 hosts x 8 gpus, nvlink 450, 8 nics 50".
 *
 *   line  = hosts {";" hosts}
 *   hosts = part {("," | "x") part}
 *   part  = N ("hosts" | "packages" | "numa" | "cores" | "threads" | "switches" | "gpus")
 *         | N "nics" G | "nvlink" G | "mesh" G | "cube" G | "pcie" G | "nvls" | "staged"
 *
 * The hosts of a group are alike, and groups stand one after the other; the other numbers are of
 * each host (threads: of each core), spread evenly in order. G is GB/s in each direction: `nvlink`
 * from each GPU to a switch that joins all GPUs of the host, `mesh` between each two GPUs, `cube`
 * of one link of a hybrid cube mesh of 8 GPUs with 6 links each, `pcie` of each device, `nics` of
 * each NIC to the network, which all groups share. `nvls`: the NVLink switch adds up and
 * multicasts. Switches are PCI switches, which take all GPUs and NICs. Each part stands once at
 * most in a group, in any order, in the singular or plural. Without hosts it is one, without
 * packages one, and without numa one in each package. */
#include "topology/graph.h"

#include "base/c_locale.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_OF_A_PART = 65536, MOST_GROUPS = 64 };

enum part {
    HOSTS,
    PACKAGES,
    NUMA,
    CORES,
    THREADS,
    SWITCHES,
    GPUS,
    NICS,
    NVLINK,
    MESH,
    CUBE,
    PCIE,
    NVLS,
    STAGED,
    PARTS
};

static const char *const part_names[PARTS] = {"host",   "package", "numa", "core",   "thread",
                                              "switch", "gpu",     "nic",  "nvlink", "mesh",
                                              "cube",   "pcie",    "nvls", "staged"};

/* Links between the GPUs of a hybrid cube mesh, as in a DGX-1 with V100: two squares with their
 * diagonals, and four edges between them. */
enum { CUBE_GPUS = 8, CUBE_PAIRS = 16 };
static const struct {
    int a, b, links;
} cube_pairs[CUBE_PAIRS] = {{0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1},
                            {1, 5, 2}, {2, 3, 2}, {2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1},
                            {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2}};

/* A group of hosts that are alike. */
struct synthetic {
    const char *line, *at;
    bool given[PARTS];
    int count[PARTS];
    double gbs[PARTS];
    int first, end; /* its nodes, once built */
};

/* ---- Reading --------------------------------------------------------------------------------- */

static enum tutti_result synthetic_wrong(const struct synthetic *s, const char *what)
{
    return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                    "the machine \"%.80s\" at \"%.20s\": %s; expected such as \"4 hosts x 8 gpus, "
                    "nvlink 450, 8 nics 50\"",
                    s->line, s->at, what);
}

static void synthetic_skip(struct synthetic *s)
{
    while (*s->at == ' ' || *s->at == '\t' || *s->at == '\n')
        s->at++;
}

static enum tutti_result synthetic_count(struct synthetic *s, int *count)
{
    long value = 0;
    const char *at = s->at;
    for (; isdigit((unsigned char)*at); at++)
        if ((value = value * 10 + (*at - '0')) > MOST_OF_A_PART)
            return synthetic_wrong(s, "more than 65536 of a part");
    if (at == s->at)
        return synthetic_wrong(s, "a number is missing");
    if (value == 0)
        return synthetic_wrong(s, "0 of a part; leave out what is not there");
    s->at = at;
    *count = (int)value;
    return TUTTI_OK;
}

static enum tutti_result synthetic_rate(struct synthetic *s, double *gbs)
{
    synthetic_skip(s);
    size_t length = strspn(s->at, "0123456789.");
    char text[32];
    char *end = NULL;
    if (length == 0 || length >= sizeof text)
        return synthetic_wrong(s, "a bandwidth in GB/s is missing");
    memcpy(text, s->at, length);
    text[length] = '\0';
    double value = strtod(text, &end);
    if (*end || !(value > 0) || value > 1e6)
        return synthetic_wrong(s, "a bandwidth is more than 0 and at most 1000000 GB/s");
    s->at += length;
    *gbs = value;
    return TUTTI_OK;
}

/* The word at hand: a part's name, in the singular or plural. */
static enum tutti_result synthetic_word(struct synthetic *s, enum part *part)
{
    synthetic_skip(s);
    size_t length = 0;
    while (isalpha((unsigned char)s->at[length]))
        length++;
    for (int p = 0; p < PARTS; p++) {
        size_t name = strlen(part_names[p]);
        if (length < name || strncasecmp(s->at, part_names[p], name) != 0)
            continue;
        const char *rest = s->at + name;
        size_t left = length - name;
        if (left == 0 || (left == 1 && strncasecmp(rest, "s", 1) == 0) ||
            (left == 2 && p == SWITCHES && strncasecmp(rest, "es", 2) == 0)) {
            s->at += length;
            *part = (enum part)p;
            return TUTTI_OK;
        }
    }
    return synthetic_wrong(s, "no part that is known (hosts, packages, numa, cores, threads, "
                              "switches, gpus, nics, nvlink, mesh, cube, pcie, nvls, staged)");
}

static enum tutti_result synthetic_part(struct synthetic *s)
{
    enum part part = HOSTS;
    int count = 0;
    synthetic_skip(s);
    const char *start = s->at;
    if (isdigit((unsigned char)*s->at))
        TTI_TRY(synthetic_count(s, &count));
    TTI_TRY(synthetic_word(s, &part));
    bool rated = part >= NICS && part < NVLS;
    if (rated)
        TTI_TRY(synthetic_rate(s, &s->gbs[part]));
    const char *wrong = NULL;
    if (s->given[part])
        wrong = "this part was there before";
    else if (part >= NVLINK && count)
        wrong = rated ? "this part has a bandwidth, and no number before it"
                      : "this part has no number before it";
    else if (part < NVLINK && !count)
        wrong = "a number before the part is missing";
    if (wrong) {
        s->at = start;
        return synthetic_wrong(s, wrong);
    }
    s->given[part] = true;
    if (part < NVLINK)
        s->count[part] = count;
    return TUTTI_OK;
}

/* What the parts say together; also that the result is not absurdly large. */
static enum tutti_result synthetic_check(struct synthetic *s)
{
    double hosts = s->count[HOSTS];
    double cores = s->count[CORES];
    double gpus = s->count[GPUS];
    double nodes = 2 + s->count[PACKAGES] + cores + cores * s->count[THREADS] + s->count[SWITCHES] +
                   gpus + s->count[NICS];
    if (!s->given[NUMA])
        s->count[NUMA] = s->count[PACKAGES];
    if (s->count[NUMA] < s->count[PACKAGES])
        return synthetic_wrong(s, "fewer NUMA nodes than packages");
    if ((s->given[NVLINK] || s->given[MESH] || s->given[CUBE]) && !s->given[GPUS])
        return synthetic_wrong(s, "NVLink without GPUs");
    if (s->given[CUBE] && s->count[GPUS] != CUBE_GPUS)
        return synthetic_wrong(s, "a hybrid cube mesh has 8 GPUs");
    if (s->given[STAGED] && !s->given[GPUS])
        return synthetic_wrong(s, "staged without gpus");
    if (s->given[NVLS] && !s->given[NVLINK])
        return synthetic_wrong(s, "nvls without nvlink");
    if (s->given[PCIE] && !s->given[GPUS] && !s->given[NICS])
        return synthetic_wrong(s, "PCIe without GPUs or NICs");
    if (s->given[THREADS] && !s->given[CORES])
        return synthetic_wrong(s, "threads without cores");
    if (hosts * (nodes + s->count[NUMA]) > TTI_TOPOLOGY_NODES ||
        (s->given[MESH] && hosts * gpus * gpus > TTI_TOPOLOGY_NODES))
        return synthetic_wrong(s, "the machine has more than 1048576 parts");
    return TUTTI_OK;
}

/* The groups of a line. */
static enum tutti_result synthetic_parse(const char *line, struct synthetic *groups, int *count)
{
    int used = 0;
    const char *at = line;
    do {
        struct synthetic *s = &groups[used];
        *s = (struct synthetic){.line = line, .at = at};
        if (used++ == MOST_GROUPS)
            return synthetic_wrong(s, "more than 64 groups of hosts");
        s->count[HOSTS] = s->count[PACKAGES] = s->count[THREADS] = 1;
        do {
            TTI_TRY(synthetic_part(s));
            synthetic_skip(s);
        } while ((*s->at == ',' || *s->at == 'x') && s->at++);
        if (*s->at && *s->at != ';')
            return synthetic_wrong(s, "a comma is missing");
        TTI_TRY(synthetic_check(s));
        at = s->at;
    } while (*at == ';' && at++);
    *count = used;
    return TUTTI_OK;
}

/* ---- Building -------------------------------------------------------------------------------- */

/* Of `count` things spread over `places`, the first that is in `place`. */
static int synthetic_first(int count, int place, int places)
{
    return (int)(((long)place * count + places - 1) / places);
}

static enum tutti_result synthetic_devices(const struct synthetic *s, struct tti_topology *topology,
                                           int parent, enum part part, int place, int places)
{
    struct tti_node node = {.kind = part == GPUS   ? TTI_NODE_GPU
                                    : part == NICS ? TTI_NODE_NIC
                                                   : TTI_NODE_SWITCH,
                            .parent = parent};
    int end = synthetic_first(s->count[part], place + 1, places);
    for (int i = synthetic_first(s->count[part], place, places); i < end; i++) {
        struct tti_graph_link link = {.kind = TTI_LINK_PCI, .to = parent, .gbs = s->gbs[PCIE]};
        node.os_index = i;
        node.staged = part == GPUS && s->given[STAGED];
        if (part == SWITCHES)
            snprintf(node.name, sizeof node.name, "PCI");
        TTI_TRY(tti_topology_add(topology, &node, &link.from));
        TTI_TRY(tti_topology_link(topology, &link));
        if (part == SWITCHES) {
            TTI_TRY(synthetic_devices(s, topology, link.from, GPUS, i, s->count[SWITCHES]));
            TTI_TRY(synthetic_devices(s, topology, link.from, NICS, i, s->count[SWITCHES]));
        }
    }
    return TUTTI_OK;
}

static enum tutti_result synthetic_numa(const struct synthetic *s, struct tti_topology *topology,
                                        int package, int numa)
{
    struct tti_node node = {.kind = TTI_NODE_NUMA, .parent = package, .os_index = numa};
    int nodes = s->count[NUMA];
    int cores = s->count[CORES];
    int inside = 0;
    int core = 0;
    TTI_TRY(tti_topology_add(topology, &node, &inside));
    for (int c = synthetic_first(cores, numa, nodes); c < synthetic_first(cores, numa + 1, nodes);
         c++) {
        node = (struct tti_node){.kind = TTI_NODE_CORE, .parent = inside, .os_index = c};
        TTI_TRY(tti_topology_add(topology, &node, &core));
        for (int t = 0; t < s->count[THREADS]; t++) {
            /* Linux counts the first threads of all cores, then the second ones. */
            node =
                (struct tti_node){.kind = TTI_NODE_PU, .parent = core, .os_index = c + t * cores};
            TTI_TRY(tti_topology_add(topology, &node, NULL));
        }
    }
    if (s->given[SWITCHES])
        return synthetic_devices(s, topology, inside, SWITCHES, numa, nodes);
    TTI_TRY(synthetic_devices(s, topology, inside, GPUS, numa, nodes));
    return synthetic_devices(s, topology, inside, NICS, numa, nodes);
}

/* Among the nodes from `host` on, between which there are no NVLinks yet. */
static enum tutti_result synthetic_nvlink(const struct synthetic *s, struct tti_topology *topology,
                                          int host)
{
    struct tti_node node = {.kind = TTI_NODE_SWITCH,
                            .parent = host,
                            .os_index = -1,
                            .reduces = s->given[NVLS],
                            .name = "NVSwitch"};
    int end = (int)topology->node_count;
    int nvswitch = 0;
    int gpus[CUBE_GPUS];
    int found = 0;
    if (s->given[NVLINK])
        TTI_TRY(tti_topology_add(topology, &node, &nvswitch));
    for (int i = host; i < end; i++) {
        struct tti_graph_link link = {
            .kind = TTI_LINK_NVLINK, .from = i, .to = nvswitch, .gbs = s->gbs[NVLINK]};
        if (topology->nodes[i].kind != TTI_NODE_GPU)
            continue;
        if (s->given[NVLINK])
            TTI_TRY(tti_topology_link(topology, &link));
        link.gbs = s->gbs[MESH];
        for (link.to = i + 1; s->given[MESH] && link.to < end; link.to++)
            if (topology->nodes[link.to].kind == TTI_NODE_GPU)
                TTI_TRY(tti_topology_link(topology, &link));
        if (s->given[CUBE])
            gpus[found++] = i;
    }
    for (int pair = 0; s->given[CUBE] && pair < CUBE_PAIRS; pair++) {
        struct tti_graph_link link = {.kind = TTI_LINK_NVLINK,
                                      .from = gpus[cube_pairs[pair].a],
                                      .to = gpus[cube_pairs[pair].b],
                                      .gbs = s->gbs[CUBE] * cube_pairs[pair].links};
        TTI_TRY(tti_topology_link(topology, &link));
    }
    return TUTTI_OK;
}

static enum tutti_result synthetic_host(const struct synthetic *s, struct tti_topology *topology,
                                        int number)
{
    struct tti_node node = {.kind = TTI_NODE_HOST, .parent = -1, .os_index = number};
    int packages = s->count[PACKAGES];
    int host = 0;
    int package = 0;
    TTI_TRY(tti_topology_add(topology, &node, &host));
    for (int p = 0; p < packages; p++) {
        node = (struct tti_node){.kind = TTI_NODE_PACKAGE, .parent = host, .os_index = p};
        TTI_TRY(tti_topology_add(topology, &node, &package));
        int end = synthetic_first(s->count[NUMA], p + 1, packages);
        for (int n = synthetic_first(s->count[NUMA], p, packages); n < end; n++)
            TTI_TRY(synthetic_numa(s, topology, package, n));
    }
    return synthetic_nvlink(s, topology, host);
}

static enum tutti_result synthetic_build(struct synthetic *groups, int count,
                                         struct tti_topology *topology)
{
    struct tti_node node = {
        .kind = TTI_NODE_SWITCH, .parent = -1, .os_index = -1, .name = "network"};
    int network = 0;
    int hosts = 0;
    bool nics = false;
    for (int g = 0; g < count; g++) {
        groups[g].first = (int)topology->node_count;
        for (int host = 0; host < groups[g].count[HOSTS]; host++)
            TTI_TRY(synthetic_host(&groups[g], topology, hosts++));
        groups[g].end = (int)topology->node_count;
        nics |= groups[g].given[NICS];
    }
    if (!nics)
        return TUTTI_OK;
    TTI_TRY(tti_topology_add(topology, &node, &network));
    for (int g = 0; g < count; g++)
        for (int i = groups[g].first; i < groups[g].end; i++) {
            struct tti_graph_link link = {
                .kind = TTI_LINK_NETWORK, .from = i, .to = network, .gbs = groups[g].gbs[NICS]};
            if (topology->nodes[i].kind == TTI_NODE_NIC)
                TTI_TRY(tti_topology_link(topology, &link));
        }
    return TUTTI_OK;
}

enum tutti_result tti_topology_from_text(const char *text, struct tti_topology **topology)
{
    struct synthetic groups[MOST_GROUPS + 1];
    struct tti_topology *made = NULL;
    int count = 0;
    struct tti_c_locale locale = tti_c_locale_enter(); /* for numbers, and for the I of NIC */
    enum tutti_result result = synthetic_parse(text, groups, &count);
    tti_c_locale_leave(locale);
    if (result != TUTTI_OK)
        return result;
    TTI_TRY(tti_topology_create(text, &made));
    result = synthetic_build(groups, count, made);
    if (result != TUTTI_OK) {
        tti_topology_destroy(made);
        return result;
    }
    *topology = made;
    return TUTTI_OK;
}
