/* Which operations on device memory send it from where it lies (gpu_send.h).
 *
 * Allocations are registered whole, once, and known by their ids, which the device never gives
 * twice: memory that was freed and handed out again has another. What is gone is looked for
 * whenever something new is to be registered, and forgotten first; so a registration never outlives
 * its address, though it may hold freed memory until then or until the communicator ends. */
#include "coll/gpu/gpu_send.h"

#include "base/config.h"
#include "base/log.h"
#include "base/memory.h"
#include "coll/gpu/gpu_side.h"

#include <stdlib.h>
#include <string.h>

enum {
    LEARNT = 128,         /* shapes of operations: a power of two */
    MOST_KNOWN = 256,     /* allocations */
    SEND_FROM = 16 << 10, /* bytes of a message: below, waiting for the peer's adapter to say that
                             it has them costs more than a copy */
};

enum send_rule { SEND_AUTO, SEND_OFF, SEND_REQUIRE };
static const char *const rule_names[] = {"auto", "off", "require"};

struct learnt { /* what became of an operation */
    enum tutti_collective collective;
    enum tutti_type type;
    int root;
    size_t count; /* 0: nothing is here */
    const struct tti_plan *plan;
    bool suits;
    uint32_t carriers; /* by which it sends its input, a bit each */
};

struct known { /* an allocation */
    uint64_t id;
    void *base;
    size_t bytes;
    uint32_t registered, refused; /* with carriers */
};

struct tti_gpu_send {
    pthread_mutex_t lock;
    enum send_rule rule;
    uint32_t carriers; /* those that can */
    bool ended;
    bool told; /* that something is copied nevertheless */
    struct learnt learnt[LEARNT];
    struct known *known;
    size_t count, room;
};

/* ---- making and ending ---- */

enum tutti_result tti_gpu_send_create(struct tutti_comm *comm)
{
    int rule = SEND_AUTO;
    uint32_t carriers = 0;
    TTI_TRY(tti_config_name("TUTTI_DEVICE_DIRECT", rule_names, 3, SEND_AUTO, &rule));
    for (int c = 0; c < comm->peers.ncarriers; c++)
        if (tti_transport_sends_device(comm->peers.carriers[c].ops))
            carriers |= 1u << c;
    if (!comm->gpu || rule == SEND_OFF || carriers == 0)
        return TUTTI_OK;
    struct tti_gpu_send *send = tti_calloc(1, sizeof *send);
    if (!send)
        return TUTTI_ERR_MEMORY;
    pthread_mutex_init(&send->lock, NULL);
    send->rule = (enum send_rule)rule;
    send->carriers = carriers;
    comm->gpu_send = send;
    return TUTTI_OK;
}

void tti_gpu_send_end(struct tutti_comm *comm)
{
    struct tti_gpu_send *send = comm->gpu_send;
    if (!send)
        return;
    pthread_mutex_lock(&send->lock);
    send->ended = true;
    pthread_mutex_unlock(&send->lock);
}

void tti_gpu_send_destroy(struct tti_gpu_send *send)
{
    if (!send)
        return;
    pthread_mutex_destroy(&send->lock);
    free(send->known);
    free(send);
}

size_t tti_gpu_send_bytes(struct tti_gpu_send *send)
{
    if (!send)
        return 0;
    pthread_mutex_lock(&send->lock);
    const size_t bytes = tti_heap_bytes(send) + tti_heap_bytes(send->known);
    pthread_mutex_unlock(&send->lock);
    return bytes;
}

/* ---- plans ---- */

bool tti_gpu_send_own(enum tutti_collective collective, int size, int rank, int root, uint32_t *in,
                      uint32_t *out)
{
    if (!tti_in_place(collective, size, rank, root, in, out))
        return false;
    if (collective == TUTTI_ALL_TO_ALL) /* of many blocks on both sides, one */
        *in = *out = (uint32_t)rank;
    return true;
}

struct reader { /* of a plan */
    const struct tti_plan *plan;
    uint32_t own_in, own_out;
    bool owns;
};

/* Does the step's range behind `ref` have something that lies in device memory? */
static bool reader_touches(const struct reader *r, const struct tti_step *step, struct tti_ref ref)
{
    const uint32_t chunks = r->plan->chunks, first = r->own_out * chunks;
    if (ref.buffer != TTI_OUT)
        return ref.buffer == TTI_IN;
    return r->owns && ref.index < first + chunks && ref.index + step->nchunks > first;
}

/* A copy of the own part of IN to its place in OUT: the device has it there already. */
static bool reader_is_own(const struct reader *r, const struct tti_step *step)
{
    const uint32_t chunks = r->plan->chunks;
    return r->owns && step->src.buffer == TTI_IN && step->dst.buffer == TTI_OUT &&
           step->src.index / chunks == r->own_in && step->dst.index / chunks == r->own_out &&
           step->src.index % chunks == step->dst.index % chunks &&
           step->src.index % chunks + step->nchunks <= chunks;
}

