/* Who fences when an shm rank goes to sleep (shm/sleep.c): the one that sleeps, for both, while it
 * does so now and then, and each that publishes while it does so all the time; and that no wake-up
 * is lost, whoever it is and while that changes.
 *
 * `litmus` looks for what a processor may do to those who fence too little: it finds out how a
 * message comes just when its receiver falls asleep. (It finds a fence of either side's that is
 * missing, and a missing last membarrier. Not that `fences` is cleared after that instead of
 * before: a store would have to wait for a whole sleep.) Link with --wrap=syscall. */
#include "tests/tutti_cmocka.h"

#include "base/clock.h"
#include "tests/transport/shm_pair.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ThreadSanitizer's own accesses lie between all of ours: no processor's order is to be seen. */
#if defined(__SANITIZE_THREAD__)
enum { ROUNDS = 4000 };
#else
enum { ROUNDS = 40000 };
#endif

enum {
    SLEEPS = 100000, /* without a message: more than enough for anyone to change over */
    MESSAGES = 200000,
    DELAY = 2048,
    JITTER = 64,
    LOOKS = 32768,
    PATIENCE_S = 60,
    PATIENCE_MS = 1000 * PATIENCE_S,
};

/* ---- calls for fences are counted, or forbidden ---- */

static struct {
    _Atomic uint64_t count;
    _Atomic bool forbidden;
} fences;

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
    long argument[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        argument[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_membarrier) {
        fences.count++;
        if (fences.forbidden) {
            errno = EPERM;
            return -1;
        }
    }
    return __real_syscall(number, argument[0], argument[1], argument[2], argument[3], argument[4],
                          argument[5]);
}

/* ---- a pair, of which rank 0 sleeps ---- */

static struct shm_transport *sleeper(const struct shm_pair *pair)
{
    return pair->transport[0];
}

/* What rank 1 is told. */
static bool told(const struct shm_pair *pair)
{
    const struct shm_endpoint *publisher = pair->endpoint[1];
    return tti_load_acquire(&publisher->theirs->fences) != 0;
}

static void sleeps(const struct shm_pair *pair)
{
    assert_true(tti_shm_arm(pair->transport[0]));
    tti_shm_disarm(pair->transport[0]);
}

static void sends(const struct shm_pair *pair)
{
    size_t accepted = 0;
    assert_int_equal(tti_shm_send(pair->endpoint[1], 0, 1, "x", 1, &accepted), TUTTI_OK);
    assert_int_equal(accepted, 1);
}

static bool takes(const struct shm_pair *pair)
{
    uint64_t tag = 0;
    char byte = 0;
    size_t taken = 0;
    assert_int_equal(tti_shm_receive(pair->endpoint[0], 0, &tag, &byte, 1, &taken), TUTTI_OK);
    return taken == 1;
}

static uint64_t fences_of_a_sleep(const struct shm_pair *pair)
{
    const uint64_t before = fences.count;
    sleeps(pair);
    return fences.count - before;
}

static bool opens(struct shm_pair *pair)
{
    shm_pair_open(pair);
    shm_pair_connect(pair);
    while (!tti_shm_arm(pair->transport[0])) /* until nothing is new */
        tti_shm_disarm(pair->transport[0]);
    tti_shm_disarm(pair->transport[0]);
    return sleeper(pair)->fences;
}

/* Sleeps at nothing, until the sleeper fences no more. */
static void sleeps_until_it_leaves_it(const struct shm_pair *pair)
{
    for (int i = 0; i < SLEEPS && told(pair); i++)
        sleeps(pair);
    assert_false(told(pair));
    assert_int_equal(fences_of_a_sleep(pair), 0);
}

static void needs_membarrier(struct shm_pair *pair)
{
    if (opens(pair))
        return;
    shm_pair_close(pair);
    print_message("this kernel has no membarrier\n");
    skip();
}

static void all_the_time_it_is_left_to_others(void **state)
{
    (void)state;
    struct shm_pair pair;
    needs_membarrier(&pair);
    assert_true(told(&pair));
    assert_int_equal(fences_of_a_sleep(&pair), 1);
    sleeps_until_it_leaves_it(&pair);
    for (int i = 0; i < SLEEPS; i++)
        assert_int_equal(fences_of_a_sleep(&pair), 0);
    /* So it is with a sleep for each message, whatever the kind of sleep. */
    for (int i = 0; i < 1000; i++) {
        sends(&pair);
        assert_false(tti_shm_arm(pair.transport[0]));
        assert_true(takes(&pair));
        assert_int_equal(fences_of_a_sleep(&pair), 0);
    }
    assert_false(told(&pair));
    shm_pair_close(&pair);
}

/* With many messages between two sleeps, the sleeper does it. */
static void now_and_then_it_is_not(void **state)
{
    (void)state;
    struct shm_pair pair;
    needs_membarrier(&pair);
    for (int time = 0; time < 3; time++) {
        sleeps_until_it_leaves_it(&pair);
        for (int i = 0; i < MESSAGES; i++) {
            sends(&pair);
            assert_true(takes(&pair));
        }
        sleeps(&pair);
        assert_true(told(&pair));
        assert_int_equal(fences_of_a_sleep(&pair), 1);
    }
    shm_pair_close(&pair);
}

/* Who does not sleep any more finds that out by the clock, and its peers need not fence for good.
 */
