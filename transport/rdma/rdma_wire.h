/* What ranks tell each other before verbs can carry anything, byte by byte: the address (which
 * ports a rank has), and the messages of the control connection; and which ports of two ranks talk
 * to each other. Pure functions over byte arrays, without verbs: tests/rdma/fuzz_rdma_wire.c drives
 * them. Numbers are little-endian. Next: rdma.h. */
#ifndef TTI_TRANSPORT_RDMA_WIRE_H
#define TTI_TRANSPORT_RDMA_WIRE_H

#include "tutti/plugin.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TTI_RDMA_VERSION = 4,
    TTI_RDMA_MAX_RAILS = 8,
    TTI_RDMA_MAX_QPS = 16, /* queue pairs of one endpoint */
    TTI_RDMA_ADVERT_HEAD_BYTES = 8,
    TTI_RDMA_ADVERT_PORT_BYTES = 28,
    TTI_RDMA_HELLO_BYTES = 24 + TTI_RDMA_MAX_QPS * 12,
    TTI_RDMA_READY_BYTES = 8,
    TTI_RDMA_GOODBYE_BYTES = 8 + TUTTI_MAX_LANES * 4,
    TTI_RDMA_WORD_BYTES = TTI_RDMA_GOODBYE_BYTES, /* either may come */
};

enum tti_rdma_layer { TTI_RDMA_INFINIBAND = 1, TTI_RDMA_ETHERNET = 2 };

/* One port of one device, as the peers need to know it. */
struct tti_rdma_port {
    uint8_t layer;   /* enum tti_rdma_layer */
    uint8_t roce;    /* version 1 or 2; 0 on InfiniBand */
    uint8_t prefix;  /* bits of an IPv4 address that are the network's; 0: not known */
    uint8_t mtu;     /* enum ibv_mtu: 1 (256 bytes) to 5 (4096) */
    bool far;        /* others of that rank's are nearer to it (far_nics of plugin.h) */
    uint16_t lid;    /* InfiniBand */
    uint32_t speed;  /* Mbit/s; 0: not known */
    uint8_t gid[16]; /* in network order */
};

struct tti_rdma_advert {
    int count;
    struct tti_rdma_port port[TTI_RDMA_MAX_RAILS];
    size_t control_bytes;
    const uint8_t *control; /* address of the control connection; points into what was read */
};

/* Both directions, once the control connection is there. */
struct tti_rdma_hello {
    uint8_t lanes;
    uint8_t qps;
    uint16_t slots;      /* of each lane; a power of two */
    uint32_t slot_bytes; /* a multiple of 64 */
    uint64_t ring;       /* where its slots lie: lane by lane, a line before each slot */
    struct {
        uint32_t number, psn, key;
    } qp[TTI_RDMA_MAX_QPS];
};

/* The last word: how many fragments there were on each lane. */
struct tti_rdma_goodbye {
    uint32_t sent[TUTTI_MAX_LANES];
};

/* What is said of one queue pair, by its place in the connection, when it broke. */
enum tti_rdma_saying {
    TTI_RDMA_LOST = 1,   /* "I use it no more, and nothing comes in by it" */
    TTI_RDMA_AGAIN = 2,  /* "here is another in its place" */
    TTI_RDMA_JOINED = 3, /* "it takes in what you send" */
};

struct tti_rdma_word {
    uint8_t saying; /* enum tti_rdma_saying */
    uint8_t qp;
    bool trial;           /* AGAIN: others carry, and it shall prove itself before it does */
    uint32_t number, psn; /* AGAIN: the new queue pair's */
};

/* Writers return, or fill exactly, the bytes named above. Readers give NULL when the bytes are well
 * formed, else what is wrong with them; outputs are written only then. */
size_t tti_rdma_put_advert(const struct tti_rdma_advert *advert, uint8_t *bytes);
const char *tti_rdma_get_advert(const uint8_t *bytes, size_t size, struct tti_rdma_advert *advert);
void tti_rdma_put_hello(const struct tti_rdma_hello *hello, uint8_t *bytes);
const char *tti_rdma_get_hello(const uint8_t *bytes, struct tti_rdma_hello *hello);
void tti_rdma_put_ready(uint8_t *bytes);
const char *tti_rdma_get_ready(const uint8_t *bytes);
void tti_rdma_put_goodbye(const struct tti_rdma_goodbye *goodbye, uint8_t *bytes);
const char *tti_rdma_get_goodbye(const uint8_t *bytes, struct tti_rdma_goodbye *goodbye);
void tti_rdma_put_word(const struct tti_rdma_word *word, uint8_t *bytes);
const char *tti_rdma_get_word(const uint8_t *bytes, struct tti_rdma_word *word);

/* A port of the lower rank and one of the higher, joined by a queue pair. */
struct tti_rdma_pair {
    uint8_t lower, higher;
};

/* Which ports talk to each other: every port of the side that has more, and those of the other in
 * turn; ports of one subnet rather than others, and these alone where they carry half or more of
 * what all would: ranks of a host with many ports need not have the same of them, and what is left
 * over on both sides may have no route. Both ranks get the same. Returns how many, 0 when no two
 * ports can talk (another kind of link, another version of RoCE). */
int tti_rdma_match(const struct tti_rdma_advert *lower, const struct tti_rdma_advert *higher,
                   struct tti_rdma_pair pair[TTI_RDMA_MAX_RAILS]);

/* Puts those of `pairs` pairs first that shall carry the bytes, and returns how many: those that
 * are near to both ranks; else to one of them, or, where one has more ports than the other, to that
 * one, each of whose ports is in one pair only; else all. What tti_rdma_match has joined is never
 * joined otherwise, so that rails are not crossed for the sake of nearness. Both ranks get the
 * same. */
int tti_rdma_prefer(const struct tti_rdma_advert *lower, const struct tti_rdma_advert *higher,
                    struct tti_rdma_pair *pair, int pairs);

/* How many queue pairs carry, of `near` of `pairs` pairs of ports, if each shall have `qps`: as
 * many as leave room for one for each of the other pairs, in TTI_RDMA_MAX_QPS; at least `near`. */
int tti_rdma_usual(int near, int pairs, int qps);

/* Is it an IPv4 address in a GID (RoCE)? */
bool tti_rdma_gid_is_ipv4(const uint8_t gid[16]);

#endif
