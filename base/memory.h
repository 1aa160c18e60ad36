/* Plain host memory with overflow checks, and the few text helpers everybody needs. */
#ifndef TTI_BASE_MEMORY_H
#define TTI_BASE_MEMORY_H

#include "base/error.h"

#include <stddef.h>

/* Zeroed array of count elements of `size` bytes, or NULL with the last error set. Free with
 * free(3). count = 0 gives a valid pointer. */
void *tti_calloc(size_t count, size_t size) __attribute__((malloc));
/* The same, aligned to `align` (a power of two). Free with free(3). */
void *tti_calloc_aligned(size_t align, size_t count, size_t size) __attribute__((malloc));
/* Grow *array (elements of `size` bytes, *capacity of them) to hold at least `need`; new elements
 * are zero. On failure the array is as before. */
enum tutti_result tti_grow(void **array, size_t *capacity, size_t need, size_t size);
/* Bytes of the heap that `memory` takes, the allocator's own word included; NULL: 0. */
size_t tti_heap_bytes(const void *memory);
/* Bytes of a mapping whose pages are in memory. `mapping` is the beginning of a page. */
size_t tti_pages_used(const void *mapping, size_t bytes);
/* strdup with the last error set on failure. */
char *tti_strdup(const char *text);

#endif
