/* Who wakes a sleeper clears its flag and then writes to its descriptor, and may be held up between
 * the two: what is written late wakes the sleeper once, and not for ever. Three ranks in one
 * process; link with --wrap=write. */
#include "tests/tutti_cmocka.h"

#include "transport/registry.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 3, TURNS = 100000 };

static const uint8_t secret[TUTTI_SECRET_BYTES] = "late";

static struct {
    const struct tutti_transport_ops *ops;
    struct tutti_transport_env env[RANKS];
    void *transport[RANKS];
    uint8_t address[RANKS][TUTTI_ADDRESS_BYTES];
    struct tutti_peer peer[RANKS];
    void *to[RANKS];   /* of rank 0 */
    void *from[RANKS]; /* of the other, to rank 0 */
} all;

/* ---- writes that are held up ----------------------------------------------------------------- */

static struct {
    bool hold;
    int fd, count;
} late;

ssize_t __real_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes)
{
    if (!late.hold || bytes != sizeof(uint64_t))
        return __real_write(fd, data, bytes);
    late.fd = fd;
    late.count++;
    return (ssize_t)bytes;
}

/* ---- three ranks ----------------------------------------------------------------------------- */

static void ranks_open(const char *name, uint64_t job)
{
    memset(&all, 0, sizeof all);
    for (int i = 0; tti_transport_at(i); i++)
        if (strcmp(tti_transport_at(i)->name, name) == 0)
            all.ops = tti_transport_at(i);
    assert_non_null(all.ops);
    for (int r = 0; r < RANKS; r++) {
        size_t bytes = 0;
        all.env[r] = (struct tutti_transport_env){.size = sizeof all.env[r],
                                                  .services = tti_transport_services(),
                                                  .job = job,
                                                  .secret = secret,
                                                  .rank = r,
                                                  .nranks = RANKS,
                                                  .name = "here:1",
                                                  .lanes = 1};
        assert_int_equal(all.ops->open(&all.env[r], &all.transport[r]), TUTTI_OK);
        assert_int_equal(all.ops->address(all.transport[r], all.address[r], &bytes), TUTTI_OK);
        all.peer[r] = (struct tutti_peer){
            .rank = r, .name = "here:1", .address = all.address[r], .address_bytes = bytes};
    }
}

static void ranks_meet(void)
{
    int up = 0;
    for (int r = 1; r < RANKS; r++) {
        assert_int_equal(all.ops->connect(all.transport[0], &all.peer[r], 1, &all.to[r]), TUTTI_OK);
        assert_int_equal(all.ops->connect(all.transport[r], &all.peer[0], 1, &all.from[r]),
                         TUTTI_OK);
    }
    for (int i = 0; i < TURNS && up < 2 * (RANKS - 1); i++) {
        up = 0;
        for (int r = 0; r < RANKS; r++)
            assert_int_equal(all.ops->progress(all.transport[r]), TUTTI_OK);
        for (int r = 1; r < RANKS; r++)
            up += (all.ops->advance(all.to[r]) == TUTTI_OK) +
                  (all.ops->advance(all.from[r]) == TUTTI_OK);
    }
    assert_int_equal(up, 2 * (RANKS - 1));
}

static void ranks_close(void)
{
    for (int r = 1; r < RANKS; r++) {
        all.ops->disconnect(all.to[r]);
        all.ops->disconnect(all.from[r]);
    }
    for (int r = 0; r < RANKS; r++)
        all.ops->close(all.transport[r]);
}

static void sends(int rank)
{
    size_t accepted = 0;
    assert_int_equal(all.ops->send(all.from[rank], 0, 1, "x", 1, &accepted), TUTTI_OK);
    assert_int_equal(accepted, 1);
}

/* Rank 0 takes what `rank` has sent. */
static void takes(int rank)
{
    uint64_t tag = 0;
    const void *data = NULL;
    size_t bytes = 0;
    assert_int_equal(all.ops->peek(all.to[rank], 0, &tag, &data, &bytes), TUTTI_OK);
    assert_int_equal(bytes, 1);
    all.ops->consume(all.to[rank], 0, 1);
}

/* Rank 0 has nothing to do. */
static void falls_asleep(void)
{
    for (int i = 0; i < TURNS; i++)
        if (all.ops->arm(all.transport[0]))
            return;
    fail_msg("there is always something new");
}

static bool is_woken(void)
{
    struct pollfd fd = {.fd = all.ops->fd(all.transport[0]), .events = POLLIN};
    const int ready = poll(&fd, 1, 0);
    assert_true(ready >= 0);
    all.ops->disarm(all.transport[0]);
    return ready > 0;
}

static void a_late_ring_wakes_once(const char *name, uint64_t job)
{
    ranks_open(name, job);
    ranks_meet();
    falls_asleep();
    assert_false(is_woken());
    falls_asleep();
    late.count = 0;
    late.hold = true;
    sends(1);
    late.hold = false;
    assert_int_equal(late.count, 1);
    assert_false(is_woken()); /* by anything but a deadline */
    takes(1);
    falls_asleep();
    sends(2);
    assert_true(is_woken());
    takes(2);
    const uint64_t one = 1;
    assert_int_equal(__real_write(late.fd, &one, sizeof one), sizeof one);
    falls_asleep();
    (void)is_woken();
    for (int i = 0; i < 3; i++) {
        falls_asleep();
        assert_false(is_woken());
    }
    /* And a ring is heard as ever. */
    falls_asleep();
    sends(1);
    assert_true(is_woken());
    takes(1);
    ranks_close();
}

static void over_shm(void **state)
{
    (void)state;
    a_late_ring_wakes_once("shm", 77001);
}

static void inproc(void **state)
{
    (void)state;
    a_late_ring_wakes_once("inproc", 77002);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_shm),
        cmocka_unit_test(inproc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
