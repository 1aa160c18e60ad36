/* The distributed sampler (tutti/ddp.h).
 *
 * The permutation is the one that PyTorch draws on the CPU, so that a run here sees the samples in
 * the order in which a PyTorch run sees them: 32-bit Mersenne twister (Matsumoto and Nishimura
 * 1998) seeded with the low 32 bits of seed + epoch, then for each place i an exchange with place
 * i + random mod (n - i). PyTorch does so for n < UINT32_MAX / 20 (214,748,364); from there on
 * newer versions (pull request 143682) draw 64 bits a place and fill in another
 * way, since this remainder favours low places the more, the nearer n is to 2^32. Here it is the
 * same way for all n. */
#include "base/memory.h"
#include "tutti/ddp.h"

#include <stdlib.h>

enum { TWISTER_WORDS = 624, TWISTER_SHIFT = 397 };

struct twister {
    uint32_t words[TWISTER_WORDS];
    int used;
};

struct tutti_sampler {
    struct tutti_sampler_options options;
    uint64_t epoch;
    uint64_t start; /* what all ranks had taken when seek put us here */
    uint64_t taken; /* of this rank, since then */
    uint64_t share; /* of this rank, from start to the end of the epoch */
    uint32_t *order;
};

static void twister_seed(struct twister *t, uint32_t seed)
{
    t->words[0] = seed;
    for (uint32_t i = 1; i < TWISTER_WORDS; i++)
        t->words[i] = UINT32_C(1812433253) * (t->words[i - 1] ^ t->words[i - 1] >> 30) + i;
    t->used = TWISTER_WORDS;
}

static void twister_refill(struct twister *t)
{
    for (int i = 0; i < TWISTER_WORDS; i++) {
        const uint32_t mixed = (t->words[i] & UINT32_C(0x80000000)) |
                               (t->words[(i + 1) % TWISTER_WORDS] & UINT32_C(0x7fffffff));
        t->words[i] = t->words[(i + TWISTER_SHIFT) % TWISTER_WORDS] ^ mixed >> 1 ^
                      (mixed & 1 ? UINT32_C(0x9908b0df) : 0);
    }
    t->used = 0;
}

static uint32_t twister_next(struct twister *t)
{
    if (t->used == TWISTER_WORDS)
        twister_refill(t);
    uint32_t y = t->words[t->used++];
    y ^= y >> 11;
    y ^= y << 7 & UINT32_C(0x9d2c5680);
    y ^= y << 15 & UINT32_C(0xefc60000);
    return y ^ y >> 18;
}

static void sampler_shuffle(tutti_sampler *s)
{
    const uint32_t n = (uint32_t)s->options.samples;
    for (uint32_t i = 0; i < n; i++)
        s->order[i] = i;
    if (s->options.in_order)
        return;
    struct twister t;
    twister_seed(&t, (uint32_t)(s->options.seed + s->epoch));
    for (uint32_t i = 0; i + 1 < n; i++) {
        const uint32_t other = i + twister_next(&t) % (n - i);
        const uint32_t kept = s->order[i];
        s->order[i] = s->order[other];
        s->order[other] = kept;
    }
}

enum tutti_result tutti_sampler_seek(tutti_sampler *s, uint64_t epoch, uint64_t position)
{
    const uint64_t n = s->options.samples, ranks = (uint64_t)s->options.ranks;
    if (position > n)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "sampler: position %llu is beyond the end of %llu samples; is the "
                        "checkpoint of another data set?",
                        (unsigned long long)position, (unsigned long long)n);
    s->epoch = epoch;
    s->start = position;
    s->taken = 0;
    s->share = (n - position + (s->options.drop_last ? 0 : ranks - 1)) / ranks;
    sampler_shuffle(s);
    return TUTTI_OK;
}

enum tutti_result tutti_sampler_create(const struct tutti_sampler_options *o,
                                       tutti_sampler **sampler)
{
    if (o->size != sizeof *o)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "sampler: size is %zu; start from TUTTI_SAMPLER_INIT",
                        o->size);
    if (o->samples < 1 || o->samples > INT32_MAX)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "sampler: %zu samples; 1 to 2147483647 are possible",
                        o->samples);
    if (o->ranks < 1 || o->rank < 0 || o->rank >= o->ranks)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "sampler: there is no rank %d of %d", o->rank,
                        o->ranks);
    tutti_sampler *made = tti_calloc(1, sizeof *made);
    if (!made)
        return TUTTI_ERR_MEMORY;
    made->options = *o;
    made->order = tti_calloc(o->samples, sizeof *made->order);
    enum tutti_result result = made->order ? tutti_sampler_seek(made, 0, 0) : TUTTI_ERR_MEMORY;
    if (result != TUTTI_OK) {
        tutti_sampler_destroy(made);
        return result;
    }
    *sampler = made;
    return TUTTI_OK;
}

void tutti_sampler_destroy(tutti_sampler *s)
{
    if (s)
        free(s->order);
    free(s);
}

size_t tutti_sampler_left(const tutti_sampler *s)
{
    return (size_t)(s->share - s->taken);
}

enum tutti_result tutti_sampler_next(tutti_sampler *s, size_t count, size_t *indices, size_t *taken)
{
    const uint64_t ranks = (uint64_t)s->options.ranks;
    const size_t left = tutti_sampler_left(s), got = count < left ? count : left;
    for (size_t i = 0; i < got; i++) {
        const uint64_t place = s->start + (s->taken + i) * ranks + (uint64_t)s->options.rank;
        indices[i] = s->order[place % s->options.samples]; /* past the end: the head again */
    }
    s->taken += got;
    *taken = got;
    return TUTTI_OK;
}

void tutti_sampler_position(const tutti_sampler *s, uint64_t *epoch, uint64_t *position)
{
    const uint64_t n = s->options.samples;
    const uint64_t all = s->start + s->taken * (uint64_t)s->options.ranks;
    *epoch = s->epoch;
    *position = all < n ? all : n; /* what was repeated at the end does not count */
}
