/* The sweep: for each type, operator and size a row (sweep_time.c), and the buffers for all. */
#include "bench/sweep.h"

#include "base/memory.h"
#include "coll/door.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- buffers ---- */

static int memory_get(const struct bench_options *o, size_t bytes, char **memory)
{
    void *made = NULL;
    if (o->memory == BENCH_LIBRARY) {
        BENCH_TRY(tutti_alloc(bytes, &made), "memory");
    } else {
        /* Whole pages, as whoever means to register memory allocates them (parts of pages cannot be
         * mapped), and as the peers' buffers lie that this is compared with. */
        const size_t page = (size_t)sysconf(_SC_PAGESIZE);
        bytes = (bytes / page + 1) * page;
        made = aligned_alloc(page, bytes);
        if (!made) {
            fprintf(stderr, "allreduce_bench: cannot allocate %zu bytes\n", bytes);
            return 1;
        }
        memset(made, 0, bytes);
        if (o->memory == BENCH_REGISTERED && tutti_register(made, bytes) != TUTTI_OK) {
            free(made);
            return bench_failed("registering memory");
        }
    }
    *memory = made;
    return 0;
}

static void memory_put(const struct bench_options *o, char *memory)
{
    if (!memory)
        return;
    if (o->memory == BENCH_LIBRARY) {
        tutti_free(memory);
        return;
    }
    if (o->memory == BENCH_REGISTERED && tutti_deregister(memory) != TUTTI_OK)
        (void)bench_failed("deregistering memory");
    free(memory);
}

bool bench_memory_fits(const struct bench_options *o, int ranks, bool say)
{
    const double gib = 1 << 30;
    const double all = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / gib;
    const double needed = 2.0 * ranks * (double)o->max_bytes / gib;
    if (needed > all && say)
        fprintf(stderr,
                "allreduce_bench: buffers of up to %zu bytes of %d ranks need %.0f GiB of memory, "
                "this host has %.0f; give a smaller -e\n",
                o->max_bytes, ranks, needed, all);
    return needed <= all;
}

/* ---- the loops ---- */

/* What will run, and what is next best. */
static enum tutti_result choose(struct sweep *s, struct bench_row *row)
{
    struct tutti_choice best[2];
    int found = 0;
    if (s->device.gpu) /* by other rules: how it went is known afterwards */
        return TUTTI_OK;
    if (s->c.collective == TUTTI_SEND_RECV ||
        (s->c.uneven && !tti_comm_uneven_plan(s->comm, s->c.collective))) {
        snprintf(row->choice.algorithm, sizeof row->choice.algorithm, "exchange");
        return TUTTI_OK;
    }
    enum tutti_result result =
        tutti_comm_choices(s->comm, s->c.collective, s->c.shape.count, s->c.type,
                           s->o->memory != BENCH_MALLOC && !s->c.uneven, best, 2, &found);
    if (result != TUTTI_OK)
        return result;
    row->choice = best[0];
    row->has_next = found > 1;
    row->next = best[found > 1];
    return TUTTI_OK;
}

static int sweep_row(struct sweep *s, size_t bytes, struct bench_row *row)
{
    bench_case_size(&s->c, bytes, s->rank, s->size);
    bool rooted = s->c.collective == TUTTI_BROADCAST || s->c.collective == TUTTI_REDUCE ||
                  s->c.collective == TUTTI_GATHER || s->c.collective == TUTTI_SCATTER;
    bool reduces = s->c.collective == TUTTI_ALL_REDUCE || s->c.collective == TUTTI_REDUCE ||
                   s->c.collective == TUTTI_REDUCE_SCATTER;
    *row =
        (struct bench_row){.bytes = s->c.shape.bytes,
                           .count = s->c.shape.count,
                           .type = s->c.type,
                           .op = reduces ? s->c.op : -1,
                           .root = rooted ? s->c.root : -1,
                           .has_in_place = s->c.collective != TUTTI_SEND_RECV && !s->o->explain &&
                                           !(s->c.uneven && s->c.collective == TUTTI_ALL_TO_ALL)};
    BENCH_TRY(choose(s, row), "choice");
    if (bench_measure(s, false, &row->out_of_place))
        return 1;
    if (s->device.gpu)
        snprintf(row->choice.algorithm, sizeof row->choice.algorithm, "%s",
                 tti_comm_device_way(s->comm));
    return row->has_in_place ? bench_measure(s, true, &row->in_place) : 0;
}

