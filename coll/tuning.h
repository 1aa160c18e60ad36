/* What was measured on this machine: constants of the cost model, and times of the ways of doing
 * each operation. `tutti-tune` writes it, every communicator reads it when it is made.
 *
 * A series is one way (algorithm, path, lanes) of one operation among so many ranks over one
 * medium: seconds at sizes. Between sizes the model is scaled by the interpolated ratio of measured
 * to modelled, so that the curve goes through the points. Read next: select.c, which uses it;
 * tuning_json.c, the file. */
#ifndef TTI_COLL_TUNING_H
#define TTI_COLL_TUNING_H

#include "coll/profile.h"
#include "coll/selection.h"
#include "topology/machine.h"

#include <stddef.h>
#include <stdio.h>

enum {
    TTI_TUNING_FILE_BYTES = 1 << 20, /* the most that is read */
    TTI_TUNING_SERIES = 8192,
    TTI_TUNING_POINTS = 64,
    TTI_TUNING_PATH_BYTES = 1024,
};

struct tti_point {
    double bytes; /* of a block: count times the type's size */
    double seconds;
};

struct tti_series {
    enum tutti_collective collective;
    enum tti_medium medium;
    int ranks, hosts;
    int algorithm; /* its number within the collective */
    enum tti_path path;
    int lanes;
    int count;
    struct tti_point point[TTI_TUNING_POINTS]; /* sizes ascend */
};

struct tti_tuning {
    struct tti_machine machine; /* where it was measured */
    bool fitted[TTI_MEDIA];     /* cost[medium] is there */
    double cost[TTI_MEDIA][TTI_COSTS];
    struct tti_series *series;
    size_t count, capacity;
    size_t unknown; /* series of algorithms that this build does not have: left out */
    uint64_t digest;
};

/* ---- What it says ---------------------------------------------------------------------------- */

/* Seconds of `series` at `bytes`: `model` times the ratio there. `modelled` holds the model's
 * seconds at each point of the series. */
double tti_series_seconds(const struct tti_series *series, const double *modelled, double bytes,
                          double model);
/* "plan", "fused", then NULL. */
extern const char *const tti_path_names[];

/* ---- Building -------------------------------------------------------------------------------- */

enum tutti_result tti_tuning_create(struct tti_tuning **tuning);
void tti_tuning_destroy(struct tti_tuning *tuning);
enum tutti_result tti_tuning_add(struct tti_tuning *tuning, const struct tti_series *series);

/* ---- As text: tuning_json.c ------------------------------------------------------------------ */

/* Strict: what is not ours is refused with its place (ARGUMENT). Series of unknown algorithms are
 * counted and left out. The digest is that of the text. */
enum tutti_result tti_tuning_from_json(const char *text, size_t bytes, struct tti_tuning **tuning);
enum tutti_result tti_tuning_write_json(const struct tti_tuning *tuning, FILE *out);

/* ---- As a file: tuning_file.c ---------------------------------------------------------------- */

/* UNSUPPORTED when this release is not the one that wrote it. */
enum tutti_result tti_tuning_read(const char *path, struct tti_tuning **tuning);
/* Through a temporary file beside it, so that readers see the old one or the new one whole. Makes
 * missing folders. */
enum tutti_result tti_tuning_write(const struct tti_tuning *tuning, const char *path);
/* Whether tti_tuning_write could write there: what is measured for a minute shall not be lost then.
 * Makes missing folders, leaves no file. */
enum tutti_result tti_tuning_can_write(const char *path);
/* Where tutti-tune writes: TUTTI_TUNING, else the user's folder. Empty when there is none. */
void tti_tuning_place(char *path, size_t bytes);
/* The tuning for this machine: TUTTI_TUNING ("off", or a file), else the user's, else the system's.
 * *tuning is NULL where there is none or it is not to be used; `source` (TTI_TUNING_PATH_BYTES)
 * says in any case which file it was and what came of it. Errors: ARGUMENT when TUTTI_TUNING names
 * a file that is not there. */
enum tutti_result tti_tuning_find(struct tti_tuning **tuning, char *source);

#endif
