/* Collectives on blocks of different sizes: wrong calls, ranks that do not agree, a rank that does
 * not call. Ranks as in test_semantics. */
#include "coll/comm.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 16 };

/* `count` elements for each rank. */
static void alike(size_t *counts, int size, size_t count)
{
    for (int k = 0; k < size; k++)
        counts[k] = count;
}

static int wrong_arguments(tutti_comm *comm, void *argument)
{
    const int size = tutti_comm_size(comm);
    int32_t in[64] = {0}, out[64] = {0};
    size_t counts[RANKS];
    (void)argument;
    alike(counts, size, 2);
    CHECK(tutti_all_gather_v(in, out, NULL, NULL, TUTTI_INT32, comm) == TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "all_gather_v: counts is NULL"));
    CHECK(tutti_all_to_all_v(in, counts, NULL, out, NULL, NULL, TUTTI_INT32, comm) ==
          TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "all_to_all_v: out_counts is NULL"));
    CHECK(tutti_all_gather_v(NULL, out, counts, NULL, TUTTI_INT32, comm) == TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "the in buffer is NULL"));
    CHECK(tutti_all_gather_v(in, out, counts, NULL, (enum tutti_type)99, comm) ==
          TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "all_gather_v: 99 is no"));
    CHECK(tutti_reduce_scatter_v(in, out, counts, NULL, TUTTI_INT32, (enum tutti_op)77, comm) ==
          TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "reduce_scatter_v: 77 is no operator"));
    CHECK(tutti_gather_v(in, 2, out, counts, NULL, TUTTI_INT32, size, comm) == TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "gather_v: root"));
    CHECK(tutti_all_gather_v(in, out, counts, NULL, TUTTI_INT32, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "all_gather_v: comm is NULL"));
    CHECK(tutti_all_gather_v_async(in, out, counts, NULL, TUTTI_INT32, comm, NULL, NULL) ==
          TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "request is NULL"));
    return 0;
}

static int wrong_places(tutti_comm *comm, void *argument)
{
    const int size = tutti_comm_size(comm), rank = tutti_comm_rank(comm);
    int32_t in[64] = {0}, out[64] = {0};
    size_t counts[RANKS], more[RANKS], displs[RANKS];
    (void)argument;
    alike(counts, size, 2);
    alike(more, size, 2);
    for (int k = 0; k < size; k++)
        displs[k] = (size_t)k; /* each block begins in the one before */
    CHECK(tutti_all_to_all_v(in, counts, NULL, in, counts, NULL, TUTTI_INT32, comm) ==
          TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "overlap"));
    CHECK(tutti_all_gather_v(out + 2 * rank + 1, out, counts, NULL, TUTTI_INT32, comm) ==
          TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "not as in place demands"));
    if (size > 1) {
        CHECK(tutti_all_gather_v(in, out, counts, displs, TUTTI_INT32, comm) == TUTTI_ERR_ARGUMENT);
        CHECK(strstr(tutti_last_error(), "blocks of out overlap"));
    }
    more[rank] = 3;
    CHECK(tutti_all_to_all_v(in, more, NULL, out, counts, NULL, TUTTI_INT32, comm) ==
          TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "gives itself 3 elements and expects 2"));
    counts[size - 1] = SIZE_MAX / 4;
    CHECK(tutti_reduce_scatter_v(in, out, counts, NULL, TUTTI_INT32, TUTTI_SUM, comm) ==
          TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "ends beyond what memory can hold"));
    return 0;
}

/* One of a group's calls is refused: the others run. */
static int refused_in_group(tutti_comm *comm, void *argument)
{
    int32_t in[64] = {0}, out[64] = {0}, one = 1, sum = 0;
    size_t counts[RANKS] = {0};
    (void)argument;
    CHECK_OK(tutti_group_start());
    CHECK_OK(tutti_all_reduce(&one, &sum, 1, TUTTI_INT32, TUTTI_SUM, comm));
    CHECK(tutti_all_to_all_v(in, NULL, NULL, out, counts, NULL, TUTTI_INT32, comm) ==
          TUTTI_ERR_ARGUMENT);
    CHECK_OK(tutti_group_end());
    CHECK(sum == tutti_comm_size(comm));
    return 0;
}

