/* Checks: fragments arrive, in order, whole and once, in every size and by every operation. */
#include "tests/conformance/exchange.h"

#include <string.h>

enum { TRAFFIC_SMALL = 300, TRAFFIC_MIXED = 200 * 1024 };

static size_t traffic_small(uint64_t random, int message)
{
    (void)message;
    return 1 + random % TRAFFIC_SMALL;
}

static size_t traffic_mixed(uint64_t random, int message)
{
    (void)message;
    size_t bits = random % 18; /* sizes of all magnitudes */
    return 1 + (random >> 8) %
                   (((size_t)2 << bits) < TRAFFIC_MIXED ? (size_t)2 << bits : TRAFFIC_MIXED);
}

static const size_t traffic_sizes[] = {
    1,      2,      3,      7,      8,      9,       47,      48,      49,      63,      64,
    65,     127,    128,    129,    255,    256,     257,     1023,    1024,    1025,    4095,
    4096,   4097,   8191,   8192,   16321,  32768,   65535,   65536,   65537,   100003,  131071,
    131072, 131073, 262144, 262145, 524288, 1048575, 1048576, 1048577, 2097153, 4194304, 16777216,
};
enum { TRAFFIC_SIZES = sizeof traffic_sizes / sizeof traffic_sizes[0] };

static size_t traffic_listed(uint64_t random, int message)
{
    (void)random;
    return traffic_sizes[message % TRAFFIC_SIZES];
}

static size_t traffic_64k(uint64_t random, int message)
{
    (void)random;
    (void)message;
    return 65536;
}

/* Fewer messages under a sanitizer, which is ten times slower. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { TRAFFIC_SHARE = 8 };
#else
enum { TRAFFIC_SHARE = 1 };
#endif

static void traffic_run(struct conf_rank *me, struct conf_traffic traffic)
{
    conf_all(me);
    conf_exchange(me, &traffic);
    conf_close(me);
}

static void traffic_order(struct conf_rank *me)
{
    traffic_run(me, (struct conf_traffic){.messages = 4000 / TRAFFIC_SHARE,
                                          .lanes = CONF_LANES,
                                          .buffers = 4,
                                          .largest = TRAFFIC_SMALL,
                                          .size = traffic_small});
}

static void traffic_sizes_from(struct conf_rank *me, unsigned how)
{
    traffic_run(me, (struct conf_traffic){.messages = TRAFFIC_SIZES,
                                          .lanes = 1,
                                          .buffers = 2,
                                          .largest = 16777216,
                                          .how = CONF_ONE_WAY | how,
                                          .size = traffic_listed});
}

static void traffic_all_sizes(struct conf_rank *me)
{
    traffic_sizes_from(me, 0);
}

static void traffic_all_sizes_region(struct conf_rank *me)
{
    traffic_sizes_from(me, CONF_REGION);
}

/* Both ways, odd addresses, every way of sending and taking. */
static void traffic_ways(struct conf_rank *me, unsigned how)
{
    conf_all(me);
    static const unsigned takes[] = {0, CONF_PARTIAL, CONF_RECEIVE};
    for (int i = 0; i < 3; i++) {
        if (takes[i] == CONF_RECEIVE && !me->ops->receive)
            continue;
        struct conf_traffic traffic = {.messages = 120 / TRAFFIC_SHARE,
                                       .lanes = 2,
                                       .buffers = 3,
                                       .largest = TRAFFIC_MIXED,
                                       .skew = i == 0 ? 0 : (size_t)i * 8 + (i == 2),
                                       .how = how | takes[i],
                                       .size = traffic_mixed};
        conf_exchange(me, &traffic);
    }
    conf_close(me);
}

static void traffic_send(struct conf_rank *me)
{
    traffic_ways(me, 0);
}

static void traffic_send_region(struct conf_rank *me)
{
    traffic_ways(me, CONF_REGION);
}

static void traffic_lend_region(struct conf_rank *me)
{
    traffic_ways(me, CONF_REGION | CONF_LEND);
}

/* Regions come and go, and new ones may lie where old ones were. */
static void traffic_regions_go(struct conf_rank *me)
{
    enum { REGION_ROUNDS = 20, REGION_BYTES = 300000 };
    int mappings = 0;
    conf_all(me);
    for (uint64_t i = 0; i < REGION_ROUNDS; i++) {
        void *block = conf_memory(me, REGION_BYTES, true);
        for (int sender = 0; sender < 2; sender++) /* one at a time: buffers may be small */
            if (me->rank == sender)
                conf_send_message(me, !me->rank, (int)(i % CONF_LANES), i, block, REGION_BYTES);
            else
                conf_take_message(me, !me->rank, (int)(i % CONF_LANES), i, REGION_BYTES);
        conf_barrier(me);
        conf_free(me, block);
        CONF_OK(me, me->ops->progress(me->transport));
        conf_barrier(me);
        if (i == 2)
            mappings = conf_shared_mappings();
    }
    CONF_REQUIRE(me, me->threads || conf_shared_mappings() <= mappings + 3,
                 "regions that are gone stay mapped: %d mappings became %d", mappings,
                 conf_shared_mappings());
    conf_close(me);
}

static void traffic_reserve(struct conf_rank *me)
{
    traffic_ways(me, CONF_RESERVE);
}

static void traffic_slow(struct conf_rank *me)
{
    traffic_run(me, (struct conf_traffic){.messages = 100 / TRAFFIC_SHARE,
                                          .lanes = CONF_LANES,
                                          .buffers = 4,
                                          .largest = TRAFFIC_MIXED,
                                          .how = CONF_SLOW | CONF_PARTIAL,
                                          .size = traffic_mixed});
}

