/* What settings cost: all-reduce of two processes (--ranks: of more) of this host, by turns on
 * communicators that were made with different environment variables, in memory from tutti_alloc. A
 * round times a batch on each; the table has medians over the rounds, and the median of each
 * round's ratio to the first, so that what the machine does meanwhile meets all alike. Rounds come
 * in sets: each makes the communicators and the memory anew, in another order, so that no settings
 * always have the place that is the best (of communicators with the same settings, the first is
 * often the quickest). There are as many sets as it takes for all to have had each place equally
 * often: a multiple of twice the number of settings.
 *
 *     settings_bench [--ranks N] [--sizes 8,1K,...] [--rounds N] [--sets N] SETTINGS SETTINGS ...
 *
 * SETTINGS is NAME=VALUE,NAME=VALUE or "-", none. The recorder's cost:
 * settings_bench TUTTI_RECORDER=0 - */
#include "base/clock.h"
#include "base/config.h"
#include "base/median.h"
#include "tutti/tutti.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    RANKS_MOST = 64,
    ROUNDS_MOST = 1001,
    SETS_MOST = 64,
    WAYS_MOST = 6,
    SIZES_MOST = 16,
    LEAST_BATCH = 3,
};
static const double BATCH_SECONDS = 400e-6;

static struct {
    size_t size[SIZES_MOST];
    int ranks, sizes, ways, rounds, sets;
    char *settings[WAYS_MOST];
} flags = {.ranks = 2, .rounds = 312, .sets = 24};

/* By size, of all rounds so far. */
static struct {
    double took[WAYS_MOST][ROUNDS_MOST], ratio[WAYS_MOST][ROUNDS_MOST];
    int rounds;
} found[SIZES_MOST];