static int keep_row(struct bench_result *result, const struct bench_row *row)
{
    void *rows = result->rows;
    BENCH_TRY(tti_grow(&rows, &result->capacity, result->count + 1, sizeof *row), "results");
    result->rows = rows;
    result->rows[result->count++] = *row;
    result->busbw_sum += row->out_of_place.busbw + row->in_place.busbw;
    result->busbw_count += row->has_in_place ? 2 : 1;
    result->wrong += row->out_of_place.wrong > 0 ? row->out_of_place.wrong : 0;
    result->wrong += row->has_in_place && row->in_place.wrong > 0 ? row->in_place.wrong : 0;
    return 0;
}

static size_t next_size(const struct bench_options *o, size_t bytes)
{
    if (o->step_factor == 0)
        return bytes > SIZE_MAX - o->step_bytes ? SIZE_MAX : bytes + o->step_bytes;
    double next = (double)(bytes ? bytes : 1) * o->step_factor;
    if (next >= (double)(SIZE_MAX / 2))
        return SIZE_MAX;
    return (size_t)next > bytes ? (size_t)next : bytes + 1;
}

static int sweep_sizes(struct sweep *s, struct bench_result *result)
{
    for (size_t bytes = s->o->min_bytes; bytes <= s->o->max_bytes; bytes = next_size(s->o, bytes)) {
        struct bench_row row;
        char text[120];
        snprintf(text, sizeof text, "measuring %s of %zu bytes (of %zu)",
                 bench_collective_label(s->c.collective, s->c.uneven), bytes, s->o->max_bytes);
        if (s->rank == 0)
            bench_progress(text);
        if (sweep_row(s, bytes, &row) || keep_row(result, &row))
            return 1;
        if (s->rank == 0)
            bench_progress(NULL);
        if (s->rank == 0 && !s->o->explain)
            bench_report_row(&row);
        if (s->rank == 0 && bench_report_keep(s->o, s->comm, result))
            return 1;
    }
    return 0;
}

/* The pre-multiplied sum of the check: rank r counts r % 2 + 1 times. */
static int user_op_create(struct sweep *s)
{
    unsigned char scalar[8];
    static const unsigned char one_or_two[TUTTI_TYPE_COUNT][2][2] = {
        [TUTTI_FLOAT16] = {{0x00, 0x3c}, {0x00, 0x40}},
        [TUTTI_BFLOAT16] = {{0x80, 0x3f}, {0x00, 0x40}},
        [TUTTI_FLOAT8_E4M3] = {{0x38, 0}, {0x40, 0}},
        [TUTTI_FLOAT8_E5M2] = {{0x3c, 0}, {0x40, 0}},
    };
    int64_t integer = s->rank % 2 + 1;
    double real = (double)integer;
    float single = (float)integer;
    memset(scalar, 0, sizeof scalar);
    if (s->c.type == TUTTI_FLOAT64)
        memcpy(scalar, &real, sizeof real);
    else if (s->c.type == TUTTI_FLOAT32)
        memcpy(scalar, &single, sizeof single);
    else if (s->c.type >= TUTTI_BFLOAT16 || s->c.type == TUTTI_FLOAT16)
        memcpy(scalar, one_or_two[s->c.type][s->rank % 2], 2);
    else
        memcpy(scalar, &integer, sizeof integer);
    BENCH_TRY(tutti_premul_sum_create(s->comm, s->c.type, scalar, &s->user_op), "operator");
    return 0;
}

static int sweep_types_and_ops(struct sweep *s, struct bench_result *result)
{
    const struct bench_options *o = s->o;
    for (int t = 0; t < TUTTI_TYPE_COUNT; t++) {
        if (!o->all_types && t != (int)o->type)
            continue;
        for (int op = 0; op <= TUTTI_OP_COUNT; op++) {
            int number = op == TUTTI_OP_COUNT ? BENCH_MULSUM : op;
            if (!o->all_ops && number != o->op)
                continue;
            s->c.type = (enum tutti_type)t;
            s->c.op = number;
            if (number == BENCH_MULSUM && user_op_create(s))
                return 1;
            int status = sweep_sizes(s, result);
            if (number == BENCH_MULSUM)
                (void)tutti_op_destroy(s->comm, s->user_op);
            if (status)
                return status;
        }
    }
    return 0;
}

