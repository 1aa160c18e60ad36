/* Which interfaces TUTTI_IFNAME leaves, in which order a peer's addresses are tried, and the range
 * of ports. */
#include "base/config.h"
#include "transport/tcp/tcp_address.h"
#include "transport/tcp/tcp_socket.h"

#include "tests/made_file.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct tti_tcp_address address(const char *text, uint8_t prefix, uint32_t speed)
{
    struct tti_tcp_address made = {.prefix = prefix, .speed = speed};
    made.family = strchr(text, ':') ? 6 : 4;
    assert_int_equal(inet_pton(made.family == 4 ? AF_INET : AF_INET6, text, made.bytes), 1);
    made.loopback = strcmp(text, "::1") == 0 || strncmp(text, "127.", 4) == 0;
    return made;
}

static struct tti_tcp_interface interface(const char *name, const char *text, uint8_t prefix,
                                          uint32_t speed)
{
    struct tti_tcp_interface made = {.address = address(text, prefix, speed)};
    snprintf(made.name, sizeof made.name, "%s", name);
    return made;
}

/* ---- TUTTI_IFNAME --------------------------------------------------------------------------- */

enum { MACHINE = 7 };

static void machine(struct tti_tcp_interface list[MACHINE])
{
    list[0] = interface("eth0", "10.0.0.1", 24, 10000);
    list[1] = interface("eth0", "fd00::1", 64, 10000);
    list[2] = interface("eth10", "10.0.1.1", 24, 10000);
    list[3] = interface("ib0", "10.1.0.1", 16, 100000);
    list[4] = interface("docker0", "172.17.0.1", 16, 0);
    list[5] = interface("virbr0", "192.168.122.1", 24, 0);
    list[6] = interface("lo", "127.0.0.1", 8, 0);
}

/* The names that are left, one word each. */
static const char *left(const char *patterns)
{
    static char text[256];
    struct tti_tcp_interface list[MACHINE];
    size_t count = MACHINE;
    machine(list);
    if (tti_tcp_filter(patterns, list, &count) != TUTTI_OK)
        return "error";
    text[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        strcat(text, i ? " " : "");
        strcat(text, list[i].name);
    }
    return text;
}

static void patterns_choose_interfaces(void **state)
{
    (void)state;
    assert_string_equal(left("eth"), "eth0 eth0 eth10");
    assert_string_equal(left("=eth0"), "eth0 eth0");
    assert_string_equal(left("eth1"), "eth10");
    assert_string_equal(left("eth?"), "eth0 eth0");
    assert_string_equal(left("ib,eth10"), "eth10 ib0");
    assert_string_equal(left("*0"), "eth0 eth0 eth10 ib0 docker0 virbr0");
    assert_string_equal(left("^docker,^virbr"), "eth0 eth0 eth10 ib0 lo");
    assert_string_equal(left("!docker*, !lo"), "eth0 eth0 eth10 ib0 virbr0");
    assert_string_equal(left("eth,!=eth0"), "eth10");
    assert_string_equal(left("^nosuch"), "eth0 eth0 eth10 ib0 docker0 virbr0 lo");
}

static void patterns_that_match_nothing_list_what_exists(void **state)
{
    (void)state;
    struct tti_tcp_interface list[MACHINE];
    size_t count = MACHINE;
    machine(list);
    assert_int_equal(tti_tcp_filter("eth0,wlan", list, &count), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "\"wlan\""));
    assert_non_null(strstr(tutti_last_error(), "ib0 10.1.0.1"));
    assert_non_null(strstr(tutti_last_error(), "fd00::1"));
    assert_int_equal(count, MACHINE);
    assert_int_equal(tti_tcp_filter("=eth", list, &count), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tti_tcp_filter("eth0,^eth", list, &count), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "leaves no network interface"));
}

/* ---- the order of candidates ----------------------------------------------------------------- */

static struct tti_tcp_advert advert(uint64_t host, int count, const struct tti_tcp_address *list)
{
    struct tti_tcp_advert made = {.host = host, .port = 4444, .count = count};
    memcpy(made.address, list, (size_t)count * sizeof *list);
    return made;
}

