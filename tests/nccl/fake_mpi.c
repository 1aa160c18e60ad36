/* MPI's part in nccl-tests, made of Tutti: its start by the launcher's variables and its
 * collectives on host memory, so that `tuttirun -n 4 all_reduce_perf ...` runs where there is no
 * MPI (bench/gpu/nccl_clients --own-mpi). The library has a copy of Tutti to itself, of which it
 * shows nothing, beside the one in libnccl.so.2. This copy has no device, whatever TUTTI_DEVICE
 * says, which is for the other; all other variables count for both. Next: nccl_by_mpi.c. */
#include "tests/nccl/mpi.h"

#include "coll/door.h"

#include <tutti/tutti.h>

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

_Static_assert(sizeof(int) == 4 && sizeof(long) == 8 && sizeof(long long) == 8, "as in `types`");
static const enum tutti_type types[] = {
    [MPI_BYTE] = TUTTI_UINT8,      [MPI_INT] = TUTTI_INT32,     [MPI_LONG] = TUTTI_INT64,
    [MPI_LONG_LONG] = TUTTI_INT64, [MPI_INT64_T] = TUTTI_INT64, [MPI_DOUBLE] = TUTTI_FLOAT64,
};
static const enum tutti_op ops[] = {
    [MPI_SUM] = TUTTI_SUM,
    [MPI_MIN] = TUTTI_MIN,
    [MPI_MAX] = TUTTI_MAX,
};

static tutti_comm *world; /* from MPI_Init to MPI_Finalize */

/* In place of the library's (a flag of the linker). */
enum tutti_result __wrap_tti_gpu_in_use(const struct tti_gpu_ops **found);
enum tutti_result __wrap_tti_gpu_in_use(const struct tti_gpu_ops **found)
{
    *found = NULL;
    return TUTTI_OK;
}

/* ---- how it ends ---- */

/* At once: handlers at exit may wait for a device that waits for other ranks. The launcher ends
 * these. */
