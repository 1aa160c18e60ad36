/* What a check may ask for: the services of conformance.h, on the side of one rank. */
#include "tests/conformance/conformance.h"

#include "base/error.h"
#include "device/memory.h"
#include "tests/conformance/harness.h"
#include "transport/registry.h"

#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void conf_fail(struct conf_rank *me, const char *file, int line, const char *format, ...)
{
    const char *name = strrchr(file, '/');
    int used = snprintf(me->failure, sizeof me->failure, "%s:%d: ", name ? name + 1 : file, line);
    va_list args;
    va_start(args, format);
    vsnprintf(me->failure + used, sizeof me->failure - (size_t)used, format, args);
    va_end(args);
    longjmp(me->failed, 1);
}

/* ---- the harness ---------------------------------------------------------------------------- */

static void rank_meet(struct conf_rank *me, const struct harness_message *mine,
                      struct harness_message *all)
{
    if (send(me->control, mine, sizeof *mine, MSG_NOSIGNAL) != (ssize_t)sizeof *mine)
        conf_fail(me, __FILE__, __LINE__, "the harness is gone");
    for (int i = 0; i < me->nranks; i++) {
        struct pollfd ready = {.fd = me->control, .events = POLLIN};
        while (poll(&ready, 1, 1) == 0) {
            if (me->transport) /* peers may wait for what our buffers still hold */
                (void)me->ops->progress(me->transport);
            conf_watch(me, "waiting for the other ranks at a barrier");
        }
        if (recv(me->control, &all[i], sizeof all[i], 0) != (ssize_t)sizeof all[i])
            conf_fail(me, __FILE__, __LINE__, "the harness is gone");
    }
}

void conf_barrier(struct conf_rank *me)
{
    struct harness_message mine = {.kind = HARNESS_MEET}, all[CONF_MAX_RANKS];
    rank_meet(me, &mine, all);
}

uint64_t conf_share(struct conf_rank *me, uint64_t word)
{
    struct harness_message mine = {.kind = HARNESS_MEET, .word = word}, all[CONF_MAX_RANKS];
    rank_meet(me, &mine, all);
    return all[0].word;
}

/* ---- open and connect ----------------------------------------------------------------------- */

void conf_open(struct conf_rank *me)
{
    char host[32] = "host";
    gethostname(host, sizeof host - 1);
    snprintf(me->name, sizeof me->name, "%.31s:%d", host, (int)getpid());
    me->env = (struct tutti_transport_env){
        .size = sizeof me->env,
        .services = tti_transport_services(),
        .job = me->job,
        .secret = me->secret,
        .rank = me->rank,
        .nranks = me->nranks,
        .name = me->name,
        .lanes = CONF_LANES,
    };
    void *transport = NULL;
    CONF_OK(me, me->ops->open(&me->env, &transport));
    CONF_REQUIRE(me, transport, "open gave no transport");
    me->transport = transport;
}

void conf_swap_addresses(struct conf_rank *me)
{
    struct harness_message mine = {.kind = HARNESS_MEET}, all[CONF_MAX_RANKS];
    size_t bytes = 0;
    CONF_OK(me, me->ops->address(me->transport, mine.address, &bytes));
    CONF_REQUIRE(me, bytes <= TUTTI_ADDRESS_BYTES, "an address of %zu bytes", bytes);
    mine.bytes = (uint32_t)bytes;
    memcpy(mine.name, me->name, sizeof mine.name);
    rank_meet(me, &mine, all);
    for (int i = 0; i < me->nranks; i++) {
        memcpy(me->peer_names[i], all[i].name, sizeof all[i].name);
        memcpy(me->addresses[i], all[i].address, sizeof all[i].address);
        me->peers[i] = (struct tutti_peer){
            .rank = i,
            .local_rank = i,
            .name = me->peer_names[i],
            .host = 1,
            .process = me->threads ? 1 : 1 + (uint64_t)i,
            .pid = strtoll(strrchr(me->peer_names[i], ':') + 1, NULL, 10),
            .address = me->addresses[i],
            .address_bytes = all[i].bytes,
        };
    }
    for (int i = 0; i < me->nranks; i++)
        CONF_REQUIRE(me, i == me->rank || me->ops->reaches(me->transport, &me->peers[i]),
                     "%s does not reach rank %d from rank %d", me->ops->name, i, me->rank);
}

