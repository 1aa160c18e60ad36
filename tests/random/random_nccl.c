/* random_nccl: programs drawn from a seed that know nothing but nccl.h and CUDA's driver, run by
 * ranks that are threads or processes, on as many devices as are drawn (on the stand-in driver) or
 * there. Each is a process of its own; one that fails or has not ended in time is told with its
 * seed, and run again by it: random_nccl --seed S --programs 1 --trace. Read player.h. */
#include "tests/random/player.h"

#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char usage[] =
    "usage: random_nccl [--seed S] [--programs N] [--steps M] [--seconds T] [--threads]\n"
    "                   [--verbose] [--trace]\n"
    "\n"
    "  --seed S       of the first program (1); the next has S + 1\n"
    "  --programs N   how many (100)\n"
    "  --steps M      of each (40)\n"
    "  --seconds T    no new program after that time\n"
    "  --threads      all ranks are threads of one process\n"
    "  --verbose      a line for each\n"
    "  --trace        ... and for each call of each rank\n"
    "\n"
    "TUTTI_LIBCUDA names the driver (libcuda.so.1), which may be the stand-in.\n"
    "Exit status: 0 all went as they must, 1 some did not, 2 wrong usage.\n";

enum { PROGRAM_SECONDS = 150, IDS = 4096, TEXT = 400 };

static struct options {
    uint64_t seed;
    int programs, steps;
    double seconds;
    bool threads, verbose, trace;
} options = {.seed = 1, .programs = 100, .steps = 40, .seconds = 1e9};

/* What the ranks of a program have in common beside NCCL. */
static struct shared {
    pthread_barrier_t all;
    _Atomic bool given[IDS];
    ncclUniqueId ids[IDS];
} * shared;

static _Thread_local struct player *player; /* of this thread */

void player_tell(const char *format, ...)
{
    char text[TEXT];
    va_list arguments;
    if (!options.trace)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "step %d rank %d: %s\n", player->step, player->rank, text);
}

void player_fail(const char *file, int line, const char *what, const char *why)
{
    if (player)
        fprintf(stderr, "seed %llu step %d rank %d: ", (unsigned long long)player->seed,
                player->step, player->rank);
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, what, why);
    _exit(1);
}

void all_meet(void)
{
    (void)pthread_barrier_wait(&shared->all);
}

void id_give(unsigned number, const ncclUniqueId *id)
{
    CHECK(number < IDS);
    shared->ids[number] = *id;
    atomic_store(&shared->given[number], true);
}

void id_take(unsigned number, ncclUniqueId *id)
{
    CHECK(number < IDS);
    while (!atomic_load(&shared->given[number]))
        usleep(100);
    *id = shared->ids[number];
}

/* ---- what a program runs under -------------------------------------------------------------- */

static const struct setting {
    const char *name;
    const char *values[4];
} settings[] = {
    {"TUTTI_SIM_DEVICES", {"2", "3", "8"}},
    {"TUTTI_DEVICE_PATH", {"staged", "window", "coupled"}},
    {"TUTTI_DEVICE_MEMORY", {"1900K", "4M"}},
    {"TUTTI_DEVICE_CHUNK", {"8K", "64K"}},
    {"TUTTI_DEVICE_BUFFERS", {"window"}},
    {"TUTTI_DEVICE_MAP", {"1", "64K"}},
    {"TUTTI_DEVICE_LEVELS", {"0", "1"}},
    {"NCCL_CUMEM_ENABLE", {"0"}},
    {"NCCL_P2P_DISABLE", {"1"}},
    {"NCCL_P2P_DIRECT_DISABLE", {"1"}},
    {"TUTTI_LANES", {"1", "2"}},
};

struct under {
    int ranks;
    bool threads;
    uint64_t seed;
    char text[TEXT];
};

static void under_draw(uint64_t seed, struct under *u)
{
    struct draw d = draw_from(seed, 1000);
    *u = (struct under){.seed = seed};
    u->ranks = 1 + draw_int(&d, draw_once_in(&d, 3) ? PLAYERS_MOST : 4);
    u->threads = draw_once_in(&d, 2) || options.threads;
    snprintf(u->text, sizeof u->text, "%d %s", u->ranks, u->threads ? "threads" : "processes");
    for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) {
        int values = 0;
        while (values < 4 && settings[k].values[values])
            values++;
        const char *value = settings[k].values[draw_int(&d, values)];
        if (!draw_once_in(&d, 5) || getenv(settings[k].name))
            continue;
        const size_t used = strlen(u->text);
        setenv(settings[k].name, value, 1);
        snprintf(u->text + used, sizeof u->text - used, " %s=%s", settings[k].name, value);
    }
}

/* ---- ranks ---------------------------------------------------------------------------------- */

struct place_of {
    const struct under *under;
    int rank;
};

