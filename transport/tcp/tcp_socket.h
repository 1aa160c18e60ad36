/* Sockets as this transport wants them: non-blocking, close-on-exec, without delay, with keepalive;
 * and the listener with its range of ports. */
#ifndef TTI_TRANSPORT_TCP_SOCKET_H
#define TTI_TRANSPORT_TCP_SOCKET_H

#include "base/error.h"
#include "transport/tcp/tcp_address.h"

/* The value of TUTTI_TCP_PORTS, "first-last" or "port"; NULL or "": 0 and 0, any port. */
enum tutti_result tti_tcp_parse_ports(const char *text, uint16_t *first, uint16_t *last);

/* Listen on all addresses, IPv6 and IPv4 with one socket where the machine has both, on the first
 * free port from `first` to `last` (0: any). Errors: SYSTEM, with the range when all are taken. */
enum tutti_result tti_tcp_listen(uint16_t first, uint16_t last, int *listener, uint16_t *port);

/* Options of a connected socket; refusals are harmless and ignored. */
void tti_tcp_socket_tune(int socket);
/* ... and of one between ranks of a host: before connect, or when the caller has proved itself. */
void tti_tcp_socket_tune_local(int socket);

/* The value of TUTTI_TCP_CONGESTION, into `control` (TTI_TCP_CONTROL_BYTES); NULL or "": "", the
 * system's choice. Errors: ARGUMENT, with the names that this process may use. */
enum { TTI_TCP_CONTROL_BYTES = 16 };
enum tutti_result tti_tcp_parse_control(const char *text, char *control);
/* ... for a connected socket between hosts. */
void tti_tcp_socket_control(int socket, const char *control);

/* Seconds that the kernel measured there and back; 0: not known. */
double tti_tcp_socket_round_trip(int socket);

/* Begin to connect, from `source` if it is not NULL. Returns a socket, or -1 with errno. */
int tti_tcp_socket_connect(const struct tti_tcp_address *source, const struct tti_tcp_address *to,
                           uint16_t port);

/* Does this errno mean that the other end is gone, rather than the way to it? */
bool tti_tcp_errno_is_peer(int error);

#endif
