/* Selection: all ways of doing an operation, what each would take, the cheapest (coll/select.h).
 *
 * A way is an algorithm, a number of lanes and who runs it. Its time is the cost model's
 * (cost_model.h), corrected by what was measured on this machine (tuning.h). What was measured wins
 * over what was not: a model that is a little wrong must not prefer an unknown. */
#include "coll/select.h"

#include "coll/algorithms/algorithms.h"
#include "coll/cost_model.h"
#include "coll/fused.h"
#include "coll/small_plan.h"
#include "coll/staged.h"
#include "coll/tuning.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* An operation and what the ways of doing it have in common. */
struct select_case {
    struct tutti_comm *comm;
    enum tutti_collective collective;
    size_t count;
    enum tutti_type type;
    int root;
    bool fused; /* the fused path is allowed */
    double bytes;
    struct tti_cost_place place;
    double least, most; /* sizes between which this operation was measured; 0: it was not */
    char forced[64];    /* "" for none */
};

static const double LEAST_SECONDS = 1e-12; /* a ratio to the model is made of */

enum tti_medium tti_select_medium(const struct tutti_comm *comm, bool mapped)
{
    if (comm->peers.nhosts > 1)
        return TTI_NETWORK;
    if (comm->peers.same_process && comm->peers.have_inproc)
        return TTI_THREADS;
    if (!comm->peers.have_shm)
        return TTI_LOOPBACK;
    return mapped ? TTI_MAPPED : TTI_PRIVATE;
}

static bool select_in_memory(enum tti_medium medium)
{
    return medium != TTI_LOOPBACK && medium != TTI_NETWORK;
}

static int select_most_local(const struct tutti_comm *comm)
{
    int most = 0;
    if (comm->peers.nhosts == 1)
        return comm->size;
    for (int host = 0; host < comm->peers.nhosts; host++) {
        int here = 0;
        for (int r = 0; r < comm->size; r++)
            here += comm->peers.host_of[r] == host;
        most = here > most ? here : most;
    }
    return most;
}

/* What tutti-tune measured of the network says more than the names of its lines. */
static double select_line(const struct tutti_comm *comm)
{
    bool fitted = comm->tuning && comm->tuning->fitted[TTI_NETWORK];
    return fitted || comm->peers.line_bits <= 0 ? 0 : 8 / comm->peers.line_bits;
}

/* ---- what was measured ---- */

static bool select_is_of(const struct select_case *c, const struct tti_series *series)
{
    return series->collective == c->collective && series->medium == c->place.medium &&
           series->ranks == c->comm->size && series->hosts == c->comm->peers.nhosts;
}

static void select_measured_range(struct select_case *c)
{
    const struct tti_tuning *tuning = c->comm->tuning;
    for (size_t i = 0; tuning && i < tuning->count; i++) {
        const struct tti_series *series = &tuning->series[i];
        if (!select_is_of(c, series))
            continue;
        double first = series->point[0].bytes, last = series->point[series->count - 1].bytes;
        c->least = c->least > 0 && c->least < first ? c->least : first;
        c->most = c->most > last ? c->most : last;
    }
}

/* The series of a way, if it says something about this size: beyond all sizes measured it counts
 * as the nearest. */
static const struct tti_series *select_series(const struct select_case *c,
                                              const struct tti_selection *way)
{
    static const double NEAR = 4; /* the step between the sizes of a series, or so */
    const struct tti_tuning *tuning = c->comm->tuning;
    double bytes = c->bytes < c->least ? c->least : c->bytes > c->most ? c->most : c->bytes;
    for (size_t i = 0; tuning && i < tuning->count; i++) {
        const struct tti_series *series = &tuning->series[i];
        if (select_is_of(c, series) && series->algorithm == way->index &&
            series->path == way->path &&
            (series->lanes == way->spec.lanes || way->path != TTI_PATH_PLAN) &&
            bytes > series->point[0].bytes / NEAR &&
            bytes < series->point[series->count - 1].bytes * NEAR)
            return series;
    }
    return NULL;
}

/* ---- what it takes ---- */

