/* A hand: a thread that plays for several ranks (hand.c). */
#ifndef TTI_TESTS_HAND_H
#define TTI_TESTS_HAND_H

/* Call play(arguments[k]) for each of `many`, in turns; returns when all are over. */
void hand_play(void (*play)(void *argument), void *const *arguments, int many);

/* random_nccl.c: all hands are here. */
void hands_meet(void);

#endif
