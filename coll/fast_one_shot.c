/* The fast way of small all-reduces (coll/fast_one_shot.h). */
#include "coll/fast_one_shot.h"

#include "base/clock.h"
#include "coll/exec_internal.h"

#include <string.h>

enum {
    FIRST_NETWORK_RANK = 30, /* of transports: those below are memory */
    MOST_ACC_BYTES = 4,      /* an accumulator takes at most so many times its element */
};

struct fast {
    struct tutti_comm *comm;
    const struct tti_operation *o;
    uint64_t tag;
    enum tutti_op op;
    enum tutti_type acc;
    struct tti_finish finish;
    size_t bytes;
    unsigned idle;
    uint64_t deadline; /* 0: nothing had to be waited for long enough to look at the clock */
    _Alignas(64) char sum[TTI_FAST_BYTES * MOST_ACC_BYTES]; /* accumulators */
};

bool tti_fast_one_shot_serves(struct tutti_comm *comm, const struct tti_operation *o,
                              const struct tti_selection *selection)
{
    if (selection->path != TTI_PATH_FAST || (unsigned)o->op >= TUTTI_OP_COUNT)
        return false;
    for (int p = 0; p < comm->size; p++) {
        const struct tti_link *link = &comm->links.all[p];
        if (p != comm->rank && (!link->connected || link->ops->rank >= FIRST_NETWORK_RANK))
            return false;
    }
    return true;
}

/* One more turn in which nothing moved. */
static enum tutti_result fast_wait(struct fast *f)
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

static enum tutti_result fast_send(struct fast *f, int peer)
{
    struct tti_link *link = &f->comm->links.all[peer];
    size_t sent = 0;
    while (sent < f->bytes) {
        size_t accepted = 0;
        enum tutti_result result = link->ops->send(
            link->endpoint, 0, f->tag, (const char *)f->o->in + sent, f->bytes - sent, &accepted);
        if (result != TUTTI_OK)
            return tti_comm_link_failed(f->comm, result);
        link->queues[0].accepted += accepted;
        sent += accepted;
        if (accepted == 0)
            TTI_TRY(fast_wait(f));
    }
    return TUTTI_OK;
}

/* The peers' reading of IN must be over before OUT, which may be the same memory, is written. */
static enum tutti_result fast_released(struct fast *f)
{
    for (int p = 0; p < f->comm->size; p++) {
        struct tti_link *link = &f->comm->links.all[p];
        while (p != f->comm->rank &&
               link->ops->released(link->endpoint, 0) < link->queues[0].accepted)
            TTI_TRY(fast_wait(f));
    }
    return TUTTI_OK;
}

/* Operand number `rank` of the sum, in the order of ranks: `n` elements from `at` on. The first
 * only fills the accumulators, the last completes into OUT. */
static void fast_combine(struct fast *f, int rank, const void *data, size_t at, size_t n)
{
    const enum tutti_type type = f->o->type;
    char *sum = f->sum + at * tutti_type_size(f->acc);
    if (rank == 0)
        tti_convert(sum, f->acc, data, type, n, NULL);
    else if (rank < f->comm->size - 1)
        tti_reduce(f->op, sum, f->acc, sum, f->acc, data, type, n, NULL);
    else
        tti_reduce(f->op, (char *)f->o->out + at * tutti_type_size(type), type, sum, f->acc, data,
                   type, n, &f->finish);
}

static enum tutti_result fast_receive(struct fast *f, int peer)
{
    struct tti_link *link = &f->comm->links.all[peer];
    size_t size = tutti_type_size(f->o->type), taken = 0;
    f->comm->executor->fast_from = peer;
    while (taken < f->bytes) {
        const void *data = NULL;
        size_t bytes = 0;
        uint64_t tag = 0;
        enum tutti_result result = link->ops->peek(link->endpoint, 0, &tag, &data, &bytes);
        if (result != TUTTI_OK)
            return tti_comm_link_failed(f->comm, result);
        if (bytes == 0) {
            TTI_TRY(fast_wait(f));
            continue;
        }
        if (tag != f->tag)
            return tti_exec_mismatch(f->comm->executor, peer, f->tag, tag);
        size_t n = (bytes < f->bytes - taken ? bytes : f->bytes - taken) / size;
        fast_combine(f, peer, data, taken / size, n);
        link->ops->consume(link->endpoint, 0, n * size);
        taken += n * size;
    }
    return TUTTI_OK;
}

static enum tutti_result fast_run(struct fast *f)
{
    int rank = f->comm->rank, n = f->comm->size;
    for (int k = 1; k < n; k++)
        TTI_TRY(fast_send(f, (rank + k) % n));
    for (int r = 0; r < n; r++) {
        if (r == n - 1)
            TTI_TRY(fast_released(f));
        if (r == rank)
            fast_combine(f, r, f->o->in, 0, f->o->count);
        else
            TTI_TRY(fast_receive(f, r));
    }
    return TUTTI_OK;
}

enum tutti_result tti_fast_one_shot(struct tutti_comm *comm, const struct tti_operation *o,
                                    uint64_t tag, const struct tti_label *label)
{
    struct fast f;
    f.comm = comm;
    f.o = o;
    f.tag = tag;
    f.op = o->op == TUTTI_AVG ? TUTTI_SUM : o->op;
    f.acc = tti_acc_type(o->type);
    f.finish = (struct tti_finish){o->op == TUTTI_AVG, comm->size};
    f.bytes = o->count * tutti_type_size(o->type);
    f.idle = 0;
    f.deadline = 0;
    struct tti_executor *x = comm->executor;
    x->label = label;
    x->lane_count = 0;
    enum tutti_result result = fast_run(&f);
    x->fast_from = -1;
    return result;
}
