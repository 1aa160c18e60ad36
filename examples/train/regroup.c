/* Going on with fewer ranks, or with more (regroup.h). */
#include "examples/train/regroup.h"

#include "examples/train/together.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { GUESTS = 64, NAME_BYTES = 256, PATH_ROOM = 4400 };
static const char knock[] = "knock-", answer[] = "answer-";
/* In a knock whose owner holds a lock on it while it lives. */
static const char locked[] = "locked\n";

static void regroup_pause(double seconds)
{
    const struct timespec wait = {.tv_sec = (time_t)seconds,
                                  .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&wait, NULL);
}

/* ---- Fewer ------------------------------------------------------------------------------------
 */

/* The dead that are known of now; for a moment more may become known. */
static int regroup_dead(tutti_comm *comm, int *dead, int *count)
{
    const double until = together_seconds() + 3;
    int before = 0;
    do {
        before = *count;
        regroup_pause(0.2);
        if (together_check(comm, tutti_comm_dead(comm, dead, tutti_comm_size(comm), count),
                           "who died?"))
            return 1;
    } while ((*count == 0 || *count != before) && together_seconds() < until);
    return 0;
}

int regroup_shrink(tutti_comm *comm, tutti_comm **fewer)
{
    int count = 0;
    int *dead = calloc((size_t)tutti_comm_size(comm), sizeof *dead);
    int failed = !dead || regroup_dead(comm, dead, &count);
    if (!failed && count == 0) {
        fprintf(stderr, "rank %d: nobody has died, so there is nothing to go on without\n",
                tutti_comm_rank(comm));
        failed = 1;
    }
    failed = failed || together_check(comm, tutti_comm_shrink(comm, dead, count, fewer), "shrink");
    if (!failed && tutti_comm_rank(*fewer) == 0)
        printf("%d of %d ranks died; going on with %d\n", count, tutti_comm_size(comm),
               tutti_comm_size(*fewer));
    free(dead);
    return failed;
}

/* ---- More -------------------------------------------------------------------------------------
 */

struct guests {
    char names[GUESTS][NAME_BYTES]; /* HOST-PID */
    int count;
};

/* Has who knocked here died since? The lock goes with the process, however it ends. Where there are
 * no locks (some network file systems) nobody is called dead. */
static bool regroup_is_left(const char *path)
{
    char text[sizeof locked] = "";
    const int fd = open(path, O_RDWR | O_CLOEXEC); /* NFS locks only what is open for writing */
    const bool left = fd >= 0 && read(fd, text, sizeof text - 1) > 0 && strcmp(text, locked) == 0 &&
                      flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (fd >= 0)
        close(fd);
    return left;
}

/* Who knocks and lives. For one that does not all ranks would wait, as long as they have to meet.
 */
