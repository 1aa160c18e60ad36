/* Checkpoints: names of folders, state.json, and how ranks agree (checkpoint.h). */
#include "base/json_read.h"
#include "base/memory.h"
#include "ddp/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATE_PART ".part"

enum { STATE_TEXT_BYTES = 1024, STATE_NONCE_DIGITS = 16 };

enum tutti_result tti_checkpoint_path(char path[TTI_PATH_BYTES], const char *folder, uint64_t step,
                                      const char *suffix)
{
    char name[TTI_CHECKPOINT_NAME_BYTES];
    snprintf(name, sizeof name, "step-%08" PRIu64 "%s", step, suffix);
    return tti_path_join(path, folder, name);
}

enum tutti_result tti_checkpoint_part(char path[TTI_PATH_BYTES], const char *folder, uint64_t step,
                                      uint64_t nonce)
{
    char suffix[sizeof STATE_PART + 1 + STATE_NONCE_DIGITS];
    snprintf(suffix, sizeof suffix, STATE_PART "-%016" PRIx64, nonce);
    return tti_checkpoint_path(path, folder, step, suffix);
}

bool tti_checkpoint_is_step(const char *name, uint64_t *step)
{
    char again[TTI_CHECKPOINT_NAME_BYTES];
    if (strncmp(name, "step-", 5) != 0 || strlen(name) > 5 + 19)
        return false;
    const uint64_t parsed = strtoull(name + 5, NULL, 10);
    snprintf(again, sizeof again, "step-%08" PRIu64, parsed);
    if (strcmp(again, name) != 0)
        return false;
    *step = parsed;
    return true;
}

/* What follows the step in a folder's name; NULL if it does not begin with one. */
static const char *state_suffix(const char *name, uint64_t *step)
{
    char own[TTI_CHECKPOINT_NAME_BYTES];
    const size_t length = strcspn(name, ".");
    if (length >= sizeof own)
        return NULL;
    snprintf(own, sizeof own, "%.*s", (int)length, name);
    return tti_checkpoint_is_step(own, step) ? name + length : NULL;
}

bool tti_checkpoint_is_part(const char *name, uint64_t *step)
{
    const char *suffix = state_suffix(name, step);
    if (!suffix || strncmp(suffix, STATE_PART, strlen(STATE_PART)) != 0)
        return false;
    suffix += strlen(STATE_PART);
    return !*suffix || (*suffix == '-' && strlen(suffix) == 1 + STATE_NONCE_DIGITS &&
                        strspn(suffix + 1, "0123456789abcdef") == STATE_NONCE_DIGITS);
}