void conf_begin(struct conf_rank *me, int peer)
{
    void *endpoint = NULL;
    CONF_OK(me, me->ops->connect(me->transport, &me->peers[peer], CONF_LANES, &endpoint));
    CONF_REQUIRE(me, endpoint, "connect gave no endpoint");
    me->endpoints[peer] = endpoint;
}

void conf_finish(struct conf_rank *me, int peer)
{
    bool woken = true;
    for (;;) {
        enum tutti_result result = me->ops->advance(me->endpoints[peer]);
        CONF_REQUIRE(me, woken || result == TUTTI_IN_PROGRESS,
                     "advance had something new, but nothing woke us for 20 s");
        if (result == TUTTI_OK)
            return;
        CONF_REQUIRE(me, result == TUTTI_IN_PROGRESS, "connecting to rank %d gave %d: %s", peer,
                     (int)result, tutti_last_error());
        CONF_OK(me, me->ops->progress(me->transport));
        woken = conf_sleep(me, CONF_ASLEEP_MS);
        conf_watch(me, "connecting");
    }
}

void conf_all(struct conf_rank *me)
{
    conf_open(me);
    conf_swap_addresses(me);
    for (int i = 0; i < me->nranks; i++)
        if (i != me->rank)
            conf_begin(me, i);
    for (int i = 0; i < me->nranks; i++)
        if (i != me->rank)
            conf_finish(me, i);
}

void conf_close(struct conf_rank *me)
{
    for (int i = 0; i < me->nranks; i++)
        if (me->endpoints[i]) {
            me->ops->disconnect(me->endpoints[i]);
            me->endpoints[i] = NULL;
        }
    if (me->transport)
        me->ops->close(me->transport);
    me->transport = NULL;
}

void conf_release(struct conf_rank *me)
{
    conf_close(me);
    for (int i = 0; i < CONF_MAX_BLOCKS; i++)
        if (me->blocks[i] && me->block_is_region[i])
            (void)tti_region_free(me->blocks[i]);
        else
            free(me->blocks[i]);
}

/* ---- waiting -------------------------------------------------------------------------------- */

void conf_watch(struct conf_rank *me, const char *what)
{
    CONF_REQUIRE(me, !tti_deadline_passed(me->deadline), "no end of %s", what);
}

void conf_turn(struct conf_rank *me)
{
    CONF_OK(me, me->ops->progress(me->transport));
    sched_yield();
}

bool conf_sleep(struct conf_rank *me, int ms)
{
    int ready = 1;
    if (me->ops->arm(me->transport)) {
        struct pollfd wake = {.fd = me->ops->fd(me->transport), .events = POLLIN};
        ready = poll(&wake, 1, ms);
    }
    me->ops->disarm(me->transport);
    return ready > 0;
}

/* ---- memory and numbers --------------------------------------------------------------------- */

void *conf_memory(struct conf_rank *me, size_t bytes, bool region)
{
    int at = 0;
    while (at < CONF_MAX_BLOCKS && me->blocks[at])
        at++;
    CONF_REQUIRE(me, at < CONF_MAX_BLOCKS, "the check wants more than %d blocks", CONF_MAX_BLOCKS);
    void *memory = NULL;
    if (region)
        CONF_OK(me, tti_region_alloc(bytes, &memory));
    else
        memory = malloc(bytes);
    CONF_REQUIRE(me, memory, "no memory");
    me->blocks[at] = memory;
    me->block_is_region[at] = region;
    return memory;
}

/* splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014. */
void conf_free(struct conf_rank *me, void *memory)
{
    for (int i = 0; i < CONF_MAX_BLOCKS; i++)
        if (me->blocks[i] == memory) {
            if (me->block_is_region[i])
                CONF_OK(me, tti_region_free(memory));
            else
                free(memory);
            me->blocks[i] = NULL;
            return;
        }
    conf_fail(me, __FILE__, __LINE__, "freeing what conf_memory has not given");
}

uint64_t conf_random(struct conf_rank *me)
{
    uint64_t z = me->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
