/* shm: ranks that are processes of one host (or threads; it does not care).
 *
 * Two ranks share a memfd (layout.h) that was passed over a local socket (connect.c). In the steady
 * state nobody makes a system call: lines are polled, written and acknowledged. A rank that sleeps
 * says so in each segment, fences, and looks once more; who publishes something fences and looks
 * whether the other sleeps, and only then writes its eventfd. Where the kernel has membarrier, the
 * one that goes to sleep fences for both, unless it does that all the time (sleep.c), and
 * publishing is free of it: a fence waits until the line has come from the other core.
 *
 * The socket stays open: its end is the death of the peer, seen at most a millisecond late while
 * spinning and at once while sleeping. Read shm.h next. */
#include "transport/shm/shm.h"

#include "base/clock.h"
#include "base/config.h"
#include "base/memory.h"
#include "device/cpu_caches.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum {
    SHM_EVENTS = 32,
    SHM_CALLS_PER_CLOCK = 16, /* progress looks at the clock every so many calls */
    SHM_LOOK_EVERY_NS = 1000000,
};
static const double shm_flush_s = 1.0;

/* ---- open ----------------------------------------------------------------------------------- */

static enum tutti_result shm_probe(const struct tutti_services *services)
{
    (void)services;
    int fd = memfd_create("tutti-probe", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 && (errno == ENOSYS || errno == EPERM || errno == EACCES))
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "shm needs memfd_create, which this machine does not allow");
    if (fd >= 0)
        close(fd);
    int local = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (local < 0 && errno != EMFILE && errno != ENFILE)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "shm needs local sockets (AF_UNIX), which this machine does not allow");
    if (local >= 0)
        close(local);
    return TUTTI_OK;
}

/* Fast short REP MOVSB: what is moved so is written as whole lines, without being fetched first. */
static bool shm_has_strings(void)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & 1U << 4);
#else
    return false; /* no such instruction, or not one that a sanitizer sees */
#endif
}

/* Few where there are but two ranks, who are taken to have a core each, but not over a mesh, where
 * nobody has measured it. Of more several may share a core: who goes far ahead then makes fewer
 * wait. (Two that share one broadcast by the stage from 4 KiB on.) */
static size_t shm_ahead_pieces(int ranks)
{
    return ranks == 2 && !tti_cpu_meshed() && sysconf(_SC_NPROCESSORS_ONLN) > 1 ? SHM_FOLLOWED
                                                                                : SHM_LINES;
}

/* Two ranks with a core each in a cluster where what a peer has read is quickly written again. */
static bool shm_quick_pair(int ranks)
{
    return ranks == 2 && tti_cpu_kind() == TTI_CPU_CLUSTERS && sysconf(_SC_NPROCESSORS_ONLN) > 1;
}

/* A rank's wide rings together are two second-level caches (of a lane and direction): then the
 * caches of both ends have let go of a line before it is written again. (Four, where that is the
 * usual way: with two some are there still.) Those of ranks that share cores each, up to a limit:
 * who is not answered sends to one or two. No more than the narrow ring where that has been given
 * another size. */
static size_t shm_wide_ring(size_t narrow, int ranks, bool crowded)
{
    if (tti_config_text("TUTTI_SHM_SLOTS") || tti_config_text("TUTTI_SHM_SLOT_BYTES"))
        return narrow;
    const size_t peers = (size_t)(ranks > 1 ? ranks - 1 : 1);
    const size_t all = (shm_quick_pair(ranks) ? 4 : 2) * tti_cpu_second_cache();
    const size_t share = SHM_WIDE_MOST / peers;
    const size_t ring =
        crowded ? (all < share ? all : share) : (all < SHM_WIDE_MOST ? all : SHM_WIDE_MOST) / peers;
    return ring > narrow ? ring / SHM_PAGE * SHM_PAGE : narrow;
}

/* TUTTI_SHM_PIECES, and what there is to choose if it says nothing. Ranks that share cores only try
 * with few enough ranks for wide rings. */
