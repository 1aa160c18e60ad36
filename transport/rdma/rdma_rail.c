/* Rails: which ports of which devices a rank uses, and under which of their addresses (rdma.h). */
#include "base/config.h"
#include "base/kernel_file.h"
#include "base/log.h"
#include "transport/rdma/rdma.h"
#include "transport/rdma/rdma_names.h"
#include "transport/tcp/tcp_address.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RAIL_FIRST_ROOM = 1024, /* of a completion queue */
};

/* ---- which ports are there ------------------------------------------------------------------ */

/* Mbit/s of a lane by the code of the speed, in hundreds; the width is a code, too. */
static uint32_t rail_speed(const struct ibv_port_attr *attr)
{
    static const struct {
        uint8_t code;
        uint32_t speed;
    } speeds[] = {{1, 2500},   {2, 5000},   {4, 10000},  {8, 10000},
                  {16, 14000}, {32, 25000}, {64, 50000}, {128, 100000}};
    uint32_t width = attr->active_width == 16  ? 2
                     : attr->active_width == 8 ? 12
                     : attr->active_width == 4 ? 8
                     : attr->active_width == 2 ? 4
                                               : 1;
    for (size_t i = 0; i < sizeof speeds / sizeof speeds[0]; i++)
        if (speeds[i].code == attr->active_speed)
            return speeds[i].speed * width;
    return 0;
}

/* Is there a P_Key at this index? The first one is taken on trust. */
static bool rail_pkey(const struct tti_rdma_rail *rail, long index)
{
    char path[120], text[20];
    if (index == 0)
        return true;
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/%d/pkeys/%ld", rail->device,
             rail->number, index);
    return tti_kernel_line(path, text, sizeof text) && strtoul(text, NULL, 16) != 0;
}

/* One port of an open device: why can it not be used? NULL: it can. Fills what peers are told. */
static const char *rail_unusable(const struct tti_rdma_transport *self, struct tti_rdma_rail *rail)
{
    struct ibv_port_attr attr;
    memset(&attr, 0, sizeof attr);
    /* The function knows the fields up to `flags` only, and its type says so. */
    if (self->verbs->query_port(rail->context, rail->number, (void *)&attr) != 0 ||
        attr.state != IBV_PORT_ACTIVE)
        return "is not active";
    rail->port.layer =
        attr.link_layer == IBV_LINK_LAYER_ETHERNET ? TTI_RDMA_ETHERNET : TTI_RDMA_INFINIBAND;
    rail->port.mtu = (uint8_t)attr.active_mtu;
    rail->port.lid = attr.lid;
    rail->port.speed = rail_speed(&attr);
    if (rail->port.mtu < 1 || rail->port.mtu > 5)
        return "has an unknown MTU";
    if (!tti_rdma_gid_choose(self, rail, attr.gid_tbl_len))
        return "has no address in this network namespace of the kind wanted (TUTTI_RDMA_GID_INDEX, "
               "TUTTI_RDMA_ROCE)";
    if (!rail_pkey(rail, self->settings.pkey_index))
        return "has no P_Key at TUTTI_RDMA_PKEY_INDEX";
    tti_rdma_gid_network(rail);
    return NULL;
}

/* ---- opening -------------------------------------------------------------------------------- */

static void rail_close(struct tti_rdma_transport *self, struct tti_rdma_rail *rail)
{
    if (rail->cq)
        self->verbs->destroy_cq(rail->cq);
    if (rail->channel)
        self->verbs->destroy_comp_channel(rail->channel);
    if (rail->pd)
        self->verbs->dealloc_pd(rail->pd);
    if (rail->context)
        self->verbs->close_device(rail->context);
    memset(rail, 0, sizeof *rail);
}

static bool rail_never_blocks(int fd)
{
    return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0;
}

