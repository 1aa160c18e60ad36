/* tutti-tune: measures on this machine what communicators then choose by.
 *
 * It starts its ranks itself (by running itself again), a job for each number of ranks asked for;
 * under a launcher its processes are the ranks. Rank 0 puts what was measured into the file of
 * coll/tuning.h, where every communicator finds it. Read next: tune_measure.c, tune_fit.c. */
#include "base/clock.h"
#include "base/host.h"
#include "coll/staged.h"
#include "device/cpu_caches.h"
#include "launch/environment.h"
#include "tools/plan_flags.h"
#include "tools/tune.h"
#include "tools/tune_jobs.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_JOBS = 16, MOST_RANKS = 4096, EXIT_USAGE = 2 };

struct settings {
    const char *ranks, *transport, *collectives, *output;
    int seconds, lanes;
    size_t max_bytes;
    bool constants, refit, version, quiet;
    int jobs[MOST_JOBS];
    int job_count;
    struct tune_options tune;
    char path[TTI_TUNING_PATH_BYTES];
};

static int wrong(const char *text)
{
    fprintf(stderr, "tutti-tune: %s (tutti-tune --help)\n", text);
    return EXIT_USAGE;
}

static int failed(void)
{
    fprintf(stderr, "tutti-tune: %s\n", tutti_last_error());
    return 1;
}

/* ---- the command line ---- */

/* "2,4": the numbers of ranks; all cores that it may run on when there is no list. */
static enum tutti_result settings_jobs(struct settings *s)
{
    const int cores = tti_host_cpus();
    const char *at = s->ranks;
    s->jobs[s->job_count++] = cores > 2 ? cores : 2;
    for (s->job_count = at ? 0 : 1; at && *at; at += *at == ',') {
        char *end = NULL;
        long ranks = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',') || ranks < 2 || ranks > MOST_RANKS ||
            s->job_count == MOST_JOBS)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                            "--ranks \"%s\": expected at most %d numbers from 2 to %d, with commas",
                            s->ranks, MOST_JOBS, MOST_RANKS);
        s->jobs[s->job_count++] = (int)ranks;
        at = end;
    }
    return s->job_count ? TUTTI_OK : TTI_FAIL(TUTTI_ERR_ARGUMENT, "--ranks names no number");
}

static enum tutti_result settings_collectives(struct settings *s)
{
    const char *at = s->collectives;
    for (int c = 0; c < TUTTI_COLLECTIVE_COUNT; c++)
        s->tune.collective[c] = !at && c != TUTTI_SEND_RECV;
    for (; at && *at; at += strcspn(at, ","), at += *at == ',') {
        bool found = false;
        for (int c = 0; c < TUTTI_SEND_RECV; c++) {
            const char *name = tutti_collective_name((enum tutti_collective)c);
            if (strlen(name) == strcspn(at, ",") && strncmp(at, name, strlen(name)) == 0)
                found = s->tune.collective[c] = true;
        }
        if (!found)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT, "--coll \"%.*s\" is no collective",
                            (int)strcspn(at, ","), at);
    }
    return TUTTI_OK;
}

