/* The fault transport's control operations and its table (transport/fault/fault.h; the hot ones:
 * fault_lane.c). It offers no `reserve`: every byte that is sent passes `send`. */
#include "transport/fault/fault.h"

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/memory.h"
#include "transport/registry.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

static const struct fault_hooks no_hooks;
const struct fault_hooks *tti_fault_hooked = &no_hooks;

extern const struct tutti_transport_ops tti_fault_ops;

void tti_fault_hooks(const struct fault_hooks *hooks)
{
    tti_fault_hooked = hooks ? hooks : &no_hooks;
}

/* ---- opening -------------------------------------------------------------------------------- */

static enum tutti_result fault_find(const char *name, const struct tutti_transport_ops **ops)
{
    for (int i = 0; tti_transport_at(i); i++)
        if (tti_transport_at(i) != &tti_fault_ops && strcmp(tti_transport_at(i)->name, name) == 0) {
            *ops = tti_transport_at(i);
            return TUTTI_OK;
        }
    return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                    "TUTTI_FAULT: over=%s: there is no such transport to misbehave over; there are "
                    "inproc, shm, rdma and tcp",
                    name);
}

static enum tutti_result fault_settings_find(struct fault_settings *settings,
                                             const struct tutti_transport_ops **ops)
{
    const char *text = tti_config_text("TUTTI_FAULT");
    if (!text)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED, "TUTTI_FAULT does not say what is to go wrong");
    TTI_TRY(tti_fault_settings_parse(text, settings));
    return fault_find(settings->over, ops);
}

static enum tutti_result fault_probe(const struct tutti_services *services)
{
    struct fault_settings settings;
    const struct tutti_transport_ops *ops = NULL;
    TTI_TRY(fault_settings_find(&settings, &ops));
    return ops->probe(services);
}

/* One descriptor for the carrier's and for what is late. */
static enum tutti_result fault_clock(struct fault_transport *self)
{
    struct epoll_event event = {.events = EPOLLIN};
    if (self->settings.delay <= 0 && self->settings.reorder <= 0)
        return TUTTI_OK;
    self->epoll = epoll_create1(EPOLL_CLOEXEC);
    self->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (self->epoll < 0 || self->timer < 0 ||
        epoll_ctl(self->epoll, EPOLL_CTL_ADD, self->timer, &event) != 0 ||
        epoll_ctl(self->epoll, EPOLL_CTL_ADD, self->ops->fd(self->inner), &event) != 0)
        return TTI_FAIL_ERRNO("fault: a descriptor for what comes late");
    return TUTTI_OK;
}

static void fault_release(struct fault_transport *self)
{
    if (self->inner)
        self->ops->close(self->inner);
    if (self->epoll >= 0)
        close(self->epoll);
    if (self->timer >= 0)
        close(self->timer);
    free(self);
}

static enum tutti_result fault_prepare(struct fault_transport *self)
{
    struct fault_settings *settings = &self->settings;
    TTI_TRY(fault_settings_find(settings, &self->ops));
    if (!settings->seeded && getrandom(&settings->seed, sizeof settings->seed, 0) < 0)
        return TTI_FAIL_ERRNO("getrandom for the seed of TUTTI_FAULT");
    self->mine = settings->rank < 0 || settings->rank == self->env->rank;
    TTI_TRY(self->ops->open(self->env, &self->inner));
    TTI_LOG(TTI_LOG_INFO, "fault: over %s, seed=%llu%s", settings->over,
            (unsigned long long)settings->seed, self->mine ? "" : "; not this rank");
    return fault_clock(self);
}

static enum tutti_result fault_open(const struct tutti_transport_env *env, void **transport)
{
    struct fault_transport *made = tti_calloc(1, sizeof *made);
    if (!made)
        return TUTTI_ERR_MEMORY;
    made->env = env;
    made->epoll = made->timer = -1;
    enum tutti_result result = fault_prepare(made);
    if (result != TUTTI_OK) {
        struct tti_error error;
        tti_error_save(&error, result);
        fault_release(made);
        return tti_error_restore(&error);
    }
    *transport = made;
    return TUTTI_OK;
}

/* ---- addresses: the carrier's name, then its address ---------------------------------------- */