static const char *order(const struct tti_tcp_interface *own, size_t count, uint64_t host,
                         const struct tti_tcp_advert *peer)
{
    static char text[512];
    struct tti_tcp_candidate candidate[TTI_TCP_MAX_ADDRESSES];
    int found = tti_tcp_candidates(own, count, host, peer, candidate);
    text[0] = '\0';
    for (int i = 0; i < found; i++) {
        char number[INET6_ADDRSTRLEN];
        inet_ntop(candidate[i].to.family == 4 ? AF_INET : AF_INET6, candidate[i].to.bytes, number,
                  sizeof number);
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s<%s", used ? " " : "", number,
                 candidate[i].from < 0 ? "any" : own[candidate[i].from].name);
    }
    return text;
}

static void same_subnet_comes_before_speed(void **state)
{
    (void)state;
    struct tti_tcp_interface own[MACHINE];
    machine(own);
    struct tti_tcp_address theirs[] = {
        address("10.9.0.2", 16, 400000), address("10.0.0.2", 24, 10000),
        address("10.1.0.2", 16, 100000), address("fd00::2", 64, 10000),
        address("127.0.0.1", 8, 0),
    };
    struct tti_tcp_advert peer = advert(2, 5, theirs);
    assert_string_equal(order(own, MACHINE, 1, &peer),
                        "10.1.0.2<ib0 10.0.0.2<eth0 fd00::2<eth0 10.9.0.2<any");
}

/* ---- NICs that are far ----------------------------------------------------------------------- */

static const char *order_with_far(const char *far)
{
    struct tti_tcp_interface own[MACHINE];
    machine(own);
    tti_tcp_far_last(far, own, MACHINE);
    struct tti_tcp_address theirs[] = {address("10.0.1.2", 24, 10000),
                                       address("10.0.0.2", 24, 10000),
                                       address("10.1.0.2", 16, 100000), address("127.0.0.1", 8, 0)};
    struct tti_tcp_advert peer = advert(2, 4, theirs);
    return order(own, MACHINE, 1, &peer);
}

static void near_interfaces_come_first(void **state)
{
    static const char *const wanted[MACHINE] = {"eth10", "docker0", "virbr0", "eth0",
                                                "eth0",  "ib0",     "lo"};
    struct tti_tcp_interface own[MACHINE];
    (void)state;
    assert_string_equal(order_with_far(NULL), "10.1.0.2<ib0 10.0.1.2<eth10 10.0.0.2<eth0");
    assert_string_equal(order_with_far("eth10,ib0"), "10.0.0.2<eth0 10.1.0.2<ib0 10.0.1.2<eth10");
    assert_string_equal(order_with_far("mlx5_0,ib0,mlx5_1,eth0"),
                        "10.0.1.2<eth10 10.1.0.2<ib0 10.0.0.2<eth0");
    machine(own);
    tti_tcp_far_last("eth0,ib0", own, MACHINE);
    for (int i = 0; i < MACHINE; i++)
        assert_string_equal(own[i].name, wanted[i]); /* and what peers try first is in this order */
}

static void names_of_far_nics(void **state)
{
    (void)state;
    assert_true(tti_tcp_is_far("eth1,mlx5_0", "eth1"));
    assert_true(tti_tcp_is_far("eth1,mlx5_0", "mlx5_0"));
    assert_true(tti_tcp_is_far("eth1", "eth1.100")); /* a VLAN of it, an alias */
    assert_true(tti_tcp_is_far("eth1", "eth1:2"));
    assert_false(tti_tcp_is_far("eth1", "eth10"));
    assert_false(tti_tcp_is_far("eth10", "eth1"));
    assert_false(tti_tcp_is_far("mlx5_0,eth10", "mlx5_01"));
    assert_false(tti_tcp_is_far("", "eth1"));
    assert_false(tti_tcp_is_far(NULL, "eth1"));
    assert_false(tti_tcp_is_far(",", ""));
}

