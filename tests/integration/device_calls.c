/* See device_calls.h. */
#include "tests/integration/device_calls.h"

#include "tests/device/gpu_wait.h"

#include <stdio.h>
#include <stdlib.h>

enum { SETTLE_SECONDS = 60 };

static _Thread_local struct tti_gpu *gpu;
static _Thread_local tutti_stream stream;
static _Thread_local unsigned calls;
static _Thread_local double patience = SETTLE_SECONDS;

/* Memory that is free again, for the next who asks. A GPU's driver frees memory when all that is
 * queued on the device is over, of other threads too: of ranks that wait for the one that frees. So
 * nothing is freed before the end; but on the simulated device at once, where memory is gone then,
 * and who still uses it is found out; that of `device_call` after a few calls, since to make and to
 * end it takes longer than the call. */
enum { KEPT = 32, SERVES = 4 };
static _Thread_local struct {
    void *memory;
    size_t bytes;
    bool used;
    int served;
} kept[KEPT];

struct tti_operation test_operation(const struct test_case *c, const void *in, void *out)
{
    return (struct tti_operation){.collective = c->collective,
                                  .in = in,
                                  .out = out,
                                  .count = c->count,
                                  .type = c->type,
                                  .op = c->op,
                                  .root = c->root};
}

struct tti_gpu *device_gpu(void)
{
    return gpu;
}

tutti_stream device_stream(void)
{
    return stream;
}

int device_begin(int rank)
{
    const char *name = getenv("TUTTI_DEVICE");
    const struct tti_gpu_ops *ops = NULL;
    int count = 0;
    calls = 0;
    return tti_gpu_find(name ? name : "sim", &ops) != TUTTI_OK || ops->count(&count) != TUTTI_OK ||
           count == 0 || ops->open(rank % count, &gpu) != TUTTI_OK ||
           ops->stream_create(gpu, &stream) != TUTTI_OK;
}

static enum tutti_result memory_take(size_t bytes, void **memory)
{
    int best = -1, place = -1;
    for (int k = 0; k < KEPT; k++) {
        if (!kept[k].memory)
            place = k;
        else if (!kept[k].used && kept[k].bytes >= bytes &&
                 (best < 0 || kept[k].bytes < kept[best].bytes))
            best = k;
    }
    if (best >= 0) {
        kept[best].used = true;
        kept[best].served++;
        *memory = kept[best].memory;
        return TUTTI_OK;
    }
    TTI_TRY(gpu->ops->alloc(gpu, TTI_MEMORY_DEVICE, bytes, memory));
    if (place >= 0) {
        kept[place].memory = *memory;
        kept[place].bytes = bytes;
        kept[place].used = true;
        kept[place].served = 1;
    }
    return TUTTI_OK;
}

void *device_memory(size_t bytes)
{
    void *memory = NULL;
    return memory_take(bytes, &memory) == TUTTI_OK ? memory : NULL;
}

void device_free_now(void *memory)
{
    for (int k = 0; k < KEPT; k++)
        if (kept[k].memory == memory)
            kept[k].memory = NULL;
    gpu->ops->free(gpu, memory);
}

/* Free again for who asks next, if it has not served so often. */
static void memory_give(void *memory, int serves)
{
    for (int k = 0; k < KEPT; k++) {
        if (memory && kept[k].memory == memory &&
            (gpu->ops != tti_gpu_sim() || kept[k].served < serves)) {
            kept[k].used = false;
            return;
        }
    }
    device_free_now(memory);
}

void device_free(void *memory)
{
    memory_give(memory, 0);
}

enum tutti_result device_copy(void *to, const void *from, size_t bytes)
{
    struct tti_gpu_pointer ends[2];
    TTI_TRY(gpu->ops->pointer(to, &ends[0]));
    TTI_TRY(gpu->ops->pointer(from, &ends[1]));
    if (ends[0].kind == TTI_MEMORY_HOST || ends[1].kind == TTI_MEMORY_HOST)
        TTI_TRY(device_settle());
    return gpu->ops->copy(gpu, to, from, bytes, stream);
}

void device_patience(double seconds)
{
    patience = seconds;
}

enum tutti_result device_settle(void)
{
    return gpu_wait_or_end(gpu, stream, patience, "a test");
}