static enum tutti_result fault_address(void *transport, void *address, size_t *bytes)
{
    struct fault_transport *self = transport;
    char inner[TUTTI_ADDRESS_BYTES];
    size_t used = 0;
    TTI_TRY(self->ops->address(self->inner, inner, &used));
    if (used > TUTTI_ADDRESS_BYTES - FAULT_OVER_BYTES)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "fault: an address of %s has %zu bytes, at most %d fit",
                        self->settings.over, used, TUTTI_ADDRESS_BYTES - FAULT_OVER_BYTES);
    memcpy(address, self->settings.over, FAULT_OVER_BYTES);
    memcpy((char *)address + FAULT_OVER_BYTES, inner, used);
    *bytes = FAULT_OVER_BYTES + used;
    return TUTTI_OK;
}

static bool fault_reaches(void *transport, const struct tutti_peer *peer)
{
    struct fault_transport *self = transport;
    struct tutti_peer inner = *peer;
    if (peer->address_bytes < FAULT_OVER_BYTES ||
        memcmp(peer->address, self->settings.over, FAULT_OVER_BYTES) != 0)
        return false;
    inner.address = (const char *)peer->address + FAULT_OVER_BYTES;
    inner.address_bytes -= FAULT_OVER_BYTES;
    return self->ops->reaches(self->inner, &inner);
}

/* ---- connections ---------------------------------------------------------------------------- */

static uint64_t fault_mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0xff51afd7ed558ccd);
    return hash ^ (hash >> 32);
}

static enum tutti_result fault_connect(void *transport, const struct tutti_peer *peer, int lanes,
                                       void **endpoint)
{
    struct fault_transport *self = transport;
    if (lanes < 1 || lanes > TUTTI_MAX_LANES)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%d lanes; 1 to %d are possible", lanes,
                        TUTTI_MAX_LANES);
    struct fault_endpoint *made =
        tti_calloc(1, sizeof *made + (size_t)lanes * sizeof made->lane[0]);
    if (!made)
        return TUTTI_ERR_MEMORY;
    made->transport = self;
    made->peer = *peer;
    made->peer.address = (const char *)peer->address + FAULT_OVER_BYTES;
    made->peer.address_bytes -= FAULT_OVER_BYTES;
    made->wanted = self->mine && (self->settings.peer < 0 || self->settings.peer == peer->rank);
    made->lanes = lanes;
    for (int i = 0; i < lanes; i++)
        made->lane[i].random =
            fault_mix(fault_mix(fault_mix(self->settings.seed, (uint64_t)self->env->rank),
                                (uint64_t)peer->rank),
                      (uint64_t)i);
    enum tutti_result result = self->ops->connect(self->inner, &made->peer, lanes, &made->inner);
    if (result != TUTTI_OK) {
        free(made);
        return result;
    }
    made->next = self->endpoints;
    self->endpoints = made;
    *endpoint = made;
    return TUTTI_OK;
}

static enum tutti_result fault_advance(void *endpoint)
{
    struct fault_endpoint *e = endpoint;
    return e->transport->ops->advance(e->inner);
}

static void fault_free(struct fault_endpoint *e)
{
    for (int i = 0; i < e->lanes; i++)
        free(e->lane[i].copy);
    free(e);
}

static void fault_disconnect(void *endpoint)
{
    struct fault_endpoint *e = endpoint, **at = &e->transport->endpoints;
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    e->transport->ops->disconnect(e->inner);
    fault_free(e);
}

static void fault_close(void *transport)
{
    struct fault_transport *self = transport;
    const struct fault_counts counts = self->counts;
    int rank = self->env->rank;
    self->ops->close(self->inner); /* and its endpoints */
    self->inner = NULL;
    while (self->endpoints) {
        struct fault_endpoint *e = self->endpoints;
        self->endpoints = e->next;
        fault_free(e);
    }
    TTI_LOG(TTI_LOG_INFO,
            "fault: seed=%llu: of %llu fragments %llu late, %llu dropped, %llu truncated, %llu "
            "corrupted, %llu forged, %llu connections lost%s%s",
            (unsigned long long)self->settings.seed, (unsigned long long)counts.steps,
            (unsigned long long)counts.delayed, (unsigned long long)counts.dropped,
            (unsigned long long)counts.truncated, (unsigned long long)counts.corrupted,
            (unsigned long long)counts.forged, (unsigned long long)counts.lost,
            counts.stalled ? "; stood still" : "", counts.died ? "; died" : "");
    fault_release(self);
    if (tti_fault_hooked->closing)
        tti_fault_hooked->closing(rank, &counts);
}

