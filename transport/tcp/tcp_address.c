/* Interfaces and their order (tcp_address.h). */
#include "transport/tcp/tcp_address.h"

#include "base/kernel_file.h"
#include "base/memory.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- this machine --------------------------------------------------------------------------- */

/* Mbit/s as the driver says; virtual and loopback interfaces mostly do not. */
static uint32_t address_speed(const char *interface)
{
    char path[64 + IF_NAMESIZE];
    snprintf(path, sizeof path, "/sys/class/net/%s/speed", interface);
    const int speed = tti_kernel_number(path);
    return speed < 0 || speed > 100000000 ? 0 : (uint32_t)speed;
}

/* A tunnel's packets go through whatever NIC the routes choose, also where one is named for it. */
static bool address_is_tunnel(const char *sysfs, const char *interface)
{
    char path[400], line[80];
    bool tunnel = false;
    snprintf(path, sizeof path, "%.300s/class/net/%.60s/uevent", sysfs, interface);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        tunnel |= strcmp(line, "DEVTYPE=vxlan\n") == 0 || strcmp(line, "DEVTYPE=geneve\n") == 0;
    if (file)
        fclose(file);
    return tunnel;
}

static bool address_on_hardware(const char *sysfs, const char *interface, int depth)
{
    enum { DEPTH = 4 }; /* a VLAN of a bridge on a bond */
    char path[400];
    snprintf(path, sizeof path, "%.300s/class/net/%.60s/device", sysfs, interface);
    if (access(path, F_OK) == 0)
        return true;
    if (depth == DEPTH || address_is_tunnel(sysfs, interface))
        return false;
    snprintf(path, sizeof path, "%.300s/class/net/%.60s", sysfs, interface);
    DIR *folder = opendir(path);
    bool found = false;
    for (const struct dirent *entry; !found && folder && (entry = readdir(folder));)
        found = strncmp(entry->d_name, "lower_", 6) == 0 &&
                address_on_hardware(sysfs, entry->d_name + 6, depth + 1);
    if (folder)
        closedir(folder);
    return found;
}

bool tti_tcp_on_hardware(const char *sysfs, const char *interface)
{
    char device[IF_NAMESIZE];
    snprintf(device, sizeof device, "%.*s", (int)strcspn(interface, ":"), interface); /* no alias */
    return address_on_hardware(sysfs, device, 0);
}

static uint8_t address_prefix(const uint8_t *mask, size_t bytes)
{
    uint8_t bits = 0;
    for (size_t i = 0; i < bytes; i++)
        bits = (uint8_t)(bits + __builtin_popcount(mask[i]));
    return bits;
}

/* False when a peer could never use this one. */
static bool address_usable(const struct ifaddrs *entry, struct tti_tcp_address *address)
{
    unsigned need = IFF_UP | IFF_RUNNING;
    if (!entry->ifa_addr || (entry->ifa_flags & need) != need)
        return false;
    memset(address, 0, sizeof *address);
    address->loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    if (entry->ifa_addr->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)entry->ifa_addr;
        const struct sockaddr_in *mask = (const void *)entry->ifa_netmask;
        const uint8_t *bytes = (const uint8_t *)&in->sin_addr;
        address->family = 4;
        memcpy(address->bytes, bytes, 4);
        address->prefix = mask ? address_prefix((const uint8_t *)&mask->sin_addr, 4) : 32;
        return !(bytes[0] == 169 && bytes[1] == 254);
    }
    if (entry->ifa_addr->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const void *)entry->ifa_addr;
        const struct sockaddr_in6 *mask = (const void *)entry->ifa_netmask;
        address->family = 6;
        memcpy(address->bytes, &in->sin6_addr, 16);
        address->prefix = mask ? address_prefix((const uint8_t *)&mask->sin6_addr, 16) : 128;
        return !IN6_IS_ADDR_LINKLOCAL(&in->sin6_addr);
    }
    return false;
}

