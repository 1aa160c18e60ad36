/* Between the harness and its ranks: messages on a SEQPACKET socket. */
#ifndef TTI_TESTS_CONFORMANCE_HARNESS_H
#define TTI_TESTS_CONFORMANCE_HARNESS_H

#include "tests/conformance/conformance.h"

enum harness_kind {
    HARNESS_MEET = 1, /* wait for all; everybody gets everybody's message */
    HARNESS_END = 2,  /* the rank's part is over; `text` is empty when all is well */
};

struct harness_message {
    uint32_t kind;
    uint32_t bytes;
    char name[64];
    union {
        char text[900];
        uint8_t address[TUTTI_ADDRESS_BYTES];
        uint64_t word;
    };
};

/* Close and free whatever the rank has open. */
void conf_release(struct conf_rank *me);

#endif
