/* tutti-plan simulate: predicted times of algorithms on a modelled network, beside the closed
 * formulas, in the columns of nccl-tests. */
#include "base/clock.h"
#include "base/memory.h"
#include "tools/plan_tool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { SIMULATE_ALGORITHMS = 64 };

struct simulate {
    enum tutti_collective collective;
    const char *algorithm; /* NULL or "all": every one */
    struct tti_network network;
    int root, lanes;
    int slices; /* 0: as the closed formula likes best */
    size_t least, most;
    int factor;
    enum tutti_type type;
    const char *trace;
    bool gates;
    struct tti_layout layout;
};

/* One line of the table. */
struct prediction_row {
    const struct tti_algorithm *algorithm;
    int slices;
    enum tutti_result result;
    struct tti_error error;
    struct tti_prediction prediction;
    double formula, wall;
};

/* ---- sizes as nccl-tests means them: bytes of the larger buffer ---- */

static bool has_blocks(enum tutti_collective collective)
{
    return collective == TUTTI_REDUCE_SCATTER || collective == TUTTI_ALL_GATHER ||
           collective == TUTTI_ALL_TO_ALL || collective == TUTTI_GATHER ||
           collective == TUTTI_SCATTER;
}

static size_t block_count(const struct simulate *s, size_t bytes)
{
    size_t blocks = has_blocks(s->collective) ? (size_t)s->network.nranks : 1;
    return bytes / blocks / tutti_type_size(s->type);
}

static double bus_factor(const struct simulate *s)
{
    double n = s->network.nranks;
    if (s->collective == TUTTI_ALL_REDUCE)
        return 2 * (n - 1) / n;
    return has_blocks(s->collective) ? (n - 1) / n : 1;
}

/* ---- running ---- */

static struct tti_plan_spec spec_of(const struct simulate *s, int slices)
{
    return (struct tti_plan_spec){.collective = s->collective,
                                  .nranks = s->network.nranks,
                                  .root = s->root,
                                  .lanes = s->lanes,
                                  .slices = slices,
                                  .layout = s->layout};
}

/* The closed formula knows one kind of link: the one between hosts if there are several. */
static double formula_of(const struct simulate *s, const struct tti_algorithm *algorithm,
                         int slices, size_t count)
{
    const struct tti_link_model *link =
        s->layout.nhosts > 1 ? &s->network.inter : &s->network.intra;
    struct tti_plan_spec spec = spec_of(s, slices);
    double bytes = (double)count * (double)tutti_type_size(s->type);
    return algorithm->cost ? algorithm->cost(&spec, bytes, link->alpha, link->beta) : 0;
}

static int best_slices(const struct simulate *s, const struct tti_algorithm *algorithm,
                       size_t count)
{
    if (s->slices > 0 || !algorithm->sliced)
        return s->slices > 0 ? s->slices : 1;
    int best = 1;
    for (int slices = 2; slices <= 64; slices *= 2)
        if (formula_of(s, algorithm, slices, count) < formula_of(s, algorithm, best, count))
            best = slices;
    return best;
}

static void run_row(const struct simulate *s, size_t count, struct tti_timeline *timeline,
                    struct prediction_row *row)
{
    uint64_t start = tti_now_ns();
    row->slices = best_slices(s, row->algorithm, count);
    struct tti_plan_spec spec = spec_of(s, row->slices);
    row->result = tti_simulate(row->algorithm, &spec, &s->network, count, s->type, timeline,
                               &row->prediction);
    if (row->result != TUTTI_OK)
        tti_error_save(&row->error, row->result);
    else
        row->formula = formula_of(s, row->algorithm, row->slices, count);
    row->wall = (double)(tti_now_ns() - start) * 1e-9;
}

/* ---- printing ---- */

