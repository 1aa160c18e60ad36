/* tuttirun: start a program once per rank, with torchrun's variables and flags. The work is in
 * launch/spawn.c; this file reads the command line. */
#include "base/config.h"
#include "base/host.h"
#include "launch/boot_wire.h"
#include "launch/spawn.h"
#include "topology/bind.h"

#include <getopt.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_USAGE = 2 };

static const char usage[] =
    "Usage: tuttirun [-n N] [options] PROGRAM [ARGUMENTS...]\n"
    "\n"
    "Runs PROGRAM as N ranks on this host, or as part of a job over several hosts.\n"
    "\n"
    "  -n, --nproc-per-node N   ranks on this host: a number, auto (GPUs, else cores),\n"
    "                           gpu or cpu (1)\n"
    "      --nnodes N           hosts (1)\n"
    "      --node-rank R        this host's number, from 0 (0)\n"
    "      --master-addr HOST   node 0's address, for several hosts\n"
    "      --master-port PORT   the port there (29500; on one host any free one)\n"
    "      --standalone         one host, any free port (the default)\n"
    "      --max-restarts N     start the ranks again up to N times after a failure (0)\n"
    "      --elastic            go on without a rank that fails: for programs that can\n"
    "      --log-dir DIR        write each rank's output to DIR/rank_R.out and .err\n"
    "      --no-prefix          do not put \"[rank] \" before each line of output\n"
    "      --bind core|none     core: each rank on cores of its own, near each other; none:\n"
    "                           anywhere (default: core where each can have two CPUs or more)\n"
    "      --explain            first a line for each rank: its CPUs, and why these\n"
    "      --env NAME=VALUE     set a variable for the ranks (repeatable)\n"
    "  -h, --help               this text\n"
    "      --version            the version\n"
    "\n"
    "Flags may be spelled with underscores, as torchrun's. The ranks find RANK, WORLD_SIZE,\n"
    "LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and TUTTI_RESTART_COUNT in their\n"
    "environment. Over several hosts set TUTTI_SECRET (64 hexadecimal digits) or\n"
    "TUTTI_SECRET_FILE alike on all of them, so that strangers cannot join.\n"
    "\n"
    "Output goes on in whole lines, the ranks in turn (a line of more than 4096 bytes may have\n"
    "other programs' output between its pieces). A slow reader holds up the ranks' output, and\n"
    "loses none. SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 go to all ranks. The first three\n"
    "end the job: there is no restart any more, ranks that run 5 s later, or at the second of\n"
    "them, are killed, and a reader that stands still for 2 s loses the rest. Whatever the\n"
    "ranks leave running ends with the job; children that tuttirun had before the ranks do\n"
    "not.\n"
    "\n"
    "Exit status: 0 (with --elastic: if one rank ended well), or that of the first rank\n"
    "that failed (128 + signal for a death by signal); 2 for a wrong command line, 126 when\n"
    "PROGRAM cannot be run, 127 when it is not found.\n";

enum run_flag {
    FLAG_NNODES = 256,
    FLAG_NODE_RANK,
    FLAG_MASTER_ADDR,
    FLAG_MASTER_PORT,
    FLAG_STANDALONE,
    FLAG_MAX_RESTARTS,
    FLAG_ELASTIC,
    FLAG_LOG_DIR,
    FLAG_NO_PREFIX,
    FLAG_ENV,
    FLAG_BIND,
    FLAG_EXPLAIN,
    FLAG_VERSION,
};

static const struct option flags[] = {
    {"nproc-per-node", required_argument, NULL, 'n'},
    {"nnodes", required_argument, NULL, FLAG_NNODES},
    {"node-rank", required_argument, NULL, FLAG_NODE_RANK},
    {"master-addr", required_argument, NULL, FLAG_MASTER_ADDR},
    {"master-port", required_argument, NULL, FLAG_MASTER_PORT},
    {"standalone", no_argument, NULL, FLAG_STANDALONE},
    {"max-restarts", required_argument, NULL, FLAG_MAX_RESTARTS},
    {"elastic", no_argument, NULL, FLAG_ELASTIC},
    {"log-dir", required_argument, NULL, FLAG_LOG_DIR},
    {"no-prefix", no_argument, NULL, FLAG_NO_PREFIX},
    {"env", required_argument, NULL, FLAG_ENV},
    {"bind", required_argument, NULL, FLAG_BIND},
    {"explain", no_argument, NULL, FLAG_EXPLAIN},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, FLAG_VERSION},
    {0},
};

/* What is wrong with the command line, in one line. */
static int run_wrong(const char *text)
{
    fprintf(stderr, "tuttirun: %s (tuttirun --help)\n", text);
    return EXIT_USAGE;
}

/* "--nproc_per_node=2" is "--nproc-per-node=2". Only our own flags: what follows PROGRAM is not
 * looked at. `argument` is changed in place. */
static void run_dashes(char *argument)
{
    for (char *at = argument; strncmp(argument, "--", 2) == 0 && *at && *at != '='; at++)
        if (*at == '_')
            *at = '-';
}

static int run_gpus(void)
{
    glob_t found;
    int count = 0;
    if (glob("/dev/nvidia[0-9]*", 0, NULL, &found) == 0) {
        count = (int)found.gl_pathc;
        globfree(&found);
    }
    return count;
}