/* May the step run with that in device memory? */
static bool reader_suits(const struct reader *r, const struct tti_step *step)
{
    switch (step->kind) {
    case TTI_SEND:
        return true;
    case TTI_COPY:
        return reader_is_own(r, step) ||
               !(reader_touches(r, step, step->src) || reader_touches(r, step, step->dst));
    case TTI_RECV:
        return !reader_touches(r, step, step->dst);
    default:
        return !reader_touches(r, step, step->src) && !reader_touches(r, step, step->dst) &&
               (step->kind != TTI_REDUCE || !reader_touches(r, step, step->src2));
    }
}

/* The carriers that send what lies in device memory; false: the host must touch that. */
static bool plan_suits(const struct tutti_comm *comm, const struct tti_operation *o,
                       const struct tti_plan *plan, uint32_t *carriers)
{
    struct reader r = {.plan = plan};
    r.owns =
        tti_gpu_send_own(o->collective, comm->size, comm->rank, o->root, &r.own_in, &r.own_out);
    *carriers = 0;
    for (int lane = 0; lane < plan->nlanes; lane++)
        for (size_t s = 0; s < plan->lanes[lane].count; s++) {
            const struct tti_step *step = &plan->lanes[lane].steps[s];
            const bool sends = step->kind == TTI_SEND || (step->flags & TTI_FORWARD);
            if (!reader_suits(&r, step))
                return false;
            if (sends && reader_touches(&r, step, step->kind == TTI_SEND ? step->src : step->dst))
                *carriers |= 1u << comm->peers.all[step->to].carrier;
        }
    return true;
}

static struct learnt *learnt_slot(struct tti_gpu_send *send, const struct tti_operation *o)
{
    uint64_t hash = (uint64_t)o->count * TUTTI_TYPE_COUNT + (uint64_t)o->type;
    hash = hash * TUTTI_COLLECTIVE_COUNT + (uint64_t)o->collective;
    hash = (hash * 1009 + (uint64_t)o->root) * UINT64_C(0x9e3779b97f4a7c15);
    return &send->learnt[hash >> 32 & (LEARNT - 1)];
}

static bool learnt_is(const struct learnt *l, const struct tti_operation *o)
{
    return l->count == o->count && l->collective == o->collective && l->type == o->type &&
           l->root == o->root;
}

bool tti_gpu_send_learn(struct tutti_comm *comm, const struct tti_operation *o,
                        const struct tti_plan *plan)
{
    struct tti_gpu_send *send = comm->gpu_send;
    pthread_mutex_lock(&send->lock);
    struct learnt *l = learnt_slot(send, o);
    if (!learnt_is(l, o) || l->plan != plan) {
        *l = (struct learnt){.collective = o->collective,
                             .type = o->type,
                             .root = o->root,
                             .count = o->count,
                             .plan = plan};
        l->suits = plan_suits(comm, o, plan, &l->carriers) && (l->carriers & ~send->carriers) == 0;
    }
    const bool suits = l->suits;
    pthread_mutex_unlock(&send->lock);
    return suits;
}

/* Under the lock. What was not learnt does not suit. */
static bool send_carriers(struct tutti_comm *comm, const struct tti_operation *o,
                          uint32_t *carriers)
{
    struct tti_gpu_send *send = comm->gpu_send;
    if (o->collective == TUTTI_SEND_RECV) {
        /* A message to oneself goes by no transport, and a put by the post's own, which reads its
         * data on the host. */
        if (o->root == comm->rank || o->alone != TTI_NOT_ALONE)
            return false;
        *carriers = 1u << comm->peers.all[o->root].carrier;
        return (*carriers & ~send->carriers) == 0;
    }
    const struct learnt *l = learnt_slot(send, o);
    *carriers = l->carriers;
    /* The host multiplies. */
    const bool scales = (unsigned)o->op >= TUTTI_OP_USER && tti_reduces(o->collective);
    return learnt_is(l, o) && l->suits && !scales;
}

/* ---- allocations ---- */

/* As a transport is told of it. */
struct told {
    struct tutti_device_memory memory;
    struct tti_gpu *gpu;
};

static enum tutti_result told_dmabuf(const struct tutti_device_memory *memory, int *fd,
                                     uint64_t *offset)
{
    const struct told *told = (const struct told *)(const void *)memory;
    return told->gpu->ops->memory_dmabuf(told->gpu, memory->base, memory->bytes, fd, offset);
}

static void known_forget(struct tutti_comm *comm, const struct known *known)
{
    for (int c = 0; c < comm->peers.ncarriers; c++) {
        const struct tti_carrier *carrier = &comm->peers.carriers[c];
        if (known->registered & (1u << c))
            carrier->ops->device_forget(carrier->object, known->id);
    }
}

