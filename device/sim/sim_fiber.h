/* Fibers: stacks of their own that one host thread switches between. For sim_block.c, and tests. */
#ifndef TTI_DEVICE_SIM_FIBER_H
#define TTI_DEVICE_SIM_FIBER_H

#include <stdbool.h>
#include <stddef.h>

/* A fiber, or the host thread's own stack (of which only the saved state is used). */
struct tti_fiber {
    void *sp;        /* saved by the switch */
    void *memory;    /* a guard page, then the stack; NULL for the host thread */
    void *bottom;    /* of the stack, for AddressSanitizer */
    size_t bytes;    /* of the stack */
    void *fake;      /* AddressSanitizer's */
    void *sanitizer; /* ThreadSanitizer's thread */
    void (*entry)(void *);
    void *argument;
};

/* Stacks for so many fibers of kernels, in one mapping, each behind a guard page; NULL: no memory.
 */
void *tti_fiber_stacks_create(unsigned count);
void tti_fiber_stacks_destroy(void *stacks, unsigned count);

/* A fiber on stack `index` of these, which outlive it. */
void tti_fiber_create_on(struct tti_fiber *fiber, void *stacks, unsigned index,
                         void (*entry)(void *), void *argument);
/* Of one that does not run. */
void tti_fiber_end_on(struct tti_fiber *fiber);

/* A fiber whose first switch calls entry(argument), which never returns; its stack has that many
 * bytes, whole pages. False: no memory. */
bool tti_fiber_create(struct tti_fiber *fiber, size_t stack_bytes, void (*entry)(void *),
                      void *argument);
/* Of one that does not run. */
void tti_fiber_destroy(struct tti_fiber *fiber);
/* What stands for the calling host thread. */
void tti_fiber_adopt(struct tti_fiber *thread);
/* Leave `from`, which runs, for `to`; returns when something switches back to `from`. */
void tti_fiber_switch(struct tti_fiber *from, struct tti_fiber *to);

#endif
