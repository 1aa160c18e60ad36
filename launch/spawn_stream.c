/* What a rank prints (launch/spawn_output.h): whole lines, each with its rank's prefix in one
 * piece, so that lines of several ranks never mix. A carriage return ends a line too, for progress
 * displays. */
#include "base/memory.h"
#include "launch/spawn_rank.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    stream->sink = standard == STDOUT_FILENO ? setup->output->out : setup->output->err;
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

void tti_spawn_stream_repeat(const struct tti_spawn_stream *stream, struct tti_spawn_sink *sink)
{
    size_t first = 0;
    if (stream->last_count > TTI_SPAWN_LAST_LINES)
        first = stream->last_count - TTI_SPAWN_LAST_LINES;
    for (size_t i = first; i < stream->last_count; i++) {
        char line[1024];
        int bytes =
            snprintf(line, sizeof line, "    %.1000s\n", stream->last[i % TTI_SPAWN_LAST_LINES]);
        tti_spawn_sink_put(sink, line, (size_t)bytes);
    }
}
