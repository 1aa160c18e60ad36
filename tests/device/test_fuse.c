/* tti_fuse of device/reduce.h, the arithmetic of the fused path: every variant that runs here,
 * every type and operator, one to three sources into one to three places, through the caches and
 * around them, forwards and from the end, at aligned and odd addresses, in place, bit for bit
 * against reference.c. */
#include "device/cpu_caches.h"
#include "device/reduce.h"
#include "tests/device/reference.h"
#include "tests/tutti_cmocka.h"

#include <string.h>

enum {
    MOST = 3,         /* sources, destinations */
    COUNT = 1100,     /* more than a block of any type */
    LARGE = 20 << 10, /* bytes from which sums and copies go by other loops, a few lines ahead */
    ROOM = LARGE + 2048,
    GUARD = 0xa5,
    LARGE_OPERATION = 1 << 30, /* larger than any cache: goes around them */
};

#if defined(__SANITIZE_THREAD__)
enum { STEP = 3 }; /* every access is slow there, and there are no threads here to watch */
#else
enum { STEP = 1 };
#endif

struct fuse_case {
    enum tutti_op op;
    enum tutti_type type;
    int srcs, dsts;
    size_t count, odd; /* bytes off a cache line, of the last destination */
    bool average, in_place, from_end;
};

static _Alignas(64) char in[MOST][ROOM], out[MOST][ROOM];
static uint64_t state = 5;

/* One element, from the definitions: combined from the left in the accumulator, finished once. */
static void expect(const struct fuse_case *c, size_t i, void *result)
{
    const size_t size = tutti_type_size(c->type);
    const struct tti_finish finish = {c->average, c->srcs};
    const enum tutti_type acc = tti_acc_type(c->type);
    char sum[8];
    enum tutti_type type = c->type;
    memcpy(sum, in[0] + i * size, size);
    for (int s = 1; s < c->srcs; s++) {
        const bool last = s == c->srcs - 1;
        char next[8];
        reference_reduce(c->op, next, last ? c->type : acc, sum, type, in[s] + i * size, c->type,
                         last ? &finish : NULL);
        memcpy(sum, next, sizeof sum);
        type = last ? c->type : acc;
    }
    memcpy(result, sum, size);
}

static void check(const struct fuse_case *c, const char *variant)
{
    static char expected[ROOM];
    const size_t size = tutti_type_size(c->type), bytes = c->count * size;
    const void *srcs[MOST];
    void *dsts[MOST];
    const struct tti_finish finish = {c->average, c->srcs};
    for (int s = 0; s < c->srcs; s++) {
        reference_fill(c->type, in[s], c->count, &state);
        srcs[s] = in[s];
    }
    for (size_t i = 0; i < c->count; i++)
        expect(c, i, expected + i * size);
    memset(out, GUARD, sizeof out);
    for (int d = 0; d < c->dsts; d++)
        dsts[d] = out[d] + 64 + (d == c->dsts - 1 ? c->odd : 0);
    if (c->in_place)
        dsts[0] = in[c->srcs - 1];
    tti_fuse(c->op, c->type, dsts, c->dsts, srcs, c->srcs, c->count, &finish, c->from_end);
    for (int d = 0; d < c->dsts; d++) {
        const char *at = dsts[d];
        if (memcmp(at, expected, bytes) != 0)
            fail_msg("%s: %s of %s, %d sources, place %d of %d, %zu elements, %zu bytes off%s%s%s",
                     variant, tutti_op_name(c->op), tutti_type_name(c->type), c->srcs, d, c->dsts,
                     c->count, c->odd, c->in_place ? ", in place" : "",
                     c->from_end ? ", from the end" : "",
                     tti_copy_streams() ? ", around the caches" : "");
        if (d > 0 || !c->in_place)
            assert_true((unsigned char)at[-1] == GUARD && (unsigned char)at[bytes] == GUARD);
    }
}

static void check_type(const char *variant, enum tutti_type type)
{
    static const size_t counts[] = {1, 15, 16, 17, 64, 129, COUNT};
    const size_t size = tutti_type_size(type);
    for (unsigned k = 0; k < 4 * MOST * MOST; k++) {
        struct fuse_case c = {.type = type,
                              .op = (enum tutti_op)(k % 4),
                              .srcs = 1 + (int)(k / 4 % MOST),
                              .dsts = 1 + (int)(k / 4 / MOST)};
        for (size_t n = k % STEP; n < sizeof counts / sizeof *counts; n += STEP) {
            c.count = counts[n];
            c.odd = n % 3 == 2 ? size : 0;
            c.in_place = n % 2 == 1 && c.srcs > 1;
            c.average = c.op == TUTTI_SUM && c.srcs > 1 && n % 4 == 3;
            for (int from_end = 0; from_end < 2; from_end++) {
                c.from_end = from_end;
                check(&c, variant);
            }
        }
    }
}

