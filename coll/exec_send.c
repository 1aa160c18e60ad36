/* Sends of the CPU executor: queued in the order of the steps, handed to the transport as their
 * data become ready, kept until the receiver has consumed them. */
#include "coll/exec_internal.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum {
    RECORDS_A_SLAB = 64,
    /* A forwarded range goes on in pieces of at least this many bytes, the last one aside. */
    FORWARD_BYTES = 8192,
};

static enum tutti_result record_new(struct tti_executor *x, struct tti_send_record **record)
{
    if (!x->free_records) {
        void *slabs = x->slabs;
        TTI_TRY(tti_grow(&slabs, &x->slab_capacity, x->slab_count + 1, sizeof *x->slabs));
        x->slabs = slabs;
        struct tti_send_record *slab = tti_calloc(RECORDS_A_SLAB, sizeof *slab);
        if (!slab)
            return TUTTI_ERR_MEMORY;
        x->slabs[x->slab_count++] = slab;
        for (int i = 0; i < RECORDS_A_SLAB; i++) {
            slab[i].next_in_lane = x->free_records;
            x->free_records = &slab[i];
        }
    }
    *record = x->free_records;
    x->free_records = (*record)->next_in_lane;
    return TUTTI_OK;
}

void tti_exec_records_free(struct tti_executor *x)
{
    for (size_t i = 0; i < x->slab_count; i++)
        free(x->slabs[i]);
    free(x->slabs);
}

enum tutti_result tti_exec_send_begin(struct tti_executor *x, struct tti_exec_lane *lane,
                                      const struct tti_step *step, struct tti_ref ref, size_t ready,
                                      struct tti_send_record **record)
{
    struct tti_send_queue *queue = &x->comm->links.all[step->to].queues[lane->wire_lane];
    struct tti_send_record *made = NULL;
    TTI_TRY(record_new(x, &made));
    *made = (struct tti_send_record){
        .queue = queue,
        .serial = (uint64_t)lane->pass * lane->count + lane->step,
        .step = step,
        .ref = ref,
        .range = lane->range,
        .pass = lane->pass,
        .ready = ready,
    };
    if (lane->youngest)
        lane->youngest->next_in_lane = made;
    else
        lane->oldest = made;
    lane->youngest = made;
    if (queue->tail)
        queue->tail->next_in_queue = made;
    else
        queue->head = made;
    queue->tail = made;
    if (!queue->active) {
        queue->active = true;
        queue->next_active = x->active;
        x->active = queue;
    }
    *record = made;
    return TUTTI_OK;
}

uint64_t tti_exec_tag(const struct tti_executor *x, const struct tti_step *step, struct tti_ref ref)
{
    (void)step;
    return x->messages ? x->messages[ref.index].tag : x->tag;
}

/* The head of a queue is handed over whole: off the queue, though its memory may still be in use.
 */
static void queue_pop(struct tti_send_queue *queue)
{
    struct tti_send_record *record = queue->head;
    record->handed = true;
    record->end = queue->accepted;
    queue->head = record->next_in_queue;
    if (!queue->head)
        queue->tail = NULL;
}

/* Hand a piece to the transport: out of device memory, where it lies there. */
static enum tutti_result queue_send(const struct tti_executor *x,
                                    const struct tti_send_queue *queue, const char *data,
                                    size_t bytes, size_t *accepted)
{
    const struct tti_link *link = queue->link;
    const struct tti_send_record *record = queue->head;
    const bool device =
        x->messages
            ? x->messages[record->ref.index].device
            : x->device.base && (uintptr_t)data - (uintptr_t)x->device.base < x->device.bytes;
    const uint64_t tag = tti_exec_tag(x, record->step, record->ref);
    tti_transport_send *send = link->ops->send;
    if (device)
        send = link->ops->device_send;
    else if (bytes >= x->lend_from && bytes > link->copies)
        send = link->lend;
    return send(link->endpoint, queue->lane, tag, data, bytes, accepted);
}

enum tutti_result tti_exec_queue_pump(struct tti_executor *x, struct tti_send_queue *queue,
                                      bool *moved)
{
    while (queue->head) {
        struct tti_send_record *record = queue->head;
        size_t size = x->buffers.size[record->ref.buffer];
        size_t left = record->ready - record->sent;
        if (left == 0 && record->sent < record->range.total)
            return TUTTI_OK;
        if (record->ready < record->range.total && left * size < FORWARD_BYTES)
            return TUTTI_OK;
        if (left > 0) {
            size_t contiguous = 0, accepted = 0;
            char *data = tti_exec_place(x, record->ref, record->range, record->pass, record->sent,
                                        &contiguous);
            size_t offer = (contiguous < left ? contiguous : left) * size;
            enum tutti_result result = queue_send(x, queue, data, offer, &accepted);
            if (result != TUTTI_OK)
                return tti_comm_link_failed(x->comm, result);
            if (accepted == 0)
                return TUTTI_OK;
            queue->accepted += accepted;
            record->sent += accepted / size;
            *moved = true;
        }
        if (record->sent == record->range.total)
            queue_pop(queue);
    }
    return TUTTI_OK;
}

enum tutti_result tti_exec_pump(struct tti_executor *x, bool *moved)
{
    struct tti_send_queue **at = &x->active;
    while (*at) {
        struct tti_send_queue *queue = *at;
        TTI_TRY(tti_exec_queue_pump(x, queue, moved));
        if (queue->head) {
            at = &queue->next_active;
        } else {
            queue->active = false;
            *at = queue->next_active;
        }
    }
    return TUTTI_OK;
}

static bool record_consumed(const struct tti_send_record *record)
{
    const struct tti_link *link = record->queue->link;
    return record->handed &&
           link->ops->released(link->endpoint, record->queue->lane) >= record->end;
}

bool tti_exec_sends_done(struct tti_executor *x, struct tti_exec_lane *lane, uint64_t serial)
{
    while (lane->oldest && lane->oldest->serial <= serial) {
        struct tti_send_record *record = lane->oldest;
        if (!record_consumed(record))
            return false;
        lane->oldest = record->next_in_lane;
        if (!lane->oldest)
            lane->youngest = NULL;
        record->next_in_lane = x->free_records;
        x->free_records = record;
    }
    return true;
}

void tti_exec_sends_drop(struct tti_executor *x)
{
    for (struct tti_send_queue *queue = x->active; queue; queue = queue->next_active) {
        queue->head = queue->tail = NULL;
        queue->active = false;
    }
    x->active = NULL;
    for (size_t i = 0; i < x->lane_count; i++) {
        struct tti_exec_lane *lane = &x->lanes[i];
        while (lane->oldest) {
            struct tti_send_record *record = lane->oldest;
            lane->oldest = record->next_in_lane;
            record->next_in_lane = x->free_records;
            x->free_records = record;
        }
        lane->youngest = NULL;
    }
}
