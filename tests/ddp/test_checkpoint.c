/* Checkpoints: what some ranks wrote in pieces, others read in other pieces; what is missing, torn,
 * changed or of another model is refused by name. Ranks are threads. */
#include "base/log.h"
#include "tests/integration/ranks.h"
#include "tests/tutti_cmocka.h"
#include "tutti/ddp.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROWS = 7, COLUMNS = 11, BIG = ROWS * COLUMNS, SMALL = 5 };

struct job {
    char folder[64];
    const char *elsewhere; /* what the host of ranks but 0 has under the folder's name; or NULL */
    uint64_t step;
    int keep;
    float scale;             /* what is saved is multiplied by it */
    enum tutti_result wants; /* of loading */
    const char *text;        /* ... and what its error says */
};

static float value_of(int tensor, size_t i, float scale)
{
    return scale * ((float)tensor * 1000 + (float)i);
}

static struct tutti_piece piece_of(int tensor, const char *part, size_t first, size_t count,
                                   float *data)
{
    struct tutti_piece p = {.name = tensor ? "bias" : "weight",
                            .part = part,
                            .type = TUTTI_FLOAT32,
                            .dims = tensor ? 1 : 2,
                            .shape = {tensor ? SMALL : ROWS, tensor ? 0 : COLUMNS},
                            .first = first,
                            .count = count,
                            .data = data};
    return p;
}

/* The part of `count` that is rank r's: cuts anywhere, and ranks may have nothing. */
static void share(size_t count, int r, int ranks, size_t *first, size_t *own)
{
    *first = count * (size_t)r / (size_t)ranks;
    *own = count * (size_t)(r + 1) / (size_t)ranks - *first;
}

static const char *folder_of(tutti_comm *comm, const struct job *job)
{
    return tutti_comm_rank(comm) > 0 && job->elsewhere ? job->elsewhere : job->folder;
}

static int save(tutti_comm *comm, void *argument)
{
    const struct job *job = argument;
    const int rank = tutti_comm_rank(comm), ranks = tutti_comm_size(comm);
    float data[4][BIG];
    struct tutti_piece pieces[4];
    size_t count = 0;
    const struct tutti_pair values[] = {{"epoch", "3"}, {"seed", "0x1p+3 and more"}};
    for (int tensor = 0; tensor < 2; tensor++) {
        size_t first = 0, own = 0;
        const size_t all = tensor ? SMALL : BIG;
        share(all, rank, ranks, &first, &own);
        for (size_t i = 0; i < all; i++) {
            data[tensor][i] = value_of(tensor, i, job->scale);
            data[2 + tensor][i] = value_of(2 + tensor, first + i, job->scale);
        }
        pieces[count++] = piece_of(tensor, "exp_avg", first, own, data[2 + tensor]);
        if (rank == 0)
            pieces[count++] = piece_of(tensor, NULL, 0, all, data[tensor]);
    }
    return tutti_checkpoint_save(comm, folder_of(comm, job), job->step, pieces, count, values, 2,
                                 job->keep) == TUTTI_OK
               ? 0
               : 1;
}

static int check_loaded(const struct job *job, const struct tutti_piece *pieces, size_t count)
{
    int wrong = 0;
    for (size_t p = 0; p < count; p++)
        for (size_t i = 0; i < pieces[p].count; i++) {
            const int tensor = (strcmp(pieces[p].name, "bias") == 0) + (pieces[p].part ? 2 : 0);
            wrong +=
                ((float *)pieces[p].data)[i] != value_of(tensor, pieces[p].first + i, job->scale);
        }
    return wrong;
}

/* Load, in this many ranks' pieces, what other ranks saved. */
static int load(tutti_comm *comm, void *argument)
{
    const struct job *job = argument;
    float data[4][BIG];
    struct tutti_piece pieces[4];
    tutti_checkpoint *c = NULL;
    for (int tensor = 0; tensor < 2; tensor++) {
        size_t first = 0, own = 0;
        const size_t all = tensor ? SMALL : BIG;
        share(all, tutti_comm_rank(comm), tutti_comm_size(comm), &first, &own);
        pieces[tensor] = piece_of(tensor, NULL, 0, all, data[tensor]);
        pieces[2 + tensor] = piece_of(tensor, "exp_avg", first, own, data[2 + tensor]);
    }
    enum tutti_result result = tutti_checkpoint_open(comm, folder_of(comm, job), UINT64_MAX, &c);
    if (result == TUTTI_OK && c)
        result = tutti_checkpoint_load(c, pieces, 4);
    int wrong = result != job->wants ? 1 : 0;
    if (result == TUTTI_OK)
        wrong += !c || tutti_checkpoint_step(c) != job->step || check_loaded(job, pieces, 4) ||
                 strcmp(tutti_checkpoint_value(c, "seed"), "0x1p+3 and more") != 0 ||
                 tutti_checkpoint_value(c, "none") != NULL;
    else
        wrong += !job->text || !strstr(tutti_last_error(), job->text);
    if (wrong)
        fprintf(stderr, "load: %d, \"%s\"\n", (int)result,
                result == TUTTI_OK ? "" : tutti_last_error());
    tutti_checkpoint_close(c);
    return wrong;
}

