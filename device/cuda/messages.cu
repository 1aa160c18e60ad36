/* Sends and receives between ranks that map each other's memory (kernel_args.h: tti_message_args).
 *
 * Between any two ranks there are lanes, and each message is cut into parts, one a lane, by a rule
 * of its size that both sides know. On a lane parts go in pieces: the sender writes a piece into a
 * slot at the receiver and says that it is posted; the receiver copies it into place and says that
 * it is taken. Messages between two ranks keep their order on each lane; between channels (a rank,
 * a direction) there is none, and nobody may wait for one while another could go on: ranks may
 * batch their messages differently. So a block has several lanes of several channels, asks them
 * all in one sweep, a thread each, and moves what can be moved with all its threads.
 *
 * Nobody reaches into another rank's buffers, only into what it has mapped for good. So who gives
 * up need not wait for anybody. */
#include "device/cuda/couple.cuh"
#include "device/cuda/fold.cuh"
#include "plan/chunk.h"

enum { TTI_MESSAGE_SWEEP = 64 };

struct tti_message_shared {
    const void *src[TTI_MESSAGE_SWEEP];
    void *dst[TTI_MESSAGE_SWEEP];
    uint32_t bytes[TTI_MESSAGE_SWEEP]; /* 0: nothing to move */
    uint32_t waits[TTI_MESSAGE_SWEEP]; /* a rank, plus 1 */
};

TTI_DEVICE tti_message_lane *tti_message_lane_of(const tti_message_args &p, uint32_t at,
                                                 uint32_t with, uint32_t lane)
{
    return (tti_message_lane *)(p.box[at] + 1) + with * TTI_MESSAGE_LANES + lane;
}

/* Of rank `at`, for what comes from rank `from`. */
TTI_DEVICE char *tti_message_slot(const tti_message_args &p, uint32_t at, uint32_t from,
                                  uint32_t lane, uint32_t slot)
{
    char *slots = (char *)(p.box[at] + 1) + TTI_MESSAGE_LANES_BYTES(p.ranks);
    const uint32_t other = from - (from > at ? 1 : 0);
    const uint64_t number = (other * TTI_MESSAGE_LANES + lane) * TTI_MESSAGE_SLOTS + slot;
    return slots + number * p.slot_bytes;
}

/* One lane of a channel: what one thread asks, and all move. */
struct tti_message_item {
    tti_message_lane *own;
    uint32_t peer, lane, receives;
    uint32_t at, piece;   /* the message, of the channel's; bytes */
    uint32_t first;       /* of the channel's, in the launch */
    uint64_t begin, end;  /* the part of it */
    uint64_t done, count; /* pieces of the lane so far */
    bool pending, ready;

    TTI_MEMBER tti_message message(const tti_message_args &p) const
    {
        return p.list ? tti_global(p.list)[first + at] : p.message[first + at];
    }

    /* The first message from `at` on that has a part on this lane. */
    TTI_MEMBER void find(const tti_message_args &p, uint32_t messages)
    {
        const uint32_t from = at;
        for (pending = false; at < messages; at++) {
            const uint64_t bytes = message(p).bytes;
            const uint32_t lanes = TTI_MESSAGE_LANES_OF(bytes);
            if (lane >= lanes)
                continue;
            begin = tti_chunk_begin(bytes, 1, lanes, lane);
            end = tti_chunk_begin(bytes, 1, lanes, lane + 1);
            pending = true;
            break;
        }
        if (at != from)
            own->at[receives] = at; /* the next sweep need not pass over them again */
    }

    TTI_MEMBER void ask(const tti_message_args &p, uint32_t number)
    {
        const tti_message_channel channel = p.channel[number % p.channels];
        peer = channel.peer;
        receives = channel.receives;
        lane = number / p.channels;
        own = tti_message_lane_of(p, p.rank, peer, lane);
        at = own->at[receives];
        done = own->done[receives];
        first = channel.first;
        find(p, channel.count);
        if (!pending)
            return;
        count = receives ? own->got : own->sent;
        ready = receives ? tti_acquire(&own->posted) > count
                         : count - tti_acquire(&own->taken) < TTI_MESSAGE_SLOTS;
        const uint64_t left = end - begin - done;
        piece = left < p.slot_bytes ? (uint32_t)left : p.slot_bytes;
    }

