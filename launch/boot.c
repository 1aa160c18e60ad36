/* The ranks' end of the bootstrap (launch/boot.h): join, gather, notice, leave.
 *
 * Frames are received by a state machine that never blocks (boot_receive); waits are polls around
 * it. The first failure of any kind is kept and given again: after it the object only says goodbye.
 * A communicator of one rank has neither socket nor thread.
 *
 * Read next: boot_join.c (the way in), boot_server.c (the other end). */
#include "launch/boot.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "launch/boot_join.h"
#include "launch/boot_socket.h"
#include "launch/boot_state.h"
#include "launch/desk.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* How long the server's own words are waited for after a deadline that it watches too. */
static const double VERDICT_S = 1;
static const double NOTIFY_S = 1;

/* ---- Receiving ------------------------------------------------------------------------------ */

static const char *boot_name(const struct tti_boot *boot, int rank, char *text, size_t room)
{
    if (boot->names && rank < boot->size && boot->names[rank])
        snprintf(text, room, "rank %d (%s)", rank, boot->names[rank]);
    else
        snprintf(text, room, "rank %d", rank);
    return text;
}

/* Keep the calling thread's error as the failure, unless there is one. */
static void boot_keep(struct tti_boot *boot, int rank, enum tutti_result code)
{
    if (boot->failed)
        return;
    boot->failed = true;
    boot->failure_rank = rank;
    tti_error_save(&boot->failure, code);
}

static void boot_on_notice(struct tti_boot *boot)
{
    const struct tti_boot_frame *frame = &boot->frame;
    enum tutti_result code = (enum tutti_result)frame->code;
    char text[TTI_BOOT_TEXT_BYTES + 1];
    char name[200];
    tti_boot_text_copy(text, sizeof text, boot->text, (size_t)frame->bytes);
    if (*text)
        boot_keep(boot, frame->waited_ms ? -1 : frame->rank, TTI_FAIL(code, "%s", text));
    else {
        boot->dead[frame->rank] = true;
        boot_keep(boot, frame->rank,
                  TTI_FAIL(code, "%s died: its connection closed without a goodbye",
                           boot_name(boot, frame->rank, name, sizeof name)));
    }
}

/* Put a descriptor that is never readable in the place of the socket, under the same number: who
 * watches it must not spin over the end of a stream. */
static void boot_quiet(struct tti_boot *boot)
{
    int quiet = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    boot->ended = true;
    if (quiet < 0)
        return;
    pthread_mutex_lock(&boot->send_lock);
    boot->broken = true;
    (void)dup3(quiet, boot->fd, O_CLOEXEC);
    pthread_mutex_unlock(&boot->send_lock);
    close(quiet);
}

static void boot_on_end(struct tti_boot *boot, const char *why)
{
    char name[200];
    boot->dead[0] |= !boot->left[0];
    if (!boot->left[0])
        boot_keep(boot, 0,
                  TTI_FAIL(TUTTI_ERR_PEER, "%s died: its bootstrap connection %s",
                           boot_name(boot, 0, name, sizeof name), why));
    boot_quiet(boot);
}

/* A header has arrived: does it make sense now? */
static bool boot_on_header(struct tti_boot *boot)
{
    struct tti_boot_frame *frame = &boot->frame;
    bool sane = tti_boot_frame_parse(boot->header, TTI_BOOT_TO_CLIENT, frame) == TUTTI_OK &&
                frame->type != TTI_BOOT_CHALLENGE && frame->type != TTI_BOOT_WELCOME &&
                frame->type != TTI_BOOT_PLACE &&
                (frame->type != TTI_BOOT_START || !boot->started) && frame->rank < boot->size;
    if (sane && frame->type == TTI_BOOT_GATHERED && boot->gather_to)
        sane = frame->code == boot->round && frame->bytes == boot->gather_bytes;
    boot->body_have = 0;
    if (!sane)
        boot_keep(boot, 0,
                  TTI_FAIL(TUTTI_ERR_PROTOCOL,
                           "rank 0 sent a bootstrap frame that makes no sense (type %d); are all "
                           "ranks of the same Tutti version?",
                           (int)frame->type));
    return sane;
}

