/* The outcome of a selection (coll/select.h). */
#ifndef TTI_COLL_SELECTION_H
#define TTI_COLL_SELECTION_H

#include "coll/work_model.h"
#include "plan/plan.h"

#include <stdbool.h>

enum { TTI_MOST_ALGORITHMS = 16 }; /* of one collective: what fits into a tag */

/* Who runs the algorithm: the interpreter of its plan, or hand-written code that is equal to it. */
enum tti_path {
    TTI_PATH_PLAN,   /* executor.h, or small_plan.h with the same messages */
    TTI_PATH_FUSED,  /* fused.h: all ranks or none, so it is part of the tag */
    TTI_PATH_STAGED, /* staged.h: likewise */
};

struct tti_selection {
    const struct tti_algorithm *algorithm;
    enum tti_path path;
    bool refused; /* made because the fused path turned out not to serve (tti_select_plan) */
    int index;    /* of the algorithm within its collective: part of the tag */
    struct tti_plan_spec spec;
    double predicted_s; /* by the model, corrected by what was measured */
    double modelled_s;  /* by the model alone */
    bool measured;      /* this way was measured at sizes near this one */
    size_t count;       /* what it was made for */
    enum tutti_type type;
};

enum { TTI_MOST_WAYS = 48 };

/* Ways of doing one operation, the best first. */
struct tti_ways {
    int count;
    struct tti_selection way[TTI_MOST_WAYS];
};

#endif
