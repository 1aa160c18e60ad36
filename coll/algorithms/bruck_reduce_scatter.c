/* Reduce-scatter in ceil(lg n) steps for any n: Bruck's all-gather run backwards.
 *
 * Count blocks from the own rank: offset j is block r + j. In the all-gather, step k moves the
 * blocks at offsets 0 .. count-1 to the rank 2^k below, as its offsets 2^k ...; here k falls, and
 * rank r sends its sums at offsets 2^k .. 2^k + count-1 to rank r + 2^k, which adds them to its
 * offsets 0 .. count-1. At the end offset 0 is complete. Least bytes, fewest steps: best for small
 * blocks and many ranks.
 *
 * Sums are kept in SCRATCH by offset: those below `summed`, alike on all ranks; contributions not
 * yet touched are read from IN. A step's blocks go in one message as long as both sides keep them
 * in a row: cut where IN wraps from block n-1 to 0 and where `summed` ends on either side. Pieces
 * are sent and received in turn, so one message per channel is enough.
 *
 * Source: Bruck, Ho, Kipnis, Upfal, Weathersby, Efficient algorithms for all-to-all communications
 * in multiport message-passing systems, TPDS 1997. */
#include "coll/algorithms/parts.h"

struct bruck {
    struct tti_builder *b;
    int lane, lanes, n, rank;
    int step;   /* 2^k */
    int count;  /* blocks moved in this step */
    int summed; /* offsets below this are in SCRATCH */
};

/* How many of the step's blocks from the j-th go in one message to rank `to`. */
static int bruck_run(const struct bruck *s, int to, int j)
{
    int run = tti_block_run(to + j, s->count - j, s->n, s->lanes);
    int cuts[2] = {s->summed, s->summed - s->step};
    for (int c = 0; c < 2; c++)
        if (cuts[c] > j)
            run = tti_least(run, cuts[c] - j);
    return run;
}

static struct tti_ref bruck_own(const struct bruck *s, int offset)
{
    if (offset < s->summed)
        return tti_scratch((uint32_t)(offset * s->lanes + s->lane));
    return tti_in((uint32_t)(tti_mod(s->rank + offset, s->n) * s->lanes + s->lane));
}

static void bruck_step(const struct bruck *s)
{
    int to = (s->rank + s->step) % s->n, from = tti_mod(s->rank - s->step, s->n);
    uint32_t chunk = (uint32_t)s->lane;
    for (int sent = 0, got = 0; sent < s->count || got < s->count;) {
        if (sent < s->count) {
            int run = bruck_run(s, to, sent);
            tti_send(s->b, s->lane, chunk, (uint32_t)run, bruck_own(s, s->step + sent), to);
            sent += run;
        }
        if (got < s->count) {
            int run = bruck_run(s, s->rank, got);
            bool complete = s->step == 1;
            struct tti_ref dst =
                complete ? tti_out(chunk) : tti_scratch((uint32_t)(got * s->lanes + s->lane));
            tti_recv_reduce(
                s->b, s->lane, chunk, (uint32_t)run, from, bruck_own(s, got), dst,
                (s->step + got < s->summed ? TTI_MSG_ACC : 0) | (complete ? TTI_FINAL : 0), -1);
            got += run;
        }
    }
}

static enum tutti_result bruck_reduce_scatter_plan(const struct tti_plan_spec *spec,
                                                   struct tti_plan **plan)
{
    int n = spec->nranks, lanes = spec->lanes;
    int top = n > 1 ? tti_power_floor(n - 1) : 0;
    int sums = top > 1 ? (n - top > top / 2 ? n - top : top / 2) : 0;
    struct tti_builder b;
    tti_plan_begin(&b, spec, lanes, (uint32_t)lanes, (uint32_t)sums, 0);
    for (int lane = 0; lane < lanes; lane++) {
        struct bruck s = {&b, lane, lanes, n, spec->rank, top, n - top, 0};
        if (n == 1)
            tti_copy(&b, lane, (uint32_t)lane, 1, tti_in((uint32_t)lane), tti_out((uint32_t)lane),
                     TTI_FINAL, -1);
        for (; s.step >= 1; s.step /= 2, s.count = s.step) {
            bruck_step(&s);
            s.summed = s.summed > s.count ? s.summed : s.count;
        }
    }
    return tti_plan_finish(&b, plan);
}

static double bruck_reduce_scatter_cost(const struct tti_plan_spec *spec, double bytes,
                                        double alpha, double beta)
{
    return tti_log2_ceil(spec->nranks) * alpha + (spec->nranks - 1) * bytes * beta;
}

const struct tti_algorithm tti_bruck_reduce_scatter = {
    .name = "bruck",
    .collective = TUTTI_REDUCE_SCATTER,
    .plan = bruck_reduce_scatter_plan,
    .cost = bruck_reduce_scatter_cost,
    .summary = "halving distances for any n; least bytes, ceil(lg n) steps",
};
