/* Running small plans step by step (coll/small_plan.h).
 *
 * A step that waits holds up the steps after it; no send does: what the transport has no room for
 * is offered again while the program waits for something else. So whatever order the executor finds
 * free of deadlock is so here. */
#include "coll/small_plan.h"

#include "base/clock.h"
#include "base/memory.h"
#include "coll/exec_internal.h"
#include "device/reduce.h"

#include <stdlib.h>
#include <string.h>

enum {
    FIRST_NETWORK_RANK = 30, /* of transports: those below are memory (plugin.h) */
};

/* Where an operand lies: bytes from the base of its buffer. */
struct small_place {
    size_t offset;
    uint8_t buffer; /* enum tti_buffer */
    uint8_t type;   /* enum tutti_type */
};

struct small_step {
    uint8_t kind;      /* enum tti_step_kind */
    bool straight;     /* RECV into place, nothing to convert */
    bool left;         /* RECV_REDUCE: the message is the left operand */
    bool finish;       /* averages */
    uint8_t message;   /* type of what is received */
    uint16_t sends;    /* sends of earlier steps that must be consumed before this one writes */
    int from, to;      /* peers, or -1 */
    size_t n;          /* elements */
    size_t unit;       /* bytes of an element of what is received */
    size_t sent_bytes; /* of the message to `to` */
    struct small_place src, src2, dst;
};

/* What a call's buffers must be beside those of the call that the program was made for. */
struct small_buffers {
    size_t in_bytes, out_bytes; /* that are read and written */
    size_t in_at, out_at;       /* bytes to what must coincide in place ... */
    bool in_place;              /* ... where they may overlap at all */
};

struct tti_small_program {
    uint64_t key;
    uint64_t tag;  /* without the number of the operation */
    int algorithm; /* number */
    struct small_buffers buffers;
    size_t slots; /* bytes of scratch memory before the slots */
    enum tutti_op op;
    struct tti_finish finish;
    size_t count;
    struct small_step steps[];
};

/* ---- making --------------------------------------------------------------------------------- */

/* All that tells one program of a communicator from another, wherever its buffers lie. Arguments
 * may be anything still: what cannot be has no key. */
static bool small_key(const struct tti_operation *o, bool refused, uint64_t *key)
{
    enum { PREMUL = 15 };
    const unsigned op = (unsigned)o->op >= TUTTI_OP_USER ? PREMUL : (unsigned)o->op;
    if (o->count > TTI_SMALL_BYTES || (op | (unsigned)o->type) > 15)
        return false;
    *key = (uint64_t)(uint32_t)o->root << 32 | (uint64_t)o->count << 16 | (uint64_t)refused << 12 |
           (uint64_t)op << 8 | (uint64_t)o->type << 4 | (uint64_t)o->collective;
    return true;
}
_Static_assert(TUTTI_COLLECTIVE_COUNT < 16 && TTI_SMALL_BYTES < 1 << 16, "fields of a key");

static size_t small_slot(uint64_t key)
{
    return (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 60);
}
_Static_assert(TTI_SMALL_PROGRAMS == 16, "small_slot gives four bits");

const struct tti_small_program *tti_small_find(struct tutti_comm *comm,
                                               const struct tti_operation *o, bool refused)
{
    uint64_t key = 0;
    if (!comm->settings.fast || !small_key(o, refused, &key))
        return NULL;
    const struct tti_small_program *found = comm->small.all[small_slot(key)];
    return found && found->key == key ? found : NULL;
}

const struct tti_small_program *tti_small_known(struct tutti_comm *comm,
                                                const struct tti_operation *o)
{
    const struct tti_small_program *found = tti_small_find(comm, o, false);
    if (!found || (unsigned)o->op >= TUTTI_OP_COUNT) /* its operator may be gone */
        return NULL;
    const struct small_buffers *b = &found->buffers;
    const char *in = o->in, *out = o->out;
    if (o->collective == TUTTI_ALL_TO_ALL && in == out) /* the input is moved aside first */
        return NULL;
    if ((b->in_bytes && !in) || (b->out_bytes && !out) ||
        (b->in_place && in + b->in_at != out + b->out_at && in < out + b->out_bytes &&
         out < in + b->in_bytes))
        return NULL;
    return found;
}

