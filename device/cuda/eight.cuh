/* Messages in words of 8 bytes, which is how the one-shot all-reduces move them: loading and
 * storing at any address, this rank's contribution, and the fold in rank order. */
#ifndef TTI_DEVICE_CUDA_EIGHT_CUH
#define TTI_DEVICE_CUDA_EIGHT_CUH

#include "device/cuda/fold.cuh"

template <class W> union tti_eight {
    uint64_t bits;
    uint32_t half[2];
    W word[8 / sizeof(W)];
};

/* The 8 bytes from byte 8*i on; beyond the end, zeros. */
template <class W>
TTI_DEVICE tti_eight<W> tti_load_eight(const void *from, uint64_t i, uint64_t bytes)
{
    tti_eight<W> e;
    const char *at = (const char *)from + 8 * i;
    if ((uintptr_t)at % 8 == 0 && 8 * i + 8 <= bytes) {
        e.bits = *(const uint64_t *)at;
        return e;
    }
    e.bits = 0;
    TTI_EACH (k, 8 / sizeof(W))
        if (8 * i + k * sizeof(W) < bytes)
            e.word[k] = tti_load_any<W>(at + k * sizeof(W));
    return e;
}

template <class W>
TTI_DEVICE void tti_store_eight(void *to, uint64_t i, uint64_t bytes, tti_eight<W> e)
{
    char *at = (char *)to + 8 * i;
    if ((uintptr_t)at % 8 == 0 && 8 * i + 8 <= bytes) {
        *(uint64_t *)at = e.bits;
        return;
    }
    TTI_EACH (k, 8 / sizeof(W))
        if (8 * i + k * sizeof(W) < bytes)
            tti_store_any<W>(at + k * sizeof(W), e.word[k]);
}

/* What this rank multiplies its input with. */
template <int TYPE>
TTI_DEVICE typename tti_element<TYPE>::acc tti_own_factor(const tti_coupled_args &a)
{
    typedef typename tti_element<TYPE>::word word;
    if (a.scaled && a.scale_at)
        return tti_element<TYPE>::widen(tti_load_any<word>(a.scale_at));
    return tti_factor<TYPE>(a.scale);
}

/* Word i of this rank's contribution. */
template <int TYPE>
TTI_DEVICE tti_eight<typename tti_element<TYPE>::word>
tti_own_eight(const tti_coupled_args &a, uint64_t i, uint64_t bytes,
              typename tti_element<TYPE>::acc factor)
{
    typedef typename tti_element<TYPE>::word word;
    tti_eight<word> e = tti_load_eight<word>(a.in[a.rank], i, bytes);
    if (a.scaled) {
        TTI_EACH (k, 8 / sizeof(word))
            e.word[k] = tti_scaled<TYPE>(e.word[k], factor);
    }
    return e;
}

/* The fold of the ranks' words, in their order. */
template <int TYPE> struct tti_total {
    typedef tti_element<TYPE> element;
    typedef typename element::word word;
    typedef typename element::acc acc;
    static const int each = 8 / sizeof(word);

    acc value[each] = {};

    TTI_MEMBER void add(const tti_coupled_args &a, bool first, const tti_eight<word> &e)
    {
        acc next[each];
        TTI_EACH (k, each)
            next[k] = element::widen(e.word[k]);
        if (!first) {
            tti_combine(a.op, value, next);
        } else {
            TTI_EACH (k, each)
                value[k] = next[k];
        }
    }

    /* The result; that of one rank alone is `only`, bit for bit. */
    TTI_MEMBER tti_eight<word> finish(const tti_coupled_args &a, const tti_eight<word> &only)
    {
        tti_eight<word> e = only;
        if (a.divisor) {
            TTI_EACH (k, each)
                value[k] = tti_divided(value[k], a.divisor);
        }
        if (a.ranks > 1 || a.divisor) {
            TTI_EACH (k, each)
                e.word[k] = element::narrow(value[k]);
        }
        return e;
    }
};

#endif
