/* The outcome of a selection (coll/select.h). */
#ifndef TTI_COLL_SELECTION_H
#define TTI_COLL_SELECTION_H

#include "coll/work_model.h"
#include "plan/plan.h"

enum { TTI_MOST_ALGORITHMS = 32 }; /* of one collective: what fits into a tag */

struct tti_selection {
    const struct tti_algorithm *algorithm;
    int index; /* of the algorithm within its collective: part of the tag */
    struct tti_plan_spec spec;
    double predicted_s;
    size_t count; /* what it was made for */
    enum tutti_type type;
};

#endif
