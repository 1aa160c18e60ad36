/* From an operation to its execution: selection, plan, links, executor; and what surrounds a few
 * collectives (pre-multiplied sums, all-to-all in place). */
#include "coll/comm.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "coll/column.h"
#include "coll/diagnose.h"
#include "coll/executor.h"
#include "coll/gpu/gpu_calls.h"
#include "coll/gpu/gpu_send.h"
#include "coll/message.h"
#include "coll/select.h"
#include "coll/small_plan.h"
#include "coll/staged.h"
#include "coll/window.h"
#include "device/memory.h"
#include "device/reduce.h"

#include <stdlib.h>
#include <string.h>

/* Memory kept for such inputs: asking the kernel for it each time would cost more than the
 * operation. */
static enum tutti_result run_aside(struct tutti_comm *comm, size_t bytes, void **memory)
{
    if (bytes > comm->aside_bytes) {
        void *made = NULL;
        TTI_TRY(tti_region_alloc(bytes, &made));
        if (comm->aside)
            (void)tti_region_free(comm->aside);
        comm->aside = made;
        comm->aside_bytes = bytes;
    }
    *memory = comm->aside;
    return TUTTI_OK;
}

/* Block by block: what lies between them need not be the caller's. */
static void run_scale(char *to, const struct tti_operation *o)
{
    const size_t size = tutti_type_size(o->type);
    for (int k = 0; k < o->blocks->n; k++) {
        const size_t at = o->blocks->counts[k] ? o->blocks->displs[k] * size : 0;
        tti_scale(to + at, (const char *)o->in + at, &o->factor, o->type, o->blocks->counts[k]);
    }
}

/* The input in a form that the plan can take: scaled for a pre-multiplied sum, moved aside for an
 * all-to-all in place. *copy is NULL when the caller's own will do. */
static enum tutti_result run_prepare(struct tutti_comm *comm, const struct tti_operation *o,
                                     void **copy)
{
    bool premul = (unsigned)o->op >= TUTTI_OP_USER && tti_reduces(o->collective);
    bool aside = o->collective == TUTTI_ALL_TO_ALL && o->in == o->out;
    uint32_t in_blocks = 0, out_blocks = 0;
    *copy = NULL;
    if (!premul && !aside)
        return TUTTI_OK;
    tti_shape(o->collective, comm->size, comm->rank, o->root, &in_blocks, &out_blocks);
    size_t elements = o->blocks ? tti_blocks_extent(o->blocks) : in_blocks * o->count;
    void *made = NULL;
    TTI_TRY(run_aside(comm, elements * tutti_type_size(o->type), &made));
    if (premul && o->blocks)
        run_scale(made, o);
    else if (premul)
        tti_scale(made, o->in, &o->factor, o->type, elements);
    else
        memcpy(made, o->in, elements * tutti_type_size(o->type));
    *copy = made;
    return TUTTI_OK;
}

/* Links and the bootstrap know who is gone, but not in what: add the operation. Other errors of a
 * run name it already. */
static enum tutti_result run_explain(enum tutti_result result, const struct tti_label *label)
{
    char what[TTI_LABEL_BYTES];
    if (result != TUTTI_ERR_PEER && result != TUTTI_ERR_LINK && result != TUTTI_ERR_ABORTED)
        return result;
    return TTI_CONTEXT(result, "%s", tti_label_text(label, what, sizeof what));
}

/* An operation on device memory: the plan says what the next like it can do, and this one must not
 * make the host read what it cannot. */
static enum tutti_result run_staged(struct tutti_comm *comm, const struct tti_operation *o,
                                    const struct tti_plan *plan)
{
    const bool suits = tti_gpu_send_learn(comm, o, plan);
    if (o->device && !suits)
        return TTI_FAIL(TUTTI_ERR_INTERNAL,
                        "the plan of a %s on device memory is not the one that "
                        "was chosen before",
                        tutti_collective_name(o->collective));
    return TUTTI_OK;
}

