/* shm: how what is copied into the ring of pieces goes.
 *
 * Which way is quickest is a matter of the processor, and of where the host has put its cores. The
 * sender writes lines that the peer has read before. Some processors take those back from the
 * peer's caches quickly, and then a ring that the caches hold is best. On others (Zen 4: 7 ns a
 * line from a core that shares the L3, 27 from one that does not, where reading takes 2 and 4) it
 * is best to write them when both second-level caches have let go of them, which takes a ring as
 * large as the two; or, from afar, around the caches.
 *
 * So the sender times its copies now and then, the receiver, asked to by the line, its reading
 * (median of the last eight, struct shm_took), and what both take together decides
 * (device/copy_trial.h), 64 KiB at a time, apart for small pieces, larger ones, and the parts of
 * what is larger still (SHM_FULL_PIECE). Where cores share a mesh nobody has measured it: there
 * pieces go the narrow way. Ranks that share cores try it only if the narrow way is slow: a wide
 * ring takes the cache from those who share it.
 *
 * Where lines come back quickly (Zen 5) the wide ring is better by less, 5 to 15%, and a trial does
 * hardly sees it: there it comes first (settings.wide_first), and is left when it is slow. */
#include "transport/shm/shm.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "device/reduce.h"

#include <sys/mman.h>

#if defined(MADV_POPULATE_WRITE)
enum { WAYS_MAKE_PAGES = MADV_POPULATE_WRITE, WAYS_MAP_PAGES = MADV_POPULATE_READ };
#else /* one that does nothing: they come as they are touched */
enum { WAYS_MAKE_PAGES = MADV_NORMAL, WAYS_MAP_PAGES = MADV_NORMAL };
#endif

/* Copies of so many bytes are made by a string of bytes, where strings are fast. */
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

/* The pages of the wide ring up to `end`, and some more, be there or mapped: not one by one, each
 * of which would make a piece wait; nor all at once (a millisecond or two), but where it is certain
 * that they will be used: there once, early, rather than again and again. */
static void ways_populate(const struct shm_endpoint *self, const unsigned char *pieces,
                          size_t *there, size_t end, int advice)
{
    end += self->pieces_shift;
    while (*there < end && *there < self->piece_ring) {
        const size_t left = self->piece_ring - *there;
        const size_t next = left < SHM_WAY_PAGES ? left : SHM_WAY_PAGES;
        (void)madvise((void *)(uintptr_t)(pieces - self->pieces_shift + *there), next, advice);
        *there += next;
    }
}

/* What a byte takes the peer that comes this way, ns. */
static float ways_theirs(const struct shm_out *out, int size, enum shm_way way)
{
    const uint64_t all = atomic_load_explicit(&out->took[size], memory_order_relaxed);
    return (float)(all >> (16 * (unsigned)way) & 0xffff) / 1000;
}

static const char *const ways_names[SHM_WAYS] = {"narrow", "around", "wide"};
static const char *const ways_size_names[SHM_SIZES] = {"up to 16 KiB", "more than 16 KiB",
                                                       "256 KiB and more"};

static void ways_tell(const struct shm_endpoint *self, const struct shm_ways *ways, int size)
{
    const struct shm_settings *settings = &self->transport->settings;
    double cost[SHM_WAYS] = {0};
    for (int number = 0; number < SHM_WAYS; number++)
        cost[shm_way_tried(settings, size, number)] = (double)ways->trial.cost[number];
    TTI_LOG(TTI_LOG_DEBUG,
            "shm: pieces of %s to rank %d go %s; ns a byte at both ends: narrow %.3f, around %.3f, "
            "wide %.3f",
            ways_size_names[size], self->peer->rank,
            ways_names[shm_way_tried(settings, size, ways->trial.way)], cost[SHM_NARROW],
            cost[SHM_AROUND], cost[SHM_WIDE]);
}

/* What is timed is not all that a wide ring costs: it takes the caches from others, from those who
 * share the core above all. There near cores are quick enough to try nothing else. Nor is it all
 * that it gains: both ends are at work at once, on lines that neither has near. So where it comes
 * first it must be clearly slower to be left. */
static struct tti_copy_choice ways_choice(const struct shm_settings *settings, bool wide_first)
{
    static const struct tti_copy_choice alone = {.ways = SHM_WAYS, .margin = 0.9F},
                                        shared = {SHM_WAYS, .margin = 0.5F, .quick = 0.3F},
                                        quick = {SHM_WAYS, .margin = 0.9F, .quick = 0.07F},
                                        from_wide = {2, .margin = 0.8F};
    struct tti_copy_choice choice = settings->shares_cores ? shared
                                    : wide_first           ? from_wide
                                    : settings->wide_first ? quick
                                                           : alone;
    choice.ways = choice.ways < settings->ways ? choice.ways : settings->ways;
    return choice;
}

/* Is this turn one of those before a trial, in which a way that shall be timed finds its lines
 * where it leaves them? Two laps through the narrow ring, one through the wide one. */
static bool ways_settles(const struct shm_endpoint *self, struct shm_ways *ways, enum shm_way way)
{
    const size_t narrow = 2 * self->transport->settings.piece_narrow;
    const size_t turns = (way == SHM_WIDE ? self->piece_ring : narrow) / SHM_WAY_TURN;
    const bool settles = ways->settled < turns;
    ways->settled = settles ? ways->settled + 1 : 0;
    return settles;
}

