/* A rank of a job whose communicators have children: a split, what puts go over, and who is left
 * after the last rank. Each is made by a meeting of its own; test_hosts.py sees to it that the
 * hosts have more than one address, and a name. */
#include "tests/rank_check.h"

#include <stdint.h>

static int sums(tutti_comm *comm)
{
    int32_t sum = 0, one = 1;
    CHECK_OK(tutti_all_reduce(&one, &sum, 1, TUTTI_INT32, TUTTI_SUM, comm));
    CHECK(sum == tutti_comm_size(comm));
    return 0;
}

static int split(tutti_comm *world)
{
    tutti_comm *comm = NULL;
    for (int leader = 0; leader < 2; leader++) { /* the first rank, and one of the last host */
        const int rank = tutti_comm_rank(world);
        CHECK_OK(tutti_comm_split(world, rank % 2, leader ? -rank : rank, &comm));
        if (sums(comm))
            return 1;
        tutti_comm_destroy(comm);
    }
    return 0;
}

static int put(tutti_comm *world)
{
    const int size = tutti_comm_size(world), rank = tutti_comm_rank(world);
    int64_t here[2] = {-1, rank};
    tutti_window *window = NULL;
    CHECK_OK(tutti_window_create(here, sizeof here, world, &window));
    CHECK_OK(tutti_put(&here[1], 1, TUTTI_INT64, (rank + 1) % size, window, 0, 0));
    CHECK_OK(tutti_wait_signal((rank + size - 1) % size, 0, 1, world));
    CHECK(here[0] == (rank + size - 1) % size);
    CHECK_OK(tutti_barrier(world));
    tutti_window_destroy(window);
    return 0;
}

static int shrink(tutti_comm *world)
{
    const int last = tutti_comm_size(world) - 1;
    tutti_comm *comm = NULL;
    if (tutti_comm_rank(world) == last)
        return 0;
    CHECK_OK(tutti_comm_shrink(world, &last, 1, &comm));
    if (sums(comm))
        return 1;
    tutti_comm_destroy(comm);
    return 0;
}

int main(void)
{
    tutti_comm *world = NULL;
    CHECK_OK(tutti_comm_create_from_env(NULL, &world));
    const int failed = sums(world) || split(world) || put(world) || shrink(world);
    tutti_comm_destroy(world);
    return failed;
}