/* Sums of two and copies, into one place and two, of lengths that end in and behind the last lines
 * that are asked for ahead. */
static void check_large(const char *variant, enum tutti_type type)
{
    const size_t size = tutti_type_size(type);
    for (unsigned k = 0; k < 8 * STEP; k += STEP) {
        struct fuse_case c = {.type = type,
                              .op = TUTTI_SUM,
                              .srcs = 1 + (int)(k % 2),
                              .dsts = 1 + (int)(k / 2 % 2),
                              .count = (LARGE + 64 * (k % 7)) / size + k % 5,
                              .odd = k % 3 == 1 ? size : 0,
                              .in_place = k == 7};
        for (int from_end = 0; from_end < 2; from_end++) {
            c.from_end = from_end;
            check(&c, variant);
        }
    }
}

static void test_every_shape(void **fixture)
{
    (void)fixture;
    const char *variants[4];
    const int count = reference_variants(variants);
    for (int v = 0; v < count; v++) {
        assert_int_equal(tti_simd_force(variants[v]), TUTTI_OK);
        for (int around = 0; around < 2; around++) {
            tti_copy_expect(around ? LARGE_OPERATION : 0);
            assert_int_equal(tti_copy_streams(), around);
            for (int type = 0; type < TUTTI_TYPE_COUNT; type++) {
                check_type(variants[v], (enum tutti_type)type);
                check_large(variants[v], (enum tutti_type)type);
            }
        }
    }
    tti_copy_expect(0);
}

/* What comes again by turns stays in a cluster's cache as long as it fits there alone; on a mesh
 * the operation's own count decides, as ever. */
static void test_turns_stay_in_the_cache(void **fixture)
{
    uint64_t cache[3];
    (void)fixture;
    tti_cpu_caches_usable("", cache);
    const size_t last = cache[2] > 0 ? (size_t)cache[2] : (size_t)32 << 20;
    tti_copy_expect_turns(last + last / 4, last);
    assert_int_equal(tti_copy_streams(), tti_cpu_meshed());
    tti_copy_expect_turns(last + last / 4 + 1, last + 1);
    assert_true(tti_copy_streams());
    tti_copy_expect_turns(last / 2, last / 2);
    assert_false(tti_copy_streams());
    tti_copy_expect(0);
}

/* What several lanes receive is fetched as it is written, in clusters, from what two second-level
 * caches hold to what the last one does; the next operation says anew. */
static void test_lanes_fetch(void **fixture)
{
    uint64_t cache[3];
    (void)fixture;
    tti_cpu_caches_usable("", cache);
    const size_t second = cache[1] > 0 ? (size_t)cache[1] : (size_t)1 << 20;
    const size_t last = cache[2] > 0 ? (size_t)cache[2] : (size_t)32 << 20;
    char from[TTI_STREAM_BYTES + 1], to[sizeof from];
    memset(from, 7, sizeof from);
    tti_copy_expect_lanes(2 * second, 2 * second, 2);
    assert_int_equal(tti_copy_fetches(), !tti_cpu_meshed() && !tti_copy_streams());
    tti_copy_received(to, from, sizeof from);
    assert_memory_equal(to, from, sizeof from);
    tti_copy_expect_lanes(2 * second, 2 * second, 1);
    assert_false(tti_copy_fetches());
    tti_copy_expect_lanes(2 * second - 1, 2 * second - 1, 2);
    assert_false(tti_copy_fetches());
    tti_copy_expect_lanes(2 * second, 2 * second, 2);
    tti_copy_expect(2 * second);
    assert_false(tti_copy_fetches());
    tti_copy_expect_lanes(4 * last, 4 * last, 2); /* around the caches */
    assert_false(tti_copy_fetches());
    tti_copy_expect(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_shape),
                                       cmocka_unit_test(test_lanes_fetch),
                                       cmocka_unit_test(test_turns_stay_in_the_cache)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
