/* A connected pair (shm_pair.h). */
#include "tests/transport/shm_pair.h"

#include "transport/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const uint8_t shm_pair_secret[TUTTI_SECRET_BYTES] = "hostile";

static void pair_require(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "%s failed: %s\n", what, tutti_last_error());
    abort();
}

const struct tutti_transport_ops *shm_pair_ops(void)
{
    for (int i = 0; tti_transport_at(i); i++)
        if (strcmp(tti_transport_at(i)->name, "shm") == 0)
            return tti_transport_at(i);
    abort();
}

void shm_pair_open(struct shm_pair *pair)
{
    const struct tutti_transport_ops *shm = shm_pair_ops();
    static uint64_t job = 4200;
    memset(pair, 0, sizeof *pair);
    pair->lanes = 1;
    setenv("TUTTI_SHM_CMA", "1", 0); /* all kinds of lines are to be seen */
    job++;
    for (int i = 0; i < 2; i++) {
        pair->env[i] = (struct tutti_transport_env){.size = sizeof pair->env[i],
                                                    .services = tti_transport_services(),
                                                    .job = job,
                                                    .secret = shm_pair_secret,
                                                    .rank = i,
                                                    .nranks = 2,
                                                    .name = "here:1",
                                                    .lanes = 1};
        size_t bytes = 0;
        pair_require(shm->open(&pair->env[i], &pair->transport[i]) == TUTTI_OK, "open");
        pair_require(shm->address(pair->transport[i], pair->address[i], &bytes) == TUTTI_OK,
                     "address");
        pair->peer[i] = (struct tutti_peer){
            .rank = i, .name = "here:1", .address = pair->address[i], .address_bytes = bytes};
    }
}

void shm_pair_connect(struct shm_pair *pair)
{
    const struct tutti_transport_ops *shm = shm_pair_ops();
    enum { TURNS = 1000000 }; /* no deadline: a fuzzer may be stopped for minutes */
    bool done = false;
    for (int i = 0; i < 2; i++)
        pair_require(shm->connect(pair->transport[i], &pair->peer[!i], pair->lanes,
                                  &pair->endpoint[i]) == TUTTI_OK,
                     "connect");
    for (int turn = 0; !done; turn++) {
        done = true;
        for (int i = 0; i < 2; i++) {
            enum tutti_result result = shm->advance(pair->endpoint[i]);
            pair_require(result == TUTTI_OK || result == TUTTI_IN_PROGRESS, "advance");
            done = done && result == TUTTI_OK;
        }
        pair_require(turn < TURNS, "connecting");
    }
}

void shm_pair_close(struct shm_pair *pair)
{
    const struct tutti_transport_ops *shm = shm_pair_ops();
    for (int i = 0; i < 2; i++)
        if (pair->endpoint[i])
            shm->disconnect(pair->endpoint[i]);
    for (int i = 0; i < 2; i++)
        if (pair->transport[i])
            shm->close(pair->transport[i]);
}
