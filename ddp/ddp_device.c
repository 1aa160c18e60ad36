/* Values, gradients and the optimizer's state in memory of a GPU (tutti/ddp.h, "On a GPU").
 *
 * The model, the optimizer and what lies between are queued on the caller's stream; lanes have
 * streams of their own. An event that the caller's stream records when a bucket is full holds a
 * lane's stream back; a lane waits until its collective is over before it says so. So a host thread
 * that asks for something reduced or gathered finds it there, and whatever it queues comes after.
 * Memory that is not needed any more stays until destroy: a driver may wait for the whole device
 * when it frees some, and so for a rank that waits for this one. Not yet run on a GPU.
 * Read next: device/cuda/train.cu. */
#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/memory.h"
#include "coll/door.h"
#include "ddp/ddp_state.h"
#include "ddp/optimizer_terms.h"
#include "device/reclaim.h"
#include "device/reduce.h"

#include <stdlib.h>
#include <string.h>

enum { DEVICE_THREADS = 128, DEVICE_EACH = 4096, DEVICE_MOST = 1024, DEVICE_PARTS = 256 };

static enum tutti_result device_wait(struct tutti_ddp *ddp, const char *what)
{
    double seconds = 0;
    TTI_TRY(tti_config_seconds("TUTTI_TIMEOUT", 300, &seconds));
    return tti_gpu_stream_wait(ddp->gpu, ddp->options.stream, tti_deadline_in(seconds), what);
}

/* What would load or allocate while another rank's kernel waits for this one, now. */
static enum tutti_result device_prepare(struct tutti_ddp *ddp)
{
    const struct tti_gpu_ops *ops = ddp->gpu->ops;
    TTI_TRY(ops->prepare(ddp->gpu, TTI_KERNEL_TRAIN_SCALE, TUTTI_UINT8));
    TTI_TRY(ops->prepare(ddp->gpu, TTI_KERNEL_TRAIN_NORM, TUTTI_UINT8));
    TTI_TRY(ops->prepare(ddp->gpu, TTI_KERNEL_TRAIN_STEP, TUTTI_UINT8));
    if (ddp->options.hook == TUTTI_DDP_HOOK_FLOAT16)
        TTI_TRY(ops->prepare(ddp->gpu, TTI_KERNEL_REDUCE_COPY, TUTTI_FLOAT16));
    if (ddp->options.hook == TUTTI_DDP_HOOK_BFLOAT16)
        TTI_TRY(ops->prepare(ddp->gpu, TTI_KERNEL_REDUCE_COPY, TUTTI_BFLOAT16));
    return TUTTI_OK;
}

enum tutti_result tti_ddp_device_open(struct tutti_ddp *ddp)
{
    const struct tti_gpu_ops *ops = NULL;
    int count = 0;
    if (!ddp->options.on_device)
        return TUTTI_OK;
    if (ddp->by_bucket || ddp->options.hook >= TUTTI_DDP_HOOK_POWERSGD)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "tutti_ddp_create: %s works on host memory only, and options.on_device is "
                        "set; take none, float16 or bfloat16",
                        ddp->options.hook == TUTTI_DDP_HOOK_POWERSGD ? "the hook PowerSGD"
                                                                     : "a user's hook");
    TTI_TRY(tti_gpu_in_use(&ops));
    if (ops)
        TTI_TRY(ops->count(&count));
    if (ddp->options.device < 0 || ddp->options.device >= count)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "tutti_ddp_create: options.on_device is set, but of GPU %d there is none "
                        "among %d; TUTTI_DEVICE=sim has a simulated one",
                        ddp->options.device, count);
    TTI_TRY(ops->open(ddp->options.device, &ddp->gpu));
    return device_prepare(ddp);
}

/* ---- Memory -----------------------------------------------------------------------------------
 */

/* Host memory; page-locked where a GPU copies from or to it, so that copies do not hold up the
 * caller. Where that cannot be, they do: slower, and right. */
static enum tutti_result device_host_memory(struct tutti_ddp *ddp, size_t bytes, void **memory)
{
    TTI_TRY(tutti_alloc(bytes, memory));
    if (ddp->gpu && bytes > 0 && ddp->gpu->ops->host_register(ddp->gpu, *memory, bytes) != TUTTI_OK)
        TTI_LOG(TTI_LOG_INFO, "%zu bytes of buckets are not page-locked: %s", bytes,
                tutti_last_error());
    return TUTTI_OK;
}

