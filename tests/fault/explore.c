/* tutti-explore: operations under random schedules of delays, reordering, losses and deaths, and
 * under a death at every step of small all-reduces. Each schedule is drawn from a seed and its
 * number, and run again by them:  tutti-explore --replay SEED:NUMBER.
 *
 * Ranks are threads; schedules run in several processes at a time, as most of them wait. A schedule
 * that has not ended after a minute is a hang. */
#include "base/clock.h"
#include "base/config.h"
#include "tests/fault/schedule.h"
#include "tests/fault/soak.h"

#include <getopt.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const char usage[] =
    "usage: tutti-explore [--schedules N] [--seed S] [--deaths RANKS] [--over TRANSPORT]\n"
    "                     [--workers N] [--replay SEED:NUMBER] [--soak SECONDS] [--verbose]\n"
    "\n"
    "  --schedules N     random schedules (300)\n"
    "  --seed S          of these (drawn, and printed)\n"
    "  --deaths RANKS    a death of each rank at every step of all-reduces of 2 to RANKS ranks\n"
    "  --over TRANSPORT  what carries the bytes: inproc (default), shm or tcp\n"
    "  --workers N       processes (8)\n"
    "  --replay S:N      one schedule, and what came of it\n"
    "  --soak SECONDS    in one process, over all transports, counting what it holds\n"
    "  --verbose         a line for each\n"
    "\n"
    "Exit status: 0 all went as it must, 1 some did not, 2 wrong usage.\n";

enum { HANG_SECONDS = 60, MOST_STEPS = 400, MOST_HANGS = 100, EXIT_HANG = 3 };

struct explore {
    const char *over;
    uint64_t seed;
    long schedules, workers, deaths, soak;
    bool verbose;
};

/* What all workers count together. */
struct explore_sum {
    _Atomic long next, done, again, bad, hangs, trouble, deaths, errors, named, death_runs;
    _Atomic long longest_ms;
};
static struct explore_sum *sum;

static void explore_longest(double seconds)
{
    long ms = (long)(seconds * 1e3), seen = atomic_load(&sum->longest_ms);
    while (ms > seen && !atomic_compare_exchange_weak(&sum->longest_ms, &seen, ms))
        ;
}

/* A hang ends the worker. */
static void explore_run(const struct schedule *s, struct schedule_end *ends)
{
    char text[2 * SCHEDULE_TEXT];
    if (schedule_run(s, HANG_SECONDS, ends))
        return;
    fprintf(stderr, "HANG  %s\n", schedule_text(s, text, sizeof text));
    atomic_fetch_add(&sum->hangs, 1);
    fflush(NULL);
    _exit(EXIT_HANG);
}

/* Run and judge one. On a busy machine a short deadline may pass by itself: then once more with a
 * long one, and that counts. */
static bool explore_one(const struct schedule *s, bool verbose, struct schedule_verdict *verdict)
{
    struct schedule_end ends[SCHEDULE_RANKS];
    char text[2 * SCHEDULE_TEXT];
    explore_run(s, ends);
    schedule_judge(s, ends, verdict);
    if (verdict->slow) {
        struct schedule patient = *s;
        patient.timeout_s = SCHEDULE_PATIENCE;
        explore_run(&patient, ends);
        schedule_judge(&patient, ends, verdict);
        atomic_fetch_add(&sum->again, 1);
    }
    explore_longest(verdict->longest);
    atomic_fetch_add(&sum->trouble, verdict->trouble);
    atomic_fetch_add(&sum->deaths, verdict->died);
    atomic_fetch_add(&sum->errors, verdict->errors);
    atomic_fetch_add(&sum->named, verdict->named);
    if (!verdict->good) {
        fprintf(stderr, "WRONG %s\n      %s\n", schedule_text(s, text, sizeof text), verdict->why);
        atomic_fetch_add(&sum->bad, 1);
    }
    /* No fault: others may name him, and this rank only whom it waits for. But worth a look. */
    if (verdict->nameless[0])
        fprintf(stderr, "another name  %s\n      %s\n", schedule_text(s, text, sizeof text),
                verdict->nameless);
    for (int r = 0; r < s->ranks && verbose; r++)
        printf("      rank %d: %s%s%s\n", r, tutti_result_text(ends[r].result),
               ends[r].text[0] ? ": " : "", ends[r].text);
    if (verbose)
        printf("%s %s\n", verdict->good ? "ok   " : "WRONG", schedule_text(s, text, sizeof text));
    return verdict->good;
}

