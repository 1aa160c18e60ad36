/* Which kernel variant runs: the best that the CPU and the operating system support, or the one
 * that TUTTI_SIMD or tti_simd_force names. */
#include "base/config.h"
#include "base/log.h"
#include "device/cpu/kernels.h"
#include "device/reduce.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* Best first; the last one runs everywhere. */
static const struct tti_kernels *const variants[] = {
#if defined(__x86_64__)
    &tti_kernels_avx512,
    &tti_kernels_avx2,
#elif defined(__aarch64__)
    &tti_kernels_neon,
#endif
    &tti_kernels_baseline,
};
enum { VARIANTS = sizeof variants / sizeof variants[0] };

static _Atomic(const struct tti_kernels *) chosen;
static pthread_once_t choose_once = PTHREAD_ONCE_INIT;

#if defined(__x86_64__)
/* __builtin_cpu_supports looks at cpuid and at what the system saves of the registers. It does not
 * know F16C under every compiler; that bit needs no more than AVX does. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx2(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

static bool runs_here(const struct tti_kernels *kernels)
{
#if defined(__x86_64__)
    if (kernels == &tti_kernels_avx512)
        return has_avx512();
    if (kernels == &tti_kernels_avx2)
        return has_avx2();
#endif
    (void)kernels; /* NEON belongs to every AArch64 */
    return true;
}

/* The variant of that name that runs here, or NULL with the last error set. */
static const struct tti_kernels *find_variant(const char *name)
{
    char list[64] = "";
    size_t used = 0;
    for (int i = 0; i < VARIANTS; i++) {
        if (!runs_here(variants[i]))
            continue;
        if (strcmp(variants[i]->name, name) == 0)
            return variants[i];
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "",
                                 variants[i]->name);
    }
    (void)TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                   "no SIMD variant \"%s\" runs on this CPU; available here: %s", name, list);
    return NULL;
}

static void choose(void)
{
    const struct tti_kernels *kernels = NULL;
    const char *name = tti_config_text("TUTTI_SIMD");
    if (name) {
        kernels = find_variant(name);
        if (!kernels)
            TTI_LOG(TTI_LOG_WARN, "TUTTI_SIMD is ignored: %s", tti_error_text());
    }
    if (!kernels) {
        int i = 0;
        while (i < VARIANTS - 1 && !runs_here(variants[i])) /* the last one runs everywhere */
            i++;
        kernels = variants[i];
    }
    TTI_LOG(TTI_LOG_DEBUG, "element kernels: %s", kernels->name);
    atomic_store_explicit(&chosen, kernels, memory_order_release);
}

const struct tti_kernels *tti_kernels_now(void)
{
    const struct tti_kernels *kernels = atomic_load_explicit(&chosen, memory_order_acquire);
    if (__builtin_expect(!kernels, 0)) {
        pthread_once(&choose_once, choose);
        kernels = atomic_load_explicit(&chosen, memory_order_acquire);
    }
    return kernels;
}

const char *tti_simd_name(void)
{
    return tti_kernels_now()->name;
}

enum tutti_result tti_simd_force(const char *name)
{
    const struct tti_kernels *kernels = find_variant(name);
    if (!kernels)
        return TUTTI_ERR_UNSUPPORTED;
    (void)tti_kernels_now(); /* so that the first choice does not overwrite this one */
    atomic_store_explicit(&chosen, kernels, memory_order_release);
    return TUTTI_OK;
}
