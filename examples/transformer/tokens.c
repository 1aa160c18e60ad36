/* Reading tokens (tokens.h). What a shard's header says is compared with the file's length. */
#include "examples/transformer/tokens.h"

#include "examples/train/input.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHARD_MAGIC = 20240520, SHARD_VERSION = 1, SHARD_HEAD = 1024 };

static uint32_t tokens_number(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static int tokens_append(struct tokens *t, const char *path, const uint8_t *data, size_t bytes)
{
    const int shard = bytes >= SHARD_HEAD && tokens_number(data) == SHARD_MAGIC;
    const size_t count = shard ? tokens_number(data + 8) : bytes;
    const int vocabulary = shard ? TOKENS_GPT2 : TOKENS_BYTES;
    if (shard && (tokens_number(data + 4) != SHARD_VERSION || bytes != SHARD_HEAD + 2 * count)) {
        fprintf(stderr, "%s is a token shard of another version, or a torn one\n", path);
        return 1;
    }
    if (t->count > 0 && t->vocabulary != vocabulary) {
        fprintf(stderr, "%s: text and token shards do not mix\n", path);
        return 1;
    }
    if (count == 0)
        return 0;
    uint16_t *grown = realloc(t->list, (t->count + count) * sizeof *grown);
    if (!grown) {
        fprintf(stderr, "no memory for the %zu tokens of %s\n", count, path);
        return 1;
    }
    t->list = grown;
    t->vocabulary = vocabulary;
    for (size_t i = 0; i < count; i++) {
        const uint8_t *at = data + SHARD_HEAD + 2 * i;
        const unsigned token = shard ? (unsigned)at[0] | (unsigned)at[1] << 8 : data[i];
        if (token >= (unsigned)vocabulary) {
            fprintf(stderr, "%s: token %zu is %u, beyond GPT-2's vocabulary\n", path, i, token);
            return 1;
        }
        grown[t->count++] = (uint16_t)token;
    }
    return 0;
}

/* All files that a pattern of the shell names, in the order of their names; or the one that has
 * this very name. */
static int tokens_files(struct tokens *t, const char *pattern)
{
    glob_t found;
    int failed = glob(pattern, GLOB_NOCHECK, NULL, &found) != 0;
    if (failed) {
        fprintf(stderr, "--data: cannot look for \"%s\"\n", pattern);
        return 1;
    }
    for (size_t i = 0; i < found.gl_pathc && !failed; i++) {
        size_t bytes = 0;
        uint8_t *data = input_read(found.gl_pathv[i], 1, &bytes);
        failed = !data || tokens_append(t, found.gl_pathv[i], data, bytes);
        free(data);
    }
    globfree(&found);
    return failed;
}

int tokens_read(struct tokens *tokens, const char *paths)
{
    struct tokens made = {0};
    int failed = 0;
    char *list = strdup(paths), *rest = NULL;
    for (char *path = list ? strtok_r(list, ",", &rest) : NULL; path && !failed;
         path = strtok_r(NULL, ",", &rest))
        failed = tokens_files(&made, path);
    free(list);
    if (!failed && made.count == 0) {
        fprintf(stderr, "--data \"%s\": no file is named\n", paths);
        failed = 1;
    }
    if (failed)
        tokens_free(&made);
    else
        *tokens = made;
    return failed;
}

void tokens_free(struct tokens *tokens)
{
    free(tokens->list);
    *tokens = (struct tokens){0};
}
