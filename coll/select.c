/* Selection by cost model (coll/select.h).
 *
 * Over a network, every algorithm states its closed formula in latency and bandwidth, and the model
 * supplies those two numbers. On one host no wire is the bottleneck but the cores that read,
 * combine and write: there the cost is the formula's latency, and the steps and touched bytes of
 * the algorithm's own plans (work_model.h). The cheapest wins. Measured corrections belong here
 * too, once there is a tuner. */
#include "coll/select.h"

#include "coll/algorithms/algorithms.h"
#include "coll/fused.h"
#include "device/reduce.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Constants of the model, in seconds and seconds per byte: middling values of current servers. */
static const double NETWORK_ALPHA = 12e-6, NETWORK_BETA = 1.0 / 2e9;
static const double MEMORY_ALPHA = 0.25e-6; /* a cache line there and back */
static const double CROWDED_ALPHA = 4e-6;   /* the same through the scheduler */
static const double MEMORY_STEP = 0.06e-6;  /* handling of one step */
static const double MEMORY_TOUCH = 17e-12;  /* a byte read or written */
static const double FUSED_TOUCH = 17e-12;   /* the same on the fused path */

/* Do all ranks share memory? Excluding the memory transports means sockets even on one host. */
static bool select_in_memory(const struct tutti_comm *comm)
{
    const char *names = comm->settings.transports;
    if (names && !strstr(names, "shm") && !strstr(names, "inproc"))
        return false;
    return comm->peers.nhosts == 1;
}

/* The plan's work, counted once for each algorithm (for one root: all roots cost alike). */
static enum tutti_result select_work(struct tutti_comm *comm, int index,
                                     const struct tti_algorithm *algorithm,
                                     const struct tti_plan_spec *spec, struct tti_work_model *model)
{
    struct tti_work_model *known = &comm->work[spec->collective][index];
    if (known->steps < 0) {
        *model = (struct tti_work_model){0, 0};
        return TUTTI_OK;
    }
    if (known->steps == 0) {
        struct tti_plan_spec any_root = *spec;
        any_root.root = 0;
        TTI_TRY(tti_work_model_of(algorithm, &any_root, known));
        if (known->steps == 0)
            known->steps = -1; /* nothing to do: counted nevertheless */
    }
    *model = *known;
    return TUTTI_OK;
}

/* Predicted seconds for blocks of `bytes`. */
static enum tutti_result select_cost(struct tutti_comm *comm, int index,
                                     const struct tti_algorithm *algorithm,
                                     const struct tti_plan_spec *spec, double bytes,
                                     double *seconds)
{
    if (!select_in_memory(comm)) {
        *seconds = algorithm->cost(spec, bytes, NETWORK_ALPHA, NETWORK_BETA);
        return TUTTI_OK;
    }
    struct tti_work_model work;
    TTI_TRY(select_work(comm, index, algorithm, spec, &work));
    double crowd = comm->cores > 0 ? (double)comm->size / (double)comm->cores : 1;
    double alpha = crowd > 1 ? CROWDED_ALPHA : MEMORY_ALPHA;
    double busy = work.steps * MEMORY_STEP + work.touched * bytes * MEMORY_TOUCH;
    *seconds = algorithm->cost(spec, 0, alpha, 0) + busy * (crowd > 1 ? crowd : 1);
    return TUTTI_OK;
}

/* The algorithm that the settings name for a collective: "ring" names it for every collective that
 * has one of that name, "all_reduce=ring" for one. False if none is named. */
static bool select_forced(const char *text, enum tutti_collective collective, char *name,
                          size_t bytes)
{
    bool found = false;
    while (text && *text) {
        size_t length = strcspn(text, ",");
        const char *equals = memchr(text, '=', length);
        const char *want = tutti_collective_name(collective);
        const char *value = equals ? equals + 1 : text;
        size_t value_length = length - (size_t)(value - text);
        bool mine = equals ? (size_t)(equals - text) == strlen(want) &&
                                 strncmp(text, want, strlen(want)) == 0
                           : true;
        if (mine && value_length < bytes) {
            char candidate[64];
            snprintf(candidate, sizeof candidate, "%.*s", (int)value_length, value);
            if (equals || tti_algorithm_find(collective, candidate)) {
                snprintf(name, bytes, "%s", candidate);
                found = true;
            }
        }
        text += length + (text[length] == ',');
    }
    return found;
}

static void select_names(enum tutti_collective collective, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; tti_algorithm_at(collective, i) && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i ? ", " : "",
                                 tti_algorithm_at(collective, i)->name);
}

static enum tutti_result select_check_one(const char *entry, size_t length)
{
    const char *equals = memchr(entry, '=', length);
    char name[64], known[400];
    const char *value = equals ? equals + 1 : entry;
    snprintf(name, sizeof name, "%.*s", (int)(length - (size_t)(value - entry)), value);
    for (int c = 0; c < TUTTI_COLLECTIVE_COUNT; c++) {
        const char *collective = tutti_collective_name((enum tutti_collective)c);
        bool named = equals && (size_t)(equals - entry) == strlen(collective) &&
                     strncmp(entry, collective, strlen(collective)) == 0;
        if ((named || !equals) && tti_algorithm_find((enum tutti_collective)c, name))
            return TUTTI_OK;
        if (named) {
            select_names((enum tutti_collective)c, known, sizeof known);
            return TTI_FAIL(TUTTI_ERR_ARGUMENT, "\"%s\" is no algorithm for %s; there are: %s",
                            name, collective, known);
        }
    }
    select_names(TUTTI_ALL_REDUCE, known, sizeof known);
    if (equals)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "\"%.*s\" is no collective (algorithms are given as \"ring\" or "
                        "\"all_reduce=ring,broadcast=tree\")",
                        (int)(equals - entry), entry);
    return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                    "\"%s\" is no algorithm of any collective; for all_reduce there are: %s", name,
                    known);
}

