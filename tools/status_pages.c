/* Finding recorders in /proc (tools/status_pages.h). */
#include "tools/status_pages.h"

#include "base/memory.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char link_name[] = "/memfd:" TTI_RECORD_FILE;

static bool pid_stopped(int pid)
{
    char path[64], line[512];
    const char *end = NULL;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    if (fgets(line, sizeof line, file))
        end = strrchr(line, ')');
    fclose(file);
    return end && end[1] == ' ' && (end[2] == 'T' || end[2] == 't');
}

/* A process's children have its descriptors until they execute something. */
static bool pages_have(struct status_pages *pages, uint64_t inode, int pid)
{
    for (size_t i = 0; i < pages->count; i++) {
        struct status_page *known = &pages->all[i];
        if (known->inode != inode)
            continue;
        if (known->page->pid == pid)
            known->pid = pid;
        return true;
    }
    return false;
}

static enum tutti_result pages_add(struct status_pages *pages, const char *path, int pid)
{
    struct stat info;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return TUTTI_OK; /* it has just ended, or is not ours */
    void *mapped = MAP_FAILED;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 &&
        info.st_uid == geteuid() && !pages_have(pages, info.st_ino, pid))
        mapped = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED)
        return TUTTI_OK;
    void *all = pages->all;
    enum tutti_result result =
        tti_grow(&all, &pages->capacity, pages->count + 1, sizeof *pages->all);
    pages->all = all;
    if (result != TUTTI_OK || tti_page_check(mapped, (size_t)info.st_size) != TUTTI_OK) {
        munmap(mapped, (size_t)info.st_size);
        return result;
    }
    pages->all[pages->count++] = (struct status_page){
        .page = mapped,
        .bytes = (size_t)info.st_size,
        .inode = info.st_ino,
        .pid = pid,
    };
    return TUTTI_OK;
}

static enum tutti_result pages_of(struct status_pages *pages, int pid)
{
    char folder[64], path[400], target[64];
    struct dirent *entry;
    enum tutti_result result = TUTTI_OK;
    snprintf(folder, sizeof folder, "/proc/%d/fd", pid);
    DIR *list = opendir(folder);
    if (!list)
        return TUTTI_OK;
    while (result == TUTTI_OK && (entry = readdir(list)) != NULL) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        const ssize_t bytes = readlink(path, target, sizeof target - 1);
        if (bytes >= (ssize_t)sizeof link_name - 1 &&
            memcmp(target, link_name, sizeof link_name - 1) == 0)
            result = pages_add(pages, path, pid);
    }
    closedir(list);
    return result;
}

static int page_order(const void *left, const void *right)
{
    const struct tti_record_page *a = ((const struct status_page *)left)->page;
    const struct tti_record_page *b = ((const struct status_page *)right)->page;
    if (a->family != b->family)
        return a->family < b->family ? -1 : 1;
    if (a->job != b->job) /* the family's first, then by age */
        return a->job == a->family       ? -1
               : b->job == b->family     ? 1
               : a->made_ns < b->made_ns ? -1
                                         : 1;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

enum tutti_result status_pages_find(struct status_pages *pages)
{
    struct dirent *entry;
    enum tutti_result result = TUTTI_OK;
    memset(pages, 0, sizeof *pages);
    DIR *list = opendir("/proc");
    if (!list)
        return TTI_FAIL_ERRNO("cannot read /proc");
    while (result == TUTTI_OK && (entry = readdir(list)) != NULL)
        if (isdigit((unsigned char)entry->d_name[0]))
            result = pages_of(pages, atoi(entry->d_name));
    closedir(list);
    if (result != TUTTI_OK) {
        status_pages_release(pages);
        return result;
    }
    for (size_t i = 0; i < pages->count; i++)
        pages->all[i].stopped = pid_stopped(pages->all[i].pid);
    if (pages->count > 0)
        qsort(pages->all, pages->count, sizeof *pages->all, page_order);
    return TUTTI_OK;
}

void status_page_release(struct status_page *page)
{
    munmap((void *)(uintptr_t)page->page, page->bytes);
}

void status_pages_release(struct status_pages *pages)
{
    for (size_t i = 0; i < pages->count; i++)
        status_page_release(&pages->all[i]);
    free(pages->all);
    memset(pages, 0, sizeof *pages);
}
