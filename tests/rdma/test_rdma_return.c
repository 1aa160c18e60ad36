/* A rail that was lost comes back while another carries (transport/rdma/rdma_rejoin.c). A link is
 * cut and mended at random, packets and words take any time, and every fragment arrives once, in
 * its order. What single words do is in test_rdma_words.c. */
#include "tests/rdma/made_rails.h"
#include "tests/tutti_cmocka.h"

#include <string.h>

/* The near link comes and goes, the far one stays. */
static void a_rail_comes_back(void **state)
{
    (void)state;
    int back = 0, away = 0;
    for (uint32_t seed = 1; seed <= 60; seed++) {
        struct stream stream[2] = {{0, 0}, {0, 0}};
        bool carried = true;
        world_new(seed);
        for (int i = 0; i < 40000; i++) {
            world.refuses = i < 30000 && seed % 2;
            if (i >= 30000)
                world.up[NEAR] = true;
            else if (chance(1500) == 0)
                world.up[NEAR] = !world.up[NEAR];
            world_step(stream, true);
            back += !carried && near_carries();
            away += carried && !near_carries();
            carried = near_carries();
            for (int r = 0; r < 2; r++)
                if (world.end[r]->state != TTI_RDMA_UP) {
                    (void)tti_error_restore(&world.end[r]->error);
                    fail_msg("seed %u, step %d, rank %d: %s", seed, i, r, tutti_last_error());
                }
            assert_int_equal(world.end[0]->complaints + world.end[1]->complaints, 0);
        }
        assert_true(near_carries());
        /* Nothing goes by the far one any more, and all that was sent arrives. */
        const int far = world.carried[FAR], near = world.carried[NEAR];
        for (int i = 0; i < 5000; i++)
            world_step(stream, i < 2000);
        assert_int_equal(world.carried[FAR], far);
        assert_true(world.carried[NEAR] > near + 100);
        for (int r = 0; r < 2; r++) {
            assert_int_equal(stream[r].taken, stream[r].sent);
            assert_int_equal(world.end[r]->flying, 0);
            assert_int_equal(world.end[r]->waiting, 0);
        }
        world_free();
    }
    print_message("lost %d times, came back %d times\n", away, back);
    assert_true(away > 60 && back == away);
}

static bool both_live(void)
{
    return world.end[0]->state == TTI_RDMA_UP && world.end[1]->state == TTI_RDMA_UP;
}

/* Both links are whole again: all that was sent arrives, and by and by nothing is lost. */
static void world_settles(struct stream stream[2], uint32_t seed)
{
    const uint64_t most = world.now + 100 * SECOND;
    world.up[NEAR] = world.up[FAR] = true;
    world.refuses = false;
    while (world.now < most)
        world_step(stream, false);
    for (int r = 0; both_live() && r < 2; r++) {
        const struct tti_rdma_endpoint *end = world.end[r];
        if (stream[r].taken != stream[r].sent || end->flying || end->waiting || end->lost)
            fail_msg("seed %u, rank %d: %d under way, %d wait, %d lost, %llu of %llu bytes", seed,
                     r, end->flying, end->waiting, end->lost, (unsigned long long)stream[r].taken,
                     (unsigned long long)stream[r].sent);
    }
}

static bool both_lost(void)
{
    for (int r = 0; r < 2; r++)
        if (world.end[r]->lost < world.end[r]->qps)
            return false;
    return true;
}

/* Both links are cut, and both ends have begun to make their queue pairs again, of which at least
 * one could not be joined. False: they failed. */
static bool world_refuses(struct stream stream[2])
{
    world.up[NEAR] = world.up[FAR] = false;
    while (both_live() && !both_lost())
        world_step(stream, true);
    const int joins = world.joins[NEAR] + world.joins[FAR];
    while (both_live() && world.joins[NEAR] + world.joins[FAR] == joins)
        world_step(stream, true);
    return both_live();
}

