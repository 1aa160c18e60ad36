/* The part of MPI's interface that nccl-tests call with several processes, as fake_mpi.c offers it
 * where there is no MPI. Names and meanings are those of the MPI standard, values our own: a
 * program that was compiled with this header wants that library. What is not here, or is called
 * otherwise than the comments say, is not supported: it does not compile, or ends the program with
 * a text. An error does, too, so that every function returns MPI_SUCCESS. */
#ifndef TTI_TESTS_NCCL_MPI_H
#define TTI_TESTS_NCCL_MPI_H

#ifdef __cplusplus
extern "C" {
#endif

#define MPI_SUCCESS 0
#define MPI_UNDEFINED (-1)
#define MPI_IN_PLACE ((void *)1)

typedef struct tutti_comm *MPI_Comm;
#define MPI_COMM_NULL ((MPI_Comm)0)
#define MPI_COMM_WORLD ((MPI_Comm)1)

/* In C++ MPI_Datatype() and MPI_Op() are the null ones. */
typedef enum mpi_datatype {
    MPI_DATATYPE_NULL,
    MPI_BYTE,
    MPI_INT,
    MPI_LONG,
    MPI_LONG_LONG,
    MPI_INT64_T,
    MPI_DOUBLE,
} MPI_Datatype;

typedef enum mpi_op {
    MPI_OP_NULL,
    MPI_SUM,
    MPI_MIN,
    MPI_MAX,
} MPI_Op;

/* By the variables of tuttirun, or another launcher that Tutti knows; without any: one process. */
int MPI_Init(int *argc, char ***argv);
int MPI_Finalize(void);

int MPI_Comm_rank(MPI_Comm comm, int *rank);
int MPI_Comm_size(MPI_Comm comm, int *size);
/* With MPI_UNDEFINED *made is MPI_COMM_NULL. */
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *made);
int MPI_Comm_free(MPI_Comm *comm);

int MPI_Barrier(MPI_Comm comm);
int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm);
/* MPI_IN_PLACE for `in` is legal here, in the gather at the root. Blocks go out as large as they
 * come in. */
int MPI_Allgather(const void *in, int in_count, MPI_Datatype in_type, void *out, int out_count,
                  MPI_Datatype out_type, MPI_Comm comm);
int MPI_Gather(const void *in, int in_count, MPI_Datatype in_type, void *out, int out_count,
               MPI_Datatype out_type, int root, MPI_Comm comm);
/* And here; every type but MPI_BYTE. */
int MPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm);

#ifdef __cplusplus
}
#endif

#endif
