/* Random numbers (noise.h). */
#include "examples/train/noise.h"

#include <math.h>

double noise_uniform(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* Box and Muller's: two uniform numbers make a normal one. */
void noise_normal(uint64_t *state, float deviation, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const double radius = sqrt(-2 * log(1 - noise_uniform(state)));
        out[i] = (float)(deviation * radius * cos(6.283185307179586 * noise_uniform(state)));
    }
}
