/* How two processes of a host come to share a segment.
 *
 * The higher rank connects to the lower one's door (door.c) and says hello with a segment of its
 * making and its eventfd; the lower one, once its own user has asked for the connection, answers
 * with its eventfd. Both prove the secret of the job, after the kernel has said that the other
 * process is the same user's. Whether process_vm_readv works is tried out by each side on a random
 * number of the other. */
#include "transport/shm/shm.h"

#include "base/children.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/quiet.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- the segment ---------------------------------------------------------------------------- */

static enum tutti_result connect_make_segment(struct shm_endpoint *self, int *fd)
{
    size_t bytes = shm_segment_bytes(self->lanes, self->piece_ring);
    int made = memfd_create("tutti-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made < 0)
        return TTI_FAIL_ERRNO("memfd_create for a segment with rank %d (too many open files: raise "
                              "`ulimit -n`)",
                              self->peer->rank);
    if (tti_quiet_ftruncate(made, (off_t)bytes) != 0 ||
        fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        int error = errno;
        close(made);
        errno = error;
        return TTI_FAIL_ERRNO("making a segment of %zu bytes with rank %d (less: "
                              "TUTTI_SHM_WIDE, TUTTI_SHM_SLOTS, TUTTI_SHM_SLOT_BYTES, "
                              "TUTTI_LANES; `ulimit -f` counts, too)",
                              bytes, self->peer->rank);
    }
    *fd = made;
    return TUTTI_OK;
}

/* Callers' buffers begin at a page, mostly, or 16 bytes behind one. A copy between places with the
 * same offset in their pages takes longer, probably because a load waits for an earlier store to an
 * address with the same low 12 bits. So between two ranks in clusters (where it has been measured)
 * pieces begin in the middle of a page: 32 KiB takes 0.59 us and not 0.63. */
static void connect_lay_out(struct shm_endpoint *self)
{
    unsigned char *base = self->segment;
    unsigned char *pieces = base + self->pieces_shift;
    struct shm_header *header = self->segment;
    int me = self->side, peer = !me, lanes = self->lanes;
    self->ours = &header->side[me];
    self->theirs = &header->side[peer];
    self->our_hold = &header->hold[me];
    self->their_hold = &header->hold[peer];
    for (int i = 0; i < lanes; i++) {
        struct shm_out *out = &self->lane[i].out;
        struct shm_in *in = &self->lane[i].in;
        out->shared = i > 0;
        out->lines = (struct shm_line *)(base + shm_lines_offset(lanes, me, i));
        const size_t in_row = self->transport->settings.tail_in_row;
        out->tail_most = in->tail_most = self->tail_most;
        out->tail_in_row = in_row < self->tail_most ? in_row : self->tail_most;
        out->tails = base + shm_tails_offset(lanes, me, i);
        out->pieces = pieces + shm_pieces_offset(lanes, self->piece_ring, me, i);
        out->acked = &header->ack[peer * TUTTI_MAX_LANES + i].consumed;
        out->took = header->took[peer * TUTTI_MAX_LANES + i].size;
        out->share = &header->ack[peer * TUTTI_MAX_LANES + i].share;
        in->lines = (const struct shm_line *)(base + shm_lines_offset(lanes, peer, i));
        in->tails = base + shm_tails_offset(lanes, peer, i);
        in->pieces = pieces + shm_pieces_offset(lanes, self->piece_ring, peer, i);
        in->ack = &header->ack[me * TUTTI_MAX_LANES + i].consumed;
        in->took = header->took[me * TUTTI_MAX_LANES + i].size;
        in->share = &header->ack[me * TUTTI_MAX_LANES + i].share;
    }
}

/* Have the pages of the first lane there that any message needs (68 or 100 KiB a pair; of two ranks
 * in clusters also those of their nearest pieces, 136 KiB), so that the first lap through them does
 * not stumble. Without the kernel's help they come one by one, as used; and among many ranks, where
 * most pairs exchange little and the pages of all would be what a rank's memory mostly is. */
static void connect_populate(struct shm_endpoint *self)
{
#ifdef MADV_POPULATE_WRITE
    enum { FEW_RANKS = 16 };
    unsigned char *base = self->segment;
    const size_t lines = SHM_LINES * sizeof(struct shm_line);
    const size_t tails = SHM_TAILS * self->tail_most;
    const size_t narrow = self->transport->settings.piece_narrow;
    const size_t nearest = narrow < SHM_NEAREST_RING ? narrow : SHM_NEAREST_RING;
    const size_t pieces = nearest + self->pieces_shift; /* from a page on */
    if (tti_shm_ranks(self->transport->env) > FEW_RANKS)
        return;
    (void)madvise(base, SHM_PAGE, MADV_POPULATE_WRITE);
    for (int side = 0; side < 2; side++) {
        (void)madvise(base + shm_lines_offset(self->lanes, side, 0), lines, MADV_POPULATE_WRITE);
        (void)madvise(base + shm_tails_offset(self->lanes, side, 0), tails, MADV_POPULATE_WRITE);
        if (self->transport->settings.nearest_there)
            (void)madvise(base + shm_pieces_offset(self->lanes, self->piece_ring, side, 0), pieces,
                          MADV_POPULATE_WRITE);
    }
#else
    (void)self;
#endif
}

static enum tutti_result connect_map_segment(struct shm_endpoint *self, int fd)
{
    size_t bytes = shm_segment_bytes(self->lanes, self->piece_ring);
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &status) != 0 ||
        (uint64_t)status.st_size != bytes)
        return TTI_FAIL(TUTTI_ERR_PROTOCOL,
                        "rank %d (%s) passed a segment that is not sealed or not of %zu bytes",
                        self->peer->rank, self->peer->name, bytes);
    void *segment = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (segment == MAP_FAILED)
        return TTI_FAIL_ERRNO("mapping a segment of %zu bytes with rank %d", bytes,
                              self->peer->rank);
    self->segment = segment;
    self->segment_bytes = bytes;
    connect_lay_out(self);
    connect_populate(self);
    return TUTTI_OK;
}

