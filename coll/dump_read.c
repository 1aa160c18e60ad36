/* Reading dumps (coll/dump.h). They may come from anywhere: what is not as it must be is refused,
 * with the line. */
#include "coll/dump.h"

#include "base/json_read.h"
#include "base/memory.h"
#include "coll/algorithms/algorithms.h"

#include <stdlib.h>
#include <string.h>

static const double WORD = 9007199254740992.0; /* the largest whole number that all are exact to */
enum { MOST_RANKS = 1 << 16, MOST_SUM = (1 << 30) - 1 /* of tti_blocks_sum */ };

struct reading {
    struct tti_dump *dump;
    size_t capacity;
};

static enum tutti_result read_word(struct tti_json *json, uint64_t *value)
{
    double number = 0;
    TTI_TRY(tti_json_integer(json, 0, WORD, &number));
    *value = (uint64_t)number;
    return TUTTI_OK;
}

static enum tutti_result read_int(struct tti_json *json, double least, double most, int *value)
{
    double number = 0;
    TTI_TRY(tti_json_integer(json, least, most, &number));
    *value = (int)number;
    return TUTTI_OK;
}

static enum tutti_result read_hex(struct tti_json *json, uint64_t *value)
{
    char text[32], *end = text;
    TTI_TRY(tti_json_text(json, text, sizeof text));
    const unsigned long long number = strtoull(text, &end, 16);
    if (strncmp(text, "0x", 2) != 0 || strlen(text) != 18 || *end)
        return tti_json_wrong(json, "a number of 16 hexadecimal digits is expected");
    *value = number;
    return TUTTI_OK;
}

/* ---- an operation ---- */

static enum tutti_result read_operation_name(struct tti_json *json, struct tti_logged *op)
{
    char text[32];
    TTI_TRY(tti_json_text(json, text, sizeof text));
    op->collective = TUTTI_SEND_RECV;
    for (op->alone = TTI_WAIT_SIGNAL; op->alone != TTI_NOT_ALONE; op->alone--)
        if (strcmp(text, tti_logged_name(op)) == 0)
            return TUTTI_OK;
    op->receives = strcmp(text, "recv") == 0;
    if (op->receives || strcmp(text, "send") == 0)
        return TUTTI_OK;
    for (int c = 0; c < TUTTI_SEND_RECV; c++) {
        const enum tutti_collective one = (enum tutti_collective)c;
        op->uneven = tti_logged_uneven(one) && strcmp(text, tti_uneven_name(one)) == 0;
        if (op->uneven || strcmp(text, tutti_collective_name(one)) == 0) {
            op->collective = (uint8_t)c;
            return TUTTI_OK;
        }
    }
    return tti_json_wrong(json, "there is no such operation");
}

static enum tutti_result read_type(struct tti_json *json, struct tti_logged *op)
{
    char text[32];
    TTI_TRY(tti_json_text(json, text, sizeof text));
    for (int t = 0; t < TUTTI_TYPE_COUNT; t++)
        if (strcmp(text, tutti_type_name((enum tutti_type)t)) == 0) {
            op->type = (uint8_t)t;
            return TUTTI_OK;
        }
    return tti_json_wrong(json, "there is no such type");
}

static enum tutti_result read_op(struct tti_json *json, struct tti_logged *op)
{
    char text[32];
    TTI_TRY(tti_json_text(json, text, sizeof text));
    for (int o = 0; o < TUTTI_OP_COUNT; o++)
        if (strcmp(text, tutti_op_name((enum tutti_op)o)) == 0) {
            op->op = (uint8_t)o;
            return TUTTI_OK;
        }
    op->op = TTI_RECORD_PREMUL;
    return strcmp(text, "premulsum") == 0 ? TUTTI_OK
                                          : tti_json_wrong(json, "there is no such operator");
}

/* A name that this version may not know: "" then. */
static enum tutti_result read_algorithm(struct tti_json *json, char *name, size_t bytes)
{
    return tti_json_text(json, name, bytes);
}

struct op_extra {
    bool device;
    int state, to;
    char algorithm[48];
};

enum {
    OP_RING,
    OP_INDEX,
    OP_OPERATION,
    OP_NUMBER,
    OP_COUNT,
    OP_TYPE,
    OP_OP,
    OP_ROOT,
    OP_STATE,
    OP_PATH,
    OP_ALGORITHM,
    OP_LANES,
    OP_START,
    OP_END,
    OP_QUEUED,
    OP_WAITS,
    OP_TO,
    OP_BYTES,
    OP_MEMBERS, /* that each has; the rest are of puts, signals and waits alone */
    OP_SIGNAL = OP_MEMBERS
};
static const char *const op_names[] = {
    "ring",      "index",     "operation", "number",       "count",  "type",     "op",
    "root",      "state",     "path",      "algorithm",    "lanes",  "start_ns", "end_ns",
    "queued_us", "waits_for", "waits_to",  "bytes_so_far", "signal", NULL};

