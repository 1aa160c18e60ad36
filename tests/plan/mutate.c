/* See mutate.h. */
#include "tests/plan/mutate.h"

#include "tests/tutti_cmocka.h"

#include <stdlib.h>
#include <string.h>

const char *const mutation_name[MUTATIONS] = {
    "drop",         "duplicate",     "swap with next",
    "move to end",  "swap lanes",    "other lane",
    "from + 1",     "from - 1",      "to + 1",
    "to - 1",       "swap peers",    "from self",
    "chunk + 1",    "chunk - 1",     "chunk, not refs",
    "nchunks + 1",  "nchunks = 0",   "toggle FORWARD",
    "toggle FINAL", "toggle ACC",    "toggle LEFT",
    "unknown flag", "becomes copy",  "becomes reduce",
    "becomes send", "becomes recv",  "becomes recv_reduce",
    "src + 1",      "dst + 1",       "src = IN",
    "src = OUT",    "src = slot 0",  "src = slot 1",
    "dst = IN",     "dst = OUT",     "dst = slot 0",
    "dst = slot 1", "dst = SCRATCH", "clear hazard",
    "hazard - 1",
};

/* ---- breaking a plan ---- */

static void insert_step(struct tti_lane *lane, size_t before, struct tti_step step)
{
    struct tti_step *steps = realloc(lane->steps, (lane->count + 1) * sizeof *steps);
    assert_non_null(steps);
    memmove(steps + before + 1, steps + before, (lane->count - before) * sizeof *steps);
    steps[before] = step;
    lane->steps = steps;
    lane->capacity = ++lane->count;
}

static void remove_step(struct tti_lane *lane, size_t step)
{
    lane->count--;
    memmove(lane->steps + step, lane->steps + step + 1, (lane->count - step) * sizeof *lane->steps);
}

/* Another rank than `self`, `by` further on. */
static int other_peer(int peer, int self, int by, int n)
{
    if (peer < 0)
        return peer;
    int moved = (peer + by + n) % n;
    return moved == self ? (moved + by + n) % n : moved;
}

static struct tti_ref shift_ref(struct tti_ref ref, const struct tti_plan *plan, uint32_t by)
{
    if (ref.buffer != TTI_SLOT)
        ref.index = (ref.index + by) % plan->chunks;
    return ref;
}

static void shift_chunk(struct tti_step *step, const struct tti_plan *plan, uint32_t by)
{
    step->chunk = (step->chunk + by) % plan->chunks;
    if (step->kind != TTI_RECV)
        step->src = shift_ref(step->src, plan, by);
    if (step->kind == TTI_REDUCE)
        step->src2 = shift_ref(step->src2, plan, by);
    if (step->kind != TTI_SEND)
        step->dst = shift_ref(step->dst, plan, by);
}

/* Another kind, its fields made to fit it. */
static void become(struct tti_step *step, enum tti_step_kind kind, int rank, int n)
{
    static const struct tti_ref none = {0};
    bool had_src = step->kind != TTI_RECV, had_dst = step->kind != TTI_SEND;
    bool receives = kind == TTI_RECV || kind == TTI_RECV_REDUCE;
    if (kind == TTI_RECV)
        step->src = none;
    else if (!had_src)
        step->src = (struct tti_ref){TTI_IN, step->chunk};
    if (kind == TTI_SEND)
        step->dst = none;
    else if (!had_dst)
        step->dst = (struct tti_ref){TTI_OUT, step->chunk};
    step->src2 = kind == TTI_REDUCE ? (struct tti_ref){TTI_IN, step->chunk} : none;
    step->from = !receives ? -1 : step->from >= 0 ? step->from : (rank + n - 1) % n;
    if (kind == TTI_SEND && step->to < 0)
        step->to = (rank + 1) % n;
    if (kind != TTI_SEND && step->to >= 0)
        step->flags |= TTI_FORWARD;
    if (kind == TTI_SEND)
        step->flags = 0;
    if (!receives)
        step->flags &= (uint8_t)~TTI_MSG_ACC;
    if (kind != TTI_RECV_REDUCE)
        step->flags &= (uint8_t)~TTI_MSG_LEFT;
    step->kind = (uint8_t)kind;
}

static bool mutate_order(struct tti_plan *plan, const struct site *site)
{
    struct tti_lane *lane = &plan->lanes[site->lane];
    struct tti_lane *other = &plan->lanes[(site->lane + 1) % plan->nlanes];
    struct tti_step step = lane->steps[site->step];
    switch (site->mutation) {
    case DROP:
        remove_step(lane, site->step);
        return true;
    case DUPLICATE:
        insert_step(lane, site->step, step);
        return true;
    case SWAP_WITH_NEXT:
        if (site->step + 1 == lane->count)
            return false;
        lane->steps[site->step] = lane->steps[site->step + 1];
        lane->steps[site->step + 1] = step;
        return true;
    case MOVE_TO_END:
        remove_step(lane, site->step);
        insert_step(lane, lane->count, step);
        return site->step + 2 < lane->count; /* else: no change, or swapped with next */
    case SWAP_LANES:
        if (site->step >= other->count || other <= lane)
            return false;
        lane->steps[site->step] = other->steps[site->step];
        other->steps[site->step] = step;
        return true;
    case MOVE_TO_OTHER_LANE:
        if (other == lane)
            return false;
        remove_step(lane, site->step);
        insert_step(other, site->step < other->count ? site->step : other->count, step);
        return true;
    default:
        return false;
    }
}