/* ---- random schedules ----------------------------------------------------------------------- */

static void worker_schedules(const struct explore *e)
{
    for (;;) {
        struct schedule s;
        struct schedule_verdict verdict;
        long index = atomic_fetch_add(&sum->next, 1);
        if (index >= e->schedules)
            return;
        schedule_draw(e->seed, (uint64_t)index, e->over, &s);
        (void)explore_one(&s, e->verbose, &verdict);
        long done = atomic_fetch_add(&sum->done, 1) + 1;
        if (e->schedules >= 1000 && done % (e->schedules / 10) == 0)
            fprintf(stderr, "%ld of %ld schedules\n", done, e->schedules);
    }
}

/* ---- a death at every step ------------------------------------------------------------------ */

/* Steps are not known before: on, until the run ends before the victim has come so far. */
static void deaths_of(const struct explore *e, int ranks, const char *algorithm, bool fast,
                      int victim)
{
    for (uint64_t step = 1; step < MOST_STEPS; step++) {
        struct schedule s;
        struct schedule_verdict verdict;
        schedule_death(e->over, ranks, algorithm, fast, victim, step, &s);
        if (!explore_one(&s, e->verbose, &verdict) || !verdict.died)
            return;
        atomic_fetch_add(&sum->death_runs, 1);
    }
    fprintf(stderr, "WRONG %s of %d ranks has more than %d steps\n", algorithm, ranks, MOST_STEPS);
    atomic_fetch_add(&sum->bad, 1);
}

static void worker_deaths(const struct explore *e)
{
    long number = 0, mine = atomic_fetch_add(&sum->next, 1);
    for (int ranks = 2; ranks <= e->deaths; ranks++)
        for (int a = 0; tutti_algorithm_name(TUTTI_ALL_REDUCE, a); a++)
            for (int fast = 0; fast < 2; fast++)
                for (int victim = 0; victim < ranks; victim++)
                    if (number++ == mine) {
                        deaths_of(e, ranks, tutti_algorithm_name(TUTTI_ALL_REDUCE, a), fast,
                                  victim);
                        mine = atomic_fetch_add(&sum->next, 1);
                    }
}

/* ---- the program ---------------------------------------------------------------------------- */

static void worker_start(const struct explore *e, void (*work)(const struct explore *))
{
    fflush(NULL);
    const pid_t pid = fork();
    if (pid < 0)
        abort();
    if (pid == 0) {
        work(e);
        fflush(NULL);
        _exit(0);
    }
}

/* Run `work` in all workers; those that found a hang are followed by others. */
static void explore_all(const struct explore *e, void (*work)(const struct explore *))
{
    atomic_store(&sum->next, 0);
    for (long i = 0; i < e->workers; i++)
        worker_start(e, work);
    for (long alive = e->workers; alive > 0; alive--) {
        int status = 0;
        if (wait(&status) < 0)
            abort();
        if (WIFSIGNALED(status)) {
            fprintf(stderr, "WRONG a worker ended by signal %d\n", WTERMSIG(status));
            atomic_fetch_add(&sum->bad, 1);
        } else if (WEXITSTATUS(status) == EXIT_HANG && atomic_load(&sum->hangs) < MOST_HANGS) {
            worker_start(e, work);
            alive++;
        }
    }
}