/* Can we read the peer's memory? Says so in the segment. */
static void connect_try_memory(struct shm_endpoint *self, const struct shm_message *message)
{
    uint8_t nonce[SHM_NONCE_BYTES];
    struct iovec here = {.iov_base = nonce, .iov_len = sizeof nonce};
    struct iovec there = {.iov_base = (void *)(uintptr_t)message->nonce_address,
                          .iov_len = sizeof nonce};
    bool works = self->transport->settings.memory != SHM_MEMORY_NONE &&
                 process_vm_readv(self->pid, &here, 1, &there, 1, 0) == (ssize_t)sizeof nonce &&
                 memcmp(nonce, message->nonce, sizeof nonce) == 0;
    tti_store_release(&self->ours->reads_memory, works ? 1 : 0);
    TTI_LOG(TTI_LOG_DEBUG, "shm: rank %d %s read the memory of rank %d with process_vm_readv",
            self->transport->env->rank, works ? "can" : "cannot", self->peer->rank);
}

/* ---- hello and welcome ---------------------------------------------------------------------- */

static struct shm_message connect_message(const struct shm_endpoint *self,
                                          enum shm_message_kind kind)
{
    const struct tutti_transport_env *env = self->transport->env;
    struct shm_message message = {.kind = kind,
                                  .lanes = (uint32_t)self->lanes,
                                  .job = env->job,
                                  .from = env->rank,
                                  .to = self->peer->rank,
                                  .piece_narrow = self->transport->settings.piece_narrow,
                                  .piece_ring = self->piece_ring,
                                  .tail_most = (uint32_t)self->tail_most,
                                  .pieces_shift = (uint32_t)self->pieces_shift,
                                  .nonce_address = (uint64_t)(uintptr_t)self->nonce};
    memcpy(message.nonce, self->nonce, sizeof message.nonce);
    memcpy(message.secret, env->secret, sizeof message.secret);
    return message;
}

/* Is it an eventfd, to which a write returns at once? To a pipe that nobody reads it would end the
 * process, and to a full one wait. What is no eventfd is not seen where there is no /proc. */
