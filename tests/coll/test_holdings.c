/* tutti_comm_memory against what the process really has: descriptors in /proc/self/fd, shared
 * mappings in /proc/self/smaps, and the heap as malloc counts it, before and after a communicator
 * is made and used. Ranks are processes; the communicator is a split of theirs, which has been
 * split and used before, so that what changes is the new one's. */
#include "tests/integration/ranks.h"

#include <dirent.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { RANKS = 3, COUNT = 70000 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { HEAP_IS_KNOWN = 0 }; /* a sanitizer's own allocator */
#else
enum { HEAP_IS_KNOWN = 1 };
#endif

struct process {
    long long heap, mapped, resident; /* bytes; the latter two of the library's shared objects */
    int descriptors;
};

static int wrong(const char *what, long long told, long long found)
{
    fprintf(stderr, "%s: told %lld, the process has %lld\n", what, told, found);
    return 1;
}

#define OK(call)                                                                               \
    do {                                                                                       \
        if ((call) != TUTTI_OK) {                                                              \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, tutti_last_error()); \
            return 1;                                                                          \
        }                                                                                      \
    } while (0)

static void look_at_mappings(struct process *now)
{
    char line[600];
    bool ours = false;
    long long kib = 0;
    FILE *smaps = fopen("/proc/self/smaps", "r");
    while (smaps && fgets(line, sizeof line, smaps)) {
        if (strstr(line, " kB") == NULL)
            ours = strstr(line, "memfd:tutti") != NULL;
        else if (ours && sscanf(line, "Size: %lld kB", &kib) == 1)
            now->mapped += kib * 1024;
        else if (ours && sscanf(line, "Rss: %lld kB", &kib) == 1)
            now->resident += kib * 1024;
    }
    if (smaps)
        fclose(smaps);
}

/* Look at every page that is in memory, so that none comes into this process' table later only
 * because a peer had touched it before. */
static void take_in_pages(void)
{
    enum { PAGE = 4096 };
    char line[600];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long begin = 0, end = 0;
        char readable = '-';
        unsigned char in_memory = 0;
        if (!strstr(line, "memfd:tutti") ||
            sscanf(line, "%lx-%lx %c", &begin, &end, &readable) != 3 || readable != 'r')
            continue;
        for (uintptr_t at = begin; at < end; at += PAGE)
            if (mincore((void *)at, PAGE, &in_memory) == 0 && (in_memory & 1))
                (void)*(volatile const char *)at;
    }
    if (maps)
        fclose(maps);
}

static struct process look(void)
{
    struct process now = {0};
    struct mallinfo2 heap = mallinfo2();
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder))
        now.descriptors++;
    if (folder)
        closedir(folder);
    now.heap = (long long)(heap.uordblks + heap.hblkhd);
    look_at_mappings(&now);
    return now;
}

/* What both tell, and the process at the same moment: a rendezvous' thread at rank 0 may let go of
 * what it gathered after all have read it, so look again if they tell other bytes afterwards. */
static int look_together(tutti_comm *parent, struct tutti_memory *parents, tutti_comm *comm,
                         struct tutti_memory *told, struct process *now)
{
    struct tutti_memory parent_again, again;
    for (int tries = 0; tries < 100; tries++) {
        OK(tutti_comm_memory(parent, parents));
        OK(tutti_comm_memory(comm, told));
        *now = look();
        OK(tutti_comm_memory(comm, &again));
        OK(tutti_comm_memory(parent, &parent_again));
        if (told->host == again.host && parents->host == parent_again.host)
            return 0;
    }
    return wrong("what is told does not settle", (long long)told->host, (long long)again.host);
}

/* All pairs talk, small and large, from malloc'ed and from library memory. */
static int use(tutti_comm *comm, float *shared)
{
    static float values[COUNT], others[COUNT];
    OK(tutti_all_to_all(values, others, COUNT / RANKS, TUTTI_FLOAT32, comm));
    OK(tutti_all_reduce(values, others, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm));
    OK(tutti_all_reduce(values, others, 2, TUTTI_FLOAT32, TUTTI_SUM, comm));
    OK(tutti_all_reduce(shared, shared, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm));
    OK(tutti_reduce_scatter(values, others, COUNT / RANKS, TUTTI_FLOAT16, TUTTI_AVG, comm));
    return 0;
}

