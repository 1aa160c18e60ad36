/* Counting the work in plans (coll/work_model.h). */
#include "coll/work_model.h"

static struct tti_work_model model_of_plan(const struct tti_plan *plan)
{
    static const double touched[] = {
        [TTI_COPY] = 2, [TTI_REDUCE] = 3, [TTI_SEND] = 0, [TTI_RECV] = 2, [TTI_RECV_REDUCE] = 3};
    struct tti_work_model model = {0};
    for (int lane = 0; lane < plan->nlanes; lane++)
        for (size_t s = 0; s < plan->lanes[lane].count; s++) {
            const struct tti_step *step = &plan->lanes[lane].steps[s];
            model.steps += 1;
            model.touched += touched[step->kind] * step->nchunks / plan->chunks;
        }
    return model;
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
        struct tti_plan_spec one = *spec;
        struct tti_plan *plan = NULL;
        one.rank = rank;
        one.lanes = 1;
        one.slices = 1;
        TTI_TRY(algorithm->plan(&one, &plan));
        struct tti_work_model found = model_of_plan(plan);
        tti_plan_destroy(plan);
        if (found.steps > most.steps)
            most.steps = found.steps;
        if (found.touched > most.touched)
            most.touched = found.touched;
        sum += found.touched;
        looked_at++;
    }
    most.evenness = most.touched > 0 ? sum / looked_at / most.touched : 1;
    *model = most;
    return TUTTI_OK;
}
