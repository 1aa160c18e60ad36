/* A trainer's checkpoints (trainer.h): parameters under their own names, and for each piece that
 * this rank's optimizer keeps, its master and states. Pieces are flat, so that it does not matter
 * how many ranks wrote them and how parameters were cut. */
#include "examples/train/together.h"
#include "examples/train/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* `device`: where a piece lies on a GPU, while its `data` is a copy here. */
struct pieces {
    struct tutti_piece *list;
    size_t count;
    void **device;
    bool short_of_memory;
};

static size_t piece_bytes(const struct tutti_piece *piece)
{
    return piece->count * tutti_type_size(piece->type);
}

/* Where a piece's elements are: there, or beside it. */
static void pieces_place(struct pieces *p, const struct trainer *t, void *memory)
{
    struct tutti_piece *piece = &p->list[p->count - 1];
    piece->data = memory;
    if (!t->options.gpu)
        return;
    piece->data = malloc(piece_bytes(piece) + 1);
    p->device[p->count - 1] = memory;
    p->short_of_memory |= !piece->data;
}

static void pieces_free(struct pieces *p, const struct trainer *t)
{
    for (size_t i = 0; i < p->count && t->options.gpu; i++)
        free(p->list[i].data);
    free(p->list);
    free(p->device);
}

/* All pieces from the GPU, or to it. */
static int pieces_move(const struct pieces *p, const struct trainer *t, bool to_gpu)
{
    int failed = 0;
    for (size_t i = 0; i < p->count && t->options.gpu && !failed; i++)
        failed = to_gpu ? train_gpu_put(t->options.gpu, p->device[i], p->list[i].data,
                                        piece_bytes(&p->list[i]))
                        : train_gpu_get(t->options.gpu, p->list[i].data, p->device[i],
                                        piece_bytes(&p->list[i]));
    return failed;
}

static struct tutti_piece *pieces_add(struct pieces *p, const struct trainer *t, size_t index)
{
    const struct trainer_tensor *tensor = &t->tensors[index];
    struct tutti_piece *piece = &p->list[p->count++];
    *piece = (struct tutti_piece){.name = tensor->name,
                                  .type = TUTTI_FLOAT32,
                                  .dims = tensor->dims,
                                  .shape = {tensor->shape[0], tensor->shape[1]},
                                  .count = trainer_elements(tensor)};
    return piece;
}

static void pieces_add_states(struct pieces *p, const struct trainer *t,
                              const struct tutti_ddp_piece *own, size_t count)
{
    static const char *const adamw[] = {"exp_avg", "exp_avg_sq"}; /* as PyTorch names them */
    const bool is_adamw = t->options.optimizer.kind == TUTTI_ADAMW;
    float *const arrays[] = {t->master, t->states[0], t->states[1]};
    const char *const parts[] = {"master", is_adamw ? adamw[0] : "momentum_buffer", adamw[1]};
    for (size_t i = 0; i < count; i++)
        for (int a = 0; a < 3; a++) {
            if (!arrays[a])
                continue;
            struct tutti_piece *piece = pieces_add(p, t, own[i].index);
            piece->part = parts[a];
            piece->first = own[i].first;
            piece->count = own[i].count;
            pieces_place(p, t, arrays[a] + own[i].state);
        }
}

/* Make all parameters readable, or give them up again; `changed`: rank 0's become all ranks'. */
static int checkpoint_hold(struct trainer *t, bool hold, bool changed)
{
    int units = 0;
    for (size_t i = 0; i < t->count; i++)
        units = t->tensors[i].unit >= units ? t->tensors[i].unit + 1 : units;
    for (int unit = 0; unit < units; unit++)
        if (together_check(t->comm,
                           hold ? tutti_ddp_acquire(t->ddp, unit)
                                : tutti_ddp_release(t->ddp, unit, changed),
                           hold ? "acquire" : "release"))
            return 1;
    return 0;
}