/* By a plan, or staged, as was selected. */
static enum tutti_result run_selected(struct tutti_comm *comm, const struct tti_operation *o,
                                      const struct tti_selection *selection,
                                      const struct tti_label *label)
{
    const struct tti_plan_entry *entry = NULL;
    const struct tti_small_program *program = NULL;
    struct tti_record_ring *ring = &comm->recorder.ring[0];
    if (selection->path == TTI_PATH_STAGED) {
        tti_record_by(ring, TTI_RECORD_STAGED, TTI_RECORD_NO_ALGORITHM, 1);
        return tti_staged(comm, o, label);
    }
    tti_record_by(ring, TTI_RECORD_PLAN, selection->index, selection->spec.lanes);
    uint64_t deadline = tti_deadline_in(comm->settings.timeout_s);
    TTI_TRY(tti_plan_cache_get(&comm->plans, selection->algorithm, &selection->spec, &entry));
    TTI_LOG(TTI_LOG_TRACE, "%s #%llu: %s, %d lanes, %d slices",
            tutti_collective_name(o->collective), (unsigned long long)label->sequence,
            selection->algorithm->name, selection->spec.lanes, selection->spec.slices);
    TTI_TRY(tti_links_connect(comm, entry->plan->peers, entry->plan->npeers, deadline, label));
    if (o->staged)
        TTI_TRY(run_staged(comm, o, entry->plan));
    if (!o->device)
        TTI_TRY(tti_small_make(comm, o, selection, entry, &program));
    if (program)
        return tti_small_run(comm, program, o, label);
    return tti_executor_run(comm->executor, o, entry,
                            tti_tag_numbered(tti_tag(o, selection->index), label->sequence),
                            deadline, label);
}

/* The fused path turned out not to serve. */
static enum tutti_result run_refused(struct tutti_comm *comm, const struct tti_operation *o,
                                     const struct tti_label *label)
{
    struct tti_selection selection;
    TTI_TRY(tti_select_plan(comm, o->collective, o->count, o->type, o->root, &selection));
    const struct tti_small_program *program = tti_small_find(comm, o, true);
    return program ? tti_small_run(comm, program, o, label)
                   : run_selected(comm, o, &selection, label);
}

static enum tutti_result run_again(struct tutti_comm *comm, struct tti_fused_again *again,
                                   const struct tti_operation *o, const struct tti_label *label,
                                   bool recorded)
{
    bool served = false;
    TTI_TRY(tti_fused_repeat(comm, again, o, label, recorded, &served));
    return served ? TUTTI_OK : run_refused(comm, o, label);
}

/* The host cannot read the input: by the executor, which hands it to the network. */
static enum tutti_result run_network(struct tutti_comm *comm, const struct tti_operation *o,
                                     const struct tti_label *label)
{
    struct tti_selection selection;
    TTI_TRY(tti_select(comm, o->collective, o->count, o->type, o->root, &selection));
    if (selection.path != TTI_PATH_PLAN)
        return TTI_FAIL(TUTTI_ERR_INTERNAL, "a %s on device memory that the host would read",
                        tutti_collective_name(o->collective));
    return run_selected(comm, o, &selection, label);
}

/* What is hand-written knows blocks of one size only. */
static enum tutti_result run_uneven(struct tutti_comm *comm, const struct tti_operation *o,
                                    const struct tti_label *label)
{
    struct tti_selection selection;
    const struct tti_small_program *program = tti_small_find(comm, o, true);
    if (program)
        return tti_small_run(comm, program, o, label);
    TTI_TRY(tti_select_plan(comm, o->collective, tti_block_mean(o), o->type, o->root, &selection));
    selection.path = TTI_PATH_PLAN;
    return run_selected(comm, o, &selection, label);
}

static enum tutti_result run_plan(struct tutti_comm *comm, const struct tti_operation *o,
                                  const struct tti_label *label)
{
    struct tti_selection selection;
    if (o->blocks)
        return run_uneven(comm, o, label);
    if (o->device)
        return run_network(comm, o, label);
    const struct tti_small_program *program = tti_small_find(comm, o, false);
    if (program)
        return tti_small_run(comm, program, o, label);
    struct tti_fused_again *again = tti_fused_find(comm, o);
    if (again) {
        tti_fused_by(comm, again);
        return run_again(comm, again, o, label, true);
    }
    TTI_TRY(tti_select(comm, o->collective, o->count, o->type, o->root, &selection));
    if (selection.path == TTI_PATH_FUSED) {
        bool served = false;
        TTI_TRY(tti_fused(comm, o, &selection, label, &served));
        return served ? TUTTI_OK : run_refused(comm, o, label);
    }
    return run_selected(comm, o, &selection, label);
}

