/* Collectives on device memory in the flight recorder (coll/recorder.h), and what ranks find out by
 * it. Where ranks reach each other's memory, nothing of a call passes the host, so calls that
 * differ can only be told apart by what is written down of them: with the same number of bytes they
 * do not even hang, and would give wrong sums. Each rank numbers its calls and keeps a hash of all
 * so far; rank 0's watching thread (gpu_watch.c) has them laid side by side while calls are made.
 *
 * Captured calls are not recorded: a graph may run never, or often, and no host sees it. Others may
 * call what it replays, so after the first capture of a rank its calls are not compared any more.
 */
#include "coll/diagnose.h"
#include "coll/gpu/gpu_map.h"

enum { LOOK_NS = 200 * 1000 * 1000, LOOKS = 3 };

/* Never 0, which stands for "not written yet". */
static uint32_t record_hash(uint32_t before, const struct tti_operation *o)
{
    const uint64_t words[] = {
        tti_record_kind(o), o->count,
        o->collective == TUTTI_BARRIER ? 0 : (uint64_t)(int64_t)tti_record_root(o)};
    uint64_t hash = before;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        hash = (hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return (uint32_t)hash ? (uint32_t)hash : 1;
}

static void record_write(struct tutti_comm *comm, const struct tti_operation *o, uint64_t number,
                         uint32_t history)
{
    struct tti_record_ring *ring = &comm->recorder.ring[1];
    if (!ring->records)
        return;
    tti_record_begin(ring, o, number);
    const int part = (int)tti_record_part(o);
    tti_record_by(ring, TTI_RECORD_DEVICE, part ? part : TTI_RECORD_NO_ALGORITHM, 0);
    struct tti_record *r = tti_record_last(ring);
    tti_record_put(&r->start_ns, tti_now_ns());
    atomic_store_explicit(&r->queued_us, history, memory_order_release);
    if (comm->gpu->captured.any)
        atomic_fetch_or_explicit(&r->kind, TTI_RECORD_GRAPHS, memory_order_release);
}

void tti_gpu_record_begin(struct tutti_comm *comm, const struct tti_operation *o)
{
    struct tti_gpu_side *side = comm->gpu;
    side->history = record_hash(side->history, o);
    atomic_fetch_add_explicit(&side->calls, 1, memory_order_relaxed);
    record_write(comm, o, ++side->sequence, side->history);
}

void tti_gpu_record_message(struct tutti_comm *comm, const struct tti_operation *o)
{
    uint64_t *messages = comm->gpu->messages[tti_gpu_number(comm->gpu->map, o->root)];
    record_write(comm, o, ++messages[o->receives], 0);
}

void tti_gpu_record_settle(struct tutti_comm *comm)
{
    struct tti_gpu_side *side = comm->gpu;
    struct tti_record_ring *ring = &comm->recorder.ring[1];
    if (!ring->records || pthread_mutex_trylock(&side->lock) != 0)
        return;
    if (ring->first < ring->next && side->last.any &&
        side->ops->event_query(side->last.event) == TUTTI_OK)
        tti_record_end(ring, TUTTI_OK);
    pthread_mutex_unlock(&side->lock);
}

void tti_gpu_record_look(struct tutti_comm *comm)
{
    struct tti_gpu_side *side = comm->gpu;
    const uint64_t now = tti_now_ns();
    const uint64_t calls = atomic_load_explicit(&side->calls, memory_order_relaxed);
    if (comm->rank != 0 || now < side->look_ns)
        return;
    side->looks = calls != side->looked ? LOOKS : side->looks;
    if (side->looks == 0)
        return;
    side->looks--;
    side->looked = calls;
    side->look_ns = now + LOOK_NS;
    tti_diagnose_look(comm);
}
