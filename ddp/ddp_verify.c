/* Do all ranks train the same model, with the same settings? (ddp/ddp_state.h)
 *
 * Each rank describes what was registered as text, a line for the settings and one for each tensor.
 * All compare theirs with rank 0's; the lowest rank that differs tells everybody both lines. So
 * every rank fails, at once, with the same words. Read next: ddp_layout.c. */
#include "base/memory.h"
#include "ddp/ddp_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERIFY_LINE = 350 };

static void verify_shape(const struct tti_ddp_tensor *t, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "[");
    for (int d = 0; d < t->dims; d++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%zu", d ? ", " : "", t->shape[d]);
    snprintf(text + used, bytes - used, "] %s", tutti_type_name(t->type));
}

static void verify_tensor(FILE *out, const struct tti_ddp_tensor *t)
{
    static const char *const kinds[] = {"trained", "frozen", "a buffer"};
    char shape[256];
    verify_shape(t, shape, sizeof shape);
    for (const char *c = t->name; *c && c < t->name + 200; c++)
        fputc(*c == '\n' ? '_' : *c, out);
    fprintf(out, " %s, %s, unit %d, in %s memory\n", shape, kinds[t->kind], t->unit,
            t->owned ? "the library's" : "the caller's");
}

static void verify_options(FILE *out, const struct tutti_ddp_options *o)
{
    fprintf(out, "bucket_bytes %zu, first_bucket_bytes %zu, last_bucket_bytes %zu, ",
            o->bucket_bytes, o->first_bucket_bytes, o->last_bucket_bytes);
    fprintf(out, "chunk_bytes %zu, in_flight %d, ", o->chunk_bytes, o->in_flight);
    fprintf(out, "path %d, divisor %d, find_unused %d, static_graph %d, uneven %d, ", (int)o->path,
            (int)o->divisor, o->find_unused, o->static_graph, o->uneven);
    fprintf(out, "hook %d, power_rank %d, power_start %llu, ", (int)o->hook, o->power_rank,
            (unsigned long long)o->power_start);
    fprintf(out, "zero %d, shard_ranks %d, by_unit %d, prefetch %d, on_device %d\n", o->zero,
            o->shard_ranks, o->by_unit, o->prefetch, o->on_device);
}

/* The whole description; *bytes is without the NUL. */
static enum tutti_result verify_describe(const struct tutti_ddp *ddp, char **text, size_t *bytes)
{
    FILE *out = open_memstream(text, bytes);
    if (!out)
        return TTI_FAIL(TUTTI_ERR_MEMORY, "tutti_ddp_create: no memory to describe the model in");
    verify_options(out, &ddp->options);
    for (size_t i = 0; i < ddp->tensor_count; i++)
        verify_tensor(out, &ddp->tensors[i]);
    if (fclose(out) != 0)
        return TTI_FAIL(TUTTI_ERR_MEMORY, "tutti_ddp_create: no memory to describe the model in");
    return TUTTI_OK;
}

static int verify_line(const char *text, char line[VERIFY_LINE])
{
    size_t length = strcspn(text, "\n");
    snprintf(line, VERIFY_LINE, "%.*s", (int)(length < VERIFY_LINE ? length : VERIFY_LINE - 1),
             text);
    return text[length] ? (int)length + 1 : (int)length;
}

/* Compare with rank 0's; empty finding: the same. */
static void verify_compare(const char *mine, const char *zero, int rank, struct tti_error *f)
{
    char a[VERIFY_LINE], b[VERIFY_LINE];
    f->text[0] = '\0';
    for (size_t line = 0; *mine || *zero; line++) {
        zero += verify_line(zero, a);
        mine += verify_line(mine, b);
        if (strcmp(a, b) == 0)
            continue;
        if (line == 0)
            snprintf(f->text, sizeof f->text,
                     "the ranks were given different settings: rank 0 {%s}, rank %d {%s}", a, rank,
                     b);
        else if (!a[0] || !b[0])
            snprintf(f->text, sizeof f->text,
                     "the ranks registered different models: rank %d has a tensor number %zu (%s), "
                     "which rank %d has not",
                     a[0] ? 0 : rank, line - 1, a[0] ? a : b, a[0] ? rank : 0);
        else
            snprintf(f->text, sizeof f->text,
                     "the ranks registered different models: tensor number %zu is %s on rank 0, "
                     "but %s on rank %d",
                     line - 1, a, b, rank);
        return;
    }
}

enum tutti_result tti_ddp_tell(const struct tutti_ddp *ddp, bool mine, struct tti_error *told,
                               int *rank)
{
    int32_t lowest = mine ? ddp->rank : ddp->size;
    TTI_TRY(tutti_all_reduce(&lowest, &lowest, 1, TUTTI_INT32, TUTTI_MIN, ddp->control));
    if (lowest < ddp->size)
        TTI_TRY(tutti_broadcast(told, told, sizeof *told, TUTTI_UINT8, lowest, ddp->control));
    told->text[sizeof told->text - 1] = '\0';
    *rank = lowest;
    return TUTTI_OK;
}

/* What ranks found wrong in their own calls. */
static enum tutti_result verify_calls(const struct tutti_ddp *ddp, const struct tti_error *own)
{
    int culprit = 0;
    struct tti_error told = *own;
    TTI_TRY(tti_ddp_tell(ddp, own->code != TUTTI_OK, &told, &culprit));
    if (own->code != TUTTI_OK)
        return tti_error_restore(own);
    if (culprit < ddp->size)
        return TTI_FAIL(TUTTI_ERR_MISMATCH, "rank %d could not register its model: %.900s", culprit,
                        told.text);
    return TUTTI_OK;
}

static enum tutti_result verify_with(const struct tutti_ddp *ddp, const char *mine, size_t bytes,
                                     char *zero, size_t zero_bytes)
{
    struct tti_error finding = {0};
    int culprit = 0;
    if (ddp->rank == 0)
        memcpy(zero, mine, bytes);
    TTI_TRY(tutti_broadcast(zero, zero, zero_bytes, TUTTI_UINT8, 0, ddp->control));
    verify_compare(mine, zero, ddp->rank, &finding);
    TTI_TRY(tti_ddp_tell(ddp, finding.text[0], &finding, &culprit));
    if (culprit < ddp->size)
        return TTI_FAIL(TUTTI_ERR_MISMATCH, "%.900s; all ranks must register the same",
                        finding.text);
    return TUTTI_OK;
}

enum tutti_result tti_ddp_verify(const struct tutti_ddp *ddp, const struct tti_error *own)
{
    char *mine = NULL, *zero = NULL;
    size_t bytes = 0;
    TTI_TRY(verify_calls(ddp, own));
    enum tutti_result result = verify_describe(ddp, &mine, &bytes);
    uint64_t zero_bytes = bytes;
    if (result == TUTTI_OK)
        result = tutti_broadcast(&zero_bytes, &zero_bytes, 1, TUTTI_UINT64, 0, ddp->control);
    if (result == TUTTI_OK && !(zero = tti_calloc(zero_bytes + 1, 1)))
        result = TUTTI_ERR_MEMORY;
    if (result == TUTTI_OK)
        result = verify_with(ddp, mine, bytes, zero, zero_bytes);
    free(zero);
    free(mine);
    return result;
}
