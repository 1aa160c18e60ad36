/* Our stdout and stderr, and the ranks' turns at them (launch/spawn_output.h). */
#include "launch/spawn_output.h"

#include "base/clock.h"
#include "launch/spawn_rank.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const double READER_S = 2; /* for who reads our output, when the job is told to end */

void tti_spawn_output_open(struct tti_spawn_output *output, const char *program)
{
    struct stat out, err;
    const bool both = fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
                      out.st_dev == err.st_dev && out.st_ino == err.st_ino && !S_ISREG(out.st_mode);
    *output = (struct tti_spawn_output){.program = program, .sinks = {{.fd = -1}, {.fd = -1}}};
    output->out = output->err = &output->sinks[0];
    tti_spawn_sink_open(output->out, STDOUT_FILENO);
    if (both)
        return;
    output->err = &output->sinks[1];
    tti_spawn_sink_open(output->err, STDERR_FILENO);
}

void tti_spawn_output_close(struct tti_spawn_output *output)
{
    tti_spawn_sink_close(&output->sinks[0]);
    tti_spawn_sink_close(&output->sinks[1]);
}

void tti_spawn_output_say(struct tti_spawn_output *output, const char *format, ...)
{
    char text[1400];
    int used = snprintf(text, sizeof text, "%s: ", output->program);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, sizeof text - (size_t)used - 1, format, args);
    va_end(args);
    size_t bytes = strlen(text);
    text[bytes++] = '\n';
    tti_spawn_sink_put(output->err, text, bytes);
}

bool tti_spawn_output_holds(const struct tti_spawn_output *output)
{
    return tti_spawn_sink_holds(&output->sinks[0]) || tti_spawn_sink_holds(&output->sinks[1]);
}

bool tti_spawn_output_gone(const struct tti_spawn_output *output)
{
    return output->sinks[0].gone || output->sinks[1].gone;
}

/* When it has stood still for a while. A second signal changes nothing: it is for the ranks, and
 * their end is still to be reported. */
static uint64_t output_patience(const struct tti_spawn_output *output,
                                const struct tti_spawn_sink *sink)
{
    if (!output->told || !tti_spawn_sink_holds(sink))
        return UINT64_MAX;
    return (sink->moved > output->told ? sink->moved : output->told) + (uint64_t)(READER_S * 1e9);
}

uint64_t tti_spawn_output_patience(const struct tti_spawn_output *output)
{
    const uint64_t a = output_patience(output, &output->sinks[0]);
    const uint64_t b = output_patience(output, &output->sinks[1]);
    return a < b ? a : b;
}

void tti_spawn_output_flush(struct tti_spawn_output *output)
{
    for (int i = 0; i < 2; i++) {
        tti_spawn_sink_flush(&output->sinks[i]);
        if (tti_deadline_passed(output_patience(output, &output->sinks[i])))
            tti_spawn_sink_drop(&output->sinks[i]);
    }
}

/* ---- The ranks' turns: stream 2r is rank r's stdout, 2r+1 its stderr ----------------------------
 */

static struct pollfd output_poll_stream(const struct tti_spawn_stream *stream)
{
    const bool full = stream->fd >= 0 && tti_spawn_sink_holds(stream->sink);
    return (struct pollfd){.fd = full ? -1 : stream->fd, .events = POLLIN};
}

static struct pollfd output_poll_sink(const struct tti_spawn_sink *sink)
{
    return (struct pollfd){.fd = tti_spawn_sink_holds(sink) ? sink->fd : -1, .events = POLLOUT};
}

void tti_spawn_output_poll(const struct tti_spawn_output *output,
                           const struct tti_spawn_rank *ranks, int nproc, struct pollfd *polls)
{
    for (int i = 0; i < nproc; i++) {
        polls[2 * i] = output_poll_stream(&ranks[i].out);
        polls[2 * i + 1] = output_poll_stream(&ranks[i].err);
    }
    polls[2 * nproc] = output_poll_sink(&output->sinks[0]);
    polls[2 * nproc + 1] = output_poll_sink(&output->sinks[1]);
}

static struct tti_spawn_stream *output_stream(struct tti_spawn_rank *ranks, int index)
{
    return index % 2 ? &ranks[index / 2].err : &ranks[index / 2].out;
}

/* Until the sink is full, from the one that is next: who fills it is last the next time, so that
 * one that prints without end, before a reader that is slower, leaves the others their turns. */
static void output_fill(struct tti_spawn_sink *sink, struct tti_spawn_rank *ranks, int nproc,
                        const struct pollfd *polls)
{
    const int streams = 2 * nproc, first = sink->turn;
    for (int i = 0; i < streams && !tti_spawn_sink_holds(sink); i++) {
        const int index = (first + i) % streams;
        struct tti_spawn_stream *stream = output_stream(ranks, index);
        if (stream->sink != sink || !polls[index].revents)
            continue;
        tti_spawn_stream_read(stream);
        sink->turn = (index + 1) % streams;
    }
}

void tti_spawn_output_read(struct tti_spawn_output *output, struct tti_spawn_rank *ranks, int nproc,
                           const struct pollfd *polls)
{
    output_fill(&output->sinks[0], ranks, nproc, polls);
    output_fill(&output->sinks[1], ranks, nproc, polls);
    for (int i = 0; i < 2 * nproc; i++) {
        struct tti_spawn_stream *stream = output_stream(ranks, i);
        if (stream->sink == &stream->log && polls[i].revents)
            tti_spawn_stream_read(stream);
    }
}
