/* One call on blocks of different sizes: what uneven.c makes operations of, once uneven_check.c has
 * looked at it. */
#ifndef TTI_COLL_UNEVEN_CALL_H
#define TTI_COLL_UNEVEN_CALL_H

#include "base/error.h"
#include "coll/operation.h"
#include "tutti/tutti.h"

#include <stdbool.h>
#include <stddef.h>

/* A buffer: one piece of `count` elements, or a block a rank. */
struct tti_uneven_side {
    const size_t *counts, *displs; /* counts NULL: one piece; displs NULL: they follow each other */
    size_t count;
    bool unused; /* at this rank */
};

struct tti_uneven {
    tutti_comm *comm;
    enum tutti_collective collective;
    enum tutti_type type;
    enum tutti_op op;
    int root;
    const char *in;
    char *out;
    size_t size;                     /* of an element; from tti_uneven_begin on */
    struct tti_uneven_side from, to; /* of `in` and `out` */
    bool async;
    tutti_stream stream;
    tutti_request **request;
};

struct tti_uneven_piece {
    size_t begin, count; /* elements of the buffer */
};

/* The pieces in turn; `*next` is 0 at first. */
static inline struct tti_uneven_piece tti_uneven_piece(const struct tti_uneven_side *side, int k,
                                                       size_t *next)
{
    struct tti_uneven_piece piece = {side->displs ? side->displs[k] : *next,
                                     side->counts ? side->counts[k] : side->count};
    *next += piece.count;
    return piece;
}

/* A part of the call: a send to the peer or, with `out`, a receive from it. */
static inline struct tti_operation tti_uneven_message(const struct tti_uneven *u, int peer,
                                                      size_t count, const void *in, void *out)
{
    struct tti_operation message =
        tti_operation_of(TUTTI_SEND_RECV, in, out, count, u->type, (enum tutti_op)0, peer);
    message.receives = out != NULL;
    message.part_of = u->collective;
    return message;
}

/* Comm, type, root, operator and request. */
enum tutti_result tti_uneven_begin(struct tti_uneven *u);
/* An array that this rank reads is there. */
enum tutti_result tti_uneven_counts(const struct tti_uneven *u, const size_t *counts,
                                    const char *name);
/* Sizes and buffers, once both sides are filled in. `*total` is the count of the longer buffer. */
enum tutti_result tti_uneven_check(const struct tti_uneven *u, size_t *total);

/* uneven_rooted.c: check a gather or scatter, run it, and say what came of it, if it can be done in
 * a simpler way than others. False: nothing was done. */
bool tti_uneven_rooted(const struct tti_uneven *u, enum tutti_result *result);

#endif
