/* Checks: how it ends. What was sent before a peer left is still read; then an error names it. */
#include "base/clock.h"
#include "tests/awake.h"
#include "tests/conformance/exchange.h"
#include "transport/registry.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    END_MESSAGES = 40,
    END_MOST = 150000,
    END_BYTES = 1 << 20,
    END_WITHIN_MS = 2000,
    END_FLUSH_MS = 1000
};

/* Sizes for every way that a transport may carry: most are small, some are not. */
static size_t end_size(int message)
{
    static const size_t sizes[] = {1, 40, 100, 5000, 40000, END_MOST};
    return sizes[message % 6] - (size_t)(message % 6 ? message / 6 : 0);
}

/* Half of them from memory that peers can map. */
static void end_send_some(struct conf_rank *me)
{
    unsigned char *block[2];
    for (int i = 0; i < 2; i++)
        block[i] = conf_memory(me, (size_t)END_MESSAGES * END_MOST, i == 1);
    for (int i = 0; i < END_MESSAGES; i++)
        conf_send_message(me, 1, i % CONF_LANES, (uint64_t)i,
                          block[i / 6 % 2] + (size_t)i * END_MOST, end_size(i));
}

/* Since when, and how long of that the process has stood still. */
struct end_since {
    uint64_t begin, awake;
};
static struct end_since end_now(void)
{
    return (struct end_since){tti_now_ns(), test_awake_ns()};
}
static uint64_t end_stood_ns(const struct end_since *since)
{
    return tti_now_ns() - since->begin - (test_awake_ns() - since->awake);
}

/* All of it; less (false) only for who stood still for most of the second that a close may take,
 * counted from before the peer closed. */
static bool end_take_some(struct conf_rank *me, const struct end_since *since)
{
    for (int i = 0; i < END_MESSAGES; i++)
        if (!conf_take_unless_gone(me, 0, i % CONF_LANES, (uint64_t)i, end_size(i))) {
            CONF_REQUIRE(me, end_stood_ns(since) >= END_FLUSH_MS / 2 * UINT64_C(1000000),
                         "message %d is lost: %s", i, tutti_last_error());
            return false;
        }
    return true;
}

/* When rank 0 went, as far as this rank can tell. Its process may take long to end on a slow
 * machine, so one that dies goes when the kernel says that it has ended: by then its connections
 * have, too. One that only closes has gone when its last message is read. */
struct end_watch {
    int process;      /* readable once it has ended; -1: it closes, or the kernel does not tell */
    bool gone;        /* so it is known, ... */
    uint64_t gone_ns; /* ... since then, by the clock that stands still while this process does */
};

static void end_note(struct end_watch *watch)
{
    if (!watch->gone)
        watch->gone_ns = test_awake_ns();
    watch->gone = true;
}

static struct end_watch end_begin(const struct conf_rank *me, bool dies)
{
    struct end_watch watch = {.process = -1};
    if (dies)
        watch.process = (int)syscall(SYS_pidfd_open, (pid_t)me->peers[0].pid, 0);
    if (watch.process < 0)
        end_note(&watch);
    return watch;
}

static void end_look(struct end_watch *watch)
{
    struct pollfd ended = {.fd = watch->process, .events = POLLIN};
    if (!watch->gone && poll(&ended, 1, 0) > 0)
        end_note(watch);
}

/* As conf_sleep; rank 0's end is noted meanwhile, and does not wake us. */
static void end_sleep(struct conf_rank *me, struct end_watch *watch)
{
    if (me->ops->arm(me->transport)) {
        struct pollfd fds[2] = {{.fd = me->ops->fd(me->transport), .events = POLLIN},
                                {.fd = watch->gone ? -1 : watch->process, .events = POLLIN}};
        while (poll(fds, 2, END_WITHIN_MS) > 0 && !fds[0].revents) {
            end_note(watch);
            fds[1].fd = -1;
        }
    }
    me->ops->disarm(me->transport);
}

/* What peek says of rank 0; not OK at last, and within two seconds. */
static enum tutti_result end_await_error(struct conf_rank *me, struct end_watch *watch, bool asleep)
{
    for (;;) {
        uint64_t tag = 0;
        const void *data = NULL;
        size_t bytes = 0;
        enum tutti_result result = me->ops->progress(me->transport);
        if (result == TUTTI_OK)
            result = me->ops->peek(me->endpoints[0], 0, &tag, &data, &bytes);
        CONF_REQUIRE(me, result != TUTTI_OK || bytes == 0, "bytes that nobody has sent");
        const uint64_t since_ns = watch->gone ? test_awake_ns() - watch->gone_ns : 0;
        CONF_REQUIRE(me, since_ns < END_WITHIN_MS * UINT64_C(1000000), "rank 0 is gone for 2 s %s",
                     result == TUTTI_OK ? "and nobody says so" : "until somebody says so");
        if (result != TUTTI_OK)
            return result;
        conf_watch(me, "waiting for rank 0's end");
        end_look(watch);
        if (asleep)
            end_sleep(me, watch);
    }
}

