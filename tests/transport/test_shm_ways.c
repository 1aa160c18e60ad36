/* How copies go through the ring of pieces (transport/shm/lane_ways.c): by each way all arrives
 * and lies where it should, and of several the one that takes both ends least is taken. */
#include "device/cpu_caches.h"
#include "tests/transport/shm_pair.h"

#include "tests/tutti_cmocka.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 256 << 10, NARROW = 512 << 10, WIDE = 2 << 20 };
static const size_t sizes[] = {1025, 2048, 4096, 8192, 8193, 16384, 16385, 65536, 100000, MOST};

struct ways_test {
    struct shm_pair pair;
    const struct tutti_transport_ops *shm;
    unsigned char *data, *got;
    uint64_t number;
    uint64_t furthest; /* where a piece ended in the ring */
};

/* Two ranks whose pieces go as `way` says, on any machine; "rows": as where ranks share cores,
 * "wide first": as where lines come back quickly. */
static void open_ways(struct ways_test *t, const char *way)
{
    memset(t, 0, sizeof *t);
    t->shm = shm_pair_ops();
    t->data = malloc(MOST);
    t->got = malloc(MOST);
    assert_true(t->data && t->got);
    const bool rows = strcmp(way, "rows") == 0, first = strcmp(way, "wide first") == 0;
    const bool automatic = rows || first || strcmp(way, "auto") == 0;
    setenv("TUTTI_SHM_PIECES", automatic ? "auto" : way, 1);
    setenv("TUTTI_SHM_WIDE", "2M", 1);
    shm_pair_open(&t->pair);
    for (int i = 0; i < 2; i++) {
        struct shm_settings *settings = &((struct shm_transport *)t->pair.transport[i])->settings;
        settings->memory = SHM_MEMORY_NONE;
        if (!automatic) /* else whatever this machine is like: */
            continue;
        settings->ways = SHM_WAYS;
        settings->shares_cores = settings->slow_lines = rows;
        settings->wide_first = first;
        settings->piece_ring = WIDE;
        settings->near_bytes = rows ? SIZE_MAX : settings->near_bytes;
        settings->ahead_pieces = rows ? SHM_LINES : settings->ahead_pieces;
    }
    shm_pair_connect(&t->pair);
    unsetenv("TUTTI_SHM_PIECES");
    unsetenv("TUTTI_SHM_WIDE");
}

static void close_ways(struct ways_test *t)
{
    shm_pair_close(&t->pair);
    free(t->data);
    free(t->got);
}

static struct shm_out *sender(const struct ways_test *t)
{
    return &((struct shm_endpoint *)t->pair.endpoint[0])->lane[0].out;
}

/* One fragment from rank 0, sent or built in the transport's memory, and received or peeked.
 * Returns what its line has for an id. */
static uint64_t pass(struct ways_test *t, size_t bytes)
{
    const struct shm_line *line = &sender(t)->lines[shm_line_at(sender(t)->sent)];
    size_t done = 0, ready = 0;
    uint64_t tag = 0;
    const bool built = t->number % 3 == 2, peeked = t->number % 2;
    for (size_t i = 0; i < bytes; i += 61)
        t->data[i] = (unsigned char)(t->number * 7 + i / 61);
    t->data[bytes - 1] = (unsigned char)t->number;
    if (built) {
        void *room = NULL;
        done = t->shm->reserve(t->pair.endpoint[0], 0, bytes, &room);
        assert_int_equal(done, bytes);
        memcpy(room, t->data, bytes);
        assert_int_equal(t->shm->commit(t->pair.endpoint[0], 0, t->number, bytes), TUTTI_OK);
    } else {
        assert_int_equal(t->shm->send(t->pair.endpoint[0], 0, t->number, t->data, bytes, &done),
                         TUTTI_OK);
        assert_int_equal(done, bytes);
    }
    assert_int_equal(line->flag >> 8 & 0xff, SHM_KIND_PIECE);
    const uint64_t id = line->far.id, end = line->far.where + bytes;
    t->furthest = end > t->furthest ? end : t->furthest;
    if (peeked) {
        const void *seen = NULL;
        assert_int_equal(t->shm->peek(t->pair.endpoint[1], 0, &tag, &seen, &ready), TUTTI_OK);
        assert_int_equal(ready, bytes);
        assert_memory_equal(seen, t->data, bytes);
        t->shm->consume(t->pair.endpoint[1], 0, bytes);
    } else {
        assert_int_equal(t->shm->receive(t->pair.endpoint[1], 0, &tag, t->got, bytes, &ready),
                         TUTTI_OK);
        assert_int_equal(ready, bytes);
        assert_memory_equal(t->got, t->data, bytes);
    }
    assert_int_equal(tag, t->number);
    t->number++;
    return id;
}

