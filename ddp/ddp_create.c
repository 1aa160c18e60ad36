/* Making and ending a tutti_ddp (tutti/ddp.h): copy what was registered, compare it across ranks,
 * find memory, start lanes, make values alike.
 *
 * What one rank sees wrong in its own call must not leave the others waiting: its finding travels
 * with the comparison (ddp_verify.c). Read next: ddp_verify.c, ddp_layout.c. */
#include "base/memory.h"
#include "coll/group.h"
#include "ddp/ddp_state.h"
#include "ddp/host_memory.h"
#include "device/reclaim.h"

#include <stdlib.h>
#include <string.h>

static bool create_trainable(enum tutti_type type)
{
    return type == TUTTI_FLOAT32 || type == TUTTI_FLOAT64 || type == TUTTI_FLOAT16 ||
           type == TUTTI_BFLOAT16;
}

/* The caller's memory, which must be the GPU's. */
static enum tutti_result create_placed(const struct tutti_ddp *ddp, const void *value, size_t bytes,
                                       const char *name)
{
    int device = 0;
    TTI_TRY(tti_ddp_look(ddp->gpu->ops, value, bytes, "tutti_ddp_create", name, &device));
    return device == ddp->gpu->device
               ? TUTTI_OK
               : TTI_FAIL(TUTTI_ERR_ARGUMENT,
                          "tutti_ddp_create: %s is on GPU %d, the model on GPU %d", name, device,
                          ddp->gpu->device);
}

static enum tutti_result create_tensor(struct tutti_ddp *ddp, const struct tutti_ddp_tensor *given,
                                       size_t index, struct tti_ddp_tensor *tensor)
{
    const char *name = given->name;
    if (!name || !name[0])
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_create: tensor %zu has no name", index);
    if (tutti_type_size(given->type) == 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_create: %s: %d is no type", name,
                        (int)given->type);
    if (given->kind != TUTTI_DDP_TRAINED && given->kind != TUTTI_DDP_FROZEN &&
        given->kind != TUTTI_DDP_BUFFER)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_create: %s: %d is no kind", name,
                        (int)given->kind);
    if (given->kind == TUTTI_DDP_TRAINED && !create_trainable(given->type))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "tutti_ddp_create: %s: %s has no gradient; trained tensors are float32, "
                        "float64, float16 or bfloat16",
                        name, tutti_type_name(given->type));
    if (given->dims < 0 || given->dims > TUTTI_DDP_DIMS)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "tutti_ddp_create: %s: %d dimensions; 0 to %d are possible", name,
                        given->dims, TUTTI_DDP_DIMS);
    size_t elements = 1;
    for (int d = 0; d < given->dims; d++) {
        if (given->shape[d] == 0 || given->shape[d] > ((size_t)1 << 48) / elements)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                            "tutti_ddp_create: %s: a length of %zu in dimension %d makes no tensor",
                            name, given->shape[d], d);
        elements *= given->shape[d];
        tensor->shape[d] = given->shape[d];
    }
    if (!ddp->options.on_device)
        TTI_TRY(tti_host_memory(given->value, "tutti_ddp_create", name));
    else if (given->value)
        TTI_TRY(create_placed(ddp, given->value, elements * tutti_type_size(given->type), name));
    tensor->ddp = ddp;
    tensor->type = given->type;
    tensor->kind = given->kind;
    tensor->unit = given->unit;
    tensor->dims = given->dims;
    tensor->elements = elements;
    tensor->value = given->value;
    tensor->owned = !given->value;
    tensor->bucket = TTI_DDP_NONE;
    tensor->expected = 1;
    tensor->used = true;
    tensor->name = tti_strdup(name);
    return tensor->name ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

static void create_tensor_free(struct tti_ddp_tensor *tensor)
{
    free(tensor->name);
    tti_ddp_power_free(tensor->power);
}

static int create_compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum tutti_result create_names(const struct tutti_ddp *ddp)
{
    enum tutti_result result = TUTTI_OK;
    const char **names = tti_calloc(ddp->tensor_count, sizeof *names);
    if (!names)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < ddp->tensor_count; i++)
        names[i] = ddp->tensors[i].name;
    qsort(names, ddp->tensor_count, sizeof *names, create_compare_names);
    for (size_t i = 1; i < ddp->tensor_count && result == TUTTI_OK; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            result =
                TTI_FAIL(TUTTI_ERR_ARGUMENT,
                         "tutti_ddp_create: two tensors are named %s; names are unique", names[i]);
    free(names);
    return result;
}

