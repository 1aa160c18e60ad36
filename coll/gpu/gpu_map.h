/* Ranks of one host that map each other's device memory: what lies in the arena that each of them
 * has, and how far they trust it. Set up at the first collective on device memory, in which all
 * ranks take part; everything decided here is decided alike on all ranks of the host, and whether
 * there is such a map on all ranks. Ranks go by their numbers on the host here: where all are on
 * one host these are the communicator's, roots of operations among them. Else operations of the
 * communicator's go in levels (gpu_levels.c), and those here are of the ranks of the host alone.
 *
 * Read next: gpu_window.c (any collective, any ranks), gpu_couple.c (kernels that run at the same
 * time), gpu_watch.c (what ends waits when a rank dies). */
#ifndef TTI_COLL_GPU_MAP_H
#define TTI_COLL_GPU_MAP_H

#include "coll/gpu/gpu_lend.h"
#include "coll/gpu/gpu_range.h"
#include "coll/gpu/gpu_side.h"
#include "device/program.h"
#include "transport/cuda_ipc/arena.h"
#include "transport/cuda_ipc/passing.h"

/* From the least to the most that the ranks must share. */
enum tti_gpu_way {
    TTI_GPU_STAGED,  /* nothing */
    TTI_GPU_WINDOW,  /* each other's memory */
    TTI_GPU_COUPLED, /* ... and their kernels run at the same time */
    TTI_GPU_WAYS,
};

enum {
    TTI_ARENA_PAGE = 4096,
    TTI_ARENA_CONTROL = 0,
    TTI_ARENA_FLAGS = (int)((sizeof(struct tti_gpu_control) + TTI_ARENA_PAGE - 1) / TTI_ARENA_PAGE *
                            TTI_ARENA_PAGE),
    TTI_ARENA_POISON = TTI_ARENA_FLAGS + TTI_ARENA_PAGE - 64, /* who gave up, plus 1 */
    TTI_ARENA_COUNT = TTI_ARENA_POISON + 4,                   /* of operations that ended */
    TTI_ARENA_PROBE = TTI_ARENA_FLAGS + TTI_ARENA_PAGE,       /* of the self-test */
    TTI_ARENA_LEND = TTI_ARENA_PROBE + TTI_ARENA_PAGE,        /* struct tti_lend_page */
    /* Of one-shot LL; then its lines, packets of plans, plans, the window, messages (gpu_map.c). */
    TTI_ARENA_SLOTS = TTI_ARENA_LEND + TTI_ARENA_PAGE,

    TTI_MEETS = 3,           /* sets of flags, used by turns (gpu_window.c) */
    TTI_FLAG_STEP = 64,      /* between flags */
    TTI_LL_BYTES = 32 << 10, /* the largest message for one-shot LL */
    TTI_COUPLED_THREADS = TTI_PAIRED_THREADS,
    TTI_LINE_BYTES = 60 << 10, /* the largest message for one-shot LL128: whole lines */
    TTI_PACKET_BLOCKS = 8,     /* blocks of a plan whose messages go in packets or lines ... */
    TTI_PACKET_BYTES = TTI_PLAN_SLOT_BYTES, /* ... and what such a message takes at most */
    TTI_PROGRAMS = 16,                      /* plans that are kept on the device ... */
    TTI_PROGRAM_BYTES = 16 << 10,           /* ... of this size */
};

/* A plan on the device (gpu_plan.c). */
struct tti_gpu_program {
    const struct tti_algorithm *algorithm;
    struct tti_plan_spec spec;
    struct tti_program_shape shape;
    size_t at; /* in the arena */
    uint32_t chunks, lanes;
    bool reduces;
    bool fits; /* else it is not there */
};

/* Page-locked: what the device tells the host. */
struct tti_gpu_told {
    struct tti_gpu_status status;
    uint32_t poison;                     /* copy of the arena's, at the end of each operation */
    uint32_t progress;                   /* changes with each operation that ends ... */
    uint32_t inside;                     /* ... not 0: the stream is at one that waits for flags */
    unsigned char flags[TTI_ARENA_PAGE]; /* copy of the arena's, after a deadline ... */
    struct tti_message_lane lanes[TTI_MESSAGE_LANES]; /* ... and of those with one rank */
    uint32_t probe[2][TTI_ARENA_PAGE / 4];
    struct tti_lend_told lend;
    unsigned char program[TTI_PROGRAM_BYTES]; /* on its way to the device */
};

