/* What is mapped where: asked for, where the kernel can be, and read, with the same answers. */
#include "device/process_maps.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/tutti_cmocka.h"

enum { PAGE = 4096, PAGES = 8 };

static bool find(uintptr_t at, bool read, struct tti_mapping *found)
{
    struct tti_maps maps;
    assert_int_equal(tti_maps_open(&maps), TUTTI_OK);
    maps.read = read;
    const bool is = tti_maps_find(&maps, at, found);
    tti_maps_close(&maps);
    return is;
}

static uintptr_t at(const void *memory)
{
    return (uintptr_t)memory;
}

/* A page that is private, one of a shared file, a hole, and one that can be read only. */
static char *made(int *fd)
{
    char *base = mmap(NULL, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(base != MAP_FAILED);
    *fd = memfd_create("test-process-maps", MFD_CLOEXEC);
    assert_true(*fd >= 0 && ftruncate(*fd, PAGE) == 0);
    assert_int_equal(munmap(base, PAGES * PAGE), 0);
    const int flags = MAP_FIXED_NOREPLACE;
    assert_true(mmap(base, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1,
                     0) == base);
    assert_true(mmap(base + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | flags, *fd, 0) ==
                base + PAGE);
    assert_true(mmap(base + 3 * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1,
                     0) == base + 3 * PAGE);
    return base;
}

static void found_either_way(void **state)
{
    (void)state;
    for (int read = 0; read < 2; read++) {
        struct tti_mapping found;
        struct stat file;
        int fd = -1;
        char *base = made(&fd);
        assert_int_equal(fstat(fd, &file), 0);
        assert_true(find(at(base) + 5, read, &found));
        assert_true(found.low <= at(base) && found.high == at(base + PAGE));
        assert_string_equal(found.mode, "rw-p");
        assert_true(found.inode == 0 && !found.stack);
        assert_true(find(at(base + PAGE), read, &found));
        assert_true(found.low == at(base + PAGE) && found.high == at(base + 2 * PAGE));
        assert_string_equal(found.mode, "rw-s");
        assert_true(found.inode == file.st_ino);
        assert_true(find(at(base + 2 * PAGE), read, &found));
        assert_true(found.low == at(base + 3 * PAGE)); /* the next one */
        assert_string_equal(found.mode, "r--p");
        munmap(base, PAGES * PAGE);
        close(fd);
    }
}

static void stack_is_known(void **state)
{
    (void)state;
    /* A local may lie elsewhere under AddressSanitizer, which looks for use after return. */
    const uintptr_t here = at(__builtin_frame_address(0));
    for (int read = 0; read < 2; read++) {
        struct tti_mapping found;
        assert_true(find(here, read, &found));
        assert_true(found.stack && found.low <= here && found.high > here);
        assert_true(find(at((const void *)(uintptr_t)stack_is_known), read, &found));
        assert_true(!found.stack && found.mode[2] == 'x' && found.inode != 0);
    }
}

/* One after the other, to the end: the same by both ways. */
static void all_the_same(void **state)
{
    (void)state;
    struct tti_maps asked, read;
    struct tti_mapping one, other;
    uintptr_t from = 0;
    int count = 0;
    assert_int_equal(tti_maps_open(&asked), TUTTI_OK);
    assert_int_equal(tti_maps_open(&read), TUTTI_OK);
    read.read = true;
    while (tti_maps_find(&read, from, &other)) {
        if (strcmp(other.mode, "--xp") == 0) /* [vsyscall], which is no mapping of the process */
            break;
        assert_true(tti_maps_find(&asked, from, &one));
        assert_true(one.low == other.low && one.high == other.high);
        assert_string_equal(one.mode, other.mode);
        assert_true(one.inode == other.inode && one.stack == other.stack);
        from = other.high;
        count++;
    }
    assert_true(count > 10);
    print_message("%d mappings, %s\n", count,
                  asked.read ? "read both times" : "asked for, and read");
    tti_maps_close(&asked);
    tti_maps_close(&read);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(found_either_way),
        cmocka_unit_test(stack_is_known),
        cmocka_unit_test(all_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
