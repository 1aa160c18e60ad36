/* coll/staged.c and the plans that it stands for are the same operations: the same bits, for counts
 * of less than a window and of many, in place and not, over any transport in memory, and when the
 * transport has room for little. Ranks outnumber the cores here because all are bound to one.
 *
 * Contributions are random, so the order of combination shows in the sums. */
#include "base/clock.h"
#include "coll/comm.h"
#include "coll/select.h"
#include "tests/integration/ranks.h"
#include "tests/memfd_flags.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RANKS = 3, MOST = 300001 }; /* more windows than are kept */
_Static_assert((size_t)MOST * 4 > (size_t)TTI_STAGED_LARGE,
               "the largest operation uses room twice");

struct buffers {
    char *in, *out, *plain;
};

/* The staged way of the operation; or NULL, when it is not offered. */
static const struct tti_selection *staged_way(tutti_comm *comm, const struct tti_operation *o,
                                              struct tti_ways *ways)
{
    if (tti_select_ways(comm, o->collective, o->count, o->type, false, ways) != TUTTI_OK)
        return NULL;
    for (int i = 0; i < ways->count; i++)
        if (ways->way[i].path == TTI_PATH_STAGED)
            return &ways->way[i];
    return NULL;
}

static enum tutti_result call(const struct tti_operation *o, tutti_comm *comm)
{
    if (o->collective == TUTTI_ALL_REDUCE)
        return tutti_all_reduce(o->in, o->out, o->count, o->type, o->op, comm);
    if (o->collective == TUTTI_BROADCAST)
        return tutti_broadcast(o->in, o->out, o->count, o->type, o->root, comm);
    return tutti_all_gather(o->in, o->out, o->count, o->type, comm);
}

/* The operation by its plan, or staged; the result is in b->out. */
static int run(tutti_comm *comm, struct tti_operation o, const struct buffers *b, bool in_place,
               const struct tti_selection *way)
{
    const size_t bytes = o.count * tutti_type_size(o.type);
    const size_t at = o.collective == TUTTI_ALL_GATHER ? (size_t)comm->rank * bytes : 0;
    char *in = in_place ? b->out + at : b->in;
    memset(b->out, 0x5a, bytes * (size_t)comm->size);
    uint32_t seed = (uint32_t)(comm->rank * 7919) + (uint32_t)o.count;
    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        seed = seed * 1664525u + 1013904223u;
        const float value = (float)(int)(seed >> 8) / 37.0f;
        memcpy(in + i * sizeof value, &value, sizeof value);
    }
    o.in = in;
    o.out = b->out;
    const uint64_t before = comm->staged;
    comm->settings.fast = way != NULL;
    tti_select_try(comm, way);
    enum tutti_result result = call(&o, comm);
    comm->settings.fast = true;
    tti_select_try(comm, NULL);
    if (result != TUTTI_OK)
        return fprintf(stderr, "%s\n", tutti_last_error()), 1;
    if (comm->staged - before != (way ? 1 : 0))
        return fprintf(stderr, "not by the path that was asked for\n"), 1;
    return 0;
}

static int compare(tutti_comm *comm, const struct tti_operation *o, const struct buffers *b)
{
    struct tti_ways ways;
    const size_t blocks = o->collective == TUTTI_ALL_GATHER ? (size_t)comm->size : 1;
    const size_t bytes = blocks * o->count * tutti_type_size(o->type);
    const struct tti_selection *way = staged_way(comm, o, &ways);
    if (!way)
        return fprintf(stderr, "%s: no staged way\n", tutti_collective_name(o->collective)), 1;
    for (int in_place = 0; in_place < 2; in_place++) {
        if (run(comm, *o, b, in_place, NULL))
            return 1;
        memcpy(b->plain, b->out, bytes);
        if (run(comm, *o, b, in_place, way))
            return 1;
        if (memcmp(b->plain, b->out, bytes) != 0)
            return fprintf(stderr, "%s %s %s count %zu root %d%s: other bits than the plan\n",
                           tutti_collective_name(o->collective), tutti_type_name(o->type),
                           tutti_op_name(o->op), o->count, o->root, in_place ? " in place" : ""),
                   1;
    }
    return 0;
}

