/* Counting the work in plans (coll/work_model.h). */
#include "coll/work_model.h"

/* What a step reads and writes of the rank's own, and what it takes from a copy or puts into one.
 */
static void model_add_copied(const struct tti_step *step, double part,
                             struct tti_work_copied *copied)
{
    static const double own[] = {
        [TTI_COPY] = 2, [TTI_REDUCE] = 3, [TTI_SEND] = 0, [TTI_RECV] = 1, [TTI_RECV_REDUCE] = 2};
    const double sent = step->to >= 0 ? part : 0;
    copied->own += own[step->kind] * part + sent;
    copied->passed += (step->from >= 0 ? part : 0) + sent;
}

static struct tti_work_model model_of_plan(const struct tti_plan *plan)
{
    static const double touched[] = {
        [TTI_COPY] = 2, [TTI_REDUCE] = 3, [TTI_SEND] = 0, [TTI_RECV] = 2, [TTI_RECV_REDUCE] = 3};
    struct tti_work_model model = {0};
    uint64_t to = 0;
    for (int lane = 0; lane < plan->nlanes; lane++)
        for (size_t s = 0; s < plan->lanes[lane].count; s++) {
            const struct tti_step *step = &plan->lanes[lane].steps[s];
            model.steps += 1;
            model.local += step->kind == TTI_COPY || step->kind == TTI_REDUCE;
            model.touched += touched[step->kind] * step->nchunks / plan->chunks;
            model_add_copied(step, (double)step->nchunks / plan->chunks, &model.copied);
            model.messages += step->from >= 0;
            if (step->to >= 0)
                to |= UINT64_C(1) << step->to % 64;
        }
    model.receivers = __builtin_popcountll(to);
    return model;
}

static enum tutti_result model_plan(const struct tti_algorithm *algorithm,
                                    const struct tti_plan_spec *spec, int rank,
                                    struct tti_plan **plan)
{
    struct tti_plan_spec one = *spec;
    one.rank = rank;
    one.lanes = 1;
    one.slices = 1;
    return algorithm->plan(&one, plan);
}

/* ---- between hosts ---- */

/* One host's line. */
struct model_line {
    double in, out;
    int from; /* the host that it hears from; -1: none */
    bool contended;
};

static void model_add_plan(const struct tti_plan *plan, const int *host_of, int host,
                           struct model_line *line)
{
    for (int lane = 0; lane < plan->nlanes; lane++)
        for (size_t s = 0; s < plan->lanes[lane].count; s++) {
            const struct tti_step *step = &plan->lanes[lane].steps[s];
            double part = (double)step->nchunks / plan->chunks;
            if (step->to >= 0 && host_of[step->to] != host)
                line->out += part;
            if (step->from < 0 || host_of[step->from] == host)
                continue;
            line->in += part;
            line->contended |= line->from >= 0 && line->from != host_of[step->from];
            line->from = host_of[step->from];
        }
}

static enum tutti_result model_host(const struct tti_algorithm *algorithm,
                                    const struct tti_plan_spec *spec, int host,
                                    struct tti_work_model *model)
{
    struct model_line line = {.from = -1};
    for (int rank = 0; rank < spec->nranks; rank++) {
        struct tti_plan *plan = NULL;
        if (spec->layout.host_of[rank] != host)
            continue;
        TTI_TRY(model_plan(algorithm, spec, rank, &plan));
        model_add_plan(plan, spec->layout.host_of, host, &line);
        tti_plan_destroy(plan);
    }
    double busier = line.in > line.out ? line.in : line.out;
    model->crossing = busier > model->crossing ? busier : model->crossing;
    model->contended |= line.contended;
    return TUTTI_OK;
}

/* All hosts of small communicators, a few of large ones: the first has the root. */
static enum tutti_result model_hosts(const struct tti_algorithm *algorithm,
                                     const struct tti_plan_spec *spec, struct tti_work_model *model)
{
    enum { ALL_OF = 8 };
    int hosts = spec->layout.host_of ? spec->layout.nhosts : 1;
    int stride = hosts <= ALL_OF ? 1 : hosts / ALL_OF;
    for (int host = 0; hosts > 1 && host < hosts; host += stride)
        TTI_TRY(model_host(algorithm, spec, host, model));
    return TUTTI_OK;
}

/* The one with more that passes between cores, which is what takes long. */
static void model_busier(const struct tti_work_copied *copied, struct tti_work_copied *most)
{
    if (copied->passed > most->passed ||
        (copied->passed == most->passed && copied->own > most->own))
        *most = *copied;
}

enum tutti_result tti_work_model_of(const struct tti_algorithm *algorithm,
                                    const struct tti_plan_spec *spec, struct tti_work_model *model)
{
    enum { ALL_OF = 16 };
    int n = spec->nranks;
    int stride = n <= ALL_OF ? 1 : n / ALL_OF;
    struct tti_work_model most = {0};
    double sum = 0;
    int looked_at = 0;
    for (int rank = 0; rank < n; rank += stride) {
        struct tti_plan *plan = NULL;
        TTI_TRY(model_plan(algorithm, spec, rank, &plan));
        struct tti_work_model found = model_of_plan(plan);
        tti_plan_destroy(plan);
        if (found.steps > most.steps) {
            most.steps = found.steps;
            most.local = found.local;
        }
        if (found.touched > most.touched)
            most.touched = found.touched;
        if (found.messages > most.messages)
            most.messages = found.messages;
        if (found.receivers > most.receivers)
            most.receivers = found.receivers;
        model_busier(&found.copied, &most.copied);
        sum += found.touched;
        looked_at++;
    }
    most.evenness = most.touched > 0 ? sum / looked_at / most.touched : 1;
    TTI_TRY(model_hosts(algorithm, spec, &most));
    *model = most;
    return TUTTI_OK;
}
