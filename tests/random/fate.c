/* See fate.h. */
#include "tests/random/fate.h"

#include "base/clock.h"
#include "tests/random/death.h"
#include "tests/rank_check.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Seconds: until all know; and for which a survivor stays, so that nobody hears of its end first.
 */
enum { FATE_KNOWN = 15, FATE_STAYS = 90 };

static _Atomic int *fate_over; /* ranks that are through */

void fate_begin(void)
{
    void *memory =
        mmap(NULL, sizeof *fate_over, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    fate_over = memory;
    death_prepare();
}

int fate_judge(const struct actor *a, bool failed)
{
    const double after = death_seconds();
    const char *text = a->why[0] ? a->why : tutti_last_error();
    const int pid = death_pid();
    const uint64_t deadline = tti_deadline_in(FATE_STAYS);
    char name[32];
    const bool named = death_names(text, pid);
    if (failed && (!named || after > FATE_KNOWN))
        fprintf(stderr, "seed %llu step %d rank %d: %.1f s after the death of %d: %s\n",
                (unsigned long long)a->seed, a->step, a->rank, after, pid, text);
    /* Others may wait for it where the dead one is no member, and would have to ask it. */
    snprintf(name, sizeof name, "(for %d:%d)", a->rank, pid);
    for (int k = 0; k < RANDOM_FAMILIES && failed; k++)
        if (a->families[k].live && a->families[k].comm)
            tutti_comm_abort(a->families[k].comm, name);
    atomic_fetch_add(fate_over, 1);
    while (atomic_load(fate_over) < a->size - 1 && !tti_deadline_passed(deadline))
        usleep(1000);
    return failed && (!named || after > FATE_KNOWN);
}