static void run(tti_rank_function *function, int ranks, struct job *job)
{
    const struct tti_ranks how = {.ranks = ranks, .options = TUTTI_OPTIONS_INIT};
    assert_int_equal(tti_ranks_run(&how, function, job), 0);
}

static struct job job_new(void)
{
    struct job job = {.folder = "/tmp/tutti-checkpoint-XXXXXX", .step = 5, .scale = 1};
    assert_non_null(mkdtemp(job.folder));
    return job;
}

static void job_end(struct job *job)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", job->folder);
    assert_int_equal(system(command), 0);
}

static const char *job_path(const struct job *job, uint64_t step, const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/step-%08u/%s", job->folder, (unsigned)step, name);
    return path;
}

static void any_ranks_read_any(void **state)
{
    (void)state;
    for (int writers = 1; writers <= 4; writers++) {
        struct job job = job_new();
        run(save, writers, &job);
        for (int readers = 1; readers <= 3; readers++)
            run(load, readers, &job);
        job_end(&job);
    }
}

static int opens_nothing(tutti_comm *comm, void *argument)
{
    const struct job *job = argument;
    tutti_checkpoint *c = (tutti_checkpoint *)(void *)&job;
    return tutti_checkpoint_open(comm, job->folder, UINT64_MAX, &c) != TUTTI_OK || c;
}

/* The newest finished one counts; older ones are removed; a folder without DONE is nothing, and is
 * written over. */
static void newest_finished(void **state)
{
    (void)state;
    struct job job = job_new();
    run(opens_nothing, 2, &job);
    job.keep = 2;
    for (job.step = 8; job.step <= 10; job.step++, job.scale++)
        run(save, 2, &job);
    job.step = 10, job.scale = 3;
    run(load, 2, &job);
    assert_int_equal(access(job_path(&job, 8, ""), F_OK), -1);
    assert_int_equal(access(job_path(&job, 9, "DONE"), F_OK), 0);
    assert_int_equal(unlink(job_path(&job, 10, "DONE")), 0);
    job.step = 9, job.scale = 2;
    run(load, 3, &job);
    job.step = 10, job.scale = 7;
    run(save, 3, &job);
    run(load, 1, &job);
    job_end(&job);
}

static void damage(const struct job *job, const char *name, off_t size, off_t at)
{
    const char *path = job_path(job, job->step, name);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    if (size < 0)
        assert_int_equal(truncate(path, info.st_size + size), 0);
    int fd = open(path, O_RDWR);
    unsigned char byte = 0;
    assert_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= size == 0;
    assert_true(pwrite(fd, &byte, 1, at) == 1);
    close(fd);
}

static void damaged(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        off_t size, at;
        const char *text;
    } cases[] = {
        {"model.safetensors", -1, 0, "model.safetensors is torn"},
        {"model.safetensors", 0, 300, "model.safetensors has changed"},
        {"state-00001-of-00002.safetensors", 0, 0, "state-00001-of-00002.safetensors has changed"},
        {"state.json", -9, 0, "state.json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job job = job_new();
        run(save, 2, &job);
        damage(&job, cases[i].file, cases[i].size, cases[i].at);
        job.wants = TUTTI_ERR_ARGUMENT;
        job.text = cases[i].text;
        run(load, 2, &job);
        job_end(&job);
    }
    struct job job = job_new();
    run(save, 3, &job);
    assert_int_equal(unlink(job_path(&job, 5, "state-00002-of-00003.safetensors")), 0);
    job.wants = TUTTI_ERR_ARGUMENT;
    job.text = "state-00002-of-00003.safetensors is missing from its checkpoint";
    run(load, 2, &job);
    job_end(&job);
}

