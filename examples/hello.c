/* Hello, all ranks: each gives a vector, all get the sum. Compile against an installed Tutti:
 *     cc hello.c $(pkg-config --cflags --libs tutti) -o hello
 * Run it alone (one rank), or as many: tuttirun -n 4 ./hello, or under mpirun, mpiexec, srun. */
#include <stdio.h>
#include <tutti/tutti.h>

enum { COUNT = 1000 };

static int check(enum tutti_result result)
{
    if (result != TUTTI_OK)
        fprintf(stderr, "hello: %s: %s\n", tutti_result_text(result), tutti_last_error());
    return result == TUTTI_OK;
}

int main(void)
{
    tutti_comm *comm = NULL;
    if (!check(tutti_comm_create_from_env(NULL, &comm)))
        return 1;
    int rank = tutti_comm_rank(comm);
    int size = tutti_comm_size(comm);

    float in[COUNT], sum[COUNT];
    for (int i = 0; i < COUNT; i++)
        in[i] = (float)(rank + i);
    int ok = check(tutti_all_reduce(in, sum, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm));

    /* Rank r gave r + i, so that the sum is 0 + 1 + ... + size-1, and size times i. */
    for (int i = 0; ok && i < COUNT; i++)
        ok = sum[i] == (float)(size * (size - 1) / 2 + size * i);
    if (ok && rank == 0)
        printf("hello from %d ranks: sum[1] = %g, all %d as expected\n", size, (double)sum[1],
               (int)COUNT);
    tutti_comm_destroy(comm);
    return ok ? 0 : 1;
}
