/* See coll/column.h. Plans are those for ranks that have a host each, with the column's ranks for
 * names; which one is taken follows from the model of cost, as in select.c, but that as many
 * columns as a host has ranks share its line. */
#include "coll/column.h"

#include "base/memory.h"
#include "coll/algorithms/algorithms.h"
#include "coll/comm.h"
#include "coll/cost_model.h"
#include "coll/executor.h"
#include "coll/gpu/gpu_calls.h"
#include "coll/select.h"
#include "device/reduce.h"
#include "plan/recast.h"

#include <stdlib.h>
#include <string.h>

enum { KEPT = 16 }; /* sizes whose choice is kept: a power of two */

struct choice {
    bool made;
    enum tutti_collective collective;
    size_t bytes; /* of a block */
    int index;    /* of the algorithm */
    int lanes;
};

struct tti_column {
    int hosts, host;
    int *names;                     /* by host: the column's rank there */
    int *host_of;                   /* 0, 1, ...: a host each */
    struct tti_plan_cache plans[2]; /* [wide] */
    struct tti_work_model work[TUTTI_COLLECTIVE_COUNT][TTI_MOST_ALGORITHMS];
    struct choice kept[KEPT];
};

/* ---- plans ---- */

static enum tutti_result column_plan(void *context, const struct tti_algorithm *algorithm,
                                     const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    const struct tti_column *column = context;
    TTI_TRY(algorithm->plan(spec, plan));
    tti_plan_rename(*plan, column->names);
    return TUTTI_OK;
}

/* Those of all ranks, since what a message carries its sender's plan says. */
static enum tutti_result column_wide_plan(void *context, const struct tti_algorithm *algorithm,
                                          const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    const struct tti_column *column = context;
    struct tti_plan_spec each = *spec;
    struct tti_plan **plans = tti_calloc((size_t)column->hosts, sizeof *plans);
    enum tutti_result result = plans ? TUTTI_OK : TUTTI_ERR_MEMORY;
    for (each.rank = 0; result == TUTTI_OK && each.rank < column->hosts; each.rank++)
        result = algorithm->plan(&each, &plans[each.rank]);
    if (result == TUTTI_OK)
        result = tti_plan_widen(plans, column->hosts);
    for (int r = 0; plans && r < column->hosts; r++)
        if (r != spec->rank || result != TUTTI_OK)
            tti_plan_destroy(plans[r]);
    if (result == TUTTI_OK) {
        *plan = plans[spec->rank];
        tti_plan_rename(*plan, column->names);
    }
    free(plans);
    return result;
}

/* ---- making and ending ---- */

/* As many ranks on every host, whose numbers go by rank. */
static void column_names(const struct tutti_comm *comm, struct tti_column *column)
{
    int *seen = column->host_of; /* filled in afterwards */
    for (int r = 0; r < comm->size; r++) {
        const int host = comm->peers.host_of[r];
        if (seen[host]++ == comm->peers.local_rank)
            column->names[host] = r;
    }
    for (int h = 0; h < column->hosts; h++)
        column->host_of[h] = h;
}

static enum tutti_result column_of(struct tutti_comm *comm, struct tti_column **column)
{
    if (!comm->column) {
        const size_t hosts = (size_t)comm->peers.nhosts;
        struct tti_column *made = tti_calloc(1, sizeof *made);
        if (!made)
            return TUTTI_ERR_MEMORY;
        made->hosts = comm->peers.nhosts;
        made->host = comm->peers.host_of[comm->rank];
        made->names = tti_calloc(hosts, sizeof *made->names);
        made->host_of = tti_calloc(hosts, sizeof *made->host_of);
        made->plans[0] = (struct tti_plan_cache){.build = column_plan, .context = made};
        made->plans[1] = (struct tti_plan_cache){.build = column_wide_plan, .context = made};
        if (!made->names || !made->host_of) {
            tti_column_destroy(made);
            return TUTTI_ERR_MEMORY;
        }
        column_names(comm, made);
        comm->column = made;
    }
    *column = comm->column;
    return TUTTI_OK;
}

void tti_column_destroy(struct tti_column *column)
{
    if (!column)
        return;
    tti_plan_cache_destroy(&column->plans[0]);
    tti_plan_cache_destroy(&column->plans[1]);
    free(column->names);
    free(column->host_of);
    free(column);
}

size_t tti_column_bytes(const struct tti_column *column)
{
    return column ? tti_heap_bytes(column) + tti_heap_bytes(column->names) +
                        tti_heap_bytes(column->host_of) + tti_plan_cache_bytes(&column->plans[0]) +
                        tti_plan_cache_bytes(&column->plans[1])
                  : 0;
}

/* ---- which plan ---- */

static struct tti_plan_spec column_spec(const struct tti_column *column,
                                        const struct tti_operation *o, int root, int lanes)
{
    return (struct tti_plan_spec){
        .collective = o->collective,
        .nranks = column->hosts,
        .rank = column->host,
        .root = root,
        .lanes = lanes,
        .slices = 1,
        .layout = {.nhosts = column->hosts, .host_of = column->host_of, .sorted = true}};
}

