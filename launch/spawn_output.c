/* What ranks print (launch/spawn_rank.h): whole lines, each with its rank's prefix in one write, so
 * that lines of several ranks never mix. A carriage return ends a line too, for progress displays.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "launch/spawn_rank.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Sinks ---------------------------------------------------------------------------------- */

void tti_spawn_sink_open(struct tti_spawn_sink *sink, int fd)
{
    struct stat status;
    char path[40];
    *sink = (struct tti_spawn_sink){.fd = fd};
    if (fstat(fd, &status) != 0 || S_ISREG(status.st_mode))
        return;
    sink->waits = true;
    if (!S_ISFIFO(status.st_mode) && !isatty(fd))
        return;
    /* Ours alone, so that it may be told not to block; fd's flags are of all who share it. */
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (own < 0)
        return;
    sink->fd = own;
    sink->owned = true;
    sink->waits = false;
}

void tti_spawn_sink_close(struct tti_spawn_sink *sink)
{
    if (sink->owned)
        close(sink->fd);
    free(sink->rest);
    *sink = (struct tti_spawn_sink){.fd = -1, .gone = true};
}

bool tti_spawn_sink_holds(const struct tti_spawn_sink *sink)
{
    return sink->end > sink->begin;
}

void tti_spawn_sink_drop(struct tti_spawn_sink *sink)
{
    sink->gone = true;
    sink->begin = sink->end = 0;
}

static ssize_t sink_write(const struct tti_spawn_sink *sink, const char *text, size_t bytes)
{
    struct pollfd ready = {.fd = sink->fd, .events = POLLOUT};
    if (!sink->waits)
        return write(sink->fd, text, bytes);
    if (poll(&ready, 1, 0) <= 0) {
        errno = EAGAIN;
        return -1;
    }
    return write(sink->fd, text, bytes < PIPE_BUF ? bytes : PIPE_BUF);
}

/* How many of the bytes are done with: gone, or lost to an error. */
static size_t sink_some(struct tti_spawn_sink *sink, const char *text, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t wrote = sink_write(sink, text + done, bytes - done);
        if (wrote >= 0) {
            done += (size_t)wrote;
            sink->moved = tti_now_ns();
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR) {
            sink->gone = errno == EPIPE;
            done = bytes;
        }
    }
    return done;
}

void tti_spawn_sink_put(struct tti_spawn_sink *sink, const char *text, size_t bytes)
{
    void *rest = sink->rest;
    if (sink->gone)
        return;
    if (!tti_spawn_sink_holds(sink)) {
        const size_t done = sink_some(sink, text, bytes);
        text += done;
        bytes -= done;
        sink->begin = sink->end = 0;
        sink->moved = tti_now_ns();
    }
    if (bytes == 0 || tti_grow(&rest, &sink->capacity, sink->end + bytes, 1) != TUTTI_OK)
        return;
    sink->rest = rest;
    memcpy(sink->rest + sink->end, text, bytes);
    sink->end += bytes;
}

void tti_spawn_sink_flush(struct tti_spawn_sink *sink)
{
    if (tti_spawn_sink_holds(sink))
        sink->begin += sink_some(sink, sink->rest + sink->begin, sink->end - sink->begin);
    if (sink->gone)
        tti_spawn_sink_drop(sink);
}

/* ---- Streams -------------------------------------------------------------------------------- */

/* Every folder of the path that is not there yet. */
static enum tutti_result output_make_folder(const char *path)
{
    char part[1024];
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "the log folder's path is too long");
    for (char *at = part + 1;; at++) {
        char end = *at;
        if (end != '/' && end != '\0')
            continue;
        *at = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return TTI_FAIL_ERRNO("cannot make the log folder %s", part);
        if (end == '\0')
            return TUTTI_OK;
        *at = end;
    }
}

/* <log_dir>/rank_3.out, and rank_3.restart_1.out after a restart. */
static enum tutti_result output_log(const struct tti_spawn_setup *setup, int rank, int standard,
                                    int *fd)
{
    char path[1200];
    char again[32] = "";
    TTI_TRY(output_make_folder(setup->spawn->log_dir));
    if (setup->restarts)
        snprintf(again, sizeof again, ".restart_%d", setup->restarts);
    snprintf(path, sizeof path, "%s/rank_%d%s.%s", setup->spawn->log_dir, rank, again,
             standard == STDOUT_FILENO ? "out" : "err");
    int made = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (made < 0)
        return TTI_FAIL_ERRNO("cannot write the log file %s", path);
    *fd = made;
    return TUTTI_OK;
}

