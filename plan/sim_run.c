/* The event loop (plan/simulate.h has the model).
 *
 * A lane runs ahead in its own time until it needs something whose time is not known yet: a message
 * that has not reached its port, or the consumption of an earlier send. Ports are shared, so they
 * are taken in the order of time: a departure takes the sender's port, the arrival of its first
 * byte the receiver's. Every event that a lane causes lies at or after the one that woke it. */
#include "base/memory.h"
#include "plan/sim_model.h"
#include "plan/sim_queue.h"

#include <stdlib.h>
#include <string.h>

struct run_ports {
    double *rank_out, *rank_in; /* when each rank's port to its own host is free */
    double *nic_out, *nic_in;   /* the hosts' network ports */
};

struct run {
    struct sim *sim;
    struct sim_queue queue;
    struct run_ports ports;
    struct sim_message *messages;
    size_t nmessages, messages_capacity;
    uint32_t free_message;
    uint32_t *ready; /* lanes that may go on; a lane is here at most once */
    size_t nready;
};

static enum tutti_result run_create(struct sim *sim, struct run *run)
{
    const struct tti_network *network = sim->network;
    size_t ranks = (size_t)sim->period;
    size_t hosts = (ranks - 1) / (size_t)network->ranks_per_host + 1;
    size_t nics = hosts * (size_t)network->nics;
    *run = (struct run){.sim = sim, .free_message = SIM_NONE};
    run->ports.rank_out = tti_calloc(ranks, sizeof(double));
    run->ports.rank_in = tti_calloc(ranks, sizeof(double));
    run->ports.nic_out = tti_calloc(nics, sizeof(double));
    run->ports.nic_in = tti_calloc(nics, sizeof(double));
    run->ready = tti_calloc(ranks * (size_t)sim->nlanes, sizeof *run->ready);
    if (!run->ports.rank_out || !run->ports.rank_in || !run->ports.nic_out || !run->ports.nic_in ||
        !run->ready)
        return TUTTI_ERR_MEMORY;
    return TUTTI_OK;
}

static void run_release(struct run *run)
{
    free(run->ports.rank_out);
    free(run->ports.rank_in);
    free(run->ports.nic_out);
    free(run->ports.nic_in);
    free(run->queue.events);
    free(run->messages);
    free(run->ready);
}

/* The port of `lane`'s rank on a channel that stays inside the host, or leaves it. */
static double *run_port(const struct run *run, uint32_t lane, bool inter, bool out)
{
    const struct tti_network *network = run->sim->network;
    int rank = sim_lane_rank(run->sim, lane);
    if (!inter)
        return out ? &run->ports.rank_out[rank] : &run->ports.rank_in[rank];
    int host = rank / network->ranks_per_host, local = rank % network->ranks_per_host;
    size_t nic = (size_t)host * (size_t)network->nics + (size_t)(local % network->nics);
    return out ? &run->ports.nic_out[nic] : &run->ports.nic_in[nic];
}

/* Occupy a port for `seconds` from `from` on, or from when it is free; returns the start. */
static double port_take(double *port, double from, double seconds)
{
    double start = from > *port ? from : *port;
    *port = start + seconds;
    return start;
}

static const struct tti_link_model *run_link(const struct run *run, const struct sim_channel *c)
{
    return c->inter ? &run->sim->network->inter : &run->sim->network->intra;
}

static enum tutti_result message_create(struct run *run, struct sim_channel *channel, uint32_t step,
                                        uint32_t *index)
{
    uint32_t at = run->free_message;
    if (at == SIM_NONE) {
        void *messages = run->messages;
        TTI_TRY(tti_grow(&messages, &run->messages_capacity, run->nmessages + 1,
                         sizeof *run->messages));
        run->messages = messages;
        at = (uint32_t)run->nmessages++;
    } else {
        run->free_message = run->messages[at].next;
    }
    run->messages[at] = (struct sim_message){.arrival = -1, .step = step, .next = SIM_NONE};
    if (channel->tail == SIM_NONE)
        channel->head = at;
    else
        run->messages[channel->tail].next = at;
    channel->tail = at;
    *index = at;
    return TUTTI_OK;
}

static void message_destroy(struct run *run, struct sim_channel *channel)
{
    uint32_t at = channel->head;
    channel->head = run->messages[at].next;
    if (channel->head == SIM_NONE)
        channel->tail = SIM_NONE;
    run->messages[at].next = run->free_message;
    run->free_message = at;
}

/* ---- departures ---- */

