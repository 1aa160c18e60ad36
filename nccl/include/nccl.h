/* The interface of NCCL 2.30.7, written anew: programs made for NCCL compile against this header
 * and run on Tutti's libnccl.so.2, and programs compiled against NVIDIA's header run on it
 * unchanged. What each function does here, and where that is less or more than NVIDIA's, is in
 * docs/nccl.md.
 *
 * It needs no CUDA. Where CUDA's headers are at hand they are included, as programs expect that;
 * elsewhere (or with TUTTI_NCCL_WITHOUT_CUDA defined) a stream is an opaque pointer, buffers are
 * host memory and the stream is NULL. tests/nccl holds every size, offset and value to NVIDIA's
 * header where that is installed. */
#ifndef NCCL_H_
#define NCCL_H_

#if !defined(TUTTI_NCCL_WITHOUT_CUDA) && defined(__has_include)
#if __has_include(<cuda_runtime.h>)
#define TUTTI_NCCL_HAS_CUDA 1
#endif
#endif

#ifdef TUTTI_NCCL_HAS_CUDA
#include <cuda_runtime.h>

#include <cuda_fp16.h>
#if CUDART_VERSION >= 11000
#include <cuda_bf16.h>
#endif
#if defined(__cplusplus) && CUDART_VERSION >= 11080
#include <cuda_fp8.h>
#endif
#else
typedef struct CUstream_st *cudaStream_t;
#endif

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

/* What this header is, and what it says it is. A program that takes NCCL's interface for kernels
 * (nccl_device.h) where the header's version has one, from 2.28 on, compiles here if it is told of
 * an earlier version: -DTUTTI_NCCL_VERSION_CODE=22707. Nothing else of the header changes by it. */
#define TUTTI_NCCL_NEWEST 23007
#ifndef TUTTI_NCCL_VERSION_CODE
#define NCCL_MAJOR 2
#define NCCL_MINOR 30
#define NCCL_PATCH 7
#define NCCL_VERSION_CODE 23007
#elif TUTTI_NCCL_VERSION_CODE >= 20900 && TUTTI_NCCL_VERSION_CODE <= TUTTI_NCCL_NEWEST
#define NCCL_MAJOR (TUTTI_NCCL_VERSION_CODE / 10000)
#define NCCL_MINOR (TUTTI_NCCL_VERSION_CODE / 100 % 100)
#define NCCL_PATCH (TUTTI_NCCL_VERSION_CODE % 100)
#define NCCL_VERSION_CODE TUTTI_NCCL_VERSION_CODE
#else
#error "TUTTI_NCCL_VERSION_CODE: a version of NCCL from 20900 (2.9) to 23007 (2.30.7), as 22707"
#endif
#define NCCL_SUFFIX ""

/* Up to 2.8 minor versions had two digits. */
#define NCCL_VERSION(X, Y, Z) \
    (((X) <= 2 && (Y) <= 8) ? (X)*1000 + (Y)*100 + (Z) : (X)*10000 + (Y)*100 + (Z))

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Results, types, operators --------------------------------------------------------------- */

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1, /* CUDA or its driver failed */
    ncclSystemError = 2,        /* the operating system failed, or memory ran out */
    ncclInternalError = 3,      /* a bug in the library */
    ncclInvalidArgument = 4,    /* an argument is wrong */
    ncclInvalidUsage = 5,       /* the wrong moment, or not supported here */
    ncclRemoteError = 6,        /* another rank, or the way to it, failed */
    ncclInProgress = 7,         /* a communicator that does not block has not finished yet */
    ncclTimeout = 8,            /* a deadline passed */
    ncclNumResults = 9
} ncclResult_t;

typedef enum {
    ncclInt8 = 0,
    ncclChar = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclInt = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6,
    ncclHalf = 6,
    ncclFloat32 = 7,
    ncclFloat = 7,
    ncclFloat64 = 8,
    ncclDouble = 8,
    ncclBfloat16 = 9,
    ncclFloat8e4m3 = 10,
    ncclFloat8e5m2 = 11,
    ncclNumTypes = 12
} ncclDataType_t;

