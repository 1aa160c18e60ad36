/* inproc: ranks that are threads of one process. The reference for what a transport does.
 *
 * A fragment is a descriptor in a single-producer single-consumer ring; its bytes stay where the
 * sender has them (small ones are copied into the slot), and the receiver reads them there. The
 * sender gets its memory back when the receiver has consumed the fragment.
 *
 * Sleeping: `arm` says so in the bell, fences, and looks once more at every counter. It reports a
 * change at most once, so a caller that has no use for what has arrived can still sleep.
 *
 * Read connection.h first. */
#include "transport/inproc/connection.h"

#include "base/clock.h"
#include "base/memory.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { INPROC_ADDRESS_BYTES = 16 };
static const double inproc_flush_s = 1.0;

struct inproc_lane {
    struct inproc_ring *out, *in;
    /* Sending: fragments published, and of these handed back; bytes that are the caller's again. */
    uint64_t sent, freed;
    uint64_t known_freed; /* `freed` when arm told last: other calls see it, too */
    uint64_t counted;     /* fragments that are in `released`; at least `freed` */
    uint64_t released;
    /* Receiving. `known`: how many fragments the caller has been told of. */
    uint64_t consumed, known;
    size_t offset; /* into the oldest fragment */
};

struct inproc_endpoint {
    struct inproc_endpoint *next;
    struct inproc_transport *transport;
    struct inproc_connection *connection;
    const struct tutti_peer *peer;
    int side; /* ours */
    int lanes;
    uint64_t known_state; /* joined + 2 * left of the other side, as the caller knows it */
    struct inproc_lane lane[];
};

struct inproc_transport {
    const struct tutti_transport_env *env;
    struct inproc_bell *bell;
    struct inproc_endpoint *endpoints;
    bool armed;
    uint64_t owed; /* rings of the bell by those who have cleared its flag, not read yet */
};

/* ---- control -------------------------------------------------------------------------------- */

static enum tutti_result inproc_probe(const struct tutti_services *services)
{
    (void)services;
    return TUTTI_OK;
}

static enum tutti_result inproc_open(const struct tutti_transport_env *env, void **transport)
{
    struct inproc_transport *made = tti_calloc(1, sizeof *made);
    if (!made)
        return TUTTI_ERR_MEMORY;
    made->env = env;
    enum tutti_result result = tti_inproc_bell_create(&made->bell);
    if (result != TUTTI_OK) {
        free(made);
        return result;
    }
    *transport = made;
    return TUTTI_OK;
}

/* A number that no other process has: the same for all threads, another one after fork. */
static enum tutti_result inproc_process_number(uint8_t number[INPROC_ADDRESS_BYTES])
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static uint8_t drawn[INPROC_ADDRESS_BYTES];
    static pid_t drawn_by;
    enum tutti_result result = TUTTI_OK;
    pthread_mutex_lock(&lock);
    if (drawn_by != getpid()) {
        if (getrandom(drawn, sizeof drawn, 0) == (ssize_t)sizeof drawn)
            drawn_by = getpid();
        else
            result = TTI_FAIL_ERRNO("getrandom for the number of this process");
    }
    memcpy(number, drawn, sizeof drawn);
    pthread_mutex_unlock(&lock);
    return result;
}

static enum tutti_result inproc_address(void *transport, void *address, size_t *bytes)
{
    (void)transport;
    TTI_TRY(inproc_process_number(address));
    *bytes = INPROC_ADDRESS_BYTES;
    return TUTTI_OK;
}

static bool inproc_reaches(void *transport, const struct tutti_peer *peer)
{
    uint8_t own[INPROC_ADDRESS_BYTES];
    (void)transport;
    return peer->address_bytes == sizeof own && inproc_process_number(own) == TUTTI_OK &&
           memcmp(own, peer->address, sizeof own) == 0;
}

static enum tutti_result inproc_connect(void *transport, const struct tutti_peer *peer, int lanes,
                                        void **endpoint)
{
    struct inproc_transport *self = transport;
    if (lanes < 1 || lanes > TUTTI_MAX_LANES)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%d lanes; 1 to %d are possible", lanes,
                        TUTTI_MAX_LANES);
    struct inproc_endpoint *made =
        tti_calloc(1, sizeof *made + (size_t)lanes * sizeof made->lane[0]);
    if (!made)
        return TUTTI_ERR_MEMORY;
    enum tutti_result result =
        tti_inproc_connection_join(self->env, peer->rank, lanes, self->bell, &made->connection);
    if (result != TUTTI_OK) {
        free(made);
        return result;
    }
    made->transport = self;
    made->peer = peer;
    made->side = self->env->rank > peer->rank;
    made->lanes = lanes;
    for (int i = 0; i < lanes; i++) {
        made->lane[i].out = &made->connection->rings[made->side * lanes + i];
        made->lane[i].in = &made->connection->rings[!made->side * lanes + i];
    }
    made->next = self->endpoints;
    self->endpoints = made;
    *endpoint = made;
    return TUTTI_OK;
}

