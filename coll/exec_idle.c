/* Waiting in the CPU executor: spin, yield, sleep; and what to say when the deadline passes. */
#include "coll/exec_internal.h"

#include "base/clock.h"
#include "base/types.h"
#include "coll/diagnose.h"
#include "coll/gpu/gpu_calls.h"
#include "coll/message.h"

#include <sched.h>
#include <stdio.h>

enum {
    SPINS = 100,       /* turns without progress before the thread yields ... */
    SPINS_CROWDED = 2, /* ... when ranks outnumber cores: the peer may need this very one */
    SPINS_SYSTEM = 20, /* ... when every turn makes system calls */
    YIELDS = 1500,     /* yields before it sleeps; none in the background: a thread that yields to
                          one that computes waits for the end of its time slice */
    YIELD_US = 300,    /* for how long at most it yields in a call of up to YIELD_BYTES: that many
                          take so long if nobody wants the core, and if somebody does, the peer
                          may stand behind it */
    YIELD_BYTES = 128 * 1024,
    LISTEN_EVERY = 256, /* turns between looks at the clock */
    SLEEP_MS = 50,      /* the most one sleep takes, so that notices are seen */
};

/* Whom a lane waits for, -1: nobody; *sends: to take something. A step that has not begun waits
 * until what it overwrites was taken. */
static int lane_waits_for(const struct tti_executor *x, const struct tti_exec_lane *lane,
                          bool *sends)
{
    if (x->connecting && !lane->begun && !tti_exec_lane_over(x, lane)) {
        *sends = lane->steps[lane->step].from < 0;
        return tti_exec_message_peer(lane);
    }
    const int from =
        tti_exec_lane_over(x, lane) || !lane->begun ? -1 : lane->steps[lane->step].from;
    *sends = from < 0;
    if (from >= 0)
        return from;
    return lane->oldest ? lane->oldest->queue->link->peer : -1;
}

/* The first that it waits for. */
static int exec_waits_for(const struct tti_executor *x, bool *sends)
{
    *sends = x->fast_sends;
    int peer = x->fast_peer;
    for (size_t i = 0; i < x->lane_count && peer < 0; i++)
        peer = lane_waits_for(x, &x->lanes[i], sends);
    return peer;
}

/* "receiving from rank 3 (b:77), sending to rank 2 (a:12)" for the first few stuck lanes. */
static void exec_waits(struct tti_executor *x, char *text, size_t bytes)
{
    size_t used = 0, listed = 0;
    text[0] = '\0';
    if (x->several)
        tti_messages_waits(x->several, text, bytes);
    else if (x->fast_peer >= 0)
        snprintf(text, bytes, "%s rank %d (%s)", x->fast_sends ? "sending to" : "receiving from",
                 x->fast_peer, x->comm->peers.all[x->fast_peer].name);
    for (size_t i = 0; i < x->lane_count && listed < 4 && used < bytes; i++) {
        bool sends = false;
        const int peer = lane_waits_for(x, &x->lanes[i], &sends);
        if (peer < 0)
            continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s rank %d (%s)",
                                 listed++ ? ", " : "", sends ? "sending to" : "receiving from",
                                 peer, x->comm->peers.all[peer].name);
    }
}

static enum tutti_result exec_timeout(struct tti_executor *x)
{
    char waits[400], what[TTI_LABEL_BYTES];
    bool sends = false;
    if (x->connecting)
        return tti_links_timeout(x->comm, x->connecting, x->connecting_count, x->label);
    exec_waits(x, waits, sizeof waits);
    const int peer = exec_waits_for(x, &sends);
    const bool unmet = x->label->operation->collective == TUTTI_SEND_RECV && !sends &&
                       tti_gpu_unmet(x->comm, peer);
    return tti_diagnose(
        x->comm, TTI_FAIL(TUTTI_ERR_TIMEOUT, "%s on rank %d did not finish within %g s; stuck %s%s",
                          tti_label_text(x->label, what, sizeof what), x->comm->rank,
                          x->comm->settings.timeout_s, waits,
                          unmet ? "; what has come from there is in device memory, and is received "
                                  "in device memory alone"
                                : ""));
}

/* Turns without progress that are spent spinning before the core is offered to others. A transport
 * that has `await` makes no system calls to look. */
static unsigned exec_spins(const struct tutti_comm *comm)
{
    if (tti_exec_crowded(comm))
        return SPINS_CROWDED;
    for (int c = 0; c < comm->peers.ncarriers; c++)
        if (comm->peers.carriers[c].in_use &&
            comm->peers.carriers[c].ops->rank >= TTI_FIRST_NETWORK_RANK &&
            !tti_transport_awaits(comm->peers.carriers[c].ops))
            return SPINS_SYSTEM;
    return SPINS;
}

/* For those who ask which rank keeps the others waiting, and for the dump. */
static void exec_note_waits(struct tti_executor *x, uint64_t deadline)
{
    bool sends = false;
    const int peer = exec_waits_for(x, &sends);
    tti_record_waits(&x->comm->recorder.ring[0],
                     tti_deadline_begin(deadline, x->comm->settings.timeout_s), peer, sends);
}

/* When a wait that begins to yield now has yielded for long enough; none is too long in a call that
 * moves much. */
static uint64_t exec_yields_until(const struct tti_label *label)
{
    size_t bytes = 0;
    for (size_t i = 0; i < label->count && bytes <= YIELD_BYTES; i++) {
        const struct tti_operation *o = &label->operation[i];
        const size_t room = YIELD_BYTES / tti_type_bytes(o->type);
        bytes += o->count > room ? YIELD_BYTES + 1 : o->count * tti_type_bytes(o->type);
    }
    return bytes > YIELD_BYTES ? UINT64_MAX : tti_now_ns() + (uint64_t)YIELD_US * 1000;
}

static bool exec_yielded_long(struct tti_executor *x, unsigned idle, unsigned spins)
{
    if (idle < spins) {
        x->yields_until = 0;
        return false;
    }
    if (x->yields_until == 0)
        x->yields_until = exec_yields_until(x->label);
    return x->yields_until != UINT64_MAX && tti_now_ns() > x->yields_until;
}

enum tutti_result tti_exec_idle(struct tti_executor *x, unsigned idle, uint64_t deadline)
{
    const unsigned spins = exec_spins(x->comm);
    const unsigned awake = spins + (tti_exec_background(x->comm) ? 0 : YIELDS);
    TTI_TRY(tti_links_progress(x->comm));
    const bool sleepy = idle >= awake || exec_yielded_long(x, idle, spins);
    if (idle < spins)
        tti_cpu_relax();
    else if (!sleepy)
        sched_yield();
    /* Written down at the first yield: where ranks share a core the next look around may be a
     * second away, and who asks for the culprit meanwhile would read whom it waited for before. */
    if (idle == spins)
        exec_note_waits(x, deadline);
    if (sleepy || idle % LISTEN_EVERY == LISTEN_EVERY - 1) {
        exec_note_waits(x, deadline);
        TTI_TRY(tti_comm_listen(x->comm));
        TTI_TRY(tti_links_abandoned(x->comm));
        if (tti_deadline_passed(deadline))
            return exec_timeout(x);
    }
    if (sleepy)
        tti_links_sleep(x->comm, tti_deadline_ms(deadline, SLEEP_MS));
    return TUTTI_OK;
}
