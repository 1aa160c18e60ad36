/* The steps of players. */
#include "tests/random/player.h"
#include "tests/random/programs.h"

#include <stdint.h>
#include <string.h>

enum { PARTS = 5, TIMES = 4 };

int band_draw(struct player *p)
{
    const int first = draw_int(&p->all, BANDS_MOST);
    for (int k = 0; k < BANDS_MOST; k++)
        if (p->bands[(first + k) % BANDS_MOST].live)
            return (first + k) % BANDS_MOST;
    return 0;
}

/* Of one communicator of a process the null stream may be used, too: ranks that share a process and
 * a device would wait for each other on it. */
static cudaStream_t stream_draw(struct player *p)
{
    const int k = draw_int(&p->own, STREAMS + !p->threads);
    return k < STREAMS ? p->streams[k] : NULL;
}

/* ---- calls ---------------------------------------------------------------------------------- */

static void groups_end(struct player *p, struct groups *g)
{
    player_tell("group end");
    OK(ncclGroupEnd());
    groups_ended(g);
    if (g->depth == 0 && !p->crowded)
        bands_settle(p);
}

/* A run of them in a group may be done all at once, so that ranks must have the same groups. */
static bool of_a_root(const struct part *part)
{
    return part->what == BROADCAST || part->what == BCAST || part->what == REDUCE ||
           part->what == GATHER_V || part->what == SCATTER_V;
}

/* Begin or end groups around the next call, as `d` likes: the rank's own draw, or that of all. */
static void groups_vary(struct player *p, struct draw *d, struct groups *g, const struct part *next)
{
    const bool messages = next->what == MESSAGES, alone = d == &p->own && of_a_root(next);
    while (groups_ends(g, d, next->band, messages) || (alone && g->depth > 0))
        groups_end(p, g);
    while (!alone && groups_begins(g, d)) {
        player_tell("group start");
        OK(ncclGroupStart());
        groups_begun(g);
    }
    groups_call(g, next->band, messages);
}

static void some_finish(struct player *p, int busiest)
{
    int used = 0;
    for (int k = 0; k < PARTS_MOST; k++)
        used += p->playing[k].used;
    const int first = draw_int(&p->own, PARTS_MOST);
    for (int k = 0; k < PARTS_MOST; k++) {
        struct playing *x = &p->playing[(first + k) % PARTS_MOST];
        if (!x->used || (used <= busiest && !draw_once_in(&p->own, 2)))
            continue;
        call_finish(p, x);
        used--;
    }
}

static void step_calls(struct player *p)
{
    struct part parts[PARTS];
    const int many = 1 + draw_int(&p->all, PARTS);
    const int keeps_to = draw_once_in(&p->all, 2) ? band_draw(p) : -1;
    const cudaStream_t only = draw_once_in(&p->own, 2) ? p->streams[0] : NULL;
    struct groups open = {.comm = -1};
    for (int k = 0; k < many; k++)
        parts[k] = part_draw(p, keeps_to >= 0 ? keeps_to : band_draw(p));
    some_finish(p, PARTS_MOST - PARTS);
    const bool alike = draw_once_in(&p->all, 2), groups = !draw_once_in(&p->own, 3);
    together_begin(p);
    for (int k = 0; k < many; k++) {
        struct band *b = &p->bands[parts[k].band];
        if (alike)
            groups_vary(p, &p->all, &open, &parts[k]);
        if (b->own < 0)
            continue;
        if (groups && !alike)
            groups_vary(p, &p->own, &open, &parts[k]);
        call_start(p, call_prepare(p, &parts[k], only ? only : stream_draw(p)));
        if (open.depth == 0 && !p->crowded)
            band_settle(b);
    }
    while (open.depth > 0)
        groups_end(p, &open);
    together_end(p);
}

/* By all ranks of the thread; who is no member has none of them. */
static void calls_start(struct player *p, struct playing *const *playing, int many)
{
    together_begin(p);
    for (int k = 0; k < many && playing[k]; k++) {
        call_start(p, playing[k]);
        if (!p->crowded)
            band_settle(&p->bands[playing[k]->part.band]);
    }
    together_end(p);
}

static void graph_launch(void *graph, void **exec, cudaStream_t stream, int times)
{
    CU(cu.make(exec, graph, 0));
    CU(cu.graph_free(graph));
    for (int t = 0; t < times; t++)
        CU(cu.launch(*exec, stream));
}

/* Captured and replayed. While a rank of the process captures the stand-in driver refuses to wait,
 * so threads do at once. */