static void print_head(const struct simulate *s)
{
    const struct tti_network *n = &s->network;
    printf("# tutti-plan simulate: %s of %s, %d ranks on %d hosts of %d, %d network ports a host\n",
           tutti_collective_name(s->collective), plan_type_name(s->type), n->nranks,
           s->layout.nhosts, n->ranks_per_host, n->nics);
    printf("# inside a host %g us, %g GB/s; between hosts %g us, %g GB/s a port; %d lanes\n",
           n->intra.alpha * 1e6, 1e-9 / n->intra.beta, n->inter.alpha * 1e6, 1e-9 / n->inter.beta,
           s->lanes);
    printf("# formula: the algorithm's closed formula on links %s; ratio: time / formula\n",
           s->layout.nhosts > 1 ? "between hosts" : "inside a host");
    printf("# run: ranks simulated (fewer where they stand for all) and seconds it took; * is the "
           "fastest\n");
    printf("#\n#%11s %12s  %-20s %6s %12s %8s %8s %12s %7s %12s %6s %7s\n", "size", "count",
           "algorithm", "slices", "time", "algbw", "busbw", "formula", "ratio", "messages", "run",
           "run");
    printf("#%11s %12s  %-20s %6s %12s %8s %8s %12s %7s %12s %6s %7s\n", "(B)", "(elements)", "",
           "", "(us)", "(GB/s)", "(GB/s)", "(us)", "", "", "(ranks)", "(s)");
    fflush(stdout); /* the first size may take half a minute: show what it is that takes it */
}

static void print_row(const struct simulate *s, size_t count, const struct prediction_row *row,
                      bool fastest)
{
    if (row->result != TUTTI_OK)
        return;
    const struct tti_prediction *p = &row->prediction;
    size_t blocks = has_blocks(s->collective) ? (size_t)s->network.nranks : 1;
    double bytes = (double)count * (double)blocks * (double)tutti_type_size(s->type);
    double algbw = p->seconds > 0 ? bytes / p->seconds * 1e-9 : 0;
    char ratio[16] = "-", formula[24] = "-";
    if (row->formula > 0) {
        snprintf(formula, sizeof formula, "%.2f", row->formula * 1e6);
        snprintf(ratio, sizeof ratio, "%.3f", p->seconds / row->formula);
    }
    printf(" %11.0f %12zu %c%-20s %6d %12.2f %8.2f %8.2f %12s %7s %12llu %6d %7.2f\n", bytes, count,
           fastest ? '*' : ' ', row->algorithm->name, row->slices, p->seconds * 1e6, algbw,
           algbw * bus_factor(s), formula, ratio, (unsigned long long)p->messages,
           p->simulated_ranks, row->wall);
}

/* One size: all algorithms, then their lines. Returns how many could be simulated. */
static int simulate_size(const struct simulate *s, size_t bytes, struct prediction_row *rows,
                         size_t nrows, struct tti_timeline *timeline)
{
    size_t count = block_count(s, bytes);
    int fastest = -1, done = 0;
    for (size_t i = 0; i < nrows; i++) {
        run_row(s, count, timeline, &rows[i]);
        if (rows[i].result != TUTTI_OK)
            continue;
        done++;
        if (fastest < 0 || rows[i].prediction.seconds < rows[fastest].prediction.seconds)
            fastest = (int)i;
    }
    for (size_t i = 0; i < nrows; i++)
        print_row(s, count, &rows[i], (int)i == fastest);
    fflush(stdout);
    return done;
}

/* What could not be simulated, once each, after the table. */
static enum tutti_result print_refusals(const struct prediction_row *rows, size_t nrows)
{
    enum tutti_result worst = TUTTI_OK;
    for (size_t i = 0; i < nrows; i++)
        if (rows[i].result != TUTTI_OK) {
            printf("# no %s: %s\n", rows[i].algorithm->name, rows[i].error.text);
            if (rows[i].result != TUTTI_ERR_UNSUPPORTED)
                worst = tti_error_restore(&rows[i].error);
        }
    return worst;
}

