/* Making, failing and ending a communicator (coll/comm.h). */
#include "coll/comm.h"

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/memory.h"
#include "coll/agree.h"
#include "coll/column.h"
#include "coll/diagnose.h"
#include "coll/door.h"
#include "coll/dump.h"
#include "coll/executor.h"
#include "coll/forked.h"
#include "coll/gpu/gpu_calls.h"
#include "coll/gpu/gpu_send.h"
#include "coll/group.h"
#include "coll/nics.h"
#include "coll/post.h"
#include "coll/progress.h"
#include "coll/select.h"
#include "coll/tuning.h"
#include "device/memory.h"

#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { FUSED_LEAST = 512 };                    /* below, the fused path is not even thought of */
static const double LINGER_SECONDS = 5;        /* how long destroy waits for what is staged to be
                                                * read, and then rank 0's server for goodbyes ... */
static const double LINGER_FAILED_SECONDS = 1; /* ... and, once all were told of a failure */
static const double GOODBYE_SECONDS = 1;       /* of the first: for the goodbyes in any case */

/* ---- settings ---- */

static enum tutti_result settings_text(const char *option, const char *variable, char **value)
{
    const char *text = option && *option ? option : tti_config_text(variable);
    if (!text)
        return TUTTI_OK;
    *value = tti_strdup(text);
    return *value ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

static void settings_say(const char *text)
{
    TTI_LOG(TTI_LOG_WARN, "%s", text);
}

/* Once a process, and on one rank, since all ranks mostly have the same variables. */
static void settings_doubt(const struct tutti_comm *comm)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (comm->rank == 0 && !atomic_flag_test_and_set(&said))
        tti_config_misspelt(environ, settings_say);
}

static enum tutti_result settings_read(const struct tutti_options *options,
                                       struct tti_settings *settings)
{
    static const struct tutti_options none = TUTTI_OPTIONS_INIT;
    const struct tutti_options *o = options ? options : &none;
    long lanes = 0, fast = 1, reproducible = 0, ahead = 0;
    int log_level = 0;
    if (o->size != sizeof *o)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "tutti_options.size is %zu, this library expects %zu; start from "
                        "TUTTI_OPTIONS_INIT and compile against the header of this version",
                        o->size, sizeof *o);
    if (o->reproducible < 0 || o->reproducible > 1)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "tutti_options: reproducible is %d; 1 is on, 0 as TUTTI_REPRODUCIBLE says",
                        o->reproducible);
    if (o->timeout_s < 0 || o->init_timeout_s < 0 || o->lanes < 0 || o->lanes > TUTTI_MAX_LANES)
        return TTI_FAIL(
            TUTTI_ERR_ARGUMENT,
            "tutti_options: timeout_s %g, init_timeout_s %g and lanes %d must be 0 (for "
            "the default) or more, lanes at most %d",
            o->timeout_s, o->init_timeout_s, o->lanes, TUTTI_MAX_LANES);
    TTI_TRY(tti_config_name("TUTTI_LOG", tti_log_level_name, TTI_LOG_LEVELS, 0, &log_level));
    TTI_TRY(tti_config_seconds("TUTTI_TIMEOUT", 300, &settings->timeout_s));
    TTI_TRY(tti_config_seconds("TUTTI_INIT_TIMEOUT", 60, &settings->init_timeout_s));
    TTI_TRY(tti_config_int("TUTTI_LANES", 1, TUTTI_MAX_LANES, 0, &lanes));
    TTI_TRY(tti_config_int("TUTTI_FAST", 0, 1, 1, &fast));
    TTI_TRY(tti_config_int("TUTTI_REPRODUCIBLE", 0, 1, 0, &reproducible));
    TTI_TRY(tti_config_bytes("TUTTI_FUSED_FROM", FUSED_LEAST, &settings->fused_from));
    TTI_TRY(tti_config_int("TUTTI_STAGED_AHEAD", 0, TTI_STAGED_LARGE / TTI_STAGED_WINDOW,
                           TTI_STAGED_AHEAD, &ahead));
    settings->staged_ahead = (size_t)ahead;
    settings->linger_s = LINGER_SECONDS;
    settings->fused_forced = tti_config_text("TUTTI_FUSED_FROM") != NULL;
    settings->fast = fast != 0;
    settings->reproducible = reproducible || o->reproducible;
    if (o->timeout_s > 0)
        settings->timeout_s = o->timeout_s;
    if (o->init_timeout_s > 0)
        settings->init_timeout_s = o->init_timeout_s;
    if (o->lanes > 0)
        lanes = o->lanes;
    settings->lanes_forced = lanes > 0;
    settings->lanes = lanes > 0 ? (int)lanes : TTI_USUAL_LANES;
    TTI_TRY(settings_text(o->transports, "TUTTI_TRANSPORT", &settings->transports));
    TTI_TRY(settings_text(o->algorithms, "TUTTI_ALGO", &settings->algorithms));
    TTI_TRY(settings_text(o->plugins, "TUTTI_PLUGINS", &settings->plugins));
    return tti_select_check(settings->algorithms, settings->reproducible);
}