/* Blocks of both buffers between each other, and an empty one in the midst of another, lie apart.
 */
static int interleaved(tutti_comm *comm, void *argument)
{
    const int size = tutti_comm_size(comm), rank = tutti_comm_rank(comm);
    int32_t both[4 * RANKS];
    size_t counts[RANKS], in_displs[RANKS], out_displs[RANKS];
    (void)argument;
    alike(counts, size, 2);
    for (int k = 0; k < size; k++) {
        in_displs[k] = 4 * (size_t)k;
        out_displs[k] = 4 * (size_t)k + 2;
        both[4 * k] = both[4 * k + 1] = 10 * rank + k;
    }
    CHECK_OK(
        tutti_all_to_all_v(both, counts, in_displs, both, counts, out_displs, TUTTI_INT32, comm));
    for (int k = 0; k < size; k++)
        CHECK(both[4 * k] == 10 * rank + k && both[4 * k + 3] == 10 * k + rank);
    /* Each has something for itself alone; others' empty blocks of `out` begin where that lies. */
    alike(counts, size, 0);
    alike(out_displs, size, 0);
    counts[rank] = 1;
    in_displs[rank] = 0;
    out_displs[rank] = 1;
    both[1] = -1;
    CHECK_OK(
        tutti_all_to_all_v(both, counts, in_displs, both, counts, out_displs, TUTTI_INT32, comm));
    CHECK(both[0] == 10 * rank && both[1] == 10 * rank);
    return 0;
}

/* Each rank is a root of its own, or waits for one: all of it is refused before anything is sent.
 */
static int wrong_at_a_root(tutti_comm *comm, void *argument)
{
    const int size = tutti_comm_size(comm), rank = tutti_comm_rank(comm);
    int32_t in[64] = {0}, out[64] = {0};
    size_t counts[RANKS], displs[RANKS];
    (void)argument;
    alike(counts, size, 2);
    for (int k = 0; k < size; k++)
        displs[k] = (size_t)k; /* each block begins in the one before */
    CHECK(tutti_gather_v(out + 2 * rank + 1, 2, out, counts, NULL, TUTTI_INT32, rank, comm) ==
          TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "gather_v") &&
          strstr(tutti_last_error(), "not as in place demands"));
    CHECK(tutti_scatter_v(in, counts, NULL, in + 2 * rank + 1, 2, TUTTI_INT32, rank, comm) ==
          TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "scatter_v") &&
          strstr(tutti_last_error(), "not as in place demands"));
    CHECK(tutti_gather_v(in, 3, out, counts, NULL, TUTTI_INT32, rank, comm) == TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "gives itself 3 elements and expects 2"));
    CHECK(tutti_scatter_v(in, counts, NULL, out, 3, TUTTI_INT32, rank, comm) == TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "gives itself 2 elements and expects 3"));
    CHECK(tutti_gather_v(NULL, 2, out, counts, NULL, TUTTI_INT32, rank, comm) ==
          TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "the in buffer is NULL"));
    CHECK(tutti_scatter_v(in, counts, NULL, NULL, 2, TUTTI_INT32, rank, comm) ==
          TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "the out buffer is NULL"));
    if (size > 1) {
        const int other = (rank + 1) % size;
        CHECK(tutti_gather_v(in, 2, out, counts, displs, TUTTI_INT32, rank, comm) ==
              TUTTI_ERR_ARGUMENT);
        CHECK(strstr(tutti_last_error(), "blocks of out overlap"));
        CHECK(tutti_gather_v(NULL, 2, NULL, NULL, NULL, TUTTI_INT32, other, comm) ==
              TUTTI_ERR_ARGUMENT);
        CHECK(strstr(tutti_last_error(), "the in buffer is NULL"));
        CHECK(tutti_scatter_v(NULL, NULL, NULL, NULL, 2, TUTTI_INT32, other, comm) ==
              TUTTI_ERR_ARGUMENT);
        CHECK(strstr(tutti_last_error(), "the out buffer is NULL"));
        CHECK(tutti_gather_v(in, SIZE_MAX / 4, NULL, NULL, NULL, TUTTI_INT32, other, comm) ==
              TUTTI_ERR_ARGUMENT);
        CHECK(strstr(tutti_last_error(), "ends beyond what memory can hold"));
    }
    counts[size - 1] = SIZE_MAX / 4;
    CHECK(tutti_scatter_v(in, counts, NULL, out, counts[rank], TUTTI_INT32, rank, comm) ==
          TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "ends beyond what memory can hold"));
    return 0;
}

