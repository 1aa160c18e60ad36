/* Asking the ranks, and merging what they say (coll/diagnose.h). */
#include "coll/diagnose.h"

#include "base/clock.h"
#include "base/kernel_file.h"
#include "base/log.h"
#include "base/memory.h"
#include "coll/comm.h"
#include "coll/verdict.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MANY_RANKS = 256, TURN_MS = 20 };

/* ---- what this rank answers ---- */

static size_t diagnose_report(void *context, void *message, size_t room)
{
    const struct tutti_comm *comm = context;
    const size_t most = comm->size > MANY_RANKS ? TTI_LOGBOOK_SHORT_BYTES : TTI_LOGBOOK_BYTES;
    return tti_logbook_encode(comm->recorder.page, message, room < most ? room : most);
}

static void diagnose_failed(void *context)
{
    struct tutti_comm *comm = context;
    const uint64_t one = 1;
    ssize_t ignored = write(comm->wake_fd, &one, sizeof one); /* full means awake already */
    (void)ignored;
}

/* ---- at rank 0 ---- */

/* A process of this host that a signal or a debugger holds: its state is T or t. */
static bool process_stopped(const struct tutti_comm *comm, int rank)
{
    char path[64], line[512];
    const struct tti_peer *peer = &comm->peers.all[rank];
    if (peer->host != comm->peers.all[comm->rank].host)
        return false;
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)peer->public.pid);
    (void)tti_kernel_line(path, line, sizeof line);
    const char *end = strrchr(line, ')');
    return end && end[1] == ' ' && (end[2] == 'T' || end[2] == 't');
}

static void merge_read(const struct tutti_comm *comm, const struct tti_boot_report *report,
                       int rank, struct tti_logbook *book)
{
    if (report->presence == TTI_BOOT_REPORTED &&
        tti_logbook_decode(report->message, report->bytes, book) != TUTTI_OK) {
        TTI_LOG(TTI_LOG_WARN, "rank %d: %s", rank, tti_error_text());
        memset(book, 0, sizeof *book);
    }
    if (report->presence == TTI_BOOT_LEFT)
        book->state = TTI_LOGBOOK_LEFT;
    if (report->presence == TTI_BOOT_SILENT)
        book->stopped = process_stopped(comm, rank);
    book->name = comm->peers.all[rank].name;
}

static enum tutti_result diagnose_merge(void *context, const struct tti_boot_report *reports,
                                        int size, int asker, enum tutti_result code,
                                        const char *text, char *verdict, size_t room)
{
    const struct tutti_comm *comm = context;
    struct tti_logbook *books = tti_calloc((size_t)size, sizeof *books);
    enum tti_finding finding = TTI_FINDING_NONE;
    for (int r = 0; books && r < size; r++)
        merge_read(comm, &reports[r], r, &books[r]);
    if (books)
        finding = code == TUTTI_OK ? tti_verdict_device(books, size, verdict, room)
                                   : tti_verdict(books, size, verdict, room);
    for (int r = 0; books && r < size; r++)
        free(books[r].ops);
    free(books);
    if (finding == TTI_FINDING_MISMATCH)
        return TUTTI_ERR_MISMATCH;
    if (code == TUTTI_OK)
        return TUTTI_OK;
    /* A mismatch that was seen on the wire says more than who waits for whom. */
    if (finding == TTI_FINDING_NONE || code == TUTTI_ERR_MISMATCH)
        snprintf(verdict, room, "%s", text);
    else
        TTI_LOG(TTI_LOG_INFO, "rank %d asked: %s", asker, text);
    return code;
}

enum tutti_result tti_diagnose_start(struct tutti_comm *comm)
{
    const struct tti_boot_watch watch = {comm, diagnose_report, diagnose_merge, diagnose_failed};
    return tti_boot_watch_start(comm->boot, &watch);
}

/* ---- asking ---- */

void tti_diagnose_look(struct tutti_comm *comm)
{
    if (comm->boot && tti_boot_fd(comm->boot) >= 0 && tti_comm_check(comm) == TUTTI_OK)
        tti_boot_ask(comm->boot, TUTTI_OK, "");
}

/* Until when the verdict may come. Who asks is asked too, or somebody else has asked just before: a
 * server that stays silent is not waited for as long as one that waits for others. One that asks
 * again and again has lost the question, and is not waited for any longer either. */
static uint64_t diagnose_until(struct tutti_comm *comm, uint64_t begin)
{
    const uint64_t answer_ns = (uint64_t)(TTI_BOOT_ANSWER_S * 1e9);
    const uint64_t verdict_ns = (uint64_t)(TTI_BOOT_VERDICT_S * 1e9);
    const uint64_t asked = tti_boot_asked(comm->boot);
    const uint64_t least = begin + answer_ns, most = least + verdict_ns;
    const uint64_t until = asked + answer_ns > begin ? asked + verdict_ns : least;
    return until < least ? least : until > most ? most : until;
}

/* The verdict, another failure that comes meanwhile, or OK: nobody answered. */
static enum tutti_result diagnose_await(struct tutti_comm *comm, int *rank)
{
    const uint64_t begin = tti_now_ns();
    uint64_t deadline = diagnose_until(comm, begin);
    for (; !tti_deadline_passed(deadline); deadline = diagnose_until(comm, begin)) {
        TTI_TRY(tti_boot_poll(comm->boot, rank));
        struct pollfd fd = {.fd = tti_boot_fd(comm->boot), .events = POLLIN};
        poll(&fd, 1, tti_deadline_ms(deadline, TURN_MS));
    }
    return TUTTI_OK;
}

/* What all say, then what this rank saw, unless that is the same. */
static enum tutti_result diagnose_join(enum tutti_result code, const char *theirs, const char *own)
{
    const size_t room = TTI_ERROR_TEXT_BYTES - 1, used = strlen(theirs);
    if (used + 40 >= room || code == TUTTI_ERR_MISMATCH || strstr(theirs, own))
        return TTI_FAIL(code, "%s", theirs);
    return TTI_FAIL(code, "%s; here: %.*s", theirs, (int)(room - used - 10), own);
}

static enum tutti_result diagnose_unanswered(struct tutti_comm *comm, const struct tti_error *own)
{
    const struct tti_peer *first = &comm->peers.all[0];
    const char *why = process_stopped(comm, 0) ? "it is stopped, by a signal or a debugger"
                                               : "it is stopped, or cut off";
    return TTI_FAIL(own->code,
                    "%.*s; rank 0 (%s), through which ranks are asked, does not answer: %s",
                    TTI_ERROR_TEXT_BYTES - 220, own->text, first->name, why);
}

enum tutti_result tti_diagnose(struct tutti_comm *comm, enum tutti_result code)
{
    struct tti_error own;
    int rank = -1;
    tti_error_save(&own, code);
    if (!comm->boot || tti_boot_fd(comm->boot) < 0)
        return tti_comm_fail(comm, code);
    TTI_TRY(tti_comm_check(comm));
    tti_boot_ask(comm->boot, code, own.text);
    enum tutti_result told = diagnose_await(comm, &rank);
    if (told == TUTTI_OK)
        return tti_comm_fail(comm, diagnose_unanswered(comm, &own));
    char theirs[TTI_ERROR_TEXT_BYTES];
    snprintf(theirs, sizeof theirs, "%s", tti_error_text());
    return tti_comm_fail(comm, diagnose_join(told, theirs, own.text));
}
