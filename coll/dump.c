/* Writing dumps (coll/dump.h). */
#include "coll/dump.h"

#include "base/config.h"
#include "base/json_read.h"
#include "base/log.h"
#include "coll/algorithms/algorithms.h"
#include "coll/comm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HEX "0x%016llx"

/* Of a message: what it is part of. */
static const char *dump_algorithm(const struct tti_logged *op)
{
    if (tti_logged_part(op))
        return tti_uneven_name(tti_logged_part(op));
    const struct tti_algorithm *found =
        op->collective < TUTTI_SEND_RECV && op->algorithm != TTI_RECORD_NO_ALGORITHM
            ? tti_algorithm_at((enum tutti_collective)op->collective, op->algorithm)
            : NULL;
    return found ? found->name : "";
}

static void dump_operation(const struct tti_logged *op, bool device, FILE *out)
{
    fprintf(out,
            "{\"ring\": \"%s\", \"index\": %llu, \"operation\": \"%s\", \"number\": %llu, "
            "\"count\": %llu, \"type\": \"%s\", \"op\": \"%s\", \"root\": %d, \"state\": \"%s\", "
            "\"path\": \"%s\", \"algorithm\": \"%s\", \"lanes\": %d, \"start_ns\": %llu, "
            "\"end_ns\": %llu, \"queued_us\": %lu, \"waits_for\": %d, \"waits_to\": \"%s\", "
            "\"bytes_so_far\": %llu",
            device ? "device" : "host", (unsigned long long)op->index, tti_logged_name(op),
            (unsigned long long)op->sequence, (unsigned long long)op->count,
            tutti_type_name((enum tutti_type)op->type),
            op->op == TTI_RECORD_PREMUL ? "premulsum" : tutti_op_name((enum tutti_op)op->op),
            op->root,
            tti_logged_runs(op) ? "runs"
            : op->failed        ? "failed"
                                : "done",
            tti_record_path_name(op->path), dump_algorithm(op), op->lanes,
            (unsigned long long)op->start_ns,
            (unsigned long long)(op->end_ns == TTI_RECORD_UNTIMED ? 0 : op->end_ns),
            device ? 0ul : (unsigned long)op->queued_us, op->waits_for,
            op->sends ? "send" : "receive", (unsigned long long)op->bytes);
    if (op->alone != TTI_NOT_ALONE)
        fprintf(out, ", \"signal\": %d", op->signal);
    fprintf(out, "}");
}

enum tutti_result tti_dump_write(const struct tti_record_page *page, size_t most, FILE *out)
{
    struct tti_logbook book;
    const int failed = atomic_load_explicit(&page->failed, memory_order_acquire);
    TTI_TRY(tti_logbook_read(page, most, &book));
    fprintf(out,
            "{\"format\": \"tutti-dump\", \"version\": 1,\n"
            " \"communicator\": \"" HEX "\", \"family\": \"" HEX "\",\n"
            " \"rank\": %d, \"size\": %d, \"host\": %d, \"hosts\": %d, \"pid\": %lld,\n"
            " \"name\": ",
            (unsigned long long)page->job, (unsigned long long)page->family, page->rank, page->size,
            page->host, page->hosts, (long long)page->pid);
    tti_json_write_text(out, page->name);
    fprintf(out, ", \"program\": ");
    tti_json_write_text(out, page->program);
    fprintf(out, ",\n \"timeout_s\": ");
    tti_json_write_number(out, page->timeout_s);
    fprintf(out,
            ", \"now_ns\": %llu, \"made_ns\": %llu, \"made_wall_us\": %llu,\n"
            " \"begun\": %llu, \"begun_on_device\": %llu, \"queued\": %lu,\n"
            " \"failed\": %d, \"error\": ",
            (unsigned long long)book.now_ns, (unsigned long long)page->made_ns,
            (unsigned long long)(page->made_wall_ns / 1000), (unsigned long long)book.begun[0],
            (unsigned long long)book.begun[1],
            (unsigned long)atomic_load_explicit(&page->queued, memory_order_relaxed), failed);
    tti_json_write_text(out, failed ? page->error : "");
    fprintf(out, ",\n \"operations\": [");
    for (size_t i = 0; i < book.count; i++) {
        fprintf(out, "%s\n  ", i ? "," : "");
        dump_operation(&book.ops[i], i >= book.host_count, out);
    }
    fprintf(out, "\n ]}\n");
    free(book.ops);
    return ferror(out) ? TTI_FAIL(TUTTI_ERR_SYSTEM, "writing a dump: %s", strerror(errno))
                       : TUTTI_OK;
}

bool tti_dump_path(const struct tti_record_page *page, const char *pattern, char *path, size_t room)
{
    size_t used = 0;
    bool ranked = false;
    for (const char *at = pattern; *at && used < room; at++) {
        const char kind = at[0] == '%' ? at[1] : '\0';
        if (kind == 'r')
            used += (size_t)snprintf(path + used, room - used, "%d", page->rank);
        else if (kind == 'p')
            used += (size_t)snprintf(path + used, room - used, "%lld", (long long)page->pid);
        else if (kind == 'c')
            used += (size_t)snprintf(path + used, room - used, "%016llx",
                                     (unsigned long long)page->job);
        else
            used += (size_t)snprintf(path + used, room - used, "%c", *at);
        ranked |= kind == 'r';
        at += kind == 'r' || kind == 'p' || kind == 'c';
    }
    if (!ranked && used < room)
        used += (size_t)snprintf(path + used, room - used, ".%d", page->rank);
    return used < room;
}

enum tutti_result tti_dump_file(const struct tti_record_page *page, const char *pattern)
{
    char path[TTI_DUMP_PATH];
    if (!tti_dump_path(page, pattern, path, sizeof path))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "the path of a dump is too long: %s", pattern);
    FILE *out = fopen(path, "we");
    if (!out)
        return TTI_FAIL_ERRNO("cannot write the dump %s", path);
    enum tutti_result result = tti_dump_write(page, SIZE_MAX, out);
    if (fclose(out) != 0 && result == TUTTI_OK)
        result = TTI_FAIL_ERRNO("cannot write the dump %s", path);
    return result;
}

void tti_dump_failure(const struct tti_recorder *recorder)
{
    const char *pattern = tti_config_text("TUTTI_DUMP");
    struct tti_error before;
    if (!pattern || !recorder->page)
        return;
    tti_error_save(&before, TUTTI_OK);
    if (tti_dump_file(recorder->page, pattern) != TUTTI_OK)
        TTI_LOG(TTI_LOG_WARN, "%s", tti_error_text());
    (void)tti_error_restore(&before);
}

enum tutti_result tutti_comm_dump(tutti_comm *comm, const char *path)
{
    if (!comm || !path || !*path)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_comm_dump: %s",
                        comm ? "path is NULL or empty" : "comm is NULL");
    if (comm->forked)
        return tti_comm_check(comm);
    if (!comm->recorder.page)
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "tutti_comm_dump: nothing is recorded, TUTTI_RECORDER is 0");
    return tti_dump_file(comm->recorder.page, path);
}
