/* The few declarations of libpmix.so.2 that we call, written down from the PMIx 4 standard, so that
 * the library is needed neither to build nor to run. A test compares them with the installed
 * header. */
#ifndef TTI_LAUNCH_PMIX_ABI_H
#define TTI_LAUNCH_PMIX_ABI_H

#include <stddef.h>
#include <stdint.h>

enum {
    TTI_PMIX_NSPACE_BYTES = 256,
    TTI_PMIX_SUCCESS = 0,
    TTI_PMIX_GLOBAL = 3, /* scope: ranks on this host and on others */
    TTI_PMIX_STRING = 3, /* value types */
    TTI_PMIX_UINT16 = 13,
    TTI_PMIX_UINT32 = 14,
};
#define TTI_PMIX_RANK_WILDCARD (UINT32_MAX - 1)
#define TTI_PMIX_JOB_SIZE "pmix.job.size"
#define TTI_PMIX_LOCAL_RANK "pmix.lrank"
#define TTI_PMIX_LOCAL_SIZE "pmix.local.size"

struct tti_pmix_proc {
    char nspace[TTI_PMIX_NSPACE_BYTES];
    uint32_t rank;
};

struct tti_pmix_value {
    uint16_t type;
    union {
        char *string;
        uint16_t uint16;
        uint32_t uint32;
        struct { /* as large as the largest member of the real one */
            char *a, *b;
            char c;
        } envar;
    } data;
};

typedef void tti_pmix_got(int status, struct tti_pmix_value *value, void *context);

struct tti_pmix {
    int (*init)(struct tti_pmix_proc *self, void *info, size_t ninfo);
    int (*finalize)(const void *info, size_t ninfo);
    int (*put)(uint8_t scope, const char *key, struct tti_pmix_value *value);
    int (*commit)(void);
    int (*get)(const struct tti_pmix_proc *proc, const char *key, const void *info, size_t ninfo,
               struct tti_pmix_value **value);
    int (*get_nb)(const struct tti_pmix_proc *proc, const char *key, const void *info, size_t ninfo,
                  tti_pmix_got *got, void *context);
    const char *(*error)(int status);
};

#endif
