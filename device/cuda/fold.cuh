/* Folding n sources into m destinations, over a range of elements shared by a set of threads:
 * what reduce_copy and the all-reduce kernels have in common. 16-byte accesses wherever all
 * operands reach a 16-byte boundary together, single elements before, after and otherwise; an
 * address that is not even aligned to its element goes byte by byte. Next: reduce_copy.cu. */
#ifndef TTI_DEVICE_CUDA_FOLD_CUH
#define TTI_DEVICE_CUDA_FOLD_CUH

#include "device/cuda/element.cuh"

/* 16 bytes, as words or elements. */
template <class W> union alignas(16) tti_pack {
    uint32_t quad[4];
    W word[16 / sizeof(W)];
};

/* From global memory, or from the block's own. */
template <class T> TTI_DEVICE T tti_load(const T *at, bool near)
{
    return near ? tti_load_near_one(at) : *tti_global(at);
}

template <class W> TTI_DEVICE tti_pack<W> tti_load_pack(const tti_pack<W> *at, bool near)
{
    if (!near)
        return *tti_global(at);
    tti_pack<W> p;
    tti_load_near(at, p.quad);
    return p;
}

template <class W> TTI_DEVICE W tti_load_any(const void *at, bool near = false)
{
    if ((uintptr_t)at % sizeof(W) == 0)
        return tti_load((const W *)at, near);
    union {
        uint8_t byte[sizeof(W)];
        W word;
    } u;
    TTI_EACH (i, sizeof(W))
        u.byte[i] = tti_load((const uint8_t *)at + i, near);
    return u.word;
}

template <class W> TTI_DEVICE void tti_store_any(void *at, W value)
{
    at = tti_global(at);
    if ((uintptr_t)at % sizeof(W) == 0) {
        *(W *)at = value;
        return;
    }
    union {
        uint8_t byte[sizeof(W)];
        W word;
    } u;
    u.word = value;
    TTI_EACH (i, sizeof(W))
        ((uint8_t *)at)[i] = u.byte[i];
}

/* What to fold: as tti_reduce_copy_args, without the range. */
struct tti_fold {
    const void *const *src;
    void *const *dst;
    uint32_t srcs, dsts;
    uint32_t src_wide, dst_wide;
    uint32_t op, divisor;
    uint32_t scaled; /* bit k: source k times scale[k * scale_step] */
    uint32_t first;  /* the destination to begin with, so that not all ranks begin with one */
    uint32_t scale_step;
    const uint64_t *scale; /* one element each; read only for scaled sources */
    bool near = false;     /* sources may lie in shared memory, and are asked; else all is global */
};

/* Whether the result is the one source, bit for bit, NaNs included. Bits of sources that there are
 * not may be set. */
TTI_DEVICE bool tti_fold_is_copy(const tti_fold &f)
{
    return f.srcs == 1 && f.divisor == 0 && (f.scaled & 1) == 0 && (f.src_wide & 1) == 0;
}

/* One group: the elements of a 16-byte pack, in registers. */
template <int TYPE> struct tti_group {
    typedef tti_element<TYPE> element;
    typedef typename element::word word;
    typedef typename element::acc acc;
    static const int size = 16 / sizeof(word);
    static const int wide_packs = sizeof(acc) / sizeof(word);
};

template <int TYPE, int N>
TTI_DEVICE void tti_fold_load(const tti_fold &f, uint32_t k, uint64_t base, uint64_t at,
                              uint64_t stride, typename tti_group<TYPE>::acc (&value)[N],
                              tti_pack<typename tti_group<TYPE>::word> *raw)
{
    typedef tti_group<TYPE> group;
    typedef typename group::acc acc;
    typedef tti_pack<typename group::word> pack;
    const int packs = N / group::size;
    const void *src = f.src[k];
    const bool near = f.near && tti_is_near(src);
    if (group::wide_packs > 1 && (f.src_wide >> k & 1)) {
        TTI_EACH (u, packs) {
            const tti_pack<acc> *from =
                (const tti_pack<acc> *)((const acc *)src + base + (at + u * stride) * group::size);
            TTI_EACH (w, group::wide_packs) {
                const tti_pack<acc> p = tti_load_pack(from + w, near);
                const int each = 16 / sizeof(acc);
                TTI_EACH (i, each)
                    value[u * group::size + w * each + i] = p.word[i];
            }
        }
        return;
    }
    pack p[packs];
    TTI_EACH (u, packs)
        p[u] = tti_load_pack(
            (const pack *)((const typename group::word *)src + base) + at + u * stride, near);
    if (f.scaled >> k & 1) {
        const acc factor = tti_factor<TYPE>(f.scale[k * f.scale_step]);
        TTI_EACH (i, N) {
            typename group::word &w = p[i / group::size].word[i % group::size];
            w = tti_scaled<TYPE>(w, factor);
        }
    }
    TTI_EACH (i, N)
        value[i] = group::element::widen(p[i / group::size].word[i % group::size]);
    if (raw) {
        TTI_EACH (u, packs)
            raw[u] = p[u];
    }
}

