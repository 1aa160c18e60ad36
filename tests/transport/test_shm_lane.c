/* How a lane of shm places what it sends: in lines, tails and pieces; and that it all arrives, read
 * at once or long after. */
#include "tests/transport/shm_pair.h"

#include "device/cpu_caches.h"
#include "device/memory.h"
#include "tests/tutti_cmocka.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FRAGMENTS = 250, MOST = 8192, LAPS = 40 };

struct lane_test {
    struct shm_pair pair;
    const struct tutti_transport_ops *shm;
    uint64_t sent, received; /* fragments */
};

/* Nothing that one kind of processor alone has (near_first has it). */
static void any_distance(struct lane_test *t)
{
    for (int i = 0; i < 2; i++)
        ((struct shm_transport *)t->pair.transport[i])->settings.near_bytes = SIZE_MAX;
}

/* A pair in which rank 1, who makes the segment, has these tails and this shift; rank 0 has what
 * the machine says. */
static void open_pair_of(struct lane_test *t, size_t tail, size_t shift)
{
    memset(t, 0, sizeof *t);
    t->shm = shm_pair_ops();
    shm_pair_open(&t->pair);
    any_distance(t);
    struct shm_settings *maker = &((struct shm_transport *)t->pair.transport[1])->settings;
    maker->tail_most = tail;
    maker->pieces_shift = shift;
    shm_pair_connect(&t->pair);
}

static void open_pair(struct lane_test *t)
{
    memset(t, 0, sizeof *t);
    t->shm = shm_pair_ops();
    shm_pair_open(&t->pair);
    any_distance(t);
    shm_pair_connect(&t->pair);
}

static unsigned char pattern(uint64_t fragment, size_t at)
{
    return (unsigned char)(fragment * 31 + at * 7 + 1);
}

/* Rank 0 offers a fragment: all of it is taken, or, when there is no room, nothing (false). */
static bool offer_one(struct lane_test *t, size_t bytes)
{
    unsigned char data[MOST];
    size_t accepted = 0;
    for (size_t i = 0; i < bytes; i++)
        data[i] = pattern(t->sent, i);
    assert_int_equal(t->shm->send(t->pair.endpoint[0], 0, t->sent, data, bytes, &accepted),
                     TUTTI_OK);
    assert_true(accepted == bytes || accepted == 0);
    t->sent += accepted > 0;
    return accepted > 0;
}

/* Send one fragment from rank 0; returns the kind that its line got, and *where it says. */
static enum shm_kind send_one(struct lane_test *t, size_t bytes, uint64_t *where)
{
    const struct shm_line *line =
        &((struct shm_endpoint *)t->pair.endpoint[0])->lane[0].out.lines[shm_line_at(t->sent)];
    assert_true(offer_one(t, bytes));
    *where = line->far.where;
    return (enum shm_kind)(line->flag >> 8 & 0xff);
}

static void receive_one(struct lane_test *t, size_t bytes, bool peek)
{
    unsigned char data[MOST];
    const void *seen = data;
    size_t got = 0;
    uint64_t tag = 0;
    void *endpoint = t->pair.endpoint[1];
    assert_int_equal(peek ? t->shm->peek(endpoint, 0, &tag, &seen, &got)
                          : t->shm->receive(endpoint, 0, &tag, data, bytes, &got),
                     TUTTI_OK);
    assert_int_equal(got, bytes);
    assert_int_equal(tag, t->received);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(((const unsigned char *)seen)[i], pattern(t->received, i));
    if (peek)
        t->shm->consume(endpoint, 0, bytes);
    t->received++;
}

/* The peer sends a word back. */
static void answer(struct lane_test *t)
{
    const char word = 'a';
    const void *seen = NULL;
    size_t accepted = 0, got = 0;
    uint64_t tag = 0;
    assert_int_equal(t->shm->send(t->pair.endpoint[1], 0, 7, &word, 1, &accepted), TUTTI_OK);
    assert_int_equal(accepted, 1);
    assert_int_equal(t->shm->peek(t->pair.endpoint[0], 0, &tag, &seen, &got), TUTTI_OK);
    assert_int_equal(got, 1);
    assert_int_equal(*(const char *)seen, word);
    t->shm->consume(t->pair.endpoint[0], 0, 1);
}