enum tutti_result tti_ddp_alloc(struct tutti_ddp *ddp, size_t bytes, void **memory)
{
    if (!ddp->options.on_device)
        return device_host_memory(ddp, bytes, memory);
    void *made = NULL;
    TTI_TRY(ddp->gpu->ops->alloc(ddp->gpu, TTI_MEMORY_DEVICE, bytes ? bytes : 1, &made));
    enum tutti_result result = tti_ddp_zero(ddp, made, bytes, ddp->options.stream);
    if (result == TUTTI_OK)
        result = device_wait(ddp, "memory of gradients or values to be zero");
    if (result == TUTTI_OK)
        *memory = made;
    else
        ddp->gpu->ops->free(ddp->gpu, made);
    return result;
}

static void device_host_end(struct tti_gpu *gpu, void *memory)
{
    (void)gpu->ops->host_unregister(gpu, memory);
    tutti_free(memory);
}

void tti_ddp_free(struct tutti_ddp *ddp, void *memory)
{
    if (ddp->options.on_device)
        tti_gpu_retire_memory(ddp->gpu, memory);
    else if (ddp->gpu && memory)
        tti_gpu_retire(ddp->gpu, device_host_end, memory);
    else
        tutti_free(memory);
}

enum tutti_result tti_ddp_zero(const struct tutti_ddp *ddp, void *memory, size_t bytes,
                               tutti_stream stream)
{
    if (ddp->options.on_device)
        return bytes == 0 ? TUTTI_OK : ddp->gpu->ops->fill(ddp->gpu, memory, 0, bytes, stream);
    memset(memory, 0, bytes);
    return TUTTI_OK;
}

enum tutti_result tti_ddp_copy(const struct tutti_ddp *ddp, void *out, const void *in, size_t bytes)
{
    if (ddp->options.on_device)
        return ddp->gpu->ops->copy(ddp->gpu, out, in, bytes, ddp->options.stream);
    memcpy(out, in, bytes);
    return TUTTI_OK;
}

enum tutti_result tti_ddp_device_done(struct tutti_ddp *ddp)
{
    return ddp->options.on_device && ddp->gpu ? device_wait(ddp, "the model's work") : TUTTI_OK;
}

/* ---- Order between streams --------------------------------------------------------------------
 */

enum tutti_result tti_ddp_device_full(const struct tutti_ddp *ddp, struct tti_ddp_bucket *bucket,
                                      tutti_stream stream)
{
    if (!ddp->options.on_device)
        return TUTTI_OK;
    enum tutti_result result = ddp->gpu->ops->event_record(bucket->full, stream);
    return result == TUTTI_OK ? result : TTI_CONTEXT(result, "when a bucket was full");
}

enum tutti_result tti_ddp_device_given(struct tutti_ddp *ddp, struct tti_ddp_bucket *bucket)
{
    return ddp->options.on_device ? ddp->gpu->ops->event_record(bucket->given, ddp->options.stream)
                                  : TUTTI_OK;
}

enum tutti_result tti_ddp_device_hold(struct tti_ddp_lane *lane, struct tti_gpu_event *event)
{
    const struct tutti_ddp *ddp = lane->ddp;
    return ddp->options.on_device ? ddp->gpu->ops->event_hold(event, lane->stream) : TUTTI_OK;
}

enum tutti_result tti_ddp_device_events(const struct tutti_ddp *ddp, struct tti_ddp_bucket *bucket)
{
    if (!ddp->options.on_device)
        return TUTTI_OK;
    TTI_TRY(ddp->gpu->ops->event_create(ddp->gpu, 0, &bucket->full));
    return ddp->gpu->ops->event_create(ddp->gpu, 0, &bucket->given);
}

/* ---- Collectives of a lane: over when they return ---------------------------------------------
 */

enum tutti_result tti_ddp_all_reduce(struct tti_ddp_lane *lane, void *data, size_t count,
                                     enum tutti_type type, enum tutti_op op, tutti_comm *comm)
{
    tutti_request *request = NULL;
    if (!lane->ddp->options.on_device)
        return tutti_all_reduce(data, data, count, type, op, comm);
    TTI_TRY(tutti_all_reduce_async(data, data, count, type, op, comm, lane->stream, &request));
    return tutti_wait(request);
}

