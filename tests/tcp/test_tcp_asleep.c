/* Who is about to sleep hears of what was acknowledged since it last asked: memory that is its own
 * again, and room for more. Nothing on the wire and no event would tell it afterwards. */
#include "tests/tcp/tcp_pair.h"

#include "base/clock.h"
#include "transport/tcp/tcp.h"

#include "tests/tutti_cmocka.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum { ASLEEP_BYTES = TTI_TCP_SMALL_BYTES + 1 }; /* the smallest that is not copied */

static unsigned char asleep_data[ASLEEP_BYTES];

static void asleep_open(struct tcp_pair *pair)
{
    tcp_pair_open(pair, 1, 1, 7, 7);
    assert_int_equal(tcp_pair_connect(pair, 60), TUTTI_OK);
    for (int i = 0; i < 100 && !tti_tcp_ops.arm(pair->transport[0]); i++)
        tti_tcp_ops.disarm(pair->transport[0]);
    tti_tcp_ops.disarm(pair->transport[0]);
}

/* From now on rank 1's kernel drops what comes on lane 0, or no longer does. */
static void asleep_deaf(const struct tcp_pair *pair, bool deaf)
{
    struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
    struct sock_fprog program = {1, &nothing};
    const struct tti_tcp_endpoint *hears = pair->endpoint[1];
    for (int i = 0; i < hears->lanes; i++) {
        const int done =
            setsockopt(hears->lane[i].socket, SOL_SOCKET,
                       deaf ? SO_ATTACH_FILTER : SO_DETACH_FILTER, &program, sizeof program);
        if (done != 0 && errno == EPERM) { /* not for everybody's programs on some machines */
            print_message("SKIPPED: this process may not give a socket a filter\n");
            skip();
        }
        assert_int_equal(done, 0);
    }
}

/* Until rank 1's kernel has acknowledged all that rank 0's was given. */
static void asleep_until_acknowledged(const struct tcp_pair *pair)
{
    const uint64_t deadline = tti_deadline_in(60);
    const struct tti_tcp_endpoint *sends = pair->endpoint[0];
    for (int i = 0; i < sends->lanes; i++) {
        int under_way = 1;
        while (under_way > 0) {
            assert_false(tti_deadline_passed(deadline));
            (void)poll(NULL, 0, 1);
            assert_int_equal(ioctl(sends->lane[i].socket, SIOCOUTQ, &under_way), 0);
        }
    }
}

static size_t asleep_send(const struct tcp_pair *pair)
{
    size_t accepted = 0;
    assert_int_equal(
        tti_tcp_ops.send(pair->endpoint[0], 0, 5, asleep_data, ASLEEP_BYTES, &accepted), TUTTI_OK);
    return accepted;
}

static bool asleep_arm(const struct tcp_pair *pair)
{
    const bool quiet = tti_tcp_ops.arm(pair->transport[0]);
    tti_tcp_ops.disarm(pair->transport[0]);
    return quiet;
}

static void what_is_released_is_told(void **state)
{
    struct tcp_pair pair;
    (void)state;
    asleep_open(&pair);
    asleep_deaf(&pair, true);
    assert_int_equal(asleep_send(&pair), ASLEEP_BYTES);
    assert_int_equal(tti_tcp_ops.released(pair.endpoint[0], 0), 0);
    asleep_deaf(&pair, false);
    asleep_until_acknowledged(&pair);
    assert_false(asleep_arm(&pair));
    assert_int_equal(tti_tcp_ops.released(pair.endpoint[0], 0), ASLEEP_BYTES);
    assert_true(asleep_arm(&pair)); /* and once is enough */
    tcp_pair_close(&pair);
}

static size_t asleep_holds(const struct tcp_pair *pair)
{
    struct tutti_memory memory = {.host = 0};
    tti_tcp_ops.memory(pair->transport[0], &memory);
    return memory.host;
}

