/* What saving (checkpoint_save.c) and loading (checkpoint_load.c) of checkpoints share: names, and
 * the state as JSON (checkpoint_state.c). */
#ifndef TTI_DDP_CHECKPOINT_H
#define TTI_DDP_CHECKPOINT_H

#include "ddp/whole_file.h"
#include "tutti/ddp.h"

#include <stdio.h>

enum {
    TTI_CHECKPOINT_NAME_BYTES = 64,       /* of a file in a checkpoint */
    TTI_CHECKPOINT_STATE_BYTES = 16 << 20 /* the most that state.json has */
};

struct tti_checkpoint_file {
    char name[TTI_CHECKPOINT_NAME_BYTES];
    struct tti_file_sum sum;
};

struct tti_checkpoint_state {
    uint64_t step;
    int ranks;
    struct tti_checkpoint_file *files;
    size_t file_count, file_capacity;
    struct tutti_pair *values; /* texts from malloc when parsed */
    size_t value_count, value_capacity;
};

/* What one rank tells all others when it has done its part of a collective step. */
struct tti_checkpoint_report {
    int32_t code;                /* enum tutti_result */
    int32_t files;               /* bits: 1: the model, 2: a state file; opening: 4: it is aside */
    struct tti_file_sum sums[2]; /* opening: the first is state.json's */
    uint64_t step;
    uint64_t nonce; /* saving: of the folder's name, from rank 0 */
    char text[512];
};

/* All ranks' reports, from rank 0 on, in malloc'ed *all; the first failure among them as the result
 * of every rank, named. Collective. `mine` is the own result, whose text the calling thread has. */
enum tutti_result tti_checkpoint_agree(tutti_comm *comm, enum tutti_result mine,
                                       struct tti_checkpoint_report *report,
                                       struct tti_checkpoint_report **all);

/* Names of a checkpoint's folder: its own; of one that another of the same step is about to
 * replace. */
#define TTI_CHECKPOINT_OWN ""
#define TTI_CHECKPOINT_OLD ".old"
/* FOLDER/step-00000120 and the suffix. */
enum tutti_result tti_checkpoint_path(char path[TTI_PATH_BYTES], const char *folder, uint64_t step,
                                      const char *suffix);
/* FOLDER/step-00000120.part-9c0d23a1b5e47f68: while it is written, and whatever is only to be
 * removed. A name is used once: a host that shows cached names (NFS) may still have an earlier
 * folder under one that was used before, wherever that folder is now. */
enum tutti_result tti_checkpoint_part(char path[TTI_PATH_BYTES], const char *folder, uint64_t step,
                                      uint64_t nonce);
/* Is it the name of such a folder (or step-00000120.part, as they were once called)? Then its step.
 */
bool tti_checkpoint_is_part(const char *name, uint64_t *step);
/* Is the finished checkpoint of that step the one aside? So it is when a process was killed that
 * had moved it there, and not yet the new one into its place. If not, the one under its own name is
 * finished, or none is. An error if the file system does not say. */
enum tutti_result tti_checkpoint_aside(const char *folder, uint64_t step, bool *aside);
/* Is it the name of such a folder? Then its step. */
bool tti_checkpoint_is_step(const char *name, uint64_t *step);
/* The steps of the finished checkpoints in `folder`, ascending, in malloc'ed *steps; none for a
 * folder that is not there. An error if one of them cannot be looked at. */
enum tutti_result tti_checkpoint_list(const char *folder, uint64_t **steps, size_t *count);

enum tutti_result tti_checkpoint_write_state(const struct tti_checkpoint_state *state, FILE *out);
enum tutti_result tti_checkpoint_parse_state(const char *json, size_t bytes, const char *what,
                                             struct tti_checkpoint_state *state);
void tti_checkpoint_clear_state(struct tti_checkpoint_state *state);

/* tutti_tensors_write that does not sync the folder, and says what was written. */
enum tutti_result tti_tensors_write(const char *path, const struct tutti_tensor *tensors,
                                    size_t count, const struct tutti_pair *metadata, size_t pairs,
                                    struct tti_file_sum *sum);

#endif