static enum tutti_result shm_read_ways(struct shm_settings *settings, int ranks)
{
    static const char *const names[] = {"narrow", "around", "wide", "auto"};
    const int automatic = SHM_WAYS;
    const bool crowded = ranks > sysconf(_SC_NPROCESSORS_ONLN);
    int way = automatic;
    TTI_TRY(tti_config_name("TUTTI_SHM_PIECES", names, SHM_WAYS + 1, automatic, &way));
    settings->piece_ring = settings->piece_narrow;
    size_t wide = 0;
    TTI_TRY(tti_config_bytes("TUTTI_SHM_WIDE",
                             shm_wide_ring(settings->piece_narrow, ranks, crowded), &wide));
    if (wide % SHM_PAGE || wide > SHM_RING_MOST)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "TUTTI_SHM_WIDE is %zu; expected a multiple of %d up to %d", wide, SHM_PAGE,
                        SHM_RING_MOST);
    const bool worth = !crowded || wide >= 2 * settings->piece_narrow;
    const bool tried = way == automatic && !tti_cpu_meshed() && worth;
    settings->shares_cores = tried && crowded;
    settings->slow_lines = settings->shares_cores && tti_cpu_takes_back_slowly(tti_cpu_kind());
    if ((way == SHM_WIDE || tried) && wide > settings->piece_narrow)
        settings->piece_ring = wide;
    settings->way = way == automatic ? SHM_NARROW : (enum shm_way)way;
    /* the wide way is the last one, and none where it is the narrow one */
    const bool all = settings->piece_ring > settings->piece_narrow;
    const bool none = !tried || (crowded && !settings->slow_lines);
    settings->ways = none ? 1 : all ? SHM_WAYS : SHM_WAYS - 1;
    settings->wide_first = tried && all && shm_quick_pair(ranks);
    return TUTTI_OK;
}

/* Where small fragments lie, as it was measured between two ranks in clusters, with those before
 * Zen 5 apart: there lines that the peer has read come back quickly if they are a quarter of the
 * first-level cache, 16 KiB too slowly already, and asking for pieces ahead is of no use. A KiB
 * beside each line pays on all but Zen 4. */
static void shm_read_near(struct shm_settings *settings, int ranks)
{
    const bool cluster_pair = ranks == 2 && !tti_cpu_meshed();
    const enum tti_cpu_kind kind = tti_cpu_kind();
    const bool earlier = cluster_pair && tti_cpu_takes_back_slowly(kind);
    const bool long_tails = cluster_pair && kind != TTI_CPU_EARLIER_CLUSTERS;
    const bool quick = shm_quick_pair(ranks);
    settings->ahead_most = earlier || quick ? 0 : tti_cpu_meshed() ? 4096 : 2048;
    settings->tail_most = long_tails ? SHM_TAIL_BYTES : SHM_TAIL_LEAST;
    settings->tail_in_row = quick ? SHM_TAIL_LEAST : SHM_TAIL_BYTES;
    settings->near_bytes = earlier ? SHM_NEAR_FIRST : SIZE_MAX;
    settings->pieces_shift = cluster_pair ? SHM_PIECES_SHIFT : 0;
    settings->nearest_there = cluster_pair;
    settings->ahead_pieces = shm_ahead_pieces(ranks);
}

static enum tutti_result shm_read_settings(struct shm_settings *settings, int ranks)
{
    long slots = 0, memory = 0;
    size_t bytes = 0;
    TTI_TRY(tti_config_int("TUTTI_SHM_SLOTS", 2, 1024, 2, &slots));
    TTI_TRY(tti_config_bytes("TUTTI_SHM_SLOT_BYTES", 256 << 10, &bytes));
    TTI_TRY(tti_config_int("TUTTI_SHM_CMA", SHM_MEMORY_NONE, SHM_MEMORY_LENT,
                           tti_cpu_meshed() ? SHM_MEMORY_LENT : SHM_MEMORY_NONE, &memory));
    TTI_TRY(tti_config_bytes("TUTTI_SHM_REGION_FROM", 32 << 10, &settings->region_from));
    TTI_TRY(tti_config_bytes("TUTTI_SHM_CMA_FROM", 32 << 10, &settings->memory_from));
    TTI_TRY(tti_config_bytes("TUTTI_SHM_SHARE_FROM", 64 << 10, &settings->share_from));
    if (bytes < SHM_PAGE || bytes > SHM_REFERENCE_MOST || bytes % SHM_PAGE)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "TUTTI_SHM_SLOT_BYTES is %zu; expected a multiple of %d up to %d", bytes,
                        SHM_PAGE, SHM_REFERENCE_MOST);
    settings->share_bytes_a_ns = 80; /* a third of the time in which they are read */
    shm_read_near(settings, ranks);
    settings->piece_bytes = bytes;
    settings->piece_narrow = bytes * (size_t)slots;
    TTI_TRY(shm_read_ways(settings, ranks));
    settings->memory = (enum shm_memory)memory;
    settings->strings = shm_has_strings();
    return TUTTI_OK;
}

