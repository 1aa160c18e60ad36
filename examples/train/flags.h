/* Flags of the examples, as a table. */
#ifndef EXAMPLES_TRAIN_FLAGS_H
#define EXAMPLES_TRAIN_FLAGS_H

#include <stdbool.h>
#include <stddef.h>

/* --name VALUE into the place that is not NULL; `on` takes no value. */
struct flag {
    const char *name, *help;
    int *number; /* from `least` to `most` */
    double *real;
    const char **text;
    bool *on;
    double least, most;
};

/* 0; 1 after --help; 2 after a message that names the flag, its value and what is allowed. */
int flags_parse(int argc, char **argv, const char *about, const struct flag *flags, size_t count);

/* What all trainers have. */
struct common_options {
    int seed, threads, save_every, keep, die_at, die_in;
    bool resume, plain, join;
    const char *checkpoints, *log, *plot, *elastic;
};
enum { FLAGS_COMMON = 13 };
/* Sets the defaults, and FLAGS_COMMON flags. */
void flags_common(struct common_options *common, struct flag *flags);
/* Do they go together? 0, or 2 after a message. --plot none becomes NULL. */
int flags_common_check(struct common_options *common);

#endif
