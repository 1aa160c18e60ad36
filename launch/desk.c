/* The maker's side of the desk (launch/desk.h): the ids that rank 0 has not claimed, and the thread
 * that answers who asks for it.
 *
 * The list is under a lock; connections are the thread's own. Only the thread closes a socket that
 * it listens on, since a number closed under its feet might be another's by the time it accepts. A
 * forked child has no thread: it may claim what its parent held, and the parent goes on answering.
 */
#include "launch/desk.h"

#include "base/children.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "launch/boot_crowd.h"
#include "launch/boot_socket.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
    DESK_STRANGERS = 1024, /* how many ranks there are is not known here */
    DESK_WAITING = 64,     /* ranks of an id that may wait here; the others ask again and again */
};
static const time_t END_S = 5; /* for the thread to end when the library goes */

/* An id that was made here. */
struct desk_entry {
    struct desk_entry *next;
    uint64_t number;
    uint8_t secret[TTI_SECRET_BYTES];
    int held_fd;    /* its port; -1: rank 0 is elsewhere */
    int listen_fd;  /* where ranks ask; -1: none do */
    bool inherited; /* of the process that this one was forked from */
    bool gone;      /* claimed: the thread has to close listen_fd */
    char place[TTI_BOOT_PLACE_BYTES + 1];
    uint16_t port;                      /* rank 0 is at place:port; 0: not known */
    const struct tti_boot_conn *teller; /* said so; open while the meeting lasts; NULL */
    uint64_t stay_ns;                   /* to be kept after that */
    int waiting;                        /* ranks, to be told */
    uint64_t until;                     /* then nobody can join any more */
};

static pthread_once_t desk_once = PTHREAD_ONCE_INIT;
static struct {
    pthread_mutex_t lock;
    struct desk_entry *entries;
    uint64_t numbers;
    pthread_t thread;
    bool joinable; /* there was a thread, ... */
    bool runs;     /* ... and it has not seen its end */
    bool stop;
    int wake_fd;
} desk = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake_fd = -1};

/* ---- the list, under the lock --------------------------------------------------------------- */

static struct desk_entry *desk_find(uint64_t number)
{
    struct desk_entry *entry = desk.entries;
    while (entry && (entry->number != number || entry->gone))
        entry = entry->next;
    return entry;
}

static void desk_free(struct desk_entry *entry)
{
    if (entry->held_fd >= 0)
        close(entry->held_fd);
    if (entry->listen_fd >= 0)
        close(entry->listen_fd);
    sodium_memzero(entry->secret, sizeof entry->secret);
    free(entry);
}

/* Drop what is over. True: somebody may still ask. *next: when to look again, at the latest. */
static bool desk_expire(uint64_t *next)
{
    const uint64_t now = tti_now_ns();
    bool open = false;
    struct desk_entry **link = &desk.entries;
    while (*link) {
        struct desk_entry *entry = *link;
        if (entry->gone || now >= entry->until) {
            *link = entry->next;
            desk_free(entry);
            continue;
        }
        if (entry->listen_fd >= 0 && entry->until < *next)
            *next = entry->until;
        open = open || entry->listen_fd >= 0;
        link = &entry->next;
    }
    return open;
}

/* ---- what is said at the desk --------------------------------------------------------------- */

static bool desk_waits(const struct tti_boot_conn *conn)
{
    return conn->state == TTI_BOOT_CONN_JOINED && conn->rank != 0;
}

/* A connection ends. With rank 0's the place is forgotten: the meeting is over, and the id may be
 * used again, by another rank 0. */
static void desk_drop(struct tti_boot_conn *conn, const char *why)
{
    struct desk_entry *entry = desk_find(conn->door);
    if (entry && entry->teller == conn) {
        entry->teller = NULL;
        entry->port = 0;
        entry->until = tti_now_ns() + entry->stay_ns;
    }
    if (entry && desk_waits(conn))
        entry->waiting--;
    tti_boot_conn_drop(conn, why);
}

