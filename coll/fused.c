/* The fused path (coll/fused.h): its protocol.
 *
 * Every rank sends every peer one message of a cache line: where its input and its output are, or
 * that it cannot say. Having seen all of them, each rank maps the others' buffers, does its share
 * (fused_share.c), and sends every peer a second message; when all of those are there, the
 * operation is complete here. A rank says the same to all, so all come to the same conclusion: if
 * one cannot, nobody does, and it is not tried again for a while.
 *
 * If it fails half-way, the caller gets its buffers back while a peer may still be at work in them:
 * the offers are withdrawn first, which ends that or cuts the peer off (plugin.h). */
#include "coll/fused_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/types.h"
#include "coll/exec_internal.h"
#include "device/cpu_caches.h"
#include "device/memory.h"
#include "transport/registry.h"

#include <string.h>

enum {
    WITHDRAW_MS = 3000,     /* how long a peer has to finish the share that it is at ... */
    WITHDRAW_LATE_MS = 100, /* ... and if it has had a deadline for it already */
    MOST_REFUSED = 8,       /* a refusal counts for at most 2^8 operations of the size */
    EDGED_LEAST = 32 << 10, /* bytes of a block; below, edges cost more than is saved */
};
_Static_assert(MOST_REFUSED < 16, "what is skipped is counted in 16 bits");

/* ---- messages ---- */

/* One more turn in which nothing came from the peer, or nothing was taken by it. */
static enum tutti_result fused_wait(struct tti_fused_run *f, int peer, bool sends)
{
    enum { TURNS_BEFORE_CLOCK = 16, TURNS_CROWDED = 2 };
    const unsigned turns = tti_exec_crowded(f->comm) ? TURNS_CROWDED : TURNS_BEFORE_CLOCK;
    if (++f->idle < turns) {
        tti_cpu_relax();
        return TUTTI_OK;
    }
    if (f->deadline == 0)
        f->deadline = tti_deadline_in(f->comm->settings.timeout_s);
    tti_fused_noted(f); /* else the record before it would wait */
    f->comm->executor->fast_peer = peer;
    f->comm->executor->fast_sends = sends;
    return tti_exec_idle(f->comm->executor, f->idle - turns, f->deadline);
}

enum tutti_result tti_fused_send(struct tti_fused_run *f, int peer, const void *message,
                                 size_t bytes)
{
    struct tti_link *link = &f->comm->links.all[peer];
    size_t sent = 0;
    while (sent < bytes) {
        size_t accepted = 0;
        enum tutti_result result = link->ops->send(
            link->endpoint, 0, f->tag, (const char *)message + sent, bytes - sent, &accepted);
        if (result != TUTTI_OK) {
            tti_fused_noted(f); /* others are told of it at once */
            return tti_comm_link_failed(f->comm, result);
        }
        link->queues[0].accepted += accepted;
        sent += accepted;
        if (accepted == 0)
            TTI_TRY(fused_wait(f, peer, true));
    }
    return TUTTI_OK;
}

/* How long the message is can be seen in its first bytes. */
static size_t fused_offer_bytes(const struct tti_fused_offer *offer)
{
    return offer->edged ? sizeof *offer : TTI_FUSED_OFFER_SHORT;
}

/* `bytes` of a message; or an offer, whose length is its own. */
enum tutti_result tti_fused_receive(struct tti_fused_run *f, int peer, void *message, size_t bytes,
                                    struct tti_fused_offer *offer)
{
    struct tti_link *link = &f->comm->links.all[peer];
    size_t taken = 0;
    f->idle = 0;
    while (taken < bytes) {
        const void *data = NULL;
        size_t ready = 0;
        uint64_t tag = 0;
        enum tutti_result result = link->ops->peek(link->endpoint, 0, &tag, &data, &ready);
        if (result != TUTTI_OK)
            return tti_comm_link_failed(f->comm, result);
        if (ready == 0) {
            if (!tti_exec_await(f->comm, link))
                TTI_TRY(fused_wait(f, peer, false));
            continue;
        }
        if (tag != f->tag)
            return tti_exec_mismatch(f->comm->executor, peer, f->tag, tag);
        if (offer && taken == 0) {
            memcpy(offer, data, ready < TTI_FUSED_OFFER_SHORT ? ready : TTI_FUSED_OFFER_SHORT);
            bytes = fused_offer_bytes(offer);
        }
        if (ready > bytes - taken)
            ready = bytes - taken;
        memcpy((char *)message + taken, data, ready);
        result = tti_link_intact(link, 0);
        if (result != TUTTI_OK)
            return tti_comm_link_failed(f->comm, result);
        link->ops->consume(link->endpoint, 0, ready);
        taken += ready;
    }
    return TUTTI_OK;
}

