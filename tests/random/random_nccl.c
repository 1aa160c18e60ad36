/* random_nccl: programs drawn from a seed that know nothing but nccl.h and CUDA's driver, run by
 * ranks that are threads or processes, or several of a thread, on as many devices as are drawn (on
 * the stand-in driver) or there. Each is a process of its own; one that fails or has not ended in
 * time is told with its seed, and run again by it: random_nccl --seed S --programs 1 --trace. Read
 * player.h. */
#include "tests/random/player.h"
#include "tests/random/programs.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const char usage[] =
    "usage: random_nccl [--seed S] [--programs N] [--steps M] [--seconds T] [--threads]\n"
    "                   [--kill] [--verbose] [--trace]\n"
    "\n"
    "  --seed S       of the first program (1); the next has S + 1\n"
    "  --programs N   how many (100)\n"
    "  --steps M      of each (40)\n"
    "  --seconds T    no new program after that time\n"
    "  --threads      all ranks are threads of one process, none has several\n"
    "  --kill         one rank of each is killed, all are processes; the others must hear of it,\n"
    "                 and go on without it\n"
    "  --verbose      a line for each\n"
    "  --trace        ... and for each call of each rank\n"
    "\n"
    "TUTTI_LIBCUDA names the driver (libcuda.so.1), which may be the stand-in.\n"
    "Exit status: 0 all went as they must, 1 some did not, 2 wrong usage.\n";

enum { PROGRAM_SECONDS = 150, IDS = 4096, TEXT = 400 };

static const struct programs *options; /* of this process's program */

/* What the ranks of a program have in common beside NCCL. */
static struct shared {
    pthread_barrier_t all;
    _Atomic bool given[IDS];
    ncclUniqueId ids[IDS];
} * shared;

void player_tell(const char *format, ...)
{
    char text[TEXT];
    va_list arguments;
    if (!options->trace)
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

void hands_meet(void)
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
    while (!atomic_load(&shared->given[number])) {
        hand_pass();
        usleep(100);
    }
    *id = shared->ids[number];
}

/* ---- what a program runs under -------------------------------------------------------------- */

static const struct setting settings[] = {
    {"NCCL_CUMEM_ENABLE", {"0"}},
    {"NCCL_P2P_DISABLE", {"1"}},
    {"NCCL_P2P_DIRECT_DISABLE", {"1"}},
    {"TUTTI_LANES", {"1", "2"}},
};

struct under {
    int ranks, hands; /* fewer: some have several ranks */
    bool threads;     /* hands are threads of one process */
    uint64_t seed;
    char text[TEXT];
};

static void under_draw(uint64_t seed, struct under *u)
{
    struct draw d = draw_from(seed, 1000);
    *u = (struct under){.seed = seed};
    u->ranks = 1 + draw_int(&d, draw_once_in(&d, 3) ? PLAYERS_MOST : 4);
    u->threads = draw_once_in(&d, 2) || options->threads;
    struct draw of_hands = draw_from(seed, 2000);
    u->hands = u->ranks;
    if (options->kill) {
        u->ranks += u->ranks == 1;
        u->hands = u->ranks;
        u->threads = false;
    } else if (u->ranks > 1 && draw_once_in(&of_hands, 3) && !options->threads)
        u->hands = 1 + draw_int(&of_hands, u->ranks - 1);
    snprintf(u->text, sizeof u->text, "%d ranks, %d %s", u->ranks, u->hands,
             u->threads ? "threads" : "processes");
    device_settings_draw(&d, 5, u->text, sizeof u->text);
    settings_draw(&d, settings, sizeof settings / sizeof *settings, 5, u->text, sizeof u->text);
}

/* ---- ranks ---------------------------------------------------------------------------------- */

struct place_of {
    const struct under *under;
    int rank;
};

static void rank_main(void *argument)
{
    const struct place_of *of = argument;
    struct player *p = calloc(1, sizeof *p);
    CHECK(p);
    player = p;
    p->seed = of->under->seed;
    p->rank = of->rank;
    p->size = of->under->ranks;
    p->crowded = of->under->hands < p->size;
    p->threads = of->under->threads || p->crowded;
    p->all = draw_from(p->seed, 0);
    p->own = draw_from(p->seed, 1 + (uint64_t)p->rank);
    p->steps = options->steps;
    p->kills = options->kill;
    if (p->kills)
        fate_draw(p);
    player_begin(p);
    if (p->kills) {
        fate_run(p, player_run);
    } else {
        player_run(p);
        all_meet(); /* nobody waits for work of this device any more */
    }
    player_end(p);
    free(p);
    player = NULL;
}

/* The ranks of a hand: its own number, and on by as many as there are hands. */
static void *hand_main(void *argument)
{
    struct place_of *ranks = argument;
    void *played[PLAYERS_MOST];
    int many = 0;
    for (int r = ranks->rank; r < ranks->under->ranks; r += ranks->under->hands)
        played[many++] = &ranks[r - ranks->rank];
    hand_play(rank_main, played, many);
    return NULL;
}

static int as_threads(struct place_of *ranks, int n)
{
    pthread_t threads[PLAYERS_MOST];
    driver_load();
    for (int r = 0; r < n; r++)
        CHECK(pthread_create(&threads[r], NULL, hand_main, &ranks[r]) == 0);
    for (int r = 0; r < n; r++)
        CHECK(pthread_join(threads[r], NULL) == 0);
    return 0;
}

static int as_processes(struct place_of *ranks, int n)
{
    int failed = 0, status = 0;
    for (int r = 0; r < n; r++) {
        const pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            driver_load();
            hand_main(&ranks[r]);
            exit(0);
        }
    }
    int killed = options->kill;
    for (int r = 0; r < n && failed == 0; r++) {
        CHECK(wait(&status) > 0);
        const bool as_it_must = killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        killed -= as_it_must;
        failed += status != 0 && !as_it_must;
    }
    return failed + killed;
}

static void program_child(const struct programs *p, uint64_t seed)
{
    struct under u;
    struct place_of ranks[PLAYERS_MOST];
    pthread_barrierattr_t among_processes;
    options = p;
    under_draw(seed, &u);
    if (p->kill)
        fate_prepare();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    CHECK(pthread_barrierattr_init(&among_processes) == 0);
    CHECK(pthread_barrierattr_setpshared(&among_processes, PTHREAD_PROCESS_SHARED) == 0);
    CHECK(pthread_barrier_init(&shared->all, &among_processes, (unsigned)u.hands) == 0);
    for (int r = 0; r < u.ranks; r++)
        ranks[r] = (struct place_of){&u, r};
    if (options->trace)
        fprintf(stderr, "program %llu: %s\n", (unsigned long long)seed, u.text);
    const int failed = (u.threads ? as_threads : as_processes)(ranks, u.hands);
    if (failed)
        fprintf(stderr, "program %llu: %s\n", (unsigned long long)seed, u.text);
    else if (options->verbose)
        printf("program %llu: ok: %s\n", (unsigned long long)seed, u.text);
    exit(failed);
}

int main(int argc, char **argv)
{
    struct programs p;
    if (!programs_read(argc, argv, "k", &p) || p.steps >= IDS) {
        fputs(usage, stderr);
        return 2;
    }
    setenv("TUTTI_IFNAME", "lo", 0);
    setenv("TUTTI_TIMEOUT", "60", 0);
    setenv("TUTTI_INIT_TIMEOUT", "60", 0);
    return programs_run(&p, PROGRAM_SECONDS, program_child);
}
