/* launch/pmix_abi.h against the installed header of libpmix: sizes, offsets, numbers, signatures.
 * It compiles or it does not; running it says which version was compared. */
#include "launch/pmix_abi.h"

#include <assert.h>
#include <pmix.h>
#include <stdio.h>
#include <string.h>

static_assert(sizeof(struct tti_pmix_proc) == sizeof(pmix_proc_t), "proc");
static_assert(offsetof(struct tti_pmix_proc, rank) == offsetof(pmix_proc_t, rank), "proc.rank");
static_assert(sizeof(struct tti_pmix_value) == sizeof(pmix_value_t), "value");
static_assert(offsetof(struct tti_pmix_value, type) == offsetof(pmix_value_t, type), "type");
static_assert(sizeof(((struct tti_pmix_value *)0)->type) == sizeof(pmix_data_type_t), "type");
static_assert(offsetof(struct tti_pmix_value, data) == offsetof(pmix_value_t, data), "data");
static_assert(sizeof(pmix_status_t) == sizeof(int) && sizeof(pmix_scope_t) == 1, "numbers");
static_assert((int)TTI_PMIX_SUCCESS == PMIX_SUCCESS && (int)TTI_PMIX_GLOBAL == PMIX_GLOBAL,
              "constants");
static_assert((int)TTI_PMIX_STRING == PMIX_STRING && (int)TTI_PMIX_UINT16 == PMIX_UINT16 &&
                  (int)TTI_PMIX_UINT32 == PMIX_UINT32,
              "types");
static_assert(TTI_PMIX_RANK_WILDCARD == (PMIX_RANK_WILDCARD), "wildcard");

/* The pointers of our table take the real functions, with our structs in place of theirs. */
static_assert(
    __builtin_types_compatible_p(__typeof__(PMIx_Init),
                                 pmix_status_t(pmix_proc_t *, pmix_info_t *, size_t)) &&
        __builtin_types_compatible_p(__typeof__(PMIx_Finalize),
                                     pmix_status_t(const pmix_info_t *, size_t)) &&
        __builtin_types_compatible_p(__typeof__(PMIx_Put),
                                     pmix_status_t(pmix_scope_t, const char *, pmix_value_t *)) &&
        __builtin_types_compatible_p(__typeof__(PMIx_Commit), pmix_status_t(void)) &&
        __builtin_types_compatible_p(__typeof__(PMIx_Get),
                                     pmix_status_t(const pmix_proc_t *, const char *,
                                                   const pmix_info_t *, size_t, pmix_value_t **)) &&
        __builtin_types_compatible_p(__typeof__(PMIx_Get_nb),
                                     pmix_status_t(const pmix_proc_t *, const char *,
                                                   const pmix_info_t *, size_t, pmix_value_cbfunc_t,
                                                   void *)) &&
        __builtin_types_compatible_p(pmix_value_cbfunc_t,
                                     void (*)(pmix_status_t, pmix_value_t *, void *)),
    "signatures");

int main(void)
{
    int wrong = strcmp(TTI_PMIX_JOB_SIZE, PMIX_JOB_SIZE) != 0 ||
                strcmp(TTI_PMIX_LOCAL_RANK, PMIX_LOCAL_RANK) != 0 ||
                strcmp(TTI_PMIX_LOCAL_SIZE, PMIX_LOCAL_SIZE) != 0;
    printf("pmix_abi.h agrees with the header of PMIx %d.%d: %s\n", (int)PMIX_VERSION_MAJOR,
           (int)PMIX_VERSION_MINOR, wrong ? "no" : "yes");
    return wrong;
}
