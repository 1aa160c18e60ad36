/* Buckets: which gradients lie where (ddp/ddp_state.h).
 *
 * Tensors are dealt to buckets in the order in which they become ready. A bucket holds one type and
 * is closed when it has its bytes; the first of each type is small, so that communication starts
 * early, and the last, so that little is left to send when the backward pass is over. Buckets are
 * numbered in the order in which they are full. Everything here depends only on what all ranks know
 * alike. Read next: ddp_step.c. */
#include "base/memory.h"
#include "ddp/ddp_state.h"
#include "device/reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What tti_ddp_layout makes, before it takes the old one's place. */
struct layout {
    struct tti_ddp_bucket *buckets;
    size_t count, capacity;
    void *gradients;
    size_t bytes, room; /* what they need, and have */
    bool kept;          /* gradients are those of the layout before */
    struct tti_ddp_range *schedule;
    size_t schedule_count;
    int *bucket_of;    /* by tensor */
    size_t *offset_of; /* by tensor */
};

static size_t layout_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* Elements to whose multiples tensors are aligned. */
static size_t layout_align(size_t element)
{
    return element < TTI_DDP_ALIGN / TTI_DDP_GROUP ? TTI_DDP_ALIGN / element : TTI_DDP_GROUP;
}

static void layout_release(struct tutti_ddp *ddp, struct layout *l)
{
    for (size_t b = 0; b < l->count; b++) {
        free(l->buckets[b].members);
        free(l->buckets[b].offsets);
        free(l->buckets[b].chunks);
        if (l->buckets[b].full)
            ddp->gpu->ops->event_destroy(l->buckets[b].full);
        if (l->buckets[b].given)
            ddp->gpu->ops->event_destroy(l->buckets[b].given);
    }
    free(l->buckets);
    free(l->schedule);
    free(l->bucket_of);
    free(l->offset_of);
    if (!l->kept)
        tti_ddp_free(ddp, l->gradients);
}

static enum tutti_result layout_open(struct layout *l, enum tutti_type type, int unit,
                                     size_t members, int *bucket)
{
    TTI_TRY(tti_grow((void **)&l->buckets, &l->capacity, l->count + 1, sizeof *l->buckets));
    struct tti_ddp_bucket *b = &l->buckets[l->count];
    memset(b, 0, sizeof *b);
    b->type = type;
    b->needed = SIZE_MAX;
    b->unit = unit;
    *bucket = (int)l->count++;
    b->members = tti_calloc(members, sizeof *b->members);
    b->offsets = tti_calloc(members, sizeof *b->offsets);
    if (!b->members || !b->offsets)
        return TUTTI_ERR_MEMORY;
    return TUTTI_OK;
}

/* The last gradients of a type, which fit into a small bucket. */
struct layout_tail {
    size_t place; /* of the first of them in the order */
    size_t bytes; /* of all of them ... */
    size_t early; /* ... and of all but the very last */
};

static void layout_tails(const struct tutti_ddp *ddp, const size_t *order,
                         struct layout_tail tails[TUTTI_TYPE_COUNT])
{
    for (int t = 0; t < TUTTI_TYPE_COUNT; t++)
        tails[t] = (struct layout_tail){.place = SIZE_MAX};
    for (size_t k = ddp->trained_count; k-- > 0;) {
        const struct tti_ddp_tensor *t = &ddp->tensors[order[k]];
        struct layout_tail *tail = &tails[t->type];
        const size_t bytes = t->elements * tutti_type_size(t->type);
        const bool first = tail->place == SIZE_MAX;
        tail->bytes += bytes;
        if (!first && tail->bytes > ddp->options.last_bucket_bytes)
            continue; /* and so are all before it */
        tail->place = k;
        tail->early += first ? 0 : bytes;
    }
}

/* Does a bucket end here, before tensor number `k` of the order, though it is not full? */
static bool layout_cuts(const struct tutti_ddp *ddp, const struct tti_ddp_bucket *b,
                        const struct tti_ddp_tensor *t, size_t k, const struct layout_tail *tail,
                        size_t most)
{
    if (ddp->options.zero == 3 && b->unit != t->unit)
        return true;
    /* The last bucket is a small one, unless it becomes smaller yet without this. */
    return k == tail->place && b->elements * tutti_type_size(t->type) + tail->early < most;
}