/* Docker's bridge is no NIC: it is not before one that is far. */
static void interfaces_without_a_device_are_far(void **state)
{
    static const char *const wanted[MACHINE] = {"eth0",    "eth0",   "eth10", "ib0",
                                                "docker0", "virbr0", "lo"};
    struct tti_tcp_interface own[MACHINE];
    (void)state;
    machine(own);
    for (int i = 0; i < 4; i++)
        own[i].hardware = true;
    tti_tcp_far_last("eth10,ib0", own, MACHINE);
    for (int i = 0; i < MACHINE; i++) {
        assert_string_equal(own[i].name, wanted[i]);
        assert_int_equal(own[i].far, i >= 2 && i < 6);
    }
    /* A peer in an overlay network that all hosts share, and behind a far NIC. */
    struct tti_tcp_address theirs[] = {address("172.17.0.2", 16, 0),
                                       address("10.1.0.2", 16, 100000)};
    struct tti_tcp_advert peer = advert(2, 2, theirs);
    assert_string_equal(order(own, MACHINE, 1, &peer), "10.1.0.2<ib0 172.17.0.2<docker0");
    machine(own); /* nothing chosen */
    for (int i = 0; i < 4; i++)
        own[i].hardware = true;
    tti_tcp_far_last(NULL, own, MACHINE);
    for (int i = 0; i < MACHINE; i++)
        assert_false(own[i].far);
}

/* Makes a folder, and those above it, under `root`. */
static void make_folder(const char *root, const char *path)
{
    char full[300];
    snprintf(full, sizeof full, "mkdir -p '%s/class/net/%s'", root, path);
    assert_int_equal(system(full), 0);
}

static void make_type(const char *root, const char *interface, const char *type)
{
    char name[100], text[100];
    snprintf(name, sizeof name, "class/net/%s/uevent", interface);
    snprintf(text, sizeof text, "DEVTYPE=%s\nINTERFACE=%s\n", type, interface);
    made_file(root, name, text);
}

static void what_stands_on_a_device(void **state)
{
    static const char *const folders[] = {
        "eth0/device",           "bond0/lower_eth0", "bond0.7/lower_bond0",
        "br0/lower_bond0.7",     "cni0/lower_v0",    "v0",
        "flannel.1/lower_eth0",  "loop/lower_loop",  "tun0",
        "on_tun/lower_flannel.1"};
    const char *root = *state;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        make_folder(root, folders[i]);
    make_type(root, "flannel.1", "vxlan");
    make_type(root, "bond0", "bond");
    const char *const yes[] = {"eth0", "eth0:1", "bond0", "bond0.7", "br0"};
    const char *const no[] = {"cni0", "v0", "flannel.1", "loop", "tun0", "on_tun", "nosuch"};
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++)
        assert_true(tti_tcp_on_hardware(root, yes[i]));
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++)
        assert_false(tti_tcp_on_hardware(root, no[i]));
}

static void loopback_is_for_the_same_host(void **state)
{
    (void)state;
    struct tti_tcp_interface own[MACHINE];
    machine(own);
    struct tti_tcp_address theirs[] = {address("10.0.0.1", 24, 10000), address("127.0.0.1", 8, 0)};
    struct tti_tcp_advert peer = advert(1, 2, theirs);
    assert_string_equal(order(own, MACHINE, 1, &peer), "127.0.0.1<any 10.0.0.1<any");
    peer.host = 2; /* our own address on another host is that host's private one */
    assert_string_equal(order(own, MACHINE, 1, &peer), "");
}

static void families_must_agree(void **state)
{
    (void)state;
    struct tti_tcp_interface own[] = {interface("eth0", "fd00::1", 64, 1000),
                                      interface("lo", "127.0.0.1", 8, 0)};
    struct tti_tcp_address theirs[] = {address("10.0.0.2", 24, 1000), address("fd01::2", 64, 10)};
    struct tti_tcp_advert peer = advert(2, 2, theirs);
    assert_string_equal(order(own, 2, 1, &peer), "fd01::2<any");
}

static void both_sides_agree_on_reaching(void **state)
{
    (void)state;
    struct tti_tcp_address four = address("10.0.0.1", 24, 0), six = address("fd00::1", 64, 0),
                           lo = address("127.0.0.1", 8, 0);
    struct tti_tcp_advert all[] = {advert(1, 1, &four), advert(2, 1, &four), advert(2, 1, &six),
                                   advert(1, 1, &lo), advert(2, 1, &lo)};
    const bool expected[5][5] = {
        {true, true, false, false, false},  {true, true, false, false, false},
        {false, false, true, false, false}, {false, false, false, true, false},
        {false, false, false, false, true},
    };
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 5; k++)
            assert_int_equal(tti_tcp_reachable(&all[i], &all[k]), expected[i][k]);
}

