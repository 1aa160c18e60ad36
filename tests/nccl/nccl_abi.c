/* Compiled twice, never run: against our nccl.h, and against NVIDIA's where there is one. Every
 * size, offset, value and signature stands here once, so what compiles with both is the same in
 * both. */
#include <nccl.h>

#include <stddef.h>

#define IS(value, expected) _Static_assert((value) == (expected), #value)

IS(ncclSuccess, 0);
IS(ncclUnhandledCudaError, 1);
IS(ncclSystemError, 2);
IS(ncclInternalError, 3);
IS(ncclInvalidArgument, 4);
IS(ncclInvalidUsage, 5);
IS(ncclRemoteError, 6);
IS(ncclInProgress, 7);
IS(ncclInt8, 0);
IS(ncclChar, 0);
IS(ncclUint8, 1);
IS(ncclInt32, 2);
IS(ncclInt, 2);
IS(ncclUint32, 3);
IS(ncclInt64, 4);
IS(ncclUint64, 5);
IS(ncclFloat16, 6);
IS(ncclHalf, 6);
IS(ncclFloat32, 7);
IS(ncclFloat, 7);
IS(ncclFloat64, 8);
IS(ncclDouble, 8);
IS(ncclBfloat16, 9);
IS(ncclFloat8e4m3, 10);
IS(ncclFloat8e5m2, 11);
IS(ncclNumTypes, 12);
IS(ncclSum, 0);
IS(ncclProd, 1);
IS(ncclMax, 2);
IS(ncclMin, 3);
IS(ncclAvg, 4);
IS(ncclNumOps, 5);
IS(ncclMaxRedOp, 0x7fffffff);
IS(ncclScalarDevice, 0);
IS(ncclScalarHostImmediate, 1);
IS(sizeof(ncclResult_t), 4);
IS(sizeof(ncclDataType_t), 4);
IS(sizeof(ncclRedOp_t), 4);
IS(sizeof(ncclScalarResidence_t), 4);
IS(sizeof(ncclComm_t), 8);
IS(sizeof(ncclWindow_t), 8);
IS(sizeof(ncclUniqueId), 128);
IS(_Alignof(ncclUniqueId), 1);
IS(NCCL_UNIQUE_ID_BYTES, 128);
IS(NCCL_CONFIG_UNDEF_INT, -2147483647 - 1);
IS(NCCL_SPLIT_NOCOLOR, -1);
IS(NCCL_WIN_DEFAULT, 0);
IS(NCCL_WIN_COLL_SYMMETRIC, 1);
IS(NCCL_CTA_POLICY_DEFAULT, 0);
IS(NCCL_CTA_POLICY_EFFICIENCY, 1);
IS(NCCL_SHRINK_DEFAULT, 0);
IS(NCCL_SHRINK_ABORT, 1);
IS(NCCL_VERSION(2, 7, 8), 2708);
IS(NCCL_VERSION(2, 28, 9), 22809);
IS(NCCL_VERSION(2, 30, 7), 23007);
IS(NCCL_VERSION_CODE, NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH));

