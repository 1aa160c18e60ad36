/* libibverbs with an ibv_reg_dmabuf_mr that soft-RoCE lacks, for TUTTI_LIBIBVERBS: the descriptor
 * is mapped, and the mapping registered under the address that was asked for. So what is sent comes
 * by way of the descriptor, as with an adapter. All else is the library's own. */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define SHOWN __attribute__((visibility("default")))

enum { MOST = 1024 };

static struct {
    struct ibv_mr *mr;
    void *memory;
    size_t bytes;
} mapped[MOST];
static pthread_mutex_t mapped_lock = PTHREAD_MUTEX_INITIALIZER;

SHOWN struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
                                       uint64_t iova, int fd, int access)
{
    struct ibv_mr *mr = NULL;
    char *memory = mmap(NULL, offset + length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return NULL;
    pthread_mutex_lock(&mapped_lock);
    for (int i = 0; i < MOST && !mr; i++) {
        if (mapped[i].mr)
            continue;
        mr = ibv_reg_mr_iova(pd, memory + offset, length, iova, access);
        if (!mr)
            break;
        mapped[i].mr = mr;
        mapped[i].memory = memory;
        mapped[i].bytes = offset + length;
    }
    pthread_mutex_unlock(&mapped_lock);
    if (!mr)
        munmap(memory, offset + length);
    return mr;
}

SHOWN int ibv_dereg_mr(struct ibv_mr *mr)
{
    int (*theirs)(struct ibv_mr *) = NULL;
    void *found = dlsym(RTLD_NEXT, "ibv_dereg_mr");
    memcpy(&theirs, &found, sizeof theirs);
    pthread_mutex_lock(&mapped_lock);
    for (int i = 0; i < MOST; i++)
        if (mapped[i].mr == mr) {
            munmap(mapped[i].memory, mapped[i].bytes);
            mapped[i].mr = NULL;
        }
    pthread_mutex_unlock(&mapped_lock);
    return theirs(mr);
}
