/* Sockets and the listener (tcp_socket.h). */
#include "transport/tcp/tcp_socket.h"

#include "base/children.h"
#include "base/config.h"
#include "base/kernel_file.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    SOCKET_FLAGS = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
    SOCKET_BACKLOG = 4096,
    KEEPALIVE_IDLE_S = 15,
    KEEPALIVE_INTERVAL_S = 5,
    KEEPALIVE_PROBES = 6,
    LOCAL_SEND_BYTES = 256 << 10,
    LOCAL_RECEIVE_BYTES = 1 << 20,
};

enum tutti_result tti_tcp_parse_ports(const char *text, uint16_t *first, uint16_t *last)
{
    unsigned from = 0, to = 0;
    char rest = 0;
    if (!text || !*text) {
        *first = *last = 0;
        return TUTTI_OK;
    }
    int got = sscanf(text, "%5u-%5u%c", &from, &to, &rest);
    if (got == 1 && strspn(text, "0123456789") == strlen(text))
        to = from;
    else if (got != 2)
        from = 0;
    if (from < 1 || from > 65535 || to < from || to > 65535)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "TUTTI_TCP_PORTS is \"%s\"; expected first-last, with ports from 1 to "
                        "65535, as in 20000-20999",
                        text);
    *first = (uint16_t)from;
    *last = (uint16_t)to;
    return TUTTI_OK;
}

/* ---- the listener --------------------------------------------------------------------------- */

/* An unbound socket that takes both families, or IPv4 alone where the kernel has no IPv6. */
static int socket_for_listening(int *family)
{
    int off = 0, on = 1;
    *family = AF_INET6;
    int listener = socket(AF_INET6, SOCKET_FLAGS, 0);
    if (listener >= 0 && setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0) {
        close(listener);
        listener = -1;
    }
    if (listener < 0) {
        *family = AF_INET;
        listener = socket(AF_INET, SOCKET_FLAGS, 0);
    }
    if (listener >= 0) /* ports in TIME_WAIT of an earlier run are free for us */
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return listener;
}

/* 0, or the errno that says why this port cannot be had. */
static int socket_bind(int listener, int family, uint16_t port)
{
    struct tti_tcp_address any = {.family = family == AF_INET6 ? 6 : 4};
    struct sockaddr_storage address;
    socklen_t bytes = tti_tcp_sockaddr(&any, port, &address);
    if (bind(listener, (struct sockaddr *)&address, bytes) != 0 ||
        listen(listener, SOCKET_BACKLOG) != 0)
        return errno;
    return 0;
}

static enum tutti_result socket_port(int listener, uint16_t *port)
{
    struct sockaddr_in6 address = {.sin6_port = 0}; /* IPv4 has its port at the same place */
    socklen_t bytes = sizeof address;
    if (getsockname(listener, (struct sockaddr *)&address, &bytes) != 0)
        return TTI_FAIL_ERRNO("getsockname: asking for the port of the listening socket");
    *port = ntohs(address.sin6_port);
    return TUTTI_OK;
}

_Static_assert(offsetof(struct sockaddr_in6, sin6_port) == offsetof(struct sockaddr_in, sin_port),
               "one reader for the ports of both families");

/* One port; *listener is -1 when it is taken. */
static enum tutti_result socket_try_port(uint16_t port, int *listener, uint16_t *got)
{
    int family = 0, made = socket_for_listening(&family);
    if (made < 0)
        return TTI_FAIL_ERRNO("socket: making a TCP socket to listen on");
    int error = socket_bind(made, family, port);
    *listener = -1;
    if (error) {
        close(made);
        errno = error;
        return error == EADDRINUSE && port ? TUTTI_OK
                                           : TTI_FAIL_ERRNO("bind and listen on TCP port %u", port);
    }
    enum tutti_result result = socket_port(tti_keep_from_children(made), got);
    if (result != TUTTI_OK) {
        close(made);
        return result;
    }
    *listener = made;
    return TUTTI_OK;
}

enum tutti_result tti_tcp_listen(uint16_t first, uint16_t last, int *listener, uint16_t *port)
{
    int made = -1;
    uint16_t got = 0;
    for (unsigned try = first; try <= last && made < 0; try++)
        TTI_TRY(socket_try_port((uint16_t)try, &made, &got));
    if (made < 0)
        return TTI_FAIL(TUTTI_ERR_SYSTEM,
                        "no port to listen on: all %u of TUTTI_TCP_PORTS=%u-%u are taken; widen "
                        "the range (one port for each rank of each communicator) or end the "
                        "program that holds them",
                        last - first + 1u, first, last);
    *listener = made;
    *port = got;
    return TUTTI_OK;
}

