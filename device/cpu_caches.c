/* What sysfs says of caches (device/cpu_caches.h). */
#include "device/cpu_caches.h"

#include "device/near.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum { MOST_CACHES = 8, PATH_BYTES = 400, TEXT_BYTES = 64 };
/* As much of an L3 as any processor has for a core (2 to 16 MiB are usual, 32 the most). */
static const uint64_t L3_PER_CPU = UINT64_C(32) << 20;

/* The file `name` of a CPU's cache number `index`. */
static const char *caches_path(const char *root, int cpu, int index, const char *name, char *path)
{
    snprintf(path, PATH_BYTES, "%.300s/sys/devices/system/cpu/cpu%d/cache/index%d/%s", root, cpu,
             index, name);
    return path;
}

/* Its beginning; "" if there is none. */
static const char *caches_read(const char *root, int cpu, int index, const char *name, char *text)
{
    char path[PATH_BYTES];
    int fd = open(caches_path(root, cpu, index, name, path), O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, TEXT_BYTES - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
    return text;
}

/* "48K", "1024K", "32M" in bytes; 0 for anything else. */
static uint64_t caches_size(const char *text)
{
    char *end = NULL;
    unsigned long long size = strtoull(text, &end, 10);
    if (end == text || size > UINT32_MAX)
        return 0;
    return *end == 'K' ? size << 10 : *end == 'M' ? size << 20 : size;
}

static void caches_count(void *context, int number)
{
    (void)number;
    ++*(uint64_t *)context;
}

static void caches_look(const char *root, uint64_t cache[3], uint64_t sharers[3])
{
    char text[TEXT_BYTES], path[PATH_BYTES];
    memset(cache, 0, 3 * sizeof *cache);
    memset(sharers, 0, 3 * sizeof *sharers);
    for (int i = 0; i < MOST_CACHES; i++) {
        int level = atoi(caches_read(root, 0, i, "level", text));
        if (level == 0)
            return;
        if (level > 3 || strncmp(caches_read(root, 0, i, "type", text), "Instruction", 11) == 0)
            continue;
        cache[level - 1] = caches_size(caches_read(root, 0, i, "size", text));
        sharers[level - 1] = 0;
        (void)tti_sysfs_list(caches_path(root, 0, i, "shared_cpu_list", path), caches_count,
                             &sharers[level - 1]);
    }
}

void tti_cpu_caches(const char *root, uint64_t cache[3])
{
    uint64_t sharers[3];
    caches_look(root, cache, sharers);
}

uint64_t tti_cpu_cache_usable(uint64_t bytes, uint64_t sharers)
{
    return sharers > 0 && bytes / sharers > L3_PER_CPU ? sharers * L3_PER_CPU : bytes;
}

void tti_cpu_caches_usable(const char *root, uint64_t cache[3])
{
    uint64_t sharers[3];
    caches_look(root, cache, sharers);
    cache[2] = tti_cpu_cache_usable(cache[2], sharers[2]);
}

/* Of a set of CPUs those that do not share a cache, and the lowest that does. */
struct shared_cache {
    cpu_set_t others;
    int lowest;
};

static void caches_share(void *context, int number)
{
    struct shared_cache *shared = context;
    shared->lowest = shared->lowest < 0 || number < shared->lowest ? number : shared->lowest;
    if (number >= 0 && number < CPU_SETSIZE)
        CPU_CLR((size_t)number, &shared->others);
}

int tti_cpu_shared_cache(const char *root, const cpu_set_t *cpus)
{
    char text[TEXT_BYTES], path[PATH_BYTES];
    int first = 0;
    while (first < CPU_SETSIZE && !CPU_ISSET((size_t)first, cpus))
        first++;
    if (first == CPU_SETSIZE)
        return -1;
    for (int i = 0; i < MOST_CACHES; i++) {
        struct shared_cache shared = {*cpus, -1};
        const int level = atoi(caches_read(root, first, i, "level", text));
        if (level == 0)
            return -1;
        if (level == 3 && tti_sysfs_list(caches_path(root, first, i, "shared_cpu_list", path),
                                         caches_share, &shared))
            return CPU_COUNT(&shared.others) == 0 ? shared.lowest : -1;
    }
    return -1;
}

struct known_caches {
    _Atomic size_t second, last;
};

static const struct known_caches *caches_known(void)
{
    static struct known_caches known;
    if (atomic_load_explicit(&known.last, memory_order_acquire) > 0)
        return &known;
    uint64_t cache[3];
    tti_cpu_caches_usable("", cache);
    atomic_store_explicit(&known.second, cache[1] > 0 ? (size_t)cache[1] : (size_t)1 << 20,
                          memory_order_relaxed);
    atomic_store_explicit(&known.last, cache[2] > 0 ? (size_t)cache[2] : (size_t)32 << 20,
                          memory_order_release);
    return &known;
}

size_t tti_cpu_second_cache(void)
{
    return caches_known()->second;
}

size_t tti_cpu_last_cache(void)
{
    return caches_known()->last;
}

bool tti_cpu_meshed(void)
{
#if defined(__x86_64__)
    return !__builtin_cpu_is("amd");
#else
    return true;
#endif
}

enum tti_cpu_kind tti_cpu_kind(void)
{
    if (tti_cpu_meshed())
        return TTI_CPU_MESH;
#if defined(__x86_64__)
    enum { ZEN_5 = 0x1a };
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid(1, &a, &b, &c, &d)) {
        const unsigned family = a >> 8 & 0xf, more = a >> 20 & 0xff;
        if ((family == 0xf ? family + more : family) < ZEN_5) /* Zen 4 is the first with these */
            return __builtin_cpu_supports("avx512f") ? TTI_CPU_EARLIER_CLUSTERS
                                                     : TTI_CPU_FIRST_CLUSTERS;
    }
#endif
    return TTI_CPU_CLUSTERS;
}