static bool address_before(const struct tti_tcp_interface *one,
                           const struct tti_tcp_interface *other)
{
    if (one->address.loopback != other->address.loopback)
        return other->address.loopback;
    if (one->address.speed != other->address.speed)
        return one->address.speed > other->address.speed;
    return one->address.family < other->address.family;
}

enum tutti_result tti_tcp_interfaces(struct tti_tcp_interface **list, size_t *count)
{
    struct ifaddrs *all = NULL;
    size_t most = 0, used = 0;
    if (getifaddrs(&all) != 0)
        return TTI_FAIL_ERRNO("getifaddrs: listing this machine's network interfaces");
    for (const struct ifaddrs *entry = all; entry; entry = entry->ifa_next)
        most++;
    struct tti_tcp_interface *found = tti_calloc(most, sizeof *found);
    if (!found) {
        freeifaddrs(all);
        return TUTTI_ERR_MEMORY;
    }
    for (const struct ifaddrs *entry = all; entry; entry = entry->ifa_next) {
        struct tti_tcp_interface item = {.far = false};
        if (!address_usable(entry, &item.address))
            continue;
        snprintf(item.name, sizeof item.name, "%s", entry->ifa_name);
        item.address.speed = address_speed(item.name);
        item.hardware = tti_tcp_on_hardware("/sys", item.name);
        size_t at = used++;
        for (; at > 0 && address_before(&item, &found[at - 1]); at--)
            found[at] = found[at - 1];
        found[at] = item;
    }
    freeifaddrs(all);
    *list = found;
    *count = used;
    return TUTTI_OK;
}

/* Is `name` the device of these `bytes`, or a VLAN or an alias of it? */
static bool address_is_of(const char *device, size_t bytes, const char *name)
{
    return bytes > 0 && strncmp(name, device, bytes) == 0 &&
           strchr(".:", name[bytes]); /* strchr finds the end, too */
}

bool tti_tcp_has_address(const char *interface)
{
    struct ifaddrs *all = NULL;
    bool found = false;
    if (getifaddrs(&all) != 0)
        return false;
    for (const struct ifaddrs *entry = all; entry && !found; entry = entry->ifa_next) {
        struct tti_tcp_address address;
        found = address_is_of(interface, strlen(interface), entry->ifa_name) &&
                address_usable(entry, &address) && !address.loopback;
    }
    freeifaddrs(all);
    return found;
}

static uint64_t address_hash(uint64_t hash, const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) /* FNV-1a */
        hash = (hash ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

uint64_t tti_tcp_host(void)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    char boot[64];
    if (tti_kernel_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot))
        hash = address_hash(hash, boot, strlen(boot));
    struct stat space;
    if (stat("/proc/self/ns/net", &space) == 0) {
        hash = address_hash(hash, &space.st_dev, sizeof space.st_dev);
        hash = address_hash(hash, &space.st_ino, sizeof space.st_ino);
    }
    return hash;
}

/* ---- TUTTI_IFNAME --------------------------------------------------------------------------- */

struct address_pattern {
    char text[64];
    bool exclude;
    bool exact;
};

/* The next one of a comma list; false at its end. */
static bool address_next_pattern(const char **list, struct address_pattern *pattern)
{
    *list += strspn(*list, ", \t");
    if (!**list)
        return false;
    size_t bytes = strcspn(*list, ", \t");
    const char *text = *list;
    *list += bytes;
    pattern->exclude = *text == '^' || *text == '!';
    text += pattern->exclude;
    pattern->exact = *text == '=';
    text += pattern->exact;
    snprintf(pattern->text, sizeof pattern->text, "%.*s", (int)(*list - text), text);
    return true;
}

static bool address_matches(const struct address_pattern *pattern, const char *name)
{
    if (strpbrk(pattern->text, "*?["))
        return fnmatch(pattern->text, name, 0) == 0;
    if (pattern->exact)
        return strcmp(pattern->text, name) == 0;
    return strncmp(pattern->text, name, strlen(pattern->text)) == 0;
}

