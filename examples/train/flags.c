/* Flags (flags.h). */
#include "examples/train/flags.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void flags_help(const char *about, const struct flag *flags, size_t count)
{
    printf("%s\n\n", about);
    for (size_t i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "--%s%s", flags[i].name,
                 flags[i].on     ? ""
                 : flags[i].text ? " TEXT"
                 : flags[i].real ? " X"
                                 : " N");
        printf("  %-22s %s", name, flags[i].help);
        if (flags[i].number && *flags[i].number >= 0) /* else the text says it */
            printf(" (%d)", *flags[i].number);
        if (flags[i].real)
            printf(" (%g)", *flags[i].real);
        if (flags[i].text && *flags[i].text)
            printf(" (%s)", *flags[i].text);
        putchar('\n');
    }
    printf("\nRun it alone, under tuttirun -n N (torchrun, mpirun, srun), or with --threads N.\n");
}

static int flags_number(const char *program, const struct flag *flag, const char *text)
{
    char *end = NULL;
    const double value = strtod(text, &end);
    if (end == text || *end || !(value >= flag->least && value <= flag->most) ||
        (flag->number && value != floor(value))) {
        fprintf(stderr, "%s: --%s \"%s\": expected a %snumber from %g to %g\n", program, flag->name,
                text, flag->number ? "whole " : "", flag->least, flag->most);
        return 2;
    }
    if (flag->number)
        *flag->number = (int)value;
    else
        *flag->real = value;
    return 0;
}

int flags_parse(int argc, char **argv, const char *about, const struct flag *flags, size_t count)
{
    const char *slash = strrchr(argv[0], '/'), *program = slash ? slash + 1 : argv[0];
    for (int at = 1; at < argc; at++) {
        const struct flag *flag = NULL;
        if (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0) {
            flags_help(about, flags, count);
            return 1;
        }
        for (size_t i = 0; i < count && strncmp(argv[at], "--", 2) == 0 && !flag; i++)
            flag = strcmp(argv[at] + 2, flags[i].name) == 0 ? &flags[i] : NULL;
        if (!flag) {
            fprintf(stderr, "%s: \"%s\" is no flag; --help lists them\n", program, argv[at]);
            return 2;
        }
        if (flag->on) {
            *flag->on = true;
            continue;
        }
        if (++at == argc) {
            fprintf(stderr, "%s: --%s needs a value\n", program, flag->name);
            return 2;
        }
        if (flag->text)
            *flag->text = argv[at];
        else if (flags_number(program, flag, argv[at]))
            return 2;
    }
    return 0;
}

void flags_common(struct common_options *c, struct flag *flags)
{
    *c = (struct common_options){.seed = 1, .keep = 2};
    const struct flag common[FLAGS_COMMON] = {
        {.name = "seed", .help = "of weights and order", .number = &c->seed, .most = 1 << 30},
        {.name = "threads",
         .help = "ranks as threads of this process",
         .number = &c->threads,
         .most = 64},
        {.name = "plain", .help = "plain loops instead of OpenBLAS", .on = &c->plain},
        {.name = "checkpoints", .help = "folder to save checkpoints in", .text = &c->checkpoints},
        {.name = "save-every",
         .help = "steps; 0: at the end",
         .number = &c->save_every,
         .most = 1e9},
        {.name = "keep", .help = "newest checkpoints; 0: all", .number = &c->keep, .most = 1e6},
        {.name = "resume",
         .help = "go on from the newest checkpoint, if there is one",
         .on = &c->resume},
        {.name = "die-at",
         .help = "kill the last rank after this step, to see it survived",
         .number = &c->die_at,
         .most = 1e9},
        {.name = "die-in",
         .help = "... or in it, when so many gradients are ready",
         .number = &c->die_in,
         .most = 1e9},
        {.name = "elastic",
         .help = "folder: go on when ranks die, and let in those who knock there",
         .text = &c->elastic},
        {.name = "join", .help = "take part in the run that looks at --elastic", .on = &c->join},
        {.name = "log", .help = "table of all steps, as text", .text = &c->log},
        {.name = "plot", .help = "loss curve, an SVG file; none: no file", .text = &c->plot},
    };
    memcpy(flags, common, sizeof common);
}

int flags_common_check(struct common_options *c)
{
    if (c->plot && strcmp(c->plot, "none") == 0)
        c->plot = NULL;
    if ((c->save_every > 0 || c->resume) && !c->checkpoints) {
        fprintf(stderr, "--save-every and --resume need --checkpoints FOLDER\n");
        return 2;
    }
    if (c->join && !c->elastic) {
        fprintf(stderr, "--join needs --elastic FOLDER, where the run looks\n");
        return 2;
    }
    if (c->elastic && c->threads > 0) {
        fprintf(stderr, "--elastic is for ranks that are processes, not --threads\n");
        return 2;
    }
    return 0;
}
