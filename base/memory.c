/* Checked host memory (base/memory.h). */
#include "base/memory.h"

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *tti_calloc(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory)
        (void)TTI_FAIL(TUTTI_ERR_MEMORY, "cannot allocate %zu x %zu bytes of host memory", count,
                       size);
    return memory;
}

void *tti_calloc_aligned(size_t align, size_t count, size_t size)
{
    size_t bytes = 0;
    void *memory = NULL;
    if (__builtin_mul_overflow(count ? count : 1, size, &bytes) ||
        posix_memalign(&memory, align, bytes) != 0) {
        (void)TTI_FAIL(TUTTI_ERR_MEMORY, "cannot allocate %zu x %zu bytes of host memory", count,
                       size);
        return NULL;
    }
    memset(memory, 0, bytes);
    return memory;
}

enum tutti_result tti_grow(void **array, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity)
        return TUTTI_OK;
    size_t target = *capacity ? *capacity : 8;
    while (target < need)
        target = target > SIZE_MAX / 2 ? need : target * 2;
    size_t bytes = 0;
    void *grown = NULL;
    if (!__builtin_mul_overflow(target, size, &bytes))
        grown = realloc(*array, bytes);
    if (!grown)
        return TTI_FAIL(TUTTI_ERR_MEMORY, "cannot allocate %zu x %zu bytes of host memory", target,
                        size);
    memset((char *)grown + *capacity * size, 0, (target - *capacity) * size);
    *array = grown;
    *capacity = target;
    return TUTTI_OK;
}

size_t tti_heap_bytes(const void *memory)
{
    return memory ? malloc_usable_size((void *)(uintptr_t)memory) + sizeof(size_t) : 0;
}

size_t tti_pages_used(const void *mapping, size_t bytes)
{
    enum { AT_ONCE = 1024 };
    unsigned char in_memory[AT_ONCE];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t used = 0;
    for (size_t at = 0; at < bytes; at += AT_ONCE * page) {
        size_t left = bytes - at, part = left < AT_ONCE * page ? left : AT_ONCE * page;
        if (mincore((char *)(uintptr_t)mapping + at, part, in_memory) != 0)
            return used;
        for (size_t i = 0; i < (part + page - 1) / page; i++)
            used += in_memory[i] & 1 ? page : 0;
    }
    return used;
}

char *tti_strdup(const char *text)
{
    char *copy = strdup(text);
    if (!copy)
        (void)TTI_FAIL(TUTTI_ERR_MEMORY, "cannot allocate %zu bytes of host memory",
                       strlen(text) + 1);
    return copy;
}