/* Messages lie in this frame: a transport that does not copy them must be through with them. */
static enum tutti_result fused_released(struct tti_fused_run *f)
{
    for (int p = 0; p < f->comm->size; p++) {
        struct tti_link *link = &f->comm->links.all[p];
        while (p != f->comm->rank &&
               link->ops->released(link->endpoint, 0) < link->queues[0].accepted)
            TTI_TRY(fused_wait(f, p, true));
    }
    return TUTTI_OK;
}

/* ---- the operation ---- */

static bool fused_is_whose(enum tti_fused_whose whose, int rank, int root)
{
    return whose == TTI_FUSED_ALL || (whose == TTI_FUSED_ROOT && rank == root);
}

/* Elements of a buffer of `rank` that others use. */
size_t tti_fused_used(const struct tti_fused_run *f, int rank, bool out)
{
    const struct tti_operation *o = f->o;
    uint32_t blocks[2] = {0, 0};
    enum tti_fused_whose whose = out ? tti_fused_out(o->collective) : tti_fused_in(o->collective);
    if (!fused_is_whose(whose, rank, o->root))
        return 0;
    tti_shape(o->collective, f->comm->size, rank, o->root, &blocks[0], &blocks[1]);
    return blocks[out] * o->count;
}

/* Offer one own buffer to a peer: the whole, or the whole pages in it. */
static bool fused_describe_one(const struct tti_fused_run *f, struct tti_link *link,
                               const void *data, size_t elements, struct tutti_place *place,
                               bool *apart, uint32_t *head, uint32_t *tail)
{
    *head = *tail = 0;
    if (elements == 0 ||
        (!*apart && link->ops->offer(link->endpoint, data, elements * f->size, place)))
        return true;
    *apart = true;
    return tti_fused_edges_of(data, elements, f->size, head, tail) &&
           link->ops->offer(link->endpoint, (const char *)data + *head * f->size,
                            (elements - *head - *tail) * f->size, place);
}

/* Describe the own buffers to a peer. */
static bool fused_describe(struct tti_fused_run *f, int peer, struct tti_fused_offer *offer)
{
    struct tti_link *link = &f->comm->links.all[peer];
    struct tti_fused_edges *e = &offer->edges;
    memset(offer, 0, sizeof *offer);
    if (!tti_transport_maps(link->ops) ||
        !fused_describe_one(f, link, f->o->in, f->in_count, &offer->in, &f->in_apart, &e->in_head,
                            &e->in_tail) ||
        !fused_describe_one(f, link, f->o->out, f->out_count, &offer->out, &f->out_apart,
                            &e->out_head, &e->out_tail))
        return false;
    if (!(e->in_head || e->in_tail || e->out_head || e->out_tail))
        return true;
    if (f->o->count * f->size < EDGED_LEAST && !f->comm->settings.fused_forced)
        return false;
    offer->edged = 1;
    void **aside = &f->comm->fused_aside;
    return (*aside || tti_region_alloc(TTI_FUSED_ASIDE_BYTES, aside) == TUTTI_OK) &&
           link->ops->offer(link->endpoint, *aside, TTI_FUSED_ASIDE_BYTES, &offer->aside);
}

/* Describe them to all, with the same edges: once more if some peer, a process and not a thread,
 * can map less than those before it. */
