/* A turn that belongs to a thread (coll/turn.h): who gets it, who takes it away, and that never two
 * have it nor one waits for nobody. With so few turns in a row that it changes hands all the time.
 *
 * `litmus` looks for what a processor may do to who does without fences. Each round the owner takes
 * some turns while another thread comes at any moment and waits for one; then it takes none until
 * the other has had it, so a wake-up that is lost stays lost. (It finds a missing fence of the
 * others', and a missing look at either end. Not a missing fence of the compiler's: the compilers
 * of today leave the order alone.) */
#include "base/clock.h"
#include "base/fence_others.h"
#include "coll/comm.h"
#include "tests/forbid.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ThreadSanitizer's own accesses lie between all of ours: no processor's order is to be seen. */
#if defined(__SANITIZE_THREAD__)
enum { ROUNDS = 2000, ROUNDS_ON_ONE = 500 };
#else
enum { ROUNDS = 20000, ROUNDS_ON_ONE = 5000 };
#endif

/* A burst of turns takes some microseconds, and the other comes within it or a little later. */
enum {
    BURST = 1024,
    DELAY = 2048,
    PATIENCE_S = 60,
    CALLS = 2000,
    POSTS = 500,
};

/* A communicator of which there is no more than the queue. */
static struct tutti_comm *queue_alone(uint32_t enough)
{
    struct tutti_comm *comm = calloc(1, sizeof *comm);
    if (!comm || tti_work_queue_create(&comm->queue) != TUTTI_OK)
        abort();
    if (tti_fence_others_works())
        comm->queue.turn.enough = comm->queue.turn.enough_most = enough;
    return comm;
}

static void queue_gone(struct tutti_comm *comm)
{
    tti_work_queue_end(&comm->queue);
    tti_work_queue_destroy(&comm->queue);
    free(comm);
}

static unsigned word(struct tutti_comm *comm)
{
    return atomic_load(&comm->queue.turn.word);
}

/* False: one of them was not to be had. */
static bool turns(struct tutti_comm *comm, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!tti_turn_take_alone(&comm->queue))
            return false;
        tti_turn_end_alone(&comm->queue);
    }
    return true;
}

static void nap(void)
{
    const struct timespec moment = {.tv_nsec = 20000};
    nanosleep(&moment, NULL);
}

/* What another thread does once. */
enum by_other { PAUSES, TRIES, TAKES_MANY, ENDS };
struct other {
    struct tutti_comm *comm;
    enum by_other what;
    _Atomic bool got;
};

static void *other_does(void *argument)
{
    struct other *other = argument;
    struct tutti_comm *comm = other->comm;
    if (other->what == TAKES_MANY) {
        other->got = turns(comm, 4 * TTI_TURN_ENOUGH);
        return NULL;
    }
    if (other->what == ENDS) {
        tti_work_queue_end(&comm->queue);
        other->got = true;
        return NULL;
    }
    if (other->what == PAUSES)
        tti_work_pause(comm);
    other->got = other->what == PAUSES || tti_work_try_pause(comm);
    if (other->got)
        tti_work_resume(comm);
    return NULL;
}

static bool by_other(struct tutti_comm *comm, enum by_other what)
{
    struct other other = {comm, what, false};
    pthread_t thread;
    if (pthread_create(&thread, NULL, other_does, &other) != 0 || pthread_join(thread, NULL) != 0)
        abort();
    return other.got;
}

static int belongs(void)
{
    struct tutti_comm *comm = queue_alone(TTI_TURN_ENOUGH);
    comm->queue.turn.enough_most = TTI_TURN_ENOUGH_MOST;
    uint32_t enough = TTI_TURN_ENOUGH;
    for (int time = 0; time < 4; time++, enough *= 2) {
        CHECK(turns(comm, enough - 1) && word(comm) == 0);
        CHECK(turns(comm, 1) && word(comm) == TTI_TURN_OWNED);
        CHECK(turns(comm, 3) && word(comm) == TTI_TURN_OWNED);
        tti_work_pause(comm); /* the owner's own */
        tti_work_resume(comm);
        CHECK(tti_work_try_pause(comm));
        /* From within: as with anybody's turn. */
        CHECK(!tti_turn_take_alone(&comm->queue) && !tti_work_try_pause(comm));
        CHECK(!by_other(comm, TRIES)); /* an operation runs, which is no reason to take it away */
        tti_work_resume(comm);
        CHECK(word(comm) == TTI_TURN_OWNED);
        CHECK(by_other(comm, time % 2 ? PAUSES : TRIES));
        CHECK(word(comm) == 0);
    }
    /* Another thread never becomes the owner. */
    comm->queue.turn.enough = comm->queue.turn.enough_most = 2;
    CHECK(by_other(comm, TAKES_MANY) && word(comm) == 0);
    CHECK(turns(comm, enough) && word(comm) == TTI_TURN_OWNED);
    queue_gone(comm);
    return 0;
}

