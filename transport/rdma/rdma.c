/* The RDMA transport: its table of operations, opening, closing and sleeping (rdma.h). */
#include "transport/rdma/rdma.h"

#include "base/clock.h"
#include "base/config.h"
#include "base/memory.h"
#include "transport/tcp/tcp_wire.h"

#include <poll.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

extern const struct tutti_transport_ops tti_rdma_ops;
extern const struct tutti_transport_ops tti_tcp_ops;

enum {
    RDMA_LOOK_EVERY = 64, /* calls of progress, when nothing asks for it sooner */
    RDMA_EVENTS = 2 + 2 * TTI_RDMA_MAX_RAILS,
    RDMA_CONTROL = 1, /* which descriptor of epoll's: a control connection or a device, */
    RDMA_CHANNEL = 2, /* or completions */
};
#define RDMA_LOOK_NS UINT64_C(1000000)

/* ---- waiting -------------------------------------------------------------------------------- */

static void rdma_work_all(struct tti_rdma_transport *self)
{
    for (struct tti_rdma_endpoint *e = self->endpoint; e; e = e->next)
        if (e->owing > 0 || e->lost > 0 || e->waiting > 0)
            tti_rdma_endpoint_work(e);
}

/* The control connections are looked at before the completions: what a peer sent before it ended is
 * taken in then. */
static enum tutti_result rdma_progress(void *object)
{
    struct tti_rdma_transport *self = object;
    if (self->connecting > 0 || self->look ||
        (++self->skipped >= RDMA_LOOK_EVERY && tti_now_ns() - self->looked_ns > RDMA_LOOK_NS)) {
        tti_rdma_control(self);
        tti_rdma_memory_sweep(self);
    } else if (self->skipped >= RDMA_LOOK_EVERY) {
        self->skipped = 0;
    }
    tti_rdma_poll(self);
    if (self->leaving)
        tti_rdma_leaving_step(self);
    rdma_work_all(self);
    return TUTTI_OK;
}

static int rdma_fd(void *object)
{
    return ((struct tti_rdma_transport *)object)->epoll;
}

/* Who sleeps and wakes often must not pay for the control connections each time: only when one of
 * them, or a device, has something to say. */
static void rdma_glance(struct tti_rdma_transport *self)
{
    struct epoll_event event[RDMA_EVENTS];
    int count = epoll_wait(self->epoll, event, RDMA_EVENTS, 0);
    for (int i = 0; i < count; i++)
        self->look |= event[i].data.u32 == RDMA_CONTROL;
}

/* Events of the control connections are told once. Whoever uses these takes events in, and need
 * not act upon all of them at once; their own arm does so as well. So they may only sleep when that
 * has had nothing to tell since they were used; else the next progress reads them. */
static bool rdma_arm_control(struct tti_rdma_transport *self)
{
    if (!self->unsettled)
        return true;
    self->look = !tti_tcp_ops.arm(self->tcp);
    tti_tcp_ops.disarm(self->tcp);
    self->unsettled = self->look;
    return !self->look;
}

static bool rdma_arm(void *object)
{
    struct tti_rdma_transport *self = object;
    for (int r = 0; r < self->rails; r++)
        if (!self->rail[r].armed)
            self->rail[r].armed = ibv_req_notify_cq(self->rail[r].cq, 0) == 0;
    rdma_glance(self);
    if (self->look || self->connecting > 0)
        tti_rdma_control(self);
    tti_rdma_poll(self); /* what came before the device was asked for an event */
    tti_rdma_watch(self);
    rdma_work_all(self);
    const bool quiet = rdma_arm_control(self) && !self->news;
    self->news = false;
    return quiet;
}

static void rdma_disarm(void *object)
{
    struct tti_rdma_transport *self = object;
    for (int r = 0; r < self->rails; r++) {
        struct ibv_cq *cq = NULL;
        void *context = NULL;
        if (!self->rail[r].armed ||
            self->verbs->get_cq_event(self->rail[r].channel, &cq, &context) != 0)
            continue;
        self->verbs->ack_cq_events(cq, 1);
        self->rail[r].armed = false;
    }
    rdma_glance(self);
}

/* ---- settings ------------------------------------------------------------------------------- */

/* The time that a queue pair waits for an acknowledgement is 4.096 us times a power of two, and it
 * waits for the first sending and for each of six more. */
static uint8_t rdma_timeout(double outage_s)
{
    uint8_t power = 8;
    for (double wait = 7 * 4.096e-6 * (1 << 8); wait < outage_s && power < 30; wait *= 2)
        power++;
    return power;
}

