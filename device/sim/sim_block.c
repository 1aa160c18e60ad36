/* The threads of a simulated block (sim_block.h): who runs next, barriers, warp operations.
 *
 * All of a crew is touched by one host thread only while it runs a block (by another one for the
 * next, perhaps), so nothing here is locked. This file and
 * sim_fiber.c are compiled without ThreadSanitizer, to which the fibers are threads of their own;
 * what orders simulated threads is told to it by hand (order_release, order_acquire). */
#include "device/sim/sim_block.h"

#include "base/clock.h"
#include "base/memory.h"
#include "device/sim/sim_fiber.h"

#include <sched.h>
#include <stdlib.h>

#if defined(TTI_SIM_TSAN) /* the build's ThreadSanitizer, switched off for this file */
#include <sanitizer/tsan_interface.h>
#define order_release(place) __tsan_release(place)
#define order_acquire(place) __tsan_acquire(place)
#else
#define order_release(place) ((void)(place))
#define order_acquire(place) ((void)(place))
#endif

enum {
    WARP = 32,
    MOST_THREADS = 1024,
    MOST_WARPS = MOST_THREADS / WARP,
    SHARED_BYTES = 48 << 10,
    POINT_CHANCE = 8,  /* one scheduling point in so many gives way */
    IDLE_SLEEP = 8,    /* rounds of nothing but polls, giving way, until the host thread sleeps */
    LONGER = 8,        /* ... as after so many times as many naps */
    DULL_BARRIERS = 8, /* at most, of a look for work by all threads in vain */
};

enum state { ENDED, RUNS, AT_BARRIER, AT_WARP };

struct sim_thread {
    struct tti_fiber fiber;
    struct tti_sim_crew *crew;
    unsigned index;
    enum state state;
    unsigned dull; /* the look (of the crew's) in which it polled last */
    /* A warp operation: what this lane gave, waits with whom, and got. */
    uint32_t mask, from, ballot;
    uint64_t gives, gets;
};

struct tti_sim_crew {
    struct sim_thread *threads;
    unsigned made;            /* threads with a fiber */
    void *stacks[MOST_WARPS]; /* a warp's */
    struct tti_fiber host;
    struct tti_sim_work work;
    char warp_order[MOST_WARPS];  /* each stands for its warp's barriers */
    uint16_t ready[MOST_THREADS]; /* those that can run */
    unsigned ready_count, alive, at_barrier;
    int count, result; /* of the barrier under way, and of the last */
    bool any, all;
    unsigned barrier_round;
    char barrier_order[2], begin_order, end_order;
    uint64_t random;
    unsigned polls;  /* in a row, by whoever: turns that ended in one ... */
    unsigned rounds; /* ... and how often all that could run had done so */
    bool polled;     /* the turn under way */
    /* Kernels that look for work with all threads, a barrier between their steps, and poll when
     * there was none: the look under way, who polled in it, its barriers, and how many before were
     * in vain. */
    unsigned dull, dull_polled, dull_barriers, dull_rounds;
    char *shared;
};

__thread struct tti_sim_dim tti_sim_thread_index;
__thread struct tti_sim_dim tti_sim_block_index, tti_sim_block_size, tti_sim_grid_size;
static __thread struct sim_thread *sim_self;

static uint64_t crew_random(struct tti_sim_crew *crew)
{
    uint64_t x = crew->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return crew->random = x;
}

static void crew_ready(struct tti_sim_crew *crew, struct sim_thread *thread)
{
    thread->state = RUNS;
    crew->ready[crew->ready_count++] = (uint16_t)thread->index;
}

/* ---- The crew's side --------------------------------------------------------------------------
 */

static void block_loop(void *argument)
{
    struct sim_thread *self = argument;
    struct tti_sim_crew *crew = self->crew;
    for (;;) {
        order_acquire(&crew->begin_order);
        crew->work.kernel(crew->work.args);
        order_release(&crew->end_order);
        self->state = ENDED;
        tti_fiber_switch(&self->fiber, &crew->host);
    }
}

struct tti_sim_crew *tti_sim_crew_create(void)
{
    struct tti_sim_crew *crew = tti_calloc(1, sizeof *crew);
    if (!crew)
        return NULL;
    crew->threads = tti_calloc(MOST_THREADS, sizeof *crew->threads);
    crew->shared = tti_calloc_aligned(128, SHARED_BYTES, 1);
    if (!crew->threads || !crew->shared) {
        tti_sim_crew_destroy(crew);
        return NULL;
    }
    return crew;
}

