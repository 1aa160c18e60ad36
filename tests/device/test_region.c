/* device/memory.h: regions are found, keep their contents, can be mapped by another process through
 * their descriptor, and leave nothing behind. */
#include "device/memory.h"
#include "tests/device/descriptors.h"
#include "tests/memfd_flags.h"
#include "tests/tutti_cmocka.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static size_t page;

static void pattern(char *at, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (char)(i * 7 + (i >> 9) + seed);
}

static void assert_pattern(const char *at, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != (char)(i * 7 + (i >> 9) + seed))
            fail_msg("byte %zu of %zu has changed", i, bytes);
}

/* A child process maps the descriptor, sees `before`, and writes `after` for the parent to see. */
static void assert_shared(const struct tti_region *region, char before, char after)
{
    ((volatile char *)region->base)[region->bytes - 1] = before;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char *map = mmap(NULL, region->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd, 0);
        if (map == MAP_FAILED || map[region->bytes - 1] != before)
            _exit(1);
        map[region->bytes - 1] = after;
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(((volatile char *)region->base)[region->bytes - 1], after);
}

static void allocate(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 4095, 4096, 4097, 2 << 20, (5 << 20) + 3};
    const int before = open_descriptors();
    char *memory[7];
    struct tti_region region;
    uint64_t last_id = 0;
    for (int i = 0; i < 7; i++) {
        assert_int_equal(tti_region_alloc(sizes[i], (void **)&memory[i]), TUTTI_OK);
        assert_int_equal((uintptr_t)memory[i] % page, 0);
        for (int k = 0; k < i; k++)
            assert_ptr_not_equal(memory[i], memory[k]);
        for (size_t at = 0; at < sizes[i]; at += 61)
            assert_int_equal(memory[i][at], 0);
        assert_true(tti_region_find(memory[i], sizes[i], &region));
        assert_ptr_equal(region.base, memory[i]);
        assert_true(region.bytes >= sizes[i] && region.bytes % page == 0);
        assert_true(region.id > last_id);
        last_id = region.id;
        if (sizes[i] >= 2 << 20)
            assert_int_equal((uintptr_t)memory[i] % (2 << 20), 0);
        assert_shared(&region, (char)(i + 1), (char)(i + 60));
        assert_int_equal(ftruncate(region.fd, 0), -1); /* sealed */
        /* Parts are found, what goes past the end is not. */
        assert_true(tti_region_find(memory[i] + 1, region.bytes - 1, &region));
        assert_false(tti_region_find(memory[i] + 1, region.bytes, &region));
        assert_false(tti_region_find(memory[i], SIZE_MAX, &region));
    }
    assert_int_equal(open_descriptors(), before + 7);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(tti_region_free(memory[i]), TUTTI_OK);
        assert_false(tti_region_find(memory[i], 0, &region));
    }
    assert_int_equal(open_descriptors(), before);
    assert_int_equal(tti_region_free(NULL), TUTTI_OK);
}

static void assert_refused(enum tutti_result result, const char *word)
{
    assert_int_equal(result, TUTTI_ERR_ARGUMENT);
    if (!strstr(tutti_last_error(), word))
        fail_msg("\"%s\" does not say \"%s\"", tutti_last_error(), word);
}

static void wrong_frees(void **state)
{
    (void)state;
    int local = 0;
    char *memory;
    assert_refused(tti_region_free(&local), "not memory from tutti_alloc");
    assert_int_equal(tti_region_alloc(3 * page, (void **)&memory), TUTTI_OK);
    assert_refused(tti_region_free(memory + page), "begins at");
    assert_refused(tti_region_deregister(memory), "not registered");
    assert_refused(tti_region_register(memory, page), "library-allocated");
    assert_int_equal(tti_region_free(memory), TUTTI_OK);
    assert_refused(tti_region_free(memory), "freed before");
    assert_int_equal(tti_region_alloc(SIZE_MAX - 5, (void **)&memory), TUTTI_ERR_MEMORY);
    assert_true(tti_region_alloc((size_t)1 << 62, (void **)&memory) != TUTTI_OK);
    assert_non_null(strstr(tutti_last_error(), "cannot allocate"));
}

/* Register `bytes` at `memory`: contents stay through both changes and writes in between; whole
 * pages are shared, and only they. */
