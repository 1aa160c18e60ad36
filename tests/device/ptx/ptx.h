/* Kernels as the compiler for GPUs left them, for the fake driver: what ptx_to_c makes of PTX. */
#ifndef TTI_TESTS_DEVICE_PTX_H
#define TTI_TESTS_DEVICE_PTX_H

#include "device/gpu.h"

struct ptx_entry {
    struct tti_gpu_own own; /* its name, and its function */
    unsigned parameter_bytes, shared_bytes;
    unsigned most_threads; /* of a block (.maxntid) */
    unsigned registers;    /* of a thread; 0: not known */
    struct ptx_entry *next;
};

enum { PTX_KNOWN = 4 };

/* Where a thread that runs an entry is, and pieces of memory that it has been at. */
struct ptx_frame {
    const char *name;
    const void *parameter;
    unsigned parameter_bytes;
    unsigned char *shared;
    unsigned shared_bytes;
    struct {
        uint64_t base, bytes;
    } known[PTX_KNOWN];
    unsigned next;
};

/* Is that a device's or page-locked memory? Then the piece that it is in is known. */
bool ptx_look_up(struct ptx_frame *frame, uint64_t address, unsigned bytes);

/* Before main: a translated file makes its entries known. */
void ptx_entry_add(struct ptx_entry *entry);

#endif
