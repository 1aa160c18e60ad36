/* Numbers drawn from a seed: the same on every machine and rank that has the same seed. */
#ifndef TTI_TESTS_CHANCE_H
#define TTI_TESTS_CHANCE_H

#include <stdbool.h>
#include <stdint.h>

struct draw {
    uint64_t state;
};

static inline uint64_t draw_mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static inline struct draw draw_from(uint64_t seed, uint64_t which)
{
    return (struct draw){draw_mix(seed ^ draw_mix(which + 1))};
}

static inline uint64_t draw_next(struct draw *d)
{
    d->state += UINT64_C(0x9e3779b97f4a7c15);
    return draw_mix(d->state);
}

/* 0 .. n-1; n > 0 */
static inline uint64_t draw_below(struct draw *d, uint64_t n)
{
    return draw_next(d) % n;
}

static inline int draw_int(struct draw *d, int n)
{
    return (int)draw_below(d, (uint64_t)n);
}

/* True once in n times. */
static inline bool draw_once_in(struct draw *d, int n)
{
    return draw_int(d, n) == 0;
}

#endif
