/* Copying operations out of a recorder, and through a message (coll/logbook.h). */
#include "coll/logbook.h"

#include "base/memory.h"
#include "coll/algorithms/algorithms.h"
#include "plan/plan.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- out of the page ---- */

static void logbook_kind(uint32_t kind, struct tti_logged *op)
{
    op->collective = kind >> TTI_RECORD_COLLECTIVE & 15;
    op->type = kind >> TTI_RECORD_TYPE & 15;
    op->op = kind >> TTI_RECORD_OP & 7;
    op->path = kind >> TTI_RECORD_PATH & 7;
    op->algorithm = kind >> TTI_RECORD_ALGORITHM & 31;
    op->lanes = kind >> TTI_RECORD_LANES & 31;
    op->receives = kind & TTI_RECORD_RECEIVES;
    op->failed = kind & TTI_RECORD_FAILED;
    op->sends = kind & TTI_RECORD_SENDS;
    op->uneven = kind & TTI_RECORD_UNEVEN;
    op->graphs = kind & TTI_RECORD_GRAPHS;
    op->alone = kind >> TTI_RECORD_ALONE & 3;
    op->signal = TUTTI_NO_SIGNAL;
    if (op->alone == TTI_NOT_ALONE)
        return;
    op->signal = (int8_t)((int)(kind >> TTI_RECORD_SIGNAL & 1023) - 1);
    op->algorithm = TTI_RECORD_NO_ALGORITHM;
    op->lanes = 0;
}

static bool logbook_record(const struct tti_record *r, uint64_t index, struct tti_logged *op)
{
    if (tti_load_acquire(&r->ticket) != index + 1)
        return false;
    memset(op, 0, sizeof *op);
    op->index = index;
    op->sequence = tti_load_acquire(&r->sequence);
    op->count = tti_load_acquire(&r->count);
    op->bytes = tti_load_acquire(&r->bytes);
    op->start_ns = tti_load_acquire(&r->start_ns);
    op->end_ns = tti_load_acquire(&r->end_ns);
    logbook_kind(atomic_load_explicit(&r->kind, memory_order_acquire), op);
    op->root = atomic_load_explicit(&r->root, memory_order_acquire);
    op->waits_for = atomic_load_explicit(&r->waits_for, memory_order_acquire);
    op->queued_us = atomic_load_explicit(&r->queued_us, memory_order_acquire);
    return tti_load_acquire(&r->ticket) == index + 1;
}

size_t tti_page_read(const struct tti_record_page *page, int ring, struct tti_logged *ops,
                     size_t most)
{
    const uint64_t entries = page->entries[ring], head = tti_load_acquire(&page->head[ring]);
    const struct tti_record *records = page->records + (ring ? page->entries[0] : 0);
    uint64_t n = head < entries ? head : entries;
    size_t found = 0;
    if (n > most)
        n = most;
    for (uint64_t i = head - n; i < head; i++)
        found += logbook_record(&records[i & (entries - 1)], i, &ops[found]);
    return found;
}

enum tutti_result tti_page_check(const struct tti_record_page *page, size_t bytes)
{
    if (bytes < sizeof *page || memcmp(page->magic, TTI_RECORD_MAGIC, sizeof page->magic) != 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "this is no recorder of Tutti's");
    if (page->version != TTI_RECORD_VERSION || page->bytes_of_header != sizeof *page)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "the recorder is of version %u, this program reads version %d",
                        (unsigned)page->version, TTI_RECORD_VERSION);
    uint64_t records = 0;
    for (int i = 0; i < TTI_RECORD_RINGS; i++) {
        if (page->entries[i] & (page->entries[i] - 1))
            return TTI_FAIL(TUTTI_ERR_ARGUMENT, "a recorder of %u entries", page->entries[i]);
        records += page->entries[i];
    }
    if (page->total_bytes > bytes ||
        page->total_bytes != sizeof *page + records * sizeof(struct tti_record) || page->size < 1 ||
        page->rank < 0 || page->rank >= page->size || !memchr(page->name, 0, sizeof page->name) ||
        !memchr(page->program, 0, sizeof page->program))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "a recorder that makes no sense");
    return TUTTI_OK;
}

