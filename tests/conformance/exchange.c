/* Verified traffic (exchange.h). */
#include "tests/conformance/exchange.h"

#include "transport/registry.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is in a message ------------------------------------------------------------------- */

static uint64_t exchange_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t exchange_tag(int from, int to, int lane, int message)
{
    uint64_t number =
        ((uint64_t)from << 48) | ((uint64_t)to << 40) | ((uint64_t)lane << 32) | (uint64_t)message;
    return exchange_mix(number + 0x9e3779b97f4a7c15u);
}

static uint64_t exchange_word(uint64_t tag, uint64_t index)
{
    return (tag ^ index) * 0x9e3779b97f4a7c15u;
}

static unsigned char exchange_byte(uint64_t tag, size_t offset)
{
    return (unsigned char)(exchange_word(tag, offset / 8) >> (8 * (offset % 8)));
}

void conf_fill(uint64_t tag, size_t offset, void *data, size_t bytes)
{
    unsigned char *at = data;
    for (size_t i = 0; i < bytes;) {
        if ((offset + i) % 8 == 0 && bytes - i >= 8) {
            const uint64_t word = htole64(exchange_word(tag, (offset + i) / 8));
            memcpy(at + i, &word, 8);
            i += 8;
        } else {
            at[i] = exchange_byte(tag, offset + i);
            i++;
        }
    }
}

size_t conf_compare(uint64_t tag, size_t offset, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    size_t i = 0;
    while (i < bytes) {
        if ((offset + i) % 8 == 0 && bytes - i >= 8) {
            uint64_t word;
            memcpy(&word, at + i, 8);
            if (le64toh(word) == exchange_word(tag, (offset + i) / 8)) {
                i += 8;
                continue;
            }
        }
        if (at[i] != exchange_byte(tag, offset + i))
            return offset + i;
        i++;
    }
    return SIZE_MAX;
}

/* ---- one direction of one lane -------------------------------------------------------------- */

struct exchange_out {
    int message; /* being sent */
    size_t offset;
    uint64_t accepted, released; /* since this exchange began */
    uint64_t base;               /* released before it */
    int freed;                   /* messages whose buffer is ours again */
    uint64_t end[4];             /* `accepted` at the end of the message in each buffer */
    unsigned char *buffer[4];
};

struct exchange_in {
    int message;
    size_t offset;
};

struct exchange {
    struct conf_rank *me;
    const struct conf_traffic *traffic;
    unsigned char *into; /* for receive */
    struct exchange_out out[CONF_MAX_RANKS][CONF_LANES];
    struct exchange_in in[CONF_MAX_RANKS][CONF_LANES];
};

static size_t exchange_size(const struct conf_traffic *traffic, uint64_t tag, int message)
{
    return traffic->size(exchange_mix(tag), message);
}

static void exchange_check_count(struct conf_rank *me, const char *what, size_t count, size_t most)
{
    CONF_REQUIRE(me, count <= most, "%s: %zu of %zu bytes", what, count, most);
    CONF_REQUIRE(me, count == most || count % TUTTI_FRAGMENT_UNIT == 0,
                 "%s: %zu of %zu bytes is neither all nor a multiple of %d", what, count, most,
                 TUTTI_FRAGMENT_UNIT);
}

static bool exchange_collect(struct exchange *self, int peer, int lane)
{
    struct conf_rank *me = self->me;
    struct exchange_out *out = &self->out[peer][lane];
    uint64_t released = me->ops->released(me->endpoints[peer], lane) - out->base;
    bool moved = released != out->released;
    CONF_REQUIRE(me, released >= out->released, "lane %d: released went back from %llu to %llu",
                 lane, (unsigned long long)out->released, (unsigned long long)released);
    CONF_REQUIRE(me, released <= out->accepted, "lane %d: released %llu of %llu accepted bytes",
                 lane, (unsigned long long)released, (unsigned long long)out->accepted);
    out->released = released;
    if (self->traffic->how & CONF_RESERVE)
        return moved;
    while (out->freed < out->message && out->end[out->freed % self->traffic->buffers] <= released) {
        uint64_t tag = exchange_tag(me->rank, peer, lane, out->freed);
        memset(out->buffer[out->freed % self->traffic->buffers], 0xEE,
               exchange_size(self->traffic, tag, out->freed));
        out->freed++;
    }
    return moved;
}