/* ---- failing ---- */

static enum tutti_result comm_fail(struct tutti_comm *comm, enum tutti_result code,
                                   enum tti_comm_loss loss)
{
    pthread_mutex_lock(&comm->error_lock);
    bool first = comm->error.code == TUTTI_OK;
    if (first) {
        comm->loss = loss;
        tti_error_save(&comm->error, code);
        atomic_store_explicit(&comm->failed, (int)code, memory_order_release);
    }
    pthread_mutex_unlock(&comm->error_lock);
    if (first)
        tti_recorder_failed(&comm->recorder, code, tti_error_text());
    if (first && comm->boot)
        tti_boot_notify(comm->boot, code, tti_error_text());
    if (first)
        tti_dump_failure(&comm->recorder);
    return code;
}

enum tutti_result tti_comm_fail(struct tutti_comm *comm, enum tutti_result code)
{
    return comm_fail(comm, code, TTI_COMM_HARMED);
}

static enum tti_comm_loss comm_loss(struct tutti_comm *comm)
{
    pthread_mutex_lock(&comm->error_lock);
    const enum tti_comm_loss loss = comm->loss;
    pthread_mutex_unlock(&comm->error_lock);
    return loss;
}

bool tti_comm_spared(tutti_comm *comm)
{
    return comm_loss(comm) == TTI_COMM_SPARED;
}

bool tti_comm_unharmed(tutti_comm *comm)
{
    return comm_loss(comm) != TTI_COMM_HARMED && (!comm->gpu || tti_gpu_is_over(comm));
}

enum tutti_result tti_comm_check(struct tutti_comm *comm)
{
    if (atomic_load_explicit(&comm->failed, memory_order_acquire) == TUTTI_OK)
        return TUTTI_OK;
    pthread_mutex_lock(&comm->error_lock);
    enum tutti_result code = tti_error_restore(&comm->error);
    pthread_mutex_unlock(&comm->error_lock);
    return code;
}

enum tutti_result tti_comm_works(struct tutti_comm *comm)
{
    if (atomic_load_explicit(&comm->failed, memory_order_acquire) == TUTTI_OK)
        return TUTTI_OK;
    pthread_mutex_lock(&comm->error_lock);
    comm->loss = TTI_COMM_HARMED;
    pthread_mutex_unlock(&comm->error_lock);
    return tti_comm_check(comm);
}

enum tutti_result tti_comm_listen(struct tutti_comm *comm)
{
    int rank = -1;
    TTI_TRY(tti_comm_check(comm));
    enum tutti_result code = comm->boot ? tti_boot_poll(comm->boot, &rank) : TUTTI_OK;
    return code == TUTTI_OK ? TUTTI_OK : tti_comm_fail(comm, code);
}

void tti_comm_listen_idle(struct tutti_comm *comm)
{
    int rank = -1;
    if (!tti_work_try_pause(comm))
        return;
    if (comm->boot && tti_comm_check(comm) == TUTTI_OK) {
        const enum tutti_result code = tti_boot_poll(comm->boot, &rank);
        const bool gone =
            code == TUTTI_ERR_ABORTED || code == TUTTI_ERR_PEER || code == TUTTI_ERR_LINK;
        if (code != TUTTI_OK)
            (void)comm_fail(comm, code,
                            !gone                                 ? TTI_COMM_HARMED
                            : comm->gpu && !tti_gpu_is_idle(comm) ? TTI_COMM_BEREAVED
                                                                  : TTI_COMM_SPARED);
    }
    tti_work_resume(comm);
}