    TTI_MEMBER uint32_t slot(void) const
    {
        return (uint32_t)(count % TTI_MESSAGE_SLOTS);
    }

    TTI_MEMBER bool agrees(const tti_message_args &p) const
    {
        return !receives || own->tag[slot()] == message(p).tag;
    }

    TTI_MEMBER void show(const tti_message_args &p, tti_message_shared *shared) const
    {
        char *mine = (char *)message(p).at + begin + done;
        char *there =
            tti_message_slot(p, receives ? p.rank : peer, receives ? peer : p.rank, lane, slot());
        shared->src[threadIdx.x] = receives ? there : mine;
        shared->dst[threadIdx.x] = receives ? mine : there;
        shared->bytes[threadIdx.x] = piece;
    }

    /* The piece is in its place. */
    TTI_MEMBER void tell(const tti_message_args &p) const
    {
        tti_message_lane *theirs = tti_message_lane_of(p, peer, p.rank, lane);
        const bool over = begin + done + piece == end;
        own->done[receives] = over ? 0 : done + piece;
        if (over)
            own->at[receives] = at + 1;
        if (receives) {
            own->got = count + 1;
            tti_release(&theirs->taken, count + 1);
        } else {
            own->sent = count + 1;
            theirs->tag[slot()] = message(p).tag;
            tti_release(&theirs->posted, count + 1);
        }
        if (p.rings)
            tti_release(&p.box[peer]->gate, 1u);
    }
};

TTI_DEVICE void tti_message_mismatch(const tti_message_args &p, const tti_message_item &item)
{
    if (tti_swap_first(&p.status->claimed, 1) == 0) {
        p.status->rank = item.peer;
        p.status->block = blockIdx.x;
        p.status->epoch = 0;
        p.status->theirs = item.own->tag[item.slot()];
        p.status->ours = item.message(p).tag;
        tti_release(&p.status->failed, (uint32_t)TUTTI_ERR_MISMATCH);
    }
    tti_release(&p.status->abort, 1u);
}

/* Of words where both sides can, else of bytes. */
TTI_DEVICE void tti_message_move(const tti_message_shared *shared, uint32_t k)
{
    const uint32_t bytes = shared->bytes[k];
    const tti_fold fold = {&shared->src[k], &shared->dst[k], 1, 1, 0, 0, TUTTI_SUM, 0, 0, 0, 0, 0};
    if ((((uintptr_t)shared->src[k] | (uintptr_t)shared->dst[k] | bytes) & 3) == 0)
        tti_fold_range<TUTTI_UINT32, 4>(fold, 0, bytes / 4, threadIdx.x, blockDim.x);
    else
        tti_fold_range<TUTTI_UINT8, 1>(fold, 0, bytes, threadIdx.x, blockDim.x);
}

struct tti_message_block {
    const tti_message_args &p;
    tti_message_shared *shared;
    tti_watch watch;
    uint32_t items; /* of this block */

    TTI_MEMBER uint32_t number(uint32_t k) const
    {
        return blockIdx.x + k * gridDim.x;
    }

    TTI_MEMBER void begin(void) const
    {
        for (uint32_t k = threadIdx.x; p.begins && k < items; k += blockDim.x) {
            const uint32_t n = number(k);
            const tti_message_channel channel = p.channel[n % p.channels];
            tti_message_lane *own = tti_message_lane_of(p, p.rank, channel.peer, n / p.channels);
            own->at[channel.receives] = 0;
            own->done[channel.receives] = 0;
        }
        __syncthreads();
    }

    /* Items from `base` on. Per thread: whether it moved a piece; found one that has to wait;
     * or one that is not what the sender has. */
    TTI_MEMBER void sweep(uint32_t base, bool *moved, bool *waits, bool *bad) const
    {
        const uint32_t left = items - base;
        const uint32_t most = left < TTI_MESSAGE_SWEEP ? left : (uint32_t)TTI_MESSAGE_SWEEP;
        tti_message_item item = {};
        if (threadIdx.x < most) {
            item.ask(p, number(base + threadIdx.x));
            item.ready = item.pending && item.ready;
            if (item.ready && !item.agrees(p)) {
                tti_message_mismatch(p, item);
                *bad = true;
                item.ready = false;
            }
            shared->bytes[threadIdx.x] = 0;
            if (item.ready)
                item.show(p, shared);
            const bool waiting = item.pending && !item.ready;
            if (base == 0 || waiting)
                shared->waits[threadIdx.x] = waiting ? item.peer + 1 : 0;
        }
        __syncthreads();
        TTI_LOOP (k, 0, most)
            if (shared->bytes[k] > 0)
                tti_message_move(shared, k);
        __syncthreads();
        if (item.ready)
            item.tell(p);
        *moved |= item.ready;
        *waits |= item.pending && !item.ready;
    }

