/* The board of a rank: a page of memory that ranks of its host map, on which they themselves count
 * the signals that they give it (post.h). So a signal is one addition there, and waiting for it is
 * looking at a word; no thread of the target has a part in it. */
#ifndef TTI_COLL_BOARD_H
#define TTI_COLL_BOARD_H

#include "device/memory.h"
#include "tutti/tutti.h"

#include <stdatomic.h>

struct tti_board_row {
    /* Parcels of that rank that the post's thread here is through with: who knows that all of its
     * own are among them may count signals itself, and overtakes nothing. */
    _Alignas(64) _Atomic uint64_t applied;
    _Alignas(64) _Atomic uint64_t arrived[TUTTI_SIGNALS];
};

struct tti_board {
    _Atomic uint32_t asleep, bell; /* the owner is, until the bell changes */
    _Atomic uint32_t holders;      /* in its process: the last one frees it */
    _Alignas(64) struct tti_board_row from[];
};

static inline size_t tti_board_bytes(int ranks)
{
    return sizeof(struct tti_board) + (size_t)ranks * sizeof(struct tti_board_row);
}

/* For so many holders, each of whom drops it once. */
enum tutti_result tti_board_make(int ranks, int holders, struct tti_board **board);
/* NULL is allowed. */
void tti_board_drop(struct tti_board *board);

/* Count signal `signal` of rank `from`, wake the owner. */
void tti_board_count(struct tti_board *board, int from, int signal);
void tti_board_wake(struct tti_board *board);
/* Look at `word` of the own board until it is `least` or more: false after so many turns. */
bool tti_board_spin(const _Atomic uint64_t *word, uint64_t least, unsigned turns);
/* The same asleep, for at most `ms`; may return early. */
void tti_board_sleep(struct tti_board *board, const _Atomic uint64_t *word, uint64_t least, int ms);

#endif
