/* The log of a training run and its picture: a table on disk, one line a step, which a resumed run
 * continues; drawn as SVG. Used by rank 0 only. */
#ifndef EXAMPLES_TRAIN_CURVE_H
#define EXAMPLES_TRAIN_CURVE_H

#include <stdint.h>
#include <stdio.h>

struct curve_point {
    uint64_t step; /* finished ones */
    double loss;   /* of training, the mean of the batch */
    double rate, norm, ms, per_second;
    double check; /* loss or accuracy on other data; NaN: not looked at after this step */
};

struct curve {
    struct curve_point *points;
    size_t count, capacity;
    FILE *log; /* NULL: none is kept */
};

/* Take the lines up to step `from` of the log at `path` (if it is there), and write on after them.
 * path NULL: keep the points in memory only. 0, or 1 after a message. */
int curve_open(struct curve *curve, const char *path, uint64_t from);
/* Another group of ranks goes on: from the log, which another rank may have kept so far. */
int curve_again(struct curve *curve, const char *path, uint64_t from);
int curve_add(struct curve *curve, const struct curve_point *point);
/* Draw the losses (and the other data's, named `check`, on the same axis) into an SVG file. */
int curve_draw(const struct curve *curve, const char *path, const char *title, const char *check);
void curve_close(struct curve *curve);

#endif