static size_t tail_most(const struct lane_test *t)
{
    return ((const struct shm_transport *)t->pair.transport[0])->settings.tail_most;
}

static size_t tail_in_row(const struct lane_test *t)
{
    return ((struct shm_endpoint *)t->pair.endpoint[0])->lane[0].out.tail_in_row;
}

/* Who is answered uses all of a tail, who is not perhaps only a part of it. */
static void row_of_tails(void **state)
{
    struct lane_test t;
    uint64_t where = 0;
    (void)state;
    open_pair(&t);
    const size_t most = tail_most(&t), in_row = tail_in_row(&t);
    assert_in_range(in_row, SHM_TAIL_LEAST, most);
    for (int i = 0; i < 2 * SHM_ROW; i++) {
        const bool tail = i < SHM_ROW || most == in_row;
        assert_int_equal(send_one(&t, most, &where), tail ? SHM_KIND_TAIL : SHM_KIND_PIECE);
        receive_one(&t, most, i % 2 == 0);
    }
    assert_int_equal(send_one(&t, in_row, &where), SHM_KIND_TAIL);
    receive_one(&t, in_row, true);
    answer(&t);
    assert_int_equal(send_one(&t, most, &where), SHM_KIND_TAIL);
    receive_one(&t, most, true);
    shm_pair_close(&t.pair);
}

/* Nobody reads: tails while there are any, pieces after that; then all is read, and answered. */
static void unread_tails(void **state)
{
    struct lane_test t;
    uint64_t where = 0;
    (void)state;
    open_pair(&t);
    const size_t sizes[] = {SHM_INLINE + 1, 64, 65, 200, tail_in_row(&t)};
    for (int lap = 0; lap < 3; lap++) {
        for (int i = 0; i < FRAGMENTS; i++) {
            enum shm_kind kind = send_one(&t, sizes[i % 5], &where);
            assert_int_equal(kind, i < SHM_TAILS ? SHM_KIND_TAIL : SHM_KIND_PIECE);
        }
        for (int i = 0; i < FRAGMENTS; i++)
            receive_one(&t, sizes[i % 5], i % 2 == 0);
        answer(&t);
    }
    shm_pair_close(&t.pair);
}

static size_t resident(const unsigned char *at, size_t bytes)
{
    unsigned char pages[SHM_NEAREST_RING / SHM_PAGE];
    size_t there = 0;
    assert_in_range(bytes, 1, sizeof pages * SHM_PAGE);
    assert_int_equal(mincore((void *)(uintptr_t)at, bytes, pages), 0);
    for (size_t i = 0; i < bytes / SHM_PAGE; i++)
        there += pages[i] & 1;
    return there * SHM_PAGE;
}

/* Between two ranks in clusters the room of the nearest pieces is there before the first is sent.
 */
static void nearest_are_there(void **state)
{
    struct lane_test t;
    (void)state;
    open_pair(&t);
    for (int side = 0; side < 2; side++) {
        const struct shm_endpoint *endpoint = t.pair.endpoint[side];
        const struct shm_out *out = &endpoint->lane[0].out;
        const size_t ring = endpoint->piece_ring;
        const size_t near = ring < SHM_NEAREST_RING ? ring : SHM_NEAREST_RING;
        const size_t tails = SHM_TAILS * out->tail_most;
        const size_t shift = endpoint->pieces_shift;
        if (tti_cpu_meshed()) /* not measured there */
            continue;
        if (resident(out->tails, tails) == tails) /* else the kernel does not help */
            assert_int_equal(resident(out->pieces - shift, near), near);
    }
    shm_pair_close(&t.pair);
}

/* The peer keeps up and answers: tails for ever, and pieces that stay near. */
static void read_at_once(void **state)
{
    struct lane_test t;
    uint64_t where = 0;
    (void)state;
    open_pair(&t);
    for (int i = 0; i < LAPS * SHM_TAILS; i++) {
        assert_int_equal(send_one(&t, 256, &where), SHM_KIND_TAIL);
        receive_one(&t, 256, false);
        assert_int_equal(send_one(&t, SHM_NEAR_PIECE, &where), SHM_KIND_PIECE);
        assert_true(where < SHM_NEAR_RING);
        receive_one(&t, SHM_NEAR_PIECE, true);
        answer(&t);
    }
    shm_pair_close(&t.pair);
}

