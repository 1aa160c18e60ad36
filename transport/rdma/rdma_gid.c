/* Which of its addresses a port is used under: an entry of its table of GIDs (rdma.h). */
#include "base/kernel_file.h"
#include "transport/rdma/rdma.h"
#include "transport/tcp/tcp_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GID_MOST = 256 };

/* What the kernel says in a file of a port, without the end of line; "" when it does not. */
static void gid_attribute(const char *device, int port, const char *file, int index, char *text,
                          size_t room)
{
    char path[200];
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/%d/gid_attrs/%s/%d", device, port,
             file, index);
    (void)tti_kernel_line(path, text, room); /* empty entries refuse to be read */
}

/* The version of RoCE that goes with this entry of the table of GIDs; 0: the entry is empty. */
static uint8_t gid_roce(const char *device, int port, int index)
{
    char type[40];
    gid_attribute(device, port, "types", index, type, sizeof type);
    return strstr(type, "v2") ? 2 : strstr(type, "v1") ? 1 : 0;
}

static bool gid_empty(const union ibv_gid *gid)
{
    static const union ibv_gid none;
    return memcmp(gid, &none, sizeof none) == 0;
}

/* An address of the interface that the entry belongs to, in this network namespace? RDMA devices
 * are seen in all of them unless the machine is told otherwise, and the kernel refuses connections
 * from an address of another. IPv6: a device makes up a link-local one that the interface may lack.
 */
static bool gid_is_here(const struct tti_rdma_rail *rail, int index, const uint8_t gid[16])
{
    char name[80];
    struct ifaddrs *list = NULL;
    gid_attribute(rail->device, rail->number, "ndevs", index, name, sizeof name);
    if (!*name)
        return true; /* nobody can tell */
    if (!tti_rdma_gid_is_ipv4(gid) || getifaddrs(&list) != 0)
        return if_nametoindex(name) != 0;
    bool here = false;
    for (const struct ifaddrs *at = list; at && !here; at = at->ifa_next) {
        struct sockaddr_in address;
        if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET)
            continue;
        memcpy(&address, at->ifa_addr, sizeof address);
        here = memcmp(&address.sin_addr, gid + 12, 4) == 0;
    }
    freeifaddrs(list);
    return here;
}

/* How good an entry is on Ethernet: RoCE v2 can be routed, IPv4 addresses are what networks are set
 * up with, and link-local ones reach least. */
static int gid_score(const union ibv_gid *gid, uint8_t roce)
{
    bool local = gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
    return 10 * roce + (tti_rdma_gid_is_ipv4(gid->raw) ? 2 : local ? 0 : 1);
}

bool tti_rdma_gid_choose(const struct tti_rdma_transport *self, struct tti_rdma_rail *rail,
                         int entries)
{
    const struct tti_rdma_settings *wanted = &self->settings;
    int best = -1;
    bool infiniband = rail->port.layer == TTI_RDMA_INFINIBAND;
    if (entries > GID_MOST)
        entries = GID_MOST;
    for (int i = 0; i < entries; i++) {
        union ibv_gid gid;
        if (wanted->gid_index >= 0 ? i != wanted->gid_index : infiniband && i > 0)
            continue;
        if (self->verbs->query_gid(rail->context, rail->number, i, &gid) != 0 || gid_empty(&gid))
            continue;
        uint8_t roce = infiniband ? 0 : gid_roce(rail->device, rail->number, i);
        if (!infiniband && (roce == 0 || (wanted->roce && roce != wanted->roce)))
            continue;
        if (wanted->gid_index < 0 && !infiniband && !gid_is_here(rail, i, gid.raw))
            continue;
        int score = gid_score(&gid, roce);
        if (score <= best)
            continue;
        best = score;
        rail->gid_index = (uint8_t)i;
        rail->port.roce = roce;
        memcpy(rail->port.gid, gid.raw, sizeof gid.raw);
    }
    return best >= 0;
}

void tti_rdma_gid_network(struct tti_rdma_rail *rail)
{
    struct tti_tcp_interface *list = NULL;
    size_t count = 0;
    const uint8_t *gid = rail->port.gid;
    bool ipv4 = tti_rdma_gid_is_ipv4(gid);
    char name[80] = "";
    gid_attribute(rail->device, rail->number, "ndevs", rail->gid_index, name, sizeof name);
    inet_ntop(ipv4 ? AF_INET : AF_INET6, ipv4 ? gid + 12 : gid, rail->address,
              sizeof rail->address);
    size_t used = strlen(rail->address);
    if (*name)
        snprintf(rail->address + used, sizeof rail->address - used, "%%%.15s", name);
    if (!ipv4 || tti_tcp_interfaces(&list, &count) != TUTTI_OK)
        return;
    for (size_t i = 0; i < count; i++)
        if (list[i].address.family == 4 && memcmp(list[i].address.bytes, gid + 12, 4) == 0)
            rail->port.prefix = list[i].address.prefix;
    free(list);
}