static void this_machine_has_an_address(void **state)
{
    (void)state;
    struct tti_tcp_interface *list = NULL;
    size_t count = 0;
    assert_int_equal(tti_tcp_interfaces(&list, &count), TUTTI_OK);
    assert_true(count > 0);
    for (size_t i = 1; i < count; i++)
        assert_true(list[i].address.loopback >= list[i - 1].address.loopback);
    for (size_t i = 0; i < count; i++)
        assert_true(list[i].address.loopback || tti_tcp_has_address(list[i].name));
    assert_false(tti_tcp_has_address("lo"));
    assert_false(tti_tcp_has_address("nosuch0"));
    free(list);
    assert_true(tti_tcp_host() == tti_tcp_host());
}

static void socket_addresses_as_text(void **state)
{
    (void)state;
    struct sockaddr_storage made;
    char text[TTI_TCP_TEXT_BYTES];
    struct tti_tcp_address four = address("10.0.0.2", 24, 0), six = address("fd00::2", 64, 0),
                           mapped = address("::ffff:10.0.0.2", 64, 0);
    tti_tcp_sockaddr(&four, 4444, &made);
    tti_tcp_sockaddr_text(&made, text);
    assert_string_equal(text, "10.0.0.2:4444");
    tti_tcp_sockaddr(&six, 4444, &made);
    tti_tcp_sockaddr_text(&made, text);
    assert_string_equal(text, "[fd00::2]:4444");
    tti_tcp_sockaddr(&mapped, 4444, &made);
    tti_tcp_sockaddr_text(&made, text);
    assert_string_equal(text, "10.0.0.2:4444");
}

/* ---- TUTTI_TCP_PORTS ------------------------------------------------------------------------ */

static void port_ranges(void **state)
{
    (void)state;
    uint16_t first = 1, last = 1;
    assert_int_equal(tti_tcp_parse_ports(NULL, &first, &last), TUTTI_OK);
    assert_int_equal(first + last, 0);
    assert_int_equal(tti_tcp_parse_ports("20000-20999", &first, &last), TUTTI_OK);
    assert_true(first == 20000 && last == 20999);
    assert_int_equal(tti_tcp_parse_ports("65535", &first, &last), TUTTI_OK);
    assert_true(first == 65535 && last == 65535);
    const char *const wrong[] = {"0", "x", "5-4", "1-65536", "10-20x", "-5", "10-", "10,20", "0-9"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(tti_tcp_parse_ports(wrong[i], &first, &last), TUTTI_ERR_ARGUMENT);
        assert_non_null(strstr(tutti_last_error(), "TUTTI_TCP_PORTS"));
    }
}

static void a_taken_range_is_refused(void **state)
{
    (void)state;
    int one = -1, other = -1;
    uint16_t port = 0, got = 0;
    assert_int_equal(tti_tcp_listen(0, 0, &one, &port), TUTTI_OK);
    assert_int_equal(tti_tcp_listen(port, port, &other, &got), TUTTI_ERR_SYSTEM);
    assert_non_null(strstr(tutti_last_error(), "TUTTI_TCP_PORTS"));
    assert_int_equal(other, -1);
    if (port < 65535 - 50) { /* the next free one of a range is taken */
        assert_int_equal(tti_tcp_listen(port, (uint16_t)(port + 50), &other, &got), TUTTI_OK);
        assert_true(got > port);
        close(other);
    }
    close(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_choose_interfaces),
        cmocka_unit_test(patterns_that_match_nothing_list_what_exists),
        cmocka_unit_test(same_subnet_comes_before_speed),
        cmocka_unit_test(near_interfaces_come_first),
        cmocka_unit_test(names_of_far_nics),
        cmocka_unit_test(interfaces_without_a_device_are_far),
        cmocka_unit_test_setup_teardown(what_stands_on_a_device, made_folder, made_folder_removed),
        cmocka_unit_test(loopback_is_for_the_same_host),
        cmocka_unit_test(families_must_agree),
        cmocka_unit_test(both_sides_agree_on_reaching),
        cmocka_unit_test(this_machine_has_an_address),
        cmocka_unit_test(socket_addresses_as_text),
        cmocka_unit_test(port_ranges),
        cmocka_unit_test(a_taken_range_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
