/* See reclaim.h. */
#include "device/reclaim.h"

#include "base/memory.h"
#include "base/process_lock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct retired {
    struct retired *next;
    struct tti_gpu *gpu;
    void (*end)(struct tti_gpu *gpu, void *what);
    void *what;
};

/* The devices of one implementation: freeing on one may wait for another, of which memory is
 * mapped. There are few implementations, and this stays. */
struct tti_gpu_domain {
    struct tti_gpu_domain *next;
    const struct tti_gpu_ops *ops;
    pthread_rwlock_t gate; /* shared: who queues; alone: who reclaims where somebody waits */
    pthread_mutex_t lock;  /* of what follows */
    struct tti_gpu_user *users;
    bool ending; /* a thread ends what was retired: the order is kept, and one is enough */
    struct retired *first, **last;
    _Atomic int count; /* of what is retired, and of what is being ended */
    _Atomic bool wanted;
};

static struct tti_gpu_domain *domains;

/* ---- domains ---- */

/* What is the parent's stays with it, and its threads that held locks are not here. */
static void domains_forget(void)
{
    domains = NULL;
}

static struct tti_process_lock domains_lock = TTI_PROCESS_LOCK(domains_forget);

/* Under the lock. NULL: no memory. */
static struct tti_gpu_domain *domain_make(const struct tti_gpu_ops *ops)
{
    struct tti_gpu_domain *domain = tti_calloc(1, sizeof *domain);
    if (!domain)
        return NULL;
    domain->ops = ops;
    domain->last = &domain->first;
    pthread_rwlock_init(&domain->gate, NULL);
    pthread_mutex_init(&domain->lock, NULL);
    domain->next = domains;
    domains = domain;
    return domain;
}

static struct tti_gpu_domain *domain_of(const struct tti_gpu_ops *ops, bool make)
{
    tti_process_lock(&domains_lock);
    struct tti_gpu_domain *domain = domains;
    while (domain && domain->ops != ops)
        domain = domain->next;
    if (!domain && make)
        domain = domain_make(ops);
    tti_process_unlock(&domains_lock);
    return domain;
}

/* ---- users ---- */

enum tutti_result tti_gpu_user_enter(struct tti_gpu_user *user, const struct tti_gpu *gpu)
{
    struct tti_gpu_domain *domain = domain_of(gpu->ops, true);
    if (!domain)
        return TUTTI_ERR_MEMORY;
    pthread_mutex_lock(&domain->lock);
    user->domain = domain;
    user->next = domain->users;
    domain->users = user;
    pthread_mutex_unlock(&domain->lock);
    return TUTTI_OK;
}

/* Under the lock. */
static void user_unlink(struct tti_gpu_user *user)
{
    struct tti_gpu_user **link = &user->domain->users;
    while (*link != user)
        link = &(*link)->next;
    *link = user->next;
    user->domain = NULL;
}

void tti_gpu_user_leave(struct tti_gpu_user *user, bool idle)
{
    struct tti_gpu_domain *domain = user->domain;
    if (!domain)
        return;
    pthread_mutex_lock(&domain->lock);
    if (idle)
        user_unlink(user);
    else
        user->waits = user->left = true;
    pthread_mutex_unlock(&domain->lock);
}

void tti_gpu_gate_enter(struct tti_gpu_user *user)
{
    (void)pthread_rwlock_rdlock(&user->domain->gate);
}

void tti_gpu_gate_leave(struct tti_gpu_user *user)
{
    (void)pthread_rwlock_unlock(&user->domain->gate);
}

/* ---- ending ---- */

/* Under the lock: does anybody's work wait for a thread of this process? */
static bool domain_waits(const struct tti_gpu_domain *domain)
{
    bool waits = false;
    for (const struct tti_gpu_user *user = domain->users; user; user = user->next)
        waits = waits || user->waits;
    return waits;
}

/* Under the lock and alone at the gate: is all work over? */
static bool domain_idle(const struct tti_gpu_domain *domain)
{
    bool idle = true;
    for (const struct tti_gpu_user *user = domain->users; user && idle; user = user->next)
        idle = user->idle(user);
    return idle;
}