static int load_other(tutti_comm *comm, void *argument)
{
    struct job *job = argument;
    tutti_checkpoint *c = NULL;
    float data[2][100];
    struct tutti_piece pieces[2] = {piece_of(0, NULL, 0, BIG, data[0]),
                                    piece_of(1, NULL, 0, SMALL, data[1])};
    if (tutti_checkpoint_open(comm, job->folder, job->step, &c) != TUTTI_OK)
        return 1;
    int wrong = tutti_checkpoint_load(c, pieces, 2) != TUTTI_OK;
    wrong += tutti_checkpoint_load(c, pieces, 1) != TUTTI_ERR_ARGUMENT ||
             !strstr(tutti_last_error(), "has a parameter \"bias\"");
    pieces[0].shape[0] = COLUMNS, pieces[0].shape[1] = ROWS;
    wrong += tutti_checkpoint_load(c, pieces, 2) != TUTTI_ERR_ARGUMENT ||
             !strstr(tutti_last_error(), "float32 [7, 11] there, and float32 [11, 7] here");
    pieces[0] = piece_of(0, NULL, 0, BIG, data[0]);
    pieces[1].name = "scale";
    wrong += tutti_checkpoint_load(c, pieces, 2) != TUTTI_ERR_ARGUMENT ||
             !strstr(tutti_last_error(), "has no \"scale\"");
    pieces[1] = piece_of(0, "exp_avg_sq", 0, BIG, data[1]);
    wrong += tutti_checkpoint_load(c, pieces, 2) != TUTTI_ERR_ARGUMENT ||
             !strstr(tutti_last_error(), "no \"weight|exp_avg_sq\"");
    tutti_checkpoint_close(c);
    wrong += tutti_checkpoint_open(comm, job->folder, 99, &c) == TUTTI_OK;
    return wrong;
}

static void other_models(void **state)
{
    (void)state;
    struct job job = job_new();
    run(save, 2, &job);
    run(load_other, 1, &job);
    job_end(&job);
}

/* A file that cannot be written whole (here: beyond the process's limit): every rank says so, with
 * the file and the reason, and the checkpoint before is still the newest. */
static int save_fails(tutti_comm *comm, void *argument)
{
    return !save(comm, argument) || !strstr(tutti_last_error(), "cannot write") ||
           !strstr(tutti_last_error(), ".safetensors: ") ||
           !strstr(tutti_last_error(), "while saving the checkpoint");
}

static void save_without_room(struct job *job)
{
    struct rlimit before, little;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    little = before;
    little.rlim_cur = 100;
    signal(SIGXFSZ, SIG_IGN);
    /* Only files count against it; TSan and ASan keep none of their own here. */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    const struct tti_ranks how = {
        .ranks = 2, .options = {.size = sizeof(struct tutti_options), .transports = "inproc"}};
    const int failed = tti_ranks_run(&how, save_fails, job);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(failed, 0);
}

static void no_room(void **state)
{
    (void)state;
    struct job job = job_new();
    run(save, 2, &job);
    job.step = 6;
    save_without_room(&job);
    job.step = 5;
    run(load, 2, &job);
    job_end(&job);
}

/* Of step 5, as a save that replaces it leaves things when it is killed between its two renames. */
static void killed_between(const struct job *job)
{
    char own[96], part[128], old[128], file[160];
    snprintf(own, sizeof own, "%s/step-00000005", job->folder);
    snprintf(part, sizeof part, "%s.part", own);
    snprintf(old, sizeof old, "%s.old", own);
    assert_int_equal(rename(own, old), 0);
    assert_true(mkdir(part, 0777) == 0 || errno == EEXIST);
    snprintf(file, sizeof file, "%s/DONE", part);
    FILE *done = fopen(file, "w");
    assert_non_null(done);
    fclose(done);
}

/* Is there something of step 5 whose name ends so? (".part*": as a shell's.) */
static bool left(const struct job *job, const char *suffix)
{
    char path[128];
    glob_t found;
    snprintf(path, sizeof path, "%s/step-00000005%s", job->folder, suffix);
    const bool any = glob(path, 0, NULL, &found) == 0;
    globfree(&found);
    return any;
}

