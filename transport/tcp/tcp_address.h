/* Which addresses a rank has, which of them it may use (TUTTI_IFNAME), and in which order those of
 * a peer are tried. Reads the machine only in tti_tcp_interfaces and tti_tcp_host; the rest are
 * pure functions over plain data. */
#ifndef TTI_TRANSPORT_TCP_ADDRESS_H
#define TTI_TRANSPORT_TCP_ADDRESS_H

#include "base/error.h"
#include "transport/tcp/tcp_wire.h"

#include <net/if.h>
#include <sys/socket.h>

enum { TTI_TCP_TEXT_BYTES = 64 }; /* room for "[address]:port" */

/* One address of one interface; an interface with several has several of these. */
struct tti_tcp_interface {
    char name[IF_NAMESIZE];
    bool far;      /* others are nearer to this rank (far_nics of plugin.h) */
    bool hardware; /* a device, or a VLAN, bond or bridge of devices; not a tunnel, nor made up */
    struct tti_tcp_address address;
};

/* A peer's address worth trying. */
struct tti_tcp_candidate {
    struct tti_tcp_address to;
    int from; /* the own interface on the same subnet, as an index; -1: leave it to the routes */
    int score;
};

/* Addresses of this machine that a peer could use, best first: those of interfaces that are up, not
 * link-local, faster before slower, IPv4 before IPv6, loopback last. Free *list with free(3). */
enum tutti_result tti_tcp_interfaces(struct tti_tcp_interface **list, size_t *count);

/* Has this interface, or a VLAN or alias of it, an address that other hosts could use? */
bool tti_tcp_has_address(const char *interface);

/* Is there a device under this interface (`hardware` above)? `sysfs` is "/sys", or a copy of it in
 * a test. */
bool tti_tcp_on_hardware(const char *sysfs, const char *interface);

/* Identifies the kernel and network namespace. */
uint64_t tti_tcp_host(void);

/* Keep those that `patterns` (the value of TUTTI_IFNAME) allows, in order. A comma list:
 *     eth      names that begin with "eth"          =eth0    this name only
 *     eth*     a shell pattern with * ? [           ^docker  !docker  not these
 * With exclusions only, all others stay. A pattern that includes nothing, and a list that leaves
 * nothing, are TUTTI_ERR_ARGUMENT with the names that exist. */
enum tutti_result tti_tcp_filter(const char *patterns, struct tti_tcp_interface *list,
                                 size_t *count);

/* Does such a list let an interface of this name in? */
bool tti_tcp_allowed(const char *patterns, const char *name);

/* Does the list, as far_nics of plugin.h has it (NULL: empty), name this device? VLANs and aliases
 * of an interface ("eth0.100", "eth0:1") go with it. */
bool tti_tcp_is_far(const char *far_nics, const char *name);
/* Mark the far ones, and put them behind the others, but before loopback. Where devices are far,
 * interfaces without one (of containers, of tunnels) are, too: it is in no topology what they are
 * near to, and they should not come before a device that is known to be far. */
void tti_tcp_far_last(const char *far_nics, struct tti_tcp_interface *list, size_t count);

/* Put those of `peer`'s addresses that we could reach into `candidate` (TTI_TCP_MAX_ADDRESSES of
 * them), best first: loopback on the same host, then same subnet, then by an interface that is not
 * far, then faster. Returns how many. */
int tti_tcp_candidates(const struct tti_tcp_interface *own, size_t count, uint64_t own_host,
                       const struct tti_tcp_advert *peer, struct tti_tcp_candidate *candidate);

/* Do two ranks have a way to each other? Symmetric in its arguments. */
bool tti_tcp_reachable(const struct tti_tcp_advert *one, const struct tti_tcp_advert *other);

/* To and from socket addresses, and as text: "10.0.0.2:4444", "[fd00::2]:4444". */
socklen_t tti_tcp_sockaddr(const struct tti_tcp_address *address, uint16_t port,
                           struct sockaddr_storage *out);
void tti_tcp_sockaddr_text(const struct sockaddr_storage *address, char text[TTI_TCP_TEXT_BYTES]);

#endif