    /* Thread 0's: some rank, plus 1, that was waited for in the last sweeps; 0: none. */
    TTI_MEMBER uint32_t waited(void) const
    {
        const uint32_t most = items < TTI_MESSAGE_SWEEP ? items : (uint32_t)TTI_MESSAGE_SWEEP;
        uint32_t rank = 0;
        TTI_LOOP (k, 0, most)
            rank = rank ? rank : shared->waits[k];
        return rank;
    }

    /* Until all is done, or, if it does not spin, nothing can be moved. False: give up. *waits:
     * something is left to be waited for. */
    TTI_MEMBER bool run(bool *waits) const
    {
        for (uint32_t polls = 1;; polls++) {
            bool moved = false, waiting = false, bad = false;
            for (uint32_t base = 0; base < items; base += TTI_MESSAGE_SWEEP)
                sweep(base, &moved, &waiting, &bad);
            if (__syncthreads_or(moved))
                continue;
            *waits = __syncthreads_or(waiting) != 0;
            if (__syncthreads_or(bad))
                return false;
            if (!*waits || !p.spins)
                return true;
            if (polls % TTI_POLLS_PER_LOOK == 0) {
                bool fine = true;
                if (threadIdx.x == 0) {
                    const uint32_t rank = waited();
                    fine = tti_watch_look(watch, rank ? rank - 1 : p.rank);
                }
                if (__syncthreads_or(!fine))
                    return false;
            }
            tti_relax();
        }
    }
};

/* The last block opens the gate for good if all are through, or somebody gave up: what is queued
 * behind then passes. */
TTI_DEVICE void tti_message_leave(const tti_message_block &b, bool waits)
{
    tti_message_box *own = b.p.box[b.p.rank];
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    if (waits)
        atomicMax(&own->busy, b.waited() + 1);
    if (tti_add_acq_rel(&own->leaving, 1) != gridDim.x - 1)
        return;
    const uint32_t busy = atomicExch(&own->busy, 0);
    own->leaving = 0;
    tti_release(&b.p.status->waited, busy ? busy - 1 : 0);
    if (!busy)
        tti_release(&own->gate, 1u);
}

/* Thread 0's: whether to begin. The time of the group counts from its first launch, but a later one
 * that comes late moves first what can be moved. */
TTI_DEVICE bool tti_message_begins(const tti_message_args &p, tti_watch *watch)
{
    tti_message_box *own = p.box[p.rank];
    const bool fine = tti_watch_look(*watch, p.rank);
    if (!p.begins)
        watch->began_ns = own->began_ns;
    else if (blockIdx.x == 0)
        own->began_ns = watch->began_ns;
    return fine;
}

TTI_KERNEL(tti_kernel_message_list, tti_message_list_args, p)
{
    for (uint32_t k = tti_thread_of_grid(); k < p.count; k += tti_threads_of_grid())
        p.at[k] = p.message[k];
}

TTI_KERNEL_PAIRED(TTI_PAIRED_THREADS, tti_kernel_messages, tti_message_args, p)
{
    __shared__ tti_message_shared shared;
    const uint32_t all = p.channels * p.lanes;
    tti_message_block b = {p, &shared, tti_watch_begin(p.status, p.control, p.timeout_ns, 0),
                           blockIdx.x < all ? (all - blockIdx.x - 1) / gridDim.x + 1 : 0};
    bool fine = true, waits = false;
    if (threadIdx.x == 0)
        fine = tti_message_begins(p, &b.watch);
    if (!__syncthreads_or(!fine)) {
        b.begin();
        fine = b.run(&waits);
        waits = waits && fine;
    }
    if (p.rings) /* the last, which spins, too: nobody is waited for any more */
        tti_message_leave(b, waits);
}