static void calls_replay(struct player *p, struct playing *const *playing, int many, int times)
{
    enum { THREAD_LOCAL = 1 };
    const cudaStream_t stream = playing[0] ? playing[0]->stream : NULL;
    void *graph = NULL, *exec = NULL;
    if (p->threads)
        all_meet();
    player_tell("capture");
    if (stream)
        CU(cu.capture_begin(stream, THREAD_LOCAL));
    calls_start(p, playing, many);
    if (stream)
        CU(cu.capture_end(stream, &graph));
    if (p->threads)
        all_meet();
    if (stream)
        graph_launch(graph, &exec, stream, times);
    hand_meet();
    if (stream) {
        CU(cu.finish(stream));
        CU(cu.exec_free(exec));
    }
}

/* Several calls on one stream, so many times over: captured, on some ranks or on all, or made
 * again. */
static void step_again(struct player *p)
{
    struct playing *playing[PARTS] = {NULL};
    const int band = band_draw(p), many = 1 + draw_int(&p->all, PARTS);
    const int times = 1 + draw_int(&p->all, TIMES);
    const bool alike = draw_once_in(&p->all, 2);
    struct band *b = &p->bands[band];
    struct part parts[PARTS];
    bool captures = p->threads ? alike : draw_once_in(&p->own, 2);
    for (int k = 0; k < many; k++)
        parts[k] = part_draw(p, band);
    b->captures = true;
    call_finish_all(p, band); /* who launches a graph orders it with other calls of it */
    some_finish(p, PARTS_MOST - PARTS);
    const cudaStream_t stream = p->streams[draw_int(&p->own, STREAMS)];
    for (int k = 0; k < many; k++) {
        if (b->own >= 0)
            playing[k] = call_prepare(p, &parts[k], stream);
        captures = captures && !(parts[k].op == ncclNumOps && b->op_of_device);
    }
    if (captures)
        calls_replay(p, playing, many, times);
    for (int t = 0; t < times && !captures; t++)
        calls_start(p, playing, many);
}

/* ---- communicators come and go -------------------------------------------------------------- */

static int slots_free(const struct player *p)
{
    int slots = 0;
    for (int k = 0; k < BANDS_MOST; k++)
        slots += !p->bands[k].live;
    return slots;
}

static struct band *slot_take(struct player *p)
{
    struct band *b = NULL;
    for (int k = 0; k < BANDS_MOST && !b; k++)
        b = p->bands[k].live ? NULL : &p->bands[k];
    CHECK(b);
    return b;
}

static ncclConfig_t config_draw(struct player *p)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (!draw_once_in(&p->own, 3))
        config.blocking = draw_int(&p->own, 2);
    return config;
}

/* It is as it must be; `b` is what there is from here on. */
static void band_made(struct player *p, struct band *b, const struct band *made)
{
    int count = -1, rank = -1, device = -1;
    *b = *made;
    b->live = true;
    if (b->own < 0)
        return;
    b->comm = p->made;
    p->made = NULL;
    band_settle(b);
    OK(ncclCommCount(b->comm, &count));
    OK(ncclCommUserRank(b->comm, &rank));
    OK(ncclCommCuDevice(b->comm, &device));
    CHECK(count == b->size && rank == b->own && device == p->device);
}

static void member_add(struct band *b, int member, int me)
{
    b->own = member == me ? b->size : b->own;
    b->members[b->size++] = member;
}

static void create(struct player *p, struct band *b, unsigned number)
{
    ncclUniqueId id;
    ncclConfig_t config = config_draw(p);
    if (b->own == 0) {
        OK(ncclGetUniqueId(&id));
        id_give(number, &id);
    } else if (b->own > 0) {
        id_take(number, &id);
    }
    together_begin(p);
    const int how = b->own < 0 ? -1 : draw_int(&p->own, 3);
    if (how == 0)
        OK(ncclCommInitRank(&p->made, b->size, id, b->own));
    if (how == 1)
        OK(ncclCommInitRankConfig(&p->made, b->size, id, b->own, &config));
    if (how == 2)
        OK(ncclCommInitRankScalable(&p->made, b->size, b->own, 1, &id, &config));
    together_end(p);
}

static void step_create(struct player *p)
{
    struct band made = {.own = -1};
    for (int r = 0; r < p->size; r++)
        if (!draw_once_in(&p->all, 3))
            member_add(&made, r, p->rank);
    const unsigned number = (unsigned)p->step;
    if (made.size == 0 || slots_free(p) == 0)
        return;
    player_tell("create, %d ranks", made.size);
    create(p, &made, number);
    band_made(p, slot_take(p), &made);
}

