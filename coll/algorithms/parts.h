/* Small arithmetic and step sequences that several algorithms share. */
#ifndef TTI_COLL_ALGORITHMS_PARTS_H
#define TTI_COLL_ALGORITHMS_PARTS_H

#include "plan/build.h"

/* value mod n, in 0 .. n-1 for negative values too. */
static inline int tti_mod(int value, int n)
{
    int rest = value % n;
    return rest < 0 ? rest + n : rest;
}

/* Smallest k with 2^k >= n, for n >= 1. */
static inline int tti_log2_ceil(int n)
{
    int k = 0;
    while ((1 << k) < n)
        k++;
    return k;
}

/* Largest power of two <= n, for n >= 1. */
static inline int tti_power_floor(int n)
{
    int power = 1;
    while (power <= n / 2)
        power *= 2;
    return power;
}

static inline int tti_least(int a, int b)
{
    return a < b ? a : b;
}

/* On how many hosts, and on which one? */
static inline int tti_hosts(const struct tti_plan_spec *spec)
{
    return spec->layout.host_of ? spec->layout.nhosts : 1;
}
static inline int tti_host(const struct tti_plan_spec *spec, int rank)
{
    return spec->layout.host_of ? spec->layout.host_of[rank] : 0;
}
/* `each`: ranks of a host, or -1 when hosts differ; `most`: of the fullest. */
enum tutti_result tti_count_hosts(const struct tti_plan_spec *spec, int *each, int *most);

/* Everybody sends all it has to everybody, and combines it all: the all-reduce one_shot. */
enum tutti_result tti_one_shot_plan(const struct tti_plan_spec *spec, struct tti_plan **plan);

/* Cost formulas (struct tti_algorithm) of what is done in the same way in either direction, over n
 * ranks: n - 1 blocks in one step; as many steps of one block, around a ring; and the whole along a
 * chain, in slices. */
double tti_direct_cost(const struct tti_plan_spec *spec, double bytes, double alpha, double beta);
double tti_ring_cost(const struct tti_plan_spec *spec, double bytes, double alpha, double beta);
double tti_chain_cost(const struct tti_plan_spec *spec, double bytes, double alpha, double beta);

/* Ranks that act together, in the order in which their contributions are combined. */
struct tti_group {
    const int *ranks; /* NULL: ranks 0 .. size-1 */
    const bool *sums; /* which members start from sums in SCRATCH; NULL: none, all from IN */
    int size;
    int self; /* place of the own rank */
};

static inline struct tti_group tti_group_of_all(const struct tti_plan_spec *spec)
{
    return (struct tti_group){NULL, NULL, spec->nranks, spec->rank};
}

static inline int tti_group_rank(const struct tti_group *group, int place)
{
    return group->ranks ? group->ranks[place] : place;
}

static inline bool tti_group_sums(const struct tti_group *group, int place)
{
    return group->sums && group->sums[place];
}

/* What the own rank starts from. */
static inline struct tti_ref tti_group_own(const struct tti_group *group, uint32_t index)
{
    return tti_group_sums(group, group->self) ? tti_scratch(index) : tti_in(index);
}

/* dst = c_0 op c_1 op ... op c_{size-1}, always in that order: c_self is `own`, the others come as
 * one message each of element type. `acc` (SCRATCH or SLOT) holds the sum on the way and may equal
 * dst; `flags` and `to` go to the step that completes dst. Size 1 copies. */
void tti_ordered_reduce(struct tti_builder *builder, int lane, uint32_t chunk, uint32_t n,
                        const struct tti_group *group, struct tti_ref own, struct tti_ref acc,
                        struct tti_ref dst, int flags, int to);

/* One exchange of a whole chunk between two ranks that both complete it: OUT = lower op upper, on
 * each from IN. The upper rank receives apart from reducing: were both to write OUT in the step
 * that receives, each would wait in place for the other to take its IN. Uses SLOT `slot`. */
void tti_pair_all_reduce(struct tti_builder *builder, int lane, uint32_t chunk, bool upper,
                         int peer, uint32_t slot);

/* Ring all-reduce over the group of chunks [base, base + size) to OUT; uses SLOTs slot and
 * slot + 1. Size 1 copies. */
void tti_ring_steps(struct tti_builder *builder, int lane, uint32_t base,
                    const struct tti_group *group, uint32_t slot);

/* Folding n ranks to the power of two below: the first 2 (n - size) ranks pair up, the even one of
 * a pair takes part for both. Places keep the order of ranks. */
struct tti_fold {
    int size;  /* power of two */
    int place; /* 0 .. size-1; -1: the odd one of a pair, which takes no part */
    int extra; /* the other rank of the pair; -1: alone */
};

struct tti_fold tti_fold_of(int nranks, int rank);
static inline int tti_fold_rank(int nranks, int size, int place)
{
    int extras = nranks - size;
    return place < extras ? 2 * place : place + extras;
}

/* All-reduce over the group of chunks [base, base + tti_power_floor(size)) to OUT by recursive
 * halving and doubling (rabenseifner_all_reduce.c). From three members on it keeps sums at their
 * place in SCRATCH. Size 1 copies. */
void tti_halving_steps(struct tti_builder *builder, int lane, uint32_t base,
                       const struct tti_group *group);

/* Binomial tree over places 0 (root) .. n-1: the subtree of `place` is [place, place + size), its
 * children are place + 2^k for every 2^k < size, its parent is place without its lowest bit. */
static inline int tti_binomial_size(int n, int place)
{
    return place == 0 ? n : tti_least(place & -place, n - place);
}
static inline int tti_binomial_parent(int place)
{
    return place & (place - 1);
}

/* How many of `count` blocks from block `first` (mod n) are in a row, before block n-1 wraps to 0.
 * Algorithms that put several blocks into a message use one lane, whose part of a block is all of
 * it: parts of neighbouring blocks would not be in a row. */
static inline int tti_block_run(int first, int count, int n)
{
    return tti_least(count, n - tti_mod(first, n));
}

#endif