/* A turn is over. The peer's word on a way comes when it has read of it, which is a lap later if
 * the sender is far ahead: until then nothing is known. */
static void ways_turn(const struct shm_endpoint *self, const struct shm_out *out,
                      struct shm_ways *ways, int size)
{
    const struct shm_settings *settings = &self->transport->settings;
    const bool wide_first = shm_way_tried(settings, size, 0) == SHM_WIDE;
    const struct tti_copy_choice choice = ways_choice(settings, wide_first);
    const size_t lap = self->piece_ring / SHM_WAY_TURN;
    const unsigned latest = (lap < SHM_LINES ? (unsigned)lap : SHM_LINES) + SHM_WAY_LATE;
    const enum shm_way way = shm_way_tried(settings, size, ways->trial.way);
    const float theirs = ways_theirs(out, size, way);
    const bool held = ways->trial.held, timed = ways->timed && ways->of > 0;
    const float took = timed ? (float)ways->ns / (float)ways->of + theirs : 0;
    ways->done = ways->of = 0;
    ways->ns = 0;
    if (wide_first && !held && ways->trial.count == 0 && ways_settles(self, ways, way))
        return;
    if (timed && theirs == 0 && ways->late < latest) {
        ways->late++;
        return;
    }
    ways->late = 0;
    tti_copy_trial_next(&ways->trial, &choice, took);
    ways->timed = tti_copy_trial_times(&ways->trial);
    if (ways->trial.held && !held)
        ways_tell(self, ways, size);
}

void tti_shm_piece_sent(const struct shm_endpoint *self, struct shm_out *out, size_t bytes)
{
    const int size = shm_size_of(bytes);
    struct shm_ways *ways = &out->ways[size];
    ways->done += bytes;
    if (ways->done >= SHM_WAY_TURN)
        ways_turn(self, out, ways, size);
}

void tti_shm_piece_pages(const struct shm_endpoint *self, struct shm_out *out, size_t bytes)
{
    const struct shm_settings *settings = &self->transport->settings;
    const size_t end = out->piece_head % self->piece_ring + bytes;
    const bool wide = shm_way_of(self, out, bytes) == SHM_WIDE;
    if (end <= out->there || (!wide && end <= settings->piece_narrow))
        return;
    out->all_there = wide && settings->wide_first;
    ways_populate(self, out->pieces, &out->there, out->all_there ? self->piece_ring : end,
                  WAYS_MAKE_PAGES);
}

uint64_t tti_shm_copy_piece(const struct shm_endpoint *self, struct shm_out *out, const void *data,
                            size_t bytes)
{
    unsigned char *to = out->pieces + out->piece_head % self->piece_ring;
    const enum shm_way way = shm_way_of(self, out, bytes);
    struct shm_ways *ways = &out->ways[shm_size_of(bytes)];
    const size_t end = (size_t)(to - out->pieces) + bytes;
    /* Behind a wide piece a narrow one goes on where wide ones do: that is not its way. */
    const bool timed = ways->timed && shm_tries(self, out, bytes) &&
                       (way == SHM_WIDE || end <= self->transport->settings.piece_narrow);
    const uint64_t began = timed ? tti_now_ns() : 0;
    if (way == SHM_AROUND)
        tti_copy_around(to, data, bytes);
    else
        ways_copy(&self->transport->settings, to, data, bytes);
    if (!timed)
        return 0;
    ways->ns += tti_now_ns() - began;
    ways->of += bytes;
    return (uint64_t)way + 1;
}

void tti_shm_copy_bounced(const struct shm_endpoint *self, struct shm_out *out, size_t bytes)
{
    tti_copy_around(out->pieces + out->piece_head % self->piece_ring, out->bounce, bytes);
}

unsigned char *tti_shm_bounce(struct shm_endpoint *self, struct shm_out *out)
{
    if (!out->bounce)
        out->bounce = tti_calloc_aligned(SHM_PAGE, 1, self->transport->settings.piece_bytes);
    return out->bounce;
}

void tti_shm_piece_opened(const struct shm_endpoint *self, struct shm_in *in, uint64_t id,
                          size_t where)
{
    in->began_ns = 0;
    if (where >= self->transport->settings.piece_narrow && where + in->bytes > in->there)
        ways_populate(self, in->pieces, &in->there, where + in->bytes, WAYS_MAP_PAGES);
    if (id == SHM_ID_PAGES)
        ways_populate(self, in->pieces, &in->there, self->piece_ring, WAYS_MAP_PAGES);
    if (id == 0 || id > SHM_WAYS)
        return;
    in->way = (enum shm_way)(id - 1);
    in->began_ns = tti_now_ns();
}

void tti_shm_piece_read(struct shm_in *in)
{
    const uint64_t ns = tti_now_ns() - in->began_ns;
    const uint64_t ps_a_byte = ns * 1000 / in->bytes + 1; /* 0 is for what is not known */
    const int size = shm_size_of(in->bytes);
    uint8_t *count = &in->samples[size][in->way];
    uint16_t *sample = in->sample[size][in->way], sorted[SHM_SAMPLES] = {0};
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
