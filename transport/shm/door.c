/* The door of a transport: a listening local socket with an abstract name, so nothing is in the
 * file system and nothing is left after SIGKILL. Who connects is a guest until this rank's own user
 * asks for that peer (connect.c takes the guest over). Who is another user's, says nothing within
 * seconds or says the wrong thing is dropped, and nobody is disturbed. */
#include "transport/shm/shm.h"

#include "base/children.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DOOR_SPARE_GUESTS = 32 };
static const double door_hello_s = 5.0;

/* ---- addresses ------------------------------------------------------------------------------ */

/* Where we are. Read once: every answer to `reaches` must be the same. */
static enum tutti_result door_place(struct shm_address *own)
{
    static const char boot_id[] = "/proc/sys/kernel/random/boot_id";
    struct stat net;
    memset(own, 0, sizeof *own);
    int fd = open(boot_id, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd < 0 ? -1 : read(fd, own->boot, sizeof own->boot - 1);
    if (fd >= 0)
        close(fd);
    if (bytes <= 0)
        return TTI_FAIL_ERRNO("reading %s, which names this kernel (too many open files: raise "
                              "`ulimit -n`)",
                              boot_id);
    if (stat("/proc/self/ns/net", &net) != 0)
        return TTI_FAIL_ERRNO("looking up the network namespace in /proc/self/ns/net");
    own->net_device = net.st_dev;
    own->net_inode = net.st_ino;
    own->user = geteuid();
    return TUTTI_OK;
}

enum tutti_result tti_shm_address(void *transport, void *address, size_t *bytes)
{
    struct shm_transport *self = transport;
    memcpy(address, &self->own, sizeof self->own);
    *bytes = sizeof self->own;
    return TUTTI_OK;
}

bool tti_shm_reaches(void *transport, const struct tutti_peer *peer)
{
    const struct shm_transport *self = transport;
    struct shm_address other;
    if (peer->address_bytes != sizeof other)
        return false;
    memcpy(&other, peer->address, sizeof other);
    return memcmp(&self->own, &other, offsetof(struct shm_address, name)) == 0 &&
           strncmp(other.name, "tutti-", 6) == 0 && memchr(other.name, 0, sizeof other.name);
}

socklen_t tti_shm_socket_name(const char *name, struct sockaddr_un *address)
{
    size_t length = strlen(name);
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path + 1, name, length); /* leading zero byte: not in the file system */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

enum tutti_result tti_shm_listen(struct shm_transport *self)
{
    const struct tutti_transport_env *env = self->env;
    struct sockaddr_un address;
    uint64_t number = 0;
    TTI_TRY(door_place(&self->own));
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return TTI_FAIL_ERRNO("getrandom for the name of a local socket");
    snprintf(self->own.name, sizeof self->own.name, "tutti-%016llx-%d-%016llx",
             (unsigned long long)env->job, env->rank, (unsigned long long)number);
    self->listener =
        tti_keep_from_children(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (self->listener < 0)
        return TTI_FAIL_ERRNO("socket for local ranks (too many open files: raise `ulimit -n`)");
    socklen_t bytes = tti_shm_socket_name(self->own.name, &address);
    if (bind(self->listener, (struct sockaddr *)&address, bytes) != 0 ||
        listen(self->listener, env->nranks + DOOR_SPARE_GUESTS) != 0)
        return TTI_FAIL_ERRNO("listening for local ranks on @%s", self->own.name);
    self->listener_source.kind = SHM_SOURCE_LISTENER;
    if (!tti_shm_watch(self, self->listener, &self->listener_source))
        return TTI_FAIL_ERRNO("epoll_ctl for the listener @%s", self->own.name);
    return TUTTI_OK;
}

/* From a rank of this job to this rank? Takes the same time wherever the secrets differ. */
bool tti_shm_proven(const struct shm_transport *self, const struct shm_message *message)
{
    unsigned difference = 0;
    for (int i = 0; i < TUTTI_SECRET_BYTES; i++)
        difference |= (unsigned)(message->secret[i] ^ self->env->secret[i]);
    return difference == 0 && message->job == self->env->job && message->to == self->env->rank &&
           message->from >= 0 && message->from < self->env->nranks;
}

/* ---- guests --------------------------------------------------------------------------------- */

void tti_shm_guest_drop(struct shm_transport *self, struct shm_guest *guest)
{
    struct shm_guest **at = &self->guests;
    while (*at != guest)
        at = &(*at)->next;
    *at = guest->next;
    self->guest_count--;
    if (guest->socket >= 0)
        tti_shm_hang_up(self, guest->socket);
    for (int i = 0; i < SHM_MESSAGE_FDS; i++)
        if (guest->fds[i] >= 0)
            close(guest->fds[i]);
    free(guest);
}

static void door_make_room(struct shm_transport *self)
{
    struct shm_guest *next = NULL;
    for (struct shm_guest *g = self->guests; g; g = next) {
        next = g->next;
        if (!g->has_hello && tti_deadline_passed(g->deadline))
            tti_shm_guest_drop(self, g);
    }
    if (self->guest_count < self->env->nranks + DOOR_SPARE_GUESTS)
        return;
    struct shm_guest *oldest = NULL; /* the list has the newest first */
    for (struct shm_guest *g = self->guests; g; g = g->next)
        if (!g->has_hello || !oldest)
            oldest = g;
    tti_shm_guest_drop(self, oldest);
}

/* Nobody can be let in: say so to those who wait, and stop listening until somebody waits again, as
 * the listener would wake every sleeper. */
static void door_deaf(struct shm_transport *self)
{
    enum tutti_result result = TTI_FAIL_ERRNO("accepting a connection on the local socket @%s (too "
                                              "many open files: raise `ulimit -n`)",
                                              self->own.name);
    TTI_LOG(TTI_LOG_WARN, "shm: %s", tti_error_text());
    for (struct shm_endpoint *e = self->endpoints; e; e = e->next)
        if (e->state == SHM_WAITING && e->side == 0)
            (void)tti_shm_break(e, result);
    self->deaf = epoll_ctl(self->epoll, EPOLL_CTL_DEL, self->listener, NULL) == 0;
}

/* As many in a turn as may wait: who knocks on and on does not keep us from our deadlines. */
void tti_shm_accept_all(struct shm_transport *self)
{
    for (int i = 0; i < self->env->nranks + DOOR_SPARE_GUESTS; i++) {
        int socket = tti_keep_from_children(
            accept4(self->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (socket < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
            door_deaf(self);
        if (socket < 0)
            return;
        door_make_room(self);
        struct shm_guest *guest = tti_calloc(1, sizeof *guest);
        pid_t pid = 0;
        if (!guest || !tti_shm_peer_credentials(socket, &pid)) {
            TTI_LOG(TTI_LOG_WARN, "shm: dropped a connection that is not this user's");
            free(guest);
            close(socket);
            continue;
        }
        *guest = (struct shm_guest){.source = {SHM_SOURCE_GUEST},
                                    .next = self->guests,
                                    .socket = socket,
                                    .pid = pid,
                                    .deadline = tti_deadline_in(door_hello_s),
                                    .fds = {-1, -1}};
        self->guests = guest;
        self->guest_count++;
        if (!tti_shm_watch(self, socket, &guest->source))
            tti_shm_guest_drop(self, guest);
    }
    self->look = true;
}

/* A guest says hello, or hangs up. A second word from it is one too many. */
void tti_shm_guest_ready(struct shm_transport *self, struct shm_guest *guest)
{
    int fds[SHM_MESSAGE_FDS] = {-1, -1}, count = 0;
    struct shm_message hello;
    enum shm_io io = tti_shm_message_take(guest->socket, &hello, fds, &count);
    if (io == SHM_IO_LATER)
        return;
    bool good = io == SHM_IO_DONE && !guest->has_hello && hello.kind == SHM_HELLO && count == 2 &&
                hello.from > self->env->rank && tti_shm_proven(self, &hello);
    if (io == SHM_IO_DONE && !good) {
        TTI_LOG(TTI_LOG_WARN, "shm: dropped a connection of process %d that is not of this job",
                (int)guest->pid);
        for (int i = 0; i < count; i++)
            close(fds[i]);
    }
    if (io == SHM_IO_LOST || io == SHM_IO_BAD)
        TTI_LOG(TTI_LOG_WARN, "shm: dropped a connection of process %d: %s", (int)guest->pid,
                tti_error_text());
    if (!good) {
        tti_shm_guest_drop(self, guest);
        return;
    }
    guest->hello = hello;
    guest->has_hello = true;
    memcpy(guest->fds, fds, sizeof fds);
    for (struct shm_endpoint *e = self->endpoints; e; e = e->next)
        if (e->state == SHM_WAITING && e->side == 0 && e->peer->rank == hello.from) {
            tti_shm_take_guest(e);
            return;
        }
}
