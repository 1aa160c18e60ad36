/* Closing sockets in children (base/children.h).
 *
 * Nobody says when a socket is closed here: an entry is a descriptor and the inode behind it, and a
 * number that has come to stand for something else is left alone. */
#include "base/children.h"

#include "base/memory.h"

#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

struct children_socket {
    dev_t device;
    ino_t inode; /* 0: none */
};

static pthread_once_t children_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t children_lock = PTHREAD_MUTEX_INITIALIZER;
static struct children_socket *children_sockets; /* by descriptor */
static size_t children_capacity;

/* No other thread may be changing the table while it is copied into the child. */
static void children_before(void)
{
    pthread_mutex_lock(&children_lock);
}

static void children_parent(void)
{
    pthread_mutex_unlock(&children_lock);
}

/* What is called here may be called after a fork of a program with threads. */
static void children_child(void)
{
    const int saved = errno;
    for (size_t i = 0; i < children_capacity; i++) {
        struct children_socket *kept = &children_sockets[i];
        struct stat now;
        if (kept->inode != 0 && fstat((int)i, &now) == 0 && now.st_ino == kept->inode &&
            now.st_dev == kept->device)
            close((int)i);
        kept->inode = 0;
    }
    pthread_mutex_unlock(&children_lock);
    errno = saved;
}

static void children_begin(void)
{
    (void)pthread_atfork(children_before, children_parent, children_child);
}

int tti_keep_from_children(int socket)
{
    const int saved = errno;
    struct stat now;
    if (socket < 0 || fstat(socket, &now) != 0) {
        errno = saved;
        return socket;
    }
    (void)pthread_once(&children_once, children_begin);
    pthread_mutex_lock(&children_lock);
    void *all = children_sockets;
    const enum tutti_result grown =
        tti_grow(&all, &children_capacity, (size_t)socket + 1, sizeof *children_sockets);
    children_sockets = all;
    if (grown == TUTTI_OK)
        children_sockets[socket] = (struct children_socket){now.st_dev, now.st_ino};
    pthread_mutex_unlock(&children_lock);
    errno = saved;
    return socket;
}