/* Blocks in the order of no ranks, read by several, between those of the other buffer, or empty. */
static int unusual_at_a_root(tutti_comm *comm, void *argument)
{
    const int size = tutti_comm_size(comm), rank = tutti_comm_rank(comm);
    (void)argument;
    for (int root = 0; root < size; root++) {
        int32_t all[4 * RANKS] = {0}, mine[2] = {10 * rank, 10 * rank + 1};
        size_t counts[RANKS], backwards[RANKS], apart[RANKS], same[RANKS] = {0};
        alike(counts, size, 2);
        for (int k = 0; k < size; k++) {
            backwards[k] = 2 * (size_t)(size - 1 - k);
            apart[k] = 4 * (size_t)k;
        }
        CHECK_OK(tutti_gather_v(mine, 2, all, counts, backwards, TUTTI_INT32, root, comm));
        for (int k = 0; k < size && rank == root; k++)
            CHECK(all[backwards[k]] == 10 * k && all[backwards[k] + 1] == 10 * k + 1);
        all[0] = 77 + root;
        CHECK_OK(tutti_scatter_v(all, counts, same, mine, 2, TUTTI_INT32, root, comm));
        CHECK(mine[0] == 77 + root);
        for (int k = 0; k < size; k++)
            all[4 * k] = all[4 * k + 1] = 100 * root + k;
        CHECK_OK(
            tutti_scatter_v(all, counts, apart, all + 4 * rank + 2, 2, TUTTI_INT32, root, comm));
        CHECK(all[4 * rank + 2] == 100 * root + rank && all[4 * rank + 3] == 100 * root + rank);
        counts[root] = 0; /* so that its own buffer need not be there */
        for (int k = 0; k < size; k++)
            all[4 * k] = -1;
        mine[0] = mine[1] = 7 * rank;
        CHECK_OK(tutti_gather_v(rank == root ? NULL : mine, counts[rank], all, counts, apart,
                                TUTTI_INT32, root, comm));
        for (int k = 0; k < size && rank == root; k++)
            CHECK(all[4 * k] == (k == root ? -1 : 7 * k));
    }
    return 0;
}

/* ... is legal, without buffers, too. */
static int nothing(tutti_comm *comm, void *argument)
{
    size_t counts[RANKS] = {0};
    tutti_request *request = NULL;
    (void)argument;
    CHECK_OK(tutti_all_to_all_v(NULL, counts, NULL, NULL, counts, NULL, TUTTI_INT32, comm));
    CHECK_OK(tutti_reduce_scatter_v(NULL, NULL, counts, NULL, TUTTI_INT32, TUTTI_SUM, comm));
    CHECK_OK(tutti_all_gather_v_async(NULL, NULL, counts, NULL, TUTTI_INT32, comm, NULL, &request));
    CHECK_OK(tutti_wait(request));
    CHECK_OK(tutti_barrier(comm));
    return 0;
}

