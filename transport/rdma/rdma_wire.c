/* Reading and writing what ranks tell each other (rdma_wire.h). */
#include "transport/rdma/rdma_wire.h"

#include <string.h>

enum {
    WIRE_ADVERT = 0x41527454, /* "TtRA" */
    WIRE_HELLO = 0x48527454,
    WIRE_READY = 0x52527454,
    WIRE_GOODBYE = 0x47527454,
    WIRE_WORD = 0x57527454,
    WIRE_MOST_SLOTS = 4096,
    WIRE_MOST_SLOT_BYTES = 16 << 20,
};

static void wire_put(uint8_t *bytes, int count, uint64_t value)
{
    for (int i = 0; i < count; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t wire_get(const uint8_t *bytes, int count)
{
    uint64_t value = 0;
    for (int i = 0; i < count; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

/* ---- the address ---------------------------------------------------------------------------- */

size_t tti_rdma_put_advert(const struct tti_rdma_advert *advert, uint8_t *bytes)
{
    uint8_t *at = bytes + TTI_RDMA_ADVERT_HEAD_BYTES;
    wire_put(bytes, 4, WIRE_ADVERT);
    bytes[4] = TTI_RDMA_VERSION;
    bytes[5] = (uint8_t)advert->count;
    wire_put(bytes + 6, 2, advert->control_bytes);
    for (int i = 0; i < advert->count; i++, at += TTI_RDMA_ADVERT_PORT_BYTES) {
        const struct tti_rdma_port *port = &advert->port[i];
        at[0] = port->layer;
        at[1] = port->roce;
        at[2] = port->prefix;
        at[3] = port->mtu;
        wire_put(at + 4, 2, port->lid);
        wire_put(at + 6, 2, port->far);
        wire_put(at + 8, 4, port->speed);
        memcpy(at + 12, port->gid, sizeof port->gid);
    }
    memcpy(at, advert->control, advert->control_bytes);
    return (size_t)(at - bytes) + advert->control_bytes;
}

static const char *wire_get_port(const uint8_t *at, struct tti_rdma_port *port)
{
    port->layer = at[0];
    port->roce = at[1];
    port->prefix = at[2];
    port->mtu = at[3];
    port->lid = (uint16_t)wire_get(at + 4, 2);
    port->far = at[6] == 1;
    port->speed = (uint32_t)wire_get(at + 8, 4);
    memcpy(port->gid, at + 12, sizeof port->gid);
    bool infiniband = port->layer == TTI_RDMA_INFINIBAND;
    if ((!infiniband && port->layer != TTI_RDMA_ETHERNET) || port->mtu < 1 || port->mtu > 5 ||
        port->prefix > 32 || wire_get(at + 6, 2) > 1)
        return "an RDMA port that makes no sense";
    if (infiniband ? port->roce != 0 : port->roce != 1 && port->roce != 2)
        return "an RDMA port with an unknown version of RoCE";
    return NULL;
}

const char *tti_rdma_get_advert(const uint8_t *bytes, size_t size, struct tti_rdma_advert *advert)
{
    struct tti_rdma_advert read = {.count = 0};
    if (size < TTI_RDMA_ADVERT_HEAD_BYTES || wire_get(bytes, 4) != WIRE_ADVERT)
        return "bytes that are no RDMA address";
    if (bytes[4] != TTI_RDMA_VERSION)
        return "an RDMA address of another version of Tutti";
    read.count = bytes[5];
    read.control_bytes = wire_get(bytes + 6, 2);
    if (read.count < 1 || read.count > TTI_RDMA_MAX_RAILS)
        return "an RDMA address with an impossible number of ports";
    size_t ports = (size_t)read.count * TTI_RDMA_ADVERT_PORT_BYTES;
    if (size != TTI_RDMA_ADVERT_HEAD_BYTES + ports + read.control_bytes)
        return "an RDMA address of the wrong length";
    for (int i = 0; i < read.count; i++) {
        const char *wrong = wire_get_port(
            bytes + TTI_RDMA_ADVERT_HEAD_BYTES + i * TTI_RDMA_ADVERT_PORT_BYTES, &read.port[i]);
        if (wrong)
            return wrong;
    }
    read.control = bytes + TTI_RDMA_ADVERT_HEAD_BYTES + ports;
    *advert = read;
    return NULL;
}

/* ---- the control connection ----------------------------------------------------------------- */

void tti_rdma_put_hello(const struct tti_rdma_hello *hello, uint8_t *bytes)
{
    memset(bytes, 0, TTI_RDMA_HELLO_BYTES);
    wire_put(bytes, 4, WIRE_HELLO);
    bytes[4] = TTI_RDMA_VERSION;
    bytes[5] = hello->lanes;
    bytes[6] = hello->qps;
    wire_put(bytes + 8, 2, hello->slots);
    wire_put(bytes + 12, 4, hello->slot_bytes);
    wire_put(bytes + 16, 8, hello->ring);
    for (int i = 0; i < hello->qps; i++) {
        wire_put(bytes + 24 + 12 * i, 4, hello->qp[i].number);
        wire_put(bytes + 28 + 12 * i, 4, hello->qp[i].psn);
        wire_put(bytes + 32 + 12 * i, 4, hello->qp[i].key);
    }
}

const char *tti_rdma_get_hello(const uint8_t *bytes, struct tti_rdma_hello *hello)
{
    struct tti_rdma_hello read = {.lanes = bytes[5], .qps = bytes[6]};
    if (wire_get(bytes, 4) != WIRE_HELLO || bytes[4] != TTI_RDMA_VERSION)
        return "bytes that are no RDMA hello";
    read.slots = (uint16_t)wire_get(bytes + 8, 2);
    read.slot_bytes = (uint32_t)wire_get(bytes + 12, 4);
    read.ring = wire_get(bytes + 16, 8);
    if (read.lanes < 1 || read.lanes > TUTTI_MAX_LANES || read.qps < 1 ||
        read.qps > TTI_RDMA_MAX_QPS)
        return "an RDMA hello with an impossible number of lanes or queue pairs";
    if (read.slots < 2 || read.slots > WIRE_MOST_SLOTS || (read.slots & (read.slots - 1)) ||
        read.slot_bytes < 64 || read.slot_bytes % 64 || read.slot_bytes > WIRE_MOST_SLOT_BYTES)
        return "an RDMA hello with impossible slots";
    for (int i = 0; i < read.qps; i++) {
        read.qp[i].number = (uint32_t)wire_get(bytes + 24 + 12 * i, 4);
        read.qp[i].psn = (uint32_t)wire_get(bytes + 28 + 12 * i, 4);
        read.qp[i].key = (uint32_t)wire_get(bytes + 32 + 12 * i, 4);
        if (read.qp[i].number >> 24 || read.qp[i].psn >> 24)
            return "an RDMA hello with an impossible queue pair";
    }
    *hello = read;
    return NULL;
}

void tti_rdma_put_ready(uint8_t *bytes)
{
    wire_put(bytes, 4, WIRE_READY);
    wire_put(bytes + 4, 4, TTI_RDMA_VERSION);
}

const char *tti_rdma_get_ready(const uint8_t *bytes)
{
    bool right = wire_get(bytes, 4) == WIRE_READY && wire_get(bytes + 4, 4) == TTI_RDMA_VERSION;
    return right ? NULL : "bytes that are no RDMA message";
}

void tti_rdma_put_goodbye(const struct tti_rdma_goodbye *goodbye, uint8_t *bytes)
{
    wire_put(bytes, 4, WIRE_GOODBYE);
    wire_put(bytes + 4, 4, TTI_RDMA_VERSION);
    for (int i = 0; i < TUTTI_MAX_LANES; i++)
        wire_put(bytes + 8 + 4 * i, 4, goodbye->sent[i]);
}

const char *tti_rdma_get_goodbye(const uint8_t *bytes, struct tti_rdma_goodbye *goodbye)
{
    if (wire_get(bytes, 4) != WIRE_GOODBYE || wire_get(bytes + 4, 4) != TTI_RDMA_VERSION)
        return "bytes that are no RDMA message";
    for (int i = 0; i < TUTTI_MAX_LANES; i++)
        goodbye->sent[i] = (uint32_t)wire_get(bytes + 8 + 4 * i, 4);
    return NULL;
}

void tti_rdma_put_word(const struct tti_rdma_word *word, uint8_t *bytes)
{
    memset(bytes, 0, TTI_RDMA_WORD_BYTES);
    wire_put(bytes, 4, WIRE_WORD);
    wire_put(bytes + 4, 4, TTI_RDMA_VERSION);
    bytes[8] = word->saying;
    bytes[9] = word->qp;
    bytes[10] = word->trial;
    wire_put(bytes + 12, 4, word->number);
    wire_put(bytes + 16, 4, word->psn);
}

const char *tti_rdma_get_word(const uint8_t *bytes, struct tti_rdma_word *word)
{
    struct tti_rdma_word read = {.saying = bytes[8], .qp = bytes[9], .trial = bytes[10] == 1};
    if (wire_get(bytes, 4) != WIRE_WORD || wire_get(bytes + 4, 4) != TTI_RDMA_VERSION)
        return "bytes that are no RDMA message";
    read.number = (uint32_t)wire_get(bytes + 12, 4);
    read.psn = (uint32_t)wire_get(bytes + 16, 4);
    if (read.saying < TTI_RDMA_LOST || read.saying > TTI_RDMA_JOINED ||
        read.qp >= TTI_RDMA_MAX_QPS || read.number >> 24 || read.psn >> 24 ||
        bytes[10] > (read.saying == TTI_RDMA_AGAIN))
        return "a word of a queue pair that there cannot be";
    *word = read;
    return NULL;
}

/* ---- which ports talk to each other --------------------------------------------------------- */

bool tti_rdma_gid_is_ipv4(const uint8_t gid[16])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    return memcmp(gid, mapped, sizeof mapped) == 0;
}

static bool match_can_talk(const struct tti_rdma_port *one, const struct tti_rdma_port *other)
{
    if (one->layer != other->layer || one->roce != other->roce)
        return false;
    return one->layer == TTI_RDMA_INFINIBAND ||
           tti_rdma_gid_is_ipv4(one->gid) == tti_rdma_gid_is_ipv4(other->gid);
}

/* IPv4: the network's bits, as the shorter prefix has them. IPv6 and InfiniBand: the first half. */
static bool match_near(const struct tti_rdma_port *one, const struct tti_rdma_port *other)
{
    if (one->layer == TTI_RDMA_INFINIBAND || !tti_rdma_gid_is_ipv4(one->gid))
        return memcmp(one->gid, other->gid, 8) == 0;
    int bits = one->prefix < other->prefix ? one->prefix : other->prefix;
    for (int i = 0; i < bits; i++)
        if ((one->gid[12 + i / 8] ^ other->gid[12 + i / 8]) & (0x80 >> i % 8))
            return false;
    return bits > 0;
}

static bool match_one_network(const struct tti_rdma_advert *lower,
                              const struct tti_rdma_advert *higher, struct tti_rdma_pair pair)
{
    return match_near(&lower->port[pair.lower], &higher->port[pair.higher]);
}

/* What the ports of these pairs carry, in Mbit/s: the slower side's. Ports of unknown speed count
 * against each other. */
static uint64_t match_line(const struct tti_rdma_advert *lower,
                           const struct tti_rdma_advert *higher, const struct tti_rdma_pair *pair,
                           int pairs, bool one_network)
{
    bool of_lower[TTI_RDMA_MAX_RAILS] = {false}, of_higher[TTI_RDMA_MAX_RAILS] = {false};
    uint64_t low = 0, high = 0;
    for (int i = 0; i < pairs; i++) {
        if (one_network && !match_one_network(lower, higher, pair[i]))
            continue;
        if (!of_lower[pair[i].lower])
            low += 1 + (uint64_t)lower->port[pair[i].lower].speed;
        if (!of_higher[pair[i].higher])
            high += 1 + (uint64_t)higher->port[pair[i].higher].speed;
        of_lower[pair[i].lower] = of_higher[pair[i].higher] = true;
    }
    return low < high ? low : high;
}

/* Between two networks there may be no route, and a queue pair that cannot be made is the end of
 * the connection. So where ports within networks carry half of all or more, the others are let go;
 * where these are the most, the rails have routes, and what shares a network is a port for other
 * things. */
static int match_drop(const struct tti_rdma_advert *lower, const struct tti_rdma_advert *higher,
                      struct tti_rdma_pair *pair, int pairs)
{
    int kept = 0;
    if (match_line(lower, higher, pair, pairs, true) <
        (match_line(lower, higher, pair, pairs, false) + 1) / 2)
        return pairs;
    for (int i = 0; i < pairs; i++)
        if (match_one_network(lower, higher, pair[i]))
            pair[kept++] = pair[i];
    return kept;
}

int tti_rdma_match(const struct tti_rdma_advert *lower, const struct tti_rdma_advert *higher,
                   struct tti_rdma_pair pair[TTI_RDMA_MAX_RAILS])
{
    bool lower_leads = lower->count >= higher->count;
    const struct tti_rdma_advert *more = lower_leads ? lower : higher;
    const struct tti_rdma_advert *fewer = lower_leads ? higher : lower;
    int used[TTI_RDMA_MAX_RAILS] = {0}, pairs = 0;
    for (int i = 0; i < more->count; i++) {
        int best = -1, best_score = 0;
        for (int k = 0; k < fewer->count; k++) {
            const struct tti_rdma_port *one = &more->port[i], *other = &fewer->port[k];
            if (!match_can_talk(one, other))
                continue;
            int score =
                1000 + (match_near(one, other) ? 100 : 0) - 2 * used[k] + (k == i % fewer->count);
            if (score > best_score) {
                best_score = score;
                best = k;
            }
        }
        if (best < 0)
            continue;
        used[best]++;
        pair[pairs++] = lower_leads ? (struct tti_rdma_pair){(uint8_t)i, (uint8_t)best}
                                    : (struct tti_rdma_pair){(uint8_t)best, (uint8_t)i};
    }
    return match_drop(lower, higher, pair, pairs);
}

/* To how many of the two ends is a pair near, if those of one or the other count? */
static int prefer_near(const struct tti_rdma_advert *lower, const struct tti_rdma_advert *higher,
                       const struct tti_rdma_pair *pair, bool of_lower, bool of_higher)
{
    return (of_lower && !lower->port[pair->lower].far) +
           (of_higher && !higher->port[pair->higher].far);
}

int tti_rdma_prefer(const struct tti_rdma_advert *lower, const struct tti_rdma_advert *higher,
                    struct tti_rdma_pair *pair, int pairs)
{
    const bool lower_counts = lower->count >= higher->count;
    const bool higher_counts = higher->count >= lower->count;
    const struct {
        bool of_lower, of_higher;
        int least;
    } wishes[] = {{true, true, 2}, {lower_counts, higher_counts, 1}, {true, true, 1}};
    for (size_t w = 0; w < sizeof wishes / sizeof wishes[0]; w++) {
        int first = 0;
        for (int i = 0; i < pairs; i++) {
            const struct tti_rdma_pair found = pair[i];
            if (prefer_near(lower, higher, &found, wishes[w].of_lower, wishes[w].of_higher) <
                wishes[w].least)
                continue;
            for (int at = i; at > first; at--) /* the order of the others stays */
                pair[at] = pair[at - 1];
            pair[first++] = found;
        }
        if (first > 0)
            return first;
    }
    return pairs;
}

int tti_rdma_usual(int near, int pairs, int qps)
{
    const int room = TTI_RDMA_MAX_QPS - (pairs - near);
    return near * qps < room ? near * qps : room;
}
