/* Fuzzes tti_parse_list, which reads lists of processors from the environment (TUTTI_PROGRESS_CORE)
 * and from sysfs. Beside it stands what a list is, said once more and by other means; both must
 * take the same texts and give the same numbers in the same order. */
#include "base/config.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LIST_BYTES = 4096 };

/* The numbers seen: how many, and a hash that depends on their order. */
struct seen {
    uint64_t count, hash;
    int most;
};

static void require(int holds)
{
    if (!holds)
        abort();
}

static void see(void *context, int number)
{
    struct seen *seen = context;
    require(number >= 0 && number <= seen->most);
    seen->count++;
    seen->hash = seen->hash * UINT64_C(6364136223846793005) + (uint64_t)number + 1;
}

/* Some digits between two places; -1: there are none, or others, or the number is above `most`. */
static int number_of(const char *begin, const char *end, int most)
{
    int64_t number = begin < end ? 0 : -1;
    for (; begin < end && number >= 0 && number <= most; begin++)
        number = *begin >= '0' && *begin <= '9' ? 10 * number + (*begin - '0') : -1;
    return number <= most ? (int)number : -1;
}

static int list_of(const char *text, struct seen *seen)
{
    for (;;) {
        const char *end = text + strcspn(text, ","),
                   *dash = memchr(text, '-', (size_t)(end - text));
        const int first = number_of(text, dash ? dash : end, seen->most);
        const int last = dash ? number_of(dash + 1, end, seen->most) : first;
        if (first < 0 || last < first)
            return 0;
        for (int number = first; number <= last; number++)
            see(seen, number);
        if (!*end)
            return 1;
        text = end + 1;
    }
}

static void both(const char *text, int most)
{
    struct seen ours = {.most = most}, theirs = {.most = most};
    const int parsed = tti_parse_list(text, most, see, &ours);
    require(parsed == list_of(text, &theirs));
    require(ours.count == theirs.count && ours.hash == theirs.hash);
    require(!parsed || ours.count > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text || size > LIST_BYTES) {
        free(text);
        return -1;
    }
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    both(text, 0);
    both(text, 63);
    both(text, 1023);
    free(text);
    return 0;
}