bool tti_shm_watch(struct shm_transport *self, int fd, struct shm_source *source)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};
    return epoll_ctl(self->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

void tti_shm_hang_up(const struct shm_transport *self, int socket)
{
    (void)epoll_ctl(self->epoll, EPOLL_CTL_DEL, socket, NULL); /* or it was not watched yet */
    close(socket);
}

static void shm_close(void *transport);

int tti_shm_ranks(const struct tutti_transport_env *env)
{
    const bool told =
        env->size >= offsetof(struct tutti_transport_env, host_ranks) + sizeof env->host_ranks;
    return told && env->host_ranks > 0 ? env->host_ranks : env->nranks;
}

static enum tutti_result shm_set_up(struct shm_transport *self)
{
    TTI_TRY(shm_read_settings(&self->settings, tti_shm_ranks(self->env)));
    tti_shm_fences_begin(self);
    self->epoll = epoll_create1(EPOLL_CLOEXEC);
    self->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (self->epoll < 0 || self->wake < 0)
        return TTI_FAIL_ERRNO("descriptors of an shm transport (too many open files: raise "
                              "`ulimit -n`)");
    self->wake_source.kind = SHM_SOURCE_WAKE;
    if (!tti_shm_watch(self, self->wake, &self->wake_source))
        return TTI_FAIL_ERRNO("epoll_ctl for the wake-ups of an shm transport");
    TTI_TRY(tti_shm_listen(self));
    return tti_shm_regions_join(self);
}

static enum tutti_result shm_start(const struct tutti_transport_env *env, void **transport)
{
    struct shm_transport *made = tti_calloc(1, sizeof *made);
    if (!made)
        return TUTTI_ERR_MEMORY;
    made->env = env;
    made->epoll = made->wake = made->listener = -1;
    enum tutti_result result = shm_set_up(made);
    if (result != TUTTI_OK) {
        shm_close(made);
        return result;
    }
    *transport = made;
    return TUTTI_OK;
}

/* ---- sockets -------------------------------------------------------------------------------- */

void tti_shm_look(struct shm_transport *self)
{
    struct epoll_event events[SHM_EVENTS];
    self->look = false;
    int count = epoll_wait(self->epoll, events, SHM_EVENTS, 0);
    /* A guest may be dropped by an event before its own: those are taken last and found by name. */
    for (int i = 0; i < count; i++) {
        struct shm_source *source = events[i].data.ptr;
        if (source->kind == SHM_SOURCE_ENDPOINT)
            tti_shm_endpoint_ready((struct shm_endpoint *)source);
    }
    for (int i = 0; i < count; i++) {
        struct shm_guest *guest = self->guests;
        while (guest && (void *)guest != events[i].data.ptr)
            guest = guest->next;
        if (guest)
            tti_shm_guest_ready(self, guest);
    }
    for (int i = 0; i < count; i++)
        if (events[i].data.ptr == &self->listener_source)
            tti_shm_accept_all(self);
    self->look = self->look || count == SHM_EVENTS; /* there may be more */
}

static enum tutti_result shm_progress(void *transport)
{
    struct shm_transport *self = transport;
    tti_shm_regions_tell(self);
    if (!self->look) {
        if (++self->calls % SHM_CALLS_PER_CLOCK)
            return TUTTI_OK;
        uint64_t now = tti_now_ns();
        if (now - self->looked_ns < SHM_LOOK_EVERY_NS)
            return TUTTI_OK;
        self->looked_ns = now;
        tti_shm_stays_awake(self);
    }
    tti_shm_look(self);
    return TUTTI_OK; /* what has befallen an endpoint is said by its own operations */
}

/* ---- errors --------------------------------------------------------------------------------- */

enum tutti_result tti_shm_break(struct shm_endpoint *self, enum tutti_result code)
{
    tti_error_save(&self->error, code);
    self->state = SHM_FAILED;
    return code;
}

enum tutti_result tti_shm_fail_gone(struct shm_endpoint *self)
{
    const struct tutti_peer *peer = self->peer;
    if (tti_load_acquire(&self->theirs->left) != SHM_THERE)
        return TTI_FAIL(TUTTI_ERR_PEER, "rank %d (%s) closed its communicator", peer->rank,
                        peer->name);
    return TTI_FAIL(TUTTI_ERR_PEER, "rank %d (%s) died", peer->rank, peer->name);
}

/* ---- the end -------------------------------------------------------------------------------- */

/* Is some of our own memory still to be read by the peer, so that it is to be waited for? A peer
 * whose counts make no sense, or that was given up, is owed nothing. *lent: it may read there. */
static bool shm_owed(struct shm_endpoint *self, bool *lent)
{
    bool owed = self->state == SHM_READY;
    *lent = false;
    for (int i = 0; i < self->lanes; i++) {
        struct shm_out *out = &self->lane[i].out;
        const bool counts = tti_shm_collect(out);
        owed = owed && counts;
        *lent = *lent || !counts || out->counted < out->sent;
    }
    return owed && *lent;
}

/* Said before waiting for what is owed: whoever leaves reads no more, so that two who leave at once
 * (after a failure, say) do not wait for each other. */
static void shm_say(struct shm_endpoint *self, enum shm_left left)
{
    if (!self->ours)
        return;
    tti_store_release(&self->ours->left, left);
    if (self->bell >= 0)
        tti_shm_ring(self);
}

static void shm_leave(struct shm_endpoint *self, uint64_t deadline)
{
    struct shm_transport *transport = self->transport;
    bool lent = false, owed = shm_owed(self, &lent);
    shm_say(self, SHM_LEFT);
    while (owed && !self->ended && tti_load_acquire(&self->theirs->left) == SHM_THERE &&
           !tti_deadline_passed(deadline)) {
        if (tti_shm_arm(transport)) {
            struct pollfd wake = {.fd = transport->epoll, .events = POLLIN};
            poll(&wake, 1, tti_deadline_ms(deadline, 100));
        }
        tti_shm_disarm(transport);
        owed = shm_owed(self, &lent);
    }
    struct shm_endpoint **at = &transport->endpoints;
    while (*at != self)
        at = &(*at)->next;
    *at = self->next;
    if (lent) {
        shm_say(self, SHM_CUT);
        tti_full_fence(); /* before what was lent is written again: see tti_shm_intact */
    }
    tti_shm_endpoint_free(self);
}

static void shm_disconnect(void *endpoint)
{
    shm_leave(endpoint, tti_deadline_in(shm_flush_s));
}

static void shm_close(void *transport)
{
    struct shm_transport *self = transport;
    uint64_t deadline = tti_deadline_in(shm_flush_s);
    tti_shm_regions_leave(self);
    for (struct shm_endpoint *e = self->endpoints; e; e = e->next)
        shm_say(e, SHM_LEFT);
    while (self->endpoints)
        shm_leave(self->endpoints, deadline);
    while (self->guests)
        tti_shm_guest_drop(self, self->guests);
    const int fds[] = {self->listener, self->wake, self->epoll};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(self);
}

static void shm_endpoint_memory(const struct shm_endpoint *e, struct tutti_memory *memory)
{
    memory->host += tti_heap_bytes(e) + tti_heap_bytes(e->lane) + tti_heap_bytes(e->passed);
    for (int i = 0; e->lane && i < e->lanes; i++)
        memory->host += tti_heap_bytes(e->lane[i].in.stage) + tti_heap_bytes(e->lane[i].out.lent) +
                        tti_heap_bytes(e->lane[i].out.bounce);
    for (const struct shm_mapping *m = e->mappings; m; m = m->next) {
        memory->host += tti_heap_bytes(m);
        memory->mapped += m->bytes;
    }
    if (e->segment) {
        memory->shared += e->segment_bytes;
        memory->shared_used += tti_pages_used(e->segment, e->segment_bytes);
    }
    memory->descriptors += (e->socket >= 0) + (e->bell >= 0);
}

static void shm_memory(void *transport, struct tutti_memory *memory)
{
    struct shm_transport *self = transport;
    pthread_mutex_lock(&self->gone_lock); /* any thread may release memory */
    memory->host += tti_heap_bytes(self) + self->gone_capacity * sizeof *self->gone;
    pthread_mutex_unlock(&self->gone_lock);
    memory->descriptors += (self->listener >= 0) + (self->wake >= 0) + (self->epoll >= 0);
    for (const struct shm_endpoint *e = self->endpoints; e; e = e->next)
        shm_endpoint_memory(e, memory);
    for (const struct shm_guest *g = self->guests; g; g = g->next) {
        memory->host += tti_heap_bytes(g);
        memory->descriptors += (g->socket >= 0) + (g->fds[0] >= 0) + (g->fds[1] >= 0);
    }
}

extern const struct tutti_transport_ops tti_shm_ops;
const struct tutti_transport_ops tti_shm_ops = {
    .abi = TUTTI_TRANSPORT_ABI,
    .size = sizeof(struct tutti_transport_ops),
    .name = "shm",
    .rank = 20,
    .probe = shm_probe,
    .open = shm_start,
    .close = shm_close,
    .address = tti_shm_address,
    .reaches = tti_shm_reaches,
    .connect = tti_shm_connect,
    .advance = tti_shm_advance,
    .disconnect = shm_disconnect,
    .send = tti_shm_send,
    .released = tti_shm_released,
    .reserve = tti_shm_reserve,
    .commit = tti_shm_commit,
    .peek = tti_shm_peek,
    .consume = tti_shm_consume,
    .receive = tti_shm_receive,
    .progress = shm_progress,
    .fd = tti_shm_fd,
    .arm = tti_shm_arm,
    .disarm = tti_shm_disarm,
    .offer = tti_shm_offer,
    .map = tti_shm_map,
    .unmap = tti_shm_unmap,
    .withdraw = tti_shm_withdraw,
    .memory = shm_memory,
    .await = tti_shm_await,
    .copies = tti_shm_copies,
    .lend = tti_shm_lend,
    .reads = tti_shm_reads,
    .intact = tti_shm_intact,
    .abandoned = tti_shm_abandoned,
};
