/* A rank of a random program that is killed, and what becomes of the others: each either ends its
 * program without it, or is told within seconds who died. */
#ifndef TTI_TESTS_FATE_H
#define TTI_TESTS_FATE_H

#include "tests/random/actor.h"

/* Before the ranks begin: memory that they share. */
void fate_begin(void);
/* This rank has ended its part, with an error or none; wait until all others have, too, and judge.
 * 0: as it must be. */
int fate_judge(const struct actor *a, bool failed);

#endif