static bool fused_describe_all(struct tti_fused_run *f)
{
    int rank = f->comm->rank, n = f->comm->size;
    for (;;) {
        bool all = fused_describe(f, (rank + 1) % n, &f->mine[(rank + 1) % n]);
        const bool in_apart = f->in_apart, out_apart = f->out_apart;
        for (int k = 2; k < n && all; k++)
            all = fused_describe(f, (rank + k) % n, &f->mine[(rank + k) % n]);
        if (!all || (f->in_apart == in_apart && f->out_apart == out_apart))
            return all;
    }
}

static enum tutti_result fused_offers(struct tti_fused_run *f, bool *mappable)
{
    int rank = f->comm->rank, n = f->comm->size;
    bool all = fused_describe_all(f);
    f->offered = all;
    if (all) {
        f->edges = f->mine[(rank + 1) % n].edges; /* the same for all */
        tti_fused_edges_out(f->o->in, f->in_count, f->size, &f->edges, f->comm->fused_aside);
    }
    for (int k = 1; k < n; k++) {
        int p = (rank + k) % n;
        f->mine[p].mappable = all;
        f->mine[p].edged = all && f->mine[p].edged;
        TTI_TRY(tti_fused_send(f, p, &f->mine[p], fused_offer_bytes(&f->mine[p])));
    }
    for (int k = 1; k < n; k++) {
        int p = (rank + k) % n;
        memset(&f->theirs[p], 0, sizeof f->theirs[p]);
        TTI_TRY(tti_fused_receive(f, p, &f->theirs[p], sizeof f->theirs[p], &f->theirs[p]));
        all = all && f->theirs[p].mappable;
    }
    *mappable = all;
    return TUTTI_OK;
}

/* The views of a rank's buffers, of so many elements, whose mapped parts begin at in and out. */
static void fused_view(struct tti_fused_run *f, int rank, char *in, size_t in_count, char *out,
                       size_t out_count, char *aside, const struct tti_fused_edges *e)
{
    tti_fused_view(&f->views.in[rank], in, aside, e->in_head, e->in_tail, in_count, f->size);
    tti_fused_view(&f->views.out[rank], out, aside ? aside + 2 * TTI_FUSED_EDGE_BYTES : NULL,
                   e->out_head, e->out_tail, out_count, f->size);
}

static enum tutti_result fused_map_peer(struct tti_fused_run *f, int peer)
{
    struct tti_link *link = &f->comm->links.all[peer];
    const struct tti_fused_offer *offer = &f->theirs[peer];
    const struct tti_fused_edges *e = &offer->edges;
    size_t in = tti_fused_used(f, peer, false), out = tti_fused_used(f, peer, true);
    void *at[3] = {NULL, NULL, NULL};
    enum tutti_result result = TUTTI_OK;
    if (!tti_fused_edges_sound(e->in_head, e->in_tail, in, f->size) ||
        !tti_fused_edges_sound(e->out_head, e->out_tail, out, f->size))
        return tti_comm_fail(f->comm, TTI_FAIL(TUTTI_ERR_PROTOCOL,
                                               "rank %d (%s) describes a buffer that cannot be",
                                               peer, f->comm->peers.all[peer].name));
    if (in)
        result = link->ops->map(link->endpoint, &offer->in,
                                (in - e->in_head - e->in_tail) * f->size, &at[0]);
    if (result == TUTTI_OK && out)
        result = link->ops->map(link->endpoint, &offer->out,
                                (out - e->out_head - e->out_tail) * f->size, &at[1]);
    if (result == TUTTI_OK && offer->edged)
        result = link->ops->map(link->endpoint, &offer->aside, TTI_FUSED_ASIDE_BYTES, &at[2]);
    if (result != TUTTI_OK)
        return tti_comm_link_failed(f->comm, result);
    fused_view(f, peer, at[0], in, at[1], out, at[2], e);
    return TUTTI_OK;
}

static void fused_unmap(struct tti_fused_run *f)
{
    for (int p = 0; p < f->comm->size; p++)
        if (p != f->comm->rank && f->comm->links.all[p].ops->unmap)
            f->comm->links.all[p].ops->unmap(f->comm->links.all[p].endpoint);
}

/* Another communicator may have had to cut off the pages that this operation's peers have mapped:
 * then what they have stored is not here. */
