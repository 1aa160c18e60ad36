/* What the fake CUDA runtime (fake_cudart.c) has nothing behind, and programs such as PyTorch want
 * to find there all the same: each refuses, and is named by cudaGetErrorString. Their parameters
 * are not looked at, so they have none here. */
unsigned refused(const char *what); /* fake_cudart.h, which brings CUDA's declarations of these */

#define REFUSED(X)                                            \
    X(cudaDeviceGetDefaultMemPool)                            \
    X(cudaDeviceGetGraphMemAttribute)                         \
    X(cudaDeviceSetGraphMemAttribute)                         \
    X(cudaFreeAsync)                                          \
    X(cudaFuncGetAttributes)                                  \
    X(cudaFuncSetAttribute)                                   \
    X(cudaGetSymbolAddress)                                   \
    X(cudaGraphDebugDotPrint)                                 \
    X(cudaGraphAddNode)                                       \
    X(cudaGraphConditionalHandleCreate)                       \
    X(cudaGraphNodeGetDependencies)                           \
    X(cudaKernelSetAttributeForDevice)                        \
    X(cudaLibraryGetGlobal)                                   \
    X(cudaLibraryGetKernel)                                   \
    X(cudaLibraryGetKernelCount)                              \
    X(cudaLibraryGetManaged)                                  \
    X(cudaLibraryGetUnifiedFunction)                          \
    X(cudaLibraryLoadData)                                    \
    X(cudaLibraryLoadFromFile)                                \
    X(cudaLibraryUnload)                                      \
    X(cudaMallocAsync)                                        \
    X(cudaMallocManaged)                                      \
    X(cudaMemPoolGetAttribute)                                \
    X(cudaMemPoolSetAccess)                                   \
    X(cudaMemPoolSetAttribute)                                \
    X(cudaMemPoolTrimTo)                                      \
    X(cudaMemcpyToSymbol)                                     \
    X(cudaOccupancyMaxActiveBlocksPerMultiprocessor)          \
    X(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags) \
    X(cudaProfilerStart)                                      \
    X(cudaProfilerStop)                                       \
    X(cudaStreamAddCallback)                                  \
    X(cudaStreamBeginCaptureToGraph)                          \
    X(cudaStreamUpdateCaptureDependencies)

#define REFUSE(name)           \
    unsigned name(void);       \
    unsigned name(void)        \
    {                          \
        return refused(#name); \
    }
REFUSED(REFUSE)