/* Small pieces of who is answered stay nearest. Of who is not, those that a tail of any segment
 * could hold go further, so that all lines have one; larger ones keep to room for as many as the
 * settings say. */
static void answered_or_not(void **state)
{
    enum { TURNS = 2 * SHM_NEAR_RING / SHM_NEAREST_PIECE };
    struct lane_test t;
    uint64_t where = 0, furthest[2] = {0, 0};
    (void)state;
    open_pair(&t);
    const size_t ahead = ((struct shm_transport *)t.pair.transport[0])->settings.ahead_pieces;
    for (int answers = 1; answers >= 0; answers--)
        for (int i = 0; i < TURNS; i++) {
            assert_int_equal(send_one(&t, SHM_NEAREST_PIECE, &where), SHM_KIND_PIECE);
            furthest[answers] = where > furthest[answers] ? where : furthest[answers];
            receive_one(&t, SHM_NEAREST_PIECE, i % 2 == 0);
            if (answers)
                answer(&t);
        }
    assert_int_equal(furthest[1], SHM_NEAREST_RING - SHM_NEAREST_PIECE);
    assert_int_equal(furthest[0], (ahead - 1) * SHM_NEAREST_PIECE);
    shm_pair_close(&t.pair);
}

/* Larger ones of who is not answered keep to room for so many as the settings say; nobody reads so
 * many: then it is refused, goes on when they are read, and all arrives. */
static void followed_closely(void **state)
{
    enum { BYTES = 2 * SHM_NEAREST_PIECE };
    static const size_t pieces[] = {SHM_FOLLOWED, 2 * SHM_FOLLOWED};
    struct lane_test t;
    uint64_t where = 0;
    (void)state;
    open_pair(&t);
    struct shm_settings *settings = &((struct shm_transport *)t.pair.transport[0])->settings;
    for (int i = 0; i < 2; i++) {
        uint64_t furthest = 0;
        settings->ahead_pieces = pieces[i];
        for (int lap = 0; lap < LAPS * SHM_FOLLOWED; lap++) {
            assert_int_equal(send_one(&t, BYTES, &where), SHM_KIND_PIECE);
            if (t.sent > SHM_ROW)
                furthest = where > furthest ? where : furthest;
            receive_one(&t, BYTES, lap % 2 == 0);
        }
        assert_int_equal(furthest, (pieces[i] - 1) * BYTES + settings->pieces_shift);
    }
    for (int lap = 0; lap < LAPS; lap++) {
        while (offer_one(&t, BYTES))
            continue;
        const uint64_t unread = t.sent - t.received;
        assert_in_range(unread, pieces[1] / 2, 2 * pieces[1]);
        for (uint64_t i = 0; i < unread; i++)
            receive_one(&t, BYTES, false);
    }
    shm_pair_close(&t.pair);
}

/* Where only a first-level cache has lines back soon, pieces keep to a part of it, as long as the
 * peer keeps up; but for two that need more. */
static void near_first(void **state)
{
    static const size_t sizes[] = {SHM_TAIL_BYTES + 1, SHM_NEAREST_PIECE, SHM_PAGE, SHM_NEAR_PIECE};
    struct lane_test t;
    uint64_t where = 0;
    (void)state;
    open_pair(&t);
    struct shm_settings *settings = &((struct shm_transport *)t.pair.transport[0])->settings;
    settings->near_bytes = SHM_NEAR_FIRST;
    for (int answers = 0; answers < 2; answers++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            const size_t two = 2 * (sizes[s] + SHM_PIECE_ALIGN);
            const size_t room = two > SHM_NEAR_FIRST ? two : SHM_NEAR_FIRST;
            uint64_t furthest = 0;
            for (int i = 0; i < LAPS; i++) {
                assert_int_equal(send_one(&t, sizes[s], &where), SHM_KIND_PIECE);
                /* those of before may have gone further */
                furthest = i > SHM_ROW && where > furthest ? where : furthest;
                receive_one(&t, sizes[s], i % 2);
                if (answers)
                    answer(&t);
            }
            assert_in_range(furthest, sizes[s], room + SHM_PIECES_SHIFT);
        }
    for (int lap = 0; lap < LAPS; lap++) { /* nobody reads: two have room, and then more again */
        int unread = 0;
        while (offer_one(&t, SHM_PAGE))
            unread++;
        assert_in_range(unread, 2, SHM_LINES);
        while (unread-- > 0)
            receive_one(&t, SHM_PAGE, false);
    }
    shm_pair_close(&t.pair);
}

