/* random_programs: programs drawn from a seed, run by ranks that are threads, processes or both,
 * over transports and with settings that are drawn, too. Each is a process of its own; one that
 * fails or has not ended in time is told with its seed, and run again by it: random_programs --seed
 * S --programs 1 --verbose Read actor.h. */
#include "tests/integration/device_calls.h"
#include "tests/random/actor.h"
#include "tests/random/death.h"
#include "tests/random/fate.h"
#include "tests/random/programs.h"
#include "tests/rank_check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: random_programs [--seed S] [--programs N] [--steps M] [--seconds T] [--device]\n"
    "                       [--threads] [--kill] [--over LIST] [--verbose] [--trace]\n"
    "\n"
    "  --seed S       of the first program (1); the next has S + 1\n"
    "  --programs N   how many (100)\n"
    "  --steps M      of each (40)\n"
    "  --seconds T    no new program after that time\n"
    "  --device       on memory of TUTTI_DEVICE's device (sim), too\n"
    "  --threads      all ranks are threads of one process, as ThreadSanitizer wants them\n"
    "  --kill         one rank of each is killed, all are processes; the others must hear of it\n"
    "  --over LIST    these transports, not drawn ones\n"
    "  --verbose      a line for each\n"
    "  --trace        ... and for each call of each rank\n"
    "\n"
    "Exit status: 0 all went as they must, 1 some did not, 2 wrong usage.\n";

enum { PROGRAM_SECONDS = 240, TEXT = 512 };

/* What a program runs under. */
struct under {
    struct tti_ranks ranks;
    char text[TEXT];
    const struct programs *options;
    uint64_t seed;
};

static const struct setting host_settings[] = {
    {"TUTTI_FAST", {"0"}},
    {"TUTTI_LANES", {"1", "2", "3"}},
    {"TUTTI_REPRODUCIBLE", {"1"}},
    {"TUTTI_FUSED_FROM", {"1", "4K"}},
    {"TUTTI_STAGED_AHEAD", {"0", "1", "16"}},
    {"TUTTI_SIMD", {"baseline", "avx2"}},
    {"TUTTI_SHM_SLOTS", {"3", "8"}},
    {"TUTTI_SHM_SLOT_BYTES", {"4096", "8192"}},
    {"TUTTI_SHM_PIECES", {"narrow", "wide", "around"}},
    {"TUTTI_SHM_REGION_FROM", {"1", "4K", "1T"}},
    {"TUTTI_SHM_CMA", {"0", "1", "2"}},
    {"TUTTI_SHM_CMA_FROM", {"1", "4K"}},
    {"TUTTI_SHM_SHARE_FROM", {"4K", "1T"}},
    {"TUTTI_TCP_SOCKETS", {"2", "3"}},
    {"TUTTI_TCP_ZEROCOPY", {"2"}},
    {"TUTTI_TCP_RESUME", {"1"}},
    {"TUTTI_TCP_CHECKSUM", {"1"}},
    {"TUTTI_TCP_ENCRYPT", {"1"}},
    {"TUTTI_RECORDER", {"0", "4"}},
};
static const char *const transports[] = {NULL, NULL, NULL, "shm", "tcp", "inproc,tcp", "shm,tcp"};

static void under_draw(const struct programs *o, uint64_t seed, struct under *u)
{
    struct draw d = draw_from(seed, 1000);
    const int drawn = draw_int(&d, 5),
              kind = o->threads ? 0
                     : o->kill  ? 4
                                : drawn,
              hosts = 2 + draw_int(&d, 2);
    struct tti_ranks *how = &u->ranks;
    *u = (struct under){.options = o, .seed = seed};
    how->options = (struct tutti_options)TUTTI_OPTIONS_INIT;
    how->options.timeout_s = how->options.init_timeout_s = 60;
    how->ranks = 1 + draw_int(&d, draw_once_in(&d, 4) ? RANDOM_RANKS : 4);
    how->options.transports = transports[draw_below(&d, sizeof transports / sizeof *transports)];
    if (o->threads) /* what orders their accesses is seen there */
        how->options.transports = NULL;
    if (o->over)
        how->options.transports = o->over;
    how->processes = kind != 0;
    how->threads = kind == 1 ? 2 : 1;
    how->hosts = kind == 2 || (kind == 1 && draw_once_in(&d, 2)) ? hosts : 1;
    if (how->processes && how->threads == 1 && how->options.transports &&
        strstr(how->options.transports, "inproc"))
        how->options.transports = NULL;
    if (how->hosts > 1 && how->options.transports && !strstr(how->options.transports, "tcp"))
        how->hosts = 1;
    snprintf(u->text, sizeof u->text, "%d %s", how->ranks,
             !how->processes    ? "threads"
             : how->threads > 1 ? "threads, two a process"
                                : "processes");
    if (how->hosts > 1)
        snprintf(u->text + strlen(u->text), sizeof u->text - strlen(u->text), " on %d hosts",
                 how->hosts);
    if (how->options.transports)
        snprintf(u->text + strlen(u->text), sizeof u->text - strlen(u->text), " over %s",
                 how->options.transports);
    settings_draw(&d, host_settings, sizeof host_settings / sizeof *host_settings, 8, u->text,
                  sizeof u->text);
    if (o->device)
        device_settings_draw(&d, 4, u->text, sizeof u->text);
}

