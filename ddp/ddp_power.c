/* PowerSGD with error feedback (Vogels, Karimireddy, Jaggi: arXiv 1905.13727).
 *
 * A matrix M (n x m) of gradients travels as P (n x r) and Q (m x r): P = M Q, averaged over ranks
 * and orthonormalised, then Q = M^T P, averaged; every rank continues with P Q^T. What that loses
 * of the own M is kept and added to the next gradient; Q is kept as the next start. All ranks get
 * the same P and Q, so replicas stay the same. Vectors, and matrices so small that nothing would be
 * saved, are averaged as they are. */
#include "base/memory.h"
#include "ddp/ddp_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct tti_ddp_power {
    size_t n, m, r;
    float *q;     /* m x r, row-major: the latest; alike on all ranks */
    float *error; /* n x m: what was lost of this rank's gradient */
};

void tti_ddp_power_free(struct tti_ddp_power *power)
{
    if (!power)
        return;
    free(power->q);
    free(power->error);
    free(power);
}

/* As a matrix: the first dimension by all others. */
static bool power_worth(const struct tti_ddp_tensor *t, size_t rank, size_t *n, size_t *m)
{
    if (t->dims < 2)
        return false;
    *n = t->shape[0];
    *m = t->elements / t->shape[0];
    return rank < *n && rank < *m && (*n + *m) * rank < t->elements;
}

/* A first Q that is the same on all ranks: numbers out of the element's place (splitmix64). */
static float power_first(size_t tensor, size_t element)
{
    uint64_t x = ((uint64_t)tensor << 40) + element + 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return (float)((double)(x >> 11) / 9007199254740992.0 * 2.0 - 1.0);
}

static enum tutti_result power_begin(struct tutti_ddp *ddp, size_t index)
{
    size_t n = 0, m = 0, r = (size_t)ddp->options.power_rank;
    struct tti_ddp_tensor *t = &ddp->tensors[index];
    if (t->power || !power_worth(t, r, &n, &m))
        return TUTTI_OK;
    struct tti_ddp_power *p = tti_calloc(1, sizeof *p);
    if (!p)
        return TUTTI_ERR_MEMORY;
    *p = (struct tti_ddp_power){.n = n, .m = m, .r = r};
    p->q = tti_calloc(m * r, sizeof *p->q);
    p->error = tti_calloc(n * m, sizeof *p->error);
    if (!p->q || !p->error) {
        tti_ddp_power_free(p);
        return TUTTI_ERR_MEMORY;
    }
    for (size_t i = 0; i < m * r; i++)
        p->q[i] = power_first(index, i);
    t->power = p;
    return TUTTI_OK;
}

/* p = g q, with g n x m. */
static void power_left(const struct tti_ddp_power *s, const float *g, float *p)
{
    memset(p, 0, s->n * s->r * sizeof *p);
    for (size_t i = 0; i < s->n; i++)
        for (size_t j = 0; j < s->m; j++)
            for (size_t k = 0; k < s->r; k++)
                p[i * s->r + k] += g[i * s->m + j] * s->q[j * s->r + k];
}

/* q = g^T p. */
static void power_right(const struct tti_ddp_power *s, const float *g, const float *p, float *q)
{
    memset(q, 0, s->m * s->r * sizeof *q);
    for (size_t i = 0; i < s->n; i++)
        for (size_t j = 0; j < s->m; j++)
            for (size_t k = 0; k < s->r; k++)
                q[j * s->r + k] += g[i * s->m + j] * p[i * s->r + k];
}

/* Make the columns of p orthonormal, one after another; a column that is nothing without those
 * before it becomes zero. Twice is enough for float32. */
static void power_orthonormal(const struct tti_ddp_power *s, float *p)
{
    for (size_t k = 0; k < s->r; k++) {
        double before = 0, norm = 0;
        for (size_t i = 0; i < s->n; i++)
            before += (double)p[i * s->r + k] * p[i * s->r + k];
        for (size_t pass = 0; pass < 2; pass++)
            for (size_t l = 0; l < k; l++) {
                double dot = 0;
                for (size_t i = 0; i < s->n; i++)
                    dot += (double)p[i * s->r + k] * p[i * s->r + l];
                for (size_t i = 0; i < s->n; i++)
                    p[i * s->r + k] -= (float)dot * p[i * s->r + l];
            }
        for (size_t i = 0; i < s->n; i++)
            norm += (double)p[i * s->r + k] * p[i * s->r + k];
        double scale = norm > before * 1e-12 && norm > 0 ? 1 / sqrt(norm) : 0;
        for (size_t i = 0; i < s->n; i++)
            p[i * s->r + k] = (float)(p[i * s->r + k] * scale);
    }
}

