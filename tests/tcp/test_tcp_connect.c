/* Making connections: who gets in, who does not, and that those who do not disturb nothing. */
#include "tests/tcp/tcp_between.h"

#include "base/clock.h"
#include "transport/registry.h"
#include "transport/tcp/tcp.h"

#include "tests/tutti_cmocka.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- strangers ------------------------------------------------------------------------------ */

enum { STRANGERS_MOST = 512 };
static int strangers[STRANGERS_MOST];
static int stranger_count;

static int stranger_connect(uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(made >= 0 && stranger_count < STRANGERS_MOST);
    assert_int_equal(connect(made, (struct sockaddr *)&to, sizeof to), 0);
    fcntl(made, F_SETFL, O_NONBLOCK);
    strangers[stranger_count++] = made;
    return made;
}

static void strangers_leave(void)
{
    while (stranger_count > 0)
        close(strangers[--stranger_count]);
}

/* Each call another kind of nuisance, at both ranks. */
static void strangers_bother(struct tcp_pair *pair)
{
    static unsigned kind;
    uint8_t noise[4096];
    if (stranger_count > 200)
        return;
    for (int rank = 0; rank < 2; rank++) {
        int socket = stranger_connect(pair->port[rank]);
        memset(noise, (int)kind, sizeof noise);
        size_t bytes = sizeof noise;
        if (kind % 4 == 1) { /* a hello of the right form with a wrong proof */
            struct tti_tcp_hello hello = {
                .lanes = 1, .job = 1, .from = (uint32_t)!rank, .to = (uint32_t)rank, .id = 3};
            tti_tcp_put_hello(&hello, noise);
            bytes = TTI_TCP_HELLO_BYTES;
        } else if (kind % 4 == 2) { /* fragments, as if we were in */
            for (size_t at = 0; at < sizeof noise; at += 64)
                tti_tcp_put_header(42, 48, noise + at);
        } else if (kind % 4 == 3) { /* half a hello, and silence */
            bytes = 20;
        }
        (void)send(socket, noise, bytes, MSG_NOSIGNAL);
        if (kind % 8 == 4)
            shutdown(socket, SHUT_WR);
    }
    kind++;
}

static void strangers_do_not_disturb(void **state)
{
    (void)state;
    struct tcp_pair pair;
    tcp_pair_open(&pair, 1, 1, 7, 7);
    for (int i = 0; i < 8; i++)
        strangers_bother(&pair);
    assert_int_equal(tcp_pair_connect(&pair, 60), TUTTI_OK);
    tcp_pair_stream(&pair, 8 << 20, strangers_bother);
    assert_true(stranger_count > 50);
    strangers_leave();
    tcp_pair_stream(&pair, 1 << 20, NULL);
    tcp_pair_close(&pair);
}

static int strangers_shut_out(void)
{
    int out = 0;
    for (int i = 0; i < stranger_count; i++) {
        char bytes[256];
        ssize_t got = 1;
        while (got > 0)
            got = recv(strangers[i], bytes, sizeof bytes, MSG_DONTWAIT);
        out += got == 0;
    }
    return out;
}

/* More silent strangers than there are places: each is shown out after its time, and then those who
 * belong here get in. */
static void silent_strangers_are_shown_out(void **state)
{
    (void)state;
    struct tcp_pair pair;
    tcp_pair_open(&pair, 1, 1, 7, 7);
    for (int i = 0; i < 130; i++)
        stranger_connect(pair.port[1]);
    assert_int_equal(tcp_pair_connect(&pair, 60), TUTTI_OK);
    tcp_pair_stream(&pair, 100000, NULL);
    /* They did not all come at the same time. */
    for (uint64_t end = tti_deadline_in(60); strangers_shut_out() < 128;) {
        assert_false(tti_deadline_passed(end));
        assert_int_equal(tti_tcp_ops.progress(pair.transport[1]), TUTTI_OK);
    }
    strangers_leave();
    tcp_pair_close(&pair);
}

