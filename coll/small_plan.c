/* Making small plans of those that were selected, and keeping them (coll/small_plan.h). */
#include "coll/small_program.h"

#include "base/memory.h"
#include "coll/exec_internal.h"

#include <stdlib.h>
#include <string.h>

const struct tti_small_program *tti_small_find(struct tutti_comm *comm,
                                               const struct tti_operation *o, bool refused)
{
    uint64_t key = 0;
    if (!comm->settings.fast || !tti_small_key(o, refused, &key))
        return NULL;
    const struct tti_small_program *found = comm->small.all[tti_small_slot(key)];
    return found && found->key == key && tti_blocks_same(found->blocks, o->blocks) ? found : NULL;
}

static void small_free(struct tti_small_program *program)
{
    if (program)
        free((void *)(uintptr_t)program->blocks);
    free(program);
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

/* Uneven blocks whose counts change from call to call would only drive out what others need: their
 * program is made the second time. */
static bool small_comes_again(struct tutti_comm *comm, const struct tti_operation *o, uint64_t key)
{
    const bool again = !o->blocks || comm->small.uneven == key;
    if (o->blocks)
        comm->small.uneven = key;
    return again;
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

/* Is the message one that such a step may send to, or wait for from, this peer? */
static bool small_message(const struct tti_link *link, size_t bytes)
{
    return !link ||
           bytes <= (size_t)(tti_link_in_memory(link) ? TTI_SMALL_BYTES : TTI_SMALL_NETWORK_BYTES);
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
    to->kind = from->kind;
    to->message = (uint8_t)x->buffers.type[from->flags & TTI_MSG_ACC ? TTI_SLOT : TTI_IN];
    to->unit = tutti_type_size((enum tutti_type)to->message);
    to->straight = from->kind == TTI_RECV && to->message == to->dst.type;
    to->left = from->flags & TTI_MSG_LEFT;
    to->finish = (from->flags & TTI_FINAL) && x->finish.average;
    to->input = tti_exec_passes_input(x, from);
    const struct small_place *sent = small_sent(to);
    to->from = from->from;
    to->to = sends ? from->to : -1;
    to->link_from = to->from >= 0 ? &x->comm->links.all[to->from] : NULL;
    to->link_to = to->to >= 0 ? &x->comm->links.all[to->to] : NULL;
    to->n = range.total;
    to->sent_bytes = range.total * tutti_type_size((enum tutti_type)sent->type);
    return small_message(to->link_to, to->sent_bytes) &&
           small_message(to->link_from, to->n * to->unit);
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
            program->large |= to->n * x->buffers.size[TTI_SLOT] >= TTI_STREAM_BYTES;
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
    if (!tti_small_key(o, selection->refused, &key) ||
        !small_serves(comm, o, selection, entry->plan) || !small_comes_again(comm, o, key))
        return TUTTI_OK;
    TTI_TRY(tti_exec_bind(x, o, entry->plan));
    struct tti_small_program *made =
        tti_calloc(1, sizeof *made + lane->count * sizeof made->steps[0]);
    if (!made)
        return TUTTI_ERR_MEMORY;
    const bool small = x->passes == 1 && small_steps(x, lane, made);
    if (!small || tti_blocks_copy(o->blocks, &made->blocks) != TUTTI_OK) {
        free(made);
        return small ? TUTTI_ERR_MEMORY : TUTTI_OK;
    }
    made->key = key;
    made->known = (unsigned)o->op < TUTTI_OP_COUNT && !o->blocks; /* others may be gone */
    made->record = tti_record_of(o, TTI_RECORD_SMALL, selection->index, 1);
    small_buffers(comm, o, &made->buffers);
    made->tag = tti_tag(o, selection->index);
    made->algorithm = selection->index;
    made->lends = tti_lend_from(o->collective) == 0;
    made->slots = (size_t)(x->buffers.base[TTI_SLOT] - x->buffers.base[TTI_SCRATCH]);
    made->op = x->op;
    made->finish = x->finish;
    struct tti_small_program **slot = &comm->small.all[tti_small_slot(made->key)];
    small_free(*slot);
    *slot = made;
    *program = made;
    return TUTTI_OK;
}

void tti_small_plans_destroy(struct tti_small_plans *plans)
{
    for (int i = 0; i < TTI_SMALL_PROGRAMS; i++)
        small_free(plans->all[i]);
    memset(plans, 0, sizeof *plans);
}