/* Among more than two ranks some may share a core: nobody is held close there, tails are short and
 * pieces begin at a page. */
static void three_go_ahead(void **state)
{
    struct lane_test t;
    void *third = NULL;
    (void)state;
    open_pair(&t);
    struct tutti_transport_env env = t.pair.env[0];
    env.nranks = 3;
    assert_int_equal(((struct shm_transport *)t.pair.transport[0])->settings.ahead_pieces,
                     tti_cpu_meshed() || sysconf(_SC_NPROCESSORS_ONLN) < 2 ? SHM_LINES
                                                                           : SHM_FOLLOWED);
    assert_int_equal(t.shm->open(&env, &third), TUTTI_OK);
    assert_int_equal(((struct shm_transport *)third)->settings.ahead_pieces, SHM_LINES);
    assert_int_equal(((struct shm_transport *)third)->settings.tail_most, SHM_TAIL_LEAST);
    assert_int_equal(((struct shm_transport *)third)->settings.pieces_shift, 0);
    assert_int_equal(tail_most(&t), shm_pair_tail());
    t.shm->close(third);
    shm_pair_close(&t.pair);
}

/* Who is far ahead has room for a piece in each line, and touches no more of the ring than that: a
 * new page makes a message wait. When the peer has caught up, tails are found soon. */
static void no_further_than_lines(void **state)
{
    struct lane_test t;
    (void)state;
    open_pair(&t);
    static const size_t sizes[] = {64, 256, 500, SHM_TAIL_LEAST}; /* of longer ones fewer */
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const size_t room = (sizes[s] + SHM_PIECE_ALIGN - 1) / SHM_PIECE_ALIGN * SHM_PIECE_ALIGN;
        uint64_t where = 0, furthest = 0;
        for (int lap = 0; lap < LAPS; lap++) {
            const int unread = lap % 4 == 0 ? SHM_LINES : FRAGMENTS - 45;
            int late = 0;
            for (int i = 0; i < unread; i++) {
                const bool tail = send_one(&t, sizes[s], &where) == SHM_KIND_TAIL;
                late = tail || lap == 0 || i >= SHM_TAILS ? late : i + 1;
                furthest = tail || where < furthest ? furthest : where;
            }
            assert_true(late <= SHM_ASK_EVERY);
            for (int i = 0; i < unread; i++)
                receive_one(&t, sizes[s], i % 3 == 0);
        }
        assert_true(furthest > 0 && furthest < SHM_LINES * room);
    }
    shm_pair_close(&t.pair);
}

/* Small messages of several kinds by turns to a peer that stays behind: it is asked seldom how far
 * it is, not for each message, as its word lies in its cache; and tails are found soon all the same
 * once it has caught up. */
static void asks_seldom(void **state)
{
    enum { BEHIND = SHM_TAILS + 8, MESSAGES = 3000 };
    static const size_t sizes[] = {64, 500, 8};
    struct lane_test t;
    uint64_t where = 0, before = 0;
    int asked = 0, late = 0;
    (void)state;
    open_pair(&t);
    const struct shm_out *out = &((struct shm_endpoint *)t.pair.endpoint[0])->lane[0].out;
    for (int i = 0; i < MESSAGES; i++) {
        (void)send_one(&t, sizes[t.sent % 3], &where);
        if (t.sent - t.received > BEHIND)
            receive_one(&t, sizes[t.received % 3], i % 2 == 0);
        asked += out->freed != before; /* each time it is asked, it is further */
        before = out->freed;
    }
    assert_in_range(asked, MESSAGES / SHM_ASK_EVERY / 2, 2 * MESSAGES / SHM_ASK_EVERY);
    while (t.received < t.sent)
        receive_one(&t, sizes[t.received % 3], false);
    while (send_one(&t, sizes[t.sent % 3], &where) != SHM_KIND_TAIL)
        late++;
    assert_true(late <= SHM_ASK_EVERY + 1); /* an inline message may come between */
    shm_pair_close(&t.pair);
}

