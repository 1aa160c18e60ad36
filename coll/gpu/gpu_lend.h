/* Buffers of the caller's that other processes map (TUTTI_DEVICE_MAP): so that large calls read and
 * write them where they lie, without copies through windows. Off unless asked for: CUDA wants
 * memory that others have mapped to be freed after they let go of it, which a program does not
 * know.
 *
 * A rank lends an allocation: it writes a letter into the arenas of all others, whose watching
 * threads map it and answer with the address at which they have it. Nobody waits for that: each
 * call uses for its rank's buffers what has been answered by all, and its window else, and the
 * peers find in their arenas which of the two, and where (struct tti_gpu_places). So no rank has to
 * know what another's buffers are when it makes a call. Read next: gpu_lend.c, and gpu_window.c for
 * the calls. */
#ifndef TTI_COLL_GPU_LEND_H
#define TTI_COLL_GPU_LEND_H

#include "device/gpu.h"

#include <stdbool.h>
#include <stdint.h>

struct tti_gpu_side;
struct tti_gpu_map;
struct tti_operation;
struct tutti_comm;

enum { TTI_LEND_SLOTS = 16 }; /* allocations that a rank lends at a time */

/* From one rank to another, in the other's arena; `number` is written last. */
struct tti_letter {
    uint32_t number;
    uint32_t kind, slot;
    int32_t device;
    uint64_t process[2]; /* the lender's, as is: */
    uint64_t base;
    struct tti_gpu_handle handle;
};
struct tti_answer {
    uint32_t number; /* of the letter */
    uint32_t good;
    uint64_t base; /* where the one who answers has it */
};

/* In each rank's arena: written by the others, [r] by rank r. */
struct tti_lend_page {
    struct tti_gpu_places places;
    struct tti_letter letters[TTI_GPU_RANKS];
    struct tti_answer answers[TTI_GPU_RANKS];
};

/* Page-locked: what comes from and goes to there. */
struct tti_lend_told {
    struct tti_lend_page page;
    struct tti_letter letter;
    struct tti_answer answers[TTI_GPU_RANKS];
    uint32_t inside[TTI_GPU_RANKS];
};

struct tti_gpu_lend;

/* After the arenas are mapped. `from`: bytes of a call's block that takes this way. */
enum tutti_result tti_gpu_lend_make(struct tti_gpu_map *map, size_t from);
/* The work of all ranks is over. */
void tti_gpu_lend_drop(struct tti_gpu_side *side, struct tti_gpu_map *map);
size_t tti_gpu_lend_bytes(const struct tti_gpu_map *map);

/* Whether a call goes this way: alike on all ranks. */
bool tti_gpu_lend_takes(const struct tutti_comm *comm, const struct tti_operation *o);
/* Where each rank has this address, which is in the caller's buffer; false: not all have it (yet:
 * from now on they are asked). While a stream is under capture, waits for their answer. */
bool tti_gpu_lend_find(struct tutti_comm *comm, const void *address, bool capturing,
                       char *at[TTI_GPU_RANKS]);
/* For tests: calls so far, and those of them whose buffers were all lent. */
void tti_gpu_lend_count(struct tti_gpu_map *map, bool direct);
uint64_t tti_gpu_lend_direct(const struct tti_gpu_map *map);

/* The watching thread's: read letters and answers, write own ones. */
void tti_gpu_lend_turn(struct tutti_comm *comm);
/* ... before it lets this rank's streams through, after a failure: see that nobody touches its
 * buffers any more, nor will, and that it touches none. */
void tti_gpu_lend_end(struct tutti_comm *comm);

#endif
