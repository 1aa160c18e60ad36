/* Does the verifier catch errors? Ring plans are broken in every way of a list, at every step of
 * every rank; hazards and peers are worked out again, as for an algorithm with that mistake. A
 * mutant that passes must be one of those argued to be equivalent (see `equivalent`). Then plans
 * are broken at random, several times over, and those that pass are run on numbers. */
#include "coll/algorithms/algorithms.h"
#include "plan/print.h"
#include "plan/verify.h"
#include "tests/plan/concrete.h"
#include "tests/plan/direct_plans.h"
#include "tests/tutti_cmocka.h"

#include <stdlib.h>
#include <string.h>

enum mutation {
    DROP,
    DUPLICATE,
    SWAP_WITH_NEXT,
    MOVE_TO_END,
    SWAP_LANES,
    MOVE_TO_OTHER_LANE,
    FROM_UP,
    FROM_DOWN,
    TO_UP,
    TO_DOWN,
    SWAP_PEERS,
    FROM_SELF,
    CHUNK_UP,
    CHUNK_DOWN,
    CHUNK_WITHOUT_REFS,
    NCHUNKS_UP,
    NCHUNKS_ZERO,
    TOGGLE_FORWARD,
    TOGGLE_FINAL,
    TOGGLE_ACC,
    TOGGLE_LEFT,
    UNKNOWN_FLAG,
    KIND_COPY,
    KIND_REDUCE,
    KIND_SEND,
    KIND_RECV,
    KIND_RECV_REDUCE,
    SRC_UP,
    DST_UP,
    SRC_IN,
    SRC_OUT,
    SRC_SLOT,
    SRC_OTHER_SLOT,
    DST_IN,
    DST_OUT,
    DST_SLOT,
    DST_OTHER_SLOT,
    DST_SCRATCH,
    CLEAR_HAZARD,
    LOWER_HAZARD,
    MUTATIONS,
};

