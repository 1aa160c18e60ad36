/* Fuzzes the reader of the tuning file. What is accepted is written again and read again as the
 * same, and selection can use it. */
#include "coll/select.h"
#include "coll/tuning.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static char *written(const struct tti_tuning *tuning, size_t *bytes)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes);
    require(out != NULL);
    require(tti_tuning_write_json(tuning, out) == TUTTI_OK);
    require(fclose(out) == 0);
    return text;
}

static void choose(struct tti_tuning *tuning)
{
    static struct tutti_comm comm;
    static const double no_caches[3];
    memset(&comm, 0, sizeof comm);
    comm.size = 2;
    comm.peers.nhosts = 1;
    comm.settings.lanes = 16;
    comm.tuning = tuning;
    tti_profile_default(no_caches, TTI_CPU_CLUSTERS, 2, &comm.profile);
    for (int medium = 0; medium < TTI_MEDIA; medium++)
        if (tuning->fitted[medium])
            memcpy(comm.profile.cost[medium], tuning->cost[medium], sizeof tuning->cost[medium]);
    for (size_t count = 1; count < (size_t)1 << 40; count <<= 13) {
        struct tti_selection s;
        require(tti_select(&comm, TUTTI_ALL_REDUCE, count, TUTTI_INT8, 0, &s) == TUTTI_OK);
        require(s.algorithm != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tti_tuning *first = NULL, *second = NULL;
    size_t once_bytes = 0, twice_bytes = 0;
    enum tutti_result result = tti_tuning_from_json((const char *)data, bytes, &first);
    if (result != TUTTI_OK) {
        require(!first && *tutti_last_error());
        return 0;
    }
    char *once = written(first, &once_bytes);
    require(tti_tuning_from_json(once, once_bytes, &second) == TUTTI_OK);
    char *twice = written(second, &twice_bytes);
    require(once_bytes == twice_bytes && memcmp(once, twice, once_bytes) == 0);
    choose(first);
    free(once);
    free(twice);
    tti_tuning_destroy(first);
    tti_tuning_destroy(second);
    return 0;
}