static enum tutti_result rdma_settings(struct tti_rdma_settings *settings)
{
    TTI_TRY(tti_config_int("TUTTI_RDMA_SLOTS", 2, 1024, 8, &settings->slots));
    TTI_TRY(tti_config_bytes("TUTTI_RDMA_SLOT_BYTES", 128 * 1024, &settings->slot_bytes));
    TTI_TRY(tti_config_int("TUTTI_RDMA_QPS", 1, TTI_RDMA_MAX_QPS, 1, &settings->qps));
    TTI_TRY(tti_config_int("TUTTI_RDMA_GID_INDEX", 0, 255, -1, &settings->gid_index));
    TTI_TRY(tti_config_int("TUTTI_RDMA_PKEY_INDEX", 0, 65535, 0, &settings->pkey_index));
    TTI_TRY(tti_config_int("TUTTI_RDMA_ROCE", 1, 2, 0, &settings->roce));
    TTI_TRY(tti_config_int("TUTTI_RDMA_TRAFFIC_CLASS", 0, 255, 0, &settings->traffic_class));
    TTI_TRY(tti_config_int("TUTTI_RDMA_SERVICE_LEVEL", 0, 15, 0, &settings->service_level));
    TTI_TRY(tti_config_seconds("TUTTI_RDMA_OUTAGE", 3.5, &settings->outage_s));
    if (settings->slots & (settings->slots - 1))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "TUTTI_RDMA_SLOTS is %ld; expected a power of two",
                        settings->slots);
    if (settings->slot_bytes < 4096 || settings->slot_bytes % 4096 ||
        settings->slot_bytes > 16 << 20)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "TUTTI_RDMA_SLOT_BYTES is %zu; expected a multiple of 4096 up to 16M",
                        settings->slot_bytes);
    /* Twice: the connection is made again once before it fails (rdma_failover.c). */
    settings->timeout = rdma_timeout(settings->outage_s / 2);
    return TUTTI_OK;
}

/* ---- opening and closing -------------------------------------------------------------------- */

static enum tutti_result rdma_probe(const struct tutti_services *services)
{
    const struct tti_verbs *verbs = NULL;
    (void)services; /* TTI_FAIL is what they lead to */
    TTI_TRY(tti_verbs_load(&verbs));
    return tti_rdma_probe(verbs);
}

/* Polls until nothing is under way, while the link may be silent; a peer that is gone does not
 * count. */
static void rdma_drain(struct tti_rdma_transport *self)
{
    uint64_t deadline = tti_deadline_in(self->settings.outage_s);
    while (self->endpoint)
        tti_rdma_disconnect(self->endpoint);
    while (self->leaving && !tti_deadline_passed(deadline)) {
        (void)tti_tcp_ops.progress(self->tcp);
        tti_rdma_poll(self);
        tti_rdma_leaving_step(self);
        if (self->leaving)
            (void)poll(NULL, 0, 1);
    }
    while (self->leaving)
        tti_rdma_endpoint_free(self->leaving);
}

static void rdma_close(void *object)
{
    struct tti_rdma_transport *self = object;
    if (!self)
        return;
    rdma_drain(self);
    if (self->tcp)
        tti_tcp_ops.close(self->tcp);
    tti_rdma_memory_free(self);
    tti_rdma_device_free(self);
    if (self->epoll >= 0)
        close(self->epoll);
    tti_rdma_rails_close(self);
    free(self->table);
    pthread_mutex_destroy(&self->device_lock);
    free(self);
}