/* An operation on the stream is not over for the communicator until the stream is. */
int device_end(tutti_comm *comm)
{
    int bad = tutti_barrier_async(comm, stream, NULL) != TUTTI_OK || device_settle() != TUTTI_OK ||
              tutti_comm_error(comm) != TUTTI_OK;
    for (int k = 0; k < KEPT; k++)
        device_free_now(kept[k].memory);
    gpu->ops->stream_destroy(gpu, stream);
    gpu->ops->close(gpu);
    return bad;
}

enum tutti_result device_start(const struct test_case *c, const void *in, void *out,
                               tutti_comm *comm, tutti_request **request)
{
    switch (c->collective) {
    case TUTTI_ALL_REDUCE:
        return tutti_all_reduce_async(in, out, c->count, c->type, c->op, comm, stream, request);
    case TUTTI_BROADCAST:
        return tutti_broadcast_async(in, out, c->count, c->type, c->root, comm, stream, request);
    case TUTTI_REDUCE:
        return tutti_reduce_async(in, out, c->count, c->type, c->op, c->root, comm, stream,
                                  request);
    case TUTTI_REDUCE_SCATTER:
        return tutti_reduce_scatter_async(in, out, c->count, c->type, c->op, comm, stream, request);
    case TUTTI_ALL_GATHER:
        return tutti_all_gather_async(in, out, c->count, c->type, comm, stream, request);
    case TUTTI_ALL_TO_ALL:
        return tutti_all_to_all_async(in, out, c->count, c->type, comm, stream, request);
    case TUTTI_GATHER:
        return tutti_gather_async(in, out, c->count, c->type, c->root, comm, stream, request);
    case TUTTI_SCATTER:
        return tutti_scatter_async(in, out, c->count, c->type, c->root, comm, stream, request);
    default:
        return TUTTI_ERR_INTERNAL;
    }
}

static enum tutti_result shadow_make(struct device_shadow s, char **memory)
{
    *memory = NULL;
    if (!s.base)
        return TUTTI_OK;
    void *made = NULL;
    TTI_TRY(memory_take(s.bytes, &made));
    *memory = made;
    return gpu->ops->copy(gpu, *memory, s.base, s.bytes, stream);
}

static char *shadow_at(struct device_shadow s, char *memory)
{
    return memory ? memory + (s.data - s.base) : NULL;
}

static enum tutti_result device_run(const struct test_case *c, char *in, char *out,
                                    tutti_comm *comm)
{
    tutti_request *request = NULL;
    const bool asked = calls++ % 2; /* by turns with and without a request */
    TTI_TRY(device_start(c, in, out, comm, asked ? &request : NULL));
    return tutti_wait(request);
}

enum tutti_result device_call(const struct test_case *c, struct device_shadow in,
                              struct device_shadow out, tutti_comm *comm)
{
    char *out_memory = NULL, *in_memory = NULL;
    TTI_TRY(shadow_make(out, &out_memory));
    if (in.base == out.base)
        in_memory = out_memory;
    else
        TTI_TRY(shadow_make(in, &in_memory));
    enum tutti_result result =
        device_run(c, shadow_at(in, in_memory), shadow_at(out, out_memory), comm);
    if (result == TUTTI_OK)
        result = device_copy(out.base, out_memory, out.bytes);
    if (result == TUTTI_OK && in_memory != out_memory && in.base)
        result = device_copy(in.base, in_memory, in.bytes);
    struct tti_error error;
    tti_error_save(&error, result);
    const enum tutti_result settled = device_settle();
    result = result == TUTTI_OK ? settled : tti_error_restore(&error);
    memory_give(out_memory, SERVES);
    if (in_memory != out_memory)
        memory_give(in_memory, SERVES);
    return result;
}

int device_ranks(const char *name, const char *path, struct tti_ranks how,
                 tti_rank_function *function, void *argument)
{
    setenv("TUTTI_DEVICE_PATH", path, 1);
    const int bad = tti_ranks_run(&how, function, argument);
    printf("%s, %s, %d %s: %s\n", name, path, how.ranks, how.processes ? "processes" : "threads",
           bad ? "FAILED" : "ok");
    fflush(stdout);
    return bad;
}