static bool mutate_numbers(struct tti_plan *plan, const struct site *site, struct tti_step *step)
{
    int n = plan->spec.nranks, from = step->from;
    switch (site->mutation) {
    case FROM_UP:
    case FROM_DOWN:
        step->from = other_peer(from, site->rank, site->mutation == FROM_UP ? 1 : -1, n);
        return true;
    case TO_UP:
    case TO_DOWN:
        step->to = other_peer(step->to, site->rank, site->mutation == TO_UP ? 1 : -1, n);
        return true;
    case SWAP_PEERS:
        if (step->from < 0 || step->to < 0)
            return false;
        step->from = step->to;
        step->to = from;
        return true;
    case FROM_SELF:
        step->from = step->from < 0 ? -1 : site->rank;
        return true;
    case CHUNK_UP:
    case CHUNK_DOWN:
        shift_chunk(step, plan, site->mutation == CHUNK_UP ? 1 : plan->chunks - 1);
        return true;
    case CHUNK_WITHOUT_REFS:
        step->chunk = (step->chunk + 1) % plan->chunks;
        return true;
    case NCHUNKS_UP:
        step->nchunks++;
        return true;
    case NCHUNKS_ZERO:
        step->nchunks = 0;
        return true;
    case TOGGLE_FORWARD:
        step->flags ^= TTI_FORWARD;
        step->to = step->flags & TTI_FORWARD ? (site->rank + 1) % n : -1;
        return n > 1;
    case TOGGLE_FINAL:
        step->flags ^= TTI_FINAL;
        return true;
    case TOGGLE_ACC:
        step->flags ^= TTI_MSG_ACC;
        return true;
    case TOGGLE_LEFT:
        step->flags ^= TTI_MSG_LEFT;
        return true;
    case UNKNOWN_FLAG:
        step->flags |= 64;
        return true;
    default:
        return false;
    }
}

static bool mutate_refs(const struct site *site, struct tti_step *step)
{
    bool src = step->kind != TTI_RECV, dst = step->kind != TTI_SEND;
    uint32_t slot = 2 * (uint32_t)site->lane;
    switch (site->mutation) {
    case SRC_UP:
        step->src.index += src;
        return true;
    case DST_UP:
        step->dst.index += dst;
        return true;
    case SRC_IN:
    case SRC_OUT:
        if (src)
            step->src = (struct tti_ref){site->mutation == SRC_IN ? TTI_IN : TTI_OUT, step->chunk};
        return true;
    case SRC_SLOT:
    case SRC_OTHER_SLOT:
        if (src)
            step->src = (struct tti_ref){TTI_SLOT, slot + (site->mutation == SRC_OTHER_SLOT)};
        return true;
    case DST_IN:
    case DST_OUT:
        if (dst)
            step->dst = (struct tti_ref){site->mutation == DST_IN ? TTI_IN : TTI_OUT, step->chunk};
        return true;
    case DST_SLOT:
    case DST_OTHER_SLOT:
        if (dst)
            step->dst = (struct tti_ref){TTI_SLOT, slot + (site->mutation == DST_OTHER_SLOT)};
        return true;
    case DST_SCRATCH:
        if (dst)
            step->dst = (struct tti_ref){TTI_SCRATCH, step->chunk};
        return true;
    case CLEAR_HAZARD:
        step->hazard = -1;
        return true;
    case LOWER_HAZARD:
        step->hazard -= step->hazard >= 0;
        return true;
    default:
        return false;
    }
}

bool mutate(struct plan_set *set, const struct site *site)
{
    struct tti_plan *plan = set->plans[site->rank];
    if (site->lane >= plan->nlanes || site->step >= plan->lanes[site->lane].count)
        return false;
    bool changed = false;
    if (site->mutation <= MOVE_TO_OTHER_LANE) {
        changed = mutate_order(plan, site);
    } else {
        struct tti_step *step = &plan->lanes[site->lane].steps[site->step], before = *step;
        if (site->mutation >= KIND_COPY && site->mutation <= KIND_RECV_REDUCE) {
            if (step->kind != site->mutation - KIND_COPY)
                become(step, (enum tti_step_kind)(site->mutation - KIND_COPY), site->rank,
                       set->nranks);
        } else if (!mutate_numbers(plan, site, step)) {
            mutate_refs(site, step);
        }
        changed = memcmp(step, &before, sizeof before) != 0;
    }
    if (changed && site->mutation != CLEAR_HAZARD && site->mutation != LOWER_HAZARD)
        plan_set_finish(set, site->rank);
    return changed;
}
