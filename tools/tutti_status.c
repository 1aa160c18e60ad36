/* tutti-status: what the ranks of running jobs on this host are doing, live, without their help. It
 * looks twice, some time apart: what changed in between gives the rates. */
#include "base/clock.h"
#include "base/memory.h"
#include "tools/dump_merge.h"
#include "tools/status_pages.h"

#include <getopt.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_NONE = 1, EXIT_USAGE = 2, KEPT = 512, KEPT_JSON = 8, CALL_BYTES = 160, VERDICT = 2000 };

static const char usage[] =
    "Usage: tutti-status [options]\n"
    "\n"
    "Shows what each rank of a job on this host is doing: its operation, for how long, whom it\n"
    "waits for, operations and bytes a second; and what is wrong, if something is. The job may\n"
    "be hung or stopped; it is not disturbed. Only jobs of the same user are seen. Refreshes\n"
    "until interrupted.\n"
    "\n"
    "      --once           show once and end\n"
    "      --json           the same as JSON (once), with the last operations of each rank\n"
    "  -i, --interval S     seconds between refreshes (1)\n"
    "  -j, --job ID         this job only: the number that the list of jobs shows, or a pid\n"
    "      --list           list the jobs\n"
    "      --dump FILE      write every rank's recorder to FILE for tutti-dump; %r in it is the\n"
    "                       rank, %p the pid, %c the communicator\n"
    "  -h, --help           this text\n"
    "      --version        the version\n"
    "\n"
    "Exit status: 0; 1 if there is no such job; 2 for a wrong command line.\n";

struct options {
    bool once, json, list;
    double interval_s;
    const char *job, *dump;
};

/* ---- which ---- */

static bool page_wanted(const struct status_pages *pages, const struct status_page *at,
                        const char *job)
{
    char *end = NULL;
    if (!job)
        return true;
    const unsigned long long number = strtoull(job, &end, 16);
    if (!*end && strlen(job) == 16)
        return at->page->family == number || at->page->job == number;
    const int pid = atoi(job);
    for (size_t i = 0; i < pages->count; i++)
        if (pages->all[i].pid == pid && pages->all[i].page->family == at->page->family)
            return true;
    return false;
}

/* Only what is wanted stays, in its order. */
static void pages_keep(struct status_pages *pages, const char *job)
{
    size_t kept = 0;
    bool *wanted = tti_calloc(pages->count, sizeof *wanted);
    for (size_t i = 0; wanted && i < pages->count; i++)
        wanted[i] = page_wanted(pages, &pages->all[i], job);
    for (size_t i = 0; wanted && i < pages->count; i++) {
        if (wanted[i])
            pages->all[kept++] = pages->all[i];
        else
            status_page_release(&pages->all[i]);
    }
    if (wanted)
        pages->count = kept;
    free(wanted);
}

/* ---- one look ---- */

struct look {
    struct status_pages pages;
    uint64_t *begun, *bytes; /* by page */
    uint64_t at_ns;
};

static uint64_t page_bytes(const struct tti_record_page *page)
{
    uint64_t total = 0;
    for (int ring = 0; ring < TTI_RECORD_RINGS; ring++) {
        struct tti_logged op;
        if (page->entries[ring] && tti_page_read(page, ring, &op, 1) == 1)
            total += op.bytes;
    }
    return total;
}

/* Of `job`, or all. */
static enum tutti_result look_take(const char *job, struct look *look)
{
    memset(look, 0, sizeof *look);
    TTI_TRY(status_pages_find(&look->pages));
    pages_keep(&look->pages, job);
    look->begun = tti_calloc(look->pages.count, sizeof *look->begun);
    look->bytes = tti_calloc(look->pages.count, sizeof *look->bytes);
    if (!look->begun || !look->bytes) {
        free(look->begun);
        free(look->bytes);
        status_pages_release(&look->pages);
        return TUTTI_ERR_MEMORY;
    }
    look->at_ns = tti_now_ns();
    for (size_t i = 0; i < look->pages.count; i++) {
        const struct tti_record_page *page = look->pages.all[i].page;
        for (int ring = 0; ring < TTI_RECORD_RINGS; ring++)
            look->begun[i] += tti_load_acquire(&page->head[ring]);
        look->bytes[i] = page_bytes(page);
    }
    return TUTTI_OK;
}