enum tutti_result tti_comm_link_failed(struct tutti_comm *comm, enum tutti_result code)
{
    enum { PATIENCE_MS = 500, TURN_MS = 20 };
    struct tti_error own;
    tti_error_save(&own, code);
    if (comm->boot && (code == TUTTI_ERR_PEER || code == TUTTI_ERR_LINK)) {
        uint64_t deadline = tti_deadline_in(PATIENCE_MS / 1000.0);
        while (!tti_deadline_passed(deadline)) {
            enum tutti_result told = tti_comm_listen(comm);
            if (told != TUTTI_OK)
                return told;
            struct pollfd fd = {.fd = tti_boot_fd(comm->boot), .events = POLLIN};
            poll(&fd, 1, tti_deadline_ms(deadline, TURN_MS));
        }
    }
    return tti_comm_fail(comm, tti_error_restore(&own));
}

/* ---- create ---- */

/* Ranks of this host, before the peers are known. */
static int comm_host_ranks(const struct tutti_comm *comm)
{
    int count = 0;
    for (int r = 0; r < comm->size; r++)
        count += comm->places[r].host == comm->places[comm->rank].host;
    return count;
}

static enum tutti_result comm_build(struct tutti_comm *comm, const struct tutti_options *options)
{
    TTI_TRY(settings_read(options, &comm->settings));
    settings_doubt(comm);
    comm->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (comm->wake_fd < 0)
        return TTI_FAIL_ERRNO("cannot create an eventfd (see ulimit -n)");
    uint64_t deadline = tti_deadline_in(comm->settings.init_timeout_s);
    TTI_TRY(tti_work_queue_create(&comm->queue));
    tti_transport_prepare(); /* before the bootstrap's thread */
    const struct tti_meeting meeting = comm->meeting;
    comm->meeting.listen_fd = -1; /* the bootstrap takes it */
    TTI_TRY(tti_boot_create(&meeting, comm->rank, comm->size, deadline, &comm->boot));
    TTI_TRY(tti_agree(comm, deadline));
    comm->settings.wire_lanes = (comm->settings.lanes + 1) / 2 * 2;
    TTI_TRY(tti_links_create(&comm->links, comm->size, comm->settings.wire_lanes));
    TTI_TRY(tti_nics_far_names(comm, &comm->peers.far_nics));
    comm->peers.host_ranks = comm_host_ranks(comm);
    free(comm->places);
    comm->places = NULL;
    TTI_TRY(tti_peers_create(comm->boot, &comm->meeting, comm->rank, comm->size,
                             comm->settings.transports, comm->settings.plugins,
                             comm->settings.wire_lanes, comm->job, deadline, &comm->peers));
    TTI_TRY(tti_progress_place(comm)); /* which needs `cpus`, as the next does for the last time */
    TTI_TRY(tti_crowd(comm));
    TTI_TRY(tti_executor_create(comm, &comm->executor));
    TTI_TRY(tti_gpu_side_create(comm));
    TTI_TRY(tti_gpu_send_create(comm));
    TTI_TRY(tti_recorder_create(comm, &comm->recorder));
    return tti_diagnose_start(comm);
}

/* Ended while a stream had work of theirs, which looks at the queue when the stream comes to it,
 * and at what it copies. Nobody knows when that is over, so they are kept for good, where a
 * debugger and a leak detector find them. */
static _Atomic(struct tutti_comm *) comm_unfinished;

static void comm_keep(struct tutti_comm *comm)
{
    comm->next_watched = atomic_load(&comm_unfinished);
    while (!atomic_compare_exchange_weak(&comm_unfinished, &comm->next_watched, comm))
        continue;
}

