/* Boards (coll/board.h). Who counts and who is about to sleep each write first and look then at
 * what the other has written, in one order that both see: one of the two notices the other. */
#include "coll/board.h"

#include "base/atomic.h"
#include "base/futex.h"

enum tutti_result tti_board_make(int ranks, int holders, struct tti_board **board)
{
    void *memory = NULL;
    TTI_TRY(tti_region_alloc(tti_board_bytes(ranks), &memory)); /* zeroed */
    *board = memory;
    atomic_init(&(*board)->holders, (uint32_t)holders);
    return TUTTI_OK;
}

void tti_board_drop(struct tti_board *board)
{
    if (board && atomic_fetch_sub_explicit(&board->holders, 1, memory_order_acq_rel) == 1)
        (void)tti_region_free(board);
}

void tti_board_wake(struct tti_board *board)
{
    if (!atomic_load_explicit(&board->asleep, memory_order_seq_cst))
        return;
    atomic_fetch_add_explicit(&board->bell, 1, memory_order_release);
    tti_futex_wake(&board->bell, 1);
}

void tti_board_count(struct tti_board *board, int from, int signal)
{
    atomic_fetch_add_explicit(&board->from[from].arrived[signal], 1, memory_order_seq_cst);
    tti_board_wake(board);
}

bool tti_board_spin(const _Atomic uint64_t *word, uint64_t least, unsigned turns)
{
    for (unsigned turn = 0; turn < turns; turn++) {
        if (tti_load_acquire(word) >= least)
            return true;
        tti_cpu_relax();
    }
    return tti_load_acquire(word) >= least;
}

void tti_board_sleep(struct tti_board *board, const _Atomic uint64_t *word, uint64_t least, int ms)
{
    const uint32_t bell = atomic_load_explicit(&board->bell, memory_order_acquire);
    atomic_store_explicit(&board->asleep, 1, memory_order_seq_cst);
    if (atomic_load_explicit(word, memory_order_seq_cst) < least)
        tti_futex_wait(&board->bell, bell, (uint64_t)ms * 1000000u);
    atomic_store_explicit(&board->asleep, 0, memory_order_relaxed);
}