static bool connect_is_bell(int fd)
{
    static const char kind[] = "anon_inode:[eventfd]";
    char path[40], name[sizeof kind] = "";
    const int flags = fcntl(fd, F_GETFL);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const ssize_t bytes = readlink(path, name, sizeof name);
    return flags >= 0 && (flags & O_NONBLOCK) &&
           (bytes < 0 || (bytes == sizeof kind - 1 && memcmp(name, kind, sizeof kind - 1) == 0));
}

static void connect_ready(struct shm_endpoint *self)
{
    self->state = SHM_READY;
    TTI_LOG(TTI_LOG_DEBUG, "shm: rank %d is connected to rank %d (%s), segment of %zu bytes",
            self->transport->env->rank, self->peer->rank, self->peer->name, self->segment_bytes);
}

/* What the peer may learn from the segment. */
static void connect_tell(struct shm_endpoint *self, const struct shm_message *message)
{
    connect_try_memory(self, message);
    tti_store_release(&self->ours->fences, self->transport->fences_for_both ? 1 : 0);
}

static enum tutti_result connect_make_socket(struct shm_endpoint *self)
{
    self->socket =
        tti_keep_from_children(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (self->socket < 0)
        return TTI_FAIL_ERRNO("socket for rank %d (too many open files: raise `ulimit -n`)",
                              self->peer->rank);
    return TUTTI_OK;
}

/* All as it was before the peer's door was open: who is let in and says nothing is shown out. */
static enum tutti_result connect_step_back(struct shm_endpoint *self)
{
    munmap(self->segment, self->segment_bytes);
    self->segment = NULL;
    self->ours = self->theirs = NULL;
    close(self->socket);
    return connect_make_socket(self);
}

static enum tutti_result connect_say_hello(struct shm_endpoint *self)
{
    int fds[SHM_MESSAGE_FDS] = {-1, self->transport->wake};
    TTI_TRY(connect_make_segment(self, &fds[0]));
    enum tutti_result result = connect_map_segment(self, fds[0]);
    struct shm_message hello = connect_message(self, SHM_HELLO);
    if (result == TUTTI_OK) {
        const enum shm_io said = tti_shm_message_send(self->socket, &hello, fds, 2);
        if (said == SHM_IO_LATER)
            result = TUTTI_IN_PROGRESS;
        else if (said != SHM_IO_DONE)
            result = TTI_FAIL(TUTTI_ERR_LINK, "saying hello to rank %d (%s) on a local socket: %s",
                              self->peer->rank, self->peer->name, strerror(errno));
    }
    close(fds[0]);
    return result;
}

/* The higher rank's part: connect, and say hello with the segment. Where many ranks of a user start
 * the kernel may have as many descriptors under way as it allows: then once more from the start. */
static enum tutti_result connect_knock(struct shm_endpoint *self)
{
    struct shm_address to;
    struct sockaddr_un address;
    memcpy(&to, self->peer->address, sizeof to);
    socklen_t bytes = tti_shm_socket_name(to.name, &address);
    if (connect(self->socket, (struct sockaddr *)&address, bytes) != 0) {
        if (errno == EAGAIN || errno == EINTR)
            return TUTTI_OK; /* its queue is full; advance tries again */
        return TTI_FAIL(TUTTI_ERR_LINK,
                        "connecting to rank %d (%s) on the local socket @%s: %s; it has left",
                        self->peer->rank, self->peer->name, to.name, strerror(errno));
    }
    if (!tti_shm_peer_credentials(self->socket, &self->pid))
        return TTI_FAIL(TUTTI_ERR_LINK, "the local socket @%s of rank %d (%s) is another user's",
                        to.name, self->peer->rank, self->peer->name);
    const enum tutti_result said = connect_say_hello(self);
    if (said == TUTTI_IN_PROGRESS)
        return connect_step_back(self);
    TTI_TRY(said);
    if (!tti_shm_watch(self->transport, self->socket, &self->source))
        return TTI_FAIL_ERRNO("epoll_ctl for the connection to rank %d", self->peer->rank);
    self->state = SHM_WAITING;
    return TUTTI_OK;
}

static enum tutti_result connect_welcomed(struct shm_endpoint *self,
                                          const struct shm_message *welcome, const int *fds,
                                          int count)
{
    if (welcome->kind != SHM_WELCOME || count != 1 || welcome->from != self->peer->rank ||
        !tti_shm_proven(self->transport, welcome) || !connect_is_bell(fds[0])) {
        for (int i = 0; i < count; i++)
            close(fds[i]);
        return TTI_FAIL(TUTTI_ERR_PROTOCOL, "the answer of rank %d (%s) is not a welcome",
                        self->peer->rank, self->peer->name);
    }
    self->bell = fds[0];
    connect_tell(self, welcome);
    connect_ready(self);
    return TUTTI_OK;
}

/* Of two processes one may be shown another processor (by an emulator) and lay out otherwise, so
 * the word of who made the segment counts. */
static enum tutti_result connect_take_layout(struct shm_endpoint *self,
                                             const struct shm_message *hello)
{
    const size_t narrow = self->transport->settings.piece_narrow;
    if ((int)hello->lanes != self->lanes || hello->piece_narrow != narrow)
        return TTI_FAIL(TUTTI_ERR_PROTOCOL,
                        "rank %d (%s) has %u lanes of %llu bytes, we have %d of %zu; set "
                        "TUTTI_LANES and TUTTI_SHM_* alike on all ranks",
                        self->peer->rank, self->peer->name, hello->lanes,
                        (unsigned long long)hello->piece_narrow, self->lanes, narrow);
    const size_t own = self->transport->settings.piece_ring, most = narrow + SHM_WIDE_MOST;
    if (hello->piece_ring < narrow || hello->piece_ring > (own > most ? own : most) ||
        hello->piece_ring % SHM_PAGE)
        return TTI_FAIL(TUTTI_ERR_PROTOCOL,
                        "rank %d (%s) passed a segment with rings of %llu bytes; is its Tutti "
                        "another version?",
                        self->peer->rank, self->peer->name, (unsigned long long)hello->piece_ring);
    if ((hello->tail_most != SHM_TAIL_BYTES && hello->tail_most != SHM_TAIL_LEAST) ||
        (hello->pieces_shift != SHM_PIECES_SHIFT && hello->pieces_shift != 0))
        return TTI_FAIL(TUTTI_ERR_PROTOCOL,
                        "rank %d (%s) passed a segment with tails of %u bytes and pieces %u bytes "
                        "behind a page; is its Tutti another version?",
                        self->peer->rank, self->peer->name, hello->tail_most, hello->pieces_shift);
    self->piece_ring = (size_t)hello->piece_ring;
    self->tail_most = hello->tail_most;
    self->pieces_shift = hello->pieces_shift;
    return TUTTI_OK;
}

/* advance tries again what has no room. */
static enum tutti_result connect_welcome(struct shm_endpoint *self)
{
    const struct shm_message welcome = connect_message(self, SHM_WELCOME);
    const enum shm_io said =
        tti_shm_message_send(self->socket, &welcome, &self->transport->wake, 1);
    if (said == SHM_IO_END)
        return TTI_FAIL(TUTTI_ERR_LINK, "welcoming rank %d (%s) on a local socket: %s",
                        self->peer->rank, self->peer->name, strerror(errno));
    if (said == SHM_IO_DONE)
        connect_ready(self);
    return TUTTI_OK;
}

/* What the guest has brought. */
static enum tutti_result connect_take_hello(struct shm_endpoint *self,
                                            const struct shm_message *hello, int segment)
{
    TTI_TRY(connect_take_layout(self, hello));
    TTI_TRY(connect_map_segment(self, segment));
    if (!connect_is_bell(self->bell))
        return TTI_FAIL(TUTTI_ERR_PROTOCOL,
                        "rank %d (%s) passed something to be woken by that is not an eventfd",
                        self->peer->rank, self->peer->name);
    connect_tell(self, hello);
    self->state = SHM_WELCOMING;
    return connect_welcome(self);
}

/* The lower rank's part: take over a guest that is the peer. Its descriptors become ours, and
 * nothing points to it any more when it is dropped. */
static enum tutti_result connect_adopt(struct shm_endpoint *self, struct shm_guest *guest)
{
    int segment = guest->fds[0];
    struct shm_message hello = guest->hello;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &self->source};
    enum tutti_result result = TUTTI_OK;
    if (epoll_ctl(self->transport->epoll, EPOLL_CTL_MOD, guest->socket, &event) != 0) {
        result = TTI_FAIL_ERRNO("epoll_ctl for the connection to rank %d", self->peer->rank);
        tti_shm_guest_drop(self->transport, guest);
        return result;
    }
    self->socket = guest->socket;
    self->bell = guest->fds[1];
    self->pid = guest->pid;
    guest->socket = guest->fds[0] = guest->fds[1] = -1;
    tti_shm_guest_drop(self->transport, guest);
    result = connect_take_hello(self, &hello, segment);
    close(segment);
    if (result != TUTTI_OK) { /* the peer learns at once, and nobody rings what is no bell */
        tti_shm_hang_up(self->transport, self->socket);
        close(self->bell);
        self->socket = self->bell = -1;
    }
    return result;
}