/* What a usable port needs to carry anything. */
static enum tutti_result rail_equip(struct tti_rdma_transport *self, struct tti_rdma_rail *rail)
{
    const struct tti_verbs *verbs = self->verbs;
    struct ibv_device_attr attr;
    if (verbs->query_device(rail->context, &attr) != 0)
        return TTI_FAIL_ERRNO("ibv_query_device: RDMA device %s", rail->device);
    rail->cq_most = attr.max_cqe;
    rail->cq_room = attr.max_cqe < RAIL_FIRST_ROOM ? attr.max_cqe : RAIL_FIRST_ROOM;
    rail->pd = verbs->alloc_pd(rail->context);
    if (!rail->pd)
        return TTI_FAIL_ERRNO("ibv_alloc_pd: RDMA device %s", rail->device);
    rail->channel = verbs->create_comp_channel(rail->context);
    if (!rail->channel)
        return TTI_FAIL_ERRNO("ibv_create_comp_channel: RDMA device %s", rail->device);
    rail->cq = verbs->create_cq(rail->context, rail->cq_room, NULL, rail->channel, 0);
    if (!rail->cq)
        return TTI_FAIL_ERRNO("ibv_create_cq: %d completions of RDMA device %s", rail->cq_room,
                              rail->device);
    if (!rail_never_blocks(rail->channel->fd) || !rail_never_blocks(rail->context->async_fd))
        return TTI_FAIL_ERRNO("fcntl: events of RDMA device %s", rail->device);
    return TUTTI_OK;
}

enum tutti_result tti_rdma_rail_reserve(struct tti_rdma_transport *self, struct tti_rdma_rail *rail,
                                        int more)
{
    int need = rail->cq_used + more, room = rail->cq_room;
    while (room < need)
        room *= 2;
    if (room > rail->cq_most)
        room = rail->cq_most;
    if (room < need)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "RDMA device %s has completion queues of %d entries at most, and %d are "
                        "needed; use fewer lanes or a smaller TUTTI_RDMA_SLOTS",
                        rail->device, rail->cq_most, need);
    if (room > rail->cq_room) {
        int error = self->verbs->resize_cq(rail->cq, room);
        if (error) {
            errno = error;
            return TTI_FAIL_ERRNO("ibv_resize_cq: from %d to %d completions of RDMA device %s",
                                  rail->cq_room, room, rail->device);
        }
        rail->cq_room = room;
    }
    rail->cq_used = need;
    return TUTTI_OK;
}

/* ---- all devices ---------------------------------------------------------------------------- */

/* What is found on the way through the devices. */
struct rail_search {
    const char *list;
    bool equip;      /* else only look */
    bool refused;    /* one that the list lets in cannot be used */
    char there[300]; /* all ports, for error texts */
    char why[200];   /* the last reason against a device */
};

static void rail_note(struct rail_search *search, const char *device, int port, const char *state)
{
    size_t used = strlen(search->there);
    snprintf(search->there + used, sizeof search->there - used, "%s%s:%d%s", used ? ", " : "",
             device, port, state);
}

/* Is there room for one more? A near one may take that of a far one. */
static bool rail_room(struct tti_rdma_transport *self, bool far)
{
    int last = self->rails - 1;
    if (self->rails < TTI_RDMA_MAX_RAILS)
        return true;
    while (!far && last >= 0 && !self->rail[last].port.far)
        last--;
    if (far || last < 0)
        return false;
    rail_close(self, &self->rail[last]);
    for (self->rails--; last < self->rails; last++)
        self->rail[last] = self->rail[last + 1];
    return true;
}

