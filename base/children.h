/* Sockets that children made by fork must not keep. Close-on-exec is not enough: a child that goes
 * on without executing a program (a worker of a data loader) would hold the rank's connections
 * open, and its peers learn of a rank's death by their end. */
#ifndef TTI_BASE_CHILDREN_H
#define TTI_BASE_CHILDREN_H

/* Have `socket` closed in every child that is forked from now on, as long as it is open here.
 * Returns it; -1 passes with its errno. Without memory it is inherited as any other. */
int tti_keep_from_children(int socket);

#endif