static enum tutti_result rdma_watch(struct tti_rdma_transport *self, int fd, uint32_t what)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.u32 = what}};
    if (epoll_ctl(self->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        return TTI_FAIL_ERRNO("epoll_ctl: watching a descriptor of the RDMA transport");
    return TUTTI_OK;
}

static enum tutti_result rdma_open_all(struct tti_rdma_transport *self)
{
    TTI_TRY(tti_verbs_load(&self->verbs));
    TTI_TRY(rdma_settings(&self->settings));
    TTI_TRY(tti_rdma_memory_join());
    TTI_TRY(tti_rdma_rails_open(self));
    struct tti_rdma_buffer *first = tti_rdma_buffer_take(self); /* nothing goes without any */
    if (!first)
        return TUTTI_ERR_MEMORY; /* with the text of what was refused */
    tti_rdma_buffer_give(self, first);
    TTI_TRY(tti_tcp_ops.open(&self->env, &self->tcp));
    self->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (self->epoll < 0)
        return TTI_FAIL_ERRNO("epoll_create1: opening the RDMA transport");
    TTI_TRY(rdma_watch(self, tti_tcp_ops.fd(self->tcp), RDMA_CONTROL));
    for (int r = 0; r < self->rails; r++) {
        TTI_TRY(rdma_watch(self, self->rail[r].channel->fd, RDMA_CHANNEL));
        TTI_TRY(rdma_watch(self, self->rail[r].context->async_fd, RDMA_CONTROL));
    }
    return TUTTI_OK;
}

static enum tutti_result rdma_open(const struct tutti_transport_env *env, void **out)
{
    struct tti_rdma_transport *self = tti_calloc(1, sizeof *self);
    if (!self)
        return TUTTI_ERR_MEMORY;
    pthread_mutex_init(&self->device_lock, NULL);
    self->env = *env;
    self->env.lanes = 1;
    self->max_lanes = env->lanes;
    self->epoll = -1;
    enum tutti_result result = rdma_open_all(self);
    if (result != TUTTI_OK) {
        rdma_close(self);
        return result;
    }
    *out = self;
    return TUTTI_OK;
}

/* ---- addresses ------------------------------------------------------------------------------ */

/* As many addresses of the control connection as there is room for, best first. */
static enum tutti_result rdma_address(void *object, void *address, size_t *bytes)
{
    struct tti_rdma_transport *self = object;
    uint8_t control[TUTTI_ADDRESS_BYTES];
    size_t control_bytes = 0;
    struct tti_tcp_advert tcp;
    struct tti_rdma_advert advert;
    TTI_TRY(tti_tcp_ops.address(self->tcp, control, &control_bytes));
    const char *wrong = tti_tcp_get_advert(control, control_bytes, &tcp);
    if (wrong)
        return TTI_FAIL(TUTTI_ERR_INTERNAL, "the TCP transport's own address is %s", wrong);
    tti_rdma_own_advert(self, &advert);
    int room = (TUTTI_ADDRESS_BYTES - TTI_RDMA_ADVERT_HEAD_BYTES -
                advert.count * TTI_RDMA_ADVERT_PORT_BYTES - TTI_TCP_ADVERT_HEAD_BYTES) /
               TTI_TCP_ADVERT_ENTRY_BYTES;
    if (tcp.count > room)
        tcp.count = room;
    advert.control_bytes = tti_tcp_put_advert(&tcp, control);
    advert.control = control;
    *bytes = tti_rdma_put_advert(&advert, address);
    return TUTTI_OK;
}

static bool rdma_reaches(void *object, const struct tutti_peer *peer)
{
    struct tti_rdma_transport *self = object;
    struct tti_rdma_advert own, theirs;
    struct tti_rdma_pair pair[TTI_RDMA_MAX_RAILS];
    if (peer->rank == self->env.rank || !peer->address ||
        tti_rdma_get_advert(peer->address, peer->address_bytes, &theirs))
        return false;
    tti_rdma_own_advert(self, &own);
    struct tutti_peer control = *peer;
    control.address = theirs.control;
    control.address_bytes = theirs.control_bytes;
    bool lower = self->env.rank < peer->rank;
    return tti_rdma_match(lower ? &own : &theirs, lower ? &theirs : &own, pair) > 0 &&
           tti_tcp_ops.reaches(self->tcp, &control);
}

/* All rails together that usually carry; ranks with the same ports share them. */
static double rdma_line(void *object, uint64_t *way)
{
    const struct tti_rdma_transport *self = object;
    double bits = 0;
    *way = 1;
    for (int r = 0; r < self->rails; r++) {
        if (self->rail[r].port.far)
            continue;
        for (const char *at = self->rail[r].device; *at; at++)
            *way = *way * 257 + (unsigned char)*at;
        *way = *way * 257 + self->rail[r].number;
        bits += self->rail[r].port.speed * 1e6;
    }
    return bits;
}

static void rdma_memory(void *object, struct tutti_memory *memory)
{
    struct tti_rdma_transport *self = object;
    tti_tcp_ops.memory(self->tcp, memory);
    memory->host +=
        tti_heap_bytes(self) + tti_heap_bytes(self->table) + tti_heap_bytes(self->region);
    pthread_mutex_lock(&self->device_lock);
    memory->host += tti_heap_bytes(self->device);
    pthread_mutex_unlock(&self->device_lock);
    memory->descriptors += 1 + 3 * self->rails; /* each: commands, completions, events */
    for (int i = 0; i < self->blocks; i++)
        memory->host += tti_heap_bytes(self->block[i]) + self->block[i]->memory.bytes;
    for (const struct tti_rdma_endpoint *e = self->endpoint; e; e = e->next) {
        memory->host += tti_heap_bytes(e) + e->memory.bytes;
        for (int i = 0; i < e->lanes; i++)
            memory->host += tti_heap_bytes(e->lane[i].sent) + tti_heap_bytes(e->lane[i].arrived);
    }
}

const struct tutti_transport_ops tti_rdma_ops = {
    .abi = TUTTI_TRANSPORT_ABI,
    .size = sizeof tti_rdma_ops,
    .name = "rdma",
    .rank = 30,
    .probe = rdma_probe,
    .open = rdma_open,
    .close = rdma_close,
    .address = rdma_address,
    .reaches = rdma_reaches,
    .connect = tti_rdma_connect,
    .advance = tti_rdma_advance,
    .disconnect = tti_rdma_disconnect,
    .send = tti_rdma_send,
    .released = tti_rdma_released,
    .reserve = tti_rdma_reserve,
    .commit = tti_rdma_commit,
    .peek = tti_rdma_peek,
    .consume = tti_rdma_consume,
    .progress = rdma_progress,
    .fd = rdma_fd,
    .arm = rdma_arm,
    .disarm = rdma_disarm,
    .memory = rdma_memory,
    .await = tti_rdma_await,
    .line = rdma_line,
    .device_register = tti_rdma_device_register,
    .device_forget = tti_rdma_device_forget,
    .device_send = tti_rdma_device_send,
    .abandoned = tti_rdma_abandoned,
};
