/* Textbook algorithms in a few lines each, and networks whose times can be written down: what the
 * simulator is checked against. */
#ifndef TTI_TESTS_SIMPLE_ALGORITHMS_H
#define TTI_TESTS_SIMPLE_ALGORITHMS_H

#include "plan/simulate.h"

/* All-reduce, n a power of two: lg n exchanges of the whole block. */
extern const struct tti_algorithm simple_doubling;
/* All-reduce, every rank sends its block to every other; translates. */
extern const struct tti_algorithm simple_one_shot;
/* All-to-all, in order of distance; translates. */
extern const struct tti_algorithm simple_all_to_all;
/* All-to-all, n a power of two, in order of rank ^ distance: no two hosts look alike. */
extern const struct tti_algorithm simple_pairwise;
/* Broadcast from root along a chain, in `slices` chunks. */
extern const struct tti_algorithm simple_chain;
/* Broadcast from rank 0 to rank 1 through one slot, twice: the second copy into the slot must wait
 * until the first message is taken. */
extern const struct tti_algorithm simple_one_slot;
/* The same through two slots: nothing to wait for. */
extern const struct tti_algorithm simple_two_slots;
/* Wrong: every rank first receives. */
extern const struct tti_algorithm simple_deadlock;
/* Wrong: rank 0 sends twice, rank 1 receives once. */
extern const struct tti_algorithm simple_unreceived;

#endif
