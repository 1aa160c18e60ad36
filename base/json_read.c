/* A strict reader of our own JSON (base/json_read.h). */
#include "base/json_read.h"

#include "base/c_locale.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBER_NAME_BYTES = 48 };

struct tti_json tti_json_of(const char *text, size_t bytes, const char *what)
{
    return (struct tti_json){.start = text, .at = text, .end = text + bytes, .what = what};
}

static int json_line(const struct tti_json *json)
{
    int line = 1;
    for (const char *at = json->start; at < json->at; at++)
        line += *at == '\n';
    return line;
}

enum tutti_result tti_json_wrong(const struct tti_json *json, const char *problem)
{
    return TTI_FAIL(TUTTI_ERR_ARGUMENT, "line %d of %s: %s", json_line(json), json->what, problem);
}

enum tutti_result tti_json_where(const struct tti_json *json, enum tutti_result result)
{
    return result == TUTTI_OK ? result
                              : TTI_CONTEXT(result, "line %d of %s", json_line(json), json->what);
}

char tti_json_peek(struct tti_json *json)
{
    while (json->at < json->end && *json->at && strchr(" \t\r\n", *json->at))
        json->at++;
    return json->at < json->end ? *json->at : '\0';
}

bool tti_json_takes(struct tti_json *json, char wanted)
{
    if (tti_json_peek(json) != wanted)
        return false;
    json->at++;
    return true;
}

enum tutti_result tti_json_expect(struct tti_json *json, char wanted)
{
    char what[32];
    if (tti_json_takes(json, wanted))
        return TUTTI_OK;
    snprintf(what, sizeof what, "'%c' expected", wanted);
    return tti_json_wrong(json, what);
}

enum tutti_result tti_json_end(struct tti_json *json)
{
    (void)tti_json_peek(json);
    return json->at == json->end ? TUTTI_OK : tti_json_wrong(json, "text after the end");
}

enum tutti_result tti_json_text(struct tti_json *json, char *text, size_t bytes)
{
    size_t used = 0;
    TTI_TRY(tti_json_expect(json, '"'));
    while (json->at < json->end && *json->at != '"') {
        char c = *json->at++;
        if (c < ' ' || c > '~' || c == '\\')
            return tti_json_wrong(json, "a text with other than plain ASCII characters");
        if (used + 1 >= bytes)
            return tti_json_wrong(json, "a text is too long");
        text[used++] = c;
    }
    text[used] = '\0';
    return tti_json_expect(json, '"');
}

enum tutti_result tti_json_number(struct tti_json *json, double *value)
{
    char text[40];
    char *end = text;
    size_t length = 0;
    (void)tti_json_peek(json);
    while (json->at + length < json->end && json->at[length] &&
           strchr("+-.0123456789eE", json->at[length]) && length < sizeof text - 1) {
        text[length] = json->at[length];
        length++;
    }
    text[length] = '\0';
    double parsed = tti_c_strtod(text, &end);
    if (length == 0 || *end || !isfinite(parsed))
        return tti_json_wrong(json, "a number is expected");
    json->at += length;
    *value = parsed;
    return TUTTI_OK;
}

enum tutti_result tti_json_real(struct tti_json *json, double least, double most, double *value)
{
    double parsed = 0;
    TTI_TRY(tti_json_number(json, &parsed));
    if (parsed < least || parsed > most)
        return tti_json_wrong(json, "a number is out of range");
    *value = parsed;
    return TUTTI_OK;
}

enum tutti_result tti_json_integer(struct tti_json *json, double least, double most, double *value)
{
    double parsed = 0;
    TTI_TRY(tti_json_number(json, &parsed));
    if (parsed < least || parsed > most || parsed != floor(parsed))
        return tti_json_wrong(json, "a whole number is out of range");
    *value = parsed;
    return TUTTI_OK;
}

static enum tutti_result json_find(struct tti_json *json, const char *const *names, int *which,
                                   const char *problem)
{
    char name[MEMBER_NAME_BYTES];
    TTI_TRY(tti_json_text(json, name, sizeof name));
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0) {
            *which = i;
            return TUTTI_OK;
        }
    return TTI_FAIL(TUTTI_ERR_ARGUMENT, "line %d of %s: \"%s\" is %s", json_line(json), json->what,
                    name, problem);
}

enum tutti_result tti_json_one_of(struct tti_json *json, const char *const *names, int *which)
{
    return json_find(json, names, which, "none of the words known here");
}

enum tutti_result tti_json_member(struct tti_json *json, const char *const *names, unsigned *seen,
                                  int *member)
{
    int found = 0;
    TTI_TRY(json_find(json, names, &found, "no member known here"));
    TTI_TRY(tti_json_expect(json, ':'));
    if (*seen & 1U << found)
        return tti_json_wrong(json, "a member is there twice");
    *seen |= 1U << found;
    *member = found;
    return TUTTI_OK;
}

enum tutti_result tti_json_list(struct tti_json *json,
                                enum tutti_result (*element)(struct tti_json *json, void *context),
                                void *context)
{
    TTI_TRY(tti_json_expect(json, '['));
    if (tti_json_takes(json, ']'))
        return TUTTI_OK;
    do
        TTI_TRY(element(json, context));
    while (tti_json_takes(json, ','));
    return tti_json_expect(json, ']');
}

void tti_json_write_number(FILE *out, double value)
{
    char text[40];
    struct tti_c_locale locale = tti_c_locale_enter();
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    tti_c_locale_leave(locale);
    fputs(text, out);
}

void tti_json_write_text(FILE *out, const char *text)
{
    putc('"', out);
    for (; *text; text++)
        putc(*text < ' ' || *text > '~' || *text == '"' || *text == '\\' ? '_' : *text, out);
    putc('"', out);
}