/* Where none carries and the neighbour does not answer, joining is tried again: when the links come
 * back, all that was sent arrives; when they do not, there is an error in time. */
static void joining_is_tried_again(void **state)
{
    (void)state;
    const uint64_t patience = 2 * SECOND; /* half of the outage */
    int settled = 0;
    for (uint32_t seed = 1; seed <= 40; seed++) {
        struct stream stream[2] = {{0, 0}, {0, 0}};
        world_new(seed);
        world.blocks = true;
        for (int i = 0; i < 1000; i++)
            world_step(stream, true);
        assert_true(world_refuses(stream));
        world_settles(stream, seed);
        if (!both_live()) {
            const int bad = world.end[0]->state == TTI_RDMA_UP;
            (void)tti_error_restore(&world.end[bad]->error);
            fail_msg("seed %u, rank %d: %s", seed, bad, tutti_last_error());
        }
        settled++;
        const uint64_t cut = world.now;
        while (both_live() && world.now < cut + 100 * SECOND)
            world_step(stream, true);
        assert_true(both_live());
        assert_true(world_refuses(stream));
        const uint64_t refused = world.now;
        while (both_live())
            world_step(stream, true);
        assert_in_range(world.now - refused, patience - SECOND, patience + 8 * SECOND);
        const int bad = world.end[0]->state == TTI_RDMA_UP;
        assert_int_equal(tti_error_restore(&world.end[bad]->error), TUTTI_ERR_LINK);
        assert_non_null(strstr(tutti_last_error(), "ibv_modify_qp: Connection timed out"));
        world_free();
    }
    assert_int_equal(settled, 40);
}

static bool given_up(int rail)
{
    return world.end[0]->qp[rail].hopeless || world.end[1]->qp[rail].hopeless;
}

/* Neither link's neighbour answers, until one has been given up at one end: then the other link's
 * does, and it carries. Nor does the one that was given up hold up what carries: by no rail is
 * joined while it rests. */
static void one_that_answers_is_enough(void **state)
{
    (void)state;
    int reserve = 0;
    for (uint32_t seed = 1; seed <= 40; seed++) {
        struct stream stream[2] = {{0, 0}, {0, 0}};
        world_new(seed);
        world.blocks = true;
        for (int i = 0; i < 1000; i++)
            world_step(stream, true);
        assert_true(world_refuses(stream));
        while (both_live() && !given_up(NEAR) && !given_up(FAR))
            world_step(stream, true);
        const int dead = given_up(NEAR) ? NEAR : FAR;
        reserve += dead == NEAR;
        world.up[!dead] = true;
        for (const uint64_t most = world.now + 100 * SECOND; both_live() && world.now < most;) {
            uint64_t rest = UINT64_MAX;
            for (int r = 0; r < 2; r++) {
                const uint64_t until = world.transport[r]->rail[dead].rest_ns;
                rest = world.end[r]->lost == RAILS ? 0 : rest < until ? rest : until;
            }
            const int joins = world.joins[dead];
            const bool rests = world.now + SECOND < rest;
            world_step(stream, false);
            assert_true(!rests || world.joins[dead] == joins);
        }
        for (int r = 0; r < 2; r++) {
            const struct tti_rdma_endpoint *end = world.end[r];
            if (end->state != TTI_RDMA_UP) {
                (void)tti_error_restore(&world.end[r]->error);
                fail_msg("seed %u, rank %d: %s", seed, r, tutti_last_error());
            }
            assert_int_equal(end->lost, 1);
            assert_int_equal(stream[r].taken, stream[r].sent);
        }
        world_settles(stream, seed);
        assert_true(both_live());
        world_free();
    }
    print_message("%d times of 40 the one in reserve was enough\n", reserve);
    assert_true(reserve > 0);
}

/* Joining blocks while a neighbour does not answer, so it is done for half of the time at most,
 * however many ask; who asks by a rail that answers does not wait. */