static int state_ascending(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* Is its DONE there? An error if the file system does not say: what is done with one that is not
 * finished destroys it, or passes it over. */
static enum tutti_result state_is_done(const char *folder, uint64_t step, const char *suffix,
                                       bool *is_done)
{
    char path[TTI_PATH_BYTES], done[TTI_PATH_BYTES];
    TTI_TRY(tti_checkpoint_path(path, folder, step, suffix));
    TTI_TRY(tti_path_join(done, path, "DONE"));
    const bool there = access(done, F_OK) == 0;
    if (!there && errno != ENOENT && errno != ENOTDIR)
        return TTI_FAIL_ERRNO("cannot look whether %s is there", done);
    *is_done = there;
    return TUTTI_OK;
}

enum tutti_result tti_checkpoint_aside(const char *folder, uint64_t step, bool *aside)
{
    bool own = false;
    TTI_TRY(state_is_done(folder, step, TTI_CHECKPOINT_OWN, &own));
    if (!own)
        return state_is_done(folder, step, TTI_CHECKPOINT_OLD, aside);
    *aside = false;
    return TUTTI_OK;
}

/* Does a finished checkpoint lie in the folder of this name? Then its step. */
static enum tutti_result state_is_found(const char *folder, const char *name, uint64_t *step,
                                        bool *found)
{
    const char *suffix = state_suffix(name, step);
    *found = false;
    if (suffix && !*suffix)
        return state_is_done(folder, *step, TTI_CHECKPOINT_OWN, found);
    return suffix && strcmp(suffix, TTI_CHECKPOINT_OLD) == 0
               ? tti_checkpoint_aside(folder, *step, found)
               : TUTTI_OK;
}

/* The next name; NULL at the end, or when the folder cannot be read on: then errno is not 0. */
static const char *state_next(DIR *entries)
{
    errno = 0;
    const struct dirent *e = readdir(entries);
    return e ? e->d_name : NULL;
}

static enum tutti_result state_gather(const char *folder, DIR *entries, uint64_t **steps,
                                      size_t *count)
{
    size_t capacity = 0;
    uint64_t step = 0;
    bool found = false;
    for (const char *name; (name = state_next(entries));) {
        TTI_TRY(state_is_found(folder, name, &step, &found));
        if (!found)
            continue;
        TTI_TRY(tti_grow((void **)steps, &capacity, *count + 1, sizeof **steps));
        (*steps)[(*count)++] = step;
    }
    return errno == 0 ? TUTTI_OK : TTI_FAIL_ERRNO("cannot read the folder %s", folder);
}

enum tutti_result tti_checkpoint_list(const char *folder, uint64_t **steps, size_t *count)
{
    uint64_t *made = NULL;
    size_t used = 0;
    DIR *entries = opendir(folder);
    if (!entries && errno != ENOENT)
        return TTI_FAIL_ERRNO("cannot open the folder %s", folder);
    enum tutti_result result = entries ? state_gather(folder, entries, &made, &used) : TUTTI_OK;
    if (entries)
        closedir(entries);
    if (result != TUTTI_OK) {
        free(made);
        return result;
    }
    if (used > 0)
        qsort(made, used, sizeof *made, state_ascending);
    *steps = made;
    *count = used;
    return TUTTI_OK;
}

enum tutti_result tti_checkpoint_agree(tutti_comm *comm, enum tutti_result mine,
                                       struct tti_checkpoint_report *report,
                                       struct tti_checkpoint_report **all)
{
    const int ranks = tutti_comm_size(comm);
    report->code = (int32_t)mine;
    if (mine != TUTTI_OK)
        snprintf(report->text, sizeof report->text, "%s", tutti_last_error());
    struct tti_checkpoint_report *made = tti_calloc((size_t)ranks, sizeof *made);
    if (!made) /* the others learn of it by their deadline */
        return TUTTI_ERR_MEMORY;
    enum tutti_result result = tutti_all_gather(report, made, sizeof *report, TUTTI_UINT8, comm);
    for (int r = 0; r < ranks && result == TUTTI_OK; r++) {
        made[r].text[sizeof made[r].text - 1] = '\0';
        if (made[r].code != TUTTI_OK)
            result = TTI_FAIL((enum tutti_result)made[r].code, "rank %d (%s): %s", r,
                              tutti_comm_rank_name(comm, r), made[r].text);
    }
    if (result != TUTTI_OK || !all)
        free(made);
    else
        *all = made;
    return result;
}

/* ---- state.json -------------------------------------------------------------------------------
 */

static bool state_can_write(const char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~' || *text == '"' || *text == '\\')
            return false;
    return true;
}

enum tutti_result tti_checkpoint_write_state(const struct tti_checkpoint_state *state, FILE *out)
{
    for (size_t i = 0; i < state->value_count; i++)
        if (!state_can_write(state->values[i].key) || !state_can_write(state->values[i].value) ||
            strlen(state->values[i].key) >= STATE_TEXT_BYTES ||
            strlen(state->values[i].value) >= STATE_TEXT_BYTES)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                            "checkpoint: value %zu is not of less than %d printable ASCII "
                            "characters without quotes and backslashes",
                            i, STATE_TEXT_BYTES);
    fprintf(out, "{\n  \"format\": \"tutti-checkpoint\",\n  \"version\": 1,\n");
    fprintf(out, "  \"step\": %" PRIu64 ",\n  \"ranks\": %d,\n  \"files\": [", state->step,
            state->ranks);
    for (size_t i = 0; i < state->file_count; i++) {
        char hex[2 * TTI_HASH_BYTES + 1];
        sodium_bin2hex(hex, sizeof hex, state->files[i].sum.hash, TTI_HASH_BYTES);
        fprintf(out, "%s\n    {\"name\": \"%s\", \"bytes\": %" PRIu64 ", \"blake2b\": \"%s\"}",
                i ? "," : "", state->files[i].name, state->files[i].sum.bytes, hex);
    }
    fprintf(out, "\n  ],\n  \"values\": {");
    for (size_t i = 0; i < state->value_count; i++)
        fprintf(out, "%s\n    \"%s\": \"%s\"", i ? "," : "", state->values[i].key,
                state->values[i].value);
    fprintf(out, "\n  }\n}\n");
    return TUTTI_OK;
}

