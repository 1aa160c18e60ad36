/* Bootstrap frames, encoded and parsed (launch/boot_wire.h). */
#include "launch/boot_wire.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

static const uint8_t wire_magic[4] = {'T', 'T', 'B', '1'};

static void wire_put(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t wire_get(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

void tti_boot_frame_encode(const struct tti_boot_frame *frame, uint8_t header[static 32])
{
    memcpy(header, wire_magic, sizeof wire_magic);
    wire_put(header + 4, (uint64_t)frame->type, 4);
    wire_put(header + 8, (uint64_t)frame->rank, 4);
    wire_put(header + 12, frame->code, 4);
    wire_put(header + 16, frame->waited_ms, 4);
    wire_put(header + 20, frame->wait_ms, 4);
    wire_put(header + 24, frame->bytes, 8);
}

/* Whether a frame of this type and body length may travel that way. */
static bool wire_legal(uint64_t type, enum tti_boot_direction direction, uint64_t bytes)
{
    bool to_server = direction == TTI_BOOT_TO_SERVER;
    switch (type) {
    case TTI_BOOT_HELLO:
    case TTI_BOOT_SEEK:
        return to_server && bytes == TTI_BOOT_HELLO_BYTES;
    case TTI_BOOT_CHALLENGE:
        return !to_server && bytes == TTI_BOOT_CHALLENGE_BYTES;
    case TTI_BOOT_PROOF:
        return to_server && bytes == TTI_BOOT_PROOF_BYTES;
    case TTI_BOOT_WELCOME:
    case TTI_BOOT_START:
        return !to_server && bytes == 0;
    case TTI_BOOT_GATHER:
        return to_server && bytes <= TTI_BOOT_GATHER_BYTES;
    case TTI_BOOT_GATHERED:
        return !to_server && bytes <= (uint64_t)TTI_BOOT_GATHER_BYTES * TTI_BOOT_RANKS;
    case TTI_BOOT_NOTICE:
        return bytes <= TTI_BOOT_TEXT_BYTES;
    case TTI_BOOT_BYE:
        return bytes == 0;
    case TTI_BOOT_ASK:
        return bytes <= (to_server ? TTI_BOOT_TEXT_BYTES : 0);
    case TTI_BOOT_REPORT:
        return to_server && bytes <= TTI_BOOT_REPORT_BYTES;
    case TTI_BOOT_PLACE:
        return bytes >= 1 && bytes <= TTI_BOOT_PLACE_BYTES;
    default:
        return false;
    }
}

enum tutti_result tti_boot_frame_parse(const uint8_t header[static 32],
                                       enum tti_boot_direction direction,
                                       struct tti_boot_frame *frame)
{
    if (memcmp(header, wire_magic, sizeof wire_magic) != 0)
        return TTI_FAIL(TUTTI_ERR_PROTOCOL, "what arrived does not begin like a Tutti frame");
    uint64_t type = wire_get(header + 4, 4);
    uint64_t rank = wire_get(header + 8, 4);
    uint64_t code = wire_get(header + 12, 4);
    uint64_t bytes = wire_get(header + 24, 8);
    if (!wire_legal(type, direction, bytes))
        return TTI_FAIL(TUTTI_ERR_PROTOCOL, "frame of type %u with %llu bytes is not legal here",
                        (unsigned)type, (unsigned long long)bytes);
    if (rank >= TTI_BOOT_RANKS)
        return TTI_FAIL(TUTTI_ERR_PROTOCOL, "frame names rank %llu", (unsigned long long)rank);
    const bool asks = type == TTI_BOOT_ASK && direction == TTI_BOOT_TO_SERVER;
    if ((type == TTI_BOOT_NOTICE || (asks && code != TUTTI_OK)) &&
        (code < TUTTI_ERR_ARGUMENT || code > TUTTI_ERR_INTERNAL))
        return TTI_FAIL(TUTTI_ERR_PROTOCOL, "notice with code %llu", (unsigned long long)code);
    if (type == TTI_BOOT_PLACE && (code < 1 || code > UINT16_MAX))
        return TTI_FAIL(TUTTI_ERR_PROTOCOL, "place with port %llu", (unsigned long long)code);
    *frame = (struct tti_boot_frame){
        .type = (enum tti_boot_type)type,
        .rank = (int)rank,
        .code = (uint32_t)code,
        .waited_ms = (uint32_t)wire_get(header + 16, 4),
        .wait_ms = (uint32_t)wire_get(header + 20, 4),
        .bytes = bytes,
    };
    return TUTTI_OK;
}

void tti_boot_hello_encode(const uint8_t nonce[static 32], int size, uint8_t body[static 36])
{
    memcpy(body, nonce, TTI_BOOT_NONCE_BYTES);
    wire_put(body + TTI_BOOT_NONCE_BYTES, (uint64_t)size, 4);
}

enum tutti_result tti_boot_hello_parse(const uint8_t body[static 36], int rank, int *size)
{
    uint64_t value = wire_get(body + TTI_BOOT_NONCE_BYTES, 4);
    if (value < 1 || value > TTI_BOOT_RANKS || (uint64_t)rank >= value)
        return TTI_FAIL(TUTTI_ERR_PROTOCOL, "hello from rank %d of %llu", rank,
                        (unsigned long long)value);
    *size = (int)value;
    return TUTTI_OK;
}

void tti_boot_proof(const uint8_t secret[static 32], enum tti_boot_role role, int rank,
                    const uint8_t hello[static 36], const uint8_t nonce[static 32],
                    uint8_t proof[static 32])
{
    /* The role is inside, so that a proof cannot be sent back to whom it came from. */
    static const char roles[][17] = {"tutti boot serve", "tutti boot join ", "tutti boot desk ",
                                     "tutti boot seek "};
    uint8_t text[16 + 4 + TTI_BOOT_HELLO_BYTES + TTI_BOOT_NONCE_BYTES];
    memcpy(text, roles[role], 16);
    wire_put(text + 16, (uint64_t)rank, 4);
    memcpy(text + 20, hello, TTI_BOOT_HELLO_BYTES);
    memcpy(text + 20 + TTI_BOOT_HELLO_BYTES, nonce, TTI_BOOT_NONCE_BYTES);
    crypto_auth(proof, text, sizeof text, secret);
}

bool tti_boot_proof_equal(const uint8_t a[static 32], const uint8_t b[static 32])
{
    return sodium_memcmp(a, b, TTI_BOOT_PROOF_BYTES) == 0;
}

void tti_boot_text_copy(char *to, size_t room, const void *from, size_t bytes)
{
    const unsigned char *text = from;
    size_t used = 0;
    for (size_t i = 0; i < bytes && text[i] && used + 1 < room; i++)
        to[used++] = (char)(text[i] < ' ' || text[i] == 127 ? ' ' : text[i]);
    to[used] = '\0';
}

double tti_boot_seconds(uint64_t ms)
{
    return (double)((ms + 5) / 10) / 100;
}

void tti_boot_missing_text(const bool *present, int size, char *text, size_t room, int *first,
                           int *count)
{
    enum { SHOWN = 8 };
    int missing = 0;
    *first = -1;
    for (int k = 0; k < size; k++) {
        if (!present[k] && missing++ == 0)
            *first = k;
    }
    *count = missing;
    size_t used = (size_t)snprintf(text, room, "rank%s ", missing == 1 ? "" : "s");
    int shown = 0;
    for (int k = 0; k < size && shown < SHOWN && used < room; k++)
        if (!present[k])
            used += (size_t)snprintf(text + used, room - used, "%s%d", shown++ ? ", " : "", k);
    if (missing > SHOWN && used < room)
        snprintf(text + used, room - used, " and %d more", missing - SHOWN);
}
