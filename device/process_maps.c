/* See process_maps.h. */
#include "device/process_maps.h"

#include "device/region_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

/* As linux/fs.h has it since 6.11. */
struct maps_query {
    uint64_t size, flags, at;                      /* in */
    uint64_t low, high, mode, page, offset, inode; /* out */
    uint32_t major, minor;
    uint32_t name_bytes, build_bytes; /* in: room; out: bytes */
    uint64_t name, build;             /* in: where to */
};

enum {
    QUERY_READABLE = 1,
    QUERY_WRITABLE = 2,
    QUERY_EXECUTABLE = 4,
    QUERY_SHARED = 8,
    QUERY_OR_NEXT = 16,
};

#define MAPS_QUERY _IOWR('f', 17, struct maps_query)

/* ---- asking ---- */

static int query_run(const struct tti_maps *maps, uintptr_t at, char *name, uint32_t room,
                     struct maps_query *query)
{
    *query = (struct maps_query){.size = sizeof *query,
                                 .flags = QUERY_OR_NEXT,
                                 .at = at,
                                 .name_bytes = room,
                                 .name = room ? (uintptr_t)name : 0};
    return ioctl(fileno(maps->file), MAPS_QUERY, query) == 0 ? 0 : errno;
}

/* 0, ENOENT (there is none), or what the kernel has against being asked. */
static int query_find(const struct tti_maps *maps, uintptr_t at, struct tti_mapping *found)
{
    char name[16] = "";
    struct maps_query query;
    int error = query_run(maps, at, name, sizeof name, &query);
    if (error == ENAMETOOLONG) { /* that of a file */
        name[0] = '\0';
        error = query_run(maps, at, NULL, 0, &query);
    }
    if (error)
        return error;
    *found = (struct tti_mapping){
        .low = query.low,
        .high = query.high,
        .mode = {query.mode & QUERY_READABLE ? 'r' : '-', query.mode & QUERY_WRITABLE ? 'w' : '-',
                 query.mode & QUERY_EXECUTABLE ? 'x' : '-', query.mode & QUERY_SHARED ? 's' : 'p'},
        .stack = strcmp(name, "[stack]") == 0,
        .inode = query.inode};
    return 0;
}

/* ---- reading ---- */

static bool line_read(const char *line, struct tti_mapping *found)
{
    unsigned long low, high, inode;
    *found = (struct tti_mapping){.stack = strstr(line, "[stack]") != NULL};
    if (sscanf(line, "%lx-%lx %4s %*s %*s %lu", &low, &high, found->mode, &inode) != 4)
        return false;
    found->low = low;
    found->high = high;
    found->inode = inode;
    return true;
}

static bool lines_find(struct tti_maps *maps, uintptr_t at, struct tti_mapping *found)
{
    while (getline(&maps->line, &maps->room, maps->file) > 0)
        if (line_read(maps->line, found) && found->high > at)
            return true;
    return false;
}

/* ---- either way ---- */

enum tutti_result tti_maps_open(struct tti_maps *maps)
{
    *maps = (struct tti_maps){.file = fopen("/proc/self/maps", "re")};
    return maps->file ? TUTTI_OK
                      : TTI_FAIL_ERRNO("opening /proc/self/maps%s", tti_region_advice(errno));
}

bool tti_maps_find(struct tti_maps *maps, uintptr_t at, struct tti_mapping *found)
{
    const int error = maps->read ? EINVAL : query_find(maps, at, found);
    maps->read = error != 0 && error != ENOENT;
    return maps->read ? lines_find(maps, at, found) : error == 0;
}

void tti_maps_close(struct tti_maps *maps)
{
    free(maps->line);
    fclose(maps->file);
}