static void step_split(struct player *p)
{
    enum { COLORS = 2 };
    const int parent = band_draw(p);
    struct band *was = &p->bands[parent];
    struct band made[COLORS] = {{.own = -1}, {.own = -1}};
    const bool backwards = draw_once_in(&p->all, 2), keyed = draw_once_in(&p->all, 2);
    ncclConfig_t config = config_draw(p);
    int colors[PLAYERS_MOST], slots = slots_free(p);
    for (int r = 0; r < was->size; r++)
        colors[r] = draw_int(&p->all, COLORS + 1);
    for (int k = 0; k < was->size; k++) {
        const int r = backwards && keyed ? was->size - 1 - k : k;
        if (colors[r] < COLORS && colors[r] < slots)
            member_add(&made[colors[r]], was->members[r], p->rank);
    }
    int color = NCCL_SPLIT_NOCOLOR;
    if (was->own >= 0 && colors[was->own] < COLORS && colors[was->own] < slots)
        color = colors[was->own];
    player_tell("split of %d, color %d", parent, color);
    together_begin(p);
    if (was->own >= 0) {
        const bool groups = draw_once_in(&p->own, 3);
        if (groups)
            OK(ncclGroupStart());
        OK(ncclCommSplit(was->comm, color, keyed ? (backwards ? -was->own : was->own) : 0, &p->made,
                         draw_once_in(&p->own, 2) ? NULL : &config));
        if (groups)
            OK(ncclGroupEnd());
    }
    together_end(p);
    CHECK((color == NCCL_SPLIT_NOCOLOR) == !p->made);
    for (int c = 0; c < COLORS; c++)
        if (made[c].size > 0)
            band_made(p, slot_take(p), &made[c]);
}

static void step_shrink(struct player *p)
{
    const int parent = band_draw(p);
    struct band *was = &p->bands[parent], made = {.own = -1};
    int excluded[PLAYERS_MOST], out = 0;
    ncclConfig_t config = config_draw(p);
    for (int r = 0; r < was->size; r++) {
        if (draw_once_in(&p->all, 3))
            excluded[out++] = r;
        else
            member_add(&made, was->members[r], p->rank);
    }
    if (made.size == 0 || out == 0 || slots_free(p) == 0)
        return;
    if (made.own >= 0)
        call_finish_all(p, parent);
    player_tell("shrink of %d", parent);
    together_begin(p);
    if (made.own >= 0)
        OK(ncclCommShrink(was->comm, excluded, out, &p->made,
                          draw_once_in(&p->own, 2) ? NULL : &config, NCCL_SHRINK_DEFAULT));
    together_end(p);
    band_made(p, slot_take(p), &made);
}

/* All ranks of one, and some of those who are not in it. */
static void step_grow(struct player *p)
{
    const int parent = band_draw(p);
    struct band *was = &p->bands[parent], made = {.own = -1};
    ncclConfig_t config = config_draw(p);
    ncclUniqueId id;
    bool in[PLAYERS_MOST] = {false};
    const int root = draw_int(&p->all, was->size);
    const unsigned number = (unsigned)p->step;
    for (int r = 0; r < was->size; r++) {
        member_add(&made, was->members[r], p->rank);
        in[was->members[r]] = true;
    }
    for (int r = 0; r < p->size; r++)
        if (!in[r] && draw_once_in(&p->all, 2))
            member_add(&made, r, p->rank);
    if (made.size == was->size || slots_free(p) == 0)
        return;
    player_tell("grow of %d to %d", parent, made.size);
    if (was->own == root) {
        OK(ncclCommGetUniqueId(was->comm, &id));
        id_give(number, &id);
    } else if (made.own >= was->size) {
        id_take(number, &id);
    }
    const bool old = was->own >= 0, passes = !old || was->own == root;
    together_begin(p);
    if (made.own >= 0)
        OK(ncclCommGrow(old ? was->comm : NULL, made.size, passes ? &id : NULL, old ? -1 : made.own,
                        &p->made, draw_once_in(&p->own, 2) ? NULL : &config));
    together_end(p);
    band_made(p, slot_take(p), &made);
}

static void register_end(struct player *p, int band)
{
    if (p->registered[band])
        OK(ncclCommDeregister(p->bands[band].comm, p->registered[band]));
    p->registered[band] = NULL;
}

static void band_end(struct player *p, int band)
{
    struct band *b = &p->bands[band];
    const int how = draw_int(&p->own, 4);
    if (b->own >= 0) {
        call_finish_all(p, band);
        if (draw_once_in(&p->own, 2))
            register_end(p, band);
        p->registered[band] = NULL;
        if (b->premul && draw_once_in(&p->own, 2))
            OK(ncclRedOpDestroy(b->op, b->comm));
    }
    player_tell("end of %d, way %d", band, how);
    /* All do: who has not would hear of it. */
    const bool aborts = draw_once_in(&p->all, 4) && !p->kills;
    if (aborts)
        all_meet();
    if (b->own >= 0 && aborts) {
        OK(ncclCommAbort(b->comm));
    } else if (b->own >= 0) {
        if (how > 1) {
            OK(ncclCommFinalize(b->comm));
            band_settle(b);
        }
        OK(ncclCommDestroy(b->comm));
    }
    *b = (struct band){.live = false};
}