/* By one way alone: the narrow ones keep to their part of the ring, and nobody is asked to look at
 * the clock. */
static void one_way(void **state)
{
    static const char *const names[SHM_WAYS] = {"narrow", "around", "wide"};
    (void)state;
    for (int way = 0; way < SHM_WAYS; way++) {
        struct ways_test t;
        open_ways(&t, names[way]);
        for (int i = 0; i < 600; i++)
            assert_int_equal(pass(&t, sizes[(size_t)i * 7 % (sizeof sizes / sizeof *sizes)]), 0);
        if (way == SHM_WIDE)
            assert_in_range(t.furthest, WIDE - MOST, WIDE);
        else
            assert_in_range(t.furthest, NARROW / 2, NARROW);
        assert_int_equal(atomic_load(&sender(&t)->took[0]), 0);
        close_ways(&t);
    }
}

/* Send until the pieces of a size have had so many turns. */
static void turns(struct ways_test *t, size_t bytes, int count)
{
    const size_t turn = bytes > SHM_WAY_TURN ? bytes : SHM_WAY_TURN;
    for (size_t sent = 0; sent < turn * (size_t)count; sent += bytes)
        (void)pass(t, bytes);
}

/* All ways are tried, each end times them, and what it found is known at the other. */
static void all_are_tried(void **state)
{
    struct ways_test t;
    (void)state;
    open_ways(&t, "auto");
    for (int size = 0; size < SHM_SIZES; size++) {
        static const size_t of_size[SHM_SIZES] = {8192, 65536, MOST};
        const size_t bytes = of_size[size];
        const size_t turn = bytes > SHM_WAY_TURN ? bytes : SHM_WAY_TURN;
        bool seen[SHM_WAYS + 1] = {false};
        for (size_t i = 0; i < 5 * TTI_COPY_TRIAL * turn / bytes; i++) {
            const uint64_t id = pass(&t, bytes);
            assert_in_range(id, 0, SHM_WAYS);
            seen[id] = true;
        }
        const uint64_t took = atomic_load(&sender(&t)->took[size]);
        for (int way = 0; way < SHM_WAYS; way++) {
            assert_true(seen[way + 1]);
            assert_int_not_equal(took >> (16 * way) & 0xffff, 0);
        }
        assert_int_equal(took >> (16 * SHM_WAYS), 0);
    }
    close_ways(&t);
}

/* Whatever the machine is like: what the peer says that a way takes it decides, if it is much. */
static void the_peer_counts(void **state)
{
    (void)state;
    for (int best = 0; best < SHM_WAYS; best++) {
        struct ways_test t;
        _Atomic uint64_t nowhere[SHM_SIZES] = {0};
        uint64_t told = 0;
        open_ways(&t, "auto");
        struct shm_in *in = &((struct shm_endpoint *)t.pair.endpoint[1])->lane[0].in;
        for (int way = 0; way < SHM_WAYS; way++)
            told |= (uint64_t)(way == best ? 1 : 60000) << (16 * way); /* 60 ns a byte */
        atomic_store(&in->took[1], told);
        in->took = nowhere;                   /* what it measures is not told */
        turns(&t, 65536, 5 * TTI_COPY_TRIAL); /* what is built in the ring does not count */
        const struct tti_copy_trial *trial = &sender(&t)->ways[1].trial;
        assert_true(trial->held);
        assert_int_equal(trial->way, best);
        t.furthest = 0;
        turns(&t, 65536, 2 * WIDE / SHM_WAY_TURN);
        assert_true(best == SHM_WIDE ? t.furthest > WIDE - MOST : t.furthest <= NARROW);
        close_ways(&t);
    }
}