/* Who has proved itself and waits is told, or sent away when the id has been claimed: then rank 0
 * listens where the id says. */
static void desk_serve(struct tti_boot_conn *conn)
{
    struct desk_entry *entry = desk_find(conn->door);
    if (!entry) {
        desk_drop(conn, NULL);
        return;
    }
    if (conn->rank == 0 || entry->port == 0)
        return;
    struct tti_boot_frame frame = {
        .type = TTI_BOOT_PLACE, .code = entry->port, .bytes = strlen(entry->place)};
    entry->waiting--;
    conn->state = TTI_BOOT_CONN_SERVED;
    conn->deadline = tti_deadline_in(TTI_BOOT_HANDSHAKE_S);
    if (tti_boot_conn_tell(conn, &frame, entry->place) != TUTTI_OK)
        desk_drop(conn, tti_error_text());
}

/* It has proved itself: told at once, if rank 0 is there, or let in to wait, if there is room. */
static void desk_admit(struct desk_entry *entry, struct tti_boot_conn *conn)
{
    static const char full[] = "many ranks wait there already";
    const struct tti_boot_frame frame = {
        .type = TTI_BOOT_NOTICE, .code = TUTTI_ERR_SYSTEM, .bytes = sizeof full - 1};
    conn->state = TTI_BOOT_CONN_JOINED;
    if (conn->rank != 0 && ++entry->waiting > DESK_WAITING && entry->port == 0) {
        entry->waiting--;
        conn->state = TTI_BOOT_CONN_SERVED;
        conn->deadline = tti_deadline_in(TTI_BOOT_HANDSHAKE_S);
        if (tti_boot_conn_tell(conn, &frame, full) != TUTTI_OK)
            desk_drop(conn, tti_error_text());
    } else {
        desk_serve(conn);
    }
}

/* Rank 0 has said where it is. Another one may not take its place while it meets the others. */
static void desk_learn(struct desk_entry *entry, struct tti_boot_conn *conn)
{
    static const char again[] = "another rank 0 has come before: is there a second rank 0?";
    const struct tti_boot_frame told = conn->frame;
    struct tti_boot_frame frame = {.type = TTI_BOOT_WELCOME};
    if (entry->teller) {
        conn->state = TTI_BOOT_CONN_SERVED;
        conn->deadline = tti_deadline_in(TTI_BOOT_HANDSHAKE_S);
        frame = (struct tti_boot_frame){
            .type = TTI_BOOT_NOTICE, .code = TUTTI_ERR_SYSTEM, .bytes = sizeof again - 1};
    } else {
        tti_boot_text_copy(entry->place, sizeof entry->place, conn->small, (size_t)told.bytes);
        entry->port = (uint16_t)told.code;
        entry->teller = conn;
        const uint64_t stay_ns = ((uint64_t)told.waited_ms + told.wait_ms) * 1000000u;
        if (entry->stay_ns < stay_ns)
            entry->stay_ns = stay_ns;
        entry->until = UINT64_MAX;
        if (entry->held_fd >= 0)
            close(entry->held_fd);
        entry->held_fd = -1;
        TTI_LOG(TTI_LOG_INFO, "bootstrap: rank 0 of an id made here is at %s, port %u",
                entry->place, (unsigned)entry->port);
    }
    if (tti_boot_conn_tell(conn, &frame, frame.bytes ? again : NULL) != TUTTI_OK)
        desk_drop(conn, tti_error_text());
}

static bool desk_expects(const struct tti_boot_conn *conn)
{
    switch (conn->state) {
    case TTI_BOOT_CONN_STRANGER:
        return conn->frame.type == TTI_BOOT_SEEK;
    case TTI_BOOT_CONN_CALLED:
        return conn->frame.type == TTI_BOOT_PROOF;
    case TTI_BOOT_CONN_JOINED:
        return conn->frame.type == TTI_BOOT_PLACE && conn->rank == 0;
    default:
        return false;
    }
}