void tti_sim_crew_destroy(struct tti_sim_crew *crew)
{
    if (!crew)
        return;
    for (unsigned i = 0; i < crew->made; i++)
        tti_fiber_end_on(&crew->threads[i].fiber);
    for (unsigned w = 0; w < MOST_WARPS; w++)
        tti_fiber_stacks_destroy(crew->stacks[w], WARP);
    free(crew->threads);
    free(crew->shared);
    free(crew);
}

static bool crew_grow(struct tti_sim_crew *crew, unsigned threads)
{
    for (; crew->made < threads; crew->made++) {
        struct sim_thread *thread = &crew->threads[crew->made];
        void **stacks = &crew->stacks[crew->made / WARP];
        if (!*stacks && !(*stacks = tti_fiber_stacks_create(WARP)))
            return false;
        thread->crew = crew;
        thread->index = crew->made;
        tti_fiber_create_on(&thread->fiber, *stacks, crew->made % WARP, block_loop, thread);
    }
    return true;
}

static void crew_rest(unsigned rounds)
{
    if (rounds <= IDLE_SLEEP)
        sched_yield();
    else
        tti_nap(LONGER * (int)(rounds - IDLE_SLEEP));
}

/* All threads that can run poll, or all looked for work together and polled: what they wait for
 * comes from another host thread, which needs a core. Every round counts the turns of one poll
 * each; a wait that is long anyway is looked at seldom. A look with more barriers than one in vain
 * has found something. */
static void crew_idle(struct tti_sim_crew *crew)
{
    if (crew->polls >= crew->ready_count) {
        crew->polls = 0;
        crew_rest(++crew->rounds);
    } else if (crew->dull_polled > 0 && crew->dull_polled == crew->alive) {
        crew->dull_rounds = crew->dull_barriers > DULL_BARRIERS ? 0 : crew->dull_rounds + 1;
        crew->dull++;
        crew->dull_polled = crew->dull_barriers = 0;
        crew_rest(crew->dull_rounds);
    }
}

/* Threads that have ended do not hold up a barrier. */
static void barrier_open_if_full(struct tti_sim_crew *crew)
{
    if (crew->at_barrier == 0 || crew->at_barrier < crew->alive)
        return;
    crew->at_barrier = 0;
    crew->barrier_round++;
    crew->dull_barriers++;
    crew->result = crew->count | (crew->any ? 1 << 16 : 0) | (crew->all ? 1 << 17 : 0);
    crew->count = 0;
    crew->any = false;
    crew->all = true;
    for (unsigned i = 0; i < crew->work.threads; i++)
        if (crew->threads[i].state == AT_BARRIER)
            crew_ready(crew, &crew->threads[i]);
}

static void run_thread(struct tti_sim_crew *crew, struct sim_thread *thread)
{
    sim_self = thread;
    tti_sim_thread_index = (struct tti_sim_dim){thread->index, 0, 0};
    crew->polled = false;
    tti_fiber_switch(&crew->host, &thread->fiber);
    if (!crew->polled)
        crew->polls = crew->rounds = 0;
    if (thread->state == ENDED) {
        crew->alive--;
        barrier_open_if_full(crew);
    }
}

