/* NCCL's interface for kernels is not in Tutti's libnccl.so.2 (docs/nccl.md). This file is here so
 * that a program that includes it is told so, and does not take that of another NCCL. Those that
 * include it only because NCCL is 2.28 or later, as nccl-tests do, compile if nccl.h says that it
 * is earlier; for make and nvcc: NVCC_APPEND_FLAGS=-DTUTTI_NCCL_VERSION_CODE=22707 */
#error \
    "no interface for kernels in Tutti's libnccl; try -DTUTTI_NCCL_VERSION_CODE=22707, see nccl.md"