/* The message of step `at` is ready at `time`. */
static enum tutti_result run_departure(struct run *run, uint32_t at, double time)
{
    struct sim *sim = run->sim;
    const struct sim_step *step = &sim->steps[at];
    struct sim_channel *channel = &sim->channels[step->out];
    const struct tti_link_model *link = run_link(run, channel);
    double *port = run_port(run, channel->sender, channel->inter, true);
    double start = port_take(port, time, step->bytes * link->beta);
    if (sim->timeline)
        TTI_TRY(tti_timeline_flow(
            sim->timeline,
            &(struct tti_timeline_end){.rank = sim_lane_rank(sim, channel->sender),
                                       .lane = (int)(channel->sender % (uint32_t)sim->nlanes),
                                       .time = time,
                                       .id = at}));
    uint32_t message = SIM_NONE;
    TTI_TRY(message_create(run, channel, at, &message));
    return sim_queue_push(
        &run->queue,
        &(struct sim_event){.time = start + link->alpha,
                            .order = (uint64_t)channel->receiver << 31 | channel->distance,
                            .step = at,
                            .message = message});
}

/* A port that only one lane uses is taken at once: its departures come in the order of time anyway.
 * For one that is shared, the others' departures until `time` must be known first. */
static enum tutti_result run_send(struct run *run, uint32_t at, double time)
{
    const struct sim *sim = run->sim;
    const struct tti_network *network = sim->network;
    bool alone = sim->nlanes == 1 && (!sim->channels[sim->steps[at].out].inter ||
                                      network->nics >= network->ranks_per_host);
    if (alone)
        return run_departure(run, at, time);
    return sim_queue_push(
        &run->queue,
        &(struct sim_event){.time = time, .order = SIM_DEPARTURE, .step = at, .message = SIM_NONE});
}

/* ---- lanes ---- */

static void lane_wake(struct run *run, uint32_t lane)
{
    run->sim->lanes[lane].wait = SIM_READY;
    run->ready[run->nready++] = lane;
}

/* Wait until the sends of steps <= hazard are consumed; false: not all are yet. */
static bool lane_hazard(struct run *run, struct sim_lane *lane, int32_t hazard)
{
    const struct sim *sim = run->sim;
    for (; (int64_t)lane->cleared <= hazard; lane->cleared++) {
        uint32_t step = lane->first + lane->cleared;
        if (sim->steps[step].out == SIM_NONE)
            continue;
        if (sim->consumed[step] < 0)
            return false;
        lane->now = sim->consumed[step] > lane->now ? sim->consumed[step] : lane->now;
    }
    return true;
}

/* The receiving step has the channel's first message at `done`; let the sender know. */
static void lane_consume(struct run *run, struct sim_channel *channel, double done)
{
    uint32_t step = run->messages[channel->head].step;
    const struct sim_lane *sender = &run->sim->lanes[channel->sender];
    run->sim->consumed[step] = done;
    message_destroy(run, channel);
    if (sender->wait == SIM_WAIT_CONSUMED && sender->first + sender->cleared == step)
        lane_wake(run, channel->sender);
}

static enum tutti_result lane_record(struct run *run, uint32_t lane, uint32_t step, double start,
                                     double arrival, double end, uint32_t from_step)
{
    struct sim *sim = run->sim;
    if (!sim->timeline)
        return TUTTI_OK;
    int rank = sim_lane_rank(sim, lane), in_rank = (int)(lane % (uint32_t)sim->nlanes);
    TTI_TRY(tti_timeline_step(sim->timeline,
                              &(struct tti_timeline_slice){.rank = rank,
                                                           .lane = in_rank,
                                                           .start = start,
                                                           .end = end,
                                                           .bytes = sim->steps[step].bytes,
                                                           .step = sim->details[step]}));
    if (from_step == SIM_NONE)
        return TUTTI_OK;
    double seen = arrival > start ? arrival : start;
    return tti_timeline_flow(
        sim->timeline,
        &(struct tti_timeline_end){
            .rank = rank, .lane = in_rank, .time = seen, .id = from_step, .arrives = true});
}

/* Do the lane's next step, or note what it waits for. */
static enum tutti_result lane_step(struct run *run, uint32_t index)
{
    struct sim *sim = run->sim;
    struct sim_lane *lane = &sim->lanes[index];
    uint32_t at = lane->first + lane->next, from_step = SIM_NONE;
    const struct sim_step *step = &sim->steps[at];
    double start = lane->now, arrival = 0;
    if (!lane_hazard(run, lane, step->hazard)) {
        lane->wait = SIM_WAIT_CONSUMED;
        return TUTTI_OK;
    }
    if (step->in != SIM_NONE) {
        const struct sim_channel *channel = &sim->channels[step->in];
        if (channel->head == SIM_NONE || run->messages[channel->head].arrival < 0) {
            lane->wait = SIM_WAIT_MESSAGE;
            return TUTTI_OK;
        }
        arrival = run->messages[channel->head].arrival;
        from_step = run->messages[channel->head].step;
        lane->now = arrival > lane->now ? arrival : lane->now;
    }
    lane->now += step->work;
    lane->next++;
    TTI_TRY(lane_record(run, index, at, start, arrival, lane->now, from_step));
    if (step->in != SIM_NONE)
        lane_consume(run, &sim->channels[step->in], lane->now);
    if (step->out == SIM_NONE)
        return TUTTI_OK;
    sim->consumed[at] = -1;
    return run_send(run, at, lane->now);
}

