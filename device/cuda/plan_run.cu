/* Any plan (plan/plan.h), run by one kernel a rank over memory that the ranks map: block
 * lane * slices + slice runs the steps of a lane on its slice of every chunk. The plan as the
 * device reads it is made by device/program.c.
 *
 * Blocks of the same number talk to each other alone. Messages go in one of three ways. Bulk: the
 * sender says how far its memory is ready, piece by piece, and the receiver reads it there,
 * combines it and passes it on in one go. Packets (LL) and lines (LL128), for messages that fit a
 * slot: the sender writes data with flags among them into a slot at the receiver, as in
 * one_shot_ll.cu; the receiver zeroes them, says that it is through, and the slot is free.
 *
 * Counters of pieces and messages run on from launch to launch (tti_plan_channel), so a launch can
 * be replayed. A kernel ends when all that it sent is consumed: then its buffers are its caller's.
 */
#include "device/cuda/meet.cuh"
#include "device/cuda/plan_wire.cuh"

/* Wait, thread by thread for other ranks each, until messages sent are consumed. */
TTI_DEVICE bool tti_plan_consumed(const tti_plan_block &k, uint32_t peer, uint64_t messages)
{
    return tti_await(k.watch, &k.channel(k.rank(), peer)->consumed, messages, peer);
}

/* What the step overwrites has been read. Packets leave at once: nothing to wait for. */
TTI_DEVICE bool tti_plan_hazards(const tti_plan_block &k, const tti_device_step &s)
{
    bool met = true;
    if (k.p.wire != TTI_WIRE_BULK || s.needs == 0)
        return true;
    if (threadIdx.x < s.needs) {
        const tti_device_need need = k.needs[s.need + threadIdx.x];
        met = tti_plan_consumed(k, need.peer, k.shared->base[need.peer] + need.messages);
    }
    return !__syncthreads_or(!met);
}

/* ---- bulk ---- */

TTI_DEVICE void tti_plan_post(const tti_plan_block &k, uint32_t to)
{
    tti_release(&k.channel(to, k.rank())->posted, ++k.shared->sent_pieces[to]);
}

/* Thread 0: where the operands of a piece are, when it is there. */
TTI_DEVICE bool tti_plan_operands(const tti_plan_block &k, const tti_device_step &s,
                                  const tti_plan_piece &at)
{
    tti_plan_shared *shared = k.shared;
    const char *message = 0;
    if (s.kind >= TTI_DEVICE_RECV && k.p.wire == TTI_WIRE_BULK) {
        if (!tti_await(k.watch, &k.channel(k.rank(), s.from)->posted, ++shared->got_pieces[s.from],
                       s.from))
            return false;
        message = k.place(s.from, s.home, at);
    } else if (s.kind >= TTI_DEVICE_RECV) {
        message = shared->message + at.staged + (at.begin - at.slice) * k.size(s.home);
    }
    const char *own = s.kind == TTI_DEVICE_RECV ? 0 : k.place(k.rank(), s.src, at);
    const char *second = s.kind == TTI_DEVICE_REDUCE ? k.place(k.rank(), s.src2, at) : message;
    const bool swap = s.kind == TTI_DEVICE_RECV ||
                      (s.kind == TTI_DEVICE_RECV_REDUCE && (s.flags & TTI_DEVICE_MSG_LEFT));
    shared->src[0] = swap ? second : own;
    shared->src[1] = swap ? own : second;
    shared->dst[0] = k.place(k.rank(), s.dst, at);
    return true;
}

/* The one place that depends on the element type. */
TTI_DEVICE void tti_plan_fold_typed(uint32_t type, const tti_fold &fold, uint64_t count)
{
#define PLAN_FOLD(number, suffix)                                           \
    case number:                                                            \
        tti_fold_range<number, 1>(fold, 0, count, threadIdx.x, blockDim.x); \
        break;
    switch (type) {
        TTI_FOR_TYPES(PLAN_FOLD)
    }
}