enum tutti_result tti_fused_check_pages(struct tti_fused_run *f)
{
    struct tti_fused_offer now;
    if (tti_region_renewals() == f->renewals)
        return TUTTI_OK;
    for (int p = 0; p < f->comm->size; p++)
        if (p != f->comm->rank &&
            (!fused_describe(f, p, &now) || now.in.region != f->mine[p].in.region ||
             now.out.region != f->mine[p].out.region ||
             now.aside.region != f->mine[p].aside.region))
            return tti_comm_fail(
                f->comm, TTI_FAIL(TUTTI_ERR_PEER,
                                  "the buffers' memory was cut off from the other ranks while they "
                                  "used it, because another communicator failed; communicators in "
                                  "use at the same time should have allocations of their own"));
    return TUTTI_OK;
}

size_t tti_fused_touches(const struct tti_fused_run *f)
{
    double block = (double)f->o->count * (double)f->size;
    double touched = tti_fused_touched(f->o->collective, f->comm->size) * block;
    if (f->o->in == f->o->out)
        touched /= 2;
    return (size_t)touched * (size_t)f->comm->size;
}

enum tutti_result tti_fused_through(struct tti_fused_run *f)
{
    const struct tti_fused_done done = {1};
    struct tti_fused_done theirs;
    int rank = f->comm->rank, n = f->comm->size;
    fused_unmap(f);
    for (int k = 1; k < n; k++)
        TTI_TRY(tti_fused_send(f, (rank + k) % n, &done, sizeof done));
    for (int k = 1; k < n; k++)
        if (!tti_fused_heard(f, (rank + k) % n, &done, sizeof done))
            TTI_TRY(tti_fused_receive(f, (rank + k) % n, &theirs, sizeof theirs, NULL));
    return fused_released(f);
}

/* For how much the caches must have room, or stores go around them. An all-to-all does not find
 * what it left there the last time, and gains by them as long as they hold it (two ranks on Zen 5,
 * 7 MiB each: 180 us around them, 130 not); processors in a mesh were not looked at. */
static size_t fused_cached(const struct tti_fused_run *f)
{
    const size_t touches = tti_fused_touches(f);
    return f->o->collective == TUTTI_ALL_TO_ALL && !tti_cpu_meshed()
               ? touches
               : tti_fused_and_others(touches);
}

static enum tutti_result fused_general(struct tti_fused_run *f)
{
    int rank = f->comm->rank, n = f->comm->size;
    /* The own buffers as the peers see them, edges apart: those of OUT are copied back at the end.
     */
    char *in = f->in_count ? (char *)(uintptr_t)f->o->in + f->edges.in_head * f->size : NULL;
    char *out = f->out_count ? (char *)f->o->out + f->edges.out_head * f->size : NULL;
    fused_view(f, rank, in, f->in_count, out, f->out_count, f->comm->fused_aside, &f->edges);
    for (int p = 0; p < n; p++)
        if (p != rank)
            TTI_TRY(fused_map_peer(f, p));
    tti_copy_expect(fused_cached(f));
    tti_fused_share(f->comm, f->o, &f->views);
    TTI_TRY(tti_fused_through(f));
    tti_fused_edges_back(f->o->out, f->out_count, f->size, &f->edges, f->comm->fused_aside);
    return tti_fused_check_pages(f);
}

/* Nobody may write to the caller's buffers once it has the error. */
static enum tutti_result fused_withdraw(struct tti_fused_run *f, enum tutti_result code)
{
    struct tti_error error;
    const int patience = code == TUTTI_ERR_TIMEOUT ? WITHDRAW_LATE_MS : WITHDRAW_MS;
    uint64_t deadline = tti_deadline_in(patience / 1e3);
    tti_error_save(&error, code);
    (void)tti_comm_fail(f->comm, code); /* whoever waits for us need not wait any longer */
    fused_unmap(f);
    for (int p = 0; p < f->comm->size; p++) {
        struct tti_link *link = &f->comm->links.all[p];
        if (p == f->comm->rank)
            continue;
        enum tutti_result result =
            link->ops->withdraw(link->endpoint, tti_deadline_ms(deadline, patience));
        if (result != TUTTI_OK) {
            TTI_LOG(TTI_LOG_ERROR, "after a failure: %s", tti_error_text());
        }
    }
    return tti_error_restore(&error);
}