/* g = p q^T; error = what was there before, less that. */
static void power_back(struct tti_ddp_power *s, const float *p, float *g)
{
    for (size_t i = 0; i < s->n; i++)
        for (size_t j = 0; j < s->m; j++) {
            float sum = 0;
            for (size_t k = 0; k < s->r; k++)
                sum += p[i * s->r + k] * s->q[j * s->r + k];
            s->error[i * s->m + j] = g[i * s->m + j] - sum;
            g[i * s->m + j] = sum;
        }
}

/* What a bucket needs of scratch: all P one after another, then everything uncompressed; all Q go
 * where the P were not, behind. In floats. */
struct power_sizes {
    size_t p, q, plain;
};

static struct power_sizes power_sizes_of(const struct tutti_ddp *ddp,
                                         const struct tti_ddp_bucket *bucket)
{
    struct power_sizes sizes = {0};
    for (size_t i = 0; i < bucket->member_count; i++) {
        const struct tti_ddp_tensor *t = &ddp->tensors[bucket->members[i]];
        sizes.p += t->power ? t->power->n * t->power->r : 0;
        sizes.q += t->power ? t->power->m * t->power->r : 0;
        sizes.plain += t->power ? 0 : t->elements;
    }
    return sizes;
}

static enum tutti_result power_average(struct tti_ddp_lane *lane, float *data, size_t count)
{
    lane->sent += count * sizeof *data;
    return tutti_all_reduce(data, data, count, TUTTI_FLOAT32, TUTTI_AVG, lane->comm);
}

/* First round: P of all matrices, and all that is not compressed, in one collective. */
static void power_pack(struct tutti_ddp *ddp, struct tti_ddp_bucket *bucket, float *p, float *plain)
{
    for (size_t i = 0; i < bucket->member_count; i++) {
        struct tti_ddp_tensor *t = &ddp->tensors[bucket->members[i]];
        float *g = (float *)(void *)bucket->gradient + bucket->offsets[i];
        if (!t->power) {
            memcpy(plain, g, t->elements * sizeof *g);
            plain += t->elements;
            continue;
        }
        for (size_t e = 0; e < t->elements; e++)
            g[e] += t->power->error[e];
        power_left(t->power, g, p);
        p += t->power->n * t->power->r;
    }
}

/* Second round: Q of all matrices. */
static void power_turn(struct tutti_ddp *ddp, struct tti_ddp_bucket *bucket, float *p, float *q)
{
    for (size_t i = 0; i < bucket->member_count; i++) {
        struct tti_ddp_tensor *t = &ddp->tensors[bucket->members[i]];
        if (!t->power)
            continue;
        power_orthonormal(t->power, p);
        power_right(t->power, (float *)(void *)bucket->gradient + bucket->offsets[i], p, q);
        p += t->power->n * t->power->r;
        q += t->power->m * t->power->r;
    }
}

static void power_unpack(struct tutti_ddp *ddp, struct tti_ddp_bucket *bucket, const float *p,
                         const float *q, const float *plain)
{
    for (size_t i = 0; i < bucket->member_count; i++) {
        struct tti_ddp_tensor *t = &ddp->tensors[bucket->members[i]];
        float *g = (float *)(void *)bucket->gradient + bucket->offsets[i];
        if (!t->power) {
            memcpy(g, plain, t->elements * sizeof *g);
            plain += t->elements;
            continue;
        }
        memcpy(t->power->q, q, t->power->m * t->power->r * sizeof *q);
        power_back(t->power, p, g);
        p += t->power->n * t->power->r;
        q += t->power->m * t->power->r;
    }
}

enum tutti_result tti_ddp_power_reduce(struct tti_ddp_lane *lane, struct tti_ddp_bucket *bucket)
{
    struct tutti_ddp *ddp = lane->ddp;
    void *scratch = NULL;
    for (size_t i = 0; i < bucket->member_count; i++)
        TTI_TRY(power_begin(ddp, bucket->members[i]));
    struct power_sizes sizes = power_sizes_of(ddp, bucket);
    TTI_TRY(tti_ddp_scratch(lane, (sizes.p + sizes.plain + sizes.q) * sizeof(float), &scratch));
    float *p = scratch, *plain = p + sizes.p, *q = plain + sizes.plain;
    power_pack(ddp, bucket, p, plain);
    TTI_TRY(power_average(lane, p, sizes.p + sizes.plain));
    power_turn(ddp, bucket, p, q);
    TTI_TRY(power_average(lane, q, sizes.q));
    power_unpack(ddp, bucket, p, q, plain);
    return TUTTI_OK;
}