/* Values from ncclNumOps up are made by ncclRedOpCreatePreMulSum. */
typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;
typedef enum {
    ncclSum = 0,
    ncclProd = 1,
    ncclMax = 2,
    ncclMin = 3,
    ncclAvg = 4,
    ncclNumOps = 5,
    ncclMaxRedOp = 0x7fffffff >> (32 - 8 * sizeof(ncclRedOp_dummy_t))
} ncclRedOp_t;

/* Where the factor of a pre-multiplied sum lies, and so when it is read: in memory of the device,
 * when a collective runs; or of the host, when the operator is made. */
typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

/* ---- Handles and settings -------------------------------------------------------------------- */

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
#define NCCL_COMM_NULL NULL

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_SPLIT_NOCOLOR -1
#define NCCL_UNDEF_FLOAT -1.0f

#define NCCL_WIN_DEFAULT 0x00
#define NCCL_WIN_COLL_SYMMETRIC 0x01
#define NCCL_WIN_STRICT_ORDERING 0x02
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096

#define NCCL_CTA_POLICY_DEFAULT 0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO 0x02

#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT 0x01 /* end what is under way in the parent first */

#define NCCL_REVOKE_DEFAULT 0x00
#define NCCL_SUSPEND_MEM 0x01
#define NCCL_API_MAGIC 0xcafebeef

/* Begin with NCCL_CONFIG_INITIALIZER; an int left at NCCL_CONFIG_UNDEF_INT has its default. */
typedef struct ncclConfig_v23000 {
    size_t size; /* the first three are the initializer's */
    unsigned int magic;
    unsigned int version;
    int blocking; /* 0: calls return ncclInProgress instead of waiting */
    int cgaClusterSize;
    int minCTAs;
    int maxCTAs;
    const char *netName;
    int splitShare;
    int trafficClass;
    const char *commName;
    int collnetEnable;
    int CTAPolicy;
    int shrinkShare;
    int nvlsCTAs;
    int nChannelsPerNetPeer;
    int nvlinkCentricSched;
    int graphUsageMode;
    int numRmaCtx;
    int maxP2pPeers;
    int graphStreamOrdering;
} ncclConfig_t;

#define NCCL_CONFIG_INITIALIZER                                                         \
    {                                                                                   \
        sizeof(ncclConfig_t), NCCL_API_MAGIC, TUTTI_NCCL_NEWEST, NCCL_CONFIG_UNDEF_INT, \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,        \
            NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,        \
            NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,        \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,        \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,        \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,                               \
    }

typedef struct ncclSimInfo_v22200 {
    size_t size; /* the first three are the initializer's */
    unsigned int magic;
    unsigned int version;
    float estimatedTime; /* microseconds */
} ncclSimInfo_t;

#define NCCL_SIM_INFO_INITIALIZER                                              \
    {                                                                          \
        sizeof(ncclSimInfo_t), 0x74685283, TUTTI_NCCL_NEWEST, NCCL_UNDEF_FLOAT \
    }

/* Each function exists twice: p-names for tools that stand in for the others. */
#define TUTTI_NCCL(result, name, parameters) \
    result nccl##name parameters;            \
    result pnccl##name parameters

/* ---- Library --------------------------------------------------------------------------------- */

TUTTI_NCCL(ncclResult_t, GetVersion, (int *version));
TUTTI_NCCL(ncclResult_t, GetUniqueId, (ncclUniqueId * uniqueId));
TUTTI_NCCL(const char *, GetErrorString, (ncclResult_t result));
/* Why the latest failure happened; with a communicator, the one that it failed with. */
TUTTI_NCCL(const char *, GetLastError, (ncclComm_t comm));
TUTTI_NCCL(void, ResetDebugInit, (void));

/* ---- Communicators --------------------------------------------------------------------------- */

TUTTI_NCCL(ncclResult_t, CommInitRank,
           (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank));
TUTTI_NCCL(ncclResult_t, CommInitRankConfig,
           (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config));