enum tutti_result tti_spawn_stream_open(struct tti_spawn_stream *stream,
                                        const struct tti_spawn_setup *setup, int rank, int standard,
                                        int *child_fd)
{
    const struct tti_spawn *spawn = setup->spawn;
    int ends[2];
    memset(stream, 0, sizeof *stream);
    stream->fd = -1;
    stream->sink = standard == STDOUT_FILENO ? setup->out : setup->err;
    stream->keep = standard == STDERR_FILENO;
    *child_fd = -1;
    /* Bare standard output goes past us: it stays a terminal where it is one. */
    if (standard == STDOUT_FILENO && !spawn->prefix && !spawn->log_dir)
        return TUTTI_OK;
    if (spawn->log_dir) {
        TTI_TRY(output_log(setup, rank, standard, &stream->log.fd));
        stream->log.owned = true;
        stream->sink = &stream->log;
    } else if (spawn->prefix) {
        snprintf(stream->prefix, sizeof stream->prefix, "[%d] ", rank);
    }
    if (pipe2(ends, O_CLOEXEC) != 0)
        return TTI_FAIL_ERRNO("pipe for the output of rank %d", rank);
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    stream->fd = ends[0];
    *child_fd = ends[1];
    return TUTTI_OK;
}

static void output_keep(struct tti_spawn_stream *stream, const char *line, size_t bytes)
{
    while (bytes > 0 && (line[bytes - 1] == '\n' || line[bytes - 1] == '\r'))
        bytes--;
    if (!stream->keep || bytes == 0)
        return;
    char **slot = &stream->last[stream->last_count % TTI_SPAWN_LAST_LINES];
    char *copy = strndup(line, bytes);
    if (!copy)
        return;
    free(*slot);
    *slot = copy;
    stream->last_count++;
}

static void output_line(struct tti_spawn_stream *stream, const char *line, size_t bytes)
{
    char whole[sizeof stream->prefix + TTI_SPAWN_LINE_BYTES + 1];
    size_t prefix = strlen(stream->prefix);
    output_keep(stream, line, bytes);
    memcpy(whole, stream->prefix, prefix);
    memcpy(whole + prefix, line, bytes);
    size_t total = prefix + bytes;
    if (line[bytes - 1] != '\n' && line[bytes - 1] != '\r')
        whole[total++] = '\n'; /* too long for us, or the last one */
    tti_spawn_sink_put(stream->sink, whole, total);
}

/* Bytes up to and with the end of the first line; 0 when there is no end yet. */
static size_t output_line_end(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\n')
            return i + 1;
        if (text[i] == '\r' && i + 1 < bytes)
            return i + 1 + (text[i + 1] == '\n');
    }
    return bytes == TTI_SPAWN_LINE_BYTES ? bytes : 0;
}

static void output_lines(struct tti_spawn_stream *stream)
{
    size_t begin = 0;
    for (;;) {
        size_t bytes = output_line_end(stream->line + begin, stream->used - begin);
        if (bytes == 0)
            break;
        output_line(stream, stream->line + begin, bytes);
        begin += bytes;
    }
    stream->used -= begin;
    memmove(stream->line, stream->line + begin, stream->used);
}

void tti_spawn_stream_read(struct tti_spawn_stream *stream)
{
    /* Bounded, so that a rank that prints without end does not starve the others. */
    for (int turns = 0; stream->fd >= 0 && turns < 16 && !tti_spawn_sink_holds(stream->sink);
         turns++) {
        ssize_t got =
            read(stream->fd, stream->line + stream->used, TTI_SPAWN_LINE_BYTES - stream->used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            break;
        if (got <= 0) {
            tti_spawn_stream_close(stream);
            break;
        }
        stream->used += (size_t)got;
        output_lines(stream);
    }
}

void tti_spawn_stream_close(struct tti_spawn_stream *stream)
{
    if (stream->used)
        output_line(stream, stream->line, stream->used);
    stream->used = 0;
    if (stream->fd >= 0)
        close(stream->fd);
    stream->fd = -1;
}
