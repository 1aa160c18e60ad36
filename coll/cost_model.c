/* The cost model (coll/cost_model.h). */
#include "coll/cost_model.h"

#include "coll/fused.h"
#include "coll/operation.h"
#include "coll/small_plan.h"
#include "coll/staged.h"

#include <math.h>

static const double IN_LINE = 0.5;     /* of alpha: a message that lies in one cache line */
static const double COPIED = 32 << 10; /* below, a transport copies what it could refer to, too */

bool tti_cost_crowded(const struct tti_profile *profile, const struct tti_cost_place *place)
{
    return place->most_local > profile->cores;
}

/* Where a rank's bytes lie: 0 in L1, 1 in L2, 2 in the L3 that the host's ranks share, 3 in memory,
 * and between them where a cache holds a part. An L3 has other users: it is full before its size.
 */
static double cost_level(const struct tti_profile *profile, const struct tti_cost_place *place,
                         double touched)
{
    const double ranks = place->most_local / profile->cores; /* of a core: they share its caches */
    const double share = ranks > 1 ? 1 / ranks : 1;
    double first = profile->cache[0] * share, second = profile->cache[1] * share;
    double shared = profile->cache[2] / place->most_local;
    double own = second < shared / 4 ? second : shared / 4;
    double edge[4] = {first < own / 2 ? first : own / 2, own, shared / 2, 2 * shared};
    if (touched <= edge[0])
        return 0;
    for (int level = 1; level < 4; level++)
        if (touched < edge[level])
            return level - 1 + log(touched / edge[level - 1]) / log(edge[level] / edge[level - 1]);
    return 3;
}

/* The constant of a level: four of them from `first` on, blended in proportion. */
static double cost_at(const double *cost, int first, double level)
{
    int below = level >= 3 ? 2 : (int)level;
    double part = level - below, a = cost[first + below], b = cost[first + below + 1];
    return a > 0 && b > 0 ? a * pow(b / a, part) : a + part * (b - a);
}

/* Data go one way only, so nobody waits for the others before the next call. */
static bool cost_is_rooted(enum tutti_collective collective)
{
    return collective == TUTTI_BROADCAST || collective == TUTTI_REDUCE ||
           collective == TUTTI_GATHER || collective == TUTTI_SCATTER;
}

/* Bytes moved on the fused path by ranks with cores of their own, where a call goes back over what
 * the call before it touched (fused_again.c): each cache serves as much as it holds, whatever the
 * rest is. A line that is written is fetched and later put back: in the core's own caches that
 * counts, beyond them a line that is read takes as long. */
static double cost_fused_bytes(const struct tti_profile *profile,
                               const struct tti_cost_place *place, const struct tti_cost_way *way,
                               double bytes)
{
    static const double OWN = 0.92, SHARED = 0.75; /* the parts that are not somebody else's */
    const double *cost = profile->cost[place->medium];
    const struct tti_plan_spec *spec = &way->spec;
    const double reads = bytes * tti_fused_reads(spec->collective, spec->nranks);
    const double writes = bytes * tti_fused_writes(spec->collective, spec->nranks);
    const double touched = reads + writes, shared = profile->cache[2] / place->most_local;
    const double held[4] = {OWN * profile->cache[0], OWN * profile->cache[1], SHARED * shared,
                            touched};
    double seconds = 0, below = 0;
    for (int level = 0; level < 4 && below < touched; level++) {
        const double end = held[level] < touched ? held[level] : touched;
        const double weight = level < 2 ? cost[TTI_COST_FUSED_WRITE] : 1;
        if (end <= below)
            continue;
        seconds += (end - below) / touched * (reads + weight * writes) *
                   cost[TTI_COST_FUSED_TOUCH + level];
        below = end;
    }
    return seconds;
}

/* The same with more ranks than cores, and on the staged path. */
static double cost_crowded_bytes(const struct tti_profile *profile,
                                 const struct tti_cost_place *place, const struct tti_cost_way *way,
                                 double bytes)
{
    const struct tti_plan_spec *spec = &way->spec;
    const double touched = bytes * (way->path == TTI_PATH_STAGED
                                        ? tti_staged_touched(spec->collective, spec->nranks, bytes)
                                        : tti_fused_touched(spec->collective, spec->nranks));
    return touched * cost_at(profile->cost[place->medium], TTI_COST_CROWDED_FUSED_TOUCH,
                             cost_level(profile, place, touched));
}