static enum tutti_result run_ready(struct run *run)
{
    while (run->nready > 0) {
        uint32_t index = run->ready[--run->nready];
        struct sim_lane *lane = &run->sim->lanes[index];
        while (lane->wait == SIM_READY && lane->next < lane->count)
            TTI_TRY(lane_step(run, index));
        if (lane->next == lane->count)
            lane->wait = SIM_DONE;
    }
    return TUTTI_OK;
}

/* ---- events ---- */

static void run_arrival(struct run *run, const struct sim_event *event)
{
    struct sim *sim = run->sim;
    const struct sim_step *step = &sim->steps[event->step];
    const struct sim_channel *channel = &sim->channels[step->out];
    double seconds = step->bytes * run_link(run, channel)->beta;
    double *port = run_port(run, channel->receiver, channel->inter, false);
    run->messages[event->message].arrival = port_take(port, event->time, seconds) + seconds;
    const struct sim_lane *lane = &sim->lanes[channel->receiver];
    if (lane->wait == SIM_WAIT_MESSAGE && channel->head == event->message &&
        sim->steps[lane->first + lane->next].in == step->out)
        lane_wake(run, channel->receiver);
}

/* After the last event: every lane is done and every message was received, or the plans are wrong.
 */
static enum tutti_result run_check(const struct run *run)
{
    const struct sim *sim = run->sim;
    const char *name = sim->algorithm->name;
    const char *collective = tutti_collective_name(sim->spec.collective);
    uint32_t nlanes = (uint32_t)sim->nlanes;
    for (uint32_t i = 0; i < (uint32_t)sim->period * nlanes; i++) {
        const struct sim_lane *lane = &sim->lanes[i];
        if (lane->wait == SIM_DONE)
            continue;
        uint32_t in = sim->steps[lane->first + lane->next].in;
        if (lane->wait == SIM_WAIT_CONSUMED || in == SIM_NONE)
            return TTI_FAIL(TUTTI_ERR_INTERNAL,
                            "%s %s deadlocks: rank %d, lane %u, step %u writes memory that step %u "
                            "sent and that its receiver never takes; verify the plan",
                            collective, name, sim_lane_rank(sim, i), i % nlanes, lane->next,
                            lane->cleared);
        return TTI_FAIL(
            TUTTI_ERR_INTERNAL,
            "%s %s deadlocks: rank %d, lane %u, step %u waits for a message from rank "
            "%d that never comes; verify the plan",
            collective, name, sim_lane_rank(sim, i), i % nlanes, lane->next,
            (int)(((int64_t)sim_lane_rank(sim, i) + sim->spec.nranks - sim->channels[in].distance) %
                  sim->spec.nranks));
    }
    for (size_t c = 0; c < sim->nchannels; c++)
        if (sim->channels[c].head != SIM_NONE)
            return TTI_FAIL(TUTTI_ERR_INTERNAL,
                            "%s %s: a message to rank %d on lane %u is never received; verify the "
                            "plan",
                            collective, name, sim_lane_rank(sim, sim->channels[c].receiver),
                            sim->channels[c].receiver % nlanes);
    return TUTTI_OK;
}

static void run_result(const struct sim *sim, struct tti_prediction *prediction)
{
    double last = 0, first = 0;
    for (int rank = 0; rank < sim->period; rank++) {
        double end = 0;
        for (int lane = 0; lane < sim->nlanes; lane++) {
            double now = sim->lanes[rank * sim->nlanes + lane].now;
            end = now > end ? now : end;
        }
        last = end > last ? end : last;
        first = rank == 0 || end < first ? end : first;
    }
    prediction->seconds = last;
    prediction->first = first;
}

static enum tutti_result run_loop(struct run *run)
{
    uint32_t lanes = (uint32_t)run->sim->period * (uint32_t)run->sim->nlanes;
    for (uint32_t lane = 0; lane < lanes; lane++)
        run->ready[run->nready++] = lanes - 1 - lane;
    TTI_TRY(run_ready(run));
    while (run->queue.count > 0) {
        struct sim_event event = sim_queue_pop(&run->queue);
        if (event.order == SIM_DEPARTURE)
            TTI_TRY(run_departure(run, event.step, event.time));
        else
            run_arrival(run, &event);
        TTI_TRY(run_ready(run));
    }
    return run_check(run);
}

enum tutti_result sim_run(struct sim *sim, struct tti_prediction *prediction)
{
    struct run run;
    enum tutti_result result = run_create(sim, &run);
    if (result == TUTTI_OK)
        result = run_loop(&run);
    if (result == TUTTI_OK)
        run_result(sim, prediction);
    run_release(&run);
    return result;
}
