/* See host_calls.h. */
#include "tests/integration/host_calls.h"

#include "device/reduce.h"

#include <string.h>

enum tutti_result test_call(const struct tti_operation *o, tutti_comm *comm)
{
    switch (o->collective) {
    case TUTTI_ALL_REDUCE:
        return tutti_all_reduce(o->in, o->out, o->count, o->type, o->op, comm);
    case TUTTI_BROADCAST:
        return tutti_broadcast(o->in, o->out, o->count, o->type, o->root, comm);
    case TUTTI_REDUCE:
        return tutti_reduce(o->in, o->out, o->count, o->type, o->op, o->root, comm);
    case TUTTI_REDUCE_SCATTER:
        return tutti_reduce_scatter(o->in, o->out, o->count, o->type, o->op, comm);
    case TUTTI_ALL_GATHER:
        return tutti_all_gather(o->in, o->out, o->count, o->type, comm);
    case TUTTI_ALL_TO_ALL:
        return tutti_all_to_all(o->in, o->out, o->count, o->type, comm);
    case TUTTI_GATHER:
        return tutti_gather(o->in, o->out, o->count, o->type, o->root, comm);
    case TUTTI_SCATTER:
        return tutti_scatter(o->in, o->out, o->count, o->type, o->root, comm);
    case TUTTI_BARRIER:
        return tutti_barrier(comm);
    default:
        return TTI_FAIL(TUTTI_ERR_INTERNAL, "the test has no call for %s",
                        tutti_collective_name(o->collective));
    }
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Floats, narrowed a block at a time: these are the most of what is filled. */
static void fill_floats(void *in, enum tutti_type type, size_t count, uint32_t seed)
{
    enum { BLOCK = 256 };
    float block[BLOCK];
    for (size_t done = 0; done < count; done += BLOCK) {
        const size_t n = count - done < BLOCK ? count - done : BLOCK;
        for (size_t i = 0; i < n; i++) {
            block[i] = (float)(int)(next_random(&seed) % 2001 - 1000) / 37.0f;
            (void)next_random(&seed);
        }
        tti_convert((char *)in + done * tutti_type_size(type), type, block, TUTTI_FLOAT32, n, NULL);
    }
}

void test_fill(void *in, enum tutti_type type, size_t count, uint32_t seed)
{
    if (tti_acc_type(type) == TUTTI_FLOAT32) {
        fill_floats(in, type, count, seed);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        float value = (float)(int)(next_random(&seed) % 2001 - 1000) / 37.0f;
        int64_t integer = (int64_t)next_random(&seed) - (1 << 22);
        double wide = (double)value * 1.0000001;
        char *to = (char *)in + i * tutti_type_size(type);
        memcpy(to, type == TUTTI_FLOAT64 ? (void *)&wide : (void *)&integer, tutti_type_size(type));
    }
}
