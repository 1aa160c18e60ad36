/* Making communicators: from an id, for all devices of a process, by splitting and by shrinking.
 * All of it may take long, so it is a job (nccl_job.c). */
#include "nccl/nccl_comm.h"

#include "base/clock.h"
#include "base/memory.h"
#include "coll/gpu/gpu_calls.h"
#include "launch/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the communicator ---- */

ncclResult_t tti_nccl_comm_new(int rank, int nranks, const ncclConfig_t *given,
                               const ncclConfig_t *parent, struct ncclComm **comm)
{
    struct ncclComm *made = tti_calloc(1, sizeof *made);
    if (!made)
        return tti_nccl_result(TUTTI_ERR_MEMORY);
    ncclResult_t result = tti_nccl_config(given, parent, &made->config);
    if (result != ncclSuccess) {
        free(made);
        return result;
    }
    made->magic = TTI_NCCL_COMM_MAGIC;
    made->process = tti_nccl_process();
    made->rank = rank;
    made->nranks = nranks;
    made->device = tti_nccl_current_device();
    made->blocking = made->config.blocking != 0;
    if (made->config.commName)
        snprintf(made->name, sizeof made->name, "%s", made->config.commName);
    if (made->config.netName)
        snprintf(made->network, sizeof made->network, "%s", made->config.netName);
    made->config.commName = made->config.netName = NULL; /* the caller's, who may free them */
    pthread_mutex_init(&made->lock, NULL);
    tti_cond_init(&made->changed);
    *comm = made;
    return ncclSuccess;
}

/* The simulated device has no streams that a program could make: ours stands in for NULL. */
static enum tutti_result comm_simulated(struct ncclComm *comm)
{
    if (comm->gpu_ops != tti_gpu_sim())
        return TUTTI_OK;
    TTI_TRY(comm->gpu_ops->open(comm->device, &comm->gpu));
    return comm->gpu_ops->stream_create(comm->gpu, &comm->stream);
}

/* All ranks do it together, so it may take as long as the others let it. */
static enum tutti_result comm_prepare(struct ncclComm *comm)
{
    TTI_TRY(tti_comm_prepare_device(comm->tutti, comm->device));
    TTI_TRY(comm_simulated(comm));
    if (comm->gpu_ops && !comm->stream) /* a program's stream 0 */
        tti_comm_order_default(comm->tutti);
    return TUTTI_OK;
}

ncclResult_t tti_nccl_comm_take(struct ncclComm *comm, tutti_comm *tutti)
{
    comm->gpu_ops = tti_gpu_side_ops(tutti);
    pthread_mutex_lock(&comm->lock);
    comm->tutti = tutti; /* from here on whoever gives it up aborts that */
    comm->rank = tutti_comm_rank(tutti);
    comm->nranks = tutti_comm_size(tutti);
    pthread_mutex_unlock(&comm->lock);
    tti_nccl_comm_enlist(comm);
    if (comm->given_up) /* before there was anything to abort */
        tutti_comm_abort(tutti, "while it was made");
    enum tutti_result result = comm->given_up ? tutti_comm_error(tutti) : TUTTI_OK;
    if (result == TUTTI_OK)
        result = comm_prepare(comm);
    if (result != TUTTI_OK)
        return tti_nccl_result(result);
    TTI_LOG(TTI_LOG_INFO, "communicator%s%s: rank %d of %d, device %d (%s): ready",
            comm->name[0] ? " " : "", comm->name, comm->rank, comm->nranks, comm->device,
            comm->gpu_ops ? comm->gpu_ops->name : "none");
    return ncclSuccess;
}

/* ---- from an id ---- */

static ncclResult_t init_run(struct tti_nccl_job *job)
{
    struct tutti_options options;
    tutti_comm *tutti = NULL;
    tti_nccl_options(job->comm->network, &options);
    enum tutti_result result =
        tutti_comm_create(&job->id, job->comm->rank, job->comm->nranks, &options, &tutti);
    if (result != TUTTI_OK)
        return tti_nccl_result(result);
    return tti_nccl_comm_take(job->comm, tutti);
}

/* The last bytes of a unique id, after the text's end: the rank that listens. */
static const size_t id_root_at = NCCL_UNIQUE_ID_BYTES - sizeof(uint32_t);

ncclResult_t tti_nccl_id_read(const ncclUniqueId *unique, struct tutti_id *id, int *root)
{
    uint32_t rank = 0;
    if (!memchr(unique->internal, 0, id_root_at))
        return tti_nccl_fail(ncclInvalidArgument,
                             "the unique id is not one that ncclGetUniqueId of this library made; "
                             "do all ranks load the same libnccl.so.2?");
    memset(id, 0, sizeof *id);
    memcpy(id->text, unique->internal, id_root_at);
    memcpy(&rank, unique->internal + id_root_at, sizeof rank);
    if (root)
        *root = (int)rank;
    return ncclSuccess;
}