static enum tutti_result op_name_member(struct tti_json *json, int member, struct tti_logged *op,
                                        struct op_extra *extra)
{
    static const char *const rings[] = {"host", "device", NULL};
    static const char *const states[] = {"runs", "done", "failed", NULL};
    static const char *const paths[] = {"", "small", "plan", "fused", "staged", "device", NULL};
    static const char *const ways[] = {"receive", "send", NULL};
    int which = 0;
    switch (member) {
    case OP_RING:
        TTI_TRY(tti_json_one_of(json, rings, &which));
        extra->device = which == 1;
        return TUTTI_OK;
    case OP_OPERATION:
        return read_operation_name(json, op);
    case OP_TYPE:
        return read_type(json, op);
    case OP_OP:
        return read_op(json, op);
    case OP_STATE:
        return tti_json_one_of(json, states, &extra->state);
    case OP_PATH:
        TTI_TRY(tti_json_one_of(json, paths, &which));
        op->path = (uint8_t)which;
        return TUTTI_OK;
    case OP_ALGORITHM:
        return read_algorithm(json, extra->algorithm, sizeof extra->algorithm);
    default: /* OP_TO */
        TTI_TRY(tti_json_one_of(json, ways, &which));
        op->sends = which == 1;
        return TUTTI_OK;
    }
}

static enum tutti_result op_member(struct tti_json *json, int member, struct tti_logged *op,
                                   struct op_extra *extra)
{
    double number = 0;
    switch (member) {
    case OP_INDEX:
        return read_word(json, &op->index);
    case OP_NUMBER:
        return read_word(json, &op->sequence);
    case OP_COUNT:
        return read_word(json, &op->count);
    case OP_START:
        return read_word(json, &op->start_ns);
    case OP_END:
        return read_word(json, &op->end_ns);
    case OP_BYTES:
        return read_word(json, &op->bytes);
    case OP_ROOT:
        return read_int(json, 0, MOST_SUM, &op->root);
    case OP_WAITS:
        return read_int(json, -1, MOST_RANKS, &op->waits_for);
    case OP_LANES:
        TTI_TRY(tti_json_integer(json, 0, 31, &number));
        op->lanes = (uint8_t)number;
        return TUTTI_OK;
    case OP_SIGNAL:
        TTI_TRY(tti_json_integer(json, TUTTI_NO_SIGNAL, TUTTI_SIGNALS - 1, &number));
        op->signal = (int8_t)number;
        return TUTTI_OK;
    case OP_QUEUED:
        TTI_TRY(tti_json_integer(json, 0, UINT32_MAX, &number));
        op->queued_us = (uint32_t)number;
        return TUTTI_OK;
    default:
        return op_name_member(json, member, op, extra);
    }
}

/* What depends on several members. */
static void op_conclude(struct tti_logged *op, const struct op_extra *extra)
{
    op->failed = extra->state == 2;
    if (extra->state == 0)
        op->end_ns = TTI_RECORD_RUNS;
    else if (op->end_ns == 0)
        op->end_ns = TTI_RECORD_UNTIMED;
    op->algorithm = TTI_RECORD_NO_ALGORITHM;
    for (int c = TUTTI_BROADCAST; tti_logged_pairs(op) && c <= TUTTI_SCATTER; c++)
        if (c != TUTTI_REDUCE &&
            strcmp(tti_uneven_name((enum tutti_collective)c), extra->algorithm) == 0) {
            op->algorithm = (uint8_t)c;
            op->uneven = true;
        }
    for (int a = 0; op->collective < TUTTI_SEND_RECV && a < TTI_RECORD_NO_ALGORITHM; a++) {
        const struct tti_algorithm *at = tti_algorithm_at((enum tutti_collective)op->collective, a);
        if (!at)
            break;
        if (strcmp(at->name, extra->algorithm) == 0)
            op->algorithm = (uint8_t)a;
    }
}

static enum tutti_result read_operation(struct tti_json *json, void *context)
{
    struct reading *r = context;
    struct tti_logbook *book = &r->dump->book;
    struct tti_logged op = {.signal = TUTTI_NO_SIGNAL};
    struct op_extra extra = {0};
    unsigned seen = 0;
    int member = 0;
    TTI_TRY(tti_json_expect(json, '{'));
    do {
        TTI_TRY(tti_json_member(json, op_names, &seen, &member));
        TTI_TRY(op_member(json, member, &op, &extra));
    } while (tti_json_takes(json, ','));
    TTI_TRY(tti_json_expect(json, '}'));
    const unsigned all = (1u << (op.alone == TTI_NOT_ALONE ? OP_MEMBERS : OP_MEMBERS + 1)) - 1;
    if (seen != all)
        return tti_json_wrong(json, seen & ~all ? "only puts, signals and waits have a signal"
                                                : "an operation lacks a member");
    op_conclude(&op, &extra);
    if (op.root > MOST_RANKS && (!op.uneven || tti_logged_part(&op)))
        return tti_json_wrong(json, "there is no such rank");
    if (!extra.device && book->host_count < book->count)
        return tti_json_wrong(json, "operations on host memory come first");
    void *ops = book->ops;
    TTI_TRY(tti_grow(&ops, &r->capacity, book->count + 1, sizeof op));
    book->ops = ops;
    book->ops[book->count++] = op;
    book->host_count += !extra.device;
    return TUTTI_OK;
}

