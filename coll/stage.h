/* Memory of a communicator's that operations on the staged path copy their inputs into, window by
 * window (coll/staged.h): a ring. A window stays where it is until all who were sent it have read
 * it, which may be long after the operation that it belongs to has returned; the oldest goes first.
 *
 * While nobody is behind, windows keep to the start of the ring, where the caches have it. */
#ifndef TTI_COLL_STAGE_H
#define TTI_COLL_STAGE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tutti_comm;

enum {
    TTI_STAGE_BYTES = 8 << 20,
    TTI_STAGE_WINDOWS = 256,    /* the most that are kept, a power of two */
    TTI_STAGE_ALIGN = 4096,     /* windows begin at multiples of it */
    TTI_STAGE_HOME = 256 << 10, /* bytes that who is not behind keeps to */
};

struct tti_stage {
    char *memory;            /* a region */
    uint64_t head;           /* where the next window may begin: bytes since the beginning */
    uint64_t oldest, filled; /* windows, since the beginning: those before are read; all */
    int ranks;
    uint64_t begin[TTI_STAGE_WINDOWS]; /* by window, modulo their number: where it is */
    uint64_t *read; /* by rank: it is through with the windows before; in `ends` */
    /* [window][rank]: read when so many bytes of the link are released; UINT64_MAX: not sent yet,
     * 0: not for this rank. */
    uint64_t ends[];
};

/* How far the windows of an operation may get ahead of the slowest reader. */
struct tti_stage_limit {
    size_t windows; /* so many may be kept, this one among them; at least 1 */
    size_t bytes;   /* of the ring, from its start, may be used; at least a window's */
};

/* Make the communicator's, if it has none. */
enum tutti_result tti_stage_make(struct tutti_comm *comm);
void tti_stage_destroy(struct tti_stage *stage);

/* Room for a window of so many bytes: true, and it is window number `filled` from then on, which
 * nobody has been sent. False: *behind has not read what must go first (it may not have been sent
 * it). */
bool tti_stage_take(struct tutti_comm *comm, size_t bytes, const struct tti_stage_limit *limit,
                    int *behind);

/* Before the links end: wait until all that was sent is read, so that who comes late to an
 * operation that this rank has returned from still finds its data. Until `deadline`, or until the
 * bootstrap tells of a failure; not for those who have left. */
void tti_stage_linger(struct tutti_comm *comm, uint64_t deadline);

/* What a window of so many bytes takes of the ring. */
static inline size_t tti_stage_room(size_t bytes)
{
    return (bytes + TTI_STAGE_ALIGN - 1) / TTI_STAGE_ALIGN * TTI_STAGE_ALIGN;
}

/* Of one of the last TTI_STAGE_WINDOWS windows. */
static inline char *tti_stage_at(const struct tti_stage *stage, uint64_t window)
{
    return stage->memory + stage->begin[window % TTI_STAGE_WINDOWS] % TTI_STAGE_BYTES;
}

static inline uint64_t *tti_stage_end(struct tti_stage *stage, uint64_t window, int rank)
{
    return &stage->ends[window % TTI_STAGE_WINDOWS * (uint64_t)stage->ranks + (uint64_t)rank];
}

#endif
