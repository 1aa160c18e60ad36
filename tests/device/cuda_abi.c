/* Compiled where there is a cuda.h, never linked: that our declarations of the CUDA driver
 * (device/cuda/cuda_driver.h) are its own. A difference does not compile. */
#include "device/cuda/cuda_driver.h"

#include <cuda.h>
#include <stddef.h>
#include <string.h>

void tti_cuda_abi_assign(struct tti_cuda_driver *driver);
int tti_cuda_abi_names(void);

/* Each field takes cuda.h's function: same parameters, or the compiler says so. */
void tti_cuda_abi_assign(struct tti_cuda_driver *driver)
{
#define ASSIGN(field, function, suffix, parameters) driver->field = function;
    TTI_CU_FUNCTIONS(ASSIGN)
}

/* cuda.h's names are macros for the symbols of its version: folded to a constant here. */
#define TEXT(x) #x
#define TEXT_OF(x) TEXT(x)
extern void tti_cuda_abi_symbols_differ(void)
    __attribute__((error("a symbol of cuda_driver.h is not the one that cuda.h uses")));
int tti_cuda_abi_names(void)
{
#define SAME(field, function, suffix, parameters)                   \
    if (__builtin_strcmp(TEXT_OF(function), #function suffix) != 0) \
        tti_cuda_abi_symbols_differ();
    TTI_CU_FUNCTIONS(SAME)
    SAME(device_uuid, cuDeviceGetUuid, "_v2", )
    SAME(ipc_make, cuIpcGetMemHandle, "", )
    SAME(ipc_open, cuIpcOpenMemHandle, "_v2", )
    SAME(ipc_event_make, cuIpcGetEventHandle, "", )
    SAME(memory_create, cuMemCreate, "", )
    SAME(memory_prop, cuMemGetAllocationPropertiesFromHandle, "", )
    SAME(memory_page, cuMemGetAllocationGranularity, "", )
    SAME(memory_allow, cuMemSetAccess, "", )
    SAME(memory_allowed, cuMemGetAccess, "", )
    SAME(pool_allow, cuMemPoolSetAccess, "", )
    SAME(pool_allowed, cuMemPoolGetAccess, "", )
    TTI_CU_FUNCTIONS_NEWER(SAME)
    SAME(ipc_event_open, cuIpcOpenEventHandle, "", )
    return 0;
}

_Static_assert(sizeof(tti_cu_handle) == sizeof(CUipcMemHandle), "handle");
_Static_assert(sizeof(tti_cu_handle) == sizeof(CUipcEventHandle), "handle");
_Static_assert(sizeof(struct tti_cu_memory_prop) == sizeof(CUmemAllocationProp), "memory");
_Static_assert(offsetof(struct tti_cu_memory_prop, location) ==
                   offsetof(CUmemAllocationProp, location),
               "memory");
_Static_assert(offsetof(struct tti_cu_memory_prop, rdma) ==
                   offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable),
               "memory");
_Static_assert(sizeof(struct tti_cu_access) == sizeof(CUmemAccessDesc), "access");
_Static_assert(sizeof(struct tti_cu_multicast_prop) == sizeof(CUmulticastObjectProp), "multicast");
_Static_assert(offsetof(struct tti_cu_multicast_prop, handles) ==
                   offsetof(CUmulticastObjectProp, handleTypes),
               "multicast");
_Static_assert(sizeof(tti_cu_memory) == sizeof(CUmemGenericAllocationHandle), "memory");
_Static_assert(sizeof(CUuuid) == 16, "uuid");
_Static_assert(sizeof(tti_cu_ptr) == sizeof(CUdeviceptr), "pointer");

#define EQUAL(ours, theirs) _Static_assert((unsigned)(ours) == (unsigned)(theirs), #theirs);
EQUAL(TTI_CU_OK, CUDA_SUCCESS)
EQUAL(TTI_CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE)
EQUAL(TTI_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY)
EQUAL(TTI_CU_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED)
EQUAL(TTI_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE)
EQUAL(TTI_CU_NO_CONTEXT, CUDA_ERROR_INVALID_CONTEXT)
EQUAL(TTI_CU_NO_BINARY, CUDA_ERROR_NO_BINARY_FOR_GPU)
EQUAL(TTI_CU_PEER_UNSUPPORTED, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
EQUAL(TTI_CU_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE)
EQUAL(TTI_CU_NOT_READY, CUDA_ERROR_NOT_READY)
EQUAL(TTI_CU_PEER_ALREADY, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
EQUAL(TTI_CU_HOST_ALREADY, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
EQUAL(TTI_CU_HOST_UNKNOWN, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
EQUAL(TTI_CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED)
EQUAL(TTI_CU_CAPTURE_FIRST, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
EQUAL(TTI_CU_CAPTURE_LAST, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
EQUAL(TTI_CU_DEVICE_SHARED, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
EQUAL(TTI_CU_DEVICE_SMS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
EQUAL(TTI_CU_DEVICE_THREADS, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)
EQUAL(TTI_CU_DEVICE_L2, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)
EQUAL(TTI_CU_DEVICE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
EQUAL(TTI_CU_DEVICE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
EQUAL(TTI_CU_DEVICE_MULTICAST, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED)
EQUAL(TTI_CU_DEVICE_VIRTUAL, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)
EQUAL(TTI_CU_DEVICE_VIRTUAL_FD, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)
EQUAL(TTI_CU_DEVICE_VIRTUAL_RDMA, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)
EQUAL(TTI_CU_DEVICE_REGISTERED, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM)
EQUAL(TTI_CU_DEVICE_DMABUF, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)
EQUAL(TTI_CU_MEMORY_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED)
EQUAL(TTI_CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE)
EQUAL(TTI_CU_ACCESS_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
EQUAL(TTI_CU_PAGE_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM)
EQUAL(TTI_CU_PAGE_MINIMUM, CU_MULTICAST_GRANULARITY_MINIMUM)
EQUAL(TTI_CU_HANDLE_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
EQUAL(TTI_CU_HANDLE_FABRIC, CU_MEM_HANDLE_TYPE_FABRIC)
EQUAL(TTI_CU_RANGE_DMABUF, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD)
EQUAL(TTI_CU_PEER_ATOMICS, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)
EQUAL(TTI_CU_POINTER_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
EQUAL(TTI_CU_POINTER_ID, CU_POINTER_ATTRIBUTE_BUFFER_ID)
EQUAL(TTI_CU_POINTER_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED)
EQUAL(TTI_CU_POINTER_DEVICE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
EQUAL(TTI_CU_POINTER_START, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
EQUAL(TTI_CU_POINTER_SIZE, CU_POINTER_ATTRIBUTE_RANGE_SIZE)
EQUAL(TTI_CU_TYPE_HOST, CU_MEMORYTYPE_HOST)
EQUAL(TTI_CU_TYPE_DEVICE, CU_MEMORYTYPE_DEVICE)
EQUAL(TTI_CU_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE)
EQUAL(TTI_CU_HOST_MAPPED, CU_MEMHOSTALLOC_DEVICEMAP)
EQUAL(TTI_CU_HOST_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE)
EQUAL(TTI_CU_HOST_MAPPED, CU_MEMHOSTREGISTER_DEVICEMAP)
EQUAL(TTI_CU_ATTACH_GLOBAL, CU_MEM_ATTACH_GLOBAL)
EQUAL(TTI_CU_IPC_LAZY_PEER, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
EQUAL(TTI_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING)
EQUAL(TTI_CU_EVENT_NO_TIMING, CU_EVENT_DISABLE_TIMING)
EQUAL(TTI_CU_EVENT_INTERPROCESS, CU_EVENT_INTERPROCESS)
EQUAL(TTI_CU_WAIT_GEQ, CU_STREAM_WAIT_VALUE_GEQ)
EQUAL(TTI_CU_WRITE_DEFAULT, CU_STREAM_WRITE_VALUE_DEFAULT)
EQUAL(TTI_CU_FUNCTION_SHARED, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
EQUAL(TTI_CU_FUNCTION_CARVEOUT, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
EQUAL(TTI_CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED)
EQUAL(TTI_CU_CAPTURE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
