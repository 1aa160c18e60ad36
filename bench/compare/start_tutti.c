/* One start of a Tutti program (bench/compare/start.h). */
#include "bench/compare/start.h"
#include "tutti/tutti.h"

#include <stdio.h>
#include <stdlib.h>

static tutti_comm *comm;

static int failed(const char *what)
{
    fprintf(stderr, "start_tutti: %s: %s\n", what, tutti_last_error());
    return 1;
}

static int talk_to_all(int ranks)
{
    double *in = calloc((size_t)ranks, sizeof *in), *out = calloc((size_t)ranks, sizeof *out);
    int status = !in || !out || tutti_all_to_all(in, out, 1, TUTTI_FLOAT64, comm) != TUTTI_OK;
    free(in);
    free(out);
    return status ? failed("all-to-all") : 0;
}

static int holdings(int64_t *own)
{
    struct tutti_memory memory;
    if (tutti_comm_memory(comm, &memory) != TUTTI_OK)
        return 1;
    own[START_HOST] = (int64_t)memory.host;
    own[START_SHARED] = (int64_t)memory.shared;
    own[START_SHARED_USED] = (int64_t)memory.shared_used;
    own[START_DESCRIPTORS] = memory.descriptors;
    return 0;
}

int main(void)
{
    int64_t own[START_FIGURES], most[START_FIGURES], sum[START_FIGURES], begin = start_now_ns();
    double one = 1, all = 0;
    if (tutti_comm_create_from_env(NULL, &comm) != TUTTI_OK)
        return failed("init");
    own[START_READY_NS] = start_now_ns();
    own[START_INIT_NS] = own[START_READY_NS] - begin;
    if (tutti_all_reduce(&one, &all, 1, TUTTI_FLOAT64, TUTTI_SUM, comm) != TUTTI_OK)
        return failed("first all-reduce");
    own[START_FIRST_NS] = start_now_ns();
    own[START_PSS] = start_pss();
    int ranks = tutti_comm_size(comm);
    if (all != ranks || talk_to_all(ranks))
        return 1;
    own[START_PSS_ALL] = start_pss();
    if (holdings(own))
        return failed("memory");
    if (tutti_all_reduce(own, most, START_FIGURES, TUTTI_INT64, TUTTI_MAX, comm) != TUTTI_OK ||
        tutti_all_reduce(own, sum, START_FIGURES, TUTTI_INT64, TUTTI_SUM, comm) != TUTTI_OK)
        return failed("report");
    if (tutti_comm_rank(comm) == 0)
        start_print(most, sum, START_FIGURES, ranks);
    tutti_comm_destroy(comm);
    return 0;
}
