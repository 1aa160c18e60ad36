/* The bootstrap server: a thread in rank 0's process. It lets the ranks in, gathers their blobs
 * and relays who fails, leaves or dies (boot_wire.h has the frames). */
#ifndef TTI_LAUNCH_BOOT_SERVER_H
#define TTI_LAUNCH_BOOT_SERVER_H

#include "launch/boot_wire.h"

#include <sys/socket.h>

struct tti_boot_server;

/* Listen and start the thread. `deadline` is rank 0's for the join. */
enum tutti_result tti_boot_server_create(const struct tti_meeting *meeting, int size,
                                         uint64_t deadline, struct tti_boot_server **server);
/* Where this process reaches it. */
void tti_boot_server_address(const struct tti_boot_server *server, struct sockaddr_storage *address,
                             socklen_t *bytes);
/* Who makes a verdict of reports; before that, questions are not answered. */
void tti_boot_server_watch(struct tti_boot_server *server, const struct tti_boot_watch *watch);
/* "host:port", the port being the one it took. */
const char *tti_boot_server_where(const struct tti_boot_server *server);
uint16_t tti_boot_server_port(const struct tti_boot_server *server);
/* Add what it holds while all ranks are there. Its thread is not asked: this is arithmetic, but for
 * frames on their way, which it counts: what a round gathered may be held for a moment after all
 * ranks have read it. */
void tti_boot_server_memory(struct tti_boot_server *server, struct tutti_memory *memory);
/* Stay until all ranks have left or died, at most linger_s; then end the thread. */
void tti_boot_server_destroy(struct tti_boot_server *server, double linger_s);

#endif
