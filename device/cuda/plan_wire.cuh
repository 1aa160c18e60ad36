/* A block that runs a lane of a plan: where chunks lie, its counters, and messages in packets and
 * lines (plan_run.cu). Nothing here depends on the element type but sizes, known at run time: so it
 * is compiled once, and not for each type. */
#ifndef TTI_DEVICE_CUDA_PLAN_WIRE_CUH
#define TTI_DEVICE_CUDA_PLAN_WIRE_CUH

#include "device/cuda/couple.cuh"
#include "device/cuda/eight.cuh"
#include "plan/chunk.h"

struct tti_plan_shared {
    const void *src[2];
    void *dst[1];
    const char *in[TTI_GPU_RANKS], *out[TTI_GPU_RANKS];
    /* Of the channels to and from each rank, as in tti_plan_channel; `base`: sent before this pass.
     */
    uint64_t sent[TTI_GPU_RANKS], sent_pieces[TTI_GPU_RANKS], got[TTI_GPU_RANKS],
        got_pieces[TTI_GPU_RANKS], base[TTI_GPU_RANKS];
    uint32_t fine;
    /* A message that came in packets or lines, each of its chunks from a 16-byte boundary on. */
    alignas(16) char message[TTI_PLAN_SLOT_BYTES];
};

/* This block's part of one chunk, or a piece of it. */
struct tti_plan_piece {
    uint32_t number;     /* of the chunk in the step's range */
    uint32_t block;      /* where blocks differ: whose it is of */
    uint64_t at;         /* its first element, in the window of its block */
    uint64_t scratch;    /* where this block's part of it begins in a block of SCRATCH */
    uint64_t slice;      /* from `at` on: where this block's part begins, ... */
    uint64_t begin, end; /* ... and the elements of the piece */
    uint32_t staged;     /* byte of shared memory that the chunk of a message begins at */
};

struct tti_plan_block {
    const tti_plan_args &p;
    tti_plan_shared *shared;
    tti_watch watch;
    const tti_device_step *steps;
    const tti_device_need *needs;
    uint32_t slice, pass;
    uint64_t window; /* elements of a block in this pass */

    TTI_MEMBER uint32_t rank(void) const
    {
        return p.coupled.rank;
    }

    /* This block's channel with rank `with`, at rank `at`. */
    TTI_MEMBER tti_plan_channel *channel(uint32_t at, uint32_t with) const
    {
        return &p.coupled.control[at]->plan[blockIdx.x][with];
    }

    TTI_MEMBER void set_window(void)
    {
        const uint64_t left = p.coupled.count - pass * p.window;
        window = left < p.window ? left : p.window;
    }

    /* By one thread for each rank. Only who sends to this one is sure to be still at this launch.
     */
    TTI_MEMBER void begin(uint32_t peer, uint32_t senders) const
    {
        const tti_coupled_args &a = p.coupled;
        const tti_plan_channel *c = channel(a.rank, peer);
        const tti_gpu_control *theirs = a.control[peer];
        const bool ask = a.exchange && (senders >> peer & 1);
        shared->in[peer] = (const char *)(ask ? theirs->in[blockIdx.x] : a.in[peer]);
        shared->out[peer] = (const char *)(ask ? theirs->out[blockIdx.x] : a.out[peer]);
        shared->sent[peer] = shared->base[peer] = c->sent;
        shared->sent_pieces[peer] = c->sent_pieces;
        shared->got[peer] = c->got;
        shared->got_pieces[peer] = c->got_pieces;
    }

    TTI_MEMBER void end(uint32_t peer) const
    {
        tti_plan_channel *c = channel(p.coupled.rank, peer);
        c->sent = shared->sent[peer];
        c->sent_pieces = shared->sent_pieces[peer];
        c->got = shared->got[peer];
        c->got_pieces = shared->got_pieces[peer];
    }

    /* Bit 0: the buffer holds accumulators. */
    TTI_MEMBER uint32_t wide(uint32_t ref) const
    {
        return p.reduces && TTI_DEVICE_BUFFER(ref) >= TTI_DEVICE_SCRATCH;
    }

    TTI_MEMBER uint32_t size(uint32_t ref) const
    {
        return wide(ref) ? p.wide_size : p.size;
    }

