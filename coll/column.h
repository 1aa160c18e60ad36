/* Operations between hosts, of columns: the ranks that have the same number on their hosts. Each
 * column runs a plan for as many ranks as there are hosts, all of them at the same time over the
 * communicator's links, so that numbers of operations, deadlines and failures are the
 * communicator's. Needs as many ranks on every host. For gpu/gpu_levels.c, where the ranks of a
 * host have shared an operation out among them. */
#ifndef TTI_COLL_COLUMN_H
#define TTI_COLL_COLUMN_H

#include "coll/operation.h"

struct tti_column;

/* Run `o`, whose `column` is set, as run.c runs others: in the turn of the queue. Blocks are by the
 * numbers of hosts, and as many; the root is given as a rank of the communicator, and counts by its
 * host. An average divides by all ranks of the communicator. `o->wide`: IN has accumulators. */
enum tutti_result tti_column_run(struct tutti_comm *comm, const struct tti_operation *o,
                                 const struct tti_label *label);
/* Bytes of the heap that it takes; `column` may be NULL. */
size_t tti_column_bytes(const struct tti_column *column);
void tti_column_destroy(struct tti_column *column); /* NULL is fine */

#endif
