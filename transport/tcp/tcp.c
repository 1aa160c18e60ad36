/* The TCP transport: its table of operations, opening and closing, and the policy of the hot path.
 *
 * When is a system call worth it? A caller that spins on one or two lanes is served quickest by
 * reading their sockets outright ("direct"); one that looks at many lanes by asking epoll once per
 * progress which of them have something. The number of peeks in vain between two calls of progress
 * tells which of the two it is. */
#include "transport/tcp/tcp.h"

#include "base/clock.h"
#include "base/config.h"
#include "base/memory.h"
#include "transport/tcp/tcp_endpoint.h"
#include "transport/tcp/tcp_socket.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum {
    TCP_DIRECT_PEEKS = 2,   /* lanes that are read without asking epoll */
    TCP_COLLECT_EVERY = 32, /* progress calls, when nothing asks for it sooner */
    TCP_EVENTS = 64,        /* taken from epoll at once */
};
#define TCP_CLOSE_SECONDS 1.0

extern const struct tutti_transport_ops tti_tcp_ops;

/* ---- events --------------------------------------------------------------------------------- */

static enum tutti_result tcp_watch(struct tti_tcp_transport *transport, int fd, uint32_t events,
                                   struct tti_tcp_watch *watch)
{
    struct epoll_event event = {.events = events, .data = {.ptr = watch}};
    if (epoll_ctl(transport->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        return TTI_FAIL_ERRNO("epoll_ctl: watching a socket of the TCP transport");
    return TUTTI_OK;
}

enum tutti_result tti_tcp_watch_socket(struct tti_tcp_transport *transport, int socket,
                                       struct tti_tcp_watch *watch)
{
    return tcp_watch(transport, socket, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, watch);
}

void tti_tcp_unwatch_socket(struct tti_tcp_transport *transport, int socket)
{
    epoll_ctl(transport->epoll, EPOLL_CTL_DEL, socket, NULL);
}

void tti_tcp_hang_up(struct tti_tcp_transport *transport, struct tti_tcp_talk *talk)
{
    if (talk->socket >= 0)
        tti_tcp_unwatch_socket(transport, talk->socket);
    tti_tcp_talk_end(talk);
}

void tti_tcp_set_timer(struct tti_tcp_transport *transport, uint64_t wake_ns)
{
    if (wake_ns == transport->timer_ns)
        return;
    struct itimerspec when = {{0, 0}, {0, 0}};
    if (wake_ns != UINT64_MAX) {
        uint64_t now = tti_now_ns();
        uint64_t wait = wake_ns > now ? wake_ns - now : 1; /* 0 would switch it off */
        when.it_value.tv_sec = (time_t)(wait / UINT64_C(1000000000));
        when.it_value.tv_nsec = (long)(wait % UINT64_C(1000000000));
    }
    timerfd_settime(transport->timer, 0, &when, NULL);
    transport->timer_ns = wake_ns;
}

void tti_tcp_control(struct tti_tcp_transport *transport)
{
    uint64_t now = tti_now_ns();
    transport->control_due = false;
    uint64_t wake = tti_tcp_accept_step(transport, now);
    for (struct tti_tcp_endpoint *e = transport->endpoint; e; e = e->next) {
        if (e->state != TTI_TCP_CONNECTING || !e->connects)
            continue;
        tti_tcp_connect_step(e, now);
        if (e->state == TTI_TCP_CONNECTING && e->wake_ns < wake)
            wake = e->wake_ns;
    }
    if (transport->cut > 0) {
        uint64_t next = tti_tcp_resume_all(transport, now);
        wake = next < wake ? next : wake;
    }
    tti_tcp_set_timer(transport, wake);
}

static void tcp_lane_event(struct tti_tcp_transport *transport, struct tti_tcp_lane *lane,
                           uint32_t events)
{
    const uint32_t end = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
    if ((events & EPOLLERR) && lane->zero) {
        tti_tcp_queue_look(lane);
        transport->news = true;
        events &= ~(uint32_t)EPOLLERR; /* a connection that broke has EPOLLHUP, too */
    }
    if (events & (EPOLLIN | end))
        lane->readable = true;
    if (events & end)
        lane->hung_up = true;
    if (lane->endpoint->state == TTI_TCP_CONNECTING)
        transport->control_due = true; /* the acceptor may be ready */
    if ((events & (EPOLLOUT | end)) && tti_tcp_lane_waits(lane))
        transport->news |= tti_tcp_lane_flush(lane);
    /* Both ways are closed. Who has nothing more to read there would not find out, and the peer may
     * be waiting to be called. */
    if (events & EPOLLHUP)
        (void)tti_tcp_lane_cut(lane, (events & EPOLLERR) ? ECONNRESET : 0);
}

static void tcp_event(struct tti_tcp_transport *transport, const struct epoll_event *event)
{
    struct tti_tcp_watch *watch = event->data.ptr;
    uint64_t fired = 0;
    switch (watch->kind) {
    case TTI_TCP_WATCH_LANE: /* `watch` opens the lane */
        tcp_lane_event(transport, (struct tti_tcp_lane *)watch, event->events);
        return;
    case TTI_TCP_WATCH_LISTENER:
        transport->accept_due = true;
        break;
    case TTI_TCP_WATCH_TIMER:
        if (read(transport->timer, &fired, sizeof fired) == (ssize_t)sizeof fired)
            transport->timer_ns = UINT64_MAX;
        break;
    case TTI_TCP_WATCH_TALK: /* `watch` opens the talk */
        ((struct tti_tcp_talk *)watch)->due = true;
        break;
    }
    transport->control_due = true;
}

/* Events are only noted while they are taken: nothing that one may point to is freed before the
 * control plane runs. */
void tti_tcp_collect(struct tti_tcp_transport *transport)
{
    struct epoll_event event[TCP_EVENTS];
    int count = 0;
    transport->collect = false;
    transport->skipped = 0;
    do {
        count = epoll_wait(transport->epoll, event, TCP_EVENTS, 0);
        for (int i = 0; i < count; i++)
            tcp_event(transport, &event[i]);
    } while (count == TCP_EVENTS || (count < 0 && errno == EINTR));
    if (transport->control_due)
        tti_tcp_control(transport);
    tti_tcp_silence_look(transport);
}

static enum tutti_result tcp_progress(void *object)
{
    struct tti_tcp_transport *transport = object;
    transport->direct = transport->empty_peeks <= TCP_DIRECT_PEEKS;
    transport->empty_peeks = 0;
    if (!transport->direct || transport->collect || transport->blocked > 0 ||
        transport->connecting > 0 || transport->guests > 0 || transport->cut > 0 ||
        ++transport->skipped >= TCP_COLLECT_EVERY)
        tti_tcp_collect(transport);
    return TUTTI_OK;
}

static int tcp_fd(void *object)
{
    return ((struct tti_tcp_transport *)object)->epoll;
}

/* ---- the hot operations --------------------------------------------------------------------- */

static enum tutti_result tcp_send(void *object, int lane, uint64_t tag, const void *data,
                                  size_t bytes, size_t *accepted)
{
    struct tti_tcp_endpoint *endpoint = object;
    if (endpoint->stripe)
        TTI_TRY(tti_tcp_stripe_send(&endpoint->stripe[lane], tag, data, bytes, accepted));
    else
        TTI_TRY(tti_tcp_lane_send(&endpoint->lane[lane], tag, data, bytes, accepted));
    tti_tcp_known(endpoint, lane)->refused = *accepted == 0;
    return TUTTI_OK;
}

static enum tutti_result tcp_peek(void *object, int lane, uint64_t *tag, const void **data,
                                  size_t *bytes)
{
    struct tti_tcp_endpoint *endpoint = object;
    struct tti_tcp_transport *transport = endpoint->transport;
    if (endpoint->stripe)
        TTI_TRY(tti_tcp_stripe_peek(&endpoint->stripe[lane], transport->direct, tag, data, bytes));
    else
        TTI_TRY(tti_tcp_lane_peek(&endpoint->lane[lane], transport->direct, tag, data, bytes));
    transport->empty_peeks += *bytes == 0;
    return TUTTI_OK;
}

static void tcp_consume(void *object, int lane, size_t bytes)
{
    struct tti_tcp_endpoint *endpoint = object;
    if (endpoint->stripe)
        tti_tcp_stripe_consume(&endpoint->stripe[lane], bytes);
    else
        tti_tcp_lane_consume(&endpoint->lane[lane], bytes);
}

static enum tutti_result tcp_receive(void *object, int lane, uint64_t *tag, void *into,
                                     size_t bytes, size_t *taken)
{
    struct tti_tcp_endpoint *endpoint = object;
    struct tti_tcp_transport *transport = endpoint->transport;
    if (endpoint->stripe)
        TTI_TRY(tti_tcp_stripe_receive(&endpoint->stripe[lane], transport->direct, tag, into, bytes,
                                       taken));
    else
        TTI_TRY(tti_tcp_lane_receive(&endpoint->lane[lane], transport->direct, tag, into, bytes,
                                     taken));
    transport->empty_peeks += *taken == 0;
    return TUTTI_OK;
}

/* ---- opening and closing -------------------------------------------------------------------- */

static enum tutti_result tcp_probe(const struct tutti_services *services)
{
    int made = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made < 0)
        made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made < 0)
        return services->fail(TUTTI_ERR_UNSUPPORTED, "tcp: this machine makes no TCP sockets: %s",
                              strerror(errno));
    close(made);
    if (sodium_init() < 0)
        return services->fail(TUTTI_ERR_UNSUPPORTED,
                              "tcp: libsodium finds no source of random numbers");
    return TUTTI_OK;
}

