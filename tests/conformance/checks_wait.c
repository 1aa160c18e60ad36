/* Checks: sleeping. A sleeper is woken by whatever it waits for, and only for a reason. */
#include "tests/awake.h"
#include "tests/conformance/exchange.h"

#include <string.h>

/* Wait for the next message asleep, as the library does when it has spun long enough. */
static void wait_asleep(struct conf_rank *me, int lane, uint64_t tag, size_t bytes)
{
    bool woken = true;
    for (;;) {
        uint64_t got = 0;
        const void *data = NULL;
        size_t ready = 0;
        CONF_OK(me, me->ops->progress(me->transport));
        CONF_OK(me, me->ops->peek(me->endpoints[!me->rank], lane, &got, &data, &ready));
        if (ready) {
            CONF_REQUIRE(me, woken, "message %llu was there, but nothing woke us for 20 s",
                         (unsigned long long)tag);
            conf_take_message(me, !me->rank, lane, tag, bytes);
            return;
        }
        woken = conf_sleep(me, CONF_ASLEEP_MS);
        conf_watch(me, "waiting asleep");
    }
}

/* Ping-pong where both sides sleep every time: a wake-up lost once in thousands shows. */
static void wait_ping_pong(struct conf_rank *me)
{
    unsigned char message[64];
    conf_all(me);
    for (uint64_t i = 0; i < 5000; i++) {
        int lane = (int)(i % CONF_LANES);
        size_t bytes = 1 + i % sizeof message;
        if (me->rank == 0)
            conf_send_message(me, 1, lane, i, message, bytes);
        wait_asleep(me, lane, i, bytes);
        if (me->rank == 1)
            conf_send_message(me, 0, lane, i, message, bytes);
    }
    conf_barrier(me);
    conf_close(me);
}

/* The sender sleeps until there is room or until its memory is released. */
static void wait_for_room(struct conf_rank *me)
{
    enum { ROOM_BYTES = 100000, ROOM_MESSAGES = 300 };
    unsigned char *block = conf_memory(me, ROOM_BYTES, false);
    conf_all(me);
    for (uint64_t i = 0; i < ROOM_MESSAGES && me->rank == 1; i++)
        conf_take_message(me, 0, 0, 9, ROOM_BYTES);
    conf_fill(9, 0, block, ROOM_BYTES);
    uint64_t total = 0, all = me->rank == 0 ? (uint64_t)ROOM_BYTES * ROOM_MESSAGES : 0;
    bool woken = true;
    while (me->ops->released(me->endpoints[!me->rank], 0) < all) {
        size_t accepted = 0, offset = total % ROOM_BYTES;
        uint64_t released = me->ops->released(me->endpoints[1], 0);
        CONF_OK(me, me->ops->progress(me->transport));
        if (total < all)
            CONF_OK(me, me->ops->send(me->endpoints[1], 0, 9, block + offset, ROOM_BYTES - offset,
                                      &accepted));
        total += accepted;
        bool moved = accepted || me->ops->released(me->endpoints[1], 0) != released;
        CONF_REQUIRE(me, woken || !moved, "room was there, but nothing woke us for 20 s");
        woken = moved || me->ops->released(me->endpoints[1], 0) >= all ||
                conf_sleep(me, CONF_ASLEEP_MS);
        conf_watch(me, "waiting for room");
    }
    conf_barrier(me);
    conf_close(me);
}

/* Nothing happens: the descriptor must be quiet. Then something does: it must speak. */
static void wait_quiet(struct conf_rank *me)
{
    unsigned char message[8];
    conf_all(me);
    conf_barrier(me);
    int loud = 0;
    for (int i = 0; i < 10; i++) {
        loud += conf_sleep(me, 20);
        CONF_OK(me, me->ops->progress(me->transport));
    }
    CONF_REQUIRE(me, loud <= 5, "woken %d times of 10 for nothing", loud);
    conf_barrier(me);
    if (me->rank == 0) {
        uint64_t begin = test_awake_ns();
        wait_asleep(me, 0, 3, sizeof message);
        CONF_REQUIRE(me, test_awake_ns() - begin < 1500000000u, "woken late");
    } else {
        (void)conf_sleep(me, 100);
        conf_send_message(me, 0, 0, 3, message, sizeof message);
    }
    conf_barrier(me);
    /* A message that is there and that nobody wants must not keep the sleeper awake. */
    if (me->rank == 1)
        conf_send_message(me, 0, 2, 4, message, sizeof message);
    conf_barrier(me);
    loud = 0;
    for (int i = 0; i < 10 && me->rank == 0; i++)
        loud += conf_sleep(me, 20);
    CONF_REQUIRE(me, loud <= 5, "woken %d times of 10 for a message known to be there", loud);
    if (me->rank == 0)
        conf_take_message(me, 1, 2, 4, sizeof message);
    conf_barrier(me);
    conf_close(me);
}