/* A step that is saved again: at every moment there is a finished checkpoint of it. */
static void same_step_again(void **state)
{
    (void)state;
    struct job job = job_new();
    run(save, 2, &job);
    save_without_room(&job);
    run(load, 2, &job);
    job.scale = 2;
    run(save, 3, &job);
    run(load, 2, &job);
    assert_false(left(&job, ".part*") || left(&job, ".old"));
    killed_between(&job);
    run(load, 2, &job);
    run(load_other, 1, &job); /* asks for the step */
    save_without_room(&job);
    run(load, 2, &job);
    assert_false(left(&job, ".old"));
    killed_between(&job);
    job.scale = 3;
    run(save, 2, &job);
    run(load, 1, &job);
    assert_false(left(&job, ".part*") || left(&job, ".old"));
    /* It is removed under whatever name it has. */
    killed_between(&job);
    job.step = 6, job.keep = 1;
    run(save, 2, &job);
    run(load, 2, &job);
    assert_false(left(&job, "") || left(&job, ".part*") || left(&job, ".old"));
    job_end(&job);
}

/* A file in a folder that the library does not know: as one that is open elsewhere (NFS), it keeps
 * the folder there. */
static void plant(const struct job *job, const char *suffix)
{
    char path[128];
    snprintf(path, sizeof path, "%s/step-00000005%s", job->folder, suffix);
    assert_true(mkdir(path, 0777) == 0 || errno == EEXIST);
    snprintf(path, sizeof path, "%s/step-00000005%s/open elsewhere", job->folder, suffix);
    assert_int_equal(mkdir(path, 0777), 0);
}

/* What cannot be removed is in no save's way, whatever its name was. */
static void leftovers(void **state)
{
    (void)state;
    struct job job = job_new();
    run(save, 2, &job);
    plant(&job, ".old");
    plant(&job, ".part");
    for (job.scale = 2; job.scale < 4; job.scale++) {
        run(save, 2, &job);
        assert_false(left(&job, ".old"));
    }
    job.scale = 3;
    run(load, 2, &job);
    killed_between(&job);
    plant(&job, "");
    run(load, 2, &job);
    save_without_room(&job);
    assert_false(left(&job, ".old"));
    run(load, 2, &job);
    job.scale = 4;
    run(save, 2, &job);
    run(load, 2, &job);
    job_end(&job);
}

/* What other steps' saves did not finish goes when no older step is kept, and not before. */
static void parts_of_other_steps(void **state)
{
    (void)state;
    struct job job = job_new();
    save_without_room(&job);
    assert_true(left(&job, ".part-*"));
    for (job.step = 4; job.step <= 6; job.step += 2) {
        job.keep = 2;
        run(save, 2, &job);
        assert_true(left(&job, ".part-*"));
    }
    job.step = 7;
    run(save, 2, &job);
    assert_false(left(&job, ".part*"));
    run(load, 2, &job);
    job_end(&job);
}

/* Of a checkpoint that was moved away, with a link in its place, the link goes. */
static void link_to_a_checkpoint(void **state)
{
    (void)state;
    struct job job = job_new(), moved = job_new();
    char own[96], target[96];
    snprintf(own, sizeof own, "%s/step-00000005", job.folder);
    snprintf(target, sizeof target, "%s/step-00000005", moved.folder);
    run(save, 2, &job);
    assert_int_equal(rename(own, target), 0);
    assert_int_equal(symlink(target, own), 0);
    run(load, 2, &job);
    job.scale = 2;
    run(save, 2, &job);
    run(load, 2, &job);
    run(load, 2, &moved);
    assert_false(left(&job, ".part*") || left(&job, ".old"));
    job_end(&job);
    job_end(&moved);
}

/* ---- A folder that is not the same for all ------------------------------------------------------
 */

/* Where each new folder of the job is made a second time, as if rank 1's host had its own; and a
 * file of other size that is then where rank 1's should be. */
static const struct job *mirrored;
static bool mirrored_file;

int mkdir(const char *path, mode_t mode)
{
    char there[256], file[256];
    const size_t length = mirrored ? strlen(mirrored->folder) : 0;
    const int made = mkdirat(AT_FDCWD, path, mode);
    if (!mirrored || strncmp(path, mirrored->folder, length) != 0)
        return made;
    snprintf(there, sizeof there, "%s%s", mirrored->elsewhere, path + length);
    (void)mkdirat(AT_FDCWD, there, mode);
    snprintf(file, sizeof file, "%s/state-00001-of-00002.safetensors", path);
    if (mirrored_file && path[length])
        close(open(file, O_CREAT | O_WRONLY, 0666));
    return made;
}