static enum inproc_left inproc_peer_left(const struct inproc_endpoint *self)
{
    return (enum inproc_left)tti_load_acquire(&self->connection->left[!self->side]);
}

static enum tutti_result inproc_fail_left(const struct inproc_endpoint *self)
{
    return TTI_FAIL(TUTTI_ERR_PEER, "rank %d (%s) closed its communicator", self->peer->rank,
                    self->peer->name);
}

static enum tutti_result inproc_advance(void *endpoint)
{
    struct inproc_endpoint *self = endpoint;
    /* A peer that joined and has left again may have sent something first. */
    if (tti_load_acquire(&self->connection->joined[!self->side]))
        return TUTTI_OK;
    return inproc_peer_left(self) == INPROC_THERE ? TUTTI_IN_PROGRESS : inproc_fail_left(self);
}

/* ---- hot ------------------------------------------------------------------------------------ */

/* Take note of what the receiver has handed back, in the order of sending. */
static void inproc_collect(struct inproc_lane *lane)
{
    lane->freed = tti_load_acquire(&lane->out->consumed);
    for (; lane->counted < lane->sent; lane->counted++) {
        const struct inproc_fragment *slot = &lane->out->slots[lane->counted % INPROC_SLOTS];
        if (lane->counted >= lane->freed && slot->data != slot->copy)
            return;
        lane->released += slot->bytes;
    }
}

static enum tutti_result inproc_send(void *endpoint, int number, uint64_t tag, const void *data,
                                     size_t bytes, size_t *accepted)
{
    struct inproc_endpoint *self = endpoint;
    struct inproc_lane *lane = &self->lane[number];
    if (inproc_peer_left(self) != INPROC_THERE)
        return inproc_fail_left(self);
    if (lane->sent - lane->freed == INPROC_SLOTS)
        inproc_collect(lane);
    if (lane->sent - lane->freed == INPROC_SLOTS) {
        *accepted = 0;
        return TUTTI_OK;
    }
    struct inproc_fragment *slot = &lane->out->slots[lane->sent % INPROC_SLOTS];
    slot->tag = tag;
    slot->bytes = bytes;
    slot->data = data;
    if (bytes <= INPROC_COPY) {
        memcpy(slot->copy, data, bytes);
        slot->data = slot->copy;
    }
    tti_store_release(&lane->out->sent, ++lane->sent);
    tti_inproc_bell_ring(self->connection->bell[!self->side]);
    *accepted = bytes;
    return TUTTI_OK;
}

static uint64_t inproc_released(void *endpoint, int number)
{
    struct inproc_endpoint *self = endpoint;
    inproc_collect(&self->lane[number]);
    return self->lane[number].released;
}

/* The oldest unread fragment; *slot is NULL when there is none. */
static enum tutti_result inproc_head(struct inproc_endpoint *self, struct inproc_lane *lane,
                                     const struct inproc_fragment **slot)
{
    *slot = NULL;
    if (tti_load_acquire(&lane->in->sent) == lane->consumed) {
        /* It may have sent before it left: look again after having seen it leave. */
        if (inproc_peer_left(self) == INPROC_THERE)
            return TUTTI_OK;
        if (tti_load_acquire(&lane->in->sent) == lane->consumed)
            return inproc_fail_left(self);
    }
    const struct inproc_fragment *head = &lane->in->slots[lane->consumed % INPROC_SLOTS];
    if (head->data != head->copy && inproc_peer_left(self) == INPROC_CUT)
        return inproc_fail_left(self);
    if (lane->known == lane->consumed)
        lane->known++;
    *slot = head;
    return TUTTI_OK;
}

static enum tutti_result inproc_peek(void *endpoint, int number, uint64_t *tag, const void **data,
                                     size_t *bytes)
{
    struct inproc_endpoint *self = endpoint;
    struct inproc_lane *lane = &self->lane[number];
    const struct inproc_fragment *slot = NULL;
    TTI_TRY(inproc_head(self, lane, &slot));
    *bytes = 0;
    if (slot) {
        *tag = slot->tag;
        *data = (const char *)slot->data + lane->offset;
        *bytes = slot->bytes - lane->offset;
    }
    return TUTTI_OK;
}

