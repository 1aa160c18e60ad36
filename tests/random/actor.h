/* A random program: steps drawn from a seed, the same on every rank, and how each rank carries them
 * out, drawn from the seed and its number. What is done: collectives with even and uneven blocks,
 * messages, puts; over several communicators, which are made and destroyed meanwhile. How:
 * blocking, asynchronous, in groups; in memory of several kinds at any address, which comes and
 * goes; late.
 *
 * Read random_programs.c (the program and its settings), steps.c, then call.c, buffer.c. */
#ifndef TTI_TESTS_ACTOR_H
#define TTI_TESTS_ACTOR_H

#include "tests/random/chance.h"
#include "tutti/tutti.h"

enum {
    RANDOM_RANKS = 8,
    RANDOM_FAMILIES = 6,
    RANDOM_WINDOWS = 3,
    RANDOM_ACTIVE = 24, /* calls of a rank that are not over */
    RANDOM_KEPT = 6,
    RANDOM_GUARD = 0xa5,
};

/* A communicator: what every rank knows of it, member or not. */
struct family {
    bool live;
    int size;
    int members[RANDOM_RANKS]; /* ranks of the whole program, by their ranks here */
    int own;                   /* this rank's here; -1: it is no member, and has no comm */
    tutti_comm *comm;
    bool premul; /* it has an operator that multiplies by these first */
    int scalars[RANDOM_RANKS];
    enum tutti_type premul_type;
    enum tutti_op op;
};

/* Some memory of one kind. */
enum buffer_kind {
    BUFFER_MALLOC,
    BUFFER_LIBRARY,
    BUFFER_REGISTERED,
    BUFFER_KINDS,
};

struct buffer {
    enum buffer_kind kind;
    char *base;
    size_t bytes;
    char *data;   /* what the call is about begins here; guards lie around it */
    char *device; /* the same place in device memory; NULL: it is on the host */
    char *device_base;
};

/* Blocks in a buffer, and what is in each. */
struct side {
    int blocks;
    size_t counts[RANDOM_RANKS], displs[RANDOM_RANKS];
    int from[RANDOM_RANKS], to[RANDOM_RANKS]; /* whose data for whom; from -1: all ranks' reduced */
    size_t span;                              /* elements from the first to the last */
    bool spread;                              /* displs differ from what they are by themselves */
};

/* A call as all ranks know it. counts[i][j]: elements from i to j, ranks of the family. */
struct call {
    int family;
    enum tutti_collective collective; /* TUTTI_SEND_RECV: messages between any two */
    bool uneven, in_place, device, empties;
    enum tutti_type type;
    enum tutti_op op; /* TUTTI_OP_USER: the family's own */
    int root;
    size_t counts[RANDOM_RANKS][RANDOM_RANKS];
    uint64_t salt; /* its data */
};

/* ... and on this rank. */
struct active {
    bool used;
    struct call call;
    struct side in_side, out_side;
    struct buffer in, out; /* in place: one, which both are */
    bool aliased;
    char *in_at, *out_at; /* what the call is given, on the host */
    tutti_request *requests[2 * RANDOM_RANKS];
    int waiting;
};

struct random_window {
    bool live;
    int family;
    size_t bytes;
    tutti_window *window; /* NULL: this rank is not in it */
    struct buffer memory;
};

struct actor {
    uint64_t seed;
    bool devices;    /* some calls are on device memory */
    bool unrecorded; /* there is no flight recorder */
    bool told;       /* all that it does is */
    struct draw all; /* the same on all ranks */
    struct draw own;
    int rank, size, step;
    int victim, dies_at; /* this rank is killed in that step (fate.h); -1: nobody is */
    char why[600];       /* what another thread of this rank was told; "": nothing */
    struct family families[RANDOM_FAMILIES]; /* the first has all ranks, and stays */
    struct random_window windows[RANDOM_WINDOWS];
    struct active active[RANDOM_ACTIVE];
    struct buffer kept[RANDOM_KEPT]; /* used before, and given again */
};

/* buffer.c: a buffer of this rank for so many bytes of data, guards around, all of it the guard's
 * value. release: the memory is given back, or kept for others. Both return 0, or 1 and say why. */
int buffer_take(struct actor *a, size_t bytes, bool device, struct buffer *b);
int buffer_release(struct actor *a, struct buffer *b);
/* Free what is kept. */
void buffer_end(struct actor *a);

/* call.c: drawn for the family, alike on all ranks. */
struct call call_draw(struct actor *a, int family);
/* A place for it, its buffers filled. */
int call_prepare(struct actor *a, const struct call *call, struct active **active);
/* Within a group or not, with requests or not. Messages make a group of their own. */
int call_start(struct actor *a, struct active *active, bool async);
/* Wait for its requests, look at its results, and release it. */
int call_finish(struct actor *a, struct active *active);
/* All of a family's, or (-1) of all. */
int call_finish_all(struct actor *a, int family);
/* One line: what it is. Returns `text`. */
const char *call_text(const struct call *call, char *text, size_t room);

/* values.c: element e of what rank `from` gives `to`; what it is reduced over the family; as an
 * element of the type. */
double value_of(const struct call *call, int from, int to, size_t e);
double value_reduced(const struct call *call, const struct family *family, int to, size_t e);
/* So many values in a row; at most VALUES_AT_A_TIME. */
enum { VALUES_AT_A_TIME = 256 };
void values_put(char *at, enum tutti_type type, const double *values, size_t count);

/* windows.c */
int step_window_create(struct actor *a);
int step_puts(struct actor *a);
int step_window_destroy(struct actor *a);
/* This rank's part of all windows of a family, or (-1) of all. */
int windows_end(struct actor *a, int family);

/* steps.c: `steps` of them, then all is released. */
int actor_run(struct actor *a, int steps);
/* A live family, by chance, and alike on all ranks. */
int family_draw(struct actor *a);
/* With --trace: a line of what this rank does. */
void actor_tell(const struct actor *a, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Wait a while, now and then. */
void actor_dawdle(struct actor *a);

#endif
