/* Summed records that are wanted in the caller's memory and come in pieces: one end of a sealed
 * stream, fed by hand. */
#include "base/clock.h"
#include "transport/tcp/tcp.h"

#include "tests/tutti_cmocka.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { COMING_BYTES = 200000, COMING_PIECE = 40000, COMING_ALL = COMING_BYTES + 32 };

/* The receiving lane; `feed` is the other end of its connection. */
struct coming {
    struct tti_tcp_transport transport;
    struct tti_tcp_endpoint *endpoint;
    struct tti_tcp_lane lane;
    int feed;
};

static uint8_t coming_text[COMING_BYTES], coming_wire[COMING_ALL];
static uint8_t coming_into[COMING_BYTES], coming_elsewhere[COMING_BYTES];

static void coming_connect(int *one, int *other)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    *one = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(*one, (struct sockaddr *)&address, bytes), 0);
    *other = accept(listener, NULL, NULL);
    assert_true(*other >= 0);
    close(listener);
}

static void coming_open(struct coming *c)
{
    static const struct tti_tcp_keys keys;
    memset(c, 0, sizeof *c);
    c->endpoint = test_calloc(1, sizeof *c->endpoint);
    c->endpoint->transport = &c->transport;
    c->endpoint->seals = TTI_TCP_CHECKSUMS;
    c->lane.endpoint = c->endpoint;
    coming_connect(&c->lane.socket, &c->feed);
    assert_int_equal(tti_tcp_seal_begin(&c->lane, c->lane.socket, &keys), TUTTI_OK);
}

static void coming_close(struct coming *c)
{
    tti_tcp_seal_free(c->lane.seal);
    test_free(c->endpoint);
    close(c->lane.socket);
    close(c->feed);
}

static ssize_t coming_read(struct coming *c, uint8_t *into)
{
    struct iovec vector = {into, COMING_BYTES};
    return tti_tcp_seal_receive(&c->lane, &vector, 1);
}

/* From one byte to another of the record. */
static void coming_feed(struct coming *c, size_t from, size_t to)
{
    for (size_t at = from; at < to;) {
        const ssize_t sent = send(c->feed, coming_wire + at, to - at, MSG_NOSIGNAL);
        assert_true(sent > 0);
        at += (size_t)sent;
    }
}

static ssize_t coming_until(struct coming *c, uint8_t *into)
{
    const uint64_t deadline = tti_deadline_in(30);
    ssize_t got;
    while ((got = coming_read(c, into)) < 0 && errno == EAGAIN)
        assert_false(tti_deadline_passed(deadline));
    return got;
}

/* Until a read has begun on the record and found that its rest stays away. */
static void coming_hurries(struct coming *c, uint8_t *into)
{
    const uint64_t deadline = tti_deadline_in(30);
    while (!c->lane.seal->hurried) {
        assert_int_equal(coming_read(c, into), -1);
        assert_int_equal(errno, EAGAIN);
        assert_false(tti_deadline_passed(deadline));
    }
}

/* One record, as a sender makes it, in coming_wire. */
static int coming_make(void **state)
{
    struct coming c;
    struct iovec vector = {coming_text, COMING_BYTES};
    size_t sent = 0, have = 0;
    (void)state;
    for (size_t i = 0; i < COMING_BYTES; i++)
        coming_text[i] = (uint8_t)(i * 2654435761u >> 13);
    coming_open(&c);
    while (have < COMING_ALL) {
        vector.iov_base = coming_text + sent;
        vector.iov_len = COMING_BYTES - sent;
        const ssize_t taken = tti_tcp_seal_send(&c.lane, &vector, 1);
        sent += taken > 0 ? (size_t)taken : 0;
        const ssize_t got = recv(c.feed, coming_wire + have, COMING_ALL - have, MSG_DONTWAIT);
        have += got > 0 ? (size_t)got : 0;
    }
    coming_close(&c);
    return 0;
}

/* What was read of it is neither lost nor looked for where the first read wanted it. */
static void the_rest_may_be_wanted_elsewhere(void **state)
{
    struct coming c;
    (void)state;
    coming_open(&c);
    coming_feed(&c, 0, COMING_PIECE);
    coming_hurries(&c, coming_into);
    memset(coming_into, 0xee, sizeof coming_into);
    memset(coming_elsewhere, 0, sizeof coming_elsewhere);
    coming_feed(&c, COMING_PIECE, COMING_ALL);
    assert_int_equal(coming_until(&c, coming_elsewhere), COMING_BYTES);
    assert_memory_equal(coming_elsewhere, coming_text, COMING_BYTES);
    for (size_t i = 0; i < COMING_BYTES; i++)
        assert_int_equal(coming_into[i], 0xee);
    coming_close(&c);
}

static void *coming_trickle(void *argument)
{
    for (size_t at = COMING_PIECE; at < COMING_ALL; at += COMING_PIECE)
        coming_feed(argument, at, at + COMING_PIECE < COMING_ALL ? at + COMING_PIECE : COMING_ALL);
    return NULL;
}

/* In pieces while it is read; `spoil`: with a wrong byte in the last one. */
static void coming_stream(bool spoil)
{
    enum { ROUNDS = 50 };
    for (int round = 0; round < ROUNDS; round++) {
        struct coming c;
        pthread_t feeder;
        coming_open(&c);
        coming_wire[COMING_ALL - 1] ^= spoil;
        coming_feed(&c, 0, COMING_PIECE);
        assert_int_equal(pthread_create(&feeder, NULL, coming_trickle, &c), 0);
        memset(coming_into, 0, sizeof coming_into);
        const ssize_t got = coming_until(&c, coming_into);
        const int error = errno;
        pthread_join(feeder, NULL);
        coming_wire[COMING_ALL - 1] ^= spoil;
        assert_int_equal(got, spoil ? -1 : COMING_BYTES);
        if (spoil)
            assert_int_equal(error, EBADMSG);
        else
            assert_memory_equal(coming_into, coming_text, COMING_BYTES);
        coming_close(&c);
    }
}

static void pieces_make_a_record(void **state)
{
    (void)state;
    coming_stream(false);
}

static void a_wrong_byte_in_a_piece_is_found(void **state)
{
    (void)state;
    coming_stream(true);
}

static void an_end_in_a_record_is_seen(void **state)
{
    struct coming c;
    (void)state;
    coming_open(&c);
    coming_feed(&c, 0, COMING_PIECE);
    assert_int_equal(shutdown(c.feed, SHUT_WR), 0);
    assert_int_equal(coming_until(&c, coming_into), 0);
    coming_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rest_may_be_wanted_elsewhere),
        cmocka_unit_test(pieces_make_a_record),
        cmocka_unit_test(a_wrong_byte_in_a_piece_is_found),
        cmocka_unit_test(an_end_in_a_record_is_seen),
    };
    return cmocka_run_group_tests(tests, coming_make, NULL);
}
