/* The bytes of tcp_wire.h. Every message opens with a magic number of its own, so that one that
 * strays into another's place is noticed. */
#include "transport/tcp/tcp_wire.h"

#include "base/crc32c.h"

#include <endian.h>
#include <string.h>

enum {
    WIRE_ADVERT = 0x41435454,    /* "TTCA" */
    WIRE_CHALLENGE = 0x43435454, /* "TTCC" */
    WIRE_HELLO = 0x48435454,     /* "TTCH" */
    WIRE_ANSWER = 0x57435454,    /* "TTCW" */
    WIRE_GO = 0x47435454,        /* "TTCG" */
    WIRE_READY = 0x52435454,     /* "TTCR" */
    WIRE_FRAGMENT = 0x46435454,  /* "TTCF" */
    WIRE_BYE = 0x42435454,       /* "TTCB" */
};

/* Little endian. Inline, so that a width is a constant and one store. */
static inline void wire_put(uint8_t *bytes, int width, uint64_t value)
{
    value = htole64(value);
    memcpy(bytes, &value, (size_t)width);
}

static inline uint64_t wire_get(const uint8_t *bytes, int width)
{
    uint64_t value = 0;
    memcpy(&value, bytes, (size_t)width);
    return le64toh(value);
}

/* The six bytes that the messages with a version open with. */
static void wire_put_opening(uint8_t *bytes, uint32_t magic)
{
    wire_put(bytes, 4, magic);
    wire_put(bytes + 4, 2, TTI_TCP_VERSION);
}

static const char *wire_check_opening(const uint8_t *bytes, uint32_t magic)
{
    if (wire_get(bytes, 4) != magic)
        return "not a Tutti TCP message";
    if (wire_get(bytes + 4, 2) != TTI_TCP_VERSION)
        return "another version of Tutti's TCP protocol";
    return NULL;
}

static bool wire_are_seals(unsigned seals)
{
    return seals <= TTI_TCP_SEALS && (!(seals & TTI_TCP_AES) || (seals & TTI_TCP_ENCRYPTS));
}

bool tti_tcp_seals_agree(uint8_t seals, uint8_t ours)
{
    return wire_are_seals(seals) && ((seals ^ ours) & ~TTI_TCP_AES) == 0 && !(seals & ~ours);
}

/* ---- the address ---------------------------------------------------------------------------- */

size_t tti_tcp_put_advert(const struct tti_tcp_advert *advert, uint8_t *bytes)
{
    memset(bytes, 0, TTI_TCP_ADVERT_HEAD_BYTES);
    wire_put_opening(bytes, WIRE_ADVERT);
    wire_put(bytes + 6, 2, advert->port);
    wire_put(bytes + 8, 8, advert->host);
    bytes[16] = (uint8_t)advert->count;
    bytes[17] = advert->seals;
    bytes[18] = (uint8_t)(advert->sockets - 1);
    uint8_t *entry = bytes + TTI_TCP_ADVERT_HEAD_BYTES;
    for (int i = 0; i < advert->count; i++, entry += TTI_TCP_ADVERT_ENTRY_BYTES) {
        const struct tti_tcp_address *address = &advert->address[i];
        entry[0] = address->family;
        entry[1] = address->prefix;
        entry[2] = address->loopback;
        entry[3] = 0;
        wire_put(entry + 4, 4, address->speed);
        memcpy(entry + 8, address->bytes, sizeof address->bytes);
    }
    return (size_t)(entry - bytes);
}

static const char *wire_get_address(const uint8_t *entry, struct tti_tcp_address *address)
{
    if (entry[0] != 4 && entry[0] != 6)
        return "an address of an unknown family";
    if (entry[1] > (entry[0] == 4 ? 32 : 128) || entry[2] > 1)
        return "a malformed address";
    address->family = entry[0];
    address->prefix = entry[1];
    address->loopback = entry[2] != 0;
    address->speed = (uint32_t)wire_get(entry + 4, 4);
    memcpy(address->bytes, entry + 8, sizeof address->bytes);
    return NULL;
}

