/* The thread-local last error (base/error.h). */
#include "base/error.h"

#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char error_text[TTI_ERROR_TEXT_BYTES];

static void error_log(const char *file, int line)
{
    TTI_LOG(TTI_LOG_INFO, "error at %s:%d: %s", file, line, error_text);
}

enum tutti_result tti_error_set(enum tutti_result code, const char *file, int line,
                                const char *format, ...)
{
    char text[TTI_ERROR_TEXT_BYTES]; /* arguments may point into error_text */
    va_list args;
    va_start(args, format);
    int used = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (code == TUTTI_ERR_INTERNAL && used >= 0 && (size_t)used < sizeof text)
        snprintf(text + used, sizeof text - (size_t)used, " (%s:%d; this is a bug in Tutti)", file,
                 line);
    memcpy(error_text, text, sizeof text);
    error_log(file, line);
    return code;
}

enum tutti_result tti_error_set_errno(const char *file, int line, const char *format, ...)
{
    int saved = errno;
    char text[TTI_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    int used = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (used >= 0 && (size_t)used < sizeof text) {
        char reason[128];
        snprintf(text + used, sizeof text - (size_t)used, ": %s",
                 strerror_r(saved, reason, sizeof reason));
    }
    memcpy(error_text, text, sizeof text);
    error_log(file, line);
    return saved == ENOMEM ? TUTTI_ERR_MEMORY : TUTTI_ERR_SYSTEM;
}

enum tutti_result tti_error_context(enum tutti_result code, const char *format, ...)
{
    char text[2 * TTI_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    int used = vsnprintf(text, TTI_ERROR_TEXT_BYTES, format, args);
    va_end(args);
    if (used < 0)
        return code;
    if (used >= TTI_ERROR_TEXT_BYTES)
        used = TTI_ERROR_TEXT_BYTES - 1;
    snprintf(text + used, sizeof text - (size_t)used, ": %s", error_text);
    text[TTI_ERROR_TEXT_BYTES - 1] = '\0';
    memcpy(error_text, text, TTI_ERROR_TEXT_BYTES);
    return code;
}

const char *tti_error_text(void)
{
    return error_text;
}

void tti_error_save(struct tti_error *error, enum tutti_result code)
{
    error->code = code;
    memcpy(error->text, error_text, sizeof error->text);
}

enum tutti_result tti_error_restore(const struct tti_error *error)
{
    memcpy(error_text, error->text, sizeof error_text);
    return error->code;
}