TUTTI_NCCL(ncclResult_t, CommInitRankScalable,
           (ncclComm_t * newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds,
            ncclConfig_t *config));
TUTTI_NCCL(ncclResult_t, CommInitAll, (ncclComm_t * comm, int ndev, const int *devlist));
TUTTI_NCCL(ncclResult_t, CommSplit,
           (ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config));
TUTTI_NCCL(ncclResult_t, CommShrink,
           (ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm,
            ncclConfig_t *config, int shrinkFlags));
/* Grow: ranks of `comm` pass rank -1, and one of them (the root) the id that it has from
 * CommGetUniqueId; new ranks pass comm NULL, that id, and their rank. */
TUTTI_NCCL(ncclResult_t, CommGetUniqueId, (ncclComm_t comm, ncclUniqueId *uniqueId));
TUTTI_NCCL(ncclResult_t, CommGrow,
           (ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank,
            ncclComm_t *newcomm, ncclConfig_t *config));
TUTTI_NCCL(ncclResult_t, CommFinalize, (ncclComm_t comm));
TUTTI_NCCL(ncclResult_t, CommDestroy, (ncclComm_t comm));
TUTTI_NCCL(ncclResult_t, CommAbort, (ncclComm_t comm));
TUTTI_NCCL(ncclResult_t, CommRevoke, (ncclComm_t comm, int revokeFlags));
TUTTI_NCCL(ncclResult_t, CommGetAsyncError, (ncclComm_t comm, ncclResult_t *asyncError));
TUTTI_NCCL(ncclResult_t, CommCount, (const ncclComm_t comm, int *count));
TUTTI_NCCL(ncclResult_t, CommCuDevice, (const ncclComm_t comm, int *device));
TUTTI_NCCL(ncclResult_t, CommUserRank, (const ncclComm_t comm, int *rank));

/* ---- Memory ---------------------------------------------------------------------------------- */

TUTTI_NCCL(ncclResult_t, MemAlloc, (void **ptr, size_t size));
TUTTI_NCCL(ncclResult_t, MemFree, (void *ptr));
TUTTI_NCCL(ncclResult_t, CommRegister,
           (const ncclComm_t comm, void *buff, size_t size, void **handle));
TUTTI_NCCL(ncclResult_t, CommDeregister, (const ncclComm_t comm, void *handle));
TUTTI_NCCL(ncclResult_t, CommWindowRegister,
           (ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags));
TUTTI_NCCL(ncclResult_t, CommWindowDeregister, (ncclComm_t comm, ncclWindow_t win));
TUTTI_NCCL(ncclResult_t, WinGetUserPtr, (ncclComm_t comm, ncclWindow_t win, void **outUserPtr));
TUTTI_NCCL(ncclResult_t, CommSuspend, (ncclComm_t comm, int flags));
TUTTI_NCCL(ncclResult_t, CommResume, (ncclComm_t comm));

typedef enum {
    ncclStatGpuMemSuspend = 0,   /* bytes of device memory that suspending would free */
    ncclStatGpuMemSuspended = 1, /* 1: it is freed now */
    ncclStatGpuMemPersist = 2,   /* bytes that stay */
    ncclStatGpuMemTotal = 3      /* bytes in all */
} ncclCommMemStat_t;
TUTTI_NCCL(ncclResult_t, CommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value));

/* ---- Operators ------------------------------------------------------------------------------- */

TUTTI_NCCL(ncclResult_t, RedOpCreatePreMulSum,
           (ncclRedOp_t * op, void *scalar, ncclDataType_t datatype,
            ncclScalarResidence_t residence, ncclComm_t comm));
TUTTI_NCCL(ncclResult_t, RedOpDestroy, (ncclRedOp_t op, ncclComm_t comm));

/* ---- Operations ------------------------------------------------------------------------------ *
 * Queued on the stream. Host memory (stream NULL): over when the call returns, or GroupEnd. */

TUTTI_NCCL(ncclResult_t, AllReduce,
           (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream));
TUTTI_NCCL(ncclResult_t, Broadcast,
           (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
            ncclComm_t comm, cudaStream_t stream));