static void desk_frame(struct tti_boot_conn *conn)
{
    struct desk_entry *entry = desk_find(conn->door);
    if (!entry)
        desk_drop(conn, NULL);
    else if (conn->frame.type == TTI_BOOT_PLACE)
        desk_learn(entry, conn);
    else if (conn->frame.type == TTI_BOOT_SEEK) {
        if (tti_boot_conn_challenge(conn, entry->secret, TTI_BOOT_DESK, tti_desk_host()) !=
            TUTTI_OK)
            desk_drop(conn, tti_error_text());
    } else if (tti_boot_conn_proves(conn, entry->secret, TTI_BOOT_SEEKER)) {
        desk_admit(entry, conn);
    } else {
        desk_drop(conn, "it does not know the id's secret");
    }
}

/* Everything that it has to say; its frames fit into its own small room. */
static void desk_read(void *owner, struct tti_boot_conn *conn)
{
    (void)owner;
    pthread_mutex_lock(&desk.lock);
    while (conn->fd >= 0) {
        const enum tti_boot_input input = tti_boot_conn_read(conn);
        if (input == TTI_BOOT_INPUT_MORE)
            break;
        if (input == TTI_BOOT_INPUT_FRAME)
            desk_frame(conn);
        else if (input == TTI_BOOT_INPUT_CLOSED)
            desk_drop(conn, NULL);
        else if (input == TTI_BOOT_INPUT_WRONG)
            desk_drop(conn, tti_error_text());
        else if (!desk_expects(conn))
            desk_drop(conn, "it sent a frame out of turn");
    }
    pthread_mutex_unlock(&desk.lock);
}

/* ---- the thread ----------------------------------------------------------------------------- */

/* The doors as they are now. */
struct desk_doors {
    int *fds; /* the first is the one that wakes */
    size_t fd_capacity;
    uint64_t *numbers;
    size_t number_capacity;
    size_t count;
};

static enum tutti_result doors_add(struct desk_doors *doors, int fd, uint64_t number)
{
    void *fds = doors->fds, *numbers = doors->numbers;
    TTI_TRY(tti_grow(&fds, &doors->fd_capacity, doors->count + 1, sizeof *doors->fds));
    doors->fds = fds;
    TTI_TRY(tti_grow(&numbers, &doors->number_capacity, doors->count + 1, sizeof *doors->numbers));
    doors->numbers = numbers;
    doors->fds[doors->count] = fd;
    doors->numbers[doors->count++] = number;
    return TUTTI_OK;
}

/* Under the lock. */
static enum tutti_result doors_look(struct desk_doors *doors)
{
    doors->count = 0;
    TTI_TRY(doors_add(doors, desk.wake_fd, 0));
    for (const struct desk_entry *entry = desk.entries; entry; entry = entry->next)
        if (entry->listen_fd >= 0)
            TTI_TRY(doors_add(doors, entry->listen_fd, entry->number));
    return TUTTI_OK;
}

/* Nobody is left whom the thread answers. Under the lock. */
static void desk_drop_all(struct tti_boot_crowd *crowd)
{
    for (size_t i = 0; i < crowd->count; i++)
        if (crowd->conns[i]->fd >= 0)
            desk_drop(crowd->conns[i], NULL);
}

/* One look at everything; false: it is over, and the thread takes the lock no more, since it may be
 * joined under it from then on. */
