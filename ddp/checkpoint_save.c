/* Saving checkpoints (tutti/ddp.h): three collective steps, after each of which every rank knows
 * whether all have managed it. Rank 0 makes a folder of a name that was never used, and tells it;
 * each rank writes its files there; rank 0 looks whether it sees them all, writes state.json and
 * then DONE, and gives the folder its name. Whenever a process is killed, a folder with DONE is
 * complete, and a checkpoint of the same step that was there before is found until the new one is
 * in its place. */
#include "base/log.h"
#include "base/memory.h"
#include "coll/group.h"
#include "ddp/checkpoint.h"
#include "ddp/host_memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct saving {
    tutti_comm *comm;
    const char *folder;
    char path[TTI_PATH_BYTES]; /* where it is written */
    char own[TTI_PATH_BYTES];  /* where it is when that is done */
    uint64_t step;
    const struct tutti_piece *pieces;
    size_t count;
};

static enum tutti_result save_sync_name(const char *path)
{
    char parent[TTI_PATH_BYTES];
    snprintf(parent, sizeof parent, "%s", path);
    return tti_folder_sync(dirname(parent));
}

/* The folder and those above it; the names of new ones are on disk afterwards. */
static enum tutti_result save_make_folder(const char *folder)
{
    char path[TTI_PATH_BYTES];
    snprintf(path, sizeof path, "%s", folder);
    for (char *at = path + 1;; at++) {
        if (*at && *at != '/')
            continue;
        const char kept = *at;
        *at = '\0';
        if (mkdir(path, 0777) == 0)
            TTI_TRY(save_sync_name(path));
        else if (errno != EEXIST)
            return TTI_FAIL_ERRNO("cannot make the folder %s", path);
        if (!kept)
            return TUTTI_OK;
        *at = kept;
    }
}

/* DONE goes first, so that what is half removed does not count. Of a link, the link goes: what it
 * leads to is somebody else's. */
