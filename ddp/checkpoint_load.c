/* Loading checkpoints (tutti/ddp.h): whatever pieces wrote them, whatever pieces are wanted. */
#include "base/memory.h"
#include "coll/group.h"
#include "ddp/checkpoint.h"
#include "ddp/host_memory.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Some elements in some file. */
struct slab {
    char *key; /* NAME, or NAME|PART */
    size_t first, count;
    const tutti_tensor_file *file;
    const struct tutti_tensor *tensor;
    bool model, asked;
};

struct tutti_checkpoint {
    char path[TTI_PATH_BYTES];
    struct tti_checkpoint_state state;
    tutti_tensor_file **files;
    struct slab *slabs; /* by key, then first */
    size_t slab_count, slab_capacity;
};

static enum tutti_result load_state(tutti_checkpoint *c, struct tti_file_sum *sum)
{
    char path[TTI_PATH_BYTES];
    TTI_TRY(tti_path_join(path, c->path, "state.json"));
    FILE *in = fopen(path, "rbe");
    if (!in)
        return TTI_FAIL_ERRNO("cannot open %s", path);
    char *text = tti_calloc(TTI_CHECKPOINT_STATE_BYTES, 1);
    size_t bytes = text ? fread(text, 1, TTI_CHECKPOINT_STATE_BYTES, in) : 0;
    enum tutti_result result = text ? TUTTI_OK : TUTTI_ERR_MEMORY;
    if (text && ferror(in))
        result = TTI_FAIL_ERRNO("cannot read %s", path);
    fclose(in);
    if (result == TUTTI_OK)
        result = tti_checkpoint_parse_state(text, bytes, path, &c->state);
    if (result == TUTTI_OK) {
        sum->bytes = bytes;
        crypto_generichash(sum->hash, TTI_HASH_BYTES, (const unsigned char *)text, bytes, NULL, 0);
    }
    free(text);
    return result;
}

/* Is a file as it was written? The size always, the bytes if it is this rank's to look at. */
static enum tutti_result load_verify(const char *path, const struct tti_file_sum *wanted, bool all)
{
    struct stat info;
    struct tti_file_sum sum;
    if (stat(path, &info) != 0) {
        if (errno == ENOENT)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s is missing from its checkpoint", path);
        return TTI_FAIL_ERRNO("cannot look at %s", path);
    }
    if ((uint64_t)info.st_size != wanted->bytes)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "%s is torn: it has %llu bytes, and had %llu when it "
                        "was saved",
                        path, (unsigned long long)info.st_size, (unsigned long long)wanted->bytes);
    if (!all)
        return TUTTI_OK;
    TTI_TRY(tti_file_sum_of(path, &sum));
    if (memcmp(sum.hash, wanted->hash, TTI_HASH_BYTES) != 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s has changed since it was saved (other hash)", path);
    return TUTTI_OK;
}

static enum tutti_result load_slab(tutti_checkpoint *c, const tutti_tensor_file *file, bool model,
                                   const struct tutti_tensor *tensor)
{
    TTI_TRY(tti_grow((void **)&c->slabs, &c->slab_capacity, c->slab_count + 1, sizeof *c->slabs));
    struct slab *slab = &c->slabs[c->slab_count];
    slab->key = tti_strdup(tensor->name);
    if (!slab->key)
        return TUTTI_ERR_MEMORY;
    c->slab_count++;
    slab->file = file;
    slab->tensor = tensor;
    slab->model = model;
    slab->count = tutti_tensor_elements(tensor);
    if (model)
        return TUTTI_OK;
    char *first = strrchr(slab->key, '|'), *end = NULL;
    if (first)
        slab->first = strtoull(first + 1, &end, 10);
    if (!first || !end || *end || end == first + 1)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tensor \"%s\" of %s is not named NAME|PART|FIRST",
                        tensor->name, c->path);
    *first = '\0';
    return TUTTI_OK;
}

static int load_by_key(const void *left, const void *right)
{
    const struct slab *a = left, *b = right;
    const int order = strcmp(a->key, b->key);
    if (order != 0)
        return order;
    return a->first < b->first ? -1 : a->first > b->first;
}

