/* Sealed streams, with somebody on the wire who reads, alters and repeats. Each thing that must be
 * noticed is also done to a stream that is not sealed, where it must have its effect. */
#include "tests/tcp/tcp_between.h"

#include "base/clock.h"
#include "transport/tcp/tcp.h"

#include "tests/tutti_cmocka.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SEAL_BYTES = 1 << 20, SEAL_MESSAGE = 1000 };

static const char seal_marker[] = "forty-two gradients, in the clear";

enum seal_end { SEAL_RIGHT, SEAL_WRONG, SEAL_FAILED };

static void seal_set(const char *checksum, const char *encrypt, const char *resume)
{
    setenv("TUTTI_TCP_CHECKSUM", checksum, 1);
    setenv("TUTTI_TCP_ENCRYPT", encrypt, 1);
    setenv("TUTTI_TCP_RESUME", resume, 1);
}

/* Rank 0 sends `bytes` of a text on lane 0 in messages of SEAL_MESSAGE and larger ones, rank 1
 * compares. SEAL_FAILED: rank 1's error is the last one. */
static enum seal_end seal_stream(struct tcp_pair *pair, size_t bytes)
{
    size_t sent = 0, taken = 0, offer = SEAL_MESSAGE;
    unsigned char *all = test_malloc(bytes);
    enum seal_end end = SEAL_RIGHT;
    uint64_t deadline = tti_deadline_in(60);
    for (size_t i = 0; i < bytes; i++)
        all[i] = (unsigned char)seal_marker[i % (sizeof seal_marker - 1)];
    while (taken < bytes && end == SEAL_RIGHT) {
        size_t accepted = 0, got = 0, part = bytes - sent < offer ? bytes - sent : offer;
        const void *data = NULL;
        uint64_t tag = 0;
        for (int rank = 0; rank < 2; rank++)
            (void)tti_tcp_ops.progress(pair->transport[rank]);
        if (part > 0 &&
            tti_tcp_ops.send(pair->endpoint[0], 0, 42, all + sent, part, &accepted) != TUTTI_OK)
            part = 0; /* rank 1 is told, too */
        sent += accepted;
        offer = accepted == part ? 300000 : offer;
        if (tti_tcp_ops.peek(pair->endpoint[1], 0, &tag, &data, &got) != TUTTI_OK)
            end = SEAL_FAILED;
        else if (got > 0 && (taken + got > bytes || memcmp(data, all + taken, got) != 0))
            end = SEAL_WRONG;
        if (end == SEAL_RIGHT && got > 0)
            tti_tcp_ops.consume(pair->endpoint[1], 0, got);
        taken += got;
        assert_false(tti_deadline_passed(deadline));
    }
    if (end != SEAL_RIGHT) /* the memory may still be under way */
        tti_tcp_ops.disconnect(pair->endpoint[0]);
    while (end == SEAL_RIGHT && tti_tcp_ops.released(pair->endpoint[0], 0) < bytes) {
        for (int rank = 0; rank < 2; rank++) /* what is asked of a rank it says when it looks */
            (void)tti_tcp_ops.arm(pair->transport[rank]);
        assert_false(tti_deadline_passed(deadline));
    }
    test_free(all);
    return end;
}

static enum seal_end seal_run(struct tcp_between *between, bool without_aes)
{
    struct tcp_pair pair;
    enum seal_end end;
    tcp_pair_open(&pair, 1, 1, 7, 7);
    if (without_aes)
        pair.address[1][17] &= (uint8_t)~TTI_TCP_AES;
    tcp_between_begin(between, &pair);
    assert_int_equal(tcp_pair_connect(&pair, 60), TUTTI_OK);
    end = seal_stream(&pair, SEAL_BYTES);
    print_message("%u flipped, %u repeated: %s\n", atomic_load(&between->flipped),
                  atomic_load(&between->repeated),
                  end == SEAL_RIGHT   ? "all right"
                  : end == SEAL_WRONG ? "wrong bytes"
                                      : tutti_last_error());
    tcp_pair_close(&pair);
    return end;
}

static void flipped_bits_arrive_in_the_open(void **state)
{
    (void)state;
    struct tcp_between between = {.flip_every = 70001, .flips = 1};
    seal_set("0", "0", "0");
    assert_int_equal(seal_run(&between, false), SEAL_WRONG);
    assert_true(tcp_between_saw(&between, seal_marker, sizeof seal_marker - 1));
    tcp_between_end(&between);
}