void tti_shm_take_guest(struct shm_endpoint *self)
{
    struct shm_guest *guest = self->transport->guests;
    while (guest && !(guest->has_hello && guest->hello.from == self->peer->rank))
        guest = guest->next;
    if (!guest)
        return;
    char byte = 0;
    if (recv(guest->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) {
        tti_shm_guest_drop(self->transport, guest); /* it has given up meanwhile */
        return;
    }
    enum tutti_result result = connect_adopt(self, guest);
    if (result != TUTTI_OK)
        (void)tti_shm_break(self, result);
}

/* ---- endpoints ------------------------------------------------------------------------------ */

static struct shm_endpoint *connect_allocate(struct shm_transport *self,
                                             const struct tutti_peer *peer, int lanes)
{
    struct shm_endpoint *made = tti_calloc(1, sizeof *made);
    if (!made)
        return NULL;
    made->lane = tti_calloc((size_t)lanes, sizeof *made->lane);
    if (!made->lane) {
        free(made);
        return NULL;
    }
    made->source.kind = SHM_SOURCE_ENDPOINT;
    made->transport = self;
    made->peer = peer;
    made->side = self->env->rank > peer->rank;
    made->lanes = lanes;
    made->piece_ring = self->settings.piece_ring;
    made->tail_most = self->settings.tail_most;
    made->pieces_shift = self->settings.pieces_shift;
    made->socket = made->bell = -1;
    return made;
}

enum tutti_result tti_shm_connect(void *transport, const struct tutti_peer *peer, int lanes,
                                  void **endpoint)
{
    struct shm_transport *self = transport;
    if (lanes < 1 || lanes > TUTTI_MAX_LANES)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%d lanes; 1 to %d are possible", lanes,
                        TUTTI_MAX_LANES);
    if (!tti_shm_reaches(self, peer))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "rank %d (%s) is not on this host", peer->rank,
                        peer->name);
    if (self->deaf && tti_shm_watch(self, self->listener, &self->listener_source))
        self->deaf = false;
    struct shm_endpoint *made = connect_allocate(self, peer, lanes);
    if (!made)
        return TUTTI_ERR_MEMORY;
    enum tutti_result result = TUTTI_OK;
    if (getrandom(made->nonce, sizeof made->nonce, 0) != (ssize_t)sizeof made->nonce)
        result = TTI_FAIL_ERRNO("getrandom");
    made->state = made->side == 1 ? SHM_KNOCKING : SHM_WAITING;
    if (result == TUTTI_OK && made->side == 1)
        result = connect_make_socket(made);
    if (result == TUTTI_OK && made->side == 1)
        result = connect_knock(made);
    if (result != TUTTI_OK) {
        tti_shm_endpoint_free(made);
        return result;
    }
    made->next = self->endpoints;
    self->endpoints = made;
    if (made->side == 0)
        tti_shm_take_guest(made);
    *endpoint = made;
    return TUTTI_OK;
}

