/* When fragments go in pieces (transport/rdma/rdma_rejoin.c): sends are under way, and none lands.
 */
#include "base/clock.h"
#include "tests/tutti_cmocka.h"
#include "transport/rdma/rdma.h"

#include <poll.h>
#include <string.h>

static const struct tutti_peer peer = {.rank = 1, .name = "node:7"};
static struct tti_rdma_transport transport;
static struct tti_rdma_endpoint stalled, busy, idle;

static void endpoint_begin(struct tti_rdma_endpoint *self, int flying)
{
    memset(self, 0, sizeof *self);
    self->transport = &transport;
    self->peer = &peer;
    self->state = TTI_RDMA_UP;
    self->flying = flying;
    self->pieces = self->qps = 1;
    self->qp[0].depth = 24;
    self->theirs.slot_bytes = 128 << 10;
    self->next = transport.endpoint;
    transport.endpoint = self;
}

static int setup(void **state)
{
    (void)state;
    memset(&transport, 0, sizeof transport);
    endpoint_begin(&stalled, 1);
    endpoint_begin(&busy, 1);
    endpoint_begin(&idle, 0);
    return 0;
}

static void sends_that_stall_go_in_pieces(void **state)
{
    (void)state;
    const uint64_t begun = tti_now_ns(), most = tti_deadline_in(60);
    while (stalled.piece == 0) {
        assert_false(tti_deadline_passed(most));
        busy.landings++;
        tti_rdma_watch(&transport);
        (void)poll(NULL, 0, 5);
    }
    assert_true(tti_now_ns() - begun >= UINT64_C(200000000));
    assert_int_equal(stalled.piece, 16 << 10);
    assert_int_equal(stalled.pieces, 9); /* the header's 16 bytes make one more */
    assert_int_equal(busy.piece, 0);
    assert_int_equal(idle.piece, 0);
}

/* Nobody knows what landed meanwhile: it was not looked. */
static void who_did_not_look_does_not_judge(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        tti_rdma_watch(&transport);
        (void)poll(NULL, 0, 250);
    }
    assert_int_equal(stalled.piece, 0);
}

/* A queue pair has room for two fragments at least. */
static void a_large_fragment_goes_in_larger_pieces(void **state)
{
    (void)state;
    const uint64_t most = tti_deadline_in(60);
    stalled.theirs.slot_bytes = 16 << 20;
    while (stalled.piece == 0) {
        assert_false(tti_deadline_passed(most));
        tti_rdma_watch(&transport);
        (void)poll(NULL, 0, 5);
    }
    assert_int_equal(stalled.piece, 2 << 20);
    assert_int_equal(stalled.pieces, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(sends_that_stall_go_in_pieces, setup),
        cmocka_unit_test_setup(who_did_not_look_does_not_judge, setup),
        cmocka_unit_test_setup(a_large_fragment_goes_in_larger_pieces, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
