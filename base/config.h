/* Settings from the environment. Each reader gives a default when the variable is unset or empty,
 * and an error that names the variable, its value and what is allowed when it is wrong. */
#ifndef TTI_BASE_CONFIG_H
#define TTI_BASE_CONFIG_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* The value, of the environment or else as preset, or NULL when unset or empty. It stays. */
const char *tti_config_text(const char *name);
/* The value where the environment has none, from now on, in place of one that was preset before.
 * Not setenv, which other threads may read the environment beside, and children would inherit. */
enum tutti_result tti_config_preset(const char *name, const char *value);
/* An integer from least to most. */
enum tutti_result tti_config_int(const char *name, long least, long most, long fallback,
                                 long *value);
/* Seconds, more than 0. */
enum tutti_result tti_config_seconds(const char *name, double fallback, double *value);
/* "8", "64K", "4M", "1G": binary suffixes, as nccl-tests reads them. */
enum tutti_result tti_config_bytes(const char *name, size_t fallback, size_t *value);
/* The number of the value among `names`, `usual` if it is not set. */
enum tutti_result tti_config_name(const char *name, const char *const *names, int count, int usual,
                                  int *found);

/* Says for each variable of the environment that begins as ours do and is none of them, but looks
 * like one, that it is set, and which is probably meant. Others are left alone: programs and
 * plugins may have variables of their own. NULL, which clearenv() leaves, has none. */
void tti_config_misspelt(char *const *environment, void (*say)(const char *text));

/* The parsers behind them; `what` names the value in the error text ("TUTTI_LANES", "-b"). */
enum tutti_result tti_parse_int(const char *what, const char *text, long least, long most,
                                long *value);
enum tutti_result tti_parse_seconds(const char *what, const char *text, double *value);
enum tutti_result tti_parse_bytes(const char *what, const char *text, size_t *value);

/* Calls `visit` for each number of a list such as "0-3,8", in its order. False: it is no such list,
 * or has a number above `most`; what stands before that was visited. */
bool tti_parse_list(const char *text, int most, void (*visit)(void *context, int number),
                    void *context);

#endif