TTI_DEVICE void tti_plan_fold(const tti_plan_block &k, const tti_device_step &s, uint64_t count)
{
    const bool two = s.kind == TTI_DEVICE_REDUCE || s.kind == TTI_DEVICE_RECV_REDUCE;
    const bool swap = s.kind == TTI_DEVICE_RECV || (s.flags & TTI_DEVICE_MSG_LEFT);
    const uint32_t own = k.wide(s.src);
    const uint32_t second = k.wide(s.kind == TTI_DEVICE_REDUCE ? s.src2 : s.home);
    const uint32_t divisor = s.flags & TTI_DEVICE_FINAL ? k.p.coupled.divisor : 0;
    tti_plan_shared *shared = k.shared;
    if (s.kind == TTI_DEVICE_COPY && !divisor && shared->src[0] == shared->dst[0])
        return;
    const tti_fold fold = {shared->src,
                           shared->dst,
                           two ? 2u : 1u,
                           1,
                           swap ? second | own << 1 : own | second << 1,
                           k.wide(s.dst),
                           k.p.coupled.op,
                           divisor,
                           0,
                           0,
                           0,
                           0,
                           true};
    tti_plan_fold_typed(k.p.type, fold, count);
}

/* A step that moves or combines: piece by piece, each passed on as soon as it is there. */
TTI_DEVICE bool tti_plan_pieces(const tti_plan_block &k, const tti_device_step &s)
{
    const bool forward = k.p.wire == TTI_WIRE_BULK && (s.flags & TTI_DEVICE_FORWARD);
    uint32_t staged = 0;
    TTI_LOOP (j, 0, s.nchunks) {
        tti_plan_piece at = k.chunk(s, j);
        const uint64_t end = at.end;
        at.staged = staged;
        staged = tti_plan_staged_after(staged, (end - at.begin) * k.size(s.home));
        for (; at.begin < end; at.begin = at.end) {
            at.end = end - at.begin < k.p.piece ? end : at.begin + k.p.piece;
            if (threadIdx.x == 0)
                k.shared->fine = tti_plan_operands(k, s, at);
            __syncthreads();
            if (!k.shared->fine)
                return false;
            tti_plan_fold(k, s, at.end - at.begin);
            __syncthreads();
            if (forward && threadIdx.x == 0)
                tti_plan_post(k, s.to);
        }
    }
    return true;
}

/* All pieces of a range at once, by thread 0. */
TTI_DEVICE void tti_plan_post_all(const tti_plan_block &k, const tti_device_step &s)
{
    uint64_t pieces = 0;
    TTI_LOOP (j, 0, s.nchunks) {
        const tti_plan_piece at = k.chunk(s, j);
        pieces += (at.end - at.begin + k.p.piece - 1) / k.p.piece;
    }
    k.shared->sent_pieces[s.to] += pieces;
    tti_release(&k.channel(s.to, k.rank())->posted, k.shared->sent_pieces[s.to]);
}

TTI_DEVICE bool tti_plan_bulk(const tti_plan_block &k, const tti_device_step &s)
{
    if (s.kind != TTI_DEVICE_SEND)
        return tti_plan_pieces(k, s);
    if (threadIdx.x == 0)
        tti_plan_post_all(k, s);
    return true;
}

/* ---- packets and lines ---- */

template <int LANES>
TTI_DEVICE bool tti_plan_packets(const tti_plan_block &k, const tti_device_step &s)
{
    const tti_plan_wire<LANES> wire(k);
    const bool sends = s.kind == TTI_DEVICE_SEND || (s.flags & TTI_DEVICE_FORWARD);
    bool fine = true;
    /* The slot at the receiver is free when the message before the last is consumed. */
    if (sends && threadIdx.x == 0 && k.shared->sent[s.to] > 1)
        fine = tti_plan_consumed(k, s.to, k.shared->sent[s.to] - 1);
    if (__syncthreads_or(!fine)) /* and thread 0's counters of the step before are seen */
        return false;
    if (s.kind >= TTI_DEVICE_RECV && __syncthreads_or(!wire.receive(s)))
        return false;
    if (s.kind != TTI_DEVICE_SEND)
        (void)tti_plan_pieces(k, s); /* waits for nobody */
    if (sends)
        wire.send(s, s.kind == TTI_DEVICE_SEND ? s.src : s.dst);
    return true;
}

