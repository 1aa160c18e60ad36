/* Communicators end and begin while the operations of another one wait for a rank that is at it:
 * ranks are threads that share a device, whose driver waits for all that is queued when memory is
 * freed or a kernel loaded. On the fake driver, which waits as well, nothing would go on before its
 * patience or the deadline ended. test_gpu_lifetime
 */
#include "base/clock.h"
#include "coll/gpu/gpu_map.h"
#include "device/pinned.h"
#include "tests/integration/device_calls.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SECONDS = 60, TURNS = 3 };

/* How often one rank has queued what waits for the others. */
static _Atomic int queued;
/* Ranks have a device each, as far as there are, and free what lies on the others'. */
static bool spread;
/* Ranks that are still to destroy their communicators, when one thread does it for all. */
static tutti_comm *_Atomic given[TTI_GPU_RANKS];

static enum tutti_result add(const int32_t *in, int32_t *out, tutti_comm *comm)
{
    return tutti_all_reduce_async(in, out, 1, TUTTI_INT32, TUTTI_SUM, comm, device_stream(), NULL);
}

static int until(const _Atomic int *count, int least)
{
    const time_t end = time(NULL) + SECONDS;
    while (atomic_load(count) < least && time(NULL) < end)
        usleep(1000);
    CHECK(atomic_load(count) >= least);
    return 0;
}

struct words {
    int32_t *in, *out;
};

static int words_make(tutti_comm *comm, struct words *w)
{
    const int32_t one = 1;
    CHECK(device_begin(spread ? tutti_comm_rank(comm) : 0) == 0);
    w->in = device_memory(sizeof one);
    w->out = device_memory(sizeof one);
    CHECK(w->in && w->out);
    CHECK_OK(device_copy(w->in, &one, sizeof one));
    CHECK_OK(device_settle());
    return 0;
}

static int words_begin(tutti_comm *comm, struct words *w)
{
    CHECK(words_make(comm, w) == 0);
    CHECK_OK(add(w->in, w->out, comm));
    CHECK_OK(device_settle());
    return 0;
}

static int words_end(tutti_comm *comm, const struct words *w)
{
    int32_t sum = 0;
    CHECK_OK(device_copy(&sum, w->out, sizeof sum));
    CHECK_OK(device_settle());
    CHECK(sum == tutti_comm_size(comm));
    device_free(w->in);
    device_free(w->out);
    return device_end(comm);
}

/* Rank 1 destroys its part of a communicator and has the other one's operation wait for the others,
 * who destroy theirs only then. (Rank 0 would listen for them for seconds.) */
static int ends(tutti_comm *comm, void *argument)
{
    const int rank = tutti_comm_rank(comm), few = *(const int *)argument;
    struct words w;
    CHECK(words_begin(comm, &w) == 0);
    for (int turn = 1; turn <= TURNS; turn++) {
        tutti_comm *other = NULL;
        CHECK_OK(tutti_comm_split(comm, rank < few ? 0 : -1, rank, &other));
        if (other)
            CHECK_OK(add(w.in, w.out, other));
        CHECK_OK(device_settle());
        CHECK_OK(tutti_barrier(comm));
        if (rank != 1)
            CHECK(until(&queued, turn) == 0);
        tutti_comm_destroy(other);
        CHECK_OK(add(w.in, w.out, comm));
        if (rank == 1)
            atomic_fetch_add(&queued, 1);
        CHECK_OK(device_settle());
        CHECK_OK(tutti_barrier(comm)); /* before the next is made, and rank 1 is ahead again */
    }
    return words_end(comm, &w);
}

