/* Counting the work in plans (coll/work_model.h). */
#include "coll/work_model.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

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
                                    const struct tti_plan_spec *spec, int rank, int lanes,
                                    struct tti_plan **plan)
{
    struct tti_plan_spec one = *spec;
    one.rank = rank;
    one.lanes = lanes;
    one.slices = 1;
    return algorithm->plan(&one, plan);
}

/* ---- between hosts ---- */

/* One host's line: what its gates carry (layout.gates; one, where nothing is known of them). */
struct model_line {
    double *in, *out; /* by gate, of all hosts */
    int gates;
    int from; /* the host that it hears from; -1: none */
    bool contended;
};

static void model_add_plan(const struct tti_plan *plan, const int *host_of, int host, int gate,
                           struct model_line *line)
{
    for (int lane = 0; lane < plan->nlanes; lane++)
        for (size_t s = 0; s < plan->lanes[lane].count; s++) {
            const struct tti_step *step = &plan->lanes[lane].steps[s];
            double part = (double)step->nchunks / plan->chunks;
            if (step->to >= 0 && host_of[step->to] != host)
                line->out[gate] += part;
            if (step->from < 0 || host_of[step->from] == host)
                continue;
            line->in[gate] += part;
            line->contended |= line->from >= 0 && line->from != host_of[step->from];
            line->from = host_of[step->from];
        }
}

/* How many of the gates are of this host, and what the busiest of them carries one way. */
static double model_busiest(const struct tti_layout *layout, int nranks, int host,
                            const struct model_line *line)
{
    double most = 0;
    int gates = 0, last = -1; /* gates are numbered by their lowest rank */
    for (int rank = 0; rank < nranks; rank++) {
        const int gate = layout->gates.of ? layout->gates.of[rank] : 0;
        if (layout->host_of[rank] != host)
            continue;
        gates += gate > last;
        last = gate > last ? gate : last;
        most = line->in[gate] > most ? line->in[gate] : most;
        most = line->out[gate] > most ? line->out[gate] : most;
    }
    return most * gates;
}

/* With so many lanes: *crossing grows to this host's, *contended becomes true if it is. */
static enum tutti_result model_host(const struct tti_algorithm *algorithm,
                                    const struct tti_plan_spec *spec, int host, int lanes,
                                    struct model_line *line, double *crossing, bool *contended)
{
    const struct tti_layout *layout = &spec->layout;
    memset(line->in, 0, 2 * (size_t)line->gates * sizeof *line->in); /* out behind it */
    line->from = -1;
    line->contended = false;
    for (int rank = 0; rank < spec->nranks; rank++) {
        struct tti_plan *plan = NULL;
        if (layout->host_of[rank] != host)
            continue;
        TTI_TRY(model_plan(algorithm, spec, rank, lanes, &plan));
        model_add_plan(plan, layout->host_of, host, layout->gates.of ? layout->gates.of[rank] : 0,
                       line);
        tti_plan_destroy(plan);
    }
    const double busiest = model_busiest(layout, spec->nranks, host, line);
    *crossing = busiest > *crossing ? busiest : *crossing;
    *contended |= line->contended;
    return TUTTI_OK;
}

static enum tutti_result model_hosts_with(const struct tti_algorithm *algorithm,
                                          const struct tti_plan_spec *spec, int lanes,
                                          struct model_line *line, struct tti_work_model *model)
{
    enum { ALL_OF = 8 };
    const int hosts = spec->layout.nhosts, stride = hosts <= ALL_OF ? 1 : hosts / ALL_OF;
    double *crossing = lanes > 1 ? &model->turned : &model->crossing;
    for (int host = 0; host < hosts; host += stride)
        TTI_TRY(model_host(algorithm, spec, host, lanes, line, crossing, &model->contended));
    return TUTTI_OK;
}

/* All hosts of small communicators, a few of large ones: the first has the root. */
static enum tutti_result model_hosts(const struct tti_algorithm *algorithm,
                                     const struct tti_plan_spec *spec, struct tti_work_model *model)
{
    const struct tti_layout *layout = &spec->layout;
    if (!layout->host_of || layout->nhosts < 2)
        return TUTTI_OK;
    struct model_line line = {.gates = layout->gates.of ? layout->gates.count : 1};
    line.in = tti_calloc(2 * (size_t)line.gates, sizeof *line.in);
    if (!line.in)
        return TUTTI_ERR_MEMORY;
    line.out = line.in + line.gates;
    enum tutti_result result = model_hosts_with(algorithm, spec, 1, &line, model);
    model->turned = model->crossing;
    if (result == TUTTI_OK && layout->gates.of && algorithm->turns) {
        model->turned = 0;
        result = model_hosts_with(algorithm, spec, layout->gates.most, &line, model);
    }
    free(line.in);
    return result;
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
        TTI_TRY(model_plan(algorithm, spec, rank, 1, &plan));
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