enum tutti_result tti_logbook_read(const struct tti_record_page *page, size_t most,
                                   struct tti_logbook *book)
{
    size_t each[TTI_RECORD_RINGS], total = 0;
    for (int i = 0; i < TTI_RECORD_RINGS; i++) {
        each[i] = page->entries[i] < most ? page->entries[i] : most;
        total += each[i];
    }
    struct tti_logged *ops = tti_calloc(total, sizeof *ops);
    if (!ops)
        return TUTTI_ERR_MEMORY;
    memset(book, 0, sizeof *book);
    book->state = TTI_LOGBOOK_THERE;
    book->ops = ops;
    book->name = page->name;
    book->count = book->host_count = tti_page_read(page, 0, ops, each[0]);
    book->count += tti_page_read(page, 1, ops + book->host_count, each[1]);
    for (int i = 0; i < TTI_RECORD_RINGS; i++)
        book->begun[i] = tti_load_acquire(&page->head[i]);
    book->now_ns = tti_now_ns();
    return TUTTI_OK;
}

/* ---- through a message ---- */

struct logbook_head {
    uint64_t now_ns, begun[TTI_RECORD_RINGS];
    uint32_t host_count, device_count;
};

size_t tti_logbook_encode(const struct tti_record_page *page, void *message, size_t room)
{
    enum {
        MOST =
            (TTI_LOGBOOK_BYTES - (int)sizeof(struct logbook_head)) / (int)sizeof(struct tti_logged)
    };
    struct logbook_head head = {.now_ns = tti_now_ns()};
    struct tti_logged ops[MOST];
    size_t most = (room - sizeof head) / sizeof ops[0];
    if (most > MOST)
        most = MOST;
    if (page) {
        head.begun[0] = tti_load_acquire(&page->head[0]);
        head.begun[1] = tti_load_acquire(&page->head[1]);
        const size_t device = page->entries[1] && head.begun[1] ? most / 2 : 0;
        head.host_count = (uint32_t)tti_page_read(page, 0, ops, most - device);
        head.device_count =
            device ? (uint32_t)tti_page_read(page, 1, ops + head.host_count, device) : 0;
    }
    const size_t bytes = (head.host_count + head.device_count) * sizeof ops[0];
    memcpy(message, &head, sizeof head);
    memcpy((char *)message + sizeof head, ops, bytes);
    return sizeof head + bytes;
}

bool tti_logged_uneven(enum tutti_collective collective)
{
    return tti_has_uneven(collective) || collective == TUTTI_REDUCE;
}

bool tti_logged_sound(const struct tti_logged *op)
{
    return op->collective < TUTTI_COLLECTIVE_COUNT && op->type < TUTTI_TYPE_COUNT &&
           (op->op < TUTTI_OP_COUNT || op->op == TTI_RECORD_PREMUL) &&
           op->path < TTI_RECORD_PATHS && op->root >= 0 && op->waits_for >= -1 &&
           op->alone <= TTI_WAIT_SIGNAL &&
           (op->alone == TTI_NOT_ALONE || op->collective == TUTTI_SEND_RECV) &&
           op->signal >= TUTTI_NO_SIGNAL && op->signal < TUTTI_SIGNALS &&
           (!op->uneven || tti_logged_part(op) ||
            tti_logged_uneven((enum tutti_collective)op->collective));
}

enum tutti_result tti_logbook_decode(const void *message, size_t bytes, struct tti_logbook *book)
{
    struct logbook_head head;
    if (bytes < sizeof head)
        return TTI_FAIL(TUTTI_ERR_PROTOCOL, "a report of %zu bytes", bytes);
    memcpy(&head, message, sizeof head);
    const size_t count = (size_t)head.host_count + head.device_count;
    if (count > TTI_LOGBOOK_BYTES || bytes != sizeof head + count * sizeof(struct tti_logged))
        return TTI_FAIL(TUTTI_ERR_PROTOCOL, "a report of %zu operations in %zu bytes", count,
                        bytes);
    struct tti_logged *ops = tti_calloc(count, sizeof *ops);
    if (!ops)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        unsigned char raw[sizeof *ops];
        memcpy(raw, (const char *)message + sizeof head + i * sizeof *ops, sizeof raw);
        const size_t flags[] = {
            offsetof(struct tti_logged, receives), offsetof(struct tti_logged, sends),
            offsetof(struct tti_logged, failed), offsetof(struct tti_logged, uneven),
            offsetof(struct tti_logged, graphs)};
        for (size_t f = 0; f < sizeof flags / sizeof flags[0]; f++)
            raw[flags[f]] = raw[flags[f]] != 0; /* any other byte is no bool */
        memcpy(&ops[i], raw, sizeof raw);
        if (!tti_logged_sound(&ops[i])) {
            free(ops);
            return TTI_FAIL(TUTTI_ERR_PROTOCOL, "a report of an operation that there is not");
        }
    }
    memset(book, 0, sizeof *book);
    book->state = TTI_LOGBOOK_THERE;
    book->now_ns = head.now_ns;
    book->count = count;
    book->host_count = head.host_count;
    memcpy(book->begun, head.begun, sizeof book->begun);
    book->ops = ops;
    return TUTTI_OK;
}