static void joining_blocks_half_the_time(void **state)
{
    (void)state;
    enum { MORE = 6 };
    const double patience_s = 1000;
    struct tti_rdma_qp more[MORE];
    world_new(3);
    world.blocks = true;
    world.up[NEAR] = false;
    for (int i = 0; i < MORE; i++) {
        struct tti_rdma_endpoint *end = world.end[0];
        more[i] = (struct tti_rdma_qp){
            .endpoint = end, .rail = end->qp[i % 2].rail, .peer_port = end->qp[i % 2].peer_port};
        assert_int_equal(tti_rdma_qp_create(&more[i]), TUTTI_OK);
    }
    /* One by each rail: the next to ask by the near one waits. */
    const int near = world.joins[NEAR];
    assert_int_equal(tti_rdma_qp_join(&more[0], patience_s), TUTTI_IN_PROGRESS);
    assert_int_equal(tti_rdma_qp_join(&more[1], patience_s), TUTTI_OK);
    assert_int_equal(tti_rdma_qp_join(&more[2], patience_s), TUTTI_IN_PROGRESS);
    assert_int_equal(world.joins[NEAR], near + 1);
    /* Both refuse: together half of the time, but for the first try of the second. */
    world.up[FAR] = false;
    const uint64_t begun = world.now;
    const int before = world.joins[NEAR] + world.joins[FAR];
    while (world.now < begun + 100 * SECOND) {
        for (int i = 2; i < MORE; i++)
            assert_int_equal(tti_rdma_qp_join(&more[i], patience_s), TUTTI_IN_PROGRESS);
        world.now += SECOND / 100;
    }
    assert_in_range(world.joins[NEAR] + world.joins[FAR] - before, 40, 52);
    /* The near one answers: after the pause that is under way all are joined at once. */
    world.up[NEAR] = true;
    world.now += 2 * SECOND;
    assert_int_equal(tti_rdma_qp_join(&more[2], patience_s), TUTTI_OK);
    assert_int_equal(tti_rdma_qp_join(&more[4], patience_s), TUTTI_OK);
    for (int i = 0; i < MORE; i++)
        tti_rdma_qp_destroy(&more[i]);
    world_free();
}

/* Both links come and go. A device that is believed ends the connection; whatever comes before is
 * right, nobody takes the other for mad, and no queue pair that cannot be made ends what carries.
 */
static void both_rails_come_and_go(void **state)
{
    (void)state;
    int failed = 0, lived = 0, settled = 0;
    for (uint32_t seed = 1; seed <= 200; seed++) {
        struct stream stream[2] = {{0, 0}, {0, 0}};
        world_new(seed);
        for (int i = 0; i < 20000; i++) {
            for (int r = 0; r < RAILS; r++)
                if (chance(world.up[r] ? 1500 : 300) == 0)
                    world.up[r] = !world.up[r];
            world.refuses = seed % 2;
            world_step(stream, true);
        }
        if (both_live()) {
            world_settles(stream, seed);
            settled += both_live();
        }
        for (int r = 0; r < 2; r++) {
            failed += world.end[r]->state == TTI_RDMA_FAILED;
            lived += world.end[r]->state == TTI_RDMA_UP;
            if (world.end[r]->state == TTI_RDMA_FAILED)
                assert_int_equal(tti_error_restore(&world.end[r]->error), TUTTI_ERR_LINK);
            if (world.end[r]->state == TTI_RDMA_FAILED && strstr(tutti_last_error(), "ibv_"))
                fail_msg("seed %u, rank %d: %s", seed, r, tutti_last_error());
        }
        world_free();
    }
    print_message("%d ends failed, %d lived, %d connections settled\n", failed, lived, settled);
    assert_true(failed > 0 && lived > 0 && settled > 0);
}

/* A cable that stays cut is tried after 1, 2, 4 s and so on, up to a minute, and what carries is
 * not disturbed by it: nothing goes in pieces, nothing is a complaint. */
