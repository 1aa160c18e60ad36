/* A rank's recorder as JSON: what tutti_comm_dump, TUTTI_DUMP and tutti-status write and tutti-dump
 * reads. docs/debugging.md has the format. */
#ifndef TTI_COLL_DUMP_H
#define TTI_COLL_DUMP_H

#include "coll/logbook.h"

#include <stdio.h>

struct tutti_comm;

enum { TTI_DUMP_PATH = 1024 }; /* room for the name of a file */

/* One dump, read back. */
struct tti_dump {
    uint64_t job, family;
    int rank, size, host, hosts;
    int64_t pid;
    double timeout_s;
    uint64_t made_ns, made_wall_us; /* the same moment on two clocks */
    uint32_t queued;
    int failed; /* enum tutti_result */
    char name[TTI_RECORD_NAME], program[TTI_RECORD_NAME];
    char error[TTI_RECORD_ERROR];
    struct tti_logbook book;
};

/* Of a page that may be written meanwhile; at most `most` operations a ring. */
enum tutti_result tti_dump_write(const struct tti_record_page *page, size_t most, FILE *out);
/* The file that `pattern` names for a page: %r is the rank, %p the pid, %c the communicator;
 * without %r, ".rank" is appended. False: it does not fit. */
bool tti_dump_path(const struct tti_record_page *page, const char *pattern, char *path,
                   size_t room);
/* To that file. */
enum tutti_result tti_dump_file(const struct tti_record_page *page, const char *pattern);
/* Where TUTTI_DUMP says; nothing without it. */
void tti_dump_failure(const struct tti_recorder *recorder);

/* dump->book.ops is the caller's to free. ARGUMENT: not a dump, with the line. */
enum tutti_result tti_dump_read(const char *text, size_t bytes, struct tti_dump *dump);

#endif
