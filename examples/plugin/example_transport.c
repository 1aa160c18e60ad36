/* A transport in a shared object, to learn from: Unix-domain sockets between processes of one host.
 *
 *     TUTTI_PLUGINS=build/lib/tutti_example_transport.so TUTTI_TRANSPORT=example PROGRAM
 *     build/bin/tutti-conformance --plugin build/lib/tutti_example_transport.so
 *
 * Read include/tutti/plugin.h beside it: the comments there are the contract, those here say how it
 * is kept. One SEQPACKET socket a lane: packets keep their order and their borders, and the kernel
 * copies, so that a packet is a fragment (a tag and its bytes) and nothing ever waits in a buffer
 * of ours. That is why `released` and `close` are so short; transport/tcp is what it takes without.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* accept4 */
#endif
#include <tutti/plugin.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FRAGMENT = 32768, GUESTS = 64, TYPE = SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC };

/* The first packet of a connection. A secret may be shown like this only where nobody listens in;
 * on a network, prove it instead (transport/tcp/tcp_talk.h). */
struct hello {
    uint8_t secret[TUTTI_SECRET_BYTES];
    uint64_t job;
    int rank, lane;
};

struct lane {
    int socket;        /* -1: none yet */
    bool up;           /* the higher rank has taken the lower one's connection */
    uint64_t accepted; /* bytes that the kernel has copied */
    size_t at, end;    /* what is left to be peeked of `data` */
    struct packet {
        uint64_t tag;
        char data[FRAGMENT];
    } in;
};

struct transport {
    struct tutti_transport_env env;
    int epoll, listener, guests;
    struct guest {
        int socket;
        struct hello hello;    /* lane -1: has not come yet */
    } guest[GUESTS];           /* connections that came before this rank asked for them */
    struct endpoint *endpoint; /* all of them, for close */
};

struct endpoint {
    struct transport *transport;
    struct endpoint *next;
    const struct tutti_peer *peer;
    int lanes;
    struct lane lane[];
};

/* ---- errors: say what happened, to whom, and why ----------------------------------------------
 */

static enum tutti_result fail_system(const struct tutti_services *services, const char *what)
{
    return services->fail(TUTTI_ERR_SYSTEM, "example: %s: %s", what, strerror(errno));
}

static enum tutti_result fail_peer(const struct endpoint *self, const char *what)
{
    return self->transport->env.services->fail(TUTTI_ERR_PEER, "rank %d (%s) %s", self->peer->rank,
                                               self->peer->name, what);
}

/* ---- opening: the kernel picks an unused name for the listener, which is our address ----------
 */

static enum tutti_result probe(const struct tutti_services *services)
{
    (void)services; /* every Linux has these sockets */
    return TUTTI_OK;
}

/* Edge-triggered: an event is reported once, and arm() takes it. */
static int watch(const struct transport *self, int socket)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    return epoll_ctl(self->epoll, EPOLL_CTL_ADD, socket, &event);
}

static void free_endpoint(struct endpoint *self)
{
    for (int i = 0; i < self->lanes; i++)
        if (self->lane[i].socket >= 0)
            close(self->lane[i].socket);
    free(self);
}

static void disconnect(void *object)
{
    struct endpoint *self = object;
    struct endpoint **at = &self->transport->endpoint;
    while (*at != self)
        at = &(*at)->next;
    *at = self->next;
    free_endpoint(self);
}

static void close_transport(void *object)
{
    struct transport *self = object;
    for (struct endpoint *next, *each = self->endpoint; each; each = next) {
        next = each->next;
        free_endpoint(each);
    }
    while (self->guests > 0)
        close(self->guest[--self->guests].socket);
    if (self->listener >= 0)
        close(self->listener);
    if (self->epoll >= 0)
        close(self->epoll);
    free(self);
}

static enum tutti_result open_transport(const struct tutti_transport_env *env, void **out)
{
    const struct sockaddr_un any = {.sun_family = AF_UNIX};
    struct transport *self = calloc(1, sizeof *self);
    if (!self)
        return env->services->fail(TUTTI_ERR_MEMORY, "example: no memory");
    self->env = *env;
    self->epoll = epoll_create1(EPOLL_CLOEXEC);
    self->listener = socket(AF_UNIX, TYPE, 0);
    if (self->epoll < 0 || self->listener < 0 || watch(self, self->listener) != 0 ||
        bind(self->listener, (const struct sockaddr *)&any, sizeof any.sun_family) != 0 ||
        listen(self->listener, GUESTS) != 0) {
        enum tutti_result result = fail_system(env->services, "listening");
        close_transport(self);
        return result;
    }
    *out = self; /* outputs are written on success only */
    return TUTTI_OK;
}