/* Was the sender's memory still lent when the last byte was read? */
static enum tutti_result inproc_intact(void *endpoint, int number)
{
    const struct inproc_endpoint *self = endpoint;
    const struct inproc_lane *lane = &self->lane[number];
    const struct inproc_fragment *slot = &lane->in->slots[lane->consumed % INPROC_SLOTS];
    if (slot->data != slot->copy &&
        tti_load_after_reads(&self->connection->left[!self->side]) == INPROC_CUT)
        return inproc_fail_left(self);
    return TUTTI_OK;
}

static void inproc_consume(void *endpoint, int number, size_t bytes)
{
    struct inproc_endpoint *self = endpoint;
    struct inproc_lane *lane = &self->lane[number];
    const struct inproc_fragment *slot = &lane->in->slots[lane->consumed % INPROC_SLOTS];
    lane->offset += bytes;
    if (lane->offset < slot->bytes)
        return;
    lane->offset = 0;
    tti_store_release(&lane->in->consumed, ++lane->consumed);
    tti_inproc_bell_ring(self->connection->bell[!self->side]);
}

static enum tutti_result inproc_receive(void *endpoint, int number, uint64_t *tag, void *into,
                                        size_t bytes, size_t *taken)
{
    const void *data = NULL;
    size_t ready = 0;
    TTI_TRY(inproc_peek(endpoint, number, tag, &data, &ready));
    if (ready > bytes)
        ready = bytes;
    if (ready) {
        memcpy(into, data, ready);
        TTI_TRY(inproc_intact(endpoint, number));
        inproc_consume(endpoint, number, ready);
    }
    *taken = ready;
    return TUTTI_OK;
}

/* ---- memory that the peer uses itself ------------------------------------------------------- */

/* Threads share everything, so any memory will do, and the pointer is the place. */
static bool inproc_offer(void *endpoint, const void *data, size_t bytes, struct tutti_place *place)
{
    (void)endpoint;
    (void)bytes;
    *place = (struct tutti_place){0, (uint64_t)(uintptr_t)data};
    return true;
}

static void inproc_unmap(void *endpoint)
{
    struct inproc_endpoint *self = endpoint;
    tti_store_release(&self->connection->hold[self->side].held, 0);
}

static enum tutti_result inproc_map(void *endpoint, const struct tutti_place *place, size_t bytes,
                                    void **address)
{
    struct inproc_endpoint *self = endpoint;
    (void)bytes;
    /* It says so and then looks; inproc_withdraw likewise: one of the two sees the other. */
    atomic_store_explicit(&self->connection->hold[self->side].held, 1, memory_order_relaxed);
    tti_full_fence();
    if (tti_load_acquire(&self->connection->withdrawn[!self->side]) ||
        inproc_peer_left(self) != INPROC_THERE) {
        inproc_unmap(self);
        return inproc_fail_left(self);
    }
    *address = (void *)(uintptr_t)place->offset;
    return TUTTI_OK;
}

/* A thread cannot be stopped alone: it lets go when it is through with what it has begun. */
static enum tutti_result inproc_withdraw(void *endpoint, int wait_ms)
{
    enum { NAP_MS = 1 };
    struct inproc_endpoint *self = endpoint;
    uint64_t deadline = tti_deadline_in(wait_ms / 1e3);
    tti_store_release(&self->connection->withdrawn[self->side], 1);
    tti_full_fence();
    while (tti_load_acquire(&self->connection->hold[!self->side].held)) {
        if (tti_deadline_passed(deadline))
            return TTI_FAIL(TUTTI_ERR_TIMEOUT,
                            "rank %d (%s) has not let go of this rank's buffers within %d ms and "
                            "may still write to them",
                            self->peer->rank, self->peer->name, wait_ms);
        (void)poll(NULL, 0, NAP_MS);
    }
    return TUTTI_OK;
}

/* ---- waiting -------------------------------------------------------------------------------- */

static enum tutti_result inproc_progress(void *transport)
{
    (void)transport; /* everything moves in send and consume */
    return TUTTI_OK;
}

static int inproc_fd(void *transport)
{
    return ((struct inproc_transport *)transport)->bell->fd;
}

/* Has anything changed that the caller has not been told of? Counts as told from here on. */
static bool inproc_news(struct inproc_endpoint *self)
{
    uint64_t state = tti_load_acquire(&self->connection->joined[!self->side]) +
                     2 * (uint64_t)inproc_peer_left(self);
    bool news = state != self->known_state;
    self->known_state = state;
    for (int i = 0; i < self->lanes; i++) {
        struct inproc_lane *lane = &self->lane[i];
        uint64_t sent = tti_load_acquire(&lane->in->sent);
        inproc_collect(lane);
        news = news || lane->freed != lane->known_freed || sent > lane->known;
        lane->known_freed = lane->freed;
        if (sent > lane->known)
            lane->known = sent;
    }
    return news;
}

/* A flag that is gone is one ring, which comes late where its peer was held up in between: until it
 * is read the bell would wake at once whoever sleeps. */
