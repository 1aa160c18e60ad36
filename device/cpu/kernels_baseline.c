/* Element kernels for what every CPU of the architecture runs (SSE2 on x86-64): kernels.inc,
 * compiled with this variant's flags
 * (../CMakeLists.txt). */
#define KERNELS_NAME "baseline"
#define KERNELS_TABLE tti_kernels_baseline
#include "device/cpu/kernels.inc"
