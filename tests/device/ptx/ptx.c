/* The fake driver's kernels are translated PTX (ptx.h). */
#include "tests/device/ptx/ptx.h"

#include "tests/device/fake_cuda.h"

#include <string.h>

static struct ptx_entry *entries;

void ptx_entry_add(struct ptx_entry *entry)
{
    entry->next = entries;
    entries = entry;
}

bool ptx_look_up(struct ptx_frame *frame, uint64_t address, unsigned bytes)
{
    struct tti_gpu_pointer info;
    if (tti_gpu_sim()->pointer((const void *)(uintptr_t)address, &info) != TUTTI_OK ||
        info.kind == TTI_MEMORY_HOST)
        return false;
    const uint64_t base = (uint64_t)(uintptr_t)info.base;
    if (address - base >= info.bytes || bytes > info.bytes - (address - base))
        return false;
    frame->known[frame->next].base = base;
    frame->known[frame->next].bytes = info.bytes;
    frame->next = (frame->next + 1) % PTX_KNOWN;
    return true;
}

bool fake_kernel_find(const char *name, struct fake_kernel *kernel)
{
    for (const struct ptx_entry *entry = entries; entry; entry = entry->next) {
        if (strcmp(entry->own.symbol, name) != 0)
            continue;
        *kernel = (struct fake_kernel){.own = &entry->own,
                                       .args_bytes = entry->parameter_bytes,
                                       .most_threads = entry->most_threads,
                                       .registers = entry->registers,
                                       .shared_bytes = entry->shared_bytes};
        return true;
    }
    return false;
}
