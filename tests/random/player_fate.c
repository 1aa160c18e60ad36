/* A player that is killed, and what becomes of the others (random_nccl --kill): each is told within
 * seconds who died, whatever it waits in, before it takes void data for the call's; then they
 * shrink, and sum without it. */
#include "tests/random/death.h"
#include "tests/random/player.h"
#include "tests/random/programs.h"

#include <setjmp.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Seconds: until all know; and for which a survivor waits for the others. */
enum { FATE_KNOWN = 15, FATE_STAYS = 60 };

static struct fate {
    _Atomic int gave_up[PLAYERS_MOST]; /* pids of those who were told and use nothing any more */
    _Atomic int here[3];               /* survivors, at each place where they meet */
} * fate;
static jmp_buf fate_out; /* of this process's only player, to where it has been told */
static struct {
    const char *call;
    char text[400];
} fate_told;

void fate_prepare(void)
{
    void *memory =
        mmap(NULL, sizeof *fate, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    fate = memory;
    death_prepare();
}

void fate_draw(struct player *p)
{
    struct draw d = draw_from(p->seed, 3000);
    p->victim = draw_int(&d, p->size);
    p->dies_at = 1 + draw_int(&d, p->steps);
}

void fate_step(struct player *p)
{
    if (p->rank == p->victim && p->step == p->dies_at)
        death_soon((useconds_t)draw_below(&p->own, DEATH_MOMENT_US));
}

/* ---- who is told ---------------------------------------------------------------------------- */

void player_told(const char *file, int line, const char *call, const char *why)
{
    if (!player->kills || death_pid() == 0)
        player_fail(file, line, call, why);
    fate_told.call = call;
    snprintf(fate_told.text, sizeof fate_told.text, "%s", why);
    longjmp(fate_out, 1);
}

/* It says who died, or whom that made give up. */
static void fate_judge(struct player *p)
{
    char why[500];
    const double after = death_seconds();
    bool named = death_names(fate_told.text, death_pid());
    for (int r = 0; r < p->size; r++)
        named = named || death_names(fate_told.text, atomic_load(&fate->gave_up[r]));
    player_tell("told after %.1f s by %s: %s", after, fate_told.call, fate_told.text);
    snprintf(why, sizeof why, "%.1f s after the death of %d: %s", after, death_pid(),
             fate_told.text);
    if (!named || after > FATE_KNOWN)
        player_fail(__FILE__, __LINE__, fate_told.call, why);
}

/* Those who live are all at place k. */
static void survivors_meet(const struct player *p, int k)
{
    const double until = programs_clock() + FATE_STAYS;
    atomic_fetch_add(&fate->here[k], 1);
    while (atomic_load(&fate->here[k]) < p->size - 1) {
        if (programs_clock() > until)
            player_fail(__FILE__, __LINE__, "survivors meet", "not all have heard of the death");
        usleep(1000);
    }
}

/* Nothing is open or under way any more but the first communicator. */
static void leave_off(struct player *p)
{
    void *graph = NULL;
    atomic_store(&fate->gave_up[p->rank], getpid());
    for (int k = 0; k < 100 && ncclGroupEnd() != ncclInvalidUsage; k++)
        ;
    for (int k = 0; k < STREAMS; k++)
        if (cu.capture_end(p->streams[k], &graph) == 0 && graph)
            (void)cu.graph_free(graph);
    for (int k = 1; k < BANDS_MOST; k++)
        if (p->bands[k].live && p->bands[k].own >= 0 && p->bands[k].comm)
            OK(ncclCommAbort(p->bands[k].comm));
    if (p->made) /* its parent's error came first */
        OK(ncclCommAbort(p->made));
}

/* The survivors' sum of a number each, and that of nobody else. */
static void sum_without(struct player *p, ncclComm_t comm)
{
    float *value = NULL, sum = 0;
    device_pointer there = 0;
    CU(cu.alloc_host((void **)&value, sizeof *value, 0));
    CU(cu.alloc(&there, sizeof *value));
    *value = (float)(1 << p->rank);
    place_copy((char *)(uintptr_t)there, (char *)value, sizeof *value, p->streams[0]);
    OK(ncclAllReduce((void *)(uintptr_t)there, (void *)(uintptr_t)there, 1, ncclFloat32, ncclSum,
                     comm, p->streams[0]));
    place_copy((char *)value, (char *)(uintptr_t)there, sizeof *value, p->streams[0]);
    CU(cu.finish(p->streams[0]));
    for (int r = 0; r < p->size; r++)
        sum += r == p->victim ? 0 : (float)(1 << r);
    CHECK(*value == sum);
    survivors_meet(p, 1); /* nobody waits for work of this device any more */
    CU(cu.free_host(value));
    CU(cu.free(there));
}

static void go_on_without(struct player *p)
{
    struct band fewer = {.comm = NULL};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    p->kills = false; /* errors from here on are wrong */
    survivors_meet(p, 0);
    OK(ncclCommShrink(p->bands[0].comm, &p->victim, 1, &fewer.comm, &config, NCCL_SHRINK_ABORT));
    band_settle(&p->bands[0]); /* whose error has been seen to */
    band_settle(&fewer);
    sum_without(p, fewer.comm);
    OK(ncclCommDestroy(fewer.comm));
    OK(ncclCommAbort(p->bands[0].comm));
    survivors_meet(p, 2);
}

void fate_run(struct player *p, void (*run)(struct player *p))
{
    if (setjmp(fate_out) == 0) {
        run(p);
        if (p->rank == p->victim) /* it did not come to it in time */
            death_now();
        while (death_pid() == 0)
            usleep(1000);
    } else {
        fate_judge(p);
    }
    leave_off(p);
    go_on_without(p);
}