/* One thread ends what belongs to all ranks, one after the other; rank 0's operation waits. */
static int ends_all(tutti_comm *comm, void *argument)
{
    const int rank = tutti_comm_rank(comm), ranks = tutti_comm_size(comm);
    tutti_comm *other = NULL;
    struct words w;
    (void)argument;
    CHECK(words_begin(comm, &w) == 0);
    CHECK_OK(tutti_comm_split(comm, 0, rank, &other));
    CHECK_OK(add(w.in, w.out, other));
    CHECK_OK(device_settle());
    atomic_store(&given[rank], other);
    CHECK_OK(tutti_barrier(comm));
    if (rank == 0) {
        CHECK_OK(add(w.in, w.out, comm));
        atomic_fetch_add(&queued, 1);
    }
    CHECK(until(&queued, 1) == 0);
    if (rank == ranks - 1)
        for (int r = ranks - 1; r >= 0; r--)
            tutti_comm_destroy(atomic_load(&given[r]));
    if (rank != 0)
        CHECK_OK(add(w.in, w.out, comm));
    return words_end(comm, &w);
}

/* Rank 0 has the first communicator's operation wait for the others, and begins with the second on
 * the device; they call the first's when the second's is over. */
static int begins(tutti_comm *comm, void *argument)
{
    const int rank = tutti_comm_rank(comm);
    tutti_comm *other = NULL;
    struct words w;
    int32_t sum = 0;
    (void)argument;
    CHECK(words_begin(comm, &w) == 0);
    int32_t *in = device_memory(sizeof sum), *out = device_memory(sizeof sum);
    tutti_stream stream = NULL;
    struct tti_gpu *gpu = device_gpu();
    CHECK(in && out && gpu->ops->stream_create(gpu, &stream) == TUTTI_OK);
    CHECK_OK(device_copy(in, w.in, sizeof sum));
    CHECK_OK(device_settle());
    CHECK_OK(tutti_comm_split(comm, 0, rank, &other));
    CHECK_OK(tutti_barrier(comm)); /* tests allocate, too */
    if (rank == 0)
        CHECK_OK(add(w.in, w.out, comm));
    CHECK_OK(tutti_all_reduce_async(in, out, 1, TUTTI_INT32, TUTTI_SUM, other, stream, NULL));
    CHECK_OK(tti_gpu_stream_wait(gpu, stream, tti_deadline_in(SECONDS), "the second communicator"));
    if (rank != 0)
        CHECK_OK(add(w.in, w.out, comm));
    CHECK_OK(device_settle());
    CHECK_OK(tutti_barrier(comm));
    CHECK_OK(device_copy(&sum, out, sizeof sum));
    CHECK_OK(device_settle());
    CHECK(sum == tutti_comm_size(comm));
    tutti_comm_destroy(other);
    gpu->ops->stream_destroy(gpu, stream);
    device_free(in);
    device_free(out);
    return words_end(comm, &w);
}

static enum tutti_result piece_take(struct tti_gpu *gpu, void **piece)
{
    const struct tti_pinned_want want = {
        .comm = UINT64_MAX, .ranks = 1, .deadline = tti_deadline_in(SECONDS)};
    return tti_gpu_pinned_take(gpu, &want, piece);
}

/* The ranks have met on the device; rank 0 comes with its first operation when the other's waits.
 * It allocates nothing then that would wait for that: a piece of page-locked memory for each rank
 * would be one too many for the block that there is. */
static int first_is_late(tutti_comm *comm, void *argument)
{
    enum { PIECES = TTI_PINNED_PIECES - 2 };
    void *pieces[PIECES];
    struct words w;
    (void)argument;
    CHECK(words_make(comm, &w) == 0);
    CHECK_OK(tutti_barrier_async(comm, device_stream(), NULL));
    for (int k = 0; k < PIECES && tutti_comm_rank(comm) == 0; k++)
        CHECK_OK(piece_take(comm->gpu->gpu, &pieces[k]));
    CHECK_OK(tutti_barrier(comm));
    if (tutti_comm_rank(comm) == 0)
        CHECK(until(&queued, 1) == 0);
    CHECK_OK(add(w.in, w.out, comm));
    if (tutti_comm_rank(comm) == 1)
        atomic_fetch_add(&queued, 1);
    CHECK_OK(device_settle());
    CHECK_OK(tutti_barrier(comm)); /* nobody waits where a block is freed */
    for (int k = 0; k < PIECES && tutti_comm_rank(comm) == 0; k++)
        tti_gpu_pinned_give(pieces[k], TTI_PINNED_OVER);
    return words_end(comm, &w);
}

