/* Whose turn it is to run a communicator's operations (work.h): two atomic instructions a turn, or
 * none for a thread to whom the turn belongs.
 *
 * Locked instructions cost a small broadcast a quarter of its time, and mostly one thread makes all
 * calls. So who took the turn alone `enough` times in a row becomes its owner, and from then on
 * only says in a word of its own (`inside`) that it has it, and looks whether the turn is still its
 * own. Whoever else wants it takes it away first (tti_turn_disown), and pays for both.
 *
 * Why never two have it. The owner:                 Who takes it away, under the queue's lock:
 *     enters:  inside = IN; is word == OWNED?           word |= WANTED; tti_fence_others();
 *     leaves:  inside = LEAVING; is word == OWNED?      is inside != IN?  then word &= ~OWNED
 *              inside = OUT
 * The compiler keeps the owner's two in this order. The processor may not, but the others' fence
 * falls somewhere between the owner's instructions:
 *   - After `inside = IN`: then the other sees it, and waits. Before it: then the owner's look
 * comes later still and finds WANTED; the turn is not its own any more, and it says so (hands
 * over).
 *   - After `inside = LEAVING`: the other sees it, and need not wait. Before it: it waits, but then
 * the owner's look as it leaves comes after the fence, too; it finds WANTED, and wakes the other.
 *     WANTED stays until then: only the end of a turn takes it back, and nobody else has one.
 * OUT, or handing over under the lock, is the last that an owner does with the communicator: who
 * means to release that waits until the owner is OUT (tti_work_queue_end).
 * Once OWNED is gone, by whoever, the owner may only come in as all others do; and nobody else can
 * come in between WANTED and that, nor without it while there is OWNED.
 *
 * A turn has one owner in its life, whom it may come back to. With a second one, the first could be
 * held up after it has seen that it is the owner, for as long as it takes the turn to become the
 * other's, and then write to the other's `inside`. As it is, OWNED is given by the owner alone,
 * which is not held up then.
 *
 * What one has done in its turn, the next sees: `inside = LEAVING` and the ends of turns are
 * releases, who sees them acquires, and the owner becomes that in a turn that it took as the others
 * do.
 *
 * Threads are told apart by what no two have at a time. If the owner ends, and a later thread is
 * given its place, that is the owner: the old one does nothing any more, and what it did is seen by
 * the new one as surely as that the place is empty. */
#ifndef TTI_COLL_TURN_H
#define TTI_COLL_TURN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* TAKEN: somebody runs operations. WANTED: something is queued, or somebody waits for its turn;
 * changes under the lock. OWNED: the owner may run operations, and nobody else, and TAKEN is not
 * there. With none anybody can take a turn without the lock, and the owner with OWNED alone; with
 * WANTED it cannot be ended without. */
enum tti_turn_bits { TTI_TURN_TAKEN = 1, TTI_TURN_WANTED = 2, TTI_TURN_OWNED = 4 };

/* Where the owner is: IN has the turn, or is about to see whether; LEAVING has it no more, and is
 * about to see whether somebody waits; OUT touches nothing. */
enum tti_turn_inside { TTI_TURN_OUT, TTI_TURN_IN, TTI_TURN_LEAVING };

/* Turns in a row that make an owner: at first, and twice as many each time, up to these. To take
 * the turn away costs about a microsecond (0.3 to 1 on a machine of two processors, 10 to 16 on a
 * virtual one; more have more interrupts), and it saves some 10 ns a turn. */
enum { TTI_TURN_ENOUGH = 256, TTI_TURN_ENOUGH_MOST = 65536 };

struct tti_turn {
    _Atomic unsigned word;   /* enum tti_turn_bits */
    _Atomic unsigned inside; /* enum tti_turn_inside */
    _Atomic uintptr_t owner; /* 0: nobody has been yet */
    bool fenced;             /* under the lock: `inside` is what it is, since WANTED */
    /* Of who has the turn. */
    uint32_t alone;               /* turns in a row that this one has taken alone ... */
    uintptr_t last;               /* ... this thread */
    uint32_t enough, enough_most; /* ... of so many */
};

static inline uintptr_t tti_turn_here(void)
{
#if (defined(__clang__) && __clang_major__ >= 14) || (!defined(__clang__) && __GNUC__ >= 11)
    return (uintptr_t)__builtin_thread_pointer();
#else
    return (uintptr_t)pthread_self();
#endif
}

static inline bool tti_turn_of_owner(const struct tti_turn *turn)
{
    return atomic_load_explicit(&turn->owner, memory_order_relaxed) == tti_turn_here();
}

/* It is the owner's, and nobody wants it. */
static inline bool tti_turn_owned(const struct tti_turn *turn)
{
    return atomic_load_explicit(&turn->word, memory_order_relaxed) == TTI_TURN_OWNED;
}

static inline bool tti_turn_inside(const struct tti_turn *turn)
{
    return atomic_load_explicit(&turn->inside, memory_order_relaxed) == TTI_TURN_IN;
}

/* The owner says that it has the turn (IN), or has it no more (LEAVING). True: it is still its own.
 */
static inline bool tti_turn_say(struct tti_turn *turn, enum tti_turn_inside inside)
{
    atomic_store_explicit(&turn->inside, inside, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst); /* the processor's is left to the others */
    return tti_turn_owned(turn);
}

/* TTI_TURN_OWNED if the thread that ends its turn here is to be the owner from now on; else 0. */
unsigned tti_turn_earned(struct tti_turn *turn);

static inline unsigned tti_turn_next(struct tti_turn *turn)
{
    const uintptr_t here = tti_turn_here();
    if (turn->last != here) {
        turn->last = here;
        turn->alone = 0;
    }
    return ++turn->alone < turn->enough ? 0 : tti_turn_earned(turn);
}

/* Nobody has it, nor wants it; also for a child made by fork. */
void tti_turn_begin(struct tti_turn *turn);
/* Under the lock, with WANTED. False: the owner has it, and will see WANTED when it leaves. */
bool tti_turn_disown(struct tti_turn *turn);

#endif
