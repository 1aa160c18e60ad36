/* Fragments that two ranks copy at once (shm/lane_share.c): with a peer that helps, with one that
 * does not, and with peers that promise and stand still, die, refuse, or offer what nobody lent. */
#include "tests/transport/shm_pair.h"

#include "base/clock.h"
#include "tests/tutti_cmocka.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { BYTES = 256 << 10, PATIENT_S = 60 };
static const double LATE_S = 2.5; /* more than twice what the receiver takes to give up */
static const double LAST_S = 0.2; /* of one that has left, on whom it gives up at once */

struct share_test {
    struct shm_pair pair;
    const struct tutti_transport_ops *shm;
    struct shm_share *share; /* what rank 1 offers */
    unsigned char *sent, *received;
    _Atomic uint64_t waits, over;
    uint64_t waits_at_return; /* of the last receive */
};

static bool open_test(struct share_test *t)
{
    memset(t, 0, sizeof *t);
    t->shm = shm_pair_ops();
    shm_pair_open(&t->pair);
    shm_pair_connect(&t->pair);
    const struct shm_endpoint *receiver = t->pair.endpoint[1];
    t->share = receiver->lane[0].in.share;
    ((struct shm_endpoint *)t->pair.endpoint[0])->transport->settings.share_bytes_a_ns = 1;
    t->sent = malloc(BYTES);
    t->received = malloc(BYTES);
    assert_true(t->sent && t->received);
    return tti_load_acquire(&receiver->theirs->reads_memory);
}

/* Whose offer is to be taken before its receiver goes on to read its own half. It stays fresh. */
static struct shm_share *_Atomic awaited;

ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *here, unsigned long heres,
                                const struct iovec *there, unsigned long theres,
                                unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *here, unsigned long heres,
                                const struct iovec *there, unsigned long theres,
                                unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *here, unsigned long heres,
                                const struct iovec *there, unsigned long theres,
                                unsigned long flags)
{
    struct shm_share *share = atomic_load(&awaited);
    const uint64_t deadline = tti_deadline_in(PATIENT_S);
    while (share && (tti_load_acquire(&share->state) & 7) == SHM_SHARE_OFFERED &&
           !tti_deadline_passed(deadline)) {
        atomic_store(&share->offered_ns, tti_now_ns());
        sched_yield();
    }
    return __real_process_vm_readv(pid, here, heres, there, theres, flags);
}

static void close_test(struct share_test *t)
{
    atomic_store(&awaited, NULL);
    shm_pair_close(&t->pair);
    free(t->sent);
    free(t->received);
}

static unsigned char pattern(uint64_t fragment, size_t at)
{
    return (unsigned char)(fragment * 31 + at * 7 + (at >> 9) + 1);
}

static void send_one(struct share_test *t, uint64_t fragment)
{
    size_t accepted = 0;
    for (size_t i = 0; i < BYTES; i++)
        t->sent[i] = pattern(fragment, i);
    memset(t->received, 0, BYTES);
    assert_int_equal(t->shm->send(t->pair.endpoint[0], 0, fragment, t->sent, BYTES, &accepted),
                     TUTTI_OK);
    assert_int_equal(accepted, BYTES);
}

/* All of the fragment, in one go or in pieces of at most `most` bytes. */
static void receive_one(struct share_test *t, uint64_t fragment, size_t most)
{
    for (size_t taken = 0; taken < BYTES;) {
        uint64_t tag = 0;
        size_t got = 0;
        const size_t left = BYTES - taken, want = left < most ? left : most;
        assert_int_equal(
            t->shm->receive(t->pair.endpoint[1], 0, &tag, t->received + taken, want, &got),
            TUTTI_OK);
        t->waits_at_return = tti_load_acquire(&t->waits);
        assert_int_equal(tag, fragment);
        assert_int_equal(got, want);
        taken += got;
    }
    for (size_t i = 0; i < BYTES; i++)
        if (t->received[i] != pattern(fragment, i))
            fail_msg("byte %zu of fragment %llu", i, (unsigned long long)fragment);
}

static uint64_t state_of(const struct share_test *t)
{
    return tti_load_acquire(&t->share->state) & 7;
}

