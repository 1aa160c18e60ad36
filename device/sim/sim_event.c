/* Events of the simulated device: two counters in a page, how often recorded and up to which record
 * the streams have come. The page of one that is for other processes is a memfd, which they map. */
#include "device/sim/sim_state.h"

#include "base/clock.h"
#include "base/futex.h"
#include "base/memory.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { EVENT_PAGE = 4096 };
static const uint32_t event_magic = 0x54474531;

enum { EVENT_FINE, EVENT_FAILING, EVENT_FAILED };

struct event_page {
    _Atomic uint32_t recorded, reached;
    _Atomic uint32_t sleepers; /* on `reached` */
    _Atomic uint64_t ns;       /* of the record that was reached last */
    /* Once a stream that recorded it has failed, for good: as a GPU's errors stay. */
    _Atomic int state;
    struct tti_error error;
};
_Static_assert(sizeof(struct event_page) <= EVENT_PAGE, "it fits");

struct tti_gpu_event {
    _Atomic int holders;
    struct event_page *page;
    int fd; /* -1: imported, or not for other processes */
    int flags;
    struct tti_gpu *gpu;
    /* Recorded under this capture last; read and written by who captures. */
    _Atomic(struct tti_sim_capture *) capture;
};

static enum tutti_result event_new(struct tti_gpu *gpu, int fd, int flags, bool imported,
                                   struct tti_gpu_event **event)
{
    struct tti_gpu_event *made = tti_calloc(1, sizeof *made);
    void *page = mmap(NULL, EVENT_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!made || page == MAP_FAILED) {
        if (page != MAP_FAILED)
            munmap(page, EVENT_PAGE);
        free(made);
        close(fd);
        return TTI_FAIL(TUTTI_ERR_MEMORY, "simulated device: no memory for an event");
    }
    if (imported)
        close(fd);
    made->page = page;
    made->fd = imported ? -1 : fd;
    made->flags = flags;
    made->gpu = gpu;
    made->holders = 1;
    *event = made;
    return TUTTI_OK;
}

static enum tutti_result event_own(struct tti_gpu *gpu, int flags, struct tti_gpu_event **event)
{
    struct tti_gpu_event *made = tti_calloc(1, sizeof *made);
    struct event_page *page = made ? tti_calloc(1, sizeof *page) : NULL;
    if (!page) {
        free(made);
        return TUTTI_ERR_MEMORY;
    }
    *made = (struct tti_gpu_event){.page = page, .fd = -1, .flags = flags, .gpu = gpu};
    made->holders = 1;
    *event = made;
    return TUTTI_OK;
}

enum tutti_result tti_sim_event_create(struct tti_gpu *gpu, int flags, struct tti_gpu_event **event)
{
    if ((flags & TTI_EVENT_TIMING) && (flags & TTI_EVENT_INTERPROCESS))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "an event is either for timing or for other processes, not both");
    if (!(flags & TTI_EVENT_INTERPROCESS))
        return event_own(gpu, flags, event);
    const int fd = memfd_create("tutti-sim-event", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, EVENT_PAGE) != 0) {
        const enum tutti_result result =
            TTI_FAIL_ERRNO("simulated device: making an event's memfd");
        if (fd >= 0)
            close(fd);
        return result;
    }
    return event_new(gpu, fd, flags, false, event);
}

void tti_sim_event_keep(struct tti_gpu_event *event)
{
    atomic_fetch_add(&event->holders, 1);
}

void tti_sim_event_destroy(struct tti_gpu_event *event)
{
    if (!event || atomic_fetch_sub(&event->holders, 1) != 1)
        return;
    if (event->flags & TTI_EVENT_INTERPROCESS)
        munmap(event->page, EVENT_PAGE);
    else
        free(event->page);
    if (event->fd >= 0)
        close(event->fd);
    free(event);
}

void tti_sim_event_reached(struct tti_gpu_event *event, uint32_t ticket)
{
    uint32_t reached = atomic_load_explicit(&event->page->reached, memory_order_relaxed);
    atomic_store_explicit(&event->page->ns, tti_now_ns(), memory_order_relaxed);
    /* Another stream may have come to a later record before. */
    while ((int32_t)(ticket - reached) > 0 &&
           !atomic_compare_exchange_weak_explicit(&event->page->reached, &reached, ticket,
                                                  memory_order_seq_cst, memory_order_relaxed))
        ;
    if (atomic_load(&event->page->sleepers) > 0)
        tti_futex_wake(&event->page->reached, INT_MAX);
}