static int every_operation(tutti_comm *comm, const struct buffers *b)
{
    static const enum tutti_collective collectives[] = {TUTTI_ALL_REDUCE, TUTTI_BROADCAST,
                                                        TUTTI_ALL_GATHER};
    static const enum tutti_type types[] = {TUTTI_FLOAT32, TUTTI_BFLOAT16, TUTTI_INT64,
                                            TUTTI_UINT8};
    static const size_t counts[] = {8192, 16385, MOST / 8};
    for (int c = 0; c < 3; c++)
        for (int t = 0; t < 4; t++)
            for (int op = 0; op < (c == 0 ? TUTTI_OP_COUNT : 1); op++)
                for (int i = 0; i < 3; i++) {
                    struct tti_operation o = {.collective = collectives[c],
                                              .count = counts[i],
                                              .type = types[t],
                                              .op = (enum tutti_op)op,
                                              .root = i % comm->size};
                    if (compare(comm, &o, b))
                        return 1;
                }
    struct tti_operation large = {
        .collective = TUTTI_ALL_REDUCE, .count = MOST, .type = TUTTI_FLOAT32};
    return compare(comm, &large, b);
}

/* Roots run ahead, and change, and so do sizes: what a window holds is not overwritten before it is
 * read. More operations in a row than windows are kept. */
static int ahead(tutti_comm *comm, const struct buffers *b)
{
    enum { TURNS = 1000, IN_A_ROW = TTI_STAGE_WINDOWS + 50 };
    static const int counts[] = {5000, 1024, 5000, 30000, 15000};
    int32_t *x = (int32_t *)(void *)b->out;
    int bad = 0;
    for (int turn = 0; turn < TURNS && !bad; turn++) {
        const int count = counts[turn / 2 % 5], root = turn / IN_A_ROW % comm->size;
        struct tti_operation o = {.collective = TUTTI_BROADCAST,
                                  .count = (size_t)count,
                                  .type = TUTTI_INT32,
                                  .out = b->out};
        struct tti_ways ways;
        for (int i = 0; i < count; i++)
            x[i] = turn * count + i + comm->rank;
        tti_select_try(comm, staged_way(comm, &o, &ways));
        bad = !comm->trial || tutti_broadcast(x, x, o.count, o.type, root, comm) != TUTTI_OK;
        for (int i = 0; i < count && !bad; i++)
            bad = x[i] != turn * count + i + root;
        tti_select_try(comm, NULL);
        if (bad)
            fprintf(stderr, "ahead: turn %d: %s\n", turn, tutti_last_error());
    }
    return bad;
}

static int body(tutti_comm *comm, void *argument)
{
    const size_t bytes = (size_t)MOST * 4 * RANKS;
    struct buffers b = {malloc(bytes), malloc(bytes), malloc(bytes)};
    (void)argument;
    int bad = !b.in || !b.out || !b.plain || every_operation(comm, &b) || ahead(comm, &b);
    free(b.in);
    free(b.out);
    free(b.plain);
    return bad;
}

/* A rank that makes another call is named. */
static int mismatch(tutti_comm *comm, void *argument)
{
    static float x[RANKS][9000];
    struct tti_ways ways;
    struct tti_operation o = {.collective = TUTTI_ALL_REDUCE, .count = 9000, .type = TUTTI_FLOAT32};
    (void)argument;
    o.count -= comm->rank == 1;
    tti_select_try(comm, staged_way(comm, &o, &ways));
    enum tutti_result result =
        tutti_all_reduce(x[comm->rank], x[comm->rank], o.count, TUTTI_FLOAT32, TUTTI_SUM, comm);
    tti_select_try(comm, NULL);
    if (result == TUTTI_ERR_MISMATCH && strstr(tutti_last_error(), "count 8999") &&
        tti_record_last_path(&comm->recorder.ring[0]) == TTI_RECORD_STAGED)
        return 0;
    return fprintf(stderr, "a mismatch gave %d: %s\n", (int)result, tutti_last_error()), 1;
}

