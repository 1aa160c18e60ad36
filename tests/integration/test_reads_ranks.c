/* Ranks read each other's memory where all of them may: all know it, and by the same answer, before
 * anything was tried. */
#include "coll/comm.h"
#include "tests/integration/ranks.h"
#include "transport/shm/shm.h"

#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *name, *first, *others; /* TUTTI_SHM_CMA */
    bool reads;
} cases[] = {{"all may", "2", "2", true},
             {"one may not", "0", "2", false},
             {"the others may not", "2", "0", false},
             {"none may", "0", "0", false}};
static int now;

static void prepare(int rank)
{
    setenv("TUTTI_SHM_CMA", rank == 0 ? cases[now].first : cases[now].others, 1);
}

static int check(tutti_comm *comm, void *argument)
{
    (void)argument;
    const bool may = tti_shm_yama_lets("/proc") && tti_shm_call_passes();
    return (comm->peers.reads != 0) == (cases[now].reads && may) ? 0 : 1;
}

int main(void)
{
    struct tti_ranks how = {
        .ranks = 3, .processes = true, .options = TUTTI_OPTIONS_INIT, .prepare = prepare};
    int failed = 0;
    how.options.transports = "shm";
    for (; now < (int)(sizeof cases / sizeof cases[0]) && !failed; now++) {
        failed = tti_ranks_run(&how, check, NULL);
        printf("%s: %s\n", cases[now].name, failed ? "FAILED" : "ok");
    }
    return failed ? 1 : 0;
}