/* As between ranks that are not of a column (select.c). */
static int column_lanes(const struct tutti_comm *comm, double bytes)
{
    const struct tti_settings *s = &comm->settings;
    const double worth = 256 << 10;
    if (s->lanes_forced || s->lanes < TTI_USUAL_LANES)
        return s->lanes;
    return bytes >= worth * comm->peers.nhosts ? TTI_USUAL_LANES : 1;
}

/* The plan's work, counted once for each algorithm. */
static enum tutti_result column_work(struct tti_column *column, int index,
                                     const struct tti_algorithm *algorithm,
                                     const struct tti_plan_spec *spec, struct tti_work_model *model)
{
    struct tti_work_model *known = &column->work[spec->collective][index];
    if (known->steps == 0) {
        struct tti_plan_spec any = *spec;
        any.root = 0;
        any.lanes = 1;
        TTI_TRY(tti_work_model_of(algorithm, &any, known));
    }
    *model = *known;
    return TUTTI_OK;
}

/* The root is left out: it costs alike, wherever it is. */
static enum tutti_result column_choose(struct tutti_comm *comm, struct tti_column *column,
                                       const struct tti_operation *o, double bytes,
                                       struct choice *choice)
{
    const double columns = comm->peers.local_size, bits = comm->peers.line_bits;
    const struct tti_cost_place place = {.medium = TTI_NETWORK,
                                         .most_local = comm->peers.local_size,
                                         .line = bits > 0 ? 8 / bits * columns : 0};
    double best = -1;
    choice->lanes = column_lanes(comm, bytes);
    for (int i = 0; tti_algorithm_at(o->collective, i); i++) {
        const struct tti_algorithm *algorithm = tti_algorithm_at(o->collective, i);
        struct tti_cost_way way = {.algorithm = algorithm,
                                   .path = TTI_PATH_PLAN,
                                   .spec = column_spec(column, o, 0, choice->lanes)};
        if (algorithm->by_request || (algorithm->applicable && !algorithm->applicable(&way.spec)))
            continue;
        way.spec.slices = tti_select_slices(algorithm, bytes);
        TTI_TRY(column_work(column, i, algorithm, &way.spec, &way.work));
        const double seconds = tti_cost_seconds(&comm->profile, &place, &way, bytes);
        if (best >= 0 && seconds >= best)
            continue;
        best = seconds;
        choice->index = i;
    }
    if (best < 0)
        return TTI_FAIL(TUTTI_ERR_INTERNAL, "no algorithm for a %s between %d hosts",
                        tutti_collective_name(o->collective), column->hosts);
    return TUTTI_OK;
}

static enum tutti_result column_select(struct tutti_comm *comm, struct tti_column *column,
                                       const struct tti_operation *o, struct choice **found)
{
    const size_t bytes = o->count * tutti_type_size(o->wide ? tti_acc_type(o->type) : o->type);
    const uint64_t hash = ((uint64_t)bytes * TUTTI_COLLECTIVE_COUNT + (uint64_t)o->collective) *
                          UINT64_C(0x9e3779b97f4a7c15);
    struct choice *choice = &column->kept[hash >> 60];
    _Static_assert(KEPT == 1 << 4, "four bits");
    *found = choice;
    if (choice->made && choice->collective == o->collective && choice->bytes == bytes)
        return TUTTI_OK;
    choice->made = false;
    TTI_TRY(column_choose(comm, column, o, (double)bytes, choice));
    choice->made = true;
    choice->collective = o->collective;
    choice->bytes = bytes;
    return TUTTI_OK;
}

/* ---- running ---- */

enum tutti_result tti_column_run(struct tutti_comm *comm, const struct tti_operation *o,
                                 const struct tti_label *label)
{
    struct tti_column *column = NULL;
    struct choice *choice = NULL;
    const struct tti_plan_entry *entry = NULL;
    const uint64_t deadline = tti_deadline_in(comm->settings.timeout_s);
    TTI_TRY(tti_gpu_sound(comm));
    TTI_TRY(column_of(comm, &column));
    TTI_TRY(column_select(comm, column, o, &choice));
    const struct tti_algorithm *algorithm = tti_algorithm_at(o->collective, choice->index);
    const bool rooted = o->collective == TUTTI_BROADCAST || o->collective == TUTTI_REDUCE;
    const int root = rooted ? comm->peers.host_of[o->root] : 0;
    struct tti_plan_spec spec = column_spec(column, o, root, choice->lanes);
    spec.slices = tti_select_slices(algorithm, (double)choice->bytes);
    tti_record_by(&comm->recorder.ring[0], TTI_RECORD_PLAN, choice->index, choice->lanes);
    TTI_TRY(tti_plan_cache_get(&column->plans[o->wide], algorithm, &spec, &entry));
    TTI_TRY(tti_links_connect(comm, entry->plan->peers, entry->plan->npeers, deadline, label));
    return tti_executor_run(comm->executor, o, entry,
                            tti_tag_numbered(tti_tag(o, choice->index), label->sequence), deadline,
                            label);
}