enum { UNREAD = 200, LARGE = 64 << 10 };

/* A random exchange: what is under way. */
struct random_test {
    struct ways_test ways;
    unsigned seed, random;
    bool answers; /* now and then */
    uint64_t sent, received;
    size_t bytes[UNREAD]; /* of those that are unread */
    int full;             /* times that there was no room */
};

static unsigned draw(struct random_test *t, unsigned most)
{
    return (unsigned)rand_r(&t->random) % most;
}

/* The receiver says something, which ends a row of fragments. */
static void answer(const struct ways_test *t)
{
    size_t done = 0, got = 0;
    uint64_t tag = 0;
    assert_int_equal(t->shm->send(t->pair.endpoint[1], 0, 1, t->data, 8, &done), TUTTI_OK);
    assert_int_equal(done, 8);
    assert_int_equal(t->shm->receive(t->pair.endpoint[0], 0, &tag, t->got, 8, &got), TUTTI_OK);
    assert_int_equal(got, 8);
}

static void answer_maybe(struct random_test *t)
{
    if (t->answers && draw(t, 8) == 0)
        answer(&t->ways);
}

/* What fragment `number` begins with: its own place in bytes that do not repeat for long. */
static const unsigned char *random_bytes(const struct random_test *t, uint64_t number)
{
    return t->ways.data + number * 61 % (MOST / 2);
}

/* Offer a fragment of any size: send it, build it, or reserve room and leave it. */
static void offer_any(struct random_test *t, unsigned how)
{
    const struct tutti_transport_ops *shm = t->ways.shm;
    void *endpoint = t->ways.pair.endpoint[0], *room = NULL;
    const size_t bytes = SHM_INLINE + 1 + draw(t, LARGE);
    size_t taken = 0;
    const unsigned char *data = random_bytes(t, t->sent);
    if (how == 0) {
        assert_int_equal(shm->send(endpoint, 0, t->sent, data, bytes, &taken), TUTTI_OK);
    } else if ((taken = shm->reserve(endpoint, 0, bytes, &room)) > 0) {
        const size_t used = how == 1 ? taken : 0;
        memcpy(room, data, used);
        answer_maybe(t);
        assert_int_equal(shm->commit(endpoint, 0, t->sent, used), TUTTI_OK);
        if (used == 0)
            return;
    }
    t->full += taken == 0;
    t->bytes[t->sent % UNREAD] = taken;
    t->sent += taken > 0;
}

static void take_one(struct random_test *t)
{
    struct ways_test *ways = &t->ways;
    uint64_t tag = 0;
    size_t got = 0;
    assert_int_equal(ways->shm->receive(ways->pair.endpoint[1], 0, &tag, ways->got, MOST, &got),
                     TUTTI_OK);
    assert_int_equal(got, t->bytes[t->received % UNREAD]);
    assert_int_equal(tag, t->received);
    if (memcmp(ways->got, random_bytes(t, t->received), got) != 0)
        fail_msg("fragment %llu of %zu bytes (seed %u)", (unsigned long long)t->received, got,
                 t->seed);
    t->received++;
}

/* Fragments of all sizes, many unread at a time, while each class of them changes its way at random
 * and what is reserved is not always used: all arrives, in order, nothing lies beyond its ring, and
 * there is room again when all is read. */