/* The peer is late: small pieces take the whole ring, and turn back once it has caught up and
 * answered. */
static void late_pieces(void **state)
{
    enum { LATE = 60 };
    struct lane_test t;
    uint64_t where = 0, furthest = 0;
    (void)state;
    open_pair(&t);
    for (int lap = 0; lap < LAPS; lap++) {
        for (int i = 0; i < LATE; i++) {
            assert_int_equal(send_one(&t, SHM_NEAR_PIECE, &where), SHM_KIND_PIECE);
            furthest = where > furthest ? where : furthest;
        }
        for (int i = 0; i < LATE; i++)
            receive_one(&t, SHM_NEAR_PIECE, i % 3 == 0);
    }
    assert_true(furthest > SHM_NEAR_RING && furthest >= (LATE - 8) * (uint64_t)SHM_NEAR_PIECE);
    answer(&t);
    (void)send_one(&t, SHM_NEAR_PIECE, &where);
    assert_true(where < SHM_NEAR_RING);
    shm_pair_close(&t.pair);
}

/* Who rings clears the flag first and writes later: when the sleeper is up in between, the word
 * that comes late must not keep it from sleeping for ever after. */
static void late_ring(void **state)
{
    struct lane_test t;
    uint64_t one = 1;
    (void)state;
    open_pair(&t);
    struct shm_endpoint *awake = t.pair.endpoint[0], *sleeper = t.pair.endpoint[1];
    struct pollfd fd = {.fd = t.shm->fd(t.pair.transport[1]), .events = POLLIN};
    while (!t.shm->arm(t.pair.transport[1])) /* there is news that it was not told of */
        continue;
    assert_int_equal(atomic_exchange(&awake->theirs->sleeping, 0), 1);
    t.shm->disarm(t.pair.transport[1]);
    assert_int_equal(write(awake->bell, &one, sizeof one), sizeof one);
    for (int i = 0; i < 2; i++) { /* once for nothing is no harm */
        assert_true(t.shm->arm(t.pair.transport[1]));
        (void)poll(&fd, 1, 0);
        t.shm->disarm(t.pair.transport[1]);
    }
    assert_int_equal(poll(&fd, 1, 0), 0);
    assert_int_equal(sleeper->ours->sleeping, 0);
    shm_pair_close(&t.pair);
}

/* Memory that is freed and made anew for each message, by a rank that never has to wait: the peer
 * maps one piece of it at a time. */
static void regions_pass_by(void **state)
{
    enum { TIMES = 20, BYTES = 64 << 10 };
    struct lane_test t;
    (void)state;
    open_pair(&t);
    struct shm_endpoint *peer = t.pair.endpoint[1];
    for (int i = 0; i < TIMES; i++) {
        struct tutti_place place;
        void *memory = NULL, *seen = NULL;
        assert_int_equal(tti_region_alloc(BYTES, &memory), TUTTI_OK);
        memset(memory, i, BYTES);
        assert_true(t.shm->offer(t.pair.endpoint[0], memory, BYTES, &place));
        assert_int_equal(t.shm->map(peer, &place, BYTES, &seen), TUTTI_OK);
        assert_int_equal(((const unsigned char *)seen)[BYTES - 1], i);
        t.shm->unmap(peer);
        assert_int_equal(tti_region_free(memory), TUTTI_OK);
    }
    assert_in_range(peer->mapping_count, 0, 2);
    shm_pair_close(&t.pair);
}

/* Send or lend `data`: it goes as `kind`, and is the sender's again at once if that is a piece,
 * else when the peer has consumed it and not before. */