/* ---- the command ---- */

static enum tutti_result choose_rows(const struct simulate *s, struct prediction_row *rows,
                                     size_t *nrows)
{
    *nrows = 0;
    if (s->algorithm && strcmp(s->algorithm, "all") != 0) {
        struct plan_choice choice = {.collective = s->collective, .algorithm = s->algorithm};
        TTI_TRY(plan_choice_algorithm(&choice, &rows[0].algorithm));
        *nrows = 1;
        return TUTTI_OK;
    }
    for (int i = 0; i < SIMULATE_ALGORITHMS && tti_algorithm_at(s->collective, i); i++)
        rows[(*nrows)++].algorithm = tti_algorithm_at(s->collective, i);
    if (*nrows == 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "there is no algorithm for %s",
                        tutti_collective_name(s->collective));
    return TUTTI_OK;
}

static enum tutti_result simulate_sizes(const struct simulate *s, struct prediction_row *rows,
                                        size_t nrows, struct tti_timeline *timeline)
{
    uint64_t start = tti_now_ns();
    int done = 0, sizes = 0;
    print_head(s);
    for (size_t bytes = s->least; bytes <= s->most; bytes *= (size_t)s->factor) {
        done += simulate_size(s, bytes, rows, nrows, timeline);
        sizes++;
        if (bytes == 0 || s->factor == 1 || bytes > s->most / (size_t)s->factor)
            break;
    }
    enum tutti_result worst = print_refusals(rows, nrows);
    printf("# %d simulations of %d sizes took %.2f s\n", done, sizes,
           (double)(tti_now_ns() - start) * 1e-9);
    if (worst != TUTTI_OK || done > 0)
        return worst;
    return tti_error_restore(&rows[0].error);
}

static enum tutti_result simulate_traced(const struct simulate *s, struct prediction_row *rows,
                                         size_t nrows)
{
    struct tti_timeline *timeline = NULL;
    if (s->trace)
        TTI_TRY(tti_timeline_create(&timeline));
    enum tutti_result result = simulate_sizes(s, rows, nrows, timeline);
    if (result == TUTTI_OK && s->trace) {
        result = tti_timeline_write(timeline, s->trace);
        if (result == TUTTI_OK)
            printf("# timeline in %s: open it in ui.perfetto.dev or chrome://tracing\n", s->trace);
    }
    tti_timeline_destroy(timeline);
    return result;
}

static enum tutti_result simulate_check(const struct simulate *s, size_t nrows)
{
    if (s->least > s->most)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "-b is %zu bytes, more than -e, %zu bytes", s->least,
                        s->most);
    if (s->factor < 2 && s->least != s->most)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "-f is %d; from -b to -e it must be 2 or more",
                        s->factor);
    if (s->root >= s->network.nranks)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "--root is %d; there are ranks 0 to %d", s->root,
                        s->network.nranks - 1);
    if (s->trace && (nrows != 1 || s->least != s->most))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "--trace shows one simulation: give one --algo and one size (-b and -e "
                        "alike)");
    return TUTTI_OK;
}

static enum tutti_result simulate_run(struct simulate *s)
{
    struct prediction_row *rows = tti_calloc(SIMULATE_ALGORITHMS, sizeof *rows);
    int *host_of = tti_calloc(2 * (size_t)s->network.nranks, sizeof *host_of);
    size_t nrows = 0;
    enum tutti_result result = rows && host_of ? TUTTI_OK : TUTTI_ERR_MEMORY;
    if (result == TUTTI_OK)
        result = choose_rows(s, rows, &nrows);
    if (result == TUTTI_OK)
        result = simulate_check(s, nrows);
    if (result == TUTTI_OK) {
        for (int rank = 0; rank < s->network.nranks; rank++)
            host_of[rank] = rank / s->network.ranks_per_host;
        s->layout = (struct tti_layout){
            .nhosts = host_of[s->network.nranks - 1] + 1, .host_of = host_of, .sorted = true};
        if (s->gates && s->network.nics > 1)
            s->layout.gates = plan_gates(host_of, s->network.nranks, s->network.nics,
                                         host_of + s->network.nranks);
        result = simulate_traced(s, rows, nrows);
    }
    free(rows);
    free(host_of);
    return result;
}