/* What each rank tells all others at first. Plain bytes. */
struct tti_gpu_hello {
    struct tti_arena_offer offer;
    struct tti_passing_door door; /* where descriptors for this rank are taken in */
    uint64_t bytes;               /* of the arena: asked for */
    int32_t way;                  /* the most that this rank allows */
    int32_t direct;               /* its buffers may be read where they lie, by its process */
    int32_t resident;             /* blocks of any coupled kernel that its device holds ... */
    int32_t left;                 /* ... and what other communicators of its process left of them */
    uint64_t nvls_from;           /* bytes; 0: it cannot, or may not (gpu_nvls.c) */
    uint64_t lend_from;           /* bytes; 0: it may not (gpu_lend.c) */
    uint64_t levels_from;         /* bytes; 0: it cannot, or never (gpu_levels.c) */
};

struct tti_gpu_map {
    int size, rank;        /* ranks of this host, and which of them this one is: "numbers" */
    int of[TTI_GPU_RANKS]; /* by number: the rank in the communicator */
    int hosts;             /* of the communicator, each with as many ranks */
    enum tti_gpu_way way;
    bool by_descriptor; /* the arena is memory that goes to other processes so */
    bool one_process;
    bool direct; /* one process, whose ranks read and write each other's buffers where they lie, */
    int others;  /* from so many devices besides this one (gpu_open.c) */
    int other[TTI_GPU_RANKS];
    bool lines;                /* stores of 128 bytes arrive whole, between any two ranks */
    int wire;                  /* TTI_WIRE_ that is asked for, or -1 */
    unsigned blocks;           /* of a coupled kernel, at most */
    struct tti_gpu_part *part; /* what this takes of the device; NULL: nothing */
    bool queues_short; /* ranks share the device, and the driver was not told of enough queues */
    struct tti_arena_map arenas[TTI_GPU_RANKS];
    struct tti_gpu_multicast *multicast; /* of the arenas, and its address; NULL: there is none */
    char *multi;
    size_t nvls_from;          /* bytes of an all-reduce that takes it */
    size_t lend_from;          /* bytes of a call on lent buffers: as this rank asks for */
    size_t levels_from;        /* bytes of a call that goes in levels; 0: none does */
    struct tti_gpu_lend *lend; /* NULL: nobody lends */
    size_t arena_bytes, lines_at, packets_at, programs_at, window_at, window_bytes;
    size_t messages_at, message_slot; /* where its box begins; bytes of a slot */
    size_t message_list; /* messages that a group's list has room for, behind the slots */
    struct tti_gpu_program programs[TTI_PROGRAMS];
    int program_count;
    struct tti_gpu_told *told;
    tutti_stream aside; /* for set-up and for what ends waits */

    /* gpu_watch.c */
    pthread_t watcher;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool watching, stop;
    bool poisoned;        /* the peers were told */
    uint32_t progress;    /* seen ... */
    uint64_t progress_ns; /* ... first at */
};

/* Threads of a block, at most `most`: the simulated device pays for each. The same on all ranks. */
static inline unsigned tti_gpu_threads(const struct tti_gpu *gpu, unsigned most)
{
    enum { SIMULATED = 64 };
    return gpu->ops == tti_gpu_sim() && most > SIMULATED ? SIMULATED : most;
}

/* For tests: TTI_WIRE_ that plans on the device take where it fits; -1: what is best. */
extern int tti_gpu_wire_asked;
/* For tests: sees, and may change, each rank's plan before it goes on the device. */
extern void (*tti_gpu_plan_made)(struct tti_plan *plan, int rank);

/* The number on this host of a rank of the communicator; -1: it is on another. */
static inline int tti_gpu_number(const struct tti_gpu_map *map, int rank)
{
    for (int k = 0; k < map->size; k++)
        if (map->of[k] == rank)
            return k;
    return -1;
}