static void *rank_main(void *argument)
{
    const struct place_of *of = argument;
    struct player *p = calloc(1, sizeof *p);
    CHECK(p);
    player = p;
    p->seed = of->under->seed;
    p->rank = of->rank;
    p->size = of->under->ranks;
    p->threads = of->under->threads;
    p->all = draw_from(p->seed, 0);
    p->own = draw_from(p->seed, 1 + (uint64_t)p->rank);
    player_begin(p);
    player_run(p, options.steps);
    player_end(p);
    free(p);
    player = NULL;
    return NULL;
}

static int as_threads(struct place_of *ranks, int n)
{
    pthread_t threads[PLAYERS_MOST];
    driver_load();
    for (int r = 0; r < n; r++)
        CHECK(pthread_create(&threads[r], NULL, rank_main, &ranks[r]) == 0);
    for (int r = 0; r < n; r++)
        CHECK(pthread_join(threads[r], NULL) == 0);
    return 0;
}

static int as_processes(struct place_of *ranks, int n)
{
    int failed = 0, status = 0;
    for (int r = 0; r < n; r++)
        if (fork() == 0) {
            driver_load();
            rank_main(&ranks[r]);
            exit(0);
        }
    for (int r = 0; r < n && failed == 0; r++)
        failed += wait(&status) < 0 || status != 0;
    return failed;
}

/* In a process of its own, which is its process group's leader. */
static void program_child(uint64_t seed)
{
    struct under u;
    struct place_of ranks[PLAYERS_MOST];
    pthread_barrierattr_t among_processes;
    setpgid(0, 0);
    under_draw(seed, &u);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    CHECK(pthread_barrierattr_init(&among_processes) == 0);
    CHECK(pthread_barrierattr_setpshared(&among_processes, PTHREAD_PROCESS_SHARED) == 0);
    CHECK(pthread_barrier_init(&shared->all, &among_processes, (unsigned)u.ranks) == 0);
    for (int r = 0; r < u.ranks; r++)
        ranks[r] = (struct place_of){&u, r};
    if (options.trace)
        fprintf(stderr, "program %llu: %s\n", (unsigned long long)seed, u.text);
    const int failed = (u.threads ? as_threads : as_processes)(ranks, u.ranks);
    if (failed)
        fprintf(stderr, "program %llu: %s\n", (unsigned long long)seed, u.text);
    else if (options.verbose)
        printf("program %llu: ok: %s\n", (unsigned long long)seed, u.text);
    exit(failed);
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Returns whether it failed. */
static bool program_run(uint64_t seed)
{
    fflush(NULL);
    const double until = seconds_now() + PROGRAM_SECONDS;
    const pid_t child = fork();
    int status = 0;
    CHECK(child >= 0);
    if (child == 0)
        program_child(seed);
    (void)setpgid(child, child);
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (seconds_now() > until) {
            fprintf(stderr, "program %llu: not over after %d s\n", (unsigned long long)seed,
                    PROGRAM_SECONDS);
            kill(-child, SIGABRT);
            waitpid(child, &status, 0);
            return true;
        }
        usleep(2000);
    }
    (void)kill(-child, SIGKILL); /* ranks that waited for one that failed */
    if (status != 0)
        fprintf(stderr, "program %llu: FAILED (status %#x)\n", (unsigned long long)seed,
                (unsigned)status);
    return status != 0;
}

static bool options_read(int argc, char **argv)
{
    static const struct option names[] = {
        {"seed", required_argument, NULL, 's'},  {"programs", required_argument, NULL, 'n'},
        {"steps", required_argument, NULL, 'm'}, {"seconds", required_argument, NULL, 't'},
        {"threads", no_argument, NULL, 'p'},     {"verbose", no_argument, NULL, 'v'},
        {"trace", no_argument, NULL, 'x'},       {NULL, 0, NULL, 0},
    };
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (c) {
        case 's':
            options.seed = strtoull(optarg, NULL, 10);
            break;
        case 'n':
            options.programs = atoi(optarg);
            break;
        case 'm':
            options.steps = atoi(optarg);
            break;
        case 't':
            options.seconds = strtod(optarg, NULL);
            break;
        case 'p':
            options.threads = true;
            break;
        case 'v':
            options.verbose = true;
            break;
        case 'x':
            options.trace = true;
            break;
        default:
            return false;
        }
    }
    return optind == argc && options.programs > 0 && options.steps > 0 && options.steps < IDS;
}

int main(int argc, char **argv)
{
    if (!options_read(argc, argv)) {
        fputs(usage, stderr);
        return 2;
    }
    setenv("TUTTI_IFNAME", "lo", 0);
    setenv("TUTTI_TIMEOUT", "60", 0);
    setenv("TUTTI_INIT_TIMEOUT", "60", 0);
    const double until = seconds_now() + options.seconds;
    int done = 0, failed = 0;
    for (; done < options.programs && seconds_now() < until; done++)
        failed += program_run(options.seed + (uint64_t)done);
    printf("%d programs of %d steps, seeds %llu to %llu: %d failed\n", done, options.steps,
           (unsigned long long)options.seed,
           (unsigned long long)options.seed + (unsigned long long)done - 1, failed);
    return failed ? 1 : 0;
}
