/* tutti-plan: look at plans. Lists the algorithms, prints and draws plans, verifies them, and
 * simulates them on networks that nobody has at hand. Each subcommand has a file of its own
 * (tools/plan_*.c); read next: tools/plan_tool.h. */
#include "tools/plan_tool.h"

#include <stdio.h>
#include <string.h>

#define CHOICE "--coll NAME --algo NAME --ranks N [--root N] [--lanes N] [--slices N] [--hosts N]"

static const struct plan_command commands[] = {
    {"list", "Lists the algorithms of every collective.", "[--coll NAME]", plan_list_run},
    {"print", "Prints the plan of one rank, or of all.", CHOICE " [--rank N]", plan_print_run},
    {"verify", "Checks plans symbolically: right result, no deadlock, nothing unread.",
     "--all [--max-ranks N] [--plant KIND[:seed]] | --coll NAME --algo NAME --ranks N",
     plan_verify_run},
    {"simulate", "Predicts times on a modelled network of up to 65,536 ranks and more.",
     "--coll NAME [--algo NAME|all] --ranks N [--ranks-per-host N] [-b BYTES -e BYTES -f N] ...",
     plan_simulate_run},
    {"draw", "Draws the plans of all ranks as SVG.", CHOICE " -o FILE.svg", plan_draw_run},
};

static void explain(FILE *file)
{
    fprintf(file, "tutti-plan COMMAND [flags]\n\n");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        fprintf(file, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fprintf(file, "\ntutti-plan COMMAND --help explains the flags. Exit status: 0 done, 1 failed "
                  "or wrong, 2 wrong use.\n");
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        explain(stdout);
        return PLAN_DONE;
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].run(&commands[i], argc - 2, argv + 2);
    if (argc > 1)
        fprintf(stderr,
                "tutti-plan: there is no command %s; there are list, print, verify, "
                "simulate, draw (tutti-plan --help)\n",
                name);
    else
        explain(stderr);
    return PLAN_WRONG_USE;
}
