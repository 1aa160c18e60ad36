/* Lists that a child of fork begins without (base/process_lock.h). */
#include "base/process_lock.h"

#include <stdbool.h>

static pthread_once_t process_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t process_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct tti_process_lock *process_all; /* that were ever taken */

/* No other thread may be changing `process_all` while it is copied into the child. */
static void process_before(void)
{
    pthread_mutex_lock(&process_mutex);
}

static void process_parent(void)
{
    pthread_mutex_unlock(&process_mutex);
}

static void process_child(void)
{
    for (struct tti_process_lock *lock = process_all; lock; lock = lock->next) {
        pthread_mutex_init(&lock->mutex, NULL);
        lock->forget();
    }
    pthread_mutex_unlock(&process_mutex);
}

static void process_begin(void)
{
    (void)pthread_atfork(process_before, process_parent, process_child);
}

void tti_process_lock(struct tti_process_lock *lock)
{
    if (!atomic_load_explicit(&lock->known, memory_order_acquire)) {
        (void)pthread_once(&process_once, process_begin);
        pthread_mutex_lock(&process_mutex);
        if (!atomic_load_explicit(&lock->known, memory_order_relaxed)) {
            lock->next = process_all;
            process_all = lock;
            atomic_store_explicit(&lock->known, true, memory_order_release);
        }
        pthread_mutex_unlock(&process_mutex);
    }
    pthread_mutex_lock(&lock->mutex);
}

void tti_process_unlock(struct tti_process_lock *lock)
{
    pthread_mutex_unlock(&lock->mutex);
}
