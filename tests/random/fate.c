/* See fate.h. */
#include "tests/random/fate.h"

#include "base/clock.h"
#include "tests/rank_check.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Seconds: until all know; and for which a survivor stays, so that nobody hears of its end first.
 */
enum { FATE_KNOWN = 15, FATE_STAYS = 90 };

struct fate {
    _Atomic int pid; /* of who died; 0: nobody yet */
    _Atomic uint64_t died_ns;
    _Atomic int over; /* ranks that are through */
};
static struct fate *fate;

void fate_begin(void)
{
    void *memory =
        mmap(NULL, sizeof *fate, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    fate = memory;
}

void fate_die_now(void)
{
    atomic_store(&fate->died_ns, tti_now_ns());
    atomic_store(&fate->pid, getpid());
    (void)kill(getpid(), SIGKILL);
}

static void *fate_thread(void *argument)
{
    const useconds_t *moment = argument;
    usleep(*moment);
    fate_die_now();
    return NULL;
}

void fate_die(struct actor *a)
{
    static useconds_t moment;
    pthread_t thread;
    moment = (useconds_t)draw_below(&a->own, 4000);
    if (pthread_create(&thread, NULL, fate_thread, &moment) != 0)
        abort();
}

int fate_judge(const struct actor *a, bool failed)
{
    const double after = (double)(tti_now_ns() - atomic_load(&fate->died_ns)) / 1e9;
    const char *text = a->why[0] ? a->why : tutti_last_error();
    const int pid = atomic_load(&fate->pid);
    const uint64_t deadline = tti_deadline_in(FATE_STAYS);
    char name[32];
    snprintf(name, sizeof name, ":%d)", pid);
    const bool named = pid > 0 && strstr(text, name);
    if (failed && (!named || after > FATE_KNOWN))
        fprintf(stderr, "seed %llu step %d rank %d: %.1f s after the death of %d: %s\n",
                (unsigned long long)a->seed, a->step, a->rank, after, pid, text);
    /* Others may wait for it where the dead one is no member, and would have to ask it. */
    snprintf(name, sizeof name, "(for %d:%d)", a->rank, pid);
    for (int k = 0; k < RANDOM_FAMILIES && failed; k++)
        if (a->families[k].live && a->families[k].comm)
            tutti_comm_abort(a->families[k].comm, name);
    atomic_fetch_add(&fate->over, 1);
    while (atomic_load(&fate->over) < a->size - 1 && !tti_deadline_passed(deadline))
        usleep(1000);
    return failed && (!named || after > FATE_KNOWN);
}
