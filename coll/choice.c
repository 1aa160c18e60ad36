/* Telling a program what selection would do (tutti.h, "Expert"). */
#include "coll/comm.h"
#include "coll/select.h"
#include "coll/tuning.h"

#include <string.h>

static void choice_of(const struct tti_selection *way, struct tutti_choice *choice)
{
    struct tutti_choice made = {.lanes = way->spec.lanes,
                                .slices = way->spec.slices,
                                .predicted_us = way->predicted_s * 1e6,
                                .modelled_us = way->modelled_s * 1e6,
                                .measured = way->measured};
    strncpy(made.algorithm, way->algorithm->name, sizeof made.algorithm - 1);
    strncpy(made.path, tti_path_names[way->path], sizeof made.path - 1);
    *choice = made;
}

static bool choice_alike(const struct tti_selection *a, const struct tti_selection *b)
{
    return a->index == b->index && a->path == b->path && a->spec.lanes == b->spec.lanes;
}

/* Whether memory is mapped shows only when the fused path is tried (coll/run.c). Where that is not
 * the best way for mapped memory, what is runs with any memory, whatever else would be quicker. */
static enum tutti_result choice_as_taken(struct tutti_comm *comm, enum tutti_collective collective,
                                         size_t count, enum tutti_type type, struct tti_ways *ways)
{
    struct tti_selection taken;
    int at = 0;
    TTI_TRY(tti_select(comm, collective, count, type, 0, &taken));
    if (taken.path == TTI_PATH_FUSED)
        return TUTTI_OK;
    while (at < ways->count && !choice_alike(&ways->way[at], &taken))
        at++;
    if (at < ways->count) /* what it takes in this memory is known, too */
        taken = ways->way[at];
    else
        at = ways->count < TTI_MOST_WAYS ? ways->count++ : TTI_MOST_WAYS - 1;
    memmove(&ways->way[1], &ways->way[0], (size_t)at * sizeof ways->way[0]);
    ways->way[0] = taken;
    return TUTTI_OK;
}

enum tutti_result tutti_comm_choices(tutti_comm *comm, enum tutti_collective collective,
                                     size_t count, enum tutti_type type, bool mapped,
                                     struct tutti_choice *choices, int capacity, int *found)
{
    struct tti_ways ways;
    if (!comm || !choices || !found || capacity < 1 || !tutti_type_size(type) ||
        (unsigned)collective >= TUTTI_SEND_RECV)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "tutti_comm_choices: comm, choices or found is NULL, or type %d, "
                        "collective %d or capacity %d does not exist",
                        (int)type, (int)collective, capacity);
    tti_work_pause(comm); /* selection keeps what it found, for operations too */
    enum tutti_result result = tti_select_ways(comm, collective, count, type, mapped, &ways);
    if (result == TUTTI_OK && !mapped)
        result = choice_as_taken(comm, collective, count, type, &ways);
    tti_work_resume(comm);
    TTI_TRY(result);
    int given = ways.count < capacity ? ways.count : capacity;
    for (int i = 0; i < given; i++)
        choice_of(&ways.way[i], &choices[i]);
    *found = given;
    return TUTTI_OK;
}

enum tutti_result tutti_comm_choice(tutti_comm *comm, enum tutti_collective collective,
                                    size_t count, enum tutti_type type, struct tutti_choice *choice)
{
    int found = 0;
    return tutti_comm_choices(comm, collective, count, type, true, choice, 1, &found);
}

const char *tutti_comm_tuning(const tutti_comm *comm)
{
    return comm->tuning_source;
}
