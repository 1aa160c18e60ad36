/* Connections that are lost in the midst of a stream: the lanes go on over others, and every byte
 * arrives once. Two ranks in two threads; each now and then ends one of its sockets, at random. The
 * seed is printed; TUTTI_TEST_SEED=N repeats it, TUTTI_TEST_CUTS=N makes it longer. */
#include "tests/tcp/tcp_pair.h"

#include "base/clock.h"
#include "transport/registry.h"
#include "transport/tcp/tcp.h"

#include "tests/awake.h"
#include "tests/tutti_cmocka.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { RESUME_MOST = 300000, RESUME_PATTERN = 1 << 20, RESUME_SECONDS = 100 };

struct resume_rank {
    struct tcp_pair *pair;
    int rank;
    uint64_t seed;
    unsigned cuts, cuts_wanted;
    size_t bytes; /* to send on each lane */
    size_t sent[PAIR_LANES], taken[PAIR_LANES];
    size_t open[PAIR_LANES]; /* bytes of the fragment that the transport has not accepted yet */
    atomic_int *through;     /* ranks that have all: who has answers until both have */
    const char *wrong;
    char text[400];
};

static unsigned char resume_pattern[2 * RESUME_PATTERN];

static uint64_t resume_random(struct resume_rank *me)
{
    me->seed ^= me->seed << 13;
    me->seed ^= me->seed >> 7;
    me->seed ^= me->seed << 17;
    return me->seed;
}

static enum tutti_result resume_send(struct resume_rank *me, int lane)
{
    size_t left = me->bytes - me->sent[lane], accepted = 0;
    if (left == 0)
        return TUTTI_OK;
    if (me->open[lane] == 0)
        me->open[lane] = 1 + resume_random(me) % (resume_random(me) % 4 ? 3000 : RESUME_MOST);
    size_t offer = me->open[lane] < left ? me->open[lane] : left;
    TTI_TRY(tti_tcp_ops.send(me->pair->endpoint[me->rank], lane, (uint64_t)lane,
                             resume_pattern + me->sent[lane] % RESUME_PATTERN, offer, &accepted));
    me->sent[lane] += accepted;
    me->open[lane] -= accepted;
    return TUTTI_OK;
}

static enum tutti_result resume_take(struct resume_rank *me, int lane)
{
    static _Thread_local unsigned char into[RESUME_MOST];
    uint64_t tag = (uint64_t)lane;
    const void *data = into;
    size_t bytes = 0;
    void *endpoint = me->pair->endpoint[me->rank];
    bool peeks = resume_random(me) % 2;
    if (me->taken[lane] == me->bytes)
        return TUTTI_OK;
    TTI_TRY(peeks ? tti_tcp_ops.peek(endpoint, lane, &tag, &data, &bytes)
                  : tti_tcp_ops.receive(endpoint, lane, &tag, into,
                                        64 * (1 + resume_random(me) % (RESUME_MOST / 64)), &bytes));
    if (bytes == 0)
        return TUTTI_OK;
    if (tag != (uint64_t)lane || bytes > me->bytes - me->taken[lane] ||
        memcmp(data, resume_pattern + me->taken[lane] % RESUME_PATTERN, bytes) != 0)
        me->wrong = "wrong bytes";
    if (peeks)
        tti_tcp_ops.consume(endpoint, lane, bytes);
    me->taken[lane] += bytes;
    return TUTTI_OK;
}

/* False: that lane has no connection now. */
static bool resume_cut_one(struct resume_rank *me)
{
    static const int ways[] = {SHUT_RDWR, SHUT_WR, SHUT_RD};
    struct tti_tcp_endpoint *endpoint = me->pair->endpoint[me->rank];
    struct tti_tcp_lane *lane = &endpoint->lane[resume_random(me) % (uint64_t)endpoint->lanes];
    if (lane->socket < 0 || shutdown(lane->socket, ways[resume_random(me) % 3]) != 0)
        return false;
    me->cuts++;
    return true;
}

static bool resume_done(const struct resume_rank *me)
{
    for (int lane = 0; lane < PAIR_LANES; lane++)
        if (me->sent[lane] < me->bytes || me->taken[lane] < me->bytes ||
            tti_tcp_ops.released(me->pair->endpoint[me->rank], lane) < me->bytes)
            return false;
    return true;
}