template <int TYPE, int N>
TTI_DEVICE void tti_fold_store(const tti_fold &f, uint32_t k, uint64_t base, uint64_t at,
                               uint64_t stride, const typename tti_group<TYPE>::acc (&value)[N],
                               const tti_pack<typename tti_group<TYPE>::word> *narrow)
{
    typedef tti_group<TYPE> group;
    typedef typename group::acc acc;
    typedef tti_pack<typename group::word> pack;
    const int packs = N / group::size;
    void *dst = tti_global(f.dst[k]);
    if (group::wide_packs > 1 && (f.dst_wide >> k & 1)) {
        TTI_EACH (u, packs) {
            tti_pack<acc> *to =
                (tti_pack<acc> *)((acc *)dst + base + (at + u * stride) * group::size);
            TTI_EACH (w, group::wide_packs) {
                const int each = 16 / sizeof(acc);
                tti_pack<acc> p;
                TTI_EACH (i, each)
                    p.word[i] = value[u * group::size + w * each + i];
                tti_store_sixteen(to + w, p.quad);
            }
        }
        return;
    }
    TTI_EACH (u, packs)
        tti_store_sixteen((pack *)((typename group::word *)dst + base) + at + u * stride,
                          narrow[u].quad);
}

/* PACKS packs of 16 bytes, `stride` packs apart, from pack `at` on: counted from element `base`,
 * which lies at a 16-byte boundary in all operands. */
template <int TYPE, int PACKS>
TTI_DEVICE void tti_fold_packs(const tti_fold &f, uint64_t base, uint64_t at, uint64_t stride)
{
    typedef tti_group<TYPE> group;
    const int N = PACKS * group::size;
    typename group::acc total[N];
    tti_pack<typename group::word> narrow[PACKS];
    tti_fold_load<TYPE, N>(f, 0, base, at, stride, total, narrow);
    TTI_LOOP (k, 1, f.srcs) {
        typename group::acc next[N];
        tti_fold_load<TYPE, N>(f, k, base, at, stride, next, 0);
        tti_combine(f.op, total, next);
    }
    if (f.divisor) {
        TTI_EACH (i, N)
            total[i] = tti_divided(total[i], f.divisor);
    }
    if (!tti_fold_is_copy(f)) {
        TTI_EACH (i, N)
            narrow[i / group::size].word[i % group::size] = group::element::narrow(total[i]);
    }
    TTI_LOOP (d, 0, f.dsts) {
        const uint32_t k = f.first + d < f.dsts ? f.first + d : f.first + d - f.dsts;
        tti_fold_store<TYPE, N>(f, k, base, at, stride, total, narrow);
    }
}