enum tutti_result tti_fused_rest(struct tti_fused_run *f, bool mappable)
{
    if (mappable)
        return fused_general(f);
    fused_unmap(f); /* what was offered is offered no more */
    return fused_released(f);
}

static enum tutti_result fused_run(struct tti_fused_run *f, bool *served)
{
    TTI_TRY(fused_offers(f, served));
    return tti_fused_rest(f, *served);
}

/* ---- is it tried? ---- */

static enum tutti_result fused_links(struct tutti_comm *comm, const struct tti_label *label)
{
    int missing[TTI_FUSED_RANKS], count = 0;
    for (int p = 0; p < comm->size; p++)
        if (p != comm->rank && !comm->links.all[p].connected)
            missing[count++] = p;
    if (count == 0)
        return TUTTI_OK;
    return tti_links_connect(comm, missing, count, tti_deadline_in(comm->settings.timeout_s),
                             label);
}

struct tti_fused_class *tti_fused_class(struct tutti_comm *comm, const struct tti_operation *o)
{
    uint64_t bytes = (uint64_t)o->count * tti_type_bytes(o->type);
    return &comm->fused[o->collective].by_size[(64 - __builtin_clzll(bytes)) / 2];
}

bool tti_fused_skips(struct tutti_comm *comm, const struct tti_operation *o)
{
    struct tti_fused_class *class = tti_fused_class(comm, o);
    if (class->skip == 0)
        return false;
    class->skip--;
    return true;
}

static void fused_record(struct tti_fused_class *class, bool served)
{
    class->refused = (uint16_t)(served ? 0 : class->refused + (class->refused < MOST_REFUSED));
    class->skip = (uint16_t)(served ? 0 : 1u << class->refused);
}

void tti_fused_begin(struct tti_fused_run *f, struct tutti_comm *comm,
                     const struct tti_operation *o, int algorithm, const struct tti_label *label)
{
    f->comm = comm;
    f->o = o;
    f->tag = tti_tag_numbered(tti_tag_fused(o, algorithm), label->sequence);
    f->idle = 0;
    f->deadline = 0;
    f->offered = false;
    f->unnoted = NULL;
    f->in_apart = f->out_apart = false;
    f->renewals = tti_region_renewals();
    f->size = tti_type_bytes(o->type);
    comm->executor->label = label;
    comm->executor->lane_count = 0;
}

enum tutti_result tti_fused_end(struct tti_fused_run *f, enum tutti_result result, bool served)
{
    struct tutti_comm *comm = f->comm;
    comm->executor->fast_peer = -1;
    if (result != TUTTI_OK)
        return f->offered ? fused_withdraw(f, result) : result;
    fused_record(tti_fused_class(comm, f->o), served);
    comm->fused[f->o->collective].served += served;
    return TUTTI_OK;
}

enum tutti_result tti_fused(struct tutti_comm *comm, const struct tti_operation *o,
                            const struct tti_selection *selection, const struct tti_label *label,
                            bool *served)
{
    struct tti_fused_run f;
    *served = false;
    if (tti_fused_skips(comm, o))
        return TUTTI_OK;
    /* Before connecting, so that one whom a peer's failure reaches there says what it was at. */
    tti_record_by(&comm->recorder.ring[0], TTI_RECORD_FUSED, selection->index, 1);
    TTI_TRY(fused_links(comm, label));
    const uint64_t regions = tti_region_changes();
    tti_fused_begin(&f, comm, o, selection->index, label);
    f.in_count = tti_fused_used(&f, comm->rank, false);
    f.out_count = tti_fused_used(&f, comm->rank, true);
    const enum tutti_result result = fused_run(&f, served);
    TTI_TRY(tti_fused_end(&f, result, *served));
    if (*served)
        tti_fused_keep(&f, selection, regions);
    return TUTTI_OK;
}
