/* Memory of GPUs, registered so that adapters read it (rdma.h): by a dmabuf, which the kernel makes
 * of it for other devices, or by its address, which works where nvidia-peermem has told the kernel
 * what such addresses are. Whole allocations are registered, with every rail or not at all.
 *
 * Other threads register while one sends: hence a lock, which is held for a look at a short table.
 * An allocation is known by its id, and who registers sees to it that one which is gone is
 * forgotten before its address comes again (coll/gpu/gpu_send.c). */
#include "base/log.h"
#include "base/memory.h"
#include "transport/rdma/rdma.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REASON_BYTES = 200 };

/* ---- registering ---------------------------------------------------------------------------- */

/* With all rails, by dmabuf. `why` says what stood against it. */
static bool device_by_dmabuf(struct tti_rdma_transport *self,
                             const struct tutti_device_memory *memory, struct tti_rdma_memory *made,
                             char *why)
{
    uint64_t offset = 0;
    int fd = -1, error = 0;
    if (!self->verbs->reg_dmabuf_mr) {
        snprintf(why, REASON_BYTES, "this libibverbs has no ibv_reg_dmabuf_mr (rdma-core 34 has)");
        return false;
    }
    if (memory->dmabuf(memory, &fd, &offset) != TUTTI_OK) {
        snprintf(why, REASON_BYTES, "%s", tti_error_text());
        return false;
    }
    for (int r = 0; r < self->rails && !error; r++) {
        made->mr[r] = self->verbs->reg_dmabuf_mr(self->rail[r].pd, offset, memory->bytes,
                                                 (uintptr_t)memory->base, fd, 0);
        if (made->mr[r])
            continue;
        error = errno ? errno : EINVAL;
        snprintf(why, REASON_BYTES, "ibv_reg_dmabuf_mr with device %s: %s", self->rail[r].device,
                 strerror(error));
    }
    close(fd);
    if (error)
        tti_rdma_deregister(self, made);
    return !error;
}

static enum tutti_result device_make(struct tti_rdma_transport *self,
                                     const struct tutti_device_memory *memory,
                                     struct tti_rdma_memory *made)
{
    char why[REASON_BYTES] = "";
    *made =
        (struct tti_rdma_memory){.base = (void *)(uintptr_t)memory->base, .bytes = memory->bytes};
    const bool dmabuf = device_by_dmabuf(self, memory, made, why);
    if (!dmabuf &&
        tti_rdma_register(self, made->base, made->bytes, 0, "memory of a GPU", made) != TUTTI_OK)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "rdma cannot read memory of a GPU, neither by dmabuf (%s) nor by its "
                        "address, which takes nvidia-peermem (modprobe nvidia-peermem): %s",
                        why, tti_error_text());
    TTI_LOG(TTI_LOG_INFO, "rdma: %zu bytes of a GPU's memory at %p are registered by %s%s",
            made->bytes, made->base, dmabuf ? "dmabuf" : "address, not by dmabuf: ", why);
    return TUTTI_OK;
}

/* ---- the table ------------------------------------------------------------------------------ */

/* Under the lock. */
static enum tutti_result device_enter(struct tti_rdma_transport *self, uint64_t id,
                                      const struct tti_rdma_memory *memory)
{
    void *grown = self->device;
    TTI_TRY(tti_grow(&grown, &self->device_room, self->devices + 1, sizeof *self->device));
    self->device = grown;
    self->device[self->devices++] = (struct tti_rdma_device){id, *memory};
    return TUTTI_OK;
}

enum tutti_result tti_rdma_device_register(void *object, const struct tutti_device_memory *memory)
{
    struct tti_rdma_transport *self = object;
    struct tti_rdma_memory made;
    TTI_TRY(device_make(self, memory, &made)); /* not under the lock: it can take milliseconds */
    pthread_mutex_lock(&self->device_lock);
    const enum tutti_result result = device_enter(self, memory->id, &made);
    pthread_mutex_unlock(&self->device_lock);
    if (result != TUTTI_OK)
        tti_rdma_deregister(self, &made);
    return result;
}

void tti_rdma_device_forget(void *object, uint64_t id)
{
    struct tti_rdma_transport *self = object;
    struct tti_rdma_memory gone = {.bytes = 0};
    pthread_mutex_lock(&self->device_lock);
    for (size_t i = 0; i < self->devices; i++)
        if (self->device[i].id == id) {
            gone = self->device[i].memory;
            self->device[i] = self->device[--self->devices];
            break;
        }
    pthread_mutex_unlock(&self->device_lock);
    tti_rdma_deregister(self, &gone);
}

bool tti_rdma_device_find(struct tti_rdma_transport *self, const void *data, size_t bytes,
                          struct tti_rdma_memory *memory)
{
    bool found = false;
    pthread_mutex_lock(&self->device_lock);
    for (size_t i = 0; i < self->devices && !found; i++) {
        const struct tti_rdma_memory *known = &self->device[i].memory;
        const size_t at = (uintptr_t)data - (uintptr_t)known->base;
        found = at < known->bytes && bytes <= known->bytes - at;
        if (found)
            *memory = *known;
    }
    pthread_mutex_unlock(&self->device_lock);
    return found;
}

void tti_rdma_device_free(struct tti_rdma_transport *self)
{
    for (size_t i = 0; i < self->devices; i++)
        tti_rdma_deregister(self, &self->device[i].memory);
    free(self->device);
    self->device = NULL;
    self->devices = 0;
}