bool tti_tcp_allowed(const char *patterns, const char *name)
{
    struct address_pattern pattern;
    bool asks = false, included = false;
    while (address_next_pattern(&patterns, &pattern)) {
        bool match = address_matches(&pattern, name);
        if (pattern.exclude && match)
            return false;
        asks |= !pattern.exclude;
        included |= !pattern.exclude && match;
    }
    return included || !asks;
}

/* "lo 127.0.0.1, eth0 10.0.0.1", for error texts. */
static void address_list_text(const struct tti_tcp_interface *list, size_t count, char *text,
                              size_t room)
{
    size_t used = 0;
    snprintf(text, room, "none");
    for (size_t i = 0; i < count && used + 1 < room; i++) {
        char number[INET6_ADDRSTRLEN] = "?";
        inet_ntop(list[i].address.family == 4 ? AF_INET : AF_INET6, list[i].address.bytes, number,
                  sizeof number);
        int more =
            snprintf(text + used, room - used, "%s%s %s", used ? ", " : "", list[i].name, number);
        used += more > 0 ? (size_t)more : 0;
    }
}

enum tutti_result tti_tcp_filter(const char *patterns, struct tti_tcp_interface *list,
                                 size_t *count)
{
    char exist[512];
    struct address_pattern pattern;
    address_list_text(list, *count, exist, sizeof exist);
    for (const char *rest = patterns; address_next_pattern(&rest, &pattern);) {
        bool found = pattern.exclude;
        for (size_t i = 0; i < *count && !found; i++)
            found = address_matches(&pattern, list[i].name);
        if (!found)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                            "TUTTI_IFNAME is \"%s\": \"%s\" matches no network interface that is "
                            "up and has a usable address; there are: %s",
                            patterns, pattern.text, exist);
    }
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++)
        if (tti_tcp_allowed(patterns, list[i].name))
            list[kept++] = list[i];
    if (kept == 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "TUTTI_IFNAME is \"%s\", which leaves no network interface; there are: %s",
                        patterns, exist);
    *count = kept;
    return TUTTI_OK;
}

/* ---- NICs that are far ---------------------------------------------------------------------- */

bool tti_tcp_is_far(const char *far_nics, const char *name)
{
    for (const char *at = far_nics; at && *at; at += *at == ',') {
        const size_t bytes = strcspn(at, ",");
        if (address_is_of(at, bytes, name))
            return true;
        at += bytes;
    }
    return false;
}

void tti_tcp_far_last(const char *far_nics, struct tti_tcp_interface *list, size_t count)
{
    bool chosen = false; /* of the host's own NICs some are near, then, and none else */
    for (size_t i = 0; i < count; i++)
        chosen |= list[i].hardware && tti_tcp_is_far(far_nics, list[i].name);
    for (size_t i = 0; i < count; i++) {
        struct tti_tcp_interface item = list[i];
        size_t at = i;
        if (item.address.loopback)
            continue;
        list[i].far = item.far = tti_tcp_is_far(far_nics, item.name) || (chosen && !item.hardware);
        if (item.far)
            continue;
        for (; at > 0 && list[at - 1].far; at--)
            list[at] = list[at - 1];
        list[at] = item;
    }
}

/* ---- the order of a peer's addresses -------------------------------------------------------- */

static bool address_same_subnet(const struct tti_tcp_address *own, const struct tti_tcp_address *to)
{
    int whole = own->prefix / 8, bits = own->prefix % 8;
    if (own->prefix == 0 || own->prefix >= (own->family == 4 ? 32 : 128))
        return false; /* a point-to-point address says nothing about its neighbours */
    if (memcmp(own->bytes, to->bytes, (size_t)whole) != 0)
        return false;
    return bits == 0 || (own->bytes[whole] ^ to->bytes[whole]) >> (8 - bits) == 0;
}

/* 0 for unknown, else about log2 of the slower end's Mbit/s: at most 27. */
static int address_speed_score(uint32_t one, uint32_t other)
{
    uint32_t slower = one < other ? one : other;
    return slower ? 32 - __builtin_clz(slower) : 0;
}

enum { SCORE_LOOPBACK = 1000, SCORE_SUBNET = 100, SCORE_NEAR = 40, SCORE_FAMILY = 1 };

