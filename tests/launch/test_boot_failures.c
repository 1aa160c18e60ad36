/* launch/boot.c where something goes wrong: ranks that are missing, too many, of another job or
 * size; taken ports; deaths; notices; goodbyes; strangers. Deaths come first: they fork, which is
 * only sound while there is one thread. */
#include "launch/boot_hall.h"
#include "launch/boot_socket.h"
#include "launch/boot_wire.h"
#include "tests/launch/boot_ranks.h"
#include "tests/tutti_cmocka.h"

#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Seconds for what must succeed; what must not wait so long takes less than half of it. */
enum { PATIENCE_S = 60 };

static const char *const names[] = {"host:zero", "host:one", "host:two"};

/* ---- Deaths --------------------------------------------------------------------------------- */

/* Wait for a notice: its code; TUTTI_OK when none came in that time. */
static enum tutti_result await_notice(struct tti_boot *boot, double limit_s, int *rank)
{
    uint64_t deadline = tti_deadline_in(limit_s);
    enum tutti_result result = TUTTI_OK;
    while ((result = tti_boot_poll(boot, rank)) == TUTTI_OK && !tti_deadline_passed(deadline)) {
        struct pollfd wait = {.fd = tti_boot_fd(boot), .events = POLLIN};
        (void)poll(&wait, 1, tti_deadline_ms(deadline, 1000));
    }
    return result;
}

/* A rank as a process: joins, gathers, says so, then waits to be killed, or for the death of
 * `victim`. */
static int process_rank(const struct tti_meeting *meeting, int rank, int victim, int in)
{
    struct tti_boot *boot = NULL;
    int all[3];
    int who = -1;
    alarm(200);
    if (tti_boot_create(meeting, rank, 3, tti_deadline_in(PATIENCE_S), &boot) != TUTTI_OK ||
        tti_boot_all_gather(boot, &rank, sizeof rank, all, tti_deadline_in(PATIENCE_S)) !=
            TUTTI_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, tutti_last_error());
        return 10;
    }
    tti_boot_names(boot, names);
    if (write(in, "x", 1) != 1)
        return 12;
    enum tutti_result result = await_notice(boot, PATIENCE_S, &who);
    bool right = result == TUTTI_ERR_PEER && who == victim &&
                 strstr(tutti_last_error(), names[victim]) && strstr(tutti_last_error(), "died");
    if (!right)
        fprintf(stderr, "rank %d: result %d of rank %d: %s\n", rank, (int)result, who,
                tutti_last_error());
    tti_boot_destroy(boot, 0.2);
    return right ? 0 : 11;
}

static void death_of(int victim)
{
    struct tti_meeting meeting = boot_ranks_meeting();
    pid_t pids[3];
    int in[2];
    char word;
    assert_int_equal(pipe(in), 0);
    for (int k = 0; k < 3; k++) {
        pids[k] = fork();
        if (pids[k] == 0)
            _exit(process_rank(&meeting, k, victim, in[1]));
    }
    close(in[1]);
    for (int k = 0; k < 3; k++)
        assert_int_equal(read(in[0], &word, 1), 1);
    close(in[0]);
    kill(pids[victim], SIGKILL);
    for (int k = 0; k < 3; k++) {
        int status = 0;
        assert_int_equal(waitpid(pids[k], &status, 0), pids[k]);
        if (k == victim)
            assert_true(WIFSIGNALED(status));
        else
            assert_int_equal(status, 0);
    }
}

static void death_of_a_rank(void **state)
{
    (void)state;
    death_of(2);
}

static void death_of_rank_0(void **state)
{
    (void)state;
    death_of(0);
}

/* ---- Joining -------------------------------------------------------------------------------- */

static void no_such_host(void **state)
{
    (void)state;
    struct boot_rank ranks[2];
    static const bool start[2] = {false, true};
    boot_ranks_init(ranks, 2, 0.3, NULL);
    snprintf(ranks[1].meeting.host, sizeof ranks[1].meeting.host, "no such host");
    boot_ranks_run(ranks, 2, start);
    assert_int_equal(ranks[1].error.code, TUTTI_ERR_LINK);
    boot_expect_text(ranks[1].error.text, "name lookup");
}

static void wrong_size(void **state)
{
    (void)state;
    struct boot_rank ranks[3];
    boot_ranks_init(ranks, 3, PATIENCE_S, NULL);
    ranks[2].size = 4;
    boot_ranks_run(ranks, 3, NULL);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(ranks[k].error.code, TUTTI_ERR_MISMATCH);
        boot_expect_text(ranks[k].error.text, "rank 2 at 127.0.0.1");
        boot_expect_text(ranks[k].error.text, "says that there are 4 ranks");
    }
}

