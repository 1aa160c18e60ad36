/* What is wrong, from what the ranks did last: calls that differ, ranks that are behind or do not
 * answer, and who waits for whom. Pure: no communicator, no clock. Rank 0 asks all ranks and tells
 * them this (diagnose.c); tutti-status and tutti-dump say the same of recorders and dumps. */
#ifndef TTI_COLL_VERDICT_H
#define TTI_COLL_VERDICT_H

#include "coll/logbook.h"

enum tti_finding {
    TTI_FINDING_NONE,     /* nobody waits, or for nothing that the books show */
    TTI_FINDING_MISMATCH, /* ranks called different operations */
    TTI_FINDING_BEHIND,   /* somebody is waited for who has not come, or does not answer */
    TTI_FINDING_CIRCLE,   /* ranks wait for each other */
};

/* One or two sentences without a period at the end, at most `room` bytes; "" for NONE. books[r] is
 * that of rank r; operations lie in them in the order of their index. */
enum tti_finding tti_verdict(const struct tti_logbook *books, int size, char *text, size_t room);

/* The same of calls on device memory that differ, and of nothing else: MISMATCH or NONE. */
enum tti_finding tti_verdict_device(const struct tti_logbook *books, int size, char *text,
                                    size_t room);

/* The operation that a rank is in, or NULL; and whom it waits for there, -1 if that is not known.
 */
const struct tti_logged *tti_logbook_current(const struct tti_logbook *book);
int tti_logbook_waits_for(const struct tti_logbook *book);
/* The last one that it has finished, or NULL. */
const struct tti_logged *tti_logbook_finished(const struct tti_logbook *book);

#endif
