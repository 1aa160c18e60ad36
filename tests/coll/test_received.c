/* By which stores the executor's messages are copied to where they are received, over shm: in
 * clusters, what several lanes bring is fetched where it is written, if it fits into the caches
 * (decisions.md); all else goes by strings of bytes. Counted by a copy that stands in for the
 * kernels'.
 *
 * Ranks are threads, on a machine with the caches of a cluster, whatever the real one has. */
#include "coll/comm.h"
#include "coll/select.h"
#include "device/cpu/kernels.h"
#include "device/cpu_caches.h"
#include "tests/integration/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SECOND = 1 << 20, LAST = 32 << 20, MOST = 16 << 20 };

static bool meshed;                  /* the machine */
static _Thread_local size_t fetched; /* bytes */

bool __wrap_tti_cpu_meshed(void);
void __wrap_tti_cpu_caches_usable(const char *root, uint64_t cache[3]);
size_t __wrap_tti_cpu_second_cache(void);
size_t __wrap_tti_cpu_last_cache(void);
const struct tti_kernels *__real_tti_kernels_now(void);
const struct tti_kernels *__wrap_tti_kernels_now(void);

bool __wrap_tti_cpu_meshed(void)
{
    return meshed;
}

void __wrap_tti_cpu_caches_usable(const char *root, uint64_t cache[3])
{
    (void)root;
    cache[0] = 48 << 10;
    cache[1] = SECOND;
    cache[2] = LAST;
}

size_t __wrap_tti_cpu_second_cache(void)
{
    return SECOND;
}

size_t __wrap_tti_cpu_last_cache(void)
{
    return LAST;
}

static void copy_lines(void *dst, const void *src, size_t bytes)
{
    fetched += bytes;
    __real_tti_kernels_now()->copy_lines(dst, src, bytes);
}

const struct tti_kernels *__wrap_tti_kernels_now(void)
{
    static _Thread_local struct tti_kernels kernels;
    kernels = *__real_tti_kernels_now();
    kernels.copy_lines = copy_lines;
    return &kernels;
}

/* The collective goes by a plan of so many lanes, as long as `ways` is there. */
static bool take(tutti_comm *comm, enum tutti_collective collective, const char *algorithm,
                 size_t bytes, int lanes, struct tti_ways *ways)
{
    if (tti_select_ways(comm, collective, bytes, TUTTI_UINT8, false, ways) != TUTTI_OK)
        return false;
    for (int w = 0; w < ways->count; w++)
        if (ways->way[w].path == TTI_PATH_PLAN && ways->way[w].spec.lanes == lanes &&
            strcmp(ways->way[w].algorithm->name, algorithm) == 0) {
            tti_select_try(comm, &ways->way[w]);
            return true;
        }
    return false;
}

static int receives(tutti_comm *comm, unsigned char *x, size_t bytes, int lanes, size_t wanted)
{
    struct tti_ways ways;
    memset(x, comm->rank == 0 ? 7 : 0, bytes);
    fetched = 0;
    if (!take(comm, TUTTI_BROADCAST, "chain", bytes, lanes, &ways))
        return fprintf(stderr, "no chain of %d lanes\n", lanes), 1;
    const enum tutti_result result = tutti_broadcast(x, x, bytes, TUTTI_UINT8, 0, comm);
    tti_select_try(comm, NULL);
    if (result != TUTTI_OK)
        return fprintf(stderr, "%zu bytes by %d lanes: %s\n", bytes, lanes, tutti_last_error()), 1;
    if (x[0] != 7 || memcmp(x, x + 1, bytes - 1) != 0)
        return fprintf(stderr, "%zu bytes by %d lanes: others than were sent\n", bytes, lanes), 1;
    if (fetched != (comm->rank == 1 ? wanted : 0))
        return fprintf(stderr, "%zu bytes by %d lanes: %zu went by stores that fetch, not %zu\n",
                       bytes, lanes, fetched, wanted),
               1;
    return 0;
}

/* An all-gather of two ranks touches six times a block, of which half count for the caches. */
static int gathers(tutti_comm *comm, unsigned char *x, size_t block, bool wanted)
{
    struct tti_ways ways;
    memset(x, comm->rank + 1, block);
    fetched = 0;
    if (!take(comm, TUTTI_ALL_GATHER, "ring", block, 2, &ways))
        return fprintf(stderr, "no ring of 2 lanes\n"), 1;
    const enum tutti_result result = tutti_all_gather(x, x + block, block, TUTTI_UINT8, comm);
    tti_select_try(comm, NULL);
    if (result != TUTTI_OK)
        return fprintf(stderr, "all_gather of %zu bytes: %s\n", block, tutti_last_error()), 1;
    if (fetched != (wanted ? block : 0))
        return fprintf(stderr, "all_gather of %zu bytes: %zu went by stores that fetch\n", block,
                       fetched),
               1;
    return 0;
}

/* A broadcast of two ranks touches four times its bytes, and two second-level caches are enough. */
static int rank(tutti_comm *comm, void *argument)
{
    static const struct {
        size_t bytes;
        int lanes;
        bool fetches;
    } cases[] = {
        {SECOND / 4, 2, false}, /* stays in the cores' own caches */
        {SECOND, 1, false},     /* one ring is smaller than such a cache */
        {SECOND, 2, true},      /* two are not */
        {MOST, 2, false},       /* goes around the caches */
        {4 * SECOND, 2, true},  /* no more, although the one before did */
    };
    unsigned char *x = malloc(3 * MOST);
    int failed = !x;
    (void)argument;
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !failed; i++)
        failed = receives(comm, x, cases[i].bytes, cases[i].lanes,
                          cases[i].fetches && !meshed ? cases[i].bytes : 0);
    if (!failed)
        failed = gathers(comm, x, LAST / 4, !meshed) + gathers(comm, x, LAST / 2, false);
    free(x);
    return failed;
}

int main(void)
{
    struct tti_ranks how = {.ranks = 2, .options = TUTTI_OPTIONS_INIT};
    int failed = 0;
    how.options.transports = "shm";
    setenv("TUTTI_SHM_CMA", "0", 1); /* which it is in clusters */
    for (int kind = 0; kind < 2; kind++) {
        meshed = kind;
        failed += tti_ranks_run(&how, rank, NULL);
    }
    printf("copies of what is received: %s\n", failed ? "FAILED" : "as they should be");
    return failed ? 1 : 0;
}