static enum tutti_result state_file(struct tti_json *json, void *context)
{
    static const char *const members[] = {"name", "bytes", "blake2b", NULL};
    struct tti_checkpoint_state *state = context;
    unsigned seen = 0;
    double bytes = 0;
    size_t length = 0;
    char hex[2 * TTI_HASH_BYTES + 1];
    TTI_TRY(tti_grow((void **)&state->files, &state->file_capacity, state->file_count + 1,
                     sizeof *state->files));
    struct tti_checkpoint_file *file = &state->files[state->file_count++];
    TTI_TRY(tti_json_expect(json, '{'));
    do {
        int member = 0;
        TTI_TRY(tti_json_member(json, members, &seen, &member));
        if (member == 1)
            TTI_TRY(tti_json_integer(json, 0, 9007199254740992.0, &bytes));
        else if (member == 0)
            TTI_TRY(tti_json_text(json, file->name, sizeof file->name));
        else
            TTI_TRY(tti_json_text(json, hex, sizeof hex));
    } while (tti_json_takes(json, ','));
    TTI_TRY(tti_json_expect(json, '}'));
    if (seen != 7)
        return tti_json_wrong(json, "a file needs name, bytes and blake2b");
    if (!*file->name || strchr(file->name, '/'))
        return tti_json_wrong(json, "a file's name is no name");
    if (sodium_hex2bin(file->sum.hash, TTI_HASH_BYTES, hex, strlen(hex), NULL, &length, NULL) !=
            0 ||
        length != TTI_HASH_BYTES)
        return tti_json_wrong(json, "a hash is not 32 hexadecimal digits");
    file->sum.bytes = (uint64_t)bytes;
    return TUTTI_OK;
}

static enum tutti_result state_values(struct tti_json *json, struct tti_checkpoint_state *state)
{
    char text[STATE_TEXT_BYTES];
    TTI_TRY(tti_json_expect(json, '{'));
    if (tti_json_takes(json, '}'))
        return TUTTI_OK;
    do {
        TTI_TRY(tti_grow((void **)&state->values, &state->value_capacity, state->value_count + 1,
                         sizeof *state->values));
        struct tutti_pair *pair = &state->values[state->value_count++];
        TTI_TRY(tti_json_text(json, text, sizeof text));
        if (!(pair->key = tti_strdup(text)))
            return TUTTI_ERR_MEMORY;
        TTI_TRY(tti_json_expect(json, ':'));
        TTI_TRY(tti_json_text(json, text, sizeof text));
        if (!(pair->value = tti_strdup(text)))
            return TUTTI_ERR_MEMORY;
    } while (tti_json_takes(json, ','));
    return tti_json_expect(json, '}');
}

static enum tutti_result state_member(struct tti_json *json, int member,
                                      struct tti_checkpoint_state *state)
{
    static const char *const formats[] = {"tutti-checkpoint", NULL};
    double number = 0;
    int format = 0;
    switch (member) {
    case 0:
        return tti_json_one_of(json, formats, &format);
    case 1:
        TTI_TRY(tti_json_integer(json, 0, 1e6, &number));
        return number == 1 ? TUTTI_OK
                           : tti_json_wrong(json, "a version that this Tutti does not know");
    case 2:
        TTI_TRY(tti_json_integer(json, 0, 9007199254740992.0, &number));
        state->step = (uint64_t)number;
        return TUTTI_OK;
    case 3:
        TTI_TRY(tti_json_integer(json, 1, 1 << 24, &number));
        state->ranks = (int)number;
        return TUTTI_OK;
    case 4:
        return tti_json_list(json, state_file, state);
    default:
        return state_values(json, state);
    }
}

enum tutti_result tti_checkpoint_parse_state(const char *text, size_t bytes, const char *what,
                                             struct tti_checkpoint_state *state)
{
    static const char *const members[] = {"format", "version", "step", "ranks",
                                          "files",  "values",  NULL};
    struct tti_json json = tti_json_of(text, bytes, what);
    unsigned seen = 0;
    TTI_TRY(tti_json_expect(&json, '{'));
    do {
        int member = 0;
        TTI_TRY(tti_json_member(&json, members, &seen, &member));
        TTI_TRY(state_member(&json, member, state));
    } while (tti_json_takes(&json, ','));
    TTI_TRY(tti_json_expect(&json, '}'));
    TTI_TRY(tti_json_end(&json));
    return seen == 63 ? TUTTI_OK : tti_json_wrong(&json, "a member is missing");
}

void tti_checkpoint_clear_state(struct tti_checkpoint_state *state)
{
    for (size_t i = 0; i < state->value_count; i++) {
        free((void *)(uintptr_t)state->values[i].key);
        free((void *)(uintptr_t)state->values[i].value);
    }
    free(state->values);
    free(state->files);
    *state = (struct tti_checkpoint_state){0};
}
