/* Dumps of the ranks of one communicator, laid side by side: for people, and as a trace. */
#ifndef TTI_TOOLS_DUMP_MERGE_H
#define TTI_TOOLS_DUMP_MERGE_H

#include "coll/dump.h"
#include "coll/verdict.h"

/* Of one communicator, in the order of the ranks. *wrong: something is. */
enum tutti_result tti_merge_show(struct tti_dump *dumps, size_t count, int last, FILE *out,
                                 bool *wrong);
/* Who entered last, over the collectives that all dumps have with a time. */
void tti_merge_stragglers(const struct tti_dump *dumps, size_t count, FILE *out);

/* Of any communicators: JSON of Chrome's trace events, a process for each host, a thread for each
 * rank. */
enum tutti_result tti_merge_trace(const struct tti_dump *dumps, size_t count, FILE *out);

/* Nanoseconds since 1970 of a moment of the dump's clock. */
static inline double tti_dump_wall(const struct tti_dump *dump, uint64_t ns)
{
    return (double)dump->made_wall_us * 1e3 + ((double)ns - (double)dump->made_ns);
}

/* "1.5 ms", "30 s". Returns `text`. */
const char *tti_merge_time(double ns, char *text, size_t bytes);

#endif
