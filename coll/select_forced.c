/* The text that names algorithms: TUTTI_ALGO and tutti_options.algorithms (coll/select.h). */
#include "coll/algorithms/algorithms.h"
#include "coll/comm.h"
#include "coll/select.h"

#include <stdio.h>
#include <string.h>

/* What `text` names for a collective of `spec`; of any, if that is NULL. */
static bool select_named(const char *text, enum tutti_collective collective,
                         const struct tti_plan_spec *spec, char *name, size_t bytes)
{
    bool found = false;
    while (text && *text) {
        size_t length = strcspn(text, ",");
        const char *equals = memchr(text, '=', length);
        const char *want = tutti_collective_name(collective);
        const char *value = equals ? equals + 1 : text;
        size_t value_length = length - (size_t)(value - text);
        bool mine = equals ? (size_t)(equals - text) == strlen(want) &&
                                 strncmp(text, want, strlen(want)) == 0
                           : true;
        if (mine && value_length < bytes) {
            char candidate[64];
            snprintf(candidate, sizeof candidate, "%.*s", (int)value_length, value);
            const struct tti_algorithm *algorithm = tti_algorithm_find(collective, candidate);
            const bool serves =
                algorithm && (!spec || !algorithm->applicable || algorithm->applicable(spec));
            if (equals || serves) {
                snprintf(name, bytes, "%s", candidate);
                found = true;
            }
        }
        text += length + (text[length] == ',');
    }
    return found;
}

bool tti_select_forced(const struct tutti_comm *comm, enum tutti_collective collective, char *name,
                       size_t bytes)
{
    const struct tti_plan_spec spec = {.collective = collective,
                                       .nranks = comm->size,
                                       .lanes = 1,
                                       .slices = 1,
                                       .layout = tti_peers_layout(&comm->peers)};
    return select_named(comm->settings.algorithms, collective, &spec, name, bytes);
}

/* The algorithms that there are; of those, `ordered`: the ones that combine in the order of ranks.
 */
static void select_names(enum tutti_collective collective, bool ordered, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; tti_algorithm_at(collective, i) && used < bytes; i++)
        if (!ordered || tti_algorithm_at(collective, i)->ordered)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "",
                                     tti_algorithm_at(collective, i)->name);
}

static enum tutti_result select_check_one(const char *entry, size_t length)
{
    const char *equals = memchr(entry, '=', length);
    char name[64], known[400];
    const char *value = equals ? equals + 1 : entry;
    snprintf(name, sizeof name, "%.*s", (int)(length - (size_t)(value - entry)), value);
    for (int c = 0; c < TUTTI_COLLECTIVE_COUNT; c++) {
        const char *collective = tutti_collective_name((enum tutti_collective)c);
        bool named = equals && (size_t)(equals - entry) == strlen(collective) &&
                     strncmp(entry, collective, strlen(collective)) == 0;
        if ((named || !equals) && tti_algorithm_find((enum tutti_collective)c, name))
            return TUTTI_OK;
        if (named) {
            select_names((enum tutti_collective)c, false, known, sizeof known);
            return TTI_FAIL(TUTTI_ERR_ARGUMENT, "\"%s\" is no algorithm for %s; there are: %s",
                            name, collective, known);
        }
    }
    select_names(TUTTI_ALL_REDUCE, false, known, sizeof known);
    if (equals)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "\"%.*s\" is no collective (algorithms are given as \"ring\" or "
                        "\"all_reduce=ring,broadcast=tree\")",
                        (int)(equals - entry), entry);
    return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                    "\"%s\" is no algorithm of any collective; for all_reduce there are: %s", name,
                    known);
}

/* What the whole text comes to for each collective that combines. */
static enum tutti_result select_check_order(const char *algorithms)
{
    for (int c = 0; c < TUTTI_COLLECTIVE_COUNT; c++) {
        enum tutti_collective collective = (enum tutti_collective)c;
        char name[64], known[400];
        if (!tti_order_shows(collective) ||
            !select_named(algorithms, collective, NULL, name, sizeof name))
            continue;
        const struct tti_algorithm *algorithm = tti_algorithm_find(collective, name);
        if (!algorithm || algorithm->ordered)
            continue;
        select_names(collective, true, known, sizeof known);
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "algorithm \"%s\" for %s does not combine in the order of ranks, which the "
                        "reproducible mode needs; these do: %s",
                        name, tutti_collective_name(collective), known);
    }
    return TUTTI_OK;
}

enum tutti_result tti_select_check(const char *algorithms, bool reproducible)
{
    const char *entry = algorithms;
    while (entry && *entry) {
        size_t length = strcspn(entry, ",");
        TTI_TRY(select_check_one(entry, length));
        entry += length + (entry[length] == ',');
    }
    return reproducible ? select_check_order(algorithms) : TUTTI_OK;
}
