/* The caller's half of the handshake: with the bootstrap server, and with the desk. */
#ifndef TTI_LAUNCH_BOOT_PROVE_H
#define TTI_LAUNCH_BOOT_PROVE_H

#include "launch/boot_wire.h"

struct tti_boot_caller {
    const uint8_t *secret; /* TTI_SECRET_BYTES */
    int rank;
    int size;
    uint64_t begin; /* when it began to try, and until when it will */
    uint64_t deadline;
};

/* Both proofs, theirs first, by `until`: HELLO to the server, or SEEK to the desk. LINK; *foreign
 * is set when somebody answered who is not of this job. *host: the desk's (boot_wire.h); may be
 * NULL. */
enum tutti_result tti_boot_prove(const struct tti_boot_caller *caller, int fd, bool desk,
                                 uint64_t until, bool *foreign, uint32_t *host);

/* Milliseconds from `begin` to now, and from now to `deadline`, for a frame. */
void tti_boot_waits(uint64_t begin, uint64_t deadline, struct tti_boot_frame *frame);

#endif