static enum tutti_result tcp_open_interfaces(struct tti_tcp_transport *transport,
                                             const char *far_nics)
{
    struct tti_tcp_advert *advert = &transport->advert;
    const char *patterns = tti_config_text("TUTTI_IFNAME");
    TTI_TRY(tti_tcp_interfaces(&transport->interface, &transport->interfaces));
    if (patterns)
        TTI_TRY(tti_tcp_filter(patterns, transport->interface, &transport->interfaces));
    tti_tcp_far_last(far_nics, transport->interface, transport->interfaces);
    if (transport->interfaces == 0)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED, "tcp: no network interface is up, not even loopback "
                                               "(ip link set lo up)");
    transport->host = tti_tcp_host();
    advert->host = transport->host;
    size_t count = transport->interfaces;
    if (count > TTI_TCP_MAX_ADDRESSES)
        count = TTI_TCP_MAX_ADDRESSES;
    for (size_t i = 0; i < count; i++)
        advert->address[i] = transport->interface[i].address;
    advert->count = (int)count;
    return TUTTI_OK;
}

static enum tutti_result tcp_open_settings(struct tti_tcp_transport *transport)
{
    long resume = -1;
    TTI_TRY(tti_config_int("TUTTI_TCP_RESUME", 0, 1, -1, &resume));
    transport->resume = (int)resume;
    TTI_TRY(tti_tcp_parse_control(tti_config_text("TUTTI_TCP_CONGESTION"), transport->control));
    long checksum = 0, encrypt = 0, sockets = 1, zero_copy = TTI_TCP_ZERO_NEVER;
    TTI_TRY(tti_config_int("TUTTI_TCP_ZEROCOPY", TTI_TCP_ZERO_NEVER, TTI_TCP_ZERO_ALWAYS,
                           TTI_TCP_ZERO_NEVER, &zero_copy));
    transport->zero_copy = (int)zero_copy;
    TTI_TRY(tti_config_int("TUTTI_TCP_SOCKETS", 1, TTI_TCP_MAX_SOCKETS, 1, &sockets));
    transport->advert.sockets = (uint8_t)sockets;
    TTI_TRY(tti_config_int("TUTTI_TCP_CHECKSUM", 0, 1, 0, &checksum));
    TTI_TRY(tti_config_int("TUTTI_TCP_ENCRYPT", 0, 1, 0, &encrypt));
    unsigned aes = encrypt && tti_tcp_seal_has_aes() ? TTI_TCP_AES : 0;
    transport->advert.seals = (uint8_t)((checksum ? (unsigned)TTI_TCP_CHECKSUMS : 0) |
                                        (encrypt ? (unsigned)TTI_TCP_ENCRYPTS : 0) | aes);
    return TUTTI_OK;
}

