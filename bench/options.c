/* The command line of the benchmark: nccl-tests' grammar and our own flags. */
#include "base/config.h"
#include "bench/bench.h"
#include "coll/operation.h"

#include <ctype.h>
#include <getopt.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>

static const char *const type_names[TUTTI_TYPE_COUNT] = {
    [TUTTI_INT8] = "int8",         [TUTTI_UINT8] = "uint8",        [TUTTI_INT32] = "int32",
    [TUTTI_UINT32] = "uint32",     [TUTTI_INT64] = "int64",        [TUTTI_UINT64] = "uint64",
    [TUTTI_FLOAT16] = "half",      [TUTTI_FLOAT32] = "float",      [TUTTI_FLOAT64] = "double",
    [TUTTI_BFLOAT16] = "bfloat16", [TUTTI_FLOAT8_E4M3] = "f8e4m3", [TUTTI_FLOAT8_E5M2] = "f8e5m2",
};
static const char *const op_names[TUTTI_OP_COUNT] = {
    [TUTTI_SUM] = "sum", [TUTTI_PROD] = "prod", [TUTTI_MAX] = "max",
    [TUTTI_MIN] = "min", [TUTTI_AVG] = "avg",
};

const char *bench_type_name(enum tutti_type type)
{
    return type_names[type];
}

const char *bench_op_name(int op)
{
    return op == BENCH_MULSUM ? "mulsum" : op_names[op];
}

const char *bench_collective_label(enum tutti_collective collective, int uneven)
{
    if (uneven)
        return tti_uneven_name(collective);
    return collective == TUTTI_SEND_RECV ? "sendrecv" : tutti_collective_name(collective);
}

/* "AllReduce", "all_reduce", "allreduce" are the same name. */
static bool same_name(const char *a, const char *b)
{
    for (;; a++, b++) {
        while (*a == '_' || *a == '-')
            a++;
        while (*b == '_' || *b == '-')
            b++;
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b))
            return false;
        if (!*a)
            return true;
    }
}

/* "all_gather_v" has its blocks uneven, as far as --uneven says, or of one size. */
static bool parse_collective(const char *text, struct bench_options *o)
{
    for (int c = 0; c < TUTTI_COLLECTIVE_COUNT; c++) {
        const enum tutti_collective one = (enum tutti_collective)c;
        const bool uneven = bench_has_blocks(one) && same_name(text, tti_uneven_name(one));
        if (c == TUTTI_BARRIER || (!uneven && !same_name(text, bench_collective_label(one, 0)) &&
                                   !same_name(text, tutti_collective_name(one))))
            continue;
        o->collective = one;
        if (uneven && o->uneven == 0)
            o->uneven = 1;
        return true;
    }
    return false;
}

static int wrong(const char *format, const char *a, const char *b)
{
    fprintf(stderr, "allreduce_bench: ");
    fprintf(stderr, format, a, b);
    fprintf(stderr, " (--help lists the flags)\n");
    return 2;
}

static const struct option long_options[] = {
    {"minbytes", required_argument, NULL, 'b'},
    {"maxbytes", required_argument, NULL, 'e'},
    {"stepbytes", required_argument, NULL, 'i'},
    {"stepfactor", required_argument, NULL, 'f'},
    {"iters", required_argument, NULL, 'n'},
    {"warmup_iters", required_argument, NULL, 'w'},
    {"agg_iters", required_argument, NULL, 'm'},
    {"run_cycles", required_argument, NULL, 'N'},
    {"check", required_argument, NULL, 'c'},
    {"op", required_argument, NULL, 'o'},
    {"datatype", required_argument, NULL, 'd'},
    {"root", required_argument, NULL, 'r'},
    {"average", required_argument, NULL, 'a'},
    {"nthreads", required_argument, NULL, 't'},
    {"ngpus", required_argument, NULL, 'g'},
    {"timeout", required_argument, NULL, 'T'},
    {"blocking", required_argument, NULL, 'z'},
    {"parallel_init", required_argument, NULL, 'p'},
    {"stream_null", required_argument, NULL, 'y'},
    {"cudagraph", required_argument, NULL, 'G'},
    {"local_register", required_argument, NULL, 'R'},
    {"output_file", required_argument, NULL, 'J'},
    {"json", required_argument, NULL, 'J'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 1000},
    {"coll", required_argument, NULL, 1001},
    {"ranks", required_argument, NULL, 1002},
    {"threads", no_argument, NULL, 1003},
    {"transport", required_argument, NULL, 1004},
    {"algo", required_argument, NULL, 1005},
    {"csv", required_argument, NULL, 1006},
    {"memory", required_argument, NULL, 1007},
    {"plot", required_argument, NULL, 1008},
    {"lanes", required_argument, NULL, 1009},
    {"plugin", required_argument, NULL, 1010},
    {"bind", required_argument, NULL, 1011},
    {"rewrite", no_argument, NULL, 1012},
    {"explain", no_argument, NULL, 1013},
    {"device", required_argument, NULL, 1014},
    {"graph", no_argument, NULL, 1015},
    {"hosts", required_argument, NULL, 1016},
    {"uneven", required_argument, NULL, 1017},
    {NULL, 0, NULL, 0},
};