static void comm_release(struct tutti_comm *comm, double linger_s)
{
    if (comm->forked)
        return; /* nothing of it is ours; what it takes goes with the process */
    tti_forked_forget(comm);
    const bool idle = tti_gpu_side_destroy(comm); /* streams wait for the queue */
    const uint64_t read_by = tti_deadline_in(linger_s - GOODBYE_SECONDS);
    const uint64_t leave_by = tti_deadline_in(linger_s);
    tti_work_queue_end(&comm->queue);
    tti_post_close(comm->post);
    tti_executor_destroy(comm->executor);
    if (atomic_load_explicit(&comm->failed, memory_order_acquire) == TUTTI_OK)
        tti_stage_linger(comm, read_by);
    tti_links_end(comm); /* before rank 0 lingers for the others' goodbyes */
    tti_gpu_send_destroy(comm->gpu_send);
    tti_links_destroy(&comm->links);
    tti_boot_destroy(comm->boot, tti_deadline_ms(leave_by, INT_MAX) / 1e3);
    tti_recorder_destroy(&comm->recorder);
    tti_peers_destroy(&comm->peers);
    tti_plan_cache_destroy(&comm->plans);
    tti_column_destroy(comm->column);
    tti_small_plans_destroy(&comm->small);
    tti_fused_forget(comm);
    tti_stage_destroy(comm->stage);
    free(comm->cpus);
    free(comm->places);
    if (comm->fused_aside)
        (void)tti_region_free(comm->fused_aside);
    if (comm->aside)
        (void)tti_region_free(comm->aside);
    if (comm->wake_fd >= 0)
        close(comm->wake_fd);
    if (comm->meeting.listen_fd >= 0)
        close(comm->meeting.listen_fd);
    tti_tuning_destroy(comm->tuning);
    tti_shrunk_free(comm);
    free(comm->tuning_source);
    free(comm->settings.transports);
    free(comm->settings.algorithms);
    free(comm->settings.plugins);
    pthread_mutex_destroy(&comm->error_lock);
    if (!idle) {
        comm_keep(comm);
        tti_gpu_side_leave(comm);
        return;
    }
    tti_work_queue_destroy(&comm->queue);
    free(comm);
}

static enum tutti_result comm_place(int rank, int size)
{
    if (size >= 1 && rank >= 0 && rank < size)
        return TUTTI_OK;
    return TTI_FAIL(TUTTI_ERR_ARGUMENT, "rank %d of %d ranks; expected 0 <= rank < size", rank,
                    size);
}

/* Settings that would be refused later. */
static enum tutti_result comm_settings(const struct tutti_options *options, double *init_timeout_s)
{
    struct tti_settings settings = {0};
    const enum tutti_result result = settings_read(options, &settings);
    *init_timeout_s = settings.init_timeout_s;
    free(settings.transports);
    free(settings.algorithms);
    free(settings.plugins);
    return result;
}

enum tutti_result tti_comm_open(const struct tti_meeting *meeting, int rank, int size,
                                const struct tutti_options *options, uint64_t family,
                                struct tutti_comm **comm)
{
    struct tutti_comm *made = NULL;
    enum tutti_result result = comm_place(rank, size);
    if (result == TUTTI_OK && !(made = tti_calloc(1, sizeof *made)))
        result = TUTTI_ERR_MEMORY;
    if (result != TUTTI_OK) {
        if (meeting->listen_fd >= 0)
            close(meeting->listen_fd);
        return result;
    }
    uint64_t begin = tti_now_ns();
    made->rank = rank;
    made->size = size;
    made->meeting = *meeting;
    made->family = family;
    made->wake_fd = -1;
    made->recorder.fd = -1;
    pthread_mutex_init(&made->error_lock, NULL);
    tti_log_rank(rank);
    tti_forked_watch(made);
    result = comm_build(made, options);
    if (result != TUTTI_OK) {
        if (made->boot)
            tti_boot_notify(made->boot, result, tti_error_text());
        struct tti_error error;
        tti_error_save(&error, result);
        comm_release(made, LINGER_FAILED_SECONDS);
        return tti_error_restore(&error);
    }
    TTI_LOG(TTI_LOG_INFO, "communicator of %d ranks on %d hosts ready in %.1f ms", size,
            made->peers.nhosts, (double)(tti_now_ns() - begin) / 1e6);
    *comm = made;
    return TUTTI_OK;
}

enum tutti_result tutti_id_create(const char *address, struct tutti_id *id)
{
    if (!id)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_id_create: id is NULL");
    return tti_id_make(address, true, id);
}

