/* Step sequences that several algorithms share (coll/algorithms/parts.h). */
#include "coll/algorithms/parts.h"

#include "base/memory.h"

#include <stdlib.h>

enum tutti_result tti_count_hosts(const struct tti_plan_spec *spec, int *each, int *most)
{
    int hosts = tti_hosts(spec), fullest = 0;
    int *counts = tti_calloc((size_t)hosts, sizeof *counts);
    if (!counts)
        return TUTTI_ERR_MEMORY;
    for (int r = 0; r < spec->nranks; r++)
        counts[tti_host(spec, r)]++;
    for (int h = 0; h < hosts; h++)
        fullest = counts[h] > fullest ? counts[h] : fullest;
    *most = fullest;
    *each = fullest * hosts == spec->nranks ? fullest : -1;
    free(counts);
    return TUTTI_OK;
}

void tti_ordered_reduce(struct tti_builder *builder, int lane, uint32_t chunk, uint32_t n,
                        const struct tti_group *group, struct tti_ref own, struct tti_ref acc,
                        struct tti_ref dst, int flags, int to)
{
    int last = group->size - 1, place = 1;
    if (last == 0) {
        tti_copy(builder, lane, chunk, n, own, dst, flags, to);
        return;
    }
    struct tti_ref sum = own;
    if (group->self == 1) {
        sum = last == 1 ? dst : acc;
        tti_recv_reduce(builder, lane, chunk, n, tti_group_rank(group, 0), own, sum,
                        TTI_MSG_LEFT | (last == 1 ? flags : 0), last == 1 ? to : -1);
        place = 2;
    } else if (group->self > 1) {
        sum = acc;
        tti_recv(builder, lane, chunk, n, tti_group_rank(group, 0), acc, 0, -1);
    }
    for (; place <= last; place++) {
        bool complete = place == last;
        struct tti_ref next = complete ? dst : acc;
        int step_flags = complete ? flags : 0, step_to = complete ? to : -1;
        if (place == group->self)
            tti_reduce_step(builder, lane, chunk, n, sum, own, next, step_flags, step_to);
        else
            tti_recv_reduce(builder, lane, chunk, n, tti_group_rank(group, place), sum, next,
                            step_flags, step_to);
        sum = next;
    }
}

void tti_pair_all_reduce(struct tti_builder *builder, int lane, uint32_t chunk, bool upper,
                         int peer, uint32_t slot)
{
    tti_send(builder, lane, chunk, 1, tti_in(chunk), peer);
    if (!upper) {
        tti_recv_reduce(builder, lane, chunk, 1, peer, tti_in(chunk), tti_out(chunk), TTI_FINAL,
                        -1);
        return;
    }
    tti_recv(builder, lane, chunk, 1, peer, tti_slot(slot), 0, -1);
    tti_reduce_step(builder, lane, chunk, 1, tti_slot(slot), tti_in(chunk), tti_out(chunk),
                    TTI_FINAL, -1);
}

void tti_ring_steps(struct tti_builder *builder, int lane, uint32_t base,
                    const struct tti_group *group, uint32_t slot)
{
    int n = group->size, self = group->self;
    if (n == 1) {
        tti_copy(builder, lane, base, 1, tti_group_own(group, base), tti_out(base), TTI_FINAL, -1);
        return;
    }
    int next = tti_group_rank(group, (self + 1) % n);
    int previous = tti_group_rank(group, (self + n - 1) % n);
    bool previous_sums = tti_group_sums(group, (self + n - 1) % n);
    uint32_t first = base + (uint32_t)self;
    tti_send(builder, lane, first, 1, tti_group_own(group, first), next);
    for (int k = 1; k < n; k++) {
        uint32_t chunk = base + (uint32_t)tti_mod(self - k, n);
        int acc = k > 1 || previous_sums ? TTI_MSG_ACC : 0;
        bool complete = k == n - 1;
        struct tti_ref dst = complete ? tti_out(chunk) : tti_slot(slot + (uint32_t)(k & 1));
        tti_recv_reduce(builder, lane, chunk, 1, previous, tti_group_own(group, chunk), dst,
                        acc | TTI_FORWARD | (complete ? TTI_FINAL : 0), next);
    }
    for (int k = 0; k < n - 1; k++) {
        uint32_t chunk = base + (uint32_t)tti_mod(self - k, n);
        bool pass_on = k < n - 2;
        tti_recv(builder, lane, chunk, 1, previous, tti_out(chunk), pass_on ? TTI_FORWARD : 0,
                 pass_on ? next : -1);
    }
}