static int failed(const char *what)
{
    fprintf(stderr, "settings_bench: %s: %s\n", what, tutti_last_error());
    return 1;
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

/* The rounds of one set at one size; the communicators are used in the order in which they were
 * made, from another one in each round. */
static int measure(tutti_comm **comms, const int *made, void *memory, int size, int rounds)
{
    const size_t bytes = flags.size[size];
    for (int way = 0; way < flags.ways; way++)
        (void)batch(comms[made[way]], memory, bytes, 20); /* the first ones connect and touch */
    const double each = batch(comms[0], memory, bytes, 20);
    int64_t times = each > 0 ? (int64_t)(BATCH_SECONDS * 1e9 / each) : 1;
    times = times < LEAST_BATCH ? LEAST_BATCH : times;
    if (tutti_broadcast(&times, &times, 1, TUTTI_INT64, 0, comms[0]) != TUTTI_OK)
        return failed("broadcast");
    for (int k = 0; k < rounds; k++) {
        const int round = found[size].rounds++;
        for (int turn = 0; turn < flags.ways; turn++) {
            const int way = made[(turn + k) % flags.ways];
            found[size].took[way][round] = batch(comms[way], memory, bytes, (int)times);
            if (found[size].took[way][round] < 0)
                return failed("all_reduce");
        }
        for (int way = 1; way < flags.ways; way++)
            found[size].ratio[way][round] =
                found[size].took[way][round] / found[size].took[0][round];
    }
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

static void report(void)
{
    printf("| bytes | %s, ns |", flags.settings[0]);
    for (int way = 1; way < flags.ways; way++)
        printf(" %s, ns | ratio |", flags.settings[way]);
    printf("\n|---:|---:|");
    for (int way = 1; way < flags.ways; way++)
        printf("---:|---:|");
    printf("\n");
    for (int i = 0; i < flags.sizes; i++) {
        const int rounds = found[i].rounds;
        printf("| %zu | %.1f |", flags.size[i], tti_median(found[i].took[0], (size_t)rounds));
        for (int way = 1; way < flags.ways; way++)
            printf(" %.1f | %.3f |", tti_median(found[i].took[way], (size_t)rounds),
                   tti_median(found[i].ratio[way], (size_t)rounds));
        printf("\n");
    }
}

static int set_run(const struct tutti_id *ids, int rank, int set, size_t largest)
{
    tutti_comm *comms[WAYS_MOST] = {NULL};
    void *memory = NULL;
    int bad = 0, made[WAYS_MOST];
    /* Each way is at each place equally often, after and before each other. */
    for (int k = 0; k < flags.ways; k++) {
        const int turn = (set / flags.ways) % 2 ? flags.ways - k : k;
        const int way = (set + turn) % flags.ways;
        made[k] = way;
        apply(flags.settings[way], true);
        if (tutti_comm_create(&ids[way], rank, flags.ranks, NULL, &comms[way]) != TUTTI_OK)
            return failed(flags.settings[way]);
        apply(flags.settings[way], false);
    }
    if (tutti_alloc(largest, &memory) != TUTTI_OK)
        return failed("memory");
    const int rounds = flags.rounds * (set + 1) / flags.sets - flags.rounds * set / flags.sets;
    for (int i = 0; i < flags.sizes && !bad; i++)
        bad = measure(comms, made, memory, i, rounds);
    for (int way = 0; way < flags.ways; way++)
        tutti_comm_destroy(comms[way]);
    tutti_free(memory);
    return bad;
}

static int rank_run(struct tutti_id (*ids)[WAYS_MOST], int rank)
{
    int bad = 0;
    size_t largest = 0;
    for (int i = 0; i < flags.sizes; i++)
        largest = flags.size[i] > largest ? flags.size[i] : largest;
    for (int set = 0; set < flags.sets && !bad; set++)
        bad = set_run(ids[set], rank, set, largest);
    if (rank == 0 && !bad)
        report();
    return bad;
}

static int usage(void)
{
    fprintf(
        stderr,
        "usage: settings_bench [--ranks N] [--sizes 8,1K,...] [--rounds N] [--sets N] SETTINGS "
        "SETTINGS ...\n"
        "SETTINGS: NAME=VALUE,NAME=VALUE or -; the first is what others are compared with; 2 to "
        "6 of them, 64 ranks, 16 sizes, 1001 rounds in 64 sets at most\n");
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

/* As many sets as asked for or a few more, so that all settings have each place equally often, and
 * a round of each. */
static void balance(void)
{
    const int turn = 2 * flags.ways;
    flags.sets = (flags.sets + turn - 1) / turn * turn;
    if (flags.sets > SETS_MOST)
        flags.sets = SETS_MOST / turn * turn;
    if (flags.rounds < flags.sets)
        flags.rounds = flags.sets;
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
        } else if (strcmp(argv[i], "--ranks") == 0) {
            good =
                ++i < argc && tti_parse_int("--ranks", argv[i], 2, RANKS_MOST, &rounds) == TUTTI_OK;
            flags.ranks = (int)rounds;
        } else if (strcmp(argv[i], "--sets") == 0) {
            good =
                ++i < argc && tti_parse_int("--sets", argv[i], 1, SETS_MOST, &rounds) == TUTTI_OK;
            flags.sets = (int)rounds;
        } else {
            good = flags.ways < WAYS_MOST && argv[i][0] != '\0';
            if (good)
                flags.settings[flags.ways++] = argv[i];
        }
    }
    good = good && flags.ways >= 2;
    if (good)
        balance();
    return good;
}

int main(int argc, char **argv)
{
    static struct tutti_id ids[SETS_MOST][WAYS_MOST];
    int status = 0;
    if (!parse(argc, argv))
        return usage();
    for (int k = 0; k < flags.sets * flags.ways; k++)
        if (tutti_id_create("127.0.0.1", &ids[k / flags.ways][k % flags.ways]) != TUTTI_OK)
            return failed("id");
    pid_t children[RANKS_MOST] = {0};
    for (int rank = 1; rank < flags.ranks; rank++) {
        children[rank] = fork();
        if (children[rank] < 0)
            return failed("fork"); /* the others find out that nobody comes */
        if (children[rank] == 0) {
            const int bad = rank_run(ids, rank);
            fflush(NULL);
            _exit(bad);
        }
    }
    int bad = rank_run(ids, 0);
    for (int rank = 1; rank < flags.ranks; rank++)
        bad |= waitpid(children[rank], &status, 0) != children[rank] || status != 0;
    return bad;
}
