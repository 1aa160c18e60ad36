/* A whole input file in memory, for the examples' data. */
#ifndef EXAMPLES_TRAIN_INPUT_H
#define EXAMPLES_TRAIN_INPUT_H

#include <stddef.h>
#include <stdint.h>

/* The bytes of a regular file, at least `least` of them; free(3) them. NULL after a message. */
uint8_t *input_read(const char *path, size_t least, size_t *bytes);

#endif
