/* Variables of the environment that look like one of ours (base/config.h). The list is README.md's
 * table, of which tools/check/check_docs sees that it has what the code reads; CMakeLists.txt here
 * hands it to this file as words, TTI_SETTINGS. */
#include "base/config.h"

#include <stdio.h>
#include <string.h>

#define PREFIX "TUTTI_"

enum {
    PREFIX_BYTES = sizeof PREFIX - 1,
    LONGEST = 40,  /* letters that are compared, behind the prefix */
    LONG_FROM = 6, /* names of so many letters may have two wrong ones, shorter ones one */
    START_LEAST = 3,
};

static size_t least_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Letters to change, leave out or put in, until one text is the other. */
static size_t misspelt_distance(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    size_t row[LONGEST + 1];
    for (size_t j = 0; j <= b_bytes; j++)
        row[j] = j;
    for (size_t i = 0; i < a_bytes; i++) {
        size_t diagonal = row[0]++;
        for (size_t j = 0; j < b_bytes; j++) {
            const size_t changed = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            row[j + 1] = least_of(changed, least_of(row[j], row[j + 1]) + 1);
        }
    }
    return row[b_bytes];
}

/* A word in the list of ours; no bytes: none. */
struct setting {
    const char *name;
    int bytes;
};

/* The one of ours that is probably meant; none: it is none of ours to speak of, or is one. `name`
 * has no prefix. */
static struct setting misspelt_meant(const char *name, size_t bytes)
{
    static const char ours[] = TTI_SETTINGS;
    const struct setting none = {NULL, 0};
    struct setting found = none, begins = none;
    size_t nearest = 3, longest = START_LEAST - 1;
    if (bytes > LONGEST)
        return none;
    for (const char *at = ours; *at;) {
        const struct setting own = {at, (int)strcspn(at, " ")};
        const char *rest = at + PREFIX_BYTES;
        const size_t rest_bytes = least_of((size_t)own.bytes - PREFIX_BYTES, LONGEST);
        const size_t distance = misspelt_distance(name, bytes, rest, rest_bytes);
        if (distance == 0)
            return none;
        if (distance < nearest && distance <= (rest_bytes < LONG_FROM ? 1 : 2)) {
            nearest = distance;
            found = own;
        }
        /* ALGORITHM for ALGO, LOG_LEVEL for LOG */
        if (rest_bytes > longest && bytes > rest_bytes && memcmp(name, rest, rest_bytes) == 0) {
            longest = rest_bytes;
            begins = own;
        }
        at += own.bytes + (at[own.bytes] == ' ');
    }
    return found.bytes ? found : begins;
}

void tti_config_misspelt(char *const *environment, void (*say)(const char *text))
{
    char text[160];
    for (; environment && *environment; environment++) {
        const char *name = *environment;
        const size_t bytes = strcspn(name, "=");
        if (bytes <= PREFIX_BYTES || memcmp(name, PREFIX, PREFIX_BYTES) != 0)
            continue;
        const struct setting meant = misspelt_meant(name + PREFIX_BYTES, bytes - PREFIX_BYTES);
        if (meant.bytes == 0)
            continue;
        snprintf(text, sizeof text, "%.*s is set, which nothing reads; is %.*s meant?", (int)bytes,
                 name, meant.bytes, meant.name);
        say(text);
    }
}