static enum tutti_result tcp_open_descriptors(struct tti_tcp_transport *transport)
{
    uint16_t first = 0, last = 0;
    TTI_TRY(tti_tcp_parse_ports(tti_config_text("TUTTI_TCP_PORTS"), &first, &last));
    transport->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (transport->epoll < 0)
        return TTI_FAIL_ERRNO("epoll_create1: opening the TCP transport");
    transport->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (transport->timer < 0)
        return TTI_FAIL_ERRNO("timerfd_create: opening the TCP transport");
    TTI_TRY(tti_tcp_listen(first, last, &transport->listener, &transport->advert.port));
    transport->timer_watch.kind = TTI_TCP_WATCH_TIMER;
    transport->listener_watch.kind = TTI_TCP_WATCH_LISTENER;
    TTI_TRY(tcp_watch(transport, transport->timer, EPOLLIN, &transport->timer_watch));
    return tcp_watch(transport, transport->listener, EPOLLIN | EPOLLET, &transport->listener_watch);
}

static void tcp_close(void *object)
{
    struct tti_tcp_transport *transport = object;
    if (!transport)
        return;
    if (transport->listener >= 0)
        close(transport->listener);
    tti_tcp_drain(transport, TCP_CLOSE_SECONDS);
    while (transport->endpoint)
        tti_tcp_disconnect(transport->endpoint);
    tti_tcp_drain(transport, 0); /* closes what the last disconnects left */
    tti_tcp_accept_end(transport);
    if (transport->timer >= 0)
        close(transport->timer);
    if (transport->epoll >= 0)
        close(transport->epoll);
    sodium_memzero(transport->secret, sizeof transport->secret);
    free(transport->lingering);
    free(transport->interface);
    free(transport);
}

