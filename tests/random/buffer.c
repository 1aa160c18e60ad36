/* Memory for random programs: of each kind, at any address, new or used before. */
#include "tests/integration/device_calls.h"
#include "tests/random/actor.h"
#include "tests/rank_check.h"

#include <stdlib.h>
#include <string.h>

enum { GUARD_BYTES = 128, PAGE = 4096 };

static int buffer_make(struct actor *a, size_t bytes, struct buffer *b)
{
    void *memory = NULL;
    b->kind = (enum buffer_kind)draw_int(&a->own, BUFFER_KINDS);
    b->bytes = bytes;
    if (b->kind == BUFFER_LIBRARY) {
        CHECK_OK(tutti_alloc(bytes, &memory));
    } else if (b->kind == BUFFER_REGISTERED) {
        memory = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);
        CHECK(memory);
        b->bytes = (bytes + PAGE - 1) / PAGE * PAGE;
        memset(memory, RANDOM_GUARD, b->bytes);
        CHECK_OK(tutti_register(memory, b->bytes));
    } else {
        memory = malloc(bytes);
        CHECK(memory);
    }
    b->base = memory;
    return 0;
}

static int buffer_free(struct buffer *b)
{
    if (b->kind == BUFFER_LIBRARY)
        tutti_free(b->base);
    if (b->kind == BUFFER_REGISTERED)
        CHECK_OK(tutti_deregister(b->base));
    if (b->kind != BUFFER_LIBRARY)
        free(b->base);
    b->base = NULL;
    return 0;
}

int buffer_take(struct actor *a, size_t bytes, bool device, struct buffer *b)
{
    /* Aligned as a type is, or a page, or not at all. */
    const size_t alignments[] = {1, 4, 16, 64, PAGE};
    const size_t shift = draw_once_in(&a->own, 3) ? draw_below(&a->own, 64) : 0;
    const size_t alignment = alignments[draw_below(&a->own, 5)];
    const size_t whole = bytes + 2 * GUARD_BYTES + PAGE + shift;
    memset(b, 0, sizeof *b);
    for (int k = 0; k < RANDOM_KEPT && !b->base; k++)
        if (a->kept[k].base && a->kept[k].bytes >= whole && draw_once_in(&a->own, 2)) {
            *b = a->kept[k];
            a->kept[k].base = NULL;
        }
    if (!b->base && buffer_make(a, whole, b) != 0)
        return 1;
    memset(b->base, RANDOM_GUARD, b->bytes);
    const uintptr_t least = (uintptr_t)b->base + GUARD_BYTES;
    b->data =
        b->base + ((least + alignment - 1) / alignment * alignment - (uintptr_t)b->base) + shift;
    CHECK(b->data + bytes + GUARD_BYTES <= b->base + b->bytes);
    b->device_base = device ? device_memory(b->bytes) : NULL;
    CHECK(!device || b->device_base);
    b->device = device ? b->device_base + (b->data - b->base) : NULL;
    return 0;
}

int buffer_release(struct actor *a, struct buffer *b)
{
    if (!b->base)
        return 0;
    if (b->device_base)
        device_free(b->device_base);
    b->device = b->device_base = NULL;
    for (int k = 0; k < RANDOM_KEPT; k++)
        if (!a->kept[k].base && draw_once_in(&a->own, 2)) {
            a->kept[k] = *b;
            b->base = NULL;
            return 0;
        }
    return buffer_free(b);
}

void buffer_end(struct actor *a)
{
    for (int k = 0; k < RANDOM_KEPT; k++)
        if (a->kept[k].base)
            (void)buffer_free(&a->kept[k]);
}
