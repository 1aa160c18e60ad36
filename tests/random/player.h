/* A random program as NCCL's users write them: nccl.h and CUDA's driver are all that it knows.
 * Steps are drawn from a seed, the same on every rank; how each carries them out, on which streams,
 * in groups, captured, in which memory, from the seed and its number.
 *
 * Read random_nccl.c (the program and its settings), hand.c, player_steps.c, player_call.c,
 * player_fate.c. */
#ifndef TTI_TESTS_PLAYER_H
#define TTI_TESTS_PLAYER_H

#include <nccl.h>

#include "tests/nccl/nccl_driver.h"
#include "tests/random/chance.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    PLAYERS_MOST = 8,
    BANDS_MOST = 5,
    PARTS_MOST = 12, /* calls of a rank that are not over */
    PLACES = 2 * PARTS_MOST,
    PLACE_BYTES = 256 << 10,
    STREAMS = 3,
    GUARD = 0xa5,
    GUARD_BYTES = 128,
    FACTOR_BYTES = 8,
};

extern struct nccl_driver cu;

/* A communicator: what every rank knows of it, member or not. */
struct band {
    bool live;
    int size;
    int members[PLAYERS_MOST]; /* ranks of the whole program, by their ranks here */
    int own;                   /* this rank's here; -1: it is no member, and has no comm */
    ncclComm_t comm;
    bool captures; /* some of its calls were captured, maybe on other ranks */
    bool premul;   /* it has an operator that multiplies by these first */
    int scalars[PLAYERS_MOST];
    ncclDataType_t premul_type;
    ncclRedOp_t op;
    bool op_of_device; /* this rank's factor is in device memory: not to be captured */
};

/* Some memory that NCCL takes, and page-locked memory for what is copied there and back. */
enum memory { MEMORY_CUDA, MEMORY_NCCL, MEMORY_PINNED, MEMORY_MANAGED, MEMORIES };
struct place {
    enum memory memory;
    char *device, *before, *after;
    size_t begin, bytes; /* what the call is about, and guards around it: the first `bytes` */
    bool taken;
};

enum what {
    ALL_REDUCE,
    REDUCE,
    BROADCAST,
    BCAST,
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    GATHER,
    SCATTER,
    MESSAGES,
    GATHER_V,  /* an all-gather of blocks that differ, by a group of broadcasts */
    SCATTER_V, /* a reduce-scatter likewise, by a group of reduces */
    WHATS,
};

/* A call as all ranks know it. counts[i][j]: elements from i to j, ranks of the band. */
struct part {
    int band;
    enum what what;
    bool in_place, empties;
    ncclDataType_t type;
    ncclRedOp_t op; /* ncclNumOps: the band's own */
    int root;
    size_t counts[PLAYERS_MOST][PLAYERS_MOST];
    uint64_t salt; /* its data */
};

/* Blocks of a buffer, one after another: whose data for whom; from -1: all ranks' reduced. */
struct blocks {
    int count;
    size_t counts[PLAYERS_MOST], at[PLAYERS_MOST], span;
    int from[PLAYERS_MOST], to[PLAYERS_MOST];
};

/* ... and on this rank. */
struct playing {
    bool used;
    struct part part;
    struct blocks in, out;
    struct place *source, *target; /* in place: one, which both are */
    size_t source_at, target_at;
    cudaStream_t stream;
};

struct player {
    uint64_t seed;
    struct draw all; /* the same on all ranks */
    struct draw own;
    int rank, size, step, steps, device;
    bool threads; /* ranks share a process */
    bool crowded; /* a thread has several ranks, in this program */
    bool kills;   /* a rank is to die: the victim, a moment after the step where it dies begins */
    int victim, dies_at;
    cudaStream_t streams[STREAMS];
    struct band bands[BANDS_MOST]; /* the first has all ranks, and stays */
    ncclComm_t made;               /* the next band's, from when it begins to be made */
    struct place places[PLACES];
    struct playing playing[PARTS_MOST];
    void *context, *registered[BANDS_MOST];
    device_pointer factors; /* of each band's operator, FACTOR_BYTES apart */
};

