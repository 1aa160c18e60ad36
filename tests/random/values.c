/* The data of random programs: small integers, which no type rounds, whatever the order. */
#include "tests/random/actor.h"

#include "device/reduce.h"

#include <math.h>
#include <string.h>

double value_of(const struct call *call, int from, int to, size_t e)
{
    const uint64_t drawn = draw_mix(call->salt + 131 * (uint64_t)from + 1009 * (uint64_t)to +
                                    UINT64_C(0x9e3779b97f4a7c15) * e);
    return call->op == TUTTI_PROD ? 1 + (double)(drawn % 2) : (double)(drawn % 8);
}

double value_reduced(const struct call *call, const struct family *family, int to, size_t e)
{
    double value = value_of(call, 0, to, e);
    if (call->op == TUTTI_OP_USER)
        value *= family->scalars[0];
    for (int r = 1; r < family->size; r++) {
        const double next = value_of(call, r, to, e);
        if (call->op == TUTTI_PROD)
            value *= next;
        else if (call->op == TUTTI_MAX)
            value = next > value ? next : value;
        else if (call->op == TUTTI_MIN)
            value = next < value ? next : value;
        else
            value += call->op == TUTTI_OP_USER ? next * family->scalars[r] : next;
    }
    return call->op == TUTTI_AVG ? value / family->size : value;
}

/* The lowest bytes come first. */
static void whole_put(char *at, size_t size, int64_t whole)
{
    if (size == 1)
        memcpy(at, &whole, 1);
    else if (size == 4)
        memcpy(at, &whole, 4);
    else
        memcpy(at, &whole, 8);
}

void values_put(char *at, enum tutti_type type, const double *values, size_t count)
{
    const size_t size = tutti_type_size(type);
    float narrow[VALUES_AT_A_TIME];
    switch (type) {
    case TUTTI_INT8:
    case TUTTI_UINT8:
    case TUTTI_INT32:
    case TUTTI_UINT32:
    case TUTTI_INT64:
    case TUTTI_UINT64:
        for (size_t i = 0; i < count; i++)
            whole_put(at + i * size, size, (int64_t)trunc(values[i]));
        return;
    case TUTTI_FLOAT64:
        memcpy(at, values, count * size);
        return;
    default:
        for (size_t i = 0; i < count; i++)
            narrow[i] = (float)values[i];
        if (type == TUTTI_FLOAT32) /* not by what is under test */
            memcpy(at, narrow, count * size);
        else
            tti_convert(at, type, narrow, TUTTI_FLOAT32, count, NULL);
    }
}