/* A caller with the challenge of `rank`, which it is to answer. */
static void caller_begin(struct tti_tcp_talk *talk, struct tcp_pair *pair, int rank)
{
    memset(talk, 0, sizeof *talk);
    talk->socket = stranger_connect(pair->port[rank]);
    while (tti_tcp_talk_read(talk, TTI_TCP_CHALLENGE_BYTES) == TTI_TCP_TALK_MORE)
        for (int k = 0; k < 33; k++)
            assert_int_equal(tti_tcp_ops.progress(pair->transport[rank]), TUTTI_OK);
    memcpy(talk->challenge, talk->in, TTI_TCP_CHALLENGE_BYTES);
}

/* What `rank` says to what the caller has to say: a message of so many bytes, or the end. */
static enum tti_tcp_talk_state caller_ask(struct tti_tcp_talk *talk, struct tcp_pair *pair,
                                          int rank, size_t bytes)
{
    enum tti_tcp_talk_state state = TTI_TCP_TALK_MORE;
    assert_int_equal(tti_tcp_talk_write(talk), TTI_TCP_TALK_DONE);
    while (state == TTI_TCP_TALK_MORE) {
        assert_int_equal(tti_tcp_ops.progress(pair->transport[rank]), TUTTI_OK);
        state = tti_tcp_talk_read(talk, bytes);
    }
    return state;
}

/* What was recorded of one handshake is worth nothing in another: the challenge differs. */
static void a_replayed_hello_is_refused(void **state)
{
    (void)state;
    struct tcp_pair pair;
    struct tti_tcp_talk talk[2];
    struct tti_tcp_hello hello = {.lanes = 1, .job = 7, .from = 0, .to = 1, .id = 3};
    enum tti_tcp_talk_state end[2] = {TTI_TCP_TALK_MORE, TTI_TCP_TALK_MORE};
    tcp_pair_open(&pair, 1, 1, 7, 7);
    for (int i = 0; i < 2; i++) {
        caller_begin(&talk[i], &pair, 1);
        if (i == 0) /* the one who knows the secret; the other sends the same bytes */
            tti_tcp_talk_say_hello(&talk[0], &hello, pair.secret[0]);
        memcpy(talk[i].out, talk[0].hello, TTI_TCP_HELLO_BYTES);
        memcpy(talk[i].hello, talk[0].hello, TTI_TCP_HELLO_BYTES);
        talk[i].out_bytes = TTI_TCP_HELLO_BYTES;
        end[i] = caller_ask(&talk[i], &pair, 1, TTI_TCP_ANSWER_BYTES);
    }
    assert_int_equal(end[0], TTI_TCP_TALK_DONE);
    assert_true(tti_tcp_talk_answer_proved(&talk[0], pair.secret[1]));
    assert_int_equal(end[1], TTI_TCP_TALK_CLOSED);
    strangers_leave();
    tcp_pair_close(&pair);
}

/* What a transport's epoll looks after. */
static int watched(const struct tti_tcp_transport *transport)
{
    char path[64], line[256];
    int count = 0;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", transport->epoll);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        count += strncmp(line, "tfd:", 4) == 0;
    fclose(file);
    return count;
}

/* Not even if a child, which is about to start another program, has its socket, too. */
static void who_was_shown_out_is_not_watched(void **state)
{
    (void)state;
    struct tcp_pair pair;
    const uint8_t noise[TTI_TCP_HELLO_BYTES] = {0};
    tcp_pair_open(&pair, 1, 1, 7, 7);
    const struct tti_tcp_transport *transport = pair.transport[1];
    const int before = watched(transport), socket = stranger_connect(pair.port[1]);
    int held = -1;
    for (uint64_t deadline = tti_deadline_in(60); held < 0 || transport->guests > 0;) {
        assert_false(tti_deadline_passed(deadline));
        assert_int_equal(tti_tcp_ops.progress(pair.transport[1]), TUTTI_OK);
        if (held >= 0 || transport->guests == 0)
            continue;
        held = dup(transport->guest[0]->talk.socket);
        assert_int_equal(send(socket, noise, sizeof noise, MSG_NOSIGNAL), sizeof noise);
    }
    assert_int_equal(watched(transport), before);
    close(held);
    strangers_leave();
    tcp_pair_close(&pair);
}

