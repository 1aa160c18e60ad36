/* Tensors in files (tutti/ddp.h): safetensors. The header is tensor_header.c's; here are the bytes
 * around it. Numbers stand in files in little-endian order, as on every machine that Tutti runs on.
 */
#include "base/memory.h"
#include "ddp/checkpoint.h"
#include "ddp/tensor_header.h"
#include "ddp/whole_file.h"
#include "device/reduce.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors files are written and read as memory: this machine needs bytes swapped"
#endif

enum { CONVERT_BYTES = 1 << 16 };

struct tutti_tensor_file {
    int fd;
    uint64_t data; /* where the elements begin */
    struct tti_tensor_header *header;
    char path[TTI_PATH_BYTES];
};

size_t tutti_tensor_elements(const struct tutti_tensor *tensor)
{
    size_t elements = 1;
    for (int d = 0; d < tensor->dims; d++)
        elements *= tensor->shape[d];
    return elements;
}

/* ---- Writing ----------------------------------------------------------------------------------
 */

enum tutti_result tti_tensors_write(const char *path, const struct tutti_tensor *tensors,
                                    size_t count, const struct tutti_pair *metadata, size_t pairs,
                                    struct tti_file_sum *sum)
{
    char *header = NULL;
    size_t header_bytes = 0;
    struct tti_whole_file *file = NULL;
    TTI_TRY(tti_tensor_header_write(tensors, count, metadata, pairs, &header, &header_bytes));
    enum tutti_result result = tti_whole_file_begin(path, &file);
    if (result == TUTTI_OK)
        result = tti_whole_file_write(file, header, header_bytes);
    free(header);
    for (size_t i = 0; i < count && result == TUTTI_OK; i++)
        result = tti_whole_file_write(file, tensors[i].data,
                                      tutti_tensor_elements(&tensors[i]) *
                                          tutti_type_size(tensors[i].type));
    if (result == TUTTI_OK)
        return tti_whole_file_finish(file, sum);
    tti_whole_file_drop(file);
    return result;
}

enum tutti_result tutti_tensors_write(const char *path, const struct tutti_tensor *tensors,
                                      size_t count, const struct tutti_pair *metadata, size_t pairs)
{
    char folder[TTI_PATH_BYTES] = ".";
    TTI_TRY(tti_tensors_write(path, tensors, count, metadata, pairs, NULL));
    const char *slash = strrchr(path, '/');
    if (slash) /* "/file" lies in "/" */
        memcpy(folder, path, (size_t)(slash - path) + 1), folder[slash - path + 1] = '\0';
    return tti_folder_sync(folder);
}

/* ---- Reading ----------------------------------------------------------------------------------
 */

static enum tutti_result file_read(const tutti_tensor_file *file, uint64_t at, void *out,
                                   size_t bytes)
{
    char *to = out;
    while (bytes > 0) {
        ssize_t got = pread(file->fd, to, bytes, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return TTI_FAIL_ERRNO("cannot read %s", file->path);
        if (got == 0)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s has become shorter while it was read",
                            file->path);
        to += got;
        at += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return TUTTI_OK;
}

static enum tutti_result file_header(tutti_tensor_file *file)
{
    struct stat info;
    unsigned char length_bytes[TTI_TENSOR_LENGTH_BYTES];
    uint64_t length = 0;
    if (fstat(file->fd, &info) != 0)
        return TTI_FAIL_ERRNO("cannot look at %s", file->path);
    if (!S_ISREG(info.st_mode) || info.st_size < TTI_TENSOR_LENGTH_BYTES + 2)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s is no safetensors file: %s", file->path,
                        S_ISREG(info.st_mode) ? "it is too short" : "it is no regular file");
    TTI_TRY(file_read(file, 0, length_bytes, sizeof length_bytes));
    for (int i = TTI_TENSOR_LENGTH_BYTES; i-- > 0;)
        length = length << 8 | length_bytes[i];
    const uint64_t left = (uint64_t)info.st_size - TTI_TENSOR_LENGTH_BYTES;
    if (length > TTI_TENSOR_HEADER_BYTES || length > left)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "%s is no safetensors file, or a torn one: it begins with a header's "
                        "length of %llu bytes, and %llu follow",
                        file->path, (unsigned long long)length, (unsigned long long)left);
    char *json = tti_calloc(length + 1, 1);
    if (!json)
        return TUTTI_ERR_MEMORY;
    file->data = TTI_TENSOR_LENGTH_BYTES + length;
    enum tutti_result result = file_read(file, TTI_TENSOR_LENGTH_BYTES, json, length);
    if (result == TUTTI_OK)
        result = tti_tensor_header_parse(json, length, left - length, file->path, &file->header);
    free(json);
    return result;
}