static enum tutti_result save_remove(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return TUTTI_OK;
    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
        return unlink(path) == 0 ? TUTTI_OK : TTI_FAIL_ERRNO("cannot remove %s", path);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (!entries) {
        const enum tutti_result result = TTI_FAIL_ERRNO("cannot open the folder %s", path);
        if (fd >= 0)
            close(fd);
        return result;
    }
    if (unlinkat(fd, "DONE", 0) != 0 && errno != ENOENT) {
        const enum tutti_result result = TTI_FAIL_ERRNO("cannot remove %s/DONE", path);
        closedir(entries);
        return result;
    }
    for (struct dirent *e; (e = readdir(entries));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            (void)unlinkat(fd, e->d_name, 0);
    closedir(entries);
    return rmdir(path) == 0 || errno == ENOENT
               ? TUTTI_OK
               : TTI_FAIL_ERRNO("cannot remove the folder %s", path);
}

/* What is in nobody's way may stay: a file that is open somewhere (NFS), say. */
static void save_tidy(const char *path)
{
    if (save_remove(path) != TUTTI_OK)
        TTI_LOG(TTI_LOG_WARN, "an old checkpoint is left, or a part of it: %s", tti_error_text());
}

static void save_tidy_step(const struct saving *s, uint64_t step, const char *suffix)
{
    char path[TTI_PATH_BYTES];
    if (tti_checkpoint_path(path, s->folder, step, suffix) == TUTTI_OK)
        save_tidy(path);
}

/* What saves of the steps low .. high left behind when they failed or were killed. */
static void save_tidy_parts(const struct saving *s, uint64_t low, uint64_t high)
{
    uint64_t step = 0;
    char path[TTI_PATH_BYTES];
    DIR *entries = opendir(s->folder);
    for (struct dirent *e; entries && (e = readdir(entries));)
        if (tti_checkpoint_is_part(e->d_name, &step) && step >= low && step <= high &&
            tti_path_join(path, s->folder, e->d_name) == TUTTI_OK)
            save_tidy(path);
    if (entries)
        closedir(entries);
}

/* Whatever has the name, it has another afterwards, which does not count: whether it can be removed
 * does not matter then. */
static enum tutti_result save_clear(const struct saving *s, const char *path)
{
    char away[TTI_PATH_BYTES];
    uint64_t nonce = 0;
    randombytes_buf(&nonce, sizeof nonce);
    TTI_TRY(tti_checkpoint_part(away, s->folder, s->step, nonce));
    if (rename(path, away) != 0)
        return errno == ENOENT ? TUTTI_OK : TTI_FAIL_ERRNO("cannot rename %s to %s", path, away);
    save_tidy(away);
    return TUTTI_OK;
}

/* What an earlier save of this step left behind when it was killed. */
static enum tutti_result save_recover(const struct saving *s)
{
    char old[TTI_PATH_BYTES];
    bool aside = false;
    save_tidy_parts(s, s->step, s->step);
    TTI_TRY(tti_checkpoint_path(old, s->folder, s->step, TTI_CHECKPOINT_OLD));
    TTI_TRY(tti_checkpoint_aside(s->folder, s->step, &aside));
    if (!aside)
        return save_clear(s, old);
    TTI_TRY(save_clear(s, s->own));
    return rename(old, s->own) == 0 ? TUTTI_OK
                                    : TTI_FAIL_ERRNO("cannot rename %s to %s", old, s->own);
}

static enum tutti_result save_prepare(struct saving *s, uint64_t *nonce)
{
    randombytes_buf(nonce, sizeof *nonce);
    TTI_TRY(tti_checkpoint_part(s->path, s->folder, s->step, *nonce));
    TTI_TRY(save_recover(s));
    TTI_TRY(save_make_folder(s->path));
    return tti_folder_sync(s->path);
}

/* ---- What a rank writes ------------------------------------------------------------------------
 */

static size_t save_elements(const struct tutti_piece *p)
{
    struct tutti_tensor t = {.dims = p->dims};
    memcpy(t.shape, p->shape, sizeof t.shape);
    return tutti_tensor_elements(&t);
}

static enum tutti_result save_check(const struct saving *s)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct tutti_piece *p = &s->pieces[i];
        if (!p->name || p->dims < 0 || p->dims > TUTTI_TENSOR_DIMS)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                            "checkpoint: piece %zu has no name, or %d "
                            "dimensions",
                            i, p->dims);
        const size_t elements = save_elements(p);
        if (p->first > elements || p->count > elements - p->first)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                            "checkpoint: \"%s\" has %zu elements, not %zu from %zu on", p->name,
                            elements, p->count, p->first);
        if (!p->part && (p->first != 0 || p->count != elements))
            return TTI_FAIL(TUTTI_ERR_ARGUMENT, "checkpoint: parameter \"%s\" must be given whole",
                            p->name);
        if (p->part && (!*p->part || strchr(p->part, '|')))
            return TTI_FAIL(TUTTI_ERR_ARGUMENT, "checkpoint: \"%s\" is no name of a part", p->part);
    }
    return TUTTI_OK;
}

/* The parameters under their own names; other parts as NAME|PART|FIRST, flat unless whole. */
static enum tutti_result save_tensor(const struct tutti_piece *p, struct tutti_tensor *t)
{
    *t = (struct tutti_tensor){.type = p->type, .data = p->data, .dims = p->dims};
    memcpy(t->shape, p->shape, sizeof t->shape);
    char *name = NULL;
    int length = p->part ? asprintf(&name, "%s|%s|%zu", p->name, p->part, p->first)
                         : asprintf(&name, "%s", p->name);
    if (length < 0)
        return TTI_FAIL(TUTTI_ERR_MEMORY, "cannot allocate a name");
    t->name = name;
    if (p->count != save_elements(p)) {
        t->dims = 1;
        t->shape[0] = p->count;
    }
    return TUTTI_OK;
}

static enum tutti_result save_file(const struct saving *s, bool model, const char *name,
                                   struct tti_file_sum *sum)
{
    static const struct tutti_pair format = {"format", "pt"}; /* what PyTorch's readers look for */
    char path[TTI_PATH_BYTES];
    size_t used = 0;
    enum tutti_result result = TUTTI_OK;
    struct tutti_tensor *tensors = tti_calloc(s->count, sizeof *tensors);
    if (!tensors)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < s->count && result == TUTTI_OK; i++)
        if (!s->pieces[i].part == model && (model || s->pieces[i].count > 0))
            result = save_tensor(&s->pieces[i], &tensors[used++]);
    if (result == TUTTI_OK)
        result = tti_path_join(path, s->path, name);
    if (result == TUTTI_OK)
        result = tti_tensors_write(path, tensors, used, &format, 1, sum);
    for (size_t i = 0; i < used; i++)
        free((void *)(uintptr_t)tensors[i].name);
    free(tensors);
    return result;
}