static enum tutti_result address(void *object, void *out, size_t *bytes)
{
    struct transport *self = object;
    socklen_t length = sizeof(struct sockaddr_un);
    if (getsockname(self->listener, out, &length) != 0)
        return fail_system(self->env.services, "getsockname");
    *bytes = length;
    return TUTTI_OK;
}

/* Names are "host:pid". Both sides compare the same two, so they agree. */
static bool reaches(void *object, const struct tutti_peer *peer)
{
    const char *own = ((struct transport *)object)->env.name;
    size_t host = strcspn(own, ":");
    return peer->rank != ((struct transport *)object)->env.rank &&
           host == strcspn(peer->name, ":") && strncmp(own, peer->name, host) == 0;
}

/* ---- connecting: the lower rank calls, the higher one answers once it has been asked, too ------
 */

static enum tutti_result connect_endpoint(void *object, const struct tutti_peer *peer, int lanes,
                                          void **out)
{
    struct transport *transport = object;
    struct endpoint *self = calloc(1, sizeof *self + (size_t)lanes * sizeof self->lane[0]);
    if (!self)
        return transport->env.services->fail(TUTTI_ERR_MEMORY, "example: no memory");
    self->transport = transport;
    self->peer = peer;
    self->lanes = lanes;
    for (int i = 0; i < lanes; i++)
        self->lane[i].socket = -1;
    self->next = transport->endpoint;
    transport->endpoint = self;
    *out = self;
    return TUTTI_OK;
}

