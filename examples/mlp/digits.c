/* Reading IDX files (digits.h), with every number in them checked against the file's length. */
#include "examples/mlp/digits.h"

#include "examples/train/input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGES = 0x803, LABELS = 0x801, IMAGES_HEAD = 16, LABELS_HEAD = 8 };

static uint32_t digits_number(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static int digits_check(const uint8_t *images, size_t image_bytes, const char *images_path,
                        const uint8_t *labels, size_t label_bytes, const char *labels_path)
{
    const size_t count = digits_number(images + 4);
    const uint64_t pixels = (uint64_t)digits_number(images + 8) * digits_number(images + 12);
    if (digits_number(images) != IMAGES || count == 0 || pixels == 0 || pixels > 1 << 24 ||
        image_bytes != IMAGES_HEAD + count * pixels) {
        fprintf(stderr, "%s is no IDX file of images (unpack a .gz first), or a torn one\n",
                images_path);
        return 1;
    }
    if (digits_number(labels) != LABELS || label_bytes != LABELS_HEAD + digits_number(labels + 4)) {
        fprintf(stderr, "%s is no IDX file of labels, or a torn one\n", labels_path);
        return 1;
    }
    if (digits_number(labels + 4) != count) {
        fprintf(stderr, "%s has %zu images, %s %u labels\n", images_path, count, labels_path,
                digits_number(labels + 4));
        return 1;
    }
    for (size_t i = 0; i < count; i++)
        if (labels[LABELS_HEAD + i] > 9) {
            fprintf(stderr, "%s: label %zu is %u\n", labels_path, i, labels[LABELS_HEAD + i]);
            return 1;
        }
    return 0;
}

int digits_read(struct digits *digits, const char *images_path, const char *labels_path,
                int brightest)
{
    size_t image_bytes = 0, label_bytes = 0;
    uint8_t *images = input_read(images_path, IMAGES_HEAD, &image_bytes);
    uint8_t *labels = images ? input_read(labels_path, LABELS_HEAD, &label_bytes) : NULL;
    struct digits made = {0};
    int failed = !images || !labels ||
                 digits_check(images, image_bytes, images_path, labels, label_bytes, labels_path);
    if (!failed) {
        made.count = digits_number(images + 4);
        made.pixels = (size_t)digits_number(images + 8) * digits_number(images + 12);
        made.images = malloc(made.count * made.pixels * sizeof *made.images);
        made.labels = malloc(made.count);
        failed = !made.images || !made.labels;
    }
    for (size_t i = 0; !failed && i < made.count * made.pixels; i++)
        made.images[i] = (float)images[IMAGES_HEAD + i] / (float)brightest;
    if (!failed)
        memcpy(made.labels, labels + LABELS_HEAD, made.count);
    free(images);
    free(labels);
    if (failed)
        digits_free(&made);
    else
        *digits = made;
    return failed;
}

void digits_free(struct digits *digits)
{
    free(digits->images);
    free(digits->labels);
    *digits = (struct digits){0};
}