ncclResult_t tti_nccl_id_write(const struct tutti_id *id, int root, ncclUniqueId *unique)
{
    const uint32_t rank = (uint32_t)root;
    const size_t length = strlen(id->text);
    if (length >= id_root_at)
        return tti_nccl_fail(ncclSystemError,
                             "the host name in the id is too long for the %d bytes of a unique id; "
                             "give an address (TUTTI_IFNAME, NCCL_COMM_ID)",
                             NCCL_UNIQUE_ID_BYTES);
    memset(unique, 0, sizeof *unique);
    memcpy(unique->internal, id->text, length);
    memcpy(unique->internal + id_root_at, &rank, sizeof rank);
    return ncclSuccess;
}

static ncclResult_t init_comm(ncclComm_t *handle, int nranks, const ncclUniqueId *unique, int rank,
                              const ncclConfig_t *config, int device)
{
    struct ncclComm *comm = NULL;
    struct tti_nccl_job *job = NULL;
    struct tutti_id id;
    tti_nccl_settings();
    if (!handle)
        return tti_nccl_group_failed(
            tti_nccl_fail(ncclInvalidArgument, "ncclCommInitRank: comm is NULL"));
    *handle = NULL;
    if (nranks < 1 || rank < 0 || rank >= nranks)
        return tti_nccl_group_failed(tti_nccl_fail(
            ncclInvalidArgument,
            "ncclCommInitRank: rank %d of %d ranks; expected 0 <= rank < nranks", rank, nranks));
    if (rank == 0)
        tti_nccl_print_version();
    ncclResult_t result = tti_nccl_id_read(unique, &id, NULL);
    if (result == ncclSuccess)
        result = tti_nccl_comm_new(rank, nranks, config, NULL, &comm);
    if (result != ncclSuccess)
        return tti_nccl_group_failed(result);
    if (device >= 0)
        comm->device = device;
    result = tti_nccl_job_new(comm, handle, init_run, &job);
    if (result != ncclSuccess) {
        tti_nccl_comm_release(comm);
        return tti_nccl_group_failed(result);
    }
    job->id = id;
    return tti_nccl_job_submit(job);
}

ncclResult_t pncclGetUniqueId(ncclUniqueId *uniqueId)
{
    struct tutti_id id;
    enum tutti_result result = TUTTI_OK;
    tti_nccl_settings();
    if (!uniqueId)
        return tti_nccl_fail(ncclInvalidArgument, "ncclGetUniqueId: uniqueId is NULL");
    if (!tti_nccl_id_by_variable(&id, &result))
        result = tutti_id_create(NULL, &id);
    if (result != TUTTI_OK)
        return tti_nccl_result(result);
    return tti_nccl_id_write(&id, 0, uniqueId);
}
TTI_NCCL_ALSO(GetUniqueId);

ncclResult_t pncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
    return init_comm(comm, nranks, &commId, rank, NULL, -1);
}
TTI_NCCL_ALSO(CommInitRank);

ncclResult_t pncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,
                                     ncclConfig_t *config)
{
    return init_comm(comm, nranks, &commId, rank, config, -1);
}
TTI_NCCL_ALSO(CommInitRankConfig);

/* One id is enough: the others only spread the load of meeting, which is small. */
ncclResult_t pncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId,
                                       ncclUniqueId *commIds, ncclConfig_t *config)
{
    if (!commIds || nId < 1 || nId > nranks)
        return tti_nccl_group_failed(
            tti_nccl_fail(ncclInvalidArgument,
                          "ncclCommInitRankScalable: %d ids at %p; expected 1 to nranks (%d)", nId,
                          (void *)commIds, nranks));
    for (int i = 1; i < nId; i++) {
        struct tutti_id id;
        if (tti_nccl_id_read(&commIds[i], &id, NULL) == ncclSuccess)
            tti_id_forget(&id);
    }
    return init_comm(newcomm, nranks, &commIds[0], myrank, config, -1);
}
TTI_NCCL_ALSO(CommInitRankScalable);

/* ---- all devices of a process ---- */

ncclResult_t pncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist)
{
    ncclUniqueId unique;
    ncclResult_t result = ncclSuccess;
    if (!comm || ndev < 1)
        return tti_nccl_fail(ncclInvalidArgument,
                             "ncclCommInitAll: %d devices, comm is %p; expected at least one, and "
                             "an array for their communicators",
                             ndev, (void *)comm);
    for (int r = 0; r < ndev && devlist; r++)
        if (devlist[r] < 0)
            return tti_nccl_fail(ncclInvalidArgument,
                                 "ncclCommInitAll: devlist[%d] is %d; expected 0 or more", r,
                                 devlist[r]);
    result = pncclGetUniqueId(&unique);
    if (result != ncclSuccess)
        return result;
    (void)pncclGroupStart();
    for (int r = 0; r < ndev && result == ncclSuccess; r++)
        result = init_comm(&comm[r], ndev, &unique, r, NULL, devlist ? devlist[r] : r);
    const ncclResult_t ended = pncclGroupEnd();
    return result == ncclSuccess ? ended : result;
}
TTI_NCCL_ALSO(CommInitAll);

