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
#include "coll/fused.h"

#include "base/clock.h"
#include "base/log.h"
#include "coll/exec_internal.h"
#include "device/memory.h"
#include "transport/registry.h"

#include <string.h>

enum {
    WITHDRAW_MS = 3000, /* how long a peer has to finish the share that it is at */
    MOST_SKIPPED = 64,  /* operations for which a refusal counts */
};

/* The first message. */
struct fused_offer {
    uint64_t mappable; /* 0: neither place means anything */
    struct tutti_place in, out;
};

struct fused_done {
    uint64_t done;
};

struct fused {
    struct tutti_comm *comm;
    const struct tti_operation *o;
    uint64_t tag;
    unsigned idle;
    uint64_t deadline; /* 0: nothing had to be waited for long enough to look at the clock */
    size_t in_bytes, out_bytes; /* of what others use; 0: nothing */
    uint64_t renewals;
    bool offered;
    struct fused_offer mine[TTI_FUSED_RANKS], theirs[TTI_FUSED_RANKS];
    struct tti_fused_views views;
};

/* ---- messages ---- */

/* One more turn in which nothing moved. */
static enum tutti_result fused_wait(struct fused *f)
{
    enum { TURNS_BEFORE_CLOCK = 16 };
    if (++f->idle < TURNS_BEFORE_CLOCK) {
        tti_cpu_relax();
        return TUTTI_OK;
    }
    if (f->deadline == 0)
        f->deadline = tti_deadline_in(f->comm->settings.timeout_s);
    return tti_exec_idle(f->comm->executor, f->idle - TURNS_BEFORE_CLOCK, f->deadline);
}

static enum tutti_result fused_send(struct fused *f, int peer, const void *message, size_t bytes)
{
    struct tti_link *link = &f->comm->links.all[peer];
    size_t sent = 0;
    while (sent < bytes) {
        size_t accepted = 0;
        enum tutti_result result = link->ops->send(
            link->endpoint, 0, f->tag, (const char *)message + sent, bytes - sent, &accepted);
        if (result != TUTTI_OK)
            return tti_comm_link_failed(f->comm, result);
        link->queues[0].accepted += accepted;
        sent += accepted;
        if (accepted == 0)
            TTI_TRY(fused_wait(f));
    }
    return TUTTI_OK;
}

static enum tutti_result fused_receive(struct fused *f, int peer, void *message, size_t bytes)
{
    struct tti_link *link = &f->comm->links.all[peer];
    size_t taken = 0;
    f->comm->executor->fast_from = peer;
    f->idle = 0;
    while (taken < bytes) {
        const void *data = NULL;
        size_t ready = 0;
        uint64_t tag = 0;
        enum tutti_result result = link->ops->peek(link->endpoint, 0, &tag, &data, &ready);
        if (result != TUTTI_OK)
            return tti_comm_link_failed(f->comm, result);
        if (ready == 0) {
            TTI_TRY(fused_wait(f));
            continue;
        }
        if (tag != f->tag)
            return tti_exec_mismatch(f->comm->executor, peer, f->tag, tag);
        if (ready > bytes - taken)
            ready = bytes - taken;
        memcpy((char *)message + taken, data, ready);
        link->ops->consume(link->endpoint, 0, ready);
        taken += ready;
    }
    return TUTTI_OK;
}

/* Messages lie in this frame: a transport that does not copy them must be through with them. */
static enum tutti_result fused_released(struct fused *f)
{
    for (int p = 0; p < f->comm->size; p++) {
        struct tti_link *link = &f->comm->links.all[p];
        while (p != f->comm->rank &&
               link->ops->released(link->endpoint, 0) < link->queues[0].accepted)
            TTI_TRY(fused_wait(f));
    }
    return TUTTI_OK;
}

/* ---- the operation ---- */

static bool fused_is_whose(enum tti_fused_whose whose, int rank, int root)
{
    return whose == TTI_FUSED_ALL || (whose == TTI_FUSED_ROOT && rank == root);
}

/* Bytes of the buffers of `rank` that others use. */
static size_t fused_used(const struct fused *f, int rank, bool out)
{
    const struct tti_operation *o = f->o;
    uint32_t blocks[2] = {0, 0};
    enum tti_fused_whose whose = out ? tti_fused_out(o->collective) : tti_fused_in(o->collective);
    if (!fused_is_whose(whose, rank, o->root))
        return 0;
    tti_shape(o->collective, f->comm->size, rank, o->root, &blocks[0], &blocks[1]);
    return blocks[out] * o->count * tutti_type_size(o->type);
}

/* Describe the own buffers to a peer. */
static bool fused_describe(const struct fused *f, int peer, struct fused_offer *offer)
{
    struct tti_link *link = &f->comm->links.all[peer];
    if (!tti_transport_maps(link->ops))
        return false;
    if (f->in_bytes && !link->ops->offer(link->endpoint, f->o->in, f->in_bytes, &offer->in))
        return false;
    return !f->out_bytes || link->ops->offer(link->endpoint, f->o->out, f->out_bytes, &offer->out);
}

static enum tutti_result fused_offers(struct fused *f, bool *mappable)
{
    int rank = f->comm->rank, n = f->comm->size;
    bool all = true;
    for (int p = 0; p < n && all; p++) {
        memset(&f->mine[p], 0, sizeof f->mine[p]);
        all = p == rank || fused_describe(f, p, &f->mine[p]);
    }
    f->offered = all;
    for (int k = 1; k < n; k++) {
        int p = (rank + k) % n;
        f->mine[p].mappable = all;
        TTI_TRY(fused_send(f, p, &f->mine[p], sizeof f->mine[p]));
    }
    for (int k = 1; k < n; k++) {
        int p = (rank + k) % n;
        TTI_TRY(fused_receive(f, p, &f->theirs[p], sizeof f->theirs[p]));
        all = all && f->theirs[p].mappable;
    }
    *mappable = all;
    return TUTTI_OK;
}

