/* Files that are there whole or not at all (whole_file.h). */
#include "ddp/whole_file.h"

#include "base/memory.h"
#include "base/quiet.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 1 << 20 };

struct tti_whole_file {
    int fd;
    uint64_t bytes;
    crypto_generichash_state hash;
    char path[TTI_PATH_BYTES], temporary[TTI_PATH_BYTES];
};

enum tutti_result tti_path_join(char path[TTI_PATH_BYTES], const char *folder, const char *name)
{
    int length = snprintf(path, TTI_PATH_BYTES, "%s/%s", folder, name);
    return length < TTI_PATH_BYTES
               ? TUTTI_OK
               : TTI_FAIL(TUTTI_ERR_ARGUMENT, "the path %.40s... is too long", folder);
}

/* Temporary names differ by process, so that two that write the same file do not mix. */
enum tutti_result tti_whole_file_begin(const char *path, struct tti_whole_file **file)
{
    struct tti_whole_file *made = tti_calloc_aligned(64, 1, sizeof *made);
    if (!made)
        return TUTTI_ERR_MEMORY;
    int length = snprintf(made->path, sizeof made->path, "%s", path);
    if (length < TTI_PATH_BYTES)
        length =
            snprintf(made->temporary, sizeof made->temporary, "%s.%ld.part", path, (long)getpid());
    if (length >= TTI_PATH_BYTES) {
        free(made);
        (void)TTI_FAIL(TUTTI_ERR_ARGUMENT, "the path %.40s... is too long", path);
        return TUTTI_ERR_ARGUMENT;
    }
    made->fd = open(made->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (made->fd < 0) {
        (void)TTI_FAIL_ERRNO("cannot create %s", made->temporary);
        free(made);
        return TUTTI_ERR_SYSTEM;
    }
    crypto_generichash_init(&made->hash, NULL, 0, TTI_HASH_BYTES);
    *file = made;
    return TUTTI_OK;
}

enum tutti_result tti_whole_file_write(struct tti_whole_file *file, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    crypto_generichash_update(&file->hash, at, bytes);
    file->bytes += bytes;
    while (bytes > 0) {
        ssize_t written = tti_quiet_write(file->fd, at, bytes < PIECE ? bytes : PIECE);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return TTI_FAIL_ERRNO("cannot write %s", file->path);
        at += written;
        bytes -= (size_t)written;
    }
    return TUTTI_OK;
}

void tti_whole_file_drop(struct tti_whole_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    unlink(file->temporary);
    free(file);
}

enum tutti_result tti_whole_file_finish(struct tti_whole_file *file, struct tti_file_sum *sum)
{
    enum tutti_result result = TUTTI_OK;
    if (fsync(file->fd) != 0)
        result = TTI_FAIL_ERRNO("cannot bring %s to disk", file->path);
    const int fd = file->fd;
    file->fd = -1;
    if (close(fd) != 0 && result == TUTTI_OK)
        result = TTI_FAIL_ERRNO("cannot write %s", file->path);
    if (result == TUTTI_OK && rename(file->temporary, file->path) != 0)
        result = TTI_FAIL_ERRNO("cannot rename %s to %s", file->temporary, file->path);
    if (result != TUTTI_OK) {
        tti_whole_file_drop(file);
        return result;
    }
    if (sum) {
        sum->bytes = file->bytes;
        crypto_generichash_final(&file->hash, sum->hash, TTI_HASH_BYTES);
    }
    free(file);
    return TUTTI_OK;
}

enum tutti_result tti_whole_file_put(const char *path, const void *data, size_t bytes)
{
    struct tti_whole_file *file = NULL;
    TTI_TRY(tti_whole_file_begin(path, &file));
    enum tutti_result result = tti_whole_file_write(file, data, bytes);
    if (result == TUTTI_OK)
        return tti_whole_file_finish(file, NULL);
    tti_whole_file_drop(file);
    return result;
}

enum tutti_result tti_folder_sync(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return TTI_FAIL_ERRNO("cannot open the folder %s", folder);
    enum tutti_result result = TUTTI_OK;
    /* EINVAL: a file system that has nothing to sync for folders. */
    if (fsync(fd) != 0 && errno != EINVAL)
        result = TTI_FAIL_ERRNO("cannot bring the folder %s to disk", folder);
    close(fd);
    return result;
}

enum tutti_result tti_file_sum_of(const char *path, struct tti_file_sum *sum)
{
    crypto_generichash_state hash;
    uint64_t bytes = 0;
    ssize_t got = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return TTI_FAIL_ERRNO("cannot open %s", path);
    unsigned char *piece = tti_calloc(PIECE, 1);
    if (!piece) {
        close(fd);
        return TUTTI_ERR_MEMORY;
    }
    crypto_generichash_init(&hash, NULL, 0, TTI_HASH_BYTES);
    while ((got = read(fd, piece, PIECE)) > 0 || (got < 0 && errno == EINTR))
        if (got > 0) {
            crypto_generichash_update(&hash, piece, (size_t)got);
            bytes += (uint64_t)got;
        }
    enum tutti_result result = got < 0 ? TTI_FAIL_ERRNO("cannot read %s", path) : TUTTI_OK;
    if (result == TUTTI_OK) {
        sum->bytes = bytes;
        crypto_generichash_final(&hash, sum->hash, TTI_HASH_BYTES);
    }
    free(piece);
    close(fd);
    return result;
}
