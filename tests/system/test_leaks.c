/* Nothing accumulates in a process that makes, uses and ends many communicators: descriptors,
 * mappings and threads are as before. Ranks are threads, on each transport; every round makes a
 * communicator, splits it, runs operations that connect all pairs, and ends both. */
#include "tests/integration/ranks.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 3, WARM_UP = 5, ROUNDS = 50, COUNT = 70000 };

#define CHECK_OK(call)                                                           \
    do {                                                                         \
        if ((call) != TUTTI_OK)                                                  \
            return fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, \
                           tutti_last_error());                                  \
    } while (0)

/* A sanitizer's own allocator maps as it goes, and finds lost memory by other means. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { ANONYMOUS_MAY_GROW = 1 << 20 };
#else
enum { ANONYMOUS_MAY_GROW = ROUNDS / 5 };
#endif

/* What a process holds. Anonymous mappings are apart: the allocator keeps some as it sees fit. */
struct holdings {
    long descriptors, threads, named, anonymous;
};

static long count_entries(const char *path)
{
    long count = 0;
    DIR *folder = opendir(path);
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

static void count_mappings(struct holdings *held)
{
    char line[600];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        if (strchr(line, '/'))
            held->named++;
        else
            held->anonymous++;
    }
    if (maps)
        fclose(maps);
}

/* A joined thread may be seen for a moment after, and on a busy machine that is long: those that
 * are more than `threads` are waited for. */
static struct holdings hold(long threads, int patience_ms)
{
    struct holdings held = {.descriptors = count_entries("/proc/self/fd"),
                            .threads = count_entries("/proc/self/task")};
    for (int i = 0; i < patience_ms && held.threads > threads; i++) {
        usleep(1000);
        held.threads = count_entries("/proc/self/task");
    }
    count_mappings(&held);
    return held;
}

static int use(tutti_comm *comm, void *argument)
{
    static _Thread_local float values[COUNT];
    tutti_comm *part = NULL;
    tutti_request *request = NULL;
    void *memory = NULL;
    (void)argument;
    CHECK_OK(tutti_alloc(COUNT * sizeof(float), &memory));
    CHECK_OK(tutti_all_reduce(memory, memory, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm));
    CHECK_OK(tutti_all_reduce(values, values, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm));
    CHECK_OK(tutti_all_to_all(values, memory, COUNT / RANKS, TUTTI_FLOAT32, comm));
    CHECK_OK(tutti_comm_split(comm, tutti_comm_rank(comm) / 2, 0, &part));
    CHECK_OK(
        tutti_all_reduce_async(values, values, 10, TUTTI_FLOAT32, TUTTI_MAX, part, NULL, &request));
    CHECK_OK(tutti_wait(request));
    tutti_comm_destroy(part);
    tutti_free(memory);
    return 0;
}

static int rounds(const struct tti_ranks *how, int count)
{
    for (int i = 0; i < count; i++)
        if (tti_ranks_run(how, use, NULL) != 0)
            return fprintf(stderr, "round %d of %d failed\n", i + 1, count);
    return 0;
}

static int leaks_on(const char *transport)
{
    struct tti_ranks how = {.ranks = RANKS, .options = TUTTI_OPTIONS_INIT};
    how.options.transports = transport;
    how.options.timeout_s = 60;
    how.options.init_timeout_s = 60;
    if (rounds(&how, WARM_UP))
        return 1;
    /* A sanitizer has a thread of its own, so this may be the least. */
    struct holdings before = hold(3, 100);
    if (rounds(&how, ROUNDS))
        return 1;
    struct holdings after = hold(before.threads, 60000);
    bool same = after.descriptors == before.descriptors && after.threads <= before.threads &&
                after.named == before.named &&
                after.anonymous < before.anonymous + ANONYMOUS_MAY_GROW;
    printf("%s: %d communicators and %d splits of %d ranks: descriptors %ld -> %ld, threads "
           "%ld -> %ld, mappings of objects %ld -> %ld, anonymous %ld -> %ld: %s\n",
           transport, ROUNDS, ROUNDS, RANKS, before.descriptors, after.descriptors, before.threads,
           after.threads, before.named, after.named, before.anonymous, after.anonymous,
           same ? "ok" : "LEAK");
    fflush(stdout);
    return !same;
}

int main(int argc, char **argv)
{
    int failed = 0;
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, 1 << 17);
    for (int i = 1; i < argc; i++)
        failed += leaks_on(argv[i]);
    return failed ? 1 : 0;
}
