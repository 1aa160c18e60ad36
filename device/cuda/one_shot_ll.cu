/* All-reduce for the smallest messages: every rank writes its whole input into a slot at every
 * other, and folds all of it in rank order. Data and flag travel in one store (struct tti_packet),
 * so that there is no fence and no barrier: one trip. The plan one_shot_all_reduce is its equal.
 *
 * The flag is the low half of the epoch; slots are used by turns in odd and even epochs. Whoever
 * writes a slot again, two epochs on, has seen packets of the epoch between from its reader, which
 * by then had ended the first. When the low half comes round, a flag of the round before could
 * still lie in a slot that was not used since; so the first launch of either turn in a stretch of
 * 2^28 epochs writes whole slots. */
#include "device/cuda/couple.cuh"
#include "device/cuda/eight.cuh"

enum { TTI_SWEEP_SHIFT = 28 };

/* A kernel's view of its arguments, the same in all threads. */
template <int TYPE> struct tti_one_shot {
    typedef tti_element<TYPE> element;
    typedef typename element::word word;
    typedef typename element::acc acc;

    uint64_t bytes, packets, capacity; /* of the message; in a slot */
    uint64_t epoch;
    bool sweep;
    acc factor;

    /* The slot at rank `at` for what rank `from` sends in this epoch. */
    TTI_MEMBER tti_packet *slot(const tti_coupled_args &a, uint32_t at, uint32_t from) const
    {
        const uint64_t turn = epoch & 1;
        return (tti_packet *)a.slots[at] + (turn * a.ranks + from) * capacity;
    }

    TTI_MEMBER void send(const tti_coupled_args &a) const
    {
        const uint32_t flag = (uint32_t)epoch;
        const uint64_t end = sweep ? capacity : packets;
        for (uint64_t i = tti_thread_of_grid(); i < end; i += tti_threads_of_grid()) {
            tti_eight<word> e;
            e.bits = 0;
            if (i < packets)
                e = tti_own_eight<TYPE>(a, i, bytes, factor);
            const tti_packet p = {e.half[0], flag, e.half[1], flag};
            TTI_LOOP (k, 1, a.ranks) {
                const uint32_t peer = a.rank + k < a.ranks ? a.rank + k : a.rank + k - a.ranks;
                tti_packet_store(slot(a, peer, a.rank) + i, p);
            }
        }
    }

    /* What rank `from` sent at i; false: give up. */
    TTI_MEMBER bool receive(const tti_coupled_args &a, const tti_watch &watch, uint32_t from,
                            uint64_t i, tti_eight<word> *e) const
    {
        const tti_packet *at = slot(a, a.rank, from) + i;
        tti_packet p = tti_packet_load(at);
        const uint32_t flag = (uint32_t)epoch;
        for (uint32_t polls = 1; p.flag0 != flag || p.flag1 != flag; polls++) {
            if (polls % TTI_POLLS_PER_LOOK == 0 && !tti_watch_look(watch, from))
                return false;
            tti_relax();
            p = tti_packet_load(at);
        }
        e->half[0] = p.data0;
        e->half[1] = p.data1;
        return true;
    }

    /* All of 8 bytes: fold, finish, store. */
    TTI_MEMBER bool fold(const tti_coupled_args &a, const tti_watch &watch, uint64_t i) const
    {
        tti_eight<word> e;
        tti_total<TYPE> total;
        TTI_LOOP (r, 0, a.ranks) {
            if (r == a.rank)
                e = tti_own_eight<TYPE>(a, i, bytes, factor);
            else if (!receive(a, watch, r, i, &e))
                return false;
            total.add(a, r == 0, e);
        }
        tti_store_eight<word>(a.out[a.rank], i, bytes, total.finish(a, e));
        return true;
    }
};

template <int TYPE> TTI_DEVICE void tti_one_shot_ll(const tti_coupled_args &a)
{
    typedef typename tti_element<TYPE>::word word;
    tti_one_shot<TYPE> k;
    tti_gpu_control *own = a.control[a.rank];
    k.epoch = tti_enter(own);
    const uint32_t stretch = (uint32_t)(k.epoch >> TTI_SWEEP_SHIFT);
    uint32_t *swept = &own->swept[k.epoch & 1];
    k.sweep = *swept != stretch;
    k.bytes = a.count * sizeof(word);
    k.packets = (k.bytes + 7) / 8;
    k.capacity = a.slot_bytes / 8;
    k.factor = tti_own_factor<TYPE>(a);
    k.send(a);
    const tti_watch watch = tti_watch_begin(a.status, a.control[a.rank], a.timeout_ns, k.epoch);
    for (uint64_t i = tti_thread_of_grid(); i < k.packets; i += tti_threads_of_grid())
        if (!k.fold(a, watch, i))
            break;
    if (tti_leaves_last(own)) {
        *swept = stretch;
        tti_end_epoch(own, k.epoch);
    }
}

#define ONE_SHOT_LL(type, suffix)                                    \
    TTI_KERNEL(tti_kernel_one_shot_ll_##suffix, tti_coupled_args, a) \
    {                                                                \
        tti_one_shot_ll<type>(a);                                    \
    }
TTI_FOR_TYPES(ONE_SHOT_LL)