static void awake_it_is_not(void **state)
{
    (void)state;
    struct shm_pair pair;
    needs_membarrier(&pair);
    sleeps_until_it_leaves_it(&pair);
    const uint64_t before = fences.count, deadline = tti_deadline_in(PATIENCE_S);
    while (!told(&pair)) {
        assert_false(tti_deadline_passed(deadline));
        sends(&pair);
        assert_int_equal(shm_pair_ops()->progress(pair.transport[0]), TUTTI_OK);
        assert_true(takes(&pair));
    }
    assert_int_equal(fences.count, before);
    assert_int_equal(fences_of_a_sleep(&pair), 1);
    shm_pair_close(&pair);
}

/* Where it cannot fence for others they are told, and do. Forbidden later, it does not sleep on
 * what may have come unseen. */
static void forbidden(void **state)
{
    (void)state;
    struct shm_pair pair;
    if (opens(&pair)) {
        fences.forbidden = true;
        for (int i = 0; i < 1000; i++) {
            assert_false(tti_shm_arm(pair.transport[0]));
            tti_shm_disarm(pair.transport[0]);
        }
        fences.forbidden = false;
        sleeps(&pair);
    }
    shm_pair_close(&pair);
    fences.forbidden = true;
    assert_false(opens(&pair));
    assert_false(told(&pair));
    for (int i = 0; i < MESSAGES; i++) {
        sends(&pair);
        assert_true(takes(&pair));
        if (i % 100 == 0)
            assert_int_equal(fences_of_a_sleep(&pair), 0);
    }
    assert_false(told(&pair));
    shm_pair_close(&pair);
    fences.forbidden = false;
}

/* ---- litmus ---- */

static struct {
    struct shm_pair pair;
    _Atomic uint32_t round; /* in which a message is wanted */
    bool by_progress;       /* the sleeper makes progress before it sleeps */
} litmus;

static uint32_t drawn(uint32_t *random, uint32_t below)
{
    *random = *random * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)*random * below >> 32);
}

static void spin(uint32_t count)
{
    for (volatile uint32_t i = count; i > 0; i--)
        continue;
}

static void *litmus_publisher(void *argument)
{
    uint32_t random = 1;
    (void)argument;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        const uint64_t deadline = tti_deadline_in(PATIENCE_S);
        for (int look = 1; atomic_load(&litmus.round) != round; look++) {
            if (look % LOOKS == 0)
                tti_nap(0);
            if (look % LOOKS == 0 && tti_deadline_passed(deadline))
                return NULL;
        }
        spin(DELAY + drawn(&random, JITTER));
        sends(&litmus.pair);
    }
    return NULL;
}

/* Take the message of this round, asleep until it comes. */
static void litmus_awaits(struct shm_transport *self, uint32_t round)
{
    while (!takes(&litmus.pair)) {
        if (tti_shm_arm(self)) {
            struct pollfd fd = {.fd = tti_shm_fd(self), .events = POLLIN};
            if (poll(&fd, 1, PATIENCE_MS) == 0)
                fail_msg("round %u: nobody woke the sleeper, who %s", round,
                         self->fences_for_both ? "fences for both" : "does not");
        }
        tti_shm_disarm(self);
    }
}

/* The sleeper is told what it has saved or lost, so that it changes over at any sleep: 0 to fencing
 * for both, 1 to leaving it. For each of these, and what it did before, it finds out how long to
 * wait so that it falls asleep just when the message comes. */
static void litmus_sleeper(uint32_t *random)
{
    struct shm_transport *self = sleeper(&litmus.pair);
    int delay[2][4] = {{DELAY, DELAY, DELAY, DELAY}, {DELAY, DELAY, DELAY, DELAY}};
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        const uint32_t change = drawn(random, 4);
        int *mine = &delay[self->fences_for_both][change];
        if (change < 2)
            self->saved_ns = change == 0 ? INT32_MAX : -INT32_MAX;
        tti_shm_look(self); /* and not as it falls asleep, which would take long */
        atomic_store(&litmus.round, round);
        spin((uint32_t)*mine + drawn(random, JITTER));
        if (litmus.by_progress)
            tti_shm_stays_awake(self);
        if (takes(&litmus.pair)) {
            *mine -= *mine > 0;
            continue;
        }
        *mine += *mine < 2 * DELAY;
        litmus_awaits(self, round);
    }
}

static void no_wake_up_is_lost(bool by_progress)
{
    pthread_t thread;
    uint32_t random = 2;
    litmus.by_progress = by_progress;
    atomic_store(&litmus.round, 0);
    (void)opens(&litmus.pair);
    assert_int_equal(pthread_create(&thread, NULL, litmus_publisher, NULL), 0);
    litmus_sleeper(&random);
    assert_int_equal(pthread_join(thread, NULL), 0);
    shm_pair_close(&litmus.pair);
}

static void no_wake_up_is_lost_at_a_sleep(void **state)
{
    (void)state;
    no_wake_up_is_lost(false);
}

static void no_wake_up_is_lost_while_awake(void **state)
{
    (void)state;
    no_wake_up_is_lost(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_the_time_it_is_left_to_others),
        cmocka_unit_test(now_and_then_it_is_not),
        cmocka_unit_test(awake_it_is_not),
        cmocka_unit_test(forbidden),
        cmocka_unit_test(no_wake_up_is_lost_at_a_sleep),
        cmocka_unit_test(no_wake_up_is_lost_while_awake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