/* By number. */
static inline char *tti_gpu_at(const struct tti_gpu_map *map, int number, size_t offset)
{
    return map->arenas[number].base + offset;
}

static inline struct tti_lend_page *tti_gpu_lend_page(const struct tti_gpu_map *map, int number)
{
    return (struct tti_lend_page *)(void *)tti_gpu_at(map, number, TTI_ARENA_LEND);
}

/* The algorithm that the settings name for a collective among the ranks of this host (select.h):
 * none where they are a part of the communicator. */
bool tti_gpu_forced(const struct tutti_comm *comm, enum tutti_collective collective, char *name,
                    size_t bytes);

/* Decide the way, and set it up; side->map is there afterwards. Under the side's lock. */
enum tutti_result tti_gpu_map_make(struct tutti_comm *comm);
/* Nothing is queued any more. */
void tti_gpu_map_destroy(struct tutti_comm *comm);
void tti_gpu_map_memory(const struct tti_gpu_side *side, struct tutti_memory *memory);

/* The same bytes of every rank at all, over the host's collectives; whether all say so; whether it
 * went well, and a line to the log if not. For set-up. */
enum tutti_result tti_gpu_map_gather(struct tutti_comm *comm, const void *mine, size_t bytes,
                                     void *all);
enum tutti_result tti_gpu_map_all(struct tutti_comm *comm, bool mine, bool *all);
bool tti_gpu_map_said(enum tutti_result result);

/* ---- gpu_share.c ---- */
/* Make the own arena (unless mine->way says that it is no use), tell all, map theirs. *all: every
 * rank did. */
enum tutti_result tti_gpu_share(struct tutti_comm *comm, struct tti_gpu_map *map, uint64_t deadline,
                                struct tti_gpu_hello *mine, struct tti_gpu_hello *hellos,
                                bool *all);

/* ---- gpu_nvls.c ---- */
enum tutti_result tti_gpu_nvls_make(struct tutti_comm *comm, struct tti_gpu_map *map,
                                    const struct tti_gpu_hello *hellos, uint64_t deadline);
void tti_gpu_nvls_drop(struct tti_gpu_side *side, struct tti_gpu_map *map);
/* Alike on all ranks. */
bool tti_gpu_nvls_takes(const struct tutti_comm *comm, const struct tti_operation *o);
enum tutti_result tti_gpu_nvls(struct tutti_comm *comm, const struct tti_operation *o,
                               tutti_stream stream);

/* ---- gpu_side.c ---- */
/* A collective of the ranks of this host, by their numbers, in the best of the ways below. */
enum tutti_result tti_gpu_mapped(struct tutti_comm *comm, const struct tti_operation *o,
                                 tutti_stream stream, bool capturing);

/* ---- gpu_window.c ---- */
enum tutti_result tti_gpu_window(struct tutti_comm *comm, const struct tti_operation *o,
                                 tutti_stream stream, bool capturing);
/* ---- gpu_message.c ---- */
/* Bytes of an arena that messages need at least; and what they get of `room`: their slots and the
 * list are sized. */
size_t tti_gpu_message_least(int size);
size_t tti_gpu_message_lay_out(struct tti_gpu_map *map, int size, size_t room);
struct tti_message_box *tti_gpu_message_box(const struct tti_gpu_map *map, int number);
/* A group of sends and receives, to and from ranks of this host. */
enum tutti_result tti_gpu_messages(struct tutti_comm *comm, const struct tti_operation *ops,
                                   size_t count, tutti_stream stream);
/* Would it be refused (USAGE)? For who queues something before it. */
enum tutti_result tti_gpu_messages_check(struct tutti_comm *comm, const struct tti_operation *ops,
                                         size_t count);
/* ---- gpu_blocks.c ---- */
/* This rank's communicator on its device, which holds so many blocks; the first of its ranks in
 * this process notes what is *left, and all of them get that. Then what they have together; and
 * over. */
enum tutti_result tti_gpu_blocks_take(const struct tti_gpu *gpu, uint64_t job, unsigned resident,
                                      struct tti_gpu_part **part, unsigned *left);