/* Who says what is wrong, and ends the process. */
void player_fail(const char *file, int line, const char *what, const char *why)
    __attribute__((noreturn));
void player_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define CHECK(condition)                                           \
    do {                                                           \
        if (!(condition))                                          \
            player_fail(__FILE__, __LINE__, #condition, "not so"); \
    } while (0)
/* Also of a communicator that does not block: see band_settle. */
#define OK(call)                                                            \
    do {                                                                    \
        const ncclResult_t ok_ = (call);                                    \
        if (ok_ != ncclSuccess && ok_ != ncclInProgress)                    \
            player_told(__FILE__, __LINE__, #call, ncclGetLastError(NULL)); \
    } while (0)
#define CU(call)                                                            \
    do {                                                                    \
        if ((call) != 0)                                                    \
            player_fail(__FILE__, __LINE__, #call, ncclGetLastError(NULL)); \
    } while (0)

/* player_memory.c: the driver; a rank's streams and memory, which last as long as it: to free
 * memory waits for all work of a device, that of ranks that wait for this one too. */
void driver_load(void);
void player_begin(struct player *p);
void player_end(struct player *p);
struct place *place_take(struct player *p, size_t bytes);
void place_give(struct place *place);
/* What came back is what `before` has by now, guards too. */
void place_check(const struct place *place, const char *what);
void place_copy(const char *to, const char *from, size_t bytes, cudaStream_t stream);

/* player_data.c */
struct part part_draw(struct player *p, int band);
const char *part_text(const struct part *part, char *text, size_t room);
size_t type_bytes(ncclDataType_t type);
double value_of(const struct part *part, int from, int to, size_t e);
double value_reduced(const struct part *part, const struct band *band, int to, size_t e);
void value_put(char *at, ncclDataType_t type, double value);

/* player_call.c: a place for the call, its memory filled on the host. */
struct playing *call_prepare(struct player *p, const struct part *part, cudaStream_t stream);
/* Copy there what it is about, and make the call: both on its stream. */
void call_start(struct player *p, struct playing *x);
/* Wait for it, look at all of its memory, and release it. */
void call_finish(struct player *p, struct playing *x);
/* All of a band's, or (-1) of all. */
void call_finish_all(struct player *p, int band);
/* Until what was called without blocking is under way. Not within a group. */
void band_settle(const struct band *band);
void bands_settle(const struct player *p);

/* player_puts.c: puts of all ranks of a band into all windows, and signals. */
void step_puts(struct player *p);

/* player_steps.c: all of them; then all is released, unless a rank was killed. */
void player_run(struct player *p);
/* A live band, by chance, and alike on all ranks. */
int band_draw(struct player *p);

/* hand.c: call play(arguments[k]) for each of `many` ranks of this thread, in turns; returns when
 * all are over. */
void hand_play(void (*play)(void *argument), void *const *arguments, int many);
/* The one whose turn it is in this thread; NULL: nobody's yet. */
extern _Thread_local struct player *player;
/* All ranks are here. */
void all_meet(void);
/* ... those of this thread. */
void hand_meet(void);
/* Another rank of this thread has its turn, if there is one. */
void hand_pass(void);
/* Around what waits for other ranks: a group of all ranks of this thread, if a thread of the
 * program has several. All of them come here. No wait between the two. */
void together_begin(struct player *p);
/* Then all communicators are settled. */
void together_end(struct player *p);

/* player_fate.c: before the processes of a program begin. */
void fate_prepare(void);
/* Who is to die, and when. */
void fate_draw(struct player *p);
/* A step begins. */
void fate_step(struct player *p);
/* Until the death is heard of, and what the survivors do then. */
void fate_run(struct player *p, void (*run)(struct player *p));
/* A call has failed: that must be because of the death, or all is wrong. */
void player_told(const char *file, int line, const char *call, const char *why)
    __attribute__((noreturn));

/* random_nccl.c: all threads, or processes, are here. */
void hands_meet(void);
/* What the ranks of the program pass each other beside NCCL: an id by number, once.
 */
void id_give(unsigned number, const ncclUniqueId *id);
void id_take(unsigned number, ncclUniqueId *id);

#endif