static void check_register(char *memory, size_t bytes)
{
    const int before = open_descriptors();
    struct tti_region region;
    pattern(memory, bytes, 3);
    assert_int_equal(tti_region_register(memory, bytes), TUTTI_OK);
    assert_pattern(memory, bytes, 3);
    const uintptr_t low = ((uintptr_t)memory + page - 1) / page * page;
    const uintptr_t high = ((uintptr_t)memory + bytes) / page * page;
    if (high > low) {
        assert_true(tti_region_find((char *)low, high - low, &region));
        assert_int_equal((uintptr_t)region.base, low);
        assert_int_equal(region.bytes, high - low);
        assert_shared(&region, 'x', 'y');
        assert_refused(tti_region_free(region.base), "tutti_deregister");
    }
    assert_false(tti_region_find((char *)low - 1, 1, &region));
    assert_false(tti_region_find((char *)high, 1, &region));
    pattern(memory, bytes, 9);
    assert_refused(tti_region_register(memory, bytes), "registered already");
    assert_int_equal(tti_region_deregister(memory), TUTTI_OK);
    assert_pattern(memory, bytes, 9);
    assert_false(tti_region_find((char *)low, 1, &region));
    assert_refused(tti_region_deregister(memory), "not registered");
    pattern(memory, bytes, 5);
    assert_pattern(memory, bytes, 5);
    assert_int_equal(open_descriptors(), before);
}

static void registers(void **state)
{
    (void)state;
    const size_t bytes = 5 << 20;
    char *memory = malloc(bytes);
    assert_non_null(memory);
    check_register(memory, bytes);
    check_register(memory + 1, bytes - 3);
    check_register(memory + 100, 100);           /* no whole page */
    check_register(memory, 0);                   /* nothing at all */
    check_register(memory + 17, 2 * page - 1);   /* one page at most */
    check_register(memory + 4000, 3 * page + 5); /* a few */
    char *heap = malloc(20000);                  /* from the brk heap, next to other objects */
    assert_non_null(heap);
    check_register(heap, 20000);
    free(heap);
    free(memory);
    char *mapped = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(mapped != MAP_FAILED);
    check_register(mapped, 4 * page);
    munmap(mapped, 4 * page);
}

/* After deregistering, a child's writes are its own again. */
static void private_again(void **state)
{
    (void)state;
    char *memory = aligned_alloc(page, 4 * page);
    assert_non_null(memory);
    pattern(memory, 4 * page, 1);
    assert_int_equal(tti_region_register(memory, 4 * page), TUTTI_OK);
    assert_int_equal(tti_region_deregister(memory), TUTTI_OK);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        memset(memory, 0x5a, 4 * page);
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_pattern(memory, 4 * page, 1);
    free(memory);
}

static void wrong_registers(void **state)
{
    (void)state;
    const int before = open_descriptors();
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *memory = mmap(NULL, 8 * page, PROT_READ | PROT_WRITE, flags, -1, 0);
    char *shared = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED && shared != MAP_FAILED);
    pattern(memory, 8 * page, 2);
    assert_refused(tti_region_register(shared, 2 * page), "shared");
    assert_refused(tti_region_register(memory + page, SIZE_MAX - 5), "past the end");
    char *stack = __builtin_alloca(8 * page); /* variables may be elsewhere under a sanitizer */
    memset(stack, 1, 8 * page);
    assert_refused(tti_region_register(stack, 8 * page), "stack");

    assert_int_equal(tti_region_register(memory + 2 * page, 2 * page), TUTTI_OK);
    assert_refused(tti_region_register(memory, 3 * page), "overlaps");
    assert_refused(tti_region_register(memory + 3 * page, 3 * page), "overlaps");
    assert_refused(tti_region_register(memory, 8 * page), "overlaps");
    assert_int_equal(tti_region_register(memory, 2 * page), TUTTI_OK); /* neighbours */
    assert_int_equal(tti_region_register(memory + 4 * page, page + 1), TUTTI_OK);
    assert_pattern(memory, 8 * page, 2);
    assert_int_equal(tti_region_deregister(memory + 2 * page), TUTTI_OK);
    assert_int_equal(tti_region_deregister(memory), TUTTI_OK);
    assert_int_equal(tti_region_deregister(memory + 4 * page), TUTTI_OK);
    assert_pattern(memory, 8 * page, 2);

    assert_int_equal(mprotect(memory + page, page, PROT_READ), 0);
    assert_refused(tti_region_register(memory, 3 * page), "readable and writable");
    munmap(memory + page, page);
    assert_refused(tti_region_register(memory, 3 * page), "nothing is mapped");
    munmap(memory, page);
    munmap(memory + 2 * page, 6 * page);
    assert_refused(tti_region_register(memory, 3 * page), "nothing is mapped");
    munmap(shared, 2 * page);
    assert_int_equal(open_descriptors(), before);
}