/* ---- memory that the peer uses itself: the carrier's ---------------------------------------- */

static bool fault_offer(void *endpoint, const void *data, size_t bytes, struct tutti_place *place)
{
    struct fault_endpoint *e = endpoint;
    return tti_transport_maps(e->transport->ops) &&
           e->transport->ops->offer(e->inner, data, bytes, place);
}

static enum tutti_result fault_map(void *endpoint, const struct tutti_place *place, size_t bytes,
                                   void **address)
{
    struct fault_endpoint *e = endpoint;
    if (!tti_transport_maps(e->transport->ops))
        return TTI_FAIL(TUTTI_ERR_PROTOCOL,
                        "rank %d (%s) offers memory over %s, which has no such "
                        "thing",
                        e->peer.rank, e->peer.name, e->transport->settings.over);
    return e->transport->ops->map(e->inner, place, bytes, address);
}

static void fault_unmap(void *endpoint)
{
    struct fault_endpoint *e = endpoint;
    if (tti_transport_maps(e->transport->ops))
        e->transport->ops->unmap(e->inner);
}

static enum tutti_result fault_withdraw(void *endpoint, int wait_ms)
{
    struct fault_endpoint *e = endpoint;
    return tti_transport_maps(e->transport->ops) ? e->transport->ops->withdraw(e->inner, wait_ms)
                                                 : TUTTI_OK;
}

/* ---- waiting -------------------------------------------------------------------------------- */

static enum tutti_result fault_progress(void *transport)
{
    struct fault_transport *self = transport;
    return self->ops->progress(self->inner);
}

static int fault_fd(void *transport)
{
    struct fault_transport *self = transport;
    return self->epoll >= 0 ? self->epoll : self->ops->fd(self->inner);
}

static void fault_disarm(void *transport)
{
    struct fault_transport *self = transport;
    struct itimerspec never = {{0, 0}, {0, 0}};
    if (self->timer >= 0)
        (void)timerfd_settime(self->timer, 0, &never,
                              NULL); /* also takes back its being readable */
    self->ops->disarm(self->inner);
}

static bool fault_arm(void *transport)
{
    struct fault_transport *self = transport;
    uint64_t next = tti_fault_next(self);
    if (!self->ops->arm(self->inner)) {
        fault_disarm(self);
        return false;
    }
    if (next == 0)
        return true;
    struct itimerspec then = {{0, 0}, {(time_t)(next / 1000000000u), (long)(next % 1000000000u)}};
    if (!tti_deadline_passed(next) &&
        timerfd_settime(self->timer, TFD_TIMER_ABSTIME, &then, NULL) == 0)
        return true;
    fault_disarm(self);
    return false;
}

static void fault_memory(void *transport, struct tutti_memory *memory)
{
    struct fault_transport *self = transport;
    memory->host += tti_heap_bytes(self);
    memory->descriptors += (self->epoll >= 0) + (self->timer >= 0);
    for (const struct fault_endpoint *e = self->endpoints; e; e = e->next) {
        memory->host += tti_heap_bytes(e);
        for (int i = 0; i < e->lanes; i++)
            memory->host += tti_heap_bytes(e->lane[i].copy);
    }
    tti_transport_memory(self->ops, self->inner, memory);
}

const struct tutti_transport_ops tti_fault_ops = {
    .abi = TUTTI_TRANSPORT_ABI,
    .size = sizeof(struct tutti_transport_ops),
    .name = "fault",
    .rank = 90,
    .probe = fault_probe,
    .open = fault_open,
    .close = fault_close,
    .address = fault_address,
    .reaches = fault_reaches,
    .connect = fault_connect,
    .advance = fault_advance,
    .disconnect = fault_disconnect,
    .send = tti_fault_send,
    .released = tti_fault_released,
    .peek = tti_fault_peek,
    .consume = tti_fault_consume,
    .receive = tti_fault_receive,
    .progress = fault_progress,
    .fd = fault_fd,
    .arm = fault_arm,
    .disarm = fault_disarm,
    .offer = fault_offer,
    .map = fault_map,
    .unmap = fault_unmap,
    .withdraw = fault_withdraw,
    .memory = fault_memory,
    .intact = tti_fault_intact,
    .abandoned = tti_fault_abandoned,
};
