/* NCCL 2.28's interface for communication from inside kernels (nccl_device.h). Its device side is
 * code that NVIDIA's header compiles into the program, for NVIDIA's memory layouts, so nothing of
 * it can run here: what would prepare it says so. Questions about teams have answers. */
#include "nccl/nccl_comm.h"

/* As in nccl_device.h; what is passed by pointer only stays opaque. */
struct team {
    int nRanks, rank, stride;
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