void tti_gpu_blocks_keep(struct tti_gpu_part *part, unsigned blocks);
void tti_gpu_blocks_give(struct tti_gpu_part *part);

/* ---- gpu_open.c: under the side's lock ---- */
/* The buffers of a collective may be read and written by the devices of the others, too. */
enum tutti_result tti_gpu_open(struct tutti_comm *comm, const struct tti_operation *o);

/* ---- gpu_couple.c ---- */
/* *served is false for what goes through the window; alike on all ranks. */
enum tutti_result tti_gpu_couple(struct tutti_comm *comm, const struct tti_operation *o,
                                 tutti_stream stream, bool *served);
struct tti_coupled_args tti_gpu_couple_args(const struct tutti_comm *comm,
                                            const struct tti_operation *o, size_t count);
/* ---- gpu_plan.c ---- */
/* By its plan: the one that is asked for by name, if `forced`, else a usual one. *served is false
 * where there is none that fits; alike on all ranks. */
enum tutti_result tti_gpu_plan(struct tutti_comm *comm, const struct tti_operation *o,
                               tutti_stream stream, bool forced, bool *served);
/* ---- gpu_alone.c: a communicator of one rank ---- */
enum tutti_result tti_gpu_alone(struct tutti_comm *comm, const struct tti_operation *o,
                                tutti_stream stream);

/* ---- gpu_fold.c: element kernels ---- */
/* dst = finish(src[0] op ... ), `count` elements of o's type: o's operator and, if `divisor`, its
 * average. `scale`: by this rank's factor of a pre-multiplied sum. */
enum tutti_result tti_gpu_fold(struct tutti_comm *comm, const struct tti_operation *o,
                               const void *const *src, int srcs, void *dst, size_t count,
                               uint32_t divisor, bool scale, tutti_stream stream);
bool tti_gpu_premultiplied(const struct tti_operation *o);
/* The same with operands, places and destinations in *args; sets its count, operator and divisor.
 */
enum tutti_result tti_gpu_fold_all(struct tutti_comm *comm, const struct tti_operation *o,
                                   struct tti_reduce_copy_args *args, size_t count,
                                   uint32_t divisor, tutti_stream stream);
/* Copy a range of the input's blocks to `packed`; multiplied, for a pre-multiplied sum. */
enum tutti_result tti_gpu_publish(struct tutti_comm *comm, const struct tti_gpu_range *r,
                                  uint32_t blocks, char *packed, tutti_stream stream);

/* ---- gpu_record.c ---- */
/* A collective of mapped ranks begins, outside of captures. Under the side's lock. */
void tti_gpu_record_begin(struct tutti_comm *comm, const struct tti_operation *o);
/* The same of a send or receive, which are numbered for each pair and not compared. */
void tti_gpu_record_message(struct tutti_comm *comm, const struct tti_operation *o);
/* Note what has ended, if all has: the watching thread, and who has waited. Without the lock. */
void tti_gpu_record_settle(struct tutti_comm *comm);
/* The watching thread's: at rank 0, have the ranks' calls compared. */
void tti_gpu_record_look(struct tutti_comm *comm);

/* ---- gpu_watch.c ---- */
enum tutti_result tti_gpu_watch_start(struct tutti_comm *comm);
void tti_gpu_watch_stop(struct tutti_comm *comm);
/* The communicator has ended, its work has not: a thread lets that through until it is over, on
 * memory that stays, and closes the device. False: there is none. */
bool tti_gpu_watch_leave(struct tutti_comm *comm);
/* What kernels have told, and (when work is over) whether a peer gave up meanwhile: fails the
 * communicator if that is a failure. */
void tti_gpu_look(struct tutti_comm *comm);
/* Have they told anything of the kind? */
bool tti_gpu_told(const struct tutti_comm *comm);
void tti_gpu_look_poison(struct tutti_comm *comm);
/* `result`, a failure, with the word of caution that its buffers may still be in use, if so. */
enum tutti_result tti_gpu_look_stuck(struct tutti_comm *comm, enum tutti_result result);

#endif
