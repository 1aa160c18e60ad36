/* What ranks tell each other before RDMA carries anything (transport/rdma/rdma_wire.h): written and
 * read again, damaged, and which ports are matched. */
#include "tests/tutti_cmocka.h"
#include "transport/rdma/rdma_wire.h"

#include <stdio.h>
#include <string.h>

static struct tti_rdma_port port_ipv4(uint8_t net, uint8_t host)
{
    struct tti_rdma_port port = {
        .layer = TTI_RDMA_ETHERNET, .roce = 2, .prefix = 24, .mtu = 5, .speed = 100000};
    const uint8_t gid[16] = {
        [10] = 0xff, [11] = 0xff, [12] = 10, [13] = 9, [14] = net, [15] = host};
    memcpy(port.gid, gid, sizeof gid);
    return port;
}

static struct tti_rdma_advert advert_of(int count, const struct tti_rdma_port *ports)
{
    struct tti_rdma_advert advert = {.count = count};
    memcpy(advert.port, ports, (size_t)count * sizeof *ports);
    return advert;
}

static void advert_survives(void **state)
{
    (void)state;
    struct tti_rdma_port ports[] = {port_ipv4(0, 1), port_ipv4(1, 1)};
    ports[1].far = true;
    struct tti_rdma_advert advert = advert_of(2, ports), read;
    uint8_t bytes[TUTTI_ADDRESS_BYTES];
    advert.control = (const uint8_t *)"control";
    advert.control_bytes = 7;
    size_t size = tti_rdma_put_advert(&advert, bytes);
    assert_null(tti_rdma_get_advert(bytes, size, &read));
    assert_int_equal(read.count, 2);
    assert_memory_equal(read.port, advert.port, 2 * sizeof advert.port[0]);
    assert_int_equal(read.control_bytes, 7);
    assert_memory_equal(read.control, "control", 7);
    for (size_t cut = 0; cut < size; cut++)
        assert_non_null(tti_rdma_get_advert(bytes, cut, &read));
    bytes[4]++;
    assert_string_equal(tti_rdma_get_advert(bytes, size, &read),
                        "an RDMA address of another version of Tutti");
}

static void advert_refused(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint8_t value;
    } wrong[] = {{0, 0},   {5, 0},  {5, 9},  {8, 3},  {9, 0}, {9, 3},
                 {10, 33}, {11, 0}, {11, 6}, {14, 2}, {15, 1}};
    const struct tti_rdma_port ports[] = {port_ipv4(0, 1)};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct tti_rdma_advert advert = advert_of(1, ports), read;
        uint8_t bytes[TUTTI_ADDRESS_BYTES], none = 0;
        advert.control = &none;
        size_t size = tti_rdma_put_advert(&advert, bytes);
        bytes[wrong[i].at] = wrong[i].value;
        assert_non_null(tti_rdma_get_advert(bytes, size, &read));
    }
}

static void hello_survives(void **state)
{
    (void)state;
    struct tti_rdma_hello hello = {
        .lanes = 4, .qps = 2, .slots = 8, .slot_bytes = 65536, .ring = UINT64_C(0x7f1234567000)};
    struct tti_rdma_hello read;
    uint8_t bytes[TTI_RDMA_HELLO_BYTES];
    for (uint32_t i = 0; i < 2; i++) {
        hello.qp[i].number = 17 + i;
        hello.qp[i].psn = 0xabcdef;
        hello.qp[i].key = 0xffffffff - i;
    }
    tti_rdma_put_hello(&hello, bytes);
    assert_null(tti_rdma_get_hello(bytes, &read));
    assert_memory_equal(&read.qp, &hello.qp, sizeof hello.qp);
    assert_int_equal(read.ring, hello.ring);
    /* version, lanes, queue pairs, slots, bytes of a slot, number of a queue pair */
    static const size_t at[] = {4, 5, 6, 8, 12, 27};
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        tti_rdma_put_hello(&hello, bytes);
        bytes[at[i]] = 0xff;
        assert_non_null(tti_rdma_get_hello(bytes, &read));
    }
}