bool tti_sim_crew_run(struct tti_sim_crew *crew, const struct tti_sim_work *work, unsigned *stuck)
{
    *stuck = 0;
    if (!crew_grow(crew, work->threads))
        return false;
    crew->work = *work;
    crew->random = (work->seed + work->block + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
    crew->ready_count = crew->at_barrier = crew->polls = crew->rounds = 0;
    crew->dull++;
    crew->dull_polled = crew->dull_barriers = crew->dull_rounds = 0;
    crew->alive = work->threads;
    crew->count = 0;
    crew->any = false;
    crew->all = true;
    tti_fiber_adopt(&crew->host);
    tti_sim_block_index = (struct tti_sim_dim){work->block, 0, 0};
    tti_sim_block_size = (struct tti_sim_dim){work->threads, 1, 1};
    tti_sim_grid_size = (struct tti_sim_dim){work->blocks, 1, 1};
    for (unsigned i = 0; i < work->threads; i++)
        crew_ready(crew, &crew->threads[i]);
    order_release(&crew->begin_order);
    while (crew->ready_count > 0) {
        const unsigned pick = (unsigned)(crew_random(crew) % crew->ready_count);
        struct sim_thread *thread = &crew->threads[crew->ready[pick]];
        crew->ready[pick] = crew->ready[--crew->ready_count];
        run_thread(crew, thread);
        crew_idle(crew);
    }
    order_acquire(&crew->end_order);
    sim_self = NULL;
    *stuck = crew->alive;
    return crew->alive == 0;
}

/* ---- The simulated thread's side --------------------------------------------------------------
 */

static void give_way(struct sim_thread *self)
{
    struct tti_sim_crew *crew = self->crew;
    tti_fiber_switch(&self->fiber, &crew->host);
    sim_self = self; /* as run_thread has set it; for the compiler, which may keep the address */
}

void *tti_sim_shared(void)
{
    return sim_self->crew->shared;
}

uint32_t tti_sim_lane(void)
{
    return sim_self->index % WARP;
}

int tti_sim_barrier(enum tti_sim_vote vote, int value)
{
    struct sim_thread *self = sim_self;
    struct tti_sim_crew *crew = self->crew;
    char *order = &crew->barrier_order[crew->barrier_round % 2];
    order_release(order);
    crew->count += value != 0;
    crew->any |= value != 0;
    crew->all &= value != 0;
    crew->at_barrier++;
    self->state = AT_BARRIER;
    barrier_open_if_full(crew);
    give_way(self);
    order_acquire(order);
    const int result = crew->result;
    return vote == TTI_SIM_COUNT ? result & 0xffff
           : vote == TTI_SIM_OR  ? result >> 16 & 1
                                 : result >> 17 & 1;
}

/* Come together with the lanes of `mask`; those that have ended are not waited for. The last to
 * come hands every lane what it gets. */
static void warp_meet(struct sim_thread *self, uint32_t mask, uint64_t gives, uint32_t from)
{
    struct tti_sim_crew *crew = self->crew;
    struct sim_thread *lanes = &crew->threads[self->index / WARP * WARP];
    self->mask = mask;
    self->from = from % WARP;
    self->gives = gives;
    self->state = AT_WARP;
    uint32_t ballot = 0;
    for (unsigned lane = 0; lane < WARP; lane++) {
        if (!(mask >> lane & 1) || lanes[lane].state == ENDED)
            continue;
        if (lanes[lane].state != AT_WARP || lanes[lane].mask != mask) {
            give_way(self);
            return;
        }
        ballot |= (lanes[lane].gives ? 1u : 0u) << lane;
    }
    for (unsigned lane = 0; lane < WARP; lane++) {
        if (!(mask >> lane & 1) || lanes[lane].state == ENDED)
            continue;
        lanes[lane].ballot = ballot;
        lanes[lane].gets = lanes[lanes[lane].from].gives;
    }
    for (unsigned lane = 0; lane < WARP; lane++)
        if (lanes[lane].state == AT_WARP && lanes[lane].mask == mask)
            crew_ready(crew, &lanes[lane]);
    give_way(self);
}

void tti_sim_warp_barrier(uint32_t mask)
{
    struct sim_thread *self = sim_self;
    char *order = &self->crew->warp_order[self->index / WARP];
    order_release(order);
    warp_meet(self, mask, 0, 0);
    order_acquire(order);
}

uint64_t tti_sim_warp_exchange(uint32_t mask, uint64_t value, uint32_t from)
{
    struct sim_thread *self = sim_self;
    warp_meet(self, mask, value, from);
    return self->gets;
}

uint32_t tti_sim_warp_ballot(uint32_t mask, bool value)
{
    struct sim_thread *self = sim_self;
    warp_meet(self, mask, value, 0);
    return self->ballot;
}

void tti_sim_point(void)
{
    struct sim_thread *self = sim_self;
    struct tti_sim_crew *crew = self->crew;
    if (crew_random(crew) % POINT_CHANCE != 0)
        return;
    crew_ready(crew, self);
    give_way(self);
}

void tti_sim_poll(void)
{
    struct sim_thread *self = sim_self;
    struct tti_sim_crew *crew = self->crew;
    crew->polls++;
    crew->polled = true;
    if (self->dull != crew->dull) {
        self->dull = crew->dull;
        crew->dull_polled++;
    }
    crew_ready(crew, self);
    give_way(self);
}

uint64_t tti_sim_ns(void)
{
    return tti_now_ns();
}