/* Try one port; it becomes a rail when it can. The context goes to the rail or is closed. */
static enum tutti_result rail_try(struct tti_rdma_transport *self, struct ibv_device *device,
                                  int port, struct rail_search *search)
{
    struct tti_rdma_rail rail = {.number = (uint8_t)port};
    snprintf(rail.device, sizeof rail.device, "%s", device->name);
    rail.context = self->verbs->open_device(device);
    if (!rail.context) {
        snprintf(search->why, sizeof search->why,
                 "device %.60s cannot be opened: %s (is /dev/infiniband/uverbs* there and yours?)",
                 device->name, strerror(errno));
        return TUTTI_OK;
    }
    const char *unusable = rail_unusable(self, &rail);
    rail_note(search, rail.device, port, unusable ? " (cannot be used)" : "");
    const bool allowed = tti_rdma_names_allow(search->list, rail.device, port);
    if (unusable && allowed) {
        search->refused = true;
        snprintf(search->why, sizeof search->why, "port %d of device %.60s %s", port, rail.device,
                 unusable);
    }
    rail.port.far = tti_tcp_is_far(self->env.far_nics, rail.device);
    if (unusable || !allowed || !rail_room(self, rail.port.far)) {
        rail_close(self, &rail);
        return TUTTI_OK;
    }
    enum tutti_result result = search->equip ? rail_equip(self, &rail) : TUTTI_OK;
    if (result != TUTTI_OK) {
        rail_close(self, &rail);
        return result;
    }
    self->rail[self->rails++] = rail;
    return TUTTI_OK;
}

static int rail_ports(struct tti_rdma_transport *self, struct ibv_device *device)
{
    struct ibv_device_attr attr = {.phys_port_cnt = 1};
    struct ibv_context *context = self->verbs->open_device(device);
    if (!context)
        return 1; /* the attempt at the port tells why */
    if (self->verbs->query_device(context, &attr) != 0)
        attr.phys_port_cnt = 1;
    self->verbs->close_device(context);
    return attr.phys_port_cnt;
}

static enum tutti_result rail_search_all(struct tti_rdma_transport *self,
                                         struct rail_search *search)
{
    int count = 0;
    struct ibv_device **list = self->verbs->get_device_list(&count);
    enum tutti_result result = TUTTI_OK;
    if (!list)
        return TTI_FAIL_ERRNO("ibv_get_device_list: asking for the RDMA devices");
    for (int i = 0; i < count && result == TUTTI_OK; i++) {
        if (list[i]->transport_type != IBV_TRANSPORT_IB) {
            snprintf(search->why, sizeof search->why,
                     "device %.60s is none of InfiniBand or RoCE (iWARP has no write with "
                     "immediate)",
                     list[i]->name);
            continue;
        }
        int ports = rail_ports(self, list[i]);
        for (int port = 1; port <= ports && result == TUTTI_OK; port++)
            result = rail_try(self, list[i], port, search);
    }
    self->verbs->free_device_list(list);
    return result;
}

enum tutti_result tti_rdma_probe(const struct tti_verbs *verbs)
{
    struct tti_rdma_transport look = {.verbs = verbs, .settings = {.gid_index = -1}};
    struct rail_search search = {.list = "", .why = "libibverbs finds no device"};
    enum tutti_result result = rail_search_all(&look, &search);
    int found = look.rails;
    tti_rdma_rails_close(&look);
    if (result == TUTTI_OK && found == 0)
        result = TTI_FAIL(TUTTI_ERR_UNSUPPORTED, "rdma: no port can be used: %s", search.why);
    return result;
}

/* None is nearer than the others if the near ones cannot be used. */
static void rail_all_far(struct tti_rdma_transport *self)
{
    bool near = false;
    for (int r = 0; r < self->rails; r++)
        near |= !self->rail[r].port.far;
    for (int r = 0; r < self->rails && !near; r++)
        self->rail[r].port.far = false;
}

