/* Small messages (coll/message.h). On the wire they are what the executor makes of them. */
#include "coll/message.h"

#include "base/clock.h"
#include "coll/exec_internal.h"
#include "device/reduce.h"

#include <stdio.h>
#include <string.h>

enum {
    MESSAGE_BYTES = 128 << 10, /* of each; beyond that the executor's cost is not seen, */
    NETWORK_BYTES = 16 << 10,  /* ... and over a network beyond this */
    MESSAGES = 8,              /* of a group */
    LEND_FROM = 4 << 10,       /* of what is exchanged, up to where transports know by themselves */
    LEND_BELOW = 32 << 10
};

struct message {
    struct tti_link *link;
    const struct message *before; /* the last with that peer in the same direction, or NULL */
    uint64_t tag;
    char *data;
    size_t left;
    uint64_t total; /* what its link has accepted once this was */
    bool sends;
    bool lends; /* the peer may read it in its own time */
    bool kept;  /* the transport reads it where it lies, and has not released it yet */
};

struct tti_messages {
    struct tutti_comm *comm;
    struct message all[MESSAGES];
    size_t count, over;
    unsigned idle;
    uint64_t deadline; /* 0: nothing had to be waited for yet */
};

static bool message_over(const struct message *m)
{
    return m->left == 0 && !m->kept;
}

static enum tutti_result message_send(struct tutti_comm *comm, struct message *m, bool *moved)
{
    struct tti_link *link = m->link;
    if (m->left > 0) {
        size_t accepted = 0;
        enum tutti_result result = (m->lends ? link->lend : link->ops->send)(
            link->endpoint, 0, m->tag, m->data, m->left, &accepted);
        if (result != TUTTI_OK)
            return tti_comm_link_failed(comm, result);
        link->queues[0].accepted += accepted;
        m->total = link->queues[0].accepted;
        m->data += accepted;
        m->left -= accepted;
        *moved |= accepted > 0;
    }
    if (m->left == 0 && m->kept && link->ops->released(link->endpoint, 0) >= m->total) {
        m->kept = false;
        *moved = true;
    }
    return TUTTI_OK;
}

/* What has come of it, if anything: into place. */
static enum tutti_result message_receive(struct tutti_comm *comm, struct message *m, bool *moved)
{
    const struct tti_link *link = m->link;
    const void *data = NULL;
    uint64_t tag = m->tag;
    size_t taken = 0;
    enum tutti_result result =
        link->ops->receive ? link->ops->receive(link->endpoint, 0, &tag, m->data, m->left, &taken)
                           : link->ops->peek(link->endpoint, 0, &tag, &data, &taken);
    if (result != TUTTI_OK)
        return tti_comm_link_failed(comm, result);
    if (taken == 0)
        return TUTTI_OK;
    if (tag != m->tag)
        return tti_exec_mismatch(comm->executor, link->peer, m->tag, tag);
    if (!link->ops->receive) {
        if (taken > m->left)
            taken = m->left;
        memcpy(m->data, data, taken);
        result = tti_link_intact(link, 0);
        if (result != TUTTI_OK)
            return tti_comm_link_failed(comm, result);
        link->ops->consume(link->endpoint, 0, taken);
    }
    m->data += taken;
    m->left -= taken;
    *moved = true;
    return TUTTI_OK;
}

/* What can be done for it now. */
static enum tutti_result message_turn(struct tti_messages *run, struct message *m, bool *moved)
{
    if (m->before && m->before->left > 0)
        return TUTTI_OK;
    TTI_TRY(m->sends ? message_send(run->comm, m, moved) : message_receive(run->comm, m, moved));
    run->over += message_over(m);
    return TUTTI_OK;
}

static const struct message *messages_first(const struct tti_messages *run)
{
    const struct message *m = run->all;
    while (message_over(m))
        m++;
    return m;
}

/* One more turn in which nothing came, and nothing was taken. */
static enum tutti_result messages_wait(struct tti_messages *run)
{
    struct tutti_comm *comm = run->comm;
    const struct message *m = messages_first(run);
    const unsigned turns = tti_exec_turns_alone(comm, m->link);
    if (run->idle == 0 && !m->sends && run->over == run->count - 1 && tti_exec_await(comm, m->link))
        return TUTTI_OK;
    if (++run->idle < turns) {
        tti_cpu_relax();
        return TUTTI_OK;
    }
    if (run->deadline == 0)
        run->deadline = tti_deadline_in(comm->settings.timeout_s);
    comm->executor->fast_peer = m->link->peer;
    comm->executor->fast_sends = m->sends;
    return tti_exec_idle(comm->executor, run->idle - turns, run->deadline);
}

