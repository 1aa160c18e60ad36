/* TCP for the bootstrap (launch/boot_socket.h). */
#include "launch/boot_socket.h"

#include "base/clock.h"
#include "base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SOCKET_BACKLOG = 1024 };

void tti_socket_text(const struct sockaddr *address, socklen_t bytes, char *text, size_t room)
{
    char host[128];
    char port[16];
    if (getnameinfo(address, bytes, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(text, room, "unknown address");
    else
        snprintf(text, room, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

void tti_socket_meeting_text(const char *host, int port, int ports, char *text, size_t room)
{
    bool six = strchr(host, ':') != NULL;
    char range[16] = "";
    if (ports > 1)
        snprintf(range, sizeof range, "-%d", port + ports - 1);
    snprintf(text, room, "%s%s%s:%d%s", six ? "[" : "", host, six ? "]" : "", port, range);
}

static void socket_set_port(struct sockaddr *address, uint16_t port)
{
    if (address->sa_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)address)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)(void *)address)->sin_port = htons(port);
}

static uint16_t socket_port(const struct sockaddr_storage *address)
{
    return ntohs(address->ss_family == AF_INET6
                     ? ((const struct sockaddr_in6 *)(const void *)address)->sin6_port
                     : ((const struct sockaddr_in *)(const void *)address)->sin_port);
}

static void socket_option(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value, sizeof value);
}

void tti_socket_prepare(int fd)
{
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    socket_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    socket_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    socket_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
    socket_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    socket_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    socket_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 25000);
}

/* A socket on one address, which listens or only holds it; -1 and errno. */
static int socket_bind_at(const struct sockaddr *address, socklen_t bytes, bool listens)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    socket_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (address->sa_family == AF_INET6)
        socket_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (bind(fd, address, bytes) == 0 && (!listens || listen(fd, SOCKET_BACKLOG) == 0))
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

/* Every interface, both families where there are both. */
static int socket_bind_everywhere(uint16_t port, bool listens)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    int fd = socket_bind_at((struct sockaddr *)(void *)&six, sizeof six, listens);
    if (fd >= 0 || errno == EADDRINUSE)
        return fd;
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    return socket_bind_at((struct sockaddr *)(void *)&four, sizeof four, listens);
}

static int socket_bind_port(struct addrinfo *numeric, uint16_t port, bool listens)
{
    int fd = -1;
    errno = EADDRNOTAVAIL;
    for (struct addrinfo *at = numeric; at && fd < 0; at = at->ai_next) {
        socket_set_port(at->ai_addr, port);
        fd = socket_bind_at(at->ai_addr, at->ai_addrlen, listens);
        if (fd < 0 && errno == EADDRINUSE)
            return -1;
    }
    /* The others may know this host by an address that it does not carry (translation). */
    return fd >= 0 || errno != EADDRNOTAVAIL ? fd : socket_bind_everywhere(port, listens);
}

static enum tutti_result socket_bound(int fd, bool listens, uint16_t *port)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    int listening = 0;
    socklen_t option_bytes = sizeof listening;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &option_bytes) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) != 0)
        return TTI_FAIL_ERRNO("descriptor %d should be a listening socket", fd);
    if ((listens && !listening) || (address.ss_family != AF_INET && address.ss_family != AF_INET6))
        return TTI_FAIL(TUTTI_ERR_SYSTEM, "descriptor %d is not a listening TCP socket", fd);
    *port = socket_port(&address);
    return TUTTI_OK;
}

enum tutti_result tti_socket_listening(int fd, uint16_t *port)
{
    return socket_bound(fd, true, port);
}

