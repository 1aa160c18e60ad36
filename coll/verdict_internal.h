/* The two halves of a verdict (verdict.h): calls that differ (verdict.c), and who is waited for
 * (verdict_waits.c); with the words that both have. */
#ifndef TTI_COLL_VERDICT_INTERNAL_H
#define TTI_COLL_VERDICT_INTERNAL_H

#include "coll/verdict.h"

enum { TTI_CALL_BYTES = 160, TTI_SHOWN_RANKS = 8 };

/* What is being said of these books. */
struct tti_saying {
    const struct tti_logbook *books;
    int size;
    char *text;
    size_t room, used;
};

void tti_say(struct tti_saying *v, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "rank 2 (a:7)" */
void tti_say_rank(struct tti_saying *v, int rank);
/* "rank 2 (a:7)" or "ranks 0, 1, 3" of those that are set. Returns how many. */
int tti_say_ranks(struct tti_saying *v, const bool *set);

/* Has the rank entered the collective? `device`: of its calls on device memory. */
bool tti_logbook_entered(const struct tti_logbook *book, const struct tti_logged *op, bool device);

/* Who waits for whom, and for whom all of them. */
enum tti_finding tti_find_waits(struct tti_saying *v);

#endif