/* Where the ranks do not meet on the device: their first operation is a message, or there are more
 * of them than share a map. When the first one comes there is one piece of page-locked memory left;
 * the others come when its operation waits for them. */
static int first_is_late_unmet(tutti_comm *comm, void *argument)
{
    enum { PIECES = TTI_PINNED_PIECES - 1 };
    const int rank = tutti_comm_rank(comm);
    void *pieces[PIECES];
    struct words w;
    (void)argument;
    CHECK(words_make(comm, &w) == 0);
    for (int k = 0; k < PIECES && rank == 0; k++)
        CHECK_OK(piece_take(device_gpu(), &pieces[k]));
    CHECK_OK(tutti_barrier(comm));
    if (rank != 0)
        CHECK(until(&queued, 1) == 0);
    if (tutti_comm_size(comm) > 2)
        CHECK_OK(add(w.in, w.out, comm));
    else if (rank == 0)
        CHECK_OK(tutti_recv_async(w.out, 1, TUTTI_INT32, 1, comm, device_stream(), NULL));
    else
        CHECK_OK(tutti_send_async(w.in, 1, TUTTI_INT32, 0, comm, device_stream(), NULL));
    if (rank == 0)
        atomic_fetch_add(&queued, 1);
    CHECK_OK(device_settle());
    CHECK_OK(tutti_barrier(comm));
    if (tutti_comm_size(comm) == 2)
        CHECK_OK(add(w.in, w.out, comm));
    for (int k = 0; k < PIECES && rank == 0; k++)
        tti_gpu_pinned_give(pieces[k], TTI_PINNED_OVER);
    return words_end(comm, &w);
}

static int run(const char *name, const char *path, int ranks, tti_rank_function *function, int few)
{
    struct tti_ranks how = {.ranks = ranks, .options = TUTTI_OPTIONS_INIT};
    const char *device = getenv("TUTTI_DEVICE");
    const struct tti_gpu_ops *ops = NULL;
    how.options.timeout_s = SECONDS;
    atomic_store(&queued, 0);
    const time_t from = time(NULL);
    int bad = device_ranks(name, path, how, function, &few);
    /* Who stood still until somebody's patience ended has not waited in vain by chance. */
    if (time(NULL) - from > SECONDS / 2) {
        printf("%s, %s: took %d s\n", name, path, (int)(time(NULL) - from));
        bad = 1;
    }
    CHECK_OK(tti_gpu_find(device ? device : "sim", &ops));
    CHECK(tti_gpu_retired(ops) == 0); /* all is the device's again */
    return bad;
}

/* ---- the rules, without communicators ---- */

/* The device with its page-locked allocations counted; what is opened is as in context `current`,
 * if that is not 0; allocations wait while they are held. */
static const struct tti_gpu_ops *real;
static struct tti_gpu_ops counting;
static _Atomic int allocated;
static _Atomic bool held_up;
static uint64_t current;

static enum tutti_result counting_open(int device, struct tti_gpu **gpu)
{
    const enum tutti_result result = real->open(device, gpu);
    if (result != TUTTI_OK)
        return result;
    (*gpu)->ops = &counting;
    (*gpu)->context = current ? current : (*gpu)->context;
    return TUTTI_OK;
}

static enum tutti_result counting_alloc(struct tti_gpu *gpu, enum tti_memory_kind kind,
                                        size_t bytes, void **memory)
{
    atomic_fetch_add(&allocated, 1);
    while (atomic_load(&held_up))
        usleep(1000);
    return real->alloc(gpu, kind, bytes, memory);
}

struct probe_user {
    struct tti_gpu_user user;
    bool over, captured;
};

static bool probe_idle(const struct tti_gpu_user *user, bool but_graphs)
{
    const struct probe_user *probe = (const void *)user;
    return probe->over && (but_graphs || !probe->captured);
}

static void probe_end(struct tti_gpu *gpu, void *ended)
{
    (void)gpu;
    ++*(int *)ended;
}

