/* What a peer says of rails that were lost (transport/rdma/rdma_rejoin.c): late, early, or when it
 * cannot be answered any more. */
#include "tests/rdma/made_rails.h"
#include "tests/tutti_cmocka.h"

/* What comes back late of a trial that the peer has called off is not taken for the next one's. */
static void ends_of_a_trial_are_its_own(void **state)
{
    (void)state;
    for (int success = 0; success < 2; success++) {
        struct stream stream[2] = {{0, 0}, {0, 0}};
        world_new(3);
        const struct tti_rdma_qp *qp = &world.end[1]->qp[NEAR];
        world.up[NEAR] = false;
        while (near_carries())
            world_step(stream, true);
        world.up[NEAR] = true;
        while (qp->tried < 2)
            world_step(stream, true);
        world.up[NEAR] = success;
        for (int i = 0; success && i < 100; i++)
            devices_step();
        assert_int_equal(qp->tried, 2); /* they were not looked at */
        says(1, (struct tti_rdma_word){.saying = TTI_RDMA_LOST}, false);
        says(1, (struct tti_rdma_word){.saying = TTI_RDMA_AGAIN, .trial = true, .number = 9},
             false);
        for (int i = 0; i < 100; i++) {
            devices_step();
            tti_rdma_poll(world.transport[1]);
        }
        assert_int_equal(qp->tried, 0);
        assert_true(qp->lost && qp->rejoin && qp->trial && !qp->said_lost);
        tti_rdma_endpoint_work(world.end[1]);
        assert_true(qp->renewed && qp->joined && qp->peer_number == 9);
        world_free();
    }
}

/* A trial of a reserve rail has not begun when the last one breaks: the near one goes first. */
static void the_reserve_waits(void **state)
{
    (void)state;
    struct stream stream[2] = {{0, 0}, {0, 0}};
    world_new(5);
    struct tti_rdma_qp *far = &world.end[0]->qp[FAR];
    says(0, (struct tti_rdma_word){.saying = TTI_RDMA_LOST, .qp = FAR}, false);
    says(1, (struct tti_rdma_word){.saying = TTI_RDMA_LOST, .qp = FAR}, false);
    world.said[0] = world.said[1] = 0; /* which both have said */
    while (far->spent < far->depth || !far->moved)
        world_step(stream, true);
    assert_false(far->rejoin);
    far->rejoin = far->trial = true; /* its time has come */
    const uint32_t number = far->qp->qp_num;
    says(0, (struct tti_rdma_word){.saying = TTI_RDMA_LOST, .qp = NEAR}, false);
    tti_rdma_endpoint_work(world.end[0]);
    assert_int_equal(far->qp->qp_num, number);
    assert_true(far->again && !far->trial && !far->rejoin);
    world_free();
}

/* What it says of a queue pair has to fit to how far it has come, as each side knows it. */
static void words_out_of_turn_are_errors(void **state)
{
    (void)state;
    const struct tti_rdma_word lost = {.saying = TTI_RDMA_LOST},
                               again = {.saying = TTI_RDMA_AGAIN, .trial = true, .number = 9},
                               joined = {.saying = TTI_RDMA_JOINED};
    const struct {
        int rank;
        struct tti_rdma_word words[5];
        int count; /* the last one is mad */
    } talks[] = {
        {0, {again}, 1}, /* it carries */
        {1, {again}, 1},
        {0, {joined}, 1},
        {1, {joined}, 1},
        {0, {lost, lost}, 2},
        {1, {lost, lost}, 2},
        {0, {lost, again}, 2}, /* the lower rank begins */
        {1, {lost, joined}, 2},
        {1, {lost, again, again}, 3},
        {1, {lost, again, joined, joined}, 4},
        {1, {lost, again, joined, again}, 4},
        {1, {lost, again, lost, joined}, 4},
        {1, {lost, again, lost, lost}, 4},
        {1, {lost, again, lost, again, again}, 5},
    };
    for (size_t i = 0; i < sizeof talks / sizeof talks[0]; i++) {
        world_new(1);
        for (int k = 0; k < talks[i].count; k++) {
            says(talks[i].rank, talks[i].words[k], k + 1 == talks[i].count);
            for (int n = 0; n < 300; n++) { /* what was posted comes back */
                devices_step();
                tti_rdma_poll(world.transport[talks[i].rank]);
                tti_rdma_endpoint_work(world.end[talks[i].rank]);
            }
        }
        world_free();
    }
}

/* Both have been lost, by rank 1, who has got back what was posted. */
static struct tti_rdma_endpoint *both_lost(void)
{
    struct tti_rdma_endpoint *end = world.end[1];
    says(1, (struct tti_rdma_word){.saying = TTI_RDMA_LOST, .qp = NEAR}, false);
    says(1, (struct tti_rdma_word){.saying = TTI_RDMA_LOST, .qp = FAR}, false);
    for (int i = 0; i < 300; i++) {
        devices_step();
        tti_rdma_poll(world.transport[1]);
        tti_rdma_endpoint_work(end);
    }
    for (int i = 0; i < RAILS; i++)
        assert_true(end->qp[i].said_lost && end->qp[i].spent == end->qp[i].depth);
    return end;
}

/* The first of two that are to be made again finds the control connection broken: that ends the
 * endpoint, and the second is not begun any more. */
static void nothing_is_begun_after_the_end(void **state)
{
    (void)state;
    world_new(1);
    struct tti_rdma_endpoint *end = both_lost();
    const uint32_t number = end->qp[FAR].qp->qp_num;
    end->qp[FAR].rejoin = end->qp[FAR].trial = true; /* as if of that had been heard first */
    world.deaf = true;
    tti_rdma_heard(end,
                   &(struct tti_rdma_word){.saying = TTI_RDMA_AGAIN, .qp = NEAR, .trial = true});
    assert_int_equal(end->state, TTI_RDMA_FAILED);
    assert_int_equal(tti_error_restore(&end->error), TUTTI_ERR_LINK);
    assert_int_equal(world.refusals, 2); /* that it was made again, and that it is lost */
    assert_int_equal(end->qp[FAR].qp->qp_num, number);
    assert_false(end->qp[FAR].renewed);
    world_free();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_of_a_trial_are_its_own),
        cmocka_unit_test(the_reserve_waits),
        cmocka_unit_test(words_out_of_turn_are_errors),
        cmocka_unit_test(nothing_is_begun_after_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