static void boot_on_frame(struct tti_boot *boot)
{
    boot->header_have = 0;
    switch (boot->frame.type) {
    case TTI_BOOT_START:
        boot->started = true;
        break;
    case TTI_BOOT_GATHERED:
        boot->gather_to = NULL;
        break;
    case TTI_BOOT_NOTICE:
        boot_on_notice(boot);
        break;
    case TTI_BOOT_ASK:
        boot->asked = true;
        boot->asked_ns = tti_now_ns();
        break;
    default: /* BYE */
        boot->left[boot->frame.rank] = true;
        if (boot->first_left < 0)
            boot->first_left = boot->frame.rank;
    }
}

/* Where the next bytes go, and how many are wanted. */
static size_t boot_place(struct tti_boot *boot, void *scratch, size_t room, void **to)
{
    if (boot->header_have < TTI_BOOT_HEADER_BYTES) {
        *to = boot->header + boot->header_have;
        return TTI_BOOT_HEADER_BYTES - boot->header_have;
    }
    size_t want = (size_t)boot->frame.bytes - boot->body_have;
    if (boot->frame.type == TTI_BOOT_NOTICE) {
        *to = boot->text + boot->body_have;
        return want;
    }
    if (boot->gather_to) {
        *to = boot->gather_to + boot->body_have;
        return want;
    }
    *to = scratch;
    return want < room ? want : room;
}

/* Take in what is there; never blocks. Stops when `gather_to` has been filled; and
 * at a failure, unless `all` that comes is wanted. */
