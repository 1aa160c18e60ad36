/* All-reduce for small messages, as one_shot_ll.cu, with less overhead a byte: lines of 128 bytes,
 * of which 120 are payload and the last 8 the flag, the epoch itself. Eight neighbouring lanes of a
 * warp store a line together, and it must arrive whole: so between memories that keep 128-byte
 * stores of a warp together, which one GPU's and NVLink do, and PCIe does not.
 *
 * Slots by turns in odd and even epochs, as there; flags do not come round, being 64 bits wide. */
#include "device/cuda/couple.cuh"
#include "device/cuda/eight.cuh"

enum {
    TTI_LANES_A_LINE = 8,
    TTI_WORDS_A_LINE = 15, /* of 8 bytes: two a lane, the last lane has one and the flag */
};

/* A kernel's view of its arguments. One object a thread: its lane of a line is fixed. */
template <int TYPE> struct tti_one_shot_lines {
    typedef tti_element<TYPE> element;
    typedef typename element::word word;
    typedef typename element::acc acc;

    uint64_t bytes, lines, capacity; /* of the message; in a slot */
    uint64_t epoch;
    uint32_t lane, mask; /* of the line; the lanes of the warp that share it */
    acc factor;

    TTI_MEMBER bool has_flag(void) const
    {
        return lane == TTI_LANES_A_LINE - 1;
    }

    /* Where this lane's 16 bytes of line i lie, in the slot at rank `at` for rank `from`. */
    TTI_MEMBER uint64_t *place(const tti_coupled_args &a, uint32_t at, uint32_t from,
                               uint64_t i) const
    {
        const uint64_t slot = (epoch & 1) * a.ranks + from;
        return (uint64_t *)a.lines[at] + ((slot * capacity + i) * TTI_LANES_A_LINE + lane) * 2;
    }

    /* This lane's words of line i: numbers in the message. */
    TTI_MEMBER uint64_t first_word(uint64_t i) const
    {
        return i * TTI_WORDS_A_LINE + 2 * lane;
    }

    TTI_MEMBER void own(const tti_coupled_args &a, uint64_t i, tti_eight<word> (&e)[2]) const
    {
        TTI_EACH (k, 2) {
            e[k].bits = 0;
            if (k == 0 || !has_flag())
                e[k] = tti_own_eight<TYPE>(a, first_word(i) + k, bytes, factor);
        }
    }

    TTI_MEMBER void send(const tti_coupled_args &a, uint64_t i) const
    {
        tti_eight<word> e[2];
        own(a, i, e);
        const uint64_t second = has_flag() ? epoch : e[1].bits;
        TTI_LOOP (k, 1, a.ranks) {
            const uint32_t peer = a.rank + k < a.ranks ? a.rank + k : a.rank + k - a.ranks;
            tti_line_store(place(a, peer, a.rank, i), e[0].bits, second, has_flag(), mask);
        }
    }

    /* Line i of rank `from`; false: give up, in all lanes of the line. */
    TTI_MEMBER bool receive(const tti_coupled_args &a, const tti_watch &watch, uint32_t from,
                            uint64_t i, tti_eight<word> (&e)[2]) const
    {
        const uint64_t *at = place(a, a.rank, from, i);
        for (uint32_t polls = 1;; polls++) {
            tti_line_load(at, &e[0].bits, &e[1].bits, has_flag(), mask);
            if (__all_sync(mask, !has_flag() || e[1].bits == epoch))
                return true;
            bool on = true;
            if (polls % TTI_POLLS_PER_LOOK == 0)
                on = !has_flag() || tti_watch_look(watch, from);
            if (!__all_sync(mask, on))
                return false;
            tti_relax();
        }
    }

    TTI_MEMBER bool fold(const tti_coupled_args &a, const tti_watch &watch, uint64_t i) const
    {
        tti_eight<word> e[2] = {}; /* GCC 11 does not see that some r is filled in */
        tti_total<TYPE> total[2];
        TTI_LOOP (r, 0, a.ranks) {
            if (r == a.rank)
                own(a, i, e);
            else if (!receive(a, watch, r, i, e))
                return false;
            TTI_EACH (k, 2)
                total[k].add(a, r == 0, e[k]);
        }
        TTI_EACH (k, 2)
            if (k == 0 || !has_flag())
                tti_store_eight<word>(a.out[a.rank], first_word(i) + k, bytes,
                                      total[k].finish(a, e[k]));
        return true;
    }
};

template <int TYPE> TTI_DEVICE void tti_one_shot_ll128(const tti_coupled_args &a)
{
    typedef typename tti_element<TYPE>::word word;
    tti_one_shot_lines<TYPE> k;
    k.epoch = tti_enter(a.control[a.rank]);
    k.bytes = a.count * sizeof(word);
    k.lines = (k.bytes + 119) / 120;
    k.capacity = a.line_bytes / 120;
    k.lane = threadIdx.x % TTI_LANES_A_LINE;
    k.mask = 0xffu << (threadIdx.x % 32 - k.lane);
    k.factor = tti_own_factor<TYPE>(a);
    const uint64_t begin = tti_thread_of_grid() / TTI_LANES_A_LINE;
    const uint64_t step = tti_threads_of_grid() / TTI_LANES_A_LINE;
    for (uint64_t i = begin; i < k.lines; i += step)
        k.send(a, i);
    const tti_watch watch = tti_watch_begin(a.status, a.control[a.rank], a.timeout_ns, k.epoch);
    for (uint64_t i = begin; i < k.lines; i += step)
        if (!k.fold(a, watch, i))
            break;
    if (tti_leaves_last(a.control[a.rank]))
        tti_end_epoch(a.control[a.rank], k.epoch);
}

#define ONE_SHOT_LL128(type, suffix)                                    \
    TTI_KERNEL(tti_kernel_one_shot_ll128_##suffix, tti_coupled_args, a) \
    {                                                                   \
        tti_one_shot_ll128<type>(a);                                    \
    }
TTI_FOR_TYPES(ONE_SHOT_LL128)