static enum tutti_result load_all(tutti_checkpoint *c, int rank, int ranks,
                                  struct tti_file_sum *sum)
{
    char path[TTI_PATH_BYTES];
    TTI_TRY(load_state(c, sum));
    c->files = tti_calloc(c->state.file_count, sizeof(tutti_tensor_file *));
    if (!c->files)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < c->state.file_count; i++) {
        const struct tti_checkpoint_file *file = &c->state.files[i];
        TTI_TRY(tti_path_join(path, c->path, file->name));
        TTI_TRY(load_verify(path, &file->sum, (int)(i % (size_t)ranks) == rank));
        TTI_TRY(tutti_tensors_open(path, &c->files[i]));
        const bool model = strcmp(file->name, "model.safetensors") == 0;
        for (size_t t = 0; t < tutti_tensors_count(c->files[i]); t++)
            TTI_TRY(load_slab(c, c->files[i], model, tutti_tensors_at(c->files[i], t)));
    }
    if (c->slab_count > 0)
        qsort(c->slabs, c->slab_count, sizeof *c->slabs, load_by_key);
    return TUTTI_OK;
}

/* Rank 0's choice: the newest step, or UINT64_MAX for none. */
static enum tutti_result load_newest(const char *folder, uint64_t *step)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    TTI_TRY(tti_checkpoint_list(folder, &steps, &count));
    *step = count > 0 ? steps[count - 1] : UINT64_MAX;
    free(steps);
    return TUTTI_OK;
}

/* A step may have been saved twice, and a host (NFS) still show the first under its name. */
static enum tutti_result load_same_for_all(tutti_comm *comm, const tutti_checkpoint *c,
                                           const struct tti_checkpoint_report *all)
{
    for (int r = 1; r < tutti_comm_size(comm); r++)
        if (memcmp(&all[r].sums[0], &all[0].sums[0], sizeof all[0].sums[0]) != 0)
            return TTI_FAIL(TUTTI_ERR_SYSTEM,
                            "rank %d (%s) finds another checkpoint in %s than rank 0 (%s): is it "
                            "the same folder on all hosts? A file system that caches names shows "
                            "what was there before for some seconds",
                            r, tutti_comm_rank_name(comm, r), c->path,
                            tutti_comm_rank_name(comm, 0));
    return TUTTI_OK;
}

enum tutti_result tutti_checkpoint_open(tutti_comm *comm, const char *folder, uint64_t step,
                                        tutti_checkpoint **checkpoint)
{
    TTI_TRY(tti_group_refuse("tutti_checkpoint_open"));
    struct tti_checkpoint_report report = {.step = step}, *all = NULL;
    enum tutti_result result = TUTTI_OK;
    const bool newest = step == UINT64_MAX;
    /* Rank 0 alone looks: a host that was told that there is none may remember that (NFS). */
    if (newest && tutti_comm_rank(comm) == 0)
        result = load_newest(folder, &report.step);
    bool aside = false;
    if (result == TUTTI_OK && tutti_comm_rank(comm) == 0 && report.step != UINT64_MAX)
        result = tti_checkpoint_aside(folder, report.step, &aside);
    report.files = aside ? 4 : 0;
    TTI_TRY(tti_checkpoint_agree(comm, result, &report, &all));
    step = all[0].step;
    aside = all[0].files == 4;
    free(all);
    if (newest && step == UINT64_MAX) {
        *checkpoint = NULL;
        return TUTTI_OK;
    }
    tutti_checkpoint *made = tti_calloc(1, sizeof *made);
    result = made ? tti_checkpoint_path(made->path, folder, step,
                                        aside ? TTI_CHECKPOINT_OLD : TTI_CHECKPOINT_OWN)
                  : TUTTI_ERR_MEMORY;
    if (result == TUTTI_OK)
        result = load_all(made, tutti_comm_rank(comm), tutti_comm_size(comm), &report.sums[0]);
    result = tti_checkpoint_agree(comm, result, &report, &all);
    if (result == TUTTI_OK) {
        result = load_same_for_all(comm, made, all);
        free(all);
    }
    if (result != TUTTI_OK) {
        tutti_checkpoint_close(made);
        return TTI_CONTEXT(result, "while opening step %llu of %s", (unsigned long long)step,
                           folder);
    }
    *checkpoint = made;
    return TUTTI_OK;
}

