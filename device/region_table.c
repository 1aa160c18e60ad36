/* The region table (region_table.h): a sorted array behind a sequence counter.
 *
 * Writers hold `table_lock` and make `sequence` odd while they change the array. A reader notes an
 * even sequence, searches, and takes the answer only if the sequence is still the same. Every word
 * that both touch is atomic: a reader may see a mixture, but never uses it. Field loads are acquire
 * and field stores release, which keeps them between the two looks at `sequence` without fences
 * (ThreadSanitizer understands that). An array that was outgrown stays allocated, because a reader
 * may still be in it; sizes double, so that costs as much again as the last array. */
#include "device/region_table.h"

#include "base/atomic.h"
#include "base/memory.h"

#include <pthread.h>

enum {
    FIRST_CAPACITY = 64,
    LISTENERS = 64,
    SPARSE = 0x80,
    OPTIMISTIC_TRIES = 32, /* then the reader waits for the writers' lock */
};

struct table_slot {
    _Atomic uint64_t id, base, bytes, fd_and_kind; /* the lowest byte: the kind, and SPARSE */
};

struct table_array {
    struct table_array *older; /* outgrown; kept for late readers */
    size_t capacity;
    struct table_slot slots[];
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct table_array *) table_current;
static _Atomic uint64_t table_sequence = 2; /* even: at rest */
static _Atomic uint64_t table_count;
static uint64_t table_next_id = 1; /* under table_lock */

struct table_entry {
    struct tti_region region;
    enum tti_region_kind kind;
};

static struct table_entry slot_read(const struct table_slot *slot)
{
    const uint64_t fd_and_kind = tti_load_acquire(&slot->fd_and_kind);
    return (struct table_entry){
        .region = {.id = tti_load_acquire(&slot->id),
                   .base = (char *)(uintptr_t)tti_load_acquire(&slot->base),
                   .bytes = tti_load_acquire(&slot->bytes),
                   .fd = (int)(fd_and_kind >> 8),
                   .sparse = (fd_and_kind & SPARSE) != 0},
        .kind = (enum tti_region_kind)(fd_and_kind & (SPARSE - 1)),
    };
}

static void slot_write(struct table_slot *slot, const struct table_entry *entry)
{
    tti_store_release(&slot->id, entry->region.id);
    tti_store_release(&slot->base, (uintptr_t)entry->region.base);
    tti_store_release(&slot->bytes, entry->region.bytes);
    tti_store_release(&slot->fd_and_kind, (uint64_t)entry->region.fd << 8 | (uint64_t)entry->kind |
                                              (entry->region.sparse ? SPARSE : 0));
}

/* How many of the first `count` slots start at or below `address`. */
static size_t slots_up_to(const struct table_array *array, size_t count, uintptr_t address)
{
    size_t low = 0;
    while (low < count) {
        size_t middle = low + (count - low) / 2;
        if (tti_load_acquire(&array->slots[middle].base) <= address)
            low = middle + 1;
        else
            count = middle;
    }
    return low;
}

/* The entry that holds [address, address + bytes) in the array as it is now; a reader checks the
 * sequence afterwards. Addresses: no overflow, regions are real mappings. */
static bool table_search(uintptr_t address, size_t bytes, struct table_entry *entry)
{
    const struct table_array *array = atomic_load_explicit(&table_current, memory_order_acquire);
    if (!array)
        return false;
    size_t count = tti_load_acquire(&table_count);
    if (count > array->capacity)
        return false; /* seen half-way through a change: the sequence will tell */
    size_t at = slots_up_to(array, count, address);
    if (at == 0)
        return false;
    *entry = slot_read(&array->slots[at - 1]);
    const size_t offset = address - (uintptr_t)entry->region.base;
    return address >= (uintptr_t)entry->region.base && offset < entry->region.bytes &&
           bytes <= entry->region.bytes - offset;
}

/* ---- Reading ----------------------------------------------------------------------------------
 */

static bool table_find(uintptr_t address, size_t bytes, struct table_entry *entry,
                       uint64_t *sequence)
{
    for (int tries = 0; tries < OPTIMISTIC_TRIES; tries++) {
        *sequence = tti_load_acquire(&table_sequence);
        if (!(*sequence & 1)) {
            bool found = table_search(address, bytes, entry);
            if (atomic_load_explicit(&table_sequence, memory_order_relaxed) == *sequence)
                return found;
        }
        tti_cpu_relax();
    }
    pthread_mutex_lock(&table_lock);
    *sequence = tti_load_acquire(&table_sequence);
    bool found = table_search(address, bytes, entry);
    pthread_mutex_unlock(&table_lock);
    return found;
}

