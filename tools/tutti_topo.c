/* tutti-topo: what the machine is made of, as text or as a picture, and which cores ranks would
 * get. The work is in topology/; this file reads the command line. */
#include "base/clock.h"
#include "base/config.h"
#include "tools/topo_measure.h"
#include "tools/topo_report.h"
#include "topology/graph.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_USAGE = 2, MOST_RANKS = 65536, MEASURE_SECONDS = 20 };

static const char topo_usage[] =
    "Usage: tutti-topo [options]      print a machine: this one unless another is given\n"
    "\n"
    "  -s, --synthetic TEXT   a described one: \"4 hosts x 8 gpus, nvlink 450, 8 nics 50\"; with\n"
    "                         colons as hwloc describes machines: \"package:2 core:4 pu:2\"\n"
    "      --xml FILE         as hwloc or lstopo wrote it\n"
    "      --json FILE        as -o FILE.json wrote it\n"
    "  -o FILE                write it to FILE.svg as a picture or to FILE.json, and print "
    "nothing\n"
    "                         (a picture has the rings and trees too, or with -r or -t only "
    "those)\n"
    "  -e, --explain          each choice in a line: the cores of each rank of the (first) host\n"
    "                         by --bind core, the NIC of each GPU; with -r and -t, why these\n"
    "  -r, --rings            rings over all GPUs (or all hosts) that together carry the most\n"
    "  -t, --trees            the same with trees\n"
    "  -m, --measure          measure this machine where nothing states a number (cores, memory,\n"
    "                         GPUs, NICs of unknown speed: seconds); -o FILE.json keeps it\n"
    "  -p, --predict          the bus bandwidth of an all-reduce to be expected, and why\n"
    "  -n, --ranks N          that many ranks (as many as GPUs, else cores)\n"
    "  -h, --help             this text\n"
    "      --version          the version\n"
    "\n"
    "Parts of a description: N hosts, packages, numa, cores, threads (of each core), switches,\n"
    "gpus; N nics G; nvlink G (by a switch; nvls: one that adds up), mesh G (between each two\n"
    "GPUs), cube G (of one link of a hybrid cube mesh of 8), pcie G; staged (GPUs reach each "
    "other\n"
    "through memory only). G is GB/s in each direction; numbers are of each host; a semicolon\n"
    "begins hosts of another kind. Memory and CPUs that this process may not use are not shown.\n"
    "Exit status 2 for wrong input.\n";

struct topo {
    const char *synthetic, *xml, *json, *output;
    bool explain, rings, trees, predict, measure;
    int ranks; /* 0: not given */
};

static enum tutti_result topo_load(const struct topo *topo, struct tti_topology **topology)
{
    if (topo->json)
        return tti_topology_from_file(topo->json, topology);
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

static enum tutti_result topo_write(const struct topo *topo, const struct tti_topology *topology)
{
    const char *path = topo->output;
    FILE *file = fopen(path, "we");
    if (!file)
        return TTI_FAIL_ERRNO("cannot write %s", path);
    enum tutti_result result = topo_ends_in(path, ".svg")
                                   ? topo_report_draw(topology, topo->rings || !topo->trees,
                                                      topo->trees || !topo->rings, file)
                                   : tti_topology_write_json(topology, file);
    if (fclose(file) != 0 && result == TUTTI_OK)
        result = TTI_FAIL_ERRNO("cannot write %s", path);
    return result;
}

static int topo_wrong(const char *text)
{
    fprintf(stderr, "tutti-topo: %s (tutti-topo --help)\n", text);
    return EXIT_USAGE;
}

/* `word` of the command line, and what is wrong about it. */
static int topo_wrong_word(const char *word, const char *what)
{
    fprintf(stderr, "tutti-topo: %s %s (tutti-topo --help)\n", word, what);
    return EXIT_USAGE;
}

static enum tutti_result topo_measure_all(struct tti_topology *topology)
{
    struct measure done;
    const uint64_t began = tti_now_ns();
    TTI_TRY(topo_measure(topology, MEASURE_SECONDS, isatty(STDERR_FILENO) ? stderr : NULL, &done));
    fprintf(stderr, "tutti-topo: measured %d links in %.1f s", done.found,
            (double)(tti_now_ns() - began) / 1e9);
    if (done.left_out)
        fprintf(stderr, "; %d were left out (no time, or see TUTTI_LOG=warn)", done.left_out);
    fprintf(stderr, "\n");
    return TUTTI_OK;
}

static int topo_run(const struct topo *topo)
{
    struct tti_topology *topology = NULL;
    if (topo_load(topo, &topology) != TUTTI_OK)
        return topo_wrong(tutti_last_error());
    enum tutti_result result = topo->measure ? topo_measure_all(topology) : TUTTI_OK;
    if (result == TUTTI_OK && topo->output)
        result = topo_write(topo, topology);
    else if (result == TUTTI_OK && !topo->explain && !topo->rings && !topo->trees && !topo->predict)
        result = tti_topology_print(topology, stdout);
    if (result == TUTTI_OK && topo->explain)
        result = topo_report_cores(topology, topo->ranks);
    if (result == TUTTI_OK && topo->explain)
        result = topo_report_nics(topology);
    if (result == TUTTI_OK && topo->rings && !topo->output)
        result = topo_report_rings(topology, topo->explain);
    if (result == TUTTI_OK && topo->trees && !topo->output)
        result = topo_report_trees(topology, topo->explain);
    if (result == TUTTI_OK && topo->predict)
        result = topo_report_prediction(topology);
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
    if (topo->measure && (topo->synthetic || topo->xml || topo->json))
        return topo_wrong("--measure measures this machine, not a described one");
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
        {"trees", no_argument, NULL, 't'},
        {"predict", no_argument, NULL, 'p'},
        {"measure", no_argument, NULL, 'm'},
        {"ranks", required_argument, NULL, 'n'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, FLAG_VERSION},
        {0},
    };
    struct topo topo = {0};
    long ranks = 0;
    int flag = 0;
    opterr = 0;
    while ((flag = getopt_long(argc, argv, ":s:o:ertpmn:h", flags, NULL)) != -1) {
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
        else if (flag == 't')
            topo.trees = true;
        else if (flag == 'p')
            topo.predict = true;
        else if (flag == 'm')
            topo.measure = true;
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
            return topo_wrong_word(argv[optind - 1], flag == ':' ? "needs a value" : "is unknown");
    }
    if (optind < argc)
        return topo_wrong_word(argv[optind], "is no flag");
    int status = topo_check(&topo);
    return status ? status : topo_run(&topo);
}