static enum tutti_result run_collective(struct tutti_comm *comm, const struct tti_operation *o)
{
    void *copy = NULL;
    comm->sequence++;
    tti_record_begin_part(&comm->recorder.ring[0], o, o->whole ? o->whole : o->count,
                          comm->sequence);
    if (o->count == 0)
        return TUTTI_OK;
    struct tti_label label = {o, comm->sequence, 1};
    if (o->column)
        return run_explain(tti_column_run(comm, o, &label), &label);
    TTI_TRY(run_prepare(comm, o, &copy));
    struct tti_operation effective = *o;
    if (copy)
        effective.in = copy;
    return run_explain(run_plan(comm, &effective, &label), &label);
}

static bool run_connected(const struct tutti_comm *comm, const struct tti_operation *ops,
                          size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ops[i].root != comm->rank && !comm->links.all[ops[i].root].connected)
            return false;
    return true;
}

static enum tutti_result run_exchange(struct tutti_comm *comm, const struct tti_operation *ops,
                                      size_t count)
{
    struct tti_label label = {&ops[0], 0, count};
    for (size_t i = 0; i < count; i++) {
        struct tti_link *link = &comm->links.all[ops[i].root];
        tti_record_begin(&comm->recorder.ring[0], &ops[i],
                         ops[i].receives ? ++link->receives : ++link->sends);
    }
    if (run_connected(comm, ops, count) && tti_messages_suit(comm, ops, count))
        return run_explain(tti_messages_run(comm, ops, count, &label), &label);
    const uint64_t deadline = tti_deadline_in(comm->settings.timeout_s);
    return run_explain(tti_executor_exchange(comm->executor, ops, count, deadline, &label), &label);
}

/* Whatever went wrong half-way, the ranks are out of step now. The buffers become the caller's
 * again: peers that may still read them must learn that what they read does not count. */
static enum tutti_result run_failed(struct tutti_comm *comm, enum tutti_result result)
{
    struct tti_error error;
    tti_comm_fail(comm, result);
    tti_error_save(&error, result);
    tti_links_end(comm);
    return tti_error_restore(&error);
}

enum tutti_result tti_run_failed(struct tutti_comm *comm, enum tutti_result result,
                                 const struct tti_label *label)
{
    return run_failed(comm, run_explain(result, label));
}

/* What no call of another rank belongs to: numbered for each pair, as sends and receives are. */
static enum tutti_result run_alone(struct tutti_comm *comm, const struct tti_operation *o)
{
    const struct tti_label label = {o, 0, 1};
    char what[TTI_LABEL_BYTES];
    struct tti_link *link = &comm->links.all[o->root];
    tti_record_begin(&comm->recorder.ring[0], o,
                     o->alone == TTI_WAIT_SIGNAL ? ++link->waits : ++link->posts);
    enum tutti_result result = tti_window_run(comm, o);
    if (result == TUTTI_OK)
        return TUTTI_OK;
    result = TTI_CONTEXT(result, "%s", tti_label_text(&label, what, sizeof what));
    return result == TUTTI_ERR_TIMEOUT ? tti_diagnose(comm, result) : result;
}

static enum tutti_result run_any(struct tutti_comm *comm, const struct tti_operation *ops,
                                 size_t count)
{
    if (ops[0].alone != TTI_NOT_ALONE)
        return run_alone(comm, ops);
    return ops[0].collective == TUTTI_SEND_RECV ? run_exchange(comm, ops, count)
                                                : run_collective(comm, ops);
}

enum tutti_result tti_run_work(struct tutti_comm *comm, const struct tti_operation *ops,
                               size_t count)
{
    tti_log_rank(comm->rank);
    if (comm->gpu) /* a kernel that gave up has ended, and its watching thread looks now and then */
        tti_gpu_ask(comm, true);
    TTI_TRY(tti_comm_works(comm));
    const enum tutti_result result = run_any(comm, ops, count);
    tti_record_end(&comm->recorder.ring[0], result);
    return result == TUTTI_OK ? TUTTI_OK : run_failed(comm, result);
}

bool tti_run_again(struct tutti_comm *comm, const struct tti_operation *o,
                   enum tutti_result *result)
{
    struct tti_fused_again *again = o->count > 0 ? tti_fused_find(comm, o) : NULL;
    if (!again || atomic_load_explicit(&comm->failed, memory_order_acquire) != TUTTI_OK)
        return false;
    const struct tti_label label = {o, ++comm->sequence, 1};
    tti_log_rank(comm->rank);
    enum tutti_result ran = run_again(comm, again, o, &label, false);
    tti_record_end(&comm->recorder.ring[0], ran);
    if (ran != TUTTI_OK)
        ran = tti_run_failed(comm, ran, &label);
    *result = ran;
    return true;
}