/* Who means to release the queue waits for an owner that has said that it leaves, and may not have
 * looked yet whether somebody waits. */
static int held_up_as_it_leaves(void)
{
    struct tutti_comm *comm = queue_alone(2);
    struct other other = {comm, ENDS, false};
    pthread_t thread;
    CHECK(turns(comm, 2) && word(comm) == TTI_TURN_OWNED);
    atomic_store(&comm->queue.turn.inside, TTI_TURN_LEAVING);
    CHECK(pthread_create(&thread, NULL, other_does, &other) == 0);
    const uint64_t deadline = tti_deadline_in(PATIENCE_S);
    while (word(comm) & TTI_TURN_OWNED && !tti_deadline_passed(deadline))
        nap();
    CHECK(!(word(comm) & TTI_TURN_OWNED));
    for (int i = 0; i < 500; i++)
        nap(); /* 10 ms at least, for one that does not wait */
    CHECK(!atomic_load(&other.got));
    tti_turn_hand_over(&comm->queue);
    CHECK(pthread_join(thread, NULL) == 0 && atomic_load(&other.got) && word(comm) == 0);
    tti_work_queue_destroy(&comm->queue);
    free(comm);
    return 0;
}

/* A later thread may be given the place of one that has ended, or not. */
static int owner_ends(void)
{
    struct tutti_comm *comm = queue_alone(TTI_TURN_ENOUGH);
    CHECK(by_other(comm, TAKES_MANY) && word(comm) == TTI_TURN_OWNED);
    for (int time = 0; time < 3; time++) {
        CHECK(by_other(comm, PAUSES));
        CHECK(tti_work_try_pause(comm)); /* by this one */
        CHECK(word(comm) == TTI_TURN_TAKEN || word(comm) == (TTI_TURN_TAKEN | TTI_TURN_WANTED));
        CHECK(!by_other(comm, TRIES));
        tti_work_resume(comm);
        CHECK(by_other(comm, TAKES_MANY));
    }
    queue_gone(comm);
    return 0;
}

/* ---- without the system's help ---- */

static void forbid(void)
{
    if (!forbid_call(SYS_membarrier))
        abort();
}

static int in_child(int (*function)(void))
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        const int failed = function();
        fflush(NULL);
        _exit(failed);
    }
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return 0;
}

/* Not under qemu's emulation of a user's process, say. */
static bool has_filters(void)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0)
        _exit(forbid_call(SYS_membarrier) ? 0 : 1);
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

static int forbidden_before(void)
{
    forbid();
    struct tutti_comm *comm = queue_alone(2);
    CHECK(!tti_fence_others_works());
    CHECK(turns(comm, 4 * TTI_TURN_ENOUGH) && word(comm) == 0);
    CHECK(by_other(comm, PAUSES) && turns(comm, 1));
    queue_gone(comm);
    return 0;
}

static int forbidden_later(void)
{
    struct tutti_comm *comm = queue_alone(2), *second = queue_alone(2);
    CHECK(turns(comm, 2) && word(comm) == TTI_TURN_OWNED);
    CHECK(turns(second, 2) && word(second) == TTI_TURN_OWNED);
    forbid();
    CHECK(tti_fence_others_works()); /* nobody has asked */
    CHECK(by_other(comm, PAUSES) && word(comm) == 0);
    CHECK(!tti_fence_others_works());
    CHECK(turns(comm, 4 * TTI_TURN_ENOUGH) && word(comm) == 0);
    CHECK(turns(second, 2) && by_other(second, TRIES) && word(second) == 0);
    queue_gone(comm);
    queue_gone(second);
    return 0;
}