static void ways_change(void **state)
{
    enum { STEPS = 20000 };
    static const char *const names[] = {"auto", "rows", "wide first"};
    (void)state;
    for (int round = 0; round < 6; round++) {
        const bool small = round % 2;
        struct random_test t = {.seed = (unsigned)getpid(), .answers = round >= 2};
        print_message("seed %u\n", t.seed);
        t.random = t.seed;
        open_ways(&t.ways, names[round / 2]);
        for (size_t i = 0; i < MOST; i++)
            t.ways.data[i] = (unsigned char)(i * 3 + i / 256 * 7 + i / 65536);
        for (int i = 0; i < 2; i++) {
            struct shm_transport *shm = t.ways.pair.transport[i];
            shm->settings.piece_bytes = small ? 4096 : MOST;
            shm->settings.piece_narrow = 2 * shm->settings.piece_bytes;
        }
        for (int step = 0; step < STEPS; step++) {
            const unsigned what = draw(&t, 16);
            answer_maybe(&t);
            if (what == 0)
                sender(&t.ways)->ways[draw(&t, SHM_SIZES)].trial.way = (uint8_t)draw(&t, SHM_WAYS);
            if (what < 9 && t.sent - t.received < UNREAD)
                offer_any(&t, what < 5 ? 0 : what < 8 ? 1 : 2);
            else if (what < 15 && t.received < t.sent)
                take_one(&t);
            while (what == 15 && t.received < t.sent)
                take_one(&t);
            if (what == 15) {
                const int before = t.full;
                offer_any(&t, 0);
                assert_int_equal(t.full, before);
            }
        }
        /* small ones in rows have all of the ring, which may be enough */
        assert_true(t.sent > 1000 && (t.full > 0 || round == 3 || round == 5));
        close_ways(&t.ways);
    }
}

/* What is told of ids and times by a peer changes how pieces go, and nothing else. */
static void any_id_and_time(void **state)
{
    static const uint64_t ids[] = {SHM_ID_PAGES, SHM_ID_PAGES, SHM_ID_PAGES + 1, 77, UINT64_MAX};
    struct ways_test t;
    (void)state;
    open_ways(&t, "auto");
    struct shm_endpoint *reader = t.pair.endpoint[1];
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        struct shm_line *line = &sender(&t)->lines[shm_line_at(sender(&t)->sent)];
        size_t done = 0;
        uint64_t tag = 0;
        memset(t.data, (int)i + 1, 4096);
        assert_int_equal(t.shm->send(t.pair.endpoint[0], 0, i, t.data, 4096, &done), TUTTI_OK);
        line->far.id = ids[i];
        assert_int_equal(t.shm->receive(reader, 0, &tag, t.got, 4096, &done), TUTTI_OK);
        assert_int_equal(done, 4096);
        assert_memory_equal(t.got, t.data, 4096);
        assert_int_equal(atomic_load(&reader->lane[0].in.took[0]), 0);
    }
    t.number = sizeof ids / sizeof ids[0];
    for (int size = 0; size < SHM_SIZES; size++)
        atomic_store(&reader->lane[0].in.took[size], UINT64_MAX);
    turns(&t, 65536, 5 * TTI_COPY_TRIAL);
    turns(&t, 4096, 5 * TTI_COPY_TRIAL);
    close_ways(&t);
}

/* What the peer has not read it cannot have timed: a turn of a way of which nothing is known is no
 * part of a trial, for as long as a lap takes and some more. */
static void an_unknown_cost_is_waited_for(void **state)
{
    enum { BYTES = 20000 }; /* some of each turn are copied, not built */
    struct ways_test t;
    _Atomic uint64_t nowhere[SHM_SIZES] = {0};
    (void)state;
    open_ways(&t, "auto");
    ((struct shm_endpoint *)t.pair.endpoint[1])->lane[0].in.took = nowhere;
    const struct tti_copy_trial *trial = &sender(&t)->ways[1].trial;
    const int untimed = TTI_COPY_TRIAL - TTI_COPY_TIMED;
    turns(&t, BYTES, 3 * TTI_COPY_TRIAL / 2);
    assert_int_equal(trial->way, SHM_NARROW);
    assert_int_equal(trial->count, untimed);
    assert_int_equal(trial->timed, 0);
    turns(&t, BYTES, WIDE / SHM_WAY_TURN + 3 * SHM_WAY_LATE);
    assert_true(trial->count > untimed); /* it never comes: then without */
    close_ways(&t);
}

/* Small pieces that go the narrow way do not keep those between which they come to the start of the
 * ring; alone they go back there. */
