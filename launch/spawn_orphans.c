/* Whom ranks leave behind (launch/spawn_rank.h): processes that left their groups come to this one
 * when their parents end (PR_SET_CHILD_SUBREAPER), and end with the job. */
#include "base/memory.h"
#include "launch/spawn_rank.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The parent of a process, from /proc/<pid>/stat: the second field after the name's ")". */
static pid_t orphans_parent_of(pid_t pid)
{
    char path[40];
    char text[512];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    size_t got = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[got] = '\0';
    char *name_end = strrchr(text, ')');
    if (!name_end || sscanf(name_end + 1, " %*c %d", &parent) != 1)
        return 0;
    return parent;
}

/* The next process in /proc; 0 at its end. */
static pid_t orphans_next(DIR *folder)
{
    struct dirent *entry;
    while ((entry = readdir(folder)))
        if (isdigit((unsigned char)entry->d_name[0]))
            return (pid_t)atoi(entry->d_name);
    return 0;
}

static bool orphans_descends(pid_t pid)
{
    while (pid > 1 && pid != getpid())
        pid = orphans_parent_of(pid);
    return pid == getpid();
}

enum tutti_result tti_spawn_elders_find(struct tti_spawn_elders *elders)
{
    siginfo_t info = {0};
    pid_t pid = 0;
    enum tutti_result result = TUTTI_OK;
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD)
        return TUTTI_OK; /* nobody, nearly always */
    DIR *folder = opendir("/proc");
    if (!folder)
        return TUTTI_OK; /* then no orphans are found either */
    while (result == TUTTI_OK && (pid = orphans_next(folder))) {
        void *pids = elders->pids;
        if (pid == getpid() || !orphans_descends(pid))
            continue;
        result = tti_grow(&pids, &elders->capacity, elders->count + 1, sizeof *elders->pids);
        elders->pids = pids;
        if (result == TUTTI_OK)
            elders->pids[elders->count++] = pid;
    }
    closedir(folder);
    return result;
}

static bool orphans_is_elder(const struct tti_spawn_elders *elders, pid_t pid)
{
    size_t i = 0;
    while (i < elders->count && elders->pids[i] != pid)
        i++;
    return i < elders->count;
}

void tti_spawn_elders_forget(struct tti_spawn_elders *elders, pid_t pid)
{
    for (size_t i = 0; i < elders->count; i++)
        if (elders->pids[i] == pid)
            elders->pids[i] = elders->pids[--elders->count];
}

int tti_spawn_kill_orphans(const struct tti_spawn_elders *elders)
{
    int count = 0;
    pid_t pid = 0;
    DIR *folder = opendir("/proc");
    if (!folder)
        return 0;
    while ((pid = orphans_next(folder))) {
        if (orphans_parent_of(pid) != getpid() || orphans_is_elder(elders, pid))
            continue;
        (void)kill(pid, SIGKILL);
        count++;
    }
    closedir(folder);
    return count;
}
