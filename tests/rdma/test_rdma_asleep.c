/* Who is about to sleep hears of what a control connection has to tell (transport/rdma/rdma.c),
 * also where its event was taken in while something else was looked for. The device is made up, the
 * control connection is a real one. */
#include "base/clock.h"
#include "tests/tcp/tcp_pair.h"
#include "tests/tutti_cmocka.h"
#include "transport/rdma/rdma.h"
#include "transport/tcp/tcp.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

extern const struct tutti_transport_ops tti_rdma_ops;

enum { CONTROL = 1 /* rdma.c's word for the descriptor of the control connections */, TURNS = 100 };

static struct {
    struct tcp_pair pair;
    struct tti_rdma_transport transport; /* rank 0's */
    struct tti_rdma_endpoint *endpoint;
    struct ibv_context context;
    struct ibv_cq cq;
    void (*meanwhile)(void); /* once, after the control connections were read */
} world;

/* ---- a device without a word ---------------------------------------------------------------- */

static int get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    void (*meanwhile)(void) = world.meanwhile;
    (void)context;
    (void)event;
    world.meanwhile = NULL;
    if (meanwhile)
        meanwhile();
    return -1;
}

static int get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
    (void)channel;
    (void)cq;
    (void)context;
    return -1;
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
    (void)cq;
    (void)most;
    (void)wc;
    return 0;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited)
{
    (void)cq;
    (void)solicited;
    return 0;
}

static const struct tti_verbs verbs = {.get_async_event = get_async_event,
                                       .get_cq_event = get_cq_event};

/* ---- two ranks ------------------------------------------------------------------------------- */

static int socket_of(int rank)
{
    return ((struct tti_tcp_endpoint *)world.pair.endpoint[rank])->lane[0].socket;
}

/* As a caller does that waits; true: it would sleep, and nothing is there to wake it. */
static bool sleeps(void)
{
    struct tti_rdma_transport *self = &world.transport;
    assert_int_equal(tti_rdma_ops.progress(self), TUTTI_OK);
    bool asleep = tti_rdma_ops.arm(self);
    struct pollfd wake = {.fd = tti_rdma_ops.fd(self), .events = POLLIN};
    asleep = asleep && poll(&wake, 1, 0) == 0;
    tti_rdma_ops.disarm(self);
    return asleep;
}

static void until_asleep(void)
{
    for (int turn = 0; !sleeps(); turn++)
        assert_true(turn < TURNS);
}

static void until_told_of_the_end(void)
{
    for (int turn = 0; !world.endpoint->ended; turn++) {
        assert_true(turn < TURNS);
        assert_false(sleeps() && !world.endpoint->ended);
    }
    until_asleep(); /* told once, it keeps nobody awake */
}

static int begin(const char *resume)
{
    static const struct tutti_peer peer = {.rank = 1, .name = "here:1"};
    struct tti_rdma_transport *self = &world.transport;
    struct tti_rdma_endpoint *endpoint = calloc(1, sizeof *endpoint + sizeof endpoint->lane[0]);
    assert_non_null(endpoint);
    memset(&world, 0, sizeof world);
    setenv("TUTTI_TCP_RESUME", resume, 1);
    tcp_pair_open(&world.pair, 1, 1, 7, 7);
    assert_int_equal(tcp_pair_connect(&world.pair, 60), TUTTI_OK);
    world.context.ops.poll_cq = poll_cq;
    world.context.ops.req_notify_cq = req_notify_cq;
    world.cq.context = &world.context;
    self->verbs = &verbs;
    self->rails = 1;
    self->rail[0].context = &world.context;
    self->rail[0].cq = &world.cq;
    self->tcp = world.pair.transport[0];
    self->epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data = {.u32 = CONTROL}};
    assert_int_equal(
        epoll_ctl(self->epoll, EPOLL_CTL_ADD, tti_tcp_ops.fd(world.pair.transport[0]), &event), 0);
    endpoint->transport = self;
    endpoint->peer = &peer;
    endpoint->state = TTI_RDMA_UP;
    endpoint->control = world.pair.endpoint[0];
    self->endpoint = world.endpoint = endpoint;
    until_asleep();
    return 0;
}

static int setup(void **state)
{
    (void)state;
    return begin("0");
}

static int setup_resume(void **state)
{
    (void)state;
    return begin("1");
}

static int teardown(void **state)
{
    (void)state;
    close(world.transport.epoll);
    free(world.endpoint);
    tcp_pair_close(&world.pair);
    return 0;
}

static void peer_ends(void)
{
    struct pollfd end = {.fd = socket_of(0), .events = POLLRDHUP};
    assert_int_equal(shutdown(socket_of(1), SHUT_WR), 0);
    assert_int_equal(poll(&end, 1, 60000), 1);
}

/* arm has read the control connection, and it ends before that connection's own arm: which takes
 * the event in, so that nothing tells of it again. */
static void an_end_while_arm_looks_is_told(void **state)
{
    (void)state;
    world.transport.look = true;
    world.meanwhile = peer_ends;
    assert_false(tti_rdma_ops.arm(&world.transport));
    tti_rdma_ops.disarm(&world.transport);
    assert_null(world.meanwhile);
    until_told_of_the_end();
}

/* A call of progress takes in the event of the end, and reads a message that is not whole. */
static void an_end_within_a_message_is_told(void **state)
{
    (void)state;
    assert_int_equal(send(socket_of(1), "half", 4, 0), 4);
    peer_ends();
    tti_tcp_ops.disarm(world.pair.transport[0]); /* its next progress takes events */
    tti_rdma_ops.disarm(&world.transport);
    assert_true(world.transport.look);
    until_told_of_the_end();
}

/* Who speaks finds that the connection is lost: it is no longer watched, and to be made again. */
static void a_loss_while_speaking_is_told(void **state)
{
    (void)state;
    const struct tti_tcp_endpoint *control = world.pair.endpoint[0];
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    struct pollfd lost = {.fd = socket_of(0), .events = 0};
    uint8_t word[TTI_RDMA_WORD_BYTES] = {0};
    assert_int_equal(connect(socket_of(1), &none, sizeof none), 0); /* resets it */
    assert_int_equal(poll(&lost, 1, 60000), 1);
    assert_int_equal(tti_rdma_endpoint_say(world.endpoint, word, sizeof word), TUTTI_OK);
    assert_true(control->lane[0].cut);
    assert_false(sleeps());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_end_while_arm_looks_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(an_end_within_a_message_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(a_loss_while_speaking_is_told, setup_resume, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
