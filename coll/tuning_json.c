/* The tuning file's text (coll/tuning.h).
 *
 *   {"format": "tutti-tuning 1", "release": "0.1",
 *    "machine": {"cpu": "...", "host": "...", "cpus": 2, "l1": 49152, "l2": 1048576, "l3": ...},
 *    "constants": [{"medium": "mapped", "call": 1e-7, ...}],
 *    "series": [{"collective": "all_reduce", "medium": "mapped", "ranks": 2, "hosts": 1,
 *                "algorithm": "ring", "path": "plan", "lanes": 1,
 *                "us": [[8, 0.3], [64, 0.31]]}]}
 *
 * Constants in seconds (and seconds a byte), points as [bytes of a block, microseconds]. Members in
 * any order. */
#include "coll/tuning.h"

#include "base/json_read.h"
#include "coll/algorithms/algorithms.h"
#include "tutti/plugin.h"

#include <string.h>

static const char tuning_format[] = "tutti-tuning 1";
static const double MOST_SECONDS = 1e6;
static const double MOST_BYTES = 0x1p60;

/* ---- Out ------------------------------------------------------------------------------------- */

static void tuning_write_machine(const struct tti_machine *machine, FILE *out)
{
    fprintf(out, "\"machine\": {\"cpu\": ");
    tti_json_write_text(out, machine->cpu);
    fprintf(out, ", \"host\": ");
    tti_json_write_text(out, machine->host);
    fprintf(out, ", \"cpus\": %d, \"l1\": %llu, \"l2\": %llu, \"l3\": %llu},\n", machine->cpus,
            (unsigned long long)machine->cache[0], (unsigned long long)machine->cache[1],
            (unsigned long long)machine->cache[2]);
}

static void tuning_write_series(const struct tti_series *series, FILE *out)
{
    fprintf(out,
            "{\"collective\": \"%s\", \"medium\": \"%s\", \"ranks\": %d, \"hosts\": %d, "
            "\"algorithm\": \"%s\", \"path\": \"%s\", \"lanes\": %d,\n   \"us\": [",
            tutti_collective_name(series->collective), tti_medium_names[series->medium],
            series->ranks, series->hosts,
            tti_algorithm_at(series->collective, series->algorithm)->name,
            tti_path_names[series->path], series->lanes);
    for (int i = 0; i < series->count; i++) {
        fprintf(out, "%s[%llu, ", i ? ", " : "", (unsigned long long)series->point[i].bytes);
        tti_json_write_number(out, series->point[i].seconds * 1e6);
        putc(']', out);
    }
    fprintf(out, "]}");
}

enum tutti_result tti_tuning_write_json(const struct tti_tuning *tuning, FILE *out)
{
    const char *comma = "";
    fprintf(out, "{\n\"format\": \"%s\",\n\"release\": \"%d.%d\",\n", tuning_format,
            TUTTI_VERSION_MAJOR, TUTTI_VERSION_MINOR);
    tuning_write_machine(&tuning->machine, out);
    fprintf(out, "\"constants\": [");
    for (int medium = 0; medium < TTI_MEDIA; medium++) {
        if (!tuning->fitted[medium])
            continue;
        fprintf(out, "%s\n  {\"medium\": \"%s\"", comma, tti_medium_names[medium]);
        for (int c = 0; c < TTI_COSTS; c++) {
            fprintf(out, ", \"%s\": ", tti_constant_names[c]);
            tti_json_write_number(out, tuning->cost[medium][c]);
        }
        putc('}', out);
        comma = ",";
    }
    fprintf(out, "\n],\n\"series\": [");
    for (size_t i = 0; i < tuning->count; i++) {
        fprintf(out, "%s\n  ", i ? "," : "");
        tuning_write_series(&tuning->series[i], out);
    }
    fprintf(out, "\n]\n}\n");
    if (fflush(out) != 0 || ferror(out))
        return TTI_FAIL_ERRNO("cannot write the tuning");
    return TUTTI_OK;
}

/* ---- In -------------------------------------------------------------------------------------- */

