/* Inside the transport over NCCL's network plugins. A connection is, per lane, one connection of
 * the plugin in each direction, and one of the tcp transport beside them: over it the ends prove
 * the job's secret, exchange the plugin's handles, and say goodbye; it also tells when a peer dies.
 *
 * Read next: ncclnet.c (the table, waiting), net_connect.c (getting up), net_lane.c (messages). */
#ifndef TTI_TRANSPORT_NCCLNET_H
#define TTI_TRANSPORT_NCCLNET_H

#include "transport/ncclnet/net_plugin.h"
#include "tutti/plugin.h"

#include <stdbool.h>

enum {
    TTI_NET_SLOTS = 8,   /* messages of a lane under way, in each direction */
    TTI_NET_HEADER = 64, /* in front of each: its tag */
    TTI_NET_PAYLOAD = 128 << 10,
    TTI_NET_SLOT = TTI_NET_HEADER + TTI_NET_PAYLOAD,
};

/* Messages of one direction, in slots used by turns. Numbers only grow. */
struct tti_net_ring {
    void *comm; /* of the plugin */
    void *key;  /* of the memory */
    char *memory;
    void *request[TTI_NET_SLOTS];
    size_t bytes[TTI_NET_SLOTS]; /* of the message */
    uint64_t filled;             /* sending: written by us; receiving: taken by the caller */
    uint64_t posted;             /* given to the plugin */
    uint64_t done;               /* over, by the plugin's word */
    int failed;                  /* the plugin's result */
};

struct tti_net_lane {
    void *listener;
    char handle[TTI_NET_HANDLE_BYTES]; /* the peer's */
    struct tti_net_ring out, in;
    uint64_t accepted; /* bytes */
    size_t at;         /* taken of the message in turn */
    uint64_t last;     /* messages that the peer will have sent in all; with `goodbye` */
};

enum tti_net_state { TTI_NET_MEETING, TTI_NET_HANDLES, TTI_NET_JOINING, TTI_NET_UP };

struct tti_net_endpoint {
    struct tti_net_transport *transport;
    struct tti_net_endpoint *next;
    struct tutti_peer peer; /* as tcp sees it */
    void *tcp;
    enum tti_net_state state;
    size_t sent, come;  /* bytes of handles */
    bool goodbye, died; /* the peer is gone, with or without a word */
    uint64_t failed_ns; /* when the plugin first failed; 0: it has not */
    int lanes;
    struct tti_net_lane lane[];
};

struct tti_net_transport {
    struct tutti_transport_env env;
    void *tcp;
    void *context;
    int device;
    int epoll, timer;
    unsigned nap_us; /* until the next look while the caller sleeps */
    bool news;
    struct tti_net_endpoint *endpoint; /* all */
};

/* ---- net_connect.c ---- */
enum tutti_result tti_net_endpoint_connect(void *transport, const struct tutti_peer *peer,
                                           int lanes, void **endpoint);
enum tutti_result tti_net_endpoint_advance(void *endpoint);
/* Flush, say goodbye, close. */
void tti_net_endpoint_disconnect(void *endpoint);
/* What tcp has to say: a goodbye, a death. */
void tti_net_endpoint_hear(struct tti_net_endpoint *endpoint);

/* ---- net_lane.c ---- */
enum tutti_result tti_net_lane_open(struct tti_net_endpoint *endpoint, struct tti_net_lane *lane);
void tti_net_lane_close(struct tti_net_lane *lane);
/* Give the plugin what it takes, take what is over. True if something moved. */
bool tti_net_lane_move(struct tti_net_endpoint *endpoint, struct tti_net_lane *lane);
enum tutti_result tti_net_lane_send(void *endpoint, int lane, uint64_t tag, const void *data,
                                    size_t bytes, size_t *accepted);
uint64_t tti_net_lane_released(void *endpoint, int lane);
enum tutti_result tti_net_lane_peek(void *endpoint, int lane, uint64_t *tag, const void **data,
                                    size_t *bytes);
void tti_net_lane_consume(void *endpoint, int lane, size_t bytes);

#endif
