/* See host.h. */
#include "base/host.h"

#include "base/config.h"

#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

uint64_t tti_hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const uint8_t *byte = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t hash_file(uint64_t hash, const char *path)
{
    char text[512];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd >= 0 ? read(fd, text, sizeof text) : -1;
    if (fd >= 0)
        close(fd);
    return bytes > 0 ? tti_hash_bytes(hash, text, (size_t)bytes) : hash;
}

uint64_t tti_host_identity(void)
{
    char netns[64];
    uint64_t hash = hash_file(UINT64_C(0xcbf29ce484222325), "/proc/sys/kernel/random/boot_id");
    ssize_t bytes = readlink("/proc/self/ns/net", netns, sizeof netns);
    if (bytes > 0)
        hash = tti_hash_bytes(hash, netns, (size_t)bytes);
    const char *id = tti_config_text("TUTTI_HOST_ID");
    return id ? tti_hash_bytes(hash, id, strlen(id)) : hash;
}

int tti_host_cpus(void)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        return CPU_COUNT(&allowed);
    const long online = sysconf(_SC_NPROCESSORS_ONLN); /* there are more than fit */
    return online > 0 ? (int)online : 1;
}