/* Rank 0 goes: peek and send must say so, by name. */
static void end_expect_error(struct conf_rank *me, bool dies, bool asleep)
{
    char text[1100] = "";
    struct end_watch watch = end_begin(me, dies);
    enum tutti_result result = end_await_error(me, &watch, asleep);
    snprintf(text, sizeof text, "%s", tutti_last_error());
    if (watch.process >= 0)
        close(watch.process);
    CONF_REQUIRE(me, result == TUTTI_ERR_PEER || result == TUTTI_ERR_LINK,
                 "the loss of a peer gave %d: %s", (int)result, text);
    CONF_REQUIRE(me, strstr(text, "rank 0") && strstr(text, me->peer_names[0]),
                 "the error does not name rank 0 (%s): %s", me->peer_names[0], text);
    for (int i = 0; i < 1000; i++) { /* and it stays so; send says so too */
        size_t accepted = 0;
        result = me->ops->send(me->endpoints[0], 0, 1, text, 1, &accepted);
        if (result != TUTTI_OK)
            break;
        (void)conf_sleep(me, 1);
    }
    CONF_REQUIRE(me, result == TUTTI_ERR_PEER || result == TUTTI_ERR_LINK,
                 "sending to a lost peer gave %d", (int)result);
}

static void end_closed(struct conf_rank *me, bool late)
{
    conf_all(me);
    const struct end_since begun = end_now();
    conf_barrier(me); /* both sides know what the other can do */
    if (me->rank == 0) {
        end_send_some(me);
        uint64_t begin = test_awake_ns();
        conf_close(me);
        CONF_REQUIRE(me, test_awake_ns() - begin < 3000000000u, "close took more than 3 s");
    } else {
        if (late)
            (void)poll(NULL, 0, 200);
        if (end_take_some(me, &begun))
            end_expect_error(me, false, !late);
    }
    conf_barrier(me);
    conf_close(me);
}

static void end_peer_closes(struct conf_rank *me)
{
    end_closed(me, false);
}

static void end_peer_closes_late_reader(struct conf_rank *me)
{
    end_closed(me, true);
}

/* A peer that nobody reads from must not hold up close, and must not be read after it. */
static void end_unread(struct conf_rank *me, bool region)
{
    conf_all(me);
    conf_barrier(me);
    if (me->rank == 0) {
        unsigned char *block = conf_memory(me, END_BYTES, region);
        size_t accepted = 0;
        conf_fill(1, 0, block, END_BYTES);
        CONF_OK(me, me->ops->send(me->endpoints[1], 0, 1, block, END_BYTES, &accepted));
        uint64_t begin = test_awake_ns();
        conf_close(me);
        CONF_REQUIRE(me, test_awake_ns() - begin < 3000000000u, "close took more than 3 s");
        memset(block, 0, END_BYTES);
    } else {
        (void)poll(NULL, 0, 1500); /* longer than the second for which close may flush */
    }
    conf_barrier(me);
    size_t taken = 0;
    while (me->rank == 1) { /* what is still given must be right; then there must be an error */
        uint64_t tag = 0;
        const void *data = NULL;
        size_t bytes = 0;
        if (me->ops->progress(me->transport) != TUTTI_OK ||
            me->ops->peek(me->endpoints[0], 0, &tag, &data, &bytes) != TUTTI_OK)
            break;
        CONF_REQUIRE(me, bytes == 0 || conf_compare(1, taken, data, bytes) == SIZE_MAX,
                     "bytes that changed after close");
        if (bytes)
            me->ops->consume(me->endpoints[0], 0, bytes);
        taken += bytes;
        if (!bytes)
            (void)conf_sleep(me, 10);
        conf_watch(me, "waiting for an error");
    }
    conf_barrier(me);
    conf_close(me);
}

static void end_unread_plain(struct conf_rank *me)
{
    end_unread(me, false);
}

static void end_unread_region(struct conf_rank *me)
{
    end_unread(me, true);
}

/* A peer leaves without taking what it was sent: the sender gets its memory back, or is told of
 * whom it waits for in vain. */
static void end_abandoned(struct conf_rank *me, bool region)
{
    tti_transport_abandoned *abandoned = tti_transport_abandons(me->ops);
    uint64_t accepted = 0;
    conf_all(me);
    unsigned char *block = conf_memory(me, END_BYTES, region);
    size_t taken = 0;
    conf_fill(1, 0, block, END_BYTES);
    for (int lane = 0; lane < CONF_LANES && me->rank == 0 && abandoned; lane++)
        CONF_OK(me, tti_transport_lends(me->ops)(me->endpoints[1], lane, 1, block, END_BYTES,
                                                 lane == 1 ? &taken : &(size_t){0}));
    accepted = taken;
    if (me->rank == 0 && abandoned)
        CONF_OK(me, abandoned(me->endpoints[1])); /* it may yet come */
    conf_barrier(me);
    if (me->rank == 1)
        conf_close(me);
    conf_barrier(me);
    while (me->rank == 0 && abandoned && me->ops->released(me->endpoints[1], 1) < accepted) {
        enum tutti_result result = me->ops->progress(me->transport);
        result = result == TUTTI_OK ? abandoned(me->endpoints[1]) : result;
        if (result != TUTTI_OK) {
            CONF_REQUIRE(me, result == TUTTI_ERR_PEER || result == TUTTI_ERR_LINK,
                         "a peer that left unread what it was sent gave %d: %s", (int)result,
                         tutti_last_error());
            CONF_REQUIRE(me, strstr(tutti_last_error(), me->peer_names[1]),
                         "the error does not name rank 1 (%s): %s", me->peer_names[1],
                         tutti_last_error());
            break;
        }
        (void)conf_sleep(me, 10);
        conf_watch(me, "waiting for memory that the peer left unread, or an error");
    }
    conf_barrier(me);
    conf_close(me);
}

