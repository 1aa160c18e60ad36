/* launch/boot.c where all goes well: ranks as threads join, gather, leave; the smallest and the
 * largest blobs; one rank; several communicators at one meeting; IPv6; ids. */
#include "launch/boot_socket.h"
#include "launch/environment.h"
#include "launch/id.h"
#include "tests/launch/boot_ranks.h"
#include "tests/tutti_cmocka.h"

#include <dirent.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { PATIENCE_S = 100, ID_MAKERS = 4, ID_TURNS = 1000 };
static atomic_int wrong;

static void gather_bytes(struct boot_rank *self, size_t bytes)
{
    uint8_t *mine = malloc(bytes + 1);
    uint8_t *all = malloc(bytes * (size_t)self->size + 1);
    memset(mine, self->rank + 1, bytes);
    enum tutti_result result =
        tti_boot_all_gather(self->boot, mine, bytes, all, tti_deadline_in(PATIENCE_S));
    if (result != TUTTI_OK) {
        tti_error_save(&self->error, result);
        wrong++;
    }
    int differ = 0;
    for (int k = 0; result == TUTTI_OK && k < self->size; k++)
        for (size_t i = 0; i < bytes; i++)
            differ += all[(size_t)k * bytes + i] != (uint8_t)(k + 1);
    wrong += differ;
    free(mine);
    free(all);
}

static void gathers(struct boot_rank *self)
{
    static const size_t sizes[] = {1, 0, 7, 1024, 100000, 0, 32};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        gather_bytes(self, sizes[i]);
    int rank = -1;
    wrong += tti_boot_poll(self->boot, &rank) != TUTTI_OK;
}

static void assert_all_right(const struct boot_rank *ranks, int size)
{
    for (int k = 0; k < size; k++)
        if (ranks[k].error.code != TUTTI_OK)
            print_error("rank %d of %d, after %.1f s: %s\n", k, size, ranks[k].seconds,
                        ranks[k].error.text);
    for (int k = 0; k < size; k++)
        assert_int_equal(ranks[k].error.code, TUTTI_OK);
    assert_int_equal(wrong, 0);
}

static void run(struct boot_rank *ranks, int size)
{
    wrong = 0;
    boot_ranks_run(ranks, size, NULL);
    assert_all_right(ranks, size);
}

static void many_sizes(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 5, 8, 16};
    struct boot_rank ranks[BOOT_RANKS_MOST];
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        boot_ranks_init(ranks, sizes[i], PATIENCE_S, gathers);
        run(ranks, sizes[i]);
    }
}

static void largest_body(struct boot_rank *self)
{
    gather_bytes(self, 1 << 20);
    char byte = 0;
    wrong += tti_boot_all_gather(self->boot, &byte, (1 << 20) + 1, &byte, tti_deadline_in(1)) !=
             TUTTI_ERR_ARGUMENT;
}

static void largest(void **state)
{
    (void)state;
    struct boot_rank ranks[4];
    boot_ranks_init(ranks, 4, PATIENCE_S, largest_body);
    run(ranks, 4);
}

/* Rank 0 comes last; the others must have kept trying. */
static void late_body(struct boot_rank *self)
{
    gather_bytes(self, 16);
}

static void *late_rank(void *argument)
{
    (void)poll(NULL, 0, 300);
    return boot_rank_main(argument);
}

static void rank_0_comes_last(void **state)
{
    (void)state;
    struct boot_rank ranks[3];
    static const bool start[3] = {false, true, true};
    pthread_t late;
    wrong = 0;
    boot_ranks_init(ranks, 3, PATIENCE_S, late_body);
    pthread_create(&late, NULL, late_rank, &ranks[0]);
    boot_ranks_run(ranks, 3, start);
    pthread_join(late, NULL);
    for (int k = 0; k < 3; k++)
        assert_int_equal(ranks[k].error.code, TUTTI_OK);
    assert_int_equal(wrong, 0);
}