/* One element, anywhere. */
template <int TYPE> TTI_DEVICE void tti_fold_one(const tti_fold &f, uint64_t at)
{
    typedef tti_element<TYPE> element;
    typedef typename element::word word;
    typedef typename element::acc acc;
    acc total[1] = {};
    word narrow = word();
    TTI_LOOP (k, 0, f.srcs) {
        acc next[1];
        const bool near = f.near && tti_is_near(f.src[k]);
        if (element::low && (f.src_wide >> k & 1)) {
            next[0] = tti_load_any<acc>((const acc *)f.src[k] + at, near);
        } else {
            narrow = tti_load_any<word>((const word *)f.src[k] + at, near);
            if (f.scaled >> k & 1)
                narrow = tti_scaled<TYPE>(narrow, tti_factor<TYPE>(f.scale[k * f.scale_step]));
            next[0] = element::widen(narrow);
        }
        if (k == 0)
            total[0] = next[0];
        else
            tti_combine(f.op, total, next);
    }
    if (f.divisor)
        total[0] = tti_divided(total[0], f.divisor);
    if (!tti_fold_is_copy(f))
        narrow = element::narrow(total[0]);
    TTI_LOOP (k, 0, f.dsts) {
        if (element::low && (f.dst_wide >> k & 1))
            tti_store_any<acc>((acc *)f.dst[k] + at, total[0]);
        else
            tti_store_any<word>((word *)f.dst[k] + at, narrow);
    }
}

/* How many elements from element `begin` on until this operand is at a 16-byte boundary, or a
 * number above any group if it never is (modulo the group). */
template <int TYPE>
TTI_DEVICE uint32_t tti_fold_head_of(const void *operand, bool wide, uint64_t begin)
{
    typedef tti_group<TYPE> group;
    const uint32_t size = wide ? sizeof(typename group::acc) : sizeof(typename group::word);
    const uint32_t off = (uint32_t)((uintptr_t)operand + begin * size) & 15;
    const uint32_t gap = (16 - off) & 15;
    return gap % size ? ~0u : gap / size;
}

/* Elements before the first pack that all operands share; ~0 if there is none. A wide operand
 * reaches a boundary more often than a narrow one. */
template <int TYPE> TTI_DEVICE uint32_t tti_fold_head(const tti_fold &f, uint64_t begin)
{
    typedef tti_group<TYPE> group;
    uint32_t head = 0, period = 1; /* boundaries at head, head + period, ... */
    for (uint32_t k = 0; k < f.srcs + f.dsts; k++) {
        const bool is_src = k < f.srcs;
        const uint32_t i = is_src ? k : k - f.srcs;
        const bool wide = tti_element<TYPE>::low && ((is_src ? f.src_wide : f.dst_wide) >> i & 1);
        const uint32_t own = tti_fold_head_of<TYPE>(is_src ? f.src[i] : f.dst[i], wide, begin);
        const uint32_t every = wide ? 16 / sizeof(typename group::acc) : group::size;
        if (own == ~0u)
            return ~0u;
        const uint32_t fewer = every < period ? every : period;
        if (own % fewer != head % fewer)
            return ~0u;
        if (every > period) {
            head = own;
            period = every;
        }
    }
    return head;
}

/* Packs of one source that a thread loads before it needs the first: fewer for small elements,
 * whose accumulators take more registers. */
template <int TYPE> struct tti_unroll {
    static const int packs = sizeof(typename tti_element<TYPE>::word) == 1   ? 1
                             : sizeof(typename tti_element<TYPE>::word) == 2 ? 2
                                                                             : 4;
};

/* Elements [begin, end) of all operands, by `threads` threads of which this is number `thread`. */
template <int TYPE, int PACKS = tti_unroll<TYPE>::packs>
TTI_DEVICE void tti_fold_range(const tti_fold &f, uint64_t begin, uint64_t end, uint64_t thread,
                               uint64_t threads)
{
    typedef tti_group<TYPE> group;
    const uint32_t found = tti_fold_head<TYPE>(f, begin);
    const bool packed = found != ~0u && begin + found < end;
    const uint64_t head = packed ? found : 0;
    const uint64_t packs = packed ? (end - begin - head) / group::size : 0;
    /* Before, behind, or all: one loop, since its body is long for every type. */
    const uint64_t within = packs * group::size, singles = end - begin - within;
    for (uint64_t i = thread; i < singles; i += threads)
        tti_fold_one<TYPE>(f, begin + i + (i < head ? 0 : within));

    uint64_t at = thread;
    if constexpr (PACKS > 1) {
        for (; at + (PACKS - 1) * threads < packs; at += PACKS * threads)
            tti_fold_packs<TYPE, PACKS>(f, begin + head, at, threads);
    }
    for (; at < packs; at += threads)
        tti_fold_packs<TYPE, 1>(f, begin + head, at, threads);
}

#endif
