/* What players play: calls as all ranks know them, and their data: small integers, which no type
 * rounds, whatever the order. */
#include "tests/random/player.h"

#include <math.h>
#include <string.h>

static bool narrow(ncclDataType_t type)
{
    return type == ncclFloat8e4m3 || type == ncclFloat8e5m2;
}

size_t type_bytes(ncclDataType_t type)
{
    static const size_t bytes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return bytes[type];
}

double value_of(const struct part *part, int from, int to, size_t e)
{
    const uint64_t drawn = draw_mix(part->salt + 131 * (uint64_t)from + 1009 * (uint64_t)to +
                                    UINT64_C(0x9e3779b97f4a7c15) * e);
    if (part->op == ncclProd)
        return 1 + (double)(drawn % 2);
    return (double)(drawn % (narrow(part->type) ? 4 : 8));
}

double value_reduced(const struct part *part, const struct band *band, int to, size_t e)
{
    double value = 0;
    for (int r = 0; r < band->size; r++) {
        const double next = value_of(part, r, to, e);
        if (part->op == ncclNumOps)
            value += next * band->scalars[r];
        else if (r == 0)
            value = next;
        else if (part->op == ncclProd)
            value *= next;
        else if (part->op == ncclMax || part->op == ncclMin)
            value = (next > value) == (part->op == ncclMax) ? next : value;
        else
            value += next;
    }
    return part->op == ncclAvg ? value / band->size : value;
}

/* Exact in such a float, and not negative. */
static uint64_t float_bits(double value, int exponent_bits, int mantissa_bits)
{
    int exponent = 0;
    const double fraction = frexp(value, &exponent);
    const int biased = exponent - 1 + (1 << (exponent_bits - 1)) - 1;
    if (value <= 0)
        return 0;
    return ((uint64_t)biased << mantissa_bits) |
           (uint64_t)((2 * fraction - 1) * (double)(UINT64_C(1) << mantissa_bits));
}

void value_put(char *at, ncclDataType_t type, double value)
{
    uint64_t bits = (uint64_t)value; /* the lowest bytes come first */
    if (type == ncclFloat16)
        bits = float_bits(value, 5, 10);
    else if (type == ncclFloat32)
        bits = float_bits(value, 8, 23);
    else if (type == ncclFloat64)
        bits = float_bits(value, 11, 52);
    else if (type == ncclBfloat16)
        bits = float_bits(value, 8, 7);
    else if (type == ncclFloat8e4m3)
        bits = float_bits(value, 4, 3);
    else if (type == ncclFloat8e5m2)
        bits = float_bits(value, 5, 2);
    memcpy(at, &bits, type_bytes(type));
}

/* ---- the draw ------------------------------------------------------------------------------- */

static bool what_reduces(enum what what)
{
    return what == ALL_REDUCE || what == REDUCE || what == REDUCE_SCATTER || what == SCATTER_V;
}

/* So many elements that as many from each of n ranks fit a place. */
static size_t count_draw(struct player *p, ncclDataType_t type, int n)
{
    const size_t most = (PLACE_BYTES - 8192) / type_bytes(type) / (size_t)n;
    const int kind = draw_int(&p->all, 20);
    if (kind < 3)
        return (size_t)(kind > 0);
    if (kind < 9)
        return 2 + draw_below(&p->all, 63);
    return draw_below(&p->all, kind < 17 && most > 4000 ? 4000 : most);
}

static void counts_draw(struct player *p, struct part *part, int n)
{
    const size_t even = count_draw(p, part->type, n);
    size_t of_rank[PLAYERS_MOST];
    for (int r = 0; r < n; r++)
        of_rank[r] = draw_once_in(&p->all, 3) ? 0 : count_draw(p, part->type, n);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            part->counts[i][j] = part->what == GATHER_V    ? of_rank[i]
                                 : part->what == SCATTER_V ? of_rank[j]
                                                           : even;
    for (int i = 0; i < n && part->what == MESSAGES; i++)
        for (int j = 0; j < n; j++)
            part->counts[i][j] = draw_once_in(&p->all, 3) ? 0 : count_draw(p, part->type, n);
}

static void operator_draw(struct player *p, const struct band *b, struct part *part)
{
    part->op = (ncclRedOp_t)draw_int(&p->all, ncclAvg + 1);
    if (b->premul && draw_once_in(&p->all, 3)) {
        part->op = ncclNumOps;
        part->type = b->premul_type;
    }
    if (narrow(part->type))
        part->op = draw_once_in(&p->all, 2) ? ncclMax : ncclMin;
    if (part->op == ncclAvg && (b->size & (b->size - 1)) != 0) /* no rounding */
        part->op = ncclSum;
}

struct part part_draw(struct player *p, int band)
{
    const struct band *b = &p->bands[band];
    struct part part = {.band = band, .salt = draw_next(&p->all), .op = ncclSum};
    part.what = (enum what)draw_int(&p->all, WHATS);
    part.type = (ncclDataType_t)draw_int(&p->all, ncclNumTypes);
    part.root = draw_int(&p->all, b->size);
    part.in_place = draw_once_in(&p->all, 3) || part.what == BCAST;
    if (part.what == MESSAGES || part.what == GATHER_V || part.what == SCATTER_V)
        part.in_place = false;
    part.empties = draw_once_in(&p->all, 4);
    if (what_reduces(part.what))
        operator_draw(p, b, &part);
    counts_draw(p, &part, b->size);
    return part;
}

const char *part_text(const struct part *part, char *text, size_t room)
{
    static const char *const names[WHATS] = {
        "all-reduce", "reduce", "broadcast", "bcast",    "all-gather", "reduce-scatter",
        "all-to-all", "gather", "scatter",   "messages", "gather_v",   "scatter_v"};
    snprintf(text, room, "%s of communicator %d, type %d op %d root %d, counts %zu %zu ...%s",
             names[part->what], part->band, (int)part->type, (int)part->op, part->root,
             part->counts[0][0], part->counts[0][1], part->in_place ? ", in place" : "");
    return text;
}
