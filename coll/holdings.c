/* What a communicator holds (tutti_comm_memory): each part adds its own. A part that is forgotten
 * here is missed by tests/coll/test_holdings.c, which compares with what the process has. */
#include "base/memory.h"
#include "coll/column.h"
#include "coll/comm.h"
#include "coll/exec_internal.h"
#include "coll/gpu/gpu_calls.h"
#include "coll/post.h"
#include "coll/small_program.h"
#include "coll/tuning.h"
#include "transport/registry.h"

void tti_add_region(const void *region, size_t bytes, struct tutti_memory *memory)
{
    const size_t page = 4096, pages = (bytes + page - 1) / page * page;
    if (!region)
        return;
    memory->shared += pages;
    memory->shared_used += tti_pages_used(region, pages);
    memory->descriptors++;
}

void tti_executor_memory(const struct tti_executor *x, struct tutti_memory *memory)
{
    memory->host += tti_heap_bytes(x) + tti_heap_bytes(x->lanes) + tti_heap_bytes(x->slabs) +
                    tti_heap_bytes(x->exchange);
    for (size_t i = 0; i < x->slab_count; i++)
        memory->host += tti_heap_bytes(x->slabs[i]);
    tti_add_region(x->scratch, x->scratch_bytes, memory);
}

static void add_peers(const struct tti_peers *peers, struct tutti_memory *memory)
{
    memory->host += tti_heap_bytes(peers->all) + tti_heap_bytes(peers->names) +
                    tti_heap_bytes(peers->blobs) + tti_heap_bytes(peers->host_of) +
                    tti_heap_bytes(peers->gate_of) + tti_heap_bytes(peers->far_nics);
    for (int level = 0; level < TTI_NEAR_LEVELS; level++)
        memory->host += tti_heap_bytes(peers->near_of[level]);
    for (int i = 0; i < peers->ncarriers; i++)
        tti_transport_memory(peers->carriers[i].ops, peers->carriers[i].object, memory);
}

/* With a descriptor it is shared memory, though only readers ever map it. */
static void add_recorder(const struct tti_recorder *recorder, struct tutti_memory *memory)
{
    if (!recorder->page)
        return;
    tti_add_region(recorder->page, recorder->bytes, memory);
    memory->descriptors -= recorder->fd < 0;
}

void tti_comm_holdings(const struct tutti_comm *comm, struct tutti_memory *memory)
{
    memory->host += tti_heap_bytes(comm) + tti_heap_bytes(comm->settings.transports) +
                    tti_heap_bytes(comm->settings.algorithms) +
                    tti_heap_bytes(comm->settings.plugins) + tti_heap_bytes(comm->links.all) +
                    tti_plan_cache_bytes(&comm->plans) + tti_column_bytes(comm->column) +
                    tti_shrunk_bytes(comm) + tti_heap_bytes(comm->tuning) +
                    tti_heap_bytes(comm->tuning_source);
    if (comm->tuning)
        memory->host += tti_heap_bytes(comm->tuning->series);
    for (int i = 0; i < TTI_SMALL_PROGRAMS; i++)
        memory->host += comm->small.all[i] ? tti_heap_bytes(comm->small.all[i]) +
                                                 tti_heap_bytes(comm->small.all[i]->blocks)
                                           : 0;
    for (int i = 0; i < TTI_FUSED_AGAIN; i++)
        memory->host += tti_heap_bytes(comm->again[i]);
    memory->descriptors += comm->wake_fd >= 0;
    add_recorder(&comm->recorder, memory);
    tti_boot_memory(comm->boot, memory);
    add_peers(&comm->peers, memory);
    tti_executor_memory(comm->executor, memory);
    tti_add_region(comm->aside, comm->aside_bytes, memory);
    tti_gpu_side_memory(comm, memory);
    tti_add_region(comm->fused_aside, TTI_FUSED_ASIDE_BYTES, memory);
    tti_post_memory(comm->post, memory);
    memory->host += tti_heap_bytes(comm->stage);
    if (comm->stage)
        tti_add_region(comm->stage->memory, TTI_STAGE_BYTES, memory);
}

enum tutti_result tutti_comm_memory(tutti_comm *comm, struct tutti_memory *memory)
{
    if (!comm || !memory)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_comm_memory: %s is NULL",
                        comm ? "memory" : "comm");
    if (comm->forked) /* the post's part is told by a thread that is not here */
        return tti_comm_check(comm);
    tti_work_pause(comm);
    struct tutti_memory found = {0};
    tti_comm_holdings(comm, &found);
    tti_work_resume(comm);
    *memory = found;
    return TUTTI_OK;
}
