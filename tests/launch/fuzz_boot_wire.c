/* Fuzzes what the bootstrap takes from the network: headers (both directions), hello bodies and
 * texts. A header that parses is within bounds and encodes to the same bytes. */
#include "launch/boot_wire.h"

#include <stdlib.h>
#include <string.h>

static void check(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint8_t header[TTI_BOOT_HEADER_BYTES] = {0};
    uint8_t again[TTI_BOOT_HEADER_BYTES];
    uint8_t hello[TTI_BOOT_HELLO_BYTES] = {0};
    struct tti_boot_frame frame;
    char text[64];
    int size = 0;
    memcpy(header, data, bytes < sizeof header ? bytes : sizeof header);
    for (int way = 0; way < 2; way++) {
        if (tti_boot_frame_parse(header, (enum tti_boot_direction)way, &frame) != TUTTI_OK)
            continue;
        check(frame.rank >= 0 && frame.rank < TTI_BOOT_RANKS);
        check(way == TTI_BOOT_TO_CLIENT || frame.bytes <= TTI_BOOT_GATHER_BYTES);
        tti_boot_frame_encode(&frame, again);
        check(memcmp(header, again, sizeof header) == 0);
    }
    if (bytes > sizeof header)
        memcpy(hello, data + sizeof header,
               bytes - sizeof header < sizeof hello ? bytes - sizeof header : sizeof hello);
    if (tti_boot_hello_parse(hello, 3, &size) == TUTTI_OK)
        check(size > 3 && size <= TTI_BOOT_RANKS);
    tti_boot_text_copy(text, sizeof text, data, bytes);
    check(strlen(text) < sizeof text);
    for (const char *at = text; *at; at++)
        check((unsigned char)*at >= ' ');
    return 0;
}
