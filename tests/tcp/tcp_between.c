/* Somebody on the wire (tcp_between.h). One thread; what it reads it writes before it reads more.
 */
#include "tests/tcp/tcp_between.h"

#include "transport/tcp/tcp_wire.h"

#include "tests/tutti_cmocka.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sockaddr_in between_address(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

/* Both ends are reset; what they have not read is lost. */
static void between_reset(struct tcp_between *b, int pair)
{
    const struct linger at_once = {.l_onoff = 1};
    for (int side = 0; side < 2; side++) {
        int *socket = &b->socket[2 * pair + side];
        setsockopt(*socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        close(*socket);
        *socket = -1;
    }
    atomic_fetch_add(&b->cut, 1);
}

/* How many of `bytes` go through before this pair is reset; all: it is not. */
static size_t between_until_cut(const struct tcp_between *b, int pair, size_t bytes)
{
    if (pair >= 32 || !(b->cut_which >> pair & 1))
        return SIZE_MAX;
    return b->went[pair] + bytes < b->cut_after ? SIZE_MAX : (size_t)(b->cut_after - b->went[pair]);
}

static void between_admit(struct tcp_between *b)
{
    int on = 1, from = accept(b->listener, NULL, NULL);
    struct sockaddr_in address = between_address(b->to);
    if (from < 0)
        return;
    int to = b->sockets < BETWEEN_SOCKETS ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
    if (to < 0 || connect(to, (struct sockaddr *)&address, sizeof address) != 0) {
        close(from);
        if (to >= 0)
            close(to);
        return;
    }
    setsockopt(from, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(to, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    b->socket[2 * b->sockets] = from;
    b->socket[2 * b->sockets + 1] = to;
    b->went[b->sockets++] = 0;
    if (between_until_cut(b, b->sockets - 1, 0) == 0)
        between_reset(b, b->sockets - 1);
}

static bool between_say(int socket, const uint8_t *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t sent = send(socket, data, bytes, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        data += sent;
        bytes -= (size_t)sent;
    }
    return true;
}

/* Alter what rank 0 said; `said` counts what came on this socket before. */
static bool between_alter(struct tcp_between *b, uint64_t said, uint8_t *data, size_t bytes, int to)
{
    size_t skip = said < BETWEEN_HANDSHAKE ? (size_t)(BETWEEN_HANDSHAKE - said) : 0;
    skip = skip < bytes ? skip : bytes;
    uint64_t begin = b->passed, end = begin + (bytes - skip);
    b->passed = end;
    while (b->flip_every && b->flipped < b->flips) {
        uint64_t at = (b->flipped + 1) * b->flip_every;
        if (at < begin || at >= end)
            break;
        data[skip + (at - begin)] ^= 0x10;
        b->flipped++;
    }
    if (!b->repeated && b->repeat_to > begin && b->repeat_to <= end && b->repeat_from >= begin) {
        size_t upto = skip + (size_t)(b->repeat_to - begin);
        b->repeated++;
        return between_say(to, data, upto) &&
               between_say(to, data + skip + (b->repeat_from - begin),
                           bytes - skip - (size_t)(b->repeat_from - begin));
    }
    return between_say(to, data, bytes);
}

/* How much may be read of this side now. */
static size_t between_may(struct tcp_between *b, int side, size_t most)
{
    const size_t may = atomic_load(&b->may_pass);
    return side == 1 || !atomic_load(&b->holds) || may > most ? most : may;
}

/* False: this pair of sockets is over. */
static bool between_relay(struct tcp_between *b, int pair, int side, uint64_t *said)
{
    static uint8_t data[65536];
    int from = b->socket[2 * pair + side], to = b->socket[2 * pair + !side];
    ssize_t got = recv(from, data, between_may(b, side, sizeof data), MSG_DONTWAIT);
    if (got <= 0)
        return false;
    if (side == 0 && atomic_load(&b->holds))
        atomic_fetch_sub(&b->may_pass, (size_t)got);
    const size_t until_cut = between_until_cut(b, pair, (size_t)got);
    if (until_cut != SIZE_MAX) {
        (void)between_say(to, data, until_cut);
        between_reset(b, pair);
        return true;
    }
    b->went[pair] += (size_t)got;
    size_t captured = atomic_load(&b->captured);
    if (captured + (size_t)got <= BETWEEN_CAPTURE) {
        memcpy(b->capture + captured, data, (size_t)got);
        atomic_store(&b->captured, captured + (size_t)got);
    }
    if (side == 1)
        return between_say(to, data, (size_t)got);
    uint64_t before = *said;
    *said += (size_t)got;
    return between_alter(b, before, data, (size_t)got, to);
}

static void *between_run(void *argument)
{
    struct tcp_between *b = argument;
    static uint64_t said[BETWEEN_SOCKETS];
    memset(said, 0, sizeof said);
    while (!atomic_load(&b->stop)) {
        struct pollfd poll_for[1 + 2 * BETWEEN_SOCKETS] = {{b->listener, POLLIN, 0}};
        int count = 2 * b->sockets;
        for (int i = 0; i < count; i++)
            poll_for[1 + i] =
                (struct pollfd){between_may(b, i % 2, 1) ? b->socket[i] : -1, POLLIN, 0};
        if (poll(poll_for, (nfds_t)(1 + count), 5) <= 0)
            continue;
        for (int i = 0; i < count; i++) {
            if (!poll_for[1 + i].revents || b->socket[i] < 0 || !between_may(b, i % 2, 1))
                continue;
            if (!between_relay(b, i / 2, i % 2, &said[i / 2])) {
                close(b->socket[i - i % 2]);
                close(b->socket[i - i % 2 + 1]);
                b->socket[i - i % 2] = b->socket[i - i % 2 + 1] = -1;
            }
        }
        if (poll_for[0].revents)
            between_admit(b);
    }
    return NULL;
}

void tcp_between_begin(struct tcp_between *b, struct tcp_pair *pair)
{
    struct tti_tcp_advert advert;
    struct sockaddr_in address = between_address(0);
    socklen_t bytes = sizeof address;
    b->sockets = 0;
    b->passed = 0;
    atomic_store(&b->captured, 0);
    atomic_store(&b->flipped, 0);
    atomic_store(&b->repeated, 0);
    atomic_store(&b->cut, 0);
    b->to = pair->port[1];
    b->capture = test_malloc(BETWEEN_CAPTURE);
    b->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(b->listener >= 0);
    assert_int_equal(bind(b->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(b->listener, 64), 0);
    assert_int_equal(getsockname(b->listener, (struct sockaddr *)&address, &bytes), 0);
    b->port = ntohs(address.sin_port);
    assert_null(tti_tcp_get_advert(pair->address[1], pair->peer[1].address_bytes, &advert));
    advert.port = b->port;
    tti_tcp_put_advert(&advert, pair->address[1]);
    atomic_store(&b->stop, false);
    assert_int_equal(pthread_create(&b->thread, NULL, between_run, b), 0);
}

void tcp_between_end(struct tcp_between *b)
{
    atomic_store(&b->stop, true);
    pthread_join(b->thread, NULL);
    for (int i = 0; i < 2 * b->sockets; i++)
        if (b->socket[i] >= 0)
            close(b->socket[i]);
    close(b->listener);
    test_free(b->capture);
    b->capture = NULL;
}

bool tcp_between_saw(const struct tcp_between *b, const void *bytes, size_t count)
{
    return memmem(b->capture, atomic_load(&b->captured), bytes, count) != NULL;
}
