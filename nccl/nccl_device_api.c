/* NCCL's interface for communication from inside kernels (nccl_device.h, since 2.28). Its device
 * side is code that NVIDIA's header compiles into the program, for NVIDIA's memory layouts, so
 * nothing of it can run here: what would prepare it says so. Questions about teams have answers. */
#include "nccl/nccl_comm.h"

#include <string.h>

/* As in nccl_device.h; what is passed by pointer only stays opaque. */
struct team {
    int nRanks, rank, stride;
};
struct properties {
    size_t size; /* the first three are the initializer's */
    unsigned magic, version;
    int rank, nRanks, cudaDev, nvmlDev;
    bool deviceApiSupport, multimemSupport;
    int ginType, nLsaTeams;
    bool hostRmaSupport;
    int railedGinType;
};
struct multimem {
    void *address;
};

#define DOOR __attribute__((visibility("default")))
#define REFUSE(name)                                                                           \
    tti_nccl_fail(ncclInvalidUsage,                                                            \
                  "%s: communication from inside kernels (nccl_device.h) is not supported by " \
                  "Tutti; use the collectives, which queue on a stream",                       \
                  name)

DOOR ncclResult_t pncclDevCommCreate(ncclComm_t comm, const void *requirements, void *devComm);
DOOR ncclResult_t pncclDevCommDestroy(ncclComm_t comm, const void *devComm);
DOOR ncclResult_t pncclLsaBarrierCreateRequirement(struct team team, int barriers, void *handle,
                                                   void *requirement);
DOOR ncclResult_t pncclGinBarrierCreateRequirement(ncclComm_t comm, struct team team, int barriers,
                                                   void *handle, void *requirement);
DOOR ncclResult_t pncclLLA2ACreateRequirement(int blocks, int slots, void *handle,
                                              void *requirement);
DOOR int pncclLLA2ACalcSlots(int maxElts, int maxEltSize);
DOOR struct team pncclTeamWorld(ncclComm_t comm);
DOOR struct team pncclTeamLsa(ncclComm_t comm);
DOOR struct team pncclTeamRail(ncclComm_t comm);
DOOR int pncclTeamRankToWorld(ncclComm_t comm, struct team team, int rank);
DOOR int pncclTeamRankToLsa(ncclComm_t comm, struct team team, int rank);
DOOR ncclResult_t pncclCommQueryProperties(ncclComm_t comm, struct properties *properties);
DOOR ncclResult_t pncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int lsaRank,
                                           void **pointer);
DOOR ncclResult_t pncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer,
                                            void **pointer);
DOOR ncclResult_t pncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset,
                                                   void **pointer);
DOOR ncclResult_t pncclGetMultimemDevicePointer(ncclWindow_t window, size_t offset,
                                                struct multimem multimem, void **pointer);
DOOR ncclResult_t pncclGinOutboxCreateRequirement(int blocks, int size_log2, void *handle,
                                                  void *requirement);
DOOR ncclResult_t pncclGinInboxA2ACreateRequirement(struct team peers, int blocks, int size_log2,
                                                    void *handle, void *requirement);
DOOR void ncclResetDebugInitInternal(void);

ncclResult_t pncclDevCommCreate(ncclComm_t comm, const void *requirements, void *devComm)
{
    (void)comm, (void)requirements, (void)devComm;
    return REFUSE("ncclDevCommCreate");
}
TTI_NCCL_ALSO(DevCommCreate);

ncclResult_t pncclDevCommDestroy(ncclComm_t comm, const void *devComm)
{
    (void)comm, (void)devComm;
    return REFUSE("ncclDevCommDestroy");
}
TTI_NCCL_ALSO(DevCommDestroy);

ncclResult_t pncclLsaBarrierCreateRequirement(struct team team, int barriers, void *handle,
                                              void *requirement)
{
    (void)team, (void)barriers, (void)handle, (void)requirement;
    return REFUSE("ncclLsaBarrierCreateRequirement");
}
TTI_NCCL_ALSO(LsaBarrierCreateRequirement);

ncclResult_t pncclGinBarrierCreateRequirement(ncclComm_t comm, struct team team, int barriers,
                                              void *handle, void *requirement)
{
    (void)comm, (void)team, (void)barriers, (void)handle, (void)requirement;
    return REFUSE("ncclGinBarrierCreateRequirement");
}
TTI_NCCL_ALSO(GinBarrierCreateRequirement);

ncclResult_t pncclLLA2ACreateRequirement(int blocks, int slots, void *handle, void *requirement)
{
    (void)blocks, (void)slots, (void)handle, (void)requirement;
    return REFUSE("ncclLLA2ACreateRequirement");
}
TTI_NCCL_ALSO(LLA2ACreateRequirement);

ncclResult_t pncclGinOutboxCreateRequirement(int blocks, int size_log2, void *handle,
                                             void *requirement)
{
    (void)blocks, (void)size_log2, (void)handle, (void)requirement;
    return REFUSE("ncclGinOutboxCreateRequirement");
}
TTI_NCCL_ALSO(GinOutboxCreateRequirement);