IS(offsetof(ncclConfig_t, size), 0);
IS(offsetof(ncclConfig_t, magic), 8);
IS(offsetof(ncclConfig_t, version), 12);
IS(offsetof(ncclConfig_t, blocking), 16);
IS(offsetof(ncclConfig_t, cgaClusterSize), 20);
IS(offsetof(ncclConfig_t, minCTAs), 24);
IS(offsetof(ncclConfig_t, maxCTAs), 28);
IS(offsetof(ncclConfig_t, netName), 32);
IS(offsetof(ncclConfig_t, splitShare), 40);
IS(offsetof(ncclConfig_t, trafficClass), 44);
IS(offsetof(ncclConfig_t, commName), 48);
IS(offsetof(ncclConfig_t, collnetEnable), 56);
IS(offsetof(ncclConfig_t, CTAPolicy), 60);
IS(offsetof(ncclConfig_t, shrinkShare), 64);
IS(offsetof(ncclConfig_t, nvlsCTAs), 68);
IS(sizeof(ncclSimInfo_t), 24);
IS(offsetof(ncclSimInfo_t, magic), 8);
IS(offsetof(ncclSimInfo_t, version), 12);
IS(offsetof(ncclSimInfo_t, estimatedTime), 16);
#if NCCL_VERSION_CODE < 22800
IS(sizeof(ncclConfig_t), 72);
#else
IS(offsetof(ncclConfig_t, nChannelsPerNetPeer), 72);
IS(offsetof(ncclConfig_t, nvlinkCentricSched), 76);
#if NCCL_VERSION_CODE < 22900
IS(sizeof(ncclConfig_t), 80);
IS(ncclNumResults, 8);
#elif NCCL_VERSION_CODE >= 23000
IS(offsetof(ncclConfig_t, graphUsageMode), 80);
IS(offsetof(ncclConfig_t, numRmaCtx), 84);
IS(offsetof(ncclConfig_t, maxP2pPeers), 88);
IS(offsetof(ncclConfig_t, graphStreamOrdering), 92);
IS(sizeof(ncclConfig_t), 96);
IS(ncclTimeout, 8);
IS(ncclNumResults, 9);
IS(NCCL_API_MAGIC, 0xcafebeef);
IS(NCCL_WIN_STRICT_ORDERING, 2);
IS(NCCL_SUSPEND_MEM, 1);
IS(ncclStatGpuMemSuspend, 0);
IS(ncclStatGpuMemSuspended, 1);
IS(ncclStatGpuMemPersist, 2);
IS(ncclStatGpuMemTotal, 3);
IS(sizeof(ncclCommMemStat_t), 4);
IS(sizeof(ncclWaitSignalDesc_t), 16);
IS(offsetof(ncclWaitSignalDesc_t, peer), 4);
IS(offsetof(ncclWaitSignalDesc_t, sigIdx), 8);
IS(offsetof(ncclWaitSignalDesc_t, ctx), 12);
IS(sizeof(ncclParamHandle_t), 8);
#endif
IS(NCCL_WIN_REQUIRED_ALIGNMENT, 4096);
IS(NCCL_CTA_POLICY_ZERO, 2);
IS(NCCL_REVOKE_DEFAULT, 0);
#endif

void tti_nccl_abi_initializers(ncclConfig_t *config, ncclSimInfo_t *info);
void tti_nccl_abi_initializers(ncclConfig_t *config, ncclSimInfo_t *info)
{
    static const ncclConfig_t c = NCCL_CONFIG_INITIALIZER;
    static const ncclSimInfo_t i = NCCL_SIM_INFO_INITIALIZER;
    *config = c;
    *info = i;
    if (c.magic != 0xcafebeef || i.magic != 0x74685283)
        __builtin_trap();
}

