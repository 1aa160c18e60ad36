/* Sleeping on a 32-bit word until somebody wakes those who do (futex(2)): by address within a
 * process, by the page behind it between processes that map it. Whoever changes the word wakes
 * after it; a sleeper goes by the word, not by having been woken. */
#ifndef TTI_BASE_FUTEX_H
#define TTI_BASE_FUTEX_H

#include <stdint.h>

/* Sleep while the word is `seen`, until woken, for `ns` nanoseconds at most; may return early. */
void tti_futex_wait(const void *word, uint32_t seen, uint64_t ns);
/* Wake up to `most` who sleep. */
void tti_futex_wake(const void *word, int most);

#endif
