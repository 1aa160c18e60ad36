/* Running a schedule with threads as ranks (schedule.h). A rank that "dies" has its transport dead
 * and its bootstrap connection cut without a goodbye, as the end of a process would; its thread
 * goes on only to clean up. */
#include "base/clock.h"
#include "coll/comm.h"
#include "tests/fault/schedule.h"
#include "tests/integration/host_calls.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct schedule_rank {
    struct schedule_job *job;
    struct schedule_end *end;
    tutti_comm *comm;
    pthread_t thread;
    int rank;
    void *in, *out;
};

struct schedule_job {
    const struct schedule *schedule;
    struct tutti_id id;
    struct schedule_rank ranks[SCHEDULE_RANKS];
    pthread_barrier_t together;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int over; /* ranks */
};

static struct schedule_job *job_now; /* for the hooks: one job at a time */

/* ---- death ---------------------------------------------------------------------------------- */

/* The bootstrap's server of rank 0 is a thread that lives on here, and tells of rank 0 as of any
 * other. (Processes whose rank 0 dies with it: faults.py.) No communicator goes before all ranks
 * are through with their operations. */
static void rank_dies(int rank)
{
    const tutti_comm *comm = job_now->ranks[rank].comm;
    if (tti_boot_fd(comm->boot) >= 0)
        (void)shutdown(tti_boot_fd(comm->boot), SHUT_RDWR);
}

static _Thread_local bool among_fewer; /* in a shrunk communicator, whose ranks are others */

static void rank_closes(int rank, const struct fault_counts *counts)
{
    struct schedule_end *end = job_now->ranks[rank].end;
    if (!among_fewer && end->counts.steps == 0)
        end->counts = *counts;
}

/* ---- operations ----------------------------------------------------------------------------- */

static void value_put(enum tutti_type type, void *data, size_t i, int value)
{
    if (type == TUTTI_UINT8)
        ((uint8_t *)data)[i] = (uint8_t)value;
    else if (type == TUTTI_INT32)
        ((int32_t *)data)[i] = value;
    else if (type == TUTTI_INT64)
        ((int64_t *)data)[i] = value;
    else
        ((float *)data)[i] = (float)value;
}

static double value_get(enum tutti_type type, const void *data, size_t i)
{
    if (type == TUTTI_UINT8)
        return ((const uint8_t *)data)[i];
    if (type == TUTTI_INT32)
        return ((const int32_t *)data)[i];
    if (type == TUTTI_INT64)
        return (double)((const int64_t *)data)[i];
    return (double)((const float *)data)[i];
}

static enum tutti_result rank_exchange(struct schedule_rank *self)
{
    const struct schedule *s = self->job->schedule;
    TTI_TRY(tutti_group_start());
    enum tutti_result sent =
        tutti_send(self->in, s->count, s->type, (self->rank + 1) % s->ranks, self->comm);
    enum tutti_result received = tutti_recv(self->out, s->count, s->type,
                                            (self->rank + s->ranks - 1) % s->ranks, self->comm);
    enum tutti_result ended = tutti_group_end();
    return sent != TUTTI_OK ? sent : received != TUTTI_OK ? received : ended;
}

static enum tutti_result rank_call(struct schedule_rank *self)
{
    const struct schedule *s = self->job->schedule;
    const struct tti_operation o = {.collective = s->collective,
                                    .in = self->in,
                                    .out = self->out,
                                    .count = s->count,
                                    .type = s->type,
                                    .op = TUTTI_SUM,
                                    .root = s->root};
    return s->collective == TUTTI_SEND_RECV ? rank_exchange(self) : test_call(&o, self->comm);
}

static void rank_operations(struct schedule_rank *self)
{
    const struct schedule *s = self->job->schedule;
    struct schedule_end *end = self->end;
    size_t elements = (size_t)s->ranks * s->count;
    for (int k = 0; k < s->operations && end->result == TUTTI_OK; k++) {
        for (size_t i = 0; i < elements; i++)
            value_put(s->type, self->in, i, schedule_input(self->rank, k, i));
        memset(self->out, 0x55, elements * tutti_type_size(s->type));
        uint64_t begin = tti_now_ns();
        end->result = rank_call(self);
        if (end->result != TUTTI_OK) {
            end->seconds = (double)(tti_now_ns() - begin) / 1e9;
            snprintf(end->text, sizeof end->text, "%s", tutti_last_error());
            return;
        }
        for (size_t i = 0; i < schedule_results(s, self->rank); i++)
            end->wrong +=
                value_get(s->type, self->out, i) != (double)schedule_expected(s, self->rank, k, i);
    }
}

/* The survivors go on without the victim. */
static bool rank_shrinks(struct schedule_rank *self)
{
    const struct schedule *s = self->job->schedule;
    int32_t one = 1, sum = 0;
    tutti_comm *fewer = NULL;
    among_fewer = true;
    bool good = tutti_comm_shrink(self->comm, &s->victim, 1, &fewer) == TUTTI_OK &&
                tutti_all_reduce(&one, &sum, 1, TUTTI_INT32, TUTTI_SUM, fewer) == TUTTI_OK &&
                sum == s->ranks - 1;
    if (!good)
        snprintf(self->end->text, sizeof self->end->text, "shrinking: %s (sum %d)",
                 tutti_last_error(), (int)sum);
    tutti_comm_destroy(fewer);
    among_fewer = false;
    return good;
}