/* With no descriptor left the text says what to do, and nothing has happened. */
static void no_descriptors(void **state)
{
    (void)state;
    struct rlimit old, none;
    void *memory = NULL;
    char *own = aligned_alloc(page, 2 * page);
    assert_non_null(own);
    pattern(own, 2 * page, 4);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = old;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const enum tutti_result allocated = tti_region_alloc(100, &memory);
    const bool advised = strstr(tutti_last_error(), "ulimit -n") != NULL;
    const enum tutti_result registered = tti_region_register(own, 2 * page);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(allocated, TUTTI_ERR_SYSTEM);
    assert_true(advised);
    assert_null(memory);
    assert_int_equal(registered, TUTTI_ERR_SYSTEM);
    assert_pattern(own, 2 * page, 4);
    check_register(own, 2 * page);
    free(own);
}

struct heard {
    int calls;
    uint64_t id;
};

/* Fresh pages for a region that somebody else has mapped: he keeps the old ones. */
static void check_renewed(char *memory, size_t bytes)
{
    struct tti_region before, after;
    const uint64_t renewals = tti_region_renewals();
    assert_true(tti_region_find(memory, bytes, &before));
    char *theirs = mmap(NULL, before.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, before.fd, 0);
    assert_true(theirs != MAP_FAILED);
    pattern(before.base, before.bytes, 3);
    assert_pattern(theirs, before.bytes, 3);
    assert_int_equal(tti_region_renew(before.id), TUTTI_OK);
    assert_true(tti_region_find(memory, bytes, &after));
    assert_true(after.id > before.id && after.base == before.base && after.bytes == before.bytes);
    assert_int_equal(tti_region_renewals(), renewals + 1);
    memset(theirs, 1, before.bytes);
    assert_pattern(memory, bytes, 3 + 7 * (unsigned)(memory - before.base));
    assert_shared(&after, 5, 6);
    assert_int_equal(tti_region_renew(before.id), TUTTI_OK); /* gone: nothing to do */
    assert_int_equal(tti_region_renewals(), renewals + 1);
    munmap(theirs, before.bytes);
}

static void renewed(void **state)
{
    (void)state;
    const int before = open_descriptors();
    void *memory = NULL;
    assert_int_equal(tti_region_alloc(10 * page, &memory), TUTTI_OK);
    check_renewed(memory, 10 * page);
    assert_int_equal(tti_region_free(memory), TUTTI_OK);
    char *own = aligned_alloc(page, 4 * page);
    assert_non_null(own);
    assert_int_equal(tti_region_register(own, 4 * page), TUTTI_OK);
    check_renewed(own, 4 * page);
    pattern(own, 4 * page, 9);
    assert_int_equal(tti_region_deregister(own), TUTTI_OK);
    assert_pattern(own, 4 * page, 9);
    free(own);
    assert_int_equal(open_descriptors(), before);
}

static void hear(void *context, uint64_t id)
{
    struct heard *heard = context;
    heard->calls++;
    heard->id = id;
}

static void listeners(void **state)
{
    (void)state;
    struct heard first = {0}, second = {0};
    struct tti_region region;
    char *memory, *own = aligned_alloc(page, page);
    assert_non_null(own);
    assert_int_equal(tti_region_listen(hear, &first), TUTTI_OK);
    assert_int_equal(tti_region_listen(hear, &second), TUTTI_OK);
    assert_int_equal(tti_region_alloc(10, (void **)&memory), TUTTI_OK);
    assert_true(tti_region_find(memory, 10, &region));
    assert_int_equal(tti_region_free(memory), TUTTI_OK);
    assert_int_equal(first.calls, 1);
    assert_int_equal(second.calls, 1);
    assert_int_equal(first.id, region.id);
    tti_region_unlisten(hear, &second);
    assert_int_equal(tti_region_register(own, page), TUTTI_OK);
    assert_true(tti_region_find(own, page, &region));
    assert_int_equal(tti_region_deregister(own), TUTTI_OK);
    assert_int_equal(first.calls, 2);
    assert_int_equal(first.id, region.id);
    assert_int_equal(second.calls, 1);
    tti_region_unlisten(hear, &first);
    int full = 0;
    while (full < 1000 && tti_region_listen(hear, &first) == TUTTI_OK)
        full++;
    assert_int_equal(full, 64);
    for (int i = 0; i < full; i++)
        tti_region_unlisten(hear, &first);
    free(own);
}

enum { FINDERS = 3, KEPT = 40, ROUNDS = 1500 };

static char *kept[KEPT];
static struct tti_region kept_region[KEPT];
static atomic_bool done;

