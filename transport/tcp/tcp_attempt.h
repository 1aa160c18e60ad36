/* One connection under way, from the side that calls: TCP connects, the challenge comes, the hello
 * goes, the answer comes. Lanes begin with it (tcp_connect.c) and go on with it (tcp_resume.c). */
#ifndef TTI_TRANSPORT_TCP_ATTEMPT_H
#define TTI_TRANSPORT_TCP_ATTEMPT_H

#include "transport/tcp/tcp.h"

enum tti_tcp_attempt_state {
    TTI_TCP_ATTEMPT_IDLE,
    TTI_TCP_ATTEMPT_OPENING,   /* TCP connects */
    TTI_TCP_ATTEMPT_LISTENING, /* waits for the challenge */
    TTI_TCP_ATTEMPT_PROVING,   /* has said hello, waits for the answer */
    TTI_TCP_ATTEMPT_GOING,     /* the go is on its way */
    TTI_TCP_ATTEMPT_PAUSED,    /* tries again at wake_ns */
    TTI_TCP_ATTEMPT_WON,
    TTI_TCP_ATTEMPT_FAILED,
};

struct tti_tcp_attempt {
    struct tti_tcp_talk talk;
    enum tti_tcp_attempt_state state;
    enum tti_tcp_purpose purpose;
    int candidate;
    int lane;
    int tries;
    uint64_t begun_ns;
    uint64_t patience_ns; /* for TCP to connect */
    uint64_t wake_ns;     /* OPENING: its deadline; PAUSED: when to go on */
    struct tti_tcp_answer answer;
    bool refused; /* FAILED: nobody listens there, or who does has ended this endpoint, */
    bool told;    /* ... and that it proved */
    bool lost;    /* FAILED: something on the way, not a rank, ended it or kept it from coming up */
    bool foreign; /* FAILED: a rank of another job listens there: it proves nothing */
    int foreigns; /* attempts in a row that failed so, where the peer was */
    char why[80]; /* FAILED */
};

/* Begin to connect to the attempt's candidate. */
void tti_tcp_attempt_open(struct tti_tcp_endpoint *endpoint, struct tti_tcp_attempt *attempt,
                          uint64_t now);
/* Move on as far as the socket and the clock let. */
void tti_tcp_attempt_talk(struct tti_tcp_endpoint *endpoint, struct tti_tcp_attempt *attempt,
                          uint64_t now);

#endif
