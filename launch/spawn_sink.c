/* Where lines go (launch/spawn_output.h): written whole, and never waited for. */
#include "base/clock.h"
#include "base/memory.h"
#include "launch/spawn_output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void tti_spawn_sink_open(struct tti_spawn_sink *sink, int fd)
{
    struct stat status;
    char path[40];
    *sink = (struct tti_spawn_sink){.fd = fd};
    if (fstat(fd, &status) != 0 || S_ISREG(status.st_mode))
        return;
    sink->waits = sink->cuts = true;
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
    return write(sink->fd, text, bytes);
}

/* How many bytes to write at once: up to the end of a line that a pipe takes in one piece; PIPE_BUF
 * of a line that is longer. */
static size_t sink_piece(const char *text, size_t bytes)
{
    if (bytes <= PIPE_BUF)
        return bytes;
    const char *end = memrchr(text, '\n', PIPE_BUF);
    if (!end)
        end = memrchr(text, '\r', PIPE_BUF);
    return end ? (size_t)(end - text) + 1 : PIPE_BUF;
}

/* How many of the bytes are done with: gone, or lost to an error. */
static size_t sink_some(struct tti_spawn_sink *sink, const char *text, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        const size_t left = bytes - done;
        ssize_t wrote =
            sink_write(sink, text + done, sink->cuts ? sink_piece(text + done, left) : left);
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