/* A child asks for itself, or is asked for already. */
static int forked(void)
{
    struct tutti_comm *comm = queue_alone(2);
    CHECK(turns(comm, 2) && word(comm) == TTI_TURN_OWNED);
    CHECK(by_other(comm, PAUSES) && word(comm) == 0);
    CHECK(tti_fence_others_works());
    CHECK(turns(comm, 2) && word(comm) == TTI_TURN_OWNED);
    queue_gone(comm);
    return 0;
}

/* ---- litmus ---- */

struct litmus {
    struct tutti_comm *comm;
    _Atomic uint32_t round, served; /* begun; the other has had its turn */
    uint32_t rounds;
    bool tries, naps;
    /* Of who has the turn: plain words, on purpose. */
    volatile int holders;
    volatile uint64_t count;
    uint64_t expected[2], twice;
};

static uint32_t drawn(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)*state * below >> 32);
}

/* False: it has not come for a minute. */
static bool come(const _Atomic uint32_t *number, uint32_t wanted)
{
    const uint64_t deadline = tti_deadline_in(PATIENCE_S);
    for (int look = 0; atomic_load_explicit(number, memory_order_acquire) != wanted; look++) {
        if (look % 1024 == 1023) {
            tti_nap(0);
            if (tti_deadline_passed(deadline))
                return false;
        }
        tti_cpu_relax();
    }
    return true;
}

static void spin(uint32_t count)
{
    for (volatile uint32_t i = count; i > 0; i--)
        continue;
}

static void have_turn(struct litmus *l, int who, uint32_t length)
{
    l->twice += l->holders != 0;
    l->holders = 1;
    l->count = l->count + 1;
    if (who == 1 && l->naps)
        nap();
    spin(length);
    l->holders = 0;
    l->expected[who]++;
}

static void *litmus_other(void *argument)
{
    struct litmus *l = argument;
    uint32_t random = 1;
    for (uint32_t round = 1; round <= l->rounds; round++) {
        if (!come(&l->round, round))
            return NULL;
        if (l->naps)
            nap(); /* it comes back between any two instructions of the owner's */
        else
            spin(drawn(&random, DELAY));
        if (!l->tries)
            tti_work_pause(l->comm);
        while (l->tries && !tti_work_try_pause(l->comm))
            continue;
        have_turn(l, 1, 0);
        tti_work_resume(l->comm);
        atomic_store_explicit(&l->served, round, memory_order_release);
    }
    return NULL;
}

/* Some turns are short, some long. */
static void litmus_burst(struct litmus *l, uint32_t *random)
{
    for (uint32_t i = drawn(random, BURST) + 1; i > 0; i--)
        if (tti_turn_take_alone(&l->comm->queue)) {
            have_turn(l, 0, i % 64 == 1 ? DELAY : 0);
            tti_turn_end_alone(&l->comm->queue);
        }
}

static int litmus(uint32_t rounds, bool tries, bool naps)
{
    struct litmus *l = calloc(1, sizeof *l); /* the other may hold it still when this has failed */
    uint32_t random = 2;
    pthread_t thread;
    CHECK(l);
    l->comm = queue_alone(1);
    l->rounds = rounds;
    l->tries = tries;
    l->naps = naps;
    CHECK(pthread_create(&thread, NULL, litmus_other, l) == 0);
    for (uint32_t round = 1; round <= rounds; round++) {
        const uint64_t deadline = naps ? tti_deadline_in(PATIENCE_S) : 0;
        atomic_store_explicit(&l->round, round, memory_order_release);
        do
            litmus_burst(l, &random);
        while (naps && !tti_deadline_passed(deadline) &&
               atomic_load_explicit(&l->served, memory_order_relaxed) != round);
        CHECK(come(&l->served, round)); /* else nobody has woken it */
    }
    CHECK(pthread_join(thread, NULL) == 0);
    const uint64_t turns = l->expected[0] + l->expected[1];
    if (l->twice || l->count != turns)
        fprintf(stderr, "of %llu turns %llu were lost; %llu times somebody else had it, too\n",
                (unsigned long long)turns, (unsigned long long)(turns - l->count),
                (unsigned long long)l->twice);
    CHECK(l->twice == 0 && l->count == turns);
    queue_gone(l->comm);
    free(l);
    return 0;
}

