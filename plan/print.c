/* A plan as text (plan/print.h). */
#include "plan/print.h"

#include <string.h>

enum { PRINT_REF = 48, PRINT_WORK = 160, PRINT_TAIL = 64 };

const char *tti_buffer_name(unsigned buffer)
{
    static const char *const names[] = {"IN", "OUT", "SCRATCH", "SLOT"};
    return buffer < 4 ? names[buffer] : "?";
}

const char *tti_step_kind_name(unsigned kind)
{
    static const char *const names[] = {"copy", "reduce", "send", "recv", "recv_reduce"};
    return kind < sizeof names / sizeof names[0] ? names[kind] : "?";
}

static const char *print_ref(struct tti_ref ref, uint32_t n, char *text)
{
    if (n == 1)
        snprintf(text, PRINT_REF, "%s[%u]", tti_buffer_name(ref.buffer), ref.index);
    else
        snprintf(text, PRINT_REF, "%s[%u..%u]", tti_buffer_name(ref.buffer), ref.index,
                 ref.index + n - 1);
    return text;
}

/* What is computed: "OUT[1] = IN[1] + message". */
static void print_work(const struct tti_step *step, char *text)
{
    char src[PRINT_REF], src2[PRINT_REF], dst[PRINT_REF];
    print_ref(step->src, step->nchunks, src);
    print_ref(step->src2, step->nchunks, src2);
    print_ref(step->dst, step->nchunks, dst);
    switch (step->kind) {
    case TTI_SEND:
        snprintf(text, PRINT_WORK, "%s", src);
        break;
    case TTI_COPY:
        snprintf(text, PRINT_WORK, "%s = %s", dst, src);
        break;
    case TTI_REDUCE:
        snprintf(text, PRINT_WORK, "%s = %s + %s", dst, src, src2);
        break;
    case TTI_RECV:
        snprintf(text, PRINT_WORK, "%s = message", dst);
        break;
    case TTI_RECV_REDUCE:
        if (step->flags & TTI_MSG_LEFT)
            snprintf(text, PRINT_WORK, "%s = message + %s", dst, src);
        else
            snprintf(text, PRINT_WORK, "%s = %s + message", dst, src);
        break;
    default:
        snprintf(text, PRINT_WORK, "kind %d", step->kind);
    }
}

/* Flags and hazard, each with a space before it. */
static void print_tail(const struct tti_step *step, char *text)
{
    int used = snprintf(text, PRINT_TAIL, "%s%s", step->flags & TTI_MSG_ACC ? " acc" : "",
                        step->flags & TTI_FINAL ? " final" : "");
    if (step->hazard >= 0)
        snprintf(text + used, (size_t)(PRINT_TAIL - used), " after send %d", step->hazard);
}

static void print_peer(const char *arrow, int peer, char *text, size_t bytes)
{
    if (peer >= 0)
        snprintf(text, bytes, " %s %d", arrow, peer);
    else
        text[0] = '\0';
}

const char *tti_step_text(const struct tti_step *step, char *text, size_t bytes)
{
    char work[PRINT_WORK], tail[PRINT_TAIL], from[24], to[24];
    print_work(step, work);
    print_tail(step, tail);
    print_peer("<-", step->from, from, sizeof from);
    print_peer("->", step->to, to, sizeof to);
    snprintf(text, bytes, "%s %s%s%s%s", tti_step_kind_name(step->kind), work, from, to, tail);
    return text;
}

static int plan_print_width(const struct tti_plan *plan)
{
    int widest = 0;
    char work[PRINT_WORK];
    for (int lane = 0; lane < plan->nlanes; lane++)
        for (size_t s = 0; s < plan->lanes[lane].count; s++) {
            print_work(&plan->lanes[lane].steps[s], work);
            int width = (int)strlen(work);
            widest = width > widest ? width : widest;
        }
    return widest;
}

static void print_head(const struct tti_plan *plan, FILE *file)
{
    const struct tti_plan_spec *spec = &plan->spec;
    fprintf(file, "%s: rank %d of %d, root %d; blocks of %u chunk%s",
            tutti_collective_name(spec->collective), spec->rank, spec->nranks, spec->root,
            plan->chunks, plan->chunks == 1 ? "" : "s");
    if (plan->scratch_blocks)
        fprintf(file, ", %u in scratch", plan->scratch_blocks);
    if (plan->slots)
        fprintf(file, ", %u slot%s", plan->slots, plan->slots == 1 ? "" : "s");
    fprintf(file, "; peers");
    for (int i = 0; i < plan->npeers; i++)
        fprintf(file, " %d", plan->peers[i]);
    fprintf(file, plan->npeers ? "\n" : " none\n");
}

enum tutti_result tti_plan_print(const struct tti_plan *plan, FILE *file)
{
    print_head(plan, file);
    int width = plan_print_width(plan);
    for (int lane = 0; lane < plan->nlanes; lane++) {
        fprintf(file, "lane %d\n", lane);
        for (size_t s = 0; s < plan->lanes[lane].count; s++) {
            const struct tti_step *step = &plan->lanes[lane].steps[s];
            char work[PRINT_WORK], tail[PRINT_TAIL], from[24], to[24], line[320];
            print_work(step, work);
            print_tail(step, tail);
            print_peer("<-", step->from, from, sizeof from);
            print_peer("->", step->to, to, sizeof to);
            int used = snprintf(line, sizeof line, "%6zu  %-11s %-*s %-8s %-8s%s", s,
                                tti_step_kind_name(step->kind), width, work, from, to, tail);
            while (used > 0 && used < (int)sizeof line && line[used - 1] == ' ')
                line[--used] = '\0';
            fprintf(file, "%s\n", line);
        }
    }
    if (fflush(file) != 0 || ferror(file))
        return TTI_FAIL(TUTTI_ERR_SYSTEM, "writing a plan as text: the output failed");
    return TUTTI_OK;
}
