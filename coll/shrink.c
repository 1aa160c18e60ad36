/* Shrinking: the survivors of a communicator make a new one without a word over the old one, whose
 * links, bootstrap and rank 0 may all be gone. What they need to meet was known before: the address
 * of the lowest survivor's host was exchanged when the parent was made, and the port and the secret
 * are hashes of the parent's secret and of who is left. */
#include "coll/comm.h"

#include "base/memory.h"
#include "launch/variables.h"

#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHRINK_PORTS = 16 };

/* How often this rank has shrunk the communicator to the same ranks. Each such list is counted by
 * those who are left by it: whom others have excluded before has not called. */
struct tti_shrunk {
    struct tti_shrunk *next;
    uint64_t list; /* a hash of who is left */
    uint32_t times;
};
static pthread_mutex_t shrunk_lock = PTHREAD_MUTEX_INITIALIZER;

enum tutti_result tutti_comm_dead(tutti_comm *comm, int *ranks, int capacity, int *count)
{
    if (!comm || !count || capacity < 0 || (capacity > 0 && !ranks))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_comm_dead: %s",
                        !comm    ? "comm is NULL"
                        : !count ? "count is NULL"
                                 : "the list of ranks is wrong");
    if (comm->forked)
        return tti_comm_check(comm);
    int found = 0;
    for (int r = 0; comm->boot && r < comm->size; r++)
        if (tti_boot_is_dead(comm->boot, r) && found++ < capacity)
            ranks[found - 1] = r;
    *count = found;
    return TUTTI_OK;
}

/* gone[r] for the excluded; how many are left. */
static enum tutti_result shrink_list(const struct tutti_comm *parent, const int *excluded,
                                     int count, bool *gone, int *left)
{
    *left = parent->size;
    for (int i = 0; i < count; i++) {
        if (excluded[i] < 0 || excluded[i] >= parent->size || excluded[i] == parent->rank)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                            "tutti_comm_shrink: excluded[%d] is %d; expected a rank from 0 to %d "
                            "that is not the caller's (%d)",
                            i, excluded[i], parent->size - 1, parent->rank);
        *left -= !gone[excluded[i]];
        gone[excluded[i]] = true;
    }
    return TUTTI_OK;
}

/* The same on all survivors, and unknown to whoever does not know the parent's secret. */
static void shrink_secret(const struct tutti_comm *parent, const bool *gone, uint32_t turn,
                          uint8_t secret[static TTI_SECRET_BYTES])
{
    crypto_generichash_state state;
    crypto_generichash_init(&state, parent->meeting.secret, sizeof parent->meeting.secret,
                            TTI_SECRET_BYTES);
    crypto_generichash_update(&state, (const unsigned char *)"tutti shrink", 12);
    crypto_generichash_update(&state, (const unsigned char *)&parent->job, sizeof parent->job);
    crypto_generichash_update(&state, (const unsigned char *)&turn, sizeof turn);
    crypto_generichash_update(&state, (const unsigned char *)gone,
                              (unsigned long long)parent->size * sizeof *gone);
    crypto_generichash_final(&state, secret, TTI_SECRET_BYTES);
}

/* How often it has been done for that list; this time is counted. */
static enum tutti_result shrink_turn(struct tutti_comm *parent, const bool *gone, uint32_t *turn)
{
    uint8_t hash[crypto_generichash_BYTES_MIN];
    uint64_t list = 0;
    crypto_generichash(hash, sizeof hash, (const unsigned char *)gone,
                       (unsigned long long)parent->size * sizeof *gone, NULL, 0);
    memcpy(&list, hash, sizeof list);
    pthread_mutex_lock(&shrunk_lock);
    struct tti_shrunk *s = parent->shrunk;
    while (s && s->list != list)
        s = s->next;
    if (!s && (s = tti_calloc(1, sizeof *s)) != NULL) {
        *s = (struct tti_shrunk){.next = parent->shrunk, .list = list};
        parent->shrunk = s;
    }
    if (s)
        *turn = s->times++;
    pthread_mutex_unlock(&shrunk_lock);
    return s ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

size_t tti_shrunk_bytes(const struct tutti_comm *comm)
{
    size_t bytes = 0;
    pthread_mutex_lock(&shrunk_lock);
    for (const struct tti_shrunk *s = comm->shrunk; s; s = s->next)
        bytes += tti_heap_bytes(s);
    pthread_mutex_unlock(&shrunk_lock);
    return bytes;
}

void tti_shrunk_free(struct tutti_comm *comm)
{
    while (comm->shrunk) {
        struct tti_shrunk *next = comm->shrunk->next;
        free(comm->shrunk);
        comm->shrunk = next;
    }
}

static void shrink_meeting(const struct tutti_comm *parent, const bool *gone, uint32_t turn,
                           struct tti_meeting *meeting)
{
    char facts[2 * crypto_generichash_BYTES_MIN + 1];
    uint8_t hash[crypto_generichash_BYTES_MIN];
    int first = 0;
    while (gone[first])
        first++;
    memset(meeting, 0, sizeof *meeting);
    shrink_secret(parent, gone, turn, meeting->secret);
    /* The port is no secret: a hash of the secret, not a part of it. */
    crypto_generichash(hash, sizeof hash, meeting->secret, sizeof meeting->secret, NULL, 0);
    sodium_bin2hex(facts, sizeof facts, hash, sizeof hash);
    meeting->port = tti_port_from(facts);
    meeting->ports = SHRINK_PORTS;
    meeting->listen_fd = -1;
    snprintf(meeting->host, sizeof meeting->host, "%s", tti_peers_address(&parent->peers, first));
}

enum tutti_result tutti_comm_shrink(tutti_comm *parent, const int *excluded, int count,
                                    tutti_comm **comm)
{
    if (!parent || !comm || count < 0 || (count > 0 && !excluded))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_comm_shrink: %s",
                        !parent ? "parent is NULL"
                        : !comm ? "comm is NULL"
                                : "the list of excluded ranks is wrong");
    if (parent->forked)
        return tti_comm_check(parent);
    bool *gone = tti_calloc((size_t)parent->size, sizeof *gone);
    int *members = tti_calloc((size_t)parent->size, sizeof *members);
    int left = 0, rank = 0;
    uint32_t turn = 0;
    enum tutti_result result = gone && members ? TUTTI_OK : TUTTI_ERR_MEMORY;
    if (result == TUTTI_OK)
        result = shrink_list(parent, excluded, count, gone, &left);
    if (result == TUTTI_OK)
        result = shrink_turn(parent, gone, &turn);
    if (result == TUTTI_OK) {
        struct tti_meeting meeting;
        shrink_meeting(parent, gone, turn, &meeting);
        for (int r = 0, next = 0; r < parent->size; r++) {
            rank = r == parent->rank ? next : rank;
            if (!gone[r])
                members[next++] = r;
        }
        result = tti_comm_open_child(parent, &meeting, members, rank, left, comm);
        sodium_memzero(meeting.secret, sizeof meeting.secret);
        if (result != TUTTI_OK)
            result = TTI_CONTEXT(result, "while shrinking from %d ranks to %d", parent->size, left);
    }
    free(gone);
    free(members);
    return result;
}
