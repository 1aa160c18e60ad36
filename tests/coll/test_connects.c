/* Ranks that have not talked yet. Two have all their messages in one group, two make a call after
 * another: the first two must not wait for connections to the others, who are still in their first
 * call, before they move what these wait for there. Four ranks, as of tti_ranks_flags. */
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

enum { COUNT = 5000, SECONDS = 20 };

static void fill(int *values, int from, int to)
{
    for (int i = 0; i < COUNT; i++)
        values[i] = from * 100000 + to * 10000 + i;
}

static int check(const int *values, int from, int to)
{
    for (int i = 0; i < COUNT; i++)
        CHECK(values[i] == from * 100000 + to * 10000 + i);
    return 0;
}

/* 2 -> 1 and 0 -> 3 come first, then 0 -> 1 and 2 -> 3. */
static int connects(tutti_comm *comm, void *argument)
{
    static _Thread_local int values[2][COUNT];
    const int rank = tutti_comm_rank(comm);
    (void)argument;
    if (rank % 2 == 0) {
        const int first = rank == 0 ? 3 : 1, second = rank == 0 ? 1 : 3;
        fill(values[0], rank, first);
        fill(values[1], rank, second);
        CHECK_OK(tutti_group_start());
        CHECK_OK(tutti_send(values[0], COUNT, TUTTI_INT32, first, comm));
        CHECK_OK(tutti_send(values[1], COUNT, TUTTI_INT32, second, comm));
        CHECK_OK(tutti_group_end());
        return 0;
    }
    const int first = rank == 1 ? 2 : 0, second = rank == 1 ? 0 : 2;
    CHECK_OK(tutti_recv(values[0], COUNT, TUTTI_INT32, first, comm));
    CHECK_OK(tutti_recv(values[1], COUNT, TUTTI_INT32, second, comm));
    return check(values[0], first, rank) || check(values[1], second, rank);
}

int main(int argc, char **argv)
{
    struct tti_ranks how = {.ranks = 4, .options = TUTTI_OPTIONS_INIT};
    how.options.timeout_s = SECONDS;
    if (!tti_ranks_flags(&how, argc, argv))
        return 2;
    return tti_ranks_test(&how, "messages in one group, and one after another", connects, NULL);
}