/* On one processor, where who is interrupted stays so while the other has its turn. */
static int litmus_on_one(void)
{
    cpu_set_t all, one;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    const int failed = litmus(ROUNDS_ON_ONE, false, true);
    CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
    return failed;
}

/* ---- whole communicators ---- */

/* All calls are alike, so it is no matter which thread's come first on which rank. */
static int sum(tutti_comm *comm, bool posts)
{
    int one = 1, all = 0;
    tutti_request *request = NULL;
    if (posts) {
        CHECK_OK(
            tutti_all_reduce_async(&one, &all, 1, TUTTI_INT32, TUTTI_SUM, comm, NULL, &request));
        CHECK_OK(tutti_wait(request));
    } else {
        CHECK_OK(tutti_all_reduce(&one, &all, 1, TUTTI_INT32, TUTTI_SUM, comm));
    }
    CHECK(all == tutti_comm_size(comm));
    return 0;
}

struct caller {
    tutti_comm *comm;
    int failed;
    _Atomic bool *stop;
};

static void *posts(void *argument)
{
    struct caller *caller = argument;
    for (int i = 0; i < POSTS && !caller->failed; i++) {
        caller->failed = sum(caller->comm, i % 2);
        tti_nap(0);
    }
    return NULL;
}

static void *asks(void *argument)
{
    struct caller *caller = argument;
    struct tutti_memory memory;
    while (!atomic_load(caller->stop) && !caller->failed) {
        caller->failed = tutti_comm_memory(caller->comm, &memory) != TUTTI_OK ||
                         tutti_comm_error(caller->comm) != TUTTI_OK;
        tti_nap(0);
    }
    return NULL;
}

static int together(tutti_comm *comm, void *argument)
{
    _Atomic bool stop = false;
    struct caller caller[2] = {{comm, 0, &stop}, {comm, 0, &stop}};
    pthread_t thread[2];
    (void)argument;
    if (tti_fence_others_works())
        comm->queue.turn.enough = comm->queue.turn.enough_most = 2;
    CHECK(pthread_create(&thread[0], NULL, posts, &caller[0]) == 0);
    CHECK(pthread_create(&thread[1], NULL, asks, &caller[1]) == 0);
    for (int i = 0; i < CALLS; i++)
        if (sum(comm, false))
            return 1;
    CHECK(pthread_join(thread[0], NULL) == 0);
    atomic_store(&stop, true);
    CHECK(pthread_join(thread[1], NULL) == 0);
    CHECK(!caller[0].failed && !caller[1].failed);
    /* Now nobody else comes: it has an owner, if only now. */
    for (int i = 0; i < 4; i++)
        if (sum(comm, false))
            return 1;
    CHECK(!tti_fence_others_works() || atomic_load(&comm->queue.turn.owner) != 0);
    return 0;
}

static int ranks_together(bool processes)
{
    const struct tti_ranks how = {
        .ranks = 2, .processes = processes, .options = TUTTI_OPTIONS_INIT};
    return tti_ranks_run(&how, together, NULL) != 0;
}

int main(void)
{
    /* First, while the process has not been asked for; and as nobody can take a filter back, in
     * children. */
    const bool filters = has_filters();
    int failed = filters ? in_child(forbidden_before) : 0;
    failed += litmus(ROUNDS, false, false) + litmus(ROUNDS, true, false) + litmus_on_one();
    if (tti_fence_others_works())
        failed += belongs() + held_up_as_it_leaves() + owner_ends() + in_child(forked) +
                  (filters ? in_child(forbidden_later) : 0);
    failed += ranks_together(false) + ranks_together(true);
    printf("turns that belong to a thread%s%s: %s\n",
           tti_fence_others_works() ? "" : ", which here they do not",
           filters ? "" : ", but for a membarrier that is forbidden", failed ? "FAILED" : "ok");
    return failed ? 1 : filters ? 0 : 77; /* skipped, as far as a test can be in part */
}
