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
    if (tutti_all_reduce(own, most, START_MOST, TUTTI_INT64, TUTTI_MAX, comm) != TUTTI_OK ||
        tutti_all_reduce(own, sum, START_MOST, TUTTI_INT64, TUTTI_SUM, comm) != TUTTI_OK)
        return failed("report");
    if (tutti_comm_rank(comm) == 0)
        start_print(most, sum, START_MOST, ranks);
    tutti_comm_destroy(comm);
    return 0;
}
