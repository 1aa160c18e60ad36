/* See player.h. */
#include "tests/random/player.h"

#include <stdint.h>
#include <string.h>

struct nccl_driver cu;

void driver_load(void)
{
    nccl_driver_load(&cu);
    CU(cu.init(0));
}

static char *pinned(size_t bytes)
{
    void *memory = NULL;
    CU(cu.alloc_host(&memory, bytes, 0));
    return memory;
}

static void place_make(struct place *place, enum memory memory)
{
    enum { ATTACH_GLOBAL = 1 };
    device_pointer device = 0;
    void *given = NULL;
    *place = (struct place){.memory = memory};
    place->before = pinned(PLACE_BYTES);
    place->after = pinned(PLACE_BYTES);
    if (memory == MEMORY_CUDA)
        CU(cu.alloc(&device, PLACE_BYTES));
    else if (memory == MEMORY_MANAGED)
        CU(cu.alloc_managed(&device, PLACE_BYTES, ATTACH_GLOBAL));
    else if (memory == MEMORY_NCCL)
        OK(ncclMemAlloc(&given, PLACE_BYTES));
    else
        given = pinned(PLACE_BYTES);
    place->device = given ? given : (char *)(uintptr_t)device;
}

static void place_end(struct place *place)
{
    CU(cu.free_host(place->before));
    CU(cu.free_host(place->after));
    if (place->memory == MEMORY_NCCL)
        OK(ncclMemFree(place->device));
    else if (place->memory == MEMORY_PINNED)
        CU(cu.free_host(place->device));
    else
        CU(cu.free((device_pointer)(uintptr_t)place->device));
}

void player_begin(struct player *p)
{
    enum { NON_BLOCKING = 1 };
    int devices = 0;
    CU(cu.devices(&devices));
    p->device = p->rank % devices;
    CU(cu.retain(&p->context, p->device));
    CU(cu.current(p->context));
    for (int k = 0; k < STREAMS; k++)
        CU(cu.stream_create(&p->streams[k], NON_BLOCKING));
    for (int k = 0; k < PLACES; k++)
        place_make(&p->places[k], (enum memory)draw_int(&p->own, MEMORIES));
    CU(cu.alloc(&p->factors, (size_t)BANDS_MOST * FACTOR_BYTES));
}

void player_end(struct player *p)
{
    for (int k = 0; k < PLACES; k++)
        place_end(&p->places[k]);
    CU(cu.free(p->factors));
    for (int k = 0; k < STREAMS; k++)
        CU(cu.stream_destroy(p->streams[k]));
    CU(cu.current(NULL));
    CU(cu.release(p->device));
}

struct place *place_take(struct player *p, size_t bytes)
{
    /* Aligned as a type is, or more, or not at all. */
    static const size_t alignments[] = {1, 4, 16, 64, 4096};
    const size_t alignment = alignments[draw_below(&p->own, 5)];
    const size_t shift = draw_once_in(&p->own, 3) ? draw_below(&p->own, 64) : 0;
    const int first = draw_int(&p->own, PLACES);
    struct place *place = NULL;
    for (int k = 0; k < PLACES && !place; k++)
        if (!p->places[(first + k) % PLACES].taken)
            place = &p->places[(first + k) % PLACES];
    CHECK(place);
    place->taken = true;
    place->begin = (GUARD_BYTES + alignment - 1) / alignment * alignment + shift;
    place->bytes = place->begin + bytes + GUARD_BYTES;
    CHECK(place->bytes <= PLACE_BYTES);
    memset(place->before, GUARD, place->bytes);
    return place;
}

void place_give(struct place *place)
{
    place->taken = false;
}

void place_copy(const char *to, const char *from, size_t bytes, cudaStream_t stream)
{
    CU(cu.copy((device_pointer)(uintptr_t)to, (device_pointer)(uintptr_t)from, bytes, stream));
}

void place_check(const struct place *place, const char *what)
{
    char why[200];
    if (memcmp(place->after, place->before, place->bytes) == 0)
        return;
    size_t i = 0;
    while (place->after[i] == place->before[i])
        i++;
    snprintf(why, sizeof why, "byte %td (%zu of %zu, memory %d) is %#x, not %#x",
             (ptrdiff_t)i - (ptrdiff_t)place->begin, i, place->bytes, (int)place->memory,
             (unsigned char)place->after[i], (unsigned char)place->before[i]);
    player_fail(__FILE__, __LINE__, what, why);
}