static void narrow_goes_on_behind_wide(void **state)
{
    struct ways_test t;
    (void)state;
    open_ways(&t, "auto");
    sender(&t)->ways[0].trial = (struct tti_copy_trial){.held = true, .hold = UINT16_MAX};
    sender(&t)->ways[1].trial =
        (struct tti_copy_trial){.held = true, .hold = UINT16_MAX, .way = SHM_WIDE};
    for (int i = 0; i < 100; i++)
        (void)pass(&t, i % 2 ? 4096 : 100000);
    assert_in_range(t.furthest, WIDE - MOST, WIDE);
    for (int i = 0; i < 2 * SHM_WIDE_STAYS / 4096; i++)
        (void)pass(&t, 4096);
    t.furthest = 0;
    (void)pass(&t, 4096);
    assert_true(t.furthest <= NARROW);
    close_ways(&t);
}

/* A process may take the machine for another one: the ring is as who makes the segment says. */
static void the_maker_lays_out(void **state)
{
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        struct ways_test t = {.shm = shm_pair_ops(), .data = malloc(MOST), .got = malloc(MOST)};
        assert_true(t.data && t.got);
        setenv("TUTTI_SHM_PIECES", wide ? "narrow" : "wide", 1); /* rank 0, and rank 1 at first */
        shm_pair_open(&t.pair);
        struct shm_settings *maker = &((struct shm_transport *)t.pair.transport[1])->settings;
        maker->way = wide ? SHM_WIDE : SHM_NARROW;
        maker->piece_ring = wide ? WIDE : NARROW;
        maker->memory = SHM_MEMORY_NONE;
        ((struct shm_transport *)t.pair.transport[0])->settings.memory = SHM_MEMORY_NONE;
        shm_pair_connect(&t.pair);
        unsetenv("TUTTI_SHM_PIECES");
        assert_int_equal(((struct shm_endpoint *)t.pair.endpoint[0])->piece_ring,
                         wide ? WIDE : NARROW);
        for (int i = 0; i < 100; i++)
            (void)pass(&t, sizes[(size_t)i % (sizeof sizes / sizeof *sizes)]);
        assert_true(t.furthest <= NARROW);
        close_ways(&t);
    }
}

/* Send pieces of this size until there is no room; how many they were. Then all are read. */
static int fill(struct ways_test *t, size_t bytes)
{
    int count = 0;
    for (size_t done = bytes; done == bytes; count += done == bytes)
        assert_int_equal(t->shm->send(t->pair.endpoint[0], 0, t->number, t->data, bytes, &done),
                         TUTTI_OK);
    for (int i = 0; i < count; i++) {
        size_t got = 0;
        uint64_t tag = 0;
        assert_int_equal(t->shm->receive(t->pair.endpoint[1], 0, &tag, t->got, bytes, &got),
                         TUTTI_OK);
        assert_int_equal(got, bytes);
    }
    return count;
}

/* A peer that has read small lines wakes nobody, so a large piece does not wait for them. */
static void small_lines_take_no_room(struct ways_test *t)
{
    const size_t bytes[] = {8, 8, 8, 8, 8, 8, MOST};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        size_t done = 0;
        assert_int_equal(t->shm->send(t->pair.endpoint[0], 0, t->number, t->data, bytes[i], &done),
                         TUTTI_OK);
        assert_int_equal(done, bytes[i]);
    }
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        size_t got = 0;
        uint64_t tag = 0;
        assert_int_equal(t->shm->receive(t->pair.endpoint[1], 0, &tag, t->got, MOST, &got),
                         TUTTI_OK);
        assert_int_equal(got, bytes[i]);
    }
}

/* Where ranks share cores: who is answered keeps to the narrow part of the ring while that is
 * quick, else goes the way that was found quicker, but for small pieces. */