/* The first free port of the range. */
static enum tutti_result socket_bind(const char *host, uint16_t port, int ports, bool listens,
                                     int *fd, uint16_t *bound)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    struct addrinfo *numeric = NULL;
    if (strcmp(host, "localhost") == 0)
        hints.ai_flags = 0;
    if (getaddrinfo(host, NULL, &hints, &numeric) != 0)
        numeric = NULL;
    int made = -1;
    for (int i = 0; i < ports && made < 0 && port + i <= 65535; i++) {
        made = socket_bind_port(numeric, (uint16_t)(port + i), listens);
        if (made < 0 && errno != EADDRINUSE && errno != EACCES)
            break;
    }
    int saved = errno;
    if (numeric)
        freeaddrinfo(numeric);
    if (made < 0) {
        char text[TTI_SOCKET_TEXT_BYTES];
        tti_socket_meeting_text(host, port, ports, text, sizeof text);
        if (saved == EADDRINUSE)
            return TTI_FAIL(TUTTI_ERR_SYSTEM,
                            "cannot %s %s: the port is taken; choose another one "
                            "(--master-port, MASTER_PORT) or end the process that holds it",
                            listens ? "listen on" : "hold", text);
        errno = saved;
        return TTI_FAIL_ERRNO("cannot %s %s", listens ? "listen on" : "hold", text);
    }
    enum tutti_result result = socket_bound(made, listens, bound);
    if (result != TUTTI_OK) {
        close(made);
        return result;
    }
    *fd = made;
    return TUTTI_OK;
}

enum tutti_result tti_socket_listen(const char *host, uint16_t port, int ports, int *fd,
                                    uint16_t *bound)
{
    return socket_bind(host, port, ports, true, fd, bound);
}

enum tutti_result tti_socket_hold(const char *host, uint16_t port, int *fd, uint16_t *held)
{
    return socket_bind(host, port, 1, false, fd, held);
}

enum tutti_result tti_socket_begin(int fd)
{
    if (listen(fd, SOCKET_BACKLOG) == 0)
        return TUTTI_OK;
    if (errno == EADDRINUSE)
        return TTI_FAIL(TUTTI_ERR_SYSTEM,
                        "another process listens on the port of this id: is there "
                        "a second rank 0?");
    return TTI_FAIL_ERRNO("cannot listen on the port of this id");
}

enum tutti_result tti_socket_own(int listen_fd, struct sockaddr_storage *address, socklen_t *bytes)
{
    struct sockaddr_storage own = {0};
    socklen_t own_bytes = sizeof own;
    if (getsockname(listen_fd, (struct sockaddr *)&own, &own_bytes) != 0)
        return TTI_FAIL_ERRNO("getsockname of the bootstrap socket");
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)(void *)&own;
    struct sockaddr_in *four = (struct sockaddr_in *)(void *)&own;
    if (own.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&six->sin6_addr)) {
        /* Through IPv4 where that is: IPv6 loopback is missing more often. */
        struct sockaddr_in loop = {.sin_family = AF_INET, .sin_port = six->sin6_port};
        loop.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        int only_six = 0;
        socklen_t option_bytes = sizeof only_six;
        (void)getsockopt(listen_fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_six, &option_bytes);
        if (only_six) {
            six->sin6_addr = in6addr_loopback;
        } else {
            memset(&own, 0, sizeof own);
            memcpy(&own, &loop, sizeof loop);
            own_bytes = sizeof loop;
        }
    } else if (own.ss_family == AF_INET && four->sin_addr.s_addr == htonl(INADDR_ANY)) {
        four->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    *address = own;
    *bytes = own_bytes;
    return TUTTI_OK;
}

/* A connection to an ephemeral port that nobody listens on can meet itself. */
static bool socket_meets_itself(int fd)
{
    struct sockaddr_storage here = {0};
    struct sockaddr_storage there = {0};
    socklen_t here_bytes = sizeof here;
    socklen_t there_bytes = sizeof there;
    if (getsockname(fd, (struct sockaddr *)&here, &here_bytes) != 0 ||
        getpeername(fd, (struct sockaddr *)&there, &there_bytes) != 0)
        return false;
    return here_bytes == there_bytes && memcmp(&here, &there, here_bytes) == 0;
}

static _Thread_local const _Atomic bool *socket_cancel;

const _Atomic bool *tti_boot_cancel_by(const _Atomic bool *flag)
{
    const _Atomic bool *before = socket_cancel;
    socket_cancel = flag;
    return before;
}

static _Thread_local const struct tti_boot_vain *socket_vain;

const struct tti_boot_vain *tti_boot_cancel_when(const struct tti_boot_vain *vain)
{
    const struct tti_boot_vain *before = socket_vain;
    socket_vain = vain;
    return before;
}

bool tti_socket_cancelled(void)
{
    return (socket_cancel && *socket_cancel) ||
           (socket_vain && socket_vain->vain(socket_vain->context));
}