/* All say that of rank 1, with this text; the checkpoint that was there is whole. */
static int save_unseen(tutti_comm *comm, void *argument)
{
    const struct job *job = argument;
    if (!save(comm, argument)) {
        fprintf(stderr, "save: went well\n");
        return 1;
    }
    const bool right =
        strstr(tutti_last_error(), "rank 1 (") && strstr(tutti_last_error(), job->text);
    if (!right)
        fprintf(stderr, "save: \"%s\"\n", tutti_last_error());
    return !right;
}

static void save_elsewhere(struct job *job, const char *text)
{
    struct job other = job_new();
    char name[96], target[96];
    job->elsewhere = other.folder;
    job->text = text;
    job->scale++;
    /* As a host that remembers where the earlier save wrote. */
    snprintf(name, sizeof name, "%s/step-00000005.part", other.folder);
    snprintf(target, sizeof target, "%s/step-00000005", job->folder);
    assert_int_equal(symlink(target, name), 0);
    run(save_unseen, 2, job);
    mirrored = NULL;
    job->elsewhere = NULL;
    job->scale--;
    run(load, 2, job);
    job_end(&other);
}

static void rank_writes_elsewhere(void **state)
{
    (void)state;
    struct job job = job_new();
    run(save, 2, &job);
    save_elsewhere(&job, "cannot create");
    mirrored = &job;
    save_elsewhere(&job, "state-00001-of-00002.safetensors, and there is no such file");
    mirrored = &job;
    mirrored_file = true;
    save_elsewhere(&job, "state-00001-of-00002.safetensors, and there are 0");
    mirrored_file = false;
    run(save, 2, &job);
    run(load, 2, &job);
    job_end(&job);
}

static void rank_reads_elsewhere(void **state)
{
    (void)state;
    struct job job = job_new(), other = job_new();
    run(save, 2, &job);
    other.scale = 2;
    run(save, 3, &other);
    job.elsewhere = other.folder;
    job.wants = TUTTI_ERR_SYSTEM;
    job.text = "finds another checkpoint in ";
    run(load, 2, &job);
    job_end(&other);
    job_end(&job);
}

/* ---- A file system that does not answer ---------------------------------------------------------
 */

/* What ends so cannot be looked at, and why (rank 0 alone looks, on its thread). */
static const char *unanswered;
static int unanswered_errno;
int __real_access(const char *path, int mode);
int __wrap_access(const char *path, int mode);
int __wrap_access(const char *path, int mode)
{
    const size_t length = strlen(path), end = unanswered ? strlen(unanswered) : 0;
    if (!unanswered || length < end || strcmp(path + length - end, unanswered) != 0)
        return __real_access(path, mode);
    errno = unanswered_errno;
    return -1;
}

static int save_cannot_look(tutti_comm *comm, void *argument)
{
    return !save(comm, argument) || !strstr(tutti_last_error(), "cannot look whether ") ||
           !strstr(tutti_last_error(), "/DONE is there");
}

static void save_unanswered(struct job *job, const char *name, int error)
{
    unanswered = name;
    unanswered_errno = error;
    job->scale++;
    run(save_cannot_look, 2, job);
    unanswered = NULL;
    job->scale--;
    run(load, 2, job);
}

/* A save cannot tell whether the checkpoint that was there is finished: it leaves it there. */
static void unanswered_saving(void **state)
{
    (void)state;
    struct job job = job_new();
    char own[96], kept[96], old[128];
    snprintf(own, sizeof own, "%s/step-00000005", job.folder);
    snprintf(kept, sizeof kept, "%s/kept", job.folder);
    snprintf(old, sizeof old, "%s.old", own);
    run(save, 2, &job);
    killed_between(&job); /* the one aside is the only one */
    save_unanswered(&job, "step-00000005.old/DONE", EIO);
    save_unanswered(&job, "step-00000005/DONE", ESTALE);
    assert_int_equal(rename(old, kept), 0);
    job.scale = 2;
    run(save, 2, &job);
    assert_int_equal(rename(kept, old), 0); /* both are finished, the own one is newer */
    save_unanswered(&job, "step-00000005/DONE", EIO);
    job_end(&job);
}

static void load_unanswered(struct job *job, const char *name, int error)
{
    unanswered = name;
    unanswered_errno = error;
    job->wants = TUTTI_ERR_SYSTEM;
    job->text = name;
    run(load, 2, job);
    unanswered = NULL;
    job->wants = TUTTI_OK;
    run(load, 2, job);
}