    /* This block's part of chunk c of a window of so many elements. */
    TTI_MEMBER tti_plan_piece part(uint64_t elements, uint32_t c) const
    {
        tti_plan_piece piece;
        piece.at = tti_chunk_begin(elements, p.size, p.chunks, c);
        const uint64_t count = tti_chunk_begin(elements, p.size, p.chunks, c + 1) - piece.at;
        piece.slice = piece.begin = tti_chunk_begin(count, p.size, p.slices, slice);
        piece.end = tti_chunk_begin(count, p.size, p.slices, slice + 1);
        piece.scratch = piece.at + piece.slice;
        piece.staged = 0;
        piece.block = 0;
        return piece;
    }

    /* Elements of a block of its own length in this pass. */
    TTI_MEMBER uint64_t window_of(uint32_t block) const
    {
        const uint64_t count = p.counts[block], from = pass * p.window;
        const uint64_t left = count > from ? count - from : 0;
        return left < window ? left : window;
    }

    /* Chunk number `number` of a step's range. In SCRATCH it has its place of a whole window, in a
     * shorter one too: other blocks may be at another pass, or of other lengths. */
    TTI_MEMBER tti_plan_piece chunk(const tti_device_step &s, uint32_t number) const
    {
        const uint32_t c = (s.chunk + number) % p.chunks;
        const uint32_t block =
            p.uneven ? (s.block + (s.chunk + number) / p.chunks) % p.coupled.ranks : 0;
        const uint64_t elements = p.uneven ? window_of(block) : window;
        tti_plan_piece piece = part(elements, c);
        piece.number = number;
        piece.block = block;
        if (elements != p.window)
            piece.scratch = part(p.window, c).scratch;
        return piece;
    }

    /* Where a piece lies in the memory of rank `at`, seen through `ref`. */
    TTI_MEMBER char *place(uint32_t at, uint32_t ref, const tti_plan_piece &piece) const
    {
        const uint32_t buffer = TTI_DEVICE_BUFFER(ref), index = TTI_DEVICE_INDEX(ref);
        const uint64_t block = (index + piece.number) / p.chunks;
        const uint64_t element = piece.at + piece.begin;
        const uint64_t each = size(ref);
        /* Slots hold chunks of several sizes, by turns: every slice has a part of its own. */
        if (buffer == TTI_DEVICE_SLOT)
            return (char *)p.scratch[at] + p.slots_at +
                   ((uint64_t)(index * p.slices + slice) * p.slot_elements + piece.begin -
                    piece.slice) *
                       each;
        if (buffer == TTI_DEVICE_SCRATCH)
            return (char *)p.scratch[at] +
                   (block * p.window + piece.scratch + piece.begin - piece.slice) * each;
        const char *base = buffer == TTI_DEVICE_IN ? shared->in[at] : shared->out[at];
        const uint64_t begin = !p.uneven                ? block * p.coupled.count
                               : buffer + 1 == p.uneven ? p.displs[piece.block]
                                                        : 0;
        return (char *)base + (begin + pass * p.window + element) * each;
    }
};

/* Where the next chunk of a message begins in shared memory. All fit: what a chunk takes in a slot,
 * with its flags, is no less than its bytes rounded up. */
TTI_DEVICE uint32_t tti_plan_staged_after(uint32_t staged, uint64_t bytes)
{
    return staged + ((uint32_t)bytes + 15) / 16 * 16;
}

/* Messages in packets (LANES 1: a word of 8 bytes, each half beside its flag) or lines (LANES 8: 15
 * words, then a flag). A flag is 1 where data are, 0 where the slot is free. */
