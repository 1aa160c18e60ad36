/* Uneven inputs: a rank that has no more data takes part in the others' steps (tutti/ddp.h).
 *
 * Gradients are easy: it hands in what it has, or zeros. With zero 3 the others also gather values
 * as they go forward and backward, and cannot without this rank's shards. So each rank keeps the
 * list of what it acquired and released in its latest step with data; who joins does the same
 * again, and throws the values away. */
#include "base/memory.h"
#include "ddp/ddp_state.h"

enum tutti_result tti_ddp_note_call(struct tutti_ddp *ddp, int unit, bool release)
{
    if (!ddp->options.uneven || ddp->options.zero != 3 || !ddp->open || ddp->joining)
        return TUTTI_OK;
    TTI_TRY(tti_grow((void **)&ddp->calls, &ddp->call_capacity, ddp->call_count + 1,
                     sizeof *ddp->calls));
    ddp->calls[ddp->call_count++] = (struct tti_ddp_call){.unit = unit, .release = release};
    return TUTTI_OK;
}

enum tutti_result tti_ddp_active(struct tutti_ddp *ddp, bool active)
{
    ddp->active = ddp->size;
    if (!ddp->options.uneven)
        return TUTTI_OK;
    const bool ignorant = !active && ddp->options.zero == 3 && ddp->call_count == 0;
    int32_t sums[2] = {active, ignorant};
    enum tutti_result result =
        tutti_all_reduce(sums, sums, 2, TUTTI_INT32, TUTTI_SUM, ddp->control);
    if (result != TUTTI_OK)
        return TTI_CONTEXT(result, "while asking who still has data");
    if (sums[0] > 0 && sums[1] > 0)
        return TTI_FAIL(
            TUTTI_ERR_USAGE,
            "tutti_ddp_join: %d ranks have no data in the first step; with zero 3 every "
            "rank needs some then, since who joins later acquires again what it did",
            sums[1]);
    ddp->active = sums[0];
    return TUTTI_OK;
}

/* ---- a step without data ---- */

static enum tutti_result join_repeat(struct tutti_ddp *ddp)
{
    for (size_t i = 0; i < ddp->call_count; i++) {
        const struct tti_ddp_call *call = &ddp->calls[i];
        TTI_TRY(call->release ? tutti_ddp_release(ddp, call->unit, false)
                              : tutti_ddp_acquire(ddp, call->unit));
    }
    return TUTTI_OK;
}

enum tutti_result tutti_ddp_join(tutti_ddp *ddp, bool *more)
{
    if (!ddp || !more)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_join: %s is NULL", ddp ? "more" : "ddp");
    if (!ddp->options.uneven || ddp->open)
        return TTI_FAIL(TUTTI_ERR_USAGE, "tutti_ddp_join: %s",
                        ddp->open ? "a pass is open; call tutti_ddp_wait first"
                                  : "options.uneven was not set");
    TTI_TRY(tti_ddp_begin_pass(ddp, true, false));
    if (ddp->active == 0) {
        *more = false;
        return TUTTI_OK;
    }
    tti_ddp_mark_all(ddp);
    ddp->joining = true;
    enum tutti_result result = join_repeat(ddp);
    ddp->joining = false;
    TTI_TRY(result);
    TTI_TRY(tutti_ddp_wait(ddp));
    *more = true;
    return TUTTI_OK;
}