static void words_survive(void **state)
{
    (void)state;
    struct tti_rdma_goodbye goodbye = {.sent = {1, 2, 0xffffffff}}, read;
    uint8_t bytes[TTI_RDMA_GOODBYE_BYTES];
    tti_rdma_put_goodbye(&goodbye, bytes);
    assert_null(tti_rdma_get_goodbye(bytes, &read));
    assert_memory_equal(&read, &goodbye, sizeof read);
    assert_non_null(tti_rdma_get_ready(bytes));
    tti_rdma_put_ready(bytes);
    assert_null(tti_rdma_get_ready(bytes));
    assert_non_null(tti_rdma_get_goodbye(bytes, &read));
    struct tti_rdma_word word = {0};
    assert_non_null(tti_rdma_get_word(bytes, &word));
}

static void words_of_a_queue_pair_survive(void **state)
{
    (void)state;
    const struct tti_rdma_word said = {.saying = TTI_RDMA_AGAIN,
                                       .qp = TTI_RDMA_MAX_QPS - 1,
                                       .trial = true,
                                       .number = 0xfedcba,
                                       .psn = 0x123456};
    struct tti_rdma_word word;
    struct tti_rdma_goodbye goodbye;
    uint8_t bytes[TTI_RDMA_WORD_BYTES];
    tti_rdma_put_word(&said, bytes);
    assert_null(tti_rdma_get_word(bytes, &word));
    assert_int_equal(word.saying, said.saying);
    assert_int_equal(word.qp, said.qp);
    assert_int_equal(word.trial, said.trial);
    assert_int_equal(word.number, said.number);
    assert_int_equal(word.psn, said.psn);
    assert_non_null(tti_rdma_get_goodbye(bytes, &goodbye));
    /* version, what is said, queue pair, trial, its number, its first packet's number */
    static const size_t at[] = {4, 8, 9, 10, 15, 19};
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        tti_rdma_put_word(&said, bytes);
        bytes[at[i]] = 0xff;
        assert_non_null(tti_rdma_get_word(bytes, &word));
    }
    tti_rdma_put_word(&said, bytes);
    bytes[8] = 0; /* nothing is said */
    assert_non_null(tti_rdma_get_word(bytes, &word));
}

static void ports_of_one_network(void **state)
{
    (void)state;
    struct tti_rdma_pair pair[TTI_RDMA_MAX_RAILS];
    /* The same networks, in another order on the other host. */
    const struct tti_rdma_port low[] = {port_ipv4(0, 1), port_ipv4(1, 1)};
    const struct tti_rdma_port high[] = {port_ipv4(1, 2), port_ipv4(0, 2)};
    const struct tti_rdma_advert lower = advert_of(2, low), higher = advert_of(2, high);
    assert_int_equal(tti_rdma_match(&lower, &higher, pair), 2);
    assert_int_equal(pair[0].lower, 0);
    assert_int_equal(pair[0].higher, 1);
    assert_int_equal(pair[1].lower, 1);
    assert_int_equal(pair[1].higher, 0);
}

static void ports_in_turn(void **state)
{
    (void)state;
    struct tti_rdma_pair pair[TTI_RDMA_MAX_RAILS];
    struct tti_rdma_port many[4], few[2] = {port_ipv4(7, 1), port_ipv4(7, 2)};
    int used[2] = {0, 0};
    for (uint8_t i = 0; i < 4; i++)
        many[i] = port_ipv4(7, (uint8_t)(10 + i));
    const struct tti_rdma_advert lower = advert_of(2, few), higher = advert_of(4, many);
    assert_int_equal(tti_rdma_match(&lower, &higher, pair), 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pair[i].higher, i);
        used[pair[i].lower]++;
    }
    assert_int_equal(used[0], 2);
    assert_int_equal(used[1], 2);
}