/* ---- connections ---------------------------------------------------------------------------- */

/* Buffer sizes are left to the kernel: setting them turns off its tuning, which grows them to what
 * the path needs. A silent cut is noticed by keepalive when nothing is under way, else by
 * tcp_silence.c, which says why there is no TCP_USER_TIMEOUT.
 */
void tti_tcp_socket_tune(int socket)
{
    int on = 1, idle = KEEPALIVE_IDLE_S, interval = KEEPALIVE_INTERVAL_S, probes = KEEPALIVE_PROBES;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

/* Within a host that tuning starts with less than a message, and grows them past the caches (two
 * ranks, 16 MiB: 6.2 ms, so 4.0 ms); what is sent and not received lies in the second-level cache
 * if it is little (1 to 4 MiB: 5 to 10% less). Nothing is lost there, and no line is shared, so
 * there is nothing to be careful about: a control that paces what it sends (bbr) only adds timers
 * (4 MiB: 10% less without). Reno is in every kernel, and open to every user. */
void tti_tcp_socket_tune_local(int socket)
{
    static const char control[] = "reno";
    int to_send = LOCAL_SEND_BYTES, to_receive = LOCAL_RECEIVE_BYTES;
    setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &to_send, sizeof to_send);
    setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &to_receive, sizeof to_receive);
    setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, control, sizeof control - 1);
}

static bool socket_takes_control(const char *control)
{
    int made = socket(AF_INET, SOCKET_FLAGS, 0);
    bool takes = made >= 0 && setsockopt(made, IPPROTO_TCP, TCP_CONGESTION, control,
                                         (socklen_t)strlen(control)) == 0;
    if (made >= 0)
        close(made);
    return takes;
}

enum tutti_result tti_tcp_parse_control(const char *text, char *control)
{
    char names[128];
    control[0] = '\0';
    if (!text || !*text)
        return TUTTI_OK;
    if (strlen(text) < TTI_TCP_CONTROL_BYTES && socket_takes_control(text)) {
        memcpy(control, text, strlen(text) + 1);
        return TUTTI_OK;
    }
    if (!tti_kernel_line("/proc/sys/net/ipv4/tcp_allowed_congestion_control", names, sizeof names))
        snprintf(names, sizeof names, "not known: /proc is not there");
    return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                    "TUTTI_TCP_CONGESTION is \"%s\", which the kernel does not let this process "
                    "use; those that everybody may use: %s (more: sysctl "
                    "net.ipv4.tcp_allowed_congestion_control)",
                    text, names);
}

void tti_tcp_socket_control(int socket, const char *control)
{
    if (control[0])
        setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, control, (socklen_t)strlen(control));
}

double tti_tcp_socket_round_trip(int socket)
{
    struct tcp_info info;
    socklen_t bytes = sizeof info;
    memset(&info, 0, sizeof info);
    return getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 ? info.tcpi_rtt / 1e6 : 0;
}

int tti_tcp_socket_connect(const struct tti_tcp_address *source, const struct tti_tcp_address *to,
                           uint16_t port)
{
    struct sockaddr_storage address;
    int made =
        tti_keep_from_children(socket(to->family == 4 ? AF_INET : AF_INET6, SOCKET_FLAGS, 0));
    if (made < 0)
        return -1;
    tti_tcp_socket_tune(made);
    if (to->loopback)
        tti_tcp_socket_tune_local(made);
    if (source) {
        socklen_t bytes = tti_tcp_sockaddr(source, 0, &address);
        if (bind(made, (struct sockaddr *)&address, bytes) != 0)
            goto fail;
    }
    socklen_t bytes = tti_tcp_sockaddr(to, port, &address);
    if (connect(made, (struct sockaddr *)&address, bytes) == 0 || errno == EINPROGRESS ||
        errno == EINTR)
        return made;
fail:;
    int saved = errno;
    close(made);
    errno = saved;
    return -1;
}

bool tti_tcp_errno_is_peer(int error)
{
    return error == EPIPE || error == ECONNRESET || error == ECONNABORTED;
}
