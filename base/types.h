/* The size of an element, for those who ask in every call. */
#ifndef TTI_BASE_TYPES_H
#define TTI_BASE_TYPES_H

#include "tutti/tutti.h"

#include <stdint.h>

/* Bytes of a type that is known to be one; tutti_type_size takes anything. */
static inline size_t tti_type_bytes(enum tutti_type type)
{
    static const uint8_t bytes[16] = {
        [TUTTI_INT8] = 1,    [TUTTI_UINT8] = 1,    [TUTTI_INT32] = 4,       [TUTTI_UINT32] = 4,
        [TUTTI_INT64] = 8,   [TUTTI_UINT64] = 8,   [TUTTI_FLOAT16] = 2,     [TUTTI_FLOAT32] = 4,
        [TUTTI_FLOAT64] = 8, [TUTTI_BFLOAT16] = 2, [TUTTI_FLOAT8_E4M3] = 1, [TUTTI_FLOAT8_E5M2] = 1,
    };
    return bytes[type & 15];
}
_Static_assert(TUTTI_TYPE_COUNT <= 16, "tti_type_bytes takes four bits");

#endif
