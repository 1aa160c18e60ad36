/* Trials of two ways to copy (copy_trial.h). */
#include "device/copy_trial.h"

/* Strings are the way that can turn out badly later: they have to be quicker by this much. */
static const float TRIAL_MARGIN = 0.97F;
/* A winner that takes so many times what the other one took is not the winner any more. */
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

static void trial_begin(struct tti_copy_trial *trial, enum tti_copy_way way)
{
    trial->way = (uint8_t)way;
    trial->held = false;
    trial->slow = 0;
    trial->count = 0;
    trial->timed = 0;
}

static void trial_hold(struct tti_copy_trial *trial, enum tti_copy_way way, int operations)
{
    trial->way = trial->won = (uint8_t)way;
    trial->held = true;
    trial->slow = 0;
    trial->count = 0;
    trial->hold = (uint16_t)operations;
}

static void trial_over(struct tti_copy_trial *trial)
{
    if (trial->timed == 0) { /* nothing was copied: begin again, some day */
        trial_hold(trial, TTI_COPY_FETCHES, TTI_COPY_HOLD);
        return;
    }
    trial->cost[trial->way] = trial_median(trial);
    if (trial->way == TTI_COPY_FETCHES) {
        trial_begin(trial, TTI_COPY_STRINGS);
        return;
    }
    const enum tti_copy_way way =
        trial->cost[TTI_COPY_STRINGS] < TRIAL_MARGIN * trial->cost[TTI_COPY_FETCHES]
            ? TTI_COPY_STRINGS
            : TTI_COPY_FETCHES;
    int hold = TTI_COPY_HOLD;
    if (trial->hold > 0 && trial->won == way)
        hold = trial->hold < TTI_COPY_HOLD_MOST / 2 ? 2 * trial->hold : TTI_COPY_HOLD_MOST;
    trial_hold(trial, way, hold);
}

/* Has the present way now taken much more than the other one, several times in a row? */
static bool trial_too_slow(struct tti_copy_trial *trial, float took)
{
    const enum tti_copy_way other =
        trial->way == TTI_COPY_FETCHES ? TTI_COPY_STRINGS : TTI_COPY_FETCHES;
    const float most = TRIAL_TOO_SLOW * trial->cost[other];
    trial->slow = most > 0 && took > most ? trial->slow + 1 : 0;
    return trial->slow == TTI_COPY_SLOW;
}

void tti_copy_trial_next(struct tti_copy_trial *trial, float took)
{
    const bool timed = tti_copy_trial_times(trial) && took > 0;
    trial->count++;
    if (!trial->held) {
        if (timed)
            trial->took[trial->timed++] = took;
        /* Who is beaten so clearly need not go on: strings alone, which come second. */
        const bool beaten = timed && trial->way == TTI_COPY_STRINGS && trial_too_slow(trial, took);
        if (trial->count == TTI_COPY_TRIAL || beaten)
            trial_over(trial);
        return;
    }
    if (timed && trial_too_slow(trial, took)) { /* not soon again: it did well when it was tried */
        trial->cost[trial->way] = took;
        trial_hold(trial, trial->way == TTI_COPY_FETCHES ? TTI_COPY_STRINGS : TTI_COPY_FETCHES,
                   TTI_COPY_HOLD_MOST);
        return;
    }
    if (trial->count == trial->hold)
        trial_begin(trial, TTI_COPY_FETCHES);
}
