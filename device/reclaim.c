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

/* Shared: who queues on the device; alone, and all of them: who reclaims where somebody waits.
 * Lines apart, since threads of several devices are at them all the time. */
struct tti_gpu_gate {
    pthread_rwlock_t lock;
    char apart[128];
};

enum { GATES = 16 }; /* devices share them in turn, if there are more */

/* The devices of one implementation: freeing on one may wait for another, of which memory is
 * mapped. There are few implementations, and this stays. */
struct tti_gpu_domain {
    struct tti_gpu_domain *next;
    const struct tti_gpu_ops *ops;
    struct tti_gpu_gate gates[GATES];
    pthread_mutex_t reclaims; /* who tries to have all gates */
    pthread_mutex_t lock;     /* of what follows */
    struct tti_gpu_user *users;
    bool failed; /* somebody's work has, so others' may never be over */
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
    for (int k = 0; k < GATES; k++)
        pthread_rwlock_init(&domain->gates[k].lock, NULL);
    pthread_mutex_init(&domain->reclaims, NULL);
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
    user->gate = &domain->gates[(unsigned)gpu->device % GATES];
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

void tti_gpu_user_failed(const struct tti_gpu_user *user)
{
    struct tti_gpu_domain *domain = user->domain;
    if (!domain)
        return;
    pthread_mutex_lock(&domain->lock);
    domain->failed = true;
    pthread_mutex_unlock(&domain->lock);
}

void tti_gpu_gate_enter(struct tti_gpu_user *user)
{
    (void)pthread_rwlock_rdlock(&user->gate->lock);
}

void tti_gpu_gate_leave(struct tti_gpu_user *user)
{
    (void)pthread_rwlock_unlock(&user->gate->lock);
}

static void gates_open(struct tti_gpu_domain *domain, int shut)
{
    while (shut > 0)
        (void)pthread_rwlock_unlock(&domain->gates[--shut].lock);
}

/* All or none, without waiting: while some are shut and another one is not to be had nobody else
 * waits for longer than that takes. */
static bool gates_shut(struct tti_gpu_domain *domain)
{
    for (int k = 0; k < GATES; k++) {
        if (pthread_rwlock_trywrlock(&domain->gates[k].lock) == 0)
            continue;
        gates_open(domain, k);
        return false;
    }
    return true;
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

/* Under the lock and alone at all gates: is all work over? A graph may be kept for good: where what
 * was retired is not freed at another time, either, it does not count. */
static bool domain_idle(const struct tti_gpu_domain *domain)
{
    const bool but_graphs = domain->failed && !domain_waits(domain);
    bool idle = true;
    for (const struct tti_gpu_user *user = domain->users; user && idle; user = user->next)
        idle = user->idle(user, but_graphs);
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
    while (domain->first && !domain->ending && !domain->failed && !domain_waits(domain))
        domain_end(domain);
    pthread_mutex_unlock(&domain->lock);
}

/* Alone at all gates. */
static void domain_end_shut(struct tti_gpu_domain *domain)
{
    pthread_mutex_lock(&domain->lock);
    if (domain->first && !domain->ending && domain_idle(domain)) {
        domain_forget_left(domain);
        domain_end(domain);
    }
    pthread_mutex_unlock(&domain->lock);
}

/* Where somebody's does, or the caller may not stand still: on idle devices. */
static void domain_end_idle(struct tti_gpu_domain *domain)
{
    if (atomic_load_explicit(&domain->count, memory_order_relaxed) == 0)
        return;
    domain->wanted = true;
    /* Again for who wanted it meanwhile, and found another one at it. */
    while (domain->wanted && pthread_mutex_trylock(&domain->reclaims) == 0) {
        domain->wanted = false;
        if (gates_shut(domain)) {
            domain_end_shut(domain);
            gates_open(domain, GATES);
        }
        pthread_mutex_unlock(&domain->reclaims);
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

bool tti_gpu_waited(const struct tti_gpu_ops *ops)
{
    struct tti_gpu_domain *domain = domain_of(ops, false);
    if (!domain)
        return false;
    pthread_mutex_lock(&domain->lock);
    const bool waits = domain_waits(domain);
    pthread_mutex_unlock(&domain->lock);
    return waits;
}

int tti_gpu_retired(const struct tti_gpu_ops *ops)
{
    struct tti_gpu_domain *domain = domain_of(ops, false);
    return domain ? domain->count : 0;
}