/* Accept who calls; keep those whose hello is right, or has not come yet. */
static void receive_guests(struct transport *self)
{
    int made = -1;
    while (self->guests < GUESTS &&
           (made = accept4(self->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        self->guest[self->guests++] = (struct guest){.socket = made, .hello.lane = -1};
        watch(self, made);
    }
    for (int i = self->guests - 1; i >= 0; i--) {
        struct guest *guest = &self->guest[i];
        if (guest->hello.lane >= 0)
            continue;
        ssize_t got = recv(guest->socket, &guest->hello, sizeof guest->hello, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (got == (ssize_t)sizeof guest->hello && guest->hello.lane >= 0 &&
            guest->hello.job == self->env.job &&
            memcmp(guest->hello.secret, self->env.secret, TUTTI_SECRET_BYTES) == 0)
            continue;
        self->env.services->log(2, "example: turned away a connection without the job's secret");
        close(guest->socket);
        self->guest[i] = self->guest[--self->guests];
    }
}

/* The higher rank: is there a guest for this lane? */
static enum tutti_result answer(struct endpoint *self, int number)
{
    struct transport *transport = self->transport;
    for (int i = 0; i < transport->guests; i++) {
        struct guest *guest = &transport->guest[i];
        if (guest->hello.rank != self->peer->rank || guest->hello.lane != number)
            continue;
        self->lane[number].socket = guest->socket;
        self->lane[number].up = true;
        *guest = transport->guest[--transport->guests];
        if (send(self->lane[number].socket, "!", 1, MSG_NOSIGNAL) != 1)
            return fail_peer(self, "hung up while connecting");
        return TUTTI_OK;
    }
    return TUTTI_IN_PROGRESS;
}

/* The lower rank: call, and wait for the answer. */
static enum tutti_result call(struct endpoint *self, int number)
{
    struct transport *transport = self->transport;
    struct lane *lane = &self->lane[number];
    struct hello hello = {.job = transport->env.job, .rank = transport->env.rank, .lane = number};
    char ready = 0;
    memcpy(hello.secret, transport->env.secret, sizeof hello.secret);
    if (lane->socket < 0) {
        int made = socket(AF_UNIX, TYPE, 0);
        if (made < 0 || watch(transport, made) != 0 ||
            connect(made, self->peer->address, (socklen_t)self->peer->address_bytes) != 0 ||
            send(made, &hello, sizeof hello, MSG_NOSIGNAL) != (ssize_t)sizeof hello) {
            bool later = errno == EAGAIN; /* its queue of callers is full */
            close(made);
            return later ? TUTTI_IN_PROGRESS : fail_peer(self, "cannot be called");
        }
        lane->socket = made;
    }
    ssize_t got = recv(lane->socket, &ready, 1, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return TUTTI_IN_PROGRESS;
    lane->up = got == 1;
    return lane->up ? TUTTI_OK : fail_peer(self, "turned this rank away");
}

static enum tutti_result advance(void *object)
{
    struct endpoint *self = object;
    enum tutti_result result = TUTTI_OK;
    receive_guests(self->transport);
    for (int i = 0; i < self->lanes && result == TUTTI_OK; i++)
        if (!self->lane[i].up)
            result = self->transport->env.rank < self->peer->rank ? call(self, i) : answer(self, i);
    return result;
}

/* ---- traffic -----------------------------------------------------------------------------------
 */

static enum tutti_result send_fragment(void *object, int number, uint64_t tag, const void *data,
                                       size_t bytes, size_t *accepted)
{
    struct endpoint *self = object;
    size_t piece = bytes < FRAGMENT ? bytes : FRAGMENT; /* a multiple of the unit, or all */
    struct iovec parts[2] = {{&tag, sizeof tag}, {(void *)(uintptr_t)data, piece}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t sent = sendmsg(self->lane[number].socket, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
        return fail_peer(self, "closed the connection");
    *accepted = sent < 0 ? 0 : piece; /* packets go whole or not at all */
    self->lane[number].accepted += *accepted;
    return TUTTI_OK;
}

static uint64_t released(void *object, int number)
{
    return ((struct endpoint *)object)->lane[number].accepted;
}

static enum tutti_result peek(void *object, int number, uint64_t *tag, const void **data,
                              size_t *bytes)
{
    struct endpoint *self = object;
    struct lane *lane = &self->lane[number];
    if (lane->at == lane->end) {
        ssize_t got = 0;
        do /* a reset is reported once, before what is left to read */
            got = recv(lane->socket, &lane->in, sizeof lane->in, 0);
        while (got < 0 && (errno == EINTR || errno == ECONNRESET));
        if (got < 0 && errno != EAGAIN)
            return fail_system(self->transport->env.services, "recv");
        if (got == 0)
            return fail_peer(self, "closed the connection");
        if (got > 0 && (size_t)got <= sizeof lane->in.tag)
            return self->transport->env.services->fail(TUTTI_ERR_PROTOCOL,
                                                       "rank %d (%s) sent no fragment",
                                                       self->peer->rank, self->peer->name);
        lane->at = 0;
        lane->end = got < 0 ? 0 : (size_t)got - sizeof lane->in.tag;
    }
    *tag = lane->in.tag;
    *data = lane->in.data + lane->at;
    *bytes = lane->end - lane->at;
    return TUTTI_OK;
}

static void consume(void *object, int number, size_t bytes)
{
    ((struct endpoint *)object)->lane[number].at += bytes;
}

/* ---- waiting: everything is in the kernel, so that there is nothing to move --------------------
 */

static enum tutti_result progress(void *object)
{
    (void)object;
    return TUTTI_OK;
}

static int wait_fd(void *object)
{
    return ((struct transport *)object)->epoll;
}

/* Events since the last time may be news to the caller: let it look once more before it sleeps. */
static bool arm(void *object)
{
    struct epoll_event event[16];
    return epoll_wait(((struct transport *)object)->epoll, event, 16, 0) <= 0;
}

static void disarm(void *object)
{
    (void)object; /* arm takes what woke us */
}

TUTTI_API const struct tutti_transport_ops *tutti_transport(void);

TUTTI_API const struct tutti_transport_ops *tutti_transport(void)
{
    static const struct tutti_transport_ops ops = {.abi = TUTTI_TRANSPORT_ABI,
                                                   .size = sizeof ops,
                                                   .name = "example",
                                                   .rank = 90,
                                                   .probe = probe,
                                                   .open = open_transport,
                                                   .close = close_transport,
                                                   .address = address,
                                                   .reaches = reaches,
                                                   .connect = connect_endpoint,
                                                   .advance = advance,
                                                   .disconnect = disconnect,
                                                   .send = send_fragment,
                                                   .released = released,
                                                   .peek = peek,
                                                   .consume = consume,
                                                   .progress = progress,
                                                   .fd = wait_fd,
                                                   .arm = arm,
                                                   .disarm = disarm};
    return &ops;
}