/* ---- a peer that helps ---------------------------------------------------------------------- */

/* Rank 0 waits for what it has sent, as an executor does. */
static void *waits_for_peer(void *argument)
{
    struct share_test *t = argument;
    while (!tti_load_acquire(&t->over))
        (void)t->shm->released(t->pair.endpoint[0], 0);
    return NULL;
}

/* What both have copied is what was sent, whole and in pieces; and both do copy. */
static void both_copy(void **state)
{
    static const size_t most[] = {BYTES, BYTES / 2, BYTES / 2 + 24};
    struct share_test t;
    (void)state;
    if (!open_test(&t)) {
        close_test(&t);
        skip();
    }
    atomic_store(&awaited, t.share);
    for (uint64_t i = 0; i < 60; i++) {
        pthread_t peer;
        t.over = 0;
        send_one(&t, i);
        assert_int_equal(pthread_create(&peer, NULL, waits_for_peer, &t), 0);
        receive_one(&t, i, most[i % 3]);
        assert_int_equal(state_of(&t), SHM_SHARE_DONE);
        tti_store_release(&t.over, 1);
        pthread_join(peer, NULL);
        assert_int_equal(t.shm->released(t.pair.endpoint[0], 0), (i + 1) * BYTES);
    }
    close_test(&t);
}

/* Nobody takes what is offered: offers become rare, and one that is taken brings them back. */
static void nobody_comes(void **state)
{
    enum { TIMES = 200 };
    struct share_test t;
    unsigned offers = 0;
    (void)state;
    if (!open_test(&t)) {
        close_test(&t);
        skip();
    }
    const struct shm_in *in = &((struct shm_endpoint *)t.pair.endpoint[1])->lane[0].in;
    for (uint64_t i = 0; i < TIMES; i++) {
        const unsigned before = in->share_pause;
        send_one(&t, i);
        receive_one(&t, i, BYTES);
        offers += before == 0;
        assert_int_equal(state_of(&t), SHM_SHARE_NONE);
        (void)t.shm->released(t.pair.endpoint[0], 0);
    }
    assert_in_range(offers, 2, 12);
    close_test(&t);
}

/* ---- peers that take what is offered, and then ... ------------------------------------------- */

enum deed { STANDS_STILL, DIES, REFUSES, IS_SLOW, DIES_SLOWLY };

struct taker {
    struct share_test *t;
    enum deed deed;
};

/* Like a kernel that has begun: it knows the range (before the receiver hears of an end and makes
 * it empty), and is held up. */
static void writes_late(struct share_test *t, uint64_t word, struct iovec into, double late_s)
{
    const uint64_t offset = atomic_load(&t->share->offset), until = tti_deadline_in(late_s);
    while (!tti_deadline_passed(until))
        tti_cpu_relax();
    memcpy(into.iov_base, t->sent + offset, into.iov_len);
    tti_store_release(&t->waits, 1);
    tti_store_release(&t->share->state, word + SHM_SHARE_DONE);
}

static void *takes_offer(void *argument)
{
    struct taker *taker = argument;
    struct share_test *t = taker->t;
    struct shm_endpoint *self = t->pair.endpoint[0];
    uint64_t word = 0;
    do {
        word = tti_load_acquire(&t->share->state);
        if ((word & 7) != SHM_SHARE_OFFERED)
            sched_yield();
        if (tti_load_acquire(&t->over))
            return NULL;
    } while ((word & 7) != SHM_SHARE_OFFERED ||
             !atomic_compare_exchange_strong(&t->share->state, &word, word + 1));
    const struct iovec into = {
        .iov_base = __atomic_load_n(&t->share->into.iov_base, __ATOMIC_RELAXED),
        .iov_len = __atomic_load_n(&t->share->into.iov_len, __ATOMIC_RELAXED)};
    if (taker->deed == IS_SLOW)
        writes_late(t, word - SHM_SHARE_OFFERED, into, LATE_S);
    if (taker->deed == REFUSES)
        tti_store_release(&t->share->state, word - SHM_SHARE_OFFERED + SHM_SHARE_FAILED);
    if (taker->deed == DIES || taker->deed == DIES_SLOWLY)
        (void)shutdown(self->socket, SHUT_RDWR);
    if (taker->deed == DIES_SLOWLY)
        writes_late(t, word - SHM_SHARE_OFFERED, into, LAST_S);
    return NULL;
}