/* The newest cannot be looked at: an older one is not taken for it, nor none. */
static void unanswered_opening(void **state)
{
    (void)state;
    struct job job = job_new();
    run(save, 2, &job);
    load_unanswered(&job, "step-00000005/DONE", EACCES);
    job.step = 6, job.scale = 2;
    run(save, 2, &job);
    load_unanswered(&job, "step-00000006/DONE", EIO);
    job_end(&job);
}

/* How often fsync was asked for two folders. */
static const char *synced[2];
static _Atomic int syncs[2];
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    struct stat asked, info;
    for (int i = 0; i < 2; i++)
        if (synced[i] && stat(synced[i], &info) == 0 && fstat(fd, &asked) == 0 &&
            info.st_dev == asked.st_dev && info.st_ino == asked.st_ino)
            syncs[i]++;
    return __real_fsync(fd);
}

/* A checkpoint is on disk only if the names of all new folders above it are. */
static void new_folders_reach_the_disk(void **state)
{
    (void)state;
    struct job job = job_new(), below = job;
    char middle[80];
    snprintf(middle, sizeof middle, "%s/new", job.folder);
    snprintf(below.folder, sizeof below.folder, "%.40s/new/run", job.folder);
    synced[0] = job.folder, synced[1] = middle;
    run(save, 2, &below);
    assert_true(syncs[0] == 1 && syncs[1] == 1);
    below.step++;
    run(save, 2, &below);
    assert_true(syncs[0] == 1 && syncs[1] == 1); /* they are no longer new */
    synced[0] = synced[1] = NULL;
    run(load, 2, &below);
    job_end(&job);
}

static _Atomic int warnings;

static void listen_in(enum tti_log_level level, const char *text)
{
    if (level == TTI_LOG_WARN && strstr(text, "step-00000008: "))
        warnings++;
}

/* An old one that cannot be removed is left, with a warning: the new one is on disk. */
static void old_one_stays(void **state)
{
    (void)state;
    struct job job = job_new();
    job.step = 8;
    run(save, 2, &job);
    assert_int_equal(mkdir(job_path(&job, 8, "open elsewhere"), 0777), 0);
    job.step = 9, job.keep = 1;
    tti_log_divert(TTI_LOG_WARN, listen_in);
    run(save, 2, &job);
    tti_log_divert(TTI_LOG_WARN, NULL);
    assert_int_equal(warnings, 1);
    run(load, 2, &job);
    job_end(&job);
}

/* What a group collects is not there yet: saving and opening are refused until it has ended, and
 * leave no trace. */
static int refused_in_group(tutti_comm *comm, void *argument)
{
    struct job *job = argument;
    tutti_checkpoint *c = NULL;
    int wrong = tutti_group_start() != TUTTI_OK;
    wrong += tutti_checkpoint_save(comm, job->folder, job->step, NULL, 0, NULL, 0, 0) !=
                 TUTTI_ERR_USAGE ||
             !strstr(tutti_last_error(), "tutti_checkpoint_save: not between tutti_group_start");
    wrong += left(job, "") || left(job, ".part");
    wrong += tutti_checkpoint_open(comm, job->folder, job->step, &c) != TUTTI_ERR_USAGE || c ||
             !strstr(tutti_last_error(), "tutti_checkpoint_open: not between tutti_group_start");
    wrong += tutti_group_end() != TUTTI_OK;
    return wrong;
}

static void refused_in_groups(void **state)
{
    (void)state;
    struct job job = job_new();
    run(refused_in_group, 2, &job);
    run(save, 2, &job);
    run(load, 2, &job);
    job_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_ranks_read_any),
        cmocka_unit_test(newest_finished),
        cmocka_unit_test(damaged),
        cmocka_unit_test(other_models),
        cmocka_unit_test(no_room),
        cmocka_unit_test(same_step_again),
        cmocka_unit_test(leftovers),
        cmocka_unit_test(parts_of_other_steps),
        cmocka_unit_test(link_to_a_checkpoint),
        cmocka_unit_test(rank_writes_elsewhere),
        cmocka_unit_test(rank_reads_elsewhere),
        cmocka_unit_test(unanswered_saving),
        cmocka_unit_test(unanswered_opening),
        cmocka_unit_test(new_folders_reach_the_disk),
        cmocka_unit_test(old_one_stays),
        cmocka_unit_test(refused_in_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
