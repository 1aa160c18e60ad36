/* Regions of other processes of this host (memory.h): opened through /proc, so that neither side
 * needs a connection or the other's help. The kernel lets in who may look into that process: the
 * same user, unless it has made itself undumpable. */
#include "device/memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool tti_region_place(const void *memory, size_t bytes, struct tti_region_place *place)
{
    struct tti_region region;
    struct stat status;
    if (bytes == 0 || !tti_region_find(memory, bytes, &region) || fstat(region.fd, &status) != 0)
        return false;
    *place = (struct tti_region_place){.there = 1,
                                       .pid = (uint64_t)getpid(),
                                       .fd = (uint64_t)region.fd,
                                       .inode = status.st_ino,
                                       .offset = (uint64_t)((const char *)memory - region.base)};
    return true;
}

/* The descriptor must be the one that was meant, and of something that cannot shrink (SIGBUS). */
static bool near_sound(int fd, const struct tti_region_place *place, size_t bytes)
{
    struct stat status;
    const int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &status) == 0 &&
           status.st_ino == place->inode && status.st_size >= 0 &&
           place->offset <= (uint64_t)status.st_size &&
           bytes <= (uint64_t)status.st_size - place->offset;
}

bool tti_region_map(const struct tti_region_place *place, size_t bytes, struct tti_region_map *map)
{
    char path[80];
    struct stat status;
    if (!place->there || bytes == 0)
        return false;
    snprintf(path, sizeof path, "/proc/%llu/fd/%llu", (unsigned long long)place->pid,
             (unsigned long long)place->fd);
    /* Before it is opened, which may mean something to what else may be there. */
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode) || status.st_ino != place->inode)
        return false;
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return false;
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), before = place->offset % page;
    void *base = near_sound(fd, place, bytes)
                     ? mmap(NULL, (size_t)before + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                            (off_t)(place->offset - before))
                     : MAP_FAILED;
    close(fd);
    if (base == MAP_FAILED)
        return false;
    *map = (struct tti_region_map){(char *)base + before, base, (size_t)before + bytes};
    return true;
}

void tti_region_unmap(struct tti_region_map *map)
{
    if (map->base)
        munmap(map->base, map->bytes);
    *map = (struct tti_region_map){NULL, NULL, 0};
}
