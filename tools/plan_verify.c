/* tutti-plan verify: one set of plans, or every algorithm at every number of ranks.
 *
 * --all covers, for each algorithm and each n: every root with several lane counts and slices; and
 * several layouts of ranks on hosts, with a few roots, where the plans depend on those. */
#include "base/clock.h"
#include "base/memory.h"
#include "tools/plan_tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { VERIFY_MISSED = 3 }; /* exit status: a planted error was not found */

struct verify {
    int max_ranks;
    bool progress;                  /* stderr is a terminal */
    int *host_of;                   /* of the layout in use, and behind them core_of or gate_of */
    const struct plan_plant *plant; /* or NULL */
    int plant_algorithm;            /* plant in the first set that takes it, from this algorithm */
    int plant_ranks;                /* and this number of ranks on */
    bool planted;
    int algorithms;                /* begun so far */
    int sets;                      /* verified so far, of all algorithms */
    struct tti_verify_stats stats; /* of the algorithm */
};

static const struct {
    int lanes, slices;
} variants[] = {{1, 1}, {2, 1}, {3, 1}, {1, 4}, {2, 3}};

/* Ranks on hosts. 0: all on one; the others as named. Hosts are numbered by their lowest rank. */
enum {
    LAYOUT_ONE,
    LAYOUT_TWO,
    LAYOUT_THREES,
    LAYOUT_UNEVEN,
    LAYOUT_DEALT,
    LAYOUT_ALONE,
    LAYOUT_CORES,       /* all on one, dealt to three cores in turn */
    LAYOUT_CORES_DEALT, /* dealt to two hosts, and there to two cores */
    LAYOUT_GATES,       /* three on each host, which they leave by two NICs in turn */
    LAYOUTS
};

static int layout_host(int layout, int rank, int nranks)
{
    int host = 0, size = 1;
    switch (layout) {
    case LAYOUT_TWO: /* two halves */
        return nranks < 2 ? 0 : rank / ((nranks + 1) / 2);
    case LAYOUT_THREES: /* three on each */
    case LAYOUT_GATES:
        return rank / 3;
    case LAYOUT_UNEVEN: /* one, two, three, ... */
        for (int first = 0; first + size <= rank; first += size++)
            host++;
        return host;
    case LAYOUT_DEALT: /* in turn to four */
        return rank % 4;
    case LAYOUT_ALONE: /* one on each */
        return rank;
    case LAYOUT_CORES_DEALT:
        return rank % 2;
    default:
        return 0;
    }
}

static void layout_fill(int layout, int nranks, int *host_of, struct tti_plan_spec *spec)
{
    enum { DEALT_HOSTS = 2, DEALT_CORES = 2 };
    int *core_of = host_of + nranks;
    const int most = layout == LAYOUT_CORES ? 3 : DEALT_HOSTS * DEALT_CORES;
    const bool cores = layout == LAYOUT_CORES || layout == LAYOUT_CORES_DEALT;
    int hosts = 0;
    for (int rank = 0; rank < nranks; rank++) {
        host_of[rank] = layout_host(layout, rank, nranks);
        hosts = host_of[rank] >= hosts ? host_of[rank] + 1 : hosts;
        core_of[rank] = rank % most;
    }
    spec->layout = (struct tti_layout){
        .nhosts = hosts,
        .host_of = host_of,
        .sorted = layout != LAYOUT_DEALT && layout != LAYOUT_CORES_DEALT,
        .near[TTI_NEAR_CORE] = {nranks < most ? nranks : most, cores ? core_of : NULL}};
    if (layout == LAYOUT_GATES)
        spec->layout.gates = plan_gates(host_of, nranks, 2, core_of);
}

static enum tutti_result verify_planted(struct verify *verify,
                                        const struct tti_algorithm *algorithm,
                                        const struct tti_plan_spec *spec)
{
    struct tti_plan **plans = NULL;
    TTI_TRY(plan_build_all(algorithm, spec, &plans));
    enum tutti_result result =
        plan_plant_apply(verify->plant, plans, spec->nranks, &verify->planted);
    if (result == TUTTI_OK)
        result = algorithm->ordered ? tti_verify_ordered(plans, spec->nranks, &verify->stats)
                                    : tti_verify_plans(plans, spec->nranks, &verify->stats);
    plan_release(plans, spec->nranks);
    if (result != TUTTI_OK)
        return TTI_CONTEXT(result, "algorithm %s", algorithm->name);
    return TUTTI_OK;
}

