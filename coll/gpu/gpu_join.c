/* Messages of one group that were given several streams. They need each other, so they are one
 * piece of work on one of the streams; as with NCCL it comes after what all of them have, and all
 * of them wait for it. */
#include "coll/gpu/gpu_side.h"

#include "base/error.h"

/* Not the first, and none that was met before. */
static bool join_another(const tutti_stream *streams, size_t i)
{
    size_t first = 0;
    while (streams[first] != streams[i])
        first++;
    return first == i && i > 0;
}

static enum tutti_result join_same_capture(const struct tti_gpu_side *side, tutti_stream stream,
                                           uint64_t capture)
{
    uint64_t own = 0;
    if (stream)
        TTI_TRY(side->ops->capture_id(side->gpu, stream, &own));
    if (own == capture)
        return TUTTI_OK;
    return TTI_FAIL(TUTTI_ERR_USAGE,
                    "the streams of a group's messages must all be in the same capture, or none "
                    "in any");
}

enum tutti_result tti_gpu_join(struct tti_gpu_side *side, const tutti_stream *streams, size_t count,
                               uint64_t capture)
{
    for (size_t i = 1; i < count; i++)
        if (join_another(streams, i))
            TTI_TRY(join_same_capture(side, streams[i], capture));
    for (size_t i = 1; i < count; i++) {
        if (!join_another(streams, i))
            continue;
        TTI_TRY(side->ops->event_record(side->joined, streams[i]));
        TTI_TRY(side->ops->event_hold(side->joined, streams[0]));
    }
    return TUTTI_OK;
}

enum tutti_result tti_gpu_part(struct tti_gpu_side *side, const tutti_stream *streams, size_t count,
                               uint64_t capture)
{
    const struct tti_gpu_point *last = capture ? &side->captured : &side->last;
    for (size_t i = 1; i < count; i++)
        if (join_another(streams, i))
            TTI_TRY(side->ops->event_hold(last->event, streams[i]));
    return TUTTI_OK;
}
