/* Fuzzes the parsers of base/config.h: text from the environment and from command lines. Whatever
 * the text, a parser either fails and leaves its output alone, or gives a value within its range.
 */
#include "base/config.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds)
        abort();
}

static void parse(const char *text)
{
    enum { LEAST = -7, MOST = 4096, UNTOUCHED = 9999 };
    long number = UNTOUCHED;
    if (tti_parse_int("N", text, LEAST, MOST, &number) == TUTTI_OK)
        require(number >= LEAST && number <= MOST);
    else
        require(number == UNTOUCHED && *tutti_last_error());

    double seconds = -1;
    if (tti_parse_seconds("S", text, &seconds) == TUTTI_OK)
        require(isfinite(seconds) && seconds > 0);
    else
        require(seconds < 0 && *tutti_last_error());

    size_t bytes = SIZE_MAX;
    if (tti_parse_bytes("B", text, &bytes) == TUTTI_OK)
        require(bytes < SIZE_MAX / 2);
    else
        require(bytes == SIZE_MAX && *tutti_last_error());
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    require(text != NULL);
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    parse(text);
    free(text);
    return 0;
}