static void regroup_look(const char *folder, struct guests *guests)
{
    char path[PATH_ROOM];
    DIR *entries = opendir(folder);
    guests->count = 0;
    for (struct dirent *e = entries ? readdir(entries) : NULL; e && guests->count < GUESTS;
         e = readdir(entries)) {
        if (strncmp(e->d_name, knock, sizeof knock - 1) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (!regroup_is_left(path))
            snprintf(guests->names[guests->count++], NAME_BYTES, "%s",
                     e->d_name + sizeof knock - 1);
        else if (unlink(path) == 0)
            fprintf(stderr, "%s: who knocked there has died; not waiting for it\n", path);
    }
    if (entries)
        closedir(entries);
}

int regroup_knocks(const char *folder)
{
    struct guests guests;
    regroup_look(folder, &guests);
    return guests.count;
}

/* Whole or not at all, and for the owner's eyes: an id lets in whoever has it. *lock (unless NULL):
 * what holds a lock on it, from before anybody can see it; -1 and no text where there are none. */
static int regroup_write(const char *folder, const char *kind, const char *name, const char *text,
                         int *lock)
{
    char path[PATH_ROOM], aside[PATH_ROOM];
    snprintf(path, sizeof path, "%s/%s%s", folder, kind, name);
    snprintf(aside, sizeof aside, "%s/.%s%s", folder, kind, name);
    const int fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const bool locks = lock && fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
    const size_t bytes = lock && !locks ? 0 : strlen(text);
    const bool written = fd >= 0 && write(fd, text, bytes) == (ssize_t)bytes;
    if (!written || rename(aside, path) != 0) {
        fprintf(stderr, "cannot write %s: %s\n", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        unlink(aside);
        return 1;
    }
    if (locks)
        *lock = fd;
    else
        close(fd);
    return 0;
}

/* Rank 0: an id, and an answer for each that knocks; how many got one. */
static int regroup_answer(tutti_comm *comm, const char *folder, struct tutti_id *id)
{
    struct guests guests;
    const int size = tutti_comm_size(comm);
    int answered = 0;
    regroup_look(folder, &guests);
    if (guests.count == 0 || together_check(comm, tutti_id_create(NULL, id), "invite"))
        return 0;
    for (int i = 0; i < guests.count; i++) {
        char path[PATH_ROOM];
        snprintf(path, sizeof path, "%s/%s%s", folder, knock, guests.names[i]);
        if (unlink(path) != 0) /* gone again */
            guests.names[i][0] = '\0';
        else
            answered++;
    }
    for (int i = 0, rank = size; i < guests.count; i++) {
        char text[512];
        if (!guests.names[i][0])
            continue;
        snprintf(text, sizeof text, "%d %d %s\n", rank++, size + answered, id->text);
        if (regroup_write(folder, answer, guests.names[i], text, NULL))
            return 0;
    }
    return answered;
}

int regroup_admit(tutti_comm *comm, const char *folder, tutti_comm **more)
{
    struct {
        struct tutti_id id;
        int32_t guests;
    } word = {.guests = 0};
    const int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    *more = NULL;
    if (rank == 0)
        word.guests = regroup_answer(comm, folder, &word.id);
    if (together_check(comm, tutti_broadcast(&word, &word, sizeof word, TUTTI_UINT8, 0, comm),
                       "invite"))
        return 1;
    if (word.guests == 0)
        return 0;
    if (together_check(comm, tutti_comm_create(&word.id, rank, size + word.guests, NULL, more),
                       "let newcomers in")) {
        *more = NULL;
        if (rank == 0)
            printf("going on with %d ranks as before\n", size);
        return 0;
    }
    if (rank == 0)
        printf("%d joined; going on with %d ranks\n", word.guests, size + word.guests);
    return 0;
}

/* The answer, if it is there. */
static bool regroup_read(const char *path, int *rank, int *size, struct tutti_id *id)
{
    FILE *in = fopen(path, "re");
    const bool whole = in && fscanf(in, "%d %d %255s", rank, size, id->text) == 3;
    if (in)
        fclose(in);
    return whole;
}

int regroup_join(const char *folder, double seconds, tutti_comm **comm)
{
    char host[128] = "host", name[NAME_BYTES], path[PATH_ROOM];
    const double until = together_seconds() + seconds;
    struct tutti_id id = {""};
    int rank = 0, size = 0, lock = -1;
    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "%s-%d", host, (int)getpid());
    if (regroup_write(folder, knock, name, locked, &lock))
        return 1;
    snprintf(path, sizeof path, "%s/%s%s", folder, answer, name);
    while (!regroup_read(path, &rank, &size, &id) && together_seconds() < until)
        regroup_pause(0.05);
    unlink(path);
    if (lock >= 0)
        close(lock);
    if (size == 0) {
        snprintf(path, sizeof path, "%s/%s%s", folder, knock, name);
        unlink(path);
        fprintf(stderr, "%s: no run has answered for %.0f s; does one look there (--elastic)?\n",
                folder, seconds);
        return 1;
    }
    return together_check(NULL, tutti_comm_create(&id, rank, size, NULL, comm), "join");
}
