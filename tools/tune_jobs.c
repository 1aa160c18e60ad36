/* A job of tutti-tune (tools/tune_jobs.h). */
#include "tools/tune_jobs.h"

#include "base/memory.h"
#include "launch/spawn.h"
#include "topology/bind.h"

#include <stdio.h>
#include <stdlib.h>

enum tutti_result tune_job_share(const cpu_set_t *allowed, int ranks, cpu_set_t **cpus)
{
    const int count = CPU_COUNT(allowed);
    int cpu = -1;
    *cpus = NULL;
    if (count == 0 || ranks <= count || ranks % count != 0)
        return TUTTI_OK;
    cpu_set_t *sets = tti_calloc((size_t)ranks, sizeof *sets);
    if (!sets)
        return TUTTI_ERR_MEMORY;
    for (int r = 0; r < ranks; r++) {
        do
            cpu = (cpu + 1) % CPU_SETSIZE;
        while (!CPU_ISSET(cpu, allowed));
        CPU_SET(cpu, &sets[r]);
    }
    *cpus = sets;
    return TUTTI_OK;
}

int tune_run_job(char **argv, int ranks)
{
    struct tti_spawn spawn = {.argv = argv, .nproc = ranks, .nnodes = 1, .program = "tutti-tune"};
    cpu_set_t *cpus = NULL, allowed;
    int status = 1;
    enum tutti_result result = tti_bind_ranks(TTI_BIND_AUTO, ranks, &cpus);
    if (result == TUTTI_OK && !cpus && sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        result = tune_job_share(&allowed, ranks, &cpus);
    spawn.cpus = cpus;
    if (result == TUTTI_OK)
        result = tti_spawn_run(&spawn, &status);
    free(cpus);
    if (result == TUTTI_OK)
        return status;
    fprintf(stderr, "tutti-tune: %s\n", tutti_last_error());
    return 1;
}