/* What came after the last look but before arm must not be slept through. */
static void wait_come_before(struct conf_rank *me)
{
    unsigned char message[20];
    conf_all(me);
    for (uint64_t i = 0; i < 20; i++) {
        uint64_t tag = 0;
        const void *data = NULL;
        size_t ready = 0;
        if (me->rank == 0) {
            CONF_OK(me, me->ops->peek(me->endpoints[1], 0, &tag, &data, &ready));
            CONF_REQUIRE(me, ready == 0, "%zu bytes that nobody has sent", ready);
        }
        conf_barrier(me);
        if (me->rank == 1)
            conf_send_message(me, 0, 0, i, message, sizeof message);
        conf_barrier(me);
        if (me->rank == 0) {
            CONF_REQUIRE(me, conf_sleep(me, CONF_ASLEEP_MS),
                         "a message came before arm; slept for 20 s");
            conf_take_message(me, 1, 0, i, sizeof message);
        }
        conf_barrier(me);
    }
    conf_close(me);
}

/* ---- what the caller was not told of yet --------------------------------------------------------
 */

enum { TOLD_BYTES = 200000 };

/* Offer fragments until the lane takes no more; returns how many bytes it took. */
static uint64_t told_fill(struct conf_rank *me, const unsigned char *data, size_t bytes)
{
    uint64_t sent = 0;
    size_t accepted = 1;
    while (accepted > 0) {
        CONF_OK(me, me->ops->send(me->endpoints[1], 0, 6, data, bytes, &accepted));
        sent += accepted;
        conf_watch(me, "filling a lane");
    }
    return sent;
}

/* ... and until that is so, and arm has nothing to tell. */
static uint64_t told_fill_quietly(struct conf_rank *me, const unsigned char *data, size_t bytes)
{
    uint64_t sent = 0, more = 0;
    bool quiet = false;
    while (more > 0 || !quiet) {
        more = told_fill(me, data, bytes);
        sent += more;
        quiet = me->ops->arm(me->transport);
        me->ops->disarm(me->transport);
    }
    return sent;
}

/* Rank 1 takes what rank 0 has sent; rank 0 knows of nothing when it is done. */
static void told_drain(struct conf_rank *me, uint64_t sent)
{
    uint64_t left = conf_share(me, sent);
    while (me->rank == 1 && left > 0) {
        uint64_t tag = 0;
        size_t ready = 0;
        const void *data = NULL;
        CONF_OK(me, me->ops->peek(me->endpoints[0], 0, &tag, &data, &ready));
        CONF_REQUIRE(me, ready <= left, "%zu bytes, and only %llu were to come", ready,
                     (unsigned long long)left);
        if (ready > 0)
            me->ops->consume(me->endpoints[0], 0, ready);
        else
            conf_turn(me);
        left -= ready;
        conf_watch(me, "draining a lane");
    }
    conf_barrier(me);
}

/* Room that came to be after a refusal, and memory that came back while room was asked for, are
 * news: the transport has heard of them, the caller has not. */
static void wait_told(struct conf_rank *me)
{
    unsigned char *data[2] = {conf_memory(me, TOLD_BYTES, false),
                              conf_memory(me, TOLD_BYTES, true)};
    conf_all(me);
    for (int i = 0; i < 8; i++) {
        const unsigned char *from = data[i % 2];
        const size_t bytes = i & 2 ? 100 : TOLD_BYTES;
        told_drain(me, me->rank == 0 ? told_fill_quietly(me, from, bytes) : 0);
        if (me->rank == 0) {
            (void)me->ops->released(me->endpoints[1], 0);
            CONF_REQUIRE(me, conf_sleep(me, CONF_ASLEEP_MS),
                         "there is room since we were refused; slept for 20 s");
        }
        const uint64_t sent = me->rank == 0 ? told_fill_quietly(me, from, bytes) : 0;
        const uint64_t told = me->rank == 0 ? me->ops->released(me->endpoints[1], 0) : 0;
        told_drain(me, sent);
        size_t more = 0;
        if (me->rank == 0) {
            CONF_OK(me, me->ops->send(me->endpoints[1], 0, 6, from, bytes, &more));
            const bool woken = conf_sleep(me, 100);
            const uint64_t now = me->ops->released(me->endpoints[1], 0);
            CONF_REQUIRE(me, now - told <= more || woken, /* of what it sends it knows itself */
                         "%llu bytes are released since we asked: not told",
                         (unsigned long long)(now - told));
        }
        told_drain(me, more);
    }
    conf_close(me);
}

const struct conf_check conf_checks_wait[] = {
    {"told_before_sleeping", 2, 0, wait_told}, {"sleeping_ping_pong", 2, 0, wait_ping_pong},
    {"sleeping_sender", 2, 0, wait_for_room},  {"come_before_arm", 2, 0, wait_come_before},
    {"quiet_when_idle", 2, 0, wait_quiet},     {NULL, 0, 0, NULL},
};
