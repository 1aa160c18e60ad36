/* What settings cost: all-reduce of two processes of this host, by turns on communicators that were
 * made with different environment variables, in memory from tutti_alloc. A round times a batch on
 * each; the table has medians over the rounds, and the median of each round's ratio to the first,
 * so that what the machine does meanwhile meets all alike.
 *
 *     settings_bench [--sizes 8,1K,...] [--rounds N] SETTINGS SETTINGS ...
 *
 * SETTINGS is NAME=VALUE,NAME=VALUE or "-", none. The recorder's cost:
 * settings_bench TUTTI_RECORDER=0 - */
#include "base/clock.h"
#include "base/config.h"
#include "tutti/tutti.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 2, ROUNDS_MOST = 1001, WAYS_MOST = 6, SIZES_MOST = 16, LEAST_BATCH = 3 };
static const double BATCH_SECONDS = 400e-6;

static struct {
    size_t size[SIZES_MOST];
    int sizes, ways, rounds;
    char *settings[WAYS_MOST];
} flags = {.rounds = 301};

static int failed(const char *what)
{
    fprintf(stderr, "settings_bench: %s: %s\n", what, tutti_last_error());
    return 1;
}

static int order(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

static double median(double *values)
{
    qsort(values, (size_t)flags.rounds, sizeof *values, order);
    return values[flags.rounds / 2];
}

static double batch(tutti_comm *comm, void *memory, size_t bytes, int times)
{
    (void)tutti_barrier(comm);
    const uint64_t begin = tti_now_ns();
    for (int i = 0; i < times; i++)
        if (tutti_all_reduce(memory, memory, bytes / 4, TUTTI_FLOAT32, TUTTI_SUM, comm) != TUTTI_OK)
            return -1;
    return (double)(tti_now_ns() - begin) / times;
}

static int measure(tutti_comm **comms, void *memory, size_t bytes)
{
    static double took[WAYS_MOST][ROUNDS_MOST], ratio[WAYS_MOST][ROUNDS_MOST];
    for (int way = 0; way < flags.ways; way++)
        (void)batch(comms[way], memory, bytes, 20); /* the first ones connect and touch */
    const double each = batch(comms[0], memory, bytes, 20);
    int64_t times = each > 0 ? (int64_t)(BATCH_SECONDS * 1e9 / each) : 1;
    times = times < LEAST_BATCH ? LEAST_BATCH : times;
    if (tutti_broadcast(&times, &times, 1, TUTTI_INT64, 0, comms[0]) != TUTTI_OK)
        return failed("broadcast");
    for (int round = 0; round < flags.rounds; round++) {
        for (int k = 0; k < flags.ways; k++) {
            const int way = (k + round) % flags.ways;
            took[way][round] = batch(comms[way], memory, bytes, (int)times);
            if (took[way][round] < 0)
                return failed("all_reduce");
        }
        for (int way = 1; way < flags.ways; way++)
            ratio[way][round] = took[way][round] / took[0][round];
    }
    if (tutti_comm_rank(comms[0]) != 0)
        return 0;
    printf("| %zu | %.1f |", bytes, median(took[0]));
    for (int way = 1; way < flags.ways; way++)
        printf(" %.1f | %.3f |", median(took[way]), median(ratio[way]));
    printf("\n");
    return 0;
}

/* Set, or (`on` false) take back. */
static void apply(const char *settings, bool on)
{
    char text[512], *rest = NULL;
    snprintf(text, sizeof text, "%s", settings);
    for (char *name = strtok_r(text, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(name, '=');
        if (!value)
            continue;
        *value = '\0';
        if (on)
            setenv(name, value + 1, 1);
        else
            unsetenv(name);
    }
}

static void heading(void)
{
    printf("| bytes | %s, ns |", flags.settings[0]);
    for (int way = 1; way < flags.ways; way++)
        printf(" %s, ns | ratio |", flags.settings[way]);
    printf("\n|---:|---:|");
    for (int way = 1; way < flags.ways; way++)
        printf("---:|---:|");
    printf("\n");
}

static int rank_run(const struct tutti_id *ids, int rank)
{
    tutti_comm *comms[WAYS_MOST] = {NULL};
    void *memory = NULL;
    int bad = 0;
    size_t largest = 0;
    for (int way = 0; way < flags.ways; way++) {
        apply(flags.settings[way], true);
        if (tutti_comm_create(&ids[way], rank, RANKS, NULL, &comms[way]) != TUTTI_OK)
            return failed(flags.settings[way]);
        apply(flags.settings[way], false);
    }
    for (int i = 0; i < flags.sizes; i++)
        largest = flags.size[i] > largest ? flags.size[i] : largest;
    if (tutti_alloc(largest, &memory) != TUTTI_OK)
        return failed("memory");
    if (rank == 0)
        heading();
    for (int i = 0; i < flags.sizes && !bad; i++)
        bad = measure(comms, memory, flags.size[i]);
    fflush(stdout);
    for (int way = 0; way < flags.ways; way++)
        tutti_comm_destroy(comms[way]);
    tutti_free(memory);
    return bad;
}

static int usage(void)
{
    fprintf(stderr, "usage: settings_bench [--sizes 8,1K,...] [--rounds N] SETTINGS SETTINGS ...\n"
                    "SETTINGS: NAME=VALUE,NAME=VALUE or -; the first is what others are compared "
                    "with; 2 to 6 of them, 16 sizes, 1001 rounds at most\n");
    return 2;
}

static bool parse_sizes(char *text)
{
    char *rest = NULL;
    flags.sizes = 0;
    for (char *size = strtok_r(text, ",", &rest); size; size = strtok_r(NULL, ",", &rest))
        if (flags.sizes == SIZES_MOST ||
            tti_parse_bytes("--sizes", size, &flags.size[flags.sizes++]) != TUTTI_OK)
            return false;
    return flags.sizes > 0;
}

static bool parse(int argc, char **argv)
{
    static char usual[] = "8,1K,8K,16K,32K,256K,4M";
    bool good = parse_sizes(usual);
    for (int i = 1; i < argc && good; i++) {
        long rounds = 0;
        if (strcmp(argv[i], "--sizes") == 0) {
            good = ++i < argc && parse_sizes(argv[i]);
        } else if (strcmp(argv[i], "--rounds") == 0) {
            good = ++i < argc &&
                   tti_parse_int("--rounds", argv[i], 1, ROUNDS_MOST, &rounds) == TUTTI_OK;
            flags.rounds = (int)rounds;
        } else {
            good = flags.ways < WAYS_MOST && argv[i][0] != '\0';
            if (good)
                flags.settings[flags.ways++] = argv[i];
        }
    }
    return good && flags.ways >= 2;
}

int main(int argc, char **argv)
{
    struct tutti_id ids[WAYS_MOST];
    int status = 0;
    if (!parse(argc, argv))
        return usage();
    for (int way = 0; way < flags.ways; way++)
        if (tutti_id_create("127.0.0.1", &ids[way]) != TUTTI_OK)
            return failed("id");
    const pid_t child = fork();
    if (child < 0)
        return failed("fork");
    if (child == 0) {
        const int bad = rank_run(ids, 1);
        fflush(NULL);
        _exit(bad);
    }
    const int bad = rank_run(ids, 0);
    if (waitpid(child, &status, 0) != child || status != 0)
        return 1;
    return bad;
}
