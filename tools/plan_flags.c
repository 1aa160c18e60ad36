/* Flags from tables (tools/plan_flags.h). */
#include "tools/plan_flags.h"

#include "base/config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const type_names[TUTTI_TYPE_COUNT] = {
    [TUTTI_INT8] = "int8",         [TUTTI_UINT8] = "uint8",        [TUTTI_INT32] = "int32",
    [TUTTI_UINT32] = "uint32",     [TUTTI_INT64] = "int64",        [TUTTI_UINT64] = "uint64",
    [TUTTI_FLOAT16] = "half",      [TUTTI_FLOAT32] = "float",      [TUTTI_FLOAT64] = "double",
    [TUTTI_BFLOAT16] = "bfloat16", [TUTTI_FLOAT8_E4M3] = "f8e4m3", [TUTTI_FLOAT8_E5M2] = "f8e5m2",
};

const char *plan_type_name(enum tutti_type type)
{
    return type_names[type];
}

static enum tutti_result parse_type(const char *name, const char *text, enum tutti_type *type)
{
    for (int i = 0; i < TUTTI_TYPE_COUNT; i++)
        if (strcmp(text, type_names[i]) == 0 ||
            strcmp(text, tutti_type_name((enum tutti_type)i)) == 0) {
            *type = (enum tutti_type)i;
            return TUTTI_OK;
        }
    char known[256] = "";
    for (int i = 0; i < TUTTI_TYPE_COUNT; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), " %s", type_names[i]);
    return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s is \"%s\"; expected one of:%s", name, text, known);
}

static enum tutti_result parse_collective(const char *name, const char *text,
                                          enum tutti_collective *collective)
{
    char known[256] = "";
    for (int i = 0; i < TUTTI_COLLECTIVE_COUNT; i++) {
        const char *candidate = tutti_collective_name((enum tutti_collective)i);
        if (strcmp(text, candidate) == 0) {
            *collective = (enum tutti_collective)i;
            return TUTTI_OK;
        }
        if (i != TUTTI_SEND_RECV)
            snprintf(known + strlen(known), sizeof known - strlen(known), " %s", candidate);
    }
    return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s is \"%s\"; expected one of:%s", name, text, known);
}

static enum tutti_result parse_rate(const char *name, const char *text, double *seconds)
{
    char *end = NULL;
    double rate = strtod(text, &end);
    if (end == text || *end || !isfinite(rate) || rate <= 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s is \"%s\"; expected GB/s, more than 0", name, text);
    *seconds = 1e-9 / rate;
    return TUTTI_OK;
}

static enum tutti_result parse_link(const char *name, const char *text, struct tti_link_model *link)
{
    char *comma = NULL;
    double alpha = strtod(text, &comma);
    double beta = 0;
    if (comma == text || *comma != ',' || !isfinite(alpha) || alpha < 0 ||
        parse_rate(name, comma + 1, &beta) != TUTTI_OK)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "%s is \"%s\"; expected latency in us and bandwidth in GB/s, as in 5,48",
                        name, text);
    *link = (struct tti_link_model){alpha * 1e-6, beta};
    return TUTTI_OK;
}

static enum tutti_result parse_value(const struct plan_flag *flag, const char *text)
{
    long integer = 0;
    switch (flag->kind) {
    case FLAG_SWITCH:
        *(bool *)flag->value = true;
        return TUTTI_OK;
    case FLAG_INT:
        TTI_TRY(tti_parse_int(flag->name, text, flag->least, flag->most, &integer));
        *(int *)flag->value = (int)integer;
        return TUTTI_OK;
    case FLAG_BYTES:
        return tti_parse_bytes(flag->name, text, flag->value);
    case FLAG_RATE:
        return parse_rate(flag->name, text, flag->value);
    case FLAG_LINK:
        return parse_link(flag->name, text, flag->value);
    case FLAG_COLLECTIVE:
        return parse_collective(flag->name, text, flag->value);
    case FLAG_TYPE:
        return parse_type(flag->name, text, flag->value);
    case FLAG_TEXT:
        break;
    }
    *(const char **)flag->value = text;
    return TUTTI_OK;
}

static const struct plan_flag *find_flag(const struct plan_flag *flags, size_t count,
                                         const char *text, size_t length)
{
    for (size_t i = 0; i < count; i++)
        if ((strlen(flags[i].name) == length && strncmp(flags[i].name, text, length) == 0) ||
            (flags[i].other && strlen(flags[i].other) == length &&
             strncmp(flags[i].other, text, length) == 0))
            return &flags[i];
    return NULL;
}

/* "--flag value" and "--flag=value". */
enum tutti_result plan_flags_parse(const struct plan_flag *flags, size_t count, int argc,
                                   char **argv, bool *help)
{
    bool asked = false;
    for (int i = 0; i < argc; i++) {
        const char *text = argv[i], *equals = strchr(text, '=');
        if (strcmp(text, "--help") == 0 || strcmp(text, "-h") == 0) {
            asked = true;
            continue;
        }
        size_t length = equals ? (size_t)(equals - text) : strlen(text);
        const struct plan_flag *flag = find_flag(flags, count, text, length);
        if (!flag)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT, "there is no flag %.*s", (int)length, text);
        const char *value = equals ? equals + 1 : NULL;
        if (flag->kind == FLAG_SWITCH && value)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s takes no value", flag->name);
        if (flag->kind != FLAG_SWITCH && !value) {
            if (i + 1 == argc)
                return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s needs a value", text);
            value = argv[++i];
        }
        TTI_TRY(parse_value(flag, value));
    }
    *help = asked;
    return TUTTI_OK;
}

static const char *kind_value(enum plan_flag_kind kind)
{
    switch (kind) {
    case FLAG_SWITCH:
        return "";
    case FLAG_INT:
        return " N";
    case FLAG_BYTES:
        return " BYTES";
    case FLAG_RATE:
        return " GB/s";
    case FLAG_LINK:
        return " us,GB/s";
    case FLAG_COLLECTIVE:
        return " NAME";
    case FLAG_TYPE:
        return " TYPE";
    case FLAG_TEXT:
        break;
    }
    return " TEXT";
}

void plan_flags_explain(const struct plan_flag *flags, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char left[64];
        snprintf(left, sizeof left, "%s%s%s%s", flags[i].other ? flags[i].other : "",
                 flags[i].other ? ", " : "", flags[i].name, kind_value(flags[i].kind));
        printf("  %-28s %s\n", left, flags[i].meaning);
    }
}
