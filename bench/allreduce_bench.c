/* allreduce_bench: bandwidth sweeps of every collective over any transport.
 *
 * One program: siblings are names of it (all_gather_bench, ...), which set --coll. Under a launcher
 * each process is a rank; otherwise it starts its own local ranks, as processes (by running itself
 * again) or as threads. */
#include "base/config.h"
#include "bench/bench.h"
#include "launch/environment.h"
#include "launch/spawn.h"

#include <errno.h>
#include <libgen.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct tutti_options comm_options(const struct bench_options *o)
{
    struct tutti_options options = TUTTI_OPTIONS_INIT;
    options.timeout_s = o->timeout_s;
    options.init_timeout_s = o->timeout_s;
    options.transports = o->transport;
    options.algorithms = o->algo;
    options.lanes = o->lanes;
    options.plugins = o->plugin;
    return options;
}

/* The sweep on one rank, whose communicator exists. */
static int run_rank(const struct bench_options *o, tutti_comm *comm)
{
    struct bench_result result = {0};
    int rank = tutti_comm_rank(comm);
    int status = bench_sweep(o, comm, &result);
    if (status == 0 && rank == 0)
        status = bench_report_end(o, comm, &result);
    else if (status == 0)
        status = result.wrong ? 1 : 0;
    free(result.rows);
    tutti_comm_destroy(comm);
    return status;
}

static bool can_write(const char *path)
{
    char folder[4096];
    struct stat status;
    if (stat(path, &status) == 0) {
        errno = EISDIR;
        return !S_ISDIR(status.st_mode) && access(path, W_OK) == 0;
    }
    snprintf(folder, sizeof folder, "%s", path);
    return access(dirname(folder), W_OK | X_OK) == 0;
}

static int own_ranks(const struct bench_options *o)
{
    enum { DEFAULT_RANKS = 2 };
    return o->ranks ? o->ranks : DEFAULT_RANKS;
}

/* What would be refused by each of our own ranks, or at the end of their sweep: refused once,
 * before any of them is started. The settings are tried on a communicator of one rank. */
static int check_job(const struct bench_options *o, int ranks)
{
    const char *paths[] = {o->json, o->csv, o->plot};
    struct tutti_options options = comm_options(o);
    tutti_comm *alone = NULL;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (paths[i] && !can_write(paths[i])) {
            fprintf(stderr, "allreduce_bench: cannot write %s: %s\n", paths[i], strerror(errno));
            return 2;
        }
    if (o->hosts > 1 && (o->threads || o->hosts > ranks)) {
        fprintf(stderr, "allreduce_bench: --hosts %d: %s\n", o->hosts,
                o->threads ? "threads of one process are on one host; leave --threads (-t, -g) out"
                           : "more hosts than ranks");
        return 2;
    }
    if (o->root >= ranks) {
        fprintf(stderr, "allreduce_bench: -r %d is no root of %d ranks\n", o->root, ranks);
        return 2;
    }
    if (!bench_memory_fits(o, ranks, true))
        return 2;
    if (tutti_comm_create_from_env(&options, &alone) != TUTTI_OK) {
        fprintf(stderr, "allreduce_bench: %s\n", tutti_last_error());
        return 2;
    }
    tutti_comm_destroy(alone);
    return 0;
}

/* Ranks in blocks to hosts, which are names. False: it was not this program that started them. */
static bool pretend_host(const struct bench_options *o)
{
    const char *rank = getenv("RANK"), *size = getenv("WORLD_SIZE");
    const int ranks = own_ranks(o);
    char name[32];
    if (!rank || !size || atoi(size) != ranks)
        return false;
    snprintf(name, sizeof name, "pretended %d", atoi(rank) * o->hosts / ranks);
    setenv("TUTTI_HOST_ID", name, 1);
    return true;
}

static int run_launched(const struct bench_options *o)
{
    struct tutti_options options = comm_options(o);
    tutti_comm *comm = NULL;
    if (tutti_comm_create_from_env(&options, &comm) != TUTTI_OK) {
        fprintf(stderr, "allreduce_bench: %s\n", tutti_last_error());
        return 1;
    }
    if (o->ranks && o->ranks != tutti_comm_size(comm) && tutti_comm_rank(comm) == 0)
        fprintf(stderr, "allreduce_bench: --ranks %d is ignored: the launcher started %d\n",
                o->ranks, tutti_comm_size(comm));
    /* All ranks of a host find the same; one of them says it. */
    if (!bench_memory_fits(o, tutti_comm_local_size(comm), tutti_comm_local_rank(comm) == 0)) {
        tutti_comm_destroy(comm);
        return 2;
    }
    return run_rank(o, comm);
}