/* Who only receives makes no stage; and it maps the root's as the root does, without huge pages:
 * most of it is never touched. */
static int only_roots_stage(tutti_comm *comm, void *argument)
{
    enum { TURNS = 10, BYTES = 256 << 10 };
    struct tti_operation o = {.collective = TUTTI_BROADCAST, .count = BYTES, .type = TUTTI_UINT8};
    struct tti_ways ways;
    struct tutti_memory before, after;
    unsigned char *x = calloc(1, BYTES);
    int plain = 0, bad = !x;
    (void)argument;
    o.in = o.out = x;
    comm->settings.fast = false; /* connects */
    bad = bad || tutti_broadcast(x, x, BYTES, TUTTI_UINT8, 0, comm) != TUTTI_OK ||
          tutti_comm_memory(comm, &before) != TUTTI_OK;
    comm->settings.fast = true;
    tti_select_try(comm, staged_way(comm, &o, &ways));
    for (int i = 0; i < TURNS && !bad; i++)
        bad = tutti_broadcast(x, x, BYTES, TUTTI_UINT8, 0, comm) != TUTTI_OK;
    bad = bad || comm->staged != TURNS || tutti_comm_memory(comm, &after) != TUTTI_OK;
    tti_select_try(comm, NULL);
    free(x);
    if (bad)
        return fprintf(stderr, "%s\n", tutti_last_error()), 1;
    const size_t made = after.shared - before.shared;
    const int stages = memfd_flags(TTI_STAGE_BYTES, "nh", &plain);
    if (made != (comm->rank == 0 ? TTI_STAGE_BYTES : 0) || !comm->stage != (comm->rank != 0))
        return fprintf(stderr, "rank %d has %zu bytes more\n", comm->rank, made), 1;
    if (stages != 1 || (plain != 1 && memfd_flags_exist()))
        return fprintf(stderr, "rank %d maps %d stages, %d without huge pages\n", comm->rank,
                       stages, plain),
               1;
    return 0;
}

/* ---- how far a root gets ahead ---- */

static _Atomic int begun; /* broadcasts that the root is through with */

/* The others come when the root is through with `least` broadcasts, which it can be without them;
 * then it must be at a stand, unless more than those are welcome. */
static int wait_for_root(int least, bool exact)
{
    const struct timespec tick = {.tv_nsec = 1000000};
    enum { TICKS = 60000, STANDS = 50 };
    for (int t = 0; t < TICKS && atomic_load(&begun) < least; t++)
        nanosleep(&tick, NULL);
    for (int t = 0; t < STANDS; t++)
        nanosleep(&tick, NULL);
    const int got = atomic_load(&begun);
    return got < least || (exact && got > least)
           ? fprintf(stderr, "the root got %d broadcasts ahead, not %d\n", got, least),
           1 : 0;
}

/* A byte at the start of each page, and the last one. */
static void write_marks(unsigned char *x, size_t bytes, int turn)
{
    for (size_t at = 0; at < bytes; at += TTI_STAGE_ALIGN)
        x[at] = (unsigned char)(turn + (int)(at / TTI_STAGE_ALIGN));
    x[bytes - 1] = (unsigned char)(turn + 101);
}

static int wrong_marks(const unsigned char *x, size_t bytes, int turn)
{
    int bad = x[bytes - 1] != (unsigned char)(turn + 101);
    for (size_t at = 0; at < bytes; at += TTI_STAGE_ALIGN)
        bad |= x[at] != (unsigned char)(turn + (int)(at / TTI_STAGE_ALIGN));
    if (bad)
        fprintf(stderr, "broadcast %d of %zu bytes: what came is not its own\n", turn, bytes);
    return bad;
}

