/* What the element kernels must compute, written a second time, slowly and from the definitions:
 * formats as tables of values in double, rounding with nearbyint, one element at a time. */
#ifndef TTI_TESTS_DEVICE_REFERENCE_H
#define TTI_TESTS_DEVICE_REFERENCE_H

#include "device/reduce.h"

#include <stdint.h>

/* A binary floating-point format of at most 16 bits. */
struct reference_format {
    enum tutti_type type;
    int exponent_bits, mantissa_bits;
    bool finite; /* e4m3: no infinities, NaN is all ones */
};
extern const struct reference_format reference_formats[4];
const struct reference_format *reference_format_of(enum tutti_type type); /* NULL: not one */

/* The value of a code, exactly; NaN for NaNs. */
double reference_decode(const struct reference_format *format, unsigned code);
/* The code of the nearest value, ties to even; x is not NaN. */
unsigned reference_encode(const struct reference_format *format, double x);

/* dst = finish(a op b) for one element, each operand in its own type. */
void reference_reduce(enum tutti_op op, void *dst, enum tutti_type dst_type, const void *a,
                      enum tutti_type a_type, const void *b, enum tutti_type b_type,
                      const struct tti_finish *finish);
/* dst = a * scalar for one element. */
void reference_scale(void *dst, const void *a, const void *scalar, enum tutti_type type);

/* Names of the variants that run here, found by forcing each; returns how many. */
int reference_variants(const char *names[4]);
/* A small generator: the same numbers every run. */
uint64_t reference_random(uint64_t *state);
/* Random bits, with enough special values among them: zeros of both signs, infinities, NaNs,
 * subnormals, extremes, and pairs that are equal. */
void reference_fill(enum tutti_type type, char *at, size_t count, uint64_t *state);

#endif
