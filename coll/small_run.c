/* Running small plans step by step (coll/small_plan.h).
 *
 * A step that waits holds up the steps after it; no send does: what the transport has no room for
 * is offered again while the program waits for something else. So whatever order the executor finds
 * free of deadlock is so here.
 *
 * Between the arrival of a peer's message and the departure of the next one lies nothing but this
 * code and the program's own: every instruction is in the way of both ranks. So what can wait until
 * something is on its way waits (the recorder), and what was the same last time is looked up. */
#include "coll/small_program.h"

#include "base/clock.h"
#include "base/log.h"
#include "coll/exec_internal.h"

#include <string.h>

struct small_send {
    struct tti_link *link;
    const char *data;
    size_t left;
    uint64_t end; /* consumed when so many bytes of the link are released; once `left` is 0 */
};

struct small {
    struct tutti_comm *comm;
    const struct tti_small_program *program;
    const struct tti_label *label;
    uint64_t tag;
    char *base[4];      /* by enum tti_buffer */
    size_t sends, done; /* begun; known to be consumed, without a gap */
    size_t stuck;       /* sends that the transport did not take whole */
    bool follows;       /* all come from a root that nobody answers */
    unsigned idle;
    bool recorded;
    uint64_t deadline; /* 0: nothing had to be waited for long enough to look at the clock */
    struct small_send sent[TTI_SMALL_STEPS];
};

/* The operation has its record from here on, if it had none. */
static void small_record(struct small *s)
{
    if (s->recorded)
        return;
    s->recorded = true;
    tti_record_again(&s->comm->recorder.ring[0], &s->program->record, s->label->sequence);
}

static enum tutti_result small_lost(struct small *s, enum tutti_result result)
{
    small_record(s); /* others are told of it at once */
    tti_log_rank(s->comm->rank);
    return tti_comm_link_failed(s->comm, result);
}