static enum tutti_result create_hook(const struct tutti_ddp_options *o)
{
    bool by_bucket = o->hook == TUTTI_DDP_HOOK_POWERSGD || o->hook == TUTTI_DDP_HOOK_USER;
    if (o->hook < TUTTI_DDP_HOOK_NONE || o->hook > TUTTI_DDP_HOOK_USER)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_create: %d is no hook", (int)o->hook);
    if (o->hook == TUTTI_DDP_HOOK_USER && !o->user_hook)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_create: options.user_hook is NULL");
    if (by_bucket && (o->uneven || o->divisor != TUTTI_DDP_MEAN))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "tutti_ddp_create: PowerSGD and user hooks average by themselves; leave "
                        "options.divisor at TUTTI_DDP_MEAN and options.uneven false");
    if (by_bucket && o->path == TUTTI_DDP_PATH_SPLIT)
        return TTI_FAIL(
            TUTTI_ERR_ARGUMENT,
            "tutti_ddp_create: PowerSGD and user hooks take whole buckets; options.path "
            "cannot be TUTTI_DDP_PATH_SPLIT");
    if (o->power_rank < 1 || o->power_rank > 64)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_create: power_rank is %d; 1 to 64 can be",
                        o->power_rank);
    return TUTTI_OK;
}

static enum tutti_result create_sharding(const struct tutti_ddp *ddp,
                                         const struct tutti_ddp_options *o)
{
    if (o->zero < 0 || o->zero > 3)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_create: zero is %d; 0 to 3 can be", o->zero);
    if (o->zero > 0 && (o->hook == TUTTI_DDP_HOOK_POWERSGD || o->hook == TUTTI_DDP_HOOK_USER ||
                        o->path == TUTTI_DDP_PATH_WHOLE))
        return TTI_FAIL(
            TUTTI_ERR_ARGUMENT,
            "tutti_ddp_create: with zero %d gradients are reduce-scattered; PowerSGD, user "
            "hooks and TUTTI_DDP_PATH_WHOLE cannot be",
            o->zero);
    if (o->zero == 3 && !o->by_unit)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "tutti_ddp_create: zero 3 holds values between tutti_ddp_acquire and "
                        "tutti_ddp_release only; set options.by_unit");
    if (o->shard_ranks != 0 && o->zero == 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "tutti_ddp_create: shard_ranks is given, but zero 0 shards nothing");
    if (o->shard_ranks < TUTTI_DDP_HOST || (o->shard_ranks > 0 && ddp->size % o->shard_ranks != 0))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "tutti_ddp_create: shard_ranks is %d; it must divide the %d ranks, or be 0 "
                        "or TUTTI_DDP_HOST",
                        o->shard_ranks, ddp->size);
    return o->prefetch >= 0
               ? TUTTI_OK
               : TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_create: prefetch is %d", o->prefetch);
}

static enum tutti_result create_options(struct tutti_ddp *ddp,
                                        const struct tutti_ddp_options *given)
{
    struct tutti_ddp_options *o = &ddp->options;
    *o = (struct tutti_ddp_options)TUTTI_DDP_OPTIONS_INIT;
    if (given && given->size != sizeof *given)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "tutti_ddp_create: options.size is %zu, not %zu; start from the INIT macro",
                        given->size, sizeof *given);
    if (given)
        *o = *given;
    o->bucket_bytes = o->bucket_bytes ? o->bucket_bytes : (size_t)25 << 20;
    if (o->first_bucket_bytes == 0)
        o->first_bucket_bytes =
            o->bucket_bytes < (size_t)1 << 20 ? o->bucket_bytes : (size_t)1 << 20;
    o->last_bucket_bytes = o->last_bucket_bytes ? o->last_bucket_bytes : o->first_bucket_bytes;
    o->chunk_bytes = o->chunk_bytes ? o->chunk_bytes : (size_t)4 << 20;
    o->in_flight = o->in_flight ? o->in_flight : 1;
    o->power_rank = o->power_rank ? o->power_rank : 4;
    if (o->in_flight < 1 || o->in_flight > TTI_DDP_LANES)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_create: in_flight is %d; 1 to %d can be",
                        o->in_flight, TTI_DDP_LANES);
    if (o->divisor < TUTTI_DDP_MEAN || o->divisor > TUTTI_DDP_TOKENS)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_create: %d is no divisor", (int)o->divisor);
    if (o->path < TUTTI_DDP_PATH_AUTO || o->path > TUTTI_DDP_PATH_SPLIT)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_create: %d is no path", (int)o->path);
    TTI_TRY(create_sharding(ddp, o));
    return create_hook(o);
}

