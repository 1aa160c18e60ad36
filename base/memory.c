/* Checked host memory (base/memory.h). */
#include "base/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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

char *tti_strdup(const char *text)
{
    char *copy = strdup(text);
    if (!copy)
        (void)TTI_FAIL(TUTTI_ERR_MEMORY, "cannot allocate %zu bytes of host memory",
                       strlen(text) + 1);
    return copy;
}