static void step_end(struct player *p)
{
    const int band = band_draw(p);
    if (band > 0)
        band_end(p, band);
}

/* ---- the rest ------------------------------------------------------------------------------- */

static void step_operator(struct player *p)
{
    struct band *b = &p->bands[band_draw(p)];
    const ncclDataType_t types[] = {ncclFloat32, ncclInt32, ncclFloat64, ncclBfloat16, ncclFloat16};
    const ncclDataType_t type = types[draw_int(&p->all, 5)];
    if (b->premul)
        return;
    b->premul = true;
    b->premul_type = type;
    /* Who has it in device memory does not capture, which ranks of a process do alike. */
    b->op_of_device = draw_once_in(p->threads ? &p->all : &p->own, 2);
    for (int r = 0; r < PLAYERS_MOST; r++)
        b->scalars[r] = 1 + draw_int(&p->all, 3);
    if (b->own < 0)
        return;
    char factor[FACTOR_BYTES];
    const device_pointer there = p->factors + (device_pointer)(b - p->bands) * FACTOR_BYTES;
    value_put(factor, type, b->scalars[b->own]);
    if (b->op_of_device) {
        call_finish_all(p, -1); /* there is a place */
        struct place *place = place_take(p, sizeof factor);
        memcpy(place->before, factor, sizeof factor);
        place_copy((char *)(uintptr_t)there, place->before, sizeof factor, p->streams[0]);
        CU(cu.finish(p->streams[0]));
        place_give(place);
    }
    OK(ncclRedOpCreatePreMulSum(&b->op, b->op_of_device ? (void *)(uintptr_t)there : factor, type,
                                b->op_of_device ? ncclScalarDevice : ncclScalarHostImmediate,
                                b->comm));
}

static void step_register(struct player *p)
{
    const int band = band_draw(p);
    const int k = draw_int(&p->own, PLACES);
    if (p->bands[band].own < 0)
        return;
    if (p->registered[band])
        register_end(p, band);
    else
        OK(ncclCommRegister(p->bands[band].comm, p->places[k].device, PLACE_BYTES,
                            &p->registered[band]));
}

static void step_suspend(struct player *p)
{
    const int band = band_draw(p);
    struct band *b = &p->bands[band];
    if (b->captures)
        return;
    if (b->own >= 0)
        call_finish_all(p, band);
    player_tell("suspend %d", band);
    together_begin(p);
    if (b->own >= 0)
        OK(ncclCommSuspend(b->comm, NCCL_SUSPEND_MEM));
    together_end(p);
    together_begin(p);
    if (b->own >= 0)
        OK(ncclCommResume(b->comm));
    together_end(p);
}

static void step_ask(struct player *p)
{
    struct band *b = &p->bands[draw_int(&p->own, BANDS_MOST)];
    int count = -1, rank = -1;
    ncclResult_t state = ncclRemoteError;
    if (!b->live || b->own < 0)
        return;
    OK(ncclCommGetAsyncError(b->comm, &state));
    OK(ncclCommCount(b->comm, &count));
    OK(ncclCommUserRank(b->comm, &rank));
    OK(state);
    CHECK(state == ncclSuccess && count == b->size && rank == b->own);
}

static const struct {
    const char *name;
    void (*take)(struct player *);
} steps[] = {
    {"create", step_create},     {"split", step_split},       {"shrink", step_shrink},
    {"grow", step_grow},         {"end", step_end},           {"end", step_end},
    {"operator", step_operator}, {"register", step_register}, {"suspend", step_suspend},
    {"again", step_again},       {"again", step_again},       {"puts", step_puts},
    {"calls", step_calls},
};

/* Ranks that have but an id in common learn by the deadline alone that one of them does not come.
 */
static bool step_may_be(const struct player *p, int which)
{
    return !p->kills || (steps[which].take != step_create && steps[which].take != step_grow);
}

static void step_take(struct player *p)
{
    enum { STEPS = sizeof steps / sizeof *steps };
    int which = draw_once_in(&p->all, 2) ? STEPS - 1 : draw_int(&p->all, STEPS - 1);
    if (!step_may_be(p, which))
        which = STEPS - 1;
    if (p->kills)
        fate_step(p);
    player_tell("%s", steps[which].name);
    steps[which].take(p);
    if (draw_once_in(&p->own, 4))
        step_ask(p);
}

void player_run(struct player *p)
{
    struct band first = {.own = -1};
    for (int r = 0; r < p->size; r++)
        member_add(&first, r, p->rank);
    create(p, &first, 0);
    band_made(p, &p->bands[0], &first);
    for (p->step = 1; p->step <= p->steps; p->step++)
        step_take(p);
    call_finish_all(p, -1);
    for (int band = BANDS_MOST - 1; band >= 0 && !p->kills; band--)
        if (p->bands[band].live)
            band_end(p, band);
}