uint64_t tti_region_changes(void)
{
    return tti_load_acquire(&table_sequence);
}

bool tti_region_find(const void *memory, size_t bytes, struct tti_region *region)
{
    /* This thread's last hits, in turn: an operation has two buffers. Good while nothing in the
     * table has changed. */
    enum { LAST = 2 };
    static _Thread_local struct {
        uint64_t sequence;
        struct tti_region region;
    } last[LAST];
    static _Thread_local unsigned oldest;
    const uintptr_t address = (uintptr_t)memory;
    const uint64_t now = tti_load_acquire(&table_sequence);
    for (int i = 0; i < LAST; i++) {
        const size_t offset = address - (uintptr_t)last[i].region.base;
        if (last[i].sequence == now && offset < last[i].region.bytes &&
            bytes <= last[i].region.bytes - offset) {
            *region = last[i].region;
            return true;
        }
    }
    struct table_entry entry;
    uint64_t sequence;
    if (!table_find(address, bytes, &entry, &sequence))
        return false;
    last[oldest].sequence = sequence;
    last[oldest].region = entry.region;
    oldest = (oldest + 1) % LAST;
    *region = entry.region;
    return true;
}

bool tti_region_table_at(const void *memory, struct tti_region *region, enum tti_region_kind *kind)
{
    struct table_entry entry;
    uint64_t sequence;
    if (!table_find((uintptr_t)memory, 0, &entry, &sequence))
        return false;
    *region = entry.region;
    *kind = entry.kind;
    return true;
}

/* ---- Writing ----------------------------------------------------------------------------------
 */

static void table_change_begin(void)
{
    uint64_t sequence = atomic_load_explicit(&table_sequence, memory_order_relaxed);
    atomic_store_explicit(&table_sequence, sequence + 1, memory_order_relaxed);
}

static void table_change_end(void)
{
    uint64_t sequence = atomic_load_explicit(&table_sequence, memory_order_relaxed);
    tti_store_release(&table_sequence, sequence + 1);
}

/* Room for one more; the old array is copied, not changed. Under table_lock. */
static enum tutti_result table_reserve(size_t count)
{
    struct table_array *array = atomic_load_explicit(&table_current, memory_order_relaxed);
    if (array && count < array->capacity)
        return TUTTI_OK;
    size_t capacity = array ? 2 * array->capacity : FIRST_CAPACITY;
    struct table_array *grown = tti_calloc(1, sizeof *grown + capacity * sizeof(struct table_slot));
    if (!grown)
        return TUTTI_ERR_MEMORY;
    grown->capacity = capacity;
    grown->older = array;
    for (size_t i = 0; i < count; i++) {
        struct table_entry entry = slot_read(&array->slots[i]);
        slot_write(&grown->slots[i], &entry);
    }
    atomic_store_explicit(&table_current, grown, memory_order_release);
    return TUTTI_OK;
}

/* Under table_lock, with room. */
static void table_insert(const struct table_entry *entry)
{
    struct table_array *array = atomic_load_explicit(&table_current, memory_order_relaxed);
    const size_t count = tti_load_acquire(&table_count);
    const size_t at = slots_up_to(array, count, (uintptr_t)entry->region.base);
    table_change_begin();
    for (size_t i = count; i > at; i--) {
        struct table_entry moved = slot_read(&array->slots[i - 1]);
        slot_write(&array->slots[i], &moved);
    }
    slot_write(&array->slots[at], entry);
    tti_store_release(&table_count, count + 1);
    table_change_end();
}

/* A region that shares an address with [base, base + bytes), or false. Under table_lock. */
static bool table_overlap(const char *base, size_t bytes, struct table_entry *entry)
{
    struct table_array *array = atomic_load_explicit(&table_current, memory_order_relaxed);
    const size_t count = tti_load_acquire(&table_count);
    if (count == 0)
        return false;
    const size_t at = slots_up_to(array, count, (uintptr_t)base + bytes - 1);
    if (at == 0)
        return false;
    *entry = slot_read(&array->slots[at - 1]);
    return (uintptr_t)entry->region.base + entry->region.bytes > (uintptr_t)base;
}

