/* The global norm of gradients, and clipping (tutti/ddp.h).
 *
 * The sum of squares is the same to the bit however gradients are sharded, bucketed or ordered:
 * first the largest magnitude is found, then squares are summed in groups of 16 elements, which no
 * cut divides, in double, and the groups in fixed point, where order does not matter. Scaling by
 * a power of two next to the largest magnitude is exact and leaves no room for overflow. */
#include "base/memory.h"
#include "coll/group.h"
#include "ddp/ddp_state.h"
#include "device/reduce.h"

#include <math.h>
#include <string.h>

enum {
    NORM_BLOCK = 64 * TTI_DDP_GROUP,
    NORM_POINT = 52,
    NORM_LIMBS = 3, /* of so many bits each is what ranks send each other: */
    NORM_LIMB = 40,
    NORM_TOGETHER = 8, /* what is added side by side */
};
static const double NORM_ONE = (double)((uint64_t)1 << NORM_POINT);

/* What is found over a piece. */
struct norm_sum {
    double largest; /* magnitude */
    double odd;     /* NaN if something is infinite or no number */
    double scale;   /* second pass: a power of two */
    unsigned __int128 squares;
};

static void norm_largest(const float *g, size_t count, struct norm_sum *sum)
{
    float largest[NORM_TOGETHER] = {0}, odd[NORM_TOGETHER] = {0};
    size_t at = 0;
    for (; count - at >= NORM_TOGETHER; at += NORM_TOGETHER)
        for (size_t k = 0; k < NORM_TOGETHER; k++) {
            const float magnitude = fabsf(g[at + k]);
            largest[k] = magnitude > largest[k] ? magnitude : largest[k];
            odd[k] += g[at + k] * 0.0f;
        }
    for (; at < count; at++) {
        largest[0] = fabsf(g[at]) > largest[0] ? fabsf(g[at]) : largest[0];
        odd[0] += g[at] * 0.0f;
    }
    for (size_t k = 0; k < NORM_TOGETHER; k++) {
        sum->largest = fmax(sum->largest, (double)largest[k]);
        sum->odd += (double)odd[k];
    }
}

/* Several groups at once, each in the order of its elements: one by one each addition would wait
 * for the one before it. */
static void norm_groups(const float *g, struct norm_sum *sum)
{
    double group[NORM_TOGETHER] = {0};
    for (size_t i = 0; i < TTI_DDP_GROUP; i++)
        for (size_t k = 0; k < NORM_TOGETHER; k++) {
            const double v = (double)g[k * TTI_DDP_GROUP + i] * sum->scale;
            group[k] += v * v;
        }
    for (size_t k = 0; k < NORM_TOGETHER; k++)
        sum->squares += (uint64_t)(group[k] * NORM_ONE);
}

static void norm_squares(const float *g, size_t count, struct norm_sum *sum)
{
    size_t at = 0;
    for (; count - at >= NORM_TOGETHER * TTI_DDP_GROUP; at += NORM_TOGETHER * TTI_DDP_GROUP)
        norm_groups(g + at, sum);
    for (; at < count; at += TTI_DDP_GROUP) {
        double group = 0;
        size_t n = count - at < TTI_DDP_GROUP ? count - at : TTI_DDP_GROUP;
        for (size_t i = 0; i < n; i++) {
            double v = (double)g[at + i] * sum->scale;
            group += v * v;
        }
        sum->squares += (uint64_t)(group * NORM_ONE);
    }
}

static void norm_double(const double *g, size_t count, bool squares, struct norm_sum *sum)
{
    for (size_t at = 0; at < count; at += TTI_DDP_GROUP) {
        double group = 0;
        for (size_t i = at; i < count && i < at + TTI_DDP_GROUP; i++) {
            double v = g[i] * sum->scale;
            sum->largest = fmax(sum->largest, fabs(g[i]));
            sum->odd += g[i] * 0.0;
            group += v * v;
        }
        if (squares)
            sum->squares += (uint64_t)ldexp(group, NORM_POINT);
    }
}

static void norm_piece(const void *data, enum tutti_type type, size_t count, bool squares,
                       struct norm_sum *sum)
{
    float widened[NORM_BLOCK];
    if (type == TUTTI_FLOAT64) {
        norm_double(data, count, squares, sum);
        return;
    }
    for (size_t at = 0; at < count; at += NORM_BLOCK) {
        size_t n = count - at < NORM_BLOCK ? count - at : NORM_BLOCK;
        const void *part = (const char *)data + at * tutti_type_size(type);
        const float *g = part;
        if (type != TUTTI_FLOAT32) {
            tti_convert(widened, TUTTI_FLOAT32, part, type, n, NULL);
            g = widened;
        }
        if (squares)
            norm_squares(g, n, sum);
        else
            norm_largest(g, n, sum);
    }
}

