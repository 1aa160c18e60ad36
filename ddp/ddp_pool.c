/* Buffers of one size, given and taken back (ddp/ddp_state.h): memory of whole gradients and values
 * that are there for a while only. What was made once is kept until the end. */
#include "base/memory.h"
#include "ddp/ddp_state.h"

#include <stdlib.h>

/* Under the lock: a new buffer is the pool's, and idle. */
static enum tutti_result pool_enter(struct tti_ddp_pool *pool, void *buffer)
{
    TTI_TRY(tti_grow((void **)&pool->all, &pool->all_capacity, pool->count + 1, sizeof(void *)));
    TTI_TRY(tti_grow((void **)&pool->idle, &pool->idle_capacity, pool->count + 1, sizeof(void *)));
    pool->all[pool->count++] = buffer;
    pool->idle[pool->idle_count++] = buffer;
    *pool->held += pool->bytes;
    if (*pool->held > *pool->held_most)
        *pool->held_most = *pool->held;
    return TUTTI_OK;
}

enum tutti_result tti_ddp_pool_fill(struct tti_ddp_pool *pool)
{
    struct tutti_ddp *ddp = pool->ddp;
    while (pool->idle_count == 0) {
        void *buffer = NULL;
        pthread_mutex_unlock(&ddp->lock);
        enum tutti_result result = tti_ddp_alloc(ddp, pool->bytes, &buffer);
        pthread_mutex_lock(&ddp->lock);
        if (result == TUTTI_OK)
            result = pool_enter(pool, buffer);
        if (result != TUTTI_OK) {
            if (buffer)
                tti_ddp_free(ddp, buffer);
            return result;
        }
    }
    return TUTTI_OK;
}

void *tti_ddp_pool_take(struct tti_ddp_pool *pool)
{
    return pool->idle[--pool->idle_count];
}

void tti_ddp_pool_give(struct tti_ddp_pool *pool, void *buffer)
{
    pool->idle[pool->idle_count++] = buffer; /* there is room for all */
}

void tti_ddp_pool_free(struct tti_ddp_pool *pool)
{
    for (size_t i = 0; i < pool->count; i++)
        tti_ddp_free(pool->ddp, pool->all[i]);
    free(pool->all);
    free(pool->idle);
}