/* Give the transport more of the current message; true when it took some. */
static bool exchange_offer(struct exchange *self, int peer, int lane)
{
    struct conf_rank *me = self->me;
    const struct conf_traffic *traffic = self->traffic;
    struct exchange_out *out = &self->out[peer][lane];
    uint64_t tag = exchange_tag(me->rank, peer, lane, out->message);
    size_t size = exchange_size(traffic, tag, out->message), accepted = 0;
    size_t left = size - out->offset;
    if (traffic->how & CONF_RESERVE) {
        void *room = NULL;
        accepted = me->ops->reserve(me->endpoints[peer], lane, left, &room);
        exchange_check_count(me, "reserve", accepted, left);
        if (accepted == 0)
            return false;
        if (conf_random(me) % 8 == 0) { /* change our mind: nothing is sent */
            CONF_OK(me, me->ops->commit(me->endpoints[peer], lane, tag, 0));
            return true;
        }
        conf_fill(tag, out->offset, room, accepted);
        CONF_OK(me, me->ops->commit(me->endpoints[peer], lane, tag, accepted));
    } else {
        if (out->message - out->freed >= traffic->buffers)
            return false;
        unsigned char *buffer = out->buffer[out->message % traffic->buffers];
        if (out->offset == 0)
            conf_fill(tag, 0, buffer, size);
        bool lends = (traffic->how & CONF_LEND) && conf_random(me) % 4 != 0;
        tti_transport_send *send = lends ? tti_transport_lends(me->ops) : me->ops->send;
        CONF_OK(me, send(me->endpoints[peer], lane, tag, buffer + out->offset, left, &accepted));
        exchange_check_count(me, "send", accepted, left);
    }
    out->offset += accepted;
    out->accepted += accepted;
    if (out->offset == size) {
        out->end[out->message % traffic->buffers] = out->accepted;
        out->message++;
        out->offset = 0;
    }
    return accepted > 0;
}

static void exchange_verify(struct exchange *self, int peer, int lane, uint64_t got, uint64_t tag,
                            const void *data, size_t bytes)
{
    struct conf_rank *me = self->me;
    struct exchange_in *in = &self->in[peer][lane];
    size_t size = exchange_size(self->traffic, tag, in->message);
    CONF_REQUIRE(me, got == tag, "from rank %d, lane %d, message %d: tag %llx instead of %llx",
                 peer, lane, in->message, (unsigned long long)got, (unsigned long long)tag);
    CONF_REQUIRE(me, bytes <= size - in->offset, "%zu bytes with a tag of %zu", in->offset + bytes,
                 size);
    size_t wrong = conf_compare(tag, in->offset, data, bytes);
    CONF_REQUIRE(me, wrong == SIZE_MAX,
                 "from rank %d, lane %d, message %d of %zu bytes: byte %zu is wrong", peer, lane,
                 in->message, size, wrong);
}

/* Take what has come, in the way that `how` says; returns how many bytes. */
static size_t exchange_take(struct exchange *self, int peer, int lane)
{
    struct conf_rank *me = self->me;
    void *endpoint = me->endpoints[peer];
    struct exchange_in *in = &self->in[peer][lane];
    uint64_t want = exchange_tag(peer, me->rank, lane, in->message), tag = ~want;
    size_t left = exchange_size(self->traffic, want, in->message) - in->offset, bytes = 0;
    const void *data = NULL;
    if (self->traffic->how & CONF_RECEIVE) {
        size_t room = left;
        if (left > TUTTI_FRAGMENT_UNIT && conf_random(me) % 2)
            room = TUTTI_FRAGMENT_UNIT * (1 + conf_random(me) % (left / TUTTI_FRAGMENT_UNIT));
        self->into[room] = 0xA5;
        CONF_OK(me, me->ops->receive(endpoint, lane, &tag, self->into, room, &bytes));
        CONF_REQUIRE(me, bytes <= room && self->into[room] == 0xA5,
                     "receive wrote beyond the %zu bytes asked for", room);
        if (bytes > 0)
            exchange_verify(self, peer, lane, tag, want, self->into, bytes);
        return bytes;
    }
    CONF_OK(me, me->ops->peek(endpoint, lane, &tag, &data, &bytes));
    if (bytes == 0)
        return 0;
    exchange_verify(self, peer, lane, tag, want, data, bytes);
    if (self->traffic->how & CONF_PARTIAL) {
        size_t again = 0;
        CONF_OK(me, me->ops->peek(endpoint, lane, &tag, &data, &again));
        CONF_REQUIRE(me, again >= bytes, "peek gave %zu bytes, then %zu", bytes, again);
        exchange_verify(self, peer, lane, tag, want, data, again);
        if (bytes > TUTTI_FRAGMENT_UNIT && conf_random(me) % 4)
            bytes = TUTTI_FRAGMENT_UNIT * (1 + conf_random(me) % (bytes / TUTTI_FRAGMENT_UNIT));
    }
    me->ops->consume(endpoint, lane, bytes);
    return bytes;
}