/* The fused and the staged path: all ranks' bytes at once. */
static double cost_fused(const struct tti_profile *profile, const struct tti_cost_place *place,
                         const struct tti_cost_way *way, double bytes)
{
    const double *cost = profile->cost[place->medium];
    const struct tti_plan_spec *spec = &way->spec;
    /* A root that would run ahead by messages waits for the others here, who are a message late. */
    const bool late = way->path == TTI_PATH_FUSED && cost_is_rooted(spec->collective);
    /* All but an all-to-all find what they worked out the last time (fused_again.c). */
    double calls = spec->collective == TUTTI_ALL_TO_ALL ? 2 : 1;
    if (tti_cost_crowded(profile, place))
        return calls * cost[TTI_COST_CROWDED_FUSED] + (late ? cost[TTI_COST_ALPHA] : 0) +
               cost_crowded_bytes(profile, place, way, bytes);
    return calls * cost[TTI_COST_FUSED] + (late ? IN_LINE * cost[TTI_COST_ALPHA] : 0) +
           cost_fused_bytes(profile, place, way, bytes);
}

/* Between processes, what is only moved, not combined, is read where it lies in the other's memory
 * (TUTTI_SHM_CMA, on meshes), by both sides at once where one would wait; what comes through a copy
 * is touched more often. Who takes turns on a core with others cannot help.
 *
 * That they can is what the transport tells before it has been tried (transport/shm/reads.c), of
 * all ranks together, since all must come to the same answer. `bytes` is the block; what the
 * transport compares with COPIED, and an operation with what it lends from, is a lane's part or a
 * slice of it. What is not in a core's own caches saves less. */
static double cost_moved(const struct tti_profile *profile, const struct tti_cost_place *place,
                         const struct tti_cost_way *way, double bytes, double level)
{
    static const double OWN_CACHES = 0.43, BEYOND = 0.75;
    const double beyond = level > 2 ? 1 : level > 1 ? level - 1 : 0;
    const enum tutti_collective c = way->spec.collective;
    const bool combines = c == TUTTI_ALL_REDUCE || c == TUTTI_REDUCE || c == TUTTI_REDUCE_SCATTER;
    return place->reads && profile->meshed && place->medium == TTI_PRIVATE &&
                   !tti_cost_crowded(profile, place) && !combines && bytes >= COPIED
               ? OWN_CACHES + (BEYOND - OWN_CACHES) * beyond
               : 1;
}

/* What a host's line carries (`crossing` of work_model.h): lanes that enter and leave by NICs in
 * turn share out among as many as there are lanes what one lane has go through one. */
static double cost_crossing(const struct tti_cost_way *way)
{
    const double share = way->work.crossing / (way->algorithm->turns ? way->spec.lanes : 1);
    return share > way->work.turned ? share : way->work.turned;
}

/* The messages that wait for one another. Where a host hears from several others, now and then more
 * comes at a time than its line carries, and lines stand idle elsewhere: four hosts at 1 Gbit/s
 * took a ninth longer by recursive halving than around a ring (docs/measurements/hosts.md). A
 * pipeline's bytes wait for one another as its formula says. */
static double cost_messages(const struct tti_profile *profile, const struct tti_cost_place *place,
                            const struct tti_cost_way *way, double alpha, double bytes,
                            double level)
{
    static const double CONTENTION = 1.12;
    const struct tti_algorithm *algorithm = way->algorithm;
    double beta = cost_at(profile->cost[place->medium], TTI_COST_WIRE, level);
    if (place->medium != TTI_NETWORK)
        return algorithm->cost(&way->spec, bytes, alpha,
                               beta * cost_moved(profile, place, way, bytes, level));
    if (place->line > 0)
        beta = place->line;
    double shared = algorithm->cost(&way->spec, bytes, alpha, 0) +
                    cost_crossing(way) * bytes * beta * (way->work.contended ? CONTENTION : 1);
    double alone = algorithm->sliced ? algorithm->cost(&way->spec, bytes, alpha, beta) : 0;
    return alone > shared ? alone : shared;
}