ncclResult_t pncclGinInboxA2ACreateRequirement(struct team peers, int blocks, int size_log2,
                                               void *handle, void *requirement)
{
    (void)peers, (void)blocks, (void)size_log2, (void)handle, (void)requirement;
    return REFUSE("ncclGinInboxA2ACreateRequirement");
}
TTI_NCCL_ALSO(GinInboxA2ACreateRequirement);

/* What programs ask before they choose that interface: it is not there. */
ncclResult_t pncclCommQueryProperties(ncclComm_t comm, struct properties *properties)
{
    if (!properties || properties->magic != NCCL_API_MAGIC ||
        properties->size < offsetof(struct properties, rank))
        return tti_nccl_fail(
            ncclInvalidArgument,
            "ncclCommQueryProperties: begin with NCCL_COMM_PROPERTIES_INITIALIZER");
    struct properties known = {
        .size = properties->size, .magic = properties->magic, .version = properties->version};
    ncclResult_t result = pncclCommCount(comm, &known.nRanks);
    if (result == ncclSuccess)
        result = pncclCommUserRank(comm, &known.rank);
    if (result == ncclSuccess)
        result = pncclCommCuDevice(comm, &known.cudaDev);
    if (result != ncclSuccess)
        return result;
    known.nvmlDev = known.cudaDev;
    known.nLsaTeams = known.nRanks;
    known.hostRmaSupport = true;
    memcpy(properties, &known, known.size < sizeof known ? known.size : sizeof known);
    return ncclSuccess;
}
TTI_NCCL_ALSO(CommQueryProperties);

/* The set of ranks whose memory a kernel may touch is the rank alone (ncclTeamLsa). */
ncclResult_t pncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int lsaRank,
                                      void **pointer)
{
    if (!window || !pointer || lsaRank != 0)
        return tti_nccl_fail(ncclInvalidArgument,
                             "ncclGetLsaDevicePointer: window %p, rank %d, pointer at %p; the LSA "
                             "team of each rank is the rank alone",
                             (void *)window, lsaRank, (void *)pointer);
    const struct tti_nccl_buffer *buffer = (const void *)window;
    *pointer = (char *)buffer->memory + offset;
    return ncclSuccess;
}
TTI_NCCL_ALSO(GetLsaDevicePointer);

ncclResult_t pncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void **pointer)
{
    (void)window, (void)offset, (void)peer, (void)pointer;
    return REFUSE("ncclGetPeerDevicePointer");
}
TTI_NCCL_ALSO(GetPeerDevicePointer);

ncclResult_t pncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void **pointer)
{
    (void)window, (void)offset, (void)pointer;
    return REFUSE("ncclGetLsaMultimemDevicePointer");
}
TTI_NCCL_ALSO(GetLsaMultimemDevicePointer);

ncclResult_t pncclGetMultimemDevicePointer(ncclWindow_t window, size_t offset,
                                           struct multimem multimem, void **pointer)
{
    (void)window, (void)offset, (void)multimem, (void)pointer;
    return REFUSE("ncclGetMultimemDevicePointer");
}
TTI_NCCL_ALSO(GetMultimemDevicePointer);

/* No slots: there is no such exchange. */
int pncclLLA2ACalcSlots(int maxElts, int maxEltSize)
{
    (void)maxElts, (void)maxEltSize;
    (void)REFUSE("ncclLLA2ACalcSlots");
    return 0;
}
TTI_NCCL_ALSO(LLA2ACalcSlots);

struct team pncclTeamWorld(ncclComm_t comm)
{
    struct team team = {0, 0, 0};
    if (pncclCommCount(comm, &team.nRanks) == ncclSuccess &&
        pncclCommUserRank(comm, &team.rank) == ncclSuccess)
        team.stride = 1;
    return team;
}
TTI_NCCL_ALSO(TeamWorld);

/* Ranks whose memory a kernel may load from and store to: with no such interface, only the own. */
struct team pncclTeamLsa(ncclComm_t comm)
{
    struct team team = {0, 0, 0};
    if (tti_nccl_comm_check(comm, "ncclTeamLsa") == ncclSuccess)
        team = (struct team){1, 0, 1};
    return team;
}
TTI_NCCL_ALSO(TeamLsa);

/* Those at the same place of other such sets: all ranks. */
struct team pncclTeamRail(ncclComm_t comm)
{
    return pncclTeamWorld(comm);
}
TTI_NCCL_ALSO(TeamRail);

int pncclTeamRankToWorld(ncclComm_t comm, struct team team, int rank)
{
    int own = 0;
    if (pncclCommUserRank(comm, &own) != ncclSuccess)
        return -1;
    return own + (rank - team.rank) * team.stride;
}
TTI_NCCL_ALSO(TeamRankToWorld);

int pncclTeamRankToLsa(ncclComm_t comm, struct team team, int rank)
{
    return pncclTeamRankToWorld(comm, team, rank) - pncclTeamRankToWorld(comm, team, team.rank);
}
TTI_NCCL_ALSO(TeamRankToLsa);

/* Exported by NVIDIA's library beside the public one, for its own use. */
void ncclResetDebugInitInternal(void)
{
    pncclResetDebugInit();
}
