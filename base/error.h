/* The last error: one thread-local text and the macros that write it.
 *
 * Where a failure is first seen, `return TTI_FAIL(code, "what was tried, on what: why; what to
 * do")`. Forwarders add context with TTI_CONTEXT and return the same code. The text crosses threads
 * in a struct tti_error (from a progress thread into the thread that waits). */
#ifndef TTI_BASE_ERROR_H
#define TTI_BASE_ERROR_H

#include "tutti/tutti.h"

enum { TTI_ERROR_TEXT_BYTES = 1024 };

struct tti_error {
    enum tutti_result code;
    char text[TTI_ERROR_TEXT_BYTES];
};

/* Records the text (and, for TUTTI_ERR_INTERNAL, file and line) and evaluates to `code`. */
#define TTI_FAIL(code, ...) tti_error_set((code), __FILE__, __LINE__, __VA_ARGS__)
/* The same for a failed system call: appends strerror(errno). */
#define TTI_FAIL_ERRNO(...) tti_error_set_errno(__FILE__, __LINE__, __VA_ARGS__)
/* Puts "context: " before the recorded text and evaluates to `code` unchanged. */
#define TTI_CONTEXT(code, ...) tti_error_context((code), __VA_ARGS__)
/* Return early on anything but TUTTI_OK. */
#define TTI_TRY(expression)                               \
    do {                                                  \
        enum tutti_result tti_try_result_ = (expression); \
        if (tti_try_result_ != TUTTI_OK)                  \
            return tti_try_result_;                       \
    } while (0)

enum tutti_result tti_error_set(enum tutti_result code, const char *file, int line,
                                const char *format, ...) __attribute__((format(printf, 4, 5)));
enum tutti_result tti_error_set_errno(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
enum tutti_result tti_error_context(enum tutti_result code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The calling thread's text; "" if none. */
const char *tti_error_text(void);
/* Copy the calling thread's error out, and make one the calling thread's (returns its code). */
void tti_error_save(struct tti_error *error, enum tutti_result code);
enum tutti_result tti_error_restore(const struct tti_error *error);

#endif
