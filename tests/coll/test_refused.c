/* Operations in memory that is not mapped, for which the fused path is chosen, refused and left
 * out: those that come again go by the short way of known calls, also where another rank goes the
 * long one, and the fused path is tried again by all ranks at once.
 *
 *     test_refused RANKS */
#include "coll/comm.h"
#include "coll/fused.h"
#include "coll/small_plan.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <stdlib.h>

enum { COUNT = 1024, CALLS = 2000, MOST_RANKS = 8 };

static float value(int rank, int call, size_t i)
{
    return (float)(rank + call % 7) + (float)(i % 5);
}

static bool is_sum(const float *out, int ranks, int call)
{
    for (size_t i = 0; i < COUNT; i++) {
        float sum = 0;
        for (int r = 0; r < ranks; r++)
            sum += value(r, call, i);
        if (out[i] != sum)
            return false;
    }
    return true;
}

static int by_both_ways(tutti_comm *comm, void *argument)
{
    const int rank = tutti_comm_rank(comm), ranks = tutti_comm_size(comm);
    float *in = malloc(COUNT * sizeof *in), *out = malloc(COUNT * sizeof *out);
    const struct tti_operation o = {.collective = TUTTI_ALL_REDUCE,
                                    .type = TUTTI_FLOAT32,
                                    .op = TUTTI_SUM,
                                    .count = COUNT,
                                    .in = in,
                                    .out = out};
    int known = 0, tried = 0;
    (void)argument;
    CHECK(in && out);
    for (int call = 0; call < CALLS; call++) {
        enum tutti_result result = TUTTI_OK;
        for (size_t i = 0; i < COUNT; i++)
            in[i] = value(rank, call, i);
        tried += tti_fused_class(comm, &o)->skip == 0;
        if (rank == 1 && call % 3 == 0) {
            tutti_request *request = NULL;
            CHECK_OK(tutti_all_reduce_async(in, out, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm, NULL,
                                            &request));
            CHECK_OK(tutti_wait(request));
        } else if (tti_call_known(comm, &o, &result)) {
            CHECK_OK(result);
            known++;
        } else {
            CHECK_OK(tutti_all_reduce(in, out, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm));
        }
        CHECK(is_sum(out, ranks, call));
    }
    CHECK(tried > 8 && tried < 20); /* less and less often, and never not at all */
    CHECK(comm->fused[TUTTI_ALL_REDUCE].served == 0);
    CHECK(known > (rank == 1 ? CALLS / 2 : CALLS - 40));
    free(in);
    free(out);
    return 0;
}

/* What becomes mapped is found to be, at the next try. */
static int then_mapped(tutti_comm *comm, void *argument)
{
    void *memory = NULL;
    (void)argument;
    CHECK_OK(tutti_alloc(2 * COUNT * sizeof(float), &memory));
    float *in = memory, *out = in + COUNT;
    for (int call = 0; call < CALLS; call++) {
        for (size_t i = 0; i < COUNT; i++)
            in[i] = value(tutti_comm_rank(comm), call, i);
        CHECK_OK(tutti_all_reduce(in, out, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm));
        CHECK(is_sum(out, tutti_comm_size(comm), call));
    }
    CHECK(comm->fused[TUTTI_ALL_REDUCE].served > CALLS / 2);
    tutti_free(memory);
    return 0;
}

static int everything(tutti_comm *comm, void *argument)
{
    return by_both_ways(comm, argument) || then_mapped(comm, argument);
}

int main(int argc, char **argv)
{
    struct tti_ranks how = {.processes = true, .options = TUTTI_OPTIONS_INIT};
    how.ranks = argc > 1 ? atoi(argv[1]) : 0;
    if (how.ranks < 2 || how.ranks > MOST_RANKS)
        return 2;
    how.options.transports = "shm";
    how.options.timeout_s = 60;
    setenv("TUTTI_FUSED_FROM", "2K", 1); /* not by cost: on any machine */
    const int failed = tti_ranks_run(&how, everything, NULL);
    printf("%s\n", failed ? "FAILED" : "ok");
    return failed ? 1 : 0;
}