static enum tutti_result tuning_read_machine(struct tti_json *json, struct tti_machine *machine)
{
    static const char *const names[] = {"cpu", "host", "cpus", "l1", "l2", "l3", NULL};
    unsigned seen = 0;
    TTI_TRY(tti_json_expect(json, '{'));
    do {
        int member = 0;
        double value = 0;
        TTI_TRY(tti_json_member(json, names, &seen, &member));
        if (member == 0)
            TTI_TRY(tti_json_text(json, machine->cpu, sizeof machine->cpu));
        else if (member == 1)
            TTI_TRY(tti_json_text(json, machine->host, sizeof machine->host));
        else
            TTI_TRY(tti_json_integer(json, 0, member == 2 ? 1e6 : 0x1p50, &value));
        if (member == 2)
            machine->cpus = (int)value;
        else if (member > 2)
            machine->cache[member - 3] = (uint64_t)value;
    } while (tti_json_takes(json, ','));
    TTI_TRY(tti_json_expect(json, '}'));
    return seen == 63 ? TUTTI_OK : tti_json_wrong(json, "a machine without one of its members");
}

static enum tutti_result tuning_read_constants(struct tti_json *json, void *context)
{
    struct tti_tuning *tuning = context;
    const char *names[TTI_COSTS + 2] = {"medium"};
    double cost[TTI_COSTS] = {0};
    unsigned seen = 0;
    int medium = 0;
    memcpy(names + 1, tti_constant_names, (TTI_COSTS + 1) * sizeof *names);
    TTI_TRY(tti_json_expect(json, '{'));
    do {
        int member = 0;
        TTI_TRY(tti_json_member(json, names, &seen, &member));
        if (member == 0)
            TTI_TRY(tti_json_one_of(json, tti_medium_names, &medium));
        else
            TTI_TRY(tti_json_real(json, 0, MOST_SECONDS, &cost[member - 1]));
    } while (tti_json_takes(json, ','));
    TTI_TRY(tti_json_expect(json, '}'));
    _Static_assert(TTI_COSTS < 32, "a bit for each, and one for the medium");
    if (seen != UINT32_MAX >> (31 - TTI_COSTS))
        return tti_json_wrong(json, "constants without one of their members");
    if (tuning->fitted[medium])
        return tti_json_wrong(json, "constants of a medium are there twice");
    tuning->fitted[medium] = true;
    memcpy(tuning->cost[medium], cost, sizeof cost);
    return TUTTI_OK;
}

static enum tutti_result tuning_read_point(struct tti_json *json, void *context)
{
    struct tti_series *series = context;
    double bytes = 0, us = 0;
    double least = series->count ? series->point[series->count - 1].bytes + 1 : 1;
    if (series->count == TTI_TUNING_POINTS)
        return tti_json_wrong(json, "a series has too many points");
    TTI_TRY(tti_json_expect(json, '['));
    TTI_TRY(tti_json_integer(json, least, MOST_BYTES, &bytes));
    TTI_TRY(tti_json_expect(json, ','));
    TTI_TRY(tti_json_real(json, 1e-6, MOST_SECONDS * 1e6, &us));
    series->point[series->count++] = (struct tti_point){bytes, us / 1e6};
    return tti_json_expect(json, ']');
}

static bool tuning_find_algorithm(enum tutti_collective collective, const char *name, int *index)
{
    for (int i = 0; tti_algorithm_at(collective, i); i++)
        if (strcmp(tti_algorithm_at(collective, i)->name, name) == 0) {
            *index = i;
            return true;
        }
    return false;
}

static enum tutti_result tuning_read_collective(struct tti_json *json,
                                                enum tutti_collective *collective)
{
    const char *names[TUTTI_COLLECTIVE_COUNT + 1] = {NULL};
    int which = 0;
    for (int c = 0; c < TUTTI_COLLECTIVE_COUNT; c++)
        names[c] = tutti_collective_name((enum tutti_collective)c);
    TTI_TRY(tti_json_one_of(json, names, &which));
    *collective = (enum tutti_collective)which;
    return TUTTI_OK;
}

