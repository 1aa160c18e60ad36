/* Puts: each rank of a band writes into a part of each rank's window that is its own. */
#include "tests/random/player.h"

#include <stdint.h>
#include <string.h>

enum { REGION = 16 << 10, WINDOW_BYTES = REGION * PLAYERS_MOST, SIGNALS = 8 };

/* As all ranks know it: bytes[i][j] from i to j. */
struct puts {
    size_t bytes[PLAYERS_MOST][PLAYERS_MOST];
    int signal;
    uint64_t salt;
};

static unsigned char byte_of(const struct puts *puts, int from, int to, size_t at)
{
    return (unsigned char)draw_mix(puts->salt + 131 * (uint64_t)from + 1009 * (uint64_t)to +
                                   UINT64_C(0x9e3779b97f4a7c15) * at);
}

static void region_fill(const struct puts *puts, int from, int to, char *at)
{
    for (size_t k = 0; k < puts->bytes[from][to]; k++)
        at[k] = (char)byte_of(puts, from, to, k);
}

/* All that this rank puts, in an order of its own; then what is put here is waited for. */
static void puts_start(struct player *p, const struct band *b, const struct puts *puts,
                       const char *from, ncclWindow_t window, cudaStream_t stream)
{
    const int turned = draw_int(&p->own, b->size);
    ncclWaitSignalDesc_t told[PLAYERS_MOST];
    int many = 0;
    for (int i = 0; i < b->size; i++) {
        const int to = (i + turned) % b->size;
        if (puts->bytes[b->own][to] > 0)
            OK(ncclPutSignal(from + (size_t)to * REGION, puts->bytes[b->own][to], ncclUint8, to,
                             window, (size_t)b->own * REGION, puts->signal, 0, 0, b->comm, stream));
        band_settle(b);
        if (puts->bytes[i][b->own] > 0)
            told[many++] = (ncclWaitSignalDesc_t){.opCnt = 1, .peer = i, .sigIdx = puts->signal};
    }
    if (many > 0)
        OK(ncclWaitSignal(many, told, b->comm, stream));
    band_settle(b);
}

void step_puts(struct player *p)
{
    const struct band *b = &p->bands[band_draw(p)];
    struct puts puts = {.signal = draw_int(&p->all, SIGNALS), .salt = draw_next(&p->all)};
    for (int i = 0; i < b->size; i++)
        for (int j = 0; j < b->size; j++)
            puts.bytes[i][j] = draw_once_in(&p->all, 3) ? 0 : 1 + draw_below(&p->all, REGION);
    if (b->own < 0)
        return;
    call_finish_all(p, -1);
    player_tell("puts");
    const cudaStream_t stream = p->streams[draw_int(&p->own, STREAMS)];
    struct place *own = place_take(p, WINDOW_BYTES), *from = place_take(p, WINDOW_BYTES);
    ncclWindow_t window = NULL;
    place_copy(own->device, own->before, own->bytes, stream);
    CU(cu.finish(stream)); /* before others may put there */
    OK(ncclCommWindowRegister(b->comm, own->device + own->begin, WINDOW_BYTES, &window,
                              NCCL_WIN_DEFAULT));
    band_settle(b);
    for (int to = 0; to < b->size; to++)
        region_fill(&puts, b->own, to, from->before + from->begin + (size_t)to * REGION);
    place_copy(from->device, from->before, from->bytes, stream);
    puts_start(p, b, &puts, from->device + from->begin, window, stream);
    place_copy(own->after, own->device, own->bytes, stream);
    CU(cu.finish(stream));
    for (int k = 0; k < b->size; k++)
        region_fill(&puts, k, b->own, own->before + own->begin + (size_t)k * REGION);
    place_check(own, "puts");
    OK(ncclCommWindowDeregister(b->comm, window));
    band_settle(b);
    place_give(own);
    place_give(from);
}
