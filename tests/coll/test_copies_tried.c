/* An operation that receives by several lanes finds out how to copy: the executor begins by stores,
 * goes over to strings for a trial, and then to what was quicker; who receives nothing has nothing
 * to find out. Always the same bits. On a mesh, too: this test says that there is none. */
#include "coll/exec_internal.h"
#include "coll/select.h"
#include "device/cpu_caches.h"
#include "device/reduce.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <stdlib.h>
#include <string.h>

enum {
    RANKS = 2,
    BYTES = 512 << 10,
    TRIALS = TTI_COPY_WAYS * TTI_COPY_TRIAL,
    AFTER = 2 * TTI_COPY_WATCH
};

bool __wrap_tti_cpu_meshed(void);
bool __wrap_tti_cpu_meshed(void)
{
    return false;
}

/* Second-level caches of a quarter of a MiB, an L3 that holds all. */
size_t __wrap_tti_cpu_second_cache(void);
size_t __wrap_tti_cpu_second_cache(void)
{
    return BYTES / 2;
}
size_t __wrap_tti_cpu_last_cache(void);
size_t __wrap_tti_cpu_last_cache(void)
{
    return 32 << 20;
}

/* How the operation under way was told to copy. */
static struct {
    int asked;
    bool strings, timed;
    float took; /* as made up below */
} told;

void __real_tti_copy_choose(bool strings, bool timed);
void __wrap_tti_copy_choose(bool strings, bool timed);
void __wrap_tti_copy_choose(bool strings, bool timed)
{
    told.asked++;
    told.strings = strings;
    told.timed = timed;
    __real_tti_copy_choose(strings, timed);
}

/* Something was timed where it should have been; strings are quicker, whatever they really take. */
float __real_tti_copy_took(void);
float __wrap_tti_copy_took(void);
float __wrap_tti_copy_took(void)
{
    told.took = __real_tti_copy_took();
    return told.took > 0 ? (told.strings ? 0.017F : 0.020F) : 0;
}

static int broadcasts(tutti_comm *comm, char *data, size_t bytes)
{
    for (int i = 0; i < TRIALS + AFTER; i++) {
        const bool receives = comm->rank != 0;
        memset(data, receives ? 0x5a : i, bytes);
        memset(&told, 0, sizeof told);
        CHECK_OK(tutti_broadcast(data, data, bytes, TUTTI_UINT8, 0, comm));
        for (size_t at = 0; at < bytes; at++)
            CHECK(data[at] == (char)i);
        CHECK(told.asked == 1);
        CHECK(told.strings == (receives && i >= TTI_COPY_TRIAL));
        CHECK((told.took > 0) == (receives && told.timed));
        if (receives)
            CHECK(told.timed == (i < TRIALS ? i % TTI_COPY_TRIAL >= TTI_COPY_TRIAL - TTI_COPY_TIMED
                                            : (i - TRIALS) % TTI_COPY_WATCH == TTI_COPY_WATCH - 1));
    }
    return 0;
}

static int body(tutti_comm *comm, void *argument)
{
    struct tti_ways ways;
    (void)argument;
    char *data = malloc(BYTES);
    int bad = !data, lanes = 0;
    comm->settings.fast = false;
    CHECK_OK(tti_select_ways(comm, TUTTI_BROADCAST, BYTES, TUTTI_UINT8, false, &ways));
    for (int i = 0; i < ways.count && lanes < 2; i++) {
        if (ways.way[i].path != TTI_PATH_PLAN || ways.way[i].spec.lanes < 2)
            continue;
        lanes = ways.way[i].spec.lanes;
        tti_select_try(comm, &ways.way[i]);
        bad = bad || broadcasts(comm, data, BYTES);
        tti_select_try(comm, NULL);
    }
    free(data);
    CHECK(lanes > 1);
    return bad;
}

int main(void)
{
    struct tti_ranks how = {.ranks = RANKS, .processes = true, .options = TUTTI_OPTIONS_INIT};
    how.options.transports = "shm";
    return tti_ranks_run(&how, body, NULL);
}
