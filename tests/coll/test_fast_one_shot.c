/* coll/fast_one_shot.c and the plan of "one_shot" are one and the same operation: ranks that take
 * the fast way and ranks that run the plan work together, and give the same bits as the plan alone.
 *
 * Ranks are threads with random contributions (sums are not exact, so the order of combination
 * shows). In round m of a case, rank r takes the fast way if bit r of m is set: all mixtures. */
#include "coll/comm.h"
#include "coll/fast_one_shot.h"
#include "coll/select.h"
#include "tests/integration/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 2048 };

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Finite values of the type, of mixed magnitudes. */
static void fill(char *in, enum tutti_type type, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        float value = (float)(int)(next_random(&seed) % 2001 - 1000) / 37.0f;
        int64_t integer = (int64_t)next_random(&seed) - (1 << 22);
        double wide = (double)value * 1.0000001;
        char *to = in + i * tutti_type_size(type);
        if (type == TUTTI_FLOAT64)
            memcpy(to, &wide, sizeof wide);
        else if (tti_acc_type(type) == TUTTI_FLOAT32)
            tti_convert(to, type, &value, TUTTI_FLOAT32, 1, NULL);
        else
            memcpy(to, &integer, tutti_type_size(type));
    }
}

static void allow_fast(tutti_comm *comm, bool allowed)
{
    comm->settings.fast = allowed;
    memset(comm->last_selection, 0, sizeof comm->last_selection); /* made with the old setting */
}

/* One all-reduce in each mixture, out of place and in place; the mixture 0 is the plan alone. */
static int mixtures(tutti_comm *comm, enum tutti_type type, enum tutti_op op, size_t count)
{
    char in[MOST_BYTES], out[MOST_BYTES], plain[MOST_BYTES];
    size_t bytes = count * tutti_type_size(type);
    for (unsigned mixture = 0; mixture < 1u << comm->size; mixture++)
        for (int in_place = 0; in_place < 2; in_place++) {
            allow_fast(comm, mixture >> comm->rank & 1);
            fill(in, type, count, (uint32_t)(comm->rank * 7919 + (int)count));
            char *to = in_place ? in : out;
            if (tutti_all_reduce(in, to, count, type, op, comm) != TUTTI_OK)
                return fprintf(stderr, "%s\n", tutti_last_error()), 1;
            if (mixture == 0 && !in_place)
                memcpy(plain, to, bytes);
            if (memcmp(plain, to, bytes) != 0)
                return fprintf(stderr, "%s %s count %zu, mixture %u%s: other bits than the plan\n",
                               tutti_type_name(type), tutti_op_name(op), count, mixture,
                               in_place ? " in place" : ""),
                       1;
        }
    return 0;
}

/* The fast way must have been taken, or the test shows nothing. */
static int is_taken(tutti_comm *comm)
{
    struct tti_selection selection;
    struct tti_operation o = {.collective = TUTTI_ALL_REDUCE, .count = 1, .type = TUTTI_FLOAT32};
    allow_fast(comm, true);
    return tti_select(comm, o.collective, o.count, o.type, 0, &selection) == TUTTI_OK &&
           selection.path == TTI_PATH_FAST && tti_fast_one_shot_serves(comm, &o, &selection);
}

static int all_mixtures(tutti_comm *comm, void *argument)
{
    static const size_t bytes[] = {1, 8, 24, 48, 49, 64, 200, 1000, MOST_BYTES};
    (void)argument;
    for (int t = 0; t < TUTTI_TYPE_COUNT; t++)
        for (int op = 0; op < TUTTI_OP_COUNT; op++)
            for (size_t b = 0; b < sizeof bytes / sizeof bytes[0]; b++) {
                size_t count = bytes[b] / tutti_type_size((enum tutti_type)t);
                if (count && mixtures(comm, (enum tutti_type)t, (enum tutti_op)op, count))
                    return 1;
            }
    return !is_taken(comm);
}

/* A rank that makes another call is named, by the fast way too. */
static int mismatch(tutti_comm *comm, void *argument)
{
    float x[4] = {1, 2, 3, 4};
    (void)argument;
    if (tutti_all_reduce(x, x, 4, TUTTI_FLOAT32, TUTTI_SUM, comm) != TUTTI_OK || !is_taken(comm))
        return 1;
    enum tutti_result result =
        tutti_all_reduce(x, x, comm->rank == 1 ? 3 : 4, TUTTI_FLOAT32, TUTTI_SUM, comm);
    return result != TUTTI_ERR_MISMATCH || !strstr(tutti_last_error(), "count 3");
}

int main(void)
{
    static const char *const transports[] = {"inproc", "shm"};
    int failed = 0;
    for (int t = 0; t < 2; t++)
        for (int ranks = 2; ranks <= 4; ranks++) {
            struct tti_ranks how = {.ranks = ranks, .options = TUTTI_OPTIONS_INIT};
            how.options.transports = transports[t];
            how.options.algorithms = "one_shot";
            int bad = tti_ranks_run(&how, all_mixtures, NULL) + tti_ranks_run(&how, mismatch, NULL);
            printf("%d ranks over %s: %s\n", ranks, transports[t], bad ? "FAILED" : "ok");
            failed += bad;
        }
    return failed ? 1 : 0;
}