enum tutti_result tti_shm_advance(void *endpoint)
{
    struct shm_endpoint *self = endpoint;
    enum tutti_result result = TUTTI_OK;
    if (self->state == SHM_KNOCKING)
        result = connect_knock(self);
    else if (self->state == SHM_WELCOMING)
        result = connect_welcome(self);
    if (result != TUTTI_OK)
        (void)tti_shm_break(self, result);
    if (self->state == SHM_WAITING || self->state == SHM_WELCOMING)
        tti_shm_look(self->transport);
    self->known_state = self->state;
    if (self->state == SHM_FAILED)
        return tti_error_restore(&self->error);
    return self->state == SHM_READY ? TUTTI_OK : TUTTI_IN_PROGRESS;
}

/* The socket has ended: data that is in the segment stays readable, nothing new will come. */
static void endpoint_ended(struct shm_endpoint *self)
{
    self->ended = true;
    tti_shm_hang_up(self->transport, self->socket); /* epoll would report the end for ever */
    self->socket = -1;
    if (self->state != SHM_READY)
        (void)tti_shm_break(self,
                            TTI_FAIL(TUTTI_ERR_PEER,
                                     "rank %d (%s) ended the connection before it was made: it "
                                     "has left, or has another job secret",
                                     self->peer->rank, self->peer->name));
}

