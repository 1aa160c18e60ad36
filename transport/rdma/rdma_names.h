/* What TUTTI_RDMA_DEVICES says: pure, and there without verbs as well. */
#ifndef TTI_TRANSPORT_RDMA_NAMES_H
#define TTI_TRANSPORT_RDMA_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* The list that is for this rank, of those that are separated by "/". */
void tti_rdma_names_of(const char *text, int rank, char *list, size_t room);
/* Does the comma list let this port in? */
bool tti_rdma_names_allow(const char *list, const char *device, int port);

#endif