static void rank_twice(void **state)
{
    (void)state;
    struct boot_rank ranks[3];
    boot_ranks_init(ranks, 3, PATIENCE_S, NULL);
    ranks[2].rank = 1;
    boot_ranks_run(ranks, 3, NULL);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(ranks[k].error.code, TUTTI_ERR_MISMATCH);
        boot_expect_text(ranks[k].error.text, "two processes say that they are rank 1 of 3");
    }
}

static void taken_port(void **state)
{
    (void)state;
    struct boot_rank ranks[2];
    static const bool start[2] = {true, false};
    char where[64];
    int fd = -1;
    uint16_t port = 0;
    boot_ranks_init(ranks, 2, PATIENCE_S, NULL);
    assert_int_equal(tti_socket_listen("127.0.0.1", ranks[0].meeting.port, 1, &fd, &port),
                     TUTTI_OK);
    boot_ranks_run(ranks, 2, start);
    close(fd);
    assert_int_equal(ranks[0].error.code, TUTTI_ERR_SYSTEM);
    snprintf(where, sizeof where, "127.0.0.1:%d: the port is taken", port);
    boot_expect_text(ranks[0].error.text, where);
    assert_true(ranks[0].seconds < PATIENCE_S / 2.0); /* at once, not at the deadline */
}

static void bad_arguments(void **state)
{
    (void)state;
    struct tti_meeting meeting = boot_ranks_meeting();
    struct tti_boot *boot = NULL;
    static const int pairs[][2] = {{0, 0}, {-1, 2}, {2, 2}, {0, 1 << 20}};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(
            tti_boot_create(&meeting, pairs[i][0], pairs[i][1], tti_deadline_in(1), &boot),
            TUTTI_ERR_ARGUMENT);
    meeting.ports = 0;
    assert_int_equal(tti_boot_create(&meeting, 0, 2, tti_deadline_in(1), &boot),
                     TUTTI_ERR_ARGUMENT);
    assert_null(boot);
    tti_boot_destroy(NULL, 1);
}

/* ---- Notices and goodbyes ------------------------------------------------------------------- */

static atomic_int right;

static void notify_body(struct boot_rank *self)
{
    int who = -1;
    char all[3];
    if (self->rank == 2) {
        tti_boot_notify(self->boot, TUTTI_ERR_ABORTED, "rank 2 has\nhad enough");
        tti_boot_notify(self->boot, TUTTI_ERR_LINK, "a second word does not count");
        /* The others have heard it when they leave. */
        uint64_t deadline = tti_deadline_in(PATIENCE_S);
        while (!(tti_boot_has_left(self->boot, 0) && tti_boot_has_left(self->boot, 1)) &&
               !tti_deadline_passed(deadline) && tti_boot_poll(self->boot, &who) == TUTTI_OK)
            (void)poll(NULL, 0, 5);
        return;
    }
    /* One learns it by asking, the other in the middle of a gather. */
    enum tutti_result result =
        self->rank == 0 ? await_notice(self->boot, PATIENCE_S, &who)
                        : tti_boot_all_gather(self->boot, "x", 1, all, tti_deadline_in(PATIENCE_S));
    right +=
        result == TUTTI_ERR_ABORTED && strcmp(tutti_last_error(), "rank 2 has had enough") == 0;
    result = tti_boot_poll(self->boot, &who);
    right += result == TUTTI_ERR_ABORTED && who == 2;
    result = tti_boot_all_gather(self->boot, "x", 1, all, tti_deadline_in(PATIENCE_S));
    right += result == TUTTI_ERR_ABORTED;
}

static void notices(void **state)
{
    (void)state;
    struct boot_rank ranks[3];
    right = 0;
    boot_ranks_init(ranks, 3, PATIENCE_S, notify_body);
    boot_ranks_run(ranks, 3, NULL);
    assert_int_equal(right, 6);
}

static void leave_body(struct boot_rank *self)
{
    int who = -1;
    char all[3];
    if (self->rank == 2)
        return; /* and leave */
    tti_boot_names(self->boot, names);
    uint64_t deadline = tti_deadline_in(PATIENCE_S);
    while (!tti_boot_has_left(self->boot, 2) && !tti_deadline_passed(deadline)) {
        right -= tti_boot_poll(self->boot, &who) != TUTTI_OK;
        (void)poll(NULL, 0, 5);
    }
    right += tti_boot_poll(self->boot, &who) == TUTTI_OK;
    right += tti_boot_all_gather(self->boot, "x", 1, all, tti_deadline_in(PATIENCE_S)) ==
                 TUTTI_ERR_PEER &&
             strcmp(tutti_last_error(), "rank 2 (host:two) has left the communicator") == 0;
}

