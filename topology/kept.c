/* Graphs of this host that are kept (kept.h). */
#include "topology/kept.h"

#include "base/memory.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { KEPT_IDLE = 4 }; /* with nobody who uses them */

/* What a graph was made from; the same: it would come out the same. */
struct kept_key {
    char *file;         /* NULL: the machine */
    struct stat status; /* of the file */
    bool whole;         /* of the machine, all processors, ... */
    cpu_set_t cpus;     /* ... or these */
};

struct kept {
    struct kept *next; /* the one made before */
    struct kept_key key;
    int users;
    struct tti_topology *topology;
};

static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static struct kept *kept_all; /* until the process ends */

static void kept_look_up(struct kept_key *key)
{
    CPU_ZERO(&key->cpus);
    if (key->file)
        (void)stat(key->file, &key->status);
    else if (!key->whole)
        (void)sched_getaffinity(0, sizeof key->cpus, &key->cpus);
}

static bool kept_same(const struct kept_key *a, const struct kept_key *b)
{
    if (!a->file || !b->file)
        return !a->file && !b->file && a->whole == b->whole && CPU_EQUAL(&a->cpus, &b->cpus);
    return strcmp(a->file, b->file) == 0 && a->status.st_dev == b->status.st_dev &&
           a->status.st_ino == b->status.st_ino && a->status.st_size == b->status.st_size &&
           a->status.st_mtim.tv_sec == b->status.st_mtim.tv_sec &&
           a->status.st_mtim.tv_nsec == b->status.st_mtim.tv_nsec;
}

static void kept_destroy(struct kept *kept)
{
    tti_topology_destroy(kept->topology);
    free(kept->key.file);
    free(kept);
}

/* Those that nobody uses, but for the latest. */
static void kept_trim(void)
{
    int idle = 0;
    for (struct kept **link = &kept_all; *link;) {
        struct kept *at = *link;
        if (at->users > 0 || idle++ < KEPT_IDLE) {
            link = &at->next;
            continue;
        }
        *link = at->next;
        kept_destroy(at);
    }
}

static enum tutti_result kept_make(const struct kept_key *key, struct kept **made)
{
    struct kept *kept = tti_calloc(1, sizeof *kept);
    if (!kept)
        return TUTTI_ERR_MEMORY;
    kept->key = *key;
    kept->key.file = key->file ? tti_strdup(key->file) : NULL;
    enum tutti_result result = key->file && !kept->key.file ? TUTTI_ERR_MEMORY : TUTTI_OK;
    if (result == TUTTI_OK && key->file)
        result = tti_topology_from_file(key->file, &kept->topology);
    else if (result == TUTTI_OK)
        result = tti_topology_probe(TTI_PROBE_PCI | (key->whole ? TTI_PROBE_OTHERS : 0),
                                    &kept->topology);
    if (result != TUTTI_OK) {
        kept_destroy(kept);
        return result;
    }
    if (key->file)
        tti_topology_rates(kept->topology, "/sys");
    kept->next = kept_all;
    kept_all = kept;
    *made = kept;
    return TUTTI_OK;
}

static enum tutti_result kept_find(struct kept_key key, const struct tti_topology **topology)
{
    enum tutti_result result = TUTTI_OK;
    kept_look_up(&key);
    pthread_mutex_lock(&kept_lock);
    struct kept *at = kept_all;
    while (at && !kept_same(&at->key, &key))
        at = at->next;
    if (!at)
        result = kept_make(&key, &at);
    if (at) {
        at->users++;
        *topology = at->topology;
    }
    pthread_mutex_unlock(&kept_lock);
    return result;
}

enum tutti_result tti_topology_keep(const char *file, const struct tti_topology **topology)
{
    return kept_find((struct kept_key){.file = (char *)(uintptr_t)file}, topology); /* only read */
}

enum tutti_result tti_topology_keep_whole(const struct tti_topology **topology)
{
    return kept_find((struct kept_key){.whole = true}, topology);
}

void tti_topology_release(const struct tti_topology *topology)
{
    pthread_mutex_lock(&kept_lock);
    for (struct kept *at = kept_all; at; at = at->next)
        at->users -= at->topology == topology;
    kept_trim();
    pthread_mutex_unlock(&kept_lock);
}
