/* What is written to the wire is read back; what is malformed is refused, without touching the
 * outputs. */
#include "tutti/plugin.h"

#include "transport/tcp/tcp_wire.h"

#include "tests/tutti_cmocka.h"

#include <string.h>

static struct tti_tcp_advert full_advert(void)
{
    struct tti_tcp_advert advert = {.host = UINT64_C(0x0123456789abcdef),
                                    .port = 4444,
                                    .sockets = 3,
                                    .count = TTI_TCP_MAX_ADDRESSES};
    for (int i = 0; i < advert.count; i++) {
        advert.address[i] = (struct tti_tcp_address){.family = i % 2 ? 6 : 4,
                                                     .prefix = (uint8_t)(i + 1),
                                                     .loopback = i % 3 == 0,
                                                     .speed = (uint32_t)i * 100000};
        for (int k = 0; k < 16; k++)
            advert.address[i].bytes[k] = (uint8_t)(i + k);
    }
    return advert;
}

static void an_advert_comes_back(void **state)
{
    (void)state;
    uint8_t bytes[TUTTI_ADDRESS_BYTES];
    struct tti_tcp_advert sent = full_advert(), got;
    size_t size = tti_tcp_put_advert(&sent, bytes);
    assert_true(size <= sizeof bytes);
    assert_null(tti_tcp_get_advert(bytes, size, &got));
    assert_true(got.host == sent.host && got.port == sent.port && got.count == sent.count &&
                got.sockets == sent.sockets);
    for (int i = 0; i < got.count; i++) {
        const struct tti_tcp_address *a = &got.address[i], *b = &sent.address[i];
        assert_true(a->family == b->family && a->prefix == b->prefix &&
                    a->loopback == b->loopback && a->speed == b->speed);
        assert_memory_equal(a->bytes, b->bytes, sizeof a->bytes);
    }
}

static void a_malformed_advert_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[TUTTI_ADDRESS_BYTES];
    struct tti_tcp_advert sent = full_advert(), got = {.port = 7};
    size_t size = tti_tcp_put_advert(&sent, bytes);
    for (size_t cut = 0; cut < size; cut++)
        assert_non_null(tti_tcp_get_advert(bytes, cut, &got));
    static const struct {
        size_t at;
        uint8_t value;
    } spoil[] = {{0, 'X'}, {4, 99},   {16, 21}, {16, 255}, {18, TTI_TCP_MAX_SOCKETS},
                 {24, 5},  {25, 200}, {26, 2}};
    for (size_t i = 0; i < sizeof spoil / sizeof spoil[0]; i++) {
        uint8_t was = bytes[spoil[i].at];
        bytes[spoil[i].at] = spoil[i].value;
        assert_non_null(tti_tcp_get_advert(bytes, size, &got));
        bytes[spoil[i].at] = was;
    }
    bytes[6] = bytes[7] = 0; /* port 0 */
    assert_non_null(tti_tcp_get_advert(bytes, size, &got));
    assert_int_equal(got.port, 7);
}

static void handshake_messages_come_back(void **state)
{
    (void)state;
    uint8_t bytes[TTI_TCP_HELLO_BYTES] = {0}, nonce[TTI_TCP_NONCE_BYTES] = {1, 2, 3};
    tti_tcp_put_challenge(nonce, bytes);
    assert_null(tti_tcp_get_challenge(bytes));
    assert_memory_equal(bytes + 8, nonce, sizeof nonce);
    struct tti_tcp_hello sent = {.lane = 3,
                                 .lanes = 4,
                                 .job = 5,
                                 .from = 6,
                                 .to = 7,
                                 .id = 8,
                                 .resumes = 1,
                                 .purpose = TTI_TCP_RESUME,
                                 .seals = TTI_TCP_CHECKSUMS | TTI_TCP_ENCRYPTS,
                                 .cuts = 1u << 31,
                                 .received = UINT64_MAX - 9};
    struct tti_tcp_hello got;
    memcpy(sent.nonce, nonce, sizeof nonce);
    tti_tcp_put_hello(&sent, bytes);
    assert_null(tti_tcp_get_hello(bytes, &got));
    assert_true(got.lane == 3 && got.lanes == 4 && got.job == 5 && got.from == 6 && got.to == 7 &&
                got.id == 8 && got.resumes == 1 && got.purpose == TTI_TCP_RESUME &&
                got.seals == sent.seals && got.cuts == 1u << 31 && got.received == UINT64_MAX - 9);
    assert_memory_equal(got.nonce, nonce, sizeof nonce);
    assert_non_null(tti_tcp_get_challenge(bytes)); /* one message is not another */
    sent.lane = 4;
    tti_tcp_put_hello(&sent, bytes);
    assert_non_null(tti_tcp_get_hello(bytes, &got));
    sent.lane = 3;
    sent.purpose = TTI_TCP_PURPOSES;
    tti_tcp_put_hello(&sent, bytes);
    assert_non_null(tti_tcp_get_hello(bytes, &got));
    sent.purpose = TTI_TCP_NEW;
    sent.seals = TTI_TCP_AES; /* of what is not encrypted */
    tti_tcp_put_hello(&sent, bytes);
    assert_non_null(tti_tcp_get_hello(bytes, &got));
    struct tti_tcp_answer said = {.status = TTI_TCP_GONE, .received = 1u << 31}, heard;
    tti_tcp_put_answer(&said, bytes);
    assert_null(tti_tcp_get_answer(bytes, &heard));
    assert_true(heard.status == TTI_TCP_GONE && heard.received == 1u << 31);
    bytes[6] = TTI_TCP_STATUS_COUNT;
    assert_non_null(tti_tcp_get_answer(bytes, &heard));
    tti_tcp_put_go(bytes);
    assert_null(tti_tcp_get_go(bytes));
    assert_non_null(tti_tcp_get_ready(bytes));
    tti_tcp_put_ready(bytes);
    assert_null(tti_tcp_get_ready(bytes));
}