static int rank_act(tutti_comm *comm, void *argument)
{
    const struct under *u = argument;
    struct actor *a = calloc(1, sizeof *a);
    CHECK(a);
    a->seed = u->seed;
    a->rank = tutti_comm_rank(comm);
    a->size = tutti_comm_size(comm);
    a->devices = u->options->device;
    a->unrecorded = strstr(u->text, "TUTTI_RECORDER=0") != NULL;
    a->told = u->options->trace;
    a->all = draw_from(u->seed, 0);
    a->own = draw_from(u->seed, 1 + (uint64_t)a->rank);
    struct family *first = &a->families[0];
    *first = (struct family){.live = true, .size = a->size, .own = a->rank, .comm = comm};
    for (int r = 0; r < a->size; r++)
        first->members[r] = r;
    if (a->devices)
        CHECK(device_begin(a->rank) == 0);
    a->victim = -1;
    if (u->options->kill && a->size > 1) {
        struct draw d = draw_from(u->seed, 2000);
        a->victim = draw_int(&d, a->size);
        a->dies_at = draw_int(&d, u->options->steps);
    }
    int bad = actor_run(a, u->options->steps);
    if (a->victim == a->rank) /* it did not come to it in time */
        death_now();
    if (a->victim >= 0) {
        bad = fate_judge(a, bad);
        free(a);
        return bad;
    }
    if (!bad && a->devices)
        bad = device_end(comm);
    free(a);
    return bad;
}

/* What is said of errors that must come is kept for the case that others come. */
static int hush(int *said)
{
    const int own = dup(STDERR_FILENO);
    FILE *file = tmpfile();
    CHECK(own >= 0 && file && dup2(fileno(file), STDERR_FILENO) >= 0);
    *said = own;
    return 0;
}

static void unhush(int own, bool tell)
{
    char text[4096];
    ssize_t bytes = 0;
    lseek(STDERR_FILENO, 0, SEEK_SET);
    while (tell && (bytes = read(STDERR_FILENO, text, sizeof text)) > 0)
        tell = write(own, text, (size_t)bytes) == bytes;
    (void)dup2(own, STDERR_FILENO);
}

static void program_child(const struct programs *o, uint64_t seed)
{
    struct under u;
    int own = -1;
    under_draw(o, seed, &u);
    fate_begin();
    const bool dies = o->kill && u.ranks.ranks > 1;
    if (dies && hush(&own) != 0)
        _exit(1);
    const int failed = tti_ranks_run(&u.ranks, rank_act, &u) - dies;
    if (dies)
        unhush(own, failed != 0);
    if (failed)
        fprintf(stderr, "program %llu: %d ranks failed: %s\n", (unsigned long long)seed, failed,
                u.text);
    else if (o->verbose)
        printf("program %llu: ok: %s\n", (unsigned long long)seed, u.text);
    fflush(NULL);
    _exit(failed ? 1 : 0);
}

int main(int argc, char **argv)
{
    struct programs p;
    if (!programs_read(argc, argv, "dok", &p)) {
        fputs(usage, stderr);
        return 2;
    }
    setenv("TUTTI_DEVICE", p.device ? "sim" : "host", 0);
    return programs_run(&p, PROGRAM_SECONDS, program_child);
}
