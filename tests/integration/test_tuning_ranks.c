/* Ranks and the tuning file: the same one is used by all, and shows; different ones are used by
 * none, and the ranks work all the same. */
#include "coll/algorithms/algorithms.h"
#include "coll/tuning.h"
#include "tests/integration/ranks.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[2][64]; /* files that name ring and tree as the fastest */
static bool same;

static int write_file(int which)
{
    struct tti_tuning *tuning = NULL;
    struct tti_series series = {.collective = TUTTI_ALL_REDUCE,
                                .medium = TTI_MAPPED,
                                .ranks = 3,
                                .hosts = 1,
                                .algorithm = which, /* ring is number 0, tree 1 */
                                .lanes = 1,
                                .count = 1,
                                .point = {{1024, 1e-6}}};
    int fd = mkstemp(strcpy(path[which], "/tmp/test_tuning_ranks.XXXXXX"));
    if (fd < 0 || close(fd) != 0 || tti_tuning_create(&tuning) != TUTTI_OK)
        return 1;
    tti_machine_identify("", &tuning->machine);
    int bad = tti_tuning_add(tuning, &series) != TUTTI_OK ||
              tti_tuning_write(tuning, path[which]) != TUTTI_OK;
    tti_tuning_destroy(tuning);
    return bad;
}

static void prepare(int rank)
{
    setenv("TUTTI_TUNING", path[same || rank == 0], 1);
}

static int check(tutti_comm *comm, void *argument)
{
    struct tutti_choice choice;
    float x[256] = {1}, sum[256];
    (void)argument;
    if (tutti_comm_choice(comm, TUTTI_ALL_REDUCE, 256, TUTTI_FLOAT32, &choice) != TUTTI_OK ||
        tutti_all_reduce(x, sum, 256, TUTTI_FLOAT32, TUTTI_SUM, comm) != TUTTI_OK)
        return 1;
    bool used = strcmp(tutti_comm_tuning(comm), path[1]) == 0;
    bool told = strstr(tutti_comm_tuning(comm), "ranks 0 and 1 have different ones") != NULL;
    bool tree = strcmp(choice.algorithm, "tree") == 0;
    bool right = same ? used && choice.measured && tree : told && !choice.measured;
    if (!right || sum[0] != 3)
        return fprintf(stderr, "tuning \"%s\", algorithm %s, sum %g\n", tutti_comm_tuning(comm),
                       choice.algorithm, (double)sum[0]),
               1;
    return 0;
}

int main(void)
{
    struct tti_ranks how = {
        .ranks = 3, .processes = true, .options = TUTTI_OPTIONS_INIT, .prepare = prepare};
    how.options.transports = "shm";
    int failed = write_file(0) || write_file(1);
    for (int round = 0; round < 2 && !failed; round++) {
        same = round == 1;
        failed = tti_ranks_run(&how, check, NULL);
        printf("%s files: %s\n", same ? "equal" : "different", failed ? "FAILED" : "ok");
    }
    unlink(path[0]);
    unlink(path[1]);
    return failed ? 1 : 0;
}