static void *resume_run(void *argument)
{
    struct resume_rank *me = argument;
    uint64_t deadline = tti_deadline_in(RESUME_SECONDS);
    size_t next = 0, apart = PAIR_LANES * me->bytes / (me->cuts_wanted + 1);
    enum tutti_result result = TUTTI_OK;
    bool done = false;
    while (result == TUTTI_OK && !me->wrong && atomic_load(me->through) < 2) {
        size_t all = 0;
        result = tti_tcp_ops.progress(me->pair->transport[me->rank]);
        for (int lane = 0; result == TUTTI_OK && lane < PAIR_LANES; lane++) {
            result = resume_send(me, lane);
            if (result == TUTTI_OK)
                result = resume_take(me, lane);
            all += me->taken[lane];
        }
        if (all >= next && me->cuts < me->cuts_wanted && resume_cut_one(me))
            next += resume_random(me) % (2 * apart);
        if (result == TUTTI_OK && !done && resume_done(me)) {
            done = true;
            atomic_fetch_add(me->through, 1);
        }
        if (tti_deadline_passed(deadline))
            me->wrong = "not done in time";
    }
    if (result != TUTTI_OK || me->wrong)
        atomic_fetch_add(me->through, 2); /* nor does the other one wait */
    if (result != TUTTI_OK) {
        snprintf(me->text, sizeof me->text, "%s", tutti_last_error());
        me->wrong = me->text;
    }
    return NULL;
}

static void resume_both(struct tcp_pair *pair, uint64_t seed, unsigned cuts, size_t bytes)
{
    struct resume_rank rank[2];
    pthread_t thread[2];
    atomic_int through = 0;
    for (int i = 0; i < 2; i++) {
        rank[i] = (struct resume_rank){.pair = pair,
                                       .rank = i,
                                       .seed = seed * 2 + (uint64_t)i + 1,
                                       .cuts_wanted = cuts / 2,
                                       .bytes = bytes,
                                       .through = &through};
        assert_int_equal(pthread_create(&thread[i], NULL, resume_run, &rank[i]), 0);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    print_message("seed %llu: %u and %u connections cut in 2 x %zu bytes each way\n",
                  (unsigned long long)seed, rank[0].cuts, rank[1].cuts, bytes);
    for (int i = 0; i < 2; i++)
        if (rank[i].wrong)
            fail_msg("seed %llu, rank %d: %s", (unsigned long long)seed, i, rank[i].wrong);
    assert_true(rank[0].cuts + rank[1].cuts >= cuts / 4);
}

/* The kernel was asked to, and has told the end of it all. */
static void without_copies(const struct tcp_pair *pair)
{
    for (int rank = 0; rank < 2; rank++) {
        const struct tti_tcp_endpoint *endpoint = pair->endpoint[rank];
        for (int i = 0; i < endpoint->lanes; i++) {
            const struct tti_tcp_zero *zero = endpoint->lane[i].zero;
            assert_non_null(zero);
            assert_true(zero->next > 0 && zero->first == zero->next);
        }
    }
}

static bool callee_asks = true;

/* Rank 1, which is called, has no address that reaches rank 0's: as where each has a private bridge
 * of the same address. */
static void callee_cannot_ask(const struct tcp_pair *pair)
{
    struct tti_tcp_endpoint *endpoint = pair->endpoint[1];
    assert_false(endpoint->connects);
    endpoint->transport->interfaces = 0;
    endpoint->candidates = 0;
}

/* `usual` cuts; 0: none, without copies. */
static void resume_streams(unsigned usual)
{
    struct tcp_pair pair;
    const char *seed = getenv("TUTTI_TEST_SEED"), *cuts = getenv("TUTTI_TEST_CUTS");
    unsigned wanted = cuts && usual > 0 ? (unsigned)strtoul(cuts, NULL, 10) : usual;
    tcp_pair_open(&pair, 1, 1, 7, 7);
    assert_int_equal(tcp_pair_connect(&pair, 60), TUTTI_OK);
    if (!callee_asks)
        callee_cannot_ask(&pair);
    resume_both(&pair, seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL), wanted,
                (size_t)(wanted ? wanted : 40) * 50000);
    if (usual == 0)
        without_copies(&pair);
    tcp_pair_close(&pair);
}

