/* Communicators in a child made by fork. They are the parent's: its sockets and rings have one
 * reader, and its threads are not there. So the child has no part in them: calls fail at once
 * (TUTTI_ERR_USAGE), and destroying does nothing that anybody else could see. */
#ifndef TTI_COLL_FORKED_H
#define TTI_COLL_FORKED_H

#include "base/error.h"

#include <stdbool.h>

struct tutti_comm;

/* From here to the other, forks are seen. */
void tti_forked_watch(struct tutti_comm *comm);
void tti_forked_forget(struct tutti_comm *comm);

#endif
