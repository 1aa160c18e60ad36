/* A rank is stopped while it works in the other's memory (SIGSTOP, in mid all-reduce). The survivor
 * gets its error and its buffers back; when the stopped rank continues and finishes its share, it
 * must not show in them.
 *
 * When the signal comes is chance, so it is tried until the rank was cut off in mid-share. */
#include "base/clock.h"
#include "coll/comm.h"
#include "device/memory.h"
#include "tests/integration/ranks.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BYTES = 64 << 20, TRIES = 60 };

struct shared { /* between the processes */
    _Atomic uint64_t cut_off;
};

static void *stop_later(void *argument)
{
    const tutti_comm *comm = argument;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    (void)poll(NULL, 0, 60 + (int)(now.tv_nsec / 1000 % 40));
    kill((pid_t)comm->peers.all[1].public.pid, SIGSTOP);
    return NULL;
}

/* Rank 0: until it fails; then nothing may change. */
static int survive(tutti_comm *comm, const float *in, float *out, struct shared *shared)
{
    pthread_t stopper;
    pid_t other = (pid_t)comm->peers.all[1].public.pid;
    enum tutti_result result = TUTTI_OK;
    float *copy = malloc(BYTES);
    if (!copy || pthread_create(&stopper, NULL, stop_later, comm) != 0)
        return 1;
    while (result == TUTTI_OK)
        result = tutti_all_reduce(in, out, BYTES / sizeof *in, TUTTI_FLOAT32, TUTTI_SUM, comm);
    pthread_join(stopper, NULL);
    int bad = result != TUTTI_ERR_TIMEOUT || !strstr(tutti_last_error(), "rank 1");
    if (bad)
        fprintf(stderr, "a stopped rank gave %d: %s\n", (int)result, tutti_last_error());
    if (tti_region_renewals() > 0)
        tti_store_release(&shared->cut_off, 1);
    memset(out, 0, BYTES); /* it is ours again */
    memcpy(copy, out, BYTES);
    kill(other, SIGCONT);
    (void)poll(NULL, 0, 300);
    if (memcmp(copy, out, BYTES) != 0)
        bad = fprintf(stderr, "the stopped rank wrote into the survivor's buffer\n") > 0;
    free(copy);
    return bad;
}

static int stalled(tutti_comm *comm, void *argument)
{
    float *in = NULL, *out = NULL;
    if (tutti_alloc(BYTES, (void **)&in) != TUTTI_OK ||
        tutti_alloc(BYTES, (void **)&out) != TUTTI_OK)
        return 1;
    for (size_t i = 0; i < BYTES / sizeof *in; i++)
        in[i] = (float)(comm->rank + 1);
    /* The first touch of all pages takes long. */
    enum tutti_result result =
        tutti_all_reduce(in, out, BYTES / sizeof *in, TUTTI_FLOAT32, TUTTI_SUM, comm);
    int bad = result != TUTTI_OK || comm->fused[TUTTI_ALL_REDUCE].served == 0;
    if (comm->rank == 0) /* a short wait, but only for who is stopped: the machine may be busy */
        comm->settings.timeout_s = 0.5;
    if (comm->rank == 0 && !bad)
        bad = survive(comm, in, out, argument);
    while (comm->rank == 1 && result == TUTTI_OK)
        result = tutti_all_reduce(in, out, BYTES / sizeof *in, TUTTI_FLOAT32, TUTTI_SUM, comm);
    tutti_free(in);
    tutti_free(out);
    return bad;
}

int main(void)
{
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct tti_ranks how = {.ranks = 2, .processes = true, .options = TUTTI_OPTIONS_INIT};
    how.options.timeout_s = 30;
    setenv("TUTTI_FUSED_FROM", "2K", 1); /* not by cost: on any machine */
    if (shared == MAP_FAILED)
        return 1;
    for (int i = 0; i < TRIES && !tti_load_acquire(&shared->cut_off); i++)
        if (tti_ranks_run(&how, stalled, shared))
            return 1;
    if (!tti_load_acquire(&shared->cut_off))
        return fprintf(stderr, "never stopped in mid-share, in %d tries\n", TRIES), 1;
    printf("a rank that stopped in mid-share was cut off\n");
    return 0;
}
