/* The table of connections of this process, and bells (connection.h). */
#include "transport/inproc/connection.h"

#include "base/memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct inproc_connection *table; /* those that one side has joined, and none has left */

/* ---- bells ---------------------------------------------------------------------------------- */

enum tutti_result tti_inproc_bell_create(struct inproc_bell **bell)
{
    struct inproc_bell *made = tti_calloc(1, sizeof *made);
    if (!made)
        return TUTTI_ERR_MEMORY;
    made->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (made->fd < 0) {
        free(made);
        return TTI_FAIL_ERRNO("eventfd for the wake-ups of an inproc transport");
    }
    atomic_init(&made->holders, 1);
    *bell = made;
    return TUTTI_OK;
}

void tti_inproc_bell_drop(struct inproc_bell *bell)
{
    if (!bell || atomic_fetch_sub(&bell->holders, 1) > 1)
        return;
    close(bell->fd);
    free(bell);
}

void tti_inproc_bell_ring(struct inproc_bell *bell)
{
    tti_full_fence(); /* pairs with the one in inproc_arm: it sees our news, or we see it asleep */
    if (!atomic_load_explicit(&bell->sleeping, memory_order_relaxed))
        return;
    if (atomic_exchange(&bell->sleeping, 0)) { /* whoever clears the flag writes, once */
        uint64_t one = 1;
        ssize_t ignored = write(bell->fd, &one, sizeof one);
        (void)ignored; /* EAGAIN: the counter is full, so the fd is readable anyway */
    }
}

/* ---- connections ---------------------------------------------------------------------------- */

/* Compare without telling by the time taken where the difference is. */
static bool connection_same_secret(const uint8_t *a, const uint8_t *b)
{
    unsigned difference = 0;
    for (int i = 0; i < TUTTI_SECRET_BYTES; i++)
        difference |= (unsigned)(a[i] ^ b[i]);
    return difference == 0;
}

static void connection_free(struct inproc_connection *connection)
{
    tti_inproc_bell_drop(connection->bell[0]);
    tti_inproc_bell_drop(connection->bell[1]);
    free(connection->rings);
    free(connection);
}

static struct inproc_connection *connection_make(const struct tutti_transport_env *env,
                                                 const int ranks[2], int lanes)
{
    struct inproc_connection *made = tti_calloc_aligned(TTI_CACHE_LINE, 1, sizeof *made);
    if (!made)
        return NULL;
    made->rings = tti_calloc_aligned(TTI_CACHE_LINE, 2 * (size_t)lanes, sizeof *made->rings);
    if (!made->rings) {
        free(made);
        return NULL;
    }
    made->job = env->job;
    made->ranks[0] = ranks[0];
    made->ranks[1] = ranks[1];
    made->lanes = lanes;
    memcpy(made->secret, env->secret, sizeof made->secret);
    return made;
}

/* The place in the table that holds the connection that waits for `side`; *NULL if there is none.
 */
static struct inproc_connection **connection_find(uint64_t job, const int ranks[2], int side)
{
    struct inproc_connection **at = &table;
    while (*at && ((*at)->job != job || (*at)->ranks[0] != ranks[0] ||
                   (*at)->ranks[1] != ranks[1] || tti_load_acquire(&(*at)->joined[side])))
        at = &(*at)->next;
    return at;
}

static enum tutti_result connection_join_locked(const struct tutti_transport_env *env,
                                                const int ranks[2], int side, int lanes,
                                                struct inproc_bell *bell,
                                                struct inproc_connection **connection)
{
    struct inproc_connection **at = connection_find(env->job, ranks, side);
    struct inproc_connection *found = *at;
    if (found && !connection_same_secret(found->secret, env->secret))
        return TTI_FAIL(TUTTI_ERR_PROTOCOL,
                        "connecting rank %d to %d in this process: the ranks have different job "
                        "secrets",
                        env->rank, ranks[!side]);
    if (found && found->lanes != lanes)
        return TTI_FAIL(TUTTI_ERR_PROTOCOL,
                        "connecting rank %d to %d in this process: %d lanes here, %d there",
                        env->rank, ranks[!side], lanes, found->lanes);
    if (found) {
        *at = found->next; /* complete: nobody else will look for it */
    } else {
        found = connection_make(env, ranks, lanes);
        if (!found)
            return TUTTI_ERR_MEMORY;
        found->next = table;
        table = found;
    }
    found->holders++;
    atomic_fetch_add(&bell->holders, 1);
    found->bell[side] = bell;
    tti_store_release(&found->joined[side], 1);
    if (tti_load_acquire(&found->joined[!side]))
        tti_inproc_bell_ring(found->bell[!side]);
    *connection = found;
    return TUTTI_OK;
}

enum tutti_result tti_inproc_connection_join(const struct tutti_transport_env *env, int peer,
                                             int lanes, struct inproc_bell *bell,
                                             struct inproc_connection **connection)
{
    int side = env->rank > peer;
    int ranks[2] = {side ? peer : env->rank, side ? env->rank : peer};
    pthread_mutex_lock(&table_lock);
    enum tutti_result result = connection_join_locked(env, ranks, side, lanes, bell, connection);
    pthread_mutex_unlock(&table_lock);
    return result;
}

void tti_inproc_connection_leave(struct inproc_connection *connection, int side,
                                 enum inproc_left how)
{
    pthread_mutex_lock(&table_lock);
    for (struct inproc_connection **at = &table; *at; at = &(*at)->next)
        if (*at == connection) {
            *at = connection->next;
            break;
        }
    tti_store_release(&connection->left[side], how);
    tti_full_fence(); /* before what was lent is written again */
    if (tti_load_acquire(&connection->joined[!side]))
        tti_inproc_bell_ring(connection->bell[!side]);
    bool last = --connection->holders == 0;
    pthread_mutex_unlock(&table_lock);
    if (last)
        connection_free(connection);
}