static int explore_replay(const struct explore *e, const char *text)
{
    unsigned long long seed = 0, index = 0;
    struct schedule s;
    struct schedule_verdict verdict;
    if (sscanf(text, "%llu:%llu", &seed, &index) != 2)
        return fprintf(stderr, "tutti-explore: --replay takes SEED:NUMBER, not \"%s\"\n", text), 2;
    schedule_draw(seed, index, e->over, &s);
    return explore_one(&s, true, &verdict) ? 0 : 1;
}

static int explore_parse(int argc, char **argv, struct explore *e, const char **replay)
{
    static const struct option known[] = {
        {"schedules", required_argument, NULL, 'n'}, {"seed", required_argument, NULL, 's'},
        {"deaths", required_argument, NULL, 'd'},    {"over", required_argument, NULL, 'o'},
        {"workers", required_argument, NULL, 'w'},   {"replay", required_argument, NULL, 'r'},
        {"verbose", no_argument, NULL, 'v'},         {"help", no_argument, NULL, 'h'},
        {"soak", required_argument, NULL, 'S'},      {NULL, 0, NULL, 0},
    };
    long seed = -1;
    enum tutti_result result = TUTTI_OK;
    for (int c; result == TUTTI_OK && (c = getopt_long(argc, argv, "h", known, NULL)) != -1;) {
        if (c == 'n')
            result = tti_parse_int("--schedules", optarg, 0, 10000000, &e->schedules);
        else if (c == 's')
            result = tti_parse_int("--seed", optarg, 0, INT32_MAX, &seed);
        else if (c == 'd')
            result = tti_parse_int("--deaths", optarg, 0, SCHEDULE_RANKS, &e->deaths);
        else if (c == 'w')
            result = tti_parse_int("--workers", optarg, 1, 64, &e->workers);
        else if (c == 'S')
            result = tti_parse_int("--soak", optarg, 1, 1000000, &e->soak);
        else if (c == 'o')
            e->over = optarg;
        else if (c == 'r')
            *replay = optarg;
        else if (c == 'v')
            e->verbose = true;
        else if (c == 'h')
            return fputs(usage, stdout), -1;
        else
            return fputs(usage, stderr), 2;
    }
    if (result != TUTTI_OK)
        return fprintf(stderr, "tutti-explore: %s\n", tutti_last_error()), 2;
    if (optind < argc)
        return fputs(usage, stderr), 2;
    e->seed = seed >= 0 ? (uint64_t)seed : tti_now_ns() / 1000 % 1000000;
    return 0;
}

int main(int argc, char **argv)
{
    struct explore e = {.over = "inproc", .schedules = 300, .workers = 8};
    const char *replay = NULL;
    int wrong = explore_parse(argc, argv, &e, &replay);
    if (wrong)
        return wrong < 0 ? 0 : wrong;
    sum = mmap(NULL, sizeof *sum, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sum == MAP_FAILED)
        return 1;
    setenv("TUTTI_TUNING", "off", 1);
    setenv("TUTTI_DEVICE", "host", 1);
    if (e.soak)
        return tti_soak(e.seed, (double)e.soak);
    if (replay)
        return explore_replay(&e, replay);
    printf("over %s, seed %llu\n", e.over, (unsigned long long)e.seed);
    explore_all(&e, worker_schedules);
    printf("%ld random schedules: %ld with trouble (%ld deaths)\n", atomic_load(&sum->done),
           atomic_load(&sum->trouble), atomic_load(&sum->deaths));
    if (e.deaths)
        explore_all(&e, worker_deaths);
    if (e.deaths)
        printf("%ld deaths at every step of all-reduces of 2 to %ld ranks\n",
               atomic_load(&sum->death_runs), e.deaths);
    printf("%ld ranks had an error, %ld of them name the culprit; the longest took %ld ms\n",
           atomic_load(&sum->errors), atomic_load(&sum->named), atomic_load(&sum->longest_ms));
    printf("%ld hangs, %ld wrong; %ld run again with a longer deadline\n", atomic_load(&sum->hangs),
           atomic_load(&sum->bad), atomic_load(&sum->again));
    return atomic_load(&sum->hangs) || atomic_load(&sum->bad);
}
