/* Between cores: how long a cache line takes from one to the other, and how fast one reads what the
 * other has just written. Two threads, each on its core, take turns. */
#include "tools/topo_measure.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/median.h"
#include "base/memory.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    HOPS = 400, /* in a batch */
    BATCHES = 15,
    COPIES = 15,
    COPY_BYTES = 128 << 10, /* fits the caches of one core */
    MOST_PAIRS = 64,        /* of all cores; more cores: each with the first */
    POLLS_PER_LOOK = 4096,
};
static const double PAIR_SECONDS = 2;

struct pair {
    _Alignas(2 * TTI_CACHE_LINE) _Atomic uint64_t turn;
    _Alignas(2 * TTI_CACHE_LINE) int cpu[2];
    uint64_t deadline;
    char *written, *copy;
    double hops[BATCHES], copies[COPIES];
    _Atomic uint64_t failed;
};

/* False: the other one does not come. */
static bool pair_wait(struct pair *p, uint64_t turn)
{
    for (unsigned polls = 1; tti_load_acquire(&p->turn) != turn; polls++) {
        tti_cpu_relax();
        if (polls % POLLS_PER_LOOK == 0) {
            if (tti_load_acquire(&p->failed) || tti_deadline_passed(p->deadline))
                return false;
            sched_yield(); /* something else may have to run here */
        }
    }
    return true;
}

/* Side 0 makes the turn odd, side 1 even. */
static bool pair_hops(struct pair *p, int side, uint64_t *turn)
{
    for (int batch = 0; batch < BATCHES; batch++) {
        const uint64_t began = tti_now_ns();
        for (int i = 0; i < HOPS; i++, *turn += 2) {
            if (side == 0) {
                tti_store_release(&p->turn, *turn + 1);
                if (!pair_wait(p, *turn + 2))
                    return false;
            } else {
                if (!pair_wait(p, *turn + 1))
                    return false;
                tti_store_release(&p->turn, *turn + 2);
            }
        }
        if (side == 0)
            p->hops[batch] = (double)(tti_now_ns() - began) / 1e3 / (2 * HOPS);
    }
    return true;
}

static bool pair_copies(struct pair *p, int side, uint64_t *turn)
{
    for (int i = 0; i < COPIES; i++, *turn += 2) {
        if (side == 0) {
            memset(p->written, i + 1, COPY_BYTES);
            tti_store_release(&p->turn, *turn + 1);
            if (!pair_wait(p, *turn + 2))
                return false;
            continue;
        }
        if (!pair_wait(p, *turn + 1))
            return false;
        const uint64_t began = tti_now_ns();
        memcpy(p->copy, p->written, COPY_BYTES);
        p->copies[i] = (double)COPY_BYTES / (double)(tti_now_ns() - began + 1);
        tti_store_release(&p->turn, *turn + 2);
    }
    return true;
}

static void pair_side(struct pair *p, int side)
{
    uint64_t turn = 0;
    if (!measure_pin(p->cpu[side]) || !pair_hops(p, side, &turn) || !pair_copies(p, side, &turn))
        tti_store_release(&p->failed, 1);
}

static void *pair_zero(void *pair)
{
    pair_side(pair, 0);
    return NULL;
}

static void *pair_one(void *pair)
{
    pair_side(pair, 1);
    return NULL;
}

static enum tutti_result pair_run(struct pair *p)
{
    pthread_t threads[2];
    tti_store_release(&p->turn, 0);
    tti_store_release(&p->failed, 0);
    p->deadline = tti_deadline_in(PAIR_SECONDS);
    if (pthread_create(&threads[0], NULL, pair_zero, p) != 0)
        return TTI_FAIL(TUTTI_ERR_SYSTEM, "cannot start a thread to measure with");
    if (pthread_create(&threads[1], NULL, pair_one, p) != 0) {
        tti_store_release(&p->failed, 1);
        pthread_join(threads[0], NULL);
        return TTI_FAIL(TUTTI_ERR_SYSTEM, "cannot start a thread to measure with");
    }
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    return TUTTI_OK;
}

static enum tutti_result cores_pair(struct measure *m, struct pair *p, int from, int to)
{
    p->cpu[0] = measure_cpu(m->topology, from);
    p->cpu[1] = measure_cpu(m->topology, to);
    if (!measure_begin(m, from, to))
        return TUTTI_OK;
    TTI_TRY(pair_run(p));
    if (tti_load_acquire(&p->failed)) {
        TTI_LOG(TTI_LOG_WARN, "CPUs %d and %d could not be measured: they did not run together",
                p->cpu[0], p->cpu[1]);
        m->left_out++;
        return TUTTI_OK;
    }
    const struct tti_graph_link link = {.kind = TTI_LINK_CORE,
                                        .from = from,
                                        .to = to,
                                        .latency_us = tti_median(p->hops, BATCHES),
                                        .gbs = tti_median(p->copies, COPIES)};
    return measure_keep(m, &link);
}

/* Every core with every other; where that is too many, with the first one. */
static enum tutti_result cores_all(struct measure *m, struct pair *p, const int *cores, int count)
{
    const int firsts = count * (count - 1) / 2 <= MOST_PAIRS ? count : 1;
    for (int i = 0; i < firsts; i++)
        for (int k = i + 1; k < count; k++)
            TTI_TRY(cores_pair(m, p, cores[i], cores[k]));
    return TUTTI_OK;
}

enum tutti_result measure_cores(struct measure *m)
{
    const struct tti_topology *topology = m->topology;
    const int end = tti_topology_end(topology, 0);
    int count = 0;
    int *cores = tti_calloc((size_t)end, sizeof *cores);
    struct pair *p = tti_calloc_aligned(2 * (size_t)TTI_CACHE_LINE, 1, sizeof *p);
    char *memory = tti_calloc_aligned(4096, 2, COPY_BYTES);
    enum tutti_result result = cores && p && memory ? TUTTI_OK : TUTTI_ERR_MEMORY;
    for (int i = 0; i < end && cores; i++)
        if (topology->nodes[i].kind == TTI_NODE_CORE && measure_cpu(topology, i) >= 0)
            cores[count++] = i;
    if (result == TUTTI_OK) {
        p->written = memory;
        p->copy = memory + COPY_BYTES;
        memset(memory, 1, (size_t)2 * COPY_BYTES);
        result = cores_all(m, p, cores, count);
    }
    free(memory);
    free(p);
    free(cores);
    return result;
}
