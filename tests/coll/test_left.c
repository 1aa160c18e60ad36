/* A rank leaves the communicator where the others go on: whatever they call next, in whatever
 * memory, an error names it within seconds, far from the deadline. Before, everything is used once,
 * so that links and what is kept for another time are there. Arguments as of tti_ranks_flags. */
#include "base/clock.h"
#include "tests/integration/host_calls.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 300000, SECONDS = 90, WITHIN = 30 };

/* What is called, and of how much; who leaves. */
struct left {
    enum tutti_collective collective;
    size_t bytes;
    bool library;
    int leaver;
};

static enum tutti_result left_call(const struct left *l, int root, char *in, char *out,
                                   tutti_comm *comm)
{
    const struct tti_operation o = {.collective = l->collective,
                                    .in = in,
                                    .out = out,
                                    .count = l->bytes / 4,
                                    .type = TUTTI_INT32,
                                    .op = TUTTI_SUM,
                                    .root = root};
    return test_call(&o, comm);
}

/* Who gives may be through before the others take, and who has nothing to do with the leaver, too:
 * then a barrier comes upon it. */
static int left_run(tutti_comm *comm, void *argument)
{
    const struct left *l = argument;
    const int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    void *memory[2] = {NULL, NULL};
    for (int k = 0; k < 2; k++) {
        const size_t bytes = l->bytes * (size_t)size + 64;
        memory[k] = l->library ? NULL : malloc(bytes);
        CHECK(l->library ? tutti_alloc(bytes, &memory[k]) == TUTTI_OK : memory[k] != NULL);
        memset(memory[k], 1, bytes);
    }
    for (int i = 0; i < 6; i++)
        CHECK_OK(left_call(l, i % size, memory[0], memory[1], comm));
    CHECK_OK(tutti_barrier(comm));
    const uint64_t begin = tti_now_ns();
    int status = 0;
    if (rank != l->leaver) {
        enum tutti_result result = left_call(l, (l->leaver + 1) % size, memory[0], memory[1], comm);
        if (result == TUTTI_OK)
            result = tutti_barrier(comm);
        const double took = (double)(tti_now_ns() - begin) / 1e9;
        char name[32];
        snprintf(name, sizeof name, "rank %d (", l->leaver);
        status = result != TUTTI_ERR_PEER && result != TUTTI_ERR_LINK;
        status |= took > WITHIN || !strstr(tutti_last_error(), name);
        if (status)
            fprintf(stderr, "rank %d, after %.1f s: %d, %s\n", rank, took, (int)result,
                    tutti_last_error());
    }
    for (int k = 0; k < 2; k++)
        (l->library ? tutti_free : free)(memory[k]);
    return status;
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {400, 5000, MOST};
    struct tti_ranks how = {.ranks = 3, .options = TUTTI_OPTIONS_INIT};
    how.options.timeout_s = SECONDS;
    if (!tti_ranks_flags(&how, argc, argv))
        return 2;
    int failed = 0, cases = 0;
    for (int c = 0; c <= TUTTI_BARRIER; c++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int library = 0; library < 2; library++) {
                struct left l = {.collective = (enum tutti_collective)c,
                                 .bytes = sizes[s],
                                 .library = library,
                                 .leaver = cases++ % how.ranks};
                if (tti_ranks_run(&how, left_run, &l) == 0)
                    continue;
                fprintf(stderr, "%s of %zu bytes, %s memory, rank %d left: FAILED\n",
                        tutti_collective_name(l.collective), l.bytes,
                        library ? "library" : "malloc'ed", l.leaver);
                failed++;
            }
    printf("%d cases, %d failed\n", cases, failed);
    return failed != 0;
}