static void ports_of_other_kinds(void **state)
{
    (void)state;
    struct tti_rdma_pair pair[TTI_RDMA_MAX_RAILS];
    struct tti_rdma_port infiniband = {.layer = TTI_RDMA_INFINIBAND, .mtu = 5, .lid = 3};
    struct tti_rdma_port first = port_ipv4(0, 1), old = port_ipv4(0, 2), ipv6 = port_ipv4(0, 3);
    old.roce = 1;
    ipv6.gid[0] = 0xfd;
    const struct tti_rdma_advert one = advert_of(1, &first), v1 = advert_of(1, &old),
                                 v6 = advert_of(1, &ipv6), other = advert_of(1, &infiniband);
    assert_int_equal(tti_rdma_match(&one, &other, pair), 0);
    assert_int_equal(tti_rdma_match(&one, &v1, pair), 0);
    assert_int_equal(tti_rdma_match(&one, &v6, pair), 0);
    assert_int_equal(tti_rdma_match(&other, &other, pair), 1);
    assert_int_equal(tti_rdma_match(&v1, &v1, pair), 1);
}

/* ---- which of the pairs carry ---------------------------------------------------------------- */

/* So many ports, each in a network of its own, or all in one; near are those in the bits of `near`.
 */
static struct tti_rdma_advert rank_with(int count, unsigned near, bool one_network, uint8_t host)
{
    struct tti_rdma_port ports[TTI_RDMA_MAX_RAILS];
    for (int i = 0; i < count; i++) {
        ports[i] = port_ipv4(one_network ? 1 : (uint8_t)i, (uint8_t)(host + i));
        ports[i].far = !(near >> i & 1);
    }
    return advert_of(count, ports);
}

/* "3-3 4-4": those that carry; the pairs behind them are the rest. */
static const char *carry(const struct tti_rdma_advert *lower, const struct tti_rdma_advert *higher)
{
    static char text[100];
    struct tti_rdma_pair pair[TTI_RDMA_MAX_RAILS];
    const int pairs = tti_rdma_match(lower, higher, pair);
    const int first = tti_rdma_prefer(lower, higher, pair, pairs);
    unsigned seen = 0;
    text[0] = '\0';
    for (int i = 0; i < pairs; i++) {
        const bool leads = lower->count >= higher->count;
        seen |= 1U << (leads ? pair[i].lower : pair[i].higher);
        if (i < first)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d-%d", i ? " " : "",
                     pair[i].lower, pair[i].higher);
    }
    assert_int_equal(__builtin_popcount(seen), pairs); /* none is lost, or there twice */
    return text;
}

static void rails_of_alike_ranks(void **state)
{
    (void)state;
    for (int flat = 0; flat < 2; flat++) {
        const struct tti_rdma_advert three = rank_with(8, 1U << 3, flat, 1),
                                     same = rank_with(8, 1U << 3, flat, 100);
        assert_string_equal(carry(&three, &same), "3-3");
        const struct tti_rdma_advert two = rank_with(4, 3, flat, 1),
                                     both = rank_with(4, 3, flat, 100);
        assert_string_equal(carry(&two, &both), "0-0 1-1");
    }
}

/* No rail is crossed: each end's near port with its partner. */
static void rails_of_other_ranks(void **state)
{
    (void)state;
    for (int flat = 0; flat < 2; flat++) {
        const struct tti_rdma_advert zero = rank_with(8, 1, flat, 1),
                                     three = rank_with(8, 1U << 3, flat, 100);
        assert_string_equal(carry(&zero, &three), "0-0 3-3");
        assert_string_equal(carry(&three, &zero), "0-0 3-3");
    }
}

static void ranks_that_do_not_choose(void **state)
{
    (void)state;
    const struct tti_rdma_advert any = rank_with(4, 15, false, 1),
                                 all = rank_with(4, 15, false, 100),
                                 two = rank_with(4, 4, false, 100);
    assert_string_equal(carry(&any, &all), "0-0 1-1 2-2 3-3");
    assert_string_equal(carry(&any, &two), "2-2");
    assert_string_equal(carry(&two, &any), "2-2");
}

static void ranks_of_hosts_that_differ(void **state)
{
    (void)state;
    const struct tti_rdma_advert two = rank_with(8, 4, true, 1), zero = rank_with(2, 1, true, 100),
                                 one = rank_with(2, 2, true, 100), odd = rank_with(8, 8, true, 1);
    assert_string_equal(carry(&two, &zero), "2-0");
    assert_string_equal(carry(&two, &one), "2-0"); /* by the side of which each port has one pair */
    assert_string_equal(carry(&one, &odd), "1-3");
    /* The near port of the side with more has no partner that speaks to it: the other side's. */
    struct tti_rdma_advert deaf = rank_with(3, 4, false, 1);
    const struct tti_rdma_advert few = rank_with(2, 1, false, 100);
    deaf.port[2].roce = 1;
    assert_string_equal(carry(&deaf, &few), "0-0");
    /* None is near to anybody. */
    struct tti_rdma_advert nobody = rank_with(2, 0, false, 1);
    assert_string_equal(carry(&nobody, &nobody), "0-0 1-1");
}