static void inproc_disarm(void *transport)
{
    struct inproc_transport *self = transport;
    uint64_t rings = 0;
    if (self->armed)
        self->owed += atomic_exchange(&self->bell->sleeping, 0) == 0;
    self->armed = false;
    if (self->owed > 0 && read(self->bell->fd, &rings, sizeof rings) == sizeof rings)
        self->owed -= rings < self->owed ? rings : self->owed;
}

static bool inproc_arm(void *transport)
{
    struct inproc_transport *self = transport;
    bool news = false;
    atomic_store_explicit(&self->bell->sleeping, 1, memory_order_relaxed);
    self->armed = true;
    tti_full_fence(); /* pairs with the one in tti_inproc_bell_ring */
    for (struct inproc_endpoint *e = self->endpoints; e; e = e->next)
        news = inproc_news(e) || news;
    if (news)
        inproc_disarm(self);
    return !news;
}

/* ---- the end -------------------------------------------------------------------------------- */

/* Is some of our memory still being read by the peer? */
static bool inproc_owed(struct inproc_endpoint *self)
{
    for (int i = 0; i < self->lanes; i++) {
        struct inproc_lane *lane = &self->lane[i];
        inproc_collect(lane);
        for (uint64_t k = lane->freed; k < lane->sent; k++) {
            const struct inproc_fragment *slot = &lane->out->slots[k % INPROC_SLOTS];
            if (slot->data != slot->copy)
                return true;
        }
    }
    return false;
}

static enum tutti_result inproc_abandoned(void *endpoint)
{
    struct inproc_endpoint *self = endpoint;
    /* In this order: it may have taken everything before it left. */
    return inproc_peer_left(self) != INPROC_THERE && inproc_owed(self) ? inproc_fail_left(self)
                                                                       : TUTTI_OK;
}

static void inproc_leave(struct inproc_endpoint *self, uint64_t deadline)
{
    struct inproc_transport *transport = self->transport;
    bool owed = inproc_owed(self);
    while (owed && inproc_peer_left(self) == INPROC_THERE && !tti_deadline_passed(deadline)) {
        if (inproc_arm(transport)) {
            struct pollfd wake = {.fd = transport->bell->fd, .events = POLLIN};
            poll(&wake, 1, tti_deadline_ms(deadline, 100));
        }
        inproc_disarm(transport);
        owed = inproc_owed(self);
    }
    struct inproc_endpoint **at = &transport->endpoints;
    while (*at != self)
        at = &(*at)->next;
    *at = self->next;
    tti_inproc_connection_leave(self->connection, self->side, owed ? INPROC_CUT : INPROC_LEFT);
    free(self);
}

static void inproc_disconnect(void *endpoint)
{
    inproc_leave(endpoint, tti_deadline_in(inproc_flush_s));
}

static void inproc_close(void *transport)
{
    struct inproc_transport *self = transport;
    uint64_t deadline = tti_deadline_in(inproc_flush_s);
    while (self->endpoints)
        inproc_leave(self->endpoints, deadline);
    tti_inproc_bell_drop(self->bell);
    free(self);
}

/* Of a connection, each side counts its half. */
static void inproc_memory(void *transport, struct tutti_memory *memory)
{
    struct inproc_transport *self = transport;
    memory->host += tti_heap_bytes(self) + tti_heap_bytes(self->bell);
    memory->descriptors++;
    for (const struct inproc_endpoint *e = self->endpoints; e; e = e->next)
        memory->host += tti_heap_bytes(e) +
                        (tti_heap_bytes(e->connection) + tti_heap_bytes(e->connection->rings)) / 2;
}

extern const struct tutti_transport_ops tti_inproc_ops;
const struct tutti_transport_ops tti_inproc_ops = {
    .abi = TUTTI_TRANSPORT_ABI,
    .size = sizeof(struct tutti_transport_ops),
    .name = "inproc",
    .rank = 10,
    .probe = inproc_probe,
    .open = inproc_open,
    .close = inproc_close,
    .address = inproc_address,
    .reaches = inproc_reaches,
    .connect = inproc_connect,
    .advance = inproc_advance,
    .disconnect = inproc_disconnect,
    .send = inproc_send,
    .released = inproc_released,
    .peek = inproc_peek,
    .consume = inproc_consume,
    .receive = inproc_receive,
    .progress = inproc_progress,
    .fd = inproc_fd,
    .arm = inproc_arm,
    .disarm = inproc_disarm,
    .memory = inproc_memory,
    .offer = inproc_offer,
    .map = inproc_map,
    .unmap = inproc_unmap,
    .withdraw = inproc_withdraw,
    .intact = inproc_intact,
    .abandoned = inproc_abandoned,
};
