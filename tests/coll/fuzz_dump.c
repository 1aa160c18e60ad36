/* Fuzzes the reader of dumps. What is accepted can be shown, judged and drawn. */
#include "tools/dump_merge.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tti_dump dump;
    char *text = NULL;
    size_t text_bytes = 0;
    bool wrong = false;
    if (tti_dump_read((const char *)data, bytes, &dump) != TUTTI_OK) {
        require(*tutti_last_error() && !dump.book.ops);
        return 0;
    }
    for (size_t i = 0; i < dump.book.count; i++)
        require(tti_logged_sound(&dump.book.ops[i]));
    FILE *out = open_memstream(&text, &text_bytes);
    require(out != NULL);
    require(tti_merge_show(&dump, 1, 5, out, &wrong) == TUTTI_OK);
    require(tti_merge_trace(&dump, 1, out) == TUTTI_OK);
    require(fclose(out) == 0);
    free(text);
    free(dump.book.ops);
    return 0;
}