enum tutti_result tti_rdma_rails_open(struct tti_rdma_transport *self)
{
    char list[400] = "";
    const char *wanted = tti_config_text("TUTTI_RDMA_DEVICES");
    struct rail_search search = {.list = list, .equip = true, .why = "none is there"};
    if (wanted)
        tti_rdma_names_of(wanted, self->env.rank, list, sizeof list);
    TTI_TRY(rail_search_all(self, &search));
    if (self->rails == 0 && wanted && !search.refused)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "TUTTI_RDMA_DEVICES is \"%s\", which leaves no port (rank %d uses \"%s\"); "
                        "there are: %s",
                        wanted, self->env.rank, list, *search.there ? search.there : "none");
    if (self->rails == 0)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED, "rdma: no port can be used: %s", search.why);
    rail_all_far(self);
    for (int r = 0; r < self->rails; r++)
        TTI_LOG(TTI_LOG_INFO, "rdma: device %s port %d, %s, GID %d %s, MTU %d, %u Mbit/s%s",
                self->rail[r].device, self->rail[r].number,
                self->rail[r].port.layer == TTI_RDMA_INFINIBAND ? "InfiniBand"
                : self->rail[r].port.roce == 2                  ? "RoCE v2"
                                                                : "RoCE v1",
                self->rail[r].gid_index, self->rail[r].address, 128 << self->rail[r].port.mtu,
                self->rail[r].port.speed,
                self->rail[r].port.far ? ", in reserve: others are nearer" : "");
    return TUTTI_OK;
}

void tti_rdma_rails_close(struct tti_rdma_transport *self)
{
    while (self->rails > 0)
        rail_close(self, &self->rail[--self->rails]);
}

/* ---- what devices say of themselves --------------------------------------------------------- */

/* Nothing will be heard any more of what goes by this rail. By one that was joined again the peer
 * may carry already. */
static void rail_fail(struct tti_rdma_transport *self, const struct tti_rdma_rail *rail,
                      const char *what)
{
    for (struct tti_rdma_endpoint *e = self->endpoint; e; e = e->next)
        for (int i = 0; i < e->qps; i++) {
            const struct tti_rdma_qp *qp = &e->qp[i];
            if (qp->rail == rail && (!qp->moved || (qp->joined && !qp->said_lost)))
                tti_rdma_endpoint_fail(
                    e, tti_rdma_qp_fail(qp, TUTTI_ERR_LINK, what, "; see its messages (dmesg)"));
        }
}

/* A queue pair that is in the state of error by our will has nothing to say; and where the peer has
 * left, that is what there is to say. */
static void rail_qp_fail(struct tti_rdma_transport *self, const struct ibv_qp *broken,
                         const char *what)
{
    for (struct tti_rdma_endpoint *e = self->endpoint; e; e = e->next)
        for (int i = 0; i < e->qps; i++)
            if (e->qp[i].qp == broken && !e->qp[i].lost && !e->ended && !e->goodbye)
                tti_rdma_endpoint_fail(e, tti_rdma_qp_fail(&e->qp[i], TUTTI_ERR_LINK, what,
                                                           "; see the messages of its device "
                                                           "(dmesg)"));
}

static void rail_event(struct tti_rdma_transport *self, struct tti_rdma_rail *rail,
                       const struct ibv_async_event *event)
{
    bool mine = event->element.port_num == rail->number;
    switch (event->event_type) {
    case IBV_EVENT_PORT_ERR:
        rail->port_down |= mine;
        break;
    case IBV_EVENT_PORT_ACTIVE:
        rail->port_down &= !mine;
        break;
    case IBV_EVENT_DEVICE_FATAL:
        rail_fail(self, rail, "the device broke down");
        break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
        rail_qp_fail(self, event->element.qp, self->verbs->event_type_str(event->event_type));
        break;
    case IBV_EVENT_CQ_ERR: /* each rail has one, which gives nothing more */
        rail_fail(self, rail, "the device's completion queue broke down");
        break;
    default:
        break;
    }
    TTI_LOG(TTI_LOG_WARN, "rdma: device %s says: %s", rail->device,
            self->verbs->event_type_str(event->event_type));
}

void tti_rdma_rails_hear(struct tti_rdma_transport *self)
{
    for (int r = 0; r < self->rails; r++) {
        struct ibv_async_event event;
        while (self->verbs->get_async_event(self->rail[r].context, &event) == 0) {
            self->verbs->ack_async_event(&event);
            rail_event(self, &self->rail[r], &event);
        }
    }
}
