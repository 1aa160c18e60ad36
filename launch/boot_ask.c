/* The bootstrap server's part in "what are you doing?" (launch/boot_hall.h): it asks all ranks,
 * waits for a second, and has rank 0's word on their reports told to all. On the server's thread.
 */
#include "launch/boot_hall.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* A report that is still coming has lost its room: the rest of it is read and dropped. */
static void ask_skip(struct tti_boot_server *s)
{
    for (size_t i = 0; i < s->crowd.count; i++) {
        struct tti_boot_conn *conn = s->crowd.conns[i];
        if (conn->header_have == TTI_BOOT_HEADER_BYTES && conn->frame.type == TTI_BOOT_REPORT)
            conn->skip = true;
    }
}

void tti_boot_hall_forget(struct tti_boot_server *s)
{
    if (s->reports)
        ask_skip(s);
    for (int r = 0; s->reports && r < s->size; r++)
        free((void *)(uintptr_t)s->reports[r].message);
    free(s->reports);
    s->reports = NULL;
}

/* Who asks, and why. */
static void ask_note(struct tti_boot_server *s, const struct tti_boot_conn *conn)
{
    s->asker = conn->rank;
    s->ask_code = (enum tutti_result)conn->frame.code;
    tti_boot_text_copy(s->ask_text, sizeof s->ask_text, conn->small, (size_t)conn->frame.bytes);
}

void tti_boot_hall_ask(struct tti_boot_server *s, const struct tti_boot_conn *conn)
{
    const struct tti_boot_frame ask = {.type = TTI_BOOT_ASK, .rank = conn->rank};
    const bool looks = s->reports && s->ask_code == TUTTI_OK; /* that is no failure yet */
    if (s->failed || (s->reports && !looks) || !atomic_load(&s->watch))
        return;
    if (looks) { /* the same reports will do */
        ask_note(s, conn);
        return;
    }
    s->reports = tti_calloc((size_t)s->size, sizeof *s->reports);
    if (!s->reports) {
        TTI_LOG(TTI_LOG_WARN, "bootstrap: %s", tti_error_text());
        return;
    }
    ask_note(s, conn);
    s->answer_by = tti_deadline_in(TTI_BOOT_ANSWER_S);
    tti_boot_hall_tell(s, &ask, NULL, -1);
}

bool tti_boot_hall_report_begin(struct tti_boot_server *s, struct tti_boot_conn *conn)
{
    struct tti_boot_report *report = s->reports ? &s->reports[conn->rank] : NULL;
    if (!report || report->message)
        return false;
    void *message = tti_calloc(1, (size_t)conn->frame.bytes + 1);
    if (!message)
        return false;
    report->message = message;
    report->bytes = (size_t)conn->frame.bytes;
    conn->body = message;
    return true;
}

/* Is anybody still to answer? */
static bool ask_waits(const struct tti_boot_server *s)
{
    for (size_t i = 0; i < s->crowd.count; i++) {
        const struct tti_boot_conn *conn = s->crowd.conns[i];
        if (conn->fd >= 0 && conn->state == TTI_BOOT_CONN_JOINED &&
            s->reports[conn->rank].presence != TTI_BOOT_REPORTED)
            return true;
    }
    return false;
}

void tti_boot_hall_report_end(struct tti_boot_server *s, const struct tti_boot_conn *conn)
{
    if (!s->reports)
        return;
    s->reports[conn->rank].presence = TTI_BOOT_REPORTED;
    if (!ask_waits(s))
        tti_boot_hall_verdict(s);
}

void tti_boot_hall_verdict(struct tti_boot_server *s)
{
    const struct tti_boot_watch *watch = atomic_load(&s->watch);
    char text[TTI_BOOT_TEXT_BYTES];
    if (s->failed) {
        tti_boot_hall_forget(s);
        return;
    }
    for (int r = 0; r < s->size; r++)
        if (s->reports[r].presence == TTI_BOOT_SILENT && s->left[r])
            s->reports[r].presence = TTI_BOOT_LEFT;
    const enum tutti_result code = watch->merge(watch->context, s->reports, s->size, s->asker,
                                                s->ask_code, s->ask_text, text, sizeof text);
    if (code == TUTTI_OK) { /* somebody looked, and all is well */
        tti_boot_hall_forget(s);
        return;
    }
    struct tti_boot_frame verdict = {.type = TTI_BOOT_NOTICE,
                                     .rank = s->asker,
                                     .code = code,
                                     .waited_ms = 1,
                                     .bytes = strnlen(text, sizeof text)};
    TTI_LOG(TTI_LOG_INFO, "bootstrap: %s", text);
    s->failed = true;
    tti_boot_hall_tell(s, &verdict, text, -1);
    tti_boot_hall_forget(s);
}
