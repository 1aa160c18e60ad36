/* tutti-conformance: does a transport do what include/tutti/plugin.h asks? Runs the checks of
 * checks_*.c on a built-in transport or on a plugin, with the ranks as threads or as processes. */
#include "tests/conformance/conformance.h"

#include "base/config.h"
#include "transport/registry.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct conf_check *const lists[] = {
    conf_checks_connect, conf_checks_traffic, conf_checks_wait, conf_checks_end, conf_checks_reach};

static const char usage[] =
    "usage: tutti-conformance (--transport NAME | --plugin PATH) [--processes | --threads]\n"
    "                         [--only CHECK] [--except CHECK] [--timeout SECONDS]\n"
    "                         [--repeat TIMES] [--list]\n"
    "\n"
    "  --transport NAME  a transport of the library\n"
    "  --plugin PATH     a transport in a shared object\n"
    "  --processes       ranks are processes (default)\n"
    "  --threads         ranks are threads of one process\n"
    "  --only CHECK      only the checks whose name contains CHECK\n"
    "  --except CHECK    without those whose name contains CHECK\n"
    "  --timeout SECONDS for each check (100)\n"
    "  --repeat TIMES    each check so often, as what goes wrong rarely may take (1)\n"
    "  --list            print the checks and end\n"
    "\n"
    "Exit status: 0 all passed, 1 some failed, 2 wrong usage.\n";

struct conformance_options {
    const char *transport, *plugin, *only, *except;
    bool threads, list;
    long repeat;
    double timeout_s;
};

static int conformance_parse(int argc, char **argv, struct conformance_options *options)
{
    static const struct option known[] = {
        {"transport", required_argument, NULL, 't'},
        {"plugin", required_argument, NULL, 'p'},
        {"processes", no_argument, NULL, 'P'},
        {"threads", no_argument, NULL, 'T'},
        {"only", required_argument, NULL, 'o'},
        {"except", required_argument, NULL, 'x'},
        {"timeout", required_argument, NULL, 's'},
        {"repeat", required_argument, NULL, 'r'},
        {"list", no_argument, NULL, 'l'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    for (int c; (c = getopt_long(argc, argv, "h", known, NULL)) != -1;) {
        if (c == 't')
            options->transport = optarg;
        else if (c == 'p')
            options->plugin = optarg;
        else if (c == 'P' || c == 'T')
            options->threads = c == 'T';
        else if (c == 'o')
            options->only = optarg;
        else if (c == 'x')
            options->except = optarg;
        else if (c == 'l')
            options->list = true;
        else if (c == 's' && tti_parse_seconds("--timeout", optarg, &options->timeout_s))
            return fprintf(stderr, "tutti-conformance: %s\n", tutti_last_error()), 2;
        else if (c == 'r' && tti_parse_int("--repeat", optarg, 1, 1000000, &options->repeat))
            return fprintf(stderr, "tutti-conformance: %s\n", tutti_last_error()), 2;
        else if (c == 'h')
            return fputs(usage, stdout), -1;
        else if (c == '?')
            return fputs(usage, stderr), 2;
    }
    if (optind < argc || (!options->list && !options->transport == !options->plugin))
        return fputs(usage, stderr), 2;
    return 0;
}

static bool conformance_wanted(const struct conf_check *check,
                               const struct conformance_options *options)
{
    return (!options->only || strstr(check->name, options->only)) &&
           !(options->except && strstr(check->name, options->except));
}

/* Why a check does not apply; NULL when it does. */
static const char *conformance_skip(const struct conf_check *check,
                                    const struct tutti_transport_ops *ops, bool threads)
{
    if (threads && (check->flags & CONF_PROCESSES))
        return "needs processes";
    if ((check->flags & CONF_RESERVES) && !ops->reserve)
        return "reserve and commit are not offered";
    if ((check->flags & CONF_MAPS) && !tti_transport_maps(ops))
        return "peers cannot map memory";
    return NULL;
}

struct conformance_count {
    int ran, skipped, failed;
};

static void conformance_run(const struct conf_check *check, const struct tutti_transport_ops *ops,
                            const struct conformance_options *options,
                            struct conformance_count *count)
{
    const char *skip = conformance_skip(check, ops, options->threads);
    if (skip) {
        printf("skip %s: %s\n", check->name, skip);
        count->skipped++;
    }
    for (long i = 0; !skip && i < options->repeat; i++) {
        uint64_t begin = tti_now_ns();
        int bad = conf_run(check, ops, options->threads, options->timeout_s);
        printf("%s %s (%.2f s)\n", bad ? "FAIL" : "ok  ", check->name,
               (double)(tti_now_ns() - begin) / 1e9);
        count->ran++;
        count->failed += bad;
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    struct conformance_options options = {.timeout_s = 100, .repeat = 1};
    int usage_error = conformance_parse(argc, argv, &options);
    if (usage_error)
        return usage_error < 0 ? 0 : usage_error;
    const struct tutti_transport_ops *found[TTI_MAX_TRANSPORTS], *ops = NULL;
    struct conformance_count total = {0, 0, 0};
    int count = 0;
    enum tutti_result result = TUTTI_OK;
    if (options.plugin)
        result = tti_transport_load(options.plugin, &ops);
    else if (options.transport) {
        result = tti_transport_select(options.transport, NULL, found, &count);
        ops = result == TUTTI_OK ? found[0] : NULL;
    }
    if (result != TUTTI_OK) {
        fprintf(stderr, "tutti-conformance: %s\n", tutti_last_error());
        return 2;
    }
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        for (const struct conf_check *check = lists[i]; check->name; check++) {
            if (!conformance_wanted(check, &options))
                continue;
            if (options.list)
                printf("%s\n", check->name);
            else
                conformance_run(check, ops, &options, &total);
        }
    if (options.list)
        return 0;
    if (total.ran + total.skipped == 0) {
        fprintf(stderr, "tutti-conformance: no check is left by --only and --except; --list has "
                        "their names\n");
        return 2;
    }
    printf("%s with %s: %d checks, %d failed, %d skipped\n", ops->name,
           options.threads ? "threads" : "processes", total.ran, total.failed, total.skipped);
    return total.failed || total.ran == 0;
}