static enum tutti_result tuning_read_series(struct tti_json *json, void *context)
{
    enum { COLLECTIVE, MEDIUM, RANKS, HOSTS, ALGORITHM, PATH, LANES, US, ALL };
    static const char *const names[] = {"collective", "medium", "ranks", "hosts", "algorithm",
                                        "path",       "lanes",  "us",    NULL};
    struct tti_tuning *tuning = context;
    struct tti_series series = {0};
    char algorithm[64];
    double ranks = 0, hosts = 0, lanes = 0;
    int medium = 0, path = 0;
    unsigned seen = 0;
    TTI_TRY(tti_json_expect(json, '{'));
    do {
        int member = 0;
        TTI_TRY(tti_json_member(json, names, &seen, &member));
        if (member == COLLECTIVE)
            TTI_TRY(tuning_read_collective(json, &series.collective));
        else if (member == MEDIUM)
            TTI_TRY(tti_json_one_of(json, tti_medium_names, &medium));
        else if (member == RANKS)
            TTI_TRY(tti_json_integer(json, 2, 1 << 20, &ranks));
        else if (member == HOSTS)
            TTI_TRY(tti_json_integer(json, 1, 1 << 20, &hosts));
        else if (member == ALGORITHM)
            TTI_TRY(tti_json_text(json, algorithm, sizeof algorithm));
        else if (member == PATH)
            TTI_TRY(tti_json_one_of(json, tti_path_names, &path));
        else if (member == LANES)
            TTI_TRY(tti_json_integer(json, 1, TUTTI_MAX_LANES, &lanes));
        else
            TTI_TRY(tti_json_list(json, tuning_read_point, &series));
    } while (tti_json_takes(json, ','));
    TTI_TRY(tti_json_expect(json, '}'));
    if (seen != (1U << ALL) - 1)
        return tti_json_wrong(json, "a series without one of its members");
    if (series.count == 0)
        return tti_json_wrong(json, "a series without points");
    series.medium = (enum tti_medium)medium;
    series.path = (enum tti_path)path;
    series.ranks = (int)ranks;
    series.hosts = (int)hosts;
    series.lanes = (int)lanes;
    if (!tuning_find_algorithm(series.collective, algorithm, &series.algorithm)) {
        tuning->unknown++;
        return TUTTI_OK;
    }
    return tti_json_where(json, tti_tuning_add(tuning, &series));
}

/* Times of another release may be of other code. */
static enum tutti_result tuning_check_release(struct tti_json *json)
{
    char text[32], ours[32];
    TTI_TRY(tti_json_text(json, text, sizeof text));
    snprintf(ours, sizeof ours, "%d.%d", TUTTI_VERSION_MAJOR, TUTTI_VERSION_MINOR);
    if (strcmp(text, ours) == 0)
        return TUTTI_OK;
    return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                    "it was written by release %s, this is %s: run tutti-tune again", text, ours);
}

static enum tutti_result tuning_read_all(struct tti_json *json, struct tti_tuning *tuning)
{
    enum { FORMAT, RELEASE, MACHINE, CONSTANTS, SERIES, ALL };
    static const char *const names[] = {"format",    "release", "machine",
                                        "constants", "series",  NULL};
    char text[32];
    unsigned seen = 0;
    TTI_TRY(tti_json_expect(json, '{'));
    do {
        int member = 0;
        TTI_TRY(tti_json_member(json, names, &seen, &member));
        if (member == FORMAT) {
            TTI_TRY(tti_json_text(json, text, sizeof text));
            if (strcmp(text, tuning_format) != 0)
                return tti_json_wrong(json, "\"format\" is not \"tutti-tuning 1\"");
        } else if (member == RELEASE) {
            TTI_TRY(tuning_check_release(json));
        } else if (member == MACHINE) {
            TTI_TRY(tuning_read_machine(json, &tuning->machine));
        } else if (member == CONSTANTS) {
            TTI_TRY(tti_json_list(json, tuning_read_constants, tuning));
        } else {
            TTI_TRY(tti_json_list(json, tuning_read_series, tuning));
        }
    } while (tti_json_takes(json, ','));
    TTI_TRY(tti_json_expect(json, '}'));
    if (seen != (1U << ALL) - 1)
        return tti_json_wrong(json, "a tuning without one of its members");
    return tti_json_end(json);
}

static uint64_t tuning_digest(const char *text, size_t bytes)
{
    uint64_t digest = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (size_t i = 0; i < bytes; i++)
        digest = (digest ^ (uint8_t)text[i]) * UINT64_C(0x100000001b3);
    return digest | 1; /* 0 means none */
}

enum tutti_result tti_tuning_from_json(const char *text, size_t bytes, struct tti_tuning **tuning)
{
    struct tti_json json = tti_json_of(text, bytes, "the tuning");
    struct tti_tuning *made = NULL;
    TTI_TRY(tti_tuning_create(&made));
    enum tutti_result result = tuning_read_all(&json, made);
    if (result != TUTTI_OK) {
        tti_tuning_destroy(made);
        return result;
    }
    made->digest = tuning_digest(text, bytes);
    *tuning = made;
    return TUTTI_OK;
}