static void boot_receive(struct tti_boot *boot, bool all)
{
    char scratch[4096];
    bool gathering = boot->gather_to != NULL;
    while ((all || !boot->failed) && !boot->ended && !(gathering && !boot->gather_to)) {
        void *to = NULL;
        size_t want = boot_place(boot, scratch, sizeof scratch, &to);
        ssize_t got = recv(boot->fd, to, want, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (got <= 0) {
            boot_on_end(boot, got < 0 ? strerror(errno) : "closed without a goodbye");
            return;
        }
        if (boot->header_have < TTI_BOOT_HEADER_BYTES) {
            boot->header_have += (size_t)got;
            if (boot->header_have < TTI_BOOT_HEADER_BYTES)
                continue;
            if (!boot_on_header(boot))
                return;
        } else {
            boot->body_have += (size_t)got;
        }
        if (boot->body_have == boot->frame.bytes)
            boot_on_frame(boot);
    }
}

void tti_boot_turn(struct tti_boot *boot)
{
    pthread_mutex_lock(&boot->lock);
    boot_receive(boot, false);
    pthread_mutex_unlock(&boot->lock);
}

enum boot_wait_for { BOOT_WAIT_START, BOOT_WAIT_GATHERED };

/* Is it over, and how? IN_PROGRESS if not. */
static enum tutti_result boot_wait_turn(struct tti_boot *boot, enum boot_wait_for what)
{
    enum tutti_result result = TUTTI_IN_PROGRESS;
    char name[200];
    pthread_mutex_lock(&boot->lock);
    boot_receive(boot, false);
    if (what == BOOT_WAIT_START ? boot->started : !boot->gather_to)
        result = TUTTI_OK;
    else if (boot->failed)
        result = tti_error_restore(&boot->failure);
    else if (what == BOOT_WAIT_GATHERED && boot->first_left >= 0)
        result = TTI_FAIL(TUTTI_ERR_PEER, "%s has left the communicator",
                          boot_name(boot, boot->first_left, name, sizeof name));
    pthread_mutex_unlock(&boot->lock);
    tti_boot_answer(boot);
    return result;
}

/* Receive until all have started, or GATHERED has come; a failure; or the deadline, and then what
 * the server says of it. For that there is time from when this rank sees the deadline pass: a
 * machine that stood still over it has kept the server from speaking, too. */
static enum tutti_result boot_wait(struct tti_boot *boot, enum boot_wait_for what,
                                   uint64_t deadline)
{
    enum { TURN_MS = 20 }; /* the watch may take in what is waited for here */
    bool late = false;
    for (;;) {
        enum tutti_result result = boot_wait_turn(boot, what);
        if (result != TUTTI_IN_PROGRESS)
            return result;
        if (tti_socket_cancelled())
            return TTI_FAIL(TUTTI_ERR_ABORTED,
                            "rank %d of %d was aborted while it waited for the "
                            "others",
                            boot->rank, boot->size);
        if (tti_deadline_passed(deadline)) {
            if (late)
                return TTI_FAIL(TUTTI_ERR_TIMEOUT, "no answer from rank 0's bootstrap server");
            late = true;
            deadline = tti_deadline_in(VERDICT_S);
        }
        struct pollfd wait = {.fd = boot->fd, .events = POLLIN};
        const int most = atomic_load(&boot->watching) ? TURN_MS : tti_socket_look_ms(60000);
        if (poll(&wait, 1, tti_deadline_ms(deadline, most)) < 0 && errno != EINTR)
            return TTI_FAIL_ERRNO("poll on the bootstrap connection");
    }
}

/* ---- Sending -------------------------------------------------------------------------------- */

enum tutti_result tti_boot_send(struct tti_boot *boot, const struct tti_boot_frame *frame,
                                const void *body, uint64_t deadline)
{
    uint8_t header[TTI_BOOT_HEADER_BYTES];
    tti_boot_frame_encode(frame, header);
    /* Hardly ever held; and a timed lock goes by the time of day, which may jump. */
    while (pthread_mutex_trylock(&boot->send_lock) != 0) {
        if (tti_deadline_passed(deadline))
            return TTI_FAIL(TUTTI_ERR_TIMEOUT, "the bootstrap connection is busy");
        (void)poll(NULL, 0, 1);
    }
    enum tutti_result result = TUTTI_OK;
    if (boot->broken) {
        result = TTI_FAIL(TUTTI_ERR_LINK, "the bootstrap connection is broken");
    } else if (tti_socket_send_two(boot->fd, header, sizeof header, body, (size_t)frame->bytes,
                                   deadline) != 0) {
        boot->broken = true;
        result = TTI_FAIL(errno == ETIMEDOUT ? TUTTI_ERR_TIMEOUT : TUTTI_ERR_LINK,
                          "cannot send to rank 0's bootstrap server: %s", strerror(errno));
    }
    pthread_mutex_unlock(&boot->send_lock);
    return result;
}

/* ---- The object ----------------------------------------------------------------------------- */

static struct tti_boot *boot_alloc(int rank, int size)
{
    struct tti_boot *boot = tti_calloc(1, sizeof *boot);
    bool *left = tti_calloc(2 * (size_t)size, sizeof *left);
    if (!boot || !left) {
        free(boot);
        free(left);
        return NULL;
    }
    boot->rank = rank;
    boot->size = size;
    boot->fd = -1;
    boot->left = left;
    boot->dead = left + size;
    boot->first_left = -1;
    atomic_init(&boot->notified, false);
    pthread_mutex_init(&boot->send_lock, NULL);
    pthread_mutex_init(&boot->lock, NULL);
    boot->stop_fd = -1;
    return boot;
}

static enum tutti_result boot_check(const struct tti_meeting *meeting, int rank, int size)
{
    if (size < 1 || size > TTI_BOOT_RANKS || rank < 0 || rank >= size)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "rank %d of %d ranks: expected 1 to %d ranks, and a rank below that", rank,
                        size, TTI_BOOT_RANKS);
    if (size > 1 && (!meeting->host[0] || meeting->ports < 1))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "the meeting has no %s",
                        meeting->host[0] ? "ports" : "host");
    if (sodium_init() < 0)
        return TTI_FAIL(TUTTI_ERR_SYSTEM, "libsodium finds no source of random numbers");
    return TUTTI_OK;
}