/* It has nothing of the parent's to free, and no user of its. */
static bool child_begins_anew(const struct tti_gpu_ops *ops)
{
    int status = -1;
    const pid_t child = fork();
    if (child == 0)
        _exit(tti_gpu_retired(ops) != 0);
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

/* Where nobody waits what is retired goes at once, whoever is in the gate; else when all are idle,
 * those that were left behind too, on any device. */
static int rules(struct tti_gpu *gpu, struct tti_gpu *other)
{
    struct probe_user calm = {.user.idle = probe_idle};
    struct probe_user busy = {.user = {.waits = true, .idle = probe_idle}};
    struct probe_user late = {.user.idle = probe_idle, .over = true};
    int ended = 0;
    CHECK_OK(tti_gpu_user_enter(&calm.user, gpu));
    tti_gpu_gate_enter(&calm.user);
    tti_gpu_retire(gpu, probe_end, &ended);
    CHECK(ended == 1);
    tti_gpu_gate_leave(&calm.user);
    CHECK_OK(tti_gpu_user_enter(&busy.user, other));
    tti_gpu_retire(gpu, probe_end, &ended);
    tti_gpu_reclaim(gpu->ops);
    CHECK(ended == 1 && tti_gpu_retired(gpu->ops) == 1);
    CHECK(child_begins_anew(gpu->ops));
    tti_gpu_user_leave(&busy.user, false);
    tti_gpu_reclaim(gpu->ops);
    busy.over = true;
    tti_gpu_reclaim(gpu->ops);
    CHECK(ended == 1); /* the other one's is not over */
    calm.over = true;
    tti_gpu_gate_enter(&calm.user);
    tti_gpu_reclaim(gpu->ops);
    CHECK(ended == 1);
    tti_gpu_gate_leave(&calm.user);
    CHECK_OK(tti_gpu_user_enter(&late.user, other));
    CHECK(calm.user.gate != late.user.gate); /* nobody waits for who calls on another device */
    tti_gpu_gate_enter(&late.user);
    tti_gpu_reclaim(gpu->ops);
    CHECK(ended == 1);
    tti_gpu_gate_leave(&late.user);
    tti_gpu_user_leave(&late.user, true);
    tti_gpu_reclaim_idle(&calm.user);
    CHECK(ended == 2 && tti_gpu_retired(gpu->ops) == 0);
    calm.over = false;
    tti_gpu_retire(gpu, probe_end, &ended);
    CHECK(ended == 3); /* nobody waits any more */
    tti_gpu_user_leave(&calm.user, true);
    return 0;
}

/* Once the work of one has failed, that of another is not waited for, even if nobody's waits for a
 * thread: only idle devices are freed on, and graphs do not count then. */
static int rules_failed(const struct tti_gpu *real_gpu)
{
    static struct tti_gpu_ops ops; /* what has failed stays so */
    struct tti_gpu gpu = *real_gpu;
    struct probe_user one = {.user.idle = probe_idle, .over = true};
    struct probe_user other = {.user.idle = probe_idle, .captured = true};
    struct probe_user busy = {.user = {.waits = true, .idle = probe_idle}, .over = true};
    int ended = 0;
    ops = *real_gpu->ops;
    gpu.ops = &ops;
    CHECK_OK(tti_gpu_user_enter(&one.user, &gpu));
    CHECK_OK(tti_gpu_user_enter(&other.user, &gpu));
    tti_gpu_retire(&gpu, probe_end, &ended);
    CHECK(ended == 1);
    tti_gpu_user_failed(&one.user);
    tti_gpu_retire(&gpu, probe_end, &ended);
    tti_gpu_user_leave(&one.user, true);
    tti_gpu_reclaim(&ops);
    CHECK(ended == 1 && tti_gpu_retired(&ops) == 1);
    other.over = true;
    CHECK_OK(tti_gpu_user_enter(&busy.user, &gpu));
    tti_gpu_reclaim(&ops);
    CHECK(ended == 1); /* a graph may wait for the busy one's thread */
    tti_gpu_user_leave(&busy.user, true);
    tti_gpu_reclaim(&ops);
    CHECK(ended == 2 && tti_gpu_retired(&ops) == 0);
    tti_gpu_user_leave(&other.user, true);
    return 0;
}

/* Pieces that work may be at yet are not lent again, their neighbours are; nor are those of another
 * context. */
static int pieces(struct tti_gpu *gpu)
{
    void *first = NULL, *again = NULL, *kept = NULL;
    CHECK_OK(piece_take(gpu, &kept));
    CHECK_OK(piece_take(gpu, &first));
    tti_gpu_pinned_give(first, TTI_PINNED_OVER);
    CHECK_OK(piece_take(gpu, &again));
    CHECK(again == first);
    gpu->context++; /* as if opened in another one */
    CHECK_OK(piece_take(gpu, &again));
    gpu->context--;
    CHECK(llabs((char *)again - (char *)kept) >= TTI_PINNED_PIECE * TTI_PINNED_PIECES);
    tti_gpu_pinned_give(again, TTI_PINNED_OVER);
    tti_gpu_pinned_give(first, TTI_PINNED_UNSURE);
    CHECK_OK(piece_take(gpu, &again));
    CHECK(again != first);
    tti_gpu_pinned_give(again, TTI_PINNED_OVER);
    tti_gpu_pinned_give(kept, TTI_PINNED_OVER);
    CHECK(tti_gpu_retired(gpu->ops) == 0);
    /* It is gone with its allocation. */
    const int before = atomic_load(&allocated);
    CHECK_OK(piece_take(gpu, &again));
    CHECK(atomic_load(&allocated) == before + 1);
    tti_gpu_pinned_give(again, TTI_PINNED_OVER);
    return 0;
}

static enum tutti_result party_take(struct tti_gpu *gpu, uint64_t comm, int ranks, void **piece)
{
    const struct tti_pinned_want want = {
        .comm = comm, .ranks = ranks, .deadline = tti_deadline_in(SECONDS)};
    return tti_gpu_pinned_take(gpu, &want, piece);
}

/* Another communicator fails beside one whose ranks are to come: they find what was promised, and
 * the last of them promises nothing again. Of one that ends with work under way nobody is expected
 * any more. */
static int promises_kept(struct tti_gpu *gpu)
{
    enum { RANKS = 4, ALL = TTI_PINNED_PIECES - 1 };
    struct probe_user busy = {.user = {.waits = true, .idle = probe_idle}}; /* no spare ones */
    void *pieces[RANKS], *failed = NULL, *more[ALL], *left = NULL;
    CHECK_OK(party_take(gpu, 1, RANKS, &pieces[0]));
    CHECK_OK(piece_take(gpu, &failed));
    const int before = atomic_load(&allocated);
    tti_gpu_pinned_give(failed, TTI_PINNED_UNSURE);
    for (int k = 1; k < RANKS; k++)
        CHECK_OK(party_take(gpu, 1, RANKS, &pieces[k]));
    for (int k = 0; k < TTI_PINNED_PIECES - RANKS - 1; k++)
        CHECK_OK(piece_take(gpu, &more[k]));
    CHECK(atomic_load(&allocated) == before);
    for (int k = 0; k < TTI_PINNED_PIECES - RANKS - 1; k++)
        tti_gpu_pinned_give(more[k], TTI_PINNED_OVER);
    for (int k = 0; k < RANKS; k++)
        tti_gpu_pinned_give(pieces[k], TTI_PINNED_OVER);
    CHECK(tti_gpu_retired(gpu->ops) == 0);

    CHECK_OK(tti_gpu_user_enter(&busy.user, gpu));
    CHECK_OK(party_take(gpu, 1, TTI_PINNED_PIECES, &left));
    const int then = atomic_load(&allocated);
    tti_gpu_pinned_give(left, TTI_PINNED_KEPT);
    for (int k = 0; k < ALL; k++)
        CHECK_OK(piece_take(gpu, &more[k]));
    CHECK(atomic_load(&allocated) == then);
    for (int k = 0; k < ALL; k++)
        tti_gpu_pinned_give(more[k], TTI_PINNED_OVER);
    tti_gpu_pinned_give(left, TTI_PINNED_OVER); /* the test's device ends */
    tti_gpu_user_leave(&busy.user, true);
    tti_gpu_reclaim(gpu->ops);
    CHECK(tti_gpu_retired(gpu->ops) == 0);
    return 0;
}

/* Communicators of one rank beside one that waits have spare pieces made, too; whichever context is
 * current where they are made; and are not made and freed each time that one comes and goes. */
static int spares(struct tti_gpu *gpu)
{
    enum { FEW = TTI_PINNED_PIECES - TTI_PINNED_SPARE, MANY = TTI_PINNED_PIECES + 2 };
    struct probe_user busy = {.user = {.waits = true, .idle = probe_idle}, .over = true};
    void *pieces[MANY];
    struct tti_gpu *own = NULL;
    current = gpu->context + 1;
    CHECK_OK(gpu->ops->open(0, &own));
    CHECK_OK(tti_gpu_user_enter(&busy.user, gpu));
    for (int k = 0; k <= FEW; k++)
        CHECK_OK(piece_take(own, &pieces[k]));
    current = 0; /* the thread that finds the devices idle */
    tti_gpu_reclaim(gpu->ops);
    current = own->context;
    const int before = atomic_load(&allocated);
    for (int k = FEW + 1; k < MANY; k++)
        CHECK_OK(piece_take(own, &pieces[k]));
    CHECK(atomic_load(&allocated) == before);
    for (int k = FEW; k < MANY; k++)
        tti_gpu_pinned_give(pieces[k], TTI_PINNED_OVER);
    CHECK_OK(piece_take(own, &pieces[FEW]));
    tti_gpu_reclaim(gpu->ops);
    CHECK(atomic_load(&allocated) == before);
    for (int k = 0; k <= FEW; k++)
        tti_gpu_pinned_give(pieces[k], TTI_PINNED_OVER);
    tti_gpu_user_leave(&busy.user, true);
    tti_gpu_reclaim(gpu->ops);
    CHECK(tti_gpu_retired(gpu->ops) == 0);
    gpu->ops->close(own);
    current = 0;
    return 0;
}

static void *takes_held_up(void *gpu)
{
    void *piece = NULL;
    if (piece_take(gpu, &piece) != TUTTI_OK)
        return NULL;
    return piece;
}

static bool stops(void *looks)
{
    return ++*(int *)looks == 3;
}

/* Who waits for another one's allocation can be told to stop. */
static int waits_stop(struct tti_gpu *gpu)
{
    pthread_t thread;
    int looks = 0;
    void *piece = NULL;
    const struct tti_pinned_want want = {.comm = 2,
                                         .ranks = 1,
                                         .deadline = tti_deadline_in(SECONDS),
                                         .stop = stops,
                                         .argument = &looks};
    const int before = atomic_load(&allocated);
    atomic_store(&held_up, true);
    CHECK(pthread_create(&thread, NULL, takes_held_up, gpu) == 0);
    CHECK(until(&allocated, before + 1) == 0);
    const enum tutti_result result = tti_gpu_pinned_take(gpu, &want, &piece);
    atomic_store(&held_up, false);
    CHECK(pthread_join(thread, &piece) == 0);
    CHECK(result == TUTTI_ERR_ABORTED && looks == 3 && piece);
    tti_gpu_pinned_give(piece, TTI_PINNED_OVER);
    return 0;
}

/* What the others of a communicator will take is theirs, and when little is left more is made as
 * soon as the devices are idle. */
static int promises(struct tti_gpu *gpu)
{
    enum { RANKS = TTI_PINNED_PIECES - TTI_PINNED_SPARE + 1 };
    struct probe_user busy = {.user = {.waits = true, .idle = probe_idle}};
    void *first = NULL, *second = NULL, *other[TTI_PINNED_SPARE], *later = NULL;
    CHECK_OK(tti_gpu_user_enter(&busy.user, gpu));
    CHECK_OK(party_take(gpu, 1, RANKS, &first));
    CHECK(tti_gpu_retired(gpu->ops) == 1); /* to make more */
    int before = atomic_load(&allocated);
    for (int k = 0; k < TTI_PINNED_SPARE - 1; k++)
        CHECK_OK(piece_take(gpu, &other[k]));
    CHECK(atomic_load(&allocated) == before);
    busy.over = true;
    tti_gpu_reclaim(gpu->ops);
    CHECK(tti_gpu_retired(gpu->ops) == 0);
    busy.over = false;
    CHECK(atomic_load(&allocated) == before + 1);
    CHECK_OK(party_take(gpu, 2, TTI_PINNED_PIECES, &later)); /* of what was made */
    CHECK(tti_gpu_retired(gpu->ops) == 1);
    CHECK_OK(party_take(gpu, 1, RANKS, &second)); /* as it was promised */
    CHECK(atomic_load(&allocated) == before + 1);
    for (int k = 0; k < TTI_PINNED_SPARE - 1; k++)
        tti_gpu_pinned_give(other[k], TTI_PINNED_OVER);
    tti_gpu_pinned_give(first, TTI_PINNED_OVER);
    tti_gpu_pinned_give(second, TTI_PINNED_OVER);
    tti_gpu_pinned_give(later, TTI_PINNED_OVER);
    tti_gpu_user_leave(&busy.user, true);
    tti_gpu_reclaim(gpu->ops);
    CHECK(tti_gpu_retired(gpu->ops) == 0);
    return 0;
}

/* Who came to one device is not expected at another. */
static int promises_of_devices(struct tti_gpu *gpu, struct tti_gpu *other)
{
    void *pieces[TTI_PINNED_PIECES], *there = NULL;
    CHECK_OK(party_take(gpu, 1, 2, &pieces[0]));
    CHECK_OK(party_take(other, 1, 2, &there));
    const int before = atomic_load(&allocated);
    for (int k = 1; k < TTI_PINNED_PIECES; k++)
        CHECK_OK(piece_take(gpu, &pieces[k]));
    CHECK(atomic_load(&allocated) == before);
    for (int k = 0; k < TTI_PINNED_PIECES; k++)
        tti_gpu_pinned_give(pieces[k], TTI_PINNED_OVER);
    tti_gpu_pinned_give(there, TTI_PINNED_OVER);
    CHECK(tti_gpu_retired(gpu->ops) == 0);
    return 0;
}

static int rules_run(void)
{
    const char *device = getenv("TUTTI_DEVICE");
    struct tti_gpu *gpu = NULL, *other = NULL;
    CHECK_OK(tti_gpu_find(device ? device : "sim", &real));
    counting = *real;
    counting.open = counting_open;
    counting.alloc = counting_alloc;
    CHECK_OK(counting.open(0, &gpu));
    CHECK_OK(counting.open(1, &other));
    const int bad = rules(gpu, other) || rules_failed(gpu) || pieces(gpu) || promises(gpu) ||
                    promises_kept(gpu) || promises_of_devices(gpu, other) || spares(gpu) ||
                    waits_stop(gpu);
    real->close(other);
    real->close(gpu);
    return bad;
}

int main(int argc, char **argv)
{
    static const char *const paths[] = {"coupled", "window", "staged"};
    const char *only = argc > 1 ? argv[1] : "";
    int bad = rules_run();
    for (int turn = 0; turn < 6; turn++) {
        const int p = turn % 3;
        spread = turn >= 3;
        if (!*only || strcmp(only, "ends") == 0) {
            bad |= run("communicators of the same ranks end", paths[p], 2, ends, 2);
            bad |= run("... of some of the ranks", paths[p], 4, ends, 2);
            bad |= run("... by one thread", paths[p], 3, ends_all, 3);
        }
        if (!*only || strcmp(only, "begins") == 0) {
            bad |= run("a communicator begins", paths[p], 2, begins, 2);
            bad |= run("a rank's first operation is late", paths[p], 2, first_is_late, 2);
            bad |= run("... and a message", paths[p], 2, first_is_late_unmet, 2);
            if (p == 2 && !spread)
                bad |=
                    run("... of many ranks", paths[p], TTI_GPU_RANKS + 1, first_is_late_unmet, 2);
        }
    }
    return bad != 0;
}