/* ---- from a parent ---- */

static ncclResult_t split_run(struct tti_nccl_job *job)
{
    tutti_comm *tutti = NULL;
    enum tutti_result result = tutti_comm_split(job->parent->tutti, job->color, job->key, &tutti);
    if (result != TUTTI_OK)
        return tti_nccl_result(result);
    return tutti ? tti_nccl_comm_take(job->comm, tutti) : ncclSuccess;
}

/* A job for a new communicator of some of the parent's ranks; the parent is entered. */
static ncclResult_t child_job(struct ncclComm *parent, ncclComm_t *handle,
                              const ncclConfig_t *config,
                              ncclResult_t (*run)(struct tti_nccl_job *), struct tti_nccl_job **job)
{
    struct ncclComm *comm = NULL;
    ncclResult_t result =
        tti_nccl_comm_new(parent->rank, parent->nranks, config, &parent->config, &comm);
    if (result != ncclSuccess)
        return result;
    comm->device = parent->device;
    result = tti_nccl_job_new(comm, handle, run, job);
    if (result != ncclSuccess) {
        tti_nccl_comm_release(comm);
        return result;
    }
    (*job)->parent = parent;
    return ncclSuccess;
}

ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                            ncclConfig_t *config)
{
    struct tti_nccl_job *job = NULL;
    if (!newcomm)
        return tti_nccl_group_failed(
            tti_nccl_fail(ncclInvalidArgument, "ncclCommSplit: newcomm is NULL"));
    *newcomm = NULL;
    if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
        return tti_nccl_group_failed(tti_nccl_fail(
            ncclInvalidArgument,
            "ncclCommSplit: color is %d; expected 0 or more, or NCCL_SPLIT_NOCOLOR", color));
    ncclResult_t result = tti_nccl_enter(comm, "ncclCommSplit");
    if (result != ncclSuccess)
        return tti_nccl_group_failed(result);
    result = child_job(comm, newcomm, config, split_run, &job);
    if (result != ncclSuccess) {
        tti_nccl_leave(comm);
        return tti_nccl_group_failed(result);
    }
    job->color = color;
    job->key = key;
    /* Who gets none has nothing to ask either: the job ends what stands for it. */
    const bool none = color == NCCL_SPLIT_NOCOLOR && !tti_nccl_job_waits(job);
    job->comm->orphan = none;
    result = tti_nccl_job_submit(job);
    if (none)
        *newcomm = NULL;
    return result;
}
TTI_NCCL_ALSO(CommSplit);

static ncclResult_t shrink_run(struct tti_nccl_job *job)
{
    tutti_comm *tutti = NULL;
    if (job->abort_parent)
        tutti_comm_abort(job->parent->tutti, "ncclCommShrink with NCCL_SHRINK_ABORT");
    ncclResult_t result = tti_nccl_result(
        tutti_comm_shrink(job->parent->tutti, job->excluded, job->excludes, &tutti));
    if (result == ncclSuccess)
        result = tti_nccl_comm_take(job->comm, tutti);
    if (result == ncclSuccess && job->abort_parent) { /* why it was aborted has been seen to */
        pthread_mutex_lock(&job->parent->lock);
        job->parent->revoked = true;
        pthread_mutex_unlock(&job->parent->lock);
    }
    return result;
}

ncclResult_t pncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount,
                             ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags)
{
    struct tti_nccl_job *job = NULL;
    if (!newcomm || !excludeRanksList || excludeRanksCount < 1 ||
        (shrinkFlags != NCCL_SHRINK_DEFAULT && shrinkFlags != NCCL_SHRINK_ABORT))
        return tti_nccl_group_failed(tti_nccl_fail(
            ncclInvalidArgument,
            "ncclCommShrink: newcomm %p, %d ranks at %p or flags 0x%x is wrong", (void *)newcomm,
            excludeRanksCount, (void *)excludeRanksList, (unsigned)shrinkFlags));
    *newcomm = NULL;
    ncclResult_t result = tti_nccl_enter(comm, "ncclCommShrink");
    if (result != ncclSuccess)
        return tti_nccl_group_failed(result);
    result = child_job(comm, newcomm, config, shrink_run, &job);
    if (result != ncclSuccess) {
        tti_nccl_leave(comm);
        return tti_nccl_group_failed(result);
    }
    int *excluded = tti_calloc((size_t)excludeRanksCount, sizeof *excluded);
    if (!excluded) {
        tti_nccl_comm_release(job->comm);
        tti_nccl_job_free(job);
        tti_nccl_leave(comm);
        return tti_nccl_group_failed(tti_nccl_result(TUTTI_ERR_MEMORY));
    }
    memcpy(excluded, excludeRanksList, (size_t)excludeRanksCount * sizeof *excluded);
    job->excluded = excluded;
    job->excludes = excludeRanksCount;
    job->abort_parent = shrinkFlags == NCCL_SHRINK_ABORT;
    return tti_nccl_job_submit(job);
}
TTI_NCCL_ALSO(CommShrink);
