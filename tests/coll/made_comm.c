/* See made_comm.h. */
#include "tests/coll/made_comm.h"

#include "coll/algorithms/algorithms.h"
#include "coll/select.h"
#include "tests/tutti_cmocka.h"

#include <string.h>

struct tutti_comm *comm_of(int size, char *algorithms)
{
    static struct tutti_comm comm;
    memset(&comm, 0, sizeof comm);
    comm.size = size;
    comm.peers.nhosts = 1;
    comm.peers.have_inproc = comm.peers.have_shm = true;
    static const double no_caches[3];
    tti_profile_default(no_caches, TTI_CPU_CLUSTERS, 64, &comm.profile);
    comm.settings.lanes = 2;
    comm.settings.algorithms = algorithms;
    return &comm;
}
struct tutti_comm *comm_on_a_mesh(int ranks, int cores)
{
    static const double caches[3] = {48 << 10, 2 << 20, 64 << 20};
    struct tutti_comm *comm = comm_of(ranks, NULL);
    tti_profile_default(caches, TTI_CPU_MESH, cores, &comm->profile);
    comm->settings.fast = true;
    comm->peers.reads = true;
    return comm;
}

struct tutti_comm *comm_in_clusters(int ranks, int cores)
{
    static const double caches[3] = {48 << 10, 1 << 20, 32 << 20};
    struct tutti_comm *comm = comm_of(ranks, NULL);
    tti_profile_default(caches, TTI_CPU_CLUSTERS, cores, &comm->profile);
    comm->settings.fast = true;
    return comm;
}

const char *chosen(struct tutti_comm *comm, enum tutti_collective collective, size_t count)
{
    struct tti_selection selection;
    assert_int_equal(tti_select(comm, collective, count, TUTTI_FLOAT32, 0, &selection), TUTTI_OK);
    assert_ptr_equal(tti_algorithm_at(collective, selection.index), selection.algorithm);
    return selection.algorithm->name;
}
