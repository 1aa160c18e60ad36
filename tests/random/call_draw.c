/* Calls of random programs, as all ranks know them: what, by whom, how much. */
#include "tests/random/actor.h"

#include <stdio.h>

static size_t count_draw(struct actor *a, bool device)
{
    struct draw *d = &a->all;
    switch (draw_int(d, 20)) {
    case 0:
        return 0;
    case 1:
    case 2:
        return 1;
    case 3:
    case 4:
    case 5:
    case 6:
    case 7:
        return 2 + draw_below(d, 63);
    case 17:
    case 18:
        return draw_below(d, device ? 20000 : 40000);
    case 19:
        return draw_below(d, device ? 60000 : 300000);
    default:
        return draw_below(d, 4100);
    }
}

/* Alike for all, or each its own; those of the calls whose counts depend on one rank alone are the
 * same for all others. */
static void counts_draw(struct actor *a, struct call *c, int n)
{
    size_t of_rank[RANDOM_RANKS];
    const size_t even = count_draw(a, c->device);
    const bool messages = c->collective == TUTTI_SEND_RECV;
    for (int r = 0; r < n; r++)
        of_rank[r] = draw_once_in(&a->all, 3) ? 0 : count_draw(a, c->device);
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            size_t *count = &c->counts[i][j];
            const size_t alone = messages || c->collective == TUTTI_ALL_TO_ALL
                                     ? count_draw(a, c->device) / (size_t)n
                                     : 0;
            if (!c->uneven)
                *count = even;
            else if (c->collective == TUTTI_ALL_GATHER || c->collective == TUTTI_GATHER)
                *count = of_rank[i];
            else if (c->collective == TUTTI_REDUCE_SCATTER || c->collective == TUTTI_SCATTER)
                *count = of_rank[j];
            else
                *count = draw_once_in(&a->all, 3) ? 0 : alone;
        }
    }
}

static bool collective_reduces(enum tutti_collective c)
{
    return c == TUTTI_ALL_REDUCE || c == TUTTI_REDUCE || c == TUTTI_REDUCE_SCATTER;
}

static bool collective_may_differ(enum tutti_collective c)
{
    return c == TUTTI_REDUCE_SCATTER || c == TUTTI_ALL_GATHER || c == TUTTI_ALL_TO_ALL ||
           c == TUTTI_GATHER || c == TUTTI_SCATTER;
}

static bool type_rounds(enum tutti_type type)
{
    return type == TUTTI_FLOAT8_E4M3 || type == TUTTI_FLOAT8_E5M2;
}

static void operator_draw(struct actor *a, const struct family *f, struct call *c)
{
    c->op = (enum tutti_op)draw_int(&a->all, TUTTI_OP_COUNT);
    if (f->premul && draw_once_in(&a->all, 3)) {
        c->op = TUTTI_OP_USER;
        c->type = f->premul_type;
    }
    if (type_rounds(c->type))
        c->op = TUTTI_MAX;
    if (c->op == TUTTI_AVG && (f->size & (f->size - 1)) != 0) /* no rounding */
        c->op = TUTTI_MIN;
}

struct call call_draw(struct actor *a, int family)
{
    struct draw *d = &a->all;
    const struct family *f = &a->families[family];
    struct call c = {.family = family, .salt = draw_next(d)};
    c.collective = (enum tutti_collective)draw_int(d, TUTTI_COLLECTIVE_COUNT);
    c.device = a->devices && !draw_once_in(d, 4);
    c.type = (enum tutti_type)draw_int(d, TUTTI_TYPE_COUNT);
    c.root = draw_int(d, f->size);
    c.uneven = c.collective == TUTTI_SEND_RECV ||
               (collective_may_differ(c.collective) && draw_once_in(d, 2));
    c.in_place = draw_once_in(d, 3) && c.collective != TUTTI_SEND_RECV &&
                 !(c.collective == TUTTI_ALL_TO_ALL && c.uneven);
    c.empties = draw_once_in(d, 4);
    c.op = TUTTI_SUM;
    if (collective_reduces(c.collective))
        operator_draw(a, f, &c);
    counts_draw(a, &c, f->size);
    return c;
}

const char *call_text(const struct call *c, char *text, size_t room)
{
    snprintf(text, room, "%s%s of communicator %d, %s %s, root %d, counts %zu %zu ...%s%s",
             tutti_collective_name(c->collective), c->uneven ? "_v" : "", c->family,
             tutti_type_name(c->type), tutti_op_name(c->op), c->root, c->counts[0][0],
             c->counts[0][1], c->in_place ? ", in place" : "", c->device ? ", device" : "");
    return text;
}
