/* The table of regions behind memory.h: who has which addresses. memory.c and register.c write it,
 * tti_region_find reads it without a lock. */
#ifndef TTI_DEVICE_REGION_TABLE_H
#define TTI_DEVICE_REGION_TABLE_H

#include "device/memory.h"

enum tti_region_kind {
    TTI_REGION_ALLOCATED = 1,
    TTI_REGION_REGISTERED = 2,
};

/* Enter base, bytes and fd of *region under a new id, which is written to it. Refused when the
 * addresses overlap a region that is there already. The descriptor stays the caller's until the
 * call has succeeded. */
enum tutti_result tti_region_table_add(struct tti_region *region, enum tti_region_kind kind);

/* The error that tti_region_table_add would give for an overlap, if there is one. */
enum tutti_result tti_region_table_check(const char *base, size_t bytes);

/* Take out the region whose base is `base`; false if there is none of that kind. The caller unmaps
 * or replaces it, closes the descriptor and then calls tti_region_gone. */
bool tti_region_table_remove(const void *base, enum tti_region_kind kind,
                             struct tti_region *region);
/* The same by id. */
bool tti_region_table_take(uint64_t id, struct tti_region *region, enum tti_region_kind *kind);
/* The region with this address in it, for error texts; false if there is none. */
bool tti_region_table_at(const void *memory, struct tti_region *region, enum tti_region_kind *kind);

/* Tell the listeners. */
void tti_region_gone(uint64_t id);

/* A memfd of `bytes` that can neither shrink nor grow: a peer that maps it is never hit by SIGBUS
 * because of this process. */
enum tutti_result tti_region_memfd(size_t bytes, int *fd);
/* Write [base, base + bytes) into the memfd. */
enum tutti_result tti_region_fill(int fd, const char *base, size_t bytes);
/* What to do about errno of a call that makes or maps a region; "" if there is no advice. Starts
 * with "; ". */
const char *tti_region_advice(int error);

#endif