/* Start the server, at the own address if the meeting's is another host's, and say so at the id's
 * desk, over *desk (-1: nobody is there), which the caller closes when the meeting is over. Who
 * finds the server where the id says need not ask, so that the desk may be gone then; but if it
 * says that there was another rank 0 (SYSTEM), that is the end. */
static enum tutti_result boot_serve(struct tti_boot *boot, const struct tti_boot_join *join,
                                    int *desk)
{
    struct tti_meeting at = *join->meeting;
    struct tti_desk_found found;
    if (at.away)
        TTI_TRY(tti_desk_arrive(&join->caller, &at, desk));
    const bool moved = at.port == 0;
    enum tutti_result result =
        tti_boot_server_create(&at, boot->size, join->caller.deadline, &boot->server);
    if (result == TUTTI_OK && at.desk && *desk < 0 && !moved)
        (void)tti_desk_visit(&at, &join->caller, tti_deadline_in(NOTIFY_S), desk, &found);
    if (result == TUTTI_OK && *desk >= 0) {
        result = tti_desk_tell(&join->caller, *desk, at.host, tti_boot_server_port(boot->server));
        if (result != TUTTI_OK && result != TUTTI_ERR_SYSTEM && !moved) {
            TTI_LOG(TTI_LOG_INFO, "bootstrap: %s", tti_error_text());
            result = TUTTI_OK;
        }
    }
    return result;
}

/* In, at rank 0 to its own server, and wait for the others. */
static enum tutti_result boot_meet(struct tti_boot *boot, struct tti_boot_join *join)
{
    struct sockaddr_storage own;
    if (boot->server) {
        tti_boot_server_address(boot->server, &own, &join->own_bytes);
        join->own = (struct sockaddr *)&own;
        TTI_LOG(TTI_LOG_INFO, "bootstrap: rank 0 of %d waits at %s", boot->size,
                tti_boot_server_where(boot->server));
    }
    TTI_TRY(tti_boot_join(join, &boot->fd));
    return boot_wait(boot, BOOT_WAIT_START, join->caller.deadline);
}

/* The deadline of a rank 0 that is on another host than the id's, and found nobody at the desk:
 * that may be why the others did not come. */
static enum tutti_result boot_unknown(const struct tti_meeting *meeting)
{
    char desk[TTI_SOCKET_TEXT_BYTES];
    tti_socket_meeting_text(meeting->host, meeting->desk, 1, desk, sizeof desk);
    return TTI_FAIL(TUTTI_ERR_TIMEOUT,
                    "%s; this host does not have the id's address, and nobody answered for the id "
                    "at %s, so that the others may not have heard where rank 0 is: see that the "
                    "process that made the id lives until all have joined",
                    tti_error_text(), desk);
}

/* Server first (rank 0), then the meeting. */
static enum tutti_result boot_enter(struct tti_boot *boot, const struct tti_meeting *meeting,
                                    uint64_t deadline)
{
    struct tti_boot_join join = {.meeting = meeting,
                                 .caller = {.secret = meeting->secret,
                                            .rank = boot->rank,
                                            .size = boot->size,
                                            .begin = tti_now_ns(),
                                            .deadline = deadline}};
    int desk = -1;
    enum tutti_result result = boot->rank == 0 ? boot_serve(boot, &join, &desk) : TUTTI_OK;
    const bool unknown = boot->rank == 0 && meeting->away && desk < 0;
    if (result == TUTTI_OK)
        result = boot_meet(boot, &join);
    if (result == TUTTI_ERR_TIMEOUT && unknown)
        result = boot_unknown(meeting);
    if (desk >= 0)
        close(desk);
    return result;
}

