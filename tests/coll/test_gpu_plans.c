/* Every algorithm on device memory, by the kernel that runs plans: the same bits as the CPU
 * executor, with messages in bulk, packets and lines, between threads (on the buffers themselves)
 * and processes (on windows). And the hand-written kernels against the plans that they name; and a
 * plan with one wrong step, which must be found. */
#include "coll/algorithms/algorithms.h"
#include "coll/gpu/gpu_map.h"
#include "tests/integration/device_calls.h"
#include "tests/integration/host_calls.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FEW = 100, SOME = 1357, MANY = 20011, MOST_RANKS = 8, MOST_ALGORITHMS = 10 };

/* A simulated thread costs much there. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static const char *const wires[] = {"bulk", "ll", "ll128"};

static const struct {
    enum tutti_type type;
    enum tutti_op op;
} kinds[] = {{TUTTI_FLOAT32, TUTTI_SUM}, {TUTTI_BFLOAT16, TUTTI_AVG},
             {TUTTI_INT64, TUTTI_MIN},   {TUTTI_FLOAT8_E5M2, TUTTI_SUM},
             {TUTTI_UINT8, TUTTI_AVG},   {TUTTI_FLOAT16, TUTTI_SUM},
             {TUTTI_FLOAT64, TUTTI_PROD}};
enum { KINDS = sizeof kinds / sizeof *kinds, EXACT_KIND = 2 };

static int compare_in(const struct test_case *c, tutti_comm *comm, char *in, char *host,
                      char *device, size_t bytes)
{
    const size_t n = (size_t)tutti_comm_size(comm);
    test_fill(in, c->type, n * c->count, (uint32_t)tutti_comm_rank(comm) * 7919u + 1);
    if (c->in_place) {
        memcpy(host, in, bytes);
        memcpy(device, in, bytes);
    }
    const struct tti_operation o = test_operation(c, c->in_place ? host : in, host);
    CHECK_OK(test_call(&o, comm));
    char *from = c->in_place ? device : in;
    CHECK_OK(device_call(c, (struct device_shadow){from, from, bytes},
                         (struct device_shadow){device, device, bytes}, comm));
    for (size_t i = 0; i < bytes; i++)
        if (host[i] != device[i]) {
            fprintf(stderr, "%s, %s, operator %d, %zu elements%s: byte %zu of rank %d of %zu\n",
                    tutti_collective_name(c->collective), tutti_type_name(c->type), (int)c->op,
                    c->count, c->in_place ? ", in place" : "", i, tutti_comm_rank(comm), n);
            return 1;
        }
    return 0;
}

static int compare(const struct test_case *c, tutti_comm *comm)
{
    const size_t bytes = (size_t)tutti_comm_size(comm) * c->count * tutti_type_size(c->type);
    char *in = calloc(1, bytes), *host = calloc(1, bytes), *device = calloc(1, bytes);
    const int failed = compare_in(c, comm, in, host, device, bytes);
    free(in);
    free(host);
    free(device);
    return failed;
}

struct turn {
    int index; /* of the algorithms asked for */
    unsigned turn;
    bool exact; /* integers only: their sums do not depend on how the operation is cut */
};

/* Those for several hosts do not apply; NULL for them, and where there are not so many. */
static const struct tti_algorithm *algorithm_at(int collective, int index)
{
    const struct tti_algorithm *a = tti_algorithm_at((enum tutti_collective)collective, index);
    return a && strncmp(a->name, "hierarchical", 12) == 0 ? NULL : a;
}

/* Types, operators and counts take turns. Where no algorithm is asked for, CPU and device choose
 * each their own. */
static int all(tutti_comm *comm, void *argument)
{
    static const size_t counts[] = {FEW, SOME, MANY};
    const struct turn *asked = argument;
    unsigned turn = asked->turn;
    CHECK(device_begin(tutti_comm_rank(comm)) == 0);
    for (int k = 0; k < TUTTI_COLLECTIVE_COUNT; k++) {
        struct test_case c = {.collective = (enum tutti_collective)k,
                              .root = tutti_comm_size(comm) - 1};
        if (c.collective == TUTTI_BARRIER || !algorithm_at(k, asked->index))
            continue;
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++, turn++) {
            const unsigned kind = asked->exact ? EXACT_KIND : turn % KINDS;
            c.type = kinds[kind].type;
            c.op = kinds[kind].op;
            c.count = counts[i];
            c.in_place = c.collective == TUTTI_ALL_REDUCE && turn % 2;
            CHECK(compare(&c, comm) == 0);
        }
    }
    return device_end(comm);
}

/* The algorithms of number `index`, of all collectives that have so many. */
static bool algorithms(int index, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int k = 0; k < TUTTI_COLLECTIVE_COUNT; k++)
        if (k != TUTTI_BARRIER && algorithm_at(k, index))
            used += (size_t)snprintf(text + used, bytes - used, "%s%s=%s", used ? "," : "",
                                     tutti_collective_name((enum tutti_collective)k),
                                     algorithm_at(k, index)->name);
    return used > 0;
}