/* What this rank alone can find wrong. */
static enum tutti_result create_check(struct tutti_ddp *ddp, const struct tutti_ddp_tensor *tensors,
                                      size_t count, const struct tutti_ddp_options *options)
{
    if (!tensors && count > 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_create: tensors is NULL");
    ddp->tensors = tti_calloc(count, sizeof *ddp->tensors);
    if (!ddp->tensors)
        return TUTTI_ERR_MEMORY;
    TTI_TRY(create_options(ddp, options));
    TTI_TRY(tti_ddp_device_open(ddp));
    for (size_t i = 0; i < count; i++) {
        TTI_TRY(create_tensor(ddp, &tensors[i], i, &ddp->tensors[i]));
        ddp->tensor_count = i + 1;
        TTI_TRY(tti_ddp_offload_add(ddp, &ddp->tensors[i], tensors[i].device));
        if (ddp->options.zero > 0 && tensors[i].kind == TUTTI_DDP_TRAINED && tensors[i].value)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                            "tutti_ddp_create: %s: with zero %d values lie where the library can "
                            "gather them; give value NULL, and ask tutti_ddp_value",
                            tensors[i].name, ddp->options.zero);
        ddp->trained_count += tensors[i].kind == TUTTI_DDP_TRAINED;
    }
    return create_names(ddp);
}

/* Memory of the library for values, each aligned, in the order of the list. */
static enum tutti_result create_values(struct tutti_ddp *ddp)
{
    size_t bytes = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1) {
            if (bytes == 0)
                return TUTTI_OK;
            TTI_TRY(tti_ddp_alloc(ddp, bytes, &ddp->values));
            ddp->value_bytes = ddp->value_bytes_most = bytes;
            bytes = 0;
        }
        for (size_t i = 0; i < ddp->tensor_count; i++) {
            struct tti_ddp_tensor *t = &ddp->tensors[i];
            size_t need = t->elements * tutti_type_size(t->type);
            if (!t->owned || (ddp->options.zero > 0 && t->kind == TUTTI_DDP_TRAINED))
                continue;
            if (pass == 1)
                t->value = (char *)ddp->values + bytes;
            bytes += (need + TTI_DDP_ALIGN - 1) / TTI_DDP_ALIGN * TTI_DDP_ALIGN;
        }
    }
    return TUTTI_OK;
}

/* The first guess of the order in which gradients become ready: the list backwards. */
static enum tutti_result create_buckets(struct tutti_ddp *ddp)
{
    size_t *order = tti_calloc(ddp->trained_count, sizeof *order);
    if (!order)
        return TUTTI_ERR_MEMORY;
    for (size_t i = ddp->tensor_count, k = 0; i-- > 0;)
        if (ddp->tensors[i].kind == TUTTI_DDP_TRAINED)
            order[k++] = i;
    enum tutti_result result = tti_ddp_layout(ddp, order);
    free(order);
    return result;
}

static enum tutti_result create_broadcast(struct tutti_ddp *ddp, bool callers, bool owned)
{
    for (size_t i = 0; i < ddp->tensor_count; i++) {
        const struct tti_ddp_tensor *t = &ddp->tensors[i];
        if ((t->owned ? owned : callers) && t->value) /* no value: zero 3, see release */
            TTI_TRY(tti_ddp_spread(ddp, t, 0));
    }
    return TUTTI_OK;
}

enum tutti_result tutti_ddp_broadcast(tutti_ddp *ddp)
{
    if (!ddp)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_broadcast: ddp is NULL");
    TTI_TRY(tti_group_refuse("tutti_ddp_broadcast"));
    TTI_TRY(create_broadcast(ddp, true, true));
    ddp->broadcast_done = true;
    return TUTTI_OK;
}

/* Which ranks share a copy. */
static enum tutti_result create_groups(struct tutti_ddp *ddp, tutti_comm *comm)
{
    int ranks = ddp->options.shard_ranks;
    ddp->group_size = ddp->size;
    ddp->group_rank = ddp->rank;
    if (ranks > 0) {
        ddp->group_size = ranks;
        ddp->group_number = ddp->rank / ranks;
    } else if (ranks == TUTTI_DDP_HOST) {
        ddp->group_size = tutti_comm_local_size(comm);
        ddp->group_number = tutti_comm_host(comm, ddp->rank);
    }
    int32_t sizes[2] = {ddp->group_size, -ddp->group_size};
    TTI_TRY(tutti_all_reduce(sizes, sizes, 2, TUTTI_INT32, TUTTI_MAX, ddp->control));
    if (sizes[0] != -sizes[1])
        return TTI_FAIL(
            TUTTI_ERR_UNSUPPORTED,
            "tutti_ddp_create: sharding inside hosts needs as many ranks on each; there "
            "are hosts with %d and with %d",
            -sizes[1], sizes[0]);
    if (ddp->group_size == ddp->size)
        return TUTTI_OK;
    TTI_TRY(tutti_comm_split(comm, ddp->group_number, ddp->rank, &ddp->group));
    ddp->group_rank = tutti_comm_rank(ddp->group);
    return TUTTI_OK;
}