/* A second communicator at the same meeting, while the first one lives. */
static void again_body(struct boot_rank *self)
{
    struct tti_boot *second = NULL;
    enum tutti_result result = tti_boot_create(&self->meeting, self->rank, self->size,
                                               tti_deadline_in(PATIENCE_S), &second);
    tti_error_save(&self->error, result);
    gather_bytes(self, 64);
    tti_boot_destroy(second, 5);
}

static void twice_at_one_meeting(void **state)
{
    (void)state;
    struct boot_rank ranks[4];
    boot_ranks_init(ranks, 4, PATIENCE_S, again_body);
    run(ranks, 4);
}

/* The range: port one is taken, port two is not. */
static void next_port_of_the_range(void **state)
{
    (void)state;
    struct boot_rank ranks[3];
    boot_ranks_init(ranks, 3, PATIENCE_S, gathers);
    struct tti_meeting other = ranks[0].meeting;
    other.listen_fd = -1;
    /* Another job waits on the first port, with another secret, until its deadline. */
    struct boot_rank stranger = {.meeting = other, .rank = 0, .size = 2, .deadline_s = 3};
    memset(stranger.meeting.secret, 1, sizeof stranger.meeting.secret);
    assert_int_equal(tti_socket_listen("127.0.0.1", other.port, 8, &stranger.meeting.listen_fd,
                                       &stranger.meeting.port),
                     TUTTI_OK);
    assert_int_equal(stranger.meeting.port, other.port);
    pthread_create(&stranger.thread, NULL, boot_rank_main, &stranger);
    for (int k = 0; k < 3; k++)
        ranks[k].meeting.ports = 8;
    run(ranks, 3);
    pthread_join(stranger.thread, NULL);
    assert_int_equal(stranger.error.code, TUTTI_ERR_TIMEOUT);
}

/* By the host's own name: bound to every address, reached at whichever the name means here. */
static void by_name(void **state)
{
    (void)state;
    struct boot_rank ranks[3];
    char host[160] = "";
    struct addrinfo *found = NULL;
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    if (getaddrinfo(host, NULL, NULL, &found) != 0)
        snprintf(host, sizeof host, "localhost");
    else
        freeaddrinfo(found);
    boot_ranks_init(ranks, 3, PATIENCE_S, gathers);
    for (int k = 0; k < 3; k++)
        snprintf(ranks[k].meeting.host, sizeof ranks[k].meeting.host, "%s", host);
    run(ranks, 3);
}

/* A service that accepts and says nothing sits on the first port. */
static void silent_stranger_in_the_range(void **state)
{
    (void)state;
    struct boot_rank ranks[2];
    int fd = -1;
    uint16_t port = 0;
    boot_ranks_init(ranks, 2, PATIENCE_S, gathers);
    assert_int_equal(tti_socket_listen("127.0.0.1", ranks[0].meeting.port, 1, &fd, &port),
                     TUTTI_OK);
    ranks[0].meeting.ports = ranks[1].meeting.ports = 4;
    run(ranks, 2);
    close(fd);
    assert_true(ranks[1].seconds < 5);
}

static void ids(void **state)
{
    (void)state;
    static const char *const hosts[] = {NULL, "127.0.0.1", "::1", "localhost"};
    struct boot_rank ranks[3];
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        struct tutti_id id;
        if (tti_id_make(hosts[i], true, &id) != TUTTI_OK) {
            /* No IPv6 on this machine: said so, and not by crashing. */
            assert_string_equal(hosts[i], "::1");
            continue;
        }
        assert_memory_equal(id.text, "tutti1:", 7);
        boot_ranks_init(ranks, 3, PATIENCE_S, gathers);
        for (int k = 0; k < 3; k++)
            assert_int_equal(tti_meeting_from_id(&id, k, &ranks[k].meeting), TUTTI_OK);
        assert_true(ranks[0].meeting.listen_fd >= 0);
        assert_int_equal(ranks[1].meeting.listen_fd, -1);
        run(ranks, 3);
    }
}

/* An address that is not this host's, though others may know it by that: not loopback, on any
 * machine. */
static const char translated[] = "192.0.2.1";

