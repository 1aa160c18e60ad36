/* What every transport must do (include/tutti/plugin.h), as a list of checks.
 *
 * A check is one function that runs on each of its ranks: as threads or as forked processes, the
 * code is the same. The harness (harness.c) starts the ranks and answers their requests over a
 * socket each: exchange addresses, meet at a barrier, say how it ended. A failed CONF_REQUIRE ends
 * the rank's part; the harness then closes what the rank had open and reports the text.
 *
 * Read next: exchange.h (the engine that moves verified traffic), checks_*.c (the checks). */
#ifndef TTI_TESTS_CONFORMANCE_H
#define TTI_TESTS_CONFORMANCE_H

#include "base/clock.h"
#include "tutti/plugin.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CONF_MAX_RANKS = 8,
    CONF_LANES = 3,
    CONF_MAX_BLOCKS = 128,
};

enum conf_flag {
    CONF_PROCESSES = 1,   /* only as processes */
    CONF_RANK_0_DIES = 2, /* rank 0 kills itself and reports nothing */
    CONF_RESERVES = 4,    /* needs the optional reserve and commit */
    CONF_MAPS = 8,        /* needs the optional offer, map, unmap and withdraw */
};

/* One rank of a running check. */
struct conf_rank {
    const struct tutti_transport_ops *ops;
    int rank, nranks;
    bool threads;
    uint64_t job;
    uint8_t secret[TUTTI_SECRET_BYTES];
    char name[64];
    uint64_t random; /* state of conf_random; seeded by rank and check */
    uint64_t deadline;
    int control; /* to the harness */

    void *transport;
    struct tutti_transport_env env;
    struct tutti_peer peers[CONF_MAX_RANKS];
    char peer_names[CONF_MAX_RANKS][64];
    uint8_t addresses[CONF_MAX_RANKS][TUTTI_ADDRESS_BYTES];
    void *endpoints[CONF_MAX_RANKS];

    void *blocks[CONF_MAX_BLOCKS]; /* freed at the end of the check */
    bool block_is_region[CONF_MAX_BLOCKS];
    jmp_buf failed;
    char failure[900];
};

struct conf_check {
    const char *name;
    int ranks;
    unsigned flags; /* enum conf_flag */
    void (*run)(struct conf_rank *me);
};

/* The lists, each ended by a NULL name. */
extern const struct conf_check conf_checks_connect[];
extern const struct conf_check conf_checks_traffic[];
extern const struct conf_check conf_checks_wait[];
extern const struct conf_check conf_checks_end[];
extern const struct conf_check conf_checks_reach[];

/* Run one check; 0 when it passed, else 1 with lines on stderr. */
int conf_run(const struct conf_check *check, const struct tutti_transport_ops *ops, bool threads,
             double timeout_s);

/* ---- for checks: failing -------------------------------------------------------------------- */

_Noreturn void conf_fail(struct conf_rank *me, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#define CONF_REQUIRE(me, condition, ...)                      \
    do {                                                      \
        if (!(condition))                                     \
            conf_fail((me), __FILE__, __LINE__, __VA_ARGS__); \
    } while (0)

/* The expression must give TUTTI_OK; the failure shows the transport's own text. */
#define CONF_OK(me, expression)                                                                   \
    do {                                                                                          \
        enum tutti_result conf_result_ = (expression);                                            \
        if (conf_result_ != TUTTI_OK)                                                             \
            conf_fail((me), __FILE__, __LINE__, "%s gave %d: %s", #expression, (int)conf_result_, \
                      tutti_last_error());                                                        \
    } while (0)

/* ---- for checks: services ------------------------------------------------------------------- */

/* All (living) ranks of the check meet here. The transport progresses meanwhile. */
void conf_barrier(struct conf_rank *me);
/* ... and hear the word of rank 0; what the others say is lost. */
uint64_t conf_share(struct conf_rank *me, uint64_t word);
/* Open the transport; then, with all others, exchange addresses. */
void conf_open(struct conf_rank *me);
void conf_swap_addresses(struct conf_rank *me);
/* connect to `peer`, and the whole of connecting: connect and advance until done. */
void conf_begin(struct conf_rank *me, int peer);
void conf_finish(struct conf_rank *me, int peer);
/* open, exchange, connect to everybody. */
void conf_all(struct conf_rank *me);
/* disconnect all endpoints and close. */
void conf_close(struct conf_rank *me);

/* Has the check's deadline passed? Fails the rank with `what` when it has. */
void conf_watch(struct conf_rank *me, const char *what);
/* Give the others a turn: progress, and sched_yield. */
void conf_turn(struct conf_rank *me);
/* Sleep on the transport's fd as the library does (arm, poll, disarm). Returns false when nothing
 * woke us within `ms`. */
bool conf_sleep(struct conf_rank *me, int ms);
/* For who must be woken: longer than a peer that is to wake it stands still on a busy machine. */
enum { CONF_ASLEEP_MS = 20000 };

/* Memory until the end of the check: plain, or a region that peers can map. */
void *conf_memory(struct conf_rank *me, size_t bytes, bool region);
/* ... or until now. */
void conf_free(struct conf_rank *me, void *memory);
/* Mappings of memory files in this process now. */
int conf_shared_mappings(void);
uint64_t conf_random(struct conf_rank *me);

#endif