/* Deal tensors to buckets. `open` holds the bucket being filled, by type. */
static enum tutti_result layout_deal(const struct tutti_ddp *ddp, const size_t *order,
                                     struct layout *l)
{
    int open[TUTTI_TYPE_COUNT];
    bool opened[TUTTI_TYPE_COUNT] = {false};
    struct layout_tail tails[TUTTI_TYPE_COUNT];
    layout_tails(ddp, order, tails);
    for (int t = 0; t < TUTTI_TYPE_COUNT; t++)
        open[t] = TTI_DDP_NONE;
    for (size_t k = 0; k < ddp->trained_count; k++) {
        const struct tti_ddp_tensor *t = &ddp->tensors[order[k]];
        size_t element = tutti_type_size(t->type);
        size_t most = opened[t->type] ? ddp->options.bucket_bytes : ddp->options.first_bucket_bytes;
        if (open[t->type] != TTI_DDP_NONE &&
            layout_cuts(ddp, &l->buckets[open[t->type]], t, k, &tails[t->type], most))
            open[t->type] = TTI_DDP_NONE;
        if (open[t->type] == TTI_DDP_NONE)
            TTI_TRY(layout_open(l, t->type, t->unit, ddp->trained_count - k, &open[t->type]));
        struct tti_ddp_bucket *b = &l->buckets[open[t->type]];
        b->members[b->member_count] = order[k];
        b->offsets[b->member_count++] = b->elements;
        b->needed = order[k] < b->needed ? order[k] : b->needed;
        l->bucket_of[order[k]] = open[t->type];
        l->offset_of[order[k]] = b->elements;
        b->elements += layout_up(t->elements, layout_align(element));
        if (b->elements * element >= most) {
            open[t->type] = TTI_DDP_NONE;
            opened[t->type] = true;
        }
    }
    return TUTTI_OK;
}

/* Number buckets by their last members: the order in which they are full. */
static void layout_number(const struct tutti_ddp *ddp, const size_t *order, struct layout *l)
{
    size_t done = 0;
    for (size_t k = 0; k < ddp->trained_count; k++) {
        int b = l->bucket_of[order[k]];
        struct tti_ddp_bucket full = l->buckets[b];
        if (full.members[full.member_count - 1] != order[k])
            continue;
        /* Move it to place `done`; those between keep their order. */
        for (int i = b; i > (int)done; i--)
            l->buckets[i] = l->buckets[i - 1];
        l->buckets[done++] = full;
        for (size_t i = 0; i < l->count; i++)
            for (size_t m = 0; m < l->buckets[i].member_count; m++)
                l->bucket_of[l->buckets[i].members[m]] = (int)i;
    }
}

static enum tutti_result layout_chunks(const struct tutti_ddp *ddp, struct tti_ddp_bucket *b)
{
    size_t ranks = (size_t)ddp->group_size;
    size_t blocks = ranks * TTI_DDP_ALIGN; /* elements: whole lines and groups, whatever the type */
    size_t most = ddp->by_bucket ? SIZE_MAX : ddp->options.chunk_bytes / tutti_type_size(b->type);
    b->elements = layout_up(b->elements, blocks);
    size_t each = most > b->elements ? b->elements
                  : most < blocks    ? blocks
                                     : most / blocks * blocks;
    b->chunk_count = (b->elements + each - 1) / each;
    b->chunks = tti_calloc(b->chunk_count, sizeof *b->chunks);
    if (!b->chunks)
        return TUTTI_ERR_MEMORY;
    for (size_t c = 0; c < b->chunk_count; c++) {
        size_t first = c * each;
        size_t count = b->elements - first < each ? b->elements - first : each;
        b->chunks[c] = (struct tti_ddp_chunk){first, count, count / ranks, false};
    }
    return TUTTI_OK;
}

