/* Uneven inputs: a rank that has no more data takes part in the others' steps (tutti/ddp.h).
 *
 * Gradients are easy: it hands in what it has, or zeros. With zero 3 the others also gather values
 * as they go forward and backward, and cannot without this rank's shards. So each rank keeps the
 * list of what it acquired and released in its latest step with data; who joins does the same
 * again, or what is left of it in a step that it has begun, and throws the values away.
 *
 * Who has data is asked once a step, where it begins: the others' first pass, synchronised or not,
 * may need this rank's shards already. */
#include "base/memory.h"
#include "coll/group.h"
#include "ddp/ddp_state.h"

static bool join_notes(const struct tutti_ddp *ddp)
{
    return ddp->options.uneven && ddp->options.zero == 3 && !ddp->joining;
}

enum tutti_result tti_ddp_note_call(struct tutti_ddp *ddp, enum tti_ddp_calling what, int unit)
{
    if (!join_notes(ddp) || (!ddp->open && what != TTI_DDP_SYNCHRONISE))
        return TUTTI_OK;
    TTI_TRY(
        tti_grow((void **)&ddp->calls, &ddp->call_capacity, ddp->call_at + 1, sizeof *ddp->calls));
    ddp->calls[ddp->call_at++] = (struct tti_ddp_call){.what = what, .unit = unit};
    return TUTTI_OK;
}

void tti_ddp_note_end(struct tutti_ddp *ddp)
{
    if (join_notes(ddp))
        ddp->call_count = ddp->call_at;
    ddp->counted = false;
}

/* Who has run out of data learns nothing more, so buffers are to be another's. */
static enum tutti_result join_leader(struct tutti_ddp *ddp, bool active)
{
    int32_t lowest = active ? ddp->rank : ddp->size;
    ddp->leader = 0;
    if (ddp->active == 0 || ddp->active == ddp->size)
        return TUTTI_OK;
    TTI_TRY(tutti_all_reduce(&lowest, &lowest, 1, TUTTI_INT32, TUTTI_MIN, ddp->control));
    ddp->leader = lowest;
    return TUTTI_OK;
}

/* In the first step nobody knows what to repeat: with zero 3 each pass asks whether all are there.
 */
enum tutti_result tti_ddp_count(struct tutti_ddp *ddp, bool active)
{
    const bool unknown = ddp->options.zero == 3 && ddp->steps == 0, fresh = !ddp->counted;
    if (fresh)
        ddp->call_at = 0;
    if (!ddp->options.uneven)
        ddp->active = ddp->size; /* and the leader is rank 0 */
    if (!ddp->options.uneven || (!fresh && !unknown))
        return TUTTI_OK;
    int32_t sums[2] = {active || !fresh, unknown && !active};
    enum tutti_result result =
        tutti_all_reduce(sums, sums, 2, TUTTI_INT32, TUTTI_SUM, ddp->control);
    if (result != TUTTI_OK)
        return TTI_CONTEXT(result, "while asking who still has data");
    if (sums[0] > 0 && sums[1] > 0)
        return TTI_FAIL(
            TUTTI_ERR_USAGE,
            "tutti_ddp_join: %d ranks have no data in the first step, or not for all its passes; "
            "with zero 3 every rank needs some then, since who joins later acquires again what it "
            "did",
            sums[1]);
    ddp->active = sums[0];
    ddp->counted = sums[0] > 0;
    return join_leader(ddp, active || !fresh);
}

/* ---- a step without data, or without enough ---- */

static enum tutti_result join_begin(struct tutti_ddp *ddp)
{
    TTI_TRY(tti_ddp_begin_pass(ddp, true));
    tti_ddp_mark_all(ddp);
    return TUTTI_OK;
}

static enum tutti_result join_repeat(struct tutti_ddp *ddp)
{
    for (; ddp->call_at < ddp->call_count; ddp->call_at++) {
        const struct tti_ddp_call *call = &ddp->calls[ddp->call_at];
        switch (call->what) {
        case TTI_DDP_ACQUIRE:
            TTI_TRY(tutti_ddp_acquire(ddp, call->unit));
            break;
        case TTI_DDP_RELEASE:
            TTI_TRY(tutti_ddp_release(ddp, call->unit, false));
            break;
        case TTI_DDP_SYNCHRONISE:
            TTI_TRY(join_begin(ddp));
        }
    }
    return ddp->open ? TUTTI_OK : join_begin(ddp);
}

enum tutti_result tutti_ddp_join(tutti_ddp *ddp, bool *more)
{
    if (!ddp || !more)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_join: %s is NULL", ddp ? "more" : "ddp");
    if (!ddp->options.uneven || ddp->open)
        return TTI_FAIL(TUTTI_ERR_USAGE, "tutti_ddp_join: %s",
                        ddp->open ? "a pass is open; call tutti_ddp_wait first"
                                  : "options.uneven was not set");
    TTI_TRY(tti_group_refuse("tutti_ddp_join"));
    TTI_TRY(tti_ddp_begin_step(ddp, false));
    if (ddp->active == 0) {
        *more = false;
        return TUTTI_OK;
    }
    ddp->joining = true;
    enum tutti_result result = join_repeat(ddp);
    if (result == TUTTI_OK)
        result = tutti_ddp_wait(ddp);
    ddp->joining = false;
    TTI_TRY(result);
    *more = true;
    return TUTTI_OK;
}
