/* A fence that one thread makes for all threads of its process: each of them is as if it had fenced
 * (tti_full_fence) at some moment between the call and its return. So who comes often may do
 * without fences of its own, at the cost of who comes rarely: a system call, and an interrupt of
 * every processor that runs a thread of the process. */
#ifndef TTI_BASE_FENCE_OTHERS_H
#define TTI_BASE_FENCE_OTHERS_H

#include <stdbool.h>

/* May one count on it? The first call registers the process, at 10 to 20 ms if it has threads. No:
 * an old kernel, or a filter that forbids it; and under ThreadSanitizer, which does not see it. */
bool tti_fence_others_works(void);
/* Only after that has said yes. Should the system refuse it since, it takes 20 ms, in which no
 * processor keeps what it has stored to itself, and nobody may count on it any more. */
void tti_fence_others(void);

#endif