/* Where there is no descriptor for the desk the id is made all the same, without one. */
static void id_without_desk(void **state)
{
    (void)state;
    struct rlimit before, few;
    struct tti_meeting meeting;
    struct tutti_id id;
    assert_int_equal(tti_id_make(translated, true, &id), TUTTI_OK);
    assert_int_equal(tti_meeting_from_id(&id, 1, &meeting), TUTTI_OK);
    assert_int_not_equal(meeting.desk, 0);

    const int next = dup(STDIN_FILENO);
    assert_true(next >= 0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = (rlim_t)next + 1; /* for the port alone */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    const enum tutti_result result = tti_id_make(translated, true, &id);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(result, TUTTI_OK);
    assert_int_equal(tti_meeting_from_id(&id, 0, &meeting), TUTTI_OK);
    assert_int_equal(meeting.desk, 0);
    assert_int_equal(meeting.listen_fd, next);
    close(meeting.listen_fd);
}

/* The desk's thread ends with the last id, while others make theirs. */
static void *ids_main(void *argument)
{
    (void)argument;
    for (int turn = 0; turn < ID_TURNS; turn++) {
        struct tti_meeting meeting;
        struct tutti_id id;
        if (tti_id_make(translated, true, &id) != TUTTI_OK ||
            tti_meeting_from_id(&id, 0, &meeting) != TUTTI_OK) {
            wrong++;
            break;
        }
        close(meeting.listen_fd);
    }
    return NULL;
}

static void ids_come_and_go(void **state)
{
    (void)state;
    pthread_t makers[ID_MAKERS];
    wrong = 0;
    for (int k = 0; k < ID_MAKERS; k++)
        assert_int_equal(pthread_create(&makers[k], NULL, ids_main, NULL), 0);
    for (int k = 0; k < ID_MAKERS; k++)
        pthread_join(makers[k], NULL);
    assert_int_equal(wrong, 0);
}

/* Descriptors of this process; the one that counts them is counted, too. */
static int descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

/* Rank 0 is in another process than the id's maker, of the same host, whose address it does not
 * find among its own. It listens where the id says all the same: who does not ask finds it. Of its
 * visits to the desk nothing is left. */
static void translated_host(void **state)
{
    (void)state;
    struct boot_rank ranks[2];
    struct tti_meeting meeting;
    struct tutti_id id;
    assert_int_equal(tti_id_make(NULL, true, &id), TUTTI_OK);
    assert_int_equal(tti_id_parse(&id, &meeting), TUTTI_OK);
    if (meeting.desk == 0) {
        print_message("no address but loopback here\n");
        return;
    }
    const int before = descriptors();
    boot_ranks_init(ranks, 2, PATIENCE_S, gathers);
    ranks[0].meeting = ranks[1].meeting = meeting;
    ranks[0].meeting.away = true;
    ranks[1].meeting.desk = 0;
    run(ranks, 2);
    /* The desk's own ends go when its thread has seen theirs end. */
    for (uint64_t end = tti_deadline_in(PATIENCE_S); descriptors() > before; (void)poll(NULL, 0, 1))
        assert_false(tti_deadline_passed(end));
}

/* Connections of this host that somebody has accepted at the port. */
static int accepted_at(uint16_t port)
{
    char line[256];
    int count = 0;
    FILE *file = fopen("/proc/net/tcp", "r");
    while (file && fgets(line, sizeof line, file)) {
        unsigned local = 0, status = 0;
        if (sscanf(line, " %*u: %*x:%x %*x:%*x %x", &local, &status) == 2)
            count += local == port && status == 1; /* established */
    }
    if (file)
        fclose(file);
    return count;
}

/* A maker need not have a descriptor for every rank of a large job; all are told. */
static void many_at_the_desk(void **state)
{
    (void)state;
    enum { MANY = 101, ROOM = 64, ASKING = 16 };
    static struct boot_rank ranks[MANY];
    static const bool zero[MANY] = {true};
    bool others[MANY];
    struct tti_meeting meeting;
    struct tutti_id id;
    assert_int_equal(tti_id_make(NULL, true, &id), TUTTI_OK);
    assert_int_equal(tti_id_parse(&id, &meeting), TUTTI_OK);
    if (meeting.desk == 0 || strchr(meeting.host, ':')) {
        print_message("no IPv4 address but loopback here\n");
        return;
    }
    boot_ranks_init(ranks, MANY, PATIENCE_S, gathers);
    for (int k = 0; k < MANY; k++) {
        ranks[k].meeting = meeting;
        others[k] = !zero[k];
    }
    wrong = 0;
    boot_ranks_start(ranks, MANY, others);
    const uint64_t until = tti_deadline_in(PATIENCE_S / 2.0);
    while (accepted_at(meeting.desk) < ROOM && !tti_deadline_passed(until))
        (void)poll(NULL, 0, 10);
    (void)poll(NULL, 0, 1500); /* for all to have asked, and to do it again */
    while (accepted_at(meeting.desk) > ROOM + ASKING && !tti_deadline_passed(until))
        (void)poll(NULL, 0, 10);
    const int waiting = accepted_at(meeting.desk);
    boot_ranks_start(ranks, MANY, zero);
    boot_ranks_join(ranks, MANY, NULL);
    assert_all_right(ranks, MANY);
    assert_in_range(waiting, ROOM / 2, ROOM + ASKING); /* some may just be asking */
}

static void bad_ids(void **state)
{
    (void)state;
    static const char hex[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    static const char *const formats[] = {"",
                                          "tutti1:",
                                          "tutti2:%s:80:h",
                                          "tutti1:%s",
                                          "tutti1:%s:",
                                          "tutti1:%s:80",
                                          "tutti1:%s:80:",
                                          "tutti1:%s:0:h",
                                          "tutti1:%s:x:h",
                                          "tutti1:%s:70000:h",
                                          "tutti1:%s:80,:h",
                                          "tutti1:%s:80,0:h",
                                          "tutti1:%s:,80:h",
                                          "tutti1:%s:80,81,82:h",
                                          "tutti1:z%s:80:h"};
    struct tti_meeting meeting;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        struct tutti_id id = {""};
        const char *at = strstr(formats[i], "%s");
        if (at)
            snprintf(id.text, sizeof id.text, "%.*s%s%s", (int)(at - formats[i]), formats[i], hex,
                     at + 2);
        else
            snprintf(id.text, sizeof id.text, "%s", formats[i]);
        assert_int_equal(tti_meeting_from_id(&id, 1, &meeting), TUTTI_ERR_ARGUMENT);
        assert_null(strstr(tutti_last_error(), hex)); /* the secret stays out of texts */
    }
    struct tutti_id endless;
    memset(endless.text, 'a', sizeof endless.text);
    assert_int_equal(tti_meeting_from_id(&endless, 0, &meeting), TUTTI_ERR_ARGUMENT);
}

/* 64 ranks gather 1 KiB: the order of magnitude, not the stopwatch. */
static void speed_body(struct boot_rank *self)
{
    gather_bytes(self, 1024);
    uint64_t begin = tti_now_ns();
    for (int i = 0; i < 10; i++)
        gather_bytes(self, 1024);
    if (self->rank == 0)
        print_message("all_gather of 1 KiB x %d ranks (threads): %.2f ms\n", self->size,
                      (double)(tti_now_ns() - begin) / 1e7);
}

static void sixty_four(void **state)
{
    (void)state;
    static struct boot_rank ranks[64];
    boot_ranks_init(ranks, 64, PATIENCE_S, speed_body);
    run(ranks, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_come_and_go), /* while there are no other ids */
        cmocka_unit_test(many_sizes),
        cmocka_unit_test(largest),
        cmocka_unit_test(rank_0_comes_last),
        cmocka_unit_test(twice_at_one_meeting),
        cmocka_unit_test(next_port_of_the_range),
        cmocka_unit_test(by_name),
        cmocka_unit_test(silent_stranger_in_the_range),
        cmocka_unit_test(ids),
        cmocka_unit_test(id_without_desk),
        cmocka_unit_test(translated_host),
        cmocka_unit_test(many_at_the_desk),
        cmocka_unit_test(bad_ids),
        cmocka_unit_test(sixty_four),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