int plan_simulate_run(const struct plan_command *command, int argc, char **argv)
{
    int status = PLAN_DONE, nics = 0;
    size_t least = SIZE_MAX, most = SIZE_MAX;
    struct simulate s = {.collective = TUTTI_ALL_REDUCE,
                         .network = {.nranks = 65536,
                                     .ranks_per_host = 8,
                                     .intra = {2e-6, 1e-9 / 400},
                                     .inter = {5e-6, 1e-9 / 48}},
                         .lanes = 1,
                         .factor = 2,
                         .type = TUTTI_FLOAT32};
    struct tti_network *n = &s.network;
    const struct plan_flag flags[] = {
        {"--coll", NULL, FLAG_COLLECTIVE, &s.collective, 0, 0, "collective (all_reduce)"},
        {"--algo", NULL, FLAG_TEXT, &s.algorithm, 0, 0, "algorithm, or all (all)"},
        {"--ranks", "-n", FLAG_INT, &n->nranks, 1, 1 << 20, "number of ranks (65536)"},
        {"--ranks-per-host", NULL, FLAG_INT, &n->ranks_per_host, 1, 1 << 20, "(8)"},
        {"--nics", NULL, FLAG_INT, &nics, 1, 1 << 20,
         "network ports a host, ranks dealt to them (one a rank)"},
        {"--gates", NULL, FLAG_SWITCH, &s.gates, 0, 0,
         "lanes of rings and chains go by these ports in turn, as the library's do"},
        {"--intra", NULL, FLAG_LINK, &n->intra, 0, 0, "link inside a host (2,400)"},
        {"--inter", NULL, FLAG_LINK, &n->inter, 0, 0, "network port of a host (5,48)"},
        {"--reduce", NULL, FLAG_RATE, &n->gamma, 0, 0, "speed of reducing (free)"},
        {"--copy", NULL, FLAG_RATE, &n->delta, 0, 0, "speed of local copies (free)"},
        {"--minbytes", "-b", FLAG_BYTES, &least, 0, 0, "smallest size, as in nccl-tests (32M)"},
        {"--maxbytes", "-e", FLAG_BYTES, &most, 0, 0, "largest size (as -b)"},
        {"--stepfactor", "-f", FLAG_INT, &s.factor, 1, 1 << 20, "each size times this (2)"},
        {"--type", "-d", FLAG_TYPE, &s.type, 0, 0, "element type (float)"},
        {"--root", "-r", FLAG_INT, &s.root, 0, (1 << 20) - 1, "root, where there is one (0)"},
        {"--lanes", NULL, FLAG_INT, &s.lanes, 1, 64, "lanes (1)"},
        {"--slices", NULL, FLAG_INT, &s.slices, 1, 4096,
         "pieces of pipelined algorithms (what the formula likes best)"},
        {"--trace", NULL, FLAG_TEXT, &s.trace, 0, 0, "write a timeline for trace viewers here"}};
    if (!plan_command_flags(command, flags, COUNT(flags), argc, argv, &status))
        return status;
    n->nics = nics ? nics : n->ranks_per_host;
    s.least = least == SIZE_MAX ? (most < ((size_t)32 << 20) ? most : (size_t)32 << 20) : least;
    s.most = most == SIZE_MAX ? s.least : most;
    if (s.collective == TUTTI_BARRIER)
        s.least = s.most = 0;
    enum tutti_result result = simulate_run(&s);
    return result == TUTTI_OK ? PLAN_DONE : plan_command_error(command, result);
}