/* A rank's file: 0: the model, 1: its state. */
static void save_name(char name[TTI_CHECKPOINT_NAME_BYTES], int which, int rank, int ranks)
{
    if (which == 0)
        snprintf(name, TTI_CHECKPOINT_NAME_BYTES, "model.safetensors");
    else
        snprintf(name, TTI_CHECKPOINT_NAME_BYTES, "state-%05d-of-%05d.safetensors", rank, ranks);
}

static enum tutti_result save_own(const struct saving *s, struct tti_checkpoint_report *report)
{
    const int rank = tutti_comm_rank(s->comm);
    bool any = false;
    char name[TTI_CHECKPOINT_NAME_BYTES];
    TTI_TRY(save_check(s));
    for (size_t i = 0; i < s->count; i++)
        any = any || (s->pieces[i].part && s->pieces[i].count > 0);
    if (rank == 0) {
        save_name(name, 0, rank, tutti_comm_size(s->comm));
        TTI_TRY(save_file(s, true, name, &report->sums[0]));
        report->files |= 1;
    }
    if (any) {
        save_name(name, 1, rank, tutti_comm_size(s->comm));
        TTI_TRY(save_file(s, false, name, &report->sums[1]));
        report->files |= 2;
    }
    return tti_folder_sync(s->path);
}

/* ---- What rank 0 finishes ----------------------------------------------------------------------
 */

static enum tutti_result save_look_at(const struct saving *s, int rank, const char *name,
                                      uint64_t bytes)
{
    char path[TTI_PATH_BYTES];
    struct stat info;
    TTI_TRY(tti_path_join(path, s->path, name));
    const bool there = stat(path, &info) == 0;
    if (!there && errno != ENOENT)
        return TTI_FAIL_ERRNO("cannot look at %s", path);
    if (!there)
        return TTI_FAIL(TUTTI_ERR_SYSTEM,
                        "rank %d (%s) has written %s, and there is no such file: is it the same "
                        "folder on all hosts?",
                        rank, tutti_comm_rank_name(s->comm, rank), path);
    if ((uint64_t)info.st_size != bytes)
        return TTI_FAIL(TUTTI_ERR_SYSTEM,
                        "rank %d (%s) has written %llu bytes to %s, and there are %llu", rank,
                        tutti_comm_rank_name(s->comm, rank), (unsigned long long)bytes, path,
                        (unsigned long long)info.st_size);
    return TUTTI_OK;
}

/* Does rank 0 see what the others say they have written? */
static enum tutti_result save_look(const struct saving *s,
                                   const struct tti_checkpoint_report *reports)
{
    const int ranks = tutti_comm_size(s->comm);
    char name[TTI_CHECKPOINT_NAME_BYTES];
    for (int r = 0; r < ranks; r++)
        for (int which = 0; which < 2; which++) {
            if (!(reports[r].files & 1 << which))
                continue;
            save_name(name, which, r, ranks);
            TTI_TRY(save_look_at(s, r, name, reports[r].sums[which].bytes));
        }
    return TUTTI_OK;
}

static enum tutti_result save_state(const struct saving *s,
                                    const struct tti_checkpoint_report *reports,
                                    const struct tutti_pair *values, size_t value_count)
{
    const int ranks = tutti_comm_size(s->comm);
    struct tti_checkpoint_state state = {.step = s->step,
                                         .ranks = ranks,
                                         .values = (struct tutti_pair *)(uintptr_t)values,
                                         .value_count = value_count};
    char path[TTI_PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    TTI_TRY(tti_path_join(path, s->path, "state.json"));
    state.files = tti_calloc((size_t)ranks + 1, sizeof *state.files);
    if (!state.files)
        return TUTTI_ERR_MEMORY;
    for (int r = 0; r < ranks; r++)
        for (int which = 0; which < 2; which++) {
            if (!(reports[r].files & 1 << which))
                continue;
            struct tti_checkpoint_file *file = &state.files[state.file_count++];
            file->sum = reports[r].sums[which];
            save_name(file->name, which, r, ranks);
        }
    FILE *out = open_memstream(&text, &bytes);
    enum tutti_result result = out ? tti_checkpoint_write_state(&state, out)
                                   : TTI_FAIL_ERRNO("cannot make a stream in memory");
    if (out && fclose(out) != 0 && result == TUTTI_OK)
        result = TTI_FAIL(TUTTI_ERR_MEMORY, "cannot allocate the state of a checkpoint");
    if (result == TUTTI_OK)
        result = tti_whole_file_put(path, text, bytes);
    free(text);
    free(state.files);
    return result;
}

/* Give the finished folder its name; one that has it goes aside, and is found there. */
static enum tutti_result save_place(const struct saving *s)
{
    char old[TTI_PATH_BYTES];
    TTI_TRY(tti_checkpoint_path(old, s->folder, s->step, TTI_CHECKPOINT_OLD));
    if (rename(s->path, s->own) == 0)
        return tti_folder_sync(s->folder);
    if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR)
        return TTI_FAIL_ERRNO("cannot rename %s to %s", s->path, s->own);
    if (rename(s->own, old) != 0)
        return TTI_FAIL_ERRNO("cannot rename %s to %s", s->own, old);
    if (rename(s->path, s->own) != 0) {
        const enum tutti_result result = TTI_FAIL_ERRNO("cannot rename %s to %s", s->path, s->own);
        (void)rename(old, s->own);
        return result;
    }
    TTI_TRY(tti_folder_sync(s->folder));
    save_tidy(old);
    return TUTTI_OK;
}