static int run(int ranks, const char *wire, bool fast, bool processes, struct turn asked)
{
    char text[400];
    struct tti_ranks how = {.ranks = ranks, .options = TUTTI_OPTIONS_INIT, .processes = processes};
    if (!algorithms(asked.index, text, sizeof text))
        return 0;
    how.options.timeout_s = 60;
    how.options.algorithms = text;
    setenv("TUTTI_FAST", fast ? "1" : "0", 1);
    for (tti_gpu_wire_asked = 0; strcmp(wires[tti_gpu_wire_asked], wire) != 0;)
        tti_gpu_wire_asked++;
    const int failed = tti_ranks_run(&how, all, &asked);
    if (failed)
        printf("FAILED: %d %s, %s, TUTTI_FAST=%d: %s\n", ranks, processes ? "processes" : "threads",
               wire, fast, text);
    return failed != 0;
}

/* Three ranks get all wires and the hand-written kernels, other numbers a wire each by turns. */
static int world(int ranks, bool processes)
{
    int bad = 0;
    const bool all_of_it = ranks == 3 && !processes && !SANITIZED;
    for (unsigned index = 0; index < MOST_ALGORITHMS; index++) {
        const unsigned wire = (index + (unsigned)ranks) % 3;
        for (unsigned k = 0; k < 3; k++)
            if (all_of_it || k == wire)
                bad |= run(ranks, wires[k], false, processes,
                           (struct turn){(int)index, index * 5 + k, false});
        if (all_of_it)
            bad |= run(ranks, wires[0], true, processes, (struct turn){(int)index, index, false});
    }
    return bad;
}

/* ---- a wrong step ---- */

enum mistake { NONE, FORGETS, ELSEWHERE, ANOTHER_CHUNK, ANOTHER_MESSAGE, MISTAKES };
static const char *const mistakes[MISTAKES] = {"is right", "forgets its own contribution",
                                               "leaves the result in the input",
                                               "takes another chunk", "expects another message"};
static enum mistake mistake;

/* One step of rank 1's ring: the first that combines, or the last that receives. */
static void spoil(struct tti_plan *plan, int rank)
{
    struct tti_step *combines = NULL, *last = NULL;
    if (rank != 1 || mistake == NONE)
        return;
    for (size_t i = plan->lanes[0].count; i-- > 0;) {
        struct tti_step *s = &plan->lanes[0].steps[i];
        if (s->kind == TTI_RECV_REDUCE)
            combines = s;
        if (!last && s->kind == TTI_RECV)
            last = s;
    }
    if (!combines || !last)
        return;
    switch (mistake) {
    case FORGETS:
        combines->kind = TTI_RECV;
        combines->flags &= (uint8_t)~TTI_MSG_LEFT;
        break;
    case ANOTHER_CHUNK:
        combines->src.index = (combines->src.index + 1) % plan->chunks;
        break;
    case ELSEWHERE:
        last->dst.buffer = TTI_IN;
        break;
    default:
        last->chunk = (last->chunk + 1) % plan->chunks;
        break;
    }
}

static int one_all_reduce(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct test_case c = {
        .collective = TUTTI_ALL_REDUCE, .type = TUTTI_INT64, .op = TUTTI_SUM, .count = SOME};
    CHECK(device_begin(tutti_comm_rank(comm)) == 0);
    const int failed = compare(&c, comm);
    CHECK(device_end(comm) == 0);
    return failed;
}

static int wrong_steps(bool processes)
{
    int bad = 0;
    struct tti_ranks how = {.ranks = 3, .options = TUTTI_OPTIONS_INIT, .processes = processes};
    how.options.timeout_s = 60;
    how.options.algorithms = "all_reduce=ring";
    tti_gpu_plan_made = spoil;
    for (tti_gpu_wire_asked = 0; tti_gpu_wire_asked < (SANITIZED ? 1 : 2); tti_gpu_wire_asked++)
        for (int k = 0; k < MISTAKES; k++) {
            mistake = (enum mistake)k;
            const bool found = tti_ranks_run(&how, one_all_reduce, NULL) != 0;
            printf("a step that %s, %s: %s\n", mistakes[k], wires[tti_gpu_wire_asked],
                   found == (k != NONE) ? "as expected" : "FAILED");
            bad |= found != (k != NONE);
        }
    tti_gpu_plan_made = NULL;
    return bad;
}

int main(int argc, char **argv)
{
    const bool processes = argc > 1 && strcmp(argv[1], "processes") == 0;
    if (processes) /* a device each: else their kernels would not run at the same time */
        setenv("TUTTI_SIM_DEVICES", "8", 1);
    int bad = world(2, processes) | world(3, processes);
    bad |= wrong_steps(processes);
    if (!SANITIZED)
        bad |= world(4, processes) | world(MOST_RANKS, processes);
    /* So little memory that a kernel runs its plan several times, over parts of every block. */
    setenv("TUTTI_DEVICE_MEMORY", "2300K", 1);
    for (int index = 0; index < MOST_ALGORITHMS && !SANITIZED; index++)
        bad |= run(4, wires[0], false, processes, (struct turn){index, 0, true});
    printf("plans on the device: %s\n", bad ? "FAILED" : "as on the CPU");
    return bad;
}
