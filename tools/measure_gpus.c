/* GPUs: copies from page-locked memory, which is what the way to the host carries, and between each
 * two that can reach each other. Through the device interface, so on the simulated device as well.
 */
#include "tools/topo_measure.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/median.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES = 16 << 20, COPIES = 7, SETTLE_SECONDS = 10 };

struct card {
    struct tti_gpu *gpu;
    int node;
    void *memory, *pinned;
};

/* The node of a device: by its PCI address, or by its number where the nodes have none. */
static int card_node(const struct tti_topology *topology, const struct tti_gpu *gpu)
{
    int number = 0;
    for (int i = 0; i < tti_topology_end(topology, 0); i++) {
        const struct tti_node *node = &topology->nodes[i];
        if (node->kind != TTI_NODE_GPU)
            continue;
        if (*node->name ? *gpu->properties.pci && strncmp(node->name, gpu->properties.pci,
                                                          strlen(gpu->properties.pci)) == 0
                        : number == gpu->device)
            return i;
        number++;
    }
    return -1;
}

/* GB/s of copies from one place to another, on the stream of `gpu`. */
static enum tutti_result card_copies(struct tti_gpu *gpu, void *to, const void *from, double *gbs)
{
    double rates[COPIES];
    for (int i = -1; i < COPIES; i++) { /* the first one sets up */
        const uint64_t began = tti_now_ns();
        TTI_TRY(gpu->ops->copy(gpu, to, from, BYTES, NULL));
        TTI_TRY(tti_gpu_stream_wait(gpu, NULL, tti_deadline_in(SETTLE_SECONDS), "a copy"));
        if (i >= 0)
            rates[i] = (double)BYTES / (double)(tti_now_ns() - began + 1);
    }
    *gbs = tti_median(rates, COPIES);
    return TUTTI_OK;
}

static enum tutti_result card_host(struct measure *m, struct card *card)
{
    struct tti_graph_link link = {
        .kind = TTI_LINK_PCI, .from = card->node, .to = m->topology->nodes[card->node].parent};
    if (!measure_begin(m, card->node, 0))
        return TUTTI_OK;
    TTI_TRY(card_copies(card->gpu, card->memory, card->pinned, &link.gbs));
    return measure_keep(m, &link);
}

static enum tutti_result card_pair(struct measure *m, struct card *a, struct card *b)
{
    struct tti_graph_link link = {.kind = TTI_LINK_PEER, .from = a->node, .to = b->node};
    const struct tti_gpu_ops *ops = a->gpu->ops;
    bool reaches = false;
    TTI_TRY(ops->peer_can_access(a->gpu, b->gpu->device, &reaches));
    if (!reaches || !measure_begin(m, a->node, b->node))
        return TUTTI_OK;
    TTI_TRY(ops->peer_enable(a->gpu, b->gpu->device));
    TTI_TRY(card_copies(a->gpu, b->memory, a->memory, &link.gbs));
    return measure_keep(m, &link);
}

static enum tutti_result cards_open(struct measure *m, const struct tti_gpu_ops *ops, int count,
                                    struct card *cards)
{
    for (int i = 0; i < count; i++) {
        struct card *card = &cards[i];
        TTI_TRY(ops->open(i, &card->gpu));
        card->node = card_node(m->topology, card->gpu);
        TTI_TRY(ops->alloc(card->gpu, TTI_MEMORY_DEVICE, BYTES, &card->memory));
        TTI_TRY(ops->alloc(card->gpu, TTI_MEMORY_PINNED, BYTES, &card->pinned));
        memset(card->pinned, 1, BYTES);
    }
    return TUTTI_OK;
}

static enum tutti_result cards_measure(struct measure *m, int count, struct card *cards)
{
    for (int i = 0; i < count; i++)
        if (cards[i].node >= 0)
            TTI_TRY(card_host(m, &cards[i]));
    for (int i = 0; i < count; i++)
        for (int k = i + 1; k < count; k++)
            if (cards[i].node >= 0 && cards[k].node >= 0)
                TTI_TRY(card_pair(m, &cards[i], &cards[k]));
    return TUTTI_OK;
}

enum tutti_result measure_gpus(struct measure *m, const struct tti_gpu_ops *ops)
{
    int count = 0;
    TTI_TRY(ops->count(&count));
    struct card *cards = tti_calloc((size_t)count + 1, sizeof *cards);
    if (!cards)
        return TUTTI_ERR_MEMORY;
    enum tutti_result result = cards_open(m, ops, count, cards);
    if (result == TUTTI_OK)
        result = cards_measure(m, count, cards);
    if (result != TUTTI_OK)
        result = TTI_CONTEXT(result, "measuring GPUs");
    for (int i = 0; i < count && cards[i].gpu; i++) {
        ops->free(cards[i].gpu, cards[i].memory);
        ops->free(cards[i].gpu, cards[i].pinned);
    }
    for (int i = 0; i < count && cards[i].gpu; i++)
        ops->close(cards[i].gpu);
    free(cards);
    return result;
}
