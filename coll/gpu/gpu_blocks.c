/* How much of a device the kernels of a communicator may take that wait for those of other ranks.
 * Kernels of two communicators that are at work at the same time, on several devices, may come to
 * each device in another order; if there is not room for all of them on each, some wait for others
 * that cannot begin. So what the communicators of a process have of a device is noted, and the next
 * gets a part of what is left (gpu_map.c); where little is left, a part of the whole all the same:
 * one that works alone is not to crawl for those that rest. */
#include "coll/gpu/gpu_map.h"

#include "base/memory.h"

#include <stdlib.h>

enum { LEAST_PART = 8 }; /* of the device, that is left at any rate */

struct tti_gpu_part {
    struct tti_gpu_part *next;
    const struct tti_gpu_ops *ops;
    int device;
    uint64_t job; /* the communicator's, of which this process may have several ranks there */
    int ranks;
    unsigned left, blocks; /* when the first came; what all of them have */
};

static pthread_mutex_t part_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tti_gpu_part *parts;

enum tutti_result tti_gpu_blocks_take(const struct tti_gpu *gpu, uint64_t job, unsigned resident,
                                      struct tti_gpu_part **part, unsigned *left)
{
    unsigned taken = 0;
    struct tti_gpu_part *found = NULL, *made = tti_calloc(1, sizeof *made);
    if (!made)
        return TUTTI_ERR_MEMORY;
    pthread_mutex_lock(&part_lock);
    for (struct tti_gpu_part *p = parts; p; p = p->next) {
        if (p->ops != gpu->ops || p->device != gpu->device)
            continue;
        found = p->job == job ? p : found;
        taken += p->blocks;
    }
    if (!found) {
        const unsigned least = (resident + LEAST_PART - 1) / LEAST_PART;
        const unsigned rest = resident > taken ? resident - taken : 0;
        *made = (struct tti_gpu_part){.next = parts,
                                      .ops = gpu->ops,
                                      .device = gpu->device,
                                      .job = job,
                                      .left = rest > least ? rest : least};
        made->blocks = made->left / 2; /* until it is known */
        parts = found = made;
        made = NULL;
    }
    found->ranks++;
    *part = found;
    *left = found->left;
    pthread_mutex_unlock(&part_lock);
    free(made);
    return TUTTI_OK;
}

void tti_gpu_blocks_keep(struct tti_gpu_part *part, unsigned blocks)
{
    pthread_mutex_lock(&part_lock);
    part->blocks = blocks;
    pthread_mutex_unlock(&part_lock);
}

void tti_gpu_blocks_give(struct tti_gpu_part *part)
{
    if (!part)
        return;
    pthread_mutex_lock(&part_lock);
    struct tti_gpu_part **link = &parts;
    while (*link != part)
        link = &(*link)->next;
    const bool last = --part->ranks == 0;
    if (last)
        *link = part->next;
    pthread_mutex_unlock(&part_lock);
    if (last)
        free(part);
}
