/* Memory that peers on this host can map: library-allocated and registered regions.
 *
 * A region is a memfd mapped into this process. Transports look a pointer up, pass the descriptor
 * to a peer once, and name the region by id afterwards. The table is per process and thread-safe.
 * Ids are never reused, so a peer's stale mapping is recognised.
 *
 * A child made by fork shares the pages with its parent. Before exec it must call nothing here: a
 * lock may have been held at the fork, and what it released would not be the parent's. */
#ifndef TTI_DEVICE_MEMORY_H
#define TTI_DEVICE_MEMORY_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tti_region {
    uint64_t id;  /* > 0, unique in this process for ever */
    char *base;   /* page-aligned */
    size_t bytes; /* whole pages */
    int fd;       /* the memfd; offset 0 is `base`. Owned by the table. */
    bool sparse;  /* most of it may never be touched: no huge pages, whoever maps it */
};

/* tutti_alloc and tutti_free. */
enum tutti_result tti_region_alloc(size_t bytes, void **memory);
enum tutti_result tti_region_free(void *memory);
/* The same, where most of it may never be touched. */
enum tutti_result tti_region_alloc_sparse(size_t bytes, void **memory);
/* Tell the kernel which pages a mapping of a region is to have, here or at a peer. */
void tti_region_advise(void *base, size_t bytes, bool sparse);
/* tutti_register and tutti_deregister. */
enum tutti_result tti_region_register(void *memory, size_t bytes);
enum tutti_result tti_region_deregister(void *memory);

/* The region that holds all of [memory, memory + bytes), copied to *region; false if there is none.
 * Fast: a few compares when the pointer repeats. */
bool tti_region_find(const void *memory, size_t bytes, struct tti_region *region);

/* Cut the region off from everybody who has it mapped: fresh pages with the same contents at the
 * same addresses, under a new id. What other threads write to it meanwhile may be lost. A region
 * that is gone is no error. Errors: MEMORY, SYSTEM; it is shared still then, under a new id. */
enum tutti_result tti_region_renew(uint64_t id);
/* How many have been renewed in this process: whoever let a peer write to a region compares. */
uint64_t tti_region_renewals(void);
/* Changes whenever a region of this process comes or goes: what was found before holds no more. */
uint64_t tti_region_changes(void);

/* Where memory of a region is for other processes of this host; crosses the wire as it is. */
struct tti_region_place {
    uint64_t there; /* 0: nowhere */
    uint64_t pid, fd, inode, offset;
};
/* False: it is in no region. */
bool tti_region_place(const void *memory, size_t bytes, struct tti_region_place *place);
/* Such memory as it lies in this process; stays, with the pages, when the owner frees it. False:
 * it cannot be mapped here (another user's, another container's, gone), which is no error. */
struct tti_region_map {
    char *memory;
    void *base; /* of the mapping; NULL: none was made */
    size_t bytes;
};
bool tti_region_map(const struct tti_region_place *place, size_t bytes, struct tti_region_map *map);
void tti_region_unmap(struct tti_region_map *map);

/* Called with the id after a region is gone, on the thread that released it. For caches keyed by
 * id; at most 64 listeners. After tti_region_unlisten has returned, the listener is not running and
 * never runs again; so it must not listen or unlisten itself, nor take a lock that is held around
 * those. */
typedef void tti_region_listener(void *context, uint64_t id);
enum tutti_result tti_region_listen(tti_region_listener *listener, void *context);
void tti_region_unlisten(tti_region_listener *listener, void *context);

#endif
