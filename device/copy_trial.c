/* Trials of a few ways to copy (copy_trial.h). */
#include "device/copy_trial.h"

/* A winner that takes so many times what another one took is not the winner any more; way 0, where
 * it may be quick enough, only when the other beats its margin by as much. */
static const float TRIAL_TOO_SLOW = 1.3F;

bool tti_copy_trial_times(const struct tti_copy_trial *trial)
{
    if (trial->held)
        return trial->count % TTI_COPY_WATCH == TTI_COPY_WATCH - 1;
    return trial->count >= TTI_COPY_TRIAL - TTI_COPY_TIMED;
}

/* The middle one of what a trial has timed; sorts them. */
static float trial_median(struct tti_copy_trial *trial)
{
    for (int i = 1; i < trial->timed; i++) {
        const float value = trial->took[i];
        int at = i;
        for (; at > 0 && trial->took[at - 1] > value; at--)
            trial->took[at] = trial->took[at - 1];
        trial->took[at] = value;
    }
    return trial->took[trial->timed / 2];
}

static void trial_begin(struct tti_copy_trial *trial, int way)
{
    trial->way = (uint8_t)way;
    trial->held = false;
    trial->slow = 0;
    trial->count = 0;
    trial->timed = 0;
}

static void trial_hold(struct tti_copy_trial *trial, int way, int turns)
{
    trial->way = trial->won = (uint8_t)way;
    trial->held = true;
    trial->slow = 0;
    trial->count = 0;
    trial->hold = (uint16_t)turns;
}

/* The quickest way that has been measured, but for `besides` (-1: for none); -1 if there is none.
 */
static int trial_best(const struct tti_copy_trial *trial, const struct tti_copy_choice *choice,
                      int besides)
{
    int best = -1;
    for (int way = 0; way < choice->ways; way++)
        if (way != besides && trial->cost[way] > 0 &&
            (best < 0 || trial->cost[way] < (best == 0 ? choice->margin : 1) * trial->cost[best]))
            best = way;
    return best;
}

/* Is the present way the first one, and so quick that no other is worth a try? */
static bool trial_suffices(const struct tti_copy_trial *trial, const struct tti_copy_choice *choice)
{
    return trial->way == 0 && trial->cost[0] > 0 && trial->cost[0] <= choice->quick;
}

static void trial_over(struct tti_copy_trial *trial, const struct tti_copy_choice *choice)
{
    if (trial->timed > 0)
        trial->cost[trial->way] = trial_median(trial);
    const bool suffices = trial_suffices(trial, choice);
    trial->tried++;
    if (trial->tried < choice->ways && trial->cost[trial->won] > 0 && !suffices) {
        trial_begin(trial, (trial->way + 1) % choice->ways);
        return;
    }
    const int best = suffices ? 0 : trial_best(trial, choice, -1);
    if (best < 0) { /* nothing was copied: as before, and begin again, some day */
        trial_hold(trial, trial->won, trial->hold > 0 ? trial->hold : TTI_COPY_HOLD);
        return;
    }
    int hold = TTI_COPY_HOLD;
    if (trial->hold > 0 && trial->won == best)
        hold = trial->hold < TTI_COPY_HOLD_MOST / 2 ? 2 * trial->hold : TTI_COPY_HOLD_MOST;
    trial_hold(trial, best, hold);
}

/* Does the present way take much more than the other did? */
static bool trial_is_beaten(const struct tti_copy_trial *trial,
                            const struct tti_copy_choice *choice, float took, int other)
{
    const float margin = trial->way == 0 && choice->quick > 0 ? choice->margin : 1;
    return took * margin > TRIAL_TOO_SLOW * trial->cost[other];
}

/* Has the present way now taken much more than another one did, several times in a row? Or than
 * what was quick enough to try no other? */
static bool trial_too_slow(struct tti_copy_trial *trial, const struct tti_copy_choice *choice,
                           float took)
{
    const int other = trial_best(trial, choice, trial->way);
    const bool sufficed = trial->held && trial_suffices(trial, choice);
    const bool slow = (other >= 0 && trial_is_beaten(trial, choice, took, other)) ||
                      (sufficed && took > TRIAL_TOO_SLOW * choice->quick);
    trial->slow = slow ? (uint8_t)(trial->slow + 1) : 0;
    return trial->slow == TTI_COPY_SLOW;
}

static void trial_again(struct tti_copy_trial *trial)
{
    for (int way = 0; way < TTI_TRIAL_WAYS; way++)
        trial->cost[way] = 0;
    trial->tried = 0;
    trial_begin(trial, trial->won);
}

void tti_copy_trial_next(struct tti_copy_trial *trial, const struct tti_copy_choice *choice,
                         float took)
{
    const bool timed = tti_copy_trial_times(trial) && took > 0;
    trial->count++;
    if (!trial->held) {
        if (timed)
            trial->took[trial->timed++] = took;
        /* Who is beaten so clearly by one that was tried before need not go on. */
        const bool beaten = timed && trial_too_slow(trial, choice, took);
        if (trial->count == TTI_COPY_TRIAL || beaten)
            trial_over(trial, choice);
        return;
    }
    const bool slow = timed && trial_too_slow(trial, choice, took);
    const int other = slow ? trial_best(trial, choice, trial->way) : -1;
    if (other >= 0 && trial_is_beaten(trial, choice, took, other)) {
        /* not soon again: it did well before */
        trial->cost[trial->way] = took;
        trial_hold(trial, other, TTI_COPY_HOLD_MOST);
    } else if (slow || trial->count == trial->hold) {
        trial_again(trial);
    }
}
