/* Collectives over memory that every rank can map, without interpreting a plan: each rank reads its
 * share of all inputs once and stores the result into all outputs once, which are the fewest bytes
 * that can be touched.
 *
 * The equal of the plan that tti_fused_equal names: the same order of combination, so the same bits
 * (tests/coll/test_fused.c holds them together). Its messages are others, so all ranks take it or
 * none: TTI_PATH_FUSED is part of the tag. Read fused.c for the protocol, fused_share.c for what
 * moves where. TUTTI_FAST=0 switches it off, TUTTI_FUSED_FROM=0 on for every size. */
#ifndef TTI_COLL_FUSED_H
#define TTI_COLL_FUSED_H

#include "coll/operation.h"
#include "coll/selection.h"

#include <stdbool.h>

struct tutti_comm;

enum { TTI_FUSED_RANKS = 64 };

/* The algorithm whose equal the fused path is; NULL: the collective has no fused path. */
const struct tti_algorithm *tti_fused_equal(enum tutti_collective collective);
/* Blocks of the operation's whole (the longer of IN and OUT). */
double tti_fused_blocks(enum tutti_collective collective, int ranks);
/* Blocks that the busiest rank reads, and that it writes; and both together. */
double tti_fused_reads(enum tutti_collective collective, int ranks);
double tti_fused_writes(enum tutti_collective collective, int ranks);
double tti_fused_touched(enum tutti_collective collective, int ranks);

/* Whether memory was mappable lately, by the size of operations: the same on all ranks. */
enum { TTI_FUSED_CLASSES = 33 };
struct tti_fused_record {
    uint64_t served;
    struct tti_fused_class {
        uint16_t refused; /* times in a row */
        uint16_t skip;    /* operations until it is tried again */
    } by_size[TTI_FUSED_CLASSES];
};
struct tti_fused_class *tti_fused_class(struct tutti_comm *comm, const struct tti_operation *o);
/* An operation for which the fused path was chosen: is it left out, since memory of this size was
 * refused lately? Counts it then. */
bool tti_fused_skips(struct tutti_comm *comm, const struct tti_operation *o);

/* Run the operation by the fused path. *served is false when some rank's memory cannot be mapped:
 * nothing was moved then, all ranks know, and the operation is to run by a plan. */
enum tutti_result tti_fused(struct tutti_comm *comm, const struct tti_operation *o,
                            const struct tti_selection *selection, const struct tti_label *label,
                            bool *served);

/* ---- operations that come again, with the same buffers (fused_again.c) ---- */

struct tti_fused_again;
enum { TTI_FUSED_AGAIN = 4 }; /* kept by a communicator */

/* The one that `o` is like, if it may run now; or NULL. */
struct tti_fused_again *tti_fused_find(struct tutti_comm *comm, const struct tti_operation *o);
/* The record that has begun is of one of these. */
void tti_fused_by(struct tutti_comm *comm, const struct tti_fused_again *again);
/* As tti_fused. `recorded`: it has its record; otherwise it gets it when its first messages are on
 * their way. */
enum tutti_result tti_fused_repeat(struct tutti_comm *comm, struct tti_fused_again *again,
                                   const struct tti_operation *o, const struct tti_label *label,
                                   bool recorded, bool *served);
void tti_fused_forget(struct tutti_comm *comm);

/* ---- between fused.c, fused_edges.c and fused_share.c ---- */

/* Which ranks' buffers the others use. */
enum tti_fused_whose { TTI_FUSED_NOBODY, TTI_FUSED_ROOT, TTI_FUSED_ALL };
enum tti_fused_whose tti_fused_in(enum tutti_collective collective);
enum tti_fused_whose tti_fused_out(enum tutti_collective collective);

/* A rank's buffer as it lies in this process. Registered memory is mapped in whole pages only: the
 * first and last few elements lie apart then. Element i is at head + i for i < head_end, at
 * tail + (i - tail_begin) from tail_begin on, else at middle + i (in elements). */
struct tti_fused_view {
    char *middle, *head, *tail;
    size_t head_end, tail_begin;
};

/* By rank; those that nobody else uses are not set. */
struct tti_fused_views {
    struct tti_fused_view in[TTI_FUSED_RANKS], out[TTI_FUSED_RANKS];
};

/* This rank's share of the work. */
void tti_fused_share(struct tutti_comm *comm, const struct tti_operation *o,
                     const struct tti_fused_views *views);

/* Where a share comes from and goes to: the elements from `from` on of the inputs of ranks
 * [in_first, in_last), combined, to element `to` of the outputs of ranks [first, last). */
struct tti_fused_part {
    size_t from, to, count;
    int in_first, in_last, first, last;
    bool own_in, own_out; /* the caller's buffers, which nobody else uses, instead of the views */
};
/* The share in one part; false: it has several. */
bool tti_fused_part(struct tutti_comm *comm, const struct tti_operation *o,
                    struct tti_fused_part *part);
/* Such a part, of buffers in one piece, by rank. `from_end`: see tti_fuse. */
void tti_fused_move(const struct tti_operation *o, int ranks, const struct tti_fused_part *part,
                    char *const *in, char *const *out, bool from_end);

/* Elements before and behind the part of a buffer that peers can map: as a rank tells them. */
struct tti_fused_edges {
    uint32_t in_head, in_tail, out_head, out_tail;
};
enum {
    TTI_FUSED_EDGE_BYTES = 8192,                     /* the most of one edge */
    TTI_FUSED_ASIDE_BYTES = 4 * TTI_FUSED_EDGE_BYTES /* for the four of them, in that order */
};

/* The whole pages inside `elements` elements of `size` bytes: how many elements lie before and
 * behind. False when there is no whole page. */
bool tti_fused_edges_of(const void *data, size_t elements, size_t size, uint32_t *head,
                        uint32_t *tail);
/* A peer's word for a buffer of `elements`: can it be? */
bool tti_fused_edges_sound(uint32_t head, uint32_t tail, size_t elements, size_t size);
/* The view of a buffer whose mapped part begins at `mapped`; `aside` is where its head lies, unless
 * it has no edges. */
void tti_fused_view(struct tti_fused_view *view, char *mapped, char *aside, uint32_t head,
                    uint32_t tail, size_t elements, size_t size);
/* Copy the edges of the own IN aside, and those of the own OUT back. */
void tti_fused_edges_out(const void *in, size_t elements, size_t size,
                         const struct tti_fused_edges *edges, char *aside);
void tti_fused_edges_back(void *out, size_t elements, size_t size,
                          const struct tti_fused_edges *edges, const char *aside);

#endif