static enum tutti_result endpoint_heard(struct shm_endpoint *self,
                                        const struct shm_message *message, const int *fds,
                                        int count)
{
    if (self->state == SHM_WAITING)
        return connect_welcomed(self, message, fds, count);
    if (message->kind == SHM_REGION && count == 1)
        return tti_shm_region_map(self, message, fds[0]);
    for (int i = 0; i < count; i++)
        close(fds[i]);
    if (message->kind != SHM_GONE || count != 0)
        return TTI_FAIL(TUTTI_ERR_PROTOCOL, "rank %d (%s) sent an unknown message",
                        self->peer->rank, self->peer->name);
    tti_shm_region_unmap(self, message->id);
    return TUTTI_OK;
}

/* A turn takes as many messages as an honest peer can have in its socket, where what a line names
 * must be found: that all regions are gone, and one that comes and goes for each line that is not
 * read yet. One that goes on and on does not keep us from our deadlines. */
void tti_shm_endpoint_ready(struct shm_endpoint *self)
{
    enum { MESSAGES_A_TURN = SHM_MAX_MAPPINGS + 2 * SHM_LINES * TUTTI_MAX_LANES };
    for (int i = 0; self->socket >= 0 && self->state != SHM_FAILED; i++) {
        if (i == MESSAGES_A_TURN) {
            self->transport->look = true;
            return;
        }
        int fds[SHM_MESSAGE_FDS] = {-1, -1}, count = 0;
        struct shm_message message;
        enum shm_io io = tti_shm_message_take(self->socket, &message, fds, &count);
        if (io == SHM_IO_LATER)
            return;
        if (io == SHM_IO_END) {
            endpoint_ended(self);
            return;
        }
        enum tutti_result result = io == SHM_IO_LOST ? TUTTI_ERR_SYSTEM : TUTTI_ERR_PROTOCOL;
        if (io == SHM_IO_DONE)
            result = endpoint_heard(self, &message, fds, count);
        if (result != TUTTI_OK)
            (void)tti_shm_break(self, TTI_CONTEXT(result, "connection with rank %d (%s)",
                                                  self->peer->rank, self->peer->name));
    }
}

void tti_shm_endpoint_free(struct shm_endpoint *self)
{
    tti_shm_regions_free(self);
    for (int i = 0; i < self->lanes; i++) {
        free(self->lane[i].in.stage);
        free(self->lane[i].out.lent);
        free(self->lane[i].out.bounce);
    }
    if (self->segment)
        munmap(self->segment, self->segment_bytes);
    if (self->socket >= 0)
        tti_shm_hang_up(self->transport, self->socket);
    if (self->bell >= 0)
        close(self->bell);
    free(self->lane);
    free(self);
}
