/* Log lines on stderr, only when TUTTI_LOG asks for them (error, warn, info, debug, trace).
 * A line reads "tutti[host:pid rank 3] info: ...". */
#ifndef TTI_BASE_LOG_H
#define TTI_BASE_LOG_H

#include <stdbool.h>

enum tti_log_level {
    TTI_LOG_ERROR = 1,
    TTI_LOG_WARN = 2,
    TTI_LOG_INFO = 3,
    TTI_LOG_DEBUG = 4,
    TTI_LOG_TRACE = 5,
    TTI_LOG_LEVELS
};

/* By level, as TUTTI_LOG has them; 0 is "off". */
extern const char *const tti_log_level_name[TTI_LOG_LEVELS];

#define TTI_LOG(level, ...)                      \
    do {                                         \
        if (tti_log_enabled(level))              \
            tti_log_write((level), __VA_ARGS__); \
    } while (0)

bool tti_log_enabled(enum tti_log_level level);
void tti_log_write(enum tti_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Give the lines, without the beginning that names the process, to `sink` from here on instead of
 * stderr, up to `level`. Any thread may call `sink`; NULL: as TUTTI_LOG says again. */
void tti_log_divert(enum tti_log_level level, void (*sink)(enum tti_log_level, const char *text));
/* The rank that the calling thread works for, shown in its lines; -1 for none. */
void tti_log_rank(int rank);

#endif