/* Steps that cost what a step does. The constants were fitted to the algorithms of the free choice,
 * whose few steps without a message were counted as if they had one; the others have many. */
static double cost_steps(const struct tti_cost_way *way)
{
    return way->work.steps - (way->algorithm->by_request ? way->work.local : 0);
}

/* Is it the bytes that pass between cores which count? They do where senders copy all that they
 * send, in clusters, and on meshes while it is little (large pieces are read where they lie there;
 * who sends without an answer is read ahead of), and at both ends: their lines come from, or go to,
 * another core's cache. What a rank reads and writes in its own buffers takes a part of that.
 * Not where peers read in clusters, too, what the operation lends (TUTTI_SHM_CMA=2; with 1
 * everything is read, but the transport does not say which, so it is counted as with 2). Ranks that
 * share cores find each other's bytes in the same cache, and have constants of their own. */
static bool cost_passes(const struct tti_profile *profile, const struct tti_cost_place *place,
                        const struct tti_cost_way *way, double bytes)
{
    const bool read =
        place->reads && bytes >= COPIED && bytes >= (double)tti_lend_from(way->spec.collective);
    if (place->medium != TTI_PRIVATE || read || tti_cost_crowded(profile, place))
        return false;
    const struct tti_work_model *work = &way->work;
    const double message = bytes * work->copied.passed / 2 /
                           (way->spec.lanes * (work->messages > 1 ? work->messages : 1));
    return !profile->meshed || (message < COPIED && !cost_is_rooted(way->spec.collective));
}

/* Seconds of all bytes, which lie at a level. On meshes those that pass take as long whichever
 * cache of the other core they come from, beside which the own ones do not show. */
static double cost_work(const struct tti_profile *profile, const struct tti_cost_place *place,
                        const struct tti_cost_way *way, double bytes, double level)
{
    static const double OWN = 0.15, MESHED = 2;
    const double *cost = profile->cost[place->medium];
    const struct tti_work_copied *copied = &way->work.copied;
    if (!cost_passes(profile, place, way, bytes))
        return way->work.touched * bytes * cost_at(cost, TTI_COST_TOUCH, level);
    if (profile->meshed)
        return copied->passed * bytes * MESHED * cost[TTI_COST_TOUCH];
    return (copied->passed + OWN * copied->own) * bytes * cost_at(cost, TTI_COST_TOUCH, level);
}

/* A plan's messages, and its steps and bytes: those `turns` times. */
static double cost_plan(const struct tti_profile *profile, const struct tti_cost_place *place,
                        const struct tti_cost_way *way, double alpha, double turns, double bytes)
{
    static const double RING_TOUCH = 0.08;
    /* Touched: below, who sends without answers is read ahead; on meshes as far as he copies. */
    const double ahead =
        profile->meshed && place->medium == TTI_PRIVATE ? COPIED * way->work.touched : 16384;
    const double *cost = profile->cost[place->medium];
    const bool small = way->small && bytes <= TTI_SMALL_BYTES;
    /* Each peer has a ring for copies of its own: the more of them, the more often what lies there
     * leaves the caches before it is read. */
    const bool pieces = place->medium == TTI_PRIVATE && way->work.receivers > 1;
    const double rings = pieces ? 1 + RING_TOUCH * (way->work.receivers - 1) : 1;
    const double touched = way->work.touched * bytes;
    const double level = cost_level(profile, place, touched);
    double slower = rings * cost_moved(profile, place, way, bytes, level);
    if (tti_cost_crowded(profile, place))
        slower *= cost[TTI_COST_CROWDED_TOUCH];
    else if (cost_is_rooted(way->spec.collective) && touched < ahead)
        slower *= cost[TTI_COST_ONE_WAY_TOUCH];
    const double busy =
        cost[small ? TTI_COST_SMALL : TTI_COST_CALL] +
        cost_steps(way) * way->spec.lanes * cost[small ? TTI_COST_SMALL_STEP : TTI_COST_STEP] +
        cost_work(profile, place, way, bytes, level) * slower;
    return cost_messages(profile, place, way, alpha, bytes, level) + turns * busy;
}

/* Of the operations of a collective with a root that runs ahead, the part for which the root must
 * wait for the others: once for as many as the transport or the stage has room for. */