/* Of gradients that are always there: all of them, or this rank's blocks. */
static size_t layout_bytes(const struct tutti_ddp *ddp, const struct tti_ddp_bucket *b)
{
    size_t shards = ddp->options.zero >= 2 ? (size_t)ddp->group_size : 1;
    return b->elements / shards * tutti_type_size(b->type);
}

/* Buckets that are made anew lie where those before them did: nothing there is wanted any more, so
 * there is never twice the memory. Other buckets end elsewhere, and what lies behind tensors may be
 * more; there is some room for that where they can be made anew. */
static enum tutti_result layout_gradients(struct tutti_ddp *ddp, struct layout *l)
{
    const size_t behind = (size_t)ddp->group_size * TTI_DDP_ALIGN * sizeof(double);
    l->kept = ddp->gradients && l->bytes <= ddp->gradient_room;
    if (l->kept) {
        l->gradients = ddp->gradients;
        l->room = ddp->gradient_room;
        return TUTTI_OK;
    }
    l->room = l->bytes + (ddp->options.zero == 0 ? (l->count + 1) * behind : 0);
    return tti_ddp_alloc(ddp, l->room, &l->gradients);
}

static enum tutti_result layout_memory(struct tutti_ddp *ddp, struct layout *l)
{
    size_t bytes = 0;
    for (size_t b = 0; b < l->count; b++) {
        TTI_TRY(layout_chunks(ddp, &l->buckets[b]));
        TTI_TRY(tti_ddp_device_events(ddp, &l->buckets[b]));
        bytes += layout_bytes(ddp, &l->buckets[b]);
        l->schedule_count += l->buckets[b].chunk_count;
    }
    l->bytes = bytes;
    TTI_TRY(layout_gradients(ddp, l));
    l->schedule = tti_calloc(l->schedule_count, sizeof *l->schedule);
    if (!l->schedule)
        return TUTTI_ERR_MEMORY;
    char *at = l->gradients;
    for (size_t b = 0, k = 0; b < l->count; b++) {
        if (ddp->options.zero >= 2)
            l->buckets[b].shard = at;
        else
            l->buckets[b].gradient = at;
        at += layout_bytes(ddp, &l->buckets[b]);
        for (size_t c = 0; c < l->buckets[b].chunk_count; c++)
            l->schedule[k++] = (struct tti_ddp_range){(int)b, c};
    }
    return TUTTI_OK;
}

static enum tutti_result layout_make(struct tutti_ddp *ddp, const size_t *order, struct layout *l)
{
    l->bucket_of = tti_calloc(ddp->tensor_count, sizeof *l->bucket_of);
    l->offset_of = tti_calloc(ddp->tensor_count, sizeof *l->offset_of);
    if (!l->bucket_of || !l->offset_of)
        return TUTTI_ERR_MEMORY;
    TTI_TRY(layout_deal(ddp, order, l));
    layout_number(ddp, order, l);
    return layout_memory(ddp, l);
}

/* One piece for each trained tensor, in the order of the list, which never changes. */
static void layout_pieces(struct tutti_ddp *ddp)
{
    size_t state = 0, k = 0;
    for (size_t i = 0; i < ddp->tensor_count; i++) {
        const struct tti_ddp_tensor *t = &ddp->tensors[i];
        if (t->bucket == TTI_DDP_NONE)
            continue;
        const struct tti_ddp_bucket *b = &ddp->buckets[t->bucket];
        ddp->pieces[k++] = (struct tutti_ddp_piece){
            .index = i,
            .count = t->elements,
            .value = t->value,
            .gradient = b->gradient + t->offset * tutti_type_size(t->type),
            .state = state,
        };
        state += t->elements;
    }
    ddp->piece_count = k;
    ddp->piece_elements = state;
}

