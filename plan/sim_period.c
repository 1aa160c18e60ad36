/* How many ranks the simulator must run so that they stand for all (plan/sim_model.h, the
 * quotient).
 *
 * An algorithm that claims to translate is taken at its word; the verifier checks that. One that
 * does not may still look the same from every host, as two-level algorithms do: when all ranks are
 * too many to run, the plans of a few hosts are compared with those of the first. */
#include "plan/sim_model.h"

enum { PERIOD_SAMPLES = 9 };

enum tutti_result sim_plan_of(const struct sim *sim, int rank, struct tti_plan **plan)
{
    struct tti_plan_spec spec = sim->spec;
    spec.rank = rank;
    enum tutti_result result = sim->algorithm->plan(&spec, plan);
    if (result != TUTTI_OK)
        return TTI_CONTEXT(result, "building the plan of rank %d for %s %s", rank,
                           tutti_collective_name(spec.collective), sim->algorithm->name);
    return TUTTI_OK;
}

static bool is_rooted(enum tutti_collective collective)
{
    return collective == TUTTI_BROADCAST || collective == TUTTI_REDUCE ||
           collective == TUTTI_GATHER || collective == TUTTI_SCATTER ||
           collective == TUTTI_SEND_RECV;
}

static bool peer_moved(int peer, int other, int by, int nranks)
{
    return peer < 0 || other < 0 ? peer == other : (int)(((int64_t)peer + by) % nranks) == other;
}

/* Is `b` the plan `a` with every rank moved up? Chunks may have other numbers. */
static bool plan_moved(const struct tti_plan *a, const struct tti_plan *b)
{
    int by = b->spec.rank - a->spec.rank, nranks = a->spec.nranks;
    if (a->nlanes != b->nlanes)
        return false;
    for (int lane = 0; lane < a->nlanes; lane++) {
        const struct tti_lane *x = &a->lanes[lane], *y = &b->lanes[lane];
        if (x->count != y->count)
            return false;
        for (size_t s = 0; s < x->count; s++) {
            const struct tti_step *p = &x->steps[s], *q = &y->steps[s];
            if (p->kind != q->kind || p->flags != q->flags || p->nchunks != q->nchunks ||
                p->hazard != q->hazard || !peer_moved(p->from, q->from, by, nranks) ||
                !peer_moved(p->to, q->to, by, nranks))
                return false;
        }
    }
    return true;
}

/* Do the plans of a few hosts equal those of the first, moved? */
static enum tutti_result hosts_alike(const struct sim *sim, bool *alike)
{
    int each = sim->network->ranks_per_host, hosts = sim->spec.nranks / each;
    const int others[] = {1, hosts - 1, 2 % hosts, hosts / 2, hosts / 3, 3 % hosts};
    int stride = each / 16 + 1;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        for (int local = 0; local < each; local += stride) {
            struct tti_plan *first = NULL, *other = NULL;
            enum tutti_result result = sim_plan_of(sim, local, &first);
            if (result == TUTTI_OK)
                result = sim_plan_of(sim, others[i] * each + local, &other);
            *alike = result == TUTTI_OK && plan_moved(first, other);
            tti_plan_destroy(first);
            tti_plan_destroy(other);
            if (result != TUTTI_OK || !*alike)
                return result;
        }
    return TUTTI_OK;
}

/* The steps of all ranks of the period, from a few of them. The root is passed over: it may have
 * many steps alone. */
static enum tutti_result period_steps(const struct sim *sim, double *steps)
{
    double total = 0;
    for (int i = 0; i < PERIOD_SAMPLES; i++) {
        int rank = (int)((int64_t)sim->period * (2 * i + 1) / (2 * PERIOD_SAMPLES));
        struct tti_plan *plan = NULL;
        if (rank == sim->spec.root && sim->period > 1)
            rank = (rank + 1) % sim->period;
        TTI_TRY(sim_plan_of(sim, rank, &plan));
        for (int lane = 0; lane < plan->nlanes; lane++)
            total += (double)plan->lanes[lane].count;
        tti_plan_destroy(plan);
    }
    *steps = total / PERIOD_SAMPLES * sim->period;
    return TUTTI_OK;
}

enum tutti_result sim_choose_period(struct sim *sim)
{
    int each = sim->network->ranks_per_host, nranks = sim->spec.nranks;
    bool rooted = is_rooted(sim->spec.collective), even = nranks % each == 0;
    sim->period = nranks;
    if (tti_translates(sim->algorithm, &sim->spec) && !rooted) {
        if (each >= nranks)
            sim->period = 1; /* one host, every rank with ports of its own: all are alike */
        else if (even)
            sim->period = each;
    }
    double steps = 0;
    TTI_TRY(period_steps(sim, &steps));
    bool alike = false;
    if (steps > (double)sim->steps_max && !rooted && even && sim->period == nranks && each < nranks)
        TTI_TRY(hosts_alike(sim, &alike));
    if (alike) {
        sim->period = each;
        TTI_TRY(period_steps(sim, &steps));
    }
    if (steps > (double)sim->steps_max)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "cannot simulate %s %s on %d ranks: that is about %.2g steps, more than "
                        "%zu, and its ranks are not alike; use fewer ranks, lanes or slices",
                        tutti_collective_name(sim->spec.collective), sim->algorithm->name, nranks,
                        steps, sim->steps_max);
    return TUTTI_OK;
}
