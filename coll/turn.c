/* Giving and taking away the turn (coll/turn.h). */
#include "coll/turn.h"

#include "base/fence_others.h"

void tti_turn_begin(struct tti_turn *turn)
{
    atomic_store(&turn->word, 0);
    atomic_store(&turn->inside, 0);
    atomic_store(&turn->owner, 0);
    turn->fenced = false;
    turn->alone = 0;
    turn->last = 0;
    turn->enough = tti_fence_others_works() ? TTI_TURN_ENOUGH : UINT32_MAX;
    turn->enough_most = TTI_TURN_ENOUGH_MOST;
}

unsigned tti_turn_earned(struct tti_turn *turn)
{
    const uintptr_t here = tti_turn_here();
    const uintptr_t owner = atomic_load_explicit(&turn->owner, memory_order_relaxed);
    turn->alone = 0;
    if ((owner && owner != here) || !tti_fence_others_works())
        return 0;
    turn->enough = turn->enough < turn->enough_most / 2 ? 2 * turn->enough : turn->enough_most;
    atomic_store_explicit(&turn->owner, here, memory_order_relaxed);
    return TTI_TURN_OWNED;
}

bool tti_turn_disown(struct tti_turn *turn)
{
    if (!(atomic_load_explicit(&turn->word, memory_order_relaxed) & TTI_TURN_OWNED))
        return true;
    if (!turn->fenced && !tti_turn_of_owner(turn)) { /* whose own instructions are in order */
        tti_fence_others();
        turn->fenced = true;
    }
    if (atomic_load_explicit(&turn->inside, memory_order_acquire) == TTI_TURN_IN)
        return false;
    turn->fenced = false;
    atomic_fetch_and_explicit(&turn->word, ~(unsigned)TTI_TURN_OWNED, memory_order_relaxed);
    return true;
}
