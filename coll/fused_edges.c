/* Buffers of which peers can map all but the first and last few elements (coll/fused.h).
 *
 * Registering moves whole pages into shared memory; what is before and behind them stays private.
 * Those edges go through a small region of the communicator: copied there before the peers read,
 * copied back after they have written. The rank itself uses them there, too. */
#include "coll/fused.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>

bool tti_fused_edges_of(const void *data, size_t elements, size_t size, uint32_t *head,
                        uint32_t *tail)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = (uintptr_t)data, end = begin + elements * size;
    const uintptr_t low = (begin + page - 1) / page * page, high = end / page * page;
    if (page > TTI_FUSED_EDGE_BYTES / 2 || high <= low || high - low < page)
        return false;
    /* An element that lies across the border belongs to the edge. */
    size_t before = (low - begin + size - 1) / size, behind = (end - high + size - 1) / size;
    if (before + behind >= elements)
        return false;
    *head = (uint32_t)before;
    *tail = (uint32_t)behind;
    return true;
}

bool tti_fused_edges_sound(uint32_t head, uint32_t tail, size_t elements, size_t size)
{
    const size_t most = TTI_FUSED_EDGE_BYTES / size;
    return head <= most && tail <= most && (size_t)head + tail <= elements;
}

void tti_fused_view(struct tti_fused_view *view, char *mapped, char *aside, uint32_t head,
                    uint32_t tail, size_t elements, size_t size)
{
    *view = (struct tti_fused_view){.head_end = head, .tail_begin = elements - tail};
    if (elements > 0)
        view->middle = mapped - head * size;
    if (head + tail > 0) {
        view->head = aside;
        view->tail = aside + TTI_FUSED_EDGE_BYTES;
    }
}

void tti_fused_edges_out(const void *in, size_t elements, size_t size,
                         const struct tti_fused_edges *edges, char *aside)
{
    if (edges->in_head)
        memcpy(aside, in, edges->in_head * size);
    if (edges->in_tail)
        memcpy(aside + TTI_FUSED_EDGE_BYTES, (const char *)in + (elements - edges->in_tail) * size,
               edges->in_tail * size);
}

void tti_fused_edges_back(void *out, size_t elements, size_t size,
                          const struct tti_fused_edges *edges, const char *aside)
{
    if (edges->out_head)
        memcpy(out, aside + 2 * TTI_FUSED_EDGE_BYTES, edges->out_head * size);
    if (edges->out_tail)
        memcpy((char *)out + (elements - edges->out_tail) * size, aside + 3 * TTI_FUSED_EDGE_BYTES,
               edges->out_tail * size);
}
