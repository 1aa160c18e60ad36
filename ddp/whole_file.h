/* Files that are there whole or not at all: written under another name, brought to disk, renamed.
 * On the way the bytes are hashed (BLAKE2b), so that a reader can tell that they are the same. */
#ifndef TTI_DDP_WHOLE_FILE_H
#define TTI_DDP_WHOLE_FILE_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum { TTI_HASH_BYTES = 16, TTI_PATH_BYTES = 4096 };

struct tti_file_sum {
    uint64_t bytes;
    unsigned char hash[TTI_HASH_BYTES];
};

struct tti_whole_file;
/* Begin a file that is to become `path`. */
enum tutti_result tti_whole_file_begin(const char *path, struct tti_whole_file **file);
enum tutti_result tti_whole_file_write(struct tti_whole_file *file, const void *data, size_t bytes);
/* Bring it to disk and give it its name; `sum` may be NULL. Frees `file`, also on failure. */
enum tutti_result tti_whole_file_finish(struct tti_whole_file *file, struct tti_file_sum *sum);
/* Give up: nothing is left. NULL is allowed. */
void tti_whole_file_drop(struct tti_whole_file *file);
/* Begin, write, finish. */
enum tutti_result tti_whole_file_put(const char *path, const void *data, size_t bytes);

/* Names made or removed in `folder` are on disk after this. */
enum tutti_result tti_folder_sync(const char *folder);
/* What a file on disk adds up to. */
enum tutti_result tti_file_sum_of(const char *path, struct tti_file_sum *sum);
/* path = folder/name; TUTTI_ERR_ARGUMENT if that is too long. */
enum tutti_result tti_path_join(char path[TTI_PATH_BYTES], const char *folder, const char *name);

#endif
