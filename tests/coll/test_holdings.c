/* tutti_comm_memory against what the process really has: descriptors in /proc/self/fd, shared
 * mappings in /proc/self/smaps, and the heap as malloc counts it, before and after a communicator
 * is made and used. Ranks are processes; the communicator is a split of theirs, which has been
 * split and used before, so that what changes is the new one's. */
#include "base/clock.h"
#include "tests/integration/ranks.h"

#include <dirent.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { RANKS = 3, COUNT = 70000, PATIENT_S = 20 };

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
 * of TCP's lanes (tcp_lane.h), each made when the first message comes to be read. Less than
 * malloc's smallest block is no block that was kept: it is one made anew, a small program's, in a
 * chunk that malloc would not cut. */
static bool parent_may_grow(long long host, bool tcp)
{
    enum { STAGE = 64 << 10, OF_MALLOC = 64, SMALLEST = 32 };
    enum { STAGES = (RANKS - 1) * 2 }; /* two lanes are usual */
    const long long stages = host / STAGE;
    return (host >= 0 && host < SMALLEST) ||
           (tcp && stages >= 1 && stages <= STAGES && host - stages * STAGE <= stages * OF_MALLOC);
}

/* What is held before a split, and after it. The thread of rank 0's rendezvous lets go of a frame
 * once all have read it, at a time of its own. */
struct holdings {
    struct process process;
    struct tutti_memory parent, comm;
};

static int look_at(tutti_comm *parent, tutti_comm *comm, struct holdings *at)
{
    struct tutti_memory parent_then, comm_then;
    const uint64_t deadline = tti_deadline_in(PATIENT_S);
    do {
        OK(tutti_comm_memory(parent, &at->parent));
        OK(tutti_comm_memory(comm, &at->comm));
        at->process = look();
        OK(tutti_comm_memory(comm, &comm_then));
        OK(tutti_comm_memory(parent, &parent_then));
        if (at->parent.host == parent_then.host && at->comm.host == comm_then.host)
            return 0;
    } while (!tti_deadline_passed(deadline));
    return wrong("what is told does not settle", (long long)at->comm.host,
                 (long long)comm_then.host);
}

/* The same; a frame of the split that the parent still holds is waited for. */
static int look_after(tutti_comm *parent, tutti_comm *comm, const struct holdings *before, bool tcp,
                      struct holdings *after)
{
    const uint64_t deadline = tti_deadline_in(PATIENT_S);
    long long more = 0;
    do {
        if (look_at(parent, comm, after))
            return 1;
        more = (long long)after->parent.host - (long long)before->parent.host;
    } while (more > 0 && !parent_may_grow(more, tcp) && !tti_deadline_passed(deadline));
    return 0;
}

/* Did the parent hold a frame at the first look that it has since let go of? Then the first look
 * was too early, and all is measured again. */
static bool looked_early(const struct holdings *before, const struct holdings *after)
{
    enum { STAGE = 64 << 10, FRAME = 12 << 10 }; /* three ranks gather 10 KiB */
    const long long more = (long long)after->parent.host - (long long)before->parent.host;
    const long long stages = more > 0 ? (more + FRAME) / STAGE : 0, rest = more - stages * STAGE;
    return rest < 0 && rest >= -FRAME;
}

/* What the parent has, whose barriers may touch a page of a ring for the first time, or make a
 * connection's buffers, is not the new one's. */
static int compare(const struct holdings *before, const struct holdings *after, bool tcp)
{
    const struct tutti_memory *told = &after->comm;
    const struct process *was = &before->process, *is = &after->process;
    long long mapped = is->mapped - was->mapped;
    long long used = (long long)(after->parent.shared_used - before->parent.shared_used);
    long long resident = is->resident - was->resident - used;
    long long parent = (long long)after->parent.host - (long long)before->parent.host;
    long long heap = is->heap - was->heap - parent;
    long long off = heap - (long long)told->host;
    int status = 0;
    if (is->descriptors - was->descriptors != told->descriptors)
        status |= wrong("descriptors", told->descriptors, is->descriptors - was->descriptors);
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

/* One communicator: made, used and let go of. With *early nothing is said of it. */
static int measure(tutti_comm *parent, float *shared, bool tcp, bool *early)
{
    struct holdings before, fresh, used;
    tutti_comm *comm = NULL;
    take_in_pages();
    if (look_at(parent, parent, &before))
        return 1;
    OK(tutti_comm_split(parent, 0, 0, &comm));
    OK(tutti_barrier(parent)); /* none of its own: nothing is connected yet */
    if (look_after(parent, comm, &before, tcp, &fresh))
        return 1;
    if (use(comm, shared))
        return 1;
    OK(tutti_barrier(comm));
    OK(tutti_barrier(parent)); /* all connections are up on both sides */
    if (look_after(parent, comm, &before, tcp, &used))
        return 1;
    *early = looked_early(&before, &fresh) || looked_early(&before, &used);
    int status = 0;
    if (!*early)
        status = compare(&before, &fresh, tcp) | compare(&before, &used, tcp);
    if (used.comm.host <= fresh.comm.host || used.comm.descriptors <= fresh.comm.descriptors)
        status |= wrong("growth by use", (long long)fresh.comm.host, (long long)used.comm.host);
    if (tutti_comm_memory(comm, NULL) != TUTTI_ERR_ARGUMENT ||
        tutti_comm_memory(NULL, &used.comm) != TUTTI_ERR_ARGUMENT)
        status |= wrong("NULL", 0, 1);
    OK(tutti_barrier(parent));
    tutti_comm_destroy(comm);
    return status;
}

static int check_rank(tutti_comm *parent, void *argument)
{
    enum { TRIES = 10 };
    tutti_comm *comm = NULL;
    void *shared = NULL;
    const bool tcp = strcmp(argument, "tcp") == 0;
    OK(tutti_alloc(COUNT * sizeof(float), &shared));
    OK(tutti_comm_split(parent, 0, 0, &comm));
    if (use(comm, shared))
        return 1;
    tutti_comm_destroy(comm);
    OK(tutti_barrier(parent));
    int status = 0, again = 1;
    for (int tries = 0; again && tries < TRIES; tries++) {
        bool early = false;
        status |= measure(parent, shared, tcp, &early);
        again = early;
        OK(tutti_all_reduce(&again, &again, 1, TUTTI_INT32, TUTTI_MAX, parent));
    }
    if (again)
        status |= wrong("the parent lets go of something each time", again, 0);
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