/* ---- a rank --------------------------------------------------------------------------------- */

static void rank_memory(struct schedule_rank *self, bool take)
{
    const struct schedule *s = self->job->schedule;
    size_t bytes = (size_t)s->ranks * s->count * tutti_type_size(s->type);
    if (!take && s->library_memory) {
        tutti_free(self->in);
        tutti_free(self->out);
    } else if (!take) {
        free(self->in);
        free(self->out);
    } else if (s->library_memory) {
        if (tutti_alloc(bytes, &self->in) != TUTTI_OK || tutti_alloc(bytes, &self->out) != TUTTI_OK)
            abort();
    } else {
        self->in = malloc(bytes);
        self->out = malloc(bytes);
        if (!self->in || !self->out)
            abort();
    }
}

/* Wait for all ranks; one of them is told so. */
static bool rank_meet(struct schedule_rank *self)
{
    return pthread_barrier_wait(&self->job->together) == PTHREAD_BARRIER_SERIAL_THREAD;
}

/* TUTTI_FAULT, in one place for good: setenv keeps every value that it ever had, which a soak would
 * count as a leak. */
static void fault_set(const char *value)
{
    static char variable[SCHEDULE_TEXT + 16];
    snprintf(variable, sizeof variable, "TUTTI_FAULT=%s", value);
    if (putenv(variable) != 0)
        abort();
}

static void *rank_main(void *argument)
{
    struct schedule_rank *self = argument;
    const struct schedule *s = self->job->schedule;
    struct tutti_options options = TUTTI_OPTIONS_INIT;
    options.timeout_s = s->timeout_s;
    options.init_timeout_s = 60;
    options.transports = "fault";
    options.algorithms = s->algorithm;
    options.lanes = s->lanes;
    rank_memory(self, true);
    self->end->result =
        tutti_comm_create(&self->job->id, self->rank, s->ranks, &options, &self->comm);
    if (self->end->result != TUTTI_OK)
        snprintf(self->end->text, sizeof self->end->text, "creating: %s", tutti_last_error());
    (void)rank_meet(self);
    if (self->end->result == TUTTI_OK)
        rank_operations(self);
    if (rank_meet(self)) { /* nobody reads the environment now */
        char over[SCHEDULE_TEXT];
        snprintf(over, sizeof over, "%.*s", (int)strcspn(s->fault, ","), s->fault);
        fault_set(over);
    }
    (void)rank_meet(self);
    if (s->shrinks && s->trouble == TROUBLE_KILL && s->ranks > 2 && self->rank != s->victim &&
        self->comm)
        self->end->shrink_failed = !rank_shrinks(self);
    (void)rank_meet(self);
    tutti_comm_destroy(self->comm);
    rank_memory(self, false);
    pthread_mutex_lock(&self->job->lock);
    self->job->over++;
    pthread_cond_signal(&self->job->changed);
    pthread_mutex_unlock(&self->job->lock);
    return NULL;
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* In steps of a second: a machine that stands still for minutes is no hang, but one step. */
static bool job_wait(struct schedule_job *job, double limit_s)
{
    uint64_t deadline = tti_deadline_in(1);
    double waited_s = 0;
    pthread_mutex_lock(&job->lock);
    while (job->over < job->schedule->ranks && waited_s < limit_s)
        if (tti_cond_wait(&job->changed, &job->lock, deadline) == ETIMEDOUT) {
            deadline = tti_deadline_in(1);
            waited_s++;
        }
    bool over = job->over == job->schedule->ranks;
    pthread_mutex_unlock(&job->lock);
    return over;
}

bool schedule_run(const struct schedule *schedule, double limit_s, struct schedule_end *ends)
{
    static const struct fault_hooks hooks = {rank_dies, rank_closes};
    static struct schedule_job job;
    memset(&job, 0, sizeof job);
    job.schedule = schedule;
    job_now = &job;
    fault_set(schedule->fault);
    setenv("TUTTI_FAST", schedule->fast ? "1" : "0", 1);
    setenv("TUTTI_FUSED_FROM", schedule->fused ? "512" : "1G", 1);
    tti_fault_hooks(&hooks);
    if (tutti_id_create("127.0.0.1", &job.id) != TUTTI_OK)
        abort();
    pthread_barrier_init(&job.together, NULL, (unsigned)schedule->ranks);
    pthread_mutex_init(&job.lock, NULL);
    tti_cond_init(&job.changed);
    memset(ends, 0, (size_t)schedule->ranks * sizeof *ends);
    for (int r = 0; r < schedule->ranks; r++) {
        struct schedule_rank *rank = &job.ranks[r];
        rank->job = &job;
        rank->end = &ends[r];
        rank->rank = r;
        if (pthread_create(&rank->thread, NULL, rank_main, rank) != 0)
            abort();
    }
    if (!job_wait(&job, limit_s))
        return false;
    for (int r = 0; r < schedule->ranks; r++)
        pthread_join(job.ranks[r].thread, NULL);
    pthread_barrier_destroy(&job.together);
    pthread_mutex_destroy(&job.lock);
    pthread_cond_destroy(&job.changed);
    return true;
}
