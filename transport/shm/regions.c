/* Regions (device/memory.h) that cross to a peer: the sender passes the descriptor once and names
 * the region by id afterwards; the receiver maps it, and unmaps it when the sender says that it is
 * gone.
 *
 * The message with the descriptor is in the socket before the first line that names the region is
 * published, so a receiver that does not know an id reads the socket and then does. */
#include "transport/shm/shm.h"

#include "base/memory.h"
#include "device/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- regions that are gone ------------------------------------------------------------------ */

static pthread_mutex_t regions_lock = PTHREAD_MUTEX_INITIALIZER;
static struct shm_transport *regions_transports; /* all of the process */

/* On any thread: leave word for each transport, which tells its peers when it next runs. */
static void regions_gone(void *context, uint64_t id)
{
    (void)context;
    pthread_mutex_lock(&regions_lock);
    for (struct shm_transport *t = regions_transports; t; t = t->next) {
        pthread_mutex_lock(&t->gone_lock);
        size_t count = atomic_load_explicit(&t->gone_count, memory_order_relaxed);
        void *grown = t->gone;
        if (tti_grow(&grown, &t->gone_capacity, count + 1, sizeof *t->gone) == TUTTI_OK) {
            t->gone = grown;
            t->gone[count] = id;
            tti_store_release(&t->gone_count, count + 1);
        } /* else the peers keep their mappings until they disconnect */
        pthread_mutex_unlock(&t->gone_lock);
    }
    pthread_mutex_unlock(&regions_lock);
}

enum tutti_result tti_shm_regions_join(struct shm_transport *self)
{
    static pthread_mutex_t listen_lock = PTHREAD_MUTEX_INITIALIZER;
    static bool listening; /* one listener for all transports, for ever: their number is limited */
    enum tutti_result result = TUTTI_OK;
    pthread_mutex_lock(&listen_lock);
    if (!listening)
        result = tti_region_listen(regions_gone, NULL);
    listening = listening || result == TUTTI_OK;
    pthread_mutex_unlock(&listen_lock);
    TTI_TRY(result);
    pthread_mutex_init(&self->gone_lock, NULL);
    pthread_mutex_lock(&regions_lock);
    self->next = regions_transports;
    regions_transports = self;
    pthread_mutex_unlock(&regions_lock);
    return TUTTI_OK;
}

void tti_shm_regions_leave(struct shm_transport *self)
{
    pthread_mutex_lock(&regions_lock);
    struct shm_transport **at = &regions_transports;
    while (*at && *at != self)
        at = &(*at)->next;
    bool joined = *at != NULL;
    if (joined)
        *at = self->next;
    pthread_mutex_unlock(&regions_lock);
    if (joined)
        pthread_mutex_destroy(&self->gone_lock);
    free(self->gone);
    self->gone = NULL;
}

/* Returns false when the socket has no room: to be tried again. */
static bool regions_tell_one(struct shm_endpoint *endpoint, uint64_t id)
{
    for (size_t i = 0; i < endpoint->passed_count; i++) {
        if (endpoint->passed[i].id != id)
            continue;
        struct shm_message message = {.kind = SHM_GONE, .id = id};
        if (endpoint->passed[i].usable && endpoint->socket >= 0 && !endpoint->ended &&
            tti_shm_message_send(endpoint->socket, &message, NULL, 0) == SHM_IO_LATER)
            return false;
        endpoint->passed[i] = endpoint->passed[--endpoint->passed_count];
        endpoint->passed_last = 0;
        return true;
    }
    return true;
}

void tti_shm_regions_tell(struct shm_transport *self)
{
    if (tti_load_acquire(&self->gone_count) == 0)
        return;
    pthread_mutex_lock(&self->gone_lock);
    size_t count = atomic_load_explicit(&self->gone_count, memory_order_relaxed), kept = 0;
    for (size_t i = 0; i < count; i++) {
        bool told = true;
        for (struct shm_endpoint *e = self->endpoints; e; e = e->next)
            told = regions_tell_one(e, self->gone[i]) && told;
        if (!told)
            self->gone[kept++] = self->gone[i];
    }
    tti_store_release(&self->gone_count, kept);
    pthread_mutex_unlock(&self->gone_lock);
}

/* ---- sending -------------------------------------------------------------------------------- */

/* Pass a region that the peer does not know. Returns whether its usability was settled. */
static bool regions_pass(struct shm_endpoint *self, const struct tti_region *region)
{
    void *grown = self->passed;
    if (self->passed_count >= SHM_MAX_MAPPINGS ||
        tti_grow(&grown, &self->passed_capacity, self->passed_count + 1, sizeof *self->passed) !=
            TUTTI_OK)
        return false;
    self->passed = grown;
    int seals = fcntl(region->fd, F_GET_SEALS);
    bool usable = seals >= 0 && (seals & F_SEAL_SHRINK);
    if (usable) {
        struct shm_message message = {
            .kind = SHM_REGION, .id = region->id, .bytes = region->bytes, .sparse = region->sparse};
        enum shm_io io = tti_shm_message_send(self->socket, &message, &region->fd, 1);
        if (io != SHM_IO_DONE)
            return false;
    }
    self->passed_last = self->passed_count;
    self->passed[self->passed_count++] = (struct shm_passed){region->id, usable, 0};
    return true;
}

