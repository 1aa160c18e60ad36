/* Taking communicators away from a child (coll/forked.h). */
#include "coll/forked.h"

#include "coll/comm.h"

#include <stdio.h>

static pthread_once_t forked_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t forked_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tutti_comm *forked_all;

static void forked_before(void)
{
    pthread_mutex_lock(&forked_lock);
}

static void forked_parent(void)
{
    pthread_mutex_unlock(&forked_lock);
}

/* Locks may have been held by threads that are not here, and what they were at is half done: the
 * locks are made anew, the turn is nobody's, and nothing looks behind the failure. It is recorded
 * as if it had been told already, so that no other rank hears of it. */
static void forked_take(struct tutti_comm *comm)
{
    static const char why[] =
        "this process was forked from the one that made the communicator, and has no part in it; "
        "a child makes its own";
    pthread_mutex_init(&comm->error_lock, NULL);
    comm->error.code = TUTTI_ERR_USAGE;
    snprintf(comm->error.text, sizeof comm->error.text, "%s", why);
    pthread_mutex_init(&comm->queue.lock, NULL);
    tti_cond_init(&comm->queue.changed);
    tti_turn_begin(&comm->queue.turn);
    comm->recorder.page = NULL; /* shared memory, in which the parent writes */
    for (int i = 0; i < TTI_RECORD_RINGS; i++)
        comm->recorder.ring[i].records = NULL;
    comm->forked = true;
    atomic_store(&comm->failed, (int)TUTTI_ERR_USAGE);
}

static void forked_child(void)
{
    for (struct tutti_comm *comm = forked_all; comm; comm = comm->next_watched)
        forked_take(comm);
    pthread_mutex_unlock(&forked_lock);
}

static void forked_begin(void)
{
    (void)pthread_atfork(forked_before, forked_parent, forked_child);
}

void tti_forked_watch(struct tutti_comm *comm)
{
    (void)pthread_once(&forked_once, forked_begin);
    pthread_mutex_lock(&forked_lock);
    comm->next_watched = forked_all;
    forked_all = comm;
    pthread_mutex_unlock(&forked_lock);
}

void tti_forked_forget(struct tutti_comm *comm)
{
    pthread_mutex_lock(&forked_lock);
    struct tutti_comm **at = &forked_all;
    while (*at && *at != comm)
        at = &(*at)->next_watched;
    if (*at)
        *at = comm->next_watched;
    pthread_mutex_unlock(&forked_lock);
}