static void end_abandoned_plain(struct conf_rank *me)
{
    end_abandoned(me, false);
}

static void end_abandoned_region(struct conf_rank *me)
{
    end_abandoned(me, true);
}

/* Closed while a peer is at what it has sent: the bytes stay what they were, or the transport says
 * that they have not. */
static void end_while_read(struct conf_rank *me, bool region)
{
    const void *data = NULL;
    uint64_t tag = 0;
    size_t bytes = 0, accepted = 0;
    conf_all(me);
    conf_barrier(me);
    unsigned char *block = conf_memory(me, END_BYTES, region);
    conf_fill(1, 0, block, END_BYTES);
    if (me->rank == 0)
        CONF_OK(me, me->ops->send(me->endpoints[1], 0, 1, block, END_BYTES, &accepted));
    while (me->rank == 1 && bytes == 0) {
        CONF_OK(me, me->ops->progress(me->transport));
        CONF_OK(me, me->ops->peek(me->endpoints[0], 0, &tag, &data, &bytes));
        conf_watch(me, "waiting for what rank 0 has sent");
    }
    conf_barrier(me);
    if (me->rank == 0) {
        conf_close(me);
        memset(block, 0, END_BYTES);
    }
    conf_barrier(me);
    if (me->rank == 1 && conf_compare(1, 0, data, bytes) != SIZE_MAX) {
        tti_transport_intact *intact = tti_transport_intacts(me->ops);
        CONF_REQUIRE(me, intact && intact(me->endpoints[0], 0) == TUTTI_ERR_PEER,
                     "bytes that changed while they were read, and nobody says so");
    }
    conf_barrier(me);
    if (me->rank == 1)
        conf_close(me);
}

static void end_while_read_plain(struct conf_rank *me)
{
    end_while_read(me, false);
}

static void end_while_read_region(struct conf_rank *me)
{
    end_while_read(me, true);
}

static void end_killed(struct conf_rank *me, bool asleep)
{
    conf_all(me);
    if (me->rank == 0) {
        unsigned char message[40];
        for (uint64_t i = 0; i < 5; i++)
            conf_send_message(me, 1, 0, i, message, sizeof message);
        conf_barrier(me);
        (void)poll(NULL, 0, 50);
        raise(SIGKILL);
    }
    conf_barrier(me);
    for (uint64_t i = 0; i < 5; i++)
        conf_take_message(me, 0, 0, i, 40);
    end_expect_error(me, true, asleep);
    conf_close(me);
}

static void end_peer_killed(struct conf_rank *me)
{
    end_killed(me, false);
}

static void end_peer_killed_asleep(struct conf_rank *me)
{
    end_killed(me, true);
}

/* Three ranks, one dies: the two others still reach each other. */
static void end_others_go_on(struct conf_rank *me)
{
    unsigned char message[3000];
    conf_all(me);
    conf_barrier(me);
    if (me->rank == 0)
        raise(SIGKILL);
    end_expect_error(me, true, true);
    int other = 3 - me->rank;
    conf_send_message(me, other, 0, 5, message, sizeof message);
    conf_take_message(me, other, 0, 5, sizeof message);
    conf_barrier(me);
    conf_close(me);
}

const struct conf_check conf_checks_end[] = {
    {"peer_closes", 2, 0, end_peer_closes},
    {"peer_closes_late_reader", 2, 0, end_peer_closes_late_reader},
    {"peer_closes_unread", 2, 0, end_unread_plain},
    {"peer_leaves_what_it_was_sent", 2, 0, end_abandoned_plain},
    {"peer_leaves_what_it_was_lent", 2, 0, end_abandoned_region},
    {"peer_closes_unread_region", 2, 0, end_unread_region},
    {"peer_closes_while_read", 2, 0, end_while_read_plain},
    {"peer_closes_while_read_region", 2, 0, end_while_read_region},
    {"peer_killed", 2, CONF_PROCESSES | CONF_RANK_0_DIES, end_peer_killed},
    {"peer_killed_asleep", 2, CONF_PROCESSES | CONF_RANK_0_DIES, end_peer_killed_asleep},
    {"peer_killed_others_go_on", 3, CONF_PROCESSES | CONF_RANK_0_DIES, end_others_go_on},
    {NULL, 0, 0, NULL},
};