/* The checkpoint is there; what cannot be tidied up does not make the save fail. */
static void save_keep(const struct saving *s, int keep)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    if (keep <= 0)
        return;
    if (tti_checkpoint_list(s->folder, &steps, &count) != TUTTI_OK)
        TTI_LOG(TTI_LOG_WARN, "old checkpoints are left: %s", tti_error_text());
    const size_t kept = count > (size_t)keep ? count - (size_t)keep : 0;
    for (size_t i = 0; i < kept; i++) {
        if (steps[i] == s->step)
            continue;
        save_tidy_step(s, steps[i], TTI_CHECKPOINT_OLD);
        save_tidy_step(s, steps[i], TTI_CHECKPOINT_OWN);
    }
    if (kept < count && steps[kept] > 0)
        save_tidy_parts(s, 0, steps[kept] - 1);
    free(steps);
}

static enum tutti_result save_finish(const struct saving *s,
                                     const struct tti_checkpoint_report *reports,
                                     const struct tutti_pair *values, size_t value_count, int keep)
{
    char done[TTI_PATH_BYTES];
    TTI_TRY(save_look(s, reports));
    TTI_TRY(save_state(s, reports, values, value_count));
    TTI_TRY(tti_folder_sync(s->path));
    TTI_TRY(tti_path_join(done, s->path, "DONE"));
    TTI_TRY(tti_whole_file_put(done, "", 0));
    TTI_TRY(tti_folder_sync(s->path));
    TTI_TRY(save_place(s));
    TTI_LOG(TTI_LOG_INFO, "saved the checkpoint %s", s->own);
    save_keep(s, keep);
    return TUTTI_OK;
}

enum tutti_result tutti_checkpoint_save(tutti_comm *comm, const char *folder, uint64_t step,
                                        const struct tutti_piece *pieces, size_t count,
                                        const struct tutti_pair *values, size_t value_count,
                                        int keep)
{
    TTI_TRY(tti_group_refuse("tutti_checkpoint_save"));
    const bool first = tutti_comm_rank(comm) == 0;
    struct saving s = {
        .comm = comm, .folder = folder, .step = step, .pieces = pieces, .count = count};
    struct tti_checkpoint_report report = {0}, *all = NULL;
    enum tutti_result result = tti_checkpoint_path(s.own, folder, step, TTI_CHECKPOINT_OWN);
    for (size_t i = 0; i < count && result == TUTTI_OK; i++)
        result = tti_host_memory(pieces[i].data, "tutti_checkpoint_save", pieces[i].name);
    if (result == TUTTI_OK && first)
        result = save_prepare(&s, &report.nonce);
    result = tti_checkpoint_agree(comm, result, &report, &all);
    if (result == TUTTI_OK) {
        result = tti_checkpoint_part(s.path, folder, step, all[0].nonce);
        free(all);
        if (result == TUTTI_OK)
            result = save_own(&s, &report);
        result = tti_checkpoint_agree(comm, result, &report, &all);
    }
    if (result == TUTTI_OK) {
        result = first ? save_finish(&s, all, values, value_count, keep) : TUTTI_OK;
        free(all);
        result = tti_checkpoint_agree(comm, result, &report, NULL);
    }
    return result == TUTTI_OK ? TUTTI_OK
                              : TTI_CONTEXT(result, "while saving the checkpoint %s", s.own);
}
