/* Cutting a region (memory.h) off from those who have it mapped: fresh pages with the same contents
 * at the same addresses. What the others have is an orphan then, and a store of theirs, however
 * late, shows nowhere. */
#include "device/memory.h"
#include "device/region_table.h"

#include "base/atomic.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic uint64_t renewals;

uint64_t tti_region_renewals(void)
{
    return tti_load_acquire(&renewals);
}

/* The region is in no table now: nobody refers to it. */
static enum tutti_result renew_pages(struct tti_region *region)
{
    int fd = -1;
    TTI_TRY(tti_region_memfd(region->bytes, &fd));
    enum tutti_result result = tti_region_fill(fd, region->base, region->bytes);
    if (result == TUTTI_OK && mmap(region->base, region->bytes, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
        result = TTI_FAIL_ERRNO("mmap of fresh pages%s", tti_region_advice(errno));
    if (result != TUTTI_OK) {
        close(fd);
        return result;
    }
    tti_region_advise(region->base, region->bytes, region->sparse);
    close(region->fd);
    region->fd = fd;
    return TUTTI_OK;
}

enum tutti_result tti_region_renew(uint64_t id)
{
    struct tti_region region;
    enum tti_region_kind kind;
    if (!tti_region_table_take(id, &region, &kind))
        return TUTTI_OK;
    enum tutti_result result = renew_pages(&region);
    atomic_fetch_add(&renewals, 1);
    /* There is room: it was just taken out. */
    enum tutti_result entered = tti_region_table_add(&region, kind);
    tti_region_gone(id);
    if (result != TUTTI_OK)
        return TTI_CONTEXT(result, "cutting off %zu bytes at %p from other processes", region.bytes,
                           (void *)region.base);
    return entered;
}
