/* tutti-topo: what the machine is made of, as text or as a picture, and which cores ranks would
 * get. The work is in topology/; this file reads the command line. */
#include "base/config.h"
#include "base/memory.h"
#include "topology/bind.h"
#include "topology/rings.h"
#include "topology/topology.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { EXIT_USAGE = 2, MOST_RANKS = 65536, MOST_JSON = 1 << 28 };

static const char topo_usage[] =
    "Usage: tutti-topo [options]      print a machine: this one unless another is given\n"
    "\n"
    "  -s, --synthetic TEXT   a described one: \"4 hosts x 8 gpus, nvlink 450, 8 nics 50\"; with\n"
    "                         colons as hwloc describes machines: \"package:2 core:4 pu:2\"\n"
    "      --xml FILE         as hwloc or lstopo wrote it\n"
    "      --json FILE        as -o FILE.json wrote it\n"
    "  -o FILE                write it to FILE.svg as a picture or to FILE.json, and print "
    "nothing\n"
    "  -e, --explain          which cores each rank of the (first) host gets by --bind core\n"
    "  -r, --rings            rings over all GPUs (or all hosts) that together carry the most\n"
    "  -n, --ranks N          that many ranks (as many as GPUs, else cores)\n"
    "  -h, --help             this text\n"
    "      --version          the version\n"
    "\n"
    "Parts of a description: N hosts, packages, numa, cores, threads (of each core), switches,\n"
    "gpus; N nics G; nvlink G (by a switch), mesh G (between each two GPUs), pcie G. G is GB/s in\n"
    "each direction; numbers are of each host. Memory and CPUs that this process may not use are\n"
    "not shown. Exit status 2 for wrong input.\n";

struct topo {
    const char *synthetic, *xml, *json, *output;
    bool explain, rings;
    int ranks; /* 0: not given */
};