/* Regions that stay are found all the time, exactly, whatever the others do. */
static void *find_all_the_time(void *context)
{
    uint64_t *wrong = context;
    while (!atomic_load(&done)) {
        for (int i = 0; i < KEPT; i++) {
            struct tti_region region = {0};
            const bool found = tti_region_find(kept[i] + (i % 7), page - 7, &region);
            if (!found || region.id != kept_region[i].id || region.base != kept_region[i].base ||
                region.bytes != kept_region[i].bytes || region.fd != kept_region[i].fd)
                ++*wrong;
        }
    }
    return NULL;
}

static void *come_and_go(void *context)
{
    uint64_t *wrong = context;
    uint64_t last_id = 0;
    char *memory[4];
    for (int round = 0; round < ROUNDS; round++) {
        struct tti_region region;
        for (int i = 0; i < 4; i++) {
            if (tti_region_alloc(page, (void **)&memory[i]) != TUTTI_OK ||
                !tti_region_find(memory[i], page, &region) || region.id <= last_id)
                ++*wrong;
            last_id = region.id;
        }
        for (int i = 0; i < 4; i++)
            if (tti_region_free(memory[(i + round) % 4]) != TUTTI_OK)
                ++*wrong;
    }
    return NULL;
}

static void threads(void **state)
{
    (void)state;
    const int before = open_descriptors();
    pthread_t finder[FINDERS], changer[2];
    uint64_t wrong[FINDERS + 2] = {0};
    for (int i = 0; i < KEPT; i++) {
        assert_int_equal(tti_region_alloc(page, (void **)&kept[i]), TUTTI_OK);
        assert_true(tti_region_find(kept[i], page, &kept_region[i]));
    }
    atomic_store(&done, false);
    for (int i = 0; i < FINDERS; i++)
        assert_int_equal(pthread_create(&finder[i], NULL, find_all_the_time, &wrong[i]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&changer[i], NULL, come_and_go, &wrong[FINDERS + i]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(changer[i], NULL), 0);
    atomic_store(&done, true);
    for (int i = 0; i < FINDERS; i++)
        assert_int_equal(pthread_join(finder[i], NULL), 0);
    for (int i = 0; i < FINDERS + 2; i++)
        assert_int_equal(wrong[i], 0);
    for (int i = 0; i < KEPT; i++)
        assert_int_equal(tti_region_free(kept[i]), TUTTI_OK);
    assert_int_equal(open_descriptors(), before);
}

/* More regions than the table first has room for, freed in another order. */
static void many(void **state)
{
    (void)state;
    enum { MANY = 300 };
    static char *memory[MANY];
    struct tti_region region;
    for (int i = 0; i < MANY; i++)
        assert_int_equal(tti_region_alloc(1, (void **)&memory[i]), TUTTI_OK);
    for (int i = 0; i < MANY; i++) {
        const int at = i * 7 % MANY;
        assert_true(tti_region_find(memory[at], page, &region));
        assert_ptr_equal(region.base, memory[at]);
        assert_int_equal(tti_region_free(memory[at]), TUTTI_OK);
        assert_false(tti_region_find(memory[at], 1, &region));
    }
}

static int set_up(void **state)
{
    (void)state;
    page = (size_t)sysconf(_SC_PAGESIZE);
    return 0;
}

/* Memory of which little is touched has no huge pages, and has none when it is made anew; large
 * memory besides may have them. */
static void sparse_stays_sparse(void **state)
{
    const size_t bytes = ((size_t)5 << 20) + 3 * page; /* nobody else's number */
    int plain = 0, huge = 0;
    (void)state;
    if (!memfd_flags_exist())
        skip();
    for (int sparse = 0; sparse < 2; sparse++) {
        struct tti_region region;
        void *memory = NULL;
        assert_int_equal((sparse ? tti_region_alloc_sparse : tti_region_alloc)(bytes, &memory),
                         TUTTI_OK);
        for (int renewed = 0; renewed < 2; renewed++) {
            assert_int_equal(memfd_flags(bytes, "nh", &plain), 1);
            assert_int_equal(memfd_flags(bytes, "hg", &huge), 1);
            assert_int_equal(plain, sparse);
            assert_int_equal(huge, !sparse);
            assert_true(tti_region_find(memory, bytes, &region));
            assert_int_equal(region.sparse, sparse);
            assert_int_equal(tti_region_renew(region.id), TUTTI_OK);
        }
        assert_int_equal(tti_region_free(memory), TUTTI_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocate),
        cmocka_unit_test(wrong_frees),
        cmocka_unit_test(registers),
        cmocka_unit_test(private_again),
        cmocka_unit_test(wrong_registers),
        cmocka_unit_test(no_descriptors),
        cmocka_unit_test(renewed),
        cmocka_unit_test(listeners),
        cmocka_unit_test(threads),
        cmocka_unit_test(many),
        cmocka_unit_test(sparse_stays_sparse),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
