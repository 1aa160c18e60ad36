/* Agreeing on what selection goes by (coll/agree.h). */
#include "coll/agree.h"

#include "base/log.h"
#include "base/memory.h"
#include "coll/crowd.h"
#include "coll/door.h"
#include "coll/nics.h"
#include "coll/tuning.h"
#include "device/cpu_caches.h"
#include "device/near.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct agree_words {
    uint64_t number; /* random; that of rank 0 is the communicator's */
    uint64_t tuning; /* digest of the file; 0: none */
    uint64_t cache[3];
    uint64_t reproducible;
    uint64_t cpu;    /* tti_cpu_kind */
    uint64_t ahead;  /* TUTTI_STAGED_AHEAD */
    uint64_t device; /* 1: this rank has one in use */
    struct tti_cpus cpus;
    struct tti_nic_place place;
};

/* All ranks see the same words, so all of them fail, or none. */
static enum tutti_result agree_on_mode(const struct agree_words *words, int size)
{
    for (int r = 1; r < size; r++)
        if (words[r].reproducible != words[0].reproducible)
            return TTI_FAIL(TUTTI_ERR_USAGE,
                            "the reproducible mode (TUTTI_REPRODUCIBLE, or "
                            "tutti_options.reproducible) is %s on rank 0, but %s on rank %d; set "
                            "it alike on all ranks",
                            words[0].reproducible ? "on" : "off",
                            words[r].reproducible ? "on" : "off", r);
    return TUTTI_OK;
}

/* Only a root goes by it, but all must come to the same choice, and the cost model has it. */
static enum tutti_result agree_on_ahead(const struct agree_words *words, int size)
{
    for (int r = 1; r < size; r++)
        if (words[r].ahead != words[0].ahead)
            return TTI_FAIL(TUTTI_ERR_USAGE,
                            "TUTTI_STAGED_AHEAD is %llu on rank 0, but %llu on rank %d; set it "
                            "alike on all ranks, or on none",
                            (unsigned long long)words[0].ahead, (unsigned long long)words[r].ahead,
                            r);
    return TUTTI_OK;
}

/* The first rank whose tuning is not that of rank 0; -1 if all are the same. */
static int agree_other_tuning(const struct agree_words *words, int size)
{
    for (int r = 1; r < size; r++)
        if (words[r].tuning != words[0].tuning)
            return r;
    return -1;
}

/* Series of other numbers of ranks are of no use here. */
static void agree_keep_own(struct tutti_comm *comm)
{
    struct tti_tuning *tuning = comm->tuning;
    size_t kept = 0;
    int lanes = comm->settings.lanes;
    for (size_t i = 0; i < tuning->count; i++)
        if (tuning->series[i].ranks == comm->size)
            tuning->series[kept++] = tuning->series[i];
    tuning->count = kept;
    for (size_t i = 0; i < kept; i++)
        lanes = tuning->series[i].lanes > lanes ? tuning->series[i].lanes : lanes;
    if (!comm->settings.lanes_forced)
        comm->settings.lanes = lanes;
    for (int medium = 0; medium < TTI_MEDIA; medium++)
        if (tuning->fitted[medium])
            memcpy(comm->profile.cost[medium], tuning->cost[medium], sizeof tuning->cost[medium]);
}

static void agree_conclude(struct tutti_comm *comm, const struct agree_words *words)
{
    double cache[3];
    for (int level = 0; level < 3; level++)
        cache[level] = (double)words[0].cache[level];
    comm->job = words[0].number;
    comm->without_device = -1;
    for (int r = comm->size - 1; r >= 0; r--)
        comm->without_device = words[r].device ? comm->without_device : r;
    tti_profile_default(cache, (enum tti_cpu_kind)words[0].cpu, 1,
                        &comm->profile); /* the cores are tti_crowd's to say */
    for (int r = 0; r < comm->size; r++)
        comm->cpus[r] = words[r].cpus;
    for (int r = 0; r < comm->size; r++) {
        comm->places[r] = words[r].place;
        comm->places[r].gpu[TTI_NIC_GPU_BYTES - 1] = '\0'; /* from another process */
    }
    if (!comm->settings.lanes_forced)
        comm->settings.lanes = tti_nics_lanes(comm->places, comm->size, comm->settings.lanes);
    int other = agree_other_tuning(words, comm->size);
    if (other >= 0) {
        TTI_LOG(TTI_LOG_WARN,
                "no tuning is used: rank %d has another one than rank 0, or none; give all ranks "
                "the same file (TUTTI_TUNING), or none (TUTTI_TUNING=off)",
                other);
        snprintf(comm->tuning_source, TTI_TUNING_PATH_BYTES,
                 "none; ranks 0 and %d have different ones", other);
        tti_tuning_destroy(comm->tuning);
        comm->tuning = NULL;
    }
    if (comm->tuning)
        agree_keep_own(comm);
}

/* What goes wrong here is told when the device's side is made. */
static bool agree_device(void)
{
    const struct tti_gpu_ops *ops = NULL;
    return tti_gpu_in_use(&ops) == TUTTI_OK && ops;
}

static void agree_cpus(struct agree_words *mine)
{
    tti_cpus_own(&mine->cpus);
    if (mine->cpus.node < 0 && mine->place.gpu[0])
        mine->cpus.node = tti_near_device("/sys", mine->place.gpu);
}

enum tutti_result tti_agree(struct tutti_comm *comm, uint64_t deadline)
{
    if (sodium_init() < 0)
        return TTI_FAIL(TUTTI_ERR_SYSTEM, "libsodium could not start (no source of randomness?)");
    comm->tuning_source = tti_calloc(TTI_TUNING_PATH_BYTES, 1);
    struct agree_words *words = tti_calloc((size_t)comm->size, sizeof *words);
    struct agree_words mine = {0};
    comm->cpus = tti_calloc((size_t)comm->size, sizeof *comm->cpus);
    comm->places = tti_calloc((size_t)comm->size, sizeof *comm->places);
    enum tutti_result result =
        words && comm->tuning_source && comm->cpus && comm->places ? TUTTI_OK : TUTTI_ERR_MEMORY;
    if (result == TUTTI_OK)
        result = tti_nics_place(&mine.place);
    if (result == TUTTI_OK)
        result = tti_tuning_find(&comm->tuning, comm->tuning_source);
    if (result == TUTTI_OK) {
        randombytes_buf(&mine.number, sizeof mine.number);
        mine.tuning = comm->tuning ? comm->tuning->digest : 0;
        tti_cpu_caches_usable("", mine.cache);
        mine.reproducible = comm->settings.reproducible;
        mine.cpu = tti_cpu_kind();
        mine.ahead = comm->settings.staged_ahead;
        mine.device = agree_device();
        agree_cpus(&mine);
        result = tti_boot_all_gather(comm->boot, &mine, sizeof mine, words, deadline);
    }
    if (result == TUTTI_OK)
        result = agree_on_mode(words, comm->size);
    if (result == TUTTI_OK)
        result = agree_on_ahead(words, comm->size);
    if (result == TUTTI_OK)
        agree_conclude(comm, words);
    free(words);
    return result;
}
