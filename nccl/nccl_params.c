/* The library's settings, as programs may ask for them (NCCL 2.30): those NCCL_* variables that
 * have an effect here, with the text that the environment gives them. All are texts; one that is a
 * whole number can be had as one. */
#include "nccl/nccl_comm.h"

#include "base/config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The functions are passed values of this type, which are addresses of variables. */
struct ncclParamHandle {
    struct tti_nccl_variable variable;
};

static const struct tti_nccl_variable *param_find(const char *key)
{
    for (size_t i = 0; key && i < tti_nccl_variable_count; i++)
        if (!tti_nccl_variables[i].instead && strcmp(tti_nccl_variables[i].name, key) == 0)
            return &tti_nccl_variables[i];
    return NULL;
}

static const char *param_text(const struct tti_nccl_variable *variable)
{
    const char *text = tti_config_text(variable->name);
    return text ? text : "";
}

static ncclResult_t param_unknown(const char *what, const char *key)
{
    return tti_nccl_fail(ncclInvalidArgument,
                         "%s: there is no setting \"%s\"; ncclParamGetAllParameterKeys lists them",
                         what, key ? key : "(null)");
}

ncclResult_t pncclParamBind(ncclParamHandle_t *out, const char *key)
{
    const struct tti_nccl_variable *found = param_find(key);
    if (!out)
        return tti_nccl_fail(ncclInvalidArgument, "ncclParamBind: out is NULL");
    if (!found)
        return param_unknown("ncclParamBind", key);
    *out = (ncclParamHandle_t)(uintptr_t)found;
    return ncclSuccess;
}
TTI_NCCL_ALSO(ParamBind);

/* Is it one that ncclParamBind gave? */
static ncclResult_t param_check(ncclParamHandle_t handle, const void *out, const char *what)
{
    for (size_t i = 0; i < tti_nccl_variable_count; i++)
        if ((const void *)handle == &tti_nccl_variables[i] && out)
            return ncclSuccess;
    return tti_nccl_fail(ncclInvalidArgument,
                         "%s: handle %p, out %p; expected one of ncclParamBind", what,
                         (void *)handle, out);
}

/* Whole numbers of 64 bits: `low` to 0 if negative, 0 to `high` else. */
static ncclResult_t param_number(ncclParamHandle_t handle, const char *what, const void *out,
                                 int64_t low, uint64_t high, uint64_t *bits)
{
    ncclResult_t result = param_check(handle, out, what);
    if (result != ncclSuccess)
        return result;
    const char *text = param_text(&handle->variable);
    const bool negative = *text == '-';
    char *end = NULL;
    errno = 0;
    const unsigned long long value = strtoull(text + negative, &end, 0);
    const uint64_t most = negative ? (uint64_t)0 - (uint64_t)low : high;
    if (errno || end == text + negative || *end || text[negative] == '-' || value > most)
        return tti_nccl_fail(ncclInvalidArgument,
                             "%s: %s is \"%s\"; expected a whole number from %" PRId64
                             " to %" PRIu64,
                             what, handle->variable.name, text, low, high);
    *bits = negative ? (uint64_t)0 - value : value;
    return ncclSuccess;
}

#define PARAM_NUMBER(suffix, type, low, high)                                                 \
    ncclResult_t pncclParamGet##suffix(ncclParamHandle_t h, type *out)                        \
    {                                                                                         \
        uint64_t bits = 0;                                                                    \
        ncclResult_t result = param_number(h, "ncclParamGet" #suffix, out, low, high, &bits); \
        if (result == ncclSuccess)                                                            \
            *out = (type)bits;                                                                \
        return result;                                                                        \
    }                                                                                         \
    TTI_NCCL_ALSO(ParamGet##suffix)

PARAM_NUMBER(I8, int8_t, INT8_MIN, INT8_MAX);
PARAM_NUMBER(I16, int16_t, INT16_MIN, INT16_MAX);
PARAM_NUMBER(I32, int32_t, INT32_MIN, INT32_MAX);
PARAM_NUMBER(I64, int64_t, INT64_MIN, INT64_MAX);
PARAM_NUMBER(U8, uint8_t, 0, UINT8_MAX);
PARAM_NUMBER(U16, uint16_t, 0, UINT16_MAX);
PARAM_NUMBER(U32, uint32_t, 0, UINT32_MAX);
PARAM_NUMBER(U64, uint64_t, 0, UINT64_MAX);

ncclResult_t pncclParamGetStr(ncclParamHandle_t h, const char **out)
{
    ncclResult_t result = param_check(h, out, "ncclParamGetStr");
    if (result == ncclSuccess)
        *out = param_text(&h->variable);
    return result;
}
TTI_NCCL_ALSO(ParamGetStr);

ncclResult_t pncclParamGet(ncclParamHandle_t h, void *out, int maxLen, int *len)
{
    ncclResult_t result = param_check(h, out, "ncclParamGet");
    if (result != ncclSuccess)
        return result;
    const char *text = param_text(&h->variable);
    const size_t bytes = strlen(text) + 1;
    if (!len || maxLen < 0 || bytes > (size_t)maxLen)
        return tti_nccl_fail(ncclInvalidArgument,
                             "ncclParamGet: %s has %zu bytes; there is room for %d",
                             h->variable.name, bytes, maxLen);
    memcpy(out, text, bytes);
    *len = (int)bytes;
    return ncclSuccess;
}
TTI_NCCL_ALSO(ParamGet);

ncclResult_t pncclParamGetParameter(const char *key, const char **value, int *valueLen)
{
    const struct tti_nccl_variable *found = param_find(key);
    if (!value || !valueLen)
        return tti_nccl_fail(ncclInvalidArgument,
                             "ncclParamGetParameter: value or valueLen is NULL");
    if (!found)
        return param_unknown("ncclParamGetParameter", key);
    *value = param_text(found);
    *valueLen = (int)strlen(*value);
    return ncclSuccess;
}
TTI_NCCL_ALSO(ParamGetParameter);

ncclResult_t pncclParamGetAllParameterKeys(const char ***table, int *tableLen)
{
    static _Thread_local const char *keys[64];
    int count = 0;
    if (!table || !tableLen)
        return tti_nccl_fail(ncclInvalidArgument,
                             "ncclParamGetAllParameterKeys: table or tableLen is NULL");
    for (size_t i = 0; i < tti_nccl_variable_count && count < (int)(sizeof keys / sizeof *keys);
         i++)
        if (!tti_nccl_variables[i].instead)
            keys[count++] = tti_nccl_variables[i].name;
    *table = keys;
    *tableLen = count;
    return ncclSuccess;
}
TTI_NCCL_ALSO(ParamGetAllParameterKeys);

void pncclParamDumpAll(void)
{
    tti_nccl_settings();
    for (size_t i = 0; i < tti_nccl_variable_count; i++) {
        char line[1200];
        if (tti_nccl_variables[i].instead)
            continue;
        snprintf(line, sizeof line, "%s=%s", tti_nccl_variables[i].name,
                 param_text(&tti_nccl_variables[i]));
        tti_nccl_log_line(line);
    }
}
TTI_NCCL_ALSO(ParamDumpAll);
