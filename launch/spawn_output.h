/* What a spawned job prints: lines of its ranks and of the launcher. For spawn.c.
 *
 * Nothing here waits for who reads it. A stream (spawn_stream.c) cuts into lines what one rank
 * prints; a sink (spawn_sink.c) is where they go, and keeps what does not go at once; the output
 * (spawn_output.c) has the sinks of our stdout and stderr and lets the ranks have them in turn. */
#ifndef TTI_LAUNCH_SPAWN_OUTPUT_H
#define TTI_LAUNCH_SPAWN_OUTPUT_H

#include "base/error.h"

#include <poll.h>
#include <stddef.h>
#include <stdint.h>

enum { TTI_SPAWN_LAST_LINES = 20, TTI_SPAWN_LINE_BYTES = 8192 };

/* Our stdout or stderr, or a log file. What does not go at once is kept, and no more is to be read
 * from ranks for it until that is gone. Others may write to the same pipe: each write is of whole
 * lines that a pipe takes in one piece (PIPE_BUF). Only a line that is longer goes in several,
 * between which theirs may come. */
struct tti_spawn_sink {
    int fd;
    bool owned; /* to be closed */
    bool cuts;  /* whole lines, PIPE_BUF bytes at most: anything but a regular file */
    bool waits; /* a write might: only what poll promises */
    bool gone;  /* nobody reads it any more, and what comes is dropped */
    char *rest;
    size_t capacity;
    size_t begin; /* the bytes [begin, end) of rest are still to go */
    size_t end;
    uint64_t moved; /* when it last took some, or rest began */
    int turn;       /* the stream that may fill it next (spawn_output.c) */
};

/* A sink for a descriptor that stays the caller's. */
void tti_spawn_sink_open(struct tti_spawn_sink *sink, int fd);
void tti_spawn_sink_close(struct tti_spawn_sink *sink);
bool tti_spawn_sink_holds(const struct tti_spawn_sink *sink);
/* Whole lines. */
void tti_spawn_sink_put(struct tti_spawn_sink *sink, const char *text, size_t bytes);
/* What goes now of what is kept. */
void tti_spawn_sink_flush(struct tti_spawn_sink *sink);
/* Give up on who reads it. */
void tti_spawn_sink_drop(struct tti_spawn_sink *sink);

/* A pipe from the rank, cut into lines. */
struct tti_spawn_stream {
    int fd; /* -1: closed, or not captured */
    struct tti_spawn_sink *sink;
    struct tti_spawn_sink log; /* its own, where there are log files */
    char prefix[24];
    size_t used;
    char line[TTI_SPAWN_LINE_BYTES];
    char *last[TTI_SPAWN_LAST_LINES]; /* ring of the last lines, kept for stderr */
    size_t last_count;                /* lines seen */
    bool keep;
};

struct tti_spawn_setup;
struct tti_spawn_rank;

enum tutti_result tti_spawn_stream_open(struct tti_spawn_stream *stream,
                                        const struct tti_spawn_setup *setup, int rank, int standard,
                                        int *child_fd);
/* Read what is there and pass on the lines, unless the sink holds some. */
void tti_spawn_stream_read(struct tti_spawn_stream *stream);
/* Pass on a last line without an end, and close. */
void tti_spawn_stream_close(struct tti_spawn_stream *stream);
/* The last lines, indented, into a sink. */
void tti_spawn_stream_repeat(const struct tti_spawn_stream *stream, struct tti_spawn_sink *sink);

/* Our stdout and stderr: one sink where both go to one reader, so that no line comes into the midst
 * of another. */
struct tti_spawn_output {
    const char *program; /* before what the launcher says */
    struct tti_spawn_sink sinks[2];
    struct tti_spawn_sink *out, *err;
    uint64_t told; /* when the job was told to end; 0 */
};

void tti_spawn_output_open(struct tti_spawn_output *output, const char *program);
void tti_spawn_output_close(struct tti_spawn_output *output);
/* A line on stderr, after the program's name. */
void tti_spawn_output_say(struct tti_spawn_output *output, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Is something still to go? */
bool tti_spawn_output_holds(const struct tti_spawn_output *output);
/* Is who reads it gone, or given up? */
bool tti_spawn_output_gone(const struct tti_spawn_output *output);
/* When to flush at the latest: once the job was told to end, who reads its output and stands still
 * is given up after a while. */
uint64_t tti_spawn_output_patience(const struct tti_spawn_output *output);
/* Pass on what is kept, as far as it goes. */
void tti_spawn_output_flush(struct tti_spawn_output *output);
/* What to poll for: the ranks' streams and the sinks, 2 * nproc + 2 entries. */
void tti_spawn_output_poll(const struct tti_spawn_output *output,
                           const struct tti_spawn_rank *ranks, int nproc, struct pollfd *polls);
/* Read the streams that these entries name, those first that have waited longest for the sink. */
void tti_spawn_output_read(struct tti_spawn_output *output, struct tti_spawn_rank *ranks, int nproc,
                           const struct pollfd *polls);

#endif