/* After the sweep, when all that it needs has been made. */
static int measure_memory(struct sweep *s, struct tutti_memory *memory)
{
    struct tutti_memory own;
    BENCH_TRY(tutti_comm_memory(s->comm, &own), "memory");
    int64_t of_rank[] = {(int64_t)own.host,   (int64_t)own.shared, (int64_t)own.shared_used,
                         (int64_t)own.mapped, own.descriptors,     (int64_t)own.device,
                         (int64_t)own.pinned};
    BENCH_TRY(tutti_all_reduce(of_rank, of_rank, sizeof of_rank / sizeof of_rank[0], TUTTI_INT64,
                               TUTTI_MAX, s->comm),
              "memory");
    *memory = (struct tutti_memory){.host = (size_t)of_rank[0],
                                    .shared = (size_t)of_rank[1],
                                    .shared_used = (size_t)of_rank[2],
                                    .mapped = (size_t)of_rank[3],
                                    .descriptors = (int)of_rank[4],
                                    .device = (size_t)of_rank[5],
                                    .pinned = (size_t)of_rank[6]};
    return 0;
}

static int buffers_get(struct sweep *s)
{
    const struct bench_options *o = s->o;
    s->c.in_counts = tti_calloc(2 * (size_t)s->size, sizeof *s->c.in_counts);
    BENCH_TRY(s->c.in_counts ? TUTTI_OK : TUTTI_ERR_MEMORY, "counts");
    s->c.out_counts = s->c.in_counts + s->size;
    if (memory_get(o, o->max_bytes, &s->in_host) || memory_get(o, o->max_bytes, &s->out_host))
        return 1;
    BENCH_TRY(bench_device_open(o, tutti_comm_local_rank(s->comm), &s->device), "device");
    s->in = s->in_host;
    s->out = s->out_host;
    if (!s->device.gpu)
        return 0;
    s->in = s->out = NULL;
    BENCH_TRY(bench_device_get(&s->device, o->max_bytes, &s->in), "device memory");
    BENCH_TRY(bench_device_get(&s->device, o->max_bytes, &s->out), "device memory");
    s->devices = tti_calloc((size_t)s->size, sizeof *s->devices);
    BENCH_TRY(s->devices ? TUTTI_OK : TUTTI_ERR_MEMORY, "devices");
    BENCH_TRY(tutti_all_gather(&s->device.index, s->devices, 1, TUTTI_INT32, s->comm), "devices");
    /* Messages alone never would: they go by the host until all have mapped each other's memory. */
    BENCH_TRY(tti_comm_prepare_device(s->comm, s->device.index), "mapping device memory");
    return 0;
}

static void buffers_put(struct sweep *s)
{
    if (s->device.gpu) {
        (void)bench_device_finish(s->o, &s->device);
        bench_device_put(&s->device, s->in);
        bench_device_put(&s->device, s->out);
    }
    bench_device_close(&s->device);
    memory_put(s->o, s->in_host);
    memory_put(s->o, s->out_host);
    free(s->c.in_counts);
    free(s->devices);
    free(s->samples);
}

int bench_sweep(const struct bench_options *o, tutti_comm *comm, struct bench_result *result)
{
    struct sweep s = {
        .o = o, .comm = comm, .rank = tutti_comm_rank(comm), .size = tutti_comm_size(comm)};
    s.c.collective = o->collective;
    s.c.uneven = o->uneven;
    s.c.root = o->root;
    if (o->root >= s.size) {
        if (s.rank == 0)
            fprintf(stderr, "allreduce_bench: -r %d is no rank of %d\n", o->root, s.size);
        return 2;
    }
    int status = buffers_get(&s);
    if (!status && s.rank == 0)
        bench_report_header(o, comm, s.devices);
    if (!status)
        status = bench_settle(&s);
    for (int cycle = 0; cycle < o->cycles && !status; cycle++)
        status = sweep_types_and_ops(&s, result);
    if (!status)
        status = measure_memory(&s, &result->memory);
    buffers_put(&s);
    return status;
}
