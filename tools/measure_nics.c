/* NICs of unknown speed (virtual ones: the kernel says -1): what TCP carries to the NIC's own
 * address. The kernel hands that over inside the host, so it is the most that programs can hope for
 * here, not what a wire carries; where a switch or a host stands behind it, less may arrive. */
#include "tools/topo_measure.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/median.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CHUNK = 256 << 10, ROUNDS = 301, WAIT_SECONDS = 2 };
static const double STREAM_SECONDS = 0.3;

struct stream {
    struct sockaddr_storage address;
    socklen_t length;
    int listener;
    double latency_us, gbs;
};

/* The first address of any of the interfaces "eth0/mlx5_0". */
static bool nic_address(const char *names, struct stream *s)
{
    struct ifaddrs *all = NULL;
    bool found = false;
    if (getifaddrs(&all) != 0)
        return false;
    for (const struct ifaddrs *at = all; at && !found; at = at->ifa_next) {
        const int family = at->ifa_addr ? at->ifa_addr->sa_family : AF_UNSPEC;
        const size_t length = strlen(at->ifa_name);
        for (const char *name = names; name && !found; name = strchr(name, '/')) {
            name += *name == '/';
            found = strncmp(name, at->ifa_name, length) == 0 && strchr("/", name[length]) &&
                    (family == AF_INET || family == AF_INET6);
        }
        if (!found)
            continue;
        s->length = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        memcpy(&s->address, at->ifa_addr, s->length);
    }
    freeifaddrs(all);
    return found;
}

static bool all_of(ssize_t (*move)(int, void *, size_t), int fd, void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = move(fd, (char *)data + done, bytes - done);
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

static ssize_t give(int fd, void *data, size_t bytes)
{
    return send(fd, data, bytes, MSG_NOSIGNAL);
}

static ssize_t take(int fd, void *data, size_t bytes)
{
    return recv(fd, data, bytes, 0);
}

/* Whoever waits longer than this has lost the other side. */
static void socket_prepare(int fd)
{
    const struct timeval wait = {.tv_sec = WAIT_SECONDS};
    const int one = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* The far end: gives every byte of the rounds back, then takes the stream until its end. */
static void *stream_far(void *argument)
{
    static _Thread_local char chunk[CHUNK];
    struct stream *s = argument;
    const int fd = accept(s->listener, NULL, NULL);
    if (fd < 0)
        return NULL;
    socket_prepare(fd);
    bool going = true;
    for (int i = 0; i < ROUNDS && going; i++)
        going = all_of(take, fd, chunk, 1) && all_of(give, fd, chunk, 1);
    while (going && take(fd, chunk, CHUNK) > 0)
        ;
    (void)give(fd, chunk, 1); /* all is here */
    close(fd);
    return NULL;
}

static bool stream_near(struct stream *s, int fd)
{
    static _Thread_local char chunk[CHUNK];
    double rounds[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        const uint64_t began = tti_now_ns();
        if (!all_of(give, fd, chunk, 1) || !all_of(take, fd, chunk, 1))
            return false;
        rounds[i] = (double)(tti_now_ns() - began) / 2e3;
    }
    const uint64_t began = tti_now_ns(), until = tti_deadline_in(STREAM_SECONDS);
    double bytes = 0;
    for (; !tti_deadline_passed(until); bytes += CHUNK)
        if (!all_of(give, fd, chunk, CHUNK))
            return false;
    if (shutdown(fd, SHUT_WR) != 0 || !all_of(take, fd, chunk, 1))
        return false;
    s->gbs = bytes / (double)(tti_now_ns() - began);
    s->latency_us = tti_median(rounds, ROUNDS);
    return true;
}

static bool stream_run(struct stream *s)
{
    pthread_t far;
    struct sockaddr *address = (struct sockaddr *)&s->address;
    s->listener = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool good = s->listener >= 0 && fd >= 0 && bind(s->listener, address, s->length) == 0 &&
                listen(s->listener, 1) == 0 && getsockname(s->listener, address, &s->length) == 0;
    if (good) {
        socket_prepare(fd);
        socket_prepare(s->listener);
    }
    if (good && pthread_create(&far, NULL, stream_far, s) == 0) {
        good = connect(fd, address, s->length) == 0 && stream_near(s, fd);
        (void)shutdown(fd, SHUT_RDWR);
        pthread_join(far, NULL);
    } else {
        good = false;
    }
    if (fd >= 0)
        close(fd);
    if (s->listener >= 0)
        close(s->listener);
    return good;
}

enum tutti_result measure_nics(struct measure *m)
{
    struct tti_topology *topology = m->topology;
    for (size_t i = 0; i < topology->link_count; i++) {
        const struct tti_graph_link *link = &topology->links[i];
        const struct tti_node *node = &topology->nodes[link->from];
        struct stream s = {.listener = -1};
        if (link->kind != TTI_LINK_NETWORK || link->gbs > 0 || node->kind != TTI_NODE_NIC ||
            tti_topology_above(topology, link->from, TTI_NODE_HOST) != 0 ||
            !nic_address(node->name, &s) || !measure_begin(m, link->from, link->to))
            continue;
        if (!stream_run(&s)) {
            TTI_LOG(TTI_LOG_WARN, "nic %s could not be measured: TCP to its own address failed",
                    node->name);
            m->left_out++;
            continue;
        }
        const struct tti_graph_link found = {.kind = TTI_LINK_NETWORK,
                                             .from = link->from,
                                             .to = link->to,
                                             .gbs = s.gbs,
                                             .latency_us = s.latency_us};
        TTI_TRY(measure_keep(m, &found));
    }
    return TUTTI_OK;
}
