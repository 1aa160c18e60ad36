/* Calls that come again go over their windows from the end every second time, and give the same
 * bits: every collective by every plan, with a last window that is shorter than the others (whose
 * scratch memory is laid out anew, which is the first one's from the end), and with other values
 * each time, so that what is left of the time before shows. */
#include "coll/exec_internal.h"
#include "coll/select.h"
#include "tests/integration/host_calls.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <stdlib.h>
#include <string.h>

/* More than two windows, and less, which goes in smaller ones where ranks do not crowd. A ring then
 * begins its sums elsewhere, and floats would give other bits. */
enum { RANKS = 3, SEEDS = 2, TIMES = 4, MOST = (9 << 18) / 4, FEW = (6 << 18) / 4, GUARD = 64 };

struct turn_case {
    const char *transport;
    bool processes, sums; /* the first two collectives alone */
    enum tutti_type type;
    size_t most; /* elements */
};

struct buffers {
    char *in[SEEDS], *out, *plain[SEEDS];
    size_t out_bytes; /* of the operation at hand */
};

static int once(tutti_comm *comm, struct tti_operation *o, const struct buffers *b, int seed)
{
    memset(b->out, 0x5a, b->out_bytes + GUARD);
    o->in = b->in[seed];
    o->out = b->out;
    CHECK_OK(test_call(o, comm));
    return 0;
}

/* From the front, as where ranks crowd; then as it is with repeated calls. */
static int compare(tutti_comm *comm, struct tti_operation *o, struct buffers *b, int *turned)
{
    uint32_t in_blocks = 0, out_blocks = 0;
    const size_t block = o->count * tutti_type_size(o->type);
    tti_shape(o->collective, comm->size, o->root, comm->rank, &in_blocks, &out_blocks);
    b->out_bytes = out_blocks * block;
    comm->crowds = true;
    for (int seed = 0; seed < SEEDS; seed++) {
        if (once(comm, o, b, seed))
            return 1;
        memcpy(b->plain[seed], b->out, b->out_bytes + GUARD);
        CHECK(!comm->executor->from_end);
    }
    comm->crowds = false;
    for (int i = 0; i < TIMES; i++) {
        if (once(comm, o, b, i % SEEDS))
            return 1;
        CHECK(comm->executor->passes > 1);
        CHECK(comm->executor->from_end == (i % 2 != 0));
        CHECK(memcmp(b->out, b->plain[i % SEEDS], b->out_bytes + GUARD) == 0);
        *turned += comm->executor->from_end;
    }
    return 0;
}

static int every_plan(tutti_comm *comm, enum tutti_collective collective, const struct turn_case *c,
                      struct buffers *b)
{
    struct tti_ways ways;
    uint32_t in_blocks = 0, out_blocks = 0;
    tti_shape(collective, comm->size, 0, 0, &in_blocks, &out_blocks);
    const uint32_t blocks = in_blocks > out_blocks ? in_blocks : out_blocks;
    struct tti_operation o = {
        .collective = collective, .count = c->most / blocks - 37, .type = c->type, .op = TUTTI_SUM};
    int turned = 0;
    CHECK_OK(tti_select_ways(comm, collective, o.count, o.type, false, &ways));
    for (int i = 0; i < ways.count; i++) {
        if (ways.way[i].path != TTI_PATH_PLAN)
            continue;
        tti_select_try(comm, &ways.way[i]);
        const int bad = compare(comm, &o, b, &turned);
        tti_select_try(comm, NULL);
        if (bad)
            return fprintf(stderr, "%s by %s, %d lanes\n", tutti_collective_name(collective),
                           ways.way[i].algorithm->name, ways.way[i].spec.lanes),
                   1;
    }
    CHECK(turned > 0);
    return 0;
}

static int body(tutti_comm *comm, void *argument)
{
    static const enum tutti_collective all[] = {
        TUTTI_ALL_REDUCE,     TUTTI_BROADCAST,  TUTTI_REDUCE, TUTTI_ALL_GATHER,
        TUTTI_REDUCE_SCATTER, TUTTI_ALL_TO_ALL, TUTTI_GATHER, TUTTI_SCATTER};
    const size_t bytes = (size_t)MOST * 4 + GUARD;
    const struct turn_case *c = argument;
    const size_t collectives = c->sums ? 2 : sizeof all / sizeof all[0];
    struct buffers b = {
        {malloc(bytes), malloc(bytes)}, malloc(bytes), {malloc(bytes), malloc(bytes)}, 0};
    int bad = !b.out;
    for (int seed = 0; seed < SEEDS; seed++) {
        bad = bad || !b.in[seed] || !b.plain[seed];
        if (!bad)
            test_fill(b.in[seed], c->type, MOST, (uint32_t)(seed * 97 + comm->rank * 7919 + 1));
    }
    comm->settings.fast = false; /* plain memory, or the fused path would take it */
    for (size_t i = 0; i < collectives && !bad; i++)
        bad = every_plan(comm, all[i], c, &b);
    free(b.out);
    for (int seed = 0; seed < SEEDS; seed++) {
        free(b.in[seed]);
        free(b.plain[seed]);
    }
    return bad;
}

static int run(struct turn_case c)
{
    struct tti_ranks how = {
        .ranks = RANKS, .processes = c.processes, .options = TUTTI_OPTIONS_INIT};
    how.options.transports = c.transport;
    const int bad = tti_ranks_run(&how, body, &c);
    printf("%d ranks over %s: %s\n", RANKS, c.transport, bad ? "FAILED" : "ok");
    return bad;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "threads") == 0)
        return run((struct turn_case){"inproc", false, false, TUTTI_FLOAT32, MOST}) ||
               run((struct turn_case){"inproc", false, false, TUTTI_INT32, FEW});
    if (argc != 2 || strcmp(argv[1], "processes") != 0) {
        fprintf(stderr, "usage: test_windows_turn threads | processes\n");
        return 2;
    }
    int failed = run((struct turn_case){"shm", true, false, TUTTI_FLOAT32, MOST}) +
                 run((struct turn_case){"tcp", true, true, TUTTI_FLOAT32, MOST});
    setenv("TUTTI_SHM_CMA", "0", 1); /* all through the ring, with little room */
    setenv("TUTTI_SHM_SLOT_BYTES", "16384", 1);
    failed += run((struct turn_case){"shm", true, true, TUTTI_FLOAT32, MOST}) +
              run((struct turn_case){"shm", true, true, TUTTI_INT32, FEW});
    return failed ? 1 : 0;
}
