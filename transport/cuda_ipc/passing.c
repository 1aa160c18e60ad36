/* See passing.h. Who gives connects and sends before anybody has to accept, so no order of ranks
 * can make them wait for each other. */
#include "transport/cuda_ipc/passing.h"

#include "base/clock.h"
#include "transport/shm/shm.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PASSING_RANKS = 64, PASSING_POLL_MS = 20 };
_Static_assert(sizeof(((struct tti_passing_door *)0)->key) ==
                   sizeof(((struct shm_message *)0)->secret),
               "a key travels as a message's secret");

enum tutti_result tti_passing_open(struct tti_passing_door *door, int *listener)
{
    struct tti_passing_door made;
    struct sockaddr_un address;
    uint64_t number;
    memset(&made, 0, sizeof made);
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number ||
        getrandom(made.key, sizeof made.key, 0) != (ssize_t)sizeof made.key)
        return TTI_FAIL_ERRNO("getrandom for the name of a local socket");
    snprintf(made.name, sizeof made.name, "tutti-device-%016llx", (unsigned long long)number);
    const socklen_t bytes = tti_shm_socket_name(made.name, &address);
    const int made_socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made_socket < 0 || bind(made_socket, (struct sockaddr *)&address, bytes) != 0 ||
        listen(made_socket, PASSING_RANKS) != 0) {
        const enum tutti_result result = TTI_FAIL_ERRNO("listening at a local socket");
        if (made_socket >= 0)
            close(made_socket);
        return result;
    }
    *door = made;
    *listener = made_socket;
    return TUTTI_OK;
}

/* ---- giving ---- */

static enum tutti_result passing_connect(const struct tti_passing_door *door, int to,
                                         uint64_t deadline, int *connected)
{
    struct sockaddr_un address;
    const socklen_t bytes = tti_shm_socket_name(door->name, &address);
    const int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made < 0)
        return TTI_FAIL_ERRNO("making a local socket (too many open files: raise `ulimit -n`)");
    for (int round = 0; connect(made, (struct sockaddr *)&address, bytes) != 0; round++) {
        if ((errno != EAGAIN && errno != EINTR) || tti_deadline_passed(deadline)) {
            const enum tutti_result result =
                TTI_FAIL_ERRNO("connecting to rank %d by a local socket, to give it device memory "
                               "(ranks in network namespaces of their own cannot)",
                               to);
            close(made);
            return result;
        }
        tti_nap(round);
    }
    *connected = made;
    return TUTTI_OK;
}

static enum tutti_result passing_send(const struct tti_passing *p, int to, uint64_t deadline,
                                      int *connected)
{
    struct shm_message message = {.kind = SHM_DEVICE, .from = p->self, .to = to};
    int made = -1;
    memcpy(message.secret, p->doors[to].key, sizeof message.secret);
    TTI_TRY(passing_connect(&p->doors[to], to, deadline, &made));
    enum shm_io io = tti_shm_message_send(made, &message, &p->give[to], 1);
    for (int round = 0; io == SHM_IO_LATER && !tti_deadline_passed(deadline); round++) {
        tti_nap(round);
        io = tti_shm_message_send(made, &message, &p->give[to], 1);
    }
    if (io != SHM_IO_DONE) {
        close(made);
        return TTI_FAIL(TUTTI_ERR_PEER, "rank %d did not take a descriptor of device memory", to);
    }
    *connected = made;
    return TUTTI_OK;
}

/* ---- taking ---- */

/* A guest's message, if it is one that is expected; others are sent away without a word. */
static void passing_guest(const struct tti_passing *p, int guest, int *missing, uint64_t deadline)
{
    struct shm_message message;
    struct pollfd ready = {.fd = guest, .events = POLLIN};
    int fds[SHM_MESSAGE_FDS], count = 0;
    pid_t pid;
    if (!tti_shm_peer_credentials(guest, &pid))
        return;
    enum shm_io io = tti_shm_message_take(guest, &message, fds, &count);
    /* It sent before it was let in, or it is not one of ours. */
    if (io == SHM_IO_LATER && !tti_deadline_passed(deadline) &&
        poll(&ready, 1, PASSING_POLL_MS) == 1)
        io = tti_shm_message_take(guest, &message, fds, &count);
    if (io != SHM_IO_DONE)
        return;
    const struct tti_passing_door *own = &p->doors[p->self];
    unsigned differ = 0;
    for (size_t i = 0; i < sizeof own->key; i++)
        differ |= (unsigned)(own->key[i] ^ message.secret[i]);
    if (differ == 0 && message.kind == SHM_DEVICE && message.to == p->self && message.from >= 0 &&
        message.from < p->count && p->take[message.from] == -1 && count == 1) {
        p->take[message.from] = fds[0];
        --*missing;
        return;
    }
    for (int i = 0; i < count; i++)
        close(fds[i]);
}

static enum tutti_result passing_take(const struct tti_passing *p, int missing, uint64_t deadline)
{
    while (missing > 0) {
        struct pollfd door = {.fd = p->listener, .events = POLLIN};
        if (poll(&door, 1, PASSING_POLL_MS) > 0) {
            const int guest = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
            if (guest < 0 && (errno == EMFILE || errno == ENFILE))
                return TTI_FAIL_ERRNO("accepting at a local socket (raise `ulimit -n`)");
            if (guest < 0)
                continue;
            passing_guest(p, guest, &missing, deadline);
            close(guest);
        }
        if (missing > 0 && tti_deadline_passed(deadline))
            return TTI_FAIL(TUTTI_ERR_PEER,
                            "%d ranks did not give their device memory in time; one has failed, or "
                            "is in a network namespace of its own",
                            missing);
    }
    return TUTTI_OK;
}

enum tutti_result tti_passing_exchange(const struct tti_passing *p, uint64_t deadline)
{
    int connected[PASSING_RANKS], missing = 0;
    bool expected[PASSING_RANKS];
    enum tutti_result result = TUTTI_OK;
    for (int r = 0; r < p->count; r++) {
        connected[r] = -1;
        expected[r] = p->take[r] == -1;
        missing += expected[r];
    }
    for (int r = 0; r < p->count && result == TUTTI_OK; r++)
        if (p->give[r] >= 0)
            result = passing_send(p, r, deadline, &connected[r]);
    if (result == TUTTI_OK)
        result = passing_take(p, missing, deadline);
    for (int r = 0; r < p->count; r++) {
        if (connected[r] >= 0)
            close(connected[r]);
        if (result != TUTTI_OK && expected[r] && p->take[r] >= 0) {
            close(p->take[r]);
            p->take[r] = -1;
        }
    }
    return result;
}
