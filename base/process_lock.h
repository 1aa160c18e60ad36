/* Locks of lists that belong to one process. A child made by fork has a copy of such a list, but
 * neither the devices, mappings or threads behind its entries, nor the thread that may have held
 * the lock: it begins without. */
#ifndef TTI_BASE_PROCESS_LOCK_H
#define TTI_BASE_PROCESS_LOCK_H

#include <pthread.h>
#include <stdatomic.h>

/* Static: a child knows it for as long as the library is there. */
struct tti_process_lock {
    pthread_mutex_t mutex;
    void (*forget)(void); /* in a child, where the lock is free again: make the list empty; calls
                             nothing that may take a lock, malloc and free among that */
    struct tti_process_lock *next;
    atomic_bool known;
};

#define TTI_PROCESS_LOCK(how)                               \
    {                                                       \
        .mutex = PTHREAD_MUTEX_INITIALIZER, .forget = (how) \
    }

/* Take it. A list is changed under the lock only, so whoever has entries has been here. */
void tti_process_lock(struct tti_process_lock *lock);
void tti_process_unlock(struct tti_process_lock *lock);

#endif
