/* Memory: how long a load that no cache has takes, and how fast a core copies within it; from the
 * first core of every NUMA node to every NUMA node. */
#include "tools/topo_measure.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/median.h"
#include "device/near.h"

#include <linux/mempolicy.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LINE = 64, STEPS = 100000, COPIES = 5, MOST_NODES = 64 };
static const size_t LEAST_BYTES = 32 << 20, MOST_BYTES = (size_t)256 << 20;

struct line {
    struct line *next;
    char rest[LINE - sizeof(struct line *)];
};

struct look {
    int home_cpu, cpu; /* who touches the memory first, who measures */
    size_t bytes;
    struct line *lines;
    double latency_us, gbs;
    bool done;
};

static uint64_t look_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* One cycle through all lines, in no order that a prefetcher could guess (Sattolo). */
static void *look_touch(void *argument)
{
    struct look *look = argument;
    const size_t n = look->bytes / LINE;
    uint64_t random = 0x9e3779b97f4a7c15u;
    look->done = false;
    if (!measure_pin(look->home_cpu))
        return NULL;
    for (size_t i = 0; i < n; i++)
        look->lines[i].next = &look->lines[i];
    for (size_t i = n - 1; i > 0; i--) {
        const size_t k = (size_t)(look_random(&random) % i);
        struct line *next = look->lines[i].next;
        look->lines[i].next = look->lines[k].next;
        look->lines[k].next = next;
    }
    look->done = true;
    return NULL;
}

static void *look_measure(void *argument)
{
    struct look *look = argument;
    double copies[COPIES];
    look->done = false;
    if (!measure_pin(look->cpu))
        return NULL;
    const struct line *volatile at = look->lines;
    uint64_t began = tti_now_ns();
    for (int i = 0; i < STEPS; i++)
        at = at->next;
    look->latency_us = (double)(tti_now_ns() - began) / 1e3 / STEPS;
    const size_t half = look->bytes / 2;
    for (int i = 0; i < COPIES; i++) {
        began = tti_now_ns();
        memcpy((char *)look->lines + half, look->lines, half);
        copies[i] = (double)half / (double)(tti_now_ns() - began + 1);
    }
    look->gbs = tti_median(copies, COPIES);
    look->done = true;
    return NULL;
}

static enum tutti_result look_run(struct look *look, void *(*part)(void *))
{
    pthread_t thread; /* of its own: it pins itself */
    if (pthread_create(&thread, NULL, part, look) != 0)
        return TTI_FAIL(TUTTI_ERR_SYSTEM, "cannot start a thread to measure with");
    pthread_join(thread, NULL);
    return TUTTI_OK;
}

/* Whether the page that was touched last lies on the NUMA node. Where the kernel does not tell, it
 * lies where the core is that touched it, which is there if the node has any. */
static bool memory_is_at(const struct look *look, int numa, bool touched_there)
{
    const struct line *last = look->lines + look->bytes / LINE - 1;
    int node = -1;
    if (numa < 0 ||
        syscall(SYS_get_mempolicy, &node, NULL, 0UL, last, MPOL_F_NODE | MPOL_F_ADDR) != 0)
        return touched_there;
    return node == numa;
}

static enum tutti_result memory_pair(struct measure *m, struct look *look, int core, int home)
{
    const int numa = m->topology->nodes[home].os_index;
    const int home_core = measure_first_core(m->topology, home);
    look->cpu = measure_cpu(m->topology, core);
    look->home_cpu = measure_cpu(m->topology, home_core >= 0 ? home_core : core);
    if (!measure_begin(m, core, home))
        return TUTTI_OK;
    look->lines =
        mmap(NULL, look->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (look->lines == MAP_FAILED)
        return TTI_FAIL_ERRNO("no %zu bytes to measure memory with", look->bytes);
    (void)madvise(look->lines, look->bytes, MADV_HUGEPAGE);
    /* Who touches the pages first does not decide it where the node has no core of its own. */
    (void)tti_near_bind(look->lines, look->bytes, numa);
    enum tutti_result result = look_run(look, look_touch);
    const bool touched = look->done;
    const bool there = touched && memory_is_at(look, numa, home_core >= 0);
    if (result == TUTTI_OK && there)
        result = look_run(look, look_measure);
    munmap(look->lines, look->bytes);
    if (result != TUTTI_OK)
        return result;
    if (touched && !there)
        TTI_LOG(TTI_LOG_WARN, "memory of NUMA node %d could not be measured: none was to be had",
                numa);
    else if (!look->done)
        TTI_LOG(TTI_LOG_WARN, "memory could not be measured: no thread may run on CPU %d or %d",
                look->cpu, look->home_cpu);
    if (!there || !look->done) {
        m->left_out++;
        return TUTTI_OK;
    }
    const struct tti_graph_link link = {.kind = TTI_LINK_MEMORY,
                                        .from = core,
                                        .to = home,
                                        .latency_us = look->latency_us,
                                        .gbs = look->gbs};
    return measure_keep(m, &link);
}

enum tutti_result measure_memory(struct measure *m)
{
    const struct tti_topology *topology = m->topology;
    int homes[MOST_NODES], count = 0;
    struct look look = {.bytes = LEAST_BYTES};
    for (int i = 0; i < tti_topology_end(topology, 0); i++) {
        const struct tti_node *node = &topology->nodes[i];
        if (node->kind == TTI_NODE_NUMA && count < MOST_NODES)
            homes[count++] = i;
        if (node->kind == TTI_NODE_CACHE && 4 * node->bytes > look.bytes)
            look.bytes = 4 * node->bytes; /* that no cache holds it */
    }
    look.bytes = look.bytes < MOST_BYTES ? look.bytes : MOST_BYTES;
    for (int i = 0; i < count; i++) {
        const int core = measure_first_core(topology, homes[i]);
        for (int k = 0; k < count && core >= 0; k++)
            TTI_TRY(memory_pair(m, &look, core, homes[k]));
    }
    return TUTTI_OK;
}
