/* Where the progress thread runs (coll/progress.h). */
#include "coll/progress.h"

#include "base/config.h"
#include "base/kernel_file.h"
#include "base/log.h"
#include "coll/comm.h"
#include "topology/kept.h"
#include "topology/nearest.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#define PROGRESS_VARIABLE "TUTTI_PROGRESS_CORE"

static enum tutti_result progress_misread(const char *text)
{
    return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                    PROGRESS_VARIABLE " is \"%s\"; expected \"auto\", or processors below %d as 3, "
                                      "0,2 or 4-7, which the ranks of a host take in turn",
                    text, TTI_CPUS);
}

struct listed {
    int wanted, seen; /* numbers of entries */
    int cpu;
};

static void listed_visit(void *context, int number)
{
    struct listed *listed = context;
    if (listed->seen++ == listed->wanted)
        listed->cpu = number;
}

enum tutti_result tti_progress_listed(const char *text, int index, int *cpu)
{
    struct listed all = {.wanted = -1};
    if (!tti_parse_list(text, TTI_CPUS - 1, listed_visit, &all))
        return progress_misread(text);
    struct listed one = {.wanted = index % all.seen};
    (void)tti_parse_list(text, TTI_CPUS - 1, listed_visit, &one);
    *cpu = one.cpu;
    return TUTTI_OK;
}

static bool progress_has(const struct tti_cpus *cpus, int cpu)
{
    return cpus->bits[cpu / 64] >> cpu % 64 & 1;
}

static bool progress_near(const cpu_set_t *near, int cpu)
{
    return cpu < CPU_SETSIZE && CPU_ISSET(cpu, near);
}

int tti_progress_auto(const struct tti_cpus *own, const cpu_set_t *near, int index, int ranks)
{
    int count = 0, passed = 0;
    for (int w = 0; w < TTI_CPU_WORDS; w++)
        count += __builtin_popcountll(own->bits[w]);
    if (count < 2 * ranks)
        return -1;
    for (int turn = 0; turn < 2; turn++) /* those that are near, then the others */
        for (int c = TTI_CPUS - 1; c >= 0; c--)
            if (progress_has(own, c) && progress_near(near, c) == (turn == 0) && passed++ == index)
                return c;
    return -1;
}

/* The processors near the network, and what they are near to, as a text: none, and "", where no
 * more is known than that there are processors. */
static void progress_network(cpu_set_t *near, char *text, size_t bytes)
{
    const struct tti_topology *topology = NULL;
    int nic = -1;
    CPU_ZERO(near);
    text[0] = '\0';
    if (tti_topology_keep(NULL, &topology) == TUTTI_OK)
        nic = tti_cpus_near_nics(topology, near);
    if (nic >= 0)
        (void)tti_topology_label(topology, nic, text, bytes);
    tti_topology_release(topology);
}

/* Of the ranks of this host that may run where this one may: how many there are, and before it. */
static void progress_sharers(const struct tutti_comm *comm, int *index, int *ranks)
{
    const int *host = comm->peers.host_of;
    *index = *ranks = 0;
    for (int r = 0; r < comm->size; r++) {
        if (host[r] != host[comm->rank] ||
            memcmp(comm->cpus[r].bits, comm->cpus[comm->rank].bits, sizeof comm->cpus->bits) != 0)
            continue;
        *index += r < comm->rank;
        ++*ranks;
    }
}

int tti_progress_thread(pthread_t *thread, int cpu, void *(*main)(void *), void *argument)
{
    cpu_set_t one;
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error != 0)
        return error;
    CPU_ZERO(&one);
    if (cpu >= 0) {
        CPU_SET(cpu, &one);
        error = pthread_attr_setaffinity_np(&attributes, sizeof one, &one);
    }
    if (error == 0)
        error = pthread_create(thread, &attributes, main, argument);
    (void)pthread_attr_destroy(&attributes);
    return error;
}

static void *progress_nothing(void *argument)
{
    return argument;
}

/* Only the system knows (what is online, the container's set), so it is asked with a thread. */
static enum tutti_result progress_try(const char *text, int cpu)
{
    char online[200];
    pthread_t thread;
    int error = tti_progress_thread(&thread, cpu, progress_nothing, NULL);
    if (error == 0) {
        pthread_join(thread, NULL);
        return TUTTI_OK;
    }
    if (!tti_kernel_line("/sys/devices/system/cpu/online", online, sizeof online))
        strcpy(online, "?");
    return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                    PROGRESS_VARIABLE " is \"%s\": no thread of this process may run on processor "
                                      "%d: %s; online are %s, and a container may allow fewer",
                    text, cpu, strerror(error), online);
}

enum tutti_result tti_progress_place(struct tutti_comm *comm)
{
    const char *text = tti_config_text(PROGRESS_VARIABLE);
    int cpu = -1, index = 0, ranks = 0;
    char nic[80] = "";
    cpu_set_t near;
    comm->queue.cpu = -1;
    CPU_ZERO(&near);
    if (!text)
        return TUTTI_OK;
    progress_sharers(comm, &index, &ranks);
    if (strcmp(text, "auto") == 0) {
        progress_network(&near, nic, sizeof nic);
        cpu = tti_progress_auto(&comm->cpus[comm->rank], &near, index, ranks);
    } else {
        TTI_TRY(tti_progress_listed(text, comm->peers.local_rank, &cpu));
    }
    if (cpu >= 0)
        TTI_TRY(progress_try(text, cpu));
    comm->queue.cpu = cpu;
    if (cpu >= 0)
        TTI_LOG(TTI_LOG_INFO, "progress thread: on processor %d%s%s", cpu,
                progress_near(&near, cpu) ? ", near " : "", progress_near(&near, cpu) ? nic : "");
    else
        TTI_LOG(TTI_LOG_INFO,
                "progress thread: not bound, as %d ranks share fewer than %d processors", ranks,
                2 * ranks);
    return TUTTI_OK;
}
