/* What the subcommands of tutti-plan share. */
#ifndef TTI_TOOLS_PLAN_TOOL_H
#define TTI_TOOLS_PLAN_TOOL_H

#include "coll/algorithms/algorithms.h"
#include "plan/verify.h"
#include "tools/plan_flags.h"

/* Exit statuses. */
enum { PLAN_DONE = 0, PLAN_FAILED = 1, PLAN_WRONG_USE = 2 };

struct plan_command {
    const char *name;
    const char *summary;
    const char *usage; /* after the command's name */
    int (*run)(const struct plan_command *command, int argc, char **argv);
};

int plan_list_run(const struct plan_command *command, int argc, char **argv);
int plan_print_run(const struct plan_command *command, int argc, char **argv);
int plan_draw_run(const struct plan_command *command, int argc, char **argv);
int plan_verify_run(const struct plan_command *command, int argc, char **argv);
int plan_simulate_run(const struct plan_command *command, int argc, char **argv);

/* Parse the flags; false: help was printed, or an error, and *status is the exit status. */
bool plan_command_flags(const struct plan_command *command, const struct plan_flag *flags,
                        size_t count, int argc, char **argv, int *status);
/* Print the last error for `result`, one line on stderr; returns the exit status. */
int plan_command_error(const struct plan_command *command, enum tutti_result result);

/* One plan, or one set of plans, as named on the command line. */
struct plan_choice {
    enum tutti_collective collective;
    const char *algorithm;
    int ranks, root, lanes, slices, hosts, nics;
};
#define PLAN_CHOICE_INIT                                                                           \
    {                                                                                              \
        .collective = TUTTI_ALL_REDUCE, .ranks = 4, .lanes = 1, .slices = 1, .hosts = 1, .nics = 1 \
    }
/* The rows of a flag table that fill in a plan_choice. */
#define PLAN_CHOICE_FLAGS(choice, max_ranks)                                                     \
    {"--coll", NULL, FLAG_COLLECTIVE, &(choice).collective, 0, 0, "collective (all_reduce)"},    \
        {"--algo", NULL, FLAG_TEXT, &(choice).algorithm, 0, 0, "algorithm, as `list` names it"}, \
        {"--ranks", "-n", FLAG_INT, &(choice).ranks, 1, max_ranks, "number of ranks (4)"},       \
        {"--root",                                                                               \
         NULL,                                                                                   \
         FLAG_INT,                                                                               \
         &(choice).root,                                                                         \
         0,                                                                                      \
         max_ranks - 1,                                                                          \
         "root, where there is one "                                                             \
         "(0)"},                                                                                 \
        {"--lanes", NULL, FLAG_INT, &(choice).lanes, 1, 64, "lanes (1)"},                        \
        {"--slices",                                                                             \
         NULL,                                                                                   \
         FLAG_INT,                                                                               \
         &(choice).slices,                                                                       \
         1,                                                                                      \
         4096,                                                                                   \
         "pieces that a pipelined "                                                              \
         "algorithm cuts into (1)"},                                                             \
        {"--hosts",                                                                              \
         NULL,                                                                                   \
         FLAG_INT,                                                                               \
         &(choice).hosts,                                                                        \
         1,                                                                                      \
         max_ranks,                                                                              \
         "hosts that the ranks fill "                                                            \
         "evenly, in order (1)"},                                                                \
    {                                                                                            \
        "--nics", NULL, FLAG_INT, &(choice).nics, 1, max_ranks,                                  \
            "NICs of a host, dealt out to its ranks; lanes of rings and chains go by each in "   \
            "turn (1)"                                                                           \
    }

/* The algorithm of a choice, or an error that names those there are. */
enum tutti_result plan_choice_algorithm(const struct plan_choice *choice,
                                        const struct tti_algorithm **algorithm);
/* The spec of a choice (rank 0). `host_of` has room for choice->ranks twice (what is behind them
 * is gate_of) and must outlive the spec. */
enum tutti_result plan_choice_spec(const struct plan_choice *choice, int *host_of,
                                   struct tti_plan_spec *spec);
/* Ranks that follow each other on their hosts, and are dealt out there to so many NICs. */
struct tti_gates plan_gates(const int *host_of, int nranks, int nics, int *gate_of);
/* Build the plans of all ranks; the array and each plan belong to the caller (plan_release). */
enum tutti_result plan_build_all(const struct tti_algorithm *algorithm,
                                 const struct tti_plan_spec *spec, struct tti_plan ***plans);
void plan_release(struct tti_plan **plans, int nranks);

bool plan_is_rooted(enum tutti_collective collective);

/* Break one plan on purpose (tools/plan_plant.c). `text` is KIND or KIND:seed. */
struct plan_plant {
    int kind;
    unsigned seed;
};
enum tutti_result plan_plant_parse(const char *text, struct plan_plant *plant);
/* Change one step of one of the plans, and say on stdout which; false: none can be changed so. */
enum tutti_result plan_plant_apply(const struct plan_plant *plant, struct tti_plan **plans,
                                   int nranks, bool *applied);

#endif