TUTTI_NCCL(ncclResult_t, Bcast,
           (void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
            cudaStream_t stream));
TUTTI_NCCL(ncclResult_t, Reduce,
           (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
            ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream));
TUTTI_NCCL(ncclResult_t, AllGather,
           (const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
            ncclComm_t comm, cudaStream_t stream));
TUTTI_NCCL(ncclResult_t, ReduceScatter,
           (const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream));
TUTTI_NCCL(ncclResult_t, AlltoAll,
           (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
            ncclComm_t comm, cudaStream_t stream));
TUTTI_NCCL(ncclResult_t, Gather,
           (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
            ncclComm_t comm, cudaStream_t stream));
TUTTI_NCCL(ncclResult_t, Scatter,
           (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
            ncclComm_t comm, cudaStream_t stream));
TUTTI_NCCL(ncclResult_t, Send,
           (const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
            cudaStream_t stream));
TUTTI_NCCL(ncclResult_t, Recv,
           (void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
            cudaStream_t stream));

/* One rank alone writes into a window of another's, and says so by a signal. */
typedef struct {
    int opCnt; /* signals to wait for */
    int peer;
    int sigIdx;
    int ctx;
} ncclWaitSignalDesc_t;
TUTTI_NCCL(ncclResult_t, PutSignal,
           (const void *localbuff, size_t count, ncclDataType_t datatype, int peer,
            ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags,
            ncclComm_t comm, cudaStream_t stream));
TUTTI_NCCL(ncclResult_t, Signal,
           (int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
            cudaStream_t stream));
TUTTI_NCCL(ncclResult_t, WaitSignal,
           (int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm, cudaStream_t stream));

/* ---- Groups ---------------------------------------------------------------------------------- */

TUTTI_NCCL(ncclResult_t, GroupStart, (void));
TUTTI_NCCL(ncclResult_t, GroupEnd, (void));
/* As GroupEnd, but nothing runs: how long would it take? */
TUTTI_NCCL(ncclResult_t, GroupSimulateEnd, (ncclSimInfo_t * simInfo));

/* ---- Settings, as the library has read them -------------------------------------------------- *
 * By handle with a type, or by key as text. Texts and tables are the library's; a text is valid
 * until the thread's next call. */

typedef struct ncclParamHandle *ncclParamHandle_t;
TUTTI_NCCL(ncclResult_t, ParamBind, (ncclParamHandle_t * out, const char *key));
TUTTI_NCCL(ncclResult_t, ParamGetI8, (ncclParamHandle_t h, int8_t *out));
TUTTI_NCCL(ncclResult_t, ParamGetI16, (ncclParamHandle_t h, int16_t *out));
TUTTI_NCCL(ncclResult_t, ParamGetI32, (ncclParamHandle_t h, int32_t *out));
TUTTI_NCCL(ncclResult_t, ParamGetI64, (ncclParamHandle_t h, int64_t *out));
TUTTI_NCCL(ncclResult_t, ParamGetU8, (ncclParamHandle_t h, uint8_t *out));
TUTTI_NCCL(ncclResult_t, ParamGetU16, (ncclParamHandle_t h, uint16_t *out));
TUTTI_NCCL(ncclResult_t, ParamGetU32, (ncclParamHandle_t h, uint32_t *out));
TUTTI_NCCL(ncclResult_t, ParamGetU64, (ncclParamHandle_t h, uint64_t *out));
TUTTI_NCCL(ncclResult_t, ParamGetStr, (ncclParamHandle_t h, const char **out));
/* The value's bytes, at most maxLen; *len of them. */
TUTTI_NCCL(ncclResult_t, ParamGet, (ncclParamHandle_t h, void *out, int maxLen, int *len));
TUTTI_NCCL(ncclResult_t, ParamGetParameter, (const char *key, const char **value, int *valueLen));
TUTTI_NCCL(ncclResult_t, ParamGetAllParameterKeys, (const char ***table, int *tableLen));
TUTTI_NCCL(void, ParamDumpAll, (void));

#undef TUTTI_NCCL

#ifdef __cplusplus
}
#endif

#endif