/* The plan's work, counted once for each algorithm (for one root: all roots cost alike). */
static enum tutti_result select_work(const struct select_case *c, const struct tti_selection *way,
                                     struct tti_work_model *model)
{
    struct tti_work_model *known = &c->comm->work[c->collective][way->index];
    if (known->steps == 0) {
        struct tti_plan_spec any_root = way->spec;
        any_root.root = 0;
        TTI_TRY(tti_work_model_of(way->algorithm, &any_root, known));
        if (known->steps == 0)
            known->steps = -1; /* nothing to do: counted nevertheless */
    }
    *model = known->steps < 0 ? (struct tti_work_model){0} : *known;
    return TUTTI_OK;
}

int tti_select_slices(const struct tti_algorithm *algorithm, double bytes)
{
    int slices = 1;
    while (algorithm->sliced && slices < 32 && bytes / slices > 64.0 * 1024)
        slices *= 2;
    return slices;
}

static double select_modelled(const struct select_case *c, struct tti_cost_way *way, double bytes)
{
    way->spec.slices = tti_select_slices(way->algorithm, bytes);
    double seconds = tti_cost_seconds(&c->comm->profile, &c->place, way, bytes);
    return seconds > LEAST_SECONDS ? seconds : LEAST_SECONDS;
}

static enum tutti_result select_predict(const struct select_case *c, struct tti_selection *way)
{
    struct tti_cost_way cost = {.algorithm = way->algorithm, .path = way->path, .spec = way->spec};
    double modelled[TTI_TUNING_POINTS];
    TTI_TRY(select_work(c, way, &cost.work));
    cost.small = c->comm->settings.fast && select_in_memory(c->place.medium) &&
                 way->spec.lanes == 1 && cost.work.steps <= TTI_SMALL_STEPS;
    way->modelled_s = way->predicted_s = select_modelled(c, &cost, c->bytes);
    const struct tti_series *series = select_series(c, way);
    way->measured = series != NULL;
    for (int i = 0; series && i < series->count; i++)
        modelled[i] = select_modelled(c, &cost, series->point[i].bytes);
    if (series)
        way->predicted_s = tti_series_seconds(series, modelled, c->bytes, way->modelled_s);
    return TUTTI_OK;
}

/* ---- the ways ---- */

/* The lanes taken where nothing was measured: one is worth its messages from about 256 KiB up, or,
 * where peers read what is only moved in its place (TUTTI_SHM_CMA, on meshes), from 2 MiB: they do
 * that in one go. There reductions to a root and all-to-alls only lose by it. On loopback the cores
 * are the line, and more sockets only cost them more calls; where ranks share cores a second lane
 * is one more thing to go around. Between hosts with several NICs each rings and chains have a lane
 * for each (order.h). */
static int select_usual_lanes(const struct select_case *c, const struct tti_algorithm *algorithm)
{
    const struct tti_settings *s = &c->comm->settings;
    if (s->lanes_forced || s->lanes < TTI_USUAL_LANES)
        return s->lanes;
    if (c->place.medium == TTI_LOOPBACK ||
        (select_in_memory(c->place.medium) && tti_cost_crowded(&c->comm->profile, &c->place)))
        return 1;
    const bool meshed = c->comm->profile.meshed && select_in_memory(c->place.medium);
    if (meshed && (c->collective == TUTTI_REDUCE || c->collective == TUTTI_ALL_TO_ALL))
        return 1;
    const bool moves =
        meshed && (c->collective == TUTTI_BROADCAST || c->collective == TUTTI_ALL_GATHER ||
                   c->collective == TUTTI_SCATTER);
    const double worth = moves ? 2 << 20 : 256 << 10;
    const int gates = algorithm->turns ? c->comm->peers.gates.most : 0;
    int lanes = TTI_USUAL_LANES;
    while (lanes < gates && 2 * lanes <= s->lanes)
        lanes *= 2;
    return c->bytes >= worth * c->comm->size ? lanes : 1;
}

/* Cheapest first; measured ones before others, and those with unusual lanes last. Of equals the
 * later one first: it has the fewer steps (one_shot). */