static double cost_waits(const struct tti_cost_place *place, const struct tti_cost_way *way,
                         double bytes)
{
    static const double RING = 512 << 10; /* of copies in a transport */
    double part = 1;                      /* references: the sender waits for the readers */
    if (way->path == TTI_PATH_FUSED || !cost_is_rooted(way->spec.collective))
        return 1;
    if (way->path == TTI_PATH_STAGED)
        part = (bytes > TTI_STAGED_WINDOW ? bytes / TTI_STAGED_WINDOW : 1) /
               (double)tti_staged_windows((size_t)bytes, place->ahead);
    else if (bytes < COPIED || place->medium == TTI_PRIVATE)
        part = bytes / RING;
    return part < 1 ? part : 1;
}

/* Ranks take turns, and a message comes with its sender's turn: one alone after half a round on
 * average, the last of `m` that are waited for at once after m / (m + 1) of it. How many times
 * later that is. */
static double cost_later(const struct tti_cost_place *place, const struct tti_cost_way *way)
{
    const double waits = way->algorithm->cost(&way->spec, 0, 1, 0);
    double m = waits > 0 && way->work.messages > waits ? way->work.messages / waits : 1;
    if (way->path != TTI_PATH_PLAN) /* of everybody, or of the root */
        m = cost_is_rooted(way->spec.collective) ? 1 : place->most_local - 1;
    return 2 * m / (m + 1);
}

/* More ranks than cores: the core must go to others before they can answer. */
static double cost_crowded(const struct tti_profile *profile, const struct tti_cost_place *place,
                           const struct tti_cost_way *way, double turns, double bytes)
{
    const double *cost = profile->cost[place->medium];
    /* In memory, what counts is when the core has been around all its ranks; the constants are of
     * two. */
    const double around = place->medium < TTI_LOOPBACK ? turns / 2 : 1;
    const double call = around * cost[TTI_COST_CROWDED_CALL];
    const double waits = cost_waits(place, way, bytes);
    const double late = 1 + cost[TTI_COST_CROWDED_LATE] * (cost_later(place, way) - 1);
    const double ahead = (1 - waits) * cost[TTI_COST_CROWDED_ONE_WAY];
    const double waited = waits * around * cost[TTI_COST_CROWDED_ALPHA] * late;
    /* Who passes on what a root broadcasts, in memory, and is not waited for, takes the time of its
     * own messages, however many hops they go. */
    const bool by_steps = place->medium < TTI_LOOPBACK && way->path == TTI_PATH_PLAN &&
                          way->spec.collective == TUTTI_BROADCAST;
    const double alpha = waited + (by_steps ? 0 : ahead);
    if (way->path == TTI_PATH_FUSED) /* twice, everybody waits for everybody */
        return 2 * (call + alpha) + turns * cost_fused(profile, place, way, bytes);
    if (way->path == TTI_PATH_STAGED)
        return waits * call + alpha + turns * cost_fused(profile, place, way, bytes);
    const double even = turns * way->work.evenness; /* some have less to do than others */
    return waits * call + (by_steps ? ahead * way->work.steps * way->spec.lanes : 0) +
           cost_plan(profile, place, way, alpha, even > 1 ? even : 1, bytes);
}

/* In memory a message of a few bytes is there with its line, others take a second look. */
static double cost_alpha(const struct tti_cost_place *place, const double *cost,
                         const struct tti_cost_way *way, double bytes)
{
    static const double LINE_HOLDS = 48;
    if (cost_is_rooted(way->spec.collective))
        return cost[TTI_COST_ONE_WAY];
    return cost[TTI_COST_ALPHA] *
           (place->medium < TTI_LOOPBACK && bytes <= LINE_HOLDS ? IN_LINE : 1);
}

double tti_cost_seconds(const struct tti_profile *profile, const struct tti_cost_place *place,
                        const struct tti_cost_way *way, double bytes)
{
    const double *cost = profile->cost[place->medium];
    if (tti_cost_crowded(profile, place))
        return cost_crowded(profile, place, way, place->most_local / profile->cores, bytes);
    if (way->path == TTI_PATH_FUSED)
        return 2 * cost[TTI_COST_ALPHA] + cost_fused(profile, place, way, bytes);
    return cost_plan(profile, place, way, cost_alpha(place, cost, way, bytes), 1, bytes);
}