/* Copies of what is sent are the transport's memory while it keeps them. */
static void room_is_told(void **state)
{
    struct tcp_pair pair;
    uint64_t sent = 0;
    size_t accepted = 1;
    (void)state;
    asleep_open(&pair);
    asleep_deaf(&pair, true);
    while (accepted > 0) {
        accepted = asleep_send(&pair);
        sent += accepted;
        assert_true(sent < (uint64_t)TTI_TCP_MAX_SOCKETS * TTI_TCP_MAX_PIECES * ASLEEP_BYTES);
    }
    /* All is copied, and so told; what is missing is room. */
    while (!asleep_arm(&pair))
        continue;
    assert_int_equal(tti_tcp_ops.released(pair.endpoint[0], 0), sent);
    assert_int_equal(asleep_send(&pair), 0);
    const size_t held = asleep_holds(&pair);
    asleep_deaf(&pair, false);
    asleep_until_acknowledged(&pair);
    assert_int_equal(tti_tcp_ops.released(pair.endpoint[0], 0), sent);
    assert_false(asleep_arm(&pair));
    assert_true(held >= asleep_holds(&pair) + sent);
    assert_int_equal(asleep_send(&pair), ASLEEP_BYTES);
    tcp_pair_close(&pair);
}

/* Rank 1 takes fragment `k` of those that are full of their number. */
static void asleep_take(const struct tcp_pair *pair, unsigned char k)
{
    const uint64_t deadline = tti_deadline_in(60);
    size_t taken = 0;
    while (taken < ASLEEP_BYTES) {
        static unsigned char into[ASLEEP_BYTES];
        uint64_t tag = 0;
        size_t bytes = 0;
        for (int rank = 0; rank < 2; rank++)
            assert_int_equal(tti_tcp_ops.progress(pair->transport[rank]), TUTTI_OK);
        assert_int_equal(
            tti_tcp_ops.receive(pair->endpoint[1], 0, &tag, into, ASLEEP_BYTES - taken, &bytes),
            TUTTI_OK);
        for (size_t i = 0; i < bytes; i++)
            assert_int_equal(into[i], k);
        taken += bytes;
        assert_false(tti_deadline_passed(deadline));
    }
}

/* A peer that reads nothing until its own memory is back must not keep back what was sent before
 * the socket was full; and what was given back may change, though it is sent once more. */
static void what_is_sent_comes_back_before_what_waits(void **state)
{
    enum { MOST = 30, SOCKET_BYTES = 64 * 1024 };
    static unsigned char data[MOST][ASLEEP_BYTES];
    const int room = SOCKET_BYTES;
    const uint64_t deadline = tti_deadline_in(10);
    struct tcp_pair pair;
    int sent = 0;
    (void)state;
    asleep_open(&pair);
    asleep_deaf(&pair, true);
    struct tti_tcp_endpoint *sends = pair.endpoint[0];
    struct tti_tcp_lane *lane = &sends->lane[0];
    assert_int_equal(setsockopt(lane->socket, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    for (size_t accepted = 1; !tti_tcp_lane_waits(lane) && sent < MOST; sent++) {
        memset(data[sent], sent, ASLEEP_BYTES);
        assert_int_equal(tti_tcp_ops.send(sends, 0, 5, data[sent], ASLEEP_BYTES, &accepted),
                         TUTTI_OK);
        assert_int_equal(accepted, ASLEEP_BYTES);
    }
    assert_true(tti_tcp_lane_waits(lane) && sent > 1);
    while (tti_tcp_ops.released(sends, 0) < ASLEEP_BYTES)
        assert_false(tti_deadline_passed(deadline));
    memset(data[0], 0xEE, ASLEEP_BYTES);
    assert_int_equal(shutdown(lane->socket, SHUT_RDWR), 0); /* all of it goes over another one */
    for (int k = 0; k < sent; k++)
        asleep_take(&pair, (unsigned char)k);
    tcp_pair_close(&pair);
}

static void over_several_sockets(void **state)
{
    setenv("TUTTI_TCP_SOCKETS", "3", 1);
    what_is_released_is_told(state);
    room_is_told(state);
    unsetenv("TUTTI_TCP_SOCKETS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_released_is_told),
        cmocka_unit_test(room_is_told),
        cmocka_unit_test(what_is_sent_comes_back_before_what_waits),
        cmocka_unit_test(over_several_sockets),
    };
    setenv("TUTTI_TCP_RESUME", "1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