static bool exchange_accept(struct exchange *self, int peer, int lane)
{
    struct exchange_in *in = &self->in[peer][lane];
    if ((self->traffic->how & CONF_SLOW) && conf_random(self->me) % 8)
        return false;
    size_t bytes = exchange_take(self, peer, lane);
    in->offset += bytes;
    uint64_t tag = exchange_tag(peer, self->me->rank, lane, in->message);
    if (in->offset == exchange_size(self->traffic, tag, in->message)) {
        in->offset = 0;
        in->message++;
    }
    return bytes > 0;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static bool exchange_sends(const struct exchange *self)
{
    return !(self->traffic->how & CONF_ONE_WAY) || self->me->rank == 0;
}

static bool exchange_takes(const struct exchange *self)
{
    return !(self->traffic->how & CONF_ONE_WAY) || self->me->rank != 0;
}

/* One round over all lanes; *done when everything is sent, released and taken. Returns whether
 * anything moved. */
static bool exchange_round(struct exchange *self, bool *done)
{
    struct conf_rank *me = self->me;
    bool moved = false;
    *done = true;
    for (int peer = 0; peer < me->nranks; peer++)
        for (int lane = 0; me->endpoints[peer] && lane < self->traffic->lanes; lane++) {
            struct exchange_out *out = &self->out[peer][lane];
            struct exchange_in *in = &self->in[peer][lane];
            if (exchange_sends(self)) {
                if (out->message < self->traffic->messages)
                    moved = exchange_offer(self, peer, lane) || moved;
                moved = exchange_collect(self, peer, lane) || moved;
                *done = *done && out->message == self->traffic->messages &&
                        out->released == out->accepted;
            }
            if (exchange_takes(self)) {
                if (in->message < self->traffic->messages)
                    moved = exchange_accept(self, peer, lane) || moved;
                *done = *done && in->message == self->traffic->messages;
            }
        }
    return moved;
}

static void exchange_memory(struct exchange *self)
{
    struct conf_rank *me = self->me;
    const struct conf_traffic *traffic = self->traffic;
    size_t each = (traffic->largest + traffic->skew + 127) / 64 * 64;
    unsigned char *block = NULL;
    int streams = me->nranks * traffic->lanes * traffic->buffers;
    self->into = conf_memory(me, traffic->largest + 1, false);
    if (exchange_sends(self) && !(traffic->how & CONF_RESERVE))
        block = conf_memory(me, each * (size_t)streams + 64, traffic->how & CONF_REGION);
    for (int peer = 0; peer < me->nranks; peer++)
        for (int lane = 0; lane < traffic->lanes; lane++) {
            struct exchange_out *out = &self->out[peer][lane];
            if (me->endpoints[peer])
                out->base = me->ops->released(me->endpoints[peer], lane);
            for (int k = 0; block && k < traffic->buffers; k++) {
                out->buffer[k] = block + traffic->skew;
                block += each;
            }
        }
}

void conf_exchange(struct conf_rank *me, const struct conf_traffic *traffic)
{
    struct exchange *self = conf_memory(me, sizeof *self, false);
    memset(self, 0, sizeof *self);
    self->me = me;
    self->traffic = traffic;
    exchange_memory(self);
    bool done = false, overslept = false;
    while (!done) {
        bool moved = exchange_round(self, &done);
        CONF_REQUIRE(me, !(overslept && moved && !(traffic->how & CONF_SLOW)),
                     "slept for 20 s although something had arrived");
        overslept = false;
        if (done || moved)
            continue;
        CONF_OK(me, me->ops->progress(me->transport));
        if (traffic->how & CONF_SLEEP)
            overslept = !conf_sleep(me, traffic->how & CONF_SLOW ? 1 : CONF_ASLEEP_MS);
        else
            conf_turn(me);
        conf_watch(me, "the exchange");
    }
    conf_barrier(me); /* buffers are freed by the check's end: nobody may still read them */
}

/* ---- single messages ------------------------------------------------------------------------ */

void conf_send_message(struct conf_rank *me, int peer, int lane, uint64_t tag, void *data,
                       size_t bytes)
{
    size_t sent = 0;
    conf_fill(tag, 0, data, bytes);
    while (sent < bytes) {
        size_t accepted = 0;
        CONF_OK(me, me->ops->send(me->endpoints[peer], lane, tag, (char *)data + sent, bytes - sent,
                                  &accepted));
        exchange_check_count(me, "send", accepted, bytes - sent);
        sent += accepted;
        if (accepted == 0)
            conf_turn(me);
        conf_watch(me, "sending");
    }
}

bool conf_take_unless_gone(struct conf_rank *me, int peer, int lane, uint64_t tag, size_t bytes)
{
    size_t taken = 0;
    while (taken < bytes) {
        uint64_t got = ~tag;
        const void *data = NULL;
        size_t ready = 0;
        const enum tutti_result result =
            me->ops->peek(me->endpoints[peer], lane, &got, &data, &ready);
        if (result == TUTTI_ERR_PEER || result == TUTTI_ERR_LINK)
            return false;
        CONF_OK(me, result);
        if (ready == 0) {
            conf_turn(me);
            conf_watch(me, "receiving");
            continue;
        }
        CONF_REQUIRE(me, got == tag, "tag %llx instead of %llx", (unsigned long long)got,
                     (unsigned long long)tag);
        CONF_REQUIRE(me, ready <= bytes - taken, "more bytes than the message has");
        size_t wrong = conf_compare(tag, taken, data, ready);
        CONF_REQUIRE(me, wrong == SIZE_MAX, "byte %zu of %zu is wrong", wrong, bytes);
        me->ops->consume(me->endpoints[peer], lane, ready);
        taken += ready;
    }
    return true;
}

void conf_take_message(struct conf_rank *me, int peer, int lane, uint64_t tag, size_t bytes)
{
    CONF_REQUIRE(me, conf_take_unless_gone(me, peer, lane, tag, bytes), "message %llx: %s",
                 (unsigned long long)tag, tutti_last_error());
}