static enum tutti_result run_nproc(const char *text, int *nproc)
{
    long number = 0;
    int gpus = run_gpus();
    if (strcmp(text, "gpu") == 0 && gpus == 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "-n is gpu, and there is no /dev/nvidia0");
    if (strcmp(text, "cpu") == 0 || (strcmp(text, "auto") == 0 && gpus == 0))
        number = tti_host_cpus();
    else if (strcmp(text, "gpu") == 0 || strcmp(text, "auto") == 0)
        number = gpus;
    else
        TTI_TRY(tti_parse_int("-n", text, 1, TTI_BOOT_RANKS, &number));
    *nproc = (int)number;
    return TUTTI_OK;
}

static enum tutti_result run_number(const char *flag, const char *text, long least, long most,
                                    int *value)
{
    long number = 0;
    TTI_TRY(tti_parse_int(flag, text, least, most, &number));
    *value = (int)number;
    return TUTTI_OK;
}

static enum tutti_result run_env(const char *text)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "--env is \"%s\"; expected NAME=VALUE", text);
    char *name = strndup(text, (size_t)(equals - text));
    if (!name || setenv(name, equals + 1, 1) != 0) {
        free(name);
        return TTI_FAIL(TUTTI_ERR_MEMORY, "cannot set the variable %s", text);
    }
    free(name);
    return TUTTI_OK;
}

/* What the command line says beside struct tti_spawn. */
struct run_more {
    bool standalone, explain;
    enum tti_bind bind;
};

static enum tutti_result run_flag(int flag, const char *text, struct tti_spawn *spawn,
                                  struct run_more *more)
{
    switch (flag) {
    case 'n':
        return run_nproc(text, &spawn->nproc);
    case FLAG_NNODES:
        return run_number("--nnodes", text, 1, TTI_BOOT_RANKS, &spawn->nnodes);
    case FLAG_NODE_RANK:
        return run_number("--node-rank", text, 0, TTI_BOOT_RANKS, &spawn->node_rank);
    case FLAG_MASTER_PORT:
        return run_number("--master-port", text, 1, 65535, &spawn->master_port);
    case FLAG_MAX_RESTARTS:
        return run_number("--max-restarts", text, 0, 1000000, &spawn->max_restarts);
    case FLAG_MASTER_ADDR:
        spawn->master_addr = text;
        break;
    case FLAG_STANDALONE:
        more->standalone = true;
        break;
    case FLAG_ELASTIC:
        spawn->elastic = true;
        break;
    case FLAG_LOG_DIR:
        spawn->log_dir = text;
        break;
    case FLAG_NO_PREFIX:
        spawn->prefix = false;
        break;
    case FLAG_ENV:
        return run_env(text);
    case FLAG_EXPLAIN:
        more->explain = true;
        break;
    case FLAG_BIND:
        return tti_bind_parse("--bind", text, &more->bind);
    default:
        break;
    }
    return TUTTI_OK;
}

/* What the flags say together. */
static enum tutti_result run_check(struct tti_spawn *spawn, bool standalone)
{
    if (standalone && spawn->nnodes > 1)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "--standalone is for one host, --nnodes is %d",
                        spawn->nnodes);
    if (standalone)
        spawn->master_addr = NULL;
    if (spawn->nnodes > 1 && !spawn->master_addr)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "--nnodes is %d; give node 0's --master-addr",
                        spawn->nnodes);
    if (spawn->node_rank >= spawn->nnodes)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "--node-rank is %d of %d nodes", spawn->node_rank,
                        spawn->nnodes);
    if (spawn->master_addr && !spawn->master_port)
        spawn->master_port = 29500;
    return TUTTI_OK;
}

static void run_doubt(const char *text)
{
    fprintf(stderr, "tuttirun: %s\n", text);
}

int main(int argc, char **argv)
{
    struct tti_spawn spawn = {.nproc = 1, .nnodes = 1, .prefix = true, .program = "tuttirun"};
    struct run_more more = {.bind = TTI_BIND_AUTO};
    cpu_set_t *cpus = NULL;
    int status = 1;
    opterr = 0;
    for (;;) {
        int at = optind;
        char text[300];
        if (at < argc)
            run_dashes(argv[at]);
        int flag = getopt_long(argc, argv, "+:n:h", flags, NULL);
        if (flag < 0)
            break;
        if (flag == '?' || flag == ':') {
            snprintf(text, sizeof text,
                     flag == ':' ? "%.200s needs a value" : "unknown flag %.200s", argv[at]);
            return run_wrong(text);
        }
        if (flag == 'h') {
            fputs(usage, stdout);
            return 0;
        }
        if (flag == FLAG_VERSION) {
            int version = tutti_version();
            printf("tuttirun %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
            return 0;
        }
        if (run_flag(flag, optarg, &spawn, &more) != TUTTI_OK)
            return run_wrong(tutti_last_error());
    }
    if (run_check(&spawn, more.standalone) != TUTTI_OK)
        return run_wrong(tutti_last_error());
    if (optind >= argc)
        return run_wrong("no PROGRAM to run");
    spawn.argv = argv + optind;
    tti_config_misspelt(environ, run_doubt);
    if (tti_bind_ranks(more.bind, spawn.nproc, &cpus) != TUTTI_OK)
        return run_wrong(tutti_last_error());
    spawn.cpus = cpus;
    if (more.explain && tti_bind_explain(cpus, spawn.nproc, "tuttirun: ", stderr) != TUTTI_OK)
        fprintf(stderr, "tuttirun: nothing to explain: %s\n", tutti_last_error());
    if (tti_spawn_run(&spawn, &status) != TUTTI_OK) {
        fprintf(stderr, "tuttirun: %s\n", tutti_last_error());
        status = 1;
    }
    free(cpus);
    return status;
}