/* Have the first fragment offered and the offer taken. */
static void until_taken(struct share_test *t, enum deed deed)
{
    struct taker taker = {t, deed};
    pthread_t peer;
    atomic_store(&awaited, t->share);
    assert_int_equal(pthread_create(&peer, NULL, takes_offer, &taker), 0);
    send_one(t, 0);
    receive_one(t, 0, BYTES);
    (void)tti_shm_collect(&((struct shm_endpoint *)t->pair.endpoint[0])->lane[0].out);
    atomic_store(&awaited, NULL);
    tti_store_release(&t->over, 1);
    pthread_join(peer, NULL);
}

/* Who stands still is waited for, not for ever, and done without; when it goes on it finds nothing
 * to write to, and that remains so. */
static void peer_stands_still(void **state)
{
    struct share_test t;
    (void)state;
    if (!open_test(&t)) {
        close_test(&t);
        skip();
    }
    until_taken(&t, STANDS_STILL);
    assert_int_equal(state_of(&t), SHM_SHARE_TAKEN);
    memset(t.sent, 0x55, BYTES);
    struct iovec here = {.iov_base = t.sent, .iov_len = BYTES};
    for (int i = 0; i < 2; i++) { /* it goes on, and once more after the next fragment */
        const pid_t pid = ((struct shm_endpoint *)t.pair.endpoint[0])->pid;
        assert_int_equal(process_vm_writev(pid, &here, 1, &t.share->into, 1, 0), 0);
        if (i == 0) {
            send_one(&t, 1);
            receive_one(&t, 1, BYTES);
            here.iov_base = memset(t.sent, 0x55, BYTES);
        }
    }
    for (size_t i = 0; i < BYTES; i++)
        assert_int_equal(t.received[i], pattern(1, i));
    close_test(&t);
}

static void peer_dies(void **state)
{
    struct share_test t;
    (void)state;
    if (!open_test(&t)) {
        close_test(&t);
        skip();
    }
    until_taken(&t, DIES); /* its memory is still there, as it is ours: all is read */
    assert_int_equal(state_of(&t), SHM_SHARE_TAKEN);
    assert_true(((struct shm_endpoint *)t.pair.endpoint[1])->ended);
    close_test(&t);
}

static void peer_refuses(void **state)
{
    struct share_test t;
    (void)state;
    if (!open_test(&t)) {
        close_test(&t);
        skip();
    }
    until_taken(&t, REFUSES);
    assert_int_equal(state_of(&t), SHM_SHARE_FAILED);
    close_test(&t);
}

/* Who is in the middle of writing is waited for, or it would write after the call. */
static void peer_is_slow(void **state)
{
    struct share_test t;
    (void)state;
    if (!open_test(&t)) {
        close_test(&t);
        skip();
    }
    const struct shm_in *in = &((struct shm_endpoint *)t.pair.endpoint[1])->lane[0].in;
    until_taken(&t, IS_SLOW);
    assert_int_equal(t.waits_at_return, 1);
    assert_int_equal(state_of(&t), SHM_SHARE_DONE);
    assert_true(in->share_over);
    close_test(&t);
}

/* Who cannot be looked at, for want of descriptors, has not ended because of that. */
static void peer_is_not_seen(void **state)
{
    struct share_test t;
    struct rlimit limit, low;
    (void)state;
    if (!open_test(&t)) {
        close_test(&t);
        skip();
    }
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max}; /* no more at all */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    until_taken(&t, DIES_SLOWLY);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(t.waits_at_return, 1);
    assert_int_equal(state_of(&t), SHM_SHARE_DONE);
    close_test(&t);
}

/* ---- offers of what nobody lent ---------------------------------------------------------------
 */

