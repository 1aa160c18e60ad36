/* Choosing this host's address (launch/interface.h). */
#include "launch/interface.h"

#include "base/config.h"
#include "base/log.h"

#include <arpa/inet.h>
#include <fnmatch.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* One item of the list, without its "^": a shell pattern, "=name", or the start of a name. */
static bool interface_item(const char *item, const char *name)
{
    if (*item == '=')
        return strcmp(item + 1, name) == 0;
    if (strpbrk(item, "*?["))
        return fnmatch(item, name, 0) == 0;
    return *item && strncmp(item, name, strlen(item)) == 0;
}

bool tti_interface_matches(const char *list, const char *name)
{
    bool only_these = false;
    bool named = false;
    for (const char *at = list ? list : ""; *at;) {
        char item[64] = "";
        size_t length = strcspn(at, ", ");
        if (length < sizeof item)
            memcpy(item, at, length);
        bool not_this = *item == '^' || *item == '!';
        if (not_this && interface_item(item + 1, name))
            return false;
        only_these = only_these || (*item && !not_this);
        named = named || (!not_this && interface_item(item, name));
        at += length + (at[length] != '\0');
    }
    return named || !only_these;
}

static socklen_t interface_bytes(const struct sockaddr *address)
{
    return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                          : sizeof(struct sockaddr_in);
}

static bool interface_usable(const struct ifaddrs *at, const char *list)
{
    if (!at->ifa_addr || !(at->ifa_flags & IFF_UP) || !tti_interface_matches(list, at->ifa_name))
        return false;
    if (at->ifa_addr->sa_family == AF_INET)
        return true;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)at->ifa_addr;
    return at->ifa_addr->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr);
}

/* The source address of a route to somewhere far away; nothing is sent. */
static bool interface_route(struct sockaddr_storage *own)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(9)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(9)};
    (void)inet_pton(AF_INET, "192.0.2.1", &four.sin_addr);
    (void)inet_pton(AF_INET6, "2001:db8::1", &six.sin6_addr);
    const struct sockaddr *far[2] = {(struct sockaddr *)(void *)&four,
                                     (struct sockaddr *)(void *)&six};
    for (int i = 0; i < 2; i++) {
        int fd = socket(far[i]->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
            continue;
        socklen_t bytes = sizeof *own;
        bool found = connect(fd, far[i], interface_bytes(far[i])) == 0 &&
                     getsockname(fd, (struct sockaddr *)own, &bytes) == 0;
        close(fd);
        if (found)
            return true;
    }
    return false;
}

static bool interface_same(const struct sockaddr *a, const struct sockaddr_storage *b)
{
    if (a->sa_family != b->ss_family)
        return false;
    if (a->sa_family == AF_INET)
        return ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)(const void *)b)->sin_addr.s_addr;
    return memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                  &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr, 16) == 0;
}

/* Higher is better: the routed address, then IPv4 before IPv6, loopback last. */
static int interface_score(const struct ifaddrs *at, const struct sockaddr_storage *routed)
{
    int score = 1;
    if (routed && interface_same(at->ifa_addr, routed))
        score += 8;
    if (!(at->ifa_flags & IFF_LOOPBACK))
        score += 4;
    if (at->ifa_addr->sa_family == AF_INET)
        score += 2;
    return score;
}

/* "lo 127.0.0.1, eth0 10.0.0.1", for error texts. */
static void interface_names(const struct ifaddrs *all, char *text, size_t room)
{
    size_t used = 0;
    snprintf(text, room, "none");
    for (const struct ifaddrs *at = all; at && used < room; at = at->ifa_next) {
        char number[64] = "";
        if (interface_usable(at, NULL) &&
            getnameinfo(at->ifa_addr, interface_bytes(at->ifa_addr), number, sizeof number, NULL, 0,
                        NI_NUMERICHOST) == 0)
            used += (size_t)snprintf(text + used, room - used, "%s%s %s", used ? ", " : "",
                                     at->ifa_name, number);
    }
}

enum tutti_result tti_interface_best(char *text, size_t room)
{
    const char *list = tti_config_text("TUTTI_IFNAME");
    struct sockaddr_storage routed = {0};
    bool has_route = interface_route(&routed);
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0)
        return TTI_FAIL_ERRNO("listing this host's interfaces");
    const struct ifaddrs *best = NULL;
    int best_score = 0;
    for (const struct ifaddrs *at = all; at; at = at->ifa_next) {
        if (!interface_usable(at, list))
            continue;
        int score = interface_score(at, has_route ? &routed : NULL);
        if (score > best_score) {
            best_score = score;
            best = at;
        }
    }
    char found[64] = "", there[400];
    bool ok = best && getnameinfo(best->ifa_addr, interface_bytes(best->ifa_addr), found,
                                  sizeof found, NULL, 0, NI_NUMERICHOST) == 0;
    if (ok)
        TTI_LOG(TTI_LOG_INFO, "this host's address is %s (%s)", found, best->ifa_name);
    interface_names(all, there, sizeof there);
    freeifaddrs(all);
    if (!ok && list)
        return TTI_FAIL(TUTTI_ERR_SYSTEM,
                        "TUTTI_IFNAME is \"%s\", which no network interface that is up matches; "
                        "there are: %s",
                        list, there);
    snprintf(text, room, "%s", ok ? found : "127.0.0.1");
    return TUTTI_OK;
}