static void traffic_all_to_all(struct conf_rank *me)
{
    traffic_run(me, (struct conf_traffic){.messages = 64 / TRAFFIC_SHARE,
                                          .lanes = 2,
                                          .buffers = 2,
                                          .largest = TRAFFIC_MIXED,
                                          .how = CONF_SLEEP,
                                          .size = traffic_mixed});
}

static void traffic_stream(struct conf_rank *me)
{
    traffic_run(me, (struct conf_traffic){.messages = 800 / TRAFFIC_SHARE,
                                          .lanes = 1,
                                          .buffers = 4,
                                          .largest = 65536,
                                          .how = CONF_SLEEP,
                                          .size = traffic_64k});
}

/* ---- back-pressure -------------------------------------------------------------------------- */

enum { FLOOD_BYTES = 4096, FLOOD_MOST = 256 << 20, FLOOD_TAG = 1000, FLOOD_END = 7 };

/* Send until nothing is accepted for a while; returns how many bytes went. */
static uint64_t traffic_fill_lane(struct conf_rank *me, int lane, const unsigned char *block)
{
    uint64_t sent = 0;
    for (int refused = 0; refused < 200;) {
        size_t offset = sent % FLOOD_BYTES, accepted = 0;
        CONF_OK(me, me->ops->send(me->endpoints[!me->rank], lane, FLOOD_TAG, block + offset,
                                  FLOOD_BYTES - offset, &accepted));
        CONF_REQUIRE(me, accepted <= FLOOD_BYTES - offset, "accepted %zu bytes", accepted);
        sent += accepted;
        CONF_REQUIRE(me, sent < FLOOD_MOST, "%d MiB accepted that nobody takes", FLOOD_MOST >> 20);
        refused = accepted ? 0 : refused + 1;
        if (!accepted)
            conf_turn(me);
        conf_watch(me, "filling a lane");
    }
    return sent;
}

/* Take what fills a lane, up to its end mark; returns how many bytes came. */
static uint64_t traffic_drain_lane(struct conf_rank *me, int lane, const unsigned char *block)
{
    uint64_t taken = 0;
    for (;;) {
        uint64_t tag = 0;
        const void *data = NULL;
        size_t bytes = 0;
        CONF_OK(me, me->ops->peek(me->endpoints[!me->rank], lane, &tag, &data, &bytes));
        if (bytes == 0) {
            conf_turn(me);
            conf_watch(me, "draining a lane");
            continue;
        }
        if (tag == FLOOD_END)
            break;
        CONF_REQUIRE(me, tag == FLOOD_TAG, "tag %llu", (unsigned long long)tag);
        size_t offset = taken % FLOOD_BYTES;
        size_t piece = bytes < FLOOD_BYTES - offset ? bytes : FLOOD_BYTES - offset;
        CONF_REQUIRE(me, memcmp(data, block + offset, piece) == 0, "wrong bytes after %llu",
                     (unsigned long long)taken);
        me->ops->consume(me->endpoints[!me->rank], lane, piece);
        taken += piece;
    }
    conf_take_message(me, !me->rank, lane, FLOOD_END, sizeof taken);
    return taken;
}

/* Both sides fill a lane while nobody takes; the other lanes still carry; then both drain. */
static void traffic_flood(struct conf_rank *me)
{
    unsigned char *block = conf_memory(me, FLOOD_BYTES, false);
    unsigned char ping[50][CONF_LANES][300], mark[sizeof(uint64_t)];
    conf_fill(1, 0, block, FLOOD_BYTES);
    conf_all(me);
    int peer = !me->rank;
    uint64_t sent = traffic_fill_lane(me, 1, block);
    conf_barrier(me);
    for (int i = 0; i < 50; i++)
        for (int lane = 0; lane < CONF_LANES; lane += 2) {
            conf_send_message(me, peer, lane, (uint64_t)i, ping[i][lane], 300);
            conf_take_message(me, peer, lane, (uint64_t)i, 300);
        }
    conf_barrier(me);
    /* One after the other, so that the end mark finds room. */
    uint64_t taken = 0;
    for (int rank = 0; rank < 2; rank++) {
        if (rank == me->rank)
            conf_send_message(me, peer, 1, FLOOD_END, mark, sizeof mark);
        else
            taken = traffic_drain_lane(me, 1, block);
        conf_barrier(me);
    }
    CONF_REQUIRE(me, sent > 0 && taken > 0, "%llu bytes sent, %llu taken", (unsigned long long)sent,
                 (unsigned long long)taken);
    uint64_t until = sent + sizeof mark;
    while (me->ops->released(me->endpoints[peer], 1) != until) {
        conf_turn(me);
        conf_watch(me, "release of what was taken");
    }
    conf_barrier(me);
    conf_close(me);
}

const struct conf_check conf_checks_traffic[] = {
    {"order_and_tags", 2, 0, traffic_order},
    {"all_sizes", 2, 0, traffic_all_sizes},
    {"all_sizes_from_region", 2, 0, traffic_all_sizes_region},
    {"send_peek_receive", 2, 0, traffic_send},
    {"send_peek_receive_from_region", 2, 0, traffic_send_region},
    {"lend_from_region", 2, 0, traffic_lend_region},
    {"regions_come_and_go", 2, 0, traffic_regions_go},
    {"reserve_commit", 2, CONF_RESERVES, traffic_reserve},
    {"slow_consumer", 2, 0, traffic_slow},
    {"flood_and_lanes_apart", 2, 0, traffic_flood},
    {"stream_asleep", 2, 0, traffic_stream},
    {"all_to_all_8", 8, 0, traffic_all_to_all},
    {NULL, 0, 0, NULL},
};
