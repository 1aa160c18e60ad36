/* A block of simulated threads: fibers that one host thread turns, in random order.
 *
 * A thread runs until it waits (a barrier, a warp operation) or gives way (a poll, and by chance an
 * atomic access); then another of the block that can run is picked at random, from a seed. Threads
 * of different blocks run on different host threads, side by side. ThreadSanitizer sees every
 * simulated thread as one of its own, ordered with others only by what orders them on a GPU:
 * barriers, __syncwarp, and atomics. Implementation: sim_block.c, sim_fiber.c.
 *
 * The first half is for who runs blocks (sim_launch.c), the second for device code
 * (cuda_on_host.cuh); this header is C and C++. */
#ifndef TTI_DEVICE_SIM_BLOCK_H
#define TTI_DEVICE_SIM_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void tti_sim_kernel(const void *args);

struct tti_sim_dim {
    unsigned x, y, z;
};

/* ---- Running blocks. A crew is the fibers of a block; one host thread at a time. ------------- */

struct tti_sim_crew;
struct tti_sim_crew *tti_sim_crew_create(void); /* NULL: no memory */
void tti_sim_crew_destroy(struct tti_sim_crew *crew);

struct tti_sim_work {
    tti_sim_kernel *kernel;
    const void *args;
    unsigned block, blocks, threads;
    size_t shared_bytes;
    uint64_t seed;
};
/* Run one block to its end. False: no memory for its fibers, or (`stuck` says how many) threads
 * wait for others that have ended; then the crew must be destroyed. */
bool tti_sim_crew_run(struct tti_sim_crew *crew, const struct tti_sim_work *work, unsigned *stuck);

/* ---- For device code: the calling simulated thread. ------------------------------------------ */

extern __thread struct tti_sim_dim tti_sim_thread_index;
extern __thread struct tti_sim_dim tti_sim_block_index, tti_sim_block_size, tti_sim_grid_size;
void *tti_sim_shared(void); /* dynamic shared memory */

enum tti_sim_vote { TTI_SIM_COUNT, TTI_SIM_OR, TTI_SIM_AND };
/* The block's barrier; the sum, or, and of `value` (as 0 or 1) over its threads that have not
 * ended. */
int tti_sim_barrier(enum tti_sim_vote vote, int value);
/* The warp's barrier for the lanes of `mask`, with memory order. */
void tti_sim_warp_barrier(uint32_t mask);
/* Exchange among the lanes of `mask`, without memory order: what lane `from` gave. */
uint64_t tti_sim_warp_exchange(uint32_t mask, uint64_t value, uint32_t from);
/* The lanes of `mask` that gave true. */
uint32_t tti_sim_warp_ballot(uint32_t mask, bool value);
uint32_t tti_sim_lane(void);

/* A place where another thread may come in; and one where this thread polls, so that others must.
 */
void tti_sim_point(void);
void tti_sim_poll(void);
uint64_t tti_sim_ns(void);
/* Where the members of a multicast object have what stands at an address of it, in the order of
 * their devices; how many there are. */
unsigned tti_sim_multicast_at(const void *address, void *where[], unsigned most);

#ifdef __cplusplus
}
#endif
#endif
