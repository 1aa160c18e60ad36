/* Random numbers for examples: the same from run to run and on every rank. */
#ifndef EXAMPLES_TRAIN_NOISE_H
#define EXAMPLES_TRAIN_NOISE_H

#include <stddef.h>
#include <stdint.h>

/* In [0, 1); *state is the seed, and goes on (splitmix64). */
double noise_uniform(uint64_t *state);
/* Normally distributed with mean 0. */
void noise_normal(uint64_t *state, float deviation, float *out, size_t count);

#endif