static enum tutti_result fused_map_peer(struct fused *f, int peer)
{
    struct tti_link *link = &f->comm->links.all[peer];
    size_t in = fused_used(f, peer, false), out = fused_used(f, peer, true);
    void *at = NULL;
    enum tutti_result result = TUTTI_OK;
    if (in)
        result = link->ops->map(link->endpoint, &f->theirs[peer].in, in, &at);
    f->views.in[peer] = at;
    if (result == TUTTI_OK && out)
        result = link->ops->map(link->endpoint, &f->theirs[peer].out, out, &f->views.out[peer]);
    return result == TUTTI_OK ? TUTTI_OK : tti_comm_link_failed(f->comm, result);
}

static void fused_unmap(struct fused *f)
{
    for (int p = 0; p < f->comm->size; p++)
        if (p != f->comm->rank)
            f->comm->links.all[p].ops->unmap(f->comm->links.all[p].endpoint);
}

/* Another communicator may have had to cut off the pages that this operation's peers have mapped:
 * then what they have stored is not here. */
static enum tutti_result fused_check_pages(struct fused *f)
{
    struct fused_offer now;
    if (tti_region_renewals() == f->renewals)
        return TUTTI_OK;
    for (int p = 0; p < f->comm->size; p++)
        if (p != f->comm->rank && (!fused_describe(f, p, &now) ||
                                   (f->in_bytes && now.in.region != f->mine[p].in.region) ||
                                   (f->out_bytes && now.out.region != f->mine[p].out.region)))
            return tti_comm_fail(
                f->comm, TTI_FAIL(TUTTI_ERR_PEER,
                                  "the buffers' memory was cut off from the other ranks while they "
                                  "used it, because another communicator failed; communicators in "
                                  "use at the same time should have allocations of their own"));
    return TUTTI_OK;
}

/* Bytes of all buffers of the operation, on this host. */
static size_t fused_touched(const struct fused *f)
{
    double block = (double)f->o->count * (double)tutti_type_size(f->o->type);
    return (size_t)(tti_fused_touched(f->o->collective, f->comm->size) * block) *
           (size_t)f->comm->size;
}

static enum tutti_result fused_share(struct fused *f)
{
    const struct fused_done done = {1};
    struct fused_done theirs;
    int rank = f->comm->rank, n = f->comm->size;
    f->views.in[rank] = f->o->in;
    f->views.out[rank] = f->o->out;
    for (int p = 0; p < n; p++)
        if (p != rank)
            TTI_TRY(fused_map_peer(f, p));
    tti_copy_expect(fused_touched(f));
    tti_fused_share(f->comm, f->o, &f->views);
    fused_unmap(f);
    for (int k = 1; k < n; k++)
        TTI_TRY(fused_send(f, (rank + k) % n, &done, sizeof done));
    for (int k = 1; k < n; k++)
        TTI_TRY(fused_receive(f, (rank + k) % n, &theirs, sizeof theirs));
    TTI_TRY(fused_released(f));
    return fused_check_pages(f);
}

/* Nobody may write to the caller's buffers once it has the error. */
static enum tutti_result fused_withdraw(struct fused *f, enum tutti_result code)
{
    struct tti_error error;
    uint64_t deadline = tti_deadline_in(WITHDRAW_MS / 1e3);
    tti_error_save(&error, code);
    (void)tti_comm_fail(f->comm, code); /* whoever waits for us need not wait any longer */
    fused_unmap(f);
    for (int p = 0; p < f->comm->size; p++) {
        struct tti_link *link = &f->comm->links.all[p];
        if (p == f->comm->rank)
            continue;
        enum tutti_result result =
            link->ops->withdraw(link->endpoint, tti_deadline_ms(deadline, WITHDRAW_MS));
        if (result != TUTTI_OK) {
            TTI_LOG(TTI_LOG_ERROR, "after a failure: %s", tti_error_text());
        }
    }
    return tti_error_restore(&error);
}

static enum tutti_result fused_run(struct fused *f, bool *served)
{
    TTI_TRY(fused_offers(f, served));
    return *served ? fused_share(f) : fused_released(f);
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

static void fused_record(struct tti_fused_record *record, bool served)
{
    record->served += served;
    record->refused = served ? 0 : record->refused + 1;
    if (!served)
        record->skip = record->refused < 6 ? 1u << record->refused : (unsigned)MOST_SKIPPED;
}

enum tutti_result tti_fused(struct tutti_comm *comm, const struct tti_operation *o,
                            const struct tti_selection *selection, const struct tti_label *label,
                            bool *served)
{
    struct tti_fused_record *record = &comm->fused[o->collective];
    struct fused f;
    if (record->skip > 0) {
        record->skip--;
        *served = false;
        return TUTTI_OK;
    }
    TTI_TRY(fused_links(comm, label));
    f.comm = comm;
    f.o = o;
    f.tag = tti_tag_fused(o, selection->index);
    f.idle = 0;
    f.deadline = 0;
    f.offered = false;
    f.renewals = tti_region_renewals();
    f.in_bytes = fused_used(&f, comm->rank, false);
    f.out_bytes = fused_used(&f, comm->rank, true);
    struct tti_executor *x = comm->executor;
    x->label = label;
    x->lane_count = 0;
    enum tutti_result result = fused_run(&f, served);
    x->fast_from = -1;
    if (result != TUTTI_OK)
        return f.offered ? fused_withdraw(&f, result) : result;
    fused_record(record, *served);
    return TUTTI_OK;
}
