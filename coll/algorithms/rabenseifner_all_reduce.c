/* All-reduce after Rabenseifner: reduce-scatter by recursive halving, all-gather by doubling.
 *
 * A lane's share is cut into as many chunks as ranks take part (a power of two; tti_fold deals with
 * the rest). In the first half a rank exchanges with the one 1, 2, 4 ... away, sends the half of
 * its range that the other keeps, and adds what it gets to the half that it keeps itself: the
 * largest messages go to the nearest ranks. The second half runs back. As few bytes as a ring (for
 * powers of two) in 2 lg n steps: best for medium and large blocks.
 *
 * Partial sums stay in SCRATCH, at their place in the block; a step sends one half of the range and
 * writes the other, so nothing waits. Each chunk is completed by one rank: same bits everywhere.
 *
 * Source: Rabenseifner, Optimization of collective reduction operations, ICCS 2004. */
#include "coll/algorithms/parts.h"

struct halving {
    struct tti_builder *b;
    int lane, n;
    struct tti_fold fold;
    uint32_t base;
    int first, length; /* the range of chunks held */
};

static int halving_peer(const struct halving *h, int mask)
{
    return tti_fold_rank(h->n, h->fold.size, h->fold.place ^ mask);
}

/* Fold in, then halve until one chunk is left, complete, and on its way to the last partner. */
static void halving_reduce_scatter(struct halving *h)
{
    int lane = h->lane, size = h->fold.size;
    bool in_scratch = h->fold.extra >= 0;
    if (in_scratch)
        tti_recv_reduce(h->b, lane, h->base, (uint32_t)size, h->fold.extra, tti_in(h->base),
                        tti_scratch(h->base), 0, -1);
    for (int mask = 1; mask < size; mask *= 2) {
        int peer = halving_peer(h, mask);
        bool upper = h->fold.place & mask, complete = mask == size / 2;
        bool peer_sums = mask > 1 || tti_fold_of(h->n, peer).extra >= 0;
        h->length /= 2;
        uint32_t low = h->base + (uint32_t)h->first, high = low + (uint32_t)h->length;
        uint32_t keep = upper ? high : low, give = upper ? low : high;
        uint32_t count = (uint32_t)h->length;
        tti_send(h->b, lane, give, count, in_scratch ? tti_scratch(give) : tti_in(give), peer);
        tti_recv_reduce(h->b, lane, keep, count, peer,
                        in_scratch ? tti_scratch(keep) : tti_in(keep),
                        complete ? tti_out(keep) : tti_scratch(keep),
                        (peer_sums ? TTI_MSG_ACC : 0) | (upper ? TTI_MSG_LEFT : 0) |
                            (complete ? TTI_FINAL | TTI_FORWARD : 0),
                        complete ? peer : -1);
        h->first = (int)(keep - h->base);
        in_scratch = true;
    }
}

/* Double until all is held; the odd rank of the pair gets the two halves of the last step. */
static void halving_all_gather(struct halving *h)
{
    int lane = h->lane, size = h->fold.size;
    for (int mask = size / 2; mask >= 1; mask /= 2) {
        int peer = halving_peer(h, mask);
        bool upper = h->fold.place & mask;
        bool pass_on = mask == 1 && h->fold.extra >= 0;
        uint32_t count = (uint32_t)h->length;
        uint32_t held = h->base + (uint32_t)h->first;
        uint32_t wanted = upper ? held - count : held + count;
        if (mask < size / 2)
            tti_send(h->b, lane, held, count, tti_out(held), peer);
        if (pass_on)
            tti_send(h->b, lane, held, count, tti_out(held), h->fold.extra);
        tti_recv(h->b, lane, wanted, count, peer, tti_out(wanted), pass_on ? TTI_FORWARD : 0,
                 pass_on ? h->fold.extra : -1);
        h->first = upper ? h->first - h->length : h->first;
        h->length *= 2;
    }
}

/* The odd rank of a pair: the even one holds the half that bit 0 of its place names first. */
static void halving_extra(struct halving *h)
{
    int place = tti_fold_of(h->n, h->fold.extra).place;
    uint32_t half = (uint32_t)h->fold.size / 2;
    uint32_t low = h->base, high = h->base + half;
    uint32_t first = place & 1 ? high : low, second = place & 1 ? low : high;
    tti_send(h->b, h->lane, low, 2 * half, tti_in(low), h->fold.extra);
    tti_recv(h->b, h->lane, first, half, h->fold.extra, tti_out(first), 0, -1);
    tti_recv(h->b, h->lane, second, half, h->fold.extra, tti_out(second), 0, -1);
}

static enum tutti_result halving_plan(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    struct tti_fold fold = tti_fold_of(spec->nranks, spec->rank);
    struct tti_builder b;
    tti_plan_begin(&b, spec, spec->lanes, (uint32_t)(fold.size * spec->lanes),
                   spec->nranks > 2 ? 1 : 0, 0);
    for (int lane = 0; lane < spec->lanes; lane++) {
        uint32_t base = (uint32_t)(lane * fold.size);
        struct halving h = {&b, lane, spec->nranks, fold, base, 0, fold.size};
        if (spec->nranks == 1) {
            tti_copy(&b, lane, base, 1, tti_in(base), tti_out(base), TTI_FINAL, -1);
        } else if (fold.place < 0) {
            halving_extra(&h);
        } else {
            halving_reduce_scatter(&h);
            halving_all_gather(&h);
        }
    }
    return tti_plan_finish(&b, plan);
}

static double halving_cost(const struct tti_plan_spec *spec, double bytes, double alpha,
                           double beta)
{
    double size = tti_power_floor(spec->nranks);
    double fold = size < spec->nranks ? 2 * (alpha + bytes * beta) : 0;
    return 2 * tti_log2_ceil((int)size) * alpha + 2 * (size - 1) / size * bytes * beta + fold;
}

const struct tti_algorithm tti_rabenseifner_all_reduce = {
    .name = "rabenseifner",
    .collective = TUTTI_ALL_REDUCE,
    .plan = halving_plan,
    .cost = halving_cost,
    .summary = "recursive halving, then doubling; least bytes in 2 lg n steps (powers of two)",
};
