/* Communicators that are made up, as far as the choice of algorithms looks at them. Each is the
 * same memory: the last one made counts. */
#ifndef TTI_TESTS_MADE_COMM_H
#define TTI_TESTS_MADE_COMM_H

#include "coll/comm.h"

/* So many threads with a core each, on one host, of which no caches are known. `algorithms`: as
 * TUTTI_ALGO, or NULL. */
struct tutti_comm *comm_of(int size, char *algorithms);
/* Processes with memory of their own, so many to so many cores of a mesh, where they read each
 * other's; and of clusters, where they do not. */
struct tutti_comm *comm_on_a_mesh(int ranks, int cores);
struct tutti_comm *comm_in_clusters(int ranks, int cores);

/* The name of the algorithm that is taken for so many floats. */
const char *chosen(struct tutti_comm *comm, enum tutti_collective collective, size_t count);

#endif