/* A function of another type does not fit. */
#define FITS(name, result, ...)                           \
    result (*const abi_##name)(__VA_ARGS__) = nccl##name; \
    result (*const abi_p##name)(__VA_ARGS__) = pnccl##name
#define DATA const void *, void *, size_t, ncclDataType_t
#define WHERE ncclComm_t, cudaStream_t
FITS(GetVersion, ncclResult_t, int *);
FITS(GetUniqueId, ncclResult_t, ncclUniqueId *);
FITS(GetErrorString, const char *, ncclResult_t);
FITS(GetLastError, const char *, ncclComm_t);
FITS(CommInitRank, ncclResult_t, ncclComm_t *, int, ncclUniqueId, int);
FITS(CommInitRankConfig, ncclResult_t, ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
FITS(CommInitRankScalable, ncclResult_t, ncclComm_t *, int, int, int, ncclUniqueId *,
     ncclConfig_t *);
FITS(CommInitAll, ncclResult_t, ncclComm_t *, int, const int *);
FITS(CommSplit, ncclResult_t, ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *);
FITS(CommShrink, ncclResult_t, ncclComm_t, int *, int, ncclComm_t *, ncclConfig_t *, int);
FITS(CommFinalize, ncclResult_t, ncclComm_t);
FITS(CommDestroy, ncclResult_t, ncclComm_t);
FITS(CommAbort, ncclResult_t, ncclComm_t);
FITS(CommGetAsyncError, ncclResult_t, ncclComm_t, ncclResult_t *);
FITS(CommCount, ncclResult_t, const ncclComm_t, int *);
FITS(CommCuDevice, ncclResult_t, const ncclComm_t, int *);
FITS(CommUserRank, ncclResult_t, const ncclComm_t, int *);
FITS(MemAlloc, ncclResult_t, void **, size_t);
FITS(MemFree, ncclResult_t, void *);
FITS(CommRegister, ncclResult_t, const ncclComm_t, void *, size_t, void **);
FITS(CommDeregister, ncclResult_t, const ncclComm_t, void *);
FITS(CommWindowRegister, ncclResult_t, ncclComm_t, void *, size_t, ncclWindow_t *, int);
FITS(CommWindowDeregister, ncclResult_t, ncclComm_t, ncclWindow_t);
FITS(RedOpCreatePreMulSum, ncclResult_t, ncclRedOp_t *, void *, ncclDataType_t,
     ncclScalarResidence_t, ncclComm_t);
FITS(RedOpDestroy, ncclResult_t, ncclRedOp_t, ncclComm_t);
FITS(AllReduce, ncclResult_t, DATA, ncclRedOp_t, WHERE);
FITS(Broadcast, ncclResult_t, DATA, int, WHERE);
FITS(Bcast, ncclResult_t, void *, size_t, ncclDataType_t, int, WHERE);
FITS(Reduce, ncclResult_t, DATA, ncclRedOp_t, int, WHERE);
FITS(AllGather, ncclResult_t, DATA, WHERE);
FITS(ReduceScatter, ncclResult_t, DATA, ncclRedOp_t, WHERE);
FITS(Send, ncclResult_t, const void *, size_t, ncclDataType_t, int, WHERE);
FITS(Recv, ncclResult_t, void *, size_t, ncclDataType_t, int, WHERE);
FITS(GroupStart, ncclResult_t, void);
FITS(GroupEnd, ncclResult_t, void);
FITS(GroupSimulateEnd, ncclResult_t, ncclSimInfo_t *);
#if NCCL_VERSION_CODE >= 22800
FITS(CommRevoke, ncclResult_t, ncclComm_t, int);
FITS(AlltoAll, ncclResult_t, DATA, WHERE);
FITS(Gather, ncclResult_t, DATA, int, WHERE);
FITS(Scatter, ncclResult_t, DATA, int, WHERE);
#endif
#if NCCL_VERSION_CODE >= 23000
FITS(CommGetUniqueId, ncclResult_t, ncclComm_t, ncclUniqueId *);
FITS(CommGrow, ncclResult_t, ncclComm_t, int, const ncclUniqueId *, int, ncclComm_t *,
     ncclConfig_t *);
FITS(CommSuspend, ncclResult_t, ncclComm_t, int);
FITS(CommResume, ncclResult_t, ncclComm_t);
FITS(CommMemStats, ncclResult_t, ncclComm_t, ncclCommMemStat_t, uint64_t *);
FITS(WinGetUserPtr, ncclResult_t, ncclComm_t, ncclWindow_t, void **);
FITS(PutSignal, ncclResult_t, const void *, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int,
     int, unsigned int, WHERE);
FITS(Signal, ncclResult_t, int, int, int, unsigned int, WHERE);
FITS(WaitSignal, ncclResult_t, int, ncclWaitSignalDesc_t *, WHERE);
FITS(ParamBind, ncclResult_t, ncclParamHandle_t *, const char *);
FITS(ParamGetI8, ncclResult_t, ncclParamHandle_t, int8_t *);
FITS(ParamGetI16, ncclResult_t, ncclParamHandle_t, int16_t *);
FITS(ParamGetI32, ncclResult_t, ncclParamHandle_t, int32_t *);
FITS(ParamGetI64, ncclResult_t, ncclParamHandle_t, int64_t *);
FITS(ParamGetU8, ncclResult_t, ncclParamHandle_t, uint8_t *);
FITS(ParamGetU16, ncclResult_t, ncclParamHandle_t, uint16_t *);
FITS(ParamGetU32, ncclResult_t, ncclParamHandle_t, uint32_t *);
FITS(ParamGetU64, ncclResult_t, ncclParamHandle_t, uint64_t *);
FITS(ParamGetStr, ncclResult_t, ncclParamHandle_t, const char **);
FITS(ParamGet, ncclResult_t, ncclParamHandle_t, void *, int, int *);
FITS(ParamGetParameter, ncclResult_t, const char *, const char **, int *);
FITS(ParamGetAllParameterKeys, ncclResult_t, const char ***, int *);
FITS(ParamDumpAll, void, void);
#endif