static bool desk_turn(struct tti_boot_crowd *crowd, struct desk_doors *doors)
{
    uint64_t next = UINT64_MAX, wakes = 0;
    pthread_mutex_lock(&desk.lock);
    bool goes_on = desk_expire(&next) && !desk.stop;
    for (size_t i = 0; i < crowd->count; i++)
        if (crowd->conns[i]->fd >= 0 && crowd->conns[i]->state == TTI_BOOT_CONN_JOINED)
            desk_serve(crowd->conns[i]);
    if (goes_on && doors_look(doors) != TUTTI_OK)
        TTI_LOG(TTI_LOG_WARN, "bootstrap: %s", tti_error_text());
    goes_on = goes_on && doors->count > 0;
    if (!goes_on)
        desk_drop_all(crowd);
    desk.runs = goes_on;
    pthread_mutex_unlock(&desk.lock);
    if (!goes_on)
        return false;
    next = tti_boot_crowd_sweep(crowd, tti_now_ns(), next);
    if (tti_boot_crowd_turn(crowd, doors->fds, doors->count, next, desk_read, NULL) != TUTTI_OK) {
        TTI_LOG(TTI_LOG_ERROR, "bootstrap: %s", tti_error_text());
        (void)poll(NULL, 0, 1000); /* no memory: later, perhaps */
        return true;
    }
    if (crowd->polls[0].revents && read(doors->fds[0], &wakes, sizeof wakes) < 0)
        TTI_LOG(TTI_LOG_DEBUG, "bootstrap: woken without a reason");
    for (size_t i = 1; i < doors->count; i++)
        if (crowd->polls[i].revents)
            tti_boot_crowd_accept(crowd, doors->fds[i], doors->numbers[i], DESK_STRANGERS);
    return true;
}

static void *desk_main(void *argument)
{
    struct tti_boot_crowd crowd = {0};
    struct desk_doors doors = {0};
    (void)argument;
    while (desk_turn(&crowd, &doors))
        ;
    tti_boot_crowd_end(&crowd);
    free(doors.fds);
    free(doors.numbers);
    return NULL;
}

static void desk_wake(void)
{
    const uint64_t one = 1;
    if (desk.wake_fd >= 0 && write(desk.wake_fd, &one, sizeof one) < 0)
        TTI_LOG(TTI_LOG_DEBUG, "bootstrap: the desk is awake");
}

/* Under the lock. The thread takes no signals: they belong to the program. */
static enum tutti_result desk_start(void)
{
    sigset_t all, before;
    if (desk.runs) {
        desk_wake();
        return TUTTI_OK;
    }
    if (desk.joinable) /* it has nothing left to do */
        pthread_join(desk.thread, NULL);
    desk.joinable = false;
    if (desk.wake_fd < 0)
        desk.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (desk.wake_fd < 0)
        return TTI_FAIL_ERRNO("eventfd for the desk of ids");
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&desk.thread, NULL, desk_main, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return TTI_FAIL(TUTTI_ERR_SYSTEM, "cannot start the thread that answers for ids: %s",
                        strerror(failed));
    desk.joinable = desk.runs = true;
    return TUTTI_OK;
}

/* ---- forks and the end ---------------------------------------------------------------------- */

static void desk_before_fork(void)
{
    pthread_mutex_lock(&desk.lock);
}

static void desk_parent(void)
{
    pthread_mutex_unlock(&desk.lock);
}

static void desk_child(void)
{
    for (struct desk_entry *entry = desk.entries; entry; entry = entry->next) {
        entry->listen_fd = -1; /* closed in every child */
        entry->inherited = true;
        entry->gone = entry->gone || entry->held_fd < 0; /* nothing here can be claimed */
    }
    if (desk.wake_fd >= 0)
        close(desk.wake_fd);
    desk.wake_fd = -1;
    desk.joinable = desk.runs = false;
    pthread_mutex_unlock(&desk.lock);
}

static void desk_begin(void)
{
    (void)pthread_atfork(desk_before_fork, desk_parent, desk_child);
}