static void small_buffers(const struct tutti_comm *comm, const struct tti_operation *o,
                          struct small_buffers *b)
{
    const size_t bytes = o->count * tutti_type_size(o->type);
    uint32_t blocks[2] = {0, 0}, at[2] = {0, 0};
    tti_shape(o->collective, comm->size, comm->rank, o->root, &blocks[0], &blocks[1]);
    b->in_place = tti_in_place(o->collective, comm->size, comm->rank, o->root, &at[0], &at[1]);
    b->in_bytes = blocks[0] * bytes;
    b->out_bytes = blocks[1] * bytes;
    b->in_at = at[0] * bytes;
    b->out_at = at[1] * bytes;
}

static bool small_serves(struct tutti_comm *comm, const struct tti_operation *o,
                         const struct tti_selection *selection, const struct tti_plan *plan)
{
    if (!comm->settings.fast || selection->path != TTI_PATH_PLAN || plan->nlanes != 1 ||
        plan->lanes[0].count > TTI_SMALL_STEPS ||
        o->count > TTI_SMALL_BYTES / tutti_type_size(o->type))
        return false;
    for (int i = 0; i < plan->npeers; i++) {
        const struct tti_link *link = &comm->links.all[plan->peers[i]];
        if (!link->connected)
            return false;
    }
    return true;
}

/* False when the operand is not in one piece. */
static bool small_place(const struct tti_executor *x, struct tti_ref ref, struct tti_range range,
                        struct small_place *place)
{
    size_t run = 0;
    const char *at = tti_exec_place(x, ref, range, 0, 0, &run);
    place->offset = (size_t)(at - x->buffers.base[ref.buffer]);
    place->buffer = (uint8_t)ref.buffer;
    place->type = (uint8_t)x->buffers.type[ref.buffer];
    return run >= range.total;
}

/* Step number `i` of the plan; *made stays false when it moves nothing. */
static bool small_step(const struct tti_executor *x, const struct tti_step *from,
                       struct small_step *to, bool *made)
{
    struct tti_range range = tti_exec_range(x, from, 0);
    bool sends = from->kind == TTI_SEND || (from->flags & TTI_FORWARD);
    bool reads = from->kind != TTI_RECV;
    *made = range.total > 0;
    if (!*made)
        return true;
    if ((reads && !small_place(x, from->src, range, &to->src)) ||
        (from->kind == TTI_REDUCE && !small_place(x, from->src2, range, &to->src2)) ||
        (from->kind != TTI_SEND && !small_place(x, from->dst, range, &to->dst)))
        return false;
    const struct small_place *sent = from->kind == TTI_SEND ? &to->src : &to->dst;
    to->kind = from->kind;
    to->message = (uint8_t)x->buffers.type[from->flags & TTI_MSG_ACC ? TTI_SLOT : TTI_IN];
    to->unit = tutti_type_size((enum tutti_type)to->message);
    to->straight = from->kind == TTI_RECV && to->message == to->dst.type;
    to->left = from->flags & TTI_MSG_LEFT;
    to->finish = (from->flags & TTI_FINAL) && x->finish.average;
    to->from = from->from;
    to->to = sends ? from->to : -1;
    to->n = range.total;
    to->sent_bytes = range.total * tutti_type_size((enum tutti_type)sent->type);
    return !sends || to->sent_bytes <= TTI_SMALL_BYTES;
}

