/* Step sequences that several algorithms share (coll/algorithms/parts.h). */
#include "coll/algorithms/parts.h"

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
                    const struct tti_group *group, enum tti_buffer own, bool previous_sums,
                    uint32_t slot)
{
    int n = group->size, self = group->self;
    if (n == 1) {
        tti_copy(builder, lane, base, 1, (struct tti_ref){own, base}, tti_out(base), TTI_FINAL, -1);
        return;
    }
    int next = tti_group_rank(group, (self + 1) % n);
    int previous = tti_group_rank(group, (self + n - 1) % n);
    uint32_t first = base + (uint32_t)self;
    tti_send(builder, lane, first, 1, (struct tti_ref){own, first}, next);
    for (int k = 1; k < n; k++) {
        uint32_t chunk = base + (uint32_t)tti_mod(self - k, n);
        int acc = k > 1 || previous_sums ? TTI_MSG_ACC : 0;
        bool complete = k == n - 1;
        struct tti_ref dst = complete ? tti_out(chunk) : tti_slot(slot + (uint32_t)(k & 1));
        tti_recv_reduce(builder, lane, chunk, 1, previous, (struct tti_ref){own, chunk}, dst,
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