struct tti_fold tti_fold_of(int nranks, int rank)
{
    int size = tti_power_floor(nranks), extras = nranks - size;
    if (rank >= 2 * extras)
        return (struct tti_fold){size, rank - extras, -1};
    bool odd = rank % 2 == 1;
    return (struct tti_fold){size, odd ? -1 : rank / 2, odd ? rank - 1 : rank + 1};
}

/* ---- recursive halving and doubling ---- */

struct halving {
    struct tti_builder *b;
    int lane;
    const struct tti_group *group;
    struct tti_fold fold; /* of places in the group */
    uint32_t base;
    int first, length; /* the range of chunks held */
};

/* The member at `mask` from the own one among those that take part. */
static int halving_peer(const struct halving *h, int mask)
{
    return tti_fold_rank(h->group->size, h->fold.size, h->fold.place ^ mask);
}

/* Fold in, then halve until one chunk is left, complete, and on its way to the last partner. */
static void halving_reduce_scatter(struct halving *h)
{
    const struct tti_group *group = h->group;
    int lane = h->lane, size = h->fold.size;
    bool in_scratch = tti_group_sums(group, group->self);
    if (h->fold.extra >= 0) {
        tti_recv_reduce(h->b, lane, h->base, (uint32_t)size, tti_group_rank(group, h->fold.extra),
                        tti_group_own(group, h->base), tti_scratch(h->base),
                        tti_group_sums(group, h->fold.extra) ? TTI_MSG_ACC : 0, -1);
        in_scratch = true;
    }
    for (int mask = 1; mask < size; mask *= 2) {
        int place = halving_peer(h, mask), peer = tti_group_rank(group, place);
        bool upper = h->fold.place & mask, complete = mask == size / 2;
        bool peer_sums =
            mask > 1 || tti_group_sums(group, place) || tti_fold_of(group->size, place).extra >= 0;
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
        int peer = tti_group_rank(h->group, halving_peer(h, mask));
        bool upper = h->fold.place & mask;
        bool pass_on = mask == 1 && h->fold.extra >= 0;
        int extra = pass_on ? tti_group_rank(h->group, h->fold.extra) : -1;
        uint32_t count = (uint32_t)h->length;
        uint32_t held = h->base + (uint32_t)h->first;
        uint32_t wanted = upper ? held - count : held + count;
        if (mask < size / 2)
            tti_send(h->b, lane, held, count, tti_out(held), peer);
        if (pass_on)
            tti_send(h->b, lane, held, count, tti_out(held), extra);
        tti_recv(h->b, lane, wanted, count, peer, tti_out(wanted), pass_on ? TTI_FORWARD : 0,
                 extra);
        h->first = upper ? h->first - h->length : h->first;
        h->length *= 2;
    }
}

/* The odd rank of a pair: the even one holds the half that bit 0 of its place names first. */
static void halving_extra(struct halving *h)
{
    int even = tti_group_rank(h->group, h->fold.extra);
    int place = tti_fold_of(h->group->size, h->fold.extra).place;
    uint32_t half = (uint32_t)h->fold.size / 2;
    uint32_t low = h->base, high = h->base + half;
    uint32_t first = place & 1 ? high : low, second = place & 1 ? low : high;
    tti_send(h->b, h->lane, low, 2 * half, tti_group_own(h->group, low), even);
    tti_recv(h->b, h->lane, first, half, even, tti_out(first), 0, -1);
    tti_recv(h->b, h->lane, second, half, even, tti_out(second), 0, -1);
}

void tti_halving_steps(struct tti_builder *builder, int lane, uint32_t base,
                       const struct tti_group *group)
{
    struct tti_fold fold = tti_fold_of(group->size, group->self);
    struct halving h = {builder, lane, group, fold, base, 0, fold.size};
    if (group->size == 1) {
        tti_copy(builder, lane, base, 1, tti_group_own(group, base), tti_out(base), TTI_FINAL, -1);
    } else if (fold.place < 0) {
        halving_extra(&h);
    } else {
        halving_reduce_scatter(&h);
        halving_all_gather(&h);
    }
}

double tti_direct_cost(const struct tti_plan_spec *spec, double bytes, double alpha, double beta)
{
    double n = spec->nranks;
    return n > 1 ? alpha + (n - 1) * bytes * beta : 0;
}

double tti_ring_cost(const struct tti_plan_spec *spec, double bytes, double alpha, double beta)
{
    return (spec->nranks - 1) * (alpha + bytes * beta);
}

double tti_chain_cost(const struct tti_plan_spec *spec, double bytes, double alpha, double beta)
{
    double n = spec->nranks, slices = spec->slices;
    return n > 1 ? (n - 2 + slices) * (alpha + bytes / slices * beta) : 0;
}