/* The steps that move something, and for each how many sends come before its hazard's end. */
static bool small_steps(const struct tti_executor *x, const struct tti_lane *lane,
                        struct tti_small_program *program)
{
    uint16_t sends = 0, before[TTI_SMALL_STEPS + 1] = {0};
    for (size_t i = 0; i < lane->count; i++) {
        const struct tti_step *step = &lane->steps[i];
        struct small_step *to = &program->steps[program->count];
        bool made = false;
        if (!small_step(x, step, to, &made))
            return false;
        if (made) {
            to->sends = step->kind == TTI_SEND ? 0 : before[step->hazard + 1];
            sends = (uint16_t)(sends + (to->to >= 0));
            program->count++;
        }
        before[i + 1] = sends;
    }
    return true;
}

enum tutti_result tti_small_make(struct tutti_comm *comm, const struct tti_operation *o,
                                 const struct tti_selection *selection,
                                 const struct tti_plan_entry *entry,
                                 const struct tti_small_program **program)
{
    struct tti_executor *x = comm->executor;
    const struct tti_lane *lane = &entry->plan->lanes[0];
    uint64_t key = 0;
    *program = NULL;
    if (!small_key(o, selection->refused, &key) || !small_serves(comm, o, selection, entry->plan))
        return TUTTI_OK;
    TTI_TRY(tti_exec_bind(x, o, entry->plan));
    struct tti_small_program *made =
        tti_calloc(1, sizeof *made + lane->count * sizeof made->steps[0]);
    if (!made)
        return TUTTI_ERR_MEMORY;
    if (x->passes != 1 || !small_steps(x, lane, made)) {
        free(made);
        return TUTTI_OK;
    }
    made->key = key;
    small_buffers(comm, o, &made->buffers);
    made->tag = tti_tag(o, selection->index);
    made->algorithm = selection->index;
    made->slots = (size_t)(x->buffers.base[TTI_SLOT] - x->buffers.base[TTI_SCRATCH]);
    made->op = x->op;
    made->finish = x->finish;
    struct tti_small_program **slot = &comm->small.all[small_slot(made->key)];
    free(*slot);
    *slot = made;
    *program = made;
    return TUTTI_OK;
}

void tti_small_plans_destroy(struct tti_small_plans *plans)
{
    for (int i = 0; i < TTI_SMALL_PROGRAMS; i++)
        free(plans->all[i]);
    memset(plans, 0, sizeof *plans);
}

/* ---- running -------------------------------------------------------------------------------- */

struct small_send {
    struct tti_link *link;
    const char *data;
    size_t left;
    uint64_t end; /* consumed when so many bytes of the link are released; once `left` is 0 */
};

struct small {
    struct tutti_comm *comm;
    const struct tti_small_program *program;
    uint64_t tag;
    char *base[4];      /* by enum tti_buffer */
    size_t sends, done; /* begun; known to be consumed, without a gap */
    size_t stuck;       /* sends that the transport did not take whole */
    unsigned idle;
    uint64_t deadline; /* 0: nothing had to be waited for long enough to look at the clock */
    struct small_send sent[TTI_SMALL_STEPS];
};

/* Offer what is left of a send. */
static enum tutti_result small_offer(struct small *s, struct small_send *send)
{
    struct tti_link *link = send->link;
    size_t accepted = 1;
    while (send->left > 0 && accepted > 0) {
        enum tutti_result result =
            link->ops->send(link->endpoint, 0, s->tag, send->data, send->left, &accepted);
        if (result != TUTTI_OK)
            return tti_comm_link_failed(s->comm, result);
        link->queues[0].accepted += accepted;
        send->data += accepted;
        send->left -= accepted;
    }
    send->end = link->queues[0].accepted;
    return TUTTI_OK;
}

/* Does an older send on the same link wait? */
static bool small_behind(const struct small *s, const struct small_send *send)
{
    for (const struct small_send *older = &s->sent[s->done]; older < send; older++)
        if (older->left > 0 && older->link == send->link)
            return true;
    return false;
}

static enum tutti_result small_offer_again(struct small *s)
{
    for (size_t i = s->done; i < s->sends; i++) {
        struct small_send *send = &s->sent[i];
        if (send->left == 0 || small_behind(s, send))
            continue;
        TTI_TRY(small_offer(s, send));
        if (send->left == 0)
            s->stuck--;
    }
    return TUTTI_OK;
}