static enum tutti_result known_sweep(struct tutti_comm *comm)
{
    struct tti_gpu_send *send = comm->gpu_send;
    for (size_t i = 0; i < send->count;) {
        struct tti_gpu_pointer now;
        TTI_TRY(comm->gpu->ops->pointer(send->known[i].base, &now));
        if (now.id == send->known[i].id) {
            i++;
            continue;
        }
        known_forget(comm, &send->known[i]);
        send->known[i] = send->known[--send->count];
    }
    return TUTTI_OK;
}

/* The entry of the allocation, made now if it is new. */
static enum tutti_result known_enter(struct tutti_comm *comm, const struct tti_gpu_pointer *info,
                                     struct known **known)
{
    struct tti_gpu_send *send = comm->gpu_send;
    void *grown = send->known;
    for (size_t i = 0; i < send->count; i++)
        if (send->known[i].id == info->id) {
            *known = &send->known[i];
            return TUTTI_OK;
        }
    TTI_TRY(known_sweep(comm));
    if (send->count == MOST_KNOWN)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "%d allocations are registered already; take buffers out of fewer",
                        (int)MOST_KNOWN);
    TTI_TRY(tti_grow(&grown, &send->room, send->count + 1, sizeof *send->known));
    send->known = grown;
    *known = &send->known[send->count++];
    **known = (struct known){.id = info->id, .base = info->base, .bytes = info->bytes};
    return TUTTI_OK;
}

static enum tutti_result known_register(struct tutti_comm *comm, struct known *known, int carrier)
{
    const struct tti_carrier *to = &comm->peers.carriers[carrier];
    const struct told told = {.memory = {.size = sizeof told.memory,
                                         .base = known->base,
                                         .bytes = known->bytes,
                                         .id = known->id,
                                         .dmabuf = told_dmabuf},
                              .gpu = comm->gpu->gpu};
    const enum tutti_result result = to->ops->device_register(to->object, &told.memory);
    if (result == TUTTI_OK)
        known->registered |= 1u << carrier;
    else
        known->refused |= 1u << carrier;
    return result;
}

/* What stands against these carriers reading those bytes; NULL: nothing. Asked for each call, so it
 * makes no error of what it knows already, and asks nobody twice. */
static const char *send_memory(struct tutti_comm *comm, const void *in, size_t bytes,
                               uint32_t carriers)
{
    struct tti_gpu_pointer info;
    struct known *known = NULL;
    if (comm->gpu->ops->pointer(in, &info) != TUTTI_OK)
        return tti_error_text();
    if (info.kind != TTI_MEMORY_DEVICE || info.id == 0)
        return "it is page-locked, managed, or mapped piece by piece, and the device gives such "
               "memory no number of its own";
    if (bytes > info.bytes - (size_t)((const char *)in - (const char *)info.base))
        return "the buffer goes over the end of an allocation";
    if (known_enter(comm, &info, &known) != TUTTI_OK)
        return tti_error_text();
    if (known->refused & carriers)
        return "it was refused before";
    for (int c = 0; c < comm->peers.ncarriers; c++)
        if ((carriers & ~known->registered) & (1u << c) &&
            known_register(comm, known, c) != TUTTI_OK)
            return tti_error_text();
    return NULL;
}

/* ---- the question ---- */

/* Under the lock. */
static enum tutti_result send_ready(struct tutti_comm *comm, const struct tti_operation *o,
                                    const void *in, size_t bytes, bool *ready)
{
    struct tti_gpu_send *send = comm->gpu_send;
    uint32_t carriers = 0;
    if (send->ended || !send_carriers(comm, o, &carriers))
        return TUTTI_OK;
    const char *why = send_memory(comm, in, bytes, carriers);
    *ready = why == NULL;
    if (*ready)
        return TUTTI_OK;
    if (send->rule == SEND_REQUIRE)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "TUTTI_DEVICE_DIRECT is \"require\", but the network cannot read %zu bytes "
                        "of device memory at %p: %s",
                        bytes, in, why);
    if (!send->told)
        TTI_LOG(TTI_LOG_WARN, "device memory is copied to the host before it is sent: %s", why);
    send->told = true;
    return TUTTI_OK;
}

enum tutti_result tti_gpu_send_ready(struct tutti_comm *comm, const struct tti_operation *o,
                                     const void *in, size_t bytes, bool *ready)
{
    struct tti_gpu_send *send = comm->gpu_send;
    *ready = false;
    if (!send || o->count * tutti_type_size(o->type) < SEND_FROM)
        return TUTTI_OK;
    pthread_mutex_lock(&send->lock);
    const enum tutti_result result = send_ready(comm, o, in, bytes, ready);
    pthread_mutex_unlock(&send->lock);
    return result;
}