static int select_class(const struct select_case *c, const struct tti_selection *way)
{
    if (way->path == TTI_PATH_FUSED && c->comm->settings.fused_forced)
        return -1;
    bool usual =
        way->path != TTI_PATH_PLAN || way->spec.lanes == select_usual_lanes(c, way->algorithm);
    return way->measured ? 0 : usual ? 1 : 2;
}

static bool select_before(const struct select_case *c, const struct tti_selection *a,
                          const struct tti_selection *b)
{
    int x = select_class(c, a), y = select_class(c, b);
    return x != y ? x < y : a->predicted_s <= b->predicted_s;
}

static enum tutti_result select_add(const struct select_case *c, struct tti_selection *way,
                                    struct tti_ways *ways)
{
    TTI_TRY(select_predict(c, way));
    if (ways->count == TTI_MOST_WAYS && !select_before(c, way, &ways->way[TTI_MOST_WAYS - 1]))
        return TUTTI_OK;
    int at = ways->count < TTI_MOST_WAYS ? ways->count++ : TTI_MOST_WAYS - 1;
    for (; at > 0 && select_before(c, way, &ways->way[at - 1]); at--)
        ways->way[at] = ways->way[at - 1];
    ways->way[at] = *way;
    return TUTTI_OK;
}

static bool select_is_fused(const struct select_case *c, const struct tti_algorithm *algorithm)
{
    const struct tutti_comm *comm = c->comm;
    return c->fused && comm->settings.fast && comm->size > 1 && select_in_memory(c->place.medium) &&
           algorithm == tti_fused_equal(c->collective) && comm->size <= TTI_FUSED_RANKS &&
           c->bytes * tti_fused_blocks(c->collective, comm->size) >=
               (double)comm->settings.fused_from;
}

/* Where ranks outnumber the cores, and messages are long enough to go by reference; a root's, that
 * it gets further ahead so than the rings of its links have room for. */
static bool select_is_staged(const struct select_case *c, const struct tti_algorithm *algorithm)
{
    const double from = c->collective == TUTTI_BROADCAST ? 4096 : 8192;
    return c->comm->settings.fast && select_in_memory(c->place.medium) &&
           tti_cost_crowded(&c->comm->profile, &c->place) && c->bytes >= from &&
           algorithm == tti_fused_equal(c->collective) &&
           tti_staged_serves(c->collective, c->comm->size);
}

/* The ways of one algorithm: fused, staged, and its plan with any number of lanes. An algorithm
 * that is asked for by name runs fused where it can. */
static enum tutti_result select_ways_of(const struct select_case *c, struct tti_selection *way,
                                        struct tti_ways *ways)
{
    const struct tti_settings *s = &c->comm->settings;
    if (select_is_fused(c, way->algorithm)) {
        way->path = TTI_PATH_FUSED;
        way->spec.lanes = 1;
        TTI_TRY(select_add(c, way, ways));
        if (c->forced[0])
            return TUTTI_OK;
    }
    if (select_is_staged(c, way->algorithm)) {
        way->path = TTI_PATH_STAGED;
        way->spec.lanes = 1;
        TTI_TRY(select_add(c, way, ways));
    }
    way->path = TTI_PATH_PLAN;
    for (int lanes = s->lanes_forced ? s->lanes : 1; lanes <= s->lanes; lanes *= 2) {
        way->spec.lanes = lanes;
        TTI_TRY(select_add(c, way, ways));
    }
    return TUTTI_OK;
}

/* May it be taken? The reproducible mode takes what combines in the order of ranks; fused, staged
 * and small paths are equal to algorithms that do (or combine nothing), so it is enough to look
 * here. */
static bool select_allowed(const struct select_case *c, const struct tti_selection *way)
{
    const struct tti_algorithm *algorithm = way->algorithm;
    if (algorithm->applicable && !algorithm->applicable(&way->spec))
        return false;
    bool in_order = c->comm->settings.reproducible && tti_order_shows(c->collective);
    if (in_order && !algorithm->ordered)
        return false;
    return c->forced[0] ? strcmp(algorithm->name, c->forced) == 0
                        : in_order || !algorithm->by_request;
}

