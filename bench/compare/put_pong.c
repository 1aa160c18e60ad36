/* The loop of bench/compare/put_pong.h. Half of a size's rounds warm up. */
#include "bench/compare/put_pong.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS_MOST = 50000, CHECKED = 997 }; /* each so many rounds the bytes are looked at */

static double times[ROUNDS_MOST];

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int order(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

static unsigned char mark(int rank, unsigned round)
{
    return (unsigned char)(round * 7 + (unsigned)rank + 1);
}

static bool came(const struct put_pong *pong, size_t bytes, unsigned round)
{
    for (size_t i = 8; i < bytes; i++) /* the first may be a flag */
        if (pong->into[i] != mark(1 - pong->rank, round))
            return false;
    return true;
}

/* One there and back. */
static bool trip(const struct put_pong *pong, size_t bytes, unsigned round)
{
    const bool checked = round % CHECKED == 0;
    if (checked)
        memset(pong->from, mark(pong->rank, round), bytes);
    if (pong->rank == 0)
        pong->put(bytes, round);
    pong->await(bytes, round);
    const bool right = !checked || came(pong, bytes, round);
    if (pong->rank == 1)
        pong->put(bytes, round);
    return right;
}

bool put_pong(const struct put_pong *pong, int argc, char **argv)
{
    unsigned round = 0;
    bool right = true;
    for (int a = 1; a < argc; a++) {
        const size_t bytes = strtoul(argv[a], NULL, 10);
        if (bytes < 8 || bytes > PUT_MOST) {
            fprintf(stderr, "%s: %s is no size; expected 8 to %d\n", argv[0], argv[a], PUT_MOST);
            return false;
        }
        const int rounds = bytes <= 4096 ? ROUNDS_MOST : ROUNDS_MOST / 10;
        for (int i = 0; i < rounds / 2; i++)
            right &= trip(pong, bytes, ++round);
        const double begin = now_us();
        double last = begin;
        for (int i = 0; i < rounds; i++) {
            right &= trip(pong, bytes, ++round);
            const double now = now_us();
            times[i] = now - last;
            last = now;
        }
        qsort(times, (size_t)rounds, sizeof *times, order);
        if (pong->rank == 0)
            printf("%-28s %8zu B  round trip: mean %8.2f us  p50 %8.2f  p99 %8.2f\n", pong->name,
                   bytes, (last - begin) / rounds, times[rounds / 2], times[rounds / 100 * 99]);
    }
    return right;
}