static void trials_become_rare(void **state)
{
    (void)state;
    struct stream stream[2] = {{0, 0}, {0, 0}};
    world_new(7);
    world.up[NEAR] = false;
    while (!world.end[0]->qp[NEAR].lost || !world.end[1]->qp[NEAR].lost)
        world_step(stream, true);
    for (int i = 0; i < 2000; i++) /* what was under way goes on by the far one */
        world_step(stream, true);
    const uint64_t begun = world.now, taken[2] = {stream[0].taken, stream[1].taken};
    const int near = world.carried[NEAR];
    for (int r = 0; r < 2; r++)
        world.end[r]->piece = 0; /* the cut was a stall */
    int trials = 0;
    for (uint32_t last = 0; world.now < begun + 600 * SECOND;) {
        world_step(stream, true);
        for (int r = 0; r < 2; r++) {
            tti_rdma_poll(world.transport[r]);
            tti_rdma_watch(world.transport[r]);
            assert_int_equal(world.end[r]->piece, 0);
            assert_int_equal(world.end[r]->complaints, 0);
        }
        const uint32_t number = world.end[0]->qp[NEAR].qp->qp_num;
        trials += last && number != last;
        last = number;
    }
    print_message("%d trials in ten minutes\n", trials);
    assert_in_range(trials, 10, 15); /* 1 2 4 8 16 32 60 60 ..., and the time that each takes */
    assert_int_equal(world.carried[NEAR], near);
    for (int r = 0; r < 2; r++)
        assert_true(stream[r].taken > taken[r] + 100000);
    world_free();
}

static int joins_within(struct stream stream[2], unsigned seconds)
{
    const int joins = world.joins[NEAR];
    const uint64_t most = world.now + seconds * SECOND;
    while (world.now < most)
        world_step(stream, true);
    assert_true(both_live());
    return world.joins[NEAR] - joins;
}

/* Joining by a link that is cut blocks for a second, while the far one carries: it is not done by
 * an end whose port is down, nor by its peer; and else it is rare. */
static void joining_seldom_blocks(void **state)
{
    (void)state;
    for (int down = 0; down < 2; down++) {
        struct stream stream[2] = {{0, 0}, {0, 0}};
        world_new(11);
        world.blocks = true;
        world.up[NEAR] = false;
        world.transport[down]->rail[NEAR].port_down = true;
        while (!world.end[0]->qp[NEAR].lost || !world.end[1]->qp[NEAR].lost)
            world_step(stream, true);
        const uint32_t number = world.end[0]->qp[NEAR].qp->qp_num;
        assert_int_equal(joins_within(stream, 100), 0);
        /* The lower rank begins: it does not where its own port is down. */
        assert_int_equal(world.end[0]->qp[NEAR].qp->qp_num == number, down == 0);
        assert_int_equal(world.end[0]->qp[NEAR].wait_ns == SECOND, down == 0);
        world.transport[down]->rail[NEAR].port_down = false;
        assert_in_range(joins_within(stream, 100), 1, 12);
        /* As if there were others of this rail that wait less. */
        const int joins = world.joins[NEAR];
        for (const uint64_t most = world.now + 100 * SECOND; world.now < most;) {
            world.end[0]->qp[NEAR].try_ns = 0;
            world_step(stream, true);
        }
        assert_in_range(world.joins[NEAR] - joins, 1, 24);
        world.up[NEAR] = true;
        (void)joins_within(stream, 100);
        assert_true(near_carries());
        world_free();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rail_comes_back),
        cmocka_unit_test(joining_is_tried_again),
        cmocka_unit_test(both_rails_come_and_go),
        cmocka_unit_test(trials_become_rare),
        cmocka_unit_test(joining_seldom_blocks),
        cmocka_unit_test(one_that_answers_is_enough),
        cmocka_unit_test(joining_blocks_half_the_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
