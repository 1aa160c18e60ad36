/* What a device says of itself (transport/rdma/rdma_rail.c), with verbs made up here: which
 * connections fail by it, and with which words. */
#include "tests/tutti_cmocka.h"
#include "transport/rdma/rdma.h"

#include <stdlib.h>
#include <string.h>

enum { RAILS = 2 };

/* ---- verbs: each device says one thing at most ---- */

static struct {
    struct ibv_context context[RAILS];
    int said; /* enum ibv_event_type; -1: nothing */
    int rail, port;
    struct ibv_qp *qp; /* of which it is said; NULL: of the port */
    int acked;
} made_up;

static int get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    if (made_up.said < 0 || context != &made_up.context[made_up.rail])
        return -1;
    memset(event, 0, sizeof *event);
    event->event_type = (enum ibv_event_type)made_up.said;
    if (made_up.qp)
        event->element.qp = made_up.qp;
    else
        event->element.port_num = made_up.port;
    made_up.said = -1;
    return 0;
}

static void ack_async_event(struct ibv_async_event *event)
{
    (void)event;
    made_up.acked++;
}

static const char *event_type_str(enum ibv_event_type event)
{
    (void)event;
    return "something";
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *change, int mask)
{
    assert_int_equal(mask, IBV_QP_STATE);
    qp->state = change->qp_state;
    return 0;
}

static const struct tti_verbs verbs = {.get_async_event = get_async_event,
                                       .ack_async_event = ack_async_event,
                                       .event_type_str = event_type_str,
                                       .modify_qp = modify_qp};

/* ---- a transport with two rails, and a connection over each ---- */

static const struct tutti_peer peer = {.rank = 1, .name = "node:7"};
static struct ibv_qp qps[RAILS];

static struct tti_rdma_transport *transport_new(void)
{
    struct tti_rdma_transport *self = calloc(1, sizeof *self);
    assert_non_null(self);
    memset(qps, 0, sizeof qps);
    memset(&made_up, 0, sizeof made_up);
    made_up.said = -1;
    self->verbs = &verbs;
    self->rails = RAILS;
    for (int i = 0; i < RAILS; i++) {
        struct tti_rdma_endpoint *endpoint = calloc(1, sizeof *endpoint + sizeof endpoint->lane[0]);
        assert_non_null(endpoint);
        self->rail[i].number = 1;
        self->rail[i].context = &made_up.context[i];
        strcpy(self->rail[i].device, i ? "mlx5_1" : "mlx5_0");
        endpoint->transport = self;
        endpoint->peer = &peer;
        endpoint->state = TTI_RDMA_UP;
        endpoint->qps = 1;
        endpoint->qp[0].endpoint = endpoint;
        endpoint->qp[0].rail = &self->rail[i];
        endpoint->qp[0].qp = &qps[i];
        qps[i].state = IBV_QPS_RTS;
        endpoint->next = self->endpoint;
        self->endpoint = endpoint;
    }
    return self;
}

static void transport_free(struct tti_rdma_transport *self)
{
    for (struct tti_rdma_endpoint *e = self->endpoint, *next = NULL; e; e = next) {
        next = e->next;
        free(e);
    }
    free(self);
}

/* The second device says so: the connection over it fails, and says that; the other does not. */
static void fails(int event, const char *words)
{
    struct tti_rdma_transport *self = transport_new();
    made_up.said = event;
    made_up.rail = 1;
    if (event == IBV_EVENT_QP_FATAL || event == IBV_EVENT_QP_REQ_ERR ||
        event == IBV_EVENT_QP_ACCESS_ERR)
        made_up.qp = &qps[1];
    tti_rdma_rails_hear(self);
    assert_int_equal(made_up.acked, 1);
    for (struct tti_rdma_endpoint *e = self->endpoint; e; e = e->next) {
        const bool hit = e->qp[0].rail == &self->rail[1];
        assert_int_equal(e->state, hit ? TTI_RDMA_FAILED : TTI_RDMA_UP);
        assert_int_equal(e->qp[0].qp->state, hit ? IBV_QPS_ERR : IBV_QPS_RTS);
        if (!hit)
            continue;
        assert_int_equal(tti_error_restore(&e->error), TUTTI_ERR_LINK);
        assert_non_null(strstr(tutti_last_error(), words));
        assert_non_null(strstr(tutti_last_error(), "rank 1 (node:7)"));
        assert_non_null(strstr(tutti_last_error(), "device mlx5_1 port 1"));
    }
    transport_free(self);
}

static void what_breaks_down_fails_its_connections(void **state)
{
    (void)state;
    fails(IBV_EVENT_DEVICE_FATAL, "the device broke down");
    fails(IBV_EVENT_CQ_ERR, "the device's completion queue broke down");
}

/* Not those whose work goes by others by now, but those by whose new queue pair the peer may carry
 * already. */
static void what_was_lost_does_not_hang_on_its_device(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        struct tti_rdma_transport *self = transport_new();
        struct tti_rdma_endpoint *e = self->endpoint; /* of the second rail */
        e->qp[0].lost = e->qp[0].moved = true;
        e->qp[0].joined = kind > 0;
        e->qp[0].said_lost = kind == 2; /* this side has let go again */
        made_up.said = IBV_EVENT_DEVICE_FATAL;
        made_up.rail = 1;
        tti_rdma_rails_hear(self);
        assert_int_equal(e->state, kind == 1 ? TTI_RDMA_FAILED : TTI_RDMA_UP);
        transport_free(self);
    }
}