enum tutti_result tutti_comm_create(const struct tutti_id *id, int rank, int size,
                                    const struct tutti_options *options, tutti_comm **comm)
{
    struct tti_meeting meeting;
    double init_timeout_s = 0;
    if (!id || !comm)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_comm_create: %s is NULL", id ? "comm" : "id");
    TTI_TRY(comm_place(rank, size)); /* while the id can be used again */
    TTI_TRY(comm_settings(options, &init_timeout_s));
    TTI_TRY(tti_meeting_from_id(id, rank, &meeting));
    return tti_comm_open(&meeting, rank, size, options, 0, comm);
}

enum tutti_result tutti_comm_create_from_env(const struct tutti_options *options, tutti_comm **comm)
{
    struct tti_place place;
    double init_timeout_s = 0;
    if (!comm)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_comm_create_from_env: comm is NULL");
    TTI_TRY(comm_settings(options, &init_timeout_s));
    TTI_TRY(tti_place_find(tti_deadline_in(init_timeout_s), &place));
    TTI_LOG(TTI_LOG_INFO, "launcher %s: rank %d of %d", place.launcher, place.rank, place.size);
    return tti_comm_open(&place.meeting, place.rank, place.size, options, 0, comm);
}

enum tutti_result tutti_comm_background(tutti_comm *comm, bool background)
{
    if (!comm)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_comm_background: comm is NULL");
    atomic_store_explicit(&comm->background, background, memory_order_relaxed);
    return TUTTI_OK;
}

/* ---- end ---- */

void tutti_comm_destroy(tutti_comm *comm)
{
    bool failed = comm && atomic_load(&comm->failed) != TUTTI_OK;
    tti_group_forget(comm);
    if (comm)
        comm_release(comm, failed ? LINGER_FAILED_SECONDS : comm->settings.linger_s);
}

void tti_comm_end(struct tutti_comm *comm, double linger_s)
{
    if (comm)
        comm_release(comm, linger_s);
}

void tti_comm_wake(struct tutti_comm *comm)
{
    uint64_t one = 1;
    ssize_t ignored = write(comm->wake_fd, &one, sizeof one); /* full means awake already */
    (void)ignored;
}

void tutti_comm_abort(tutti_comm *comm, const char *reason)
{
    if (!comm || comm->forked)
        return;
    enum tutti_result code =
        TTI_FAIL(TUTTI_ERR_ABORTED, "rank %d (%s) aborted the communicator%s%s", comm->rank,
                 comm->peers.all[comm->rank].name, reason ? ": " : "", reason ? reason : "");
    atomic_store_explicit(&comm->aborted, 1, memory_order_release);
    tti_comm_fail(comm, code);
    tti_comm_wake(comm);
}

/* ---- queries ---- */

enum tutti_result tutti_comm_error(tutti_comm *comm)
{
    if (!comm)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_comm_error: comm is NULL");
    if (!comm->forked)
        tti_comm_listen_idle(comm); /* nobody does while nothing runs */
    if (comm->gpu && !comm->forked)
        tti_gpu_ask(comm, false);
    return tti_comm_check(comm);
}

uint64_t tti_comm_number(const tutti_comm *comm)
{
    return comm->job;
}

int tutti_comm_rank(const tutti_comm *comm)
{
    return comm->rank;
}

int tutti_comm_size(const tutti_comm *comm)
{
    return comm->size;
}

int tutti_comm_local_rank(const tutti_comm *comm)
{
    return comm->peers.local_rank;
}

int tutti_comm_local_size(const tutti_comm *comm)
{
    return comm->peers.local_size;
}

int tutti_comm_hosts(const tutti_comm *comm)
{
    return comm->peers.nhosts;
}

int tutti_comm_host(const tutti_comm *comm, int rank)
{
    return comm && rank >= 0 && rank < comm->size ? comm->peers.host_of[rank] : -1;
}

bool tutti_comm_reproducible(const tutti_comm *comm)
{
    return comm->settings.reproducible;
}

const char *tutti_comm_rank_name(const tutti_comm *comm, int rank)
{
    return rank >= 0 && rank < comm->size ? comm->peers.all[rank].name : "no such rank";
}

const char *tutti_comm_transport(tutti_comm *comm, int peer)
{
    if (peer < 0 || peer >= comm->size)
        return "no such rank";
    return peer == comm->rank ? "self"
                              : comm->peers.carriers[comm->peers.all[peer].carrier].ops->name;
}