const char *tti_tcp_get_advert(const uint8_t *bytes, size_t size, struct tti_tcp_advert *advert)
{
    if (size < TTI_TCP_ADVERT_HEAD_BYTES)
        return "an address that is too short";
    const char *wrong = wire_check_opening(bytes, WIRE_ADVERT);
    if (wrong)
        return wrong;
    struct tti_tcp_advert read = {.host = wire_get(bytes + 8, 8),
                                  .port = (uint16_t)wire_get(bytes + 6, 2),
                                  .seals = bytes[17],
                                  .sockets = (uint8_t)(bytes[18] + 1),
                                  .count = bytes[16]};
    if (read.count > TTI_TCP_MAX_ADDRESSES || read.port == 0 ||
        size != TTI_TCP_ADVERT_HEAD_BYTES + (size_t)read.count * TTI_TCP_ADVERT_ENTRY_BYTES)
        return "an address whose size does not fit its contents";
    if (!wire_are_seals(read.seals) || bytes[18] >= TTI_TCP_MAX_SOCKETS)
        return "an address with unknown settings";
    for (int i = 0; i < read.count && !wrong; i++)
        wrong = wire_get_address(bytes + TTI_TCP_ADVERT_HEAD_BYTES +
                                     (size_t)i * TTI_TCP_ADVERT_ENTRY_BYTES,
                                 &read.address[i]);
    if (!wrong)
        *advert = read;
    return wrong;
}

/* ---- the handshake -------------------------------------------------------------------------- */

void tti_tcp_put_challenge(const uint8_t nonce[TTI_TCP_NONCE_BYTES], uint8_t *bytes)
{
    memset(bytes, 0, 8);
    wire_put_opening(bytes, WIRE_CHALLENGE);
    memcpy(bytes + 8, nonce, TTI_TCP_NONCE_BYTES);
}

const char *tti_tcp_get_challenge(const uint8_t *bytes)
{
    return wire_check_opening(bytes, WIRE_CHALLENGE);
}

void tti_tcp_put_hello(const struct tti_tcp_hello *hello, uint8_t *bytes)
{
    wire_put_opening(bytes, WIRE_HELLO);
    bytes[6] = hello->lane;
    bytes[7] = hello->lanes;
    wire_put(bytes + 8, 8, hello->job);
    wire_put(bytes + 16, 4, hello->from);
    wire_put(bytes + 20, 4, hello->to);
    wire_put(bytes + 24, 8, hello->id);
    wire_put(bytes + 32, 4, 0);
    bytes[32] = hello->resumes;
    bytes[33] = hello->purpose;
    bytes[34] = hello->seals;
    wire_put(bytes + 36, 4, hello->cuts);
    wire_put(bytes + 40, 8, hello->received);
    memcpy(bytes + 48, hello->nonce, TTI_TCP_NONCE_BYTES);
}

const char *tti_tcp_get_hello(const uint8_t *bytes, struct tti_tcp_hello *hello)
{
    const char *wrong = wire_check_opening(bytes, WIRE_HELLO);
    if (wrong)
        return wrong;
    struct tti_tcp_hello read = {.lane = bytes[6],
                                 .lanes = bytes[7],
                                 .job = wire_get(bytes + 8, 8),
                                 .from = (uint32_t)wire_get(bytes + 16, 4),
                                 .to = (uint32_t)wire_get(bytes + 20, 4),
                                 .id = wire_get(bytes + 24, 8),
                                 .resumes = bytes[32],
                                 .purpose = bytes[33],
                                 .seals = bytes[34],
                                 .cuts = (uint32_t)wire_get(bytes + 36, 4),
                                 .received = wire_get(bytes + 40, 8)};
    memcpy(read.nonce, bytes + 48, TTI_TCP_NONCE_BYTES);
    if (read.lanes < 1 || read.lane >= read.lanes || read.id == 0)
        return "a hello with an impossible lane";
    if (read.resumes > 1 || read.purpose >= TTI_TCP_PURPOSES || !wire_are_seals(read.seals) ||
        bytes[35] != 0)
        return "a hello with an unknown purpose";
    *hello = read;
    return NULL;
}

void tti_tcp_put_answer(const struct tti_tcp_answer *answer, uint8_t *bytes)
{
    wire_put_opening(bytes, WIRE_ANSWER);
    wire_put(bytes + 6, 2, (uint64_t)answer->status);
    wire_put(bytes + 8, 8, answer->received);
}