/* Fills `candidate` but for its `to`; false when this address is of no use to us. */
static bool address_score(const struct tti_tcp_interface *own, size_t count, bool same_host,
                          const struct tti_tcp_address *to, struct tti_tcp_candidate *candidate)
{
    candidate->from = -1;
    candidate->score = 0;
    for (size_t i = 0; i < count; i++) {
        const struct tti_tcp_address *from = &own[i].address;
        if (from->family != to->family || from->loopback != to->loopback)
            continue;
        if (to->loopback) {
            candidate->score = SCORE_LOOPBACK;
            return same_host;
        }
        /* The same address on two hosts is a private bridge of each (docker0, virbr0). */
        if (!same_host && memcmp(from->bytes, to->bytes, sizeof from->bytes) == 0)
            return false;
        bool near = address_same_subnet(from, to);
        int score = SCORE_FAMILY + (near ? SCORE_SUBNET : 0) + (own[i].far ? 0 : SCORE_NEAR) +
                    address_speed_score(from->speed, to->speed);
        if (score > candidate->score) {
            candidate->score = score;
            candidate->from = near && !same_host ? (int)i : -1;
        }
    }
    return candidate->score > 0;
}

int tti_tcp_candidates(const struct tti_tcp_interface *own, size_t count, uint64_t own_host,
                       const struct tti_tcp_advert *peer, struct tti_tcp_candidate *candidate)
{
    int used = 0;
    for (int i = 0; i < peer->count; i++) {
        struct tti_tcp_candidate item = {.to = peer->address[i]};
        if (!address_score(own, count, own_host == peer->host, &item.to, &item))
            continue;
        int at = used++;
        for (; at > 0 && item.score > candidate[at - 1].score; at--)
            candidate[at] = candidate[at - 1];
        candidate[at] = item;
    }
    return used;
}

bool tti_tcp_reachable(const struct tti_tcp_advert *one, const struct tti_tcp_advert *other)
{
    for (int i = 0; i < one->count; i++)
        for (int k = 0; k < other->count; k++) {
            const struct tti_tcp_address *a = &one->address[i], *b = &other->address[k];
            if (a->family != b->family)
                continue;
            if (one->host == other->host ? a->loopback == b->loopback
                                         : !a->loopback && !b->loopback)
                return true;
        }
    return false;
}

/* ---- socket addresses ----------------------------------------------------------------------- */

socklen_t tti_tcp_sockaddr(const struct tti_tcp_address *address, uint16_t port,
                           struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    if (address->family == 4) {
        struct sockaddr_in *in = (void *)out;
        in->sin_family = AF_INET;
        in->sin_port = htons(port);
        memcpy(&in->sin_addr, address->bytes, 4);
        return sizeof *in;
    }
    struct sockaddr_in6 *in = (void *)out;
    in->sin6_family = AF_INET6;
    in->sin6_port = htons(port);
    memcpy(&in->sin6_addr, address->bytes, 16);
    return sizeof *in;
}

void tti_tcp_sockaddr_text(const struct sockaddr_storage *address, char text[TTI_TCP_TEXT_BYTES])
{
    char number[INET6_ADDRSTRLEN] = "?";
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)address;
        inet_ntop(AF_INET, &in->sin_addr, number, sizeof number);
        snprintf(text, TTI_TCP_TEXT_BYTES, "%s:%u", number, ntohs(in->sin_port));
        return;
    }
    const struct sockaddr_in6 *in = (const void *)address;
    if (address->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&in->sin6_addr)) {
        inet_ntop(AF_INET, in->sin6_addr.s6_addr + 12, number, sizeof number);
        snprintf(text, TTI_TCP_TEXT_BYTES, "%s:%u", number, ntohs(in->sin6_port));
        return;
    }
    if (address->ss_family == AF_INET6)
        inet_ntop(AF_INET6, &in->sin6_addr, number, sizeof number);
    snprintf(text, TTI_TCP_TEXT_BYTES, "[%s]:%u", number,
             address->ss_family == AF_INET6 ? ntohs(in->sin6_port) : 0);
}