/* ---- ranks that do not belong together ------------------------------------------------------- */

static void a_wrong_secret_is_refused(void **state)
{
    (void)state;
    struct tcp_pair pair;
    tcp_pair_open(&pair, 1, 2, 7, 7);
    assert_int_equal(tcp_pair_connect(&pair, 60), TUTTI_ERR_LINK);
    assert_non_null(strstr(tutti_last_error(), "the secret of the job"));
    tcp_pair_close(&pair);
}

static void another_job_is_refused(void **state)
{
    (void)state;
    struct tcp_pair pair;
    tcp_pair_open(&pair, 1, 1, 7, 8);
    assert_int_equal(tcp_pair_connect(&pair, 60), TUTTI_ERR_LINK);
    assert_non_null(strstr(tutti_last_error(), "another communicator"));
    tcp_pair_close(&pair);
}

static void different_lanes_are_refused(void **state)
{
    (void)state;
    struct tcp_pair pair;
    enum tutti_result result[2] = {TUTTI_IN_PROGRESS, TUTTI_IN_PROGRESS};
    uint64_t deadline = tti_deadline_in(60);
    tcp_pair_open(&pair, 1, 1, 7, 7);
    for (int rank = 0; rank < 2; rank++)
        assert_int_equal(tti_tcp_ops.connect(pair.transport[rank], &pair.peer[!rank], 1 + rank,
                                             &pair.endpoint[rank]),
                         TUTTI_OK);
    while (result[1] == TUTTI_IN_PROGRESS && !tti_deadline_passed(deadline))
        for (int rank = 0; rank < 2; rank++)
            result[rank] = tti_tcp_ops.advance(pair.endpoint[rank]);
    assert_int_equal(result[1], TUTTI_ERR_PROTOCOL);
    assert_non_null(strstr(tutti_last_error(), "connects with 1 lanes, this rank expects 2"));
    tcp_pair_close(&pair);
}

/* ---- nobody there --------------------------------------------------------------------------- */

static void a_refused_connection_says_what_was_tried(void **state)
{
    (void)state;
    struct tcp_pair pair;
    enum tutti_result result = TUTTI_IN_PROGRESS;
    uint64_t deadline = tti_deadline_in(60);
    tcp_pair_open(&pair, 1, 1, 7, 7);
    tti_tcp_ops.close(pair.transport[1]);
    assert_int_equal(
        tti_tcp_ops.connect(pair.transport[0], &pair.peer[1], PAIR_LANES, &pair.endpoint[0]),
        TUTTI_OK);
    while (result == TUTTI_IN_PROGRESS && !tti_deadline_passed(deadline))
        result = tti_tcp_ops.advance(pair.endpoint[0]);
    assert_int_equal(result, TUTTI_ERR_LINK);
    assert_non_null(strstr(tutti_last_error(), "cannot connect rank 0 to rank 1 (here:1)"));
    assert_non_null(strstr(tutti_last_error(), "Connection refused"));
    assert_non_null(strstr(tutti_last_error(), "TUTTI_IFNAME"));
    tti_tcp_ops.close(pair.transport[0]);
}

/* ---- connections that are lost while they are made --------------------------------------------
 */

/* Rank 1 sends a few bytes on lane 0. */
static void cut_check(struct tcp_pair *pair)
{
    static const char word[] = "after all";
    uint64_t tag = 0, deadline = tti_deadline_in(60);
    const void *data = NULL;
    size_t accepted = 0, bytes = 0;
    assert_int_equal(tti_tcp_ops.send(pair->endpoint[1], 0, 7, word, sizeof word, &accepted),
                     TUTTI_OK);
    assert_int_equal(accepted, sizeof word);
    while (bytes == 0 && !tti_deadline_passed(deadline)) {
        for (int rank = 0; rank < 2; rank++)
            assert_int_equal(tti_tcp_ops.progress(pair->transport[rank]), TUTTI_OK);
        assert_int_equal(tti_tcp_ops.peek(pair->endpoint[0], 0, &tag, &data, &bytes), TUTTI_OK);
    }
    assert_int_equal(bytes, sizeof word);
    assert_int_equal(tag, 7);
    assert_memory_equal(data, word, sizeof word);
    tti_tcp_ops.consume(pair->endpoint[0], 0, bytes);
}

