/* From the command line to plans (tools/plan_tool.h). */
#include "base/memory.h"
#include "tools/plan_tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool plan_is_rooted(enum tutti_collective collective)
{
    return collective == TUTTI_BROADCAST || collective == TUTTI_REDUCE ||
           collective == TUTTI_GATHER || collective == TUTTI_SCATTER;
}

int plan_command_error(const struct plan_command *command, enum tutti_result result)
{
    bool usage = result == TUTTI_ERR_ARGUMENT;
    fprintf(stderr, "tutti-plan %s: %s%s%s%s\n", command->name, tti_error_text(),
            usage ? " (tutti-plan " : "", usage ? command->name : "", usage ? " --help)" : "");
    return usage ? PLAN_WRONG_USE : PLAN_FAILED;
}

bool plan_command_flags(const struct plan_command *command, const struct plan_flag *flags,
                        size_t count, int argc, char **argv, int *status)
{
    bool help = false;
    enum tutti_result result = plan_flags_parse(flags, count, argc, argv, &help);
    if (result != TUTTI_OK) {
        *status = plan_command_error(command, result);
        return false;
    }
    if (!help)
        return true;
    printf("tutti-plan %s %s\n%s\n\n", command->name, command->usage, command->summary);
    plan_flags_explain(flags, count);
    *status = PLAN_DONE;
    return false;
}

enum tutti_result plan_choice_algorithm(const struct plan_choice *choice,
                                        const struct tti_algorithm **algorithm)
{
    const struct tti_algorithm *found =
        choice->algorithm ? tti_algorithm_find(choice->collective, choice->algorithm) : NULL;
    if (found) {
        *algorithm = found;
        return TUTTI_OK;
    }
    char known[512] = "";
    for (int i = 0; tti_algorithm_at(choice->collective, i); i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), " %s",
                 tti_algorithm_at(choice->collective, i)->name);
    const char *collective = tutti_collective_name(choice->collective);
    if (!choice->algorithm)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "--algo is missing; %s has:%s", collective, known);
    return TTI_FAIL(TUTTI_ERR_ARGUMENT, "--algo is \"%s\"; %s has:%s", choice->algorithm,
                    collective, known);
}

enum tutti_result plan_choice_spec(const struct plan_choice *choice, int *host_of,
                                   struct tti_plan_spec *spec)
{
    if (choice->root >= choice->ranks)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "--root is %d; there are ranks 0 to %d", choice->root,
                        choice->ranks - 1);
    if (choice->hosts > choice->ranks)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "--hosts is %d; there are only %d ranks", choice->hosts,
                        choice->ranks);
    for (int rank = 0; rank < choice->ranks; rank++)
        host_of[rank] = (int)((int64_t)rank * choice->hosts / choice->ranks);
    *spec = (struct tti_plan_spec){
        .collective = choice->collective,
        .nranks = choice->ranks,
        .root = choice->root,
        .lanes = choice->lanes,
        .slices = choice->slices,
        .layout = {.nhosts = choice->hosts, .host_of = host_of, .sorted = true},
    };
    if (choice->nics > 1)
        spec->layout.gates =
            plan_gates(host_of, choice->ranks, choice->nics, host_of + choice->ranks);
    return TUTTI_OK;
}

struct tti_gates plan_gates(const int *host_of, int nranks, int nics, int *gate_of)
{
    struct tti_gates gates = {.of = gate_of};
    for (int rank = 0, local = 0, before = 0; rank < nranks; rank++) {
        local = rank > 0 && host_of[rank] == host_of[rank - 1] ? local + 1 : 0;
        before = local == 0 ? gates.count : before;
        gate_of[rank] = before + local % nics;
        gates.count = gate_of[rank] >= gates.count ? gate_of[rank] + 1 : gates.count;
        gates.most = gates.count - before > gates.most ? gates.count - before : gates.most;
    }
    return gates;
}

void plan_release(struct tti_plan **plans, int nranks)
{
    for (int rank = 0; plans && rank < nranks; rank++)
        tti_plan_destroy(plans[rank]);
    free(plans);
}

enum tutti_result plan_build_all(const struct tti_algorithm *algorithm,
                                 const struct tti_plan_spec *spec, struct tti_plan ***plans)
{
    if (algorithm->applicable && !algorithm->applicable(spec))
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED, "%s %s does not serve %d ranks on %d hosts",
                        tutti_collective_name(spec->collective), algorithm->name, spec->nranks,
                        spec->layout.nhosts);
    struct tti_plan **built = tti_calloc((size_t)spec->nranks, sizeof(struct tti_plan *));
    if (!built)
        return TUTTI_ERR_MEMORY;
    for (int rank = 0; rank < spec->nranks; rank++) {
        struct tti_plan_spec own = *spec;
        own.rank = rank;
        enum tutti_result result = algorithm->plan(&own, &built[rank]);
        if (result != TUTTI_OK) {
            plan_release(built, spec->nranks);
            return result;
        }
    }
    *plans = built;
    return TUTTI_OK;
}
