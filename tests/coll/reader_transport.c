/* A transport for tests that reads the simulated device's memory as an adapter does: by a mapping
 * that it makes of the dmabuf, and never at the device's address. The rest of it is the example
 * transport. Refuses all memory where READER_REFUSES is set. */
#define tutti_transport example_table
#include "examples/plugin/example_transport.c"
#undef tutti_transport

#include "tests/coll/reader_transport.h"

#include <pthread.h>
#include <sys/mman.h>

enum { MOST = 512 };

struct seen {
    const void *transport;
    const char *base;
    size_t bytes, mapped;
    uint64_t id, offset;
    char *memory;
};

static struct seen table[MOST];
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
__attribute__((visibility("default"))) struct reader_counts reader_counts;

/* Under the lock: the allocation that has these bytes; nothing of none. */
static struct seen *seen_at(const void *transport, const char *data, size_t bytes)
{
    for (int i = 0; i < MOST; i++) {
        struct seen *s = &table[i];
        const size_t at = (uintptr_t)data - (uintptr_t)s->base;
        if (s->transport == transport && at < s->bytes && bytes <= s->bytes - at)
            return s;
    }
    return NULL;
}

static enum tutti_result reader_register(void *object, const struct tutti_device_memory *memory)
{
    const struct tutti_services *services = ((struct transport *)object)->env.services;
    struct seen made = {
        .transport = object, .base = memory->base, .bytes = memory->bytes, .id = memory->id};
    int fd = -1, free_place = -1;
    if (getenv("READER_REFUSES")) {
        __atomic_fetch_add(&reader_counts.refused, 1, __ATOMIC_RELAXED);
        return services->fail(TUTTI_ERR_UNSUPPORTED, "the reader refuses all memory");
    }
    const enum tutti_result result = memory->dmabuf(memory, &fd, &made.offset);
    if (result != TUTTI_OK)
        return result;
    made.mapped = made.offset + made.bytes;
    made.memory = mmap(NULL, made.mapped, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (made.memory == MAP_FAILED)
        return fail_system(services, "mapping a dmabuf");
    pthread_mutex_lock(&table_lock);
    for (int i = 0; i < MOST && free_place < 0; i++)
        if (!table[i].transport)
            free_place = i;
    /* Two that overlap must never be known. */
    const bool fits = free_place >= 0 && !seen_at(object, made.base, 1);
    if (fits) {
        table[free_place] = made;
        reader_counts.registered++;
    }
    pthread_mutex_unlock(&table_lock);
    return fits ? TUTTI_OK
                : services->fail(TUTTI_ERR_INTERNAL, "the reader knows this memory already");
}

/* Those with the id; 0: all of the transport's. */
static void reader_drop(const void *transport, uint64_t id)
{
    pthread_mutex_lock(&table_lock);
    for (int i = 0; i < MOST; i++)
        if (table[i].transport == transport && (!id || table[i].id == id)) {
            munmap(table[i].memory, table[i].mapped);
            table[i] = (struct seen){.transport = NULL};
            reader_counts.forgotten += id != 0;
        }
    pthread_mutex_unlock(&table_lock);
}

static void reader_forget(void *object, uint64_t id)
{
    reader_drop(object, id);
}

static void reader_close(void *object)
{
    reader_drop(object, 0);
    close_transport(object);
}

static enum tutti_result reader_send(void *object, int lane, uint64_t tag, const void *data,
                                     size_t bytes, size_t *accepted)
{
    struct transport *transport = ((struct endpoint *)object)->transport;
    pthread_mutex_lock(&table_lock);
    const struct seen *s = seen_at(transport, data, bytes);
    const char *memory = s ? s->memory + s->offset + ((const char *)data - s->base) : NULL;
    pthread_mutex_unlock(&table_lock);
    if (!memory)
        return transport->env.services->fail(
            TUTTI_ERR_INTERNAL, "the reader does not know %zu bytes at %p", bytes, data);
    const enum tutti_result result = send_fragment(object, lane, tag, memory, bytes, accepted);
    __atomic_fetch_add(&reader_counts.bytes, result == TUTTI_OK ? *accepted : 0, __ATOMIC_RELAXED);
    return result;
}

TUTTI_API const struct tutti_transport_ops *tutti_transport(void);

static struct tutti_transport_ops reader_ops;

static void reader_table(void)
{
    reader_ops = *example_table();
    reader_ops.name = "reader";
    reader_ops.close = reader_close;
    reader_ops.device_register = reader_register;
    reader_ops.device_forget = reader_forget;
    reader_ops.device_send = reader_send;
}

TUTTI_API const struct tutti_transport_ops *tutti_transport(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, reader_table);
    return &reader_ops;
}
