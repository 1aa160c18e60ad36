/* The constants of the cost model: what the parts of an operation take, on each medium.
 *
 * Built-in values come from the machines named in profile.c, with the caches of this machine;
 * tutti-tune replaces them by what it measures. Times are in seconds. Read next: cost_model.h. */
#ifndef TTI_COLL_PROFILE_H
#define TTI_COLL_PROFILE_H

#include "device/cpu_caches.h"

#include <stdbool.h>

/* What lies between the ranks. */
enum tti_medium {
    TTI_THREADS,  /* one process */
    TTI_MAPPED,   /* processes of a host; the buffers are mapped by all */
    TTI_PRIVATE,  /* processes of a host, other memory */
    TTI_LOOPBACK, /* sockets on one host */
    TTI_NETWORK,  /* several hosts */
    TTI_MEDIA,
};
/* "threads", "mapped", ..., then NULL. */
extern const char *const tti_medium_names[];

enum tti_constant {
    TTI_COST_CALL,            /* an operation that the executor runs */
    TTI_COST_STEP,            /* and each step of its plan */
    TTI_COST_SMALL,           /* an operation that is small (small_plan.h) */
    TTI_COST_SMALL_STEP,      /* and each step of its plan */
    TTI_COST_FUSED,           /* an operation on the fused path */
    TTI_COST_ALPHA,           /* a message, until the receiver can go on */
    TTI_COST_ONE_WAY,         /* the same in collectives with a root: calls overlap */
    TTI_COST_CROWDED_CALL,    /* with more ranks than cores: another for each operation */
    TTI_COST_CROWDED_ALPHA,   /* and instead of alpha */
    TTI_COST_CROWDED_LATE,    /* ... and the weight of being the last of several, 0 to 1 */
    TTI_COST_CROWDED_TOUCH,   /* and a factor of touch: the ranks of a core share its caches */
    TTI_COST_CROWDED_FUSED,   /* and instead of fused */
    TTI_COST_FUSED_WRITE,     /* and a byte written for one read, in a core's own caches */
    TTI_COST_CROWDED_ONE_WAY, /* and instead of one_way */
    TTI_COST_ONE_WAY_TOUCH, /* a factor of touch in collectives with a root: data are there early */
    TTI_COST_TOUCH,         /* a plan's byte read or written: in L1, L2, L3, memory */
    TTI_COST_FUSED_TOUCH = TTI_COST_TOUCH + 4, /* the same on the fused path */
    /* and there with more ranks than cores */
    TTI_COST_CROWDED_FUSED_TOUCH = TTI_COST_FUSED_TOUCH + 4,
    TTI_COST_WIRE = TTI_COST_CROWDED_FUSED_TOUCH + 4, /* a byte through a socket: the same levels */
    TTI_COSTS = TTI_COST_WIRE + 4,
};
/* As files have them: "call", ..., "touch_l1", ..., then NULL. */
extern const char *const tti_constant_names[];

struct tti_profile {
    double cache[3]; /* bytes of L1 and L2 of a core, of the L3 that cores share */
    double cores;    /* of a host */
    bool meshed;     /* the processors have a mesh: TTI_CPU_MESH */
    double cost[TTI_MEDIA][TTI_COSTS];
};

/* The built-in constants, with typical caches where the machine does not tell its own. */
void tti_profile_default(const double cache[3], enum tti_cpu_kind kind, double cores,
                         struct tti_profile *profile);

#endif
