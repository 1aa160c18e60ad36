/* Which of two ways to copy is the quicker one, found out while a call comes again and again: one
 * after the other for a few operations, then the quicker one for many, which is looked at now and
 * then. Nothing here copies, or looks at a clock: who copies tells what it took. */
#ifndef TTI_DEVICE_COPY_TRIAL_H
#define TTI_DEVICE_COPY_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

/* By stores that fetch the lines they write, or by strings of bytes (tti_copy_expect_lanes). */
enum tti_copy_way { TTI_COPY_FETCHES, TTI_COPY_STRINGS, TTI_COPY_WAYS };

enum {
    TTI_COPY_TRIAL = 16, /* operations of a trial of one way; the first quarter are not timed */
    TTI_COPY_TIMED = TTI_COPY_TRIAL - TTI_COPY_TRIAL / 4,
    TTI_COPY_WATCH = 16, /* afterwards every so manieth is timed */
    TTI_COPY_SLOW = 3,   /* so many in a row too slow, and the other way is taken */
    TTI_COPY_HOLD = 256, /* operations until the next trial, doubled while the same way wins, */
    TTI_COPY_HOLD_MOST = 8192, /* up to so many */
};

/* Zeros: nothing is known, and the first trial, of TTI_COPY_FETCHES, begins. */
struct tti_copy_trial {
    uint8_t way;                /* of the present operation */
    bool held;                  /* it has won; else it is being tried */
    uint8_t slow;               /* timed operations in a row that were too slow */
    uint16_t count;             /* operations since the trial, or the holding, began */
    uint16_t hold;              /* operations that the winner is held; 0: nobody has won yet */
    uint8_t won;                /* the last winner */
    uint8_t timed;              /* of `took` */
    float took[TTI_COPY_TIMED]; /* ns a byte in this trial */
    float cost[TTI_COPY_WAYS];  /* the median of the way's last trial */
};

/* Shall the operation that begins be timed? */
bool tti_copy_trial_times(const struct tti_copy_trial *trial);
/* An operation is over. `took`: ns a byte, if it was timed and has copied; else 0 or less. */
void tti_copy_trial_next(struct tti_copy_trial *trial, float took);

#endif
