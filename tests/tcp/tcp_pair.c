/* Two ranks in one process (tcp_pair.h). */
#include "tests/tcp/tcp_pair.h"

#include "base/clock.h"
#include "transport/registry.h"
#include "transport/tcp/tcp_wire.h"

#include "tests/tutti_cmocka.h"

#include <string.h>
#include <unistd.h>

void tcp_pair_open(struct tcp_pair *pair, uint8_t secret_0, uint8_t secret_1, uint64_t job_0,
                   uint64_t job_1)
{
    memset(pair, 0, sizeof *pair);
    memset(pair->secret[0], secret_0, TUTTI_SECRET_BYTES);
    memset(pair->secret[1], secret_1, TUTTI_SECRET_BYTES);
    assert_int_equal(tti_tcp_ops.probe(tti_transport_services()), TUTTI_OK);
    for (int rank = 0; rank < 2; rank++) {
        struct tti_tcp_advert advert;
        struct tutti_transport_env env = {.size = sizeof env,
                                          .services = tti_transport_services(),
                                          .job = rank ? job_1 : job_0,
                                          .secret = pair->secret[rank],
                                          .rank = rank,
                                          .nranks = 2,
                                          .name = rank ? "here:1" : "here:0",
                                          .lanes = PAIR_LANES};
        pair->peer[rank] = (struct tutti_peer){
            .rank = rank, .name = env.name, .pid = getpid(), .address = pair->address[rank]};
        assert_int_equal(tti_tcp_ops.open(&env, &pair->transport[rank]), TUTTI_OK);
        assert_int_equal(tti_tcp_ops.address(pair->transport[rank], pair->address[rank],
                                             &pair->peer[rank].address_bytes),
                         TUTTI_OK);
        assert_null(
            tti_tcp_get_advert(pair->address[rank], pair->peer[rank].address_bytes, &advert));
        pair->port[rank] = advert.port;
    }
}

enum tutti_result tcp_pair_connect(struct tcp_pair *pair, double seconds)
{
    enum tutti_result result[2] = {TUTTI_IN_PROGRESS, TUTTI_IN_PROGRESS};
    uint64_t deadline = tti_deadline_in(seconds);
    for (int rank = 0; rank < 2; rank++)
        assert_int_equal(tti_tcp_ops.connect(pair->transport[rank], &pair->peer[!rank], PAIR_LANES,
                                             &pair->endpoint[rank]),
                         TUTTI_OK);
    while (!tti_deadline_passed(deadline)) {
        for (int rank = 0; rank < 2; rank++) {
            result[rank] = tti_tcp_ops.advance(pair->endpoint[rank]);
            assert_int_equal(tti_tcp_ops.progress(pair->transport[rank]), TUTTI_OK);
        }
        if (result[0] != TUTTI_IN_PROGRESS && (result[0] != TUTTI_OK || result[1] == TUTTI_OK))
            break;
        usleep(500);
    }
    return result[0];
}

static unsigned char pair_byte(size_t at)
{
    return (unsigned char)((at * 2654435761u) >> 13);
}

static size_t pair_take(struct tcp_pair *pair, size_t taken)
{
    uint64_t tag = 0;
    const void *data = NULL;
    size_t got = 0;
    assert_int_equal(tti_tcp_ops.progress(pair->transport[1]), TUTTI_OK);
    assert_int_equal(tti_tcp_ops.peek(pair->endpoint[1], 1, &tag, &data, &got), TUTTI_OK);
    if (got == 0)
        return 0;
    assert_int_equal(tag, 42);
    for (size_t i = 0; i < got; i++)
        if (((const unsigned char *)data)[i] != pair_byte(taken + i))
            fail_msg("byte %zu is wrong", taken + i);
    tti_tcp_ops.consume(pair->endpoint[1], 1, got);
    return got;
}

void tcp_pair_stream(struct tcp_pair *pair, size_t bytes, void (*meanwhile)(struct tcp_pair *))
{
    size_t sent = 0, taken = 0;
    uint64_t base = tti_tcp_ops.released(pair->endpoint[0], 1);
    unsigned char *all = test_malloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        all[i] = pair_byte(i);
    uint64_t deadline = tti_deadline_in(100);
    for (unsigned round = 0; taken < bytes; round++) {
        size_t accepted = 0, offer = bytes - sent < 100000 ? bytes - sent : 100000;
        assert_int_equal(tti_tcp_ops.progress(pair->transport[0]), TUTTI_OK);
        if (offer > 0)
            assert_int_equal(
                tti_tcp_ops.send(pair->endpoint[0], 1, 42, all + sent, offer, &accepted), TUTTI_OK);
        sent += accepted;
        taken += pair_take(pair, taken);
        if (meanwhile && round % 2 == 0)
            meanwhile(pair);
        assert_false(tti_deadline_passed(deadline));
    }
    while (tti_tcp_ops.released(pair->endpoint[0], 1) != base + bytes) {
        assert_int_equal(tti_tcp_ops.progress(pair->transport[0]), TUTTI_OK);
        assert_false(tti_deadline_passed(deadline));
    }
    test_free(all);
}

void tcp_pair_close(struct tcp_pair *pair)
{
    for (int rank = 0; rank < 2; rank++)
        tti_tcp_ops.close(pair->transport[rank]);
}