/* The same, found by the GPU. */
static enum tutti_result norm_device(struct tutti_ddp *ddp, bool squares, struct norm_sum *sum)
{
    struct tti_train_norm_part found;
    TTI_TRY(tti_ddp_device_norm(ddp, squares, sum->scale, &found));
    sum->largest = fmax(sum->largest, found.largest);
    sum->odd += found.odd;
    sum->squares += (unsigned __int128)found.high << 64 | found.low;
    return TUTTI_OK;
}

static enum tutti_result norm_pieces(struct tutti_ddp *ddp, bool squares, struct norm_sum *sum)
{
    if (ddp->options.on_device)
        return norm_device(ddp, squares, sum);
    for (size_t i = 0; i < ddp->piece_count; i++)
        norm_piece(ddp->pieces[i].gradient, ddp->tensors[ddp->pieces[i].index].type,
                   ddp->pieces[i].count, squares, sum);
    return TUTTI_OK;
}

static double norm_of(const struct norm_sum *sum, int exponent)
{
    return ldexp(sqrt(ldexp((double)sum->squares, -NORM_POINT)), exponent);
}

/* What all shards together have found. Where every rank has all gradients, what one finds, all
 * find. */
static enum tutti_result norm_gather_largest(struct tutti_ddp *ddp, struct norm_sum *sum)
{
    double found[2] = {sum->largest, sum->odd}; /* NaN wins */
    if (ddp->options.zero == 0)
        return TUTTI_OK;
    TTI_TRY(tutti_all_reduce(found, found, 2, TUTTI_FLOAT64, TUTTI_MAX,
                             ddp->group ? ddp->group : ddp->control));
    sum->largest = found[0];
    sum->odd = found[1];
    return TUTTI_OK;
}

static enum tutti_result norm_gather_squares(struct tutti_ddp *ddp, struct norm_sum *sum)
{
    uint64_t limbs[NORM_LIMBS];
    if (ddp->options.zero == 0)
        return TUTTI_OK;
    for (int i = 0; i < NORM_LIMBS; i++)
        limbs[i] = (uint64_t)(sum->squares >> (i * NORM_LIMB)) & (((uint64_t)1 << NORM_LIMB) - 1);
    TTI_TRY(tutti_all_reduce(limbs, limbs, NORM_LIMBS, TUTTI_UINT64, TUTTI_SUM,
                             ddp->group ? ddp->group : ddp->control));
    sum->squares = 0;
    for (int i = 0; i < NORM_LIMBS; i++)
        sum->squares += (unsigned __int128)limbs[i] << (i * NORM_LIMB);
    return TUTTI_OK;
}

static enum tutti_result norm_global(struct tutti_ddp *ddp, double *norm)
{
    struct norm_sum sum = {.scale = 0};
    int exponent = 0;
    TTI_TRY(norm_pieces(ddp, false, &sum));
    TTI_TRY(norm_gather_largest(ddp, &sum));
    if (sum.odd != 0) { /* NaN is not 0 either */
        *norm = NAN;
        return TUTTI_OK;
    }
    (void)frexp(sum.largest, &exponent);
    exponent = exponent < -1000 ? -1000 : exponent;
    sum.scale = ldexp(1, -exponent);
    TTI_TRY(norm_pieces(ddp, true, &sum));
    TTI_TRY(norm_gather_squares(ddp, &sum));
    *norm = norm_of(&sum, exponent);
    return TUTTI_OK;
}

enum tutti_result tutti_ddp_clip(tutti_ddp *ddp, double most, double *norm)
{
    double found = 0;
    if (!ddp)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_clip: ddp is NULL");
    if (ddp->open || !ddp->stale)
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "tutti_ddp_clip: there are no reduced gradients; call it after the "
                        "tutti_ddp_wait of a synchronised pass");
    TTI_TRY(tti_group_refuse("tutti_ddp_clip"));
    TTI_TRY(norm_global(ddp, &found));
    double factor = most > 0 && isfinite(found) ? most / (found + 1e-6) : 1;
    if (factor < 1)
        TTI_TRY(tti_ddp_scale(ddp, factor, 1));
    if (norm)
        *norm = found;
    return TUTTI_OK;
}
