/* A plan as text for people: one step a line. */
#ifndef TTI_PLAN_PRINT_H
#define TTI_PLAN_PRINT_H

#include "plan/plan.h"

#include <stdio.h>

enum { TTI_STEP_TEXT_BYTES = 256 }; /* holds any step */

/* "IN", "OUT", "SCRATCH", "SLOT". */
const char *tti_buffer_name(unsigned buffer);
/* "copy", "reduce", "send", "recv", "recv_reduce"; "?" for a kind that does not exist. */
const char *tti_step_kind_name(unsigned kind);
/* One step on one line, as "recv_reduce SLOT[1] = IN[3] + message <- 1 -> 3 acc"; operands stand
 * in the order in which they are combined. Writes at most `bytes` (> 0) and returns `text`. */
const char *tti_step_text(const struct tti_step *step, char *text, size_t bytes);
/* The whole plan: a line of facts, then each lane's steps in aligned columns. */
enum tutti_result tti_plan_print(const struct tti_plan *plan, FILE *file);

#endif