/* ---- the whole ---- */

enum {
    DUMP_FORMAT,
    DUMP_VERSION,
    DUMP_JOB,
    DUMP_FAMILY,
    DUMP_RANK,
    DUMP_SIZE,
    DUMP_HOST,
    DUMP_HOSTS,
    DUMP_PID,
    DUMP_NAME,
    DUMP_PROGRAM,
    DUMP_TIMEOUT,
    DUMP_NOW,
    DUMP_MADE,
    DUMP_WALL,
    DUMP_BEGUN,
    DUMP_DEVICE,
    DUMP_QUEUED,
    DUMP_FAILED,
    DUMP_ERROR,
    DUMP_OPERATIONS,
    DUMP_MEMBERS
};
static const char *const dump_names[] = {"format",
                                         "version",
                                         "communicator",
                                         "family",
                                         "rank",
                                         "size",
                                         "host",
                                         "hosts",
                                         "pid",
                                         "name",
                                         "program",
                                         "timeout_s",
                                         "now_ns",
                                         "made_ns",
                                         "made_wall_us",
                                         "begun",
                                         "begun_on_device",
                                         "queued",
                                         "failed",
                                         "error",
                                         "operations",
                                         NULL};

static enum tutti_result dump_number(struct tti_json *json, int member, struct tti_dump *d)
{
    uint64_t word = 0;
    switch (member) {
    case DUMP_RANK:
        return read_int(json, 0, MOST_RANKS - 1, &d->rank);
    case DUMP_SIZE:
        return read_int(json, 1, MOST_RANKS, &d->size);
    case DUMP_HOST:
        return read_int(json, 0, MOST_RANKS - 1, &d->host);
    case DUMP_HOSTS:
        return read_int(json, 1, MOST_RANKS, &d->hosts);
    case DUMP_FAILED:
        return read_int(json, 0, 1000, &d->failed);
    case DUMP_TIMEOUT:
        return tti_json_real(json, 0, WORD, &d->timeout_s);
    case DUMP_NOW:
        return read_word(json, &d->book.now_ns);
    case DUMP_MADE:
        return read_word(json, &d->made_ns);
    case DUMP_WALL:
        return read_word(json, &d->made_wall_us);
    case DUMP_BEGUN:
        return read_word(json, &d->book.begun[0]);
    case DUMP_DEVICE:
        return read_word(json, &d->book.begun[1]);
    default: /* PID, QUEUED */
        TTI_TRY(read_word(json, &word));
        if (member == DUMP_PID)
            d->pid = (int64_t)word;
        else
            d->queued = (uint32_t)word;
        return TUTTI_OK;
    }
}

static enum tutti_result dump_member(struct tti_json *json, int member, struct reading *r)
{
    static const char *const formats[] = {"tutti-dump", NULL};
    struct tti_dump *d = r->dump;
    double version = 0;
    int which = 0;
    switch (member) {
    case DUMP_FORMAT:
        return tti_json_one_of(json, formats, &which);
    case DUMP_VERSION:
        return tti_json_integer(json, 1, 1, &version);
    case DUMP_JOB:
        return read_hex(json, &d->job);
    case DUMP_FAMILY:
        return read_hex(json, &d->family);
    case DUMP_NAME:
        return tti_json_text(json, d->name, sizeof d->name);
    case DUMP_PROGRAM:
        return tti_json_text(json, d->program, sizeof d->program);
    case DUMP_ERROR:
        return tti_json_text(json, d->error, sizeof d->error);
    case DUMP_OPERATIONS:
        return tti_json_list(json, read_operation, r);
    default:
        return dump_number(json, member, d);
    }
}

static enum tutti_result dump_read(struct tti_json *json, struct reading *r)
{
    unsigned seen = 0;
    int member = 0;
    TTI_TRY(tti_json_expect(json, '{'));
    do {
        TTI_TRY(tti_json_member(json, dump_names, &seen, &member));
        TTI_TRY(dump_member(json, member, r));
    } while (tti_json_takes(json, ','));
    TTI_TRY(tti_json_expect(json, '}'));
    TTI_TRY(tti_json_end(json));
    if (seen != (1u << DUMP_MEMBERS) - 1)
        return tti_json_wrong(json, "a member is missing");
    if (r->dump->rank >= r->dump->size)
        return tti_json_wrong(json, "the rank is not below the size");
    return TUTTI_OK;
}

enum tutti_result tti_dump_read(const char *text, size_t bytes, struct tti_dump *dump)
{
    struct tti_json json = tti_json_of(text, bytes, "a dump");
    struct reading r = {dump, 0};
    memset(dump, 0, sizeof *dump);
    dump->book.state = TTI_LOGBOOK_THERE;
    enum tutti_result result = dump_read(&json, &r);
    if (result != TUTTI_OK) {
        free(dump->book.ops);
        dump->book.ops = NULL;
    }
    return result;
}