/* Rank 1 expects more of rank 0 than that gives. */
static int sizes_differ(tutti_comm *comm, void *argument)
{
    const int size = tutti_comm_size(comm), rank = tutti_comm_rank(comm);
    int32_t in[8 * RANKS] = {0}, out[8 * RANKS];
    size_t in_counts[RANKS], out_counts[RANKS];
    (void)argument;
    alike(in_counts, size, 5);
    alike(out_counts, size, 5);
    if (rank == 1)
        out_counts[0] = 7;
    const enum tutti_result result =
        tutti_all_to_all_v(in, in_counts, NULL, out, out_counts, NULL, TUTTI_INT32, comm);
    /* Who has nothing to do with the two may be through before they find out. */
    CHECK(result == TUTTI_ERR_MISMATCH || (rank != 1 && result == TUTTI_OK));
    if (rank == 1) {
        CHECK(strstr(tutti_last_error(), "in all_to_all_v"));
        CHECK(strstr(tutti_last_error(), "count 5") && strstr(tutti_last_error(), "count 7"));
    }
    while (tutti_comm_error(comm) == TUTTI_OK)
        usleep(1000);
    CHECK(tutti_comm_error(comm) == TUTTI_ERR_MISMATCH);
    return 0;
}

/* As many elements in all, but other counts. */
static int counts_differ(tutti_comm *comm, void *argument)
{
    const int size = tutti_comm_size(comm), rank = tutti_comm_rank(comm);
    int32_t in[8 * RANKS] = {0}, out[8];
    size_t counts[RANKS];
    (void)argument;
    alike(counts, size, 4);
    if (rank == 1) {
        counts[0] = 3;
        counts[1] = 5;
    }
    CHECK(tutti_reduce_scatter_v(in, out, counts, NULL, TUTTI_INT32, TUTTI_SUM, comm) ==
          TUTTI_ERR_MISMATCH);
    CHECK(strstr(tutti_last_error(), "reduce_scatter_v #1 ("));
    CHECK(strstr(tutti_last_error(), "checksum"));
    return 0;
}

/* A rank that does not call: it is named, with what was expected of it. */
static int absent(tutti_comm *comm, void *argument)
{
    const int size = tutti_comm_size(comm);
    int32_t in[8 * RANKS] = {0}, out[8 * RANKS];
    size_t counts[RANKS];
    (void)argument;
    alike(counts, size, 4);
    CHECK_OK(tutti_barrier(comm));
    CHECK(tti_ranks_together());
    comm->settings.timeout_s = 1;
    if (tutti_comm_rank(comm) == 1) {
        while (tutti_comm_error(comm) == TUTTI_OK)
            usleep(5000);
        return 0;
    }
    CHECK(tutti_all_to_all_v(in, counts, NULL, out, counts, NULL, TUTTI_INT32, comm) ==
          TUTTI_ERR_TIMEOUT);
    CHECK(strstr(tutti_last_error(), "rank 1"));
    CHECK(strstr(tutti_last_error(), "all_to_all_v"));
    return 0;
}

static const struct {
    const char *name;
    tti_rank_function *function;
    int least_ranks;
} tests[] = {
    {"wrong arguments", wrong_arguments, 1},
    {"wrong places and sizes", wrong_places, 1},
    {"a refused call in a group", refused_in_group, 1},
    {"blocks between each other", interleaved, 1},
    {"wrong at a root", wrong_at_a_root, 1},
    {"unusual at a root", unusual_at_a_root, 1},
    {"nothing at all", nothing, 1},
    {"ranks whose sizes differ", sizes_differ, 2},
    {"ranks whose counts differ", counts_differ, 2},
    {"absent rank", absent, 2},
};

int main(int argc, char **argv)
{
    struct tti_ranks how = {.ranks = 3, .options = TUTTI_OPTIONS_INIT};
    int failed = 0;
    how.options.timeout_s = 60;
    if (!tti_ranks_flags(&how, argc, argv))
        return 2;
    for (size_t t = 0; t < sizeof tests / sizeof tests[0]; t++)
        if (how.ranks >= tests[t].least_ranks)
            failed += tti_ranks_test(&how, tests[t].name, tests[t].function, NULL);
    return failed ? 1 : 0;
}