/* 0 to go on, else the exit status and one more. */
static int settings_read(int argc, char **argv, struct settings *s)
{
    const struct plan_flag flags[] = {
        {"--ranks", "-n", FLAG_TEXT, &s->ranks, 0, 0,
         "numbers of ranks, \"2,4\": a job for each (as many as cores)"},
        {"--coll", NULL, FLAG_TEXT, &s->collectives, 0, 0,
         "collectives, \"all_reduce,broadcast\" (all)"},
        {"--transport", NULL, FLAG_TEXT, &s->transport, 0, 0,
         "inproc, shm, tcp, ... (best for each pair)"},
        {"--lanes", NULL, FLAG_INT, &s->lanes, 1, TUTTI_MAX_LANES,
         "the most lanes that are tried (2)"},
        {"--max-bytes", "-e", FLAG_BYTES, &s->max_bytes, 0, 0,
         "size of the largest operations (64M)"},
        {"--time", "-t", FLAG_INT, &s->seconds, 1, 36000,
         "seconds to spend, all jobs together, about (40)"},
        {"--output", "-o", FLAG_TEXT, &s->output, 0, 0,
         "the file (TUTTI_TUNING, else ~/.config/tutti/tuning.json)"},
        {"--constants", NULL, FLAG_SWITCH, &s->constants, 0, 0,
         "print the constants of the cost model that were fitted"},
        {"--refit", NULL, FLAG_SWITCH, &s->refit, 0, 0,
         "measure nothing: fit the constants again to what the file says"},
        {"--quiet", "-q", FLAG_SWITCH, &s->quiet, 0, 0, "print no table"},
        {"--version", NULL, FLAG_SWITCH, &s->version, 0, 0, "print the version"},
    };
    bool help = false;
    if (plan_flags_parse(flags, sizeof flags / sizeof flags[0], argc - 1, argv + 1, &help) !=
        TUTTI_OK)
        return wrong(tutti_last_error()) + 1;
    if (help) {
        puts(
            "Usage: tutti-tune [flags]\n\n"
            "Measures every way of doing every collective on this machine and writes a file by\n"
            "which communicators then choose. What the file says of other numbers of ranks stays.\n"
            "Started by tuttirun, mpirun, ... its processes are the ranks.\n");
        plan_flags_explain(flags, sizeof flags / sizeof flags[0]);
        return 1;
    }
    if (s->version)
        return printf("tutti-tune (Tutti) %d.%d.%d\n", TUTTI_VERSION_MAJOR, TUTTI_VERSION_MINOR,
                      TUTTI_VERSION_PATCH) > 0;
    if (settings_jobs(s) != TUTTI_OK || settings_collectives(s) != TUTTI_OK)
        return wrong(tutti_last_error()) + 1;
    s->tune.max_bytes = s->max_bytes < 8 ? 8 : s->max_bytes;
    s->tune.seconds = (double)s->seconds;
    s->tune.quiet = s->quiet;
    if (s->output)
        snprintf(s->path, sizeof s->path, "%s", s->output);
    else
        tti_tuning_place(s->path, sizeof s->path);
    if (!s->path[0])
        return wrong("there is no HOME to write to; name a file with --output") + 1;
    return 0;
}

/* ---- a rank ---- */

/* What the file says so far: nothing, if it is of another machine or cannot be read. */
static enum tutti_result tuning_begin(const char *path, struct tti_tuning **tuning)
{
    struct tti_machine here;
    tti_machine_identify("", &here);
    if (tti_tuning_read(path, tuning) == TUTTI_OK && tti_machine_alike(&(*tuning)->machine, &here))
        return TUTTI_OK;
    tti_tuning_destroy(*tuning);
    *tuning = NULL;
    TTI_TRY(tti_tuning_create(tuning));
    (*tuning)->machine = here;
    return TUTTI_OK;
}

/* What the fit begins with. The file's series are of several jobs, so it is the machine's CPUs that
 * say which of them had more ranks than cores, not those of the last job's ranks. */
static void tuning_profile(const struct tti_machine *machine, struct tti_profile *profile)
{
    double cache[3];
    for (int level = 0; level < 3; level++)
        cache[level] = (double)tti_cpu_cache_usable(machine->cache[level],
                                                    level == 2 ? (uint64_t)machine->cpus : 0);
    tti_profile_default(cache, tti_cpu_kind(), machine->cpus, profile);
}

/* Fit, write, and say so. */
static enum tutti_result tuning_finish(const struct settings *s, struct tti_tuning *tuning,
                                       bool reads)
{
    struct tti_profile profile;
    double error[TTI_MEDIA] = {0};
    tuning_profile(&tuning->machine, &profile);
    TTI_TRY(tune_fit(tuning, &profile, reads, error));
    TTI_TRY(tti_tuning_write(tuning, s->path));
    if (s->constants)
        tune_report_constants(tuning);
    printf("\n# written to %s (%zu series)\n", s->path, tuning->count);
    for (int medium = 0; medium < TTI_MEDIA; medium++)
        if (error[medium] > 0)
            printf("# %s: the cost model with constants fitted to this machine is off by %.0f%% "
                   "(median over sizes, fastest way)\n",
                   tti_medium_names[medium], (error[medium] - 1) * 100);
    fflush(stdout);
    return TUTTI_OK;
}

