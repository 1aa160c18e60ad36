/* Images of digits with their labels, from IDX files (yann.lecun.com/exdb/mnist): big-endian
 * 0x00000803, count, height, width, a byte a pixel; 0x00000801, count, a byte a label. */
#ifndef EXAMPLES_MLP_DIGITS_H
#define EXAMPLES_MLP_DIGITS_H

#include <stddef.h>
#include <stdint.h>

struct digits {
    size_t count, pixels; /* images; numbers of each */
    float *images;        /* 0 .. 1, one after another */
    uint8_t *labels;      /* 0 .. 9 */
};

/* 0, or 1 after a message. `brightest`: the pixel that becomes 1. */
int digits_read(struct digits *digits, const char *images, const char *labels, int brightest);
void digits_free(struct digits *digits);

#endif
