/* tutti-plan list, print and draw: what there is, and one plan as text or as a picture. */
#include "base/memory.h"
#include "plan/draw.h"
#include "plan/print.h"
#include "tools/plan_tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

int plan_list_run(const struct plan_command *command, int argc, char **argv)
{
    int status = PLAN_DONE, collective = -1;
    enum tutti_collective only = TUTTI_COLLECTIVE_COUNT;
    const struct plan_flag flags[] = {
        {"--coll", NULL, FLAG_COLLECTIVE, &only, 0, 0, "only this collective (all)"}};
    if (!plan_command_flags(command, flags, COUNT(flags), argc, argv, &status))
        return status;
    printf("%-15s %-20s %-11s %-7s %-8s %s\n", "collective", "algorithm", "translates", "sliced",
           "ordered", "what it does");
    while (++collective < TUTTI_COLLECTIVE_COUNT)
        for (int i = 0; tti_algorithm_at((enum tutti_collective)collective, i); i++) {
            const struct tti_algorithm *a = tti_algorithm_at((enum tutti_collective)collective, i);
            if (only == TUTTI_COLLECTIVE_COUNT || (int)only == collective)
                printf("%-15s %-20s %-11s %-7s %-8s %s\n", tutti_collective_name(a->collective),
                       a->name, a->translates ? "yes" : "no", a->sliced ? "yes" : "no",
                       !tti_order_shows(a->collective) ? "-"
                       : a->ordered                    ? "yes"
                                                       : "no",
                       a->summary);
        }
    return PLAN_DONE;
}

/* Find, build, and hand to `show`. */
static enum tutti_result with_plans(const struct plan_choice *choice,
                                    enum tutti_result (*show)(struct tti_plan **plans,
                                                              const struct plan_choice *choice,
                                                              const void *what),
                                    const void *what)
{
    const struct tti_algorithm *algorithm = NULL;
    struct tti_plan_spec spec;
    struct tti_plan **plans = NULL;
    int *host_of = tti_calloc(2 * (size_t)choice->ranks, sizeof *host_of);
    enum tutti_result result = host_of ? TUTTI_OK : TUTTI_ERR_MEMORY;
    if (result == TUTTI_OK)
        result = plan_choice_algorithm(choice, &algorithm);
    if (result == TUTTI_OK)
        result = plan_choice_spec(choice, host_of, &spec);
    if (result == TUTTI_OK)
        result = plan_build_all(algorithm, &spec, &plans);
    if (result == TUTTI_OK) {
        result = show(plans, choice, what);
        plan_release(plans, choice->ranks);
    }
    free(host_of);
    return result;
}

static enum tutti_result print_plans(struct tti_plan **plans, const struct plan_choice *choice,
                                     const void *what)
{
    int only = *(const int *)what;
    for (int rank = 0; rank < choice->ranks; rank++)
        if (only < 0 || only == rank)
            TTI_TRY(tti_plan_print(plans[rank], stdout));
    return TUTTI_OK;
}

int plan_print_run(const struct plan_command *command, int argc, char **argv)
{
    int status = PLAN_DONE, rank = -1;
    struct plan_choice choice = PLAN_CHOICE_INIT;
    const struct plan_flag flags[] = {
        PLAN_CHOICE_FLAGS(choice, 4096),
        {"--rank", NULL, FLAG_INT, &rank, 0, 4095, "only this rank's plan (all)"}};
    if (!plan_command_flags(command, flags, COUNT(flags), argc, argv, &status))
        return status;
    enum tutti_result result = TUTTI_OK;
    if (rank >= choice.ranks)
        result = TTI_FAIL(TUTTI_ERR_ARGUMENT, "--rank is %d; there are ranks 0 to %d", rank,
                          choice.ranks - 1);
    if (result == TUTTI_OK)
        result = with_plans(&choice, print_plans, &rank);
    return result == TUTTI_OK ? PLAN_DONE : plan_command_error(command, result);
}

static enum tutti_result draw_plans(struct tti_plan **plans, const struct plan_choice *choice,
                                    const void *what)
{
    const char *path = *(const char *const *)what;
    char title[256];
    snprintf(title, sizeof title, "%s %s, %d ranks", tutti_collective_name(choice->collective),
             choice->algorithm, choice->ranks);
    FILE *file = fopen(path, "w");
    if (!file)
        return TTI_FAIL_ERRNO("cannot open %s for writing", path);
    enum tutti_result result = tti_plan_draw(plans, choice->ranks, title, file);
    if (fclose(file) != 0 && result == TUTTI_OK)
        result = TTI_FAIL_ERRNO("cannot write %s", path);
    if (result == TUTTI_OK)
        printf("picture in %s\n", path);
    else
        remove(path);
    return result;
}

int plan_draw_run(const struct plan_command *command, int argc, char **argv)
{
    int status = PLAN_DONE;
    const char *path = NULL;
    struct plan_choice choice = PLAN_CHOICE_INIT;
    const struct plan_flag flags[] = {
        PLAN_CHOICE_FLAGS(choice, TTI_DRAW_RANKS),
        {"--output", "-o", FLAG_TEXT, &path, 0, 0, "SVG file to write (required)"}};
    if (!plan_command_flags(command, flags, COUNT(flags), argc, argv, &status))
        return status;
    enum tutti_result result =
        path ? with_plans(&choice, draw_plans, &path)
             : TTI_FAIL(TUTTI_ERR_ARGUMENT, "-o is missing; give the SVG file to write");
    return result == TUTTI_OK ? PLAN_DONE : plan_command_error(command, result);
}