enum tutti_result tti_ddp_layout(struct tutti_ddp *ddp, const size_t *order)
{
    struct layout l = {0};
    enum tutti_result result = layout_make(ddp, order, &l);
    if (result == TUTTI_OK && !ddp->pieces &&
        !(ddp->pieces = tti_calloc(ddp->trained_count + l.schedule_count, sizeof *ddp->pieces)))
        result = TUTTI_ERR_MEMORY;
    if (result == TUTTI_OK && l.kept)
        result = tti_ddp_zero(ddp, l.gradients, l.bytes, ddp->options.stream);
    if (result != TUTTI_OK) {
        layout_release(ddp, &l);
        return result;
    }
    struct layout old = {.buckets = ddp->buckets,
                         .count = ddp->bucket_count,
                         .gradients = ddp->gradients,
                         .kept = l.kept,
                         .schedule = ddp->schedule};
    ddp->buckets = l.buckets;
    ddp->bucket_count = l.count;
    ddp->gradients = l.gradients;
    ddp->gradient_room = l.room;
    ddp->gradient_bytes = l.bytes;
    ddp->gradient_bytes_most =
        l.bytes > ddp->gradient_bytes_most ? l.bytes : ddp->gradient_bytes_most;
    ddp->schedule = l.schedule;
    ddp->schedule_count = l.schedule_count;
    for (size_t k = 0; k < ddp->trained_count; k++) {
        ddp->tensors[order[k]].bucket = l.bucket_of[order[k]];
        ddp->tensors[order[k]].offset = l.offset_of[order[k]];
    }
    free(l.bucket_of);
    free(l.offset_of);
    if (ddp->options.on_device && old.gradients && !old.kept) { /* see ddp_device.c */
        ddp->retired = old.gradients;
        old.gradients = NULL;
    }
    layout_release(ddp, &old);
    if (ddp->options.zero > 0)
        return tti_ddp_shard_values(ddp);
    layout_pieces(ddp);
    return TUTTI_OK;
}

void tti_ddp_layout_free(struct tutti_ddp *ddp)
{
    struct layout old = {.buckets = ddp->buckets,
                         .count = ddp->bucket_count,
                         .gradients = ddp->gradients,
                         .schedule = ddp->schedule};
    layout_release(ddp, &old);
    free(ddp->pieces);
}

void tti_ddp_bucket_text(const struct tutti_ddp *ddp, int bucket, char *text, size_t bytes)
{
    const struct tti_ddp_bucket *b = &ddp->buckets[bucket];
    snprintf(text, bytes, "bucket %d (%.80s .. %.80s)", bucket, ddp->tensors[b->members[0]].name,
             ddp->tensors[b->members[b->member_count - 1]].name);
}

/* ---- scaling ---- */

static void layout_scale(void *data, enum tutti_type type, size_t count, double factor,
                         double divisor)
{
    if (type == TUTTI_FLOAT64) {
        double *d = data;
        for (size_t i = 0; i < count; i++)
            d[i] = d[i] * factor / divisor;
        return;
    }
    enum { BLOCK = 1024 };
    float widened[BLOCK], f = (float)factor, by = (float)divisor;
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t n = count - at < BLOCK ? count - at : BLOCK;
        void *part = (char *)data + at * tutti_type_size(type);
        float *d = type == TUTTI_FLOAT32 ? part : widened;
        if (type != TUTTI_FLOAT32)
            tti_convert(d, TUTTI_FLOAT32, part, type, n, NULL);
        if (by == 1) /* as clipping does: the same without the division */
            for (size_t i = 0; i < n; i++)
                d[i] *= f;
        else
            for (size_t i = 0; i < n; i++)
                d[i] = d[i] * f / by;
        if (type != TUTTI_FLOAT32)
            tti_convert(part, type, d, TUTTI_FLOAT32, n, NULL);
    }
}

enum tutti_result tti_ddp_scale(struct tutti_ddp *ddp, double factor, double divisor)
{
    for (size_t i = 0; i < ddp->piece_count; i++) {
        const struct tutti_ddp_piece *p = &ddp->pieces[i];
        const enum tutti_type type = ddp->tensors[p->index].type;
        if (ddp->options.on_device)
            TTI_TRY(tti_ddp_device_scale(ddp, p->gradient, type, p->count, factor, divisor));
        else
            layout_scale(p->gradient, type, p->count, factor, divisor);
    }
    return TUTTI_OK;
}
