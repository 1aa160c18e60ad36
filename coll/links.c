/* Connections, made on demand (coll/links.h). */
#include "coll/links.h"

#include "base/clock.h"
#include "base/memory.h"
#include "coll/comm.h"
#include "coll/diagnose.h"
#include "coll/gpu/gpu_send.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum tutti_result tti_links_create(struct tti_links *links, int size, int lanes)
{
    links->all = tti_calloc((size_t)size, sizeof *links->all);
    if (!links->all)
        return TUTTI_ERR_MEMORY;
    links->size = size;
    links->lanes = lanes;
    for (int p = 0; p < size; p++) {
        links->all[p].peer = p;
        for (int lane = 0; lane < TUTTI_MAX_LANES; lane++) {
            links->all[p].queues[lane].link = &links->all[p];
            links->all[p].queues[lane].lane = lane;
        }
    }
    return TUTTI_OK;
}

void tti_links_destroy(struct tti_links *links)
{
    free(links->all);
    memset(links, 0, sizeof *links);
}

void tti_links_end(struct tutti_comm *comm)
{
    tti_gpu_send_end(comm);
    tti_peers_close(&comm->peers);
    for (int p = 0; p < comm->links.size; p++) {
        comm->links.all[p].endpoint = NULL;
        comm->links.all[p].connected = false;
    }
}

enum tutti_result tti_links_advance(struct tutti_comm *comm, const int *peers, int count,
                                    int *waiting)
{
    *waiting = 0;
    for (int i = 0; i < count; i++) {
        struct tti_link *link = &comm->links.all[peers[i]];
        if (link->connected || peers[i] == comm->rank)
            continue;
        struct tti_peer *peer = &comm->peers.all[peers[i]];
        struct tti_carrier *carrier = &comm->peers.carriers[peer->carrier];
        enum tutti_result result = TUTTI_OK;
        if (!link->endpoint) {
            result = carrier->ops->connect(carrier->object, &peer->public, comm->links.lanes,
                                           &link->endpoint);
            link->ops = carrier->ops;
            link->await = tti_transport_awaits(carrier->ops);
            link->intact = tti_transport_intacts(carrier->ops);
            link->abandoned = tti_transport_abandons(carrier->ops);
            carrier->in_use = true;
        }
        if (result == TUTTI_OK)
            result = link->ops->advance(link->endpoint);
        if (result == TUTTI_IN_PROGRESS)
            ++*waiting;
        else if (result != TUTTI_OK)
            return tti_comm_link_failed(
                comm,
                TTI_CONTEXT(result, "while connecting to rank %d (%s)", peers[i], peer->name));
        else {
            link->lend = tti_transport_lends(link->ops);
            link->copies = tti_transport_copies(link->ops, link->endpoint);
            link->connected = true;
        }
    }
    return TUTTI_OK;
}

enum tutti_result tti_links_timeout(struct tutti_comm *comm, const int *peers, int count,
                                    const struct tti_label *label)
{
    char list[300] = "", what[TTI_LABEL_BYTES];
    size_t used = 0;
    for (int i = 0; i < count && used < sizeof list - 1; i++)
        if (peers[i] != comm->rank && !comm->links.all[peers[i]].connected)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%d (%s)", used ? ", " : "",
                                     peers[i], comm->peers.all[peers[i]].name);
    return tti_diagnose(comm, TTI_FAIL(TUTTI_ERR_TIMEOUT,
                                       "%s: no connection from rank %s within %g s; that rank has "
                                       "not begun this operation, or its network is cut",
                                       tti_label_text(label, what, sizeof what), list,
                                       comm->settings.timeout_s));
}

/* The recorder is to know that the operation waits, and for whom first. */
static void links_note(struct tutti_comm *comm, const int *peers, int count, uint64_t deadline)
{
    for (int i = 0; i < count; i++) {
        if (peers[i] == comm->rank || comm->links.all[peers[i]].connected)
            continue;
        tti_record_waits(&comm->recorder.ring[0],
                         tti_deadline_begin(deadline, comm->settings.timeout_s), peers[i], false);
        return;
    }
}

enum tutti_result tti_links_connect(struct tutti_comm *comm, const int *peers, int count,
                                    uint64_t deadline, const struct tti_label *label)
{
    int waiting = 0;
    for (;;) {
        TTI_TRY(tti_links_advance(comm, peers, count, &waiting));
        if (waiting == 0)
            return TUTTI_OK;
        links_note(comm, peers, count, deadline);
        TTI_TRY(tti_links_progress(comm));
        TTI_TRY(tti_comm_listen(comm));
        if (tti_deadline_passed(deadline))
            return tti_links_timeout(comm, peers, count, label);
        tti_links_sleep(comm, tti_deadline_ms(deadline, 20));
    }
}

enum tutti_result tti_links_abandoned(struct tutti_comm *comm)
{
    for (int p = 0; p < comm->links.size; p++) {
        const struct tti_link *link = &comm->links.all[p];
        if (!link->connected || !link->abandoned)
            continue;
        const enum tutti_result result = link->abandoned(link->endpoint);
        if (result != TUTTI_OK)
            return tti_comm_link_failed(comm, result);
    }
    return TUTTI_OK;
}

enum tutti_result tti_links_progress(struct tutti_comm *comm)
{
    for (int c = 0; c < comm->peers.ncarriers; c++) {
        struct tti_carrier *carrier = &comm->peers.carriers[c];
        if (!carrier->in_use)
            continue;
        enum tutti_result result = carrier->ops->progress(carrier->object);
        if (result != TUTTI_OK)
            return tti_comm_link_failed(comm, result);
    }
    return TUTTI_OK;
}

void tti_links_sleep(struct tutti_comm *comm, int most_ms)
{
    struct pollfd fds[TTI_MAX_TRANSPORTS + 2];
    nfds_t count = 0;
    bool asleep = true;
    int armed = 0;
    for (; armed < comm->peers.ncarriers && asleep; armed++) {
        struct tti_carrier *carrier = &comm->peers.carriers[armed];
        asleep = carrier->ops->arm(carrier->object);
        fds[count++] = (struct pollfd){.fd = carrier->fd, .events = POLLIN};
    }
    if (asleep) {
        if (comm->boot && tti_boot_fd(comm->boot) >= 0)
            fds[count++] = (struct pollfd){.fd = tti_boot_fd(comm->boot), .events = POLLIN};
        fds[count++] = (struct pollfd){.fd = comm->wake_fd, .events = POLLIN};
        poll(fds, count, most_ms); /* an interrupted sleep is as good as a wake-up */
    }
    for (int c = 0; c < armed; c++)
        comm->peers.carriers[c].ops->disarm(comm->peers.carriers[c].object);
}
