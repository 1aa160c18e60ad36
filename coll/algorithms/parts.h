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

#endif