static void print_help(void)
{
    puts(
        "Usage: allreduce_bench [flags]      sweep a collective over message sizes\n"
        "\n"
        "Sweep (as in nccl-tests; sizes take K, M, G)\n"
        "  -b, --minbytes SIZE      first size (8)           -e, --maxbytes SIZE  last size (64M)\n"
        "  -f, --stepfactor F       times F each step (2)    -i, --stepbytes SIZE plus SIZE each "
        "step\n"
        "  -n, --iters N            timed iterations (enough for a steady figure, at least 20)\n"
        "  -w, --warmup_iters N     untimed iterations (5)   -m, --agg_iters N    operations a "
        "group (1)\n"
        "  -N, --run_cycles N       the whole sweep N times (1; --explain: 5)\n"
        "  -c, --check N            checking runs a size; 0: none (1)\n"
        "  -o, --op OP              sum prod max min avg mulsum all (sum)\n"
        "  -d, --datatype TYPE      int8 uint8 int32 uint32 int64 uint64 half float double "
        "bfloat16\n"
        "                           f8e4m3 f8e5m2 all (float)\n"
        "  -r, --root R             root of rooted collectives (0)\n"
        "  -a, --average W          time over ranks: 0 rank 0, 1 average, 2 minimum, 3 maximum "
        "(1)\n"
        "  --rewrite                new values in the inputs, untimed, before each timed "
        "operation\n"
        "  -T, --timeout SEC        deadline for start-up and for each operation\n"
        "\n"
        "What and where\n"
        "  --coll NAME              all_reduce (default) broadcast reduce reduce_scatter "
        "all_gather\n"
        "                           all_to_all gather scatter sendrecv; all_gather_v and the "
        "like:\n"
        "                           the form for blocks that differ in size\n"
        "  --uneven F               they do: the last rank's is F times the first one's (1)\n"
        "  --ranks N                ranks to start here when no launcher did (2)\n"
        "  --threads                ranks are threads of one process; -t N is --ranks N --threads\n"
        "  --hosts H                ranks started here pretend that they are on so many hosts\n"
        "  --bind core|none         ranks started here get cores of their own, or run anywhere\n"
        "                           (bound where each can have two CPUs or more)\n"
        "  --transport LIST         inproc, shm, tcp, ... (best for each pair)\n"
        "  --plugin PATH            load a transport from a shared object\n"
        "  --algo LIST              \"ring\" or \"all_reduce=ring,broadcast=tree\" (chosen by "
        "size)\n"
        "  --lanes N                parallel lanes per peer (chosen by size)\n"
        "  --device KIND            cuda, sim (a simulated GPU) or host memory (default); ranks "
        "share\n"
        "                           devices when there are more of them\n"
        "  --graph                  capture the operations once, replay them (-G 1; with "
        "--device)\n"
        "  --memory KIND            library (default), malloc, or registered (-R 1); the last two\n"
        "                           are whole pages of aligned_alloc\n"
        "\n"
        "Output\n"
        "  -J, --json FILE          all figures as JSON      --csv FILE           the table as "
        "CSV\n"
        "  --plot FILE.png|svg      bandwidth and latency over size (needs gnuplot)\n"
        "  --explain                instead of the table: what was chosen, what it was predicted "
        "to\n"
        "                           take, what it took, and the runner-up\n"
        "  -h, --help               this text                --version\n"
        "\n"
        "Columns: size and count of a call; time of an operation in us; algbw = size/time and\n"
        "busbw = algbw x the collective's factor (GB/s, decimal); #wrong elements; then the "
        "median\n"
        "and 99th percentile of single operations (us, out of place) and the algorithm chosen.\n"
        "Under tuttirun, torchrun, mpirun, mpiexec or srun the program finds its ranks by itself.");
}

static int parse_int(const char *what, const char *text, long least, long most, int *value)
{
    long parsed = 0;
    if (tti_parse_int(what, text, least, most, &parsed) != TUTTI_OK)
        return wrong("%s%s", tutti_last_error(), "");
    *value = (int)parsed;
    return 0;
}

static int parse_size(const char *what, const char *text, size_t *value)
{
    if (tti_parse_bytes(what, text, value) != TUTTI_OK)
        return wrong("%s%s", tutti_last_error(), "");
    return 0;
}