static int lead(tutti_comm *comm, size_t bytes, int least, bool exact)
{
    enum { MORE = 100 }; /* so that the ring goes round while the others are behind */
    struct tti_operation o = {.collective = TUTTI_BROADCAST, .count = bytes, .type = TUTTI_UINT8};
    struct tti_ways ways;
    unsigned char *x = calloc(1, bytes);
    const struct tti_selection *way = staged_way(comm, &o, &ways);
    int bad = !x || !way || tutti_barrier(comm) != TUTTI_OK;
    if (comm->rank == 0)
        atomic_store(&begun, 0);
    bad |= tutti_barrier(comm) != TUTTI_OK;
    if (comm->rank == 1)
        bad |= wait_for_root(least, exact);
    tti_select_try(comm, way);
    for (int i = 0; i < least + MORE && !(bad && !way); i++) {
        if (comm->rank == 0 && x)
            write_marks(x, bytes, i);
        bad |= tutti_broadcast(x, x, bytes, TUTTI_UINT8, 0, comm) != TUTTI_OK;
        if (comm->rank == 0)
            atomic_fetch_add(&begun, 1);
        bad = bad || wrong_marks(x, bytes, i);
    }
    tti_select_try(comm, NULL);
    free(x);
    return bad;
}

/* A hundred and more small ones, so that few wait; few large ones, so that none waits long. */
static int leads(tutti_comm *comm, void *argument)
{
    const int large = *(const int *)argument;
    return lead(comm, 8 << 10, 200, false) || lead(comm, 60 << 10, 120, false) ||
           lead(comm, 64 << 10, large, true) || lead(comm, 256 << 10, large < 4 ? large : 4, true);
}

static int all_leads(void)
{
    struct tti_ranks how = {.ranks = RANKS, .options = TUTTI_OPTIONS_INIT};
    int usual = TTI_STAGED_AHEAD, any = TTI_STAGED_LARGE / TTI_STAGED_WINDOW;
    how.options.transports = "shm";
    int bad = tti_ranks_run(&how, leads, &usual);
    setenv("TUTTI_STAGED_AHEAD", "0", 1);
    bad += tti_ranks_run(&how, leads, &any);
    unsetenv("TUTTI_STAGED_AHEAD");
    printf("how far a root gets ahead: %s\n", bad ? "FAILED" : "ok");
    return bad;
}

/* ---- a root that leaves when it has made all its calls ---- */

enum late { READS, LEAVES, ABORTS, STAYS }; /* what the others do then */

static _Thread_local bool leaving;
static _Atomic int left;           /* roots that wait in destroy, or are through with their links */
static _Atomic int gone;           /* ... or are about to say goodbye */
static bool overdue;               /* ... for longer than was left of their time */
static const double stay_s = 1.05; /* all the time of a root that nobody reads from */

void __real_tti_links_sleep(struct tutti_comm *comm, int most_ms);
void __wrap_tti_links_sleep(struct tutti_comm *comm, int most_ms);
void __wrap_tti_links_sleep(struct tutti_comm *comm, int most_ms)
{
    if (leaving)
        atomic_store(&left, 1);
    __real_tti_links_sleep(comm, most_ms);
}

void __real_tti_links_end(struct tutti_comm *comm);
void __wrap_tti_links_end(struct tutti_comm *comm);
void __wrap_tti_links_end(struct tutti_comm *comm)
{
    __real_tti_links_end(comm);
    if (leaving)
        atomic_store(&left, 1);
}

/* All waits have one deadline: what the stage took, the goodbyes lack. A second is theirs. */
static _Thread_local uint64_t read_by, read_ns;

void __real_tti_stage_linger(struct tutti_comm *comm, uint64_t deadline);
void __wrap_tti_stage_linger(struct tutti_comm *comm, uint64_t deadline);
void __wrap_tti_stage_linger(struct tutti_comm *comm, uint64_t deadline)
{
    read_by = deadline;
    if (leaving && deadline > tti_deadline_in(comm->settings.linger_s - 1))
        overdue = true;
    __real_tti_stage_linger(comm, deadline);
    read_ns = tti_now_ns();
}

void __real_tti_boot_destroy(struct tti_boot *boot, double linger_s);
void __wrap_tti_boot_destroy(struct tti_boot *boot, double linger_s);
void __wrap_tti_boot_destroy(struct tti_boot *boot, double linger_s)
{
    const double rounded_s = 1e-3;
    if (leaving &&
        read_ns + (uint64_t)(linger_s * 1e9) > read_by + (uint64_t)((1 + rounded_s) * 1e9))
        overdue = true;
    if (leaving)
        atomic_store(&gone, 1);
    __real_tti_boot_destroy(boot, linger_s);
}