static void look_release(struct look *look)
{
    status_pages_release(&look->pages);
    free(look->begun);
    free(look->bytes);
    memset(look, 0, sizeof *look);
}

/* A second since the look before, of page `i`: of *begun and *bytes. */
static void look_rates(const struct look *before, const struct look *now, size_t i,
                       double *operations, double *bytes)
{
    const double seconds = (double)(now->at_ns - before->at_ns) / 1e9;
    *operations = *bytes = 0;
    for (size_t k = 0; k < before->pages.count && seconds > 0; k++)
        if (before->pages.all[k].inode == now->pages.all[i].inode &&
            now->begun[i] >= before->begun[k]) {
            *operations = (double)(now->begun[i] - before->begun[k]) / seconds;
            *bytes = now->bytes[i] >= before->bytes[k]
                         ? (double)(now->bytes[i] - before->bytes[k]) / seconds
                         : 0;
        }
}

/* ---- for people ---- */

static const char *rate_text(double value, char *text, size_t bytes)
{
    static const char units[] = " kMGT";
    size_t u = 0;
    while (value >= 1000 && u < sizeof units - 2) {
        value /= 1000;
        u++;
    }
    snprintf(text, bytes, u ? "%.3g%c" : "%.3g", value, units[u]);
    return text;
}

static void show_rank(const struct status_page *at, const struct tti_dump *d, double operations,
                      double bytes)
{
    char what[CALL_BYTES + 16], time[32] = "", ops_text[32], bytes_text[32], peer[16] = "";
    const struct tti_logged *op = tti_logbook_current(&d->book);
    const struct tti_logged *last = tti_logbook_finished(&d->book);
    const int waits = tti_logbook_waits_for(&d->book);
    if (op)
        tti_logged_text(op, what, sizeof what);
    else if (last)
        memcpy(what, "after ", 6), tti_logged_text(last, what + 6, sizeof what - 6);
    else
        snprintf(what, sizeof what, "nothing yet");
    if (op && op->start_ns && d->book.now_ns > op->start_ns)
        tti_merge_time((double)(d->book.now_ns - op->start_ns), time, sizeof time);
    if (op && waits >= 0)
        snprintf(peer, sizeof peer, "%d", waits);
    printf("%6d %8d  %-52.52s %8s %5s %8s %8s%s%s\n", d->rank, at->pid, what, time, peer,
           rate_text(operations, ops_text, sizeof ops_text),
           rate_text(bytes, bytes_text, sizeof bytes_text), at->stopped ? "  STOPPED" : "",
           d->failed ? "  FAILED" : "");
}

static void page_dump(const struct status_page *at, struct tti_dump *d)
{
    const struct tti_record_page *page = at->page;
    memset(d, 0, sizeof *d);
    d->job = page->job;
    d->family = page->family;
    d->rank = page->rank;
    d->size = page->size;
    d->host = page->host;
    d->hosts = page->hosts;
    d->made_ns = page->made_ns;
    d->made_wall_us = page->made_wall_ns / 1000;
    d->failed = atomic_load_explicit(&page->failed, memory_order_acquire);
    memcpy(d->name, page->name, sizeof d->name);
    memcpy(d->program, page->program, sizeof d->program);
    if (d->failed) {
        memcpy(d->error, page->error, sizeof d->error);
        d->error[sizeof d->error - 1] = '\0';
    }
    if (tti_logbook_read(page, KEPT, &d->book) == TUTTI_OK)
        d->book.stopped = at->stopped;
}

/* Ranks that are at work wait for each other all the time; not for a second, though. */
static bool worth_saying(const struct tti_dump *dumps, size_t count, enum tti_finding finding)
{
    bool worth = finding == TTI_FINDING_MISMATCH;
    for (size_t i = 0; i < count && finding != TTI_FINDING_NONE; i++) {
        const struct tti_logged *op = tti_logbook_current(&dumps[i].book);
        worth |= dumps[i].book.stopped ||
                 (op && op->start_ns && dumps[i].book.now_ns > op->start_ns + 1000000000u);
    }
    return worth;
}

