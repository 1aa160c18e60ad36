/* Checks: what a transport says of itself, and how two ranks come together. */
#include "tests/conformance/exchange.h"

#include "transport/registry.h"

#include <string.h>

static void connect_hello(struct conf_rank *me, int peer)
{
    unsigned char hello[200];
    conf_send_message(me, peer, 0, (uint64_t)me->rank + 77, hello, sizeof hello);
    conf_take_message(me, peer, 0, (uint64_t)peer + 77, sizeof hello);
    conf_barrier(me);
}

static void connect_table(struct conf_rank *me)
{
    const struct tutti_transport_ops *ops = me->ops;
    CONF_REQUIRE(me, ops->abi == TUTTI_TRANSPORT_ABI, "abi %u", ops->abi);
    CONF_REQUIRE(me, ops->size == sizeof *ops, "size %u", ops->size);
    CONF_REQUIRE(me, ops->name && ops->name[0], "no name");
    CONF_REQUIRE(me, !ops->reserve == !ops->commit, "only one of reserve and commit");
    CONF_OK(me, ops->probe(tti_transport_services()));
    conf_open(me);
    conf_swap_addresses(me);
    int fd = ops->fd(me->transport);
    CONF_REQUIRE(me, fd >= 0, "fd is %d", fd);
    conf_begin(me, !me->rank);
    conf_finish(me, !me->rank);
    connect_hello(me, !me->rank);
    CONF_REQUIRE(me, ops->fd(me->transport) == fd, "fd changed");
    conf_close(me);
}

/* Rank `first` begins, and tries to advance; the other one begins when it has seen that. */
static void connect_in_order(struct conf_rank *me, int first)
{
    conf_open(me);
    conf_swap_addresses(me);
    if (me->rank == first) {
        conf_begin(me, !me->rank);
        for (int i = 0; i < 20; i++) {
            enum tutti_result result = me->ops->advance(me->endpoints[!me->rank]);
            CONF_REQUIRE(me, result == TUTTI_IN_PROGRESS,
                         "advance gave %d before the peer has called connect (%s)", (int)result,
                         tutti_last_error());
            CONF_OK(me, me->ops->progress(me->transport));
            (void)conf_sleep(me, 5);
        }
        conf_barrier(me);
    } else {
        conf_barrier(me);
        conf_begin(me, !me->rank);
    }
    conf_finish(me, !me->rank);
    connect_hello(me, !me->rank);
    conf_close(me);
}

static void connect_lower_first(struct conf_rank *me)
{
    connect_in_order(me, 0);
}

static void connect_higher_first(struct conf_rank *me)
{
    connect_in_order(me, 1);
}

/* The same two processes connect again and again, with the same job number. */
static void connect_again(struct conf_rank *me)
{
    for (int i = 0; i < 5; i++) {
        conf_all(me);
        connect_hello(me, !me->rank);
        conf_close(me);
        conf_barrier(me);
    }
}

/* One side gives up before the other comes; then nobody ever comes. */
static void connect_half_made(struct conf_rank *me)
{
    for (int round = 0; round < 4; round++) {
        conf_open(me);
        conf_swap_addresses(me);
        if (me->rank == round % 2) {
            conf_begin(me, !me->rank);
            for (int i = 0; i < 5; i++) {
                (void)me->ops->advance(me->endpoints[!me->rank]);
                CONF_OK(me, me->ops->progress(me->transport));
            }
        }
        conf_barrier(me);
        if (round >= 2) { /* close must see to endpoints that nobody disconnected */
            me->ops->close(me->transport);
            me->transport = NULL;
            memset(me->endpoints, 0, sizeof me->endpoints);
        }
        conf_close(me);
        conf_barrier(me);
    }
}

static void connect_wrong_secret(struct conf_rank *me)
{
    me->secret[TUTTI_SECRET_BYTES - 1] ^= (uint8_t)me->rank;
    conf_open(me);
    conf_swap_addresses(me);
    void *endpoint = NULL;
    enum tutti_result result =
        me->ops->connect(me->transport, &me->peers[!me->rank], CONF_LANES, &endpoint);
    if (result == TUTTI_OK)
        me->endpoints[!me->rank] = endpoint;
    uint64_t until = tti_deadline_in(0.5);
    while (endpoint && !tti_deadline_passed(until)) {
        if (result == TUTTI_OK || result == TUTTI_IN_PROGRESS)
            result = me->ops->advance(endpoint);
        CONF_REQUIRE(me, result != TUTTI_OK, "connected to a rank with another secret");
        (void)me->ops->progress(me->transport);
        (void)conf_sleep(me, 20);
    }
    conf_barrier(me);
    conf_close(me);
}

/* Two communicators of the same ranks at the same time: nothing crosses over. */
static void connect_two_jobs(struct conf_rank *me)
{
    unsigned char message[100], second[100];
    struct conf_rank *other = conf_memory(me, sizeof *other, false);
    memcpy(other, me, sizeof *other);
    memset(other->blocks, 0, sizeof other->blocks);
    other->job++;
    conf_all(me);
    if (setjmp(other->failed) == 0) {
        conf_all(other);
        conf_send_message(other, !me->rank, 1, 5, message, sizeof message);
        conf_send_message(me, !me->rank, 1, 6, second, sizeof second);
        conf_take_message(me, !me->rank, 1, 6, sizeof second);
        conf_take_message(other, !me->rank, 1, 5, sizeof message);
        conf_barrier(me);
    } else {
        memcpy(me->failure, other->failure, sizeof me->failure);
    }
    conf_close(other);
    CONF_REQUIRE(me, !me->failure[0], "second communicator: %.700s", other->failure);
    conf_close(me);
}

const struct conf_check conf_checks_connect[] = {
    {"table_and_fd", 2, 0, connect_table},
    {"connect_lower_first", 2, 0, connect_lower_first},
    {"connect_higher_first", 2, 0, connect_higher_first},
    {"connect_again", 2, 0, connect_again},
    {"connect_half_made", 2, 0, connect_half_made},
    {"connect_wrong_secret", 2, 0, connect_wrong_secret},
    {"connect_two_jobs", 2, 0, connect_two_jobs},
    {NULL, 0, 0, NULL},
};
