/* Reading TUTTI_FAULT (transport/fault/fault_settings.h). */
#include "transport/fault/fault_settings.h"

#include "base/c_locale.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ITEM_BYTES = 64 };

enum fault_kind { FAULT_TEXT, FAULT_NUMBER, FAULT_RANK, FAULT_CHANCE, FAULT_CHANCE_MS };

static const struct fault_name {
    const char *name;
    enum fault_kind kind;
    size_t offset, ms_offset;
} fault_names[] = {
    {"over", FAULT_TEXT, offsetof(struct fault_settings, over), 0},
    {"seed", FAULT_NUMBER, offsetof(struct fault_settings, seed), 0},
    {"rank", FAULT_RANK, offsetof(struct fault_settings, rank), 0},
    {"peer", FAULT_RANK, offsetof(struct fault_settings, peer), 0},
    {"delay", FAULT_CHANCE_MS, offsetof(struct fault_settings, delay),
     offsetof(struct fault_settings, delay_ms)},
    {"reorder", FAULT_CHANCE_MS, offsetof(struct fault_settings, reorder),
     offsetof(struct fault_settings, reorder_ms)},
    {"drop", FAULT_CHANCE, offsetof(struct fault_settings, drop), 0},
    {"truncate", FAULT_CHANCE, offsetof(struct fault_settings, truncate), 0},
    {"corrupt", FAULT_CHANCE, offsetof(struct fault_settings, corrupt), 0},
    {"forge", FAULT_CHANCE, offsetof(struct fault_settings, forge), 0},
    {"lose", FAULT_CHANCE, offsetof(struct fault_settings, lose), 0},
    {"stall", FAULT_NUMBER, offsetof(struct fault_settings, stall), 0},
    {"kill", FAULT_NUMBER, offsetof(struct fault_settings, kill), 0},
};
enum { FAULT_NAMES = sizeof fault_names / sizeof fault_names[0] };

static enum tutti_result fault_bad(const char *item, const char *expected)
{
    return TTI_FAIL(TUTTI_ERR_ARGUMENT, "TUTTI_FAULT: \"%s\": expected %s", item, expected);
}

/* A number from 0 to `most` that ends at *end. */
static bool fault_real(const char *text, double most, double *value, const char **end)
{
    char *stop = NULL;
    if (*text < '0' || *text > '9') /* no sign, no blanks, no "inf" */
        return false;
    *value = tti_c_strtod(text, &stop);
    *end = stop;
    return stop != text && *value >= 0 && *value <= most;
}

static enum tutti_result fault_chance(const char *item, const char *text,
                                      const struct fault_name *name, char *into)
{
    const char *end = text;
    double chance = 0, ms = 0;
    bool timed = name->kind == FAULT_CHANCE_MS;
    bool good = fault_real(text, 1, &chance, &end) && *end == (timed ? ':' : '\0');
    if (good && timed)
        good = fault_real(end + 1, FAULT_MOST_MS, &ms, &end) && *end == '\0';
    if (!good)
        return fault_bad(item, timed ? "CHANCE:MILLISECONDS, as 0.1:5 (chance 0 to 1, at most "
                                       "60000 ms)"
                                     : "a chance from 0 to 1");
    memcpy(into + name->offset, &chance, sizeof chance);
    if (timed)
        memcpy(into + name->ms_offset, &ms, sizeof ms);
    return TUTTI_OK;
}

static enum tutti_result fault_number(const char *item, const char *text,
                                      const struct fault_name *name, char *into)
{
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno ||
        (name->kind == FAULT_RANK && number > INT32_MAX))
        return fault_bad(item, name->kind == FAULT_RANK ? "a rank" : "a whole number");
    uint64_t wide = number;
    int rank = (int)(number & INT32_MAX);
    if (name->kind == FAULT_RANK)
        memcpy(into + name->offset, &rank, sizeof rank);
    else
        memcpy(into + name->offset, &wide, sizeof wide);
    return TUTTI_OK;
}

static enum tutti_result fault_item(const char *item, struct fault_settings *settings)
{
    const char *equals = strchr(item, '=');
    char names[200] = "";
    for (int i = 0; i < FAULT_NAMES; i++) {
        const struct fault_name *name = &fault_names[i];
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", name->name);
        if (!equals || strlen(name->name) != (size_t)(equals - item) ||
            strncmp(name->name, item, (size_t)(equals - item)) != 0)
            continue;
        settings->seeded |= strcmp(name->name, "seed") == 0;
        if (name->kind == FAULT_CHANCE || name->kind == FAULT_CHANCE_MS)
            return fault_chance(item, equals + 1, name, (char *)settings);
        if (name->kind != FAULT_TEXT)
            return fault_number(item, equals + 1, name, (char *)settings);
        if (!equals[1] || strlen(equals + 1) >= sizeof settings->over)
            return fault_bad(item, "the name of a transport");
        snprintf(settings->over, sizeof settings->over, "%s", equals + 1);
        return TUTTI_OK;
    }
    return TTI_FAIL(TUTTI_ERR_ARGUMENT, "TUTTI_FAULT: \"%s\": expected NAME=VALUE with one of %s",
                    item, names);
}

enum tutti_result tti_fault_settings_parse(const char *text, struct fault_settings *settings)
{
    struct fault_settings read = {.rank = -1, .peer = -1};
    char item[ITEM_BYTES];
    while (*text) {
        size_t bytes = strcspn(text, ",");
        if (bytes >= sizeof item)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT, "TUTTI_FAULT: \"%.20s...\" is too long", text);
        snprintf(item, sizeof item, "%.*s", (int)bytes, text);
        TTI_TRY(fault_item(item, &read));
        text += bytes + (text[bytes] == ',');
    }
    if (!read.over[0])
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "TUTTI_FAULT does not say over which transport; add over=inproc, over=shm "
                        "or over=tcp");
    if (read.peer >= 0 && read.peer == read.rank)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "TUTTI_FAULT: rank and peer are both %d", read.rank);
    *settings = read;
    return TUTTI_OK;
}
