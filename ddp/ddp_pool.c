/* Buffers of one size, given and taken back (ddp/ddp_state.h): memory of whole gradients and values
 * that are there for a while only. What was made once is kept until the end. */
#include "base/memory.h"
#include "ddp/ddp_state.h"

#include <stdlib.h>

enum tutti_result tti_ddp_pool_take(struct tti_ddp_pool *pool, void **buffer)
{
    if (pool->idle_count > 0) {
        *buffer = pool->idle[--pool->idle_count];
        return TUTTI_OK;
    }
    TTI_TRY(tti_grow((void **)&pool->all, &pool->all_capacity, pool->count + 1, sizeof(void *)));
    TTI_TRY(tti_grow((void **)&pool->idle, &pool->idle_capacity, pool->count + 1, sizeof(void *)));
    TTI_TRY(tti_ddp_alloc(pool->ddp, pool->bytes, &pool->all[pool->count]));
    *buffer = pool->all[pool->count++];
    return TUTTI_OK;
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
