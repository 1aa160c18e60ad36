/* Element kernels for NEON: kernels.inc, compiled with this variant's flags
 * (../CMakeLists.txt). */
#define KERNELS_NAME "neon"
#define KERNELS_TABLE tti_kernels_neon
#define KERNELS_NEON 1
#include "device/cpu/kernels.inc"