static void answered_where_cores_are_shared(void **state)
{
    static const size_t least_and_more[] = {SHM_SHARED_FROM, SHM_WAY_TURN};
    struct ways_test t;
    (void)state;
    open_ways(&t, "rows");
    for (int i = 0; i < 2 * NARROW / SHM_SHARED_FROM; i++) {
        assert_int_equal(pass(&t, SHM_SHARED_FROM / 2), 0);
        answer(&t);
    }
    assert_int_equal(sender(&t)->ways[0].done, 0);
    for (int size = 0; size < 2; size++) {
        const size_t bytes = least_and_more[size];
        uint64_t ids = 0;
        for (int i = 0; i < TTI_COPY_TRIAL * (int)(SHM_WAY_TURN / bytes); i++) {
            ids |= UINT64_C(1) << pass(&t, bytes);
            answer(&t);
        }
        assert_int_equal(ids, 1 | UINT64_C(1) << (SHM_NARROW + 1)); /* the first to be timed */
        for (int wide = 0; wide < 2; wide++) {
            sender(&t)->ways[size].trial = (struct tti_copy_trial){
                .way = wide ? SHM_WIDE : SHM_NARROW, .held = true, .hold = UINT16_MAX};
            sender(&t)->wide_head = 0;
            t.furthest = 0;
            for (size_t i = 0; i < 2 * WIDE / bytes; i++) {
                (void)pass(&t, bytes);
                answer(&t);
            }
            assert_int_equal(t.furthest > NARROW, wide);
        }
    }
    close_ways(&t);
}

/* Who is not answered there has many small pieces under way, and of larger ones few, so that it
 * waits seldom, or not for long; and only its larger ones are tried. */
static void rows_where_cores_are_shared(void **state)
{
    struct ways_test t;
    (void)state;
    open_ways(&t, "rows");
    for (int i = 0; i < 3 * SHM_ROW; i++) { /* answered */
        (void)pass(&t, SHM_LARGE_PIECE * (1 + (size_t)i % 4));
        answer(&t);
    }
    assert_true(t.furthest <= NARROW);
    for (int i = 0; i < 2 * WIDE / SHM_LARGE_PIECE; i++) /* not answered any more */
        assert_int_equal(pass(&t, SHM_LARGE_PIECE), 0);
    assert_int_equal(t.furthest, WIDE);
    assert_in_range(fill(&t, SHM_LARGE_PIECE), WIDE / SHM_LARGE_PIECE - 1, WIDE / SHM_LARGE_PIECE);
    assert_in_range(fill(&t, SHM_NEAR_PIECE), SHM_LINES - 2, SHM_LINES);
    assert_int_equal(fill(&t, 2 * SHM_ROW_FROM), SHM_ROW_PIECES);
    assert_int_equal(fill(&t, MOST), NARROW / MOST);
    small_lines_take_no_room(&t);
    uint64_t ids = 0;
    for (int i = 0; i < 4 * TTI_COPY_TRIAL; i++)
        ids |= UINT64_C(1) << pass(&t, SHM_WAY_TURN);
    assert_true(ids >> (SHM_NARROW + 1) & 1); /* it has been timed */
    for (int wide = 0; wide < 2; wide++) {
        sender(&t)->ways[1].trial = (struct tti_copy_trial){
            .way = wide ? SHM_WIDE : SHM_NARROW, .held = true, .hold = UINT16_MAX};
        sender(&t)->wide_head = 0;
        t.furthest = 0;
        for (int i = 0; i < 2 * WIDE / SHM_WAY_TURN; i++)
            (void)pass(&t, SHM_WAY_TURN);
        assert_int_equal(t.furthest, wide ? WIDE : NARROW);
    }
    close_ways(&t);
}

/* The same where lines come back quickly: no way is tried, and large pieces are as many as fit. */
static void rows_where_lines_come_back_quickly(void **state)
{
    struct ways_test t;
    (void)state;
    open_ways(&t, "rows");
    struct shm_settings *settings = &((struct shm_transport *)t.pair.transport[0])->settings;
    settings->slow_lines = false;
    settings->ways = 1;
    for (int i = 0; i < 2 * WIDE / SHM_WAY_TURN; i++) {
        assert_int_equal(pass(&t, SHM_WAY_TURN), 0);
        answer(&t);
    }
    assert_true(t.furthest <= NARROW);
    for (int i = 0; i < 2 * WIDE / SHM_LARGE_PIECE; i++)
        assert_int_equal(pass(&t, SHM_LARGE_PIECE), 0);
    assert_int_equal(t.furthest, WIDE);
    sender(&t)->wide_head = 0;
    for (int i = 0; i < NARROW / SHM_WAY_TURN; i++) /* back in the narrow part */
        assert_int_equal(pass(&t, SHM_WAY_TURN), 0);
    assert_true(fill(&t, SHM_WAY_TURN) > SHM_ROW_PIECES);
    close_ways(&t);
}

