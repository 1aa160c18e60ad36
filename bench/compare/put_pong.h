/* A round trip of puts between two ranks, for Tutti and for MPI: each puts so many bytes into the
 * other's window and tells it, and waits to be told itself. The same loop and the same sums for
 * both; put_tutti.c and put_mpi.c have what is theirs. */
#ifndef TUTTI_BENCH_PUT_PONG_H
#define TUTTI_BENCH_PUT_PONG_H

#include <stdbool.h>
#include <stddef.h>

struct put_pong {
    const char *name;
    int rank;            /* 0 or 1 */
    unsigned char *from; /* what is put; PUT_MOST bytes ... */
    unsigned char *into; /* ... and where the other one puts */
    /* Put `from` into the other's window, so that it knows; wait until it has done the same. */
    void (*put)(size_t bytes, unsigned round);
    void (*await)(size_t bytes, unsigned round);
};

enum { PUT_MOST = 1 << 20 };

/* The sizes, one after another; rank 0 prints a line for each. False: what came was not what was
 * put. */
bool put_pong(const struct put_pong *pong, int argc, char **argv);

#endif