static void streams_survive_cuts(void **state)
{
    (void)state;
    resume_streams(160);
}

static void streams_survive_where_one_can_only_wait(void **state)
{
    (void)state;
    callee_asks = false;
    resume_streams(60);
    callee_asks = true;
}

static void sealed_streams_survive_cuts(void **state)
{
    (void)state;
    for (int encrypts = 0; encrypts < 2; encrypts++) {
        setenv("TUTTI_TCP_CHECKSUM", encrypts ? "0" : "1", 1);
        setenv("TUTTI_TCP_ENCRYPT", encrypts ? "1" : "0", 1);
        resume_streams(60);
    }
    unsetenv("TUTTI_TCP_CHECKSUM");
    unsetenv("TUTTI_TCP_ENCRYPT");
}

/* Lanes over several sockets, of which now and then one is lost; plain, with sums, and encrypted.
 */
static void stripes_survive_cuts(void **state)
{
    static const unsigned cuts[] = {80, 40, 40};
    (void)state;
    setenv("TUTTI_TCP_SOCKETS", "3", 1);
    for (int sealed = 0; sealed < 3; sealed++) {
        setenv("TUTTI_TCP_CHECKSUM", sealed == 1 ? "1" : "0", 1);
        setenv("TUTTI_TCP_ENCRYPT", sealed == 2 ? "1" : "0", 1);
        resume_streams(cuts[sealed]);
    }
    unsetenv("TUTTI_TCP_CHECKSUM");
    unsetenv("TUTTI_TCP_ENCRYPT");
    unsetenv("TUTTI_TCP_SOCKETS");
}

/* ... and what is sent without a copy stays where it is until the kernel is through with it. */
static void streams_without_copies_survive_cuts(void **state)
{
    (void)state;
    setenv("TUTTI_TCP_ZEROCOPY", "2", 1);
    resume_streams(80);
    setenv("TUTTI_TCP_RESUME", "0", 1);
    resume_streams(0);
    setenv("TUTTI_TCP_RESUME", "1", 1);
    unsetenv("TUTTI_TCP_ZEROCOPY");
}

/* The last word of an ordered end is a bye: nobody tries to go on. */
static void an_ordered_end_is_no_cut(void **state)
{
    (void)state;
    struct tcp_pair pair;
    uint64_t tag = 0, deadline = tti_deadline_in(60);
    const void *data = NULL;
    size_t bytes = 0;
    enum tutti_result result = TUTTI_OK;
    tcp_pair_open(&pair, 1, 1, 7, 7);
    assert_int_equal(tcp_pair_connect(&pair, 60), TUTTI_OK);
    tti_tcp_ops.disconnect(pair.endpoint[0]);
    while (result == TUTTI_OK && !tti_deadline_passed(deadline)) {
        assert_int_equal(tti_tcp_ops.progress(pair.transport[1]), TUTTI_OK);
        result = tti_tcp_ops.peek(pair.endpoint[1], 0, &tag, &data, &bytes);
    }
    assert_int_equal(result, TUTTI_ERR_PEER);
    struct tti_tcp_endpoint *endpoint = pair.endpoint[1];
    assert_int_equal(endpoint->lane[0].cuts, 0);
    tcp_pair_close(&pair);
}

/* Who has more to send than its peer read before it left is not left with memory that never comes
 * back. */