void tti_sim_event_failed(struct tti_gpu_event *event, const struct tti_error *error)
{
    struct event_page *page = event->page;
    int fine = EVENT_FINE;
    if (!atomic_compare_exchange_strong(&page->state, &fine, EVENT_FAILING))
        return;
    page->error = *error;
    atomic_store_explicit(&page->state, EVENT_FAILED, memory_order_release);
}

bool tti_sim_event_passed(struct tti_gpu_event *event, uint32_t ticket)
{
    const uint32_t reached = atomic_load_explicit(&event->page->reached, memory_order_acquire);
    return (int32_t)(reached - ticket) >= 0;
}

void tti_sim_event_await(struct tti_gpu_event *event, uint32_t ticket, uint64_t ns)
{
    struct event_page *page = event->page;
    atomic_fetch_add(&page->sleepers, 1);
    const uint32_t seen = atomic_load(&page->reached);
    if ((int32_t)(seen - ticket) < 0)
        tti_futex_wait(&page->reached, seen, ns);
    atomic_fetch_sub(&page->sleepers, 1);
}

enum tutti_result tti_sim_event_record(struct tti_gpu_event *event, tutti_stream handle)
{
    struct tti_sim_stream *stream;
    TTI_TRY(tti_sim_stream_fits(event->gpu, handle, "an event"));
    TTI_TRY(tti_sim_stream_of(event->gpu->device, handle, &stream));
    struct tti_sim_capture *capture = tti_sim_stream_capture(stream);
    atomic_store(&event->capture, capture);
    if (capture) /* the order of the captured calls is the graph's: there is nothing to do */
        return TUTTI_OK;
    const struct tti_sim_op op = {
        .kind = TTI_SIM_RECORD,
        .event = event,
        .value = atomic_fetch_add(&event->page->recorded, 1) + 1,
    };
    return tti_sim_enqueue(event->gpu, stream, &op);
}

enum tutti_result tti_sim_event_hold(struct tti_gpu_event *event, tutti_stream handle)
{
    struct tti_sim_stream *stream;
    TTI_TRY(tti_sim_stream_of(event->gpu->device, handle, &stream));
    struct tti_sim_capture *capture = atomic_load(&event->capture);
    if (capture)
        return tti_sim_capture_join(capture, stream);
    const struct tti_sim_op op = {
        .kind = TTI_SIM_HOLD,
        .event = event,
        .value = atomic_load(&event->page->recorded),
    };
    return tti_sim_enqueue(event->gpu, stream, &op);
}

enum tutti_result tti_sim_event_query(struct tti_gpu_event *event)
{
    struct tti_sim_capture *capture = atomic_load(&event->capture);
    if (capture)
        return tti_sim_capture_spoil(capture, "waiting for an event of a capture");
    struct event_page *page = event->page;
    if (!tti_sim_event_passed(event, atomic_load(&page->recorded)))
        return TUTTI_IN_PROGRESS;
    if (atomic_load_explicit(&page->state, memory_order_acquire) == EVENT_FAILED)
        return tti_error_restore(&page->error);
    return TUTTI_OK;
}

void tti_sim_event_rest(struct tti_gpu_event *event)
{
    tti_sim_event_await(event, atomic_load(&event->page->recorded), TTI_SIM_REST_NS);
}

enum tutti_result tti_sim_event_elapsed(struct tti_gpu_event *from, struct tti_gpu_event *to,
                                        double *seconds)
{
    if (!(from->flags & TTI_EVENT_TIMING) || !(to->flags & TTI_EVENT_TIMING))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "the time between events that were not made for timing");
    TTI_TRY(tti_sim_event_query(from));
    TTI_TRY(tti_sim_event_query(to));
    *seconds = ((double)atomic_load(&to->page->ns) - (double)atomic_load(&from->page->ns)) * 1e-9;
    return TUTTI_OK;
}

enum tutti_result tti_sim_event_export(struct tti_gpu_event *event, struct tti_gpu_handle *handle)
{
    if (!(event->flags & TTI_EVENT_INTERPROCESS) || event->fd < 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "this event was not made here for other processes (INTERPROCESS)");
    return tti_sim_ticket_make(event_magic, event->fd, event->gpu->device, EVENT_PAGE, handle);
}

enum tutti_result tti_sim_event_import(struct tti_gpu *gpu, const struct tti_gpu_handle *handle,
                                       struct tti_gpu_event **event)
{
    struct tti_sim_ticket ticket;
    memcpy(&ticket, handle, sizeof ticket);
    enum tutti_result result = TUTTI_OK;
    const int fd = tti_sim_ticket_open(&ticket, event_magic, &result);
    return fd < 0 ? result : event_new(gpu, fd, TTI_EVENT_INTERPROCESS, true, event);
}