enum tutti_result tutti_tensors_open(const char *path, tutti_tensor_file **file)
{
    tutti_tensor_file *made = tti_calloc(1, sizeof *made);
    if (!made)
        return TUTTI_ERR_MEMORY;
    made->fd = -1;
    enum tutti_result result = TUTTI_OK;
    if ((size_t)snprintf(made->path, sizeof made->path, "%s", path) >= sizeof made->path)
        result = TTI_FAIL(TUTTI_ERR_ARGUMENT, "the path %.40s... is too long", path);
    if (result == TUTTI_OK) {
        made->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        result = made->fd < 0 ? TTI_FAIL_ERRNO("cannot open %s", path) : file_header(made);
    }
    if (result != TUTTI_OK) {
        tutti_tensors_close(made);
        return result;
    }
    *file = made;
    return TUTTI_OK;
}

void tutti_tensors_close(tutti_tensor_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    tti_tensor_header_free(file->header);
    free(file);
}

size_t tutti_tensors_count(const tutti_tensor_file *file)
{
    return file->header->count;
}

const struct tutti_tensor *tutti_tensors_at(const tutti_tensor_file *file, size_t index)
{
    return index < file->header->count ? &file->header->entries[index].tensor : NULL;
}

const struct tutti_tensor *tutti_tensors_find(const tutti_tensor_file *file, const char *name)
{
    const struct tti_tensor_entry *entry = tti_tensor_header_find(file->header, name);
    return entry ? &entry->tensor : NULL;
}

const char *tutti_tensors_metadata(const tutti_tensor_file *file, const char *key)
{
    for (size_t i = 0; i < file->header->pair_count; i++)
        if (strcmp(file->header->pairs[i].key, key) == 0)
            return file->header->pairs[i].value;
    return NULL;
}

static bool file_is_float(enum tutti_type type)
{
    return type == TUTTI_FLOAT32 ||
           (type < TUTTI_TYPE_COUNT && tti_acc_type(type) == TUTTI_FLOAT32);
}

/* By way of float32, some elements at a time. */
static enum tutti_result file_read_as(const tutti_tensor_file *file, uint64_t at,
                                      enum tutti_type from, size_t count, enum tutti_type type,
                                      char *out)
{
    static const size_t most = CONVERT_BYTES / sizeof(float);
    const size_t from_bytes = tutti_type_size(from), bytes = tutti_type_size(type);
    char *raw = tti_calloc_aligned(64, 2, CONVERT_BYTES);
    if (!raw)
        return TUTTI_ERR_MEMORY;
    enum tutti_result result = TUTTI_OK;
    for (size_t done = 0, now; done < count && result == TUTTI_OK; done += now) {
        now = count - done < most ? count - done : most;
        result = file_read(file, at + done * from_bytes, raw, now * from_bytes);
        if (result != TUTTI_OK)
            break;
        tti_convert(raw + CONVERT_BYTES, TUTTI_FLOAT32, raw, from, now, NULL);
        tti_convert(out + done * bytes, type, raw + CONVERT_BYTES, TUTTI_FLOAT32, now, NULL);
    }
    free(raw);
    return result;
}

enum tutti_result tutti_tensors_read(const tutti_tensor_file *file,
                                     const struct tutti_tensor *tensor, size_t first, size_t count,
                                     enum tutti_type type, void *out)
{
    const struct tti_tensor_entry *entry = tti_tensor_header_find(file->header, tensor->name);
    const size_t elements = tutti_tensor_elements(tensor);
    if (!entry || &entry->tensor != tensor)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tensor \"%s\" is not of %s", tensor->name, file->path);
    if (first > elements || count > elements - first)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "tensor \"%s\" of %s has %zu elements, not %zu from %zu on", tensor->name,
                        file->path, elements, count, first);
    const uint64_t at = file->data + entry->begin + first * entry->element;
    if (type == tensor->type && type < TUTTI_TYPE_COUNT)
        return file_read(file, at, out, count * entry->element);
    if (!file_is_float(type) || !file_is_float(tensor->type))
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED, "tensor \"%s\" of %s is %s, and is wanted as %s",
                        tensor->name, file->path, tutti_type_name(tensor->type),
                        tutti_type_name(type));
    return file_read_as(file, at, tensor->type, count, type, out);
}