/* ---- the walk ---- */

TTI_DEVICE bool tti_plan_step(const tti_plan_block &k, const tti_device_step &s)
{
    if (!tti_plan_hazards(k, s))
        return false;
    bool fine;
    if (k.p.wire == TTI_WIRE_BULK)
        fine = tti_plan_bulk(k, s);
    else if (k.p.wire == TTI_WIRE_LL)
        fine = tti_plan_packets<1>(k, s);
    else
        fine = tti_plan_packets<8>(k, s);
    if (!fine)
        return false;
    __syncthreads(); /* all of the message is read, all of the result written */
    if (threadIdx.x == 0) {
        if (s.kind == TTI_DEVICE_SEND || (s.flags & TTI_DEVICE_FORWARD))
            k.shared->sent[s.to]++;
        if (s.kind >= TTI_DEVICE_RECV)
            tti_release(&k.channel(s.from, k.rank())->consumed, ++k.shared->got[s.from]);
    }
    return true;
}

/* Everything sent so far is consumed; the scratch memory may be used again. */
TTI_DEVICE bool tti_plan_settle(const tti_plan_block &k)
{
    bool met = true;
    __syncthreads();
    if (threadIdx.x < k.p.coupled.ranks) {
        const uint64_t sent = k.shared->sent[threadIdx.x];
        met = tti_plan_consumed(k, threadIdx.x, sent);
        k.shared->base[threadIdx.x] = sent;
    }
    return !__syncthreads_or(!met);
}

TTI_DEVICE bool tti_plan_walk(tti_plan_block &k, const tti_device_lane &lane)
{
    for (k.pass = 0; k.pass < k.p.passes; k.pass++) {
        k.set_window();
        TTI_LOOP (i, 0, lane.steps) {
            const tti_device_step s = k.steps[lane.first + i];
            if (!tti_plan_step(k, s))
                return false;
        }
        if (!tti_plan_settle(k))
            return false;
    }
    return true;
}

TTI_KERNEL_PAIRED(TTI_PLAN_THREADS, tti_kernel_plan_run, tti_plan_args, p)
{
    __shared__ tti_plan_shared shared;
    const tti_coupled_args &a = p.coupled;
    tti_gpu_control *own = a.control[a.rank];
    const tti_device_program *program = (const tti_device_program *)p.program;
    tti_plan_block k = {p,
                        &shared,
                        tti_begin(a),
                        (const tti_device_step *)(program + 1),
                        (const tti_device_need *)((const char *)program + program->needs_at),
                        blockIdx.x % p.slices,
                        0,
                        0};
    const tti_device_lane lane = program->lane[blockIdx.x / p.slices];
    tti_publish<uint64_t>(a, k.watch); /* nothing is scaled here */
    /* Also without buffers to exchange: so it is the rank that did not come that is named, and not
     * one between that waits for it, too. */
    bool fine = tti_meet(a, k.watch, tti_ready_flag());
    if (fine) {
        if (threadIdx.x < a.ranks)
            k.begin(threadIdx.x, lane.senders);
        __syncthreads();
        fine = tti_plan_walk(k, lane);
    }
    if (fine) {
        if (threadIdx.x < a.ranks)
            k.end(threadIdx.x);
        if (threadIdx.x == 0)
            tti_release(&own->inside[blockIdx.x], (uint64_t)0);
    } else {
        __syncthreads();
        tti_withdraw(a, k.watch);
    }
    if (tti_leaves_last(own))
        tti_end_epoch(own, k.watch.epoch);
}
