/* Registered memory: rings, room for copies, and the caller's regions (rdma.h).
 *
 * The caller's memory is registered only where it lies in a region of the library
 * (device/memory.h): a region has an id that is never used again, so a registration that outlives
 * its region is never taken for what came to the same addresses later. Nothing of the kind can be
 * known of memory from malloc; that is copied. */
#include "base/atomic.h"
#include "base/log.h"
#include "base/memory.h"
#include "device/memory.h"
#include "transport/rdma/rdma.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* ---- registering ---------------------------------------------------------------------------- */

/* What to do when the kernel does not pin more. */
static void memory_advice(char *text, size_t room)
{
    struct rlimit limit = {0, 0};
    text[0] = '\0';
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        snprintf(text, room,
                 "; the process may lock %llu KiB of memory: raise the limit (ulimit -l unlimited; "
                 "for services LimitMEMLOCK=infinity; /etc/security/limits.conf: memlock)",
                 (unsigned long long)limit.rlim_cur / 1024);
}

enum tutti_result tti_rdma_register(struct tti_rdma_transport *self, void *base, size_t bytes,
                                    int access, const char *what, struct tti_rdma_memory *memory)
{
    struct tti_rdma_memory made = {.base = base, .bytes = bytes};
    for (int r = 0; r < self->rails; r++) {
        made.mr[r] = self->verbs->reg_mr(self->rail[r].pd, base, bytes, access);
        if (made.mr[r])
            continue;
        char advice[300];
        int error = errno;
        memory_advice(advice, sizeof advice);
        tti_rdma_deregister(self, &made);
        errno = error;
        return TTI_FAIL(error == ENOMEM ? TUTTI_ERR_MEMORY : TUTTI_ERR_SYSTEM,
                        "ibv_reg_mr: registering %zu bytes (%s) with device %s: %s%s", bytes, what,
                        self->rail[r].device, strerror(error), error == ENOMEM ? advice : "");
    }
    *memory = made;
    return TUTTI_OK;
}

void tti_rdma_deregister(struct tti_rdma_transport *self, struct tti_rdma_memory *memory)
{
    for (int r = 0; r < self->rails; r++) {
        if (memory->mr[r])
            self->verbs->dereg_mr(memory->mr[r]);
        memory->mr[r] = NULL;
    }
}

/* ---- the caller's regions ------------------------------------------------------------------- */

/* How many regions have gone in this process. A transport that sees the number changed looks which
 * of those that it knows are among them. */
static _Atomic uint64_t memory_gone;

static void memory_count(void *context, uint64_t id)
{
    (void)context;
    (void)id;
    atomic_fetch_add_explicit(&memory_gone, 1, memory_order_release);
}

/* One listener for all transports, for ever: their number is limited. */
enum tutti_result tti_rdma_memory_join(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool listening;
    enum tutti_result result = TUTTI_OK;
    pthread_mutex_lock(&lock);
    if (!listening)
        result = tti_region_listen(memory_count, NULL);
    listening = listening || result == TUTTI_OK;
    pthread_mutex_unlock(&lock);
    return result;
}

void tti_rdma_memory_sweep(struct tti_rdma_transport *self)
{
    uint64_t gone = tti_load_acquire(&memory_gone);
    if (gone == self->regions_gone)
        return;
    self->regions_gone = gone;
    for (size_t i = 0; i < self->regions;) {
        struct tti_rdma_region *known = &self->region[i];
        struct tti_region now;
        if (tti_region_find(known->memory.base, known->memory.bytes, &now) && now.id == known->id) {
            i++;
            continue;
        }
        tti_rdma_deregister(self, &known->memory);
        self->region[i] = self->region[--self->regions];
        self->region_last = 0;
    }
}

static struct tti_rdma_region *memory_enter(struct tti_rdma_transport *self,
                                            const struct tti_region *region)
{
    void *grown = self->region;
    if (tti_grow(&grown, &self->region_room, self->regions + 1, sizeof *self->region) != TUTTI_OK)
        return NULL;
    self->region = grown;
    struct tti_rdma_region *made = &self->region[self->regions];
    *made = (struct tti_rdma_region){.id = region->id,
                                     .memory = {.base = region->base, .bytes = region->bytes}};
    made->usable = tti_rdma_register(self, region->base, region->bytes, 0, "a buffer of the caller",
                                     &made->memory) == TUTTI_OK;
    if (!made->usable)
        TTI_LOG(TTI_LOG_WARN, "rdma: copying what it should send in place: %s", tti_error_text());
    self->regions++;
    return made;
}

const struct tti_rdma_memory *tti_rdma_memory_find(struct tti_rdma_transport *self,
                                                   const void *data, size_t bytes)
{
    struct tti_region region;
    if (!tti_region_find(data, bytes, &region))
        return NULL;
    size_t at = self->region_last;
    if (at >= self->regions || self->region[at].id != region.id)
        for (at = 0; at < self->regions && self->region[at].id != region.id;)
            at++;
    if (at == self->regions) {
        tti_rdma_memory_sweep(
            self); /* who registers and frees much must not hold on to all of it */
        at = self->regions;
        if (!memory_enter(self, &region))
            return NULL;
    }
    self->region_last = at;
    return self->region[at].usable ? &self->region[at].memory : NULL;
}

/* ---- room for copies ------------------------------------------------------------------------ */

static void memory_grow(struct tti_rdma_transport *self)
{
    size_t stride = tti_rdma_stride(self->settings.slot_bytes);
    if (self->blocks == TTI_RDMA_MAX_BLOCKS)
        return;
    struct tti_rdma_block *block = tti_calloc(1, sizeof *block);
    void *base = block ? tti_calloc_aligned(4096, TTI_RDMA_BLOCK_BUFFERS, stride) : NULL;
    if (!base || tti_rdma_register(self, base, TTI_RDMA_BLOCK_BUFFERS * stride, 0,
                                   "room for copies", &block->memory) != TUTTI_OK) {
        TTI_LOG(TTI_LOG_WARN, "rdma: no more room for copies: %s", tti_error_text());
        free(base);
        free(block);
        return;
    }
    for (int i = 0; i < TTI_RDMA_BLOCK_BUFFERS; i++) {
        block->buffer[i].line = (uint8_t *)base + (size_t)i * stride;
        block->buffer[i].memory = &block->memory;
        tti_rdma_buffer_give(self, &block->buffer[i]);
    }
    self->block[self->blocks++] = block;
}

struct tti_rdma_buffer *tti_rdma_buffer_take(struct tti_rdma_transport *self)
{
    if (!self->free_buffers)
        memory_grow(self);
    struct tti_rdma_buffer *taken = self->free_buffers;
    if (taken)
        self->free_buffers = taken->next;
    return taken;
}

void tti_rdma_buffer_give(struct tti_rdma_transport *self, struct tti_rdma_buffer *buffer)
{
    buffer->next = self->free_buffers;
    self->free_buffers = buffer;
}

void tti_rdma_memory_free(struct tti_rdma_transport *self)
{
    for (size_t i = 0; i < self->regions; i++)
        tti_rdma_deregister(self, &self->region[i].memory);
    for (int i = 0; i < self->blocks; i++) {
        void *base = self->block[i]->memory.base;
        tti_rdma_deregister(self, &self->block[i]->memory);
        free(base);
        free(self->block[i]);
    }
    free(self->region);
}