enum tutti_result tti_select_check(const char *algorithms)
{
    while (algorithms && *algorithms) {
        size_t length = strcspn(algorithms, ",");
        TTI_TRY(select_check_one(algorithms, length));
        algorithms += length + (algorithms[length] == ',');
    }
    return TUTTI_OK;
}

static int select_most_lanes(const struct tutti_comm *comm, double bytes)
{
    /* A lane is worth its messages from about 256 KiB up; forcing overrides. */
    if (comm->settings.lanes_forced)
        return comm->settings.lanes;
    return bytes >= 256.0 * 1024 * comm->size ? comm->settings.lanes : 1;
}

static int select_slices(const struct tti_algorithm *algorithm, double bytes)
{
    if (!algorithm->sliced)
        return 1;
    int slices = 1;
    while (slices < 32 && bytes / slices > 64.0 * 1024)
        slices *= 2;
    return slices;
}

static bool select_applicable(const struct tti_algorithm *algorithm,
                              const struct tti_plan_spec *spec)
{
    return !algorithm->applicable || algorithm->applicable(spec);
}

/* Predicted seconds of the fused path (fused.h): two messages, and the bytes that a rank touches.
 */
static double select_fused_cost(const struct tutti_comm *comm, enum tutti_collective collective,
                                double bytes)
{
    double crowd = comm->cores > 0 ? (double)comm->size / (double)comm->cores : 1;
    double touched = tti_fused_touched(collective, comm->size) * bytes * FUSED_TOUCH;
    return 2 * (crowd > 1 ? CROWDED_ALPHA : MEMORY_ALPHA) + touched * (crowd > 1 ? crowd : 1);
}

/* The path of `algorithm` for blocks of `bytes`. */
static enum tti_path select_path(const struct tutti_comm *comm, enum tutti_collective collective,
                                 const struct tti_algorithm *algorithm, double bytes, bool fused)
{
    if (!comm->settings.fast || comm->size < 2 || !select_in_memory(comm))
        return TTI_PATH_PLAN;
    if (fused && algorithm == tti_fused_equal(collective) && comm->size <= TTI_FUSED_RANKS &&
        bytes * tti_fused_blocks(collective, comm->size) >= (double)comm->settings.fused_from)
        return TTI_PATH_FUSED;
    return TTI_PATH_PLAN;
}

static enum tutti_result select_best(struct tutti_comm *comm, enum tutti_collective collective,
                                     size_t count, enum tutti_type type, int root, bool fused,
                                     struct tti_selection *selection)
{
    double bytes = (double)count * (double)tutti_type_size(type);
    char forced[64];
    bool is_forced = select_forced(comm->settings.algorithms, collective, forced, sizeof forced);
    struct tti_selection best = {.predicted_s = INFINITY};
    for (int i = 0; tti_algorithm_at(collective, i); i++) {
        const struct tti_algorithm *algorithm = tti_algorithm_at(collective, i);
        if (is_forced && strcmp(algorithm->name, forced) != 0)
            continue;
        struct tti_plan_spec spec = {
            .collective = collective,
            .nranks = comm->size,
            .rank = comm->rank,
            .root = root,
            .lanes = select_most_lanes(comm, bytes),
            .slices = select_slices(algorithm, bytes),
            .layout = tti_peers_layout(&comm->peers),
        };
        if (!select_applicable(algorithm, &spec))
            continue;
        enum tti_path path = select_path(comm, collective, algorithm, bytes, fused);
        double seconds = 0;
        if (path == TTI_PATH_FUSED)
            seconds = select_fused_cost(comm, collective, bytes);
        else
            TTI_TRY(select_cost(comm, i, algorithm, &spec, bytes, &seconds));
        /* Where the fused path serves, it moves the fewest bytes that can be. Of equals the later,
         * which has the fewer steps (one_shot). */
        bool better =
            path == TTI_PATH_FUSED || (best.path != TTI_PATH_FUSED && seconds <= best.predicted_s);
        if (!best.algorithm || better)
            best = (struct tti_selection){algorithm, path, !fused, i, spec, seconds, count, type};
    }
    if (!best.algorithm)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "%s: algorithm \"%s\" cannot serve %d ranks on %d hosts; leave the choice "
                        "to the library or name another",
                        tutti_collective_name(collective), is_forced ? forced : "any", comm->size,
                        comm->peers.nhosts);
    *selection = best;
    return TUTTI_OK;
}

/* The last answer of each kind is kept: programs repeat themselves. */
static enum tutti_result select_kept(struct tutti_comm *comm, enum tutti_collective collective,
                                     size_t count, enum tutti_type type, int root, bool fused,
                                     struct tti_selection *selection)
{
    struct tti_selection *last = &comm->last_selection[collective][fused];
    if (!last->algorithm || last->count != count || last->type != type)
        TTI_TRY(select_best(comm, collective, count, type, root, fused, last));
    *selection = *last;
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
