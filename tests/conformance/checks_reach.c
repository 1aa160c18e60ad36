/* Checks: memory that the peer reads and writes itself (offer, map, unmap, withdraw). */
#include "tests/awake.h"
#include "tests/conformance/exchange.h"

#include "device/memory.h"

#include <poll.h>
#include <signal.h>
#include <string.h>

enum { REACH_BYTES = 200000, REACH_ROUNDS = 20, REACH_TAG = 77 };

/* ---- places, as messages -------------------------------------------------------------------- */

static void reach_tell(struct conf_rank *me, int peer, const struct tutti_place *place)
{
    size_t sent = 0;
    while (sent < sizeof *place) {
        size_t accepted = 0;
        CONF_OK(me, me->ops->send(me->endpoints[peer], 0, REACH_TAG, (const char *)place + sent,
                                  sizeof *place - sent, &accepted));
        sent += accepted;
        conf_watch(me, "room for a place");
    }
}

static void reach_hear(struct conf_rank *me, int peer, struct tutti_place *place)
{
    size_t taken = 0;
    while (taken < sizeof *place) {
        const void *data = NULL;
        size_t bytes = 0;
        uint64_t tag = 0;
        CONF_OK(me, me->ops->peek(me->endpoints[peer], 0, &tag, &data, &bytes));
        if (bytes == 0) {
            conf_turn(me);
            conf_watch(me, "the place of a peer's memory");
            continue;
        }
        CONF_REQUIRE(me, tag == REACH_TAG && bytes <= sizeof *place - taken, "not a place");
        memcpy((char *)place + taken, data, bytes);
        me->ops->consume(me->endpoints[peer], 0, bytes);
        taken += bytes;
    }
}

static void reach_offer(struct conf_rank *me, int peer, const void *data, size_t bytes)
{
    struct tutti_place place = {0, 0};
    CONF_REQUIRE(me, me->ops->offer(me->endpoints[peer], data, bytes, &place),
                 "memory of the library cannot be offered");
    reach_tell(me, peer, &place);
}

static unsigned char *reach_map(struct conf_rank *me, int peer, size_t bytes)
{
    struct tutti_place place;
    void *address = NULL;
    reach_hear(me, peer, &place);
    CONF_OK(me, me->ops->map(me->endpoints[peer], &place, bytes, &address));
    return address;
}

/* ---- the checks ----------------------------------------------------------------------------- */

/* Everybody writes its part of everybody's memory; two ranges of a peer are mapped at a time. */
static void reach_exchange(struct conf_rank *me)
{
    size_t part = REACH_BYTES / (size_t)me->nranks;
    conf_all(me);
    for (int round = 0; round < REACH_ROUNDS; round++) {
        size_t skew = (size_t)round * 13 % 61;
        unsigned char *in = conf_memory(me, REACH_BYTES + 64, true);
        unsigned char *out = conf_memory(me, REACH_BYTES + 64, true);
        conf_fill((uint64_t)me->rank, 0, in + skew, REACH_BYTES);
        for (int p = 0; p < me->nranks; p++)
            if (p != me->rank) {
                reach_offer(me, p, in + skew, REACH_BYTES);
                reach_offer(me, p, out + skew, REACH_BYTES);
            }
        for (int p = 0; p < me->nranks; p++) {
            if (p == me->rank)
                continue;
            const unsigned char *theirs = reach_map(me, p, REACH_BYTES);
            unsigned char *into = reach_map(me, p, REACH_BYTES);
            CONF_REQUIRE(me, conf_compare((uint64_t)p, 0, theirs, REACH_BYTES) == SIZE_MAX,
                         "round %d: the memory of rank %d reads wrong", round, p);
            conf_fill((uint64_t)(100 + me->rank), 0, into + (size_t)me->rank * part, part);
            me->ops->unmap(me->endpoints[p]);
        }
        conf_barrier(me);
        for (int p = 0; p < me->nranks; p++)
            CONF_REQUIRE(me,
                         p == me->rank ||
                             conf_compare((uint64_t)(100 + p), 0, out + skew + (size_t)p * part,
                                          part) == SIZE_MAX,
                         "round %d: what rank %d wrote is not here", round, p);
        conf_free(me, in); /* and other memory may come to these addresses */
        if (round % 2)
            conf_free(me, out);
    }
    conf_barrier(me);
    conf_close(me);
}

/* Whether memory that is none of the library's will do is the transport's affair; it must say. */
static void reach_plain(struct conf_rank *me)
{
    const struct tutti_place untouched = {7, 9};
    struct tutti_place place = untouched;
    void *address = NULL;
    unsigned char *plain = conf_memory(me, REACH_BYTES, false);
    conf_all(me);
    conf_fill((uint64_t)me->rank, 0, plain, REACH_BYTES);
    bool offered = me->ops->offer(me->endpoints[!me->rank], plain, REACH_BYTES, &place);
    CONF_REQUIRE(me, offered || memcmp(&place, &untouched, sizeof place) == 0,
                 "a place was written though there is none");
    if (offered) {
        reach_tell(me, !me->rank, &place);
        reach_hear(me, !me->rank, &place);
        CONF_OK(me, me->ops->map(me->endpoints[!me->rank], &place, REACH_BYTES, &address));
        CONF_REQUIRE(me, conf_compare((uint64_t)!me->rank, 0, address, REACH_BYTES) == SIZE_MAX,
                     "plain memory reads wrong");
        me->ops->unmap(me->endpoints[!me->rank]);
    }
    conf_barrier(me);
    conf_close(me);
}

