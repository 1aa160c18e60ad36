/* A peer that is cut off without a word: a cable pulled, a host without power, a firewall's rule.
 *
 * The kernel gives such a connection up after a quarter of an hour. TCP_USER_TIMEOUT would shorten
 * that, but it also ends connections whose living peer does not read for as long, and a rank may
 * compute for minutes. The two differ in what the peer's kernel answers: one whose process does not
 * read still acknowledges every probe. So a connection is cut when the kernel has sent the same
 * thing several times over and nothing at all has been acknowledged meanwhile. Where the lane can
 * go on over another connection, sooner: a false alarm costs nothing but that. */
#include "base/clock.h"
#include "transport/tcp/tcp.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

enum { SILENCE_TRIES = 3 }; /* one may cross with its answer, two may be lost */
#define SILENCE_LOOK_NS UINT64_C(1000000000)

bool tti_tcp_silence_cut(int socket, uint32_t seconds)
{
    struct tcp_info info;
    socklen_t bytes = sizeof info;
    memset(&info, 0, sizeof info);
    if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0)
        return false;
    return (info.tcpi_retransmits >= SILENCE_TRIES || info.tcpi_probes >= SILENCE_TRIES) &&
           info.tcpi_last_ack_recv >= seconds * 1000;
}

void tti_tcp_silence_look(struct tti_tcp_transport *transport)
{
    uint64_t now = tti_now_ns();
    if (now < transport->silence_ns)
        return;
    transport->silence_ns = now + SILENCE_LOOK_NS;
    for (struct tti_tcp_endpoint *e = transport->endpoint; e; e = e->next)
        for (int i = 0; e->state == TTI_TCP_CONNECTED && i < e->lanes; i++) {
            struct tti_tcp_lane *lane = &e->lane[i];
            uint32_t patience = e->resumes ? TTI_TCP_QUIET_SECONDS : TTI_TCP_SILENCE_SECONDS;
            if (lane->socket < 0 || lane->send_error || lane->closed ||
                !tti_tcp_silence_cut(lane->socket, patience))
                continue;
            lane->silent = true;
            if (tti_tcp_lane_cut(lane, ETIMEDOUT))
                continue;
            lane->receive_error = ETIMEDOUT;
            tti_tcp_lane_end_sending(lane, ETIMEDOUT);
            transport->news = true;
        }
}