static void goes_as(struct lane_test *t, unsigned char *data, size_t bytes, bool lent,
                    enum shm_kind kind)
{
    void *from = t->pair.endpoint[0];
    const struct shm_line *line =
        &((struct shm_endpoint *)from)->lane[0].out.lines[shm_line_at(t->sent)];
    const uint64_t before = t->shm->released(from, 0);
    size_t accepted = 0;
    for (size_t i = 0; i < bytes; i++)
        data[i] = pattern(t->sent, i);
    assert_int_equal((lent ? t->shm->lend : t->shm->send)(from, 0, t->sent, data, bytes, &accepted),
                     TUTTI_OK);
    assert_int_equal(accepted, bytes);
    assert_int_equal(line->flag >> 8 & 0xff, kind);
    assert_int_equal(t->shm->released(from, 0) - before, kind == SHM_KIND_PIECE ? bytes : 0);
    t->sent++;
    receive_one(t, bytes, true);
    assert_int_equal(t->shm->released(from, 0) - before, bytes);
}

/* A fragment of a region is copied when it is sent and stays where it is when it is lent: then it
 * is the sender's again when the peer has consumed it, and not before. */
static void lent_stays(void **state)
{
    enum { BYTES = 4096 };
    struct lane_test t;
    void *memory = NULL;
    (void)state;
    open_pair(&t);
    assert_int_equal(tti_region_alloc(2 * BYTES, &memory), TUTTI_OK);
    unsigned char *data = memory;
    goes_as(&t, data, BYTES, false, SHM_KIND_PIECE);
    goes_as(&t, data + BYTES, BYTES, true, SHM_KIND_REGION);
    shm_pair_close(&t.pair);
    assert_int_equal(tti_region_free(memory), TUTTI_OK);
}

/* Memory that the peer cannot map goes as TUTTI_SHM_CMA says; where the peer reads it itself, it is
 * the sender's again when it has been read. */
static void lent_memory(void **state)
{
    enum { BYTES = 64 << 10 };
    const char *const setting[] = {"0", "1", "2"};
    const bool read_there[3][2] = {{false, false}, {true, true}, {false, true}};
    unsigned char *data = malloc(BYTES);
    (void)state;
    assert_non_null(data);
    for (int i = 0; i < 3; i++) {
        struct lane_test t;
        setenv("TUTTI_SHM_CMA", setting[i], 1);
        open_pair(&t);
        for (int lent = 0; lent < 2; lent++)
            goes_as(&t, data, BYTES, lent != 0,
                    read_there[i][lent] ? SHM_KIND_MEMORY : SHM_KIND_PIECE);
        shm_pair_close(&t.pair);
    }
    unsetenv("TUTTI_SHM_CMA");
    free(data);
}

/* Memory that the kernel reads for nobody, as that which a driver has mapped, is copied. */
static void unreadable_memory(void **state)
{
    enum { PAGE = 4096 };
    struct lane_test t;
    char line[256];
    uintptr_t at = 0;
    (void)state;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (at == 0 && fgets(line, sizeof line, maps))
        if (strstr(line, "[vvar]"))
            at = (uintptr_t)strtoull(line, NULL, 16);
    fclose(maps);
    if (at == 0)
        skip();
    setenv("TUTTI_SHM_CMA", "2", 1);
    setenv("TUTTI_SHM_CMA_FROM", "4K", 1);
    open_pair(&t);
    void *from = t.pair.endpoint[0];
    const struct shm_line *sent =
        &((struct shm_endpoint *)from)->lane[0].out.lines[shm_line_at(t.sent)];
    size_t accepted = 0;
    assert_int_equal(t.shm->lend(from, 0, t.sent, (const void *)at, PAGE, &accepted), TUTTI_OK);
    assert_int_equal(accepted, PAGE);
    assert_int_equal(sent->flag >> 8 & 0xff, SHM_KIND_PIECE);
    shm_pair_close(&t.pair);
    unsetenv("TUTTI_SHM_CMA");
    unsetenv("TUTTI_SHM_CMA_FROM");
}