static void offer(struct share_test *t, uint64_t number, uint64_t offset, void *into, size_t bytes)
{
    t->share->offset = offset;
    t->share->into = (struct iovec){into, bytes};
    atomic_store(&t->share->offered_ns, UINT64_MAX / 2); /* never old */
    tti_store_release(&t->share->state, (number + 1) << 3 | SHM_SHARE_OFFERED);
    const struct shm_endpoint *sender = t->pair.endpoint[0];
    tti_shm_share_help(sender, &sender->lane[0].out);
}

/* The line that comes a lap after the one that named memory holds a few bytes itself. */
static void next_lap(struct share_test *t, uint64_t sent, uint64_t lent)
{
    const struct shm_in *in = &((struct shm_endpoint *)t->pair.endpoint[1])->lane[0].in;
    for (uint64_t tag = 0; sent <= lent + SHM_LINES; sent++) {
        size_t bytes = 0;
        while (in->consumed < sent) {
            assert_int_equal(
                t->shm->receive(t->pair.endpoint[1], 0, &tag, t->received, BYTES, &bytes),
                TUTTI_OK);
            assert_true(bytes > 0);
        }
        assert_int_equal(t->shm->send(t->pair.endpoint[0], 0, 1, t->sent, 8, &bytes), TUTTI_OK);
        assert_int_equal(bytes, 8);
    }
    offer(t, lent + SHM_LINES, 0, t->received, 8);
    assert_int_equal(state_of(t), SHM_SHARE_OFFERED);
}

static void hostile_offers(void **state)
{
    enum { LINE = 3 }; /* small fragments before and after the one that is lent */
    struct share_test t;
    size_t accepted = 0;
    (void)state;
    if (!open_test(&t)) {
        close_test(&t);
        skip();
    }
    for (int i = 0; i < 2 * LINE; i++) {
        if (i == LINE)
            send_one(&t, LINE);
        assert_int_equal(t.shm->send(t.pair.endpoint[0], 0, 1, t.sent, 8, &accepted), TUTTI_OK);
    }
    const struct {
        uint64_t number, offset, bytes;
    } bad[] = {
        {LINE - 1, 0, 64},    {LINE + 1, 0, 64}, {2 * LINE + 1, 0, 64}, {UINT64_MAX >> 4, 0, 64},
        {LINE, 0, BYTES + 1}, {LINE, BYTES, 1},  {LINE, UINT64_MAX, 1}, {LINE, BYTES - 63, 64},
        {LINE, 64, BYTES},    {LINE, 0, 0},      {LINE, 0, SIZE_MAX},   {SHM_LINES + LINE, 0, 64}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        offer(&t, bad[i].number, bad[i].offset, t.received, bad[i].bytes);
        assert_int_not_equal(state_of(&t), SHM_SHARE_DONE);
        for (size_t at = 0; at < BYTES; at++)
            assert_int_equal(t.received[at], 0);
    }
    offer(&t, LINE, 0, (void *)64, 4096); /* not mapped there */
    assert_int_equal(state_of(&t), SHM_SHARE_FAILED);
    offer(&t, LINE, 64, t.received, BYTES - 64); /* and one that is right */
    assert_int_equal(state_of(&t), SHM_SHARE_DONE);
    assert_memory_equal(t.received, t.sent + 64, BYTES - 64);
    memset(t.received, 0, BYTES);
    atomic_store(&t.share->offered_ns, tti_now_ns() - BYTES); /* the same, old */
    tti_store_release(&t.share->state, (LINE + 1) << 3 | SHM_SHARE_OFFERED);
    (void)t.shm->released(t.pair.endpoint[0], 0);
    assert_int_equal(state_of(&t), SHM_SHARE_OFFERED);
    assert_int_equal(t.received[0], 0);
    next_lap(&t, 2 * LINE + 1, LINE);
    close_test(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_copy),         cmocka_unit_test(nobody_comes),
        cmocka_unit_test(peer_stands_still), cmocka_unit_test(peer_dies),
        cmocka_unit_test(peer_refuses),      cmocka_unit_test(peer_is_slow),
        cmocka_unit_test(peer_is_not_seen),  cmocka_unit_test(hostile_offers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