enum {
    CUT_GONE =
        TTI_TCP_CHALLENGE_BYTES + TTI_TCP_HELLO_BYTES + TTI_TCP_ANSWER_BYTES + TTI_TCP_GO_BYTES,
    CUT_HANDSHAKE = CUT_GONE + TTI_TCP_READY_BYTES, /* of lane 0, whose connection is the first */
};

/* Connections `which` are reset when so many of their bytes have passed; returns how many were. */
static unsigned cut_while_connecting(unsigned which, uint64_t after)
{
    static struct tcp_between between;
    struct tcp_pair pair;
    tcp_pair_open(&pair, 1, 1, 7, 7);
    between.cut_which = which;
    between.cut_after = after;
    tcp_between_begin(&between, &pair);
    if (tcp_pair_connect(&pair, 60) != TUTTI_OK)
        fail_msg("cut %x after %u: %s", which, (unsigned)after, tutti_last_error());
    cut_check(&pair);
    tcp_pair_stream(&pair, 100000, NULL);
    const unsigned cuts = atomic_load(&between.cut);
    tcp_pair_close(&pair);
    tcp_between_end(&between);
    return cuts;
}

/* Wherever in the handshake it happens, and to whichever connections: others are made, and every
 * byte arrives. Plain, with sums and encrypted by turns. */
static void a_connection_lost_in_the_making_is_made_again(void **state)
{
    unsigned turn = 0, cuts = 0;
    (void)state;
    setenv("TUTTI_TCP_RESUME", "1", 1);
    for (uint64_t after = 0; after <= CUT_HANDSHAKE; after += after < CUT_GONE ? 13 : 4, turn++) {
        setenv("TUTTI_TCP_CHECKSUM", turn % 3 == 1 ? "1" : "0", 1);
        setenv("TUTTI_TCP_ENCRYPT", turn % 3 == 2 ? "1" : "0", 1);
        cuts += cut_while_connecting(after <= CUT_GONE ? 1 + turn % 7 : 1, after);
    }
    print_message("%u connections cut in %u handshakes\n", cuts, turn);
    assert_true(cuts >= turn / 2);
    unsetenv("TUTTI_TCP_RESUME");
    unsetenv("TUTTI_TCP_CHECKSUM");
    unsetenv("TUTTI_TCP_ENCRYPT");
}

/* The caller takes a lane for made when it has written its go. Whether the other rank reads that,
 * and waits for other lanes or has said that it is ready, or never gets it: the lane is made again.
 */
static void a_lane_lost_behind_its_go_is_made_again(void **state)
{
    (void)state;
    setenv("TUTTI_TCP_RESUME", "1", 1);
    for (int sums = 0; sums < 2; sums++) {
        setenv("TUTTI_TCP_CHECKSUM", sums ? "1" : "0", 1);
        assert_int_equal(cut_while_connecting(2, CUT_GONE - 4), 1);
        assert_int_equal(cut_while_connecting(2, CUT_GONE), 1);
        assert_int_equal(cut_while_connecting(3, CUT_GONE), 2);
    }
    unsetenv("TUTTI_TCP_RESUME");
    unsetenv("TUTTI_TCP_CHECKSUM");
}

/* Both ranks move until lane 0 goes on after so many cuts at rank 0. */
static void cut_until_well(struct tcp_pair *pair, unsigned cuts)
{
    const struct tti_tcp_endpoint *ends[2] = {pair->endpoint[0], pair->endpoint[1]};
    uint64_t deadline = tti_deadline_in(60);
    while (ends[0]->lane[0].cuts < cuts || ends[0]->lane[0].cut || ends[1]->lane[0].cut) {
        assert_false(tti_deadline_passed(deadline));
        for (int rank = 0; rank < 2; rank++)
            assert_int_equal(tti_tcp_ops.progress(pair->transport[rank]), TUTTI_OK);
    }
}