enum tutti_result tti_boot_create(const struct tti_meeting *meeting, int rank, int size,
                                  uint64_t deadline, struct tti_boot **boot)
{
    enum tutti_result checked = boot_check(meeting, rank, size);
    struct tti_boot *made = checked == TUTTI_OK ? boot_alloc(rank, size) : NULL;
    if ((!made || size == 1 || rank > 0) && meeting->listen_fd >= 0)
        close(meeting->listen_fd);
    TTI_TRY(checked);
    if (!made)
        return TUTTI_ERR_MEMORY;
    if (size > 1) {
        enum tutti_result result = boot_enter(made, meeting, deadline);
        if (result != TUTTI_OK) {
            struct tti_error failure;
            tti_error_save(&failure, result);
            tti_boot_destroy(made, 2);
            return tti_error_restore(&failure);
        }
    }
    *boot = made;
    return TUTTI_OK;
}

static enum tutti_result boot_gather_open(struct tti_boot *boot, char *to, size_t bytes,
                                          uint32_t *round)
{
    enum tutti_result result = TUTTI_OK;
    pthread_mutex_lock(&boot->lock);
    if (boot->failed) {
        result = tti_error_restore(&boot->failure);
    } else {
        boot->gather_to = to;
        boot->gather_bytes = bytes;
        *round = boot->round;
    }
    pthread_mutex_unlock(&boot->lock);
    return result;
}

static enum tutti_result boot_gather_close(struct tti_boot *boot, enum tutti_result result)
{
    struct tti_error error;
    tti_error_save(&error, result);
    pthread_mutex_lock(&boot->lock);
    if (result != TUTTI_OK) { /* perhaps the server's own word is there by now */
        boot_receive(boot, false);
        result = boot->failed ? tti_error_restore(&boot->failure) : tti_error_restore(&error);
    }
    boot->gather_to = NULL;
    if (result == TUTTI_OK)
        boot->round++;
    else
        boot_keep(boot, boot->rank, result);
    pthread_mutex_unlock(&boot->lock);
    return result;
}

enum tutti_result tti_boot_all_gather(struct tti_boot *boot, const void *mine, size_t bytes,
                                      void *all, uint64_t deadline)
{
    if (bytes > TTI_BOOT_GATHER_BYTES)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "a bootstrap gather of %zu bytes; at most %d", bytes,
                        TTI_BOOT_GATHER_BYTES);
    if (boot->size == 1) {
        if (bytes)
            memmove(all, mine, bytes);
        return TUTTI_OK;
    }
    struct tti_boot_frame frame = {.type = TTI_BOOT_GATHER, .bytes = bytes};
    char none = 0;
    tti_boot_waits(tti_now_ns(), deadline, &frame);
    TTI_TRY(boot_gather_open(boot, bytes ? all : &none, bytes * (size_t)boot->size, &frame.code));
    /* A server that is gone shows as the reason why sending fails. */
    enum tutti_result result = tti_boot_send(boot, &frame, mine, deadline);
    if (result == TUTTI_OK)
        result = boot_wait(boot, BOOT_WAIT_GATHERED, deadline);
    return boot_gather_close(boot, result);
}

int tti_boot_fd(const struct tti_boot *boot)
{
    return boot->fd;
}

enum tutti_result tti_boot_address(const struct tti_boot *boot, const char *host, char *text,
                                   size_t room)
{
    struct sockaddr_storage own;
    socklen_t bytes = sizeof own;
    snprintf(text, room, "127.0.0.1");
    if (boot->fd < 0)
        return TUTTI_OK;
    if (getsockname(boot->fd, (struct sockaddr *)&own, &bytes) != 0)
        return TTI_FAIL_ERRNO("asking the bootstrap connection for its address");
    if (tti_socket_is_loopback((struct sockaddr *)&own)) {
        snprintf(text, room, "%s", host);
        return TUTTI_OK;
    }
    int failed =
        getnameinfo((struct sockaddr *)&own, bytes, text, (socklen_t)room, NULL, 0, NI_NUMERICHOST);
    if (failed)
        return TTI_FAIL(TUTTI_ERR_SYSTEM, "the address of the bootstrap connection: %s",
                        gai_strerror(failed));
    return TUTTI_OK;
}