/* A host of ten rails has room for eight of them, and which depends on what is near to the rank. */
static void ranks_with_other_ports_of_many(void **state)
{
    (void)state;
    struct tti_rdma_pair pair[TTI_RDMA_MAX_RAILS];
    const struct tti_rdma_advert first = rank_with(8, 1, false, 1);
    struct tti_rdma_advert last = rank_with(8, 1U << 7, false, 100);
    last.port[7].gid[14] = 9; /* in place of the rail 7, which was far */
    assert_int_equal(tti_rdma_match(&first, &last, pair), 7);
    for (int i = 0; i < 7; i++)
        assert_int_equal(pair[i].lower, pair[i].higher);
    assert_string_equal(carry(&first, &last), "0-0");
    assert_string_equal(carry(&last, &first), "0-0");
    assert_string_equal(carry(&last, &last), "7-7");
    /* Where no speed is known, too. */
    struct tti_rdma_advert silent = first, mute = last;
    for (int i = 0; i < 8; i++)
        silent.port[i].speed = mute.port[i].speed = 0;
    assert_int_equal(tti_rdma_match(&silent, &mute, pair), 7);
    /* The other host has two of them only: nothing is gained by a way between networks. */
    const struct tti_rdma_advert few = rank_with(2, 3, false, 100);
    assert_int_equal(tti_rdma_match(&first, &few, pair), 2);
    assert_int_equal(tti_rdma_match(&few, &first, pair), 2);
}

/* Each rail's port is a network of its own, joined by routes; one slow port shares a network. */
static void rails_with_routes_stay(void **state)
{
    (void)state;
    struct tti_rdma_pair pair[TTI_RDMA_MAX_RAILS];
    struct tti_rdma_advert one = rank_with(5, 31, false, 1), other = rank_with(5, 31, false, 100);
    for (uint8_t i = 1; i < 5; i++)
        other.port[i].gid[14] = (uint8_t)(100 + i);
    one.port[0].speed = other.port[0].speed = 25000;
    assert_int_equal(tti_rdma_match(&one, &other, pair), 5);
    one.port[0].gid[14] = 77; /* and where none is in a network with another */
    assert_int_equal(tti_rdma_match(&one, &other, pair), 5);
}

/* However many queue pairs are wanted, each far pair of ports keeps one. */
static void reserves_have_room(void **state)
{
    (void)state;
    for (int pairs = 1; pairs <= TTI_RDMA_MAX_RAILS; pairs++)
        for (int near = 1; near <= pairs; near++)
            for (int qps = 1; qps <= TTI_RDMA_MAX_QPS; qps++) {
                const int usual = tti_rdma_usual(near, pairs, qps), all = usual + pairs - near;
                assert_in_range(usual, near, near * qps);
                assert_true(all <= TTI_RDMA_MAX_QPS);
                assert_true(usual == near * qps || all == TTI_RDMA_MAX_QPS); /* none is left out */
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(advert_survives),
        cmocka_unit_test(advert_refused),
        cmocka_unit_test(hello_survives),
        cmocka_unit_test(words_survive),
        cmocka_unit_test(words_of_a_queue_pair_survive),
        cmocka_unit_test(ports_of_one_network),
        cmocka_unit_test(ports_in_turn),
        cmocka_unit_test(ports_of_other_kinds),
        cmocka_unit_test(rails_of_alike_ranks),
        cmocka_unit_test(rails_of_other_ranks),
        cmocka_unit_test(ranks_that_do_not_choose),
        cmocka_unit_test(ranks_of_hosts_that_differ),
        cmocka_unit_test(ranks_with_other_ports_of_many),
        cmocka_unit_test(rails_with_routes_stay),
        cmocka_unit_test(reserves_have_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
