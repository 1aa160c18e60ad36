/* Models that compute on a GPU, with buckets, optimizer and its state on the host (tutti/ddp.h).
 *
 * A gradient is copied into its bucket in the order of the stream that makes it, and a function
 * behind the copy marks it ready: so copies, reduction and the rest of the backward pass overlap,
 * and everything else is as for host memory. Read next: device/gpu.h. */
#include "base/clock.h"
#include "base/config.h"
#include "coll/door.h"
#include "ddp/ddp_state.h"

enum tutti_result tti_ddp_look(const struct tti_gpu_ops *ops, const void *memory, size_t bytes,
                               const char *call, const char *name, int *device)
{
    struct tti_gpu_pointer info;
    TTI_TRY(ops->pointer(memory, &info));
    if (info.kind != TTI_MEMORY_DEVICE && info.kind != TTI_MEMORY_MANAGED)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s: %s: %p is not memory of a GPU", call, name,
                        memory);
    const size_t before = (size_t)((const char *)memory - (const char *)info.base);
    if (before > info.bytes || info.bytes - before < bytes)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "%s: %s takes %zu bytes, but only %zu are left of the allocation at %p",
                        call, name, bytes, info.bytes - before, memory);
    *device = info.device;
    return TUTTI_OK;
}

static size_t offload_bytes(const struct tti_ddp_tensor *tensor)
{
    return tensor->elements * tutti_type_size(tensor->type);
}

enum tutti_result tti_ddp_offload_add(struct tutti_ddp *ddp, struct tti_ddp_tensor *tensor,
                                      void *device)
{
    const struct tti_gpu_ops *ops = NULL;
    int number = 0;
    if (!device)
        return TUTTI_OK;
    if (ddp->options.on_device)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "tutti_ddp_create: %s has a copy on a device, but with options.on_device "
                        "its value is there anyway; leave `device` NULL",
                        tensor->name);
    TTI_TRY(tti_gpu_in_use(&ops));
    if (!ops)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "tutti_ddp_create: %s has memory on a device, but there is no GPU",
                        tensor->name);
    TTI_TRY(tti_ddp_look(ops, device, offload_bytes(tensor), "tutti_ddp_create", tensor->name,
                         &number));
    if (ddp->gpu && ddp->gpu->device != number)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "tutti_ddp_create: %s is on GPU %d, others are on GPU %d; a rank uses one",
                        tensor->name, number, ddp->gpu->device);
    if (!ddp->gpu)
        TTI_TRY(ops->open(number, &ddp->gpu));
    tensor->device = device;
    return TUTTI_OK;
}

/* ---- gradients: to the host ---- */

/* On the stream, behind the copy. */
static void offload_arrived(void *argument)
{
    struct tti_ddp_tensor *tensor = argument;
    struct tutti_ddp *ddp = tensor->ddp;
    pthread_mutex_lock(&ddp->lock);
    tti_ddp_complete(ddp, tensor);
    pthread_mutex_unlock(&ddp->lock);
}

static enum tutti_result offload_may(const struct tutti_ddp *ddp, size_t index,
                                     const void *gradient, tutti_stream stream)
{
    static const char call[] = "tutti_ddp_ready_from";
    const char *name = ddp->tensors[index].name;
    int number = 0;
    if (!ddp->gpu || ddp->options.on_device)
        return TTI_FAIL(TUTTI_ERR_USAGE, "%s: %s: no tensor was registered with memory on a device",
                        call, name);
    if (!ddp->open || !ddp->synchronise)
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "%s: %s: in a synchronised pass only; those before it add up on the GPU",
                        call, name);
    if (ddp->arriving && ddp->stream != stream)
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "%s: %s: another stream than that of gradients before it in this pass; let "
                        "one wait for the other",
                        call, name);
    TTI_TRY(tti_ddp_look(ddp->gpu->ops, gradient, offload_bytes(&ddp->tensors[index]), call, name,
                         &number));
    return number == ddp->gpu->device
               ? TUTTI_OK
               : TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s: %s is on GPU %d, the model on GPU %d", call,
                          name, number, ddp->gpu->device);
}

/* The copy, and behind it the word that it is there. */
static enum tutti_result offload_queue(struct tutti_ddp *ddp, size_t index, const void *gradient,
                                       bool complete)
{
    const struct tti_gpu_ops *ops = ddp->gpu->ops;
    struct tti_ddp_tensor *t = &ddp->tensors[index];
    void *place = NULL;
    TTI_TRY(tutti_ddp_gradient(ddp, index, &place));
    TTI_TRY(ops->copy(ddp->gpu, place, gradient, offload_bytes(t), ddp->stream));
    return complete ? ops->host_call(ddp->gpu, offload_arrived, t, ddp->stream) : TUTTI_OK;
}

enum tutti_result tutti_ddp_ready_from(tutti_ddp *ddp, size_t index, const void *gradient,
                                       tutti_stream stream)
{
    bool complete = false;
    TTI_TRY(tti_ddp_trained(ddp, index, "tutti_ddp_ready_from"));
    TTI_TRY(offload_may(ddp, index, gradient, stream));
    TTI_TRY(tti_ddp_mark(ddp, &ddp->tensors[index], "tutti_ddp_ready_from", &complete));
    ddp->arriving = true;
    ddp->stream = stream;
    enum tutti_result result = offload_queue(ddp, index, gradient, complete);
    if (result == TUTTI_OK)
        return result;
    result =
        TTI_CONTEXT(result, "while the gradient of %s leaves the GPU", ddp->tensors[index].name);
    tti_ddp_lanes_fail(ddp, result); /* it counts as ready, and will not come */
    return result;
}

void tti_ddp_offload_wait(struct tutti_ddp *ddp)
{
    double seconds = 0;
    if (!ddp->arriving)
        return;
    ddp->arriving = false;
    enum tutti_result result = tti_config_seconds("TUTTI_TIMEOUT", 300, &seconds);
    if (result == TUTTI_OK)
        result = tti_gpu_stream_wait(ddp->gpu, ddp->stream, tti_deadline_in(seconds),
                                     "gradients from the GPU");
    if (result == TUTTI_OK)
        return;
    ddp->lost = true; /* what is on the stream may come yet, and must find us here */
    tti_ddp_lanes_fail(ddp, TTI_CONTEXT(result, "while waiting for the backward pass on the GPU"));
}

/* ---- values: to the GPU ---- */

enum tutti_result tutti_ddp_upload(tutti_ddp *ddp, size_t index, tutti_stream stream)
{
    double seconds = 0;
    void *value = NULL;
    TTI_TRY(tutti_ddp_value(ddp, index, &value));
    const struct tti_ddp_tensor *t = &ddp->tensors[index];
    if (!t->device)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "tutti_ddp_upload: %s was registered without memory on a device", t->name);
    if (ddp->value_lane && t->bucket != TTI_DDP_NONE) /* it may be on its way */
        TTI_TRY(tti_ddp_lanes_gathered(ddp, t->bucket));
    TTI_TRY(ddp->gpu->ops->copy(ddp->gpu, t->device, value, offload_bytes(t), stream));
    if (ddp->options.zero < 3)
        return TUTTI_OK;
    TTI_TRY(tti_config_seconds("TUTTI_TIMEOUT", 300, &seconds));
    return tti_gpu_stream_wait(ddp->gpu, stream, tti_deadline_in(seconds), "values to the GPU");
}
