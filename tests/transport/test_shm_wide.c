/* Where lines come back quickly, pieces go through a wide ring first (transport/shm/lane_ways.c):
 * which ones do, that its pages come at once, and that they stop when it is slow. */
#include "tests/transport/shm_pair.h"

#include "tests/tutti_cmocka.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MOST = SHM_FULL_PIECE, NARROW = 512 << 10, WIDE = 2 << 20, MEDIUM = 64 << 10 };

struct wide_test {
    struct shm_pair pair;
    const struct tutti_transport_ops *shm;
    unsigned char *data, *got;
    uint64_t number;
};

/* Two ranks of two lanes, as a pair on such a processor. */
static void open_wide(struct wide_test *t)
{
    memset(t, 0, sizeof *t);
    t->shm = shm_pair_ops();
    t->data = malloc(MOST);
    t->got = malloc(MOST);
    assert_true(t->data && t->got);
    memset(t->data, 1, MOST);
    shm_pair_open(&t->pair);
    t->pair.lanes = 2;
    for (int i = 0; i < 2; i++) {
        struct shm_settings *settings = &((struct shm_transport *)t->pair.transport[i])->settings;
        settings->memory = SHM_MEMORY_NONE;
        settings->ways = SHM_WAYS;
        settings->shares_cores = false;
        settings->wide_first = true;
        settings->piece_ring = WIDE;
        settings->near_bytes = SIZE_MAX;
    }
    shm_pair_connect(&t->pair);
}

static void close_wide(struct wide_test *t)
{
    shm_pair_close(&t->pair);
    free(t->data);
    free(t->got);
}

static struct shm_out *out_of(const struct wide_test *t, int lane)
{
    return &((struct shm_endpoint *)t->pair.endpoint[0])->lane[lane].out;
}

/* One piece from rank 0; returns what its line has for an id. */
static uint64_t pass(struct wide_test *t, int lane, size_t bytes)
{
    const struct shm_out *out = out_of(t, lane);
    const struct shm_line *line = &out->lines[shm_line_at(out->sent)];
    size_t done = 0;
    uint64_t tag = 0;
    t->data[0] = t->data[bytes - 1] = (unsigned char)t->number;
    assert_int_equal(t->shm->send(t->pair.endpoint[0], lane, t->number, t->data, bytes, &done),
                     TUTTI_OK);
    assert_int_equal(done, bytes);
    assert_int_equal(line->flag >> 8 & 0xff, SHM_KIND_PIECE);
    const uint64_t id = line->far.id;
    assert_int_equal(t->shm->receive(t->pair.endpoint[1], lane, &tag, t->got, bytes, &done),
                     TUTTI_OK);
    assert_int_equal(done, bytes);
    assert_int_equal(tag, t->number);
    assert_memory_equal(t->got, t->data, bytes);
    t->number++;
    return id;
}

/* The receiver says something, which ends a row of messages. */
static void answer(const struct wide_test *t)
{
    size_t done = 0, got = 0;
    uint64_t tag = 0;
    assert_int_equal(t->shm->send(t->pair.endpoint[1], 0, 1, t->data, 8, &done), TUTTI_OK);
    assert_int_equal(t->shm->receive(t->pair.endpoint[0], 0, &tag, t->got, 8, &got), TUTTI_OK);
    assert_int_equal(got, 8);
}

/* Do pieces of this size go through all of the ring? Each is answered, or none. */
static bool goes_wide(struct wide_test *t, int lane, size_t bytes, bool answered)
{
    struct shm_out *out = out_of(t, lane);
    size_t furthest = 0;
    out->wide_head = 0; /* nothing goes on behind what was before */
    for (size_t sent = 0; sent < 2 * WIDE; sent += bytes) {
        (void)pass(t, lane, bytes);
        const size_t end = (size_t)(out->piece_head % WIDE);
        furthest = end > furthest ? end : furthest;
        if (answered)
            answer(t);
    }
    return furthest > NARROW;
}

/* Nothing that is timed changes its way. */
static void hold_all(const struct wide_test *t)
{
    for (int size = 0; size < SHM_SIZES; size++)
        out_of(t, 0)->ways[size].trial = (struct tti_copy_trial){.held = true, .hold = UINT16_MAX};
}

static void who_goes_wide(void **state)
{
    struct wide_test t;
    (void)state;
    open_wide(&t);
    hold_all(&t);
    assert_true(goes_wide(&t, 0, MEDIUM, true));
    assert_true(goes_wide(&t, 0, MEDIUM, false));
    assert_true(goes_wide(&t, 0, SHM_LARGE_PIECE + 1, true));
    assert_false(goes_wide(&t, 0, SHM_LARGE_PIECE, true));
    assert_true(goes_wide(&t, 0, SHM_LARGE_PIECE, false));
    assert_true(goes_wide(&t, 0, SHM_NEAR_PIECE + 1, false));
    assert_false(goes_wide(&t, 0, SHM_NEAR_PIECE, false));
    assert_false(goes_wide(&t, 0, SHM_FULL_PIECE, true));
    assert_false(goes_wide(&t, 1, MEDIUM, true));
    assert_false(goes_wide(&t, 1, SHM_LARGE_PIECE, false));
    close_wide(&t);
}

/* Both lanes at once would take more than the caches have: the first one keeps to the narrow way
 * while the other is at work, and for some pieces more. */
