/* Sending without a copy (tcp_zero.h). */
#include "transport/tcp/tcp_zero.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "transport/tcp/tcp.h"

/* errqueue.h needs struct timespec and does not say so */
#include <time.h>

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { ZERO_COPIED_ENOUGH = 16 };

static unsigned zero_at(uint32_t call)
{
    return call % TTI_TCP_ZERO_CALLS;
}

static bool zero_under_way(const struct tti_tcp_lane *lane)
{
    return lane->zero && lane->zero->first != lane->zero->next;
}

void tti_tcp_zero_begin(struct tti_tcp_lane *lane)
{
    const int mode = lane->endpoint->transport->zero_copy, on = 1;
    free(lane->zero);
    lane->zero = NULL;
    if (mode == TTI_TCP_ZERO_NEVER || lane->seal ||
        setsockopt(lane->socket, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) != 0)
        return;
    lane->zero = tti_calloc(1, sizeof *lane->zero);
    if (lane->zero) /* else with copies, as ever */
        lane->zero->always = mode == TTI_TCP_ZERO_ALWAYS;
}

bool tti_tcp_zero_wants(const struct tti_tcp_lane *lane, size_t bytes)
{
    const struct tti_tcp_zero *zero = lane->zero;
    return zero && !zero->off && bytes >= TTI_TCP_ZERO_BYTES &&
           zero->next - zero->first < TTI_TCP_ZERO_CALLS;
}

void tti_tcp_zero_note(struct tti_tcp_lane *lane, uint64_t from)
{
    struct tti_tcp_zero *zero = lane->zero;
    zero->from[zero_at(zero->next)] = from;
    zero->ended[zero_at(zero->next)] = false;
    zero->next++;
}

uint64_t tti_tcp_zero_hold(const struct tti_tcp_lane *lane, uint64_t position)
{
    if (!zero_under_way(lane))
        return position;
    uint64_t from = lane->zero->from[zero_at(lane->zero->first)];
    return from < position ? from : position;
}

/* The calls from `first` to `last` have ended. What was never begun is no news of ours. */
static void zero_ended(struct tti_tcp_lane *lane, uint32_t first, uint32_t last, bool copied)
{
    struct tti_tcp_zero *zero = lane->zero;
    for (uint32_t call = first; call - first <= last - first; call++) {
        if (call - zero->first >= zero->next - zero->first)
            break;
        zero->ended[zero_at(call)] = true;
        zero->copied = copied ? zero->copied + 1 : 0;
    }
    while (zero->first != zero->next && zero->ended[zero_at(zero->first)])
        zero->first++;
    if (zero->copied < ZERO_COPIED_ENOUGH || zero->always || zero->off)
        return;
    zero->off = true;
    TTI_LOG(TTI_LOG_INFO,
            "tcp: the kernel copies what it sends to rank %d (lane %d) after all; "
            "TUTTI_TCP_ZEROCOPY is not used there",
            lane->endpoint->peer->rank, lane->number);
}

static const struct sock_extended_err *zero_notice(const struct cmsghdr *part)
{
    bool known = (part->cmsg_level == SOL_IP && part->cmsg_type == IP_RECVERR) ||
                 (part->cmsg_level == SOL_IPV6 && part->cmsg_type == IPV6_RECVERR);
    const struct sock_extended_err *said = (const void *)CMSG_DATA(part);
    return known && said->ee_errno == 0 && said->ee_origin == SO_EE_ORIGIN_ZEROCOPY ? said : NULL;
}

void tti_tcp_zero_reap(struct tti_tcp_lane *lane)
{
    union {
        struct cmsghdr aligned;
        char bytes[256];
    } room;
    while (zero_under_way(lane) && lane->socket >= 0) {
        struct msghdr message = {.msg_control = &room, .msg_controllen = sizeof room};
        if (recvmsg(lane->socket, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
            break;
        for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); part;
             part = CMSG_NXTHDR(&message, part)) {
            const struct sock_extended_err *said = zero_notice(part);
            if (!said)
                continue;
            zero_ended(lane, said->ee_info, said->ee_data,
                       said->ee_code & SO_EE_CODE_ZEROCOPY_COPIED);
        }
    }
}

/* To be at no address is how a TCP socket forgets all that it has to send; the peer gets a reset.
 */
void tti_tcp_zero_end(struct tti_tcp_lane *lane, int wait_ms)
{
    const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    const uint64_t deadline = tti_deadline_in(wait_ms / 1e3);
    tti_tcp_zero_reap(lane);
    while (zero_under_way(lane) && lane->socket >= 0 && !tti_deadline_passed(deadline)) {
        struct pollfd errors = {.fd = lane->socket}; /* POLLERR needs no asking */
        if (poll(&errors, 1, tti_deadline_ms(deadline, wait_ms)) > 0 && (errors.revents & POLLHUP))
            break;
        tti_tcp_zero_reap(lane);
    }
    if (zero_under_way(lane) && lane->socket >= 0)
        (void)connect(lane->socket, &nowhere, sizeof nowhere);
    if (lane->zero)
        lane->zero->first = lane->zero->next;
}
