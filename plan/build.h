/* Writing a plan: an algorithm calls begin, then the step functions in each lane's order, then
 * finish. Memory errors are remembered and reported by finish, so the calls in between need no
 * checks. Each step function appends one step to `lane` over chunks [chunk, chunk + n). */
#ifndef TTI_PLAN_BUILD_H
#define TTI_PLAN_BUILD_H

#include "plan/plan.h"

struct tti_builder {
    struct tti_plan *plan;
    bool failed; /* an allocation failed; finish reports it */
};

/* `lanes` may differ from spec->lanes when the algorithm needs more or fewer. */
void tti_plan_begin(struct tti_builder *builder, const struct tti_plan_spec *spec, int lanes,
                    uint32_t chunks, uint32_t scratch_blocks, uint32_t slots);
/* Fill in hazards and peers, hand the plan over. On failure everything is released. */
enum tutti_result tti_plan_finish(struct tti_builder *builder, struct tti_plan **plan);

static inline struct tti_ref tti_in(uint32_t index)
{
    return (struct tti_ref){TTI_IN, index};
}
static inline struct tti_ref tti_out(uint32_t index)
{
    return (struct tti_ref){TTI_OUT, index};
}
static inline struct tti_ref tti_scratch(uint32_t index)
{
    return (struct tti_ref){TTI_SCRATCH, index};
}
static inline struct tti_ref tti_slot(uint32_t index)
{
    return (struct tti_ref){TTI_SLOT, index};
}

/* `chunk` is given for every step, since SLOT refs do not tell it; for IN, OUT and SCRATCH refs it
 * must equal index % chunks. `flags` as enum tti_step_flag; `to` is read with TTI_FORWARD only
 * (pass -1 otherwise). n = 0 appends nothing. */
void tti_copy(struct tti_builder *builder, int lane, uint32_t chunk, uint32_t n, struct tti_ref src,
              struct tti_ref dst, int flags, int to);
void tti_reduce_step(struct tti_builder *builder, int lane, uint32_t chunk, uint32_t n,
                     struct tti_ref src, struct tti_ref src2, struct tti_ref dst, int flags,
                     int to);
void tti_send(struct tti_builder *builder, int lane, uint32_t chunk, uint32_t n, struct tti_ref src,
              int to);
void tti_recv(struct tti_builder *builder, int lane, uint32_t chunk, uint32_t n, int from,
              struct tti_ref dst, int flags, int to);
void tti_recv_reduce(struct tti_builder *builder, int lane, uint32_t chunk, uint32_t n, int from,
                     struct tti_ref src, struct tti_ref dst, int flags, int to);

#endif
