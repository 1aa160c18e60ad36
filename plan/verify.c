/* The verifier (plan/verify.h): what the plans of all ranks must come to, and the runs that show
 * it. Read next: plan/verify_check.c (one plan by itself), plan/verify_run.c (all together). */
#include "plan/verify.h"

#include "base/memory.h"
#include "plan/verify_parts.h"

#include <stdlib.h>

/* ---- goals ---- */

/* What chunk `index` of OUT at `rank` must hold: chunk `chunk` of IN, of rank `source` alone or,
 * with source == -1, combined over all ranks. */
struct goal {
    uint32_t chunk;
    int source;
};

static struct goal goal_of(const struct tti_plan_spec *spec, uint32_t chunks, int rank,
                           uint32_t index)
{
    uint32_t here = (uint32_t)rank * chunks;
    int block = (int)(index / chunks);
    uint32_t within = index % chunks;
    switch (spec->collective) {
    case TUTTI_BROADCAST:
        return (struct goal){index, spec->root};
    case TUTTI_REDUCE_SCATTER:
        return (struct goal){here + index, -1};
    case TUTTI_ALL_GATHER:
    case TUTTI_GATHER:
        return (struct goal){within, block};
    case TUTTI_ALL_TO_ALL:
        return (struct goal){here + within, block};
    case TUTTI_SCATTER:
        return (struct goal){here + index, spec->root};
    case TUTTI_ALL_REDUCE:
    case TUTTI_REDUCE:
    case TUTTI_BARRIER:
    case TUTTI_SEND_RECV:
    case TUTTI_COLLECTIVE_COUNT:
        break;
    }
    return (struct goal){index, -1};
}

static enum tutti_result goal_missed(const struct tti_values *values, int rank, uint32_t index,
                                     struct goal goal, uint32_t id)
{
    const struct tti_value *value = tti_value_at(values, id);
    if (id == 0)
        return TTI_FAIL(TUTTI_ERR_INTERNAL, "rank %d: at the end OUT[%u] was never written", rank,
                        index);
    if (value->chunk != goal.chunk)
        return TTI_FAIL(TUTTI_ERR_INTERNAL,
                        "rank %d: at the end OUT[%u] holds chunk %u of IN instead of chunk %u",
                        rank, index, value->chunk, goal.chunk);
    if (goal.source >= 0)
        return TTI_FAIL(TUTTI_ERR_INTERNAL,
                        "rank %d: at the end OUT[%u] holds the wrong rank's chunk %u of IN, not "
                        "that of rank %d",
                        rank, index, goal.chunk, goal.source);
    int lacks = tti_value_lacks(values, id);
    if (lacks >= 0)
        return TTI_FAIL(TUTTI_ERR_INTERNAL,
                        "rank %d: at the end OUT[%u] lacks the contribution of rank %d (it has %u)",
                        rank, index, lacks, value->count);
    return TTI_FAIL(TUTTI_ERR_INTERNAL, "rank %d: at the end OUT[%u] is complete, but not final",
                    rank, index);
}

static enum tutti_result check_goals(const struct tti_run *run, const struct tti_values *values,
                                     struct tti_plan *const *plans, int nranks)
{
    const struct tti_plan_spec *spec = &plans[0]->spec;
    if (spec->collective == TUTTI_SEND_RECV)
        return TUTTI_OK;
    for (int rank = 0; rank < nranks; rank++) {
        uint32_t in_blocks = 0, out_blocks = 0, chunks = plans[rank]->chunks;
        tti_shape(spec->collective, nranks, rank, spec->root, &in_blocks, &out_blocks);
        for (uint32_t index = 0; index < out_blocks * chunks; index++) {
            uint32_t id = tti_run_out(run, rank, index);
            const struct tti_value *value = tti_value_at(values, id);
            struct goal goal = goal_of(spec, chunks, rank, index);
            bool good = id != 0 && value->chunk == goal.chunk;
            if (goal.source >= 0)
                good = good && value->count == 1 && tti_value_has(values, id, goal.source);
            else
                good = good && value->count == (uint32_t)nranks && value->final;
            if (!good)
                return goal_missed(values, rank, index, goal, id);
        }
    }
    return TUTTI_OK;
}

/* Floating-point sums depend on the order of operands; all ranks promise the same bits. */
static enum tutti_result check_same_bits(const struct tti_run *run, const struct tti_values *values,
                                         struct tti_plan *const *plans, int nranks)
{
    if (plans[0]->spec.collective != TUTTI_ALL_REDUCE)
        return TUTTI_OK;
    for (uint32_t index = 0; index < plans[0]->chunks; index++) {
        uint32_t first = tti_run_out(run, 0, index);
        for (int rank = 1; rank < nranks; rank++)
            if (tti_value_at(values, tti_run_out(run, rank, index))->order !=
                tti_value_at(values, first)->order)
                return TTI_FAIL(TUTTI_ERR_INTERNAL,
                                "rank %d: at the end OUT[%u] was combined in another order than on "
                                "rank 0, so its bits may differ",
                                rank, index);
    }
    return TUTTI_OK;
}

