/* A larger communicator from one that there is and ranks that are new: ncclCommGetUniqueId and
 * ncclCommGrow. All meet by an id that one of the old ranks, the root, has made and handed to the
 * new ones; the other old ranks learn it over the parent. Read nccl_init.c first.
 *
 * Who listens for an id must be rank 0 of those who meet. So if the root is another rank, the two
 * change places to meet, and a split puts all in order. */
#include "nccl/nccl_comm.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

ncclResult_t pncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *uniqueId)
{
    struct tutti_id id;
    if (!uniqueId)
        return tti_nccl_fail(ncclInvalidArgument, "ncclCommGetUniqueId: uniqueId is NULL");
    ncclResult_t result = tti_nccl_enter(comm, "ncclCommGetUniqueId");
    if (result != ncclSuccess)
        return result;
    pthread_mutex_lock(&comm->lock);
    const bool growing = comm->growing;
    comm->growing = true;
    pthread_mutex_unlock(&comm->lock);
    if (growing) {
        tti_nccl_leave(comm);
        return tti_nccl_fail(
            ncclInvalidUsage,
            "ncclCommGetUniqueId: the id that it gave last is not used up; pass it "
            "to ncclCommGrow first");
    }
    enum tutti_result made = tutti_id_create(NULL, &id);
    result =
        made == TUTTI_OK ? tti_nccl_id_write(&id, comm->rank, uniqueId) : tti_nccl_result(made);
    pthread_mutex_lock(&comm->lock);
    if (result == ncclSuccess)
        comm->grow_id = id;
    else
        comm->growing = false;
    pthread_mutex_unlock(&comm->lock);
    tti_nccl_leave(comm);
    return result;
}
TTI_NCCL_ALSO(CommGetUniqueId);

/* What the old ranks tell each other. */
struct growing {
    struct tutti_id id;
    int32_t has_id; /* enum tti_nccl_grow_id */
    int32_t root;
};

/* The id that counts among those that ranks have in this way; *ids: how many different ones. */
static const struct growing *grow_pick(const struct growing *all, int ranks,
                                       enum tti_nccl_grow_id way, int *ids)
{
    const struct growing *picked = NULL;
    *ids = 0;
    for (int r = 0; r < ranks; r++) {
        if (all[r].has_id != (int32_t)way)
            continue;
        if (!picked || strcmp(picked->id.text, all[r].id.text) != 0)
            (*ids)++;
        picked = picked ? picked : &all[r];
    }
    return picked;
}

/* The root's id, on all old ranks: that which ranks were given (the root alone, or all of them),
 * else that which one of them has made. */
static ncclResult_t grow_share(struct tti_nccl_job *job)
{
    const int ranks = job->parent->nranks;
    struct growing own = {.id = job->id, .has_id = (int32_t)job->has_id, .root = job->root};
    struct growing *all = tti_calloc((size_t)ranks, sizeof *all);
    int ids = 0;
    if (!all)
        return tti_nccl_result(TUTTI_ERR_MEMORY);
    enum tutti_result result =
        tutti_all_gather(&own, all, sizeof own, TUTTI_UINT8, job->parent->tutti);
    const struct growing *picked = NULL;
    if (result == TUTTI_OK)
        picked = grow_pick(all, ranks, TTI_NCCL_GROW_GIVEN, &ids);
    if (result == TUTTI_OK && !picked)
        picked = grow_pick(all, ranks, TTI_NCCL_GROW_KEPT, &ids);
    if (picked) {
        job->id = picked->id;
        job->root = picked->root;
    }
    free(all);
    if (result != TUTTI_OK)
        return tti_nccl_result(result);
    if (ids != 1)
        return tti_nccl_fail(
            ncclInvalidUsage,
            "ncclCommGrow: %d ids among the ranks of the communicator; expected one, that "
            "of the rank that called ncclCommGetUniqueId",
            ids);
    return ncclSuccess;
}

