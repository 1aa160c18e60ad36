/* A communicator that ends while a stream still has work of it: work that the stream comes to later
 * finds nothing that is gone. Without a GPU nothing else tells (AddressSanitizer does).
 *     test_gpu_unfinished
 */
#include "base/clock.h"
#include "tests/integration/device_calls.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1000, RANKS = 2 };

static struct {
    struct tti_gpu *gpu;
    tutti_stream stream;
    uint32_t *gate; /* the stream is held up before the communicator's work */
    void *memory;
} seats[RANKS];

static int hold_up(tutti_comm *comm, void *argument)
{
    (void)argument;
    const int rank = tutti_comm_rank(comm);
    CHECK(device_begin(rank) == 0);
    struct tti_gpu *gpu = device_gpu();
    void *gate = NULL;
    CHECK_OK(gpu->ops->alloc(gpu, TTI_MEMORY_PINNED, sizeof(uint32_t), &gate));
    seats[rank].gpu = gpu;
    seats[rank].stream = device_stream();
    seats[rank].gate = gate;
    seats[rank].memory = device_memory(COUNT);
    CHECK(seats[rank].memory);
    *seats[rank].gate = 0;
    CHECK_OK(gpu->ops->stream_wait(gpu, gate, 1, device_stream()));
    CHECK_OK(tutti_all_reduce_async(seats[rank].memory, seats[rank].memory, COUNT, TUTTI_UINT8,
                                    TUTTI_MAX, comm, device_stream(), NULL));
    return 0;
}

int main(void)
{
    struct tti_ranks how = {.ranks = RANKS, .options = TUTTI_OPTIONS_INIT};
    how.options.timeout_s = 1;
    setenv("TUTTI_DEVICE_PATH", "staged", 1);
    int bad = tti_ranks_run(&how, hold_up, NULL);
    for (int r = 0; r < RANKS && !bad; r++) {
        struct tti_gpu *gpu = seats[r].gpu;
        __atomic_store_n(seats[r].gate, 1, __ATOMIC_RELEASE);
        bad |=
            tti_gpu_stream_wait(gpu, seats[r].stream, tti_deadline_in(30), "going on") != TUTTI_OK;
        gpu->ops->free(gpu, seats[r].memory);
        gpu->ops->free(gpu, seats[r].gate);
        gpu->ops->stream_destroy(gpu, seats[r].stream);
        gpu->ops->close(gpu);
    }
    printf("work that a stream comes to when its communicator has ended: %s\n",
           bad ? "FAILED" : "goes on");
    return bad;
}