/* The library is unloaded, or the process ends: nothing may run in it any more. */
__attribute__((destructor)) static void desk_end(void)
{
    struct timespec until;
    pthread_mutex_lock(&desk.lock);
    const bool joinable = desk.joinable;
    desk.stop = true;
    desk.joinable = false;
    desk_wake();
    pthread_mutex_unlock(&desk.lock);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += END_S;
    if (joinable)
        (void)pthread_timedjoin_np(desk.thread, NULL, &until);
}

/* ---- the owner's side ----------------------------------------------------------------------- */

/* An id without a desk still serves rank 0 on this host. */
static void desk_none(void)
{
    TTI_LOG(TTI_LOG_WARN, "bootstrap: rank 0 of the id must be on this host: %s", tti_error_text());
}

/* Only this host can reach an id of its loopback. */
static bool desk_is_loopback(int fd)
{
    struct sockaddr_storage own = {0};
    socklen_t bytes = sizeof own;
    if (getsockname(fd, (struct sockaddr *)&own, &bytes) != 0)
        return false;
    return tti_socket_is_loopback((struct sockaddr *)&own);
}

enum tutti_result tti_desk_add(struct tti_meeting *meeting, int held_fd, bool anywhere)
{
    struct desk_entry *made = tti_calloc(1, sizeof *made);
    if (!made)
        return TUTTI_ERR_MEMORY;
    made->held_fd = made->listen_fd = -1;
    made->until = UINT64_MAX;
    memcpy(made->secret, meeting->secret, sizeof made->secret);
    made->held_fd = held_fd;
    uint16_t port = 0;
    if (anywhere && !desk_is_loopback(held_fd) &&
        tti_socket_listen(meeting->host, 0, 1, &made->listen_fd, &port) != TUTTI_OK)
        desk_none();
    (void)tti_keep_from_children(made->listen_fd);
    pthread_once(&desk_once, desk_begin);
    pthread_mutex_lock(&desk.lock);
    made->number = ++desk.numbers;
    made->next = desk.entries;
    desk.entries = made;
    if (made->listen_fd >= 0 && desk_start() != TUTTI_OK) {
        desk_none();
        close(made->listen_fd);
        made->listen_fd = -1;
    }
    meeting->desk = made->listen_fd >= 0 ? port : 0;
    pthread_mutex_unlock(&desk.lock);
    return TUTTI_OK;
}

/* The entry of that secret in the list, under the lock; *link is NULL if there is none. */
static struct desk_entry **desk_held(const uint8_t secret[static TTI_SECRET_BYTES])
{
    struct desk_entry **link = &desk.entries;
    while (*link &&
           ((*link)->held_fd < 0 || sodium_memcmp((*link)->secret, secret, TTI_SECRET_BYTES) != 0))
        link = &(*link)->next;
    return link;
}

/* At once, or by the thread that listens for it. Under the lock. */
static void desk_let_go(struct desk_entry **link)
{
    struct desk_entry *entry = *link;
    entry->gone = true;
    if (entry->listen_fd < 0) {
        *link = entry->next;
        desk_free(entry);
    } else {
        desk_wake();
    }
}

enum tutti_result tti_desk_claim(const uint8_t secret[static TTI_SECRET_BYTES], int *fd,
                                 bool *alone)
{
    enum tutti_result result = TUTTI_OK;
    pthread_mutex_lock(&desk.lock);
    struct desk_entry **link = desk_held(secret), *entry = *link;
    if (entry) {
        /* First listen, then send away who waits. */
        result = tti_socket_begin(entry->held_fd);
        if (result == TUTTI_OK) {
            *fd = entry->held_fd;
            *alone = !entry->inherited;
            entry->held_fd = -1;
        }
        desk_let_go(link);
    }
    pthread_mutex_unlock(&desk.lock);
    return result;
}

void tti_desk_forget(const uint8_t secret[static TTI_SECRET_BYTES])
{
    pthread_mutex_lock(&desk.lock);
    struct desk_entry **link = desk_held(secret);
    if (*link)
        desk_let_go(link);
    pthread_mutex_unlock(&desk.lock);
}
