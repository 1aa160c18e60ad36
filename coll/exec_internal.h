/* Inside the CPU executor: what executor.c, exec_step.c and exec_send.c share. */
#ifndef TTI_COLL_EXEC_INTERNAL_H
#define TTI_COLL_EXEC_INTERNAL_H

#include "coll/comm.h"
#include "coll/executor.h"
#include "device/copy_trial.h"

/* A range of elements of one step, placed in memory. Element `e` of the range lies at window
 * position first + e; windows wrap into the next block every `window` elements. */
struct tti_range {
    size_t first;   /* window position of the range's first element */
    size_t total;   /* elements */
    uint32_t block; /* where blocks have a count each: whose it is, and `first` is within it */
};

/* One send under way: made when its step begins, gone when the receiver has everything. */
struct tti_send_record {
    struct tti_send_record *next_in_queue; /* sends on the same link and lane */
    struct tti_send_record *next_in_lane;  /* sends of the same plan lane, or the free list */
    struct tti_send_queue *queue;
    uint64_t serial; /* global step number: pass * steps + step */
    const struct tti_step *step;
    struct tti_ref ref; /* where the data come from */
    struct tti_range range;
    size_t pass;
    size_t ready; /* elements that may be sent */
    size_t sent;  /* elements that the transport took */
    bool handed;  /* all were taken; complete when `end` bytes of the queue are released */
    uint64_t end;
};

struct tti_exec_lane {
    const struct tti_step *steps;
    const uint8_t *traits;
    size_t count;
    int wire_lane;
    size_t step; /* next or current */
    size_t pass;
    bool begun; /* the current step has its range and record */
    struct tti_range range;
    size_t done;                     /* elements of the current step */
    struct tti_send_record *forward; /* the current step's send, or NULL */
    bool through;                    /* it is filled while the step receives */
    bool folds;                      /* the current step is `fold`: two of the plan's */
    struct tti_step fold;
    struct tti_send_record *oldest, *youngest; /* sends not known to be consumed */
};

/* One message of a batch of sends and receives: chunk i of a table instead of blocks. */
struct tti_exec_message {
    char *data;
    size_t bytes;
    uint64_t tag;
    bool device; /* data lie in device memory */
};

/* IN that lies in device memory, which only the network reads; and the block of OUT that is the
 * same as one of IN, and lies there, too. */
struct tti_exec_device {
    char *base; /* NULL: there is no such */
    size_t bytes;
    size_t stride; /* elements from block to block */
    uint32_t in_block, out_block;
};

struct tti_exec_buffers {
    char *base[4];  /* by enum tti_buffer */
    size_t size[4]; /* bytes of an element there */
    enum tutti_type type[4];
};

enum { TTI_EXEC_TURNS = 4 };

/* How a call went over its windows when it was made the last time (executor.c). */
struct tti_exec_turn {
    uint64_t call; /* what all ranks know of it alike */
    bool from_end;
};

enum { TTI_EXEC_COPIES = 4 };

/* How what a call receives by several lanes is copied (executor.c). */
struct tti_exec_copies {
    uint64_t call; /* what is alike each time it is made */
    struct tti_copy_trial trial;
};

struct tti_executor {
    struct tutti_comm *comm;
    struct tti_send_record *free_records;
    struct tti_send_record **slabs;
    size_t slab_count, slab_capacity;
    struct tti_exec_lane *lanes;
    size_t lane_capacity, lane_count;
    struct tti_send_queue *active; /* queues with unsent records */
    char *scratch;
    size_t scratch_bytes;
    void *exchange; /* tables of a batch of sends and receives; kept, for the next one */
    size_t exchange_bytes;

    /* The operation under way. */
    const struct tti_plan *plan;
    const struct tti_exec_message *messages; /* exchange; else NULL */
    enum tutti_op op;
    struct tti_finish finish;
    uint64_t tag;
    size_t count; /* elements of a block; of the largest, if they have a count each: */
    const struct tti_blocks *blocks; /* ... these, or NULL */
    size_t window;                   /* elements of a block that one pass covers */
    size_t passes;
    bool from_end; /* the passes go over the windows from the last one to the first */
    struct tti_exec_turn turns[TTI_EXEC_TURNS];
    struct tti_exec_copies copies[TTI_EXEC_COPIES];
    size_t type_size;
    size_t slot_elements;
    struct tti_exec_buffers buffers;
    struct tti_exec_device device;
    size_t lend_from; /* messages of so many bytes and more are lent (plugin.h) */
    const struct tti_label *label;
    int fast_peer;   /* whom a small program or the fused path waits for; -1: lanes tell */
    bool fast_sends; /* ... to take what it is sent */
    const struct tti_messages *several; /* small messages, which know what they wait for; or NULL */
    int *connecting; /* an exchange's peers, while not all of them are connected; else NULL */
    int connecting_count;
    uint64_t yields_until; /* the wait under way has yielded long enough then; 0: it did not yet */
};

/* ---- placing (executor.c) ---- */

