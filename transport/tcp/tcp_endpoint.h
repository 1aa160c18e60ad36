/* The operations on endpoints, for the table in tcp.c. */
#ifndef TTI_TRANSPORT_TCP_ENDPOINT_H
#define TTI_TRANSPORT_TCP_ENDPOINT_H

#include "transport/tcp/tcp.h"

enum tutti_result tti_tcp_connect(void *transport, const struct tutti_peer *peer, int lanes,
                                  void **endpoint);
enum tutti_result tti_tcp_advance(void *endpoint);
void tti_tcp_disconnect(void *endpoint);

#endif
