/* Any text as TUTTI_FAULT: read or refused, and what is read is within its bounds. */
#include "transport/fault/fault_settings.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int chance(double value)
{
    return value >= 0 && value <= 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct fault_settings s;
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (tti_fault_settings_parse(text, &s) == TUTTI_OK) {
        int good = chance(s.delay) && chance(s.reorder) && chance(s.drop) && chance(s.truncate) &&
                   chance(s.corrupt) && chance(s.forge) && chance(s.lose);
        if (!good || !(s.delay_ms >= 0 && s.delay_ms <= FAULT_MOST_MS) ||
            !(s.reorder_ms >= 0 && s.reorder_ms <= FAULT_MOST_MS) || s.rank < -1 || s.peer < -1 ||
            !s.over[0] || strlen(s.over) >= FAULT_OVER_BYTES)
            abort();
    }
    free(text);
    return 0;
}
