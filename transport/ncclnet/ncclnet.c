/* The transport over a network plugin that was made for NCCL (ncclnet.h): its table, and waiting. A
 * plugin has no descriptor to sleep on, so a sleeper wakes now and then to look: soon at first,
 * then every millisecond. Host memory; device memory comes staged, as over any network. */
#include "transport/ncclnet/ncclnet.h"

#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

extern const struct tutti_transport_ops tti_tcp_ops;
extern const struct tutti_transport_ops tti_ncclnet_ops;

enum { ADDRESS_HEAD = 8, NAP_LEAST_US = 20, NAP_MOST_US = 1000 };

static enum tutti_result net_probe(const struct tutti_services *services)
{
    if (!tti_net_name())
        return services->fail(TUTTI_ERR_UNSUPPORTED, "ncclnet: no network plugin was loaded");
    return tti_tcp_ops.probe(services);
}

/* ---- opening and closing ---- */

static void net_close(void *object)
{
    struct tti_net_transport *transport = object;
    if (!transport)
        return;
    while (transport->endpoint)
        tti_net_endpoint_disconnect(transport->endpoint);
    if (transport->tcp)
        tti_tcp_ops.close(transport->tcp);
    if (transport->device >= 0)
        tti_net_end(transport->context);
    if (transport->timer >= 0)
        close(transport->timer);
    if (transport->epoll >= 0)
        close(transport->epoll);
    free(transport);
}

static enum tutti_result net_watch(struct tti_net_transport *transport)
{
    transport->epoll = epoll_create1(EPOLL_CLOEXEC);
    transport->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    const int fds[] = {transport->timer, tti_tcp_ops.fd(transport->tcp)};
    for (int i = 0; i < 2; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data = {.fd = fds[i]}};
        if (epoll_ctl(transport->epoll, EPOLL_CTL_ADD, fds[i], &event) != 0)
            return TTI_FAIL_ERRNO("opening the ncclnet transport: epoll, timerfd");
    }
    return TUTTI_OK;
}

static enum tutti_result net_open(const struct tutti_transport_env *env, void **out)
{
    struct tti_net_transport *made = tti_calloc(1, sizeof *made);
    int devices = 0;
    if (!made)
        return TUTTI_ERR_MEMORY;
    made->env = *env;
    made->epoll = made->timer = made->device = -1;
    made->nap_us = NAP_LEAST_US;
    enum tutti_result result = tti_tcp_ops.open(env, &made->tcp);
    if (result == TUTTI_OK)
        result = tti_net_begin(env->job, &made->context, &devices);
    if (result == TUTTI_OK) {
        made->device = env->rank % devices;
        result = net_watch(made);
    }
    if (result != TUTTI_OK) {
        net_close(made);
        return result;
    }
    *out = made;
    return TUTTI_OK;
}

/* ---- addresses: a hash of the plugin's name, then tcp's ---- */

static uint64_t net_hash(void)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (const char *at = tti_net_name(); *at; at++)
        hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
    return hash;
}

static enum tutti_result net_address(void *object, void *address, size_t *bytes)
{
    struct tti_net_transport *transport = object;
    char tcp[TUTTI_ADDRESS_BYTES];
    const uint64_t hash = net_hash();
    size_t size = 0;
    TTI_TRY(tti_tcp_ops.address(transport->tcp, tcp, &size));
    if (size > TUTTI_ADDRESS_BYTES - ADDRESS_HEAD)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "ncclnet: this host has too many addresses; name the interfaces in "
                        "TUTTI_IFNAME");
    memcpy(address, &hash, ADDRESS_HEAD);
    memcpy((char *)address + ADDRESS_HEAD, tcp, size);
    *bytes = ADDRESS_HEAD + size;
    return TUTTI_OK;
}

static bool net_reaches(void *object, const struct tutti_peer *peer)
{
    struct tti_net_transport *transport = object;
    const uint64_t hash = net_hash();
    if (!peer->address || peer->address_bytes <= ADDRESS_HEAD ||
        memcmp(peer->address, &hash, ADDRESS_HEAD) != 0)
        return false;
    struct tutti_peer tcp = *peer;
    tcp.address = (const char *)peer->address + ADDRESS_HEAD;
    tcp.address_bytes = peer->address_bytes - ADDRESS_HEAD;
    return tti_tcp_ops.reaches(transport->tcp, &tcp);
}

/* ---- waiting ---- */

static enum tutti_result net_progress(void *object)
{
    struct tti_net_transport *transport = object;
    TTI_TRY(tti_tcp_ops.progress(transport->tcp));
    for (struct tti_net_endpoint *e = transport->endpoint; e; e = e->next) {
        if (e->state != TTI_NET_UP)
            continue;
        tti_net_endpoint_hear(e);
        for (int i = 0; i < e->lanes; i++)
            (void)tti_net_lane_move(e, &e->lane[i]);
    }
    return TUTTI_OK;
}

static int net_fd(void *object)
{
    return ((struct tti_net_transport *)object)->epoll;
}

static void net_set_timer(struct tti_net_transport *transport, unsigned us)
{
    const struct itimerspec when = {.it_value = {.tv_nsec = (long)us * 1000}};
    timerfd_settime(transport->timer, 0, &when, NULL);
}

static bool net_arm(void *object)
{
    struct tti_net_transport *transport = object;
    if (!tti_tcp_ops.arm(transport->tcp))
        transport->news = true;
    (void)net_progress(transport);
    if (transport->news) {
        transport->news = false;
        transport->nap_us = NAP_LEAST_US;
        tti_tcp_ops.disarm(transport->tcp);
        return false;
    }
    if (transport->endpoint)
        net_set_timer(transport, transport->nap_us);
    transport->nap_us = transport->nap_us * 2 < NAP_MOST_US ? transport->nap_us * 2 : NAP_MOST_US;
    return true;
}

static void net_disarm(void *object)
{
    struct tti_net_transport *transport = object;
    net_set_timer(transport, 0);
    tti_tcp_ops.disarm(transport->tcp);
}

static void net_memory(void *object, struct tutti_memory *memory)
{
    struct tti_net_transport *transport = object;
    tti_tcp_ops.memory(transport->tcp, memory);
    memory->host += tti_heap_bytes(transport);
    memory->descriptors += 2;
    for (const struct tti_net_endpoint *e = transport->endpoint; e; e = e->next) {
        memory->host += tti_heap_bytes(e);
        for (int i = 0; i < e->lanes; i++)
            memory->host +=
                tti_heap_bytes(e->lane[i].out.memory) + tti_heap_bytes(e->lane[i].in.memory);
    }
}

const struct tutti_transport_ops tti_ncclnet_ops = {
    .abi = TUTTI_TRANSPORT_ABI,
    .size = sizeof tti_ncclnet_ops,
    .name = "ncclnet",
    .rank = 28, /* whoever names a plugin wants it before other networks */
    .probe = net_probe,
    .open = net_open,
    .close = net_close,
    .address = net_address,
    .reaches = net_reaches,
    .connect = tti_net_endpoint_connect,
    .advance = tti_net_endpoint_advance,
    .disconnect = tti_net_endpoint_disconnect,
    .send = tti_net_lane_send,
    .released = tti_net_lane_released,
    .peek = tti_net_lane_peek,
    .consume = tti_net_lane_consume,
    .progress = net_progress,
    .fd = net_fd,
    .arm = net_arm,
    .disarm = net_disarm,
    .memory = net_memory,
};