/* Make `plan` for `o` the operation under way: buffers, windows, scratch memory. */
enum tutti_result tti_exec_bind(struct tti_executor *x, const struct tti_operation *o,
                                const struct tti_plan *plan);

/* Elements of the block window of `pass`. */
size_t tti_exec_window(const struct tti_executor *x, size_t pass);
/* The range of `step` in `pass`. */
struct tti_range tti_exec_range(const struct tti_executor *x, const struct tti_step *step,
                                size_t pass);
/* Address of element `e` of a range seen through `ref`, and how many elements lie there in one
 * piece. */
char *tti_exec_place(const struct tti_executor *x, struct tti_ref ref, struct tti_range range,
                     size_t pass, size_t e, size_t *contiguous);

/* ---- waiting (exec_idle.c) ---- */

/* Do others compute on these cores meanwhile, as the caller said? */
static inline bool tti_exec_background(const struct tutti_comm *comm)
{
    return atomic_load_explicit(&comm->background, memory_order_relaxed);
}

/* Is the core that a waiting thread would use wanted by somebody else: by others, or by ranks that
 * outnumber the cores of this host? */
static inline bool tti_exec_crowded(const struct tutti_comm *comm)
{
    return comm->crowded || tti_exec_background(comm);
}

/* Look at nothing but this link for a moment, without pausing: the peer, who has a core of its own,
 * is about to send. True: there is something to look at. */
static inline bool tti_exec_await(const struct tutti_comm *comm, const struct tti_link *link)
{
    enum { TURNS = 256 };
    return link->await && !tti_exec_crowded(comm) && link->await(link->endpoint, 0, TURNS);
}

/* Looks of one who follows a root's broadcasts, in memory, before it yields: it has caught up with
 * a root on another core, whose next message is a moment away, and to come back from a rank that it
 * shares its core with takes dozens of messages' time. */
enum { TTI_TURNS_FOLLOWING = 16 };

/* For who waits for one link alone: so many turns pass before the executor's waiting begins, which
 * lets the transports move: those of a network need that each time. */
static inline unsigned tti_exec_turns_alone(const struct tutti_comm *comm,
                                            const struct tti_link *link)
{
    enum { TURNS_BEFORE_CLOCK = 16, TURNS_CROWDED = 2 };
    if (!tti_link_in_memory(link))
        return 1;
    return tti_exec_crowded(comm) ? TURNS_CROWDED : TURNS_BEFORE_CLOCK;
}

/* Nothing moved for `idle` turns: spin, yield, then sleep; look around now and then. */
enum tutti_result tti_exec_idle(struct tti_executor *x, unsigned idle, uint64_t deadline);

/* ---- sends (exec_send.c) ---- */

/* Queue a send of the lane's current step; `ready` elements may go at once. */
enum tutti_result tti_exec_send_begin(struct tti_executor *x, struct tti_exec_lane *lane,
                                      const struct tti_step *step, struct tti_ref ref, size_t ready,
                                      struct tti_send_record **record);
/* Hand what is ready to the transport, in order. Sets *moved when anything went. */
enum tutti_result tti_exec_queue_pump(struct tti_executor *x, struct tti_send_queue *queue,
                                      bool *moved);
enum tutti_result tti_exec_pump(struct tti_executor *x, bool *moved);
/* Are all sends of the lane with serial <= `serial` consumed? */
bool tti_exec_sends_done(struct tti_executor *x, struct tti_exec_lane *lane, uint64_t serial);
/* Forget all sends, after a failure. */
void tti_exec_sends_drop(struct tti_executor *x);
void tti_exec_records_free(struct tti_executor *x);
uint64_t tti_exec_tag(const struct tti_executor *x, const struct tti_step *step,
                      struct tti_ref ref);

/* ---- steps (exec_step.c) ---- */

/* Does the step pass on its input as it lies there? Then that may go before the step has copied it,
 * and a peer that reads it where it lies finds it in its own cache, if it was there before. Input
 * is never written, and overlaps the output only where the copy would be onto itself: the verifier
 * has plans wait for such sends otherwise. */
bool tti_exec_passes_input(const struct tti_executor *x, const struct tti_step *step);

/* The peer's message does not end where an element ends: `bytes` of it are there. Fails the
 * communicator. */
enum tutti_result tti_exec_torn(struct tti_executor *x, int from, size_t bytes, size_t element);
/* The message from rank `from` belongs to another operation than the one under way. */
enum tutti_result tti_exec_mismatch(struct tti_executor *x, int from, uint64_t expected,
                                    uint64_t found);

/* Do what can be done for the lane now; *moved is set when anything was. */
enum tutti_result tti_exec_lane_turn(struct tti_executor *x, struct tti_exec_lane *lane,
                                     bool *moved);
/* Of an exchange: whom a lane that is not over sends to or receives from. */
static inline int tti_exec_message_peer(const struct tti_exec_lane *lane)
{
    const struct tti_step *step = &lane->steps[lane->step];
    return step->from >= 0 ? step->from : step->to;
}

static inline bool tti_exec_lane_over(const struct tti_executor *x,
                                      const struct tti_exec_lane *lane)
{
    return lane->pass == x->passes;
}

#endif