static enum tutti_result verify_set(struct verify *verify, const struct tti_algorithm *algorithm,
                                    const struct tti_plan_spec *spec)
{
    if (algorithm->applicable && !algorithm->applicable(spec))
        return TUTTI_OK;
    verify->sets++;
    int number = verify->algorithms - 1;
    if (verify->plant && !verify->planted && number >= verify->plant_algorithm &&
        (number > verify->plant_algorithm || spec->nranks >= verify->plant_ranks))
        return verify_planted(verify, algorithm, spec);
    return tti_verify_algorithm(algorithm, spec, &verify->stats);
}

static bool same_steps(const struct tti_plan *a, const struct tti_plan *b)
{
    if (a->nlanes != b->nlanes || a->chunks != b->chunks)
        return false;
    for (int lane = 0; lane < a->nlanes; lane++) {
        if (a->lanes[lane].count != b->lanes[lane].count)
            return false;
        for (size_t s = 0; s < a->lanes[lane].count; s++) {
            const struct tti_step *x = &a->lanes[lane].steps[s], *y = &b->lanes[lane].steps[s];
            if (x->kind != y->kind || x->from != y->from || x->to != y->to || x->chunk != y->chunk)
                return false;
        }
    }
    return true;
}

/* Does the layout of `spec` change any plan? */
static enum tutti_result depends_on_layout(const struct tti_algorithm *algorithm,
                                           const struct tti_plan_spec *spec, bool *depends)
{
    struct tti_plan_spec flat = *spec;
    flat.layout = (struct tti_layout){.nhosts = 1};
    bool here = !algorithm->applicable || algorithm->applicable(spec);
    bool there = !algorithm->applicable || algorithm->applicable(&flat);
    *depends = here && !there;
    if (!here || !there)
        return TUTTI_OK;
    struct tti_plan **a = NULL, **b = NULL;
    enum tutti_result result = plan_build_all(algorithm, spec, &a);
    if (result == TUTTI_OK)
        result = plan_build_all(algorithm, &flat, &b);
    for (int rank = 0; result == TUTTI_OK && rank < spec->nranks; rank++)
        *depends = *depends || !same_steps(a[rank], b[rank]);
    plan_release(a, spec->nranks);
    plan_release(b, spec->nranks);
    return result;
}

static bool wants_root(int root, int nranks, bool every)
{
    return every || root < 2 || root == nranks / 2 || root == nranks - 1;
}

static enum tutti_result verify_roots(struct verify *verify, const struct tti_algorithm *algorithm,
                                      struct tti_plan_spec *spec, bool every)
{
    int roots = plan_is_rooted(algorithm->collective) ? spec->nranks : 1;
    for (spec->root = 0; spec->root < roots; spec->root++)
        if (wants_root(spec->root, roots, every))
            TTI_TRY(verify_set(verify, algorithm, spec));
    spec->root = 0;
    return TUTTI_OK;
}

static enum tutti_result verify_ranks(struct verify *verify, const struct tti_algorithm *algorithm,
                                      int nranks)
{
    struct tti_plan_spec spec = {.collective = algorithm->collective, .nranks = nranks};
    for (int layout = 0; layout < LAYOUTS; layout++) {
        bool depends = layout == LAYOUT_ONE;
        layout_fill(layout, nranks, verify->host_of, &spec);
        spec.lanes = spec.slices = 1;
        if (!depends)
            TTI_TRY(depends_on_layout(algorithm, &spec, &depends));
        for (size_t i = 0; depends && i < COUNT(variants); i++) {
            spec.lanes = variants[i].lanes;
            spec.slices = variants[i].slices;
            if (spec.slices == 1 || algorithm->sliced)
                TTI_TRY(verify_roots(verify, algorithm, &spec, layout == LAYOUT_ONE));
        }
    }
    return TUTTI_OK;
}