bool tti_shm_region_refer(struct shm_endpoint *self, const void *data, size_t bytes, uint64_t *id,
                          uint64_t *offset)
{
    struct tti_region region;
    if (!tti_region_find(data, bytes, &region))
        return false;
    size_t at = self->passed_last;
    if (at >= self->passed_count || self->passed[at].id != region.id)
        for (at = 0; at < self->passed_count && self->passed[at].id != region.id;)
            at++;
    if (at < self->passed_count) {
        self->passed_last = at;
    } else {
        /* First what is gone: who never waits would make the peer hold on to all of it. */
        tti_shm_regions_tell(self->transport);
        if (!regions_pass(self, &region))
            return false;
        at = self->passed_last;
    }
    *id = region.id;
    *offset = (uint64_t)((const char *)data - region.base);
    return self->passed[at].usable;
}

/* ---- receiving ------------------------------------------------------------------------------ */

struct shm_mapping *tti_shm_region_mapped(struct shm_endpoint *self, uint64_t id)
{
    struct shm_mapping **at = &self->mappings;
    while (*at && ((*at)->id != id || (*at)->gone))
        at = &(*at)->next;
    struct shm_mapping *found = *at;
    if (found && found != self->mappings) { /* to the front: the next look is short */
        *at = found->next;
        found->next = self->mappings;
        self->mappings = found;
    }
    return found;
}

struct shm_mapping *tti_shm_region_expect(struct shm_endpoint *self, uint64_t id)
{
    struct shm_mapping *found = tti_shm_region_mapped(self, id);
    if (found)
        return found;
    tti_shm_endpoint_ready(self);
    return tti_shm_region_mapped(self, id);
}

static void regions_drop(struct shm_endpoint *self, struct shm_mapping *mapping)
{
    struct shm_mapping **at = &self->mappings;
    while (*at != mapping)
        at = &(*at)->next;
    *at = mapping->next;
    self->mapping_count--;
    munmap(mapping->base, mapping->bytes);
    free(mapping);
}

/* The descriptor must be a memfd that cannot shrink under us (SIGBUS) and has the bytes. */
static bool regions_sound(int fd, uint64_t bytes)
{
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &status) == 0 && bytes > 0 &&
           bytes <= (uint64_t)status.st_size;
}

enum tutti_result tti_shm_region_map(struct shm_endpoint *self, const struct shm_message *message,
                                     int fd)
{
    const struct tutti_peer *peer = self->peer;
    if (!regions_sound(fd, message->bytes) || self->mapping_count >= SHM_MAX_MAPPINGS ||
        tti_shm_region_mapped(self, message->id)) {
        close(fd);
        return TTI_FAIL(TUTTI_ERR_PROTOCOL,
                        "rank %d (%s) passed a memory region of %llu bytes that is not sealed, too "
                        "short, known already or one too many",
                        peer->rank, peer->name, (unsigned long long)message->bytes);
    }
    struct shm_mapping *made = tti_calloc(1, sizeof *made);
    if (!made) {
        close(fd);
        return TUTTI_ERR_MEMORY;
    }
    made->base = mmap(NULL, message->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    made->writable = made->base != MAP_FAILED;
    if (!made->writable && (errno == EPERM || errno == EACCES)) /* good for reading at least */
        made->base = mmap(NULL, message->bytes, PROT_READ, MAP_SHARED, fd, 0);
    int error = errno;
    close(fd);
    if (made->base == MAP_FAILED) {
        free(made);
        errno = error;
        return TTI_FAIL_ERRNO("mapping %llu bytes of memory of rank %d (%s)",
                              (unsigned long long)message->bytes, peer->rank, peer->name);
    }
    tti_region_advise(made->base, message->bytes, message->sparse != 0);
    made->id = message->id;
    made->bytes = message->bytes;
    made->next = self->mappings;
    self->mappings = made;
    self->mapping_count++;
    return TUTTI_OK;
}

void tti_shm_region_unmap(struct shm_endpoint *self, uint64_t id)
{
    struct shm_mapping *mapping = tti_shm_region_mapped(self, id);
    if (!mapping)
        return;
    mapping->gone = true;
    if (mapping->uses == 0)
        regions_drop(self, mapping);
}

void tti_shm_region_done(struct shm_endpoint *self, struct shm_mapping *mapping)
{
    if (--mapping->uses == 0 && mapping->gone)
        regions_drop(self, mapping);
}

void tti_shm_regions_free(struct shm_endpoint *self)
{
    while (self->mappings)
        regions_drop(self, self->mappings);
    free(self->passed);
    self->passed = NULL;
    self->passed_count = 0;
}
