/* CRC-32C (Castagnoli; RFC 3720, appendix B.4): the checksum of network chunks. Where the CPU has
 * products or maps of 64 bytes, the first call tries them, with its own CRC instruction beside them
 * and without, and takes the quickest; else folding of 16 bytes, else tables. */
#ifndef TTI_BASE_CRC32C_H
#define TTI_BASE_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of bytes that follow those whose CRC is `before` (0: none do). */
uint32_t tti_crc32c(uint32_t before, const void *data, size_t bytes);

/* One way to compute it; `state` is the complement of the CRC. For the dispatch and its test. */
struct tti_crc32c_way {
    const char *name;
    bool (*runs_here)(void);
    uint32_t (*update)(uint32_t state, const uint8_t *data, size_t bytes);
};

/* All that were compiled in, those that need most of the CPU first; NULL behind the last one, which
 * runs anywhere. */
const struct tti_crc32c_way *tti_crc32c_way(size_t index);

#endif