static void flipped_bits_are_reported(void **state)
{
    (void)state;
    /* In the first head, in a small body, in a large one. */
    static const uint64_t where[] = {5, 300, 70001};
    seal_set("1", "0", "0");
    for (size_t i = 0; i < sizeof where / sizeof where[0]; i++) {
        struct tcp_between between = {.flip_every = where[i], .flips = 1};
        assert_int_equal(seal_run(&between, false), SEAL_FAILED);
        assert_non_null(strstr(tutti_last_error(), "rank 0 (here:0)"));
        assert_non_null(strstr(tutti_last_error(), "do not fit their checksum"));
        tcp_between_end(&between);
    }
}

static void flipped_bits_are_sent_again(void **state)
{
    (void)state;
    for (int encrypts = 0; encrypts < 2; encrypts++) {
        struct tcp_between between = {.flip_every = 100003, .flips = 9};
        seal_set("1", encrypts ? "1" : "0", "1");
        assert_int_equal(seal_run(&between, false), SEAL_RIGHT);
        assert_int_equal(between.flipped, 9);
        tcp_between_end(&between);
    }
}

/* A line on which nothing gets through whole. */
static void what_never_fits_ends(void **state)
{
    (void)state;
    struct tcp_between between = {.flip_every = 2000, .flips = UINT32_MAX};
    seal_set("1", "0", "1");
    assert_int_equal(seal_run(&between, false), SEAL_FAILED);
    assert_non_null(strstr(tutti_last_error(), "do not fit their checksum (8 times in a row)"));
    tcp_between_end(&between);
}

static void a_capture_shows_nothing(void **state)
{
    (void)state;
    for (int without_aes = 0; without_aes < 2; without_aes++) {
        struct tcp_between between = {.flips = 0};
        seal_set("0", "1", "0");
        assert_int_equal(seal_run(&between, without_aes), SEAL_RIGHT);
        assert_true(between.captured > SEAL_BYTES);
        assert_false(tcp_between_saw(&between, seal_marker, 6));
        tcp_between_end(&between);
    }
}

static void tampering_is_reported(void **state)
{
    (void)state;
    static const uint64_t where[] = {5, 20, 300, 1050, 70001};
    for (size_t i = 0; i < 2 * sizeof where / sizeof where[0]; i++) {
        struct tcp_between between = {.flip_every = where[i / 2], .flips = 1};
        seal_set("0", "1", i % 2 ? "1" : "0");
        assert_int_equal(seal_run(&between, i % 4 < 2), SEAL_FAILED);
        assert_non_null(strstr(tutti_last_error(), "encrypted bytes of that rank were changed"));
        tcp_between_end(&between);
    }
}

/* The first record: a head, a fragment's header and its bytes, and a tag. */
static void a_repeated_record_is_refused(void **state)
{
    (void)state;
    struct tcp_between between = {.repeat_to =
                                      TTI_TCP_RECORD_BYTES + TTI_TCP_HEADER_BYTES + SEAL_MESSAGE};
    seal_set("1", "0", "0");
    assert_int_equal(seal_run(&between, false), SEAL_FAILED);
    assert_int_equal(between.repeated, 1);
    tcp_between_end(&between);
    seal_set("1", "0", "1");
    assert_int_equal(seal_run(&between, false), SEAL_RIGHT);
    assert_int_equal(between.repeated, 1);
    tcp_between_end(&between);
    between.repeat_to += TTI_TCP_TAG_BYTES;
    seal_set("0", "1", "1");
    assert_int_equal(seal_run(&between, false), SEAL_FAILED);
    assert_non_null(strstr(tutti_last_error(), "repeated on the way"));
    assert_int_equal(between.repeated, 1);
    tcp_between_end(&between);
}

/* The hello of a lane that went on, as it was on the wire. */
static const uint8_t *resume_hello(const struct tcp_between *between)
{
    const uint8_t *at = between->capture, *end = at + atomic_load(&between->captured);
    while ((at = memmem(at, (size_t)(end - at), "TTCH", 4)) && end - at >= TTI_TCP_HELLO_BYTES) {
        struct tti_tcp_hello hello;
        if (!tti_tcp_get_hello(at, &hello) && hello.purpose == TTI_TCP_RESUME)
            return at;
        at++;
    }
    return NULL;
}