void tutti_checkpoint_close(tutti_checkpoint *c)
{
    if (!c)
        return;
    for (size_t i = 0; c->files && i < c->state.file_count; i++)
        tutti_tensors_close(c->files[i]);
    for (size_t i = 0; i < c->slab_count; i++)
        free(c->slabs[i].key);
    free(c->files);
    free(c->slabs);
    tti_checkpoint_clear_state(&c->state);
    free(c);
}

uint64_t tutti_checkpoint_step(const tutti_checkpoint *c)
{
    return c->state.step;
}

int tutti_checkpoint_ranks(const tutti_checkpoint *c)
{
    return c->state.ranks;
}

const char *tutti_checkpoint_value(const tutti_checkpoint *c, const char *key)
{
    for (size_t i = 0; i < c->state.value_count; i++)
        if (strcmp(c->state.values[i].key, key) == 0)
            return c->state.values[i].value;
    return NULL;
}

/* ---- Filling pieces ---------------------------------------------------------------------------
 */

static const char *load_shape(int dims, const size_t *shape, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "[");
    for (int d = 0; d < dims && used < bytes; d++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%zu", d ? ", " : "", shape[d]);
    if (used < bytes)
        snprintf(text + used, bytes - used, "]");
    return text;
}

static enum tutti_result load_same(const tutti_checkpoint *c, const struct tutti_piece *p,
                                   const struct slab *slab)
{
    const struct tutti_tensor *t = slab->tensor;
    char there[200], here[200];
    const bool whole = !p->part || t->dims == p->dims;
    if (t->type == p->type &&
        (!whole ||
         (t->dims == p->dims &&
          memcmp(t->shape, p->shape, (size_t)t->dims * sizeof *t->shape) == 0) ||
         (p->part && t->dims == 1)))
        return TUTTI_OK;
    return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                    "%s is of another model: \"%s\" is %s %s there, and %s %s here", c->path,
                    t->name, tutti_type_name(t->type),
                    load_shape(t->dims, t->shape, there, sizeof there), tutti_type_name(p->type),
                    load_shape(p->dims, p->shape, here, sizeof here));
}

static enum tutti_result load_piece(const tutti_checkpoint *c, const struct tutti_piece *p)
{
    char key[1024];
    if ((size_t)snprintf(key, sizeof key, p->part ? "%s|%s" : "%s", p->name, p->part) >= sizeof key)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "checkpoint: the name %.40s... is too long", p->name);
    size_t low = 0, high = c->slab_count, at = p->first;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (strcmp(c->slabs[middle].key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    const size_t end = p->first + p->count, element = tutti_type_size(p->type);
    bool any = false;
    for (; low < c->slab_count && strcmp(c->slabs[low].key, key) == 0; low++) {
        struct slab *slab = &c->slabs[low];
        any = true;
        if (!slab->model == !p->part)
            continue; /* a parameter whose name reads like a part's */
        slab->asked = true;
        TTI_TRY(load_same(c, p, slab));
        if (at < slab->first || at >= end || at - slab->first >= slab->count)
            continue;
        const size_t from = at - slab->first;
        const size_t here = slab->count - from < end - at ? slab->count - from : end - at;
        TTI_TRY(tutti_tensors_read(slab->file, slab->tensor, from, here, p->type,
                                   (char *)p->data + (at - p->first) * element));
        at += here;
    }
    if (at >= end && (any || p->count == 0))
        return TUTTI_OK;
    if (!any)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s is of another model or optimizer: it has no \"%s\"",
                        c->path, key);
    return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s lacks elements of \"%s\" from number %zu on", c->path,
                    key, at);
}

enum tutti_result tutti_checkpoint_load(const tutti_checkpoint *c, const struct tutti_piece *pieces,
                                        size_t count)
{
    bool models = false;
    for (size_t i = 0; i < c->slab_count; i++)
        c->slabs[i].asked = false;
    for (size_t i = 0; i < count; i++) {
        models = models || !pieces[i].part;
        TTI_TRY(tti_host_memory(pieces[i].data, "tutti_checkpoint_load", pieces[i].name));
        TTI_TRY(load_piece(c, &pieces[i]));
    }
    for (size_t i = 0; i < c->slab_count && models; i++)
        if (c->slabs[i].model && !c->slabs[i].asked)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                            "%s is of another model: it has a parameter \"%s\", which this one "
                            "has not",
                            c->path, c->slabs[i].key);
    return TUTTI_OK;
}
