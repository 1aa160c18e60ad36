/* Reading our own JSON files: a strict reader that pulls values out in the order of the text.
 *
 * It knows what it wants and refuses everything else with the line: members that the caller did not
 * name, members twice, escapes in texts (no text of ours needs one), numbers that are not finite.
 * Nothing is allocated, and nothing nests by itself: depth and size are the caller's. */
#ifndef TTI_BASE_JSON_READ_H
#define TTI_BASE_JSON_READ_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct tti_json {
    const char *start, *at, *end;
    const char *what; /* of what: "the JSON of a machine", for messages */
};

struct tti_json tti_json_of(const char *text, size_t bytes, const char *what);

/* TUTTI_ERR_ARGUMENT, "line 7 of the JSON of a machine: `problem`". */
enum tutti_result tti_json_wrong(const struct tti_json *json, const char *problem);
/* The same place before an error that something else found. */
enum tutti_result tti_json_where(const struct tti_json *json, enum tutti_result result);

/* The next character that is no white space; '\0' at the end. */
char tti_json_peek(struct tti_json *json);
/* Skip `wanted` if it is next. */
bool tti_json_takes(struct tti_json *json, char wanted);
enum tutti_result tti_json_expect(struct tti_json *json, char wanted);
/* Nothing but white space is left. */
enum tutti_result tti_json_end(struct tti_json *json);

/* A text of printable ASCII without escapes, shorter than `bytes`. */
enum tutti_result tti_json_text(struct tti_json *json, char *text, size_t bytes);
enum tutti_result tti_json_number(struct tti_json *json, double *value);
enum tutti_result tti_json_real(struct tti_json *json, double least, double most, double *value);
enum tutti_result tti_json_integer(struct tti_json *json, double least, double most, double *value);
/* A text that is one of `names` (ends with NULL): its place there. */
enum tutti_result tti_json_one_of(struct tti_json *json, const char *const *names, int *which);
/* A member's name and colon: its place among the at most 32 `names` (ends with NULL), noted in the
 * bits of *seen. */
enum tutti_result tti_json_member(struct tti_json *json, const char *const *names, unsigned *seen,
                                  int *member);
/* [element, ...]: `element` reads each. */
enum tutti_result tti_json_list(struct tti_json *json,
                                enum tutti_result (*element)(struct tti_json *json, void *context),
                                void *context);

/* Out: the shortest text that reads back as the same number, in any locale. */
void tti_json_write_number(FILE *out, double value);
/* A text in quotes, characters that the reader would refuse replaced by '_'. */
void tti_json_write_text(FILE *out, const char *text);

#endif