const char *tti_tcp_get_answer(const uint8_t *bytes, struct tti_tcp_answer *answer)
{
    const char *wrong = wire_check_opening(bytes, WIRE_ANSWER);
    if (wrong)
        return wrong;
    uint64_t status = wire_get(bytes + 6, 2);
    if (status >= TTI_TCP_STATUS_COUNT)
        return "an answer with an unknown status";
    *answer = (struct tti_tcp_answer){.status = (enum tti_tcp_status)status,
                                      .received = wire_get(bytes + 8, 8)};
    return NULL;
}

static void wire_put_short(uint8_t *bytes, uint32_t magic)
{
    wire_put(bytes, 4, magic);
    wire_put(bytes + 4, 4, 0);
}

static const char *wire_get_short(const uint8_t *bytes, uint32_t magic)
{
    bool right = wire_get(bytes, 4) == magic && wire_get(bytes + 4, 4) == 0;
    return right ? NULL : "not a Tutti TCP message";
}

void tti_tcp_put_go(uint8_t *bytes)
{
    wire_put_short(bytes, WIRE_GO);
}

const char *tti_tcp_get_go(const uint8_t *bytes)
{
    return wire_get_short(bytes, WIRE_GO);
}

void tti_tcp_put_ready(uint8_t *bytes)
{
    wire_put_short(bytes, WIRE_READY);
}

const char *tti_tcp_get_ready(const uint8_t *bytes)
{
    return wire_get_short(bytes, WIRE_READY);
}

/* ---- fragments ------------------------------------------------------------------------------ */

void tti_tcp_put_header(uint64_t tag, uint32_t length, uint8_t *bytes)
{
    wire_put(bytes, 4, WIRE_FRAGMENT);
    wire_put(bytes + 4, 4, length);
    wire_put(bytes + 8, 8, tag);
}

void tti_tcp_put_bye(uint8_t *bytes)
{
    memset(bytes, 0, TTI_TCP_HEADER_BYTES);
    wire_put(bytes, 4, WIRE_BYE);
}

static bool wire_is_bye(const uint8_t *bytes)
{
    return wire_get(bytes, 4) == WIRE_BYE && wire_get(bytes + 4, 4) == 0 &&
           wire_get(bytes + 8, 8) == 0;
}

const char *tti_tcp_get_header(const uint8_t *bytes, uint64_t *tag, uint32_t *length)
{
    uint64_t read = wire_get(bytes + 4, 4);
    if (wire_is_bye(bytes)) {
        *tag = 0;
        *length = 0;
        return NULL;
    }
    if (wire_get(bytes, 4) != WIRE_FRAGMENT)
        return "bytes that are no fragment's header";
    if (read == 0 || read > TTI_TCP_MAX_FRAGMENT)
        return "a fragment of an impossible length";
    *tag = wire_get(bytes + 8, 8);
    *length = (uint32_t)read;
    return NULL;
}

/* ---- records -------------------------------------------------------------------------------- */

enum { WIRE_ASKS = 1, WIRE_HEAD_CHECKED = 28 };

void tti_tcp_put_record(const struct tti_tcp_record *record, uint8_t *bytes)
{
    /* In words of 8 bytes, as the sum reads them: it would wait for halves to be stored. */
    wire_put(bytes, 8, record->bytes | (uint64_t)(record->asks ? WIRE_ASKS : 0) << 32);
    wire_put(bytes + 8, 8, record->from);
    wire_put(bytes + 16, 8, record->received);
    wire_put(bytes + 24, 4, record->checksum);
    wire_put(bytes + 28, 4, tti_crc32c(0, bytes, WIRE_HEAD_CHECKED));
}

const char *tti_tcp_get_record(const uint8_t *bytes, struct tti_tcp_record *record)
{
    if (wire_get(bytes + 28, 4) != tti_crc32c(0, bytes, WIRE_HEAD_CHECKED))
        return "a record whose head does not fit its checksum";
    uint64_t flags = wire_get(bytes + 4, 4);
    struct tti_tcp_record read = {.bytes = (uint32_t)wire_get(bytes, 4),
                                  .asks = flags & WIRE_ASKS,
                                  .from = wire_get(bytes + 8, 8),
                                  .received = wire_get(bytes + 16, 8),
                                  .checksum = (uint32_t)wire_get(bytes + 24, 4)};
    if (read.bytes > TTI_TCP_RECORD_BODY || flags > WIRE_ASKS)
        return "a record of an impossible kind";
    *record = read;
    return NULL;
}