/* Whether the parent's barriers can have made it hold that much more: nothing, but for the stages
 * of TCP's lanes (tcp_lane.h), each made when the first message comes to be read. Less by a frame
 * of its start, if the thread of the rendezvous had not come to let go of it before. */
static bool parent_may_grow(long long host, bool tcp)
{
    enum { STAGE = 64 << 10, OF_MALLOC = 64, STAGES = (RANKS - 1) * 2 }; /* two lanes are usual */
    enum { FRAME = 12 << 10 }; /* three ranks gather 10 KiB */
    const long long stages = host > 0 ? (host + FRAME) / STAGE : 0;
    const long long rest = host - stages * STAGE;
    return rest >= -FRAME && rest <= stages * OF_MALLOC && stages <= (tcp ? STAGES : 0);
}

/* What the parent has, whose barriers may touch a page of a ring for the first time, or make a
 * connection's buffers, is not the new one's. */
static int compare(const struct process *before, const struct process *after,
                   const struct tutti_memory *parents, const struct tutti_memory *grown,
                   const struct tutti_memory *told, bool tcp)
{
    long long mapped = after->mapped - before->mapped;
    long long resident =
        after->resident - before->resident - (long long)(grown->shared_used - parents->shared_used);
    long long parent = (long long)grown->host - (long long)parents->host;
    long long heap = after->heap - before->heap - parent;
    long long off = heap - (long long)told->host;
    int status = 0;
    if (after->descriptors - before->descriptors != told->descriptors)
        status |= wrong("descriptors", told->descriptors, after->descriptors - before->descriptors);
    if (mapped != (long long)(told->shared + told->mapped))
        status |= wrong("shared mappings", (long long)(told->shared + told->mapped), mapped);
    /* A page that only the peer has touched is in memory, but not in this process' page table. */
    if (resident > (long long)(told->shared_used + told->mapped) ||
        told->shared_used > told->shared)
        status |= wrong("resident", (long long)told->shared_used, resident);
    if (!parent_may_grow(parent, tcp))
        status |= wrong("growth of the parent", parent, 0);
    if (HEAP_IS_KNOWN && llabs(off) > heap / 20 + 4096)
        status |= wrong("heap", (long long)told->host, heap);
    return status;
}

static int check_rank(tutti_comm *parent, void *argument)
{
    tutti_comm *comm = NULL;
    void *shared = NULL;
    const bool tcp = strcmp(argument, "tcp") == 0;
    OK(tutti_alloc(COUNT * sizeof(float), &shared));
    OK(tutti_comm_split(parent, 0, 0, &comm));
    if (use(comm, shared))
        return 1;
    tutti_comm_destroy(comm);
    OK(tutti_barrier(parent));

    struct tutti_memory fresh, used, told, parents, grown;
    take_in_pages();
    struct process before, after;
    if (look_together(parent, &parents, parent, &parents, &before))
        return 1;
    OK(tutti_comm_split(parent, 0, 0, &comm));
    OK(tutti_barrier(parent)); /* none of its own: nothing is connected yet */
    if (look_together(parent, &grown, comm, &fresh, &after))
        return 1;
    int status = compare(&before, &after, &parents, &grown, &fresh, tcp);
    if (use(comm, shared))
        return 1;
    OK(tutti_barrier(comm));
    OK(tutti_barrier(parent)); /* all connections are up on both sides */
    if (look_together(parent, &grown, comm, &used, &after))
        return 1;
    status |= compare(&before, &after, &parents, &grown, &used, tcp);
    if (used.host <= fresh.host || used.descriptors <= fresh.descriptors)
        status |= wrong("growth by use", (long long)fresh.host, (long long)used.host);
    if (tutti_comm_memory(comm, NULL) != TUTTI_ERR_ARGUMENT ||
        tutti_comm_memory(NULL, &told) != TUTTI_ERR_ARGUMENT)
        status |= wrong("NULL", 0, 1);
    OK(tutti_barrier(parent));
    tutti_comm_destroy(comm);
    tutti_free(shared);
    return status;
}

int main(int argc, char **argv)
{
    int failed = 0;
    for (int i = 1; i < argc; i++) {
        struct tti_ranks how = {.ranks = RANKS, .processes = true, .options = TUTTI_OPTIONS_INIT};
        how.options.transports = argv[i];
        how.options.timeout_s = 60;
        failed |= tti_ranks_run(&how, check_rank, argv[i]);
    }
    return failed ? 1 : 0;
}