static enum tutti_result tcp_open(const struct tutti_transport_env *env, void **out)
{
    if (sodium_init() < 0)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED, "tcp: libsodium finds no source of random numbers");
    struct tti_tcp_transport *transport = tti_calloc(1, sizeof *transport);
    if (!transport)
        return TUTTI_ERR_MEMORY;
    transport->job = env->job;
    memcpy(transport->secret, env->secret, sizeof transport->secret);
    transport->rank = env->rank;
    snprintf(transport->name, sizeof transport->name, "%s", env->name);
    transport->nranks = env->nranks;
    transport->max_lanes = env->lanes;
    transport->epoll = transport->timer = transport->listener = -1;
    transport->timer_ns = UINT64_MAX;
    enum tutti_result result = tcp_open_settings(transport);
    if (result == TUTTI_OK)
        result = tcp_open_interfaces(transport, env->far_nics);
    if (result == TUTTI_OK)
        result = tcp_open_descriptors(transport);
    if (result != TUTTI_OK) {
        tcp_close(transport);
        return result;
    }
    *out = transport;
    return TUTTI_OK;
}

static enum tutti_result tcp_address(void *object, void *address, size_t *bytes)
{
    struct tti_tcp_transport *transport = object;
    *bytes = tti_tcp_put_advert(&transport->advert, address);
    return TUTTI_OK;
}

static bool tcp_reaches(void *object, const struct tutti_peer *peer)
{
    struct tti_tcp_transport *transport = object;
    struct tti_tcp_advert advert;
    return peer->rank != transport->rank && peer->address &&
           !tti_tcp_get_advert(peer->address, peer->address_bytes, &advert) &&
           tti_tcp_reachable(&transport->advert, &advert);
}

/* The first address that leads out of the host, which peers try first. */
static double tcp_line(void *object, uint64_t *way)
{
    const struct tti_tcp_transport *transport = object;
    for (size_t i = 0; i < transport->interfaces; i++) {
        const struct tti_tcp_address *address = &transport->interface[i].address;
        if (address->loopback)
            continue;
        *way = 1;
        for (const char *at = transport->interface[i].name; *at; at++)
            *way = *way * 257 + (unsigned char)*at;
        return address->speed * 1e6;
    }
    return 0;
}

static void tcp_memory(void *object, struct tutti_memory *memory)
{
    struct tti_tcp_transport *transport = object;
    memory->host += tti_heap_bytes(transport) + tti_heap_bytes(transport->interface) +
                    tti_heap_bytes(transport->lingering);
    memory->descriptors += (transport->epoll >= 0) + (transport->timer >= 0) +
                           (transport->listener >= 0) + transport->guests +
                           (int)transport->lingerings;
    for (int i = 0; i < transport->guests; i++)
        memory->host += tti_heap_bytes(transport->guest[i]);
    for (const struct tti_tcp_parked *p = transport->parked; p; p = p->next) {
        memory->host += tti_heap_bytes(p);
        memory->descriptors++;
    }
    for (const struct tti_tcp_endpoint *e = transport->endpoint; e; e = e->next) {
        memory->host += tti_heap_bytes(e) + tti_heap_bytes(e->attempt) + tti_heap_bytes(e->stripe);
        for (int i = 0; i < e->lanes; i++) {
            memory->host += tti_heap_bytes(e->lane[i].stage) + tti_tcp_queue_heap(&e->lane[i]);
            memory->host += tti_heap_bytes(e->lane[i].zero);
            memory->host += tti_heap_bytes(e->lane[i].saved) + tti_heap_bytes(e->lane[i].mend);
            if (e->lane[i].seal)
                memory->host += tti_heap_bytes(e->lane[i].seal) +
                                tti_heap_bytes(e->lane[i].seal->in) +
                                tti_heap_bytes(e->lane[i].seal->out);
            memory->descriptors += e->lane[i].socket >= 0;
        }
    }
}

const struct tutti_transport_ops tti_tcp_ops = {
    .abi = TUTTI_TRANSPORT_ABI,
    .size = sizeof tti_tcp_ops,
    .name = "tcp",
    .rank = 40,
    .probe = tcp_probe,
    .open = tcp_open,
    .close = tcp_close,
    .address = tcp_address,
    .reaches = tcp_reaches,
    .connect = tti_tcp_connect,
    .advance = tti_tcp_advance,
    .disconnect = tti_tcp_disconnect,
    .send = tcp_send,
    .released = tti_tcp_released,
    .peek = tcp_peek,
    .consume = tcp_consume,
    .receive = tcp_receive,
    .progress = tcp_progress,
    .fd = tcp_fd,
    .arm = tti_tcp_arm,
    .disarm = tti_tcp_disarm,
    .memory = tcp_memory,
    .line = tcp_line,
    .abandoned = tti_tcp_abandoned,
};