enum tutti_result tti_ddp_reduce_scatter(struct tti_ddp_lane *lane, const void *in, void *out,
                                         size_t block, enum tutti_type type, enum tutti_op op)
{
    tutti_request *request = NULL;
    if (!lane->ddp->options.on_device)
        return tutti_reduce_scatter(in, out, block, type, op, lane->comm);
    TTI_TRY(
        tutti_reduce_scatter_async(in, out, block, type, op, lane->comm, lane->stream, &request));
    return tutti_wait(request);
}

enum tutti_result tti_ddp_all_gather(struct tti_ddp_lane *lane, const void *in, void *out,
                                     size_t block, enum tutti_type type)
{
    tutti_request *request = NULL;
    if (!lane->ddp->options.on_device)
        return tutti_all_gather(in, out, block, type, lane->comm);
    TTI_TRY(tutti_all_gather_async(in, out, block, type, lane->comm, lane->stream, &request));
    return tutti_wait(request);
}

enum tutti_result tti_ddp_lane_done(struct tti_ddp_lane *lane)
{
    const struct tutti_ddp *ddp = lane->ddp;
    double seconds = 0;
    if (!ddp->options.on_device)
        return TUTTI_OK;
    TTI_TRY(tti_config_seconds("TUTTI_TIMEOUT", 300, &seconds));
    return tti_gpu_stream_wait(ddp->gpu, lane->stream, tti_deadline_in(seconds),
                               "gradients that are widened");
}

enum tutti_result tti_ddp_spread(const struct tutti_ddp *ddp, const struct tti_ddp_tensor *t,
                                 int root)
{
    tutti_request *request = NULL;
    enum tutti_result result;
    if (!ddp->options.on_device) {
        result = tutti_broadcast(t->value, t->value, t->elements, t->type, root, ddp->control);
    } else {
        result = tutti_broadcast_async(t->value, t->value, t->elements, t->type, root, ddp->control,
                                       ddp->options.stream, &request);
        if (result == TUTTI_OK)
            result = tutti_wait(request);
    }
    return result == TUTTI_OK
               ? result
               : TTI_CONTEXT(result, "while giving rank %d's %s to all", root, t->name);
}

/* ---- Kernels ----------------------------------------------------------------------------------
 */

static unsigned device_blocks(size_t count, unsigned most)
{
    const size_t blocks = (count + DEVICE_EACH - 1) / DEVICE_EACH;
    return blocks > most ? most : blocks > 0 ? (unsigned)blocks : 1;
}

static enum tutti_result device_launch(const struct tutti_ddp *ddp, enum tti_gpu_kernel kernel,
                                       enum tutti_type type, unsigned blocks, const void *args,
                                       size_t bytes, tutti_stream stream)
{
    const struct tti_gpu_launch launch = {.kernel = kernel,
                                          .type = type,
                                          .blocks = blocks,
                                          .threads = DEVICE_THREADS,
                                          .args = args,
                                          .args_bytes = bytes};
    return ddp->gpu->ops->launch(ddp->gpu, &launch, stream);
}

enum tutti_result tti_ddp_convert(struct tti_ddp_lane *lane, void *out, enum tutti_type out_type,
                                  void *in, enum tutti_type in_type, size_t count)
{
    const bool narrows = in_type == TUTTI_FLOAT32;
    const struct tti_reduce_copy_args args = {.src = {in},
                                              .dst = {out},
                                              .count = count,
                                              .srcs = 1,
                                              .dsts = 1,
                                              .src_wide = narrows,
                                              .dst_wide = !narrows,
                                              .op = TUTTI_SUM};
    if (!lane->ddp->options.on_device) {
        tti_convert(out, out_type, in, in_type, count, NULL);
        return TUTTI_OK;
    }
    return device_launch(lane->ddp, TTI_KERNEL_REDUCE_COPY, narrows ? out_type : in_type,
                         device_blocks(count, DEVICE_MOST), &args, sizeof args, lane->stream);
}

enum tutti_result tti_ddp_device_scale(const struct tutti_ddp *ddp, void *data,
                                       enum tutti_type type, size_t count, double factor,
                                       double divisor)
{
    const struct tti_train_scale_args args = {data, count, factor, divisor, (uint32_t)type};
    return device_launch(ddp, TTI_KERNEL_TRAIN_SCALE, TUTTI_UINT8,
                         device_blocks(count, DEVICE_MOST), &args, sizeof args,
                         ddp->options.stream);
}