/* In a shifted ring pieces begin in the middle of a page, those of a page or two at one. */
static void pieces_and_pages(void **state)
{
    static const size_t shifts[] = {0, SHM_PIECES_SHIFT};
    static const size_t pieces[] = {SHM_FOLLOWED, SHM_LINES}; /* those fill the ring */
    (void)state;
    for (int run = 0; run < 4; run++) {
        struct lane_test t;
        uint64_t where = 0;
        open_pair_of(&t, SHM_TAIL_BYTES, shifts[run % 2]);
        ((struct shm_transport *)t.pair.transport[0])->settings.ahead_pieces = pieces[run / 2];
        const struct shm_endpoint *to = t.pair.endpoint[1];
        const uintptr_t begin = (uintptr_t)to->lane[0].in.pieces;
        assert_int_equal(begin % SHM_PAGE, shifts[run % 2]);
        for (int i = 0; i < LAPS * 16; i++) {
            assert_int_equal(send_one(&t, SHM_PAGE, &where), SHM_KIND_PIECE);
            assert_int_equal((begin + where) % SHM_PAGE, 0);
            receive_one(&t, SHM_PAGE, false);
        }
        shm_pair_close(&t.pair);
    }
}

/* Two processes may take the machine for another; who makes the segment lays it out. */
static void the_maker_lays_out(void **state)
{
    static const size_t tails[] = {SHM_TAIL_BYTES, SHM_TAIL_LEAST};
    static const size_t shifts[] = {SHM_PIECES_SHIFT, 0};
    static const size_t sizes[] = {1,   100, SHM_TAIL_LEAST, SHM_TAIL_LEAST + 1, SHM_TAIL_BYTES,
                                   3000};
    (void)state;
    for (int run = 0; run < 4; run++) {
        struct lane_test t;
        uint64_t where = 0;
        open_pair_of(&t, tails[run % 2], shifts[run / 2]);
        for (int i = 0; i < LAPS * 6; i++) {
            (void)send_one(&t, sizes[i % 6], &where);
            receive_one(&t, sizes[i % 6], i % 2 == 0);
            if (i % 8 == 7)
                answer(&t);
        }
        shm_pair_close(&t.pair);
    }
}

/* What was skipped for room that is then not used is room again. */
static void nothing_is_skipped_for_nothing(void **state)
{
    struct lane_test t;
    uint64_t where = 0;
    void *room = NULL;
    (void)state;
    open_pair(&t);
    struct shm_endpoint *from = t.pair.endpoint[0];
    ((struct shm_transport *)t.pair.transport[0])->settings.ahead_pieces = SHM_FOLLOWED;
    for (int i = 0; i < SHM_FOLLOWED; i++) {
        assert_int_equal(send_one(&t, SHM_PAGE, &where), SHM_KIND_PIECE);
        receive_one(&t, SHM_PAGE, false);
    }
    const uint64_t head = from->lane[0].out.piece_head;
    assert_int_equal(t.shm->reserve(from, 0, SHM_PAGE, &room), SHM_PAGE);
    assert_true(from->lane[0].out.piece_head > head); /* it has turned back */
    assert_int_equal(t.shm->commit(from, 0, 0, 0), TUTTI_OK);
    assert_int_equal(from->lane[0].out.piece_head, head);
    assert_int_equal(send_one(&t, SHM_PAGE, &where), SHM_KIND_PIECE);
    receive_one(&t, SHM_PAGE, false);
    shm_pair_close(&t.pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_of_tails),
        cmocka_unit_test(unread_tails),
        cmocka_unit_test(read_at_once),
        cmocka_unit_test(answered_or_not),
        cmocka_unit_test(late_pieces),
        cmocka_unit_test(followed_closely),
        cmocka_unit_test(near_first),
        cmocka_unit_test(three_go_ahead),
        cmocka_unit_test(no_further_than_lines),
        cmocka_unit_test(late_ring),
        cmocka_unit_test(regions_pass_by),
        cmocka_unit_test(lent_stays),
        cmocka_unit_test(lent_memory),
        cmocka_unit_test(unreadable_memory),
        cmocka_unit_test(asks_seldom),
        cmocka_unit_test(nearest_are_there),
        cmocka_unit_test(pieces_and_pages),
        cmocka_unit_test(the_maker_lays_out),
        cmocka_unit_test(nothing_is_skipped_for_nothing),
    };
    setenv("TUTTI_SHM_PIECES", "narrow", 1); /* the other ways: test_shm_ways.c */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