static const char *const mutation_name[MUTATIONS] = {
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

struct site {
    int rank, lane;
    size_t step;
    enum mutation mutation;
};

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

/* Break the set; false when the mutation changes nothing there. */
static bool mutate(struct plan_set *set, const struct site *site)
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

/* ---- every mutation of the ring ---- */

/* Mutants of the ring that are right, each for a reason of its own; `step` is as it was. */
static bool equivalent(const struct site *site, const struct tti_step *step)
{
    /* Each chunk is summed along one path and the result handed around, so turning the operands of
     * one sum turns them for every rank alike. */
    if (site->mutation == TOGGLE_LEFT)
        return step->kind == TTI_RECV_REDUCE;
    /* A slot is only a place to forward from and is never read again: the lane's other slot will
     * do, and hazards, worked out anew, keep the two messages apart. */
    if (site->mutation == DST_SLOT || site->mutation == DST_OTHER_SLOT ||
        (site->mutation == DST_UP && step->dst.index % 2 == 0))
        return step->kind == TTI_RECV_REDUCE && step->dst.buffer == TTI_SLOT;
    /* The own contribution goes out from OUT, in the element type as before; the final result
     * comes over it later, which hazards hold back until the message is taken. */
    if (site->mutation == KIND_COPY)
        return step->kind == TTI_SEND;
    return false;
}

struct tally {
    unsigned tried[MUTATIONS], killed[MUTATIONS], same[MUTATIONS];
};

static void try_mutant(int n, int lanes, const struct site *site, struct tally *tally)
{
    struct plan_set set;
    plan_set_build(&set, tti_algorithm_find(TUTTI_ALL_REDUCE, "ring"), n, 0, lanes);
    struct tti_step before = {0};
    const struct tti_lane *lane = &set.plans[site->rank]->lanes[site->lane];
    if (site->step < lane->count)
        before = lane->steps[site->step];
    if (mutate(&set, site)) {
        tally->tried[site->mutation]++;
        bool passes = tti_verify_plans(set.plans, n, NULL) == TUTTI_OK;
        bool same = equivalent(site, &before);
        tally->same[site->mutation] += same;
        tally->killed[site->mutation] += !passes;
        char text[TTI_STEP_TEXT_BYTES];
        if (passes != same)
            fail_msg("n = %d, rank %d lane %d step %zu (%s), %s: %s", n, site->rank, site->lane,
                     site->step, tti_step_text(&before, text, sizeof text),
                     mutation_name[site->mutation], passes ? "not detected" : tutti_last_error());
    }
    plan_set_destroy(&set);
}

static void every_mutation(void **state)
{
    (void)state;
    struct tally tally = {0};
    static const int shapes[][2] = {{1, 1}, {2, 1}, {2, 2}, {3, 1}, {4, 2}, {5, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct site site;
        for (site.rank = 0; site.rank < shapes[i][0]; site.rank++)
            for (site.lane = 0; site.lane < shapes[i][1]; site.lane++)
                for (site.step = 0; site.step < 2 * (size_t)shapes[i][0]; site.step++)
                    for (int m = 0; m < MUTATIONS; m++) {
                        site.mutation = (enum mutation)m;
                        try_mutant(shapes[i][0], shapes[i][1], &site, &tally);
                    }
    }
    unsigned tried = 0, killed = 0, same = 0;
    for (int m = 0; m < MUTATIONS; m++) {
        print_message("%-20s %5u mutants, %5u killed, %3u equivalent\n", mutation_name[m],
                      tally.tried[m], tally.killed[m], tally.same[m]);
        assert_true(tally.tried[m] > 0 || m == SRC_IN); /* the ring computes from IN already */
        tried += tally.tried[m];
        killed += tally.killed[m];
        same += tally.same[m];
    }
    print_message("%u mutants: %u killed, %u equivalent\n", tried, killed, same);
    assert_int_equal(tried, killed + same);
}

/* ---- mutations at random ---- */

static struct site random_site(const struct plan_set *set, uint64_t *random)
{
    struct site site;
    site.rank = (int)(concrete_random(random) % (uint64_t)set->nranks);
    site.lane = (int)(concrete_random(random) % (uint64_t)set->plans[site.rank]->nlanes);
    site.step = concrete_random(random) % (set->plans[site.rank]->lanes[site.lane].count + 1);
    site.mutation = (enum mutation)(concrete_random(random) % MUTATIONS);
    return site;
}

/* The verdict of running on numbers: NULL, or what went wrong in one of several schedules. */
static const char *run_on_numbers(const struct plan_set *set, bool ordered, uint64_t *random)
{
    const char *wrong = NULL;
    for (int i = 0; !wrong && i < 16; i++)
        wrong = concrete_all_reduce(set->plans, set->nranks, i & 1, i & 2, ordered, random);
    return wrong;
}

static void random_mutations(const struct tti_algorithm *algorithm, uint64_t seed)
{
    uint64_t random = seed;
    unsigned killed = 0, passed = 0;
    for (int round = 0; round < 20000; round++) {
        struct plan_set set;
        int n = 2 + (int)(concrete_random(&random) % 3);
        plan_set_build(&set, algorithm, n, 0, 1 + (int)(concrete_random(&random) % 2));
        for (uint64_t left = 1 + concrete_random(&random) % 3; left > 0;) {
            struct site site = random_site(&set, &random);
            left -= mutate(&set, &site);
        }
        if (tti_verify_plans(set.plans, n, NULL) == TUTTI_OK) {
            passed++;
            const char *wrong = run_on_numbers(&set, false, &random);
            if (wrong)
                fail_msg("%s, seed %#llx round %d: the verifier passes a plan that gives %s",
                         algorithm->name, (unsigned long long)seed, round, wrong);
        } else {
            killed++;
        }
        plan_set_destroy(&set);
    }
    print_message("%s, seed %#llx: %u killed, %u pass and give right numbers\n", algorithm->name,
                  (unsigned long long)seed, killed, passed);
    assert_true(killed > 10000 && passed > 100);
}

static void ring_at_random(void **state)
{
    (void)state;
    random_mutations(tti_algorithm_find(TUTTI_ALL_REDUCE, "ring"), 0x2a5f31c6d4e8b907u);
}

static void direct_at_random(void **state)
{
    (void)state;
    random_mutations(direct_algorithm(TUTTI_ALL_REDUCE), 0x77c1e9a35d20b46fu);
}

/* The judge is not blind either: it calls wrong what the verifier's plainest kills are about. */
static void numbers_see_errors(void **state)
{
    (void)state;
    static const enum mutation visible[] = {DROP,       FROM_UP,        TOGGLE_FINAL,
                                            TOGGLE_ACC, TOGGLE_FORWARD, DST_OUT};
    uint64_t random = 0x9d4b6c1f08e35a72u;
    for (size_t i = 0; i < sizeof visible / sizeof visible[0]; i++) {
        struct plan_set set;
        plan_set_build(&set, tti_algorithm_find(TUTTI_ALL_REDUCE, "ring"), 4, 0, 1);
        assert_null(run_on_numbers(&set, false, &random));
        struct site site = {.rank = 1, .lane = 0, .step = 2, .mutation = visible[i]};
        assert_true(mutate(&set, &site));
        assert_non_null(run_on_numbers(&set, false, &random));
        plan_set_destroy(&set);
    }
}

/* ---- the canonical order ---- */

struct order_tally {
    unsigned tried, wrong, other_order, right;
};

/* One mutant of an algorithm that combines in the order of ranks. Whether the verifier says so must
 * be what an operator says that no other order makes right. */
static void try_order(const struct tti_algorithm *algorithm, int n, const struct site *site,
                      uint64_t *random, struct order_tally *tally)
{
    struct plan_set set;
    plan_set_build(&set, algorithm, n, 0, 1);
    if (mutate(&set, site)) {
        tally->tried++;
        bool sums = tti_verify_plans(set.plans, n, NULL) == TUTTI_OK;
        bool ordered = tti_verify_ordered(set.plans, n, NULL) == TUTTI_OK;
        const char *numbers = sums ? run_on_numbers(&set, true, random) : "not run";
        tally->wrong += !sums;
        tally->other_order += sums && !ordered;
        tally->right += ordered;
        if (ordered != (numbers == NULL))
            fail_msg("%s, n = %d, rank %d step %zu, %s: %s, but on numbers: %s", algorithm->name, n,
                     site->rank, site->step, mutation_name[site->mutation],
                     ordered ? "passes as ordered" : tti_error_text(), numbers ? numbers : "right");
    }
    plan_set_destroy(&set);
}

static void ordered_mutants(void **state)
{
    (void)state;
    uint64_t random = 0x51c3e07a9b2d846fu;
    const struct tti_algorithm *algorithm;
    struct order_tally all = {0};
    for (int i = 0; (algorithm = tti_algorithm_at(TUTTI_ALL_REDUCE, i)); i++) {
        struct order_tally tally = {0};
        for (int n = 2; n <= 4 && algorithm->ordered; n++) {
            struct site site = {0};
            for (site.rank = 0; site.rank < n; site.rank++)
                for (site.step = 0; site.step < 4 * (size_t)n; site.step++)
                    for (int m = 0; m < MUTATIONS; m++) {
                        site.mutation = (enum mutation)m;
                        try_order(algorithm, n, &site, &random, &tally);
                    }
        }
        if (algorithm->ordered)
            print_message("%s: %u mutants: %u wrong, %u of another order, %u in order\n",
                          algorithm->name, tally.tried, tally.wrong, tally.other_order,
                          tally.right);
        all.other_order += tally.other_order;
    }
    assert_true(all.other_order > 10);
}

/* The algorithms that claim no order have none, but with few ranks; so the claim says something. */
static void others_have_no_order(void **state)
{
    (void)state;
    enum { RANKS_SHOWN = 4 };
    unsigned caught = 0;
    for (int c = 0; c < TUTTI_COLLECTIVE_COUNT; c++)
        for (int i = 0; tti_algorithm_at((enum tutti_collective)c, i); i++) {
            const struct tti_algorithm *algorithm = tti_algorithm_at((enum tutti_collective)c, i);
            struct plan_set set;
            if (!tti_order_shows((enum tutti_collective)c))
                continue;
            plan_set_build(&set, algorithm, RANKS_SHOWN, 0, 1);
            bool ordered = tti_verify_ordered(set.plans, RANKS_SHOWN, NULL) == TUTTI_OK;
            if (ordered && !algorithm->ordered && strncmp(algorithm->name, "hierarchical", 12) != 0)
                fail_msg("%s is in order, and does not claim it", algorithm->name);
            assert_true(ordered || !algorithm->ordered);
            caught += !ordered;
            plan_set_destroy(&set);
        }
    assert_true(caught >= 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mutation),  cmocka_unit_test(numbers_see_errors),
        cmocka_unit_test(ring_at_random),  cmocka_unit_test(direct_at_random),
        cmocka_unit_test(ordered_mutants), cmocka_unit_test(others_have_no_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