/* One communicator: pages begin .. end of the look. */
static enum tutti_result show_communicator(const struct look *before, const struct look *now,
                                           size_t begin, size_t end)
{
    const struct tti_record_page *first = now->pages.all[begin].page;
    const size_t count = end - begin, size = (size_t)first->size;
    char text[VERDICT];
    struct tti_logbook *books = tti_calloc(size, sizeof *books);
    struct tti_dump *dumps = tti_calloc(count, sizeof *dumps);
    const char *error = NULL;
    if (!books || !dumps) {
        free(books);
        free(dumps);
        return TUTTI_ERR_MEMORY;
    }
    for (size_t r = 0; r < size; r++)
        books[r].state = first->hosts > 1 ? TTI_LOGBOOK_UNSEEN : TTI_LOGBOOK_LEFT;
    printf("%s, communicator %016llx: %d ranks on %d host%s, %zu of them here\n", first->program,
           (unsigned long long)first->job, first->size, first->hosts, first->hosts == 1 ? "" : "s",
           count);
    printf("%6s %8s  %-52s %8s %5s %8s %8s\n", "rank", "pid", "operation", "for", "waits", "op/s",
           "B/s");
    for (size_t i = 0; i < count; i++) {
        double operations = 0, bytes = 0;
        page_dump(&now->pages.all[begin + i], &dumps[i]);
        look_rates(before, now, begin + i, &operations, &bytes);
        show_rank(&now->pages.all[begin + i], &dumps[i], operations, bytes);
        books[dumps[i].rank] = dumps[i].book;
        books[dumps[i].rank].name = dumps[i].name;
        error = dumps[i].failed ? dumps[i].error : error;
    }
    if (error)
        printf("  FAILED: %s\n", error);
    else if (worth_saying(dumps, count, tti_verdict(books, first->size, text, sizeof text)))
        printf("  %s\n", text);
    tti_merge_stragglers(dumps, count, stdout);
    for (size_t i = 0; i < count; i++)
        free(dumps[i].book.ops);
    free(books);
    free(dumps);
    return TUTTI_OK;
}

/* ---- the program ---- */

static size_t families(const struct status_pages *pages, bool show)
{
    size_t count = 0;
    for (size_t i = 0, end = 0; i < pages->count; i = end, count++) {
        size_t communicators = 0;
        for (end = i;
             end < pages->count && pages->all[end].page->family == pages->all[i].page->family;
             end++)
            communicators += end == i || pages->all[end].page->job != pages->all[end - 1].page->job;
        if (show)
            printf("%016llx  %s: %d ranks, %zu communicator%s, first pid %d\n",
                   (unsigned long long)pages->all[i].page->family, pages->all[i].page->program,
                   pages->all[i].page->size, communicators, communicators == 1 ? "" : "s",
                   pages->all[i].pid);
    }
    return count;
}

static enum tutti_result show_json(const struct look *now)
{
    printf("[");
    for (size_t i = 0; i < now->pages.count; i++) {
        printf("%s\n", i ? "," : "");
        TTI_TRY(tti_dump_write(now->pages.all[i].page, KEPT_JSON, stdout));
    }
    printf("]\n");
    return TUTTI_OK;
}

/* Each page to a file of its own; nothing is written if two would be one. */
static enum tutti_result write_dumps(const struct status_pages *pages, const char *pattern)
{
    char path[TTI_DUMP_PATH], other[TTI_DUMP_PATH];
    for (size_t i = 1; i < pages->count; i++)
        for (size_t j = 0; j < i; j++)
            if (tti_dump_path(pages->all[i].page, pattern, path, sizeof path) &&
                tti_dump_path(pages->all[j].page, pattern, other, sizeof other) &&
                strcmp(path, other) == 0)
                return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                                "--dump: two communicators would be written to %s; put %%c in the "
                                "name (%s.%%c), or choose a job with --job",
                                path, pattern);
    for (size_t i = 0; i < pages->count; i++)
        TTI_TRY(tti_dump_file(pages->all[i].page, pattern));
    printf("%zu recorders written\n", pages->count);
    return TUTTI_OK;
}