/* All parameters if `parameters`; the optimizer's pieces if `states`. */
static int pieces_of(struct trainer *t, bool parameters, bool states, struct pieces *p)
{
    const struct tutti_ddp_piece *own = NULL;
    size_t count = 0;
    if (together_check(t->comm, tutti_ddp_pieces(t->ddp, &own, &count, NULL), "pieces"))
        return 1;
    *p = (struct pieces){.list = calloc(t->count + 3 * count, sizeof *p->list),
                         .device = calloc(t->count + 3 * count, sizeof *p->device)};
    p->short_of_memory = !p->list || !p->device;
    for (size_t i = 0; i < t->count && parameters && !p->short_of_memory; i++) {
        struct tutti_piece *piece = pieces_add(p, t, i);
        void *value = NULL;
        piece->type = t->options.bf16 ? TUTTI_BFLOAT16 : TUTTI_FLOAT32;
        if (together_check(t->comm, tutti_ddp_value(t->ddp, i, &value), "value")) {
            pieces_free(p, t);
            return 1;
        }
        pieces_place(p, t, value);
    }
    if (states && !p->short_of_memory)
        pieces_add_states(p, t, own, count);
    if (!p->short_of_memory)
        return 0;
    fprintf(stderr, "no memory for %zu pieces\n", t->count + 3 * count);
    pieces_free(p, t);
    return 1;
}

int trainer_save(struct trainer *t, const tutti_sampler *sampler, const char *folder, int keep)
{
    const bool first = tutti_comm_rank(t->comm) == 0;
    uint64_t epoch = 0, position = 0;
    char texts[2][32];
    struct pieces p;
    tutti_sampler_position(sampler, &epoch, &position);
    snprintf(texts[0], sizeof texts[0], "%llu", (unsigned long long)epoch);
    snprintf(texts[1], sizeof texts[1], "%llu", (unsigned long long)position);
    const struct tutti_pair values[] = {{"epoch", texts[0]}, {"position", texts[1]}};
    /* Where every rank has all states, rank 0 writes them. */
    if (checkpoint_hold(t, true, false) || pieces_of(t, first, first || t->owned < t->elements, &p))
        return 1;
    const int failed = pieces_move(&p, t, false) ||
                       together_check(t->comm,
                                      tutti_checkpoint_save(t->comm, folder, t->steps, p.list,
                                                            p.count, values, 2, keep),
                                      "checkpoint");
    pieces_free(&p, t);
    return failed || checkpoint_hold(t, false, false);
}

static int checkpoint_load(struct trainer *t, tutti_sampler *sampler, const tutti_checkpoint *c)
{
    const char *epoch = tutti_checkpoint_value(c, "epoch");
    const char *position = tutti_checkpoint_value(c, "position");
    struct pieces p;
    if (!epoch || !position) {
        fprintf(stderr, "the checkpoint has no epoch or position: it is of another program\n");
        return 1;
    }
    if (checkpoint_hold(t, true, false) || pieces_of(t, true, true, &p))
        return 1;
    const int failed =
        together_check(t->comm, tutti_checkpoint_load(c, p.list, p.count), "resume") ||
        pieces_move(&p, t, true);
    pieces_free(&p, t);
    return failed || checkpoint_hold(t, false, true) ||
           together_check(
               t->comm,
               tutti_sampler_seek(sampler, strtoull(epoch, NULL, 10), strtoull(position, NULL, 10)),
               "resume");
}

int trainer_resume(struct trainer *t, tutti_sampler *sampler, const char *folder)
{
    tutti_checkpoint *c = NULL;
    if (together_check(t->comm, tutti_checkpoint_open(t->comm, folder, UINT64_MAX, &c), "resume"))
        return 1;
    if (!c)
        return 0;
    const int failed = checkpoint_load(t, sampler, c), ranks = tutti_checkpoint_ranks(c);
    if (!failed) {
        t->steps = tutti_checkpoint_step(c);
        if (tutti_comm_rank(t->comm) == 0)
            printf("resumed after step %llu, saved by %d rank%s\n", (unsigned long long)t->steps,
                   ranks, ranks == 1 ? "" : "s");
    }
    tutti_checkpoint_close(c);
    return failed;
}