static void goodbyes(void **state)
{
    (void)state;
    struct boot_rank ranks[3];
    right = 0;
    boot_ranks_init(ranks, 3, PATIENCE_S, leave_body);
    boot_ranks_run(ranks, 3, NULL);
    assert_int_equal(right, 4);
}

/* After rank 0's goodbye, nothing more comes, and the descriptor does not say otherwise. */
static void first_leaves_body(struct boot_rank *self)
{
    int who = -1;
    if (self->rank == 0)
        return;
    uint64_t deadline = tti_deadline_in(PATIENCE_S);
    while (!tti_boot_has_left(self->boot, 0) && !tti_deadline_passed(deadline)) {
        right -= tti_boot_poll(self->boot, &who) != TUTTI_OK;
        (void)poll(NULL, 0, 5);
    }
    (void)poll(NULL, 0, 500); /* rank 0 lingers 0.2 s for us */
    right += tti_boot_poll(self->boot, &who) == TUTTI_OK;
    struct pollfd wait = {.fd = tti_boot_fd(self->boot), .events = POLLIN};
    right += poll(&wait, 1, 0) == 0;
    tti_boot_notify(self->boot, TUTTI_ERR_ABORTED, "to nobody");
}

static void rank_0_leaves_first(void **state)
{
    (void)state;
    struct boot_rank ranks[3];
    right = 0;
    boot_ranks_init(ranks, 3, PATIENCE_S, first_leaves_body);
    for (int k = 0; k < 3; k++)
        ranks[k].linger_s = 0.2;
    boot_ranks_run(ranks, 3, NULL);
    assert_int_equal(right, 4);
}

/* Ranks 1 to 3 leave while the server stands still: it reads the goodbye of one and tells it to the
 * others, who are gone and cannot be told; but what they have said is still there to be read. */
static void all_leave_at_once(void **state)
{
    (void)state;
    enum { RANKS = 4 };
    const struct tti_boot_frame bye = {.type = TTI_BOOT_BYE};
    struct tti_boot_server server = {.size = RANKS, .started = true};
    struct tti_boot_conn *conns[RANKS];
    bool left[RANKS] = {false};
    uint8_t header[TTI_BOOT_HEADER_BYTES];
    int ends[RANKS][2];
    pthread_mutex_init(&server.held.lock, NULL);
    server.left = left;
    server.crowd.conns = conns;
    server.crowd.count = RANKS;
    tti_boot_frame_encode(&bye, header);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends[rank]), 0);
        conns[rank] = tti_boot_conn_create(ends[rank][0], UINT64_MAX);
        assert_non_null(conns[rank]);
        conns[rank]->state = TTI_BOOT_CONN_JOINED;
        conns[rank]->rank = rank;
        if (rank == 0)
            continue;
        assert_int_equal(write(ends[rank][1], header, sizeof header), sizeof header);
        close(ends[rank][1]);
    }
    for (int rank = 1; rank < RANKS; rank++)
        tti_boot_hall_read(&server, conns[rank]);
    assert_false(server.failed);
    for (int rank = 1; rank < RANKS; rank++) {
        struct tti_boot_frame told;
        assert_true(left[rank]);
        assert_int_equal(read(ends[0][1], header, sizeof header), sizeof header);
        assert_int_equal(tti_boot_frame_parse(header, TTI_BOOT_TO_CLIENT, &told), TUTTI_OK);
        assert_int_equal(told.type, TTI_BOOT_BYE);
        assert_int_equal(told.rank, rank);
    }
    close(ends[0][1]);
    for (int rank = 0; rank < RANKS; rank++)
        tti_boot_conn_destroy(conns[rank]);
    pthread_mutex_destroy(&server.held.lock);
}

static void unequal_body(struct boot_rank *self)
{
    char mine[200000] = "";
    static char all[3][600000];
    enum tutti_result result = tti_boot_all_gather(self->boot, mine, self->rank == 1 ? 200000 : 5,
                                                   all[self->rank], tti_deadline_in(PATIENCE_S));
    right += result == TUTTI_ERR_MISMATCH && strstr(tutti_last_error(), "gathers") &&
             strstr(tutti_last_error(), "same Tutti version?");
}

static void unequal_gather(void **state)
{
    (void)state;
    struct boot_rank ranks[3];
    right = 0;
    boot_ranks_init(ranks, 3, PATIENCE_S, unequal_body);
    boot_ranks_run(ranks, 3, NULL);
    assert_int_equal(right, 3);
}

/* ---- Strangers ------------------------------------------------------------------------------ */

