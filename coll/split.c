/* Splitting a communicator. The parent carries what the children need to meet: colours and keys
 * first, then an id from the lowest rank of each new communicator. */
#include "coll/comm.h"

#include "base/config.h"
#include "base/memory.h"
#include "coll/group.h"

#include <stdlib.h>
#include <string.h>

struct split_member {
    int32_t color, key, rank;
};

static int split_compare(const void *a, const void *b)
{
    const struct split_member *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Members of `color`, in the order of the new ranks; returns how many, *mine is the own new rank.
 */
static int split_members(struct split_member *all, int size, int color, int rank, int *mine)
{
    int count = 0;
    for (int r = 0; r < size; r++)
        if (all[r].color == color)
            all[count++] = all[r];
    qsort(all, (size_t)count, sizeof *all, split_compare);
    for (int i = 0; i < count; i++)
        if (all[i].rank == rank)
            *mine = i;
    return count;
}

const char *tti_comm_meeting_address(const struct tutti_comm *parent)
{
    if (parent->peers.nhosts == 1)
        return "127.0.0.1";
    return tti_config_text("TUTTI_IFNAME") ? NULL : tti_peers_address(&parent->peers, parent->rank);
}

/* Leaders make an id; everybody learns that of its leader. */
static enum tutti_result split_ids(struct tutti_comm *parent, bool leader, int leader_rank,
                                   struct tutti_id *id)
{
    struct tutti_id mine = {""};
    struct tti_error error = {.code = TUTTI_OK};
    struct tutti_id *all = tti_calloc((size_t)parent->size, sizeof *all);
    if (!all)
        return TUTTI_ERR_MEMORY;
    enum tutti_result made =
        leader ? tti_id_make(tti_comm_meeting_address(parent), false, &mine) : TUTTI_OK;
    if (made != TUTTI_OK) {
        tti_error_save(&error, made);
        memset(&mine, 0, sizeof mine); /* tells the members */
    }
    enum tutti_result result = tutti_all_gather(&mine, all, sizeof mine, TUTTI_UINT8, parent);
    if (result == TUTTI_OK && leader_rank >= 0)
        *id = all[leader_rank];
    free(all);
    if (result != TUTTI_OK && mine.text[0])
        tti_id_forget(&mine); /* nobody will come */
    TTI_TRY(result);
    if (error.code != TUTTI_OK)
        return tti_error_restore(&error);
    if (leader_rank >= 0 && !id->text[0])
        return TTI_FAIL(TUTTI_ERR_PEER,
                        "rank %d, which leads the new communicator, could not "
                        "start to listen for it (its own error says why)",
                        leader_rank);
    return TUTTI_OK;
}

enum tutti_result tti_comm_open_child(const struct tutti_comm *parent,
                                      const struct tti_meeting *meeting, int rank, int size,
                                      struct tutti_comm **comm)
{
    const struct tti_settings *s = &parent->settings;
    struct tutti_options options = TUTTI_OPTIONS_INIT;
    options.timeout_s = s->timeout_s;
    options.init_timeout_s = s->init_timeout_s;
    options.transports = s->transports;
    options.algorithms = s->algorithms;
    options.plugins = s->plugins;
    options.lanes = s->lanes_forced ? s->lanes : 0;
    options.reproducible = s->reproducible;
    return tti_comm_open(meeting, rank, size, &options,
                         parent->family ? parent->family : parent->job, comm);
}

enum tutti_result tutti_comm_split(tutti_comm *parent, int color, int key, tutti_comm **comm)
{
    if (!parent || !comm)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_comm_split: %s is NULL",
                        parent ? "comm" : "parent");
    TTI_TRY(tti_group_refuse("tutti_comm_split"));
    struct split_member mine = {.color = color, .key = key, .rank = parent->rank};
    struct split_member *all = tti_calloc((size_t)parent->size, sizeof *all);
    if (!all)
        return TUTTI_ERR_MEMORY;
    int new_rank = 0, new_size = 0, leader = -1;
    struct tutti_id id;
    enum tutti_result result = tutti_all_gather(&mine, all, sizeof mine, TUTTI_UINT8, parent);
    if (result == TUTTI_OK && color >= 0) {
        new_size = split_members(all, parent->size, color, parent->rank, &new_rank);
        leader = all[0].rank;
    }
    free(all);
    TTI_TRY(result);
    TTI_TRY(split_ids(parent, leader == parent->rank, leader, &id));
    if (color < 0) {
        *comm = NULL;
        return TUTTI_OK;
    }
    struct tti_meeting meeting;
    TTI_TRY(tti_meeting_from_id(&id, new_rank, &meeting));
    result = tti_comm_open_child(parent, &meeting, new_rank, new_size, comm);
    return result == TUTTI_OK ? TUTTI_OK
                              : TTI_CONTEXT(result, "while splitting off colour %d", color);
}