/* Queue the kernels for all pieces; *count: parts that they write. */
static enum tutti_result device_norm_queue(struct tutti_ddp *ddp, bool squares, double scale,
                                           size_t *count)
{
    *count = 0;
    for (size_t i = 0; i < ddp->piece_count; i++) {
        const struct tutti_ddp_piece *piece = &ddp->pieces[i];
        const unsigned blocks = device_blocks(piece->count, DEVICE_PARTS);
        const struct tti_train_norm_args args = {.parts = (struct tti_train_norm_part *)ddp->parts +
                                                          *count,
                                                 .data = piece->gradient,
                                                 .count = piece->count,
                                                 .scale = scale,
                                                 .squares = squares,
                                                 .type = (uint32_t)ddp->tensors[piece->index].type};
        TTI_TRY(device_launch(ddp, TTI_KERNEL_TRAIN_NORM, TUTTI_UINT8, blocks, &args, sizeof args,
                              ddp->options.stream));
        *count += blocks;
    }
    return TUTTI_OK;
}

/* Room for what all blocks find: on the GPU, and page-locked beside it. */
static enum tutti_result device_parts(struct tutti_ddp *ddp)
{
    const struct tti_gpu_ops *ops = ddp->gpu->ops;
    size_t count = 1;
    if (ddp->parts_here)
        return TUTTI_OK;
    for (size_t i = 0; i < ddp->piece_count; i++)
        count += device_blocks(ddp->pieces[i].count, DEVICE_PARTS);
    const size_t bytes = count * sizeof(struct tti_train_norm_part);
    if (!ddp->parts)
        TTI_TRY(ops->alloc(ddp->gpu, TTI_MEMORY_DEVICE, bytes, &ddp->parts));
    return ops->alloc(ddp->gpu, TTI_MEMORY_PINNED, bytes, &ddp->parts_here);
}

enum tutti_result tti_ddp_device_norm(struct tutti_ddp *ddp, bool squares, double scale,
                                      struct tti_train_norm_part *sum)
{
    size_t count = 0;
    TTI_TRY(device_parts(ddp));
    TTI_TRY(device_norm_queue(ddp, squares, scale, &count));
    TTI_TRY(ddp->gpu->ops->copy(ddp->gpu, ddp->parts_here, ddp->parts,
                                count * sizeof(struct tti_train_norm_part), ddp->options.stream));
    TTI_TRY(device_wait(ddp, "the norm of gradients"));
    const struct tti_train_norm_part *parts = ddp->parts_here;
    *sum = (struct tti_train_norm_part){0};
    for (size_t i = 0; i < count; i++) {
        sum->largest = parts[i].largest > sum->largest ? parts[i].largest : sum->largest;
        sum->odd += parts[i].odd;
        sum->low += parts[i].low;
        sum->high += parts[i].high + (sum->low < parts[i].low);
    }
    return TUTTI_OK;
}

void tti_ddp_device_free(struct tutti_ddp *ddp)
{
    if (!ddp->options.on_device || !ddp->gpu)
        return;
    tti_gpu_retire_memory(ddp->gpu, ddp->parts);
    tti_gpu_retire_memory(ddp->gpu, ddp->parts_here);
    tti_gpu_retire_memory(ddp->gpu, ddp->retired);
}

enum tutti_result tutti_ddp_optimizer_step(tutti_ddp *ddp, const struct tutti_optimizer *optimizer,
                                           uint64_t step, const struct tutti_optimizer_slice *slice)
{
    if (!ddp || !optimizer || !slice)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_optimizer_step: %s is NULL",
                        !ddp         ? "ddp"
                        : !optimizer ? "optimizer"
                                     : "slice");
    if (!ddp->options.on_device)
        return tutti_optimizer_step(optimizer, step, slice);
    TTI_TRY(tti_optimizer_check(optimizer, step, slice));
    const struct tti_train_step_args args = {.param = slice->param,
                                             .grad = slice->grad,
                                             .master = slice->master,
                                             .first = slice->states[0],
                                             .second = slice->states[1],
                                             .count = slice->count,
                                             .terms = tti_optimizer_terms(optimizer, step, slice),
                                             .kind = optimizer->kind == TUTTI_ADAMW
                                                         ? TTI_TRAIN_ADAMW
                                                     : optimizer->momentum != 0 ? TTI_TRAIN_MOMENTUM
                                                                                : TTI_TRAIN_SGD,
                                             .type = (uint32_t)slice->type};
    return slice->count == 0 ? TUTTI_OK
                             : device_launch(ddp, TTI_KERNEL_TRAIN_STEP, TUTTI_UINT8,
                                             device_blocks(slice->count, DEVICE_MOST), &args,
                                             sizeof args, ddp->options.stream);
}