/* Withdrawing waits for a peer that is at work, and keeps it out afterwards. */
static void reach_withdrawn(struct conf_rank *me)
{
    enum { WORK_MS = 100 };
    unsigned char *block = conf_memory(me, REACH_BYTES, true), *copy;
    struct tutti_place place;
    void *address = NULL;
    conf_all(me);
    if (me->rank == 0) {
        memset(block, 0, REACH_BYTES);
        reach_offer(me, 1, block, REACH_BYTES);
        reach_offer(me, 1, block, REACH_BYTES);
        conf_barrier(me);
        CONF_OK(me, me->ops->withdraw(me->endpoints[1], CONF_ASLEEP_MS));
        copy = conf_memory(me, REACH_BYTES, false);
        memcpy(copy, block, REACH_BYTES);
        CONF_REQUIRE(me, block[0] > 0, "the peer's last word before it let go is not here");
        conf_barrier(me);
        conf_barrier(me);
        CONF_REQUIRE(me, memcmp(copy, block, REACH_BYTES) == 0, "changed after it was withdrawn");
    } else {
        unsigned char *theirs = reach_map(me, 0, REACH_BYTES);
        uint64_t until = tti_deadline_in(WORK_MS / 1e3);
        int value = 1;
        conf_barrier(me);
        do {
            memset(theirs, value, REACH_BYTES);
            value = value % 255 + 1;
        } while (!tti_deadline_passed(until));
        me->ops->unmap(me->endpoints[0]);
        conf_barrier(me);
        reach_hear(me, 0, &place);
        enum tutti_result result = me->ops->map(me->endpoints[0], &place, REACH_BYTES, &address);
        CONF_REQUIRE(me, result == TUTTI_ERR_PEER, "mapping what was withdrawn gave %d",
                     (int)result);
        conf_barrier(me);
    }
    conf_barrier(me);
    conf_close(me);
}

/* A peer that does not let go: it is cut off, or withdrawing says that it may still write. */
static void reach_cut_off(struct conf_rank *me)
{
    enum { SHORT_MS = 50 };
    unsigned char *block = conf_memory(me, REACH_BYTES, true);
    conf_all(me);
    if (me->rank == 0) {
        conf_fill(1, 0, block, REACH_BYTES);
        reach_offer(me, 1, block, REACH_BYTES);
        conf_barrier(me);
        uint64_t begin = test_awake_ns();
        enum tutti_result result = me->ops->withdraw(me->endpoints[1], SHORT_MS);
        CONF_REQUIRE(me, result == TUTTI_OK || result == TUTTI_ERR_TIMEOUT, "withdrawing gave %d",
                     (int)result);
        CONF_REQUIRE(me, test_awake_ns() - begin < 2000000000u, "withdrawing took more than 2 s");
        conf_barrier(me); /* now the peer writes */
        conf_barrier(me);
        CONF_REQUIRE(me, result != TUTTI_OK || conf_compare(1, 0, block, REACH_BYTES) == SIZE_MAX,
                     "a store of a peer that was cut off shows");
        memset(block, 5, REACH_BYTES); /* it is ours as before */
        conf_free(me, block);
    } else {
        unsigned char *theirs = reach_map(me, 0, REACH_BYTES);
        conf_barrier(me);
        conf_barrier(me);
        memset(theirs, 0xee, REACH_BYTES);
        me->ops->unmap(me->endpoints[0]);
        conf_barrier(me);
    }
    conf_barrier(me);
    conf_close(me);
}

/* A peer that died with the memory mapped need not be waited for. */
static void reach_dead(struct conf_rank *me)
{
    unsigned char *block = conf_memory(me, REACH_BYTES, true);
    conf_all(me);
    if (me->rank == 0) {
        (void)reach_map(me, 1, REACH_BYTES);
        conf_barrier(me);
        raise(SIGKILL);
    }
    reach_offer(me, 0, block, REACH_BYTES);
    conf_barrier(me);
    uint64_t begin = test_awake_ns();
    CONF_OK(me, me->ops->withdraw(me->endpoints[0], 20000));
    CONF_REQUIRE(me, test_awake_ns() - begin < 5000000000u, "waited for a dead peer");
    conf_close(me);
}

const struct conf_check conf_checks_reach[] = {
    {"map_exchange", 3, CONF_MAPS, reach_exchange},
    {"map_plain_memory", 2, CONF_MAPS, reach_plain},
    {"map_withdrawn", 2, CONF_MAPS, reach_withdrawn},
    {"map_cut_off", 2, CONF_MAPS, reach_cut_off},
    {"map_peer_killed", 2, CONF_MAPS | CONF_PROCESSES | CONF_RANK_0_DIES, reach_dead},
    {NULL, 0, 0, NULL},
};