static int parse_type(struct bench_options *o, const char *text)
{
    o->all_types = strcmp(text, "all") == 0;
    for (int t = 0; t < TUTTI_TYPE_COUNT && !o->all_types; t++)
        if (strcmp(text, type_names[t]) == 0 ||
            strcmp(text, tutti_type_name((enum tutti_type)t)) == 0) {
            o->type = (enum tutti_type)t;
            return 0;
        }
    return o->all_types ? 0 : wrong("-d %s is no type%s", text, "");
}

static int parse_op(struct bench_options *o, const char *text)
{
    o->all_ops = strcmp(text, "all") == 0;
    if (o->all_ops)
        return 0;
    for (int op = 0; op < TUTTI_OP_COUNT; op++)
        if (strcmp(text, op_names[op]) == 0) {
            o->op = op;
            return 0;
        }
    if (strcmp(text, "mulsum") != 0)
        return wrong("-o %s is no operator%s", text, "");
    o->op = BENCH_MULSUM;
    return 0;
}

static int parse_memory(struct bench_options *o, const char *text)
{
    static const char *const names[] = {"library", "malloc", "registered"};
    for (int m = 0; m < 3; m++)
        if (strcmp(text, names[m]) == 0) {
            o->memory = (enum bench_memory)m;
            return 0;
        }
    return wrong("--memory %s: expected library, malloc or registered%s", text, "");
}

static int parse_factor(struct bench_options *o, const char *text)
{
    char *end = NULL;
    o->step_factor = strtod(text, &end);
    return end != text && !*end && o->step_factor > 1
               ? 0
               : wrong("-f %s: expected a factor above 1%s", text, "");
}

enum { MOST_RANKS = 4096 };

/* -t and -g multiply, and what --ranks said before them. */
static int parse_threads(struct bench_options *o, const char *name, const char *text, int value)
{
    const int before = o->ranks ? o->ranks : 1;
    if (value > MOST_RANKS / before)
        return wrong("%s %s: more than 4096 ranks in all (-t times -g)", name, text);
    o->ranks = before * value;
    o->threads = true;
    return 0;
}

/* Flags of nccl-tests that mean nothing for host memory, or only one thing. */
static int parse_gpu_flag(struct bench_options *o, int flag, const char *text)
{
    int value = 0;
    char name[3] = {'-', (char)flag, '\0'};
    if (parse_int(name, text, 0, 1 << 20, &value))
        return 2;
    if (flag == 'G' && value > 0)
        o->graph = true;
    if (flag == 'R' && value > 0)
        o->memory = BENCH_REGISTERED;
    if ((flag == 'g' && value > 1) || (flag == 't' && value > 0))
        return parse_threads(o, name, text, value);
    return 0;
}

static int parse_own_flag(struct bench_options *o, int flag)
{
    switch (flag) {
    case 1001:
        return parse_collective(optarg, o) ? 0 : wrong("--coll %s is no collective%s", optarg, "");
    case 1002:
        return parse_int("--ranks", optarg, 1, MOST_RANKS, &o->ranks);
    case 1003:
        o->threads = true;
        return 0;
    case 1004:
        o->transport = optarg;
        return 0;
    case 1005:
        o->algo = optarg;
        return 0;
    case 1006:
        o->csv = optarg;
        return 0;
    case 1007:
        return parse_memory(o, optarg);
    case 1008:
        o->plot = optarg;
        return 0;
    case 1009:
        return parse_int("--lanes", optarg, 1, 16, &o->lanes);
    case 1011:
        if (tti_bind_parse("--bind", optarg, &o->bind) != TUTTI_OK)
            return wrong("%s%s", tutti_last_error(), "");
        return 0;
    case 1012:
        o->rewrite = true;
        return 0;
    case 1013:
        o->explain = true;
        return 0;
    case 1014:
        if (strcmp(optarg, "cuda") != 0 && strcmp(optarg, "sim") != 0 &&
            strcmp(optarg, "host") != 0)
            return wrong("--device %s: expected cuda, sim or host%s", optarg, "");
        o->device = strcmp(optarg, "host") == 0 ? NULL : optarg;
        return 0;
    case 1015:
        o->graph = true;
        return 0;
    case 1016:
        return parse_int("--hosts", optarg, 1, MOST_RANKS, &o->hosts);
    case 1017:
        return parse_int("--uneven", optarg, 1, 1000, &o->uneven);
    default:
        o->plugin = optarg;
        return 0;
    }
}

