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
        if (!p->crowded)
            band_settle(b);
        if (puts->bytes[i][b->own] > 0)
            told[many++] = (ncclWaitSignalDesc_t){.opCnt = 1, .peer = i, .sigIdx = puts->signal};
    }
    if (many > 0)
        OK(ncclWaitSignal(many, told, b->comm, stream));
}

/* What this rank has for it: memory that others put into, and what it puts there. */
struct putting {
    struct place *own, *from;
    cudaStream_t stream;
    ncclWindow_t window;
};

static void putting_begin(struct player *p, const struct band *b, const struct puts *puts,
                          struct putting *x)
{
    call_finish_all(p, -1);
    x->stream = p->streams[draw_int(&p->own, STREAMS)];
    x->own = place_take(p, WINDOW_BYTES);
    x->from = place_take(p, WINDOW_BYTES);
    for (int to = 0; to < b->size; to++)
        region_fill(puts, b->own, to, x->from->before + x->from->begin + (size_t)to * REGION);
    place_copy(x->from->device, x->from->before, x->from->bytes, x->stream);
    place_copy(x->own->device, x->own->before, x->own->bytes, x->stream);
    CU(cu.finish(x->stream)); /* before others may put there */
}

static void putting_end(const struct band *b, const struct puts *puts, const struct putting *x)
{
    place_copy(x->own->after, x->own->device, x->own->bytes, x->stream);
    CU(cu.finish(x->stream));
    band_settle(b);
    for (int k = 0; k < b->size; k++)
        region_fill(puts, k, b->own, x->own->before + x->own->begin + (size_t)k * REGION);
    place_check(x->own, "puts");
}

void step_puts(struct player *p)
{
    const struct band *b = &p->bands[band_draw(p)];
    struct puts puts = {.signal = draw_int(&p->all, SIGNALS), .salt = draw_next(&p->all)};
    struct putting x = {.window = NULL};
    const bool in = b->own >= 0;
    for (int i = 0; i < b->size; i++)
        for (int j = 0; j < b->size; j++)
            puts.bytes[i][j] = draw_once_in(&p->all, 3) ? 0 : 1 + draw_below(&p->all, REGION);
    if (in)
        putting_begin(p, b, &puts, &x);
    together_begin(p);
    if (in)
        OK(ncclCommWindowRegister(b->comm, x.own->device + x.own->begin, WINDOW_BYTES, &x.window,
                                  NCCL_WIN_DEFAULT));
    together_end(p);
    together_begin(p);
    if (in)
        puts_start(p, b, &puts, x.from->device + x.from->begin, x.window, x.stream);
    together_end(p);
    if (in)
        putting_end(b, &puts, &x);
    together_begin(p);
    if (in)
        OK(ncclCommWindowDeregister(b->comm, x.window));
    together_end(p);
    if (in) {
        place_give(x.own);
        place_give(x.from);
    }
}