/* Rank 0 has a connection that is lost before rank 1 has it, whose lane waits all the while: it
 * counts one loss, rank 0 two. Was the count not the same afterwards, rank 0 would take a loss that
 * only rank 1 sees next, and asks about, for one that it knows. */
static void both_count_the_same_losses(void **state)
{
    (void)state;
    static struct tcp_between between;
    struct tcp_pair pair;
    setenv("TUTTI_TCP_RESUME", "1", 1);
    tcp_pair_open(&pair, 1, 1, 7, 7);
    between.cut_which = 1 << PAIR_LANES; /* the first that is made anew */
    between.cut_after = CUT_GONE - 4;
    tcp_between_begin(&between, &pair);
    assert_int_equal(tcp_pair_connect(&pair, 60), TUTTI_OK);
    const struct tti_tcp_endpoint *calls = pair.endpoint[0], *called = pair.endpoint[1];
    shutdown(calls->lane[0].socket, SHUT_RDWR);
    cut_until_well(&pair, 2);
    assert_int_equal(atomic_load(&between.cut), 1);
    assert_true(calls->lane[0].cuts == 2 && called->lane[0].cuts == 2);
    cut_check(&pair);
    tcp_pair_close(&pair);
    tcp_between_end(&between);
    unsetenv("TUTTI_TCP_RESUME");
}

/* A lane goes on over one connection; what then comes of another one that was to serve it, and that
 * rank 0 has given up, does not touch it. */
static void a_late_go_does_not_cut_the_lane(void **state)
{
    (void)state;
    struct tcp_pair pair;
    struct tti_tcp_talk talk;
    setenv("TUTTI_TCP_RESUME", "1", 1);
    tcp_pair_open(&pair, 1, 1, 7, 7);
    assert_int_equal(tcp_pair_connect(&pair, 60), TUTTI_OK);
    const struct tti_tcp_endpoint *calls = pair.endpoint[0], *called = pair.endpoint[1];
    struct tti_tcp_hello hello = {.lanes = PAIR_LANES,
                                  .job = 7,
                                  .to = 1,
                                  .id = calls->id,
                                  .resumes = 1,
                                  .purpose = TTI_TCP_RESUME};
    caller_begin(&talk, &pair, 1);
    tti_tcp_talk_say_hello(&talk, &hello, pair.secret[0]);
    assert_int_equal(caller_ask(&talk, &pair, 1, TTI_TCP_ANSWER_BYTES), TTI_TCP_TALK_DONE);
    assert_true(called->lane[0].cut);
    cut_until_well(&pair, 1);
    const unsigned cuts = called->lane[0].cuts;
    cut_check(&pair);
    tti_tcp_talk_say_go(&talk);
    assert_int_equal(caller_ask(&talk, &pair, 1, 1), TTI_TCP_TALK_CLOSED);
    assert_int_equal(called->lane[0].cuts, cuts);
    cut_check(&pair);
    strangers_leave();
    tcp_pair_close(&pair);
    unsetenv("TUTTI_TCP_RESUME");
}