enum tutti_result tti_select_ways(struct tutti_comm *comm, enum tutti_collective collective,
                                  size_t count, enum tutti_type type, bool fused,
                                  struct tti_ways *ways)
{
    struct select_case c = {.comm = comm,
                            .collective = collective,
                            .count = count,
                            .type = type,
                            .fused = fused,
                            .bytes = (double)count * (double)tutti_type_size(type),
                            .place = {tti_select_medium(comm, fused), select_most_local(comm),
                                      select_line(comm), comm->peers.reads,
                                      comm->settings.staged_ahead}};
    (void)tti_select_forced(comm, collective, c.forced, sizeof c.forced);
    select_measured_range(&c);
    ways->count = 0;
    for (int i = 0; tti_algorithm_at(collective, i); i++) {
        const struct tti_algorithm *algorithm = tti_algorithm_at(collective, i);
        struct tti_selection way = {.algorithm = algorithm,
                                    .refused = !fused,
                                    .index = i,
                                    .count = count,
                                    .type = type,
                                    .spec = {.collective = collective,
                                             .nranks = comm->size,
                                             .rank = comm->rank,
                                             .lanes = 1,
                                             .slices = tti_select_slices(algorithm, c.bytes),
                                             .layout = tti_peers_layout(&comm->peers)}};
        if (select_allowed(&c, &way))
            TTI_TRY(select_ways_of(&c, &way, ways));
    }
    if (ways->count > 0)
        return TUTTI_OK;
    return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                    "%s: algorithm \"%s\" cannot serve %d ranks on %d hosts; leave the choice to "
                    "the library or name another",
                    tutti_collective_name(collective), c.forced[0] ? c.forced : "any", comm->size,
                    comm->peers.nhosts);
}

/* ---- the choice, and keeping it ---- */

void tti_select_try(struct tutti_comm *comm, const struct tti_selection *way)
{
    memset(comm->selections, 0, sizeof comm->selections);
    tti_small_plans_destroy(&comm->small); /* made of what was selected */
    tti_fused_forget(comm);
    comm->trial = way;
}

/* Where the answer for a size is kept: programs repeat themselves. */
static struct tti_selection *select_slot(struct tutti_comm *comm, enum tutti_collective collective,
                                         size_t count, enum tutti_type type, bool fused)
{
    uint64_t hash = (uint64_t)count * TUTTI_TYPE_COUNT + (uint64_t)type;
    hash = (hash * TUTTI_COLLECTIVE_COUNT + (uint64_t)collective) * UINT64_C(0x9e3779b97f4a7c15);
    return &comm->selections[fused][hash >> 32 & (TTI_KEPT_SELECTIONS - 1)];
}

static enum tutti_result select_kept(struct tutti_comm *comm, enum tutti_collective collective,
                                     size_t count, enum tutti_type type, int root, bool fused,
                                     struct tti_selection *selection)
{
    struct tti_selection *kept = select_slot(comm, collective, count, type, fused);
    if (comm->trial) {
        *selection = *comm->trial;
        if (selection->path == TTI_PATH_FUSED && !fused)
            selection->path = TTI_PATH_PLAN;
        selection->refused = !fused;
    } else {
        if (!kept->algorithm || kept->count != count || kept->type != type ||
            kept->spec.collective != collective) {
            struct tti_ways ways;
            TTI_TRY(tti_select_ways(comm, collective, count, type, fused, &ways));
            *kept = ways.way[0];
        }
        *selection = *kept;
    }
    selection->spec.root = root;
    return TUTTI_OK;
}

enum tutti_result tti_select(struct tutti_comm *comm, enum tutti_collective collective,
                             size_t count, enum tutti_type type, int root,
                             struct tti_selection *selection)
{
    return select_kept(comm, collective, count, type, root, true, selection);
}

enum tutti_result tti_select_plan(struct tutti_comm *comm, enum tutti_collective collective,
                                  size_t count, enum tutti_type type, int root,
                                  struct tti_selection *selection)
{
    return select_kept(comm, collective, count, type, root, false, selection);
}