static enum tutti_result topo_read_json(const char *path, struct tti_topology **topology)
{
    struct stat info;
    FILE *file = fopen(path, "re");
    if (!file)
        return TTI_FAIL_ERRNO("cannot open %s", path);
    enum tutti_result result = TUTTI_OK;
    char *text = NULL;
    if (fstat(fileno(file), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > MOST_JSON)
        result = TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s is no file of at most %d bytes", path, MOST_JSON);
    else if (!(text = tti_calloc((size_t)info.st_size + 1, 1)))
        result = TUTTI_ERR_MEMORY;
    if (result == TUTTI_OK) {
        size_t bytes = fread(text, 1, (size_t)info.st_size, file);
        result = tti_topology_from_json(text, bytes, topology);
        if (result != TUTTI_OK)
            result = TTI_CONTEXT(result, "%s", path);
    }
    free(text);
    fclose(file);
    return result;
}

static enum tutti_result topo_load(const struct topo *topo, struct tti_topology **topology)
{
    if (topo->json)
        return topo_read_json(topo->json, topology);
    if (topo->xml)
        return tti_topology_from_xml(topo->xml, topology);
    if (topo->synthetic && strchr(topo->synthetic, ':'))
        return tti_topology_from_hwloc_synthetic(topo->synthetic, topology);
    if (topo->synthetic)
        return tti_topology_from_text(topo->synthetic, topology);
    return tti_topology_probe(TTI_PROBE_DEVICES, topology);
}

static bool topo_ends_in(const char *path, const char *end)
{
    size_t length = strlen(path);
    return length > strlen(end) && strcmp(path + length - strlen(end), end) == 0;
}

static enum tutti_result topo_write(const struct tti_topology *topology, const char *path)
{
    FILE *file = fopen(path, "we");
    if (!file)
        return TTI_FAIL_ERRNO("cannot write %s", path);
    enum tutti_result result = topo_ends_in(path, ".svg") ? tti_topology_draw(topology, file)
                                                          : tti_topology_write_json(topology, file);
    if (fclose(file) != 0 && result == TUTTI_OK)
        result = TTI_FAIL_ERRNO("cannot write %s", path);
    return result;
}

/* The NUMA node with the first CPU of the set, or -1. */
static int topo_numa_of(const struct tti_topology *topology, const cpu_set_t *cpus)
{
    for (int i = 0; i < (int)topology->node_count; i++) {
        const struct tti_node *node = &topology->nodes[i];
        if (node->kind == TTI_NODE_PU && node->os_index >= 0 && node->os_index < CPU_SETSIZE &&
            CPU_ISSET(node->os_index, cpus))
            return tti_topology_above(topology, i, TTI_NODE_NUMA);
    }
    return -1;
}

static enum tutti_result topo_explain(const struct tti_topology *topology, int ranks)
{
    int gpus = tti_topology_count(topology, 0, TTI_NODE_GPU);
    int cores = tti_topology_count(topology, 0, TTI_NODE_CORE);
    int numas = tti_topology_count(topology, 0, TTI_NODE_NUMA);
    const char *why = "as asked for";
    if (ranks == 0) {
        ranks = gpus ? gpus : cores;
        why = gpus ? "one for each GPU" : "one for each core";
    }
    if (ranks == 0 || ranks > cores) {
        printf("%d ranks (%s) on %d cores: not bound, there are too few cores\n", ranks, why,
               cores);
        return TUTTI_OK;
    }
    printf("%d rank%s (%s) on %d core%s of %d NUMA node%s: %s\n", ranks, ranks == 1 ? "" : "s", why,
           cores, cores == 1 ? "" : "s", numas, numas == 1 ? "" : "s",
           ranks < numas ? "each gets whole NUMA nodes" : "each stays within a NUMA node");
    for (int rank = 0; rank < ranks; rank++) {
        cpu_set_t cpus;
        char text[256];
        TTI_TRY(tti_topology_cpus(topology, ranks, rank, &cpus));
        int numa = topo_numa_of(topology, &cpus);
        printf("rank %d: CPUs %s", rank, tti_cpus_text(&cpus, text, sizeof text));
        if (numa >= 0)
            printf(", %s %s", ranks < numas ? "from" : "in",
                   tti_topology_label(topology, numa, text, sizeof text));
        putchar('\n');
    }
    return TUTTI_OK;
}

/* "gpu 0 1 2 3", host by host, with the NICs between them. */
static void topo_print_ring(const struct tti_topology *topology, const struct tti_rings *rings,
                            int ring)
{
    const struct tti_hop *hops = &rings->hops[(size_t)ring * (size_t)rings->stops];
    int last_host = -1;
    char label[80];
    printf("ring %d:", ring);
    for (int k = 0; k < rings->stops; k++) {
        int host = tti_topology_above(topology, hops[k].from, TTI_NODE_HOST);
        if (host != last_host && topology->nodes[hops[k].from].kind != TTI_NODE_HOST)
            printf(" %s:", tti_topology_label(topology, host, label, sizeof label));
        last_host = host;
        printf(" %s", tti_topology_label(topology, hops[k].from, label, sizeof label));
        if (hops[k].nic_out >= 0) {
            printf(" [%s", tti_topology_label(topology, hops[k].nic_out, label, sizeof label));
            printf(" > %s]", tti_topology_label(topology, hops[k].nic_in, label, sizeof label));
        } else {
            printf(" %s", hops[k].kind == TTI_LINK_NVLINK ? "=" : "-");
        }
    }
    putchar('\n');
}

static enum tutti_result topo_rings(const struct tti_topology *topology)
{
    enum tti_node_kind kind =
        tti_topology_count(topology, -1, TTI_NODE_GPU) ? TTI_NODE_GPU : TTI_NODE_HOST;
    int count = tti_topology_count(topology, -1, kind);
    int *stops = tti_calloc((size_t)count, sizeof *stops);
    struct tti_rings *rings = NULL;
    int found = 0;
    if (!stops)
        return TUTTI_ERR_MEMORY;
    for (int i = 0; i < (int)topology->node_count; i++)
        if (topology->nodes[i].kind == kind)
            stops[found++] = i;
    enum tutti_result result = tti_rings_search(topology, stops, count, &rings);
    free(stops);
    TTI_TRY(result);
    printf("%d ring%s over %d %ss", rings->count, rings->count == 1 ? "" : "s", count,
           tti_node_kind_name(kind));
    if (rings->gbs > 0)
        printf(", each %.4g GB/s: %.4g GB/s in all (= NVLink, - PCI, [ ] network)\n", rings->gbs,
               rings->count * rings->gbs);
    else
        printf(" of unknown bandwidth (= NVLink, - PCI, [ ] network)\n");
    for (int ring = 0; ring < rings->count; ring++)
        topo_print_ring(topology, rings, ring);
    tti_rings_destroy(rings);
    return TUTTI_OK;
}

static int topo_wrong(const char *text)
{
    fprintf(stderr, "tutti-topo: %s (tutti-topo --help)\n", text);
    return EXIT_USAGE;
}

static int topo_run(const struct topo *topo)
{
    struct tti_topology *topology = NULL;
    if (topo_load(topo, &topology) != TUTTI_OK)
        return topo_wrong(tutti_last_error());
    enum tutti_result result = TUTTI_OK;
    if (topo->output)
        result = topo_write(topology, topo->output);
    else if (!topo->explain && !topo->rings)
        result = tti_topology_print(topology, stdout);
    if (result == TUTTI_OK && topo->explain)
        result = topo_explain(topology, topo->ranks);
    if (result == TUTTI_OK && topo->rings)
        result = topo_rings(topology);
    tti_topology_destroy(topology);
    if (result == TUTTI_OK && fflush(stdout) != 0)
        result = TTI_FAIL_ERRNO("cannot write to standard output");
    if (result == TUTTI_OK)
        return 0;
    fprintf(stderr, "tutti-topo: %s\n", tutti_last_error());
    return 1;
}

static int topo_check(const struct topo *topo)
{
    if (!!topo->synthetic + !!topo->xml + !!topo->json > 1)
        return topo_wrong("only one of --synthetic, --xml and --json");
    if (topo->output && !topo_ends_in(topo->output, ".svg") && !topo_ends_in(topo->output, ".json"))
        return topo_wrong("-o FILE must end in .svg or .json");
    if (topo->ranks && !topo->explain)
        return topo_wrong("--ranks goes with --explain");
    return 0;
}

int main(int argc, char **argv)
{
    enum { FLAG_XML = 256, FLAG_JSON, FLAG_VERSION };
    static const struct option flags[] = {
        {"synthetic", required_argument, NULL, 's'},
        {"xml", required_argument, NULL, FLAG_XML},
        {"json", required_argument, NULL, FLAG_JSON},
        {"explain", no_argument, NULL, 'e'},
        {"rings", no_argument, NULL, 'r'},
        {"ranks", required_argument, NULL, 'n'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, FLAG_VERSION},
        {0},
    };
    struct topo topo = {0};
    long ranks = 0;
    int flag = 0;
    opterr = 0;
    while ((flag = getopt_long(argc, argv, ":s:o:ern:h", flags, NULL)) != -1) {
        if (flag == 's')
            topo.synthetic = optarg;
        else if (flag == FLAG_XML)
            topo.xml = optarg;
        else if (flag == FLAG_JSON)
            topo.json = optarg;
        else if (flag == 'o')
            topo.output = optarg;
        else if (flag == 'e')
            topo.explain = true;
        else if (flag == 'r')
            topo.rings = true;
        else if (flag == 'n' && tti_parse_int("--ranks", optarg, 1, MOST_RANKS, &ranks) == TUTTI_OK)
            topo.ranks = (int)ranks;
        else if (flag == 'n')
            return topo_wrong(tutti_last_error());
        else if (flag == 'h')
            return fputs(topo_usage, stdout) < 0;
        else if (flag == FLAG_VERSION)
            return printf("tutti-topo (Tutti) %d.%d.%d\n", TUTTI_VERSION_MAJOR, TUTTI_VERSION_MINOR,
                          TUTTI_VERSION_PATCH) < 0;
        else
            return topo_wrong(flag == ':' ? "a flag without its value" : "a flag that is unknown");
    }
    if (optind < argc)
        return topo_wrong("an argument that is no flag");
    int status = topo_check(&topo);
    return status ? status : topo_run(&topo);
}
