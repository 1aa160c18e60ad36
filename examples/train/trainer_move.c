/* Taking a trainer to another communicator (trainer.h): after ranks died or came. Ranks may be a
 * step apart, if one died just as a step ended; all take what the furthest of them has. */
#include "examples/train/together.h"
#include "examples/train/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The lowest rank that has finished the most steps. */
static int move_root(tutti_comm *comm, uint64_t steps, int *root)
{
    uint64_t *all = calloc((size_t)tutti_comm_size(comm), sizeof *all);
    if (!all) {
        fprintf(stderr, "no memory for %d ranks\n", tutti_comm_size(comm));
        return 1;
    }
    const int failed =
        together_check(comm, tutti_all_gather(&steps, all, 1, TUTTI_UINT64, comm), "regroup");
    *root = 0;
    for (int r = 1; r < tutti_comm_size(comm) && !failed; r++)
        if (all[r] > all[*root])
            *root = r;
    free(all);
    return failed;
}

static int move_spread(tutti_comm *comm, void *data, size_t bytes, int root)
{
    return together_check(comm, tutti_broadcast(data, data, bytes, TUTTI_UINT8, root, comm),
                          "hand on parameters");
}

/* What rank `root` had becomes everybody's. */
static int move_all(struct trainer *t, struct trainer *old, int root)
{
    const size_t element = t->options.bf16 ? sizeof(uint16_t) : sizeof(float);
    float *const from[] = {old->master, old->states[0], old->states[1]};
    float *const to[] = {t->master, t->states[0], t->states[1]};
    const bool mine = tutti_comm_rank(t->comm) == root;
    for (size_t i = 0; i < t->count; i++) {
        void *value = NULL, *before = NULL;
        const size_t bytes = trainer_elements(&t->tensors[i]) * element;
        if (together_check(t->comm, tutti_ddp_value(t->ddp, i, &value), "value") ||
            (mine && together_check(t->comm, tutti_ddp_value(old->ddp, i, &before), "value")))
            return 1;
        if (mine)
            memcpy(value, before, bytes);
        if (move_spread(t->comm, value, bytes, root))
            return 1;
    }
    for (int a = 0; a < 3; a++) {
        if (!to[a])
            continue;
        if (mine)
            memcpy(to[a], from[a], t->owned * sizeof *to[a]);
        if (move_spread(t->comm, to[a], t->owned * sizeof *to[a], root))
            return 1;
    }
    return 0;
}

int trainer_move(struct trainer *t, tutti_comm *comm, const struct trainer_tensor *tensors,
                 size_t count, const struct trainer_options *options, uint64_t place[2])
{
    struct trainer made;
    uint64_t facts[3] = {t->steps, place[0], place[1]};
    int root = 0;
    if (move_root(comm, t->steps, &root) || trainer_create(&made, comm, tensors, count, options))
        return 1;
    if (move_all(&made, t, root) || move_spread(comm, facts, sizeof facts, root)) {
        trainer_destroy(&made);
        return 1;
    }
    trainer_destroy(t);
    *t = made;
    t->steps = facts[0];
    place[0] = facts[1];
    place[1] = facts[2];
    return 0;
}