static enum tutti_result messages_loop(struct tti_messages *run)
{
    while (run->over < run->count) {
        bool moved = false;
        for (size_t i = 0; i < run->count; i++)
            if (!message_over(&run->all[i]))
                TTI_TRY(message_turn(run, &run->all[i], &moved));
        if (run->over < run->count && !moved)
            TTI_TRY(messages_wait(run));
    }
    return TUTTI_OK;
}

void tti_messages_waits(const struct tti_messages *run, char *text, size_t bytes)
{
    size_t used = 0;
    for (size_t i = 0; i < run->count && used < bytes; i++) {
        const struct message *m = &run->all[i];
        if (!message_over(m))
            used += (size_t)snprintf(text + used, bytes - used, "%s%s rank %d (%s)",
                                     used ? ", " : "", m->sends ? "sending to" : "receiving from",
                                     m->link->peer, run->comm->peers.all[m->link->peer].name);
    }
}

bool tti_messages_suit(const struct tutti_comm *comm, const struct tti_operation *ops, size_t count)
{
    size_t others = 0;
    if (!comm->settings.fast)
        return false;
    for (size_t i = 0; i < count; i++) {
        others += ops[i].root != comm->rank;
        if (others > MESSAGES || ops[i].device || ops[i].count == 0)
            return false;
        const bool memory =
            ops[i].root == comm->rank || tti_link_in_memory(&comm->links.all[ops[i].root]);
        const size_t most = memory ? MESSAGE_BYTES : NETWORK_BYTES;
        if (ops[i].count > most / tutti_type_size(ops[i].type))
            return false;
    }
    return true;
}

/* Who waits for a peer's message anyway can let it read what it is sent instead of copying that
 * first: where both have a core, and memory that the peer maps, that is quicker from 4 KiB on, also
 * if what is sent was just written. */
static void messages_lend(struct tti_messages *run)
{
    if (tti_exec_crowded(run->comm))
        return;
    for (size_t s = 0; s < run->count; s++) {
        struct message *m = &run->all[s];
        if (!m->sends || m->left < LEND_FROM || m->left >= LEND_BELOW ||
            !tti_link_in_memory(m->link))
            continue;
        for (size_t r = 0; r < run->count; r++)
            m->lends |= !run->all[r].sends && run->all[r].link == m->link;
        m->kept |= m->lends;
    }
}

static void messages_begin(struct tti_messages *run, const struct tti_operation *o)
{
    struct message *m = &run->all[run->count++];
    struct tti_link *link = &run->comm->links.all[o->root];
    const uint64_t number = o->receives ? ++link->tagged_receives : ++link->tagged_sends;
    m->link = link;
    m->before = NULL;
    m->tag = tti_tag_numbered(tti_tag(o, 0), number);
    m->data = o->receives ? o->out : (char *)(uintptr_t)o->in; /* which is only read */
    m->left = o->count * tutti_type_size(o->type);
    m->sends = !o->receives;
    m->lends = false;
    m->kept = m->sends && m->left > link->copies;
    for (const struct message *at = run->all; at != m; at++)
        if (at->link == link && at->sends == m->sends)
            m->before = at;
}

enum tutti_result tti_messages_run(struct tutti_comm *comm, const struct tti_operation *ops,
                                   size_t count, const struct tti_label *label)
{
    struct tti_executor *x = comm->executor;
    struct tti_messages run; /* its messages are filled in as they begin */
    size_t bytes = 0;
    run.comm = comm;
    run.count = run.over = 0;
    run.idle = 0;
    run.deadline = 0;
    for (size_t i = 0; i < count; i++) {
        if (ops[i].root == comm->rank)
            continue;
        messages_begin(&run, &ops[i]);
        bytes += run.all[run.count - 1].left;
    }
    if (run.count < count) /* what the rank sends itself, at once */
        TTI_TRY(tti_exchange_self(comm, ops, count, tti_exchange_copy, NULL));
    if (run.count > 1)
        messages_lend(&run);
    x->label = label;
    x->lane_count = 0;
    x->several = &run;
    if (bytes >= TTI_STREAM_BYTES)
        tti_copy_expect(bytes);
    const enum tutti_result result = messages_loop(&run);
    x->several = NULL;
    x->fast_peer = -1;
    return result;
}