static _Noreturn void mpi_end(const char *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void mpi_end(const char *call, const char *format, ...)
{
    char text[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fflush(stdout);
    if (world)
        fprintf(stderr, "fake MPI, rank %d: %s: %s\n", tutti_comm_rank(world), call, text);
    else
        fprintf(stderr, "fake MPI: %s: %s\n", call, text);
    _exit(1);
}

static int mpi_done(const char *call, enum tutti_result result)
{
    if (result != TUTTI_OK)
        mpi_end(call, "%s", tutti_last_error());
    return MPI_SUCCESS;
}

/* ---- what arguments mean ---- */

static tutti_comm *mpi_comm(const char *call, MPI_Comm comm)
{
    if (!world)
        mpi_end(call, "called before MPI_Init, or after MPI_Finalize");
    if (comm == MPI_COMM_NULL)
        mpi_end(call, "the communicator is MPI_COMM_NULL");
    return comm == MPI_COMM_WORLD ? world : comm;
}

static enum tutti_type mpi_type(const char *call, MPI_Datatype type)
{
    const size_t number = (size_t)type;
    if (number == MPI_DATATYPE_NULL || number >= sizeof types / sizeof types[0])
        mpi_end(call, "%zu is none of the types in tests/nccl/mpi.h", number);
    return types[number];
}

static size_t mpi_count(const char *call, int count)
{
    if (count < 0)
        mpi_end(call, "a count of %d", count);
    return (size_t)count;
}

static size_t mpi_bytes(const char *call, int count, MPI_Datatype type)
{
    return mpi_count(call, count) * tutti_type_size(mpi_type(call, type));
}

/* Blocks of so many bytes, `in` its own one. */
static size_t mpi_block(const char *call, const void **in, int in_count, MPI_Datatype in_type,
                        void *out, int out_count, MPI_Datatype out_type, const tutti_comm *comm)
{
    const size_t bytes = mpi_bytes(call, out_count, out_type);
    if (*in == MPI_IN_PLACE)
        *in = (char *)out + (size_t)tutti_comm_rank(comm) * bytes;
    else if (mpi_bytes(call, in_count, in_type) != bytes)
        mpi_end(call, "%zu bytes of each rank, but room for %zu",
                mpi_bytes(call, in_count, in_type), bytes);
    return bytes;
}

/* ---- start, end, communicators ---- */

int MPI_Init(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    if (world)
        mpi_end("MPI_Init", "called twice");
    return mpi_done("MPI_Init", tutti_comm_create_from_env(NULL, &world));
}

int MPI_Finalize(void)
{
    tutti_comm *ended = mpi_comm("MPI_Finalize", MPI_COMM_WORLD);
    mpi_done("MPI_Finalize", tutti_barrier(ended));
    world = NULL;
    tutti_comm_destroy(ended);
    return MPI_SUCCESS;
}

int MPI_Comm_rank(MPI_Comm comm, int *rank)
{
    *rank = tutti_comm_rank(mpi_comm("MPI_Comm_rank", comm));
    return MPI_SUCCESS;
}

int MPI_Comm_size(MPI_Comm comm, int *size)
{
    *size = tutti_comm_size(mpi_comm("MPI_Comm_size", comm));
    return MPI_SUCCESS;
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *made)
{
    tutti_comm *parent = mpi_comm("MPI_Comm_split", comm);
    if (color < 0 && color != MPI_UNDEFINED)
        mpi_end("MPI_Comm_split", "a colour of %d", color);
    return mpi_done("MPI_Comm_split", tutti_comm_split(parent, color, key, made));
}

int MPI_Comm_free(MPI_Comm *comm)
{
    tutti_comm *freed = mpi_comm("MPI_Comm_free", *comm);
    if (freed == world)
        mpi_end("MPI_Comm_free", "MPI_COMM_WORLD lasts until MPI_Finalize");
    tutti_comm_destroy(freed);
    *comm = MPI_COMM_NULL;
    return MPI_SUCCESS;
}

/* ---- operations ---- */

int MPI_Barrier(MPI_Comm comm)
{
    return mpi_done("MPI_Barrier", tutti_barrier(mpi_comm("MPI_Barrier", comm)));
}

int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    tutti_comm *among = mpi_comm("MPI_Bcast", comm);
    const size_t bytes = mpi_bytes("MPI_Bcast", count, type);
    return mpi_done("MPI_Bcast", tutti_broadcast(buffer, buffer, bytes, TUTTI_UINT8, root, among));
}

int MPI_Allgather(const void *in, int in_count, MPI_Datatype in_type, void *out, int out_count,
                  MPI_Datatype out_type, MPI_Comm comm)
{
    tutti_comm *among = mpi_comm("MPI_Allgather", comm);
    const size_t bytes =
        mpi_block("MPI_Allgather", &in, in_count, in_type, out, out_count, out_type, among);
    return mpi_done("MPI_Allgather", tutti_all_gather(in, out, bytes, TUTTI_UINT8, among));
}

/* Only the root's `out`, and what is said of it, counts. */
int MPI_Gather(const void *in, int in_count, MPI_Datatype in_type, void *out, int out_count,
               MPI_Datatype out_type, int root, MPI_Comm comm)
{
    tutti_comm *among = mpi_comm("MPI_Gather", comm);
    size_t bytes = 0;
    if (tutti_comm_rank(among) == root)
        bytes = mpi_block("MPI_Gather", &in, in_count, in_type, out, out_count, out_type, among);
    else if (in == MPI_IN_PLACE)
        mpi_end("MPI_Gather", "MPI_IN_PLACE is for the root, which is %d", root);
    else
        bytes = mpi_bytes("MPI_Gather", in_count, in_type);
    return mpi_done("MPI_Gather", tutti_gather(in, out, bytes, TUTTI_UINT8, root, among));
}

int MPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    tutti_comm *among = mpi_comm("MPI_Allreduce", comm);
    const enum tutti_type elements = mpi_type("MPI_Allreduce", type);
    const size_t number = (size_t)op;
    if (type == MPI_BYTE)
        mpi_end("MPI_Allreduce", "MPI_BYTE is no number");
    if (number == MPI_OP_NULL || number >= sizeof ops / sizeof ops[0])
        mpi_end("MPI_Allreduce", "%zu is none of the operators in tests/nccl/mpi.h", number);
    return mpi_done("MPI_Allreduce", tutti_all_reduce(in == MPI_IN_PLACE ? out : in, out,
                                                      mpi_count("MPI_Allreduce", count), elements,
                                                      ops[number], among));
}