/* Under table_lock. */
static enum tutti_result table_refuse_overlap(const char *base, size_t bytes)
{
    struct table_entry other;
    if (!table_overlap(base, bytes, &other))
        return TUTTI_OK;
    return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                    "it overlaps memory that is %s already (%zu bytes at %p) and that peers can "
                    "reach as it is; leave that out, or release it first",
                    other.kind == TTI_REGION_ALLOCATED ? "library-allocated" : "registered",
                    other.region.bytes, (void *)other.region.base);
}

enum tutti_result tti_region_table_check(const char *base, size_t bytes)
{
    pthread_mutex_lock(&table_lock);
    enum tutti_result result = table_refuse_overlap(base, bytes);
    pthread_mutex_unlock(&table_lock);
    return result;
}

enum tutti_result tti_region_table_add(struct tti_region *region, enum tti_region_kind kind)
{
    pthread_mutex_lock(&table_lock);
    enum tutti_result result = table_refuse_overlap(region->base, region->bytes);
    if (result == TUTTI_OK)
        result = table_reserve(tti_load_acquire(&table_count));
    if (result == TUTTI_OK) {
        region->id = table_next_id++;
        table_insert(&(struct table_entry){.region = *region, .kind = kind});
    }
    pthread_mutex_unlock(&table_lock);
    return result;
}

/* Under table_lock. */
static void table_delete(size_t at)
{
    struct table_array *array = atomic_load_explicit(&table_current, memory_order_relaxed);
    const size_t count = tti_load_acquire(&table_count);
    table_change_begin();
    for (size_t i = at + 1; i < count; i++) {
        struct table_entry moved = slot_read(&array->slots[i]);
        slot_write(&array->slots[i - 1], &moved);
    }
    tti_store_release(&table_count, count - 1);
    table_change_end();
}

bool tti_region_table_remove(const void *base, enum tti_region_kind kind, struct tti_region *region)
{
    struct table_entry entry;
    pthread_mutex_lock(&table_lock);
    bool found =
        table_search((uintptr_t)base, 0, &entry) && entry.region.base == base && entry.kind == kind;
    if (found) {
        struct table_array *array = atomic_load_explicit(&table_current, memory_order_relaxed);
        table_delete(slots_up_to(array, tti_load_acquire(&table_count), (uintptr_t)base) - 1);
        *region = entry.region;
    }
    pthread_mutex_unlock(&table_lock);
    return found;
}

bool tti_region_table_take(uint64_t id, struct tti_region *region, enum tti_region_kind *kind)
{
    bool found = false;
    pthread_mutex_lock(&table_lock);
    struct table_array *array = atomic_load_explicit(&table_current, memory_order_relaxed);
    const size_t count = tti_load_acquire(&table_count);
    for (size_t i = 0; i < count && !found; i++) {
        struct table_entry entry = slot_read(&array->slots[i]);
        found = entry.region.id == id;
        if (!found)
            continue;
        *region = entry.region;
        *kind = entry.kind;
        table_delete(i);
    }
    pthread_mutex_unlock(&table_lock);
    return found;
}

/* ---- Listeners --------------------------------------------------------------------------------
 */

/* Held while listeners run: after tti_region_unlisten has returned, that listener never runs. */
static pthread_mutex_t listener_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    tti_region_listener *call;
    void *context;
} listeners[LISTENERS];

enum tutti_result tti_region_listen(tti_region_listener *listener, void *context)
{
    enum tutti_result result = TUTTI_OK;
    pthread_mutex_lock(&listener_lock);
    int at = 0;
    while (at < LISTENERS && listeners[at].call)
        at++;
    if (at < LISTENERS) {
        listeners[at].call = listener;
        listeners[at].context = context;
    } else {
        result =
            TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                     "cannot follow the release of shared memory: all %d listeners are in use; "
                     "destroy a communicator first",
                     LISTENERS);
    }
    pthread_mutex_unlock(&listener_lock);
    return result;
}

void tti_region_unlisten(tti_region_listener *listener, void *context)
{
    pthread_mutex_lock(&listener_lock);
    for (int i = 0; i < LISTENERS; i++) {
        if (listeners[i].call == listener && listeners[i].context == context) {
            listeners[i].call = NULL;
            break;
        }
    }
    pthread_mutex_unlock(&listener_lock);
}

void tti_region_gone(uint64_t id)
{
    pthread_mutex_lock(&listener_lock);
    for (int i = 0; i < LISTENERS; i++)
        if (listeners[i].call)
            listeners[i].call(listeners[i].context, id);
    pthread_mutex_unlock(&listener_lock);
}
