/* Two ends of an RDMA connection over two rails, in one process, over devices, links, control
 * connections and a clock that are made up: for tests of rails that are lost and come back. Link
 * the test with --wrap=tti_now_ns and --wrap=tti_rdma_endpoint_say. */
#ifndef TTI_TESTS_MADE_RAILS_H
#define TTI_TESTS_MADE_RAILS_H

#include "transport/rdma/rdma.h"

enum { NEAR, FAR, RAILS };

#define SECOND UINT64_C(1000000000)

struct made_world {
    uint64_t now;
    bool up[RAILS];
    bool refuses; /* now and then queue pairs are not made, or not joined, while others carry */
    bool blocks;  /* joining blocks, and fails, where the link is cut */
    bool deaf;    /* the control connections take nothing any more */
    int refusals; /* words that they did not take */
    int carried[RAILS]; /* fragments and credits */
    int joins[RAILS];
    struct tti_rdma_transport *transport[2];
    struct tti_rdma_endpoint *end[2];
    int said[2]; /* words on their way, to whom */
};
extern struct made_world world;

/* A number below `of`, by the world's seed. */
unsigned chance(unsigned of);

void world_new(uint32_t seed);
void world_free(void);

/* What is sent is a stream of bytes, each known by its place. */
struct stream {
    uint64_t sent, taken;
};

/* Time goes on by up to 20 ms, every other device does something, and one rank: it sends (if
 * `sends`), takes, hears or works. */
void world_step(struct stream stream[2], bool sends);
/* One thing happens to each queue pair: a packet arrives, or its acknowledgement, or the device
 * gives up, or what was posted comes back. */
void devices_step(void);

bool near_carries(void);
/* Rank `rank` hears this of its peer; is that mad? */
void says(int rank, struct tti_rdma_word word, bool mad);

#endif
