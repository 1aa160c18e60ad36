/* Log lines (base/log.h). One write(2) a line, so that lines of several ranks do not mix. */
#include "base/log.h"

#include "base/atomic.h"
#include "base/config.h"
#include "base/quiet.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const tti_log_level_name[TTI_LOG_LEVELS] = {"off",  "error", "warn",
                                                        "info", "debug", "trace"};
static _Atomic int log_level = -1; /* -1: environment not read yet */
static _Thread_local int log_rank = -1;
static void (*_Atomic log_sink)(enum tti_log_level, const char *);

static int log_read_level(void)
{
    const char *text = tti_config_text("TUTTI_LOG");
    int level = 0;
    if (text)
        for (int i = 0; i < TTI_LOG_LEVELS; i++)
            if (strcmp(text, tti_log_level_name[i]) == 0)
                level = i;
    atomic_store_explicit(&log_level, level, memory_order_relaxed);
    return level;
}

bool tti_log_enabled(enum tti_log_level level)
{
    int current = atomic_load_explicit(&log_level, memory_order_relaxed);
    if (current < 0)
        current = log_read_level();
    return (int)level <= current;
}

void tti_log_rank(int rank)
{
    log_rank = rank;
}

void tti_log_divert(enum tti_log_level level, void (*sink)(enum tti_log_level, const char *))
{
    atomic_store(&log_sink, sink);
    atomic_store(&log_level, sink ? (int)level : -1);
}

void tti_log_write(enum tti_log_level level, const char *format, ...)
{
    char host[64] = "?";
    char line[1400];
    gethostname(host, sizeof host - 1);
    int used = log_rank < 0 ? snprintf(line, sizeof line, "tutti[%s:%d] %s: ", host, (int)getpid(),
                                       tti_log_level_name[level])
                            : snprintf(line, sizeof line, "tutti[%s:%d rank %d] %s: ", host,
                                       (int)getpid(), log_rank, tti_log_level_name[level]);
    void (*sink)(enum tti_log_level, const char *) = atomic_load(&log_sink);
    if (sink)
        used = 0;
    va_list args;
    va_start(args, format);
    int more = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, args);
    va_end(args);
    size_t bytes = strnlen(line, sizeof line - 2);
    if (more < 0)
        return;
    if (sink) {
        sink(level, line);
        return;
    }
    line[bytes++] = '\n';
    ssize_t ignored = tti_quiet_write(STDERR_FILENO, line, bytes);
    (void)ignored;
}
