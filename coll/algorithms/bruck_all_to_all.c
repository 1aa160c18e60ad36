/* All-to-all in ceil(lg n) steps, after Bruck: blocks travel together, several hops each.
 *
 * The block for the rank i above travels the distance i as the sum of its bits: in step k every
 * rank sends all blocks it holds whose i has bit k to the rank 2^k above, as one message. Every
 * block is sent lg n / 2 times on average: best for small blocks and many ranks.
 *
 * The blocks of a step are copied together first (in two areas by turns, so that nothing waits for
 * the message before), and stay where they arrive until they move on: what came in the step of bit
 * k lies in that step's area, in order of i.
 *
 * Source: as bruck_all_gather.c. */
#include "coll/algorithms/parts.h"

/* Of the numbers below i, how many have bit `bit` (a power of two)? */
static int bruck_position(int i, int bit)
{
    int whole = i / (2 * bit) * bit, rest = i % (2 * bit) - bit;
    return whole + (rest > 0 ? rest : 0);
}

/* SCRATCH: two areas to send from, then one for each step to receive in. */
static uint32_t bruck_area(int n, int step)
{
    int area = (n + 1) / 2, number = 2;
    while (step > 1) {
        step /= 2;
        number++;
    }
    return (uint32_t)(area * number);
}

/* Where the block of distance i is when all steps below `step` are done. */
static struct tti_ref bruck_place(int n, int rank, int i, int step)
{
    int done = i & (step - 1);
    if (done == 0)
        return tti_in((uint32_t)((rank + i) % n));
    int last = tti_power_floor(done);
    return tti_scratch(bruck_area(n, last) + (uint32_t)bruck_position(i, last));
}

static enum tutti_result bruck_all_to_all_plan(const struct tti_plan_spec *spec,
                                               struct tti_plan **plan)
{
    int n = spec->nranks, rank = spec->rank, steps = tti_log2_ceil(n), area = (n + 1) / 2;
    struct tti_builder b;
    tti_plan_begin(&b, spec, 1, 1, (uint32_t)(area * (steps + 2)), 0);
    for (int step = 1, turn = 0; step < n; step *= 2, turn ^= 1) {
        uint32_t packed = (uint32_t)(area * turn), count = 0;
        for (int i = step; i < n; i++)
            if (i & step)
                tti_copy(&b, 0, 0, 1, bruck_place(n, rank, i, step), tti_scratch(packed + count++),
                         0, -1);
        tti_send(&b, 0, 0, count, tti_scratch(packed), (rank + step) % n);
        tti_recv(&b, 0, 0, count, tti_mod(rank - step, n), tti_scratch(bruck_area(n, step)), 0, -1);
    }
    for (int i = 0; i < n; i++)
        tti_copy(&b, 0, 0, 1, bruck_place(n, rank, i, 1 << steps),
                 tti_out((uint32_t)tti_mod(rank - i, n)), 0, -1);
    return tti_plan_finish(&b, plan);
}

static double bruck_all_to_all_cost(const struct tti_plan_spec *spec, double bytes, double alpha,
                                    double beta)
{
    double total = 0;
    for (int step = 1; step < spec->nranks; step *= 2)
        total += alpha + bruck_position(spec->nranks, step) * bytes * beta;
    return total;
}

const struct tti_algorithm tti_bruck_all_to_all = {
    .name = "bruck",
    .collective = TUTTI_ALL_TO_ALL,
    .plan = bruck_all_to_all_plan,
    .cost = bruck_all_to_all_cost,
    .translates = true,
    .summary = "blocks travel together by the bits of their distance; ceil(lg n) steps",
};