static ncclResult_t grow_run(struct tti_nccl_job *job)
{
    struct tutti_options options;
    tutti_comm *met = NULL, *ordered = NULL;
    ncclResult_t shared = job->parent ? grow_share(job) : ncclSuccess;
    if (job->parent && job->has_id != TTI_NCCL_GROW_NO_ID) {
        pthread_mutex_lock(&job->parent->lock);
        job->parent->growing = false;
        pthread_mutex_unlock(&job->parent->lock);
    }
    if (shared != ncclSuccess)
        return shared;
    const int rank = job->comm->rank, ranks = job->comm->nranks;
    const int place = rank == job->root ? 0 : rank == 0 ? job->root : rank;
    tti_nccl_options(job->comm->network, &options);
    enum tutti_result result = tutti_comm_create(&job->id, place, ranks, &options, &met);
    if (result == TUTTI_OK && job->root != 0) {
        result = tutti_comm_split(met, 0, rank, &ordered);
        tutti_comm_destroy(met);
        met = ordered;
    }
    return result == TUTTI_OK ? tti_nccl_comm_take(job->comm, met) : tti_nccl_result(result);
}

static ncclResult_t grow_wrong(ncclComm_t comm, int ranks, const ncclUniqueId *id, int rank,
                               const ncclComm_t *newcomm)
{
    if (!newcomm)
        return tti_nccl_fail(ncclInvalidArgument, "ncclCommGrow: newcomm is NULL");
    if (!comm && !id)
        return tti_nccl_fail(ncclInvalidArgument,
                             "ncclCommGrow: neither a communicator nor an id is given; a new rank "
                             "passes the root's id");
    if (comm ? rank != -1 : rank < 0 || rank >= ranks)
        return tti_nccl_fail(ncclInvalidArgument, "ncclCommGrow: rank is %d; expected %s", rank,
                             comm ? "-1 on a rank of the communicator, which keeps its rank"
                                  : "0 <= rank < nRanks on a new rank");
    return ncclSuccess;
}

/* The parent is entered. */
static ncclResult_t grow_job(ncclComm_t parent, int ranks, int rank, const ncclConfig_t *config,
                             ncclComm_t *newcomm, struct tti_nccl_job **job)
{
    struct ncclComm *made = NULL;
    if (parent && ranks <= parent->nranks)
        return tti_nccl_fail(ncclInvalidArgument,
                             "ncclCommGrow: nRanks is %d; the communicator has %d already", ranks,
                             parent->nranks);
    ncclResult_t result = tti_nccl_comm_new(parent ? parent->rank : rank, ranks, config,
                                            parent ? &parent->config : NULL, &made);
    if (result != ncclSuccess)
        return result;
    if (parent)
        made->device = parent->device;
    result = tti_nccl_job_new(made, newcomm, grow_run, job);
    if (result != ncclSuccess)
        tti_nccl_comm_release(made);
    else
        (*job)->parent = parent;
    return result;
}

/* The root may leave out the id that it has made. */
static void grow_keep(ncclComm_t comm, struct tti_nccl_job *job)
{
    pthread_mutex_lock(&comm->lock);
    if (comm->growing) {
        job->id = comm->grow_id;
        job->has_id = TTI_NCCL_GROW_KEPT;
        job->root = comm->rank;
    }
    pthread_mutex_unlock(&comm->lock);
}

ncclResult_t pncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank,
                           ncclComm_t *newcomm, ncclConfig_t *config)
{
    struct tti_nccl_job *job = NULL;
    struct tutti_id id = {.text = ""};
    int root = 0;
    tti_nccl_settings();
    ncclResult_t result = grow_wrong(comm, nRanks, uniqueId, rank, newcomm);
    if (result == ncclSuccess && uniqueId)
        result = tti_nccl_id_read(uniqueId, &id, &root);
    if (result == ncclSuccess && (root < 0 || root >= nRanks))
        result = tti_nccl_fail(ncclInvalidArgument,
                               "ncclCommGrow: the id is not one of ncclCommGetUniqueId");
    if (result != ncclSuccess)
        return tti_nccl_group_failed(result);
    *newcomm = NULL;
    if (comm)
        result = tti_nccl_enter(comm, "ncclCommGrow");
    if (result != ncclSuccess)
        return tti_nccl_group_failed(result);
    result = grow_job(comm, nRanks, rank, config, newcomm, &job);
    if (result != ncclSuccess) {
        if (comm)
            tti_nccl_leave(comm);
        return tti_nccl_group_failed(result);
    }
    job->id = id;
    job->has_id = uniqueId ? TTI_NCCL_GROW_GIVEN : TTI_NCCL_GROW_NO_ID;
    job->root = root;
    if (comm && !uniqueId)
        grow_keep(comm, job);
    return tti_nccl_job_submit(job);
}
TTI_NCCL_ALSO(CommGrow);
