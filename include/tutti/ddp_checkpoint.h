/* What lasts longer than a run: tensors in files (safetensors), and checkpoints, which N ranks save
 * and M ranks read. Part of tutti/ddp.h, whose rules hold here, and usable without a tutti_ddp.
 * docs/ddp.md is the guide. */
#ifndef TUTTI_DDP_CHECKPOINT_H
#define TUTTI_DDP_CHECKPOINT_H

#include "tutti/tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Tensors in files ----------------------------------------------------------------------- *
 * The safetensors format (huggingface.co/docs/safetensors): 8 bytes with the length of a JSON text,
 * the text (names, types, shapes, places), the elements in little-endian order. Written whole or
 * not at all: under another name first, on disk before it gets its own. Read defensively: whatever
 * a file holds, the answer is its tensors or an error that says what is wrong with it. */

enum {
    TUTTI_TENSOR_DIMS = 8, /* the most dimensions of a tensor */
};

struct tutti_tensor {
    const char *name; /* any UTF-8 without control characters */
    enum tutti_type
        type; /* reading: TUTTI_TYPE_COUNT for a type that Tutti has not (BOOL, I16, U16) */
    int dims; /* 0: a single number */
    size_t shape[TUTTI_TENSOR_DIMS];
    const void *data; /* writing: the elements, in row-major order; reading: NULL */
};

/* A name and a text that belongs to it. */
struct tutti_pair {
    const char *key, *value;
};

/* The number of elements: the product of the shape. */
TUTTI_API size_t tutti_tensor_elements(const struct tutti_tensor *tensor);

/* Write `count` tensors with different names, and `pairs` texts of metadata. Local; blocks until
 * the file is on disk. TUTTI_ERR_SYSTEM if that failed (a full disk, say): then what was at `path`
 * before is still there, whole. */
TUTTI_API enum tutti_result tutti_tensors_write(const char *path,
                                                const struct tutti_tensor *tensors, size_t count,
                                                const struct tutti_pair *metadata, size_t pairs);

typedef struct tutti_tensor_file tutti_tensor_file;
/* Read what a file holds, but for the elements. TUTTI_ERR_ARGUMENT if it is no safetensors file, or
 * a torn one. */
TUTTI_API enum tutti_result tutti_tensors_open(const char *path, tutti_tensor_file **file);
TUTTI_API void tutti_tensors_close(tutti_tensor_file *file);
TUTTI_API size_t tutti_tensors_count(const tutti_tensor_file *file);
/* Tensor number `index` in the order of the elements, or NULL past the end; and by name, or NULL.
 * They live as long as the file is open. */
TUTTI_API const struct tutti_tensor *tutti_tensors_at(const tutti_tensor_file *file, size_t index);
TUTTI_API const struct tutti_tensor *tutti_tensors_find(const tutti_tensor_file *file,
                                                        const char *name);
/* The metadata's text for `key`, or NULL. */
TUTTI_API const char *tutti_tensors_metadata(const tutti_tensor_file *file, const char *key);
/* Elements first .. first+count-1 of a tensor of this file into `out` as `type`: its own, or any
 * float type for another (rounded to nearest even). */
TUTTI_API enum tutti_result tutti_tensors_read(const tutti_tensor_file *file,
                                               const struct tutti_tensor *tensor, size_t first,
                                               size_t count, enum tutti_type type, void *out);

/* ---- Checkpoints ---------------------------------------------------------------------------- *
 * A folder for each: FOLDER/step-00000120/ with
 *   model.safetensors                  the parameters, whole, written by rank 0
 *   state-00001-of-00004.safetensors   what else each rank gave (optimizer states, or its shards)
 *   state.json                         the step, the caller's values, size and hash of each file
 *   DONE                               written last: without it the checkpoint does not count
 * It is written as FOLDER/step-00000120.part-9c0d23a1b5e47f68 (digits that no other save has), and
 * gets its name when all is there. One of the same step that is there before is step-00000120.old
 * in the moment in between, and is found as such. What a killed save leaves (.part-...) goes with
 * the next one of its step, or when no older step is kept. The folder must be the same for all
 * ranks (one host, or a shared file system); saving and opening say so if it is not. A tensor may
 * be cut into flat pieces in any way: what N ranks wrote in pieces is read by M ranks in others. */

/* Elements first .. first+count-1 of a tensor. */
struct tutti_piece {
    const char *name; /* of the parameter */
    const char *part; /* what of it: NULL is the parameter itself; "exp_avg", "master", ... */
    enum tutti_type type;
    int dims; /* of the whole tensor */
    size_t shape[TUTTI_TENSOR_DIMS];
    size_t first, count; /* flat, in row-major order */
    void *data;          /* `count` elements: saving reads, loading writes them */
};

/* Save; collective. Rank 0 gives the parameters (part NULL) whole; other pieces are given by the
 * rank that is to write them, each element by one rank. `values` (rank 0's are taken): printable
 * ASCII without quotes and backslashes. Of the finished checkpoints in `folder`, those but for the
 * newest `keep` are removed afterwards (0: none is); one that cannot be removed is no error, but a
 * warning in the log. Every rank returns the same code, and the text names the rank that failed and
 * why; the earlier checkpoints are as before then, one of the same step included. Blocks until all
 * is on disk. */
TUTTI_API enum tutti_result tutti_checkpoint_save(tutti_comm *comm, const char *folder,
                                                  uint64_t step, const struct tutti_piece *pieces,
                                                  size_t count, const struct tutti_pair *values,
                                                  size_t value_count, int keep);

typedef struct tutti_checkpoint tutti_checkpoint;
/* Open the finished checkpoint of the highest step in `folder`, or of `step` if that is not
 * UINT64_MAX; collective, all ranks open the same. *checkpoint = NULL if there is none (or no
 * folder), and no step was asked for. Sizes and hashes of its files are compared, shared out among
 * the ranks; TUTTI_ERR_ARGUMENT on every rank names a file that is missing, torn or changed. */
TUTTI_API enum tutti_result tutti_checkpoint_open(tutti_comm *comm, const char *folder,
                                                  uint64_t step, tutti_checkpoint **checkpoint);
TUTTI_API void tutti_checkpoint_close(tutti_checkpoint *checkpoint);
TUTTI_API uint64_t tutti_checkpoint_step(const tutti_checkpoint *checkpoint);
TUTTI_API int tutti_checkpoint_ranks(const tutti_checkpoint *checkpoint); /* that wrote it */
/* The value saved for `key`, or NULL. */
TUTTI_API const char *tutti_checkpoint_value(const tutti_checkpoint *checkpoint, const char *key);
/* Fill the pieces' data. TUTTI_ERR_ARGUMENT, with some pieces filled, if the checkpoint is of
 * another model: it lacks a tensor, has one of another shape or type, or has a parameter that no
 * piece asks for; the text names it and shows both. Local. */
TUTTI_API enum tutti_result tutti_checkpoint_load(const tutti_checkpoint *checkpoint,
                                                  const struct tutti_piece *pieces, size_t count);

#ifdef __cplusplus
}
#endif
#endif