/* Rank 0, when all is measured. */
static enum tutti_result tuning_add_rows(const struct settings *s, struct tutti_comm *comm,
                                         const struct tune_rows *rows, double seconds)
{
    struct tti_tuning *tuning = NULL;
    if (!s->quiet)
        tune_report(rows, comm->size);
    printf("\n# %d ranks: %zu sizes measured in %.0f s", comm->size, rows->count, seconds);
    TTI_TRY(tuning_begin(s->path, &tuning));
    enum tutti_result result = tune_merge(tuning, comm, rows);
    if (result == TUTTI_OK)
        result = tuning_finish(s, tuning, comm->peers.reads);
    tti_tuning_destroy(tuning);
    return result;
}

static int refit(const struct settings *s)
{
    struct tti_tuning *tuning = NULL;
    if (tti_tuning_read(s->path, &tuning) != TUTTI_OK)
        return failed();
    /* What the processes of its jobs could do it does not say: what is usual (TUTTI_SHM_CMA). */
    enum tutti_result result = tuning_finish(s, tuning, tti_cpu_meshed());
    tti_tuning_destroy(tuning);
    return result == TUTTI_OK ? 0 : failed();
}

static int run_rank(const struct settings *s)
{
    struct tutti_options options = TUTTI_OPTIONS_INIT;
    struct tune_options tune = s->tune;
    struct tune_rows rows = {0};
    tutti_comm *comm = NULL;
    options.transports = s->transport;
    options.lanes = s->lanes;
    setenv("TUTTI_TUNING", "off", 1); /* what was measured before shall not choose now */
    if (tutti_comm_create_from_env(&options, &comm) != TUTTI_OK)
        return failed();
    comm->settings.lanes_forced = false; /* fewer are tried too */
    comm->settings.staged_ahead =
        TTI_STAGED_AHEAD; /* the file does not say it, so tune_fit has it */
    for (int j = 0; j < s->job_count; j++)
        if (s->jobs[j] == comm->size)
            tune.seconds = s->tune.seconds / s->job_count;
    uint64_t begin = tti_now_ns();
    enum tutti_result result = comm->size < 2 ? TTI_FAIL(TUTTI_ERR_ARGUMENT, "one rank has nothing "
                                                                             "to choose from")
                                              : tune_measure(&tune, comm, &rows);
    if (result == TUTTI_OK && comm->rank == 0)
        result = tuning_add_rows(s, comm, &rows, (double)(tti_now_ns() - begin) / 1e9);
    free(rows.row);
    int status = result == TUTTI_OK ? 0 : failed();
    tutti_comm_destroy(comm);
    return status;
}

/* What else runs on this machine now, on average over half a second: what is measured beside it
 * would choose badly for as long as the file is used. */
static void warn_if_busy(void)
{
    enum { LOOKS = 20, LOOK_MS = 25 };
    int total = 0, running = 0;
    for (int i = 0; i < LOOKS; i++) {
        FILE *file = fopen("/proc/loadavg", "re");
        if (file && fscanf(file, "%*s %*s %*s %d/", &running) == 1)
            total += running - 1; /* without this program */
        if (file)
            fclose(file);
        (void)poll(NULL, 0, LOOK_MS);
    }
    if (2 * total > LOOKS)
        fprintf(stderr,
                "tutti-tune: warning: other programs run here (%.1f at a time); times measured "
                "beside them choose badly: stop them and run this again\n",
                (double)total / LOOKS);
}

int main(int argc, char **argv)
{
    struct settings s = {.seconds = 40, .lanes = TTI_USUAL_LANES, .max_bytes = (size_t)64 << 20};
    int status = settings_read(argc, argv, &s);
    if (status)
        return status - 1;
    if (s.refit)
        return refit(&s);
    if (tti_place_is_launched())
        return run_rank(&s);
    if (tti_tuning_can_write(s.path) != TUTTI_OK)
        return failed();
    warn_if_busy();
    for (int j = 0; j < s.job_count && status == 0; j++)
        status = tune_run_job(argv, s.jobs[j]);
    return status;
}