template <int LANES> struct tti_plan_wire {
    static const int words = LANES == 1 ? 1 : 2;    /* a lane, at most */
    static const int in_line = LANES == 1 ? 1 : 15; /* words */
    static const int line_bytes = LANES == 1 ? 16 : 128;

    const tti_plan_block &k;
    uint32_t lane, mask;

    TTI_MEMBER tti_plan_wire(const tti_plan_block &block)
        : k(block), lane(threadIdx.x % LANES),
          mask((LANES == 1 ? 1u : 0xffu) << (threadIdx.x % 32 - threadIdx.x % LANES))
    {
    }

    TTI_MEMBER bool has_flag(void) const
    {
        return LANES > 1 && lane == LANES - 1;
    }

    TTI_MEMBER bool has_word(int w) const
    {
        return w == 0 || !has_flag();
    }

    TTI_MEMBER char *slot(uint32_t at, uint32_t from, uint64_t message) const
    {
        const uint64_t number = (blockIdx.x * k.p.coupled.ranks + from) * 2 + (message & 1);
        return (char *)k.p.coupled.slots[at] + number * k.p.coupled.slot_bytes;
    }

    TTI_MEMBER static uint64_t lines_of(uint64_t bytes)
    {
        return ((bytes + 7) / 8 + in_line - 1) / in_line;
    }

    TTI_MEMBER void put(char *line, const uint64_t (&e)[words], uint32_t flag) const
    {
        if constexpr (LANES == 1) {
            const tti_packet packet = {(uint32_t)e[0], flag, (uint32_t)(e[0] >> 32), flag};
            tti_packet_store((tti_packet *)line, packet);
        } else {
            tti_line_store((uint64_t *)line + 2 * lane, e[0], has_flag() ? flag : e[words - 1],
                           has_flag(), mask);
        }
    }

    /* Wait for a line, take it, leave zeros; false: give up. */
    TTI_MEMBER bool take(char *line, uint32_t from, uint64_t (&e)[words]) const
    {
        for (uint32_t polls = 1;; polls++) {
            bool there;
            if constexpr (LANES == 1) {
                const tti_packet packet = tti_packet_load((const tti_packet *)line);
                e[0] = packet.data0 | (uint64_t)packet.data1 << 32;
                there = packet.flag0 && packet.flag1;
            } else {
                tti_line_load((const uint64_t *)line + 2 * lane, &e[0], &e[words - 1], has_flag(),
                              mask);
                there = __all_sync(mask, !has_flag() || e[words - 1] == 1);
            }
            if (there)
                break;
            bool on = true;
            if (polls % TTI_POLLS_PER_LOOK == 0)
                on = lane != LANES - 1 || tti_watch_look(k.watch, from);
            if (LANES == 1 ? !on : !__all_sync(mask, on))
                return false;
            tti_relax();
        }
        uint64_t nothing[words] = {};
        if (LANES > 1)
            __syncwarp(mask); /* all lanes have loaded theirs */
        put(line, nothing, 0);
        return true;
    }

    /* Word `w` of this lane in line `i`: its number in the chunk. */
    TTI_MEMBER uint64_t word_number(uint64_t i, int w) const
    {
        return i * in_line + 2 * lane * (LANES > 1) + w;
    }

    /* Groups of LANES threads take turns at the lines of each chunk. */
    TTI_MEMBER void send(const tti_device_step &s, uint32_t ref) const
    {
        char *to = slot(s.to, k.rank(), k.shared->sent[s.to]);
        TTI_LOOP (j, 0, s.nchunks) {
            const tti_plan_piece piece = k.chunk(s, j);
            const uint64_t bytes = (piece.end - piece.begin) * k.size(ref);
            const char *from = k.place(k.rank(), ref, piece);
            const uint64_t lines = lines_of(bytes);
            for (uint64_t i = threadIdx.x / LANES; i < lines; i += blockDim.x / LANES) {
                uint64_t e[words] = {};
                TTI_EACH (w, words)
                    if (has_word(w) && word_number(i, w) * 8 < bytes)
                        e[w] = tti_load_eight<uint8_t>(from, word_number(i, w), bytes).bits;
                put(to + i * line_bytes, e, 1);
            }
            to += lines * line_bytes;
        }
    }

    /* Into shared memory; false: give up. */
    TTI_MEMBER bool receive(const tti_device_step &s) const
    {
        char *from = slot(k.rank(), s.from, k.shared->got[s.from]);
        uint32_t staged = 0;
        TTI_LOOP (j, 0, s.nchunks) {
            const tti_plan_piece piece = k.chunk(s, j);
            const uint64_t bytes = (piece.end - piece.begin) * k.size(s.home);
            const uint64_t lines = lines_of(bytes);
            for (uint64_t i = threadIdx.x / LANES; i < lines; i += blockDim.x / LANES) {
                uint64_t e[words];
                if (!take(from + i * line_bytes, s.from, e))
                    return false;
                TTI_EACH (w, words)
                    if (has_word(w) && word_number(i, w) * 8 < bytes)
                        ((uint64_t *)(k.shared->message + staged))[word_number(i, w)] = e[w];
            }
            from += lines * line_bytes;
            staged = tti_plan_staged_after(staged, bytes);
        }
        return true;
    }
};

#endif