static enum tutti_result verify_one_algorithm(struct verify *verify,
                                              const struct tti_algorithm *algorithm)
{
    enum tutti_result result = TUTTI_OK;
    for (int n = 1; n <= verify->max_ranks && result == TUTTI_OK; n++) {
        if (verify->progress)
            fprintf(stderr, "\r\033[K%s %s: %d of %d ranks",
                    tutti_collective_name(algorithm->collective), algorithm->name, n,
                    verify->max_ranks);
        result = verify_ranks(verify, algorithm, n);
    }
    if (verify->progress)
        fprintf(stderr, "\r\033[K");
    return result;
}

static void print_row(const char *collective, const char *algorithm, int sets,
                      const struct tti_verify_stats *stats, double seconds, const char *verdict)
{
    printf("%-15s %-20s %9d %10llu %13llu %12llu %8.2f  %s\n", collective, algorithm, sets,
           (unsigned long long)stats->plans, (unsigned long long)stats->steps,
           (unsigned long long)stats->messages, seconds, verdict);
    fflush(stdout);
}

static bool is_wanted(const struct tti_algorithm *algorithm, enum tutti_collective only,
                      const char *name)
{
    return (only == TUTTI_COLLECTIVE_COUNT || only == algorithm->collective) &&
           (!name || strcmp(name, algorithm->name) == 0);
}

static bool verify_row(struct verify *verify, const struct tti_algorithm *algorithm)
{
    uint64_t start = tti_now_ns();
    int before = verify->sets;
    verify->algorithms++;
    verify->stats = (struct tti_verify_stats){0};
    enum tutti_result result = verify_one_algorithm(verify, algorithm);
    print_row(tutti_collective_name(algorithm->collective), algorithm->name, verify->sets - before,
              &verify->stats, (double)(tti_now_ns() - start) * 1e-9,
              result == TUTTI_OK ? "OK" : "WRONG");
    if (result != TUTTI_OK)
        fprintf(stderr, "tutti-plan verify: %s\n", tti_error_text());
    return result == TUTTI_OK;
}

/* Returns how many algorithms are wrong. */
static int verify_table(struct verify *verify, enum tutti_collective only, const char *name)
{
    struct tti_verify_stats total = {0};
    uint64_t begin = tti_now_ns();
    int wrong = 0;
    printf("%-15s %-20s %9s %10s %13s %12s %8s\n", "collective", "algorithm", "sets", "plans",
           "steps", "messages", "seconds");
    for (int c = 0; c < TUTTI_COLLECTIVE_COUNT; c++)
        for (int i = 0; tti_algorithm_at((enum tutti_collective)c, i); i++) {
            const struct tti_algorithm *a = tti_algorithm_at((enum tutti_collective)c, i);
            if (!is_wanted(a, only, name))
                continue;
            wrong += !verify_row(verify, a);
            total.plans += verify->stats.plans;
            total.steps += verify->stats.steps;
            total.messages += verify->stats.messages;
        }
    print_row("total", "", verify->sets, &total, (double)(tti_now_ns() - begin) * 1e-9,
              wrong ? "WRONG" : "OK");
    printf("# %d algorithms, 1 to %d ranks: %llu plans checked, %d algorithms wrong\n",
           verify->algorithms, verify->max_ranks, (unsigned long long)total.plans, wrong);
    return wrong;
}

static int count_wanted(enum tutti_collective only, const char *name)
{
    int count = 0;
    for (int c = 0; c < TUTTI_COLLECTIVE_COUNT; c++)
        for (int i = 0; tti_algorithm_at((enum tutti_collective)c, i); i++)
            count += is_wanted(tti_algorithm_at((enum tutti_collective)c, i), only, name);
    return count;
}

static int verify_verdict(const struct verify *verify, int wrong)
{
    if (!verify->plant || wrong)
        return wrong ? PLAN_FAILED : PLAN_DONE;
    fprintf(stderr, "tutti-plan verify: %s\n",
            verify->planted ? "the planted error was not found"
                            : "no plan could be broken in the way --plant asks for");
    return VERIFY_MISSED;
}