static enum tutti_result show(const struct options *options, const struct look *before,
                              const struct look *now)
{
    if (options->dump)
        return write_dumps(&now->pages, options->dump);
    if (options->json)
        return show_json(now);
    const size_t jobs = families(&now->pages, false);
    if (options->list || (jobs > 1 && !options->job)) {
        families(&now->pages, true);
        if (!options->list)
            printf("Choose one with --job.\n\n");
        if (options->list)
            return TUTTI_OK;
    }
    for (size_t begin = 0, end = 0; begin < now->pages.count; begin = end) {
        for (end = begin; end < now->pages.count &&
                          now->pages.all[end].page->job == now->pages.all[begin].page->job;)
            end++;
        TTI_TRY(show_communicator(before, now, begin, end));
        printf("\n");
    }
    return TUTTI_OK;
}

static int finish(enum tutti_result result)
{
    if (result == TUTTI_OK)
        return 0;
    fprintf(stderr, "tutti-status: %s\n", tutti_last_error());
    return EXIT_USAGE;
}

/* The job is not there, or not any more, if it was seen before. */
static int none(const struct options *options, bool seen, struct look *before, struct look *now)
{
    look_release(now);
    look_release(before);
    if (seen) {
        printf("job %s has ended\n", options->job);
        return 0;
    }
    fprintf(stderr, "tutti-status: no %s of this user on this host%s\n",
            options->job ? "such job" : "job that uses Tutti",
            options->job ? "; --list shows those there are" : "");
    return EXIT_NONE;
}

static int run(const struct options *options)
{
    const bool rates = !options->json && !options->list && !options->dump;
    const bool once = options->once || !rates, terminal = isatty(STDOUT_FILENO);
    const double first_s = 0.2;
    struct look before = {0}, now;
    enum tutti_result result = rates ? look_take(options->job, &before) : TUTTI_OK;
    for (int turn = 0; result == TUTTI_OK; turn++) {
        if (rates)
            (void)poll(NULL, 0, (int)((turn ? options->interval_s : first_s) * 1000));
        result = look_take(options->job, &now);
        if (result != TUTTI_OK)
            break;
        if (now.pages.count == 0 && (once || options->job))
            return none(options, turn > 0, &before, &now);
        if (terminal && !once)
            printf("\033[H\033[J");
        if (now.pages.count == 0 && (terminal || turn == 0))
            printf("no job that uses Tutti of this user on this host yet; interrupt to end\n");
        result = show(options, &before, &now);
        fflush(stdout);
        look_release(&before);
        before = now;
        if (once || ferror(stdout))
            break;
    }
    look_release(&before);
    return finish(result);
}

int main(int argc, char **argv)
{
    enum { FLAG_ONCE = 256, FLAG_JSON, FLAG_LIST, FLAG_DUMP, FLAG_VERSION };
    static const struct option flags[] = {{"once", no_argument, NULL, FLAG_ONCE},
                                          {"json", no_argument, NULL, FLAG_JSON},
                                          {"list", no_argument, NULL, FLAG_LIST},
                                          {"dump", required_argument, NULL, FLAG_DUMP},
                                          {"interval", required_argument, NULL, 'i'},
                                          {"job", required_argument, NULL, 'j'},
                                          {"version", no_argument, NULL, FLAG_VERSION},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    struct options options = {.interval_s = 1};
    int flag = 0;
    while ((flag = getopt_long(argc, argv, "i:j:h", flags, NULL)) != -1) {
        if (flag == FLAG_ONCE) {
            options.once = true;
        } else if (flag == FLAG_JSON) {
            options.json = true;
        } else if (flag == FLAG_LIST) {
            options.list = true;
        } else if (flag == FLAG_DUMP) {
            options.dump = optarg;
        } else if (flag == 'i') {
            options.interval_s = atof(optarg);
        } else if (flag == 'j') {
            options.job = optarg;
        } else if (flag == FLAG_VERSION) {
            return printf("tutti-status (Tutti) %d.%d.%d\n", TUTTI_VERSION_MAJOR,
                          TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH) < 0;
        } else if (flag == 'h') {
            fputs(usage, stdout);
            return 0;
        } else {
            fputs("tutti-status: --help shows the flags\n", stderr);
            return EXIT_USAGE;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "tutti-status: %s is no flag; --help shows the flags\n", argv[optind]);
        return EXIT_USAGE;
    }
    if (!(options.interval_s >= 0.05) || options.interval_s > 86400) {
        fputs("tutti-status: the interval is from 0.05 s to a day; --help shows the flags\n",
              stderr);
        return EXIT_USAGE;
    }
    return run(&options);
}