/* ---- in words ---- */

const char *tti_record_path_name(int path)
{
    static const char *const names[TTI_RECORD_PATHS] = {"",      "small",  "plan",
                                                        "fused", "staged", "device"};
    return path >= 0 && path < TTI_RECORD_PATHS ? names[path] : "";
}

static bool logged_has_root(int collective)
{
    return collective == TUTTI_BROADCAST || collective == TUTTI_REDUCE ||
           collective == TUTTI_GATHER || collective == TUTTI_SCATTER;
}

const char *tti_logged_name(const struct tti_logged *op)
{
    if (op->uneven && !tti_logged_part(op))
        return tti_uneven_name((enum tutti_collective)op->collective);
    const struct tti_operation call = {.collective = (enum tutti_collective)op->collective,
                                       .receives = op->receives,
                                       .alone = (enum tti_alone)op->alone};
    return tti_operation_name(&call);
}

/* "put #3 to rank 1 (count 10, float32, signal 0)" and the like. */
static void logged_alone(const struct tti_logged *op, char *text, size_t bytes)
{
    const unsigned long long sequence = op->sequence, count = op->count;
    char signal[24] = "no signal";
    if (op->signal != TUTTI_NO_SIGNAL)
        snprintf(signal, sizeof signal, "signal %d", op->signal);
    if (op->alone == TTI_PUT)
        snprintf(text, bytes, "put #%llu to rank %d (count %llu, %s, %s)", sequence, op->root,
                 count, tutti_type_name((enum tutti_type)op->type), signal);
    else if (op->alone == TTI_SIGNAL)
        snprintf(text, bytes, "signal #%llu to rank %d (%s)", sequence, op->root, signal);
    else
        snprintf(text, bytes, "wait_signal #%llu from rank %d (%llu of %s)", sequence, op->root,
                 count, signal);
}

const char *tti_logged_text(const struct tti_logged *op, char *text, size_t bytes)
{
    const enum tutti_collective collective = (enum tutti_collective)op->collective;
    const char *name = tti_logged_name(op);
    const char *type = tutti_type_name((enum tutti_type)op->type);
    const enum tutti_collective part = tti_logged_part(op);
    const unsigned long long sequence = op->sequence, count = op->count;
    char by[32] = "", root[32] = "";
    if (op->alone != TTI_NOT_ALONE) {
        logged_alone(op, text, bytes);
        return text;
    }
    if (collective == TUTTI_SEND_RECV) {
        snprintf(text, bytes, "%s #%llu %s rank %d (count %llu, %s%s%s)", name, sequence,
                 op->receives ? "from" : "to", op->root, count, type, part ? ", in " : "",
                 part ? tti_uneven_name(part) : "");
        return text;
    }
    if (collective == TUTTI_BARRIER) {
        snprintf(text, bytes, "barrier #%llu", sequence);
        return text;
    }
    if (tti_reduces(collective))
        snprintf(by, sizeof by, ", %s",
                 op->op == TTI_RECORD_PREMUL ? "premulsum" : tutti_op_name((enum tutti_op)op->op));
    if (op->uneven)
        snprintf(root, sizeof root, ", checksum of counts %08x", (unsigned)op->root);
    else if (logged_has_root(op->collective))
        snprintf(root, sizeof root, ", root %d", op->root);
    snprintf(text, bytes, "%s #%llu (count %llu, %s%s%s)", name, sequence, count, type, by, root);
    return text;
}

bool tti_logged_same(const struct tti_logged *a, const struct tti_logged *b)
{
    if (a->collective != b->collective)
        return false;
    if (a->collective == TUTTI_BARRIER)
        return true;
    if (a->count != b->count || a->type != b->type || a->uneven != b->uneven)
        return false;
    if (tti_reduces((enum tutti_collective)a->collective) && a->op != b->op)
        return false;
    return !(a->uneven || logged_has_root(a->collective)) || a->root == b->root;
}