static enum tutti_result create_parts(struct tutti_ddp *ddp, tutti_comm *comm)
{
    const struct tutti_ddp_options *o = &ddp->options;
    ddp->by_bucket = o->hook == TUTTI_DDP_HOOK_POWERSGD || o->hook == TUTTI_DDP_HOOK_USER;
    ddp->split = o->zero > 0 || o->path == TUTTI_DDP_PATH_SPLIT ||
                 (o->path == TUTTI_DDP_PATH_AUTO && !ddp->by_bucket && tutti_comm_hosts(comm) > 1);
    TTI_TRY(create_groups(ddp, comm));
    TTI_TRY(create_values(ddp));
    TTI_TRY(create_buckets(ddp));
    TTI_TRY(tti_ddp_units_make(ddp));
    TTI_TRY(tti_ddp_lanes_start(ddp, comm));
    TTI_TRY(create_broadcast(ddp, true, false));
    ddp->broadcast_done = !ddp->values && !ddp->sharded_values;
    return TUTTI_OK;
}

enum tutti_result tutti_ddp_create(tutti_comm *comm, const struct tutti_ddp_tensor *tensors,
                                   size_t count, const struct tutti_ddp_options *options,
                                   tutti_ddp **ddp)
{
    if (!comm || !ddp)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_create: %s is NULL", comm ? "ddp" : "comm");
    TTI_TRY(tti_group_refuse("tutti_ddp_create"));
    struct tutti_ddp *made = tti_calloc(1, sizeof *made);
    if (!made)
        return TUTTI_ERR_MEMORY;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    made->rank = tutti_comm_rank(comm);
    made->size = tutti_comm_size(comm);
    made->gradient_pool = (struct tti_ddp_pool){
        .ddp = made, .held = &made->gradient_bytes, .held_most = &made->gradient_bytes_most};
    made->value_pool = (struct tti_ddp_pool){
        .ddp = made, .held = &made->value_bytes, .held_most = &made->value_bytes_most};
    enum tutti_result result = tutti_comm_split(comm, 0, made->rank, &made->control);
    if (result == TUTTI_OK) {
        struct tti_error own;
        tti_error_save(&own, create_check(made, tensors, count, options));
        result = tti_ddp_verify(made, &own);
    }
    if (result == TUTTI_OK)
        result = create_parts(made, comm);
    if (result != TUTTI_OK) {
        struct tti_error error;
        tti_error_save(&error, result);
        tutti_ddp_destroy(made);
        return tti_error_restore(&error);
    }
    *ddp = made;
    return TUTTI_OK;
}

void tutti_ddp_destroy(tutti_ddp *ddp)
{
    if (!ddp)
        return;
    (void)tti_ddp_offload_wait(ddp); /* a pass that was given up */
    tti_ddp_lanes_stop(ddp);
    if (tti_ddp_device_done(ddp) != TUTTI_OK)
        ddp->lost = true;
    if (ddp->lost) /* the GPU is stuck, and may call us yet: rather leave the memory to it */
        return;
    tutti_comm_destroy(ddp->group);
    tutti_comm_destroy(ddp->control);
    tti_ddp_layout_free(ddp);
    for (size_t i = 0; i < ddp->tensor_count; i++)
        create_tensor_free(&ddp->tensors[i]);
    free(ddp->tensors);
    free(ddp->unused);
    tti_ddp_recording_free(ddp->recording);
    free(ddp->units);
    free(ddp->calls);
    tti_ddp_pool_free(&ddp->gradient_pool);
    tti_ddp_pool_free(&ddp->value_pool);
    tti_ddp_free(ddp, ddp->sharded_values);
    tti_ddp_free(ddp, ddp->values);
    tti_ddp_device_free(ddp);
    if (ddp->gpu) {
        const struct tti_gpu_ops *ops = ddp->gpu->ops;
        tti_gpu_retire_device(ddp->gpu);
        tti_gpu_reclaim(ops);
    }
    pthread_cond_destroy(&ddp->changed);
    pthread_mutex_destroy(&ddp->lock);
    free(ddp);
}