static atomic_bool strangers_stop;
static atomic_int strangers_met;
enum { STRANGERS = 100 }; /* before the last rank comes */

/* Connects again and again: silence, noise, half a frame, a frame that lies, a good hello without
 * the secret, and a frame for insiders. */
static void *strangers_main(void *argument)
{
    const struct tti_meeting *meeting = argument;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(meeting->port)};
    struct tti_boot_frame hello = {
        .type = TTI_BOOT_HELLO, .rank = 1, .wait_ms = 1, .bytes = TTI_BOOT_HELLO_BYTES};
    struct tti_boot_frame inside = {.type = TTI_BOOT_NOTICE, .rank = 1, .code = TUTTI_ERR_LINK};
    struct tti_boot_frame proof = {
        .type = TTI_BOOT_PROOF, .rank = 1, .bytes = TTI_BOOT_PROOF_BYTES};
    uint8_t bytes[2 * TTI_BOOT_HEADER_BYTES + TTI_BOOT_HELLO_BYTES + TTI_BOOT_PROOF_BYTES];
    int open[100];
    int count = 0;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int turn = 0; !strangers_stop; turn++) {
        int fd = tti_socket_connect((struct sockaddr *)(void *)&address, sizeof address,
                                    tti_deadline_in(1));
        if (fd < 0) {
            (void)poll(NULL, 0, 1);
            continue;
        }
        strangers_met++;
        memset(bytes, 'x', sizeof bytes);
        size_t length = sizeof bytes;
        if (turn % 6 == 0)
            length = 0;
        if (turn % 6 == 2)
            length = 7;
        if (turn % 6 >= 3)
            tti_boot_frame_encode(turn % 6 == 5 ? &inside : &hello, bytes);
        if (turn % 6 == 3)
            memset(bytes + 24, 0xff, 8); /* a body of 2^64 - 1 bytes */
        if (turn % 6 == 4)
            tti_boot_frame_encode(&proof, bytes + TTI_BOOT_HEADER_BYTES + TTI_BOOT_HELLO_BYTES);
        (void)tti_socket_send(fd, bytes, length, tti_deadline_in(1));
        if (count == 100)
            close(open[--count]);
        open[count++] = fd;
        (void)poll(NULL, 0, 1); /* each leaves a port behind that waits for its time */
    }
    while (count > 0)
        close(open[--count]);
    return NULL;
}

static void stranger_body(struct boot_rank *self)
{
    int mine = self->rank + 1;
    int all[6] = {0};
    bool good = true;
    for (int turn = 0; turn < 20; turn++) {
        good = good && tti_boot_all_gather(self->boot, &mine, sizeof mine, all,
                                           tti_deadline_in(PATIENCE_S)) == TUTTI_OK;
        for (int k = 0; k < self->size; k++)
            good = good && all[k] == k + 1;
    }
    right += good;
}

static void *late_rank(void *argument)
{
    while (strangers_met <= STRANGERS)
        (void)poll(NULL, 0, 5);
    return boot_rank_main(argument);
}

static void strangers(void **state)
{
    (void)state;
    struct boot_rank ranks[6];
    static const bool start[6] = {true, true, true, true, true, false};
    pthread_t stranger;
    pthread_t late;
    right = 0;
    strangers_stop = false;
    strangers_met = 0;
    boot_ranks_init(ranks, 6, PATIENCE_S, stranger_body);
    pthread_create(&stranger, NULL, strangers_main, &ranks[0].meeting);
    pthread_create(&late, NULL, late_rank, &ranks[5]);
    boot_ranks_run(ranks, 6, start);
    pthread_join(late, NULL);
    strangers_stop = true;
    pthread_join(stranger, NULL);
    print_message("%d strangers met\n", (int)strangers_met);
    for (int k = 0; k < 6; k++) {
        if (ranks[k].error.code != TUTTI_OK)
            print_error("rank %d: %s\n", k, ranks[k].error.text);
        assert_int_equal(ranks[k].error.code, TUTTI_OK);
    }
    assert_int_equal(right, 6);
    assert_true(strangers_met > STRANGERS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(death_of_a_rank),   cmocka_unit_test(death_of_rank_0),
        cmocka_unit_test(no_such_host),      cmocka_unit_test(wrong_size),
        cmocka_unit_test(rank_twice),        cmocka_unit_test(taken_port),
        cmocka_unit_test(bad_arguments),     cmocka_unit_test(notices),
        cmocka_unit_test(goodbyes),          cmocka_unit_test(rank_0_leaves_first),
        cmocka_unit_test(unequal_gather),    cmocka_unit_test(strangers),
        cmocka_unit_test(all_leave_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
