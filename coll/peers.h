/* Who the ranks are: identities, hosts, and the transport towards each. Exchanged once, over the
 * bootstrap, when a communicator is made. */
#ifndef TTI_COLL_PEERS_H
#define TTI_COLL_PEERS_H

#include "launch/boot.h"
#include "plan/plan.h"
#include "transport/registry.h"

struct tti_carrier { /* one transport opened for this communicator */
    const struct tutti_transport_ops *ops;
    void *object;
    int fd;
    bool in_use; /* some endpoint exists or is being connected */
};

struct tti_peer {
    struct tutti_peer public; /* what transports see; address is that of `carrier` */
    char name[96];
    int carrier; /* index into carriers; -1 for the own rank */
    int host;    /* 0 .. nhosts-1 by lowest rank */
};

struct tti_peers {
    int rank, size;
    struct tti_peer *all;
    const char **names;
    uint8_t *blobs; /* the gathered identities; addresses point into them */
    size_t blob_bytes;
    int *host_of; /* by rank */
    int nhosts;
    bool sorted;                   /* ranks of a host follow each other */
    int *near_of[TTI_NEAR_LEVELS]; /* the layout's (plan.h), set by tti_crowd; NULL as there */
    int near_count[TTI_NEAR_LEVELS];
    struct tti_gates gates; /* the layout's; `of` is gate_of, or NULL */
    int *gate_of;
    int local_rank, local_size;
    bool same_process; /* all ranks are threads of this process */
    bool have_inproc;  /* all ranks have that transport open */
    bool have_shm;
    bool reads;       /* they read each other's memory where they lend it, as far as is known */
    double line_bits; /* a second, of the slowest host's ways out together; 0: not known */
    struct tti_carrier carriers[TTI_MAX_TRANSPORTS];
    int ncarriers;
    struct tutti_transport_env env;
    char *far_nics; /* what env has of them (nics.h); NULL: none */
    int host_ranks; /* what env has of them; 0: not known */
};

/* Open the transports (for the communicator of number `job`), exchange identities and addresses,
 * choose a transport for each peer. peers->far_nics and ->host_ranks may have been set before. */
enum tutti_result tti_peers_create(struct tti_boot *boot, const struct tti_meeting *meeting,
                                   int rank, int size, const char *transports, const char *plugins,
                                   int lanes, uint64_t job, uint64_t deadline,
                                   struct tti_peers *peers);
/* The address of the rank's host, as others reach it. */
const char *tti_peers_address(const struct tti_peers *peers, int rank);
/* Close the transports; names stay valid. */
void tti_peers_close(struct tti_peers *peers);
void tti_peers_destroy(struct tti_peers *peers);

static inline struct tti_layout tti_peers_layout(const struct tti_peers *peers)
{
    struct tti_layout layout = {.nhosts = peers->nhosts,
                                .host_of = peers->nhosts > 1 ? peers->host_of : NULL,
                                .sorted = peers->sorted,
                                .gates = peers->gates};
    for (int level = 0; level < TTI_NEAR_LEVELS; level++)
        layout.near[level] = (struct tti_near){peers->near_count[level], peers->near_of[level]};
    return layout;
}

#endif
