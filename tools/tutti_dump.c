/* tutti-dump: merge the recorders of several ranks (TUTTI_DUMP, tutti_comm_dump, tutti-status
 * --dump): what is wrong, who is behind, who comes late, and a trace for Perfetto or Chrome. */
#include "base/config.h"
#include "base/memory.h"
#include "tools/dump_merge.h"

#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_WRONG = 1, EXIT_USAGE = 2, SHOWN_OPERATIONS = 5 };

static const char usage[] =
    "Usage: tutti-dump [options] FILE...\n"
    "\n"
    "Merges dumps of the ranks of a communicator (of several: one after another) and says what\n"
    "is wrong: calls that differ, ranks that have not come, who waits for whom; then who comes\n"
    "late, and by how much. Dumps are written by a program that has TUTTI_DUMP=FILE.%r set and\n"
    "fails, by tutti_comm_dump, and by tutti-status --dump of a running job.\n"
    "\n"
    "  -t, --trace FILE   write a trace for ui.perfetto.dev or chrome://tracing\n"
    "  -l, --last N       operations shown of each rank (5)\n"
    "  -h, --help         this text\n"
    "      --version      the version\n"
    "\n"
    "Exit status: 0 if nothing is wrong, 1 if something is, 2 for a wrong command line or file.\n";

static enum tutti_result file_text(const char *path, char **text, size_t *bytes)
{
    enum { STEP = 1 << 16 };
    size_t capacity = 0, used = 0, got = 0;
    void *data = NULL;
    FILE *file = fopen(path, "re");
    if (!file)
        return TTI_FAIL_ERRNO("cannot read %s", path);
    enum tutti_result result = TUTTI_OK;
    do {
        result = tti_grow(&data, &capacity, used + STEP, 1);
        got = result == TUTTI_OK ? fread((char *)data + used, 1, STEP, file) : 0;
        used += got;
    } while (got > 0);
    if (result == TUTTI_OK && ferror(file))
        result = TTI_FAIL_ERRNO("cannot read %s", path);
    fclose(file);
    if (result != TUTTI_OK) {
        free(data);
        return result;
    }
    *text = data;
    *bytes = used;
    return TUTTI_OK;
}

static enum tutti_result file_read(const char *path, struct tti_dump *dump)
{
    char *text = NULL;
    size_t bytes = 0;
    TTI_TRY(file_text(path, &text, &bytes));
    enum tutti_result result = tti_dump_read(text, bytes, dump);
    free(text);
    return result == TUTTI_OK ? result : TTI_CONTEXT(result, "%s", path);
}

static int dump_order(const void *left, const void *right)
{
    const struct tti_dump *a = left, *b = right;
    if (a->job != b->job)
        return a->job < b->job ? -1 : 1;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

/* What there is to say of each communicator. Returns how many have something wrong; -1: an error
 * was printed. */
static int show(struct tti_dump *dumps, size_t count, int last, FILE *out)
{
    int wrong = 0;
    for (size_t begin = 0, end = 0; begin < count; begin = end) {
        bool found = false;
        while (end < count && dumps[end].job == dumps[begin].job)
            end++;
        enum tutti_result result = tti_merge_show(dumps + begin, end - begin, last, out, &found);
        if (result != TUTTI_OK) {
            fprintf(stderr, "tutti-dump: %s\n", tutti_last_error());
            return -1;
        }
        wrong += found;
    }
    return wrong;
}

static int trace(const char *path, const struct tti_dump *dumps, size_t count)
{
    FILE *out = fopen(path, "we");
    if (!out || tti_merge_trace(dumps, count, out) != TUTTI_OK || fclose(out) != 0) {
        fprintf(stderr, "tutti-dump: cannot write %s\n", path);
        return EXIT_USAGE;
    }
    return 0;
}

static int run(char **paths, int files, int last, const char *trace_path)
{
    struct tti_dump *dumps = tti_calloc((size_t)files, sizeof *dumps);
    int status = 0, read = 0;
    for (; dumps && read < files; read++)
        if (file_read(paths[read], &dumps[read]) != TUTTI_OK) {
            fprintf(stderr, "tutti-dump: %s\n", tutti_last_error());
            status = EXIT_USAGE;
            break;
        }
    if (!dumps)
        return EXIT_USAGE;
    if (status == 0) {
        qsort(dumps, (size_t)files, sizeof *dumps, dump_order);
        const int wrong = show(dumps, (size_t)files, last, stdout);
        status = wrong < 0 ? EXIT_USAGE : wrong > 0 ? EXIT_WRONG : 0;
    }
    if (status != EXIT_USAGE && trace_path && trace(trace_path, dumps, (size_t)files) != 0)
        status = EXIT_USAGE;
    for (int i = 0; i < read; i++)
        free(dumps[i].book.ops);
    free(dumps);
    return status;
}

int main(int argc, char **argv)
{
    enum { FLAG_VERSION = 256 };
    static const struct option flags[] = {{"trace", required_argument, NULL, 't'},
                                          {"last", required_argument, NULL, 'l'},
                                          {"version", no_argument, NULL, FLAG_VERSION},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    const char *trace_path = NULL;
    int flag = 0;
    long last = SHOWN_OPERATIONS;
    while ((flag = getopt_long(argc, argv, "t:l:h", flags, NULL)) != -1) {
        if (flag == 't') {
            trace_path = optarg;
        } else if (flag == 'l') {
            if (tti_parse_int("--last", optarg, 0, INT_MAX, &last) != TUTTI_OK) {
                fprintf(stderr, "tutti-dump: %s; --help shows the flags\n", tutti_last_error());
                return EXIT_USAGE;
            }
        } else if (flag == FLAG_VERSION) {
            return printf("tutti-dump (Tutti) %d.%d.%d\n", TUTTI_VERSION_MAJOR, TUTTI_VERSION_MINOR,
                          TUTTI_VERSION_PATCH) < 0;
        } else if (flag == 'h') {
            fputs(usage, stdout);
            return 0;
        } else {
            fputs("tutti-dump: --help shows the flags\n", stderr);
            return EXIT_USAGE;
        }
    }
    if (optind == argc) {
        fputs("tutti-dump: give the dumps of the ranks; --help shows the flags\n", stderr);
        return EXIT_USAGE;
    }
    return run(argv + optind, argc - optind, (int)last, trace_path);
}
