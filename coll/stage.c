/* The ring of windows of the staged path (coll/stage.h). */
#include "coll/stage.h"

#include "base/clock.h"
#include "base/memory.h"
#include "coll/comm.h"
#include "device/memory.h"

#include <stdlib.h>

enum tutti_result tti_stage_make(struct tutti_comm *comm)
{
    const size_t ends = (size_t)TTI_STAGE_WINDOWS * (size_t)comm->size, ranks = (size_t)comm->size;
    void *memory = NULL;
    if (comm->stage)
        return TUTTI_OK;
    TTI_TRY(tti_region_alloc_sparse(TTI_STAGE_BYTES, &memory));
    struct tti_stage *made = tti_calloc(1, sizeof *made + (ends + ranks) * sizeof *made->ends);
    if (!made) {
        (void)tti_region_free(memory);
        return TUTTI_ERR_MEMORY;
    }
    made->memory = memory;
    made->ranks = comm->size;
    made->read = made->ends + ends;
    comm->stage = made;
    return TUTTI_OK;
}

void tti_stage_destroy(struct tti_stage *stage)
{
    if (!stage)
        return;
    (void)tti_region_free(stage->memory);
    free(stage);
}

/* Has the rank read this window? 0: it was not sent it. */
static bool stage_read(struct tti_stage *stage, uint64_t window, int rank, uint64_t released)
{
    return *tti_stage_end(stage, window, rank) <= released;
}

/* Let go of the windows that are read; who has not read the oldest of the others, or -1. A link's
 * count is looked at once: it lies in the cache of who reads. */
static int stage_collect(struct tutti_comm *comm)
{
    struct tti_stage *stage = comm->stage;
    int behind = -1;
    uint64_t oldest = stage->filled;
    for (int p = 0; p < stage->ranks; p++) {
        const struct tti_link *link = &comm->links.all[p];
        uint64_t *read = &stage->read[p];
        const bool there = p != comm->rank && link->connected;
        const uint64_t released =
            there && *read < stage->filled ? link->ops->released(link->endpoint, 0) : 0;
        while (*read < stage->filled && (!there || stage_read(stage, *read, p, released)))
            ++*read;
        if (*read < oldest) {
            oldest = *read;
            behind = p;
        }
    }
    stage->oldest = oldest;
    return behind;
}

/* Where a window can begin: here, or at the start of the ring again. */
static uint64_t stage_begin(const struct tti_stage *stage, size_t bytes, size_t most)
{
    const size_t offset = (size_t)(stage->head % TTI_STAGE_BYTES);
    const size_t ring =
        stage->oldest == stage->filled && most > TTI_STAGE_HOME && bytes < TTI_STAGE_HOME
            ? TTI_STAGE_HOME
            : most;
    return offset + bytes <= ring ? stage->head : stage->head - offset + TTI_STAGE_BYTES;
}

bool tti_stage_take(struct tutti_comm *comm, size_t bytes, const struct tti_stage_limit *limit,
                    int *behind)
{
    struct tti_stage *stage = comm->stage;
    *behind = stage_collect(comm);
    const uint64_t begin = stage_begin(stage, bytes, limit->bytes);
    const uint64_t kept = stage->filled - stage->oldest;
    if (kept >= limit->windows)
        return false;
    if (kept > 0 &&
        begin + bytes - stage->begin[stage->oldest % TTI_STAGE_WINDOWS] > TTI_STAGE_BYTES)
        return false;
    stage->begin[stage->filled % TTI_STAGE_WINDOWS] = begin;
    for (int p = 0; p < stage->ranks; p++)
        *tti_stage_end(stage, stage->filled, p) =
            p == comm->rank || !comm->links.all[p].connected ? 0 : UINT64_MAX;
    stage->head = begin + tti_stage_room(bytes);
    stage->filled++;
    return true;
}

void tti_stage_linger(struct tutti_comm *comm, uint64_t deadline)
{
    enum { SLEEP_MS = 100 };
    int behind = -1, rank = -1;
    while (comm->stage && (behind = stage_collect(comm)) >= 0 && !tti_deadline_passed(deadline)) {
        if (tti_boot_poll(comm->boot, &rank) != TUTTI_OK || tti_links_progress(comm) != TUTTI_OK)
            return;
        if (tti_boot_has_left(comm->boot, behind)) { /* it reads no more */
            comm->stage->read[behind] = comm->stage->filled;
            continue;
        }
        tti_links_sleep(comm, tti_deadline_ms(deadline, SLEEP_MS));
    }
}
