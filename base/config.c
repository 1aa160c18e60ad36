/* Settings from the environment (base/config.h). */
#include "base/config.h"

#include "base/c_locale.h"
#include "base/memory.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Only added to, before those that are there: whoever reads may do so at the same time. */
struct preset {
    struct preset *next;
    char *value;
    char name[];
};

static struct preset *_Atomic presets;

const char *tti_config_text(const char *name)
{
    const char *text = getenv(name);
    if (text && *text)
        return text;
    const struct preset *preset = atomic_load_explicit(&presets, memory_order_acquire);
    while (preset && strcmp(preset->name, name) != 0)
        preset = preset->next;
    return preset && *preset->value ? preset->value : NULL;
}

enum tutti_result tti_config_preset(const char *name, const char *value)
{
    const size_t name_bytes = strlen(name) + 1, value_bytes = strlen(value) + 1;
    struct preset *made = tti_calloc(1, sizeof *made + name_bytes + value_bytes);
    if (!made)
        return TUTTI_ERR_MEMORY;
    memcpy(made->name, name, name_bytes);
    made->value = memcpy(made->name + name_bytes, value, value_bytes);
    made->next = atomic_load(&presets);
    while (!atomic_compare_exchange_weak(&presets, &made->next, made))
        continue;
    return TUTTI_OK;
}

enum tutti_result tti_parse_int(const char *what, const char *text, long least, long most,
                                long *value)
{
    char *end = NULL;
    errno = 0;
    long parsed = strtol(text, &end, 10);
    if (end == text || *end || errno == ERANGE || parsed < least || parsed > most)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s is \"%s\"; expected an integer from %ld to %ld",
                        what, text, least, most);
    *value = parsed;
    return TUTTI_OK;
}

enum tutti_result tti_parse_seconds(const char *what, const char *text, double *value)
{
    char *end = NULL;
    double parsed = tti_c_strtod(text, &end);
    if (end == text || *end || !isfinite(parsed) || parsed <= 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s is \"%s\"; expected seconds, more than 0", what,
                        text);
    *value = parsed;
    return TUTTI_OK;
}

enum tutti_result tti_parse_bytes(const char *what, const char *text, size_t *value)
{
    static const char suffixes[] = "KMGT";
    char *end = NULL;
    errno = 0;
    double parsed = tti_c_strtod(text, &end);
    int shift = 0;
    if (end != text && *end) {
        const char *suffix = strchr(suffixes, *end >= 'a' ? *end - 'a' + 'A' : *end);
        if (suffix) {
            shift = 10 * (int)(suffix - suffixes + 1);
            end++;
            if (*end == 'i' && end[1] == 'B')
                end += 2;
            else if (*end == 'B')
                end++;
        }
    }
    double bytes = ldexp(parsed, shift);
    if (end == text || *end || !(bytes >= 0) || bytes >= (double)(SIZE_MAX / 2))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s is \"%s\"; expected bytes, as in 8, 64K, 4M or 1G",
                        what, text);
    *value = (size_t)bytes;
    return TUTTI_OK;
}

enum tutti_result tti_config_int(const char *name, long least, long most, long fallback,
                                 long *value)
{
    const char *text = tti_config_text(name);
    if (text)
        return tti_parse_int(name, text, least, most, value);
    *value = fallback;
    return TUTTI_OK;
}

enum tutti_result tti_config_seconds(const char *name, double fallback, double *value)
{
    const char *text = tti_config_text(name);
    if (text)
        return tti_parse_seconds(name, text, value);
    *value = fallback;
    return TUTTI_OK;
}

enum tutti_result tti_config_bytes(const char *name, size_t fallback, size_t *value)
{
    const char *text = tti_config_text(name);
    if (text)
        return tti_parse_bytes(name, text, value);
    *value = fallback;
    return TUTTI_OK;
}

enum tutti_result tti_config_name(const char *name, const char *const *names, int count, int usual,
                                  int *found)
{
    const char *text = tti_config_text(name);
    char all[200] = "";
    int at = text ? 0 : usual;
    while (text && at < count && strcmp(text, names[at]) != 0)
        at++;
    if (at < count) {
        *found = at;
        return TUTTI_OK;
    }
    for (int i = 0; i < count; i++) {
        const size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", names[i],
                 i + 2 < count    ? ", "
                 : i + 1 == count ? ""
                                  : " or ");
    }
    return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s is \"%s\"; expected %s", name, text, all);
}

/* "4" or "4-7" at *at, which moves behind it. */
static bool list_range(const char **at, long most, long *first, long *last)
{
    char *end = NULL;
    if (**at < '0' || **at > '9')
        return false;
    *first = *last = strtol(*at, &end, 10);
    if (*end == '-') {
        if (end[1] < '0' || end[1] > '9')
            return false;
        *last = strtol(end + 1, &end, 10);
    }
    *at = end;
    return *first <= *last && *last <= most;
}

bool tti_parse_list(const char *text, int most, void (*visit)(void *context, int number),
                    void *context)
{
    long first = 0, last = 0;
    for (const char *at = text;; at++) {
        if (!list_range(&at, most, &first, &last) || (*at && *at != ','))
            return false;
        for (long number = first; number <= last; number++)
            visit(context, (int)number);
        if (!*at)
            return true;
    }
}
