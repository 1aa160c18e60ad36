/* Ranks of a process that share a device: one queues operations as fast as it can, the other comes
 * late. The first may not get so far ahead that the driver makes it wait inside, where it might
 * keep out the other, for which its stream waits (coll/gpu/gpu_side.c). On the fake driver, which
 * does that, nothing would end. test_gpu_ahead
 */
#include "coll/gpu/gpu_side.h"
#include "tests/integration/device_calls.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum {
    OPERATIONS = 1200, /* more than a stream of the driver's holds */
    STILL_MS = 300,
    MOST_AHEAD = (TTI_AHEAD_MARKS + 1) * TTI_AHEAD_STEP / TTI_AHEAD_CALL,
};

static _Atomic int queued; /* by rank 0 */

/* Until rank 0 gets no further, or has been slow: then this finds less, but nothing wrong. */
static int late(void)
{
    int seen = -1;
    while (seen != atomic_load(&queued)) {
        seen = atomic_load(&queued);
        usleep(STILL_MS * 1000);
    }
    return seen;
}

static int runs_ahead(tutti_comm *comm, void *argument)
{
    const int rank = tutti_comm_rank(comm);
    int32_t word = rank + 1, sum = 0;
    (void)argument;
    CHECK(device_begin(0) == 0);
    int32_t *in = device_memory(sizeof *in), *out = device_memory(sizeof *out);
    CHECK(in && out);
    CHECK_OK(device_copy(in, &word, sizeof word));
    CHECK_OK(
        tutti_all_reduce_async(in, out, 1, TUTTI_INT32, TUTTI_SUM, comm, device_stream(), NULL));
    CHECK_OK(device_settle());
    if (rank == 1)
        CHECK(late() <= MOST_AHEAD);
    for (int k = 0; k < OPERATIONS; k++) {
        CHECK_OK(tutti_all_reduce_async(in, out, 1, TUTTI_INT32, TUTTI_SUM, comm, device_stream(),
                                        NULL));
        if (rank == 0)
            atomic_fetch_add(&queued, 1);
    }
    CHECK_OK(device_copy(&sum, out, sizeof sum));
    CHECK_OK(device_settle());
    CHECK(sum == 3);
    device_free(in);
    device_free(out);
    return device_end(comm);
}

int main(void)
{
    static const char *const paths[] = {"coupled", "window"};
    struct tti_ranks how = {.ranks = 2, .options = TUTTI_OPTIONS_INIT};
    int bad = 0;
    how.options.timeout_s = 60;
    for (int p = 0; p < 2; p++) {
        atomic_store(&queued, 0);
        bad |= device_ranks("a rank runs ahead", paths[p], how, runs_ahead, NULL);
    }
    return bad != 0;
}