/* A queue pair that breaks down is told of its connection, and of nothing beside it. */
static void a_queue_pair_breaks_down(void **state)
{
    (void)state;
    fails(IBV_EVENT_QP_FATAL, "something");
    fails(IBV_EVENT_QP_REQ_ERR, "something");
    fails(IBV_EVENT_QP_ACCESS_ERR, "something");
}

/* One that was given up already says what is known. */
static void a_queue_pair_that_is_lost_says_nothing_new(void **state)
{
    (void)state;
    struct tti_rdma_transport *self = transport_new();
    self->endpoint->qp[0].lost = true; /* the endpoint of the second rail */
    made_up.said = IBV_EVENT_QP_FATAL;
    made_up.rail = 1;
    made_up.qp = &qps[1];
    tti_rdma_rails_hear(self);
    assert_int_equal(made_up.acked, 1);
    assert_int_equal(self->endpoint->state, TTI_RDMA_UP);
    transport_free(self);
}

/* A peer that has left is the reason, whatever the device says of the queue pair to it. */
static void a_peer_that_has_left_is_told_rather_than_its_queue_pair(void **state)
{
    (void)state;
    for (int goodbye = 0; goodbye < 2; goodbye++) {
        struct tti_rdma_transport *self = transport_new();
        struct tti_rdma_endpoint *e = self->endpoint;
        bool arrived[1] = {false};
        uint64_t tag = 0;
        const void *data = NULL;
        size_t bytes = 0;
        self->settings.slots = 1;
        e->lanes = 1;
        e->lane[0].arrived = arrived;
        e->goodbye = goodbye;
        e->ended = !goodbye;
        made_up.said = IBV_EVENT_QP_FATAL;
        made_up.rail = 1;
        made_up.qp = &qps[1];
        tti_rdma_rails_hear(self);
        assert_int_equal(tti_rdma_peek(e, 0, &tag, &data, &bytes), TUTTI_ERR_PEER);
        assert_string_equal(tutti_last_error(),
                            goodbye ? "rank 1 (node:7) closed the RDMA connection"
                                    : "rank 1 (node:7) closed the RDMA connection without a "
                                      "goodbye");
        transport_free(self);
    }
}

/* Whoever waits for a send to be over hears of the failure by it: of what waited for another queue
 * pair, of what its broken one gave back before, and of what that gives back later. */
static void what_was_to_go_again_is_let_go(void **state)
{
    (void)state;
    enum { SENT = 4, BYTES = 1000 };
    struct tti_rdma_transport *self = transport_new();
    struct tti_rdma_endpoint *e = self->endpoint;
    struct tti_rdma_sent sent[SENT] = {{0}};
    for (int k = 0; k < SENT; k++)
        sent[k] = (struct tti_rdma_sent){.bytes = BYTES, .flying = true, .lent = true};
    e->lanes = 1;
    e->window = SENT;
    e->lane[0].sent = sent;
    e->lane[0].posted = 3;
    e->flying = 3;
    e->waiting = 1;
    sent[0].waits = true;
    e->qp[0].lost = true;
    e->qp[0].depth = 2;
    e->qp[0].room = 1;
    made_up.said = IBV_EVENT_DEVICE_FATAL;
    made_up.rail = 1;
    tti_rdma_rails_hear(self);
    assert_int_equal(e->state, TTI_RDMA_FAILED);
    assert_int_equal(e->waiting, 0);
    assert_int_equal(tti_rdma_released(e, 0), BYTES);
    e->qp[0].room = 2; /* the last of its sends has ended */
    tti_rdma_failover_step(&e->qp[0]);
    assert_int_equal(tti_rdma_released(e, 0), 3 * BYTES);
    assert_int_equal(e->flying, 0);
    transport_free(self);
}

/* A link that is down may come back within TUTTI_RDMA_OUTAGE; errors tell that it was. */
static void a_port_goes_down_and_comes_back(void **state)
{
    (void)state;
    struct tti_rdma_transport *self = transport_new();
    const int events[] = {IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE};
    for (int other = 1; other >= 0; other--) /* of another port of the device first */
        for (int i = 0; i < 2; i++) {
            made_up.said = events[i];
            made_up.port = 1 + other;
            tti_rdma_rails_hear(self);
            assert_int_equal(self->rail[0].port_down, other == 0 && i == 0);
            for (struct tti_rdma_endpoint *e = self->endpoint; e; e = e->next)
                assert_int_equal(e->state, TTI_RDMA_UP);
        }
    transport_free(self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_breaks_down_fails_its_connections),
        cmocka_unit_test(what_was_lost_does_not_hang_on_its_device),
        cmocka_unit_test(a_queue_pair_breaks_down),
        cmocka_unit_test(a_queue_pair_that_is_lost_says_nothing_new),
        cmocka_unit_test(a_peer_that_has_left_is_told_rather_than_its_queue_pair),
        cmocka_unit_test(what_was_to_go_again_is_let_go),
        cmocka_unit_test(a_port_goes_down_and_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
