/* A job of tutti-tune (tools/tune_jobs.h). */
#include "tools/tune_jobs.h"

#include "launch/spawn.h"
#include "topology/bind.h"

#include <stdio.h>
#include <stdlib.h>

int tune_run_job(char **argv, int ranks)
{
    struct tti_spawn spawn = {.argv = argv, .nproc = ranks, .nnodes = 1, .program = "tutti-tune"};
    cpu_set_t *cpus = NULL;
    int status = 1;
    enum tutti_result result = tti_bind_ranks(TTI_BIND_AUTO, ranks, &cpus);
    spawn.cpus = cpus;
    if (result == TUTTI_OK)
        result = tti_spawn_run(&spawn, &status);
    free(cpus);
    if (result == TUTTI_OK)
        return status;
    fprintf(stderr, "tutti-tune: %s\n", tutti_last_error());
    return 1;
}