static void one_lane_alone(void **state)
{
    struct wide_test t;
    (void)state;
    open_wide(&t);
    hold_all(&t);
    (void)pass(&t, 1, MEDIUM);
    (void)pass(&t, 0, MEDIUM); /* here it is seen */
    out_of(&t, 0)->wide_head = 0;
    for (int i = 0; i < 2 * WIDE / MEDIUM; i++) {
        (void)pass(&t, 0, MEDIUM);
        assert_true(out_of(&t, 0)->piece_head % WIDE <= NARROW);
        (void)pass(&t, i % 2, MEDIUM);
    }
    for (int i = 0; i < SHM_ALONE_AFTER + 1; i++) {
        assert_int_equal(out_of(&t, 0)->wide_head, 0);
        (void)pass(&t, 0, MEDIUM);
    }
    (void)pass(&t, 0, MEDIUM);
    assert_int_not_equal(out_of(&t, 0)->wide_head, 0);
    close_wide(&t);
}

static size_t pages_there(const struct wide_test *t, int lane)
{
    static unsigned char there[WIDE / SHM_PAGE];
    size_t count = 0;
    const struct shm_endpoint *self = t->pair.endpoint[0];
    assert_int_equal(
        mincore((void *)(uintptr_t)(out_of(t, lane)->pieces - self->pieces_shift), WIDE, there), 0);
    for (size_t page = 0; page < WIDE / SHM_PAGE; page++)
        count += there[page] & 1;
    return count;
}

/* The pages of the whole ring come with the first piece that goes that way, sent or built, and the
 * receiver is told of them once; other pieces bring none but their own. */
static void pages_come_at_once(void **state)
{
    (void)state;
    for (int built = 0; built < 2; built++) {
        struct wide_test t;
        void *room = NULL;
        uint64_t tag = 0;
        size_t done = 0;
        open_wide(&t);
        for (int i = 0; i < 100; i++) {
            assert_int_equal(pass(&t, 0, SHM_LARGE_PIECE), 0);
            answer(&t);
        }
        assert_true(pages_there(&t, 0) <= (NARROW + SHM_PAGE) / SHM_PAGE);
        const struct shm_line *line = &out_of(&t, 0)->lines[shm_line_at(out_of(&t, 0)->sent)];
        if (built) {
            assert_int_equal(t.shm->reserve(t.pair.endpoint[0], 0, MEDIUM, &room), MEDIUM);
            memset(room, 5, MEDIUM);
            assert_int_equal(t.shm->commit(t.pair.endpoint[0], 0, 1, MEDIUM), TUTTI_OK);
            assert_int_equal(line->far.id, SHM_ID_PAGES);
            assert_int_equal(t.shm->receive(t.pair.endpoint[1], 0, &tag, t.got, MEDIUM, &done),
                             TUTTI_OK);
            assert_int_equal(t.got[MEDIUM - 1], 5);
        } else {
            assert_int_equal(pass(&t, 0, MEDIUM), SHM_ID_PAGES);
        }
        assert_int_equal(pages_there(&t, 0), WIDE / SHM_PAGE);
        assert_in_range(pages_there(&t, 1), 0, 1); /* the last of a shifted ring is in its first */
        for (int i = 0; i < 100; i++)
            assert_in_range(pass(&t, 0, MEDIUM), 0, SHM_WAYS);
        close_wide(&t);
    }
}

/* While the wide way is held, its time is looked at: when it comes to much more than what the
 * narrow one took, it is left. The peer's part, which this test makes up, says so. */
static void the_slow_state_is_left(void **state)
{
    struct wide_test t;
    _Atomic uint64_t nowhere[SHM_SIZES] = {0};
    (void)state;
    open_wide(&t);
    struct shm_in *in = &((struct shm_endpoint *)t.pair.endpoint[1])->lane[0].in;
    _Atomic uint64_t *told = in->took;
    const uint64_t alike =
        UINT64_C(30000) << (16 * SHM_NARROW) | UINT64_C(30000) << (16 * SHM_WIDE); /* ps a byte */
    const uint64_t slow = UINT64_C(30000) << (16 * SHM_NARROW) | UINT64_C(65000) << (16 * SHM_WIDE);
    in->took = nowhere; /* what it measures is not told */
    atomic_store(&told[1], alike);
    const struct tti_copy_trial *trial = &out_of(&t, 0)->ways[1].trial;
    for (int i = 0; i < (WIDE + 2 * NARROW) / MEDIUM + 2 * TTI_COPY_TRIAL; i++) {
        assert_false(trial->held); /* each way is timed when it has gone round */
        (void)pass(&t, 0, MEDIUM);
    }
    assert_true(trial->held);
    assert_int_equal(trial->cost[2], 0); /* around the caches: not tried */
    assert_true(trial->cost[0] > 0 && trial->cost[1] > 0);
    assert_true(goes_wide(&t, 0, MEDIUM, true));
    atomic_store(&told[1], slow);
    for (int i = 0; i < (TTI_COPY_SLOW + 1) * TTI_COPY_WATCH; i++)
        (void)pass(&t, 0, MEDIUM);
    assert_true(trial->held);
    assert_int_equal(trial->hold, TTI_COPY_HOLD_MOST);
    assert_false(goes_wide(&t, 0, MEDIUM, true));
    close_wide(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_goes_wide),
        cmocka_unit_test(one_lane_alone),
        cmocka_unit_test(pages_come_at_once),
        cmocka_unit_test(the_slow_state_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