/* The canonical order (plan/verify.h), where the plans claim it. */
static enum tutti_result check_ordered(const struct tti_run *run, const struct tti_values *values,
                                       struct tti_plan *const *plans, int nranks)
{
    const struct tti_plan_spec *spec = &plans[0]->spec;
    for (int rank = 0; tti_order_shows(spec->collective) && rank < nranks; rank++) {
        uint32_t in_blocks = 0, out_blocks = 0;
        tti_shape(spec->collective, nranks, rank, spec->root, &in_blocks, &out_blocks);
        for (uint32_t index = 0; index < out_blocks * plans[rank]->chunks; index++)
            if (tti_value_at(values, tti_run_out(run, rank, index))->prefix != (uint32_t)nranks)
                return TTI_FAIL(TUTTI_ERR_INTERNAL,
                                "rank %d: at the end OUT[%u] was not combined in the order of "
                                "ranks from the left, which the algorithm claims (`ordered`)",
                                rank, index);
    }
    return TUTTI_OK;
}

/* ---- runs ---- */

static enum tutti_result run_both_ways(struct tti_run *run, const struct tti_values *values,
                                       struct tti_plan *const *plans, int nranks, bool ordered,
                                       struct tti_verify_stats *stats)
{
    static const char *const placement[] = {"out of place", "in place"};
    static const char *const channels[] = {"channels of one message", "channels of none"};
    for (int in_place = 0; in_place < 2; in_place++)
        for (int model = TTI_CHANNEL_ONE; model <= TTI_CHANNEL_NONE; model++) {
            enum tutti_result result =
                tti_run_all(run, (enum tti_channel_model)model, in_place == 1, stats);
            if (result == TUTTI_OK)
                result = check_goals(run, values, plans, nranks);
            if (result == TUTTI_OK)
                result = check_same_bits(run, values, plans, nranks);
            if (result == TUTTI_OK && ordered)
                result = check_ordered(run, values, plans, nranks);
            if (result != TUTTI_OK)
                return TTI_CONTEXT(result, "%s of %d ranks, %s, %s",
                                   tutti_collective_name(plans[0]->spec.collective), nranks,
                                   placement[in_place], channels[model]);
        }
    return TUTTI_OK;
}

/* Do the plans belong together, and are their sizes such that the verifier's numbers hold them? */
static enum tutti_result check_shape(const struct tti_plan *plan, const struct tti_plan *first,
                                     int rank, int nranks)
{
    const struct tti_plan_spec *spec = &plan->spec;
    if (spec->collective != first->spec.collective || spec->root != first->spec.root ||
        plan->chunks != first->chunks || spec->nranks != nranks || spec->rank != rank)
        return TTI_FAIL(TUTTI_ERR_INTERNAL,
                        "rank %d: the plan is %s of rank %d of %d, root %d, %u chunks a block; "
                        "expected %s of rank %d of %d, root %d, %u chunks a block",
                        rank, tutti_collective_name(spec->collective), spec->rank, spec->nranks,
                        spec->root, plan->chunks, tutti_collective_name(first->spec.collective),
                        rank, nranks, first->spec.root, first->chunks);
    if (plan->chunks == 0 || plan->nlanes < 1 || spec->root < 0 || spec->root >= nranks)
        return TTI_FAIL(TUTTI_ERR_INTERNAL, "rank %d: a plan of %u chunks, %d lanes, root %d", rank,
                        plan->chunks, plan->nlanes, spec->root);
    if (plan->reduces != tti_reduces(spec->collective))
        return TTI_FAIL(TUTTI_ERR_INTERNAL, "rank %d: `reduces` is wrong for %s", rank,
                        tutti_collective_name(spec->collective));
    uint64_t cells = (2 * (uint64_t)nranks + 1 + plan->scratch_blocks) * plan->chunks + plan->slots;
    if (cells > INT32_MAX)
        return TTI_FAIL(TUTTI_ERR_INTERNAL,
                        "rank %d: %llu chunks of memory are beyond the verifier", rank,
                        (unsigned long long)cells);
    for (int i = 1; i < plan->npeers; i++)
        if (plan->peers[i] <= plan->peers[i - 1])
            return TTI_FAIL(TUTTI_ERR_INTERNAL, "rank %d: `peers` is not ascending", rank);
    return TUTTI_OK;
}