static void fragment_headers(void **state)
{
    (void)state;
    uint8_t bytes[TTI_TCP_HEADER_BYTES];
    uint64_t tag = 0;
    uint32_t length = 0;
    tti_tcp_put_header(UINT64_MAX - 1, TTI_TCP_MAX_FRAGMENT, bytes);
    assert_null(tti_tcp_get_header(bytes, &tag, &length));
    assert_true(tag == UINT64_MAX - 1 && length == TTI_TCP_MAX_FRAGMENT);
    tti_tcp_put_header(1, 0, bytes);
    assert_non_null(tti_tcp_get_header(bytes, &tag, &length));
    tti_tcp_put_bye(bytes);
    assert_null(tti_tcp_get_header(bytes, &tag, &length));
    assert_true(tag == 0 && length == 0);
    bytes[15] = 1;
    assert_non_null(tti_tcp_get_header(bytes, &tag, &length));
    tti_tcp_put_header(1, TTI_TCP_MAX_FRAGMENT + 1u, bytes);
    assert_non_null(tti_tcp_get_header(bytes, &tag, &length));
    memset(bytes, 0xff, sizeof bytes);
    assert_non_null(tti_tcp_get_header(bytes, &tag, &length));
    assert_true(tag == 0 && length == 0);
}

static void record_heads(void **state)
{
    (void)state;
    uint8_t bytes[TTI_TCP_RECORD_BYTES];
    struct tti_tcp_record sent = {.bytes = TTI_TCP_RECORD_BODY,
                                  .asks = true,
                                  .from = UINT64_MAX - 1,
                                  .received = 1,
                                  .checksum = 0xdeadbeef};
    struct tti_tcp_record got = {.bytes = 7};
    tti_tcp_put_record(&sent, bytes);
    for (int bit = 0; bit < 8 * TTI_TCP_RECORD_BYTES; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_non_null(tti_tcp_get_record(bytes, &got));
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_int_equal(got.bytes, 7);
    assert_null(tti_tcp_get_record(bytes, &got));
    assert_true(got.bytes == sent.bytes && got.asks && got.from == sent.from && got.received == 1 &&
                got.checksum == sent.checksum);
    sent.bytes = TTI_TCP_RECORD_BODY + 1;
    tti_tcp_put_record(&sent, bytes);
    assert_non_null(tti_tcp_get_record(bytes, &got));
}

static void seals_agree(void **state)
{
    (void)state;
    const uint8_t both = TTI_TCP_CHECKSUMS | TTI_TCP_ENCRYPTS;
    assert_true(tti_tcp_seals_agree(0, 0));
    assert_true(tti_tcp_seals_agree(both, both));
    assert_true(tti_tcp_seals_agree(both, both | TTI_TCP_AES));
    assert_false(tti_tcp_seals_agree(both | TTI_TCP_AES, both)); /* it cannot */
    assert_false(tti_tcp_seals_agree(0, TTI_TCP_CHECKSUMS));
    assert_false(tti_tcp_seals_agree(both, TTI_TCP_CHECKSUMS));
    assert_false(tti_tcp_seals_agree(8, 8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_advert_comes_back),
        cmocka_unit_test(a_malformed_advert_is_refused),
        cmocka_unit_test(handshake_messages_come_back),
        cmocka_unit_test(fragment_headers),
        cmocka_unit_test(record_heads),
        cmocka_unit_test(seals_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