/* ---- ranks as threads ---- */

struct thread_rank {
    const struct bench_options *o;
    const struct tutti_id *id;
    int rank, size, status;
    const cpu_set_t *cpus; /* NULL: not bound */
};

static void *thread_main(void *argument)
{
    struct thread_rank *self = argument;
    struct tutti_options options = comm_options(self->o);
    tutti_comm *comm = NULL;
    self->status = 1;
    if (self->cpus) /* refused only when the CPUs were taken away meanwhile: then it runs anywhere
                     */
        (void)pthread_setaffinity_np(pthread_self(), sizeof *self->cpus, self->cpus);
    if (tutti_comm_create(self->id, self->rank, self->size, &options, &comm) != TUTTI_OK) {
        if (self->rank == 0)
            fprintf(stderr, "allreduce_bench: %s\n", tutti_last_error());
    } else {
        self->status = run_rank(self->o, comm);
    }
    return NULL;
}

static int run_threads(const struct bench_options *o, int ranks, const cpu_set_t *cpus)
{
    struct tutti_id id;
    pthread_t *threads = calloc((size_t)ranks, sizeof *threads);
    struct thread_rank *selves = calloc((size_t)ranks, sizeof *selves);
    int status = 1, started = 0;
    if (!threads || !selves || tutti_id_create("127.0.0.1", &id) != TUTTI_OK) {
        fprintf(stderr, "allreduce_bench: %s\n", tutti_last_error());
        goto out;
    }
    status = 0;
    for (; started < ranks; started++) {
        selves[started] =
            (struct thread_rank){o, &id, started, ranks, 0, cpus ? &cpus[started] : NULL};
        if (pthread_create(&threads[started], NULL, thread_main, &selves[started]) != 0) {
            fprintf(stderr, "allreduce_bench: cannot start thread %d of %d\n", started, ranks);
            status = 1;
            break;
        }
    }
    for (int r = 0; r < started; r++) {
        pthread_join(threads[r], NULL);
        if (selves[r].status > status)
            status = selves[r].status;
    }
out:
    free(threads);
    free(selves);
    return status;
}

/* ---- ranks as processes ---- */

static int run_processes(char **argv, int ranks, const cpu_set_t *cpus)
{
    struct tti_spawn spawn = {
        .argv = argv, .nproc = ranks, .nnodes = 1, .program = "allreduce_bench", .cpus = cpus};
    int status = 1;
    if (tti_spawn_run(&spawn, &status) != TUTTI_OK)
        fprintf(stderr, "allreduce_bench: %s\n", tutti_last_error());
    return status;
}

static void doubt(const char *text)
{
    fprintf(stderr, "allreduce_bench: %s\n", text);
}

int main(int argc, char **argv)
{
    struct bench_options options;
    int parsed = bench_options_parse(argc, argv, &options);
    if (parsed)
        return parsed == 1 ? 0 : 2;
    if (options.device)
        setenv("TUTTI_DEVICE", options.device, 1);
    /* Kernels of ranks that wait for each other may not stand in one hardware queue. */
    if (options.device)
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    if (tti_place_is_launched()) {
        if (options.hosts > 1 && !pretend_host(&options)) {
            fprintf(stderr, "allreduce_bench: --hosts is for ranks that are started here; under a "
                            "launcher give each host's ranks a TUTTI_HOST_ID of their own\n");
            return 2;
        }
        if (options.threads) {
            fprintf(stderr,
                    "allreduce_bench: --threads (-t, -g) cannot be combined with a launcher, "
                    "which starts one process a rank; leave one of them out\n");
            return 2;
        }
        return run_launched(&options);
    }
    tti_config_misspelt(environ, doubt); /* under a launcher rank 0's log would say so */
    const int ranks = own_ranks(&options);
    if (check_job(&options, ranks))
        return 2;
    cpu_set_t *cpus = NULL;
    if (tti_bind_ranks(options.bind, ranks, &cpus) != TUTTI_OK) {
        fprintf(stderr, "allreduce_bench: %s\n", tutti_last_error());
        return 2;
    }
    int status =
        options.threads ? run_threads(&options, ranks, cpus) : run_processes(argv, ranks, cpus);
    free(cpus);
    return status;
}
