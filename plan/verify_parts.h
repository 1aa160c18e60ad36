/* The verifier's parts, private to plan/verify*.c.
 *
 * verify_check.c reads one plan by itself; verify_wire.c and verify_run.c run all ranks on symbolic
 * values (verify_values.c); verify.c says what must come out. Nothing here is shared with build.c:
 * two readings of plan.h that agree are worth more than one. */
#ifndef TTI_PLAN_VERIFY_PARTS_H
#define TTI_PLAN_VERIFY_PARTS_H

#include "plan/verify.h"

/* ---- memory: one cell per chunk of every buffer of a rank; in place, IN and OUT share some ----
 */

struct tti_memory {
    uint32_t first[4]; /* cell of chunk 0 of each buffer, by enum tti_buffer */
    uint32_t size[4];  /* chunks of each buffer */
    uint32_t shared;   /* OUT chunks [out_from, out_from + shared) are IN's from in_from on */
    uint32_t in_from, out_from;
    uint32_t cells;
};

void tti_memory_of(const struct tti_plan *plan, bool in_place, struct tti_memory *memory);

static inline uint32_t tti_memory_cell(const struct tti_memory *memory, uint32_t buffer,
                                       uint32_t index)
{
    if (buffer == TTI_OUT && index - memory->out_from < memory->shared)
        return memory->first[TTI_IN] + memory->in_from + (index - memory->out_from);
    return memory->first[buffer] + index;
}

/* ---- what a step is ---- */

static inline bool tti_step_receives(const struct tti_step *step)
{
    return step->kind == TTI_RECV || step->kind == TTI_RECV_REDUCE;
}

static inline bool tti_step_sends(const struct tti_step *step)
{
    return step->kind == TTI_SEND || (step->flags & TTI_FORWARD) != 0;
}

/* What a sending step sends. */
static inline struct tti_ref tti_step_sent(const struct tti_step *step)
{
    return step->kind == TTI_SEND ? step->src : step->dst;
}

static inline bool tti_step_reduces(const struct tti_step *step)
{
    return step->kind == TTI_REDUCE || step->kind == TTI_RECV_REDUCE;
}

/* Record an error of one step: "rank 2 lane 0 step 5 (recv ...): <what>". */
enum tutti_result tti_verify_fail(const struct tti_plan *plan, int lane, size_t step,
                                  const char *format, ...) __attribute__((format(printf, 4, 5)));

/* ---- one plan by itself (verify_check.c) ----
 * Refs, flags and peers are well formed; slots are read as what they were written; hazards cover
 * every send; lanes do not touch what another writes. */
enum tutti_result tti_verify_check(const struct tti_plan *plan);

/* ---- symbolic values (verify_values.c) ----
 * A value is what one chunk of memory holds: chunk `chunk` of IN combined over a set of ranks.
 * Equal values have equal ids; id 0 is memory that nobody wrote. */
struct tti_value {
    uint32_t chunk;  /* index in IN that it stems from */
    uint32_t set;    /* the ranks that contributed */
    uint32_t count;  /* how many ranks */
    bool final;      /* went through TTI_FINAL */
    uint64_t order;  /* hash of the expression: which operand was combined with which, in order */
    uint32_t prefix; /* k: exactly c_0 op ... op c_{k-1}, from the left; 0: anything else */
};

struct tti_values;

enum tutti_result tti_values_create(int nranks, struct tti_values **values);
void tti_values_destroy(struct tti_values *values);
/* The pointer is good until the next call that makes a value. */
const struct tti_value *tti_value_at(const struct tti_values *values, uint32_t id);
/* Does the value hold the contribution of `rank`? */
bool tti_value_has(const struct tti_values *values, uint32_t id, int rank);
/* Lowest rank in both values' sets, -1 if none. */
int tti_value_common(const struct tti_values *values, uint32_t a, uint32_t b);
/* Lowest rank that is not in the set, -1 if complete. */
int tti_value_lacks(const struct tti_values *values, uint32_t id);
/* What rank `rank` contributes to chunk `chunk`. */
enum tutti_result tti_value_raw(struct tti_values *values, int rank, uint32_t chunk, uint32_t *id);
/* left (op) right; both stem from the same chunk. */
enum tutti_result tti_value_reduce(struct tti_values *values, uint32_t left, uint32_t right,
                                   uint32_t *id);
enum tutti_result tti_value_finish(struct tti_values *values, uint32_t value, uint32_t *id);

/* ---- all plans together (verify_run.c) ---- */

enum tti_channel_model {
    TTI_CHANNEL_ONE,  /* holds one message, copied at send; a send waits for room */
    TTI_CHANNEL_NONE, /* holds nothing: the receiver reads the sender's memory when it takes */
};

struct tti_run;

/* `values` and `plans` are used until destroy. */
enum tutti_result tti_run_create(struct tti_plan *const *plans, int nranks,
                                 struct tti_values *values, struct tti_run **run);
void tti_run_destroy(struct tti_run *run);
/* Run all lanes to the end; counts are added to `stats`. */
enum tutti_result tti_run_all(struct tti_run *run, enum tti_channel_model model, bool in_place,
                              struct tti_verify_stats *stats);
/* After a run: the value of chunk `index` of OUT at `rank`. */
uint32_t tti_run_out(const struct tti_run *run, int rank, uint32_t index);

#endif