static void what_waits_ends_with_the_peer(void **state)
{
    enum { BYTES = 256 * 1024 };
    (void)state;
    struct tcp_pair pair;
    uint64_t sent = 0;
    size_t accepted = 1;
    const uint64_t deadline = tti_deadline_in(60);
    tcp_pair_open(&pair, 1, 1, 7, 7);
    assert_int_equal(tcp_pair_connect(&pair, 60), TUTTI_OK);
    struct tti_tcp_endpoint *sends = pair.endpoint[0];
    while (accepted > 0) {
        assert_int_equal(tti_tcp_ops.send(sends, 0, 1, resume_pattern, BYTES, &accepted), TUTTI_OK);
        sent += accepted;
    }
    assert_true(tti_tcp_lane_waits(&sends->lane[0]));
    tti_tcp_ops.close(pair.transport[1]);
    while (tti_tcp_ops.released(sends, 0) < sent) {
        assert_false(tti_deadline_passed(deadline));
        assert_int_equal(tti_tcp_ops.progress(pair.transport[0]), TUTTI_OK);
    }
    assert_int_equal(tti_tcp_ops.send(sends, 0, 1, resume_pattern, BYTES, &accepted),
                     TUTTI_ERR_PEER);
    tti_tcp_ops.close(pair.transport[0]);
}

/* ... nor who sends to it before the news of its end has been collected: the first fragment draws
 * the reset that the second one meets. */
static void what_comes_too_late_is_refused(void **state)
{
    enum { FIRST = 64, SECOND = 64 * 1024 };
    (void)state;
    struct tcp_pair pair;
    size_t accepted = 0;
    enum tutti_result result = TUTTI_OK;
    const uint64_t deadline = tti_deadline_in(60);
    tcp_pair_open(&pair, 1, 1, 7, 7);
    assert_int_equal(tcp_pair_connect(&pair, 60), TUTTI_OK);
    struct tti_tcp_endpoint *sends = pair.endpoint[0];
    tti_tcp_ops.close(pair.transport[1]);
    assert_int_equal(tti_tcp_ops.send(sends, 0, 1, resume_pattern, FIRST, &accepted), TUTTI_OK);
    for (struct pollfd reset = {.fd = sends->lane[0].socket}; !(reset.revents & POLLHUP);) {
        assert_false(tti_deadline_passed(deadline));
        (void)poll(&reset, 1, 1000);
    }
    result = tti_tcp_ops.send(sends, 0, 1, resume_pattern, SECOND, &accepted);
    assert_int_equal(result, TUTTI_ERR_PEER);
    assert_true(sends->lane[0].closed && !sends->lane[0].cut);
    assert_int_equal(tti_tcp_ops.released(sends, 0), FIRST);
    tti_tcp_ops.close(pair.transport[0]);
}

/* Two ranks, of which only `stays` is left: the other ends without a word of farewell. */
static void resume_bereave(struct tcp_pair *pair, int stays)
{
    tcp_pair_open(pair, 1, 1, 7, 7);
    assert_int_equal(tcp_pair_connect(pair, 60), TUTTI_OK);
    struct tti_tcp_endpoint *gone = pair->endpoint[!stays];
    for (int lane = 0; lane < PAIR_LANES; lane++)
        shutdown(gone->lane[lane].socket, SHUT_RDWR);
    tti_tcp_ops.close(pair->transport[!stays]);
}

/* What it hears of the other now. */
static enum tutti_result resume_hear(struct tcp_pair *pair, int stays)
{
    uint64_t tag = 0;
    const void *data = NULL;
    size_t bytes = 0;
    assert_int_equal(tti_tcp_ops.progress(pair->transport[stays]), TUTTI_OK);
    return tti_tcp_ops.peek(pair->endpoint[stays], 0, &tag, &data, &bytes);
}

/* Who is cut and finds nobody listening is told so at once, on either side. */
static void the_end_of_a_peer_is_no_cut(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        struct tcp_pair pair;
        enum tutti_result result = TUTTI_OK;
        resume_bereave(&pair, rank);
        const uint64_t deadline = tti_deadline_in(TTI_TCP_RESUME_SECONDS - 2);
        while (result == TUTTI_OK && !tti_deadline_passed(deadline))
            result = resume_hear(&pair, rank);
        assert_int_equal(result, TUTTI_ERR_PEER);
        tti_tcp_ops.close(pair.transport[rank]);
    }
}