static int parse_flag(struct bench_options *o, int flag)
{
    switch (flag) {
    case 'b':
        return parse_size("-b", optarg, &o->min_bytes);
    case 'e':
        return parse_size("-e", optarg, &o->max_bytes);
    case 'i':
        o->step_factor = 0;
        return parse_size("-i", optarg, &o->step_bytes);
    case 'f':
        return parse_factor(o, optarg);
    case 'n':
        return parse_int("-n", optarg, 1, 100000000, &o->iterations);
    case 'w':
        return parse_int("-w", optarg, 0, 100000000, &o->warmup);
    case 'm':
        return parse_int("-m", optarg, 1, 100000, &o->aggregate);
    case 'N':
        return parse_int("-N", optarg, 1, 1000000, &o->cycles);
    case 'c':
        return parse_int("-c", optarg, 0, 1000, &o->check);
    case 'o':
        return parse_op(o, optarg);
    case 'd':
        return parse_type(o, optarg);
    case 'r':
        return parse_int("-r", optarg, 0, 1 << 24, &o->root);
    case 'a':
        return parse_int("-a", optarg, 0, 3, &o->average);
    case 'T':
        if (tti_parse_seconds("-T", optarg, &o->timeout_s) != TUTTI_OK)
            return wrong("%s%s", tutti_last_error(), "");
        return 0;
    case 'J':
        o->json = optarg;
        return 0;
    case 't':
    case 'g':
    case 'z':
    case 'p':
    case 'y':
    case 'G':
    case 'R':
        return parse_gpu_flag(o, flag, optarg);
    default:
        return parse_own_flag(o, flag);
    }
}

static int check_together(const struct bench_options *o)
{
    const char *dot = o->plot ? strrchr(o->plot, '.') : NULL;
    if (o->plot && (!dot || (strcmp(dot, ".png") != 0 && strcmp(dot, ".svg") != 0)))
        return wrong("--plot %s: the file must end in .png or .svg%s", o->plot, "");
    if (o->uneven && !bench_has_blocks(o->collective))
        return wrong("--uneven: %s has no blocks that could differ in size%s",
                     bench_collective_label(o->collective, 0), "");
    if (o->explain && o->uneven)
        return wrong("--explain: not for uneven blocks%s%s", "", "");
    if (o->explain && o->collective == TUTTI_SEND_RECV)
        return wrong("--explain: sendrecv has nothing to choose from%s%s", "", "");
    if (o->device && (o->explain || o->rewrite))
        return wrong("--device %s: --explain and --rewrite are for host memory%s", o->device, "");
    if (o->graph && !o->device)
        return wrong("--graph, -G need --device: graphs do not exist for host memory%s%s", "", "");
    if (o->graph && o->collective == TUTTI_SEND_RECV && o->aggregate > 1)
        return wrong("--graph: sendrecv can be captured with -m 1 only%s%s", "", "");
    if (o->min_bytes > o->max_bytes)
        return wrong("-b is larger than -e%s%s", "", "");
    if (o->step_factor == 0 && o->step_bytes == 0)
        return wrong("-i 0 would never end; give a step above 0%s%s", "", "");
    return 0;
}

enum { EXPLAIN_CYCLES = 5 }; /* a prediction is of the usual case: the median */

int bench_options_parse(int argc, char **argv, struct bench_options *o)
{
    *o = (struct bench_options){.collective = TUTTI_ALL_REDUCE,
                                .min_bytes = 8,
                                .max_bytes = (size_t)64 << 20,
                                .step_bytes = (size_t)1 << 20,
                                .step_factor = 2,
                                .warmup = 5,
                                .aggregate = 1,
                                .check = 1,
                                .average = 1,
                                .type = TUTTI_FLOAT32,
                                .op = TUTTI_SUM};
    char name[64];
    snprintf(name, sizeof name, "%s", strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0]);
    char *suffix = strstr(name, "_bench");
    if (suffix) {
        *suffix = '\0';
        (void)parse_collective(name, o);
    }
    opterr = 0;
    optind = 1;
    int flag = 0;
    while ((flag = getopt_long(argc, argv, ":b:e:i:f:n:w:m:N:c:o:d:r:a:t:g:T:z:p:y:G:R:J:h",
                               long_options, NULL)) != -1) {
        if (flag == 'h' || flag == 1000) {
            if (flag == 'h')
                print_help();
            else
                printf("allreduce_bench (Tutti) %d.%d.%d\n", TUTTI_VERSION_MAJOR,
                       TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH);
            return 1;
        }
        if (flag == ':')
            return wrong("flag %s needs a value%s", argv[optind - 1], "");
        if (flag == '?')
            return wrong("%s is no flag%s", argv[optind - 1], "");
        int status = parse_flag(o, flag);
        if (status)
            return status;
    }
    if (optind < argc)
        return wrong("\"%s\" is no flag%s", argv[optind], "");
    if (o->cycles == 0)
        o->cycles = o->explain ? EXPLAIN_CYCLES : 1;
    return check_together(o);
}
