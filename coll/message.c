/* A lone message (coll/message.h). On the wire it is what the executor makes of it. */
#include "coll/message.h"

#include "base/clock.h"
#include "coll/exec_internal.h"
#include "device/reduce.h"

#include <string.h>

/* Beyond that the executor's cost is not seen. */
enum { MESSAGE_BYTES = 16 << 10 };

struct message {
    struct tutti_comm *comm;
    struct tti_link *link;
    uint64_t tag;
    char *data;
    size_t left;
    unsigned idle;
    uint64_t deadline; /* 0: nothing had to be waited for yet */
};

/* One more turn in which nothing came, or nothing was taken. */
static enum tutti_result message_wait(struct message *m, bool sends)
{
    const unsigned turns = tti_exec_turns_alone(m->comm, m->link);
    if (++m->idle < turns) {
        tti_cpu_relax();
        return TUTTI_OK;
    }
    if (m->deadline == 0)
        m->deadline = tti_deadline_in(m->comm->settings.timeout_s);
    m->comm->executor->fast_peer = m->link->peer;
    m->comm->executor->fast_sends = sends;
    return tti_exec_idle(m->comm->executor, m->idle - turns, m->deadline);
}

static enum tutti_result message_send(struct message *m)
{
    struct tti_link *link = m->link;
    const bool copied = m->left <= link->copies;
    uint64_t *total = &link->queues[0].accepted;
    while (m->left > 0) {
        size_t accepted = 0;
        enum tutti_result result =
            link->ops->send(link->endpoint, 0, m->tag, m->data, m->left, &accepted);
        if (result != TUTTI_OK)
            return tti_comm_link_failed(m->comm, result);
        *total += accepted;
        m->data += accepted;
        m->left -= accepted;
        if (accepted == 0)
            TTI_TRY(message_wait(m, true));
    }
    while (!copied && link->ops->released(link->endpoint, 0) < *total)
        TTI_TRY(message_wait(m, true));
    return TUTTI_OK;
}

/* What has come of it, if anything: into place. */
static enum tutti_result message_take(struct message *m, size_t *taken)
{
    const struct tti_link *link = m->link;
    const void *data = NULL;
    uint64_t tag = m->tag;
    enum tutti_result result =
        link->ops->receive ? link->ops->receive(link->endpoint, 0, &tag, m->data, m->left, taken)
                           : link->ops->peek(link->endpoint, 0, &tag, &data, taken);
    if (result != TUTTI_OK)
        return tti_comm_link_failed(m->comm, result);
    if (*taken == 0)
        return TUTTI_OK;
    if (tag != m->tag)
        return tti_exec_mismatch(m->comm->executor, link->peer, m->tag, tag);
    if (link->ops->receive)
        return TUTTI_OK;
    if (*taken > m->left)
        *taken = m->left;
    memcpy(m->data, data, *taken);
    result = tti_link_intact(link, 0);
    if (result != TUTTI_OK)
        return tti_comm_link_failed(m->comm, result);
    link->ops->consume(link->endpoint, 0, *taken);
    return TUTTI_OK;
}

static enum tutti_result message_receive(struct message *m)
{
    while (m->left > 0) {
        size_t taken = 0;
        TTI_TRY(message_take(m, &taken));
        m->data += taken;
        m->left -= taken;
        if (taken == 0 && (m->idle > 0 || !tti_exec_await(m->comm, m->link)))
            TTI_TRY(message_wait(m, false));
    }
    return TUTTI_OK;
}

bool tti_message_suits(const struct tutti_comm *comm, const struct tti_operation *o)
{
    return o->root != comm->rank && !o->device && o->count > 0 && comm->settings.fast &&
           o->count <= MESSAGE_BYTES / tutti_type_size(o->type);
}

enum tutti_result tti_message_run(struct tutti_comm *comm, const struct tti_operation *o,
                                  const struct tti_label *label)
{
    struct tti_link *link = &comm->links.all[o->root];
    struct tti_executor *x = comm->executor;
    const uint64_t number = o->receives ? ++link->tagged_receives : ++link->tagged_sends;
    /* The input is only read. */
    struct message m = {.comm = comm,
                        .link = link,
                        .tag = tti_tag_numbered(tti_tag(o, 0), number),
                        .data = o->receives ? o->out : (char *)(uintptr_t)o->in,
                        .left = o->count * tutti_type_size(o->type)};
    x->label = label;
    x->lane_count = 0;
    if (m.left >= TTI_STREAM_BYTES)
        tti_copy_expect(0); /* an operation before it may have been a large one */
    enum tutti_result result = o->receives ? message_receive(&m) : message_send(&m);
    x->fast_peer = -1;
    return result;
}
