/* shm: how what is copied into the ring of pieces goes.
 *
 * Which way is quickest is a matter of the processor, and of where the host has put its cores. The
 * sender writes lines that the peer has read before. Some processors take those back from the
 * peer's caches quickly, and then a ring that the caches hold is best. On others (Zen 4: 7 ns a
 * line from a core that shares the L3, 27 from one that does not, where reading takes 2 and 4) it
 * is best to write them when both second-level caches have let go of them, which takes a ring of
 * several times their size; or, from afar, around the caches.
 *
 * So the sender times its copies now and then, the receiver, asked to by the line, its reading
 * (median of the last eight, struct shm_ack), and what both take together decides
 * (device/copy_trial.h), 64 KiB at a time, apart for small pieces and large ones. Where
 * cores share a mesh nobody has measured it, and ranks that share cores would measure each other's
 * turns: there pieces go the narrow way. */
#include "transport/shm/shm.h"

#include "base/clock.h"
#include "base/memory.h"
#include "device/reduce.h"

#include <sys/mman.h>

/* Fast short strings: copies from here to there by a string of bytes (tti_shm_copy_piece). */
enum { WAYS_STRING_FROM = 1024, WAYS_STRING_TO = 8192 };

/* Into the caches, whatever the size: the peer reads it there at once. It has read what was here
 * before, so that vector stores would fetch each line from it only to overwrite it; a string of
 * bytes need not. */
static inline void ways_copy(const struct shm_settings *settings, void *to, const void *from,
                             size_t bytes)
{
#if defined(__x86_64__)
    /* where the C library's memcpy does not do it already */
    if (settings->strings && bytes >= WAYS_STRING_FROM && bytes <= WAYS_STRING_TO) {
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
        return;
    }
#endif
    (void)settings;
    memcpy(to, from, bytes);
}

/* Have the pages of all of the ring there, once: coming one by one they would make its first lap
 * slow, and its trial. */
static void ways_populate(struct shm_endpoint *self, const unsigned char *pieces, bool *there)
{
#ifdef MADV_POPULATE_WRITE
    if (!*there)
        (void)madvise((void *)(uintptr_t)(pieces - self->pieces_shift), self->piece_ring,
                      MADV_POPULATE_WRITE);
#else
    (void)self, (void)pieces;
#endif
    *there = true;
}

/* What a byte takes the peer that comes this way, ns. */
static float ways_theirs(const struct shm_out *out, int size, enum shm_way way)
{
    const uint64_t all = atomic_load_explicit(&out->took[size], memory_order_relaxed);
    return (float)(all >> (16 * (unsigned)way) & 0xffff) / 1000;
}

static void ways_turn(struct shm_endpoint *self, struct shm_out *out, int size)
{
    struct shm_ways *ways = &out->ways[size];
    const float took = ways->timed && ways->of > 0
                           ? (float)ways->ns / (float)ways->of +
                                 ways_theirs(out, size, (enum shm_way)ways->trial.way)
                           : 0;
    tti_copy_trial_next(&ways->trial, self->transport->settings.ways, took);
    ways->timed = tti_copy_trial_times(&ways->trial);
    ways->of = 0;
    ways->ns = 0;
    if (ways->trial.way == SHM_WIDE)
        ways_populate(self, out->pieces, &out->there);
}

uint64_t tti_shm_copy_piece(struct shm_endpoint *self, struct shm_out *out, const void *data,
                            size_t bytes)
{
    const struct shm_settings *settings = &self->transport->settings;
    unsigned char *to = out->pieces + out->piece_head % self->piece_ring;
    const enum shm_way way = shm_way_of(self, out, bytes);
    const int size = shm_size_of(bytes);
    struct shm_ways *ways = &out->ways[size];
    const bool timed = ways->timed;
    const uint64_t began = timed ? tti_now_ns() : 0;
    if (way == SHM_AROUND)
        tti_copy_around(to, data, bytes);
    else
        ways_copy(settings, to, data, bytes);
    if (settings->ways == 1)
        return 0;
    if (timed)
        ways->ns += tti_now_ns() - began;
    ways->of += bytes;
    if (ways->of >= SHM_WAY_TURN)
        ways_turn(self, out, size);
    return timed ? (uint64_t)way + 1 : 0;
}

unsigned char *tti_shm_bounce(struct shm_endpoint *self, struct shm_out *out)
{
    if (!out->bounce)
        out->bounce = tti_calloc_aligned(SHM_PAGE, 1, self->transport->settings.piece_bytes);
    return out->bounce;
}

void tti_shm_piece_opened(struct shm_endpoint *self, struct shm_in *in, uint64_t id, size_t where)
{
    in->began_ns = 0;
    if (where >= self->transport->settings.piece_narrow && !in->there)
        ways_populate(self, in->pieces, &in->there);
    if (id == 0 || id > SHM_WAYS)
        return;
    in->way = (enum shm_way)(id - 1);
    in->began_ns = tti_now_ns();
}

void tti_shm_piece_read(struct shm_in *in)
{
    const uint64_t ns = tti_now_ns() - in->began_ns;
    const uint64_t ps_a_byte = ns * 1000 / in->bytes;
    const int size = shm_size_of(in->bytes);
    uint8_t *count = &in->samples[size][in->way];
    uint16_t *sample = in->sample[size][in->way], sorted[SHM_SAMPLES];
    sample[*count % SHM_SAMPLES] = (uint16_t)(ps_a_byte < UINT16_MAX ? ps_a_byte : UINT16_MAX);
    *count = *count < 2 * SHM_SAMPLES - 1 ? *count + 1 : SHM_SAMPLES;
    const int there = *count < SHM_SAMPLES ? *count : SHM_SAMPLES;
    for (int i = 0; i < there; i++) {
        int at = i;
        for (; at > 0 && sorted[at - 1] > sample[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = sample[i];
    }
    const unsigned shift = 16 * (unsigned)in->way;
    const uint64_t all = atomic_load_explicit(&in->took[size], memory_order_relaxed);
    atomic_store_explicit(&in->took[size],
                          (all & ~(UINT64_C(0xffff) << shift)) | (uint64_t)sorted[there / 2]
                                                                     << shift,
                          memory_order_relaxed);
    in->began_ns = 0;
}