/* A rank of another job, which listens where one of ours did. */
static void *resume_squatter(uint16_t port)
{
    static uint8_t secret[TUTTI_SECRET_BYTES] = {3};
    struct tutti_transport_env env = {.size = sizeof env,
                                      .services = tti_transport_services(),
                                      .job = 9,
                                      .secret = secret,
                                      .nranks = 2,
                                      .name = "elsewhere:0",
                                      .lanes = PAIR_LANES};
    char ports[32];
    void *transport = NULL;
    snprintf(ports, sizeof ports, "%d-%d", port, port);
    setenv("TUTTI_TCP_PORTS", ports, 1);
    assert_int_equal(tti_tcp_ops.open(&env, &transport), TUTTI_OK);
    unsetenv("TUTTI_TCP_PORTS");
    return transport;
}

/* Somebody else's listener, at all of the host's addresses: it hangs up on whoever calls. */
static int resume_listener(uint16_t port)
{
    const int yes = 1, no = 0;
    const struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    const struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(port)};
    int made = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const bool six = made >= 0;
    if (!six)
        made = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(made >= 0);
    assert_int_equal(setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes), 0);
    if (six)
        assert_int_equal(setsockopt(made, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no), 0);
    assert_int_equal(six ? bind(made, (const struct sockaddr *)&any6, sizeof any6)
                         : bind(made, (const struct sockaddr *)&any, sizeof any),
                     0);
    assert_int_equal(listen(made, 16), 0);
    return made;
}

/* Rank `stays` is told that the other is gone, although somebody listens at its port, who
 * `talks` as ranks do or not: after so many seconds at least, and at most. */
static void resume_replaced(int stays, bool talks, uint64_t least, uint64_t most)
{
    struct tcp_pair pair;
    enum tutti_result result = TUTTI_OK;
    resume_bereave(&pair, stays);
    void *squatter = talks ? resume_squatter(pair.port[!stays]) : NULL;
    const int listener = talks ? -1 : resume_listener(pair.port[!stays]);
    const uint64_t second = 1000000000, begun = tti_now_ns();
    const uint64_t until = test_awake_ns() + most * second;
    while (result == TUTTI_OK && test_awake_ns() < until) {
        const int caller = talks ? -1 : accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (caller >= 0)
            close(caller);
        if (talks)
            assert_int_equal(tti_tcp_ops.progress(squatter), TUTTI_OK);
        else
            usleep(1000);
        result = resume_hear(&pair, stays);
    }
    assert_true(result == TUTTI_ERR_PEER || result == TUTTI_ERR_LINK);
    assert_true(tti_now_ns() - begun >= least * second);
    tti_tcp_ops.close(pair.transport[stays]);
    if (talks)
        tti_tcp_ops.close(squatter);
    else
        close(listener);
}

/* The kernel gives a port that has become free to others: to a job that begins where this one's
 * rank has died, if ports are few. */
static void a_rank_of_another_job_is_not_the_peer(void **state)
{
    (void)state;
    for (int stays = 0; stays < 2; stays++)
        resume_replaced(stays, true, 0, TTI_TCP_RESUME_SECONDS - 2);
}

/* Who listens there may be a box on the way that is ill for a moment, so this takes the time that a
 * lost connection has, and no more. */
static void who_hangs_up_is_not_asked_for_ever(void **state)
{
    (void)state;
    resume_replaced(1, false, TTI_TCP_RESUME_SECONDS - 2, 5 * TTI_TCP_RESUME_SECONDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_survive_cuts),
        cmocka_unit_test(streams_survive_where_one_can_only_wait),
        cmocka_unit_test(sealed_streams_survive_cuts),
        cmocka_unit_test(stripes_survive_cuts),
        cmocka_unit_test(streams_without_copies_survive_cuts),
        cmocka_unit_test(an_ordered_end_is_no_cut),
        cmocka_unit_test(what_waits_ends_with_the_peer),
        cmocka_unit_test(what_comes_too_late_is_refused),
        cmocka_unit_test(the_end_of_a_peer_is_no_cut),
        cmocka_unit_test(a_rank_of_another_job_is_not_the_peer),
        cmocka_unit_test(who_hangs_up_is_not_asked_for_ever),
    };
    setenv("TUTTI_TCP_RESUME", "1", 1);
    for (size_t i = 0; i < sizeof resume_pattern; i++)
        resume_pattern[i] = (unsigned char)(((i % RESUME_PATTERN) * 2654435761u) >> 11);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
