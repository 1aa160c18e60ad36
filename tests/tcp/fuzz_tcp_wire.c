/* Everything that the TCP transport reads from the wire or from a peer's address. What is accepted
 * must say the same when it is written and read again. */
#include "base/crc32c.h"
#include "transport/tcp/tcp_wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void fuzz_advert(const uint8_t *data, size_t size)
{
    struct tti_tcp_advert advert;
    uint8_t again[TTI_TCP_ADVERT_HEAD_BYTES + TTI_TCP_MAX_ADDRESSES * TTI_TCP_ADVERT_ENTRY_BYTES];
    if (tti_tcp_get_advert(data, size, &advert))
        return;
    require(advert.count >= 0 && advert.count <= TTI_TCP_MAX_ADDRESSES && advert.port > 0);
    require(tti_tcp_put_advert(&advert, again) == size);
    require(!tti_tcp_get_advert(again, size, &advert));
}

static void fuzz_hello(const uint8_t *data)
{
    struct tti_tcp_hello hello;
    uint8_t again[TTI_TCP_HELLO_CLAIM_BYTES];
    if (tti_tcp_get_hello(data, &hello))
        return;
    require(hello.lane < hello.lanes && hello.id != 0);
    tti_tcp_put_hello(&hello, again);
    require(memcmp(data, again, sizeof again) == 0);
}

static void fuzz_answer(const uint8_t *data)
{
    struct tti_tcp_answer answer;
    uint8_t again[TTI_TCP_ANSWER_CLAIM_BYTES];
    if (tti_tcp_get_answer(data, &answer))
        return;
    require(answer.status < TTI_TCP_STATUS_COUNT);
    tti_tcp_put_answer(&answer, again);
    require(memcmp(data, again, sizeof again) == 0);
}

static void fuzz_header(const uint8_t *data)
{
    uint64_t tag = 0;
    uint32_t length = 0;
    uint8_t again[TTI_TCP_HEADER_BYTES];
    if (tti_tcp_get_header(data, &tag, &length))
        return;
    require(length <= TTI_TCP_MAX_FRAGMENT);
    if (length == 0)
        tti_tcp_put_bye(again);
    else
        tti_tcp_put_header(tag, length, again);
    require(memcmp(data, again, sizeof again) == 0);
}

/* Once as it is, and once with the checksum that it should have. */
static void fuzz_record(const uint8_t *data)
{
    uint8_t head[TTI_TCP_RECORD_BYTES], again[TTI_TCP_RECORD_BYTES];
    memcpy(head, data, sizeof head);
    for (int turn = 0; turn < 2; turn++) {
        struct tti_tcp_record record;
        if (!tti_tcp_get_record(head, &record)) {
            require(record.bytes <= TTI_TCP_RECORD_BODY);
            tti_tcp_put_record(&record, again);
            require(memcmp(head, again, sizeof again) == 0);
        }
        uint32_t sum = tti_crc32c(0, head, sizeof head - 4);
        for (int i = 0; i < 4; i++)
            head[sizeof head - 4 + (size_t)i] = (uint8_t)(sum >> (8 * i));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_advert(data, size);
    if (size >= TTI_TCP_HELLO_BYTES)
        fuzz_hello(data);
    if (size >= TTI_TCP_CHALLENGE_BYTES)
        (void)tti_tcp_get_challenge(data);
    if (size >= TTI_TCP_ANSWER_BYTES)
        fuzz_answer(data);
    if (size >= TTI_TCP_HEADER_BYTES)
        fuzz_header(data);
    if (size >= TTI_TCP_RECORD_BYTES)
        fuzz_record(data);
    if (size >= TTI_TCP_GO_BYTES)
        require(tti_tcp_get_go(data) || tti_tcp_get_ready(data));
    return 0;
}