enum tutti_result tti_boot_poll(struct tti_boot *boot, int *rank)
{
    enum tutti_result result = TUTTI_OK;
    if (boot->fd < 0)
        return TUTTI_OK;
    pthread_mutex_lock(&boot->lock);
    if (!boot->failed)
        boot_receive(boot, false);
    if (boot->failed) {
        *rank = boot->failure_rank;
        result = tti_error_restore(&boot->failure);
    }
    const bool asked = boot->asked;
    pthread_mutex_unlock(&boot->lock);
    if (asked)
        tti_boot_answer(boot);
    return result;
}

bool tti_boot_is_dead(struct tti_boot *boot, int rank)
{
    pthread_mutex_lock(&boot->lock);
    if (boot->fd >= 0 && boot->failure.code != TUTTI_ERR_PROTOCOL)
        boot_receive(boot, true);
    const bool dead = boot->dead[rank];
    pthread_mutex_unlock(&boot->lock);
    return dead;
}

bool tti_boot_has_left(struct tti_boot *boot, int rank)
{
    pthread_mutex_lock(&boot->lock);
    const bool left = boot->left[rank];
    pthread_mutex_unlock(&boot->lock);
    return left;
}

void tti_boot_notify(struct tti_boot *boot, enum tutti_result code, const char *text)
{
    if (boot->fd < 0 || atomic_exchange(&boot->notified, true))
        return;
    struct tti_boot_frame frame = {.type = TTI_BOOT_NOTICE,
                                   .rank = boot->rank,
                                   .code = code,
                                   .bytes = strnlen(text, TTI_BOOT_TEXT_BYTES)};
    struct tti_error before; /* the caller's last error is what it is telling; keep it */
    tti_error_save(&before, code);
    if (tti_boot_send(boot, &frame, text, tti_deadline_in(NOTIFY_S)) != TUTTI_OK)
        TTI_LOG(TTI_LOG_WARN, "bootstrap: the others were not told: %s", tti_error_text());
    (void)tti_error_restore(&before);
}

void tti_boot_names(struct tti_boot *boot, const char *const *names)
{
    boot->names = names;
}

void tti_boot_memory(const struct tti_boot *boot, struct tutti_memory *memory)
{
    memory->host += tti_heap_bytes(boot) + tti_heap_bytes(boot->left);
    memory->descriptors += (boot->fd >= 0) + (boot->stop_fd >= 0);
    if (boot->server)
        tti_boot_server_memory(boot->server, memory);
}

/* Goodbye, and until the server has read it nothing is closed: unread input would reset the
 * connection and could take the goodbye with it. It is bounded, and goes on if the join that ends
 * with it was cancelled: the others shall hear that this rank left, not that it died. */
static void boot_goodbye(struct tti_boot *boot, double linger_s)
{
    struct tti_boot_frame frame = {.type = TTI_BOOT_BYE, .rank = boot->rank};
    uint64_t deadline = tti_deadline_in(linger_s < VERDICT_S ? linger_s : VERDICT_S);
    char scratch[4096];
    const _Atomic bool *cancel = tti_boot_cancel_by(NULL);
    if (tti_boot_send(boot, &frame, NULL, deadline) == TUTTI_OK && shutdown(boot->fd, SHUT_WR) == 0)
        while (tti_socket_receive(boot->fd, scratch, 1, deadline) == 0)
            (void)recv(boot->fd, scratch, sizeof scratch, MSG_DONTWAIT);
    (void)tti_boot_cancel_by(cancel);
    close(boot->fd);
}

void tti_boot_destroy(struct tti_boot *boot, double linger_s)
{
    if (!boot)
        return;
    tti_boot_watch_stop(boot);
    if (boot->fd >= 0)
        boot_goodbye(boot, linger_s);
    tti_boot_server_destroy(boot->server, linger_s);
    pthread_mutex_destroy(&boot->send_lock);
    pthread_mutex_destroy(&boot->lock);
    free(boot->left);
    free(boot);
}