/* Under the lock: what was left behind is over, and its device may be closed. */
static void domain_forget_left(struct tti_gpu_domain *domain)
{
    for (struct tti_gpu_user *user = domain->users, *next; user; user = next) {
        next = user->next;
        if (user->left)
            user_unlink(user);
    }
}

/* Under the lock, without it meanwhile. One thread at a time: a device is closed after what was
 * retired before that. */
static void domain_end(struct tti_gpu_domain *domain)
{
    struct retired *taken = domain->first;
    domain->first = NULL;
    domain->last = &domain->first;
    domain->ending = true;
    pthread_mutex_unlock(&domain->lock);
    while (taken) {
        struct retired *next = taken->next;
        taken->end(taken->gpu, taken->what);
        free(taken);
        taken = next;
        domain->count--;
    }
    pthread_mutex_lock(&domain->lock);
    domain->ending = false;
}

/* Where nobody's work waits for a thread: freeing may wait for the device. Nobody is kept out
 * meanwhile, since the device may wait for another process, and that for this one's next call. */
static void domain_end_blocking(struct tti_gpu_domain *domain)
{
    pthread_mutex_lock(&domain->lock);
    while (domain->first && !domain->ending && !domain_waits(domain))
        domain_end(domain);
    pthread_mutex_unlock(&domain->lock);
}

/* Where somebody's does, or the caller may not stand still: on idle devices. */
static void domain_end_idle(struct tti_gpu_domain *domain)
{
    if (atomic_load_explicit(&domain->count, memory_order_relaxed) == 0)
        return;
    domain->wanted = true;
    /* Again for who wanted it meanwhile, and found the gate shut. */
    while (domain->wanted && pthread_rwlock_trywrlock(&domain->gate) == 0) {
        domain->wanted = false;
        pthread_mutex_lock(&domain->lock);
        if (domain->first && !domain->ending && domain_idle(domain)) {
            domain_forget_left(domain);
            domain_end(domain);
        }
        pthread_mutex_unlock(&domain->lock);
        (void)pthread_rwlock_unlock(&domain->gate);
    }
}

/* ---- retiring ---- */

void tti_gpu_retire(struct tti_gpu *gpu, void (*end)(struct tti_gpu *gpu, void *what), void *what)
{
    struct tti_gpu_domain *domain = domain_of(gpu->ops, true);
    struct retired *made = domain ? tti_calloc(1, sizeof *made) : NULL;
    if (!made) /* then it stays: ending it might hold somebody up, and come before others */
        return;
    *made = (struct retired){.gpu = gpu, .end = end, .what = what};
    pthread_mutex_lock(&domain->lock);
    *domain->last = made;
    domain->last = &made->next;
    domain->count++;
    pthread_mutex_unlock(&domain->lock);
    domain_end_blocking(domain);
}

static void end_memory(struct tti_gpu *gpu, void *memory)
{
    gpu->ops->free(gpu, memory);
}

static void end_import(struct tti_gpu *gpu, void *memory)
{
    gpu->ops->memory_release(gpu, memory);
}

static void end_device(struct tti_gpu *gpu, void *nothing)
{
    (void)nothing;
    gpu->ops->close(gpu);
}

void tti_gpu_retire_memory(struct tti_gpu *gpu, void *memory)
{
    if (memory)
        tti_gpu_retire(gpu, end_memory, memory);
}

void tti_gpu_retire_import(struct tti_gpu *gpu, void *memory)
{
    if (memory)
        tti_gpu_retire(gpu, end_import, memory);
}

void tti_gpu_retire_device(struct tti_gpu *gpu)
{
    tti_gpu_retire(gpu, end_device, NULL);
}

/* ---- reclaiming ---- */

void tti_gpu_reclaim(const struct tti_gpu_ops *ops)
{
    struct tti_gpu_domain *domain = domain_of(ops, false);
    if (!domain)
        return;
    domain_end_blocking(domain);
    domain_end_idle(domain);
}

void tti_gpu_reclaim_idle(const struct tti_gpu_user *user)
{
    if (user->domain)
        domain_end_idle(user->domain);
}

int tti_gpu_retired(const struct tti_gpu_ops *ops)
{
    struct tti_gpu_domain *domain = domain_of(ops, false);
    return domain ? domain->count : 0;
}