static int broadcasts(tutti_comm *comm, int count)
{
    enum { BYTES = 8 << 10 };
    struct tti_operation o = {.collective = TUTTI_BROADCAST, .count = BYTES, .type = TUTTI_UINT8};
    struct tti_ways ways;
    unsigned char x[BYTES] = "";
    const struct tti_selection *way = staged_way(comm, &o, &ways);
    int bad = !way;
    tti_select_try(comm, way);
    for (int i = 0; i < count && !bad; i++) {
        if (comm->rank == 0)
            write_marks(x, BYTES, i);
        bad = tutti_broadcast(x, x, BYTES, TUTTI_UINT8, 0, comm) != TUTTI_OK ||
              wrong_marks(x, BYTES, i);
    }
    tti_select_try(comm, NULL);
    return bad ? fprintf(stderr, "rank %d: %s\n", comm->rank, tutti_last_error()), 1 : 0;
}

/* Rank 0 is in destroy, with broadcasts that nobody has read, when the others come to them: they
 * find their data. It does not wait for those who have left, nor after a failure, nor for ever. */
static int leaves(tutti_comm *comm, void *argument)
{
    enum { UNREAD = 20, LONG_SECONDS = 3600 };
    const enum late late = *(const enum late *)argument;
    const struct timespec tick = {.tv_nsec = 1000000};
    tutti_comm *aside = NULL;
    int bad = 0;
    if (comm->rank == 0) {
        atomic_store(&left, 0);
        atomic_store(&gone, 0);
    }
    if (tutti_comm_split(comm, 0, comm->rank, &aside) != TUTTI_OK)
        return fprintf(stderr, "%s\n", tutti_last_error()), 1;
    aside->settings.linger_s = late == STAYS ? stay_s : LONG_SECONDS;
    bad = broadcasts(aside, 1); /* connects */
    if (comm->rank == 0) {
        bad |= broadcasts(aside, UNREAD);
        leaving = true;
    } else {
        while (!atomic_load(late == STAYS ? &gone : &left))
            nanosleep(&tick, NULL);
        if (late == READS)
            bad |= broadcasts(aside, UNREAD);
        else if (late == ABORTS && comm->rank == 1)
            tutti_comm_abort(aside, "the test says so");
    }
    tutti_comm_destroy(aside);
    bad |= leaving && overdue;
    leaving = false;
    return bad;
}

static int all_leave(const char *transport)
{
    struct tti_ranks how = {.ranks = RANKS, .options = TUTTI_OPTIONS_INIT};
    int bad = 0;
    how.options.transports = transport;
    for (enum late late = READS; late <= STAYS; late++)
        bad += tti_ranks_run(&how, leaves, &late);
    printf("a root leaves, %s: %s\n", transport, bad ? "FAILED" : "ok");
    return bad;
}

static int all(const char *transport, bool processes, const char *what)
{
    struct tti_ranks how = {.ranks = RANKS, .processes = processes, .options = TUTTI_OPTIONS_INIT};
    how.options.transports = transport;
    how.options.algorithms = "all_reduce=two_shot,all_gather=direct,broadcast=scatter_gather";
    int bad = tti_ranks_run(&how, body, NULL) + tti_ranks_run(&how, mismatch, NULL) +
              (processes ? tti_ranks_run(&how, only_roots_stage, NULL) : 0);
    printf("%d ranks over %s: %s\n", RANKS, what, bad ? "FAILED" : "ok");
    return bad;
}

int main(void)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0)
        return perror("sched_setaffinity"), 1;
    int failed = all("inproc", false, "inproc") + all("shm", true, "shm") + all_leads() +
                 all_leave("inproc") + all_leave("shm");
    /* No references, and room for less than a window. */
    setenv("TUTTI_SHM_REGION_FROM", "1M", 1);
    setenv("TUTTI_SHM_SLOT_BYTES", "4096", 1);
    setenv("TUTTI_SHM_SLOTS", "2", 1);
    failed += all("shm", false, "shm with little room");
    return failed ? 1 : 0;
}