/* Many ranks have no more memory than before, and those that share cores try only while there are
 * few enough of them for wide rings. */
static void many_ranks(void **state)
{
    struct ways_test t;
    (void)state;
    open_ways(&t, "narrow");
    for (int ranks = 2; ranks <= 64; ranks *= 2) {
        struct tutti_transport_env env = t.pair.env[0];
        void *opened = NULL;
        env.nranks = ranks;
        assert_int_equal(t.shm->open(&env, &opened), TUTTI_OK);
        const struct shm_settings *settings = &((struct shm_transport *)opened)->settings;
        const bool crowded = ranks > sysconf(_SC_NPROCESSORS_ONLN);
        const bool quick = ranks == 2 && !crowded && tti_cpu_kind() == TTI_CPU_CLUSTERS;
        const size_t caches = 2 * tti_cpu_second_cache();
        const size_t share = SHM_WIDE_MOST / (size_t)(ranks - 1);
        const size_t wide = (caches < share ? caches : share) / SHM_PAGE * SHM_PAGE;
        const bool rows = crowded && !tti_cpu_meshed() && wide >= 2 * settings->piece_narrow;
        assert_int_equal(settings->shares_cores, rows);
        assert_int_equal(settings->slow_lines, rows && tti_cpu_takes_back_slowly(tti_cpu_kind()));
        assert_int_equal(settings->way, SHM_NARROW);
        assert_int_equal(settings->wide_first, quick);
        if (quick && 2 * caches <= SHM_WIDE_MOST)
            assert_int_equal(settings->piece_ring, 2 * caches);
        if (crowded) {
            assert_int_equal(settings->ways, settings->slow_lines ? SHM_WAYS : 1);
            assert_int_equal(settings->piece_ring, rows ? wide : settings->piece_narrow);
        }
        assert_true((settings->piece_ring - settings->piece_narrow) * (size_t)(ranks - 1) <=
                    SHM_WIDE_MOST);
        t.shm->close(opened);
    }
    close_ways(&t);
}

/* Ranks of other hosts take none of this one's processors and caches. */
static void ranks_elsewhere(void **state)
{
    struct ways_test t;
    (void)state;
    open_ways(&t, "narrow");
    struct tutti_transport_env env = t.pair.env[0];
    void *two = NULL, *spread = NULL, *untold = NULL;
    assert_int_equal(t.shm->open(&env, &two), TUTTI_OK);
    env.nranks = 4096;
    env.host_ranks = 2;
    assert_int_equal(t.shm->open(&env, &spread), TUTTI_OK);
    assert_memory_equal(&((struct shm_transport *)spread)->settings,
                        &((struct shm_transport *)two)->settings, sizeof(struct shm_settings));
    env.size = offsetof(struct tutti_transport_env, host_ranks); /* of a library before it */
    assert_int_equal(t.shm->open(&env, &untold), TUTTI_OK);
    const struct shm_settings *crowd = &((struct shm_transport *)untold)->settings;
    assert_int_equal(crowd->ways, 1); /* as for 4096 */
    assert_int_equal(crowd->piece_ring, crowd->piece_narrow);
    t.shm->close(untold);
    t.shm->close(spread);
    t.shm->close(two);
    close_ways(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_way),
        cmocka_unit_test(all_are_tried),
        cmocka_unit_test(the_peer_counts),
        cmocka_unit_test(the_maker_lays_out),
        cmocka_unit_test(many_ranks),
        cmocka_unit_test(ranks_elsewhere),
        cmocka_unit_test(ways_change),
        cmocka_unit_test(narrow_goes_on_behind_wide),
        cmocka_unit_test(any_id_and_time),
        cmocka_unit_test(an_unknown_cost_is_waited_for),
        cmocka_unit_test(answered_where_cores_are_shared),
        cmocka_unit_test(rows_where_cores_are_shared),
        cmocka_unit_test(rows_where_lines_come_back_quickly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