/* So many turns pass before the executor's waiting begins, which lets the transports move: those of
 * a network need that each time. */
static unsigned small_turns(const struct small *s, int peer)
{
    enum { TURNS_BEFORE_CLOCK = 16, TURNS_CROWDED = 2 };
    if (s->comm->links.all[peer].ops->rank >= FIRST_NETWORK_RANK)
        return 1;
    return tti_exec_crowded(s->comm) ? TURNS_CROWDED : TURNS_BEFORE_CLOCK;
}

/* One more turn in which nothing came from the peer, or nothing was taken by it. */
static enum tutti_result small_wait(struct small *s, int peer, bool sends)
{
    const unsigned turns = small_turns(s, peer);
    if (s->stuck > 0)
        TTI_TRY(small_offer_again(s));
    if (++s->idle < turns) {
        tti_cpu_relax();
        return TUTTI_OK;
    }
    if (s->deadline == 0)
        s->deadline = tti_deadline_in(s->comm->settings.timeout_s);
    s->comm->executor->fast_peer = peer;
    s->comm->executor->fast_sends = sends;
    return tti_exec_idle(s->comm->executor, s->idle - turns, s->deadline);
}

/* Take note of sends that are consumed. */
static void small_collect(struct small *s)
{
    for (; s->done < s->sends; s->done++) {
        const struct small_send *send = &s->sent[s->done];
        if (send->left > 0 || send->link->ops->released(send->link->endpoint, 0) < send->end)
            return;
    }
}

/* Nothing has come from this peer yet, but it may at any moment. Meanwhile: who has taken what was
 * sent? True: look again. */
static bool small_expect(struct small *s, const struct tti_link *link)
{
    if (s->stuck > 0 || s->idle > 0)
        return false;
    small_collect(s);
    return tti_exec_await(s->comm, link);
}

static enum tutti_result small_send(struct small *s, const struct small_step *step)
{
    const struct small_place *from = step->kind == TTI_SEND ? &step->src : &step->dst;
    struct small_send *send = &s->sent[s->sends++];
    send->link = &s->comm->links.all[step->to];
    send->data = s->base[from->buffer] + from->offset;
    send->left = step->sent_bytes;
    if (s->stuck == 0 || !small_behind(s, send))
        TTI_TRY(small_offer(s, send));
    if (send->left > 0)
        s->stuck++;
    return TUTTI_OK;
}

/* Wait until the first `count` sends are consumed. */
static enum tutti_result small_consumed(struct small *s, size_t count)
{
    for (;;) {
        small_collect(s);
        if (s->done >= count)
            return TUTTI_OK;
        TTI_TRY(small_wait(s, s->sent[s->done].link->peer, true));
    }
}

static const struct tti_finish *small_finish(const struct small *s, const struct small_step *step)
{
    return step->finish ? &s->program->finish : NULL;
}

static char *small_at(const struct small *s, const struct small_place *place, size_t element)
{
    char *first = s->base[place->buffer] + place->offset;
    return element == 0 ? first : first + element * tutti_type_size((enum tutti_type)place->type);
}

/* `n` elements of the message, from element `at` on. */
static void small_take(const struct small *s, const struct small_step *step, const void *message,
                       size_t at, size_t n)
{
    const enum tutti_type type = (enum tutti_type)step->message;
    const enum tutti_type dst_type = (enum tutti_type)step->dst.type;
    char *dst = small_at(s, &step->dst, at);
    if (step->kind == TTI_RECV) {
        tti_convert(dst, dst_type, message, type, n, NULL);
        return;
    }
    const enum tutti_type own_type = (enum tutti_type)step->src.type;
    const char *own = small_at(s, &step->src, at);
    if (step->left)
        tti_reduce(s->program->op, dst, dst_type, message, type, own, own_type, n,
                   small_finish(s, step));
    else
        tti_reduce(s->program->op, dst, dst_type, own, own_type, message, type, n,
                   small_finish(s, step));
}

