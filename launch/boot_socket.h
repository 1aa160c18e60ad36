/* TCP for the bootstrap: listen on the meeting, connect to it, move whole frames by a deadline.
 * All sockets are non-blocking and close on exec. */
#ifndef TTI_LAUNCH_BOOT_SOCKET_H
#define TTI_LAUNCH_BOOT_SOCKET_H

#include "launch/boot.h"

#include <netdb.h>
#include <sys/socket.h>

enum { TTI_SOCKET_TEXT_BYTES = 200, TTI_SOCKET_LOOK_MS = 50 };

/* "127.0.0.1:80", "[::1]:80". */
void tti_socket_text(const struct sockaddr *address, socklen_t bytes, char *text, size_t room);
/* "host:29500", "[::1]:29500" or "host:29500-29515". */
void tti_socket_meeting_text(const char *host, int port, int ports, char *text, size_t room);

/* Listen on the first free port of the range (port 0: any). A numeric host or "localhost" is bound
 * to itself; a name is bound to all addresses, because a host's own name may mean something else
 * to itself than to others. SYSTEM when all are taken. */
enum tutti_result tti_socket_listen(const char *host, uint16_t port, int ports, int *fd,
                                    uint16_t *bound);
/* Hold a port (0: any) that listens to nobody yet: it is given to none who ask for any port, and
 * whoever names it, this process by tti_socket_begin or another of this host by tti_socket_listen,
 * may listen on it; the first does. */
enum tutti_result tti_socket_hold(const char *host, uint16_t port, int *fd, uint16_t *held);
enum tutti_result tti_socket_begin(int fd);
/* The port a listening socket is bound to; SYSTEM unless it is a listening TCP socket. */
enum tutti_result tti_socket_listening(int fd, uint16_t *port);

/* Connect within the deadline. On failure -1 and errno; ETIMEDOUT at the deadline. */
int tti_socket_connect(const struct sockaddr *address, socklen_t bytes, uint64_t deadline);
/* The same to a host by name or address, whichever of its addresses accepts first. */
int tti_socket_reach(const char *host, uint16_t port, uint64_t deadline);
/* Whether a meeting's host is this one: has its address, as far as names tell (true if they do not
 * tell at all). */
bool tti_socket_is_here(const char *host);
bool tti_socket_is_loopback(const struct sockaddr *address);
/* The address under which this process reaches its own listening socket. */
enum tutti_result tti_socket_own(int listen_fd, struct sockaddr_storage *address, socklen_t *bytes);
/* Non-blocking, no delay, keep-alive that notices a vanished host within half a minute. */
void tti_socket_prepare(int fd);

/* By tti_boot_cancel_by or tti_boot_cancel_when: what waits here ends with ECANCELED. */
bool tti_socket_cancelled(void);
/* How long a wait may last before it looks at that flag again: `most` if there is none. */
int tti_socket_look_ms(int most);

/* All bytes by the deadline: 0, or -1 and errno (ECONNRESET at the end of the stream). */
int tti_socket_send(int fd, const void *data, size_t bytes, uint64_t deadline);
/* The same of two pieces, which go in one packet where they fit. */
int tti_socket_send_two(int fd, const void *first, size_t first_bytes, const void *second,
                        size_t second_bytes, uint64_t deadline);
int tti_socket_receive(int fd, void *data, size_t bytes, uint64_t deadline);

#endif
