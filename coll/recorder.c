/* The flight recorder's memory, and what is written on its slow side (coll/recorder.h). */
#include "coll/recorder.h"

#include "base/config.h"
#include "base/kernel_file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/quiet.h"
#include "coll/comm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { ENTRIES = 1024, ENTRIES_MOST = 1 << 20, DEVICE_SHARE = 4, DEVICE_LEAST = 16 };

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static uint32_t recorder_round(long entries)
{
    uint32_t rounded = 1;
    while (rounded < (uint32_t)entries)
        rounded *= 2;
    return rounded;
}

/* Shared memory that others can map read-only; where there is none to be had (no descriptor left,
 * say), memory of the process alone: an operation must not fail for want of a recorder. */
static void *recorder_map(size_t bytes, int *fd)
{
    void *memory = MAP_FAILED;
    *fd = memfd_create(TTI_RECORD_FILE, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd >= 0 && tti_quiet_ftruncate(*fd, (off_t)bytes) == 0)
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (memory != MAP_FAILED) {
        /* Kernels before 5.1 do not know the last one. */
        if (fcntl(*fd, F_ADD_SEALS,
                  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0)
            (void)fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        return memory;
    }
    TTI_LOG(TTI_LOG_WARN, "the recorder has no shared memory, tutti-status will not see it: %s",
            strerror(errno));
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void recorder_fill(struct tutti_comm *comm, struct tti_record_page *page)
{
    struct timespec wall;
    memcpy(page->magic, TTI_RECORD_MAGIC, sizeof page->magic);
    page->version = TTI_RECORD_VERSION;
    page->bytes_of_header = sizeof *page;
    page->job = comm->job;
    page->family = comm->family ? comm->family : comm->job;
    page->pid = getpid();
    page->made_ns = tti_now_ns();
    clock_gettime(CLOCK_REALTIME, &wall);
    page->made_wall_ns = (uint64_t)wall.tv_sec * 1000000000u + (uint64_t)wall.tv_nsec;
    page->timeout_s = comm->settings.timeout_s;
    page->rank = comm->rank;
    page->size = comm->size;
    page->host = comm->peers.host_of[comm->rank];
    page->hosts = comm->peers.nhosts;
    snprintf(page->name, sizeof page->name, "%s", comm->peers.all[comm->rank].name);
    (void)tti_kernel_line("/proc/self/comm", page->program, sizeof page->program);
}

enum tutti_result tti_recorder_create(struct tutti_comm *comm, struct tti_recorder *recorder)
{
    long entries = 0;
    TTI_TRY(tti_config_int("TUTTI_RECORDER", 0, ENTRIES_MOST, ENTRIES, &entries));
    recorder->fd = -1;
    if (entries == 0)
        return TUTTI_OK;
    const uint32_t host = recorder_round(entries);
    uint32_t device = !comm->gpu                           ? 0
                      : host / DEVICE_SHARE > DEVICE_LEAST ? host / DEVICE_SHARE
                                                           : (uint32_t)DEVICE_LEAST;
    const size_t bytes =
        sizeof *recorder->page + ((size_t)host + device) * sizeof(struct tti_record);
    struct tti_record_page *page = recorder_map(bytes, &recorder->fd);
    if (!page)
        return TTI_FAIL(TUTTI_ERR_MEMORY,
                        "no memory for a recorder of %ld operations (TUTTI_RECORDER)", entries);
    recorder_fill(comm, page);
    page->total_bytes = bytes;
    page->entries[0] = host;
    page->entries[1] = device;
    recorder->page = page;
    recorder->bytes = bytes;
    for (int i = 0; i < TTI_RECORD_RINGS; i++) {
        struct tti_record_ring *ring = &recorder->ring[i];
        ring->records = page->entries[i] ? page->records + (i ? host : 0) : NULL;
        ring->head = &page->head[i];
        ring->mask = page->entries[i] ? page->entries[i] - 1 : 0;
    }
    return TUTTI_OK;
}

void tti_recorder_destroy(struct tti_recorder *recorder)
{
    if (recorder->page)
        munmap(recorder->page, recorder->bytes);
    if (recorder->page && recorder->fd >= 0)
        close(recorder->fd);
    memset(recorder, 0, sizeof *recorder);
    recorder->fd = -1;
}

void tti_recorder_failed(struct tti_recorder *recorder, enum tutti_result code, const char *text)
{
    struct tti_record_page *page = recorder->page;
    if (!page || atomic_load_explicit(&page->failed, memory_order_relaxed) != TUTTI_OK)
        return;
    snprintf(page->error, sizeof page->error, "%s", text);
    atomic_store_explicit(&page->failed, (int32_t)code, memory_order_release);
}

static void recorder_note(struct tti_record *r, uint64_t start_ns, int peer, bool sends)
{
    if (atomic_load_explicit(&r->start_ns, memory_order_relaxed) == 0)
        tti_record_put(&r->start_ns, start_ns);
    if (sends)
        atomic_fetch_or_explicit(&r->kind, TTI_RECORD_SENDS, memory_order_release);
    else
        atomic_fetch_and_explicit(&r->kind, ~(uint32_t)TTI_RECORD_SENDS, memory_order_release);
    atomic_store_explicit(&r->waits_for, peer, memory_order_release);
}

void tti_record_waits(struct tti_record_ring *ring, uint64_t start_ns, int peer, bool sends)
{
    if (!ring->records || ring->next == 0)
        return;
    ring->timed = true;
    if (ring->next - ring->first <= 1) {
        recorder_note(tti_record_last(ring), start_ns, peer, sends);
        return;
    }
    /* A group: the one of this peer and direction. */
    uint64_t from = ring->next - ring->first > ring->mask ? ring->next - ring->mask : ring->first;
    for (uint64_t i = from; i < ring->next; i++) {
        struct tti_record *r = &ring->records[i & ring->mask];
        const uint32_t kind = atomic_load_explicit(&r->kind, memory_order_relaxed);
        const bool its = atomic_load_explicit(&r->root, memory_order_relaxed) == peer &&
                         sends == !(kind & TTI_RECORD_RECEIVES);
        recorder_note(r, start_ns, its ? peer : -1, sends);
    }
}
