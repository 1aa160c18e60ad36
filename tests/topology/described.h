/* Machines from one line, for tests. */
#ifndef TTI_TESTS_TOPOLOGY_DESCRIBED_H
#define TTI_TESTS_TOPOLOGY_DESCRIBED_H

#include "topology/graph.h"

/* Fails the test, with the reason, where the text is none of ours. */
struct tti_topology *described(const char *text);

enum { MOST_STOPS = 512 };
/* The nodes of a kind, at most MOST_STOPS: how many. */
int stops_of(const struct tti_topology *topology, enum tti_node_kind kind, int *stops);

#endif
