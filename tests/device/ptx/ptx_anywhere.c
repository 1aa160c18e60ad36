/* For a test that calls translated entries on memory of its own: all memory is a device's. */
#include "tests/device/ptx/ptx.h"

void ptx_entry_add(struct ptx_entry *entry)
{
    (void)entry;
}

bool ptx_look_up(struct ptx_frame *frame, uint64_t address, unsigned bytes)
{
    (void)address;
    (void)bytes;
    frame->known[0].base = 0;
    frame->known[0].bytes = UINT64_MAX;
    return true;
}
