/* Which of a few ways to copy is the quickest one, found out while a thing comes again and again:
 * one after the other for some turns, then the quickest one for many, which is looked at now and
 * then. A turn is what the user says: an operation, or so many bytes. Nothing here copies, or looks
 * at a clock: who copies tells what it took. */
#ifndef TTI_DEVICE_COPY_TRIAL_H
#define TTI_DEVICE_COPY_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

/* Of what several lanes bring (tti_copy_expect_lanes): by stores that fetch the lines they write,
 * or by strings of bytes. */
enum tti_copy_way { TTI_COPY_FETCHES, TTI_COPY_STRINGS, TTI_COPY_WAYS };

enum {
    TTI_TRIAL_WAYS = 3,  /* at most */
    TTI_COPY_TRIAL = 16, /* turns of a trial of one way; the first quarter are not timed */
    TTI_COPY_TIMED = TTI_COPY_TRIAL - TTI_COPY_TRIAL / 4,
    TTI_COPY_WATCH = 16,       /* afterwards every so manieth is timed */
    TTI_COPY_SLOW = 3,         /* so many in a row too slow, and another way is taken */
    TTI_COPY_HOLD = 256,       /* turns until the next trial, doubled while the same way wins, */
    TTI_COPY_HOLD_MOST = 8192, /* up to so many */
};

/* Zeros: nothing is known, and the first trial begins, of way 0. */
struct tti_copy_trial {
    uint8_t way;                /* of the present turn */
    bool held;                  /* it has won; else it is being tried */
    uint8_t slow;               /* timed turns in a row that were too slow */
    uint8_t tried;              /* ways of this trial that are done */
    uint8_t won;                /* the last winner, with which the next trial begins */
    uint8_t timed;              /* of `took` */
    uint16_t count;             /* turns since the trial of this way, or the holding, began */
    uint16_t hold;              /* turns that the winner is held; 0: nobody has won yet */
    float took[TTI_COPY_TIMED]; /* ns a byte in this trial */
    float cost[TTI_TRIAL_WAYS]; /* the median of the way's last trial; 0: none */
};

/* Shall the turn that begins be timed? */
bool tti_copy_trial_times(const struct tti_copy_trial *trial);
/* What there is to choose from. */
struct tti_copy_choice {
    int ways;     /* 0 to `ways` - 1 */
    float margin; /* what another way than 0 takes, to be quicker: at most so much of what 0 does */
    float quick;  /* ns a byte that leave no other than 0 anything to gain: none is tried then */
};
/* A turn is over. `took`: ns a byte, if it was timed and has copied; else 0 or less. */
void tti_copy_trial_next(struct tti_copy_trial *trial, const struct tti_copy_choice *choice,
                         float took);

#endif