static enum tutti_result verify_plans(struct tti_plan *const *plans, int nranks, bool ordered,
                                      struct tti_verify_stats *stats)
{
    struct tti_verify_stats unwanted = {0};
    stats = stats ? stats : &unwanted;
    if (nranks < 1)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "verifying the plans of %d ranks: at least 1", nranks);
    for (int rank = 0; rank < nranks; rank++)
        TTI_TRY(check_shape(plans[rank], plans[0], rank, nranks));
    for (int rank = 0; rank < nranks; rank++)
        TTI_TRY(tti_verify_check(plans[rank]));
    struct tti_values *values = NULL;
    struct tti_run *run = NULL;
    TTI_TRY(tti_values_create(nranks, &values));
    enum tutti_result result = tti_run_create(plans, nranks, values, &run);
    if (result == TUTTI_OK)
        result = run_both_ways(run, values, plans, nranks, ordered, stats);
    tti_run_destroy(run);
    tti_values_destroy(values);
    if (result == TUTTI_OK)
        stats->plans += (uint64_t)nranks;
    return result;
}

enum tutti_result tti_verify_plans(struct tti_plan *const *plans, int nranks,
                                   struct tti_verify_stats *stats)
{
    return verify_plans(plans, nranks, false, stats);
}

enum tutti_result tti_verify_ordered(struct tti_plan *const *plans, int nranks,
                                     struct tti_verify_stats *stats)
{
    return verify_plans(plans, nranks, true, stats);
}

/* ---- algorithms ---- */

static bool shifted(int peer, int peer_of_0, int rank, int nranks)
{
    if (peer < 0 || peer_of_0 < 0)
        return peer == peer_of_0;
    return peer == (peer_of_0 + rank) % nranks;
}

/* Is the plan of `rank` that of rank 0 moved along, as far as time can tell? Chunks may have other
 * numbers. */
static enum tutti_result check_translates(const struct tti_plan *plan, const struct tti_plan *zero)
{
    int rank = plan->spec.rank, nranks = plan->spec.nranks;
    if (plan->nlanes != zero->nlanes || plan->slots != zero->slots ||
        plan->scratch_blocks != zero->scratch_blocks)
        return TTI_FAIL(TUTTI_ERR_INTERNAL,
                        "rank %d: the algorithm claims to translate, but lanes, slots or scratch "
                        "differ from rank 0's",
                        rank);
    for (int lane = 0; lane < plan->nlanes; lane++) {
        const struct tti_lane *a = &plan->lanes[lane], *b = &zero->lanes[lane];
        if (a->count != b->count)
            return TTI_FAIL(TUTTI_ERR_INTERNAL,
                            "rank %d lane %d: the algorithm claims to translate, but there are "
                            "%zu steps, and %zu at rank 0",
                            rank, lane, a->count, b->count);
        for (size_t s = 0; s < a->count; s++) {
            const struct tti_step *x = &a->steps[s], *y = &b->steps[s];
            if (x->kind != y->kind || x->flags != y->flags || x->nchunks != y->nchunks ||
                x->hazard != y->hazard || !shifted(x->from, y->from, rank, nranks) ||
                !shifted(x->to, y->to, rank, nranks))
                return tti_verify_fail(plan, lane, s,
                                       "the algorithm claims to translate, but this is not rank "
                                       "0's step moved by %d",
                                       rank);
        }
    }
    return TUTTI_OK;
}

static enum tutti_result verify_built(const struct tti_algorithm *algorithm,
                                      const struct tti_plan_spec *spec, struct tti_plan **plans,
                                      struct tti_verify_stats *stats)
{
    for (int rank = 0; rank < spec->nranks; rank++) {
        struct tti_plan_spec own = *spec;
        own.rank = rank;
        TTI_TRY(algorithm->plan(&own, &plans[rank]));
    }
    TTI_TRY(verify_plans(plans, spec->nranks, algorithm->ordered, stats));
    for (int rank = 1; tti_translates(algorithm, spec) && rank < spec->nranks; rank++)
        TTI_TRY(check_translates(plans[rank], plans[0]));
    return TUTTI_OK;
}

enum tutti_result tti_verify_algorithm(const struct tti_algorithm *algorithm,
                                       const struct tti_plan_spec *spec,
                                       struct tti_verify_stats *stats)
{
    if (spec->nranks < 1)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "verifying %s for %d ranks: at least 1",
                        algorithm->name, spec->nranks);
    if (algorithm->applicable && !algorithm->applicable(spec))
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED, "%s %s does not apply to %d ranks on %d hosts",
                        tutti_collective_name(algorithm->collective), algorithm->name, spec->nranks,
                        spec->layout.nhosts);
    struct tti_plan **plans = tti_calloc((size_t)spec->nranks, sizeof *plans);
    if (!plans)
        return TUTTI_ERR_MEMORY;
    enum tutti_result result = verify_built(algorithm, spec, plans, stats);
    for (int rank = 0; rank < spec->nranks; rank++)
        tti_plan_destroy(plans[rank]);
    free(plans);
    if (result != TUTTI_OK)
        return TTI_CONTEXT(result, "algorithm %s (%d ranks, root %d, %d lanes, %d slices)",
                           algorithm->name, spec->nranks, spec->root, spec->lanes, spec->slices);
    return TUTTI_OK;
}
