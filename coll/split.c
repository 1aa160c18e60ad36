/* Splitting a communicator. The parent carries what the children need to meet: colours and keys
 * first, then an id from the lowest rank of each new communicator. */
#include "coll/comm.h"

#include "base/config.h"
#include "base/memory.h"
#include "coll/group.h"

#include <poll.h>
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

/* Who is to come to a new communicator, by their ranks in its parent. */
struct child_guests {
    const struct tutti_comm *parent;
    const int *members; /* NULL: all of it, in order */
    int count;
    int dead; /* the first of them that is known to have died; -1: none */
};

static bool child_in_vain(void *context)
{
    struct child_guests *guests = context;
    for (int i = 0; i < guests->count && guests->dead < 0; i++) {
        const int rank = guests->members ? guests->members[i] : i;
        if (tti_boot_is_dead(guests->parent->boot, rank))
            guests->dead = rank;
    }
    return guests->dead >= 0;
}

/* What the new one says of a death has no name yet; the parent knows it, or will in a moment. */
static bool child_bereaved(struct child_guests *guests, enum tutti_result result)
{
    enum { PATIENCE_MS = 500, TURN_MS = 20 };
    const bool lost = result == TUTTI_ERR_PEER || result == TUTTI_ERR_LINK;
    struct tti_error error;
    tti_error_save(&error, result);
    for (int ms = 0; guests->parent->boot && !child_in_vain(guests) && lost && ms < PATIENCE_MS;
         ms += TURN_MS)
        (void)poll(NULL, 0, TURN_MS);
    (void)tti_error_restore(&error);
    return guests->dead >= 0;
}

static enum tutti_result child_open(const struct tti_meeting *meeting, int rank,
                                    const struct tutti_options *options,
                                    struct child_guests *guests, struct tutti_comm **comm)
{
    const struct tutti_comm *parent = guests->parent;
    const struct tti_boot_vain vain = {child_in_vain, guests};
    const struct tti_boot_vain *before = tti_boot_cancel_when(parent->boot ? &vain : NULL);
    const enum tutti_result result = tti_comm_open(
        meeting, rank, guests->count, options, parent->family ? parent->family : parent->job, comm);
    (void)tti_boot_cancel_when(before);
    if (result == TUTTI_OK || !child_bereaved(guests, result))
        return result;
    return TTI_FAIL(TUTTI_ERR_PEER,
                    "rank %d (%s) of the communicator that this one comes from died, and was to be "
                    "one of its %d",
                    guests->dead, parent->peers.all[guests->dead].name, guests->count);
}

enum tutti_result tti_comm_open_child(const struct tutti_comm *parent,
                                      const struct tti_meeting *meeting, const int *members,
                                      int rank, int size, struct tutti_comm **comm)
{
    const struct tti_settings *s = &parent->settings;
    struct child_guests guests = {parent, members, size, -1};
    struct tutti_options options = TUTTI_OPTIONS_INIT;
    options.timeout_s = s->timeout_s;
    options.init_timeout_s = s->init_timeout_s;
    options.transports = s->transports;
    options.algorithms = s->algorithms;
    options.plugins = s->plugins;
    options.lanes = s->lanes_forced ? s->lanes : 0;
    options.reproducible = s->reproducible;
    return child_open(meeting, rank, &options, &guests, comm);
}

/* By the id of the first of them. A negative colour has none. */
static enum tutti_result split_join(struct tutti_comm *parent, int color, const int *members,
                                    int rank, int size, struct tutti_comm **comm)
{
    const int leader = size > 0 ? members[0] : -1;
    struct tutti_id id;
    struct tti_meeting meeting;
    TTI_TRY(split_ids(parent, leader == parent->rank, leader, &id));
    if (size == 0) {
        *comm = NULL;
        return TUTTI_OK;
    }
    TTI_TRY(tti_meeting_from_id(&id, rank, &meeting));
    const enum tutti_result result =
        tti_comm_open_child(parent, &meeting, members, rank, size, comm);
    return result == TUTTI_OK ? TUTTI_OK
                              : TTI_CONTEXT(result, "while splitting off colour %d", color);
}

enum tutti_result tutti_comm_split(tutti_comm *parent, int color, int key, tutti_comm **comm)
{
    if (!parent || !comm)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_comm_split: %s is NULL",
                        parent ? "comm" : "parent");
    TTI_TRY(tti_group_refuse("tutti_comm_split"));
    struct split_member mine = {.color = color, .key = key, .rank = parent->rank};
    struct split_member *all = tti_calloc((size_t)parent->size, sizeof *all);
    int *members = tti_calloc((size_t)parent->size, sizeof *members);
    int new_rank = 0, new_size = 0;
    enum tutti_result result = all && members ? TUTTI_OK : TUTTI_ERR_MEMORY;
    if (result == TUTTI_OK)
        result = tutti_all_gather(&mine, all, sizeof mine, TUTTI_UINT8, parent);
    if (result == TUTTI_OK && color >= 0) {
        new_size = split_members(all, parent->size, color, parent->rank, &new_rank);
        for (int i = 0; i < new_size; i++)
            members[i] = all[i].rank;
    }
    free(all);
    if (result == TUTTI_OK)
        result = split_join(parent, color, members, new_rank, new_size, comm);
    free(members);
    return result;
}