static enum tutti_result small_receive(struct small *s, const struct small_step *step)
{
    const struct tti_link *link = &s->comm->links.all[step->from];
    const struct tutti_transport_ops *ops = link->ops;
    const uint64_t expected = s->tag;
    const size_t size = step->unit;
    const bool straight = step->straight && ops->receive;
    size_t taken = 0;
    while (taken < step->n) {
        const void *message = NULL;
        size_t bytes = 0, left = (step->n - taken) * size;
        uint64_t tag = expected;
        enum tutti_result result = straight
                                       ? ops->receive(link->endpoint, 0, &tag,
                                                      small_at(s, &step->dst, taken), left, &bytes)
                                       : ops->peek(link->endpoint, 0, &tag, &message, &bytes);
        if (result != TUTTI_OK)
            return tti_comm_link_failed(s->comm, result);
        if (bytes == 0) {
            if (!small_expect(s, link))
                TTI_TRY(small_wait(s, step->from, false));
            continue;
        }
        if (tag != expected)
            return tti_exec_mismatch(s->comm->executor, step->from, expected, tag);
        size_t n = (bytes < left ? bytes : left) / size;
        if (straight ? bytes % size != 0 : n == 0)
            return tti_exec_torn(s->comm->executor, step->from, bytes, size);
        if (!straight) {
            small_take(s, step, message, taken, n);
            ops->consume(link->endpoint, 0, n * size);
        }
        taken += n;
    }
    return TUTTI_OK;
}

static void small_local(const struct small *s, const struct small_step *step)
{
    const enum tutti_type type = (enum tutti_type)step->src.type;
    const enum tutti_type dst_type = (enum tutti_type)step->dst.type;
    char *dst = small_at(s, &step->dst, 0);
    const char *src = small_at(s, &step->src, 0);
    if (step->kind == TTI_REDUCE)
        tti_reduce(s->program->op, dst, dst_type, src, type, small_at(s, &step->src2, 0),
                   (enum tutti_type)step->src2.type, step->n, small_finish(s, step));
    else if (dst != src || step->finish)
        tti_convert(dst, dst_type, src, type, step->n, small_finish(s, step));
}

static enum tutti_result small_run(struct small *s)
{
    const struct tti_small_program *program = s->program;
    for (size_t i = 0; i < program->count; i++) {
        const struct small_step *step = &program->steps[i];
        if (step->sends > s->done)
            TTI_TRY(small_consumed(s, step->sends));
        if (step->kind == TTI_RECV || step->kind == TTI_RECV_REDUCE)
            TTI_TRY(small_receive(s, step));
        else if (step->kind != TTI_SEND)
            small_local(s, step);
        if (step->to >= 0)
            TTI_TRY(small_send(s, step));
    }
    return s->done == s->sends ? TUTTI_OK : small_consumed(s, s->sends);
}

enum tutti_result tti_small_run(struct tutti_comm *comm, const struct tti_small_program *program,
                                const struct tti_operation *o, const struct tti_label *label)
{
    struct tti_executor *x = comm->executor;
    struct small s;
    s.comm = comm;
    s.program = program;
    s.tag = tti_tag_numbered(program->tag, label->sequence);
    tti_record_by(&comm->recorder.ring[0], TTI_RECORD_SMALL, program->algorithm, 1);
    s.base[TTI_IN] = (char *)(uintptr_t)o->in; /* only read; the cast is for the table's sake */
    s.base[TTI_OUT] = o->out;
    s.base[TTI_SCRATCH] = x->scratch;
    s.base[TTI_SLOT] = x->scratch ? x->scratch + program->slots : NULL;
    s.sends = s.done = s.stuck = 0;
    s.idle = 0;
    s.deadline = 0;
    x->label = label;
    x->lane_count = 0;
    enum tutti_result result = small_run(&s);
    x->fast_peer = -1;
    return result;
}