/* Rank 1 goes when it has proved itself on all lanes, and before it has read the last go. */
static void peer_ends(bool expects_us)
{
    struct tcp_pair pair;
    enum tutti_result result = TUTTI_IN_PROGRESS;
    tcp_pair_open(&pair, 1, 1, 7, 7);
    for (int rank = 0; rank < 1 + expects_us; rank++)
        assert_int_equal(tti_tcp_ops.connect(pair.transport[rank], &pair.peer[!rank], PAIR_LANES,
                                             &pair.endpoint[rank]),
                         TUTTI_OK);
    const struct tti_tcp_endpoint *calls = pair.endpoint[0], *called = pair.endpoint[1];
    for (uint64_t end = tti_deadline_in(60); calls->up < calls->lanes;) {
        assert_false(tti_deadline_passed(end));
        assert_int_equal(tti_tcp_ops.progress(pair.transport[1]), TUTTI_OK);
        assert_int_equal(tti_tcp_ops.advance(pair.endpoint[0]), TUTTI_IN_PROGRESS);
    }
    assert_true(!expects_us || called->up == PAIR_LANES - 1);
    tti_tcp_ops.close(pair.transport[1]);
    for (uint64_t end = tti_deadline_in(60); result == TUTTI_IN_PROGRESS;) {
        assert_false(tti_deadline_passed(end));
        result = tti_tcp_ops.advance(pair.endpoint[0]);
    }
    assert_int_equal(result, TUTTI_ERR_PEER);
    assert_non_null(strstr(tutti_last_error(), "rank 1 (here:1) closed the connection"));
    tti_tcp_ops.close(pair.transport[0]);
}

/* Who has proved itself and is gone before it was ready has died: that is told at once. */
static void the_end_of_a_peer_is_no_lost_connection(void **state)
{
    (void)state;
    setenv("TUTTI_TCP_RESUME", "1", 1);
    for (int encrypts = 0; encrypts < 2; encrypts++) {
        setenv("TUTTI_TCP_ENCRYPT", encrypts ? "1" : "0", 1);
        peer_ends(false);
        peer_ends(true);
    }
    unsetenv("TUTTI_TCP_RESUME");
    unsetenv("TUTTI_TCP_ENCRYPT");
}

static void wrong_settings_are_refused(void **state)
{
    (void)state;
    uint8_t secret[TUTTI_SECRET_BYTES] = {0};
    void *transport = NULL;
    struct tutti_transport_env env = {.size = sizeof env,
                                      .services = tti_transport_services(),
                                      .secret = secret,
                                      .nranks = 2,
                                      .name = "here:0",
                                      .lanes = 1};
    setenv("TUTTI_IFNAME", "nosuchinterface", 1);
    assert_int_equal(tti_tcp_ops.open(&env, &transport), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "lo 127.0.0.1"));
    setenv("TUTTI_IFNAME", "=lo", 1);
    assert_int_equal(tti_tcp_ops.open(&env, &transport), TUTTI_OK);
    tti_tcp_ops.close(transport);
    unsetenv("TUTTI_IFNAME");
    setenv("TUTTI_TCP_PORTS", "90000", 1);
    assert_int_equal(tti_tcp_ops.open(&env, &transport), TUTTI_ERR_ARGUMENT);
    unsetenv("TUTTI_TCP_PORTS");
    setenv("TUTTI_TCP_CONGESTION", "nosuchcontrol", 1);
    assert_int_equal(tti_tcp_ops.open(&env, &transport), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "everybody may use: "));
    setenv("TUTTI_TCP_CONGESTION", "reno", 1);
    assert_int_equal(tti_tcp_ops.open(&env, &transport), TUTTI_OK);
    tti_tcp_ops.close(transport);
    unsetenv("TUTTI_TCP_CONGESTION");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_do_not_disturb),
        cmocka_unit_test(silent_strangers_are_shown_out),
        cmocka_unit_test(a_replayed_hello_is_refused),
        cmocka_unit_test(who_was_shown_out_is_not_watched),
        cmocka_unit_test(a_wrong_secret_is_refused),
        cmocka_unit_test(another_job_is_refused),
        cmocka_unit_test(different_lanes_are_refused),
        cmocka_unit_test(a_refused_connection_says_what_was_tried),
        cmocka_unit_test(a_connection_lost_in_the_making_is_made_again),
        cmocka_unit_test(a_lane_lost_behind_its_go_is_made_again),
        cmocka_unit_test(both_count_the_same_losses),
        cmocka_unit_test(a_late_go_does_not_cut_the_lane),
        cmocka_unit_test(the_end_of_a_peer_is_no_lost_connection),
        cmocka_unit_test(wrong_settings_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
