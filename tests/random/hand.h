/* A hand: a thread that plays for several ranks (hand.c). */
#ifndef TTI_TESTS_HAND_H
#define TTI_TESTS_HAND_H

/* Call play(arguments[k]) for each of `many`, in turns; returns when all are over. */
void hand_play(void (*play)(void *argument), void *const *arguments, int many);

/* Whose turn it is in this thread; set by the player. NULL: nobody's yet. */
struct player;
extern _Thread_local struct player *player;

/* random_nccl.c: all hands are here. */
void hands_meet(void);

#endif
