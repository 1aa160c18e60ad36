/* A picture of the plans of all ranks, as SVG. */
#ifndef TTI_PLAN_DRAW_H
#define TTI_PLAN_DRAW_H

#include "plan/plan.h"

#include <stdio.h>

enum { TTI_DRAW_RANKS = 64 }; /* more would be no picture any more */

/* A column for each rank with a sub-column for each lane; time runs downward in logical steps (a
 * step stands below the one before it in its lane and below the one that sends to it). Boxes are
 * coloured by kind, messages are lines in the colour of their first chunk. `title` may be NULL.
 * TUTTI_ERR_ARGUMENT: too many ranks; TUTTI_ERR_INTERNAL: a message that is waited for never
 * comes, so there is no order to draw; TUTTI_ERR_SYSTEM: the file cannot be written. */
enum tutti_result tti_plan_draw(struct tti_plan *const *plans, int nranks, const char *title,
                                FILE *file);

#endif