int tti_socket_look_ms(int most)
{
    return (socket_cancel || socket_vain) && most > TTI_SOCKET_LOOK_MS ? TTI_SOCKET_LOOK_MS : most;
}

static int socket_await(int fd, short events, uint64_t deadline)
{
    for (;;) {
        struct pollfd wait = {.fd = fd, .events = events};
        int ready = poll(&wait, 1, tti_deadline_ms(deadline, tti_socket_look_ms(60000)));
        if (tti_socket_cancelled()) {
            errno = ECANCELED;
            return -1;
        }
        if (ready > 0)
            return 0;
        if (ready < 0 && errno != EINTR)
            return -1;
        if (tti_deadline_passed(deadline)) {
            errno = ETIMEDOUT;
            return -1;
        }
    }
}

int tti_socket_connect(const struct sockaddr *address, socklen_t bytes, uint64_t deadline)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    tti_socket_prepare(fd);
    int failed = 0;
    if (connect(fd, address, bytes) != 0 && errno != EINPROGRESS && errno != EINTR)
        failed = errno;
    socklen_t option_bytes = sizeof failed;
    if (!failed && socket_await(fd, POLLOUT, deadline) != 0)
        failed = errno;
    else if (!failed)
        (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &option_bytes);
    if (!failed && socket_meets_itself(fd)) {
        struct linger at_once = {.l_onoff = 1, .l_linger = 0};
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        failed = ECONNREFUSED;
    }
    if (!failed)
        return fd;
    close(fd);
    errno = failed;
    return -1;
}

int tti_socket_reach(const char *host, uint16_t port, uint64_t deadline)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char text[16];
    int fd = -1;
    snprintf(text, sizeof text, "%u", (unsigned)port);
    if (getaddrinfo(host, text, &hints, &found) != 0) {
        errno = EHOSTUNREACH;
        return -1;
    }
    for (struct addrinfo *at = found; at && fd < 0; at = at->ai_next)
        fd = tti_socket_connect(at->ai_addr, at->ai_addrlen, deadline);
    int saved = errno;
    freeaddrinfo(found);
    errno = saved;
    return fd;
}

bool tti_socket_is_here(const char *host)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    bool here = false;
    if (getaddrinfo(host, NULL, &hints, &found) != 0)
        return true;
    for (struct addrinfo *at = found; at && !here; at = at->ai_next) {
        int fd = socket_bind_at(at->ai_addr, at->ai_addrlen, false);
        here = fd >= 0;
        if (here)
            close(fd);
    }
    freeaddrinfo(found);
    return here;
}

bool tti_socket_is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(
            &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
    const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)address;
    return address->sa_family == AF_INET && ntohl(four->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

int tti_socket_send_two(int fd, const void *first, size_t first_bytes, const void *second,
                        size_t second_bytes, uint64_t deadline)
{
    struct iovec pieces[2] = {{(void *)(uintptr_t)first, first_bytes},
                              {(void *)(uintptr_t)second, second_bytes}};
    const struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
    while (pieces[0].iov_len + pieces[1].iov_len > 0) {
        ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        for (int i = 0; sent > 0 && i < 2; i++) {
            const size_t part = (size_t)sent < pieces[i].iov_len ? (size_t)sent : pieces[i].iov_len;
            if (part == 0)
                continue;
            pieces[i].iov_base = (char *)pieces[i].iov_base + part;
            pieces[i].iov_len -= part;
            sent -= (ssize_t)part;
        }
        if (sent >= 0 || errno == EINTR)
            continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            return -1;
        if (socket_await(fd, POLLOUT, deadline) != 0)
            return -1;
    }
    return 0;
}

int tti_socket_send(int fd, const void *data, size_t bytes, uint64_t deadline)
{
    return tti_socket_send_two(fd, data, bytes, NULL, 0, deadline);
}

int tti_socket_receive(int fd, void *data, size_t bytes, uint64_t deadline)
{
    char *at = data;
    while (bytes > 0) {
        ssize_t got = recv(fd, at, bytes, MSG_DONTWAIT);
        if (got > 0) {
            at += got;
            bytes -= (size_t)got;
        } else if (got == 0) {
            errno = ECONNRESET;
            return -1;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (socket_await(fd, POLLIN, deadline) != 0)
                return -1;
        } else if (errno != EINTR) {
            return -1;
        }
    }
    return 0;
}