/* What the other end says next, until it has said `bytes` or closed; returns how much it was. */
static size_t stranger_hears(struct tcp_pair *pair, int socket, size_t bytes)
{
    uint8_t heard[TTI_TCP_HELLO_BYTES];
    uint64_t deadline = tti_deadline_in(60);
    for (size_t have = 0;;) {
        (void)tti_tcp_ops.arm(pair->transport[1]);
        ssize_t got = recv(socket, heard, bytes - have, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            return have;
        have += got > 0 ? (size_t)got : 0;
        if (have == bytes)
            return have;
        assert_false(tti_deadline_passed(deadline));
    }
}

/* It would take over the lane; but it answers another challenge. */
static void a_replayed_hello_is_refused(void **state)
{
    (void)state;
    struct tcp_pair pair;
    struct tcp_between between = {.flip_every = 100003, .flips = 2};
    seal_set("1", "0", "1");
    tcp_pair_open(&pair, 1, 1, 7, 7);
    tcp_between_begin(&between, &pair);
    assert_int_equal(tcp_pair_connect(&pair, 60), TUTTI_OK);
    assert_int_equal(seal_stream(&pair, SEAL_BYTES), SEAL_RIGHT);
    const struct tti_tcp_lane *lane = &((struct tti_tcp_endpoint *)pair.endpoint[1])->lane[0];
    const uint8_t *hello = resume_hello(&between);
    unsigned cuts = lane->cuts;
    assert_non_null(hello);
    assert_true(cuts > 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(pair.port[1])};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int stranger = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(stranger, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(stranger_hears(&pair, stranger, TTI_TCP_CHALLENGE_BYTES),
                     TTI_TCP_CHALLENGE_BYTES);
    assert_int_equal(send(stranger, hello, TTI_TCP_HELLO_BYTES, MSG_NOSIGNAL), TTI_TCP_HELLO_BYTES);
    assert_int_equal(stranger_hears(&pair, stranger, TTI_TCP_ANSWER_BYTES), 0); /* closed */
    close(stranger);
    assert_int_equal(lane->cuts, cuts);
    assert_int_equal(seal_stream(&pair, SEAL_BYTES), SEAL_RIGHT);
    tcp_pair_close(&pair);
    tcp_between_end(&between);
}

/* Rank 1 takes what has come: of one message, or all that is shown. Returns bytes. */
static size_t mixed_take(struct tcp_pair *pair, bool peeks, const uint8_t *right, uint8_t *into,
                         size_t wanted)
{
    const void *data = into;
    uint64_t tag = 0;
    size_t got = 0;
    if (peeks)
        assert_int_equal(tti_tcp_ops.peek(pair->endpoint[1], 0, &tag, &data, &got), TUTTI_OK);
    else
        assert_int_equal(tti_tcp_ops.receive(pair->endpoint[1], 0, &tag, into, wanted, &got),
                         TUTTI_OK);
    if (got > 0)
        assert_memory_equal(data, right, got);
    if (peeks && got > 0)
        tti_tcp_ops.consume(pair->endpoint[1], 0, got);
    return got;
}

/* Messages in rows of a size, as collectives send them, and others between: records that are as
 * long as the last one, shorter and longer, where `ahead` messages may be on the way. Where several
 * may be, rank 1 changes its mind of how to take one while a part of it is there. */
static void mixed_stream(struct tcp_pair *pair, int ahead, unsigned *seed)
{
    enum { MESSAGES = 24, LARGEST = 256 * 1024 };
    static const size_t sizes[] = {16384, 5000, 100, 70000, 65536, LARGEST, 4096, 230000, 9000, 1};
    static uint8_t all[MESSAGES * LARGEST], into[LARGEST];
    const int kinds = sizeof sizes / sizeof sizes[0];
    size_t end[MESSAGES], bytes = 0, sent = 0, taken = 0;
    const uint64_t deadline = tti_deadline_in(60);
    int from = 0, to = 0;
    for (int i = 0; i < MESSAGES; i++) {
        bytes += sizes[i % 3 ? rand_r(seed) / 1000 % 2 : rand_r(seed) / 1000 % kinds];
        end[i] = bytes;
    }
    for (size_t i = 0; i < bytes; i++)
        all[i] = (uint8_t)(i * 2654435761u >> 13);
    while (taken < bytes) {
        size_t accepted = 0;
        for (int rank = 0; rank < 2; rank++)
            (void)tti_tcp_ops.progress(pair->transport[rank]);
        if (from < MESSAGES && from < to + ahead) {
            assert_int_equal(
                tti_tcp_ops.send(pair->endpoint[0], 0, 42, all + sent, end[from] - sent, &accepted),
                TUTTI_OK);
            sent += accepted;
            from += sent == end[from];
        }
        const bool peeks = ahead > 1 ? rand_r(seed) / 1000 % 2 : to % 5 == 4;
        taken += mixed_take(pair, peeks, all + taken, into, end[to] - taken);
        while (to < MESSAGES && taken >= end[to])
            to++;
        assert_false(tti_deadline_passed(deadline));
    }
    while (tti_tcp_ops.released(pair->endpoint[0], 0) < bytes)
        for (int rank = 0; rank < 2; rank++)
            (void)tti_tcp_ops.arm(pair->transport[rank]);
}

/* So that the socket takes large records in parts, and they come in parts. */
static void mixed_narrow(struct tcp_pair *pair)
{
    const int bytes = 20000;
    const struct tti_tcp_endpoint *from = pair->endpoint[0];
    assert_int_equal(setsockopt(from->lane[0].socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes),
                     0);
}

static void records_of_all_lengths_arrive(void **state)
{
    (void)state;
    static const int ahead[] = {1, 2, 5};
    unsigned seed = 8;
    for (int resumes = 0; resumes < 2; resumes++) {
        struct tcp_between between = {.flip_every = 150001, .flips = resumes ? 2 : 0};
        seal_set("1", "0", resumes ? "1" : "0");
        for (size_t i = 0; i < sizeof ahead / sizeof ahead[0]; i++) {
            struct tcp_pair pair;
            tcp_pair_open(&pair, 1, 1, 7, 7);
            if (i == 2)
                tcp_between_begin(&between, &pair);
            assert_int_equal(tcp_pair_connect(&pair, 60), TUTTI_OK);
            if (i == 1)
                mixed_narrow(&pair);
            mixed_stream(&pair, ahead[i], &seed);
            tcp_pair_close(&pair);
        }
        tcp_between_end(&between);
    }
}

/* ---- a stage that cannot grow ---- */

/* The linker calls this in place of malloc. */
static size_t malloc_refuses, malloc_refuses_too;
void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    return bytes == malloc_refuses || bytes == malloc_refuses_too ? NULL : __real_malloc(bytes);
}

/* Rank 0 sends on, up to `bytes`. */
static void growth_turn(struct tcp_pair *pair, const uint8_t *all, size_t bytes, size_t *sent)
{
    size_t accepted = 0;
    for (int rank = 0; rank < 2; rank++)
        (void)tti_tcp_ops.progress(pair->transport[rank]);
    if (*sent < bytes)
        assert_int_equal(
            tti_tcp_ops.send(pair->endpoint[0], 0, 42, all + *sent, bytes - *sent, &accepted),
            TUTTI_OK);
    *sent += accepted;
}

/* While a part of a record is in the stage there is memory again for a larger one: the part stays
 * where it is. */
static void a_stage_grows_behind_a_record(void **state)
{
    (void)state;
    enum { FIRST = 5000, SECOND = 60000 };
    static uint8_t all[FIRST + SECOND], into[FIRST];
    struct tcp_between between = {.flips = 0};
    struct tcp_pair pair;
    size_t sent = 0, taken = 0;
    const uint64_t deadline = tti_deadline_in(60);
    for (size_t i = 0; i < sizeof all; i++)
        all[i] = (uint8_t)(i * 2654435761u >> 13);
    seal_set("1", "0", "0");
    tcp_pair_open(&pair, 1, 1, 7, 7);
    tcp_between_begin(&between, &pair);
    assert_int_equal(tcp_pair_connect(&pair, 60), TUTTI_OK);
    const struct tti_tcp_lane *lane = &((struct tti_tcp_endpoint *)pair.endpoint[1])->lane[0];
    malloc_refuses = TTI_TCP_STAGE_BYTES;
    for (; taken < FIRST; assert_false(tti_deadline_passed(deadline))) { /* by a small stage */
        growth_turn(&pair, all, FIRST, &sent);
        taken += mixed_take(&pair, false, all + taken, into, FIRST - taken);
    }
    atomic_store(&between.may_pass, SECOND / 2);
    atomic_store(&between.holds, true);
    while (lane->seal->staged < SECOND / 2) {
        growth_turn(&pair, all, sizeof all, &sent);
        assert_int_equal(mixed_take(&pair, true, all + taken, into, 0), 0);
        assert_false(tti_deadline_passed(deadline));
    }
    assert_int_equal(lane->stage_bytes, TTI_TCP_STAGE_SMALL);
    malloc_refuses = 0;
    atomic_store(&between.holds, false);
    for (; taken < sizeof all; assert_false(tti_deadline_passed(deadline))) {
        growth_turn(&pair, all, sizeof all, &sent);
        taken += mixed_take(&pair, true, all + taken, into, 0);
    }
    tcp_pair_close(&pair);
    tcp_between_end(&between);
}

/* A connection that is first read when memory is out begins with a little. */
static void a_stage_begins_with_little(void **state)
{
    (void)state;
    unsigned seed = 9;
    seal_set("0", "0", "0");
    for (int ahead = 1; ahead <= 5; ahead++) {
        struct tcp_pair pair;
        tcp_pair_open(&pair, 1, 1, 7, 7);
        assert_int_equal(tcp_pair_connect(&pair, 60), TUTTI_OK);
        const struct tti_tcp_lane *lane = &((struct tti_tcp_endpoint *)pair.endpoint[1])->lane[0];
        if (ahead % 2)
            mixed_narrow(&pair);
        malloc_refuses = TTI_TCP_STAGE_BYTES;
        malloc_refuses_too = TTI_TCP_STAGE_SMALL;
        mixed_stream(&pair, ahead, &seed);
        malloc_refuses = malloc_refuses_too = 0;
        assert_in_range(lane->stage_bytes, 1, TTI_TCP_STAGE_SMALL - 1);
        mixed_stream(&pair, ahead, &seed);
        assert_in_range(lane->stage_bytes, TTI_TCP_STAGE_SMALL, TTI_TCP_STAGE_BYTES);
        tcp_pair_close(&pair);
    }
}

static void ranks_must_agree(void **state)
{
    (void)state;
    struct tcp_pair pair;
    void *endpoint = NULL;
    seal_set("1", "0", "0");
    tcp_pair_open(&pair, 1, 1, 7, 7);
    pair.address[1][17] = 0;
    assert_int_equal(tti_tcp_ops.connect(pair.transport[0], &pair.peer[1], PAIR_LANES, &endpoint),
                     TUTTI_ERR_USAGE);
    print_message("%s\n", tutti_last_error());
    assert_non_null(strstr(tutti_last_error(), "rank 0 (here:0) has TUTTI_TCP_CHECKSUM=1"));
    assert_non_null(strstr(tutti_last_error(), "rank 1 (here:1) has TUTTI_TCP_CHECKSUM=0"));
    tcp_pair_close(&pair);
    /* One who does not tell, or changes its mind, is refused in the handshake. */
    tcp_pair_open(&pair, 1, 1, 7, 7);
    ((struct tti_tcp_transport *)pair.transport[0])->advert.seals = 0;
    pair.address[1][17] = 0;
    assert_int_equal(tcp_pair_connect(&pair, 60), TUTTI_ERR_LINK);
    assert_non_null(strstr(tutti_last_error(), "it has another TUTTI_TCP_CHECKSUM"));
    tcp_pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flipped_bits_arrive_in_the_open),
        cmocka_unit_test(flipped_bits_are_reported),
        cmocka_unit_test(flipped_bits_are_sent_again),
        cmocka_unit_test(what_never_fits_ends),
        cmocka_unit_test(a_capture_shows_nothing),
        cmocka_unit_test(tampering_is_reported),
        cmocka_unit_test(a_repeated_record_is_refused),
        cmocka_unit_test(a_replayed_hello_is_refused),
        cmocka_unit_test(a_stage_grows_behind_a_record),
        cmocka_unit_test(a_stage_begins_with_little),
        cmocka_unit_test(records_of_all_lengths_arrive),
        cmocka_unit_test(ranks_must_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
