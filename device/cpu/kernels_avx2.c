/* Element kernels for AVX2 and F16C: kernels.inc, compiled with this variant's flags
 * (../CMakeLists.txt). */
#define KERNELS_NAME "avx2"
#define KERNELS_TABLE tti_kernels_avx2
#include "device/cpu/kernels.inc"
