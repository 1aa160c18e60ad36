/* Element kernels for AVX-512 F, BW, DQ and VL: kernels.inc, compiled with this variant's flags
 * (../CMakeLists.txt). */
#define KERNELS_NAME "avx512"
#define KERNELS_TABLE tti_kernels_avx512
#include "device/cpu/kernels.inc"
