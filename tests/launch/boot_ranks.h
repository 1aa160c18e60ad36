/* Ranks as threads over the bootstrap, for the tests of this folder. */
#ifndef TTI_TESTS_BOOT_RANKS_H
#define TTI_TESTS_BOOT_RANKS_H

#include "base/clock.h"
#include "launch/boot.h"
#include "tests/awake.h"

#include <pthread.h>
#include <string.h>

enum { BOOT_RANKS_MOST = 64 };

/* One rank: what it is given, and what came of it. */
struct boot_rank {
    struct tti_meeting meeting;
    int rank;
    int size;
    double deadline_s;
    double linger_s;
    void (*body)(
        struct boot_rank *self); /* after create succeeded; leaves `boot` to be destroyed */
    void *context;
    struct tti_boot *boot;
    struct tti_error error; /* of create or of the body */
    double seconds;         /* create and body, by tests/awake.h */
    pthread_t thread;
};

static void *boot_rank_main(void *argument)
{
    struct boot_rank *self = argument;
    uint64_t begin = test_awake_ns();
    tti_error_save(&self->error, tti_boot_create(&self->meeting, self->rank, self->size,
                                                 tti_deadline_in(self->deadline_s), &self->boot));
    if (self->error.code == TUTTI_OK && self->body)
        self->body(self);
    self->seconds = (double)(test_awake_ns() - begin) / 1e9;
    tti_boot_destroy(self->boot, self->linger_s);
    return NULL;
}

/* A meeting on 127.0.0.1 at a port that was free a moment ago, without a socket. */
struct tti_meeting boot_ranks_meeting(void);

/* A cmocka assertion that `text` has `part` in it. */
void boot_expect_text(const char *text, const char *part);

/* Start ranks where start[k] is true (NULL: all). */
static inline void boot_ranks_start(struct boot_rank *ranks, int size, const bool *start)
{
    for (int k = 0; k < size; k++)
        if (!start || start[k])
            pthread_create(&ranks[k].thread, NULL, boot_rank_main, &ranks[k]);
}

/* Wait for them. */
static inline void boot_ranks_join(struct boot_rank *ranks, int size, const bool *start)
{
    for (int k = 0; k < size; k++)
        if (!start || start[k])
            pthread_join(ranks[k].thread, NULL);
}

static inline void boot_ranks_run(struct boot_rank *ranks, int size, const bool *start)
{
    boot_ranks_start(ranks, size, start);
    boot_ranks_join(ranks, size, start);
}

static inline void boot_ranks_init(struct boot_rank *ranks, int size, double deadline_s,
                                   void (*body)(struct boot_rank *))
{
    struct tti_meeting meeting = boot_ranks_meeting();
    memset(ranks, 0, (size_t)size * sizeof *ranks);
    for (int k = 0; k < size; k++) {
        ranks[k].meeting = meeting;
        ranks[k].rank = k;
        ranks[k].size = size;
        ranks[k].deadline_s = deadline_s;
        ranks[k].linger_s = 5;
        ranks[k].body = body;
    }
}

#endif