static int verify_all(const struct plan_command *command, struct verify *verify,
                      enum tutti_collective only, const char *name)
{
    unsigned wanted = (unsigned)count_wanted(only, name);
    if (wanted == 0) {
        (void)TTI_FAIL(TUTTI_ERR_ARGUMENT, "no algorithm is called %s (tutti-plan list)",
                       name ? name : "that");
        return plan_command_error(command, TUTTI_ERR_ARGUMENT);
    }
    if (verify->plant) {
        verify->plant_algorithm = (int)(verify->plant->seed % wanted);
        verify->plant_ranks = 3 + (int)(verify->plant->seed / wanted) % verify->max_ranks;
        if (verify->plant_ranks > verify->max_ranks)
            verify->plant_ranks = verify->max_ranks;
    }
    verify->host_of = tti_calloc(2 * (size_t)verify->max_ranks, sizeof *verify->host_of);
    if (!verify->host_of)
        return plan_command_error(command, TUTTI_ERR_MEMORY);
    int wrong = verify_table(verify, only, name);
    free(verify->host_of);
    return verify_verdict(verify, wrong);
}

static enum tutti_result verify_chosen(struct verify *verify, const struct plan_choice *choice)
{
    const struct tti_algorithm *algorithm = NULL;
    struct tti_plan_spec spec;
    TTI_TRY(plan_choice_algorithm(choice, &algorithm));
    TTI_TRY(plan_choice_spec(choice, verify->host_of, &spec));
    if (verify->plant)
        TTI_TRY(verify_planted(verify, algorithm, &spec));
    else
        TTI_TRY(tti_verify_algorithm(algorithm, &spec, &verify->stats));
    printf("%s %s, %d ranks, root %d, %d lanes, %d slices, %d hosts, %d NICs: OK (%llu plans, %llu "
           "steps, "
           "%llu messages)\n",
           tutti_collective_name(choice->collective), choice->algorithm, choice->ranks,
           choice->root, choice->lanes, choice->slices, choice->hosts, choice->nics,
           (unsigned long long)verify->stats.plans, (unsigned long long)verify->stats.steps,
           (unsigned long long)verify->stats.messages);
    return TUTTI_OK;
}

static int verify_one(const struct plan_command *command, struct verify *verify,
                      const struct plan_choice *choice)
{
    verify->host_of = tti_calloc(2 * (size_t)choice->ranks, sizeof *verify->host_of);
    enum tutti_result result = verify->host_of ? verify_chosen(verify, choice) : TUTTI_ERR_MEMORY;
    free(verify->host_of);
    return result == TUTTI_OK ? verify_verdict(verify, 0) : plan_command_error(command, result);
}

int plan_verify_run(const struct plan_command *command, int argc, char **argv)
{
    int status = PLAN_DONE;
    bool all = false;
    const char *plant_text = NULL;
    struct plan_plant plant;
    struct plan_choice choice = PLAN_CHOICE_INIT;
    struct verify verify = {.max_ranks = 64, .progress = isatty(STDERR_FILENO)};
    choice.collective = TUTTI_COLLECTIVE_COUNT;
    const struct plan_flag flags[] = {
        {"--all", NULL, FLAG_SWITCH, &all, 0, 0,
         "every algorithm (of --coll, --algo) at 1 to --max-ranks ranks"},
        {"--max-ranks", NULL, FLAG_INT, &verify.max_ranks, 1, 1024, "with --all (64)"},
        {"--plant", NULL, FLAG_TEXT, &plant_text, 0, 0,
         "break a step: drop-step, repeat-step, wrong-peer, wrong-chunk, drop-flag; :seed"},
        PLAN_CHOICE_FLAGS(choice, 1024)};
    if (!plan_command_flags(command, flags, COUNT(flags), argc, argv, &status))
        return status;
    enum tutti_result result = TUTTI_OK;
    if (plant_text)
        result = plan_plant_parse(plant_text, &plant);
    if (result == TUTTI_OK && !all && choice.collective == TUTTI_COLLECTIVE_COUNT)
        result = TTI_FAIL(TUTTI_ERR_ARGUMENT, "give --all, or --coll, --algo and --ranks");
    if (result != TUTTI_OK)
        return plan_command_error(command, result);
    if (plant_text)
        verify.plant = &plant;
    return all ? verify_all(command, &verify, choice.collective, choice.algorithm)
               : verify_one(command, &verify, &choice);
}