/* Offer what is left of a send. */
static enum tutti_result small_offer(struct small *s, struct small_send *send)
{
    struct tti_link *link = send->link;
    size_t accepted = 0;
    do {
        const bool lends = s->program->lends && send->left > link->copies;
        tti_transport_send *give =
            lends && !tti_exec_crowded(s->comm) ? link->lend : link->ops->send;
        enum tutti_result result =
            give(link->endpoint, 0, s->tag, send->data, send->left, &accepted);
        if (result != TUTTI_OK)
            return small_lost(s, result);
        link->queues[0].accepted += accepted;
        send->data += accepted;
        send->left -= accepted;
    } while (send->left > 0 && accepted > 0);
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

/* What is under way, for those who tell of it. */
static struct tti_executor *small_told(const struct small *s)
{
    struct tti_executor *x = s->comm->executor;
    tti_log_rank(s->comm->rank);
    x->label = s->label;
    x->lane_count = 0;
    return x;
}

/* Looks at a peer before the core is offered to others. */
static unsigned small_turns(const struct small *s, int peer, bool sends)
{
    const struct tti_link *link = &s->comm->links.all[peer];
    return !sends && s->follows && tti_link_in_memory(link) ? TTI_TURNS_FOLLOWING
                                                            : tti_exec_turns_alone(s->comm, link);
}

/* One more turn in which nothing came from the peer, or nothing was taken by it. */
static enum tutti_result small_wait(struct small *s, int peer, bool sends)
{
    const unsigned turns = small_turns(s, peer, sends);
    const size_t stuck = s->stuck;
    if (stuck > 0)
        TTI_TRY(small_offer_again(s));
    if (s->stuck < stuck) /* perhaps for this: the core is not given away before that is known */
        return TUTTI_OK;
    if (++s->idle < turns) {
        tti_cpu_relax();
        return TUTTI_OK;
    }
    if (s->deadline == 0)
        s->deadline = tti_deadline_in(s->comm->settings.timeout_s);
    struct tti_executor *x = small_told(s);
    x->fast_peer = peer;
    x->fast_sends = sends;
    return tti_exec_idle(x, s->idle - turns, s->deadline);
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
    const struct small_place *from = small_sent(step);
    struct small_send *send = &s->sent[s->sends++];
    send->link = step->link_to;
    send->data = s->base[from->buffer] + from->offset;
    send->left = step->sent_bytes;
    if (s->stuck == 0 || !small_behind(s, send))
        TTI_TRY(small_offer(s, send));
    if (send->left > 0)
        s->stuck++;
    else if (step->sent_bytes <= send->link->copies && s->done == s->sends - 1)
        s->done++; /* its memory is free again already */
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
    const struct tti_link *link = step->link_from;
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
            return small_lost(s, result);
        if (bytes == 0) {
            if (!small_expect(s, link))
                TTI_TRY(small_wait(s, step->from, false));
            continue;
        }
        if (tag != expected)
            return tti_exec_mismatch(small_told(s), step->from, expected, tag);
        size_t n = (bytes < left ? bytes : left) / size;
        if (straight ? bytes % size != 0 : n == 0)
            return tti_exec_torn(small_told(s), step->from, bytes, size);
        if (!straight) {
            small_take(s, step, message, taken, n);
            result = tti_link_intact(link, 0);
            if (result != TUTTI_OK)
                return small_lost(s, result);
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

static enum tutti_result small_step(struct small *s, const struct small_step *step)
{
    if (step->sends > s->done)
        TTI_TRY(small_consumed(s, step->sends));
    if (step->kind == TTI_RECV || step->kind == TTI_RECV_REDUCE)
        TTI_TRY(small_receive(s, step));
    else if (step->input)
        TTI_TRY(small_send(s, step));
    if (step->kind == TTI_COPY || step->kind == TTI_REDUCE)
        small_local(s, step);
    return step->to >= 0 && !step->input ? small_send(s, step) : TUTTI_OK;
}

/* `recorded`: the operation has its record; otherwise it gets it when its first message is on its
 * way. */
static enum tutti_result small_run(struct small *s, const struct tti_operation *o, bool recorded)
{
    const struct tti_small_program *program = s->program;
    struct tti_executor *x = s->comm->executor;
    const struct small_step *step = program->steps, *end = step + program->count;
    s->tag = tti_tag_numbered(program->tag, s->label->sequence);
    s->base[TTI_IN] = (char *)(uintptr_t)o->in; /* only read; the cast is for the table's sake */
    s->base[TTI_OUT] = o->out;
    s->base[TTI_SCRATCH] = x->scratch;
    s->base[TTI_SLOT] = x->scratch ? x->scratch + program->slots : NULL;
    s->sends = s->done = s->stuck = 0;
    s->idle = 0;
    s->follows = o->collective == TUTTI_BROADCAST;
    s->recorded = recorded;
    s->deadline = 0;
    if (program->large)
        tti_copy_expect(0);
    enum tutti_result result = TUTTI_OK;
    if (step < end && step->kind == TTI_SEND)
        result = small_send(s, step++);
    small_record(s);
    while (result == TUTTI_OK && step < end)
        result = small_step(s, step++);
    if (result == TUTTI_OK && s->done < s->sends)
        result = small_consumed(s, s->sends);
    x->fast_peer = -1;
    return result;
}

enum tutti_result tti_small_run(struct tutti_comm *comm, const struct tti_small_program *program,
                                const struct tti_operation *o, const struct tti_label *label)
{
    struct small s;
    s.comm = comm;
    s.program = program;
    s.label = label;
    tti_record_by(&comm->recorder.ring[0], TTI_RECORD_SMALL, program->algorithm, 1);
    return small_run(&s, o, true);
}

/* May this call run the program as it is? `o` agrees with it in all that makes the key. */
static bool small_fits(const struct tti_small_program *program, const struct tti_operation *o)
{
    const struct small_buffers *b = &program->buffers;
    const char *in = o->in, *out = o->out;
    if (o->collective == TUTTI_ALL_TO_ALL && in == out) /* the input is moved aside first */
        return false;
    return !((b->in_bytes && !in) || (b->out_bytes && !out) ||
             (b->in_place && in + b->in_at != out + b->out_at && in < out + b->out_bytes &&
              out < in + b->in_bytes));
}

static const struct tti_small_program *small_known(const struct tutti_comm *comm,
                                                   const struct tti_operation *o, uint64_t key)
{
    const struct tti_small_program *found = comm->small.all[tti_small_slot(key)];
    return found && found->key == key && found->known && small_fits(found, o) &&
                   comm->settings.fast &&
                   atomic_load_explicit(&comm->failed, memory_order_acquire) == TUTTI_OK
               ? found
               : NULL;
}

/* The same where the fused path is chosen, was refused for memory that is not mapped, and is not to
 * be tried again yet: that a program was made of what is chosen then says the first two. */
static const struct tti_small_program *small_refused(struct tutti_comm *comm,
                                                     const struct tti_operation *o)
{
    uint64_t key = 0;
    const struct tti_small_program *found =
        tti_small_key(o, true, &key) ? small_known(comm, o, key) : NULL;
    return found && tti_fused_skips(comm, o) ? found : NULL;
}

bool tti_call_known(struct tutti_comm *comm, const struct tti_operation *o,
                    enum tutti_result *result)
{
    uint64_t key = 0;
    struct small s;
    const bool small = tti_small_key(o, false, &key);
    if (!tti_turn_take_alone(&comm->queue))
        return false;
    s.comm = comm;
    s.program = small ? small_known(comm, o, key) : NULL;
    if (!s.program && small)
        s.program = small_refused(comm, o);
    if (!s.program) {
        const bool fused = tti_run_again(comm, o, result);
        tti_turn_end_alone(&comm->queue);
        return fused;
    }
    const struct tti_label label = {o, ++comm->sequence, 1};
    s.label = &label;
    enum tutti_result ran = small_run(&s, o, false);
    tti_record_end(&comm->recorder.ring[0], ran);
    if (__builtin_expect(ran != TUTTI_OK, 0))
        ran = tti_run_failed(comm, ran, &label);
    tti_turn_end_alone(&comm->queue);
    *result = ran;
    return true;
}
